use std::ptr;

use bytes::Bytes;

use super::{
    enumeration::{Enumeration, Positions},
    error::{DecodeErrorKind, Result},
    kind::Kind,
    presence::Presence,
    slots::{SlotTable, SlotValue},
    storage::{ALLOCATION_LEN, Blob},
};
use crate::codec::layout::MemoryBudget;

/// A decoder for values in the polyglot encoding, safe for untrusted input. It checks each length and count against the
/// remaining bytes.
///
/// Values are decoded into existing places, so messages are not moved in memory or on the stack. Each place must hold
/// the default of its type.
#[derive(Debug)]
pub struct Reader<'a> {
    /// Shared buffer of the input. `Bytes` fields are slices of it.
    content: &'a Bytes,
    len: usize,
    rest: &'a [u8],
    depth: u32,
    /// Lowest stack address allowed. Each enclosing message raises it by its size in memory.
    stack_end: usize,
    /// Number of bytes left to allocate.
    memory_left: usize,
    budget: MemoryBudget,
    slots: SlotTable,
    pub(super) presence: PresenceCheck,
}

/// The check of required scalars. Without the trailer, their default values look absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresenceCheck {
    /// The trailer was not read yet, and no such value was met.
    Pending,
    /// The trailer was not read yet, and has to tell whether a value is present.
    Needed,
    /// The trailer was read, so an absent value is an error.
    Final,
}

impl<'a> Reader<'a> {
    /// Maximum nesting depth of messages.
    pub const DEPTH_MAX: u32 = 100;

    /// Maximum stack use in bytes. Enclosing messages also count with their size in memory, because code that clones or
    /// compares them needs about as much.
    pub const STACK_LEN_MAX: usize = 512 << 10;

    /// Number of bytes every message may take in memory, however short its encoding is.
    pub const MEMORY_LEN_MIN: usize = 1 << 20;

    /// Additional bytes of memory allowed per byte of input, on top of [`MEMORY_LEN_MIN`](Self::MEMORY_LEN_MIN).
    pub const MEMORY_FACTOR: usize = 16;

    /// Creates a reader at the start of a packet's content.
    #[inline]
    pub fn new(content: &'a Bytes) -> Self {
        Self::of_part(content, content, MemoryBudget::default())
    }

    /// Creates a reader for `part`, a slice of a content.
    #[inline]
    pub(super) fn of_part(content: &'a Bytes, part: &'a [u8], budget: MemoryBudget) -> Self {
        Self {
            content,
            len: part.len(),
            rest: part,
            depth: 0,
            stack_end: stack_address().saturating_sub(Self::STACK_LEN_MAX),
            memory_left: budget.within(memory_max(part.len()), part.len()),
            budget,
            slots: SlotTable::default(),
            presence: PresenceCheck::Pending,
        }
    }

    #[inline]
    pub(super) fn with_trailer(content: &'a Bytes, part: &'a [u8], budget: MemoryBudget, slots: SlotTable) -> Self {
        let mut input = Self::of_part(content, part, budget);
        input.memory_left = input.memory_left.saturating_sub(slots.len_in_memory());
        Self { slots, presence: PresenceCheck::Final, ..input }
    }

    /// Decodes a `bool`.
    #[inline]
    pub fn bool(&mut self, into: &mut bool) -> Result<()> {
        *into = match self.kind_then::<1>(Kind::Bool)? {
            [0] => false,
            [1] => true,
            [found] => return Err(DecodeErrorKind::InvalidBool { found }.into()),
        };
        Ok(())
    }

    /// Decodes a `u16`. No field has this type.
    pub fn u16(&mut self) -> Result<u16> {
        let value = self.integer::<3>(Kind::U16)?;
        u16::try_from(value).map_err(|_| DecodeErrorKind::VarintTooLong { kind: Kind::U16 }.into())
    }

    /// Decodes a `u32`.
    #[inline]
    pub fn u32(&mut self, into: &mut u32) -> Result<()> {
        *into = low_half(self.integer::<5>(Kind::U32)?);
        Ok(())
    }

    /// Decodes a `u64`.
    #[inline]
    pub fn u64(&mut self, into: &mut u64) -> Result<()> {
        *into = self.integer::<10>(Kind::U64)?;
        Ok(())
    }

    /// Decodes an `i32`.
    #[inline]
    pub fn i32(&mut self, into: &mut i32) -> Result<()> {
        let zigzag = low_half(self.integer::<5>(Kind::I32)?);
        *into = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        Ok(())
    }

    /// Decodes an `i64`.
    #[inline]
    pub fn i64(&mut self, into: &mut i64) -> Result<()> {
        let zigzag = self.integer::<10>(Kind::I64)?;
        *into = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        Ok(())
    }

    /// Decodes an `f32`.
    #[inline]
    pub fn f32(&mut self, into: &mut f32) -> Result<()> {
        *into = f32::from_be_bytes(self.kind_then(Kind::F32)?);
        Ok(())
    }

    /// Decodes an `f64`.
    #[inline]
    pub fn f64(&mut self, into: &mut f64) -> Result<()> {
        *into = f64::from_be_bytes(self.kind_then(Kind::F64)?);
        Ok(())
    }

