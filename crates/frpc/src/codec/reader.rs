use bytes::Bytes;

use super::{
    Content, DecodeError, DecodeErrorKind, Enumeration, Failure, Kind, Message, enumeration,
    trailer::{self, Holds, Presence, Slots},
};

type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// Reads values in the polyglot encoding. Trusts nothing: what is claimed is checked against what is there.
#[derive(Debug)]
pub struct Reader<'a> {
    content: &'a Bytes,
    rest: &'a [u8],
    depth: u32,
    /// Memory that absent messages in lists and maps have taken. Each is one byte of input.
    absent_len: usize,
    slots: Slots,
}

impl<'a> Reader<'a> {
    /// How deep messages may be nested.
    pub const DEPTH_MAX: u32 = 100;

    /// A reader at the start of a packet's content.
    #[inline]
    pub fn new(content: &'a Bytes) -> Self {
        Self::with_trailer(content, Slots::default())
    }

    #[inline]
    pub(super) fn with_trailer(content: &'a Bytes, slots: Slots) -> Self {
        Self { content, rest: content, depth: 0, absent_len: 0, slots }
    }

    /// Reads a message at the root, where it may be absent or an error.
    #[inline(always)] // Moving a small message from frame to frame takes longer than reading it.
    pub fn root<M: Message>(&mut self) -> Result<Content<M>> {
        if self.rest.first() == Some(&(Kind::Error as u8)) {
            return self.failure().map(Content::Error).map_err(|error| error.in_message(M::NAME));
        }
        match self.message_or_default() {
            Ok(message) => Ok(Content::Message(message)),
            Err(error) => Err(error.in_message(M::NAME)),
        }
    }

    /// What follows the message, if it is a trailer with something in it.
    #[inline]
    pub(super) fn trailer(&mut self) -> Option<Slots> {
        if self.rest.is_empty() { None } else { Slots::read(self) }
    }

