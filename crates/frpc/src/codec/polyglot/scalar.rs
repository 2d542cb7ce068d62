//! Fields of scalar types.
//!
//! The code for their lists, maps and optional fields is compiled in this crate. Otherwise each crate with generated
//! messages would compile its own copy.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use bytes::Bytes;

use super::{
    enumeration::{Enumeration, Positions},
    error::Result,
    kind::Kind,
    presence::Presence,
    reader::Reader,
    sink::Sink,
    storage::{hash_table_len, tree_len},
    writer::Writer,
};

/// A scalar value: a number, a bool, a string or bytes.
pub trait PolyglotScalar: Presence {
    /// Kind byte before each value of this type.
    const KIND: Kind;

    /// Encodes the value.
    fn encode<S: Sink>(&self, out: &mut Writer<S>);

    /// Encodes a list.
    fn encode_list(items: &[Self], out: &mut Writer<&mut dyn Sink>);

    /// Encodes the value through a trait object.
    fn encode_to_any(&self, out: &mut Writer<&mut dyn Sink>);

    /// Encodes an optional field.
    fn encode_optional(value: Option<&Self>, out: &mut Writer<&mut dyn Sink>);

    /// Encodes a map with string keys.
    fn encode_named(map: &HashMap<String, Self>, out: &mut Writer<&mut dyn Sink>);

    /// Encodes a map with keys of this type.
    fn encode_hash_map<V: PolyglotScalar>(map: &HashMap<Self, V>, out: &mut Writer<&mut dyn Sink>) {
        out.scalar_entries(map.iter());
    }

