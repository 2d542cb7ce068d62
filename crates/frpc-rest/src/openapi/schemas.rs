//! Schemas of messages, enums and values.

use std::collections::{BTreeMap, VecDeque};

use super::json::{JsonObject, JsonValue};
use crate::types::{EnumInfo, FieldInfo, FieldLabel, MessageInfo, ScalarKind, TypeTable, ValueKind, WellKnown};

/// The schemas in use, by the full name of their type.
pub(super) struct SchemaSet<'a> {
    types: &'a TypeTable,
    /// `None` for types not described yet.
    schemas: BTreeMap<String, Option<JsonObject>>,
    /// The names of types without a schema.
    left: VecDeque<String>,
}

impl<'a> SchemaSet<'a> {
    pub(super) fn new(types: &'a TypeTable) -> Self {
        Self { types, schemas: BTreeMap::new(), left: VecDeque::new() }
    }

    /// Describes all types in use, and returns them sorted by name.
    pub(super) fn finish(mut self) -> JsonObject {
        while let Some(name) = self.left.pop_front() {
            let types = self.types;
            let schema = match (types.message(&name), types.enumeration(&name)) {
                (Some(message), _) => self.message(message),
                (None, Some(declared)) => enumeration(declared),
                (None, None) if name == STATUS => Self::status(),
                (None, None) => JsonObject::of("type", "object"),
            };
            self.schemas.insert(name, Some(schema));
        }
        let mut all = JsonObject::new();
        for (name, schema) in self.schemas {
            all.put(&name, schema.unwrap_or_default());
        }
        all
    }

    /// Returns a reference to the schema of errors.
    pub(super) fn error(&mut self) -> JsonObject {
        self.reference(STATUS)
    }

    /// Returns the schema of a message.
    pub(super) fn of_message(&mut self, name: &str) -> JsonObject {
        match WellKnown::of(name) {
            Some(known) => well_known(known),
            None => self.reference(name),
        }
    }

    /// Returns the schema of a field.
    pub(super) fn of_field(&mut self, field: &FieldInfo) -> JsonObject {
        let value = self.of_value(&field.of);
        match field.shape {
            FieldLabel::One => value,
            FieldLabel::Repeated => JsonObject::of("type", "array").with("items", value),
            FieldLabel::Map(_) => JsonObject::of("type", "object").with("additionalProperties", value),
        }
    }

    fn of_value(&mut self, of: &ValueKind) -> JsonObject {
        match of {
            ValueKind::Scalar(kind) => scalar(*kind),
            ValueKind::Enum(name) if name == "google.protobuf.NullValue" => JsonObject::of("type", "null"),
            ValueKind::Enum(name) => self.reference(name),
            ValueKind::Message(name) => self.of_message(name),
        }
    }

    fn reference(&mut self, name: &str) -> JsonObject {
        if !self.schemas.contains_key(name) {
            self.schemas.insert(name.to_owned(), None);
            self.left.push_back(name.to_owned());
        }
        JsonObject::of("$ref", format!("#/components/schemas/{name}"))
    }

    fn message(&mut self, message: &MessageInfo) -> JsonObject {
        let mut properties = JsonObject::new();
        for field in &message.fields {
            properties.put(&field.json_name, self.property(field));
        }
        let mut schema = JsonObject::of("type", "object").with_text("description", &message.docs);
        if !properties.is_empty() {
            schema.put("properties", properties);
        }
        let oneofs = (0..message.oneofs.len()).filter_map(|oneof| at_most_one(message, oneof));
        let oneofs: Vec<_> = oneofs.collect();
        if !oneofs.is_empty() {
            schema.put("allOf", oneofs.into_iter().collect::<JsonValue>());
        }
        schema.with_deprecated(message.is_deprecated)
    }

    /// Returns the schema of a field with its description.
    pub(super) fn property(&mut self, field: &FieldInfo) -> JsonObject {
        let schema = self.of_field(field);
        // The description of a well-known type gives way to the one of the field.
        let schema = if field.docs.is_empty() { schema } else { schema.without("description") };
        schema.with_text("description", &field.docs).with_deprecated(field.is_deprecated)
    }

