//! Reading messages: at the root, in each other, and the error in place of one.

use bytes::Bytes;

use super::{
    error::{Failure, Result},
    kind::Kind,
    message::Message,
    reader::Reader,
    slots::Slots,
    storage::Storage,
    trailer,
};

/// The content of a packet, read.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<M> {
    /// A message.
    Message(M),
    /// The error alternative: a text in place of a message.
    Error(Failure),
}

/// Reads a message, or the error in its place. Bytes after it are ignored; an absent message is a default one. `Bytes`
/// fields are slices of `content`.
#[inline]
pub fn decode<M: Message>(content: &Bytes) -> Result<Content<M>> {
    decode_part(content, content)
}

/// Reads a message as [`decode`] does, which is a part of `content`.
#[inline]
pub(crate) fn decode_part<M: Message>(content: &Bytes, part: &[u8]) -> Result<Content<M>> {
    let mut input = Reader::of_part(content, part);
    let first = input.root()?;
    if input.is_empty() {
        return Ok(first);
    }
    match trailer::read(&mut input).map_err(|error| error.in_message(M::NAME))? {
        None => Ok(first),
        Some(kept) => {
            drop(first);
            decode_with_trailer(content, part, kept)
        }
    }
}

/// Reads a message again with its trailer at hand. Rare: most messages have nothing that only a trailer tells.
#[cold]
#[inline(never)]
fn decode_with_trailer<M: Message>(content: &Bytes, part: &[u8], kept: Slots) -> Result<Content<M>> {
    Reader::with_trailer(content, part, kept).root()
}

/// Returns whether the content of a packet is the error alternative.
#[inline]
pub fn is_error(content: &[u8]) -> bool {
    content.first() == Some(&(Kind::Error as u8))
}

/// Reads the error in place of a message. `None` if the content is no error.
#[inline]
pub(crate) fn decode_error(content: &Bytes) -> Option<Result<Failure>> {
    is_error(content).then(|| Reader::new(content).failure())
}

impl Reader<'_> {
    /// Reads a message at the root, where it may be absent or an error.
    #[inline(always)] // Moving a small message from frame to frame takes longer than reading it.
    pub fn root<M: Message>(&mut self) -> Result<Content<M>> {
        if is_error(self.rest()) {
            return self.failure().map(Content::Error).map_err(|error| error.in_message(M::NAME));
        }
        let mut message = M::default();
        let read = if self.skip_nil() { Ok(()) } else { self.outermost(&mut message) };
        match read {
            Ok(()) => Ok(Content::Message(message)),
            Err(error) => Err(error.in_message(M::NAME)),
        }
    }

    /// Reads a message that has the whole stack and all the depth before it.
    #[inline(always)] // As above.
    fn outermost<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.enter_outermost(size_of::<M>())?;
        into.decode_fields(self)
    }

    /// Reads a message.
    #[inline(always)] // As above.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.enter(size_of::<M>())?;
        into.decode_fields(self)?;
        self.leave(size_of::<M>());
        Ok(())
    }

    /// Reads a message, boxed or not, or nil in its place.
    #[inline]
    pub fn message_or_nil<M: Message, B: Storage<M>>(&mut self, into: &mut Option<B>) -> Result<()> {
        if self.skip_nil() {
            return Ok(());
        }
        self.charge_allocation(B::ALLOCATED_LEN)?;
        let message = if size_of::<M>() <= SMALL_LEN_MAX { set_default(into) } else { set_large_default(into) };
        self.message(message)
    }

    /// Reads an element of a list or map, or a required field; nil stands for a default message there.
    #[inline]
    pub fn message_or_default<M: Message>(&mut self, into: &mut M) -> Result<()> {
        if self.skip_nil() { Ok(()) } else { self.message(into) }
    }

    #[cold]
    fn failure(&mut self) -> Result<Failure> {
        self.skip(1);
        let mut text = String::new();
        self.string(&mut text)?;
        Ok(Failure { text, code: trailer::code(self.rest()) })
    }
}

#[inline]
fn set_default<M: Message, B: Storage<M>>(into: &mut Option<B>) -> &mut M {
    into.insert(M::default().into()).borrow_mut()
}

/// Keeps the code that sets hundreds of fields, and the message on its way to a box, out of recursive functions.
#[inline(never)]
fn set_large_default<M: Message, B: Storage<M>>(into: &mut Option<B>) -> &mut M {
    set_default(into)
}

/// Messages of at most this size are set to their default wherever one is read.
const SMALL_LEN_MAX: usize = 512;
