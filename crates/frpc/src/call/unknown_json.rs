//! Treatment of unknown fields and enum names in the JSON of callers.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock},
};

use bytes::Bytes;
use tracing::warn;

use super::{head::Head, method::Method};
use crate::codec::{CodecError, DecodeContext, Format, Message};

/// The treatment of JSON fields and enum names unknown to this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownJson {
    /// Ignore them.
    Ignore,
    /// Ignore them, and log the first one of each method.
    Log,
    /// Reject the message.
    Refuse,
}

/// An extension of the head, because most calls have none.
struct StrictJson;

impl Head {
    /// Rejects JSON messages of the caller with fields or enum names unknown to this side. Intended for wires. By
    /// default, such fields and names are ignored, and the first one of each method is logged.
    pub fn set_strict_json(&mut self) {
        self.extensions_mut().insert(StrictJson);
    }
}

impl UnknownJson {
    /// Returns the treatment for the messages of a caller.
    pub(crate) fn of_caller(format: Format, head: &Head) -> Self {
        match format {
            Format::Json if head.extensions().get::<StrictJson>().is_some() => Self::Refuse,
            Format::Json => Self::Log,
            // Fields of these formats have no names.
            Format::Polyglot | Format::Proto => Self::Ignore,
        }
    }

    /// Decodes a message of this method. Kept out of line, so that the code for polyglot messages stays small.
    #[cold]
    #[inline(never)]
    pub(crate) fn decode<M: Message>(
        self,
        method: &'static Method,
        format: Format,
        content: &Bytes,
        reading: &mut DecodeContext,
    ) -> Result<M, CodecError> {
        reading.is_strict = self == Self::Refuse;
        let message = format.decode_with(content, reading)?;
        if reading.has_unknown && self == Self::Log && is_first_of(method) {
            log::<M>(method, format, content, reading);
        }
        Ok(message)
    }
}

/// Logs the first unknown field or enum name of a message. Only a strict reader knows its path, so the message is read
/// again.
fn log<M: Message>(method: &Method, format: Format, content: &Bytes, reading: &DecodeContext) {
    let mut strict =
        DecodeContext { is_strict: true, any_types: reading.any_types, ..DecodeContext::within(reading.budget) };
    if let Err(error) = format.decode_with::<M>(content, &mut strict) {
        // The text contains names sent by the peer, so it is logged escaped.
        let error = error.to_string();
        warn!(%method, ?error, "ignored an unknown field or enum name in a JSON request; logged once per method");
    }
}

/// Returns `true` for the first call with this method. Methods are part of the program, so peers cannot make the set
/// grow.
fn is_first_of(method: &'static Method) -> bool {
    static LOGGED: RwLock<BTreeSet<(&str, &str)>> = RwLock::new(BTreeSet::new());
    let key = (method.service, method.name);
    let is_known = LOGGED.read().unwrap_or_else(PoisonError::into_inner).contains(&key);
    !is_known && LOGGED.write().unwrap_or_else(PoisonError::into_inner).insert(key)
}
