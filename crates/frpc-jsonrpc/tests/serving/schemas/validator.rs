//! A JSON Schema validator with the features used by these tests.

use serde_json::{Map, Value};

/// Returns `true` if a value matches a schema.
pub(crate) fn is_valid(schema: &Value, value: &Value) -> bool {
    match schema {
        Value::Bool(is_valid) => *is_valid,
        Value::Object(schema) => schema.iter().all(|(word, say)| holds(schema, word, say, value)),
        _ => panic!("no schema: {schema}"),
    }
}

fn holds(schema: &Map<String, Value>, word: &str, say: &Value, value: &Value) -> bool {
    let list = || say.as_array().expect("it is a list");
    let count = || usize::try_from(say.as_u64().expect("it is a number")).expect("it is small");
    let properties = schema.get("properties").and_then(Value::as_object);
    match (word, value) {
        ("description" | "format", _) => true,
        ("type", _) => is_of(say.as_str().expect("it is one type"), value),
        ("const", _) => value == say,
        ("enum", _) => list().contains(value),
        ("anyOf", _) => list().iter().any(|schema| is_valid(schema, value)),
        ("allOf", _) => list().iter().all(|schema| is_valid(schema, value)),
        ("properties", Value::Object(members)) => {
            let known = say.as_object().expect("it is an object");
            members.iter().all(|(name, value)| known.get(name).is_none_or(|schema| is_valid(schema, value)))
        }
        ("additionalProperties", Value::Object(members)) => {
            let is_known = |name: &str| properties.is_some_and(|known| known.contains_key(name));
            members.iter().all(|(name, value)| is_known(name) || is_valid(say, value))
        }
        ("required", Value::Object(members)) => {
            list().iter().all(|name| members.contains_key(name.as_str().expect("it is a name")))
        }
        ("items", Value::Array(items)) => items.iter().all(|item| is_valid(say, item)),
        ("prefixItems", Value::Array(items)) => items.iter().zip(list()).all(|(item, schema)| is_valid(schema, item)),
        ("minItems", Value::Array(items)) => items.len() >= count(),
        ("maxItems", Value::Array(items)) => items.len() <= count(),
        ("minimum", Value::Number(number)) => number.as_f64() >= say.as_f64(),
        ("maximum", Value::Number(number)) => number.as_f64() <= say.as_f64(),
        (
            "properties"
            | "additionalProperties"
            | "required"
            | "items"
            | "prefixItems"
            | "minItems"
            | "maxItems"
            | "minimum"
            | "maximum",
            _,
        ) => true,
        _ => panic!("a word that is not known here: {word}"),
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("a type that is not known here: {kind}"),
    }
}
