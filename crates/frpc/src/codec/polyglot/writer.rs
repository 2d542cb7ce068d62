use std::mem;

use super::{
    enumeration::{EncodedPosition, Enumeration, Positions},
    kind::Kind,
    presence::Presence,
    sink::{Sink, Writable},
    slots::{SlotTable, SlotValue},
};

/// An encoder for values in the polyglot encoding.
#[derive(Debug)]
pub struct Writer<S> {
    sink: S,
    slots: SlotTable,
}

impl<S: Sink> Writer<S> {
    /// Creates a writer at the start of a message.
    #[inline]
    pub fn new(sink: S) -> Self {
        Self { sink, slots: SlotTable::default() }
    }

    /// Returns the sink with all bytes written.
    #[inline]
    pub fn finish(self) -> S {
        self.sink
    }

    /// Runs `write` with a writer for a trait object. Generated code for messages with very many fields uses this, to
    /// be compiled once and not per kind of sink.
    pub fn with_any_sink(&mut self, write: impl FnOnce(&mut Writer<&mut dyn Sink>)) {
        let mut out = Writer { sink: self.sink.any(), slots: mem::take(&mut self.slots) };
        write(&mut out);
        self.slots = out.slots;
    }

    /// Encodes a `bool`.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.put(&[Kind::Bool as u8, value.into()]);
    }

    /// Encodes a `u16`.
    pub fn u16(&mut self, value: u16) {
        self.integer(Kind::U16, value.into());
    }

    /// Encodes a `u32`.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.integer(Kind::U32, value.into());
    }

    /// Encodes a `u64`.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.integer(Kind::U64, value);
    }

    /// Encodes an `i32`.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.integer(Kind::I32, zigzag64(value.into()));
    }

    /// Encodes an `i64`.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.integer(Kind::I64, zigzag64(value));
    }

    /// Encodes an `f32`.
    #[inline]
    pub fn f32(&mut self, value: f32) {
        let [a, b, c, d] = value.to_be_bytes();
        self.put(&[Kind::F32 as u8, a, b, c, d]);
    }

    /// Encodes an `f64`.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        self.put(&[Kind::F64 as u8, a, b, c, d, e, f, g, h]);
    }

    /// Encodes a string.
    #[inline]
    pub fn string(&mut self, value: &str) {
        self.head(Kind::String, value.len());
        self.put(value.as_bytes());
    }

    /// Encodes bytes.
    #[inline]
    pub fn bytes(&mut self, value: &(impl Writable + ?Sized)) {
        self.head(Kind::Bytes, value.as_bytes().len());
        value.put_into(&mut self.sink);
    }

    /// Encodes an enum number as the position of its value.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self, number: i32) {
        self.enumeration_in(const { Positions::of::<E>() }, number);
    }

    /// Encodes an enum number with the tables of its enum.
    #[inline(always)] // Specializes the code for each enum with constant tables.
    pub fn enumeration_in(&mut self, positions: Positions<'_>, number: i32) {
        match positions.position_of(number) {
            EncodedPosition::Known(position) => self.u32(position),
            EncodedPosition::Unknown(position, is_telling) => self.unknown_number(number, position, is_telling),
        }
    }

    /// Encodes an optional field: a proto3 `optional` or a oneof member.
    #[inline]
    pub fn optional<T: Presence>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        let default = T::default();
        write(self, value.unwrap_or(&default));
        match value {
            Some(value) if value.is_default() => self.slots.count(Some(SlotValue::Presence)),
            Some(_) => {}
            None => self.slots.count(None),
        }
    }

    /// Encodes a list.
    #[inline]
    pub fn list<T>(&mut self, kind: Kind, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.list_head(kind, items.len());
        for item in items {
            write(self, item);
        }
    }

    /// Encodes a map.
    #[inline]
    pub fn map<'a, K: 'a, V: 'a>(
        &mut self,
        kinds: (Kind, Kind),
        entries: impl ExactSizeIterator<Item = (&'a K, &'a V)>,
        mut write_key: impl FnMut(&mut Self, &K),
        mut write_value: impl FnMut(&mut Self, &V),
    ) {
        self.map_head(kinds, entries.len());
        for (key, value) in entries {
            write_key(self, key);
            write_value(self, value);
        }
    }

    fn list_head(&mut self, kind: Kind, count: usize) {
        self.put(&[Kind::Slice as u8, kind as u8]);
        self.len(count);
    }

    pub(super) fn map_head(&mut self, kinds: (Kind, Kind), count: usize) {
        self.put(&[Kind::Map as u8, kinds.0 as u8, kinds.1 as u8]);
        self.len(count);
    }

    /// Returns the slots counted so far.
    #[inline]
    pub(super) fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// Takes the slots, to write the trailer.
    pub(super) fn take_slots(&mut self) -> SlotTable {
        mem::take(&mut self.slots)
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
    fn head(&mut self, kind: Kind, len: usize) {
        if len < 0x80 {
            self.put(&[kind as u8, Kind::U32 as u8, len.to_le_bytes()[0]]);
        } else {
            self.put(&[kind as u8]);
            self.len(len);
        }
    }

    #[cold]
    fn unknown_number(&mut self, number: i32, position: u32, is_telling: bool) {
        self.u32(position);
        self.slots.count((!is_telling).then_some(SlotValue::Number(number)));
    }
}

#[inline]
pub(super) fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}