    /// Decodes a string.
    #[inline]
    pub fn string(&mut self, into: &mut String) -> Result<()> {
        let bytes = self.with_len(Kind::String)?;
        self.charge_allocation(bytes.len())?;
        *into = if bytes.len() < LONG {
            // The standard library validates aligned memory faster. The copy is aligned, and `content` is not.
            String::from_utf8(bytes.to_vec()).map_err(|_| DecodeErrorKind::InvalidUtf8)?
        } else {
            simdutf8::basic::from_utf8(bytes).map_err(|_| DecodeErrorKind::InvalidUtf8)?.to_owned()
        };
        Ok(())
    }

    /// Decodes bytes. A `Vec<u8>` is a copy, and `Bytes` are a slice of the packet's content.
    #[inline]
    pub fn blob<T: Blob>(&mut self, into: &mut T) -> Result<()> {
        let bytes = self.with_len(Kind::Bytes)?;
        if T::IS_COPY {
            self.charge_allocation(bytes.len())?;
        }
        *into = T::from_content(bytes, self.content);
        Ok(())
    }

    /// Decodes the position of an enum value and returns its number.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self, into: &mut i32) -> Result<()> {
        self.enumeration_in(const { Positions::of::<E>() }, into)
    }

    /// Decodes the position of an enum value with the tables of its enum.
    #[inline(always)] // Specializes the code for each enum with constant tables.
    pub fn enumeration_in(&mut self, positions: Positions<'_>, into: &mut i32) -> Result<()> {
        let position = low_half(self.integer::<5>(Kind::U32)?);
        *into = match positions.number_at(position) {
            Some(number) => number,
            None => self.unknown_number(positions, position),
        };
        Ok(())
    }

    /// Decodes a field with presence, such as a proto3 `optional`.
    #[inline]
    pub fn optional<T: Presence>(
        &mut self,
        into: &mut Option<T>,
        read: impl FnOnce(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        let mut value = T::default();
        read(self, &mut value)?;
        if !value.is_default() || self.slots.meet() == Some(SlotValue::Presence) {
            *into = Some(value);
        }
        Ok(())
    }

    /// Decodes a list.
    pub fn list<T: Default>(
        &mut self,
        kind: Kind,
        into: &mut Vec<T>,
        mut read: impl FnMut(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        let count = self.list_head(kind, size_of::<T>())?;
        into.reserve_exact(count);
        into.resize_with(count, T::default);
        for (index, item) in into.iter_mut().enumerate() {
            if let Err(error) = read(self, item) {
                return Err(error.at_index(index));
            }
        }
        Ok(())
    }

    /// Decodes the head of a list and returns the number of elements. Counts their memory.
    fn list_head(&mut self, kind: Kind, element_len: usize) -> Result<usize> {
        self.expect(Kind::Slice)?;
        self.expect_elements(kind)?;
        let count = self.count(ELEMENT_LEN_MIN)?;
        self.charge_allocation(count.saturating_mul(element_len))?;
        Ok(count)
    }

    /// Decodes the head of a map and returns the number of entries. Counts their memory. Nil means no entries.
    pub(super) fn map_head(&mut self, kinds: (Kind, Kind), allocated_len: fn(usize) -> usize) -> Result<usize> {
        if self.skip_nil() {
            return Ok(0);
        }
        self.expect(Kind::Map)?;
        self.expect_elements(kinds.0)?;
        self.expect_elements(kinds.1)?;
        let count = self.count(ENTRY_LEN_MIN)?;
        self.charge_allocation(allocated_len(count))?;
        Ok(count)
    }

    /// Decodes the entries of a map.
    pub(super) fn entries(&mut self, count: usize, read: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for index in 0..count {
            read(self).map_err(|error| error.at_index(index))?;
        }
        Ok(())
    }

    /// Enters the outermost message. It may use the whole stack allowance and depth.
    #[inline(always)] // Inlined like its callers.
    pub(super) fn enter_outermost(&mut self, len: usize) -> Result<()> {
        self.kind_then::<1>(Kind::U8)?;
        self.depth = 1;
        self.stack_end += len;
        Ok(())
    }

    /// Runs `read` inside a message of `len` bytes in memory. Fails at the maximum depth or stack use.
    #[inline(always)] // Inlined like its callers.
    pub(super) fn within<T>(&mut self, len: usize, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.enter(len)?;
        let value = read(self)?;
        self.leave(len);
        Ok(value)
    }

    /// Enters a message of `len` bytes in memory. Fails at the maximum depth or stack use.
    #[inline(always)] // Inlined like its callers.
    fn enter(&mut self, len: usize) -> Result<()> {
        self.kind_then::<1>(Kind::U8)?;
        if self.depth == Self::DEPTH_MAX || stack_address() < self.stack_end {
            return Err(DecodeErrorKind::TooDeep { limit: self.depth }.into());
        }
        self.depth += 1;
        self.stack_end += len;
        Ok(())
    }

    /// Leaves a message after success. After an error decoding stops, so the counters no longer matter.
    #[inline(always)] // Inlined like its callers.
    fn leave(&mut self, len: usize) {
        self.stack_end -= len;
        self.depth -= 1;
    }

    /// Counts an allocation of `len` bytes against the memory limit.
    #[inline]
    pub(super) fn charge_allocation(&mut self, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match self.memory_left.checked_sub(len.saturating_add(ALLOCATION_LEN)) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(self.too_much_memory().into()),
        }
    }

    #[cold]
    fn too_much_memory(&self) -> DecodeErrorKind {
        let format_max = memory_max(self.len);
        match self.budget.within(format_max, self.len) {
            limit if limit < format_max => DecodeErrorKind::OverBudget { limit },
            limit => DecodeErrorKind::TooMuchMemory { limit },
        }
    }

    /// Returns `true` if no bytes are left.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the remaining bytes.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn varint<const LEN_MAX: usize>(&mut self, kind: Kind) -> Result<u64> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok((*byte).into())
            }
            _ => self.long_varint(kind, LEN_MAX),
        }
    }

    /// Skips these bytes. Returns `None` if other bytes come next.
    pub(super) fn skip_mark(&mut self, mark: [u8; 2]) -> Option<()> {
        self.rest = self.rest.strip_prefix(&mark)?;
        Some(())
    }

    #[inline]
    fn integer<const LEN_MAX: usize>(&mut self, kind: Kind) -> Result<u64> {
        match self.rest {
            [first, byte, rest @ ..] if *first == kind as u8 && *byte < 0x80 => {
                self.rest = rest;
                Ok((*byte).into())
            }
            _ => self.long_integer(kind, LEN_MAX),
        }
    }

    fn long_integer(&mut self, kind: Kind, len_max: usize) -> Result<u64> {
        self.expect(kind)?;
        self.long_varint(kind, len_max)
    }

    fn long_varint(&mut self, kind: Kind, len_max: usize) -> Result<u64> {
        let mut value = 0;
        for (place, &byte) in self.rest.iter().take(len_max).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.skip(place + 1);
                return Ok(value);
            }
        }
        let is_cut = self.rest.len() < len_max;
        Err(if is_cut { DecodeErrorKind::Truncated } else { DecodeErrorKind::VarintTooLong { kind } }.into())
    }

    #[inline]
    pub(super) fn skip_nil(&mut self) -> bool {
        let is_nil = self.rest.first() == Some(&(Kind::Nil as u8));
        if is_nil {
            self.skip(1);
        }
        is_nil
    }

    #[inline]
    pub(super) fn skip(&mut self, len: usize) {
        self.rest = &self.rest[len..];
    }

    #[inline]
    fn expect(&mut self, expected: Kind) -> Result<()> {
        match self.rest {
            [byte, rest @ ..] if *byte == expected as u8 => {
                self.rest = rest;
                Ok(())
            }
            [found, ..] => Err(DecodeErrorKind::WrongKind { expected, found: *found }.into()),
            [] => Err(DecodeErrorKind::Truncated.into()),
        }
    }

    #[inline]
    fn expect_elements(&mut self, expected: Kind) -> Result<()> {
        self.expect(expected).map_err(|error| match *error.kind() {
            DecodeErrorKind::WrongKind { expected, found } => {
                DecodeErrorKind::WrongElementKind { expected, found }.into()
            }
            _ => error,
        })
    }

    #[inline]
    fn kind_then<const LEN: usize>(&mut self, kind: Kind) -> Result<[u8; LEN]> {
        self.expect(kind)?;
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeErrorKind::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    fn with_len(&mut self, kind: Kind) -> Result<&'a [u8]> {
        self.expect(kind)?;
        let len = self.count(1)?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// Decodes a length or count. Fails if fewer than `len_min` bytes per element are left.
    #[inline]
    fn count(&mut self, len_min: usize) -> Result<usize> {
        let claimed = low_half(self.integer::<5>(Kind::U32)?);
        let left = self.rest.len();
        if claimed as usize > left / len_min {
            return Err(DecodeErrorKind::TooLong { claimed, left }.into());
        }
        Ok(claimed as usize)
    }

    #[cold]
    fn unknown_number(&mut self, positions: Positions<'_>, position: u32) -> i32 {
        match self.slots.meet() {
            Some(SlotValue::Number(number)) => number,
            _ => positions.number_of_unknown(position),
        }
    }
}

/// Drops the upper half. A varint of five bytes has more bits than a `u32`, and Go also drops them.
#[inline]
fn low_half(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Returns the approximate stack pointer: the address of a local variable.
#[inline(always)]
pub(in crate::codec) fn stack_address() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

/// Returns the memory limit for an input of this length.
fn memory_max(content_len: usize) -> usize {
    content_len.saturating_mul(Reader::MEMORY_FACTOR).saturating_add(Reader::MEMORY_LEN_MIN)
}

/// Minimum encoded length of a list element: a nil.
const ELEMENT_LEN_MIN: usize = 1;
/// Minimum length of a string for the SIMD validation of UTF-8.
const LONG: usize = 64;
/// Minimum encoded length of a map entry: a key of two bytes and a nil.
const ENTRY_LEN_MIN: usize = 3;
