//! Fields and enum names in the JSON of a caller that this side does not know.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock},
};

use bytes::Bytes;
use tracing::warn;

use super::{head::Head, method::Method};
use crate::codec::{CodecError, Format, Message, Reading};

/// The treatment of fields and enum names in JSON that this side does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownJson {
    /// They are ignored.
    Ignore,
    /// They are ignored, and the first of each method is logged.
    Log,
    /// Their message is an error.
    Refuse,
}

/// Kept among the extensions of a head, since most calls have none.
struct Strict;

impl Head {
    /// Has the messages of a caller refused whose JSON has fields or enum names that this side does not know: for wires. By default
    /// these are ignored, and the first of each method is logged.
    pub fn set_strict_json(&mut self) {
        self.extensions_mut().insert(Strict);
    }
}

impl UnknownJson {
    /// Returns what happens to those in the messages of the caller.
    pub(crate) fn of_caller(format: Format, head: &Head) -> Self {
        match format {
            Format::Json if head.extensions().get::<Strict>().is_some() => Self::Refuse,
            Format::Json => Self::Log,
            // Their fields have no names.
            Format::Polyglot | Format::Proto => Self::Ignore,
        }
    }

    /// Reads a message of this method.
    // Not a part of functions that read messages in polyglot.
    #[cold]
    #[inline(never)]
    pub(crate) fn decode<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        content: &Bytes,
        reading: &mut Reading,
    ) -> Result<M, CodecError> {
        reading.is_strict = self == Self::Refuse;
        let message = format.decode_with(content, reading)?;
        if reading.has_unknown && self == Self::Log && is_first_of(method) {
            log::<M>(method, format, content, reading);
        }
        Ok(message)
    }
}

/// Logs the first unknown field or enum name of a message. Only a strict reader knows its path, so the message is read again.
fn log<M: Message>(method: &Method, format: Format, content: &Bytes, reading: &Reading) {
    let mut strict = Reading { is_strict: true, ..Reading::within(reading.budget) };
    if let Err(error) = format.decode_with::<M>(content, &mut strict) {
        // Names of the peer are in it, so it is escaped.
        let error = error.to_string();
        warn!(%method, ?error, "a request in JSON has an unknown field or enum name, which is ignored; logged once for each method");
    }
}

/// Returns whether this is the first call for the method. Methods are part of the program, so peers cannot make the set grow.
fn is_first_of(method: &'static Method) -> bool {
    static LOGGED: RwLock<BTreeSet<(&str, &str)>> = RwLock::new(BTreeSet::new());
    let key = (method.service, method.name);
    let is_known = LOGGED.read().unwrap_or_else(PoisonError::into_inner).contains(&key);
    !is_known && LOGGED.write().unwrap_or_else(PoisonError::into_inner).insert(key)
}
