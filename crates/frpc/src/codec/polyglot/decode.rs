//! Decoding of messages: at the root, nested, and the error alternative.

use bytes::Bytes;

use super::{
    error::{DecodeErrorKind, Failure, Result},
    kind::Kind,
    message::Message,
    reader::{PresenceCheck, Reader},
    scalar::{MapEntries, PolyglotScalar},
    slots::SlotTable,
    storage::MessageStorage,
    trailer,
};
use crate::codec::layout::MemoryBudget;

/// Decoded content of a packet: a message or an error.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodedContent<M> {
    /// The decoded message.
    Message(M),
    /// The error sent instead of a message.
    Error(Failure),
}

/// Decodes a message, or the error sent instead of it. Ignores bytes after the message. An absent message decodes as
/// the default, unless it has required fields. `Bytes` fields are slices of `content`.
#[inline]
pub fn decode<M: Message>(content: &Bytes) -> Result<DecodedContent<M>> {
    decode_within(content, MemoryBudget::default())
}

/// Decodes a message like [`decode`], with a limit on its memory.
#[inline(always)] // Moving a small message between stack frames takes longer than decoding it.
pub(crate) fn decode_within<M: Message>(content: &Bytes, budget: MemoryBudget) -> Result<DecodedContent<M>> {
    decode_checked(content, content, budget)
}

/// Decodes a message like [`decode`] from `part`, a slice of `content`.
#[inline]
pub(crate) fn decode_part<M: Message>(content: &Bytes, part: &[u8], budget: MemoryBudget) -> Result<DecodedContent<M>> {
    decode_checked(content, part, budget)
}

#[inline(always)] // As above.
fn decode_checked<M: Message>(content: &Bytes, part: &[u8], budget: MemoryBudget) -> Result<DecodedContent<M>> {
    check_absent::<M>(part).map_err(|error| error.in_message(M::NAME))?;
    let has_required = M::required().is_some();
    decode_part_with(content, part, budget, has_required, M::NAME, M::default, M::decode_fields)
}

/// Returns an error if the next message is absent and has required fields.
#[inline]
fn check_absent<M: Message>(rest: &[u8]) -> Result<()> {
    match M::required() {
        Some(required) if rest.first() == Some(&(Kind::Nil as u8)) => required.check_absent(),
        _ => Ok(()),
    }
}

