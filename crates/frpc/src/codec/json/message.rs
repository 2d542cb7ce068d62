use std::{collections::HashMap, hash::Hash};

use super::{error::Result, numbers, reader::Reader, scalar::Scalar, types::Types, writer::Writer};

/// A message that has JSON. Implemented by generated code, for the well-known types, and for what stands for them in Rust.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no JSON",
    note = "messages have it that frpc-build generated with `.json(true)`, in other crates too"
)]
pub trait Message: Default + 'static {
    /// The full name in the proto file.
    const NAME: &'static str;

    /// The types that an `Any` in it can hold. Without an `Any`, there is nothing to say.
    const TYPES: &'static Types = Types::WELL_KNOWN;

    /// False if it is no object of its fields in JSON, so that an `Any` has it in a field of its own.
    const IS_OBJECT: bool = true;

    /// The number of bytes that reading it takes from the stack.
    const STACK_LEN: usize = size_of::<Self>();

    /// Writes it.
    fn encode_json(&self, out: &mut Writer);

    /// Reads it into its default.
    fn decode_json(&mut self, input: &mut Reader<'_>) -> Result<()>;
}

/// An enum that has JSON.
pub trait Enumeration {
    /// True for `google.protobuf.NullValue`, whose value is `null`.
    const IS_NULL: bool = false;

    /// The number of each value and its name, sorted. Of several names for a number, the first one.
    const NAMES: &'static [(i32, &'static str)];

    /// The name of each value and its number, sorted.
    const NUMBERS: &'static [(&'static str, i32)];
}

/// A key of a map. JSON has all of them in quotes.
pub trait Key: Sized {
    /// Writes it.
    fn encode_key(&self, out: &mut Writer);

    /// Reads it, or returns `None` if it is of another type.
    fn decode_key(key: &str) -> Option<Self>;

    /// Writes a map that has this type as its keys, unless it is empty.
    fn encode_hash_map<V: Scalar>(name: &str, map: &HashMap<Self, V>, out: &mut Writer)
    where
        Self: Eq + Hash,
    {
        out.map(name, map, Writer::value);
    }

    /// Reads a map that has this type as its keys.
    fn decode_hash_map<V: Scalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()>
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

    fn encode_hash_map<V: Scalar>(name: &str, map: &HashMap<Self, V>, out: &mut Writer) {
        V::encode_named(name, map, out);
    }

    fn decode_hash_map<V: Scalar>(into: &mut HashMap<Self, V>, input: &mut Reader<'_>) -> Result<()> {
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
    numbers::len(key.as_bytes()).filter(|len| *len == key.len()).and_then(|_| numbers::integer(key))
}