    /// Decodes the value.
    fn decode(&mut self, input: &mut Reader<'_>) -> Result<()>;

    /// Decodes a list.
    fn decode_list(into: &mut Vec<Self>, input: &mut Reader<'_>) -> Result<()>;

    /// Decodes an optional field.
    fn decode_optional(into: &mut Option<Self>, input: &mut Reader<'_>) -> Result<()>;

    /// Decodes a map with string keys.
    fn decode_named(into: &mut HashMap<String, Self>, input: &mut Reader<'_>) -> Result<()>;

    /// Decodes a map with keys of this type.
    fn decode_hash_map<V: PolyglotScalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()>
    where
        Self: Eq + Hash,
    {
        input.scalar_entries(into)
    }
}

/// A Rust type for a map field.
pub trait MapEntries<K, V> {
    /// Returns the maximum memory in bytes of a map with this many entries.
    fn allocated_len(count: usize) -> usize;

    /// Reserves capacity for this many entries.
    fn reserve(&mut self, count: usize);

    /// Returns the value of a key. Inserts a default value for a new key.
    fn value_of(&mut self, key: K) -> &mut V;

    /// Adds an entry. Returns `true` if the key is new.
    fn add(&mut self, key: K, value: V) -> bool;

    /// Encodes scalar entries.
    fn encode_scalars<S: Sink>(&self, out: &mut Writer<S>)
    where
        K: PolyglotScalar,
        V: PolyglotScalar;

    /// Encodes scalar entries through a trait object.
    fn encode_scalars_to_any(&self, out: &mut Writer<&mut dyn Sink>)
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
    {
        self.encode_scalars(out);
    }

    /// Decodes scalar entries.
    fn decode_scalars(&mut self, input: &mut Reader<'_>) -> Result<()>
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
        Self: Sized,
    {
        input.scalar_entries(self)
    }
}

impl<K: Eq + Hash, V: Default> MapEntries<K, V> for HashMap<K, V> {
    fn allocated_len(count: usize) -> usize {
        hash_table_len(count, size_of::<(K, V)>())
    }

    fn reserve(&mut self, count: usize) {
        self.reserve(count);
    }

    fn value_of(&mut self, key: K) -> &mut V {
        let value = self.entry(key).or_default();
        // A repeated key replaces the earlier entry.
        *value = V::default();
        value
    }

    fn add(&mut self, key: K, value: V) -> bool {
        self.insert(key, value).is_none()
    }

    fn encode_scalars<S: Sink>(&self, out: &mut Writer<S>)
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
    {
        out.scalar_entries(self.iter());
    }

    fn encode_scalars_to_any(&self, out: &mut Writer<&mut dyn Sink>)
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
    {
        K::encode_hash_map(self, out);
    }

    fn decode_scalars(&mut self, input: &mut Reader<'_>) -> Result<()>
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
    {
        K::decode_hash_map(self, input)
    }
}

impl<K: Ord, V: Default> MapEntries<K, V> for BTreeMap<K, V> {
    fn allocated_len(count: usize) -> usize {
        tree_len(count, size_of::<K>() + size_of::<V>())
    }

    fn reserve(&mut self, _: usize) {}

    fn value_of(&mut self, key: K) -> &mut V {
        let value = self.entry(key).or_default();
        *value = V::default();
        value
    }

    fn add(&mut self, key: K, value: V) -> bool {
        self.insert(key, value).is_none()
    }

    fn encode_scalars<S: Sink>(&self, out: &mut Writer<S>)
    where
        K: PolyglotScalar,
        V: PolyglotScalar,
    {
        out.scalar_entries(self.iter());
    }
}

macro_rules! scalars {
    ($($type:ty: $kind:ident, |$value:ident, $out:ident| $write:expr, $read:ident $({ $($more:item)* })?;)*) => {$(
        impl PolyglotScalar for $type {
            const KIND: Kind = Kind::$kind;

            #[inline]
            fn encode<S: Sink>(&self, $out: &mut Writer<S>) {
                let $value = self;
                $write;
            }

            fn encode_to_any(&self, out: &mut Writer<&mut dyn Sink>) {
                self.encode(out);
            }

            fn encode_list(items: &[Self], out: &mut Writer<&mut dyn Sink>) {
                out.list(Self::KIND, items, |out, item| item.encode(out));
            }

            fn encode_optional(value: Option<&Self>, out: &mut Writer<&mut dyn Sink>) {
                out.optional(value, |out, value| value.encode(out));
            }

            fn encode_named(map: &HashMap<String, Self>, out: &mut Writer<&mut dyn Sink>) {
                out.scalar_entries(map.iter());
            }

            fn decode(&mut self, input: &mut Reader<'_>) -> Result<()> {
                input.$read(self)
            }

            fn decode_list(into: &mut Vec<Self>, input: &mut Reader<'_>) -> Result<()> {
                input.list(Self::KIND, into, Reader::$read)
            }

            fn decode_optional(into: &mut Option<Self>, input: &mut Reader<'_>) -> Result<()> {
                input.optional(into, Reader::$read)
            }

            fn decode_named(into: &mut HashMap<String, Self>, input: &mut Reader<'_>) -> Result<()> {
                input.scalar_entries(into)
            }

            $($($more)*)?
        }
    )*};
}

scalars! {
    bool: Bool, |value, out| out.bool(*value), bool;
    i32: I32, |value, out| out.i32(*value), i32;
    i64: I64, |value, out| out.i64(*value), i64;
    u32: U32, |value, out| out.u32(*value), u32;
    u64: U64, |value, out| out.u64(*value), u64;
    f32: F32, |value, out| out.f32(*value), f32;
    f64: F64, |value, out| out.f64(*value), f64;
    String: String, |value, out| out.string(value), string {
        // Most maps have string keys, so this case has compiled code in this crate.
        fn encode_hash_map<V: PolyglotScalar>(map: &HashMap<Self, V>, out: &mut Writer<&mut dyn Sink>) {
            V::encode_named(map, out);
        }

        fn decode_hash_map<V: PolyglotScalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()> {
            V::decode_named(into, input)
        }
    };
    Vec<u8>: Bytes, |value, out| out.bytes(value), blob;
    Bytes: Bytes, |value, out| out.bytes(value), blob;
}

impl<S: Sink> Writer<S> {
    /// Encodes a list of scalars.
    #[inline]
    pub fn scalar_list<T: PolyglotScalar>(&mut self, items: &[T]) {
        let own = |out: &mut Self| out.list(T::KIND, items, |out, item| item.encode(out));
        S::choose(self, own, |out| out.with_any_sink(|out| T::encode_list(items, out)));
    }

    /// Encodes an optional scalar: a proto3 `optional` or a oneof member.
    #[inline]
    pub fn optional_scalar<T: PolyglotScalar>(&mut self, value: Option<&T>) {
        let own = |out: &mut Self| out.optional(value, |out, value| value.encode(out));
        S::choose(self, own, |out| out.with_any_sink(|out| T::encode_optional(value, out)));
    }

    /// Encodes a map of scalars.
    #[inline]
    pub fn scalar_map<K: PolyglotScalar, V: PolyglotScalar>(&mut self, map: &impl MapEntries<K, V>) {
        let own = |out: &mut Self| map.encode_scalars(out);
        S::choose(self, own, |out| out.with_any_sink(|out| map.encode_scalars_to_any(out)));
    }

    pub(super) fn scalar_entries<'a, K: PolyglotScalar + 'a, V: PolyglotScalar + 'a>(
        &mut self,
        entries: impl ExactSizeIterator<Item = (&'a K, &'a V)>,
    ) {
        self.map((K::KIND, V::KIND), entries, |out, key| key.encode(out), |out, value| value.encode(out));
    }

    /// Encodes a list of enum numbers.
    #[inline]
    pub fn enumeration_list<E: Enumeration>(&mut self, numbers: &[i32]) {
        let positions = const { Positions::of::<E>() };
        self.list(Kind::U32, numbers, |out, number| out.enumeration_in(positions, *number));
    }

    /// Encodes a map with enum numbers as values.
    pub fn enumeration_map<'a, E: Enumeration, K: PolyglotScalar + 'a>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a K, &'a i32), IntoIter: ExactSizeIterator>,
    ) {
        let write = |out: &mut Self, number: &i32| out.enumeration::<E>(*number);
        self.map((K::KIND, Kind::U32), entries.into_iter(), |out, key| key.encode(out), write);
    }

    /// Encodes an optional enum number.
    #[inline]
    pub fn optional_enumeration<E: Enumeration>(&mut self, number: Option<&i32>) {
        self.optional(number, |out, number| out.enumeration::<E>(*number));
    }
}

impl Writer<&mut dyn Sink> {
    /// Encodes a scalar with a single call. Generated code uses it for messages with very many fields.
    #[inline]
    pub fn scalar<T: PolyglotScalar>(&mut self, value: &T) {
        value.encode_to_any(self);
    }
}

impl Reader<'_> {
    /// Decodes a scalar with a single call. Generated code uses it for messages with very many fields.
    #[inline]
    pub fn scalar<T: PolyglotScalar>(&mut self, into: &mut T) -> Result<()> {
        into.decode(self)
    }

    /// Decodes a list of scalars.
    #[inline]
    pub fn scalar_list<T: PolyglotScalar>(&mut self, into: &mut Vec<T>) -> Result<()> {
        T::decode_list(into, self)
    }

    /// Decodes an optional scalar: a proto3 `optional` or a oneof member.
    #[inline]
    pub fn optional_scalar<T: PolyglotScalar>(&mut self, into: &mut Option<T>) -> Result<()> {
        T::decode_optional(into, self)
    }

    /// Decodes a map. Nil means an empty map.
    pub fn map<K: Default, V, C: MapEntries<K, V>>(
        &mut self,
        kinds: (Kind, Kind),
        into: &mut C,
        mut read_key: impl FnMut(&mut Self, &mut K) -> Result<()>,
        mut read_value: impl FnMut(&mut Self, &mut V) -> Result<()>,
    ) -> Result<()> {
        let count = self.map_head(kinds, C::allocated_len)?;
        into.reserve(count);
        self.entries(count, &mut |input| {
            let mut key = K::default();
            read_key(input, &mut key)?;
            read_value(input, into.value_of(key))
        })
    }

    /// Decodes a map of scalars. Nil means an empty map.
    #[inline]
    pub fn scalar_map<K: PolyglotScalar, V: PolyglotScalar>(&mut self, into: &mut impl MapEntries<K, V>) -> Result<()> {
        into.decode_scalars(self)
    }

    pub(super) fn scalar_entries<K: PolyglotScalar, V: PolyglotScalar, C: MapEntries<K, V>>(
        &mut self,
        into: &mut C,
    ) -> Result<()> {
        let count = self.map_head((K::KIND, V::KIND), C::allocated_len)?;
        into.reserve(count);
        self.entries(count, &mut |input| {
            let (mut key, mut value) = (K::default(), V::default());
            key.decode(input)?;
            value.decode(input)?;
            into.add(key, value);
            Ok(())
        })
    }

    /// Decodes a list of enum numbers.
    #[inline]
    pub fn enumeration_list<E: Enumeration>(&mut self, into: &mut Vec<i32>) -> Result<()> {
        self.enumeration_list_in(const { Positions::of::<E>() }, into)
    }

    /// Decodes a map with enum numbers as values. Nil means an empty map.
    pub fn enumeration_map<E: Enumeration, K: PolyglotScalar>(
        &mut self,
        into: &mut impl MapEntries<K, i32>,
    ) -> Result<()> {
        self.map((K::KIND, Kind::U32), into, |input, key| key.decode(input), Reader::enumeration::<E>)
    }

    fn enumeration_list_in(&mut self, positions: Positions<'_>, into: &mut Vec<i32>) -> Result<()> {
        self.list(Kind::U32, into, |input, number| input.enumeration_in(positions, number))
    }

    /// Decodes an optional enum number.
    #[inline]
    pub fn optional_enumeration<E: Enumeration>(&mut self, into: &mut Option<i32>) -> Result<()> {
        self.optional_enumeration_in(const { Positions::of::<E>() }, into)
    }

    fn optional_enumeration_in(&mut self, positions: Positions<'_>, into: &mut Option<i32>) -> Result<()> {
        self.optional(into, |input, number| input.enumeration_in(positions, number))
    }
}