/// Decodes a message with functions instead of a type, for programs without generated code for it.
///
/// `name` is the name of the message in errors. `make` creates a default message. `read_fields` decodes its fields in
/// wire order. A message with a trailer is decoded twice, so both functions may run twice.
///
/// ```
/// use frpc::codec::{At, DecodedContent, Reader, decode_with, encode_with};
///
/// let content = encode_with(|out| out.i32(7));
/// let number = decode_with(&content, "Number", i32::default, |number, input| input.i32(number).at("value"))?;
/// assert_eq!(number, DecodedContent::Message(7));
/// # Ok::<_, frpc::codec::DecodeError>(())
/// ```
pub fn decode_with<M>(
    content: &Bytes,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<DecodedContent<M>> {
    decode_part_with(content, content, MemoryBudget::default(), true, name, make, read_fields)
}

#[inline(always)] // Moving a small message between stack frames takes longer than decoding it.
fn decode_part_with<M>(
    content: &Bytes,
    part: &[u8],
    budget: MemoryBudget,
    has_required: bool,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<DecodedContent<M>> {
    let mut input = Reader::of_part(content, part, budget);
    let first = input.root_with(name, &make, &read_fields)?;
    let is_incomplete = has_required && input.presence == PresenceCheck::Needed;
    if input.is_empty() && !is_incomplete {
        return Ok(first);
    }
    match trailer::read(&mut input).map_err(|error| error.in_message(name))? {
        None if !is_incomplete => Ok(first),
        kept => {
            drop(first);
            decode_with_trailer(content, part, budget, kept.unwrap_or_default(), name, make, read_fields)
        }
    }
}

/// Decodes a message again, now with its trailer. Cold: few messages have a trailer.
#[cold]
#[inline(never)]
fn decode_with_trailer<M>(
    content: &Bytes,
    part: &[u8],
    budget: MemoryBudget,
    kept: SlotTable,
    name: &str,
    make: impl Fn() -> M,
    read_fields: impl Fn(&mut M, &mut Reader<'_>) -> Result<()>,
) -> Result<DecodedContent<M>> {
    Reader::with_trailer(content, part, budget, kept).root_with(name, make, read_fields)
}

/// Returns `true` if the content of a packet is an error instead of a message.
#[inline]
pub fn is_error(content: &[u8]) -> bool {
    content.first() == Some(&(Kind::Error as u8))
}

/// Decodes the error sent instead of a message. Returns `None` if the content is not an error.
#[inline]
pub(crate) fn decode_error(content: &Bytes) -> Option<Result<Failure>> {
    is_error(content).then(|| Reader::new(content).failure())
}

impl Reader<'_> {
    /// Decodes the outermost message. It may be absent or replaced by an error.
    #[inline(always)] // Moving a small message between stack frames takes longer than decoding it.
    pub fn root<M: Message>(&mut self) -> Result<DecodedContent<M>> {
        check_absent::<M>(self.rest()).map_err(|error| error.in_message(M::NAME))?;
        self.root_with(M::NAME, M::default, M::decode_fields)
    }

    #[inline(always)] // As above.
    fn root_with<M>(
        &mut self,
        name: &str,
        make: impl FnOnce() -> M,
        read_fields: impl FnOnce(&mut M, &mut Self) -> Result<()>,
    ) -> Result<DecodedContent<M>> {
        if is_error(self.rest()) {
            return self.failure().map(DecodedContent::Error).map_err(|error| error.in_message(name));
        }
        let mut message = make();
        let read = if self.skip_nil() {
            Ok(())
        } else {
            // The outermost message may use the whole stack allowance and depth.
            self.enter_outermost(size_of::<M>()).and_then(|()| read_fields(&mut message, self))
        };
        match read {
            Ok(()) => Ok(DecodedContent::Message(message)),
            Err(error) => Err(error.in_message(name)),
        }
    }

    /// Decodes a message.
    #[inline(always)] // As above.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        self.within(size_of::<M>(), |input| into.decode_fields(input))
    }

    /// Decodes a message with a function for its fields in wire order. Returns `None` for nil: in lists and maps, nil
    /// means a default message.
    pub fn message_with<M>(&mut self, read: impl FnOnce(&mut Self) -> Result<M>) -> Result<Option<M>> {
        if self.skip_nil() { Ok(None) } else { self.within(size_of::<M>(), read).map(Some) }
    }

    /// Decodes a message, boxed or not. Nil leaves `into` unset.
    #[inline]
    pub fn message_or_nil<M: Message, B: MessageStorage<M>>(&mut self, into: &mut Option<B>) -> Result<()> {
        if self.skip_nil() {
            return Ok(());
        }
        self.charge_allocation(B::ALLOCATED_LEN)?;
        let message = if size_of::<M>() <= SMALL_LEN_MAX { set_default(into) } else { set_large_default(into) };
        self.message(message)
    }

    /// Decodes a required field. Nil is an error.
    #[inline]
    pub fn required_message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        if self.rest().first() == Some(&(Kind::Nil as u8)) {
            return Err(DecodeErrorKind::Missing.into());
        }
        self.message(into)
    }

    /// Decodes a required field with `read`, a function for an optional field. Without the trailer, a default value may
    /// be absent or present, so the decoder of the whole message reads it again with the trailer.
    #[inline]
    pub fn required<T>(
        &mut self,
        into: &mut T,
        read: impl FnOnce(&mut Self, &mut Option<T>) -> Result<()>,
    ) -> Result<()> {
        let mut value = None;
        read(self, &mut value)?;
        match value {
            Some(value) => *into = value,
            None if self.presence == PresenceCheck::Final => return Err(DecodeErrorKind::Missing.into()),
            None => self.presence = PresenceCheck::Needed,
        }
        Ok(())
    }

    /// Decodes a list element, a map value, or a field of proto2 that must be set. Nil means a default message, unless
    /// the message has required fields.
    #[inline]
    pub fn message_or_default<M: Message>(&mut self, into: &mut M) -> Result<()> {
        check_absent::<M>(self.rest())?;
        if self.skip_nil() { Ok(()) } else { self.message(into) }
    }

    /// Decodes a list of messages.
    pub fn message_list<M: Message>(&mut self, into: &mut Vec<M>) -> Result<()> {
        self.list(Kind::Any, into, Self::message_or_default)
    }

    /// Decodes a map with messages as values. Nil means an empty map.
    pub fn message_map<K: PolyglotScalar, M: Message>(&mut self, into: &mut impl MapEntries<K, M>) -> Result<()> {
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
fn set_default<M: Message, B: MessageStorage<M>>(into: &mut Option<B>) -> &mut M {
    into.insert(M::default().into()).borrow_mut()
}

/// Not inlined: setting hundreds of fields takes code, and moving a message into a box takes stack. Neither belongs in
/// a recursive function.
#[inline(never)]
fn set_large_default<M: Message, B: MessageStorage<M>>(into: &mut Option<B>) -> &mut M {
    set_default(into)
}

/// Maximum size of a message to inline the code for its default value.
const SMALL_LEN_MAX: usize = 512;
