//! Encoding and decoding of single messages, in each format of a call.
//!
//! This module knows no packets, sockets or tasks.

mod checked_fields;
mod compression;
mod convert;
mod custom;
mod field_layouts;
mod format;
mod formats;
pub mod json;
mod layout;
mod polyglot;
mod reading;
mod required;

pub use self::compression::Compression;
pub use self::custom::Codec;
pub(crate) use self::custom::CodedMessage;
pub use self::format::Format;
pub use self::formats::{CodecError, Formats};
pub use self::layout::{FieldLayout, Layout, MemoryBudget};
pub use self::polyglot::{
    At, Blob, Choice, CountingSink, DecodeError, DecodeErrorKind, DecodedContent, EncodedMessage, Enumeration, Failure,
    Kind, MapEntries, Message, MessageStorage, Positions, Presence, Reader, Result, Sink, SmallMessage, Writable,
    Writer, decode, decode_with, encode, encode_error, encode_pieces, encode_to, encode_with, is_error, trailer,
};
pub(crate) use self::polyglot::{decode_error, encode_small, short_error};
pub(crate) use self::reading::DecodeContext;
pub use self::required::{CheckedField, RequiredFields};
