use std::borrow::Borrow;

use super::{
    Enumeration, Kind, Message, enumeration,
    trailer::{Holds, Presence, Slots},
};

/// Where encoded bytes go.
pub trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for &mut Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts bytes instead of keeping them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter(usize);

impl Counter {
    /// How many bytes there were.
    pub fn len(&self) -> usize {
        self.0
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes values in the polyglot encoding.
#[derive(Debug)]
pub struct Writer<S> {
    sink: S,
    slots: Slots,
}

impl<S: Sink> Writer<S> {
    /// A writer at the start of a message.
    #[inline]
    pub fn new(sink: S) -> Self {
        Self { sink, slots: Slots::default() }
    }

    /// Writes a message, and the trailer if it needs one.
    #[inline]
    pub fn root<M: Message>(&mut self, message: &M) {
        self.message(message);
        if self.slots.holds_any() {
            self.trailer();
        }
    }

    /// What was written.
    #[inline]
    pub fn finish(self) -> S {
        self.sink
    }

    /// Writes the error alternative of a message.
    pub fn error(&mut self, text: &str) {
        self.put(&[Kind::Error as u8]);
        self.string(text);
    }

    /// Writes a bool.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.put(&[Kind::Bool as u8, value.into()]);
    }

    /// Writes a u32.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.integer(Kind::U32, value.into());
    }

    /// Writes a u64.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.integer(Kind::U64, value);
    }

    /// Writes an i32.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.integer(Kind::I32, zigzag64(value.into()));
    }

    /// Writes an i64.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.integer(Kind::I64, zigzag64(value));
    }

    /// Writes an f32.
    #[inline]
    pub fn f32(&mut self, value: f32) {
        let [a, b, c, d] = value.to_be_bytes();
        self.put(&[Kind::F32 as u8, a, b, c, d]);
    }

    /// Writes an f64.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        self.put(&[Kind::F64 as u8, a, b, c, d, e, f, g, h]);
    }

    /// Writes a string.
    #[inline]
    pub fn string(&mut self, value: &str) {
        self.with_len(Kind::String, value.as_bytes());
    }

    /// Writes bytes.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) {
        self.with_len(Kind::Bytes, value);
    }

    /// Writes the position of an enum's number.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self, number: i32) {
        match enumeration::position_of(E::NUMBERS, number) {
            Some(position) => self.u32(position),
            None => self.unknown_number::<E>(number),
        }
    }

    /// Writes a message.
    #[inline]
    pub fn message<M: Message>(&mut self, message: &M) {
        self.put(&FLAGS);
        message.encode_fields(self);
    }

    /// Writes a message, or nil in its place.
    #[inline]
    pub fn message_or_nil<M: Message>(&mut self, message: Option<&impl Borrow<M>>) {
        match message {
            Some(message) => self.message(message.borrow()),
            None => self.put(&[Kind::Nil as u8]),
        }
    }

    /// Writes a field that may be unset: a proto3 `optional`, or a member of a oneof.
    #[inline]
    pub fn optional<T: Presence>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        match value {
            Some(value) => {
                write(self, value);
                if value.is_default() {
                    self.slots.count(Some(Holds::Presence));
                }
            }
            None => {
                write(self, &T::default());
                self.slots.count(None);
            }
        }
    }

    /// Writes a list.
    #[inline]
    pub fn list<T>(&mut self, kind: Kind, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.put(&[Kind::Slice as u8, kind as u8]);
        self.len(items.len());
        for item in items {
            write(self, item);
        }
    }

    /// Writes a map.
    #[inline]
    pub fn map<'a, K: 'a, V: 'a>(
        &mut self,
        kinds: (Kind, Kind),
        entries: impl ExactSizeIterator<Item = (&'a K, &'a V)>,
        mut write_key: impl FnMut(&mut Self, &K),
        mut write_value: impl FnMut(&mut Self, &V),
    ) {
        self.put(&[Kind::Map as u8, kinds.0 as u8, kinds.1 as u8]);
        self.len(entries.len());
        for (key, value) in entries {
            write_key(self, key);
            write_value(self, value);
        }
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.sink.put(bytes);
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut len = 0;
        while value >= 0x80 {
            bytes[len] = value.to_le_bytes()[0] | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value.to_le_bytes()[0];
        self.put(&bytes[..=len]);
    }

    #[inline]
    fn integer(&mut self, kind: Kind, value: u64) {
        if value < 0x80 {
            self.put(&[kind as u8, value.to_le_bytes()[0]]);
        } else {
            self.put(&[kind as u8]);
            self.varint(value);
        }
    }

    #[inline]
    fn len(&mut self, len: usize) {
        self.integer(Kind::U32, len as u64);
    }

    #[inline]
    fn with_len(&mut self, kind: Kind, bytes: &[u8]) {
        if bytes.len() < 0x80 {
            self.put(&[kind as u8, Kind::U32 as u8, bytes.len().to_le_bytes()[0]]);
        } else {
            self.put(&[kind as u8]);
            self.len(bytes.len());
        }
        self.put(bytes);
    }

    #[cold]
    fn trailer(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        slots.write(self);
    }

    #[cold]
    fn unknown_number<E: Enumeration>(&mut self, number: i32) {
        let (position, is_telling) = enumeration::position_of_unknown(E::NUMBERS, number);
        self.u32(position);
        self.slots.count((!is_telling).then_some(Holds::Number(number)));
    }
}

#[inline]
pub(super) fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// A u8 that is always zero.
const FLAGS: [u8; 2] = [Kind::U8 as u8, 0];