    /// Reads a bool.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        match self.kind_then::<1>(Kind::Bool)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err(DecodeErrorKind::InvalidBool { found }.into()),
        }
    }

    /// Reads a u16.
    pub fn u16(&mut self) -> Result<u16> {
        let value = self.integer::<3>(Kind::U16)?;
        u16::try_from(value).map_err(|_| DecodeErrorKind::VarintTooLong { kind: Kind::U16 }.into())
    }

    /// Reads a u32.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.integer::<5>(Kind::U32).map(low_half)
    }

    /// Reads a u64.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.integer::<10>(Kind::U64)
    }

    /// Reads an i32.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        let zigzag = low_half(self.integer::<5>(Kind::I32)?);
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Reads an i64.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        let zigzag = self.integer::<10>(Kind::I64)?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Reads an f32.
    #[inline]
    pub fn f32(&mut self) -> Result<f32> {
        self.kind_then(Kind::F32).map(f32::from_be_bytes)
    }

    /// Reads an f64.
    #[inline]
    pub fn f64(&mut self) -> Result<f64> {
        self.kind_then(Kind::F64).map(f64::from_be_bytes)
    }

    /// Reads a string.
    #[inline]
    pub fn string(&mut self) -> Result<String> {
        self.text().map(str::to_owned)
    }

    /// Reads bytes: a `Vec<u8>` is a copy, `Bytes` are a slice of the packet's content.
    #[inline]
    pub fn blob<T: Blob>(&mut self) -> Result<T> {
        let bytes = self.with_len(Kind::Bytes)?;
        Ok(T::from_content(bytes, self.content))
    }

    /// Reads the number of an enum, from its position.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self) -> Result<i32> {
        let position = self.u32()?;
        match E::NUMBERS.get(position as usize) {
            Some(&number) => Ok(number),
            None => Ok(self.unknown_number::<E>(position)),
        }
    }

    /// Reads a message.
    #[inline(always)] // As above.
    pub fn message<M: Message>(&mut self) -> Result<M> {
        self.kind_then::<1>(Kind::U8)?;
        if self.depth == Self::DEPTH_MAX {
            return Err(DecodeErrorKind::TooDeep { limit: Self::DEPTH_MAX }.into());
        }
        self.depth += 1;
        let message = M::decode_fields(self);
        self.depth -= 1;
        message
    }

    /// Reads a message, boxed or not, or nil in its place.
    #[inline]
    pub fn message_or_nil<M: Message, B: From<M>>(&mut self) -> Result<Option<B>> {
        if self.skip_nil() { Ok(None) } else { self.message::<M>().map(|message| Some(message.into())) }
    }

    /// Reads an element of a list or map; nil stands for a default message there.
    #[inline]
    pub fn message_or_default<M: Message>(&mut self) -> Result<M> {
        if self.skip_nil() { self.absent() } else { self.message() }
    }

    /// Reads a field that may be unset: a proto3 `optional`, or a member of a oneof.
    #[inline]
    pub fn optional<T: Presence>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        let value = read(self)?;
        if value.is_default() && self.slots.meet() != Some(Holds::Presence) {
            return Ok(None);
        }
        Ok(Some(value))
    }

    /// Reads a list.
    #[inline]
    pub fn list<T>(&mut self, kind: Kind, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(Kind::Slice)?;
        self.expect_elements(kind)?;
        let count = self.count(ELEMENT_LEN_MIN)?;
        let mut items = Vec::with_capacity(count.min(self.capacity_for::<T>()));
        for index in 0..count {
            items.push(read(self).map_err(|error| error.at_index(index))?);
        }
        Ok(items)
    }

    /// Reads a map, or nil in its place.
    #[inline]
    pub fn map<K, V, C: Default + Extend<(K, V)>>(
        &mut self,
        kinds: (Kind, Kind),
        mut read_key: impl FnMut(&mut Self) -> Result<K>,
        mut read_value: impl FnMut(&mut Self) -> Result<V>,
    ) -> Result<C> {
        let mut entries = C::default();
        if self.skip_nil() {
            return Ok(entries);
        }
        self.expect(Kind::Map)?;
        self.expect_elements(kinds.0)?;
        self.expect_elements(kinds.1)?;
        for index in 0..self.count(ENTRY_LEN_MIN)? {
            let entry = read_key(self).and_then(|key| Ok((key, read_value(self)?)));
            entries.extend([entry.map_err(|error| error.at_index(index))?]);
        }
        Ok(entries)
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

    /// Steps over these bytes if they come next.
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

    #[cold]
    fn failure(&mut self) -> Result<Failure> {
        self.skip(1);
        Ok(Failure { text: self.string()?, code: trailer::code(self.rest) })
    }

    /// A default message for a nil, while there are not too many.
    fn absent<M: Message>(&mut self) -> Result<M> {
        self.absent_len += size_of::<M>();
        let limit = ABSENT_LEN_MIN + ABSENT_LEN_FACTOR * self.content.len();
        if self.absent_len > limit {
            return Err(DecodeErrorKind::TooManyAbsent { limit }.into());
        }
        Ok(M::default())
    }

    #[inline]
    fn skip_nil(&mut self) -> bool {
        let is_nil = self.rest.first() == Some(&(Kind::Nil as u8));
        if is_nil {
            self.skip(1);
        }
        is_nil
    }

    #[inline]
    fn skip(&mut self, len: usize) {
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

    fn text(&mut self) -> Result<&'a str> {
        let bytes = self.with_len(Kind::String)?;
        simdutf8::basic::from_utf8(bytes).map_err(|_| DecodeErrorKind::InvalidUtf8.into())
    }

    #[inline]
    fn with_len(&mut self, kind: Kind) -> Result<&'a [u8]> {
        self.expect(kind)?;
        let len = self.count(1)?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a length or count, of things that take at least so many bytes each.
    #[inline]
    fn count(&mut self, len_min: usize) -> Result<usize> {
        let claimed = self.u32()?;
        let left = self.rest.len();
        if claimed as usize > left / len_min {
            return Err(DecodeErrorKind::TooLong { claimed, left }.into());
        }
        Ok(claimed as usize)
    }

    /// How many elements may be allocated for before they are read: as many bytes as are left.
    #[inline]
    fn capacity_for<T>(&self) -> usize {
        self.rest.len() / size_of::<T>().max(1)
    }

    #[cold]
    fn unknown_number<E: Enumeration>(&mut self, position: u32) -> i32 {
        match self.slots.meet() {
            Some(Holds::Number(number)) => number,
            _ => enumeration::number_of_unknown(E::NUMBERS, position),
        }
    }
}

/// A varint of five bytes has room for more bits than u32. Go drops them, and so do we.
#[inline]
fn low_half(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What a field of type `bytes` can be in Rust.
pub trait Blob {
    /// Takes `bytes`, which are part of `content`.
    fn from_content(bytes: &[u8], content: &Bytes) -> Self;
}

impl Blob for Vec<u8> {
    fn from_content(bytes: &[u8], _: &Bytes) -> Self {
        bytes.to_vec()
    }
}

impl Blob for Bytes {
    #[inline]
    fn from_content(bytes: &[u8], content: &Bytes) -> Self {
        content.slice_ref(bytes)
    }
}

/// A nil.
const ELEMENT_LEN_MIN: usize = 1;
/// The shortest key, two bytes, and a nil.
const ENTRY_LEN_MIN: usize = 3;
/// What absent messages may take in any case, and for each byte of input on top.
const ABSENT_LEN_MIN: usize = 1 << 20;
const ABSENT_LEN_FACTOR: usize = 16;
