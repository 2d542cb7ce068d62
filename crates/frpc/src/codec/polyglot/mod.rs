//! The bytes of one message: the polyglot encoding as the Go implementation lays it out.
//!
//! A message is its fields in three groups (scalars, lists, messages and maps), each in the order of declaration, with
//! no tags. Generated code walks the fields and says what each is; [`Writer`] and [`Reader`] know the bytes. What the
//! layout cannot express goes into a [trailer] that Go readers ignore.
//!
//! # Limits
//!
//! What decoding takes is bounded, whatever the bytes claim and whatever the schema is:
//!
//! - **Memory**: [`Reader::MEMORY_FACTOR`] (16) bytes for each byte of input, and [`Reader::MEMORY_LEN_MIN`] (1 MiB) on top.
//!   Elements of lists and maps, texts, bytes that are copied and boxed messages are charged before they are allocated.
//!   Beyond that, decoding ends with [`DecodeErrorKind::TooMuchMemory`] and the path of the field. Ordinary messages are
//!   far from the limit. Long lists of absent messages are not: each is one byte of input and a whole struct in memory.
//! - **Depth**: [`Reader::DEPTH_MAX`] (100) messages in each other, or as many as fit into [`Reader::STACK_LEN_MAX`]
//!   (512 KiB) of stack; beyond that, decoding ends with [`DecodeErrorKind::TooDeep`]. What was decoded can be encoded,
//!   cloned, compared and dropped on a thread with 2 MiB of stack.
//! - **Time** is linear in the input. Numbers of enums are found in sorted tables.
//!
//! Nothing here knows packets, sockets or tasks.

mod enumeration;
mod error;
mod kind;
mod reader;
pub mod trailer;
mod well_known;
mod writer;

use std::mem;

use bytes::Bytes;

use self::{trailer::Slots, writer::Cutter};
use super::formats::Formats;

pub use self::{
    enumeration::Enumeration,
    error::{At, DecodeError, DecodeErrorKind, Failure, Result},
    kind::Kind,
    reader::{Blob, Choice, Entries, Reader, Storage},
    trailer::Presence,
    writer::{Counter, Sink, Writable, Writer},
};

/// A message that can cross the wire. Implemented by generated code.
pub trait Message: Default + Send + Sync + 'static {
    /// The name in the proto file, without its package, for error messages.
    const NAME: &'static str;

    /// The formats that it has besides polyglot.
    const FORMATS: Option<&'static Formats<Self>> = None;

    /// Writes the fields, in the order of the wire.
    fn encode_fields<S: Sink>(&self, out: &mut Writer<S>);

    /// Reads the fields of a default message, in the order of the wire.
    fn decode_fields(&mut self, input: &mut Reader<'_>) -> Result<()>;
}

/// What the content of a packet turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<M> {
    /// A message.
    Message(M),
    /// The error alternative: a text in place of a message.
    Error(Failure),
}

/// The bytes of a message.
#[inline]
pub fn encode<M: Message>(message: &M) -> Bytes {
    let mut size = Writer::new(Counter::default());
    size.root(message);
    encode_with_len(message, size.finish().len())
}

#[inline]
fn encode_with_len<M: Message>(message: &M, len: usize) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(len));
    out.root(message);
    out.finish().into_boxed_slice().into()
}

/// The bytes of a message in pieces: those of its large `Bytes` fields are shared and not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// How they begin; often all there is.
    pub first: Bytes,
    /// How they go on.
    pub rest: Vec<Bytes>,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them in one piece.
    pub fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut all = Vec::with_capacity(self.len());
        all.extend_from_slice(&self.first);
        self.rest.iter().for_each(|piece| all.extend_from_slice(piece));
        all.into()
    }
}

impl From<Bytes> for Pieces {
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new() }
    }
}

/// The bytes of a message, without copying its large `Bytes` fields.
#[inline]
pub fn encode_pieces<M: Message>(message: &M) -> Pieces {
    let mut size = Writer::new(Counter::default());
    size.root(message);
    let size = size.finish();
    if size.shared_len() > 0 {
        return cut(message, size.len() - size.shared_len());
    }
    encode_with_len(message, size.len()).into()
}

#[cold]
#[inline(never)]
fn cut<M: Message>(message: &M, flat_len: usize) -> Pieces {
    let mut out = Writer::new(Cutter::with_capacity(flat_len));
    out.root(message);
    let mut pieces = out.finish().into_pieces();
    let first = pieces.next().unwrap_or_default();
    Pieces { first, rest: pieces.collect() }
}

/// Appends the bytes of a message to a buffer, which can serve for many.
#[inline]
pub fn encode_to<M: Message>(message: &M, out: &mut Vec<u8>) {
    let mut writer = Writer::new(mem::take(out));
    writer.root(message);
    *out = writer.finish();
}

/// The bytes of the error alternative. Without a code they are those of the Go implementation.
pub fn encode_error(text: &str, code: Option<u8>) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(text.len() + ERROR_HEAD_LEN_MAX));
    out.error(text, code);
    out.finish().into()
}

/// Reads a message, or the error in its place. Bytes after it are ignored; an absent message is a default one. `Bytes`
/// fields are slices of `content`.
pub fn decode<M: Message>(content: &Bytes) -> Result<Content<M>, DecodeError> {
    let mut input = Reader::new(content);
    let first = input.root()?;
    if input.is_empty() {
        return Ok(first);
    }
    match Slots::read(&mut input).map_err(|error| error.in_message(M::NAME))? {
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

/// Kind, kind of the text, its length, and the code behind it.
const ERROR_HEAD_LEN_MAX: usize = 2 + 5 + 3;
