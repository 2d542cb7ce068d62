//! The bytes of one message: the polyglot encoding as the Go implementation lays it out.
//!
//! A message is its fields in three groups (scalars, lists, messages and maps), each in the order of declaration, with
//! no tags. Generated code walks the fields and says what each is; [`Writer`] and [`Reader`] know the bytes. What the
//! layout cannot express goes into a [trailer] that Go readers ignore.
//!
//! Nothing here knows packets, sockets or tasks.

mod enumeration;
mod error;
mod kind;
mod reader;
pub mod trailer;
mod well_known;
mod writer;

use bytes::Bytes;

use self::trailer::Slots;

pub use self::{
    enumeration::Enumeration,
    error::{At, DecodeError, DecodeErrorKind},
    kind::Kind,
    reader::{Blob, Reader},
    trailer::Presence,
    writer::{Counter, Sink, Writer},
};

/// A message that can cross the wire. Implemented by generated code.
pub trait Message: Default + Send + Sync + 'static {
    /// The name in the proto file, without its package, for error messages.
    const NAME: &'static str;

    /// Writes the fields, in the order of the wire.
    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>);

    /// Reads the fields, in the order of the wire.
    fn decode_fields(input: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// What the content of a packet turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<M> {
    /// A message.
    Message(M),
    /// The error alternative: a text in place of a message.
    Error(String),
}

/// The bytes of a message.
#[inline]
pub fn encode<M: Message>(message: &M) -> Bytes {
    let mut size = Writer::new(Counter::default());
    size.root(message);
    let mut out = Writer::new(Vec::with_capacity(size.finish().len()));
    out.root(message);
    out.finish().into_boxed_slice().into()
}

/// Appends the bytes of a message to a buffer, which can serve for many.
#[inline]
pub fn encode_to<M: Message>(message: &M, out: &mut Vec<u8>) {
    Writer::new(out).root(message);
}

/// The bytes of the error alternative.
pub fn encode_error(text: &str) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(text.len() + ERROR_HEAD_LEN_MAX));
    out.error(text);
    out.finish().into()
}

/// Reads a message, or the error in its place. Bytes after it are ignored; an absent message is a default one. `Bytes`
/// fields are slices of `content`.
pub fn decode<M: Message>(content: &Bytes) -> Result<Content<M>, DecodeError> {
    let mut input = Reader::new(content);
    let first = input.root()?;
    match input.trailer() {
        None => Ok(first),
        Some(kept) => {
            drop(first);
            decode_with_trailer(content, kept)
        }
    }
}

/// Rare: the message has something that only the trailer tells, so it is read again with the trailer at hand.
#[cold]
#[inline(never)]
fn decode_with_trailer<M: Message>(content: &Bytes, kept: Slots) -> Result<Content<M>, DecodeError> {
    Reader::with_trailer(content, kept).root()
}

/// Kind, kind of the text, and two lengths.
const ERROR_HEAD_LEN_MAX: usize = 7;
