//! Types of places in a message, and conversion of texts to these types.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Number, Value};

use crate::{
    failure::{Failure, Result},
    paths::{Step, shown},
    suggest,
};

/// The type of a place in a message.
#[derive(Clone, Debug)]
pub(crate) enum Place {
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
pub(crate) fn find(message: &MessageDescriptor, path: &[Step]) -> Result<Place> {
    let mut place = Place::One(Kind::Message(message.clone()));
    for (at, step) in path.iter().enumerate() {
        let here = || shown(&path[..at]);
        place = match (place, step) {
            (Place::Anything, _) => return Ok(Place::Anything),
            (Place::One(Kind::Message(message)), _) if is_any_json(&message) => return Ok(Place::Anything),
            (Place::One(Kind::Message(message)), Step::Key(name)) => match field(&message, name)? {
                Found::Field(field) => of_field(&field),
                Found::MapValue(kind) => Place::One(kind),
            },
            (Place::List(kind), Step::Index(_) | Step::Push) => Place::One(kind),
            (Place::Map, Step::Key(_) | Step::Index(_)) => {
                // The value type belongs to the map field, one step before.
                return find_in_map(message, path, at);
            }
            (Place::List(_), Step::Key(name)) => {
                return Err(Failure::new(format!("{} is a list and has no field {name}", here()))
                    .with_try(format!("{}[].{name}=… for another element", here())));
            }
            (Place::One(_) | Place::Map, _) => {
                return Err(Failure::new(format!("{} has no fields: {}", here(), shown(path))));
            }
        };
    }
    Ok(place)
}

enum Found {
    Field(FieldDescriptor),
    MapValue(Kind),
}

fn field(message: &MessageDescriptor, name: &str) -> Result<Found> {
    if message.is_map_entry() {
        return Ok(Found::MapValue(message.map_entry_value_field().kind()));
    }
    let found = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
    found.map(Found::Field).ok_or_else(|| unknown_field(message, name))
}

/// Continues `find` in the values of a map. The step before `at` is the map field.
fn find_in_map(message: &MessageDescriptor, path: &[Step], at: usize) -> Result<Place> {
    let Step::Key(name) = &path[at - 1] else { return Ok(Place::Anything) };
    let holder = match find(message, &path[..at - 1])? {
        Place::One(Kind::Message(holder)) => holder,
        _ => return Ok(Place::Anything),
    };
    let Found::Field(field) = field(&holder, name)? else { return Ok(Place::Anything) };
    let Kind::Message(entry) = field.kind() else { return Ok(Place::Anything) };
    let value = entry.map_entry_value_field().kind();
    match (value, &path[at + 1..]) {
        (value, []) => Ok(Place::One(value)),
        (Kind::Message(inner), rest) => find(&inner, rest),
        _ => Err(Failure::new(format!("{} has no fields: {}", shown(&path[..=at]), shown(path)))),
    }
}

fn of_field(field: &FieldDescriptor) -> Place {
    if field.is_map() {
        Place::Map
    } else if field.is_list() {
        Place::List(field.kind())
    } else {
        Place::One(field.kind())
    }
}

/// Returns the error for an unknown field.
pub(crate) fn unknown_field(message: &MessageDescriptor, name: &str) -> Failure {
    let fields: Vec<_> = message.fields().collect();
    let failure = Failure::new(format!("{} has no field {name}", message.full_name()));
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

impl Place {
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
