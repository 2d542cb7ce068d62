//! JSON conversion of whole messages, and of messages in an `Any`.

use super::{
    error::{Error, ErrorKind, Result},
    fields::Field,
    message::Message,
    reader::{ReadAny, Reader},
    types::{Type, Types},
    well_known::WELL_KNOWN,
    writer::{WriteAny, Writer},
};
use crate::codec::reading::DecodeContext;

/// Serializes a message to a string.
///
/// # Errors
///
/// Fails if a value has no JSON form: a timestamp outside the years 1 to 9999, a duration of more than 10,000 years, a
/// field mask path with capital letters, or an `Any` of an unknown type.
pub fn to_string<M: Message>(message: &M) -> Result<String> {
    to_string_with(message, Types::WELL_KNOWN)
}

/// Serializes a message to a string. Its `Any` fields can also contain messages of `any_types`.
///
/// # Errors
///
/// The errors of [`to_string`].
pub fn to_string_with<M: Message>(message: &M, any_types: &'static Types) -> Result<String> {
    let text = to_vec_with(message, any_types)?;
    Ok(String::from_utf8(text).expect("only text was written"))
}

/// Serializes a message to UTF-8 bytes.
///
/// # Errors
///
/// The errors of [`to_string`].
pub fn to_vec<M: Message>(message: &M) -> Result<Vec<u8>> {
    to_vec_with(message, Types::WELL_KNOWN)
}

/// Serializes a message to UTF-8 bytes. Its `Any` fields can also contain messages of `any_types`.
///
/// # Errors
///
/// The errors of [`to_string`].
pub fn to_vec_with<M: Message>(message: &M, any_types: &'static Types) -> Result<Vec<u8>> {
    let mut out = Writer::new([&WELL_KNOWN, M::TYPES, any_types]);
    message.encode_json(&mut out);
    out.finish().map_err(|error| error.in_field(M::NAME))
}

/// Parses a message.
///
/// # Errors
///
/// Fails if the text is not such a message, or if parsing exceeds a limit; see the constants of [`Reader`].
pub fn from_str<M: Message>(text: &str) -> Result<M> {
    read_text(text, &mut DecodeContext::default())
}

/// Parses a message. Its `Any` fields can also contain messages of `any_types`.
///
/// ```
/// # mod details { pub const fn json_types() -> &'static frpc::codec::json::Types { frpc::codec::json::Types::WELL_KNOWN } }
/// use frpc::{codec::json, prost_types::Any};
///
/// let text = r#"{"@type":"type.googleapis.com/google.protobuf.Duration","value":"2s"}"#;
/// let any: Any = json::from_str_with(text, details::json_types())?;
/// assert_eq!(json::to_string_with(&any, details::json_types())?, text);
/// # Ok::<(), json::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`from_str`].
pub fn from_str_with<M: Message>(text: &str, any_types: &'static Types) -> Result<M> {
    read_text(text, &mut DecodeContext { any_types, ..DecodeContext::default() })
}

/// Parses a message like [`from_str_with`], and rejects fields and enum names that the message lacks.
///
/// ```
/// use frpc::{codec::json, prost_types::Any};
///
/// let text = r#"{"@type":"type.googleapis.com/google.protobuf.Empty","extra":1}"#;
/// assert!(json::from_str::<Any>(text).is_ok());
/// let error = json::from_str_strict::<Any>(text, json::Types::WELL_KNOWN).unwrap_err();
/// assert!(error.to_string().starts_with("google.protobuf.Any.extra: this side knows no such field"));
/// ```
///
/// # Errors
///
/// The errors of [`from_str`]. Also fails for an unknown field or enum name.
pub fn from_str_strict<M: Message>(text: &str, any_types: &'static Types) -> Result<M> {
    read_text(text, &mut DecodeContext { is_strict: true, any_types, ..DecodeContext::default() })
}

/// Parses a message from UTF-8 bytes.
///
/// # Errors
///
/// The errors of [`from_str`]. Also fails if the bytes are not UTF-8.
pub fn from_slice<M: Message>(bytes: &[u8]) -> Result<M> {
    read(bytes, &mut DecodeContext::default())
}

/// Parses a message from UTF-8 bytes. Its `Any` fields can also contain messages of `any_types`.
///
/// # Errors
///
/// The errors of [`from_slice`].
pub fn from_slice_with<M: Message>(bytes: &[u8], any_types: &'static Types) -> Result<M> {
    read(bytes, &mut DecodeContext { any_types, ..DecodeContext::default() })
}

/// Parses a message like [`from_slice`], with these rules.
pub(in crate::codec) fn read<M: Message>(bytes: &[u8], reading: &mut DecodeContext) -> Result<M> {
    read_text(utf8(bytes)?, reading)
}

fn read_text<M: Message>(text: &str, reading: &mut DecodeContext) -> Result<M> {
    let mut message = M::default();
    let mut input = Reader::new(text, [&WELL_KNOWN, M::TYPES, reading.any_types], reading.budget, reading.is_strict);
    input.outermost(M::STACK_LEN);
    let read = message.decode_json(&mut input).map_err(|error| error.in_field(M::NAME));
    read.and_then(|()| input.finish())?;
    reading.memory_len += input.memory_taken();
    reading.has_unknown |= input.has_unknown();
    Ok(message)
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

/// The minimum length for the SIMD validation of UTF-8.
const LONG: usize = 64;

/// Returns the name of a message type from its URL: the last part.
fn name_of(url: &str) -> Option<&str> {
    url.rsplit_once('/').map(|(_, name)| name)
}

impl WriteAny for Types {
    fn write_any(&self, type_url: &str, value: &[u8], out: &mut Writer) -> Option<Result<()>> {
        let found = self.find(name_of(type_url)?)?;
        // `google.protobuf.Empty` is no such object: Go requires its `value`, and protobuf-es writes it. C++, Java and Python
        // refuse it. No form suits all peers, and both are read here.
        if found.is_object {
            out.begin_any(type_url);
            return Some((found.encode)(value, out));
        }
        out.begin_any_value(type_url);
        let written = (found.encode)(value, out);
        out.end();
        Some(written)
    }
}

impl ReadAny for Types {
    fn read_any(&self, url: &str, input: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        let found = self.find(name_of(url)?)?;
        Some(read_content(found, input))
    }
}

fn read_content(found: &Type, input: &mut Reader<'_>) -> Result<Vec<u8>> {
    input.expect_any();
    if found.is_object {
        return (found.decode)(input);
    }
    let mut value = None;
    input.object(&[Field::nullable("value", "value")], &mut |_, input| {
        value = Some((found.decode)(input)?);
        Ok(())
    })?;
    match value {
        Some(value) => Ok(value),
        None if found.is_empty => Ok(Vec::new()),
        None => Err(input.error(ErrorKind::NoValue)),
    }
}
