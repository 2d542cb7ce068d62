//! JSON Schemas of types.

pub mod derived;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::{Value, json};

/// A type with a JSON Schema, for the descriptions of functions.
///
/// Implementing it for a custom type is optional: otherwise the type is described as any value. [The
/// derive](macro@crate::Schema) follows the serde implementation of a struct or an enum and documents the supported
/// attributes.
///
/// ```
/// use frpc_jsonrpc::Schema;
/// use serde_json::json;
///
/// /// A point in the plane.
/// #[derive(serde::Deserialize, Schema)]
/// struct Point {
///     x: f64,
///     /// Upwards.
///     y: f64,
///     label: Option<String>,
/// }
///
/// let schema = Vec::<Point>::schema();
/// assert_eq!(schema["items"]["description"], "A point in the plane.");
/// assert_eq!(schema["items"]["required"], json!(["x", "y"]));
/// assert_eq!(schema["items"]["properties"]["y"]["description"], "Upwards.");
/// ```
///
/// A manual implementation for a type with custom serialization:
///
/// ```
/// use frpc_jsonrpc::Schema;
/// use serde_json::{Value, json};
///
/// struct Version(u32, u32);
///
/// impl Schema for Version {
///     fn schema() -> Value {
///         json!({"type": "string", "pattern": "^[0-9]+[.][0-9]+$"})
///     }
/// }
/// # let _ = Version(1, 2);
/// ```
pub trait Schema {
    /// Returns the schema of the type.
    fn schema() -> Value;
}

macro_rules! schemas {
    ($($type:ty $(where [$($generics:tt)*])? => $schema:tt;)*) => {$(
        impl$(<$($generics)*>)? Schema for $type {
            fn schema() -> Value {
                json!($schema)
            }
        }
    )*};
}

schemas! {
    () => {"type": "null"};
    bool => {"type": "boolean"};
    i8 => {"type": "integer", "minimum": (i8::MIN), "maximum": (i8::MAX)};
    i16 => {"type": "integer", "minimum": (i16::MIN), "maximum": (i16::MAX)};
    i32 => {"type": "integer", "format": "int32"};
    i64 => {"type": "integer", "format": "int64"};
    isize => {"type": "integer", "format": "int64"};
    u8 => {"type": "integer", "minimum": 0, "maximum": (u8::MAX)};
    u16 => {"type": "integer", "minimum": 0, "maximum": (u16::MAX)};
    u32 => {"type": "integer", "minimum": 0, "format": "uint32"};
    u64 => {"type": "integer", "minimum": 0, "format": "uint64"};
    usize => {"type": "integer", "minimum": 0, "format": "uint64"};
    f32 => {"type": "number", "format": "float"};
    f64 => {"type": "number", "format": "double"};
    char => {"type": "string", "minLength": 1, "maxLength": 1};
    String => {"type": "string"};
    str => {"type": "string"};
    Value => true;
    Option<T> where [T: Schema] => {"anyOf": [T::schema(), {"type": "null"}]};
    Vec<T> where [T: Schema] => {"type": "array", "items": T::schema()};
    [T] where [T: Schema] => {"type": "array", "items": T::schema()};
    [T; N] where [T: Schema, const N: usize] => {"type": "array", "items": T::schema(), "minItems": N, "maxItems": N};
    HashSet<T> where [T: Schema] => {"type": "array", "items": T::schema(), "uniqueItems": true};
    BTreeSet<T> where [T: Schema] => {"type": "array", "items": T::schema(), "uniqueItems": true};
    HashMap<K, T> where [K, T: Schema] => {"type": "object", "additionalProperties": T::schema()};
    BTreeMap<K, T> where [K, T: Schema] => {"type": "object", "additionalProperties": T::schema()};
    Arc<T> where [T: Schema + ?Sized] => (T::schema());
    Box<T> where [T: Schema + ?Sized] => (T::schema());
    &T where [T: Schema + ?Sized] => (T::schema());
    Cow<'_, T> where [T: Schema + ToOwned + ?Sized] => (T::schema());
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: Schema),+> Schema for ($($name,)+) {
            fn schema() -> Value {
                let items = [$($name::schema()),+];
                json!({"type": "array", "prefixItems": items, "minItems": items.len(), "maxItems": items.len()})
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}
