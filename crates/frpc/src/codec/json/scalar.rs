//! Fields of scalar types and enums.
//!
//! The code for their lists, maps and optional fields is compiled in this crate. Otherwise each crate with generated
//! messages would compile its own copy.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use bytes::Bytes;
use frpc_json::numbers;

use super::{
    error::Result,
    message::{Enumeration, Message},
    reader::Reader,
    writer::Writer,
};

/// A scalar value: a number, a bool, a string or bytes.
pub trait JsonScalar: Message {
    /// Writes a list field. Writes nothing for an empty list.
    fn encode_list(name: &str, items: &[Self], out: &mut Writer);

    /// Writes an optional field. Writes nothing for `None`.
    fn encode_optional(name: &str, value: Option<&Self>, out: &mut Writer);

    /// Parses a list.
    fn decode_list(into: &mut Vec<Self>, input: &mut Reader<'_>) -> Result<()>;

    /// Parses an optional field.
    fn decode_optional(into: &mut Option<Self>, input: &mut Reader<'_>) -> Result<()>;

    /// Writes a map field with string keys. Writes nothing for an empty map.
    fn encode_named(name: &str, map: &HashMap<String, Self>, out: &mut Writer);

    /// Parses a map with string keys.
    fn decode_named(into: &mut HashMap<String, Self>, input: &mut Reader<'_>) -> Result<()>;
}

/// A map with scalar values.
pub trait ScalarMap<K, V> {
    /// Writes the map as a field. Writes nothing for an empty map.
    fn encode(&self, name: &str, out: &mut Writer);

    /// Parses the map.
    fn decode(&mut self, input: &mut Reader<'_>) -> Result<()>;
}

impl<K: Key + Eq + Hash, V: JsonScalar> ScalarMap<K, V> for HashMap<K, V> {
    fn encode(&self, name: &str, out: &mut Writer) {
        K::encode_hash_map(name, self, out);
    }

    fn decode(&mut self, input: &mut Reader<'_>) -> Result<()> {
        K::decode_hash_map(self, input)
    }
}

impl<K: Key + Ord, V: JsonScalar> ScalarMap<K, V> for BTreeMap<K, V> {
    fn encode(&self, name: &str, out: &mut Writer) {
        out.map(name, self, Writer::value);
    }

    fn decode(&mut self, input: &mut Reader<'_>) -> Result<()> {
        input.map(self, |input, value| value.decode_json(input))
    }
}

macro_rules! scalars {
    ($($type:ty: $read:ident;)*) => {$(
        impl JsonScalar for $type {
            fn encode_list(name: &str, items: &[Self], out: &mut Writer) {
                out.list(name, items, Writer::value);
            }

            fn encode_optional(name: &str, value: Option<&Self>, out: &mut Writer) {
                out.optional(name, value, Writer::value);
            }

            fn decode_list(into: &mut Vec<Self>, input: &mut Reader<'_>) -> Result<()> {
                input.list(into, Reader::$read)
            }

            fn decode_optional(into: &mut Option<Self>, input: &mut Reader<'_>) -> Result<()> {
                input.optional(into, Reader::$read)
            }

            fn encode_named(name: &str, map: &HashMap<String, Self>, out: &mut Writer) {
                out.map(name, map, Writer::value);
            }

            fn decode_named(into: &mut HashMap<String, Self>, input: &mut Reader<'_>) -> Result<()> {
                input.map(into, Reader::$read)
            }
        }
    )*};
}

scalars! {
    bool: bool;
    i32: i32;
    i64: i64;
    u32: u32;
    u64: u64;
    f32: f32;
    f64: f64;
    String: string;
    Vec<u8>: bytes;
    Bytes: bytes;
}

impl Writer {
    /// Writes a list of scalars. Writes nothing for an empty list.
    #[inline]
    pub fn scalar_list<T: JsonScalar>(&mut self, name: &str, items: &[T]) {
        T::encode_list(name, items, self);
    }

    /// Writes an optional scalar. Writes nothing for `None`.
    #[inline]
    pub fn optional_scalar<T: JsonScalar>(&mut self, name: &str, value: Option<&T>) {
        T::encode_optional(name, value, self);
    }

    /// Writes a map of scalars. Writes nothing for an empty map.
    #[inline]
    pub fn scalar_map<K, V>(&mut self, name: &str, map: &impl ScalarMap<K, V>) {
        map.encode(name, self);
    }

    /// Writes a list of enum numbers. Writes nothing for an empty list.
    #[inline]
    pub fn enumeration_list<E: Enumeration>(&mut self, name: &str, numbers: &[i32]) {
        self.list_of_names(name, EnumNames::of::<E>(), numbers);
    }

    /// Writes an optional enum number. Writes nothing for `None`.
    #[inline]
    pub fn optional_enumeration<E: Enumeration>(&mut self, name: &str, number: Option<&i32>) {
        self.optional_name(name, EnumNames::of::<E>(), number);
    }

    /// Writes a field of an enum type.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self, name: &str, number: i32) {
        self.optional_name(name, EnumNames::of::<E>(), Some(&number).filter(|number| **number != 0));
    }

    /// Writes the name of an enum value, or its number if the enum does not declare it.
    #[inline]
    pub fn name_of<E: Enumeration>(&mut self, number: &i32) {
        self.name_in(EnumNames::of::<E>(), *number);
    }

    fn list_of_names(&mut self, name: &str, names: EnumNames, numbers: &[i32]) {
        self.list(name, numbers, |out, number| out.name_in(names, *number));
    }

    fn optional_name(&mut self, name: &str, names: EnumNames, number: Option<&i32>) {
        self.optional(name, number, |out, number| out.name_in(names, *number));
    }

    fn name_in(&mut self, names: EnumNames, number: i32) {
        match names.0 {
            Some(names) => self.put_name_of(names, number),
            None => self.null(),
        }
    }
}

impl Reader<'_> {
    /// Parses a list of scalars.
    #[inline]
    pub fn scalar_list<T: JsonScalar>(&mut self, into: &mut Vec<T>) -> Result<()> {
        T::decode_list(into, self)
    }

    /// Parses an optional scalar.
    #[inline]
    pub fn optional_scalar<T: JsonScalar>(&mut self, into: &mut Option<T>) -> Result<()> {
        T::decode_optional(into, self)
    }

    /// Parses a map of scalars.
    #[inline]
    pub fn scalar_map<K, V>(&mut self, into: &mut impl ScalarMap<K, V>) -> Result<()> {
        into.decode(self)
    }

    /// Parses a list of enum numbers.
    #[inline]
    pub fn enumeration_list<E: Enumeration>(&mut self, into: &mut Vec<i32>) -> Result<()> {
        self.list_of_numbers(EnumNumbers::of::<E>(), into)
    }

    /// Parses an optional enum number.
    #[inline]
    pub fn optional_enumeration<E: Enumeration>(&mut self, into: &mut Option<i32>) -> Result<()> {
        self.optional_number(EnumNumbers::of::<E>(), into)
    }

    /// Parses an enum value from its name or number.
    #[inline]
    pub fn enumeration<E: Enumeration>(&mut self, into: &mut i32) -> Result<()> {
        self.number_in(EnumNumbers::of::<E>(), into)
    }

    fn list_of_numbers(&mut self, numbers: EnumNumbers, into: &mut Vec<i32>) -> Result<()> {
        self.list(into, |input, number| input.number_in(numbers, number))
    }

    fn optional_number(&mut self, numbers: EnumNumbers, into: &mut Option<i32>) -> Result<()> {
        self.optional(into, |input, number| input.number_in(numbers, number))
    }

    fn number_in(&mut self, numbers: EnumNumbers, into: &mut i32) -> Result<()> {
        if numbers.is_null && self.peek() == Some(b'n') {
            return self.null();
        }
        self.number_of(numbers.by_name, into)
    }
}

/// Names of enum values, sorted by number. `None` for `NullValue`: its JSON form is `null`.
#[derive(Clone, Copy)]
struct EnumNames(Option<&'static [(i32, &'static str)]>);

