//! The encoding and decoding functions of a message type, by format.

use std::{error::Error, fmt};

use bytes::{Buf, Bytes};

use super::{
    format::Format,
    json,
    polyglot::{DecodeError, DecodeErrorKind, Failure},
    reading::DecodeContext,
};

/// The formats of a message type besides polyglot. A table of functions, so trait bounds do not depend on the features
/// of a build.
///
/// ```
/// use frpc::codec::{Formats, Message};
/// # use frpc::{codec::{DecodeError, Reader, Sink, Writer}, prost};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Point {
///     #[prost(int32, tag = "1")]
///     x: i32,
/// }
///
/// impl Message for Point {
///     const NAME: &'static str = "Point";
///     const FORMATS: Option<&'static Formats<Self>> = Some(&Formats::prost());
/// #   fn encode_fields<S: Sink>(&self, out: &mut Writer<S>) { out.i32(self.x) }
/// #   fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<(), DecodeError> { input.i32(&mut self.x) }
///     // The other items are unchanged.
/// }
/// ```
#[derive(Debug)]
pub struct Formats<M: 'static> {
    pub(super) proto: Option<FormatFunctions<M>>,
    pub(super) json: Option<FormatFunctions<M>>,
    /// The name of the codec that writes the message in place of prost.
    pub(super) codec: Option<&'static str>,
}

type EncodeTo<M> = fn(&M, &'static json::Types, &mut Vec<u8>, usize) -> Result<Option<Bytes>, CodecError>;

#[derive(Debug)]
pub(super) struct FormatFunctions<M> {
    /// The types are for an `Any` in JSON, in addition to the types of the message.
    pub(super) encode: fn(&M, &'static json::Types) -> Result<Bytes, CodecError>,
    /// Appends the encoded message, or returns it if it is longer than this number of bytes.
    pub(super) encode_to: EncodeTo<M>,
    /// Decodes a message that is a part of a buffer. Its `Bytes` fields are slices of the buffer.
    ///
    /// Adds the memory of the message to [`DecodeContext::memory_len`], unless it was counted before decoding.
    pub(super) decode: fn(&Bytes, &[u8], &mut DecodeContext) -> Result<M, CodecError>,
}

impl<M: prost::Message + Default + 'static> Formats<M> {
    /// Creates the table of a message with protobuf support from prost.
    pub const fn prost() -> Self {
        let proto =
            FormatFunctions { encode: encode_prost::<M>, encode_to: encode_prost_to::<M>, decode: decode_prost::<M> };
        Self { proto: Some(proto), json: None, codec: None }
    }
}

impl<M: json::Message> Formats<M> {
    /// Adds JSON: `Formats::prost().with_json()`.
    #[must_use]
    pub const fn with_json(self) -> Self {
        let json =
            FormatFunctions { encode: encode_json::<M>, encode_to: encode_json_to::<M>, decode: decode_json::<M> };
        Self { json: Some(json), ..self }
    }
}

fn encode_prost<M: prost::Message>(message: &M, _: &'static json::Types) -> Result<Bytes, CodecError> {
    Ok(message.encode_to_vec().into())
}

fn encode_prost_to<M: prost::Message>(
    message: &M,
    _: &'static json::Types,
    out: &mut Vec<u8>,
    len_max: usize,
) -> Result<Option<Bytes>, CodecError> {
    let len = message.encoded_len();
    if len > len_max {
        return Ok(Some(message.encode_to_vec().into()));
    }
    out.reserve(len);
    message.encode_raw(out);
    Ok(None)
}

// The caller checked the memory of the message before.
fn decode_prost<M: prost::Message + Default>(
    content: &Bytes,
    part: &[u8],
    _: &mut DecodeContext,
) -> Result<M, CodecError> {
    M::decode(ContentReader { content, rest: part }).map_err(CodecError::Proto)
}

/// Reads content so that `bytes` fields become slices of it instead of copies. Other fields take no reference to it.
struct ContentReader<'a> {
    content: &'a Bytes,
    rest: &'a [u8],
}

impl Buf for ContentReader<'_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.rest
    }

    #[inline]
    fn advance(&mut self, len: usize) {
        self.rest = &self.rest[len..];
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let (part, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.content.slice_ref(part)
    }
}

fn encode_json<M: json::Message>(message: &M, any_types: &'static json::Types) -> Result<Bytes, CodecError> {
    json::to_vec_with(message, any_types).map(Bytes::from).map_err(CodecError::Json)
}

