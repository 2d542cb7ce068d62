//! Types of places in a message, and conversion of texts to these types.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Number, Value};

use crate::{
    failure::{CommandError, Result},
    paths::{PathStep, shown},
    suggest,
};

/// The type of a place in a message.
#[derive(Clone, Debug)]
pub(crate) enum ValueShape {
    /// Any JSON, or an unknown type.
    Anything,
    /// A single value.
    One(Kind),
    /// A list of values.
    List(Kind),
    /// A map.
    Map,
}

/// Returns the type of the place at `path` within `message`.
pub(crate) fn find(message: &MessageDescriptor, path: &[PathStep]) -> Result<ValueShape> {
    let mut place = ValueShape::One(Kind::Message(message.clone()));
    for (at, step) in path.iter().enumerate() {
        let here = || shown(&path[..at]);
        place = match (place, step) {
            (ValueShape::Anything, _) => return Ok(ValueShape::Anything),
            (ValueShape::One(Kind::Message(message)), _) if is_any_json(&message) => return Ok(ValueShape::Anything),
            (ValueShape::One(Kind::Message(message)), PathStep::Key(name)) => match field(&message, name)? {
                FieldLookup::Field(field) => of_field(&field),
                FieldLookup::MapValue(kind) => ValueShape::One(kind),
            },
            (ValueShape::List(kind), PathStep::Index(_) | PathStep::Push) => ValueShape::One(kind),
            (ValueShape::Map, PathStep::Key(_) | PathStep::Index(_)) => {
                // The value type belongs to the map field, one step before.
                return find_in_map(message, path, at);
            }
            (ValueShape::List(_), PathStep::Key(name)) => {
                return Err(CommandError::new(format!("{} is a list and has no field {name}", here()))
                    .with_try(format!("{}[].{name}=… for another element", here())));
            }
            (ValueShape::One(_) | ValueShape::Map, _) => {
                return Err(CommandError::new(format!("{} has no fields: {}", here(), shown(path))));
            }
        };
    }
    Ok(place)
}

enum FieldLookup {
    Field(FieldDescriptor),
    MapValue(Kind),
}

fn field(message: &MessageDescriptor, name: &str) -> Result<FieldLookup> {
    if message.is_map_entry() {
        return Ok(FieldLookup::MapValue(message.map_entry_value_field().kind()));
    }
    let found = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
    found.map(FieldLookup::Field).ok_or_else(|| unknown_field(message, name))
}

/// Continues `find` in the values of a map. The step before `at` is the map field.
fn find_in_map(message: &MessageDescriptor, path: &[PathStep], at: usize) -> Result<ValueShape> {
    let PathStep::Key(name) = &path[at - 1] else { return Ok(ValueShape::Anything) };
    let holder = match find(message, &path[..at - 1])? {
        ValueShape::One(Kind::Message(holder)) => holder,
        _ => return Ok(ValueShape::Anything),
    };
    let FieldLookup::Field(field) = field(&holder, name)? else { return Ok(ValueShape::Anything) };
    let Kind::Message(entry) = field.kind() else { return Ok(ValueShape::Anything) };
    let value = entry.map_entry_value_field().kind();
    match (value, &path[at + 1..]) {
        (value, []) => Ok(ValueShape::One(value)),
        (Kind::Message(inner), rest) => find(&inner, rest),
        _ => Err(CommandError::new(format!("{} has no fields: {}", shown(&path[..=at]), shown(path)))),
    }
}

fn of_field(field: &FieldDescriptor) -> ValueShape {
    if field.is_map() {
        ValueShape::Map
    } else if field.is_list() {
        ValueShape::List(field.kind())
    } else {
        ValueShape::One(field.kind())
    }
}

/// Returns the error for an unknown field.
pub(crate) fn unknown_field(message: &MessageDescriptor, name: &str) -> CommandError {
    let fields: Vec<_> = message.fields().collect();
    let failure = CommandError::new(format!("{} has no field {name}", message.full_name()));
    match suggest::probably(name, fields.iter().map(FieldDescriptor::name)) {
        Some(advice) => failure.with_try(advice),
        None if fields.is_empty() => failure.with_try("call it without arguments: the message has no fields"),
        None => failure.with_try(format!("one of {}", names(message))),
    }
}