impl EnumNames {
    const fn of<E: Enumeration>() -> Self {
        Self(if E::IS_NULL { None } else { Some(E::NAMES) })
    }
}

/// Numbers of enum values.
#[derive(Clone, Copy)]
struct EnumNumbers {
    by_name: &'static [(&'static str, i32)],
    is_null: bool,
}

impl EnumNumbers {
    const fn of<E: Enumeration>() -> Self {
        Self { by_name: E::NUMBERS, is_null: E::IS_NULL }
    }
}

/// A map key. JSON object keys are strings, so each key is written in quotes.
pub trait Key: Sized {
    /// Writes it.
    fn encode_key(&self, out: &mut Writer);

    /// Parses a key. Returns `None` if the text is not a key of this type.
    fn decode_key(key: &str) -> Option<Self>;

    /// Writes a map with keys of this type. Writes nothing for an empty map.
    fn encode_hash_map<V: JsonScalar>(name: &str, map: &HashMap<Self, V>, out: &mut Writer)
    where
        Self: Eq + Hash,
    {
        out.map(name, map, Writer::value);
    }

    /// Parses a map with keys of this type.
    fn decode_hash_map<V: JsonScalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()>
    where
        Self: Eq + Hash,
    {
        input.map(into, |input, value| value.decode_json(input))
    }
}

impl Key for String {
    fn encode_key(&self, out: &mut Writer) {
        out.put_string(self);
    }

    fn decode_key(key: &str) -> Option<Self> {
        Some(key.to_owned())
    }

    fn encode_hash_map<V: JsonScalar>(name: &str, map: &HashMap<Self, V>, out: &mut Writer) {
        V::encode_named(name, map, out);
    }

    fn decode_hash_map<V: JsonScalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()> {
        V::decode_named(into, input)
    }
}

impl Key for bool {
    fn encode_key(&self, out: &mut Writer) {
        out.put_string(if *self { "true" } else { "false" });
    }

    fn decode_key(key: &str) -> Option<Self> {
        match key {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
}

macro_rules! number_keys {
    ($($type:ty: $put:ident, |$is_negative:ident, $number:ident| $value:expr;)*) => {$(
        impl Key for $type {
            fn encode_key(&self, out: &mut Writer) {
                out.$put((*self).into());
            }

            fn decode_key(key: &str) -> Option<Self> {
                let ($is_negative, $number) = integer(key)?;
                <$type>::try_from($value?).ok()
            }
        }
    )*};
}

number_keys! {
    i32: put_i64, |is_negative, number| numbers::signed(is_negative, number);
    i64: put_i64, |is_negative, number| numbers::signed(is_negative, number);
    u32: put_u64, |is_negative, number| numbers::unsigned(is_negative, number);
    u64: put_u64, |is_negative, number| numbers::unsigned(is_negative, number);
}

fn integer(key: &str) -> Option<(bool, u64)> {
    if numbers::is_number(key) { numbers::integer(key) } else { None }
}
