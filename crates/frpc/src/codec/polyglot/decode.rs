//! Reading messages: at the root, in each other, and the error in place of one.

use bytes::Bytes;

use super::{
    error::{Failure, Result},
    kind::Kind,
    message::Message,
    reader::Reader,
    scalar::{Entries, Scalar},
    slots::Slots,
    storage::Storage,
    trailer,
};
use crate::codec::layout::MemoryBudget;

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
    decode_part(content, content, MemoryBudget::default())
}

/// Reads a message as [`decode`] does, which is a part of `content`.
#[inline]
pub(crate) fn decode_part<M: Message>(content: &Bytes, part: &[u8], budget: MemoryBudget) -> Result<Content<M>> {
    decode_part_with(content, part, budget, M::NAME, M::default, M::decode_fields)
}

/// Reads a message, or the error in its place, as [`decode`] does, by functions in place of a type: for programs that learn of
/// messages while they run. `name` is for errors, `make` makes a default message, and `read_fields` reads its fields in the order
/// of the wire. A message with a trailer is read twice.
///
/// ```
/// use frpc::codec::{At, Content, Reader, decode_with, encode_with};
///
/// let content = encode_with(|out| out.i32(7));
/// let number = decode_with(&content, "Number", i32::default, |number, input| input.i32(number).at("value"))?;
/// assert_eq!(number, Content::Message(7));
/// # Ok::<_, frpc::codec::DecodeError>(())
/// ```
pub fn decode_with<M>(
    content: &Bytes,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<Content<M>> {
    decode_part_with(content, content, MemoryBudget::default(), name, make, read_fields)
}

#[inline(always)] // Moving a small message from frame to frame takes longer than reading it.
fn decode_part_with<M>(
    content: &Bytes,
    part: &[u8],
    budget: MemoryBudget,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<Content<M>> {
    let mut input = Reader::of_part(content, part, budget);
    let first = input.root_with(name, &make, &read_fields)?;
    if input.is_empty() {
        return Ok(first);
    }
    match trailer::read(&mut input).map_err(|error| error.in_message(name))? {
        None => Ok(first),
        Some(kept) => {
            drop(first);
            decode_with_trailer(content, part, budget, kept, name, make, read_fields)
        }
    }
}

/// Reads a message again with its trailer at hand. Rare: most messages have nothing that only a trailer tells.
#[cold]
#[inline(never)]
fn decode_with_trailer<M>(
    content: &Bytes,
    part: &[u8],
    budget: MemoryBudget,
    kept: Slots,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<Content<M>> {
    Reader::with_trailer(content, part, budget, kept).root_with(name, make, read_fields)
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
        self.root_with(M::NAME, M::default, M::decode_fields)
    }

    #[inline(always)] // As above.
    fn root_with<M>(
        &mut self,
        name: &str,
        make: impl FnOnce() -> M,
        read_fields: impl FnOnce(&mut M, &mut Self) -> Result<()>,
    ) -> Result<Content<M>> {
        if is_error(self.rest()) {
            return self.failure().map(Content::Error).map_err(|error| error.in_message(name));
        }
        let mut message = make();
        let read = if self.skip_nil() {
            Ok(())
        } else {
            // It has the whole stack and all the depth before it.
            self.enter_outermost(size_of::<M>()).and_then(|()| read_fields(&mut message, self))
        };
        match read {
            Ok(()) => Ok(Content::Message(message)),
            Err(error) => Err(error.in_message(name)),
        }
    }

    /// Reads a message.
    #[inline(always)] // As above.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.within(size_of::<M>(), |input| into.decode_fields(input))
    }

    /// Reads a message by a function that makes it of its fields, in the order of the wire. `None` is nil, which stands for a
    /// default message in lists and maps.
    pub fn message_with<M>(&mut self, read: impl FnOnce(&mut Self) -> Result<M>) -> Result<Option<M>> {
        if self.skip_nil() { Ok(None) } else { self.within(size_of::<M>(), read).map(Some) }
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

    /// Reads a list of messages.
    pub fn message_list<M: Message>(&mut self, into: &mut Vec<M>) -> Result<()> {
        self.list(Kind::Any, into, Self::message_or_default)
    }

    /// Reads a map to messages, or nil in its place.
    pub fn message_map<K: Scalar, M: Message>(&mut self, into: &mut impl Entries<K, M>) -> Result<()> {
        self.map((K::KIND, Kind::Any), into, |input, key| key.decode(input), Self::message_or_default)
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