    /// Returns the schema of `google.rpc.Status`, for APIs without it.
    fn status() -> JsonObject {
        let any = well_known(WellKnown::Any);
        let property = |kind: ScalarKind, text: &str| scalar(kind).with("description", text);
        let details = JsonObject::of("type", "array").with("items", any).with("description", "Further details.");
        JsonObject::of("type", "object").with("description", "The error of a failed call.").with(
            "properties",
            JsonObject::new()
                .with("code", property(ScalarKind::Int32, "The status code of gRPC."))
                .with("message", property(ScalarKind::String, "A description for developers."))
                .with("details", details),
        )
    }
}

fn well_known(known: WellKnown) -> JsonObject {
    let text = |format: &str| JsonObject::of("type", "string").with("format", format);
    match known {
        WellKnown::Timestamp => text("date-time"),
        WellKnown::Duration => JsonObject::of("type", "string").with("pattern", r"^-?[0-9]+(\.[0-9]{1,9})?s$"),
        WellKnown::FieldMask => {
            JsonObject::of("type", "string").with("description", "The paths of fields, with commas between them.")
        }
        WellKnown::Wrapper(kind) => {
            let null = JsonObject::of("type", "null");
            JsonObject::of("anyOf", [scalar(kind), null].into_iter().collect::<JsonValue>())
        }
        WellKnown::Value => JsonObject::new(),
        WellKnown::Struct => JsonObject::of("type", "object"),
        WellKnown::ListValue => JsonObject::of("type", "array"),
        WellKnown::Any => {
            let name = text("uri-reference").with("description", "The URL of the type of the message.");
            JsonObject::of("type", "object")
                .with("properties", JsonObject::of("@type", name))
                .with("required", ["@type"].into_iter().collect::<JsonValue>())
        }
        WellKnown::HttpBody => JsonObject::new(),
    }
}

/// Returns the condition that at most one member of a oneof is present.
fn at_most_one(message: &MessageInfo, oneof: usize) -> Option<JsonObject> {
    let members: Vec<_> = message.fields.iter().filter(|field| field.oneof == Some(oneof)).collect();
    if members.len() < 2 {
        return None;
    }
    let required =
        |field: &&FieldInfo| JsonObject::of("required", [&*field.json_name].into_iter().collect::<JsonValue>());
    let none = JsonObject::of("not", JsonObject::of("anyOf", members.iter().map(required).collect::<JsonValue>()));
    let choices = members.iter().map(required).chain([none]);
    Some(JsonObject::of("oneOf", choices.collect::<JsonValue>()).with("title", &*message.oneofs[oneof]))
}

fn enumeration(declared: &EnumInfo) -> JsonObject {
    let mut docs = declared.docs.clone();
    for value in declared.values.iter().filter(|value| !value.docs.is_empty()) {
        let separator = if docs.is_empty() { "" } else { "\n" };
        docs += &format!("{separator}- `{}`: {}", value.name, value.docs.replace('\n', " "));
    }
    JsonObject::of("type", "string")
        .with_text("description", &docs)
        .with("enum", declared.values.iter().map(|value| &*value.name).collect::<JsonValue>())
}

/// Returns the schema of a scalar. Integers of 64 bits are text in JSON.
fn scalar(kind: ScalarKind) -> JsonObject {
    let (of, format) = match kind {
        ScalarKind::Bool => return JsonObject::of("type", "boolean"),
        ScalarKind::String => return JsonObject::of("type", "string"),
        ScalarKind::Bytes => return JsonObject::of("type", "string").with("contentEncoding", "base64"),
        ScalarKind::Int32 => ("integer", "int32"),
        ScalarKind::Uint32 => ("integer", "uint32"),
        ScalarKind::Int64 => ("string", "int64"),
        ScalarKind::Uint64 => ("string", "uint64"),
        ScalarKind::Float => ("number", "float"),
        ScalarKind::Double => ("number", "double"),
    };
    JsonObject::of("type", of).with("format", format)
}

/// The message of errors.
const STATUS: &str = "google.rpc.Status";