/// Returns the fields of a message with their types, for advice.
pub(crate) fn names(message: &MessageDescriptor) -> String {
    message.fields().map(|field| format!("{} ({})", field.name(), type_name(&field))).collect::<Vec<_>>().join(", ")
}

/// Returns the type of a field in proto syntax.
pub(crate) fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", kind_name(&key.kind()), kind_name(&value.kind()))
        }
        kind if field.is_list() => format!("repeated {}", kind_name(&kind)),
        kind => kind_name(&kind),
    }
}

/// Returns the name of a type: for messages and enums, the full name.
pub(crate) fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(declared) => declared.full_name().to_owned(),
        kind => format!("{kind:?}").to_lowercase(),
    }
}

/// Returns `true` for messages represented by arbitrary JSON.
pub(crate) fn is_any_json(message: &MessageDescriptor) -> bool {
    matches!(
        message.full_name(),
        "google.protobuf.Value" | "google.protobuf.Struct" | "google.protobuf.ListValue" | "google.protobuf.Any"
    )
}

impl ValueShape {
    /// Converts a text to JSON of this type.
    pub(crate) fn read(&self, text: &str) -> std::result::Result<Value, String> {
        match self {
            Self::Anything => Ok(guess(text)),
            Self::One(kind) | Self::List(kind) => read_kind(kind, text),
            Self::Map => Err(format!("it is a map: write NAME.KEY={text} or NAME:='{{\"KEY\": …}}'")),
        }
    }
}

fn read_kind(kind: &Kind, text: &str) -> std::result::Result<Value, String> {
    match kind {
        Kind::String => Ok(text.into()),
        Kind::Bytes => Ok(BASE64_STANDARD.encode(text).into()),
        Kind::Bool => match text {
            "true" | "True" | "1" => Ok(true.into()),
            "false" | "False" | "0" => Ok(false.into()),
            _ => Err(format!("{text:?} is not a bool: write true or false")),
        },
        Kind::Double | Kind::Float => match (number(text), text) {
            (Some(number), _) => Ok(number.into()),
            (None, "NaN" | "Infinity" | "-Infinity") => Ok(text.into()),
            (None, _) => Err(format!("{text:?} is not a number")),
        },
        Kind::Enum(declared) => {
            let named = declared.values().find(|value| value.name().eq_ignore_ascii_case(text));
            match (number(text), named) {
                (Some(number), _) => Ok(number.into()),
                (None, Some(value)) => Ok(value.name().into()),
                (None, None) => {
                    let names: Vec<_> = declared.values().map(|value| value.name().to_owned()).collect();
                    Err(format!(
                        "{text:?} is not a value of {}: expected one of {}",
                        declared.full_name(),
                        names.join(", ")
                    ))
                }
            }
        }
        Kind::Message(message) => read_message(message, text),
        kind => {
            let whole = number(text).filter(|number| number.is_i64() || number.is_u64());
            whole.map(Value::from).ok_or_else(|| format!("{text:?} is not a valid {}", kind_name(kind)))
        }
    }
}

/// Converts a text to a message type with a string or number as JSON.
fn read_message(message: &MessageDescriptor, text: &str) -> std::result::Result<Value, String> {
    match message.full_name() {
        "google.protobuf.Timestamp" | "google.protobuf.Duration" | "google.protobuf.FieldMask" => Ok(text.into()),
        name if name.starts_with("google.protobuf.") && name.ends_with("Value") => match message.get_field(1) {
            Some(field) if !is_any_json(message) => read_kind(&field.kind(), text),
            _ => Ok(guess(text)),
        },
        _ if is_any_json(message) => Ok(guess(text)),
        name => {
            Err(format!("it is a message, {name}: write NAME.FIELD=VALUE or NAME:='{{…}}'; it has {}", names(message)))
        }
    }
}

/// Guesses the type of a text without schema: a number, a bool, or a string.
fn guess(text: &str) -> Value {
    match text {
        "true" | "True" => true.into(),
        "false" | "False" => false.into(),
        _ => number(text).map_or_else(|| text.into(), Value::Number),
    }
}

/// Returns the text as a number, if it is one in JSON syntax.
fn number(text: &str) -> Option<Number> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    serde_json::from_str(text).ok().filter(|_| is_number)
}
