//! JSON conversion of whole messages, and of messages in an `Any`.

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

/// Serializes a message to a string.
///
/// # Errors
///
/// Fails if a value has no JSON form: a timestamp outside the years 1 to 9999, a duration of more than 10,000 years, a
/// field mask path with capital letters, or an `Any` of an unknown type.
pub fn to_string<M: Message>(message: &M) -> Result<String> {
    let text = to_vec(message)?;
    Ok(String::from_utf8(text).expect("only text was written"))
}

/// Serializes a message to UTF-8 bytes.
///
/// # Errors
///
/// The errors of [`to_string`].
pub fn to_vec<M: Message>(message: &M) -> Result<Vec<u8>> {
    let mut out = Writer::new(M::TYPES);
    message.encode_json(&mut out);
    out.finish().map_err(|error| error.in_field(M::NAME))
}

/// Parses a message.
///
/// # Errors
///
/// Fails if the text is not such a message, or if parsing exceeds a limit; see the constants of [`Reader`].
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

/// Parses a message from UTF-8 bytes.
///
/// # Errors
///
/// The errors of [`from_str`]. Also fails if the bytes are not UTF-8.
pub fn from_slice<M: Message>(bytes: &[u8]) -> Result<M> {
    from_slice_with(bytes, &mut Reading::default())
}

/// Parses a message like [`from_slice`], with these rules.
pub(in crate::codec) fn from_slice_with<M: Message>(bytes: &[u8], reading: &mut Reading) -> Result<M> {
    from_str_with(utf8(bytes)?, reading)
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    if bytes.len() >= LONG
        && let Ok(text) = simdutf8::basic::from_utf8(bytes)
    {
        return Ok(text);
    }
    // The standard library is faster for short text and reports the position of an error.
    std::str::from_utf8(bytes).map_err(|error| Error::at_byte(ErrorKind::InvalidUtf8, error.valid_up_to()))
}

/// Makes these types available to every `Any` in this process. frpc-build generates a function `json_types` per
/// package. A message with an `Any` at any depth knows the types of its own package without registration, and those of
/// packages used by its fields.
///
/// ```
/// # mod details { pub fn json_types() -> &'static frpc::codec::json::Types { frpc::codec::json::Types::WELL_KNOWN } }
/// frpc::codec::json::register(details::json_types());
/// ```
pub fn register(types: &'static Types) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(types);
}

/// The minimum length for the SIMD validation of UTF-8.
const LONG: usize = 64;

static REGISTERED: RwLock<Vec<&'static Types>> = RwLock::new(Vec::new());

impl Types {
    /// Returns the type named by the last part of a URL.
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
