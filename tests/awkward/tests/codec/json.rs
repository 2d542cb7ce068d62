//! Converts proto3 JSON to messages, as far as the vectors require.

use std::{collections::HashMap, fmt::Debug, hash::Hash, str::FromStr};

use awkward::vectors::{
    Aliased, Choice, Color, Empty, Enums, Leaf, MapKeys, MapValues, Number, Ordering, Outer, Range, Repeated, Scalars,
    Sparse, Text, Total, Tree, Wrapper,
    choice::Value as Chosen,
    enums::Level,
    outer::{Middle, middle::Inner},
};
use serde_json::Value;

/// A type that can be read from the JSON of the vectors.
pub(crate) trait FromJson: Default {
    fn from_json(json: &Value) -> Self;
}

macro_rules! messages {
    ($($message:ident { $($field:ident)* })*) => {$(
        impl FromJson for $message {
            fn from_json(json: &Value) -> Self {
                assert_fields(json, &[$(stringify!($field)),*]);
                Self { $($field: field(json, stringify!($field))),* }
            }
        }
    )*};
}

messages! {
    Empty {}
    Leaf { label weight }
    Scalars {
        f_double f_float f_int32 f_int64 f_uint32 f_uint64 f_sint32 f_sint64
        f_fixed32 f_fixed64 f_sfixed32 f_sfixed64 f_bool f_string f_bytes
    }
    Repeated {
        r_double r_float r_int32 r_int64 r_uint32 r_uint64 r_sint32 r_sint64
        r_fixed32 r_fixed64 r_sfixed32 r_sfixed64 r_bool r_string r_leaf
    }
    MapKeys {
        k_int32 k_int64 k_uint32 k_uint64 k_sint32 k_sint64
        k_fixed32 k_fixed64 k_sfixed32 k_sfixed64 k_bool k_string
    }
    MapValues {
        v_double v_float v_int32 v_int64 v_uint32 v_uint64 v_sint32 v_sint64
        v_fixed32 v_fixed64 v_sfixed32 v_sfixed64 v_bool v_color v_sparse v_leaf v_map_keys
    }
    Enums { color sparse aliased level levels }
    Ordering {
        first_message first_list first_scalar first_map second_scalar second_list third_scalar
        second_message second_map third_list fourth_scalar fifth_scalar
    }
    Outer { middle direct named }
    Middle { inner inners }
    Inner { value flag }
    Tree { name only children named }
    Wrapper { empty scalars repeated_fields outer }
    Text { text }
    Number { value }
    Total { sum count }
    Range { from count }
}

impl FromJson for Choice {
    fn from_json(json: &Value) -> Self {
        assert_fields(json, &["before", "number", "text", "leaf", "blob", "color", "after"]);
        let value = json
            .get("number")
            .map(|json| Chosen::Number(i32::from_json(json)))
            .or(json.get("text").map(|json| Chosen::Text(String::from_json(json))))
            .or(json.get("leaf").map(|json| Chosen::Leaf(Leaf::from_json(json))))
            .or(json.get("blob").map(|json| Chosen::Blob(Vec::from_json(json))))
            .or(json.get("color").map(|json| Chosen::Color(i32::from_json(json))));
        Self { before: field(json, "before"), value, after: field(json, "after") }
    }
}

impl FromJson for i32 {
    fn from_json(json: &Value) -> Self {
        let Value::String(name) = json else { return parse(json) };
        let number = Color::from_str_name(name)
            .map(i32::from)
            .or(Sparse::from_str_name(name).map(i32::from))
            .or(Aliased::from_str_name(name).map(i32::from))
            .or(Level::from_str_name(name).map(i32::from))
            // prost does not know the second name of a number.
            .or((name == "ALIASED_UNO").then_some(Aliased::One.into()));
        number.unwrap_or_else(|| panic!("{name} is no value of an enum"))
    }
}

macro_rules! parsed {
    ($($type:ty)*) => {$(
        impl FromJson for $type {
            fn from_json(json: &Value) -> Self {
                parse(json)
            }
        }
    )*};
}

parsed! { i64 u32 u64 f32 f64 bool String }

impl FromJson for Vec<u8> {
    fn from_json(json: &Value) -> Self {
        let digits = String::from_json(json).into_bytes();
        let bits = digits.iter().filter(|&&digit| digit != b'=').map(|&digit| match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{digit} in base64"),
        });
        let bits: String = bits.map(|six| format!("{six:06b}")).collect();
        let bytes = bits.as_bytes().chunks_exact(8).map(|byte| std::str::from_utf8(byte).expect("digits"));
        bytes.map(|byte| u8::from_str_radix(byte, 2).expect("eight bits")).collect()
    }
}

macro_rules! lists {
    ($($type:ty)*) => {$(
        impl FromJson for Vec<$type> {
            fn from_json(json: &Value) -> Self {
                json.as_array().expect("a list").iter().map(<$type>::from_json).collect()
            }
        }
    )*};
}

lists! { f64 f32 i32 i64 u32 u64 bool String Leaf Inner Tree }

impl<K: FromStr<Err: Debug> + Eq + Hash, V: FromJson> FromJson for HashMap<K, V> {
    fn from_json(json: &Value) -> Self {
        let entries = json.as_object().expect("a map").iter();
        entries.map(|(key, value)| (key.parse().expect("a key"), V::from_json(value))).collect()
    }
}

impl<T: FromJson> FromJson for Option<T> {
    fn from_json(json: &Value) -> Self {
        Some(T::from_json(json))
    }
}

impl<T: FromJson> FromJson for Box<T> {
    fn from_json(json: &Value) -> Self {
        Self::new(T::from_json(json))
    }
}

fn field<T: FromJson>(json: &Value, name: &str) -> T {
    json.get(name).map(T::from_json).unwrap_or_default()
}

fn assert_fields(json: &Value, known: &[&str]) {
    let object = json.as_object().expect("a message");
    assert!(object.keys().all(|name| known.contains(&name.as_str())), "{json} has other fields than {known:?}");
}

/// Parses numbers, `true` and strings alike after removing quotes. Rust also parses `Infinity`.
fn parse<T: FromStr<Err: Debug>>(json: &Value) -> T {
    let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    text.parse().unwrap_or_else(|error| panic!("{json}: {error:?}"))
}
