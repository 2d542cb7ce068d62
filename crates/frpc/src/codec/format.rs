//! The formats that the messages of a call can have.

use std::fmt;

use bytes::Bytes;

use super::{
    formats::{CodecError, Functions},
    polyglot::{self, Content, Message, Pieces},
};

/// How the messages of a call are written. The wire that a call goes over chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The format of fRPC: fields by position.
    #[default]
    Polyglot,
    /// Protocol buffers: fields by number.
    Proto,
    /// The JSON mapping of proto3: fields by name.
    Json,
}

impl Format {
    /// Writes a message.
    ///
    /// # Errors
    ///
    /// If the type has no such format: hand-written messages may have none but polyglot.
    #[inline]
    pub fn encode<M: Message>(self, message: &M) -> Result<Pieces, CodecError> {
        match self {
            Self::Polyglot => Ok(polyglot::encode_pieces(message)),
            other => other.encode_by_table(message),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// If the type has no such format, or the bytes are no such message.
    #[inline]
    pub fn decode<M: Message>(self, content: &Bytes) -> Result<M, CodecError> {
        match self {
            Self::Polyglot => match polyglot::decode(content)? {
                Content::Message(message) => Ok(message),
                Content::Error(failure) => Err(CodecError::Failure(failure)),
            },
            other => other.decode_by_table(content),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Polyglot => "polyglot",
            Self::Proto => "protobuf",
            Self::Json => "JSON",
        }
    }

    #[cold]
    #[inline(never)]
    fn encode_by_table<M: Message>(self, message: &M) -> Result<Pieces, CodecError> {
        Ok((self.functions::<M>()?.encode)(message).into())
    }

    #[cold]
    #[inline(never)]
    fn decode_by_table<M: Message>(self, content: &Bytes) -> Result<M, CodecError> {
        (self.functions::<M>()?.decode)(content)
    }

    fn functions<M: Message>(self) -> Result<&'static Functions<M>, CodecError> {
        let functions = M::FORMATS.and_then(|formats| match self {
            Self::Polyglot => None,
            Self::Proto => formats.proto.as_ref(),
            Self::Json => formats.json.as_ref(),
        });
        functions.ok_or_else(|| CodecError::Unsupported { message: M::NAME, format: self.name() })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