fn encode_json_to<M: json::Message>(
    message: &M,
    any_types: &'static json::Types,
    out: &mut Vec<u8>,
    len_max: usize,
) -> Result<Option<Bytes>, CodecError> {
    Ok(append(out, encode_json(message, any_types)?, len_max))
}

/// Appends content, or returns it if it is longer than `len_max` bytes, or long enough to be worth its own buffer.
pub(super) fn append(out: &mut Vec<u8>, content: Bytes, len_max: usize) -> Option<Bytes> {
    if content.len() > len_max.min(COPIED_LEN_MAX) {
        return Some(content);
    }
    out.extend_from_slice(&content);
    None
}

/// Longer content, encoded already, is not copied.
const COPIED_LEN_MAX: usize = 4096;

fn decode_json<M: json::Message>(_: &Bytes, part: &[u8], reading: &mut DecodeContext) -> Result<M, CodecError> {
    json::read(part, reading).map_err(CodecError::Json)
}

/// An error in encoding or decoding a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes are not a valid polyglot message.
    Polyglot(DecodeError),
    /// The bytes are a polyglot error in place of a message.
    Failure(Failure),
    /// The bytes are not a valid protobuf message.
    Proto(prost::DecodeError),
    /// The text is not a valid JSON message, or a value has no JSON form.
    Json(json::Error),
    /// A protobuf message exceeds its [memory budget](super::MemoryBudget).
    TooMuchMemory {
        /// The name of the message in the proto file.
        message: &'static str,
        /// The memory limit in bytes.
        limit: usize,
    },
    /// A protobuf message lacks a [required field](super::RequiredFields).
    Missing {
        /// The path of the field: the name of the message, its field, the field of that field, and so on.
        path: String,
    },
    /// A user-defined [codec](super::Codec) failed.
    Custom {
        /// The name of the codec.
        codec: &'static str,
        /// The error of the codec.
        text: String,
    },
    /// The message has a user-defined [codec](super::Codec) for another format.
    OtherCodec {
        /// The name of the codec.
        codec: &'static str,
        /// The requested format.
        format: Format,
    },
    /// The message type does not support the format on this side.
    Unsupported {
        /// The name of the message in the proto file.
        message: &'static str,
        /// The requested format.
        format: Format,
    },
}

impl CodecError {
    /// Returns `true` if the message was rejected only because of its memory.
    pub fn is_too_much_memory(&self) -> bool {
        match self {
            Self::TooMuchMemory { .. } => true,
            Self::Polyglot(error) => {
                matches!(error.kind(), DecodeErrorKind::TooMuchMemory { .. } | DecodeErrorKind::OverBudget { .. })
            }
            Self::Json(error) => matches!(error.kind(), json::ErrorKind::TooMuchMemory { .. }),
            Self::Proto(_)
            | Self::Failure(_)
            | Self::Missing { .. }
            | Self::Custom { .. }
            | Self::OtherCodec { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}

impl CodecError {
    /// Returns `true` if the bytes do not match the type of the message, in a format whose errors do not name the type.
    pub(crate) fn is_mismatch(&self) -> bool {
        matches!(self, Self::Proto(_) | Self::Json(_) | Self::Custom { .. })
    }
}

impl From<DecodeError> for CodecError {
    fn from(error: DecodeError) -> Self {
        Self::Polyglot(error)
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Polyglot(error) => error.fmt(f),
            Self::Failure(failure) => f.write_str(&failure.text),
            Self::Proto(error) => error.fmt(f),
            Self::Json(error) => error.fmt(f),
            Self::TooMuchMemory { message, limit } => {
                write!(f, "{message}: would take more than {limit} bytes of memory")
            }
            Self::Missing { path } => write!(f, "{path} is required"),
            Self::Custom { codec, text } => write!(f, "the codec `{codec}` refuses it: {text}"),
            Self::OtherCodec { codec, format } => {
                write!(f, "the messages are written by the codec `{codec}`, not in {format}")
            }
            Self::Unsupported { message, format } => {
                let advice = match format {
                    Format::Proto => "have frisbee-rpc-build generate it, or set its `Message::FORMATS`",
                    Format::Json => "have frisbee-rpc-build generate it with `.json(true)`",
                    Format::Polyglot => "use another format",
                };
                write!(f, "the message {message} has no {format} on this side: {advice}")
            }
        }
    }
}

impl Error for CodecError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Polyglot(error) => Some(error),
            Self::Proto(error) => Some(error),
            Self::Json(error) => Some(error),
            Self::Failure(_)
            | Self::TooMuchMemory { .. }
            | Self::Missing { .. }
            | Self::Custom { .. }
            | Self::OtherCodec { .. }
            | Self::Unsupported { .. } => None,
        }
    }
}
