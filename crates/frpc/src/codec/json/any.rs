//! Whole messages, and those in an `Any`.

use std::sync::{PoisonError, RwLock};

use super::{
    error::{Error, ErrorKind, Result},
    fields::Field,
    message::Message,
    reader::{ReadAny, Reader},
    types::{Type, Types},
    well_known::WELL_KNOWN,
    writer::{WriteAny, Writer},
};
use crate::codec::reading::Reading;

/// Writes a message as text.
///
/// # Errors
///
/// If a value has no form in JSON: a timestamp that is not of the years 1 to 9999, a longer duration, a path of a field mask in
/// capital letters, an `Any` of an unknown type.
pub fn to_string<M: Message>(message: &M) -> Result<String> {
    let text = to_vec(message)?;
    Ok(String::from_utf8(text).expect("only text was written"))
}

/// Writes a message as text in UTF-8.
///
/// # Errors
///
/// Those of [`to_string`].
pub fn to_vec<M: Message>(message: &M) -> Result<Vec<u8>> {
    let mut out = Writer::new(M::TYPES);
    message.encode_json(&mut out);
    out.finish().map_err(|error| error.in_field(M::NAME))
}

/// Reads a message.
///
/// # Errors
///
/// If the text is no such message, or takes too much to read: see the constants of [`Reader`].
pub fn from_str<M: Message>(text: &str) -> Result<M> {
    from_str_with(text, &mut Reading::default())
}

fn from_str_with<M: Message>(text: &str, reading: &mut Reading) -> Result<M> {
    let mut message = M::default();
    let mut input = Reader::new(text, M::TYPES, reading);
    input.outermost(M::STACK_LEN);
    let read = message.decode_json(&mut input).map_err(|error| error.in_field(M::NAME));
    read.and_then(|()| input.finish())?;
    reading.memory_len += input.memory_taken();
    reading.has_unknown |= input.has_unknown();
    Ok(message)
}

/// Reads a message from text in UTF-8.
///
/// # Errors
///
/// Those of [`from_str`], and if the bytes are not UTF-8.
pub fn from_slice<M: Message>(bytes: &[u8]) -> Result<M> {
    from_slice_with(bytes, &mut Reading::default())
}

/// Reads a message as [`from_slice`] does, in this way.
pub(in crate::codec) fn from_slice_with<M: Message>(bytes: &[u8], reading: &mut Reading) -> Result<M> {
    from_str_with(utf8(bytes)?, reading)
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    if bytes.len() >= LONG
        && let Ok(text) = simdutf8::basic::from_utf8(bytes)
    {
        return Ok(text);
    }
    // The standard library is faster with a short text, and knows where a wrong one is wrong.
    std::str::from_utf8(bytes).map_err(|error| Error::at_byte(ErrorKind::InvalidUtf8, error.valid_up_to()))
}

/// Lets every `Any` of this process hold these types. frpc-build makes a function of each package, `json_types`; a message that
/// holds an `Any` at any depth knows those of its own package and of packages that its fields have messages of.
///
/// ```
/// # mod details { pub fn json_types() -> &'static frpc::codec::json::Types { frpc::codec::json::Types::WELL_KNOWN } }
/// frpc::codec::json::register(details::json_types());
/// ```
pub fn register(types: &'static Types) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(types);
}

/// The length from which on text is checked by the instructions that the processor has for many bytes at once.
const LONG: usize = 64;

static REGISTERED: RwLock<Vec<&'static Types>> = RwLock::new(Vec::new());

impl Types {
    /// Returns the type that a URL ends with.
    fn of_url(&self, url: &str) -> Result<&'static Type, ErrorKind> {
        let unknown = || ErrorKind::UnknownType { url: url.to_owned() };
        let (_, name) = url.rsplit_once('/').ok_or_else(unknown)?;
        let registered = || {
            let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
            registered.iter().find_map(|types| types.find(name))
        };
        WELL_KNOWN.find(name).or_else(|| self.find(name)).or_else(registered).ok_or_else(unknown)
    }
}

impl WriteAny for Types {
    fn write_any(&self, type_url: &str, value: &[u8], out: &mut Writer) -> Result<()> {
        if type_url.is_empty() && value.is_empty() {
            out.begin();
            out.end();
            return Ok(());
        }
        let found = self.of_url(type_url)?;
        if found.is_object {
            out.begin_any(type_url);
            return (found.encode)(value, out);
        }
        out.begin_any_value(type_url);
        (found.encode)(value, out)?;
        out.end();
        Ok(())
    }
}

impl ReadAny for Types {
    fn read_any(&self, input: &mut Reader<'_>) -> Result<(String, Vec<u8>)> {
        let Some(url) = input.any_type()? else {
            input.object(&[], &mut |_, _| Ok(()))?;
            return Ok(Default::default());
        };
        let found = self.of_url(&url).map_err(|kind| input.error(kind))?;
        input.expect_any();
        if found.is_object {
            return Ok((url.into_owned(), (found.decode)(input)?));
        }
        let mut value = None;
        input.object(&[Field::nullable("value", "value")], &mut |_, input| {
            value = Some((found.decode)(input)?);
            Ok(())
        })?;
        match value {
            Some(value) => Ok((url.into_owned(), value)),
            None if found.is_empty => Ok((url.into_owned(), Vec::new())),
            None => Err(input.error(ErrorKind::NoValue)),
        }
    }
}
