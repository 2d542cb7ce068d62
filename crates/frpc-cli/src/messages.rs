//! Messages of dynamic types: conversion between JSON and bytes.

use std::sync::Arc;

use bytes::Bytes;
use frpc::{
    Status,
    codec::{DecodedContent, Format, MemoryBudget},
    prost::Message as _,
};
use frpc_dynamic::SchemaLayouts;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    SerializeOptions,
};
use serde::{Serialize, de::IgnoredAny};
use serde_json::{Value, json};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    failure::{CommandError, Result},
    fields,
};

/// The codec for the messages of one direction of a call.
#[derive(Clone, Debug)]
pub(crate) struct DynamicCodec {
    /// The message type. Without one, only JSON can be sent.
    pub(crate) shape: Option<MessageDescriptor>,
    pub(crate) format: Format,
    /// The layouts of messages, for the polyglot format.
    pub(crate) layouts: Option<Arc<SchemaLayouts>>,
}

/// Options for the JSON output of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JsonOptions {
    /// Print on a single line.
    pub(crate) is_compact: bool,
    /// Include fields with default values.
    pub(crate) with_defaults: bool,
    /// Use the field names of the proto file.
    pub(crate) proto_names: bool,
}

impl DynamicCodec {
    /// Encodes a message given as JSON.
    pub(crate) fn encode(&self, message: &Value) -> Result<Bytes> {
        let Some(shape) = &self.shape else { return self.as_json(message) };
        // Pass arbitrary JSON through: a conversion to protobuf would lose digits of integers above 2^53.
        if self.format == Format::Json && fields::is_any_json(shape) {
            return self.as_json(message);
        }
        let message = if message.is_null() { &json!({}) } else { message };
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let read = DynamicMessage::deserialize_with_options(shape.clone(), message, &options);
        let read = read.map_err(|error| self.misfit(shape, &error.to_string()))?;
        self.encode_message(&read)
    }

    fn encode_message(&self, message: &DynamicMessage) -> Result<Bytes> {
        match (self.format, &self.layouts) {
            (Format::Json, _) => Ok(write(message, JsonOptions { is_compact: true, ..JsonOptions::default() })?.into()),
            (_, Some(layouts)) => Ok(layouts.encode(message)),
            (_, None) => Ok(message.encode_to_vec().into()),
        }
    }

    /// Returns a message of this codec in the format of another codec for the same type.
    pub(crate) fn convert(&self, content: &Bytes, other: &Self) -> Result<Bytes> {
        match &self.shape {
            Some(shape) if self.format != other.format => other.encode_message(&self.read(shape, content)?),
            _ => Ok(content.clone()),
        }
    }

    /// Returns all fields of a message as JSON, for comparisons. Fields outside of the schema are named by `#` and number.
    pub(crate) fn value(&self, content: &Bytes) -> Result<Value> {
        match (&self.shape, self.format) {
            (Some(shape), _) => {
                let message = self.read(shape, content)?;
                let options = SerializeOptions::new().skip_default_fields(false).use_proto_field_name(true);
                let value = message.serialize_with_options(serde_json::value::Serializer, &options);
                let mut value = value.map_err(|error| {
                    CommandError::new(format!("the message cannot be represented in JSON: {error}"))
                })?;
                add_unknown(&mut value, &message);
                Ok(value)
            }
            (None, Format::Json) => serde_json::from_slice(content)
                .map_err(|error| CommandError::new(format!("the answer is not valid JSON: {error}"))),
            (None, _) => Ok(BASE64_STANDARD.encode(content).into()),
        }
    }

    /// Encodes a message given in protobuf format.
    pub(crate) fn encode_binary(&self, message: Bytes) -> Result<Bytes> {
        let (Some(layouts), Some(shape)) = (&self.layouts, &self.shape) else { return Ok(message) };
        let message = DynamicMessage::decode(shape.clone(), message);
        let message =
            message.map_err(|error| CommandError::new(format!("not a valid {}: {error}", shape.full_name())))?;
        Ok(layouts.encode(&message))
    }

    /// Returns a received message as it is, or in protobuf format if it was polyglot.
    pub(crate) fn decode_binary(&self, content: &Bytes) -> Result<Bytes> {
        match (&self.layouts, &self.shape) {
            (Some(_), Some(shape)) => Ok(self.read(shape, content)?.encode_to_vec().into()),
            _ => Ok(content.clone()),
        }
    }

    fn as_json(&self, message: &Value) -> Result<Bytes> {
        let message = if message.is_null() { &json!({}) } else { message };
        match self.format {
            Format::Json => Ok(message.to_string().into()),
            _ => Err(CommandError::new("the message types of the method are unknown, so only JSON can be sent")),
        }
    }

    fn misfit(&self, shape: &MessageDescriptor, error: &str) -> CommandError {
        let unknown = error.split_once("unrecognized field name '").and_then(|(_, rest)| rest.split_once('\''));
        match unknown {
            // The unknown field may be in a nested message, but the error does not name its type.
            Some((name, _)) if shape.get_field_by_name(name).is_none() => fields::unknown_field(shape, name),
            _ => CommandError::new(format!("not a valid {}: {error}", shape.full_name()))
                .with_try(format!("its fields are {}", fields::names(shape))),
        }
    }

    /// Returns a received message as JSON.
    pub(crate) fn decode(&self, content: &Bytes, writing: JsonOptions) -> Result<String> {
        let Some(shape) = &self.shape else { return rewrite(content, writing) };
        if self.format == Format::Json {
            // Keep fields unknown to the local schema: the user wants to see them.
            return rewrite(content, writing);
        }
        let message = self.read(shape, content)?;
        if fields::is_any_json(shape) {
            // All numbers of arbitrary JSON in protobuf are floats, so restore integers: 3 instead of 3.0.
            let value = message.serialize(serde_json::value::Serializer).map_err(CommandError::new)?;
            return rewrite(&whole_numbers(value).to_string().into(), writing);
        }
        write(&message, writing)
    }

    fn read(&self, shape: &MessageDescriptor, content: &Bytes) -> Result<DynamicMessage> {
        let read = match &self.layouts {
            None if self.format == Format::Json => read_json(shape, content),
            None => DynamicMessage::decode(shape.clone(), content.clone()).map_err(|error| error.to_string()),
            Some(layouts) => match layouts.decode(shape, content, MemoryBudget::default()) {
                Ok(DecodedContent::Message(message)) => Ok(message),
                Ok(DecodedContent::Error(failure)) => Err(failure.text),
                Err(error) => Err(error.to_string()),
            },
        };
        read.map_err(|error| {
            CommandError::new(format!("the answer is not a valid {}: {error}", shape.full_name()))
                .with_try("the proto files of the server, if those given here are older")
        })
    }
}

fn read_json(shape: &MessageDescriptor, content: &Bytes) -> std::result::Result<DynamicMessage, String> {
    let mut reading = serde_json::Deserializer::from_slice(content);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    DynamicMessage::deserialize_with_options(shape.clone(), &mut reading, &options).map_err(|error| error.to_string())
}

/// Adds the fields outside of the schema to the JSON of a message.
fn add_unknown(value: &mut Value, message: &DynamicMessage) {
    let Value::Object(object) = value else { return };
    for field in message.unknown_fields() {
        let mut bytes = Vec::new();
        field.encode(&mut bytes);
        let values = object.entry(format!("#{}", field.number())).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(BASE64_STANDARD.encode(bytes).into());
        }
    }
    for (field, inner) in message.fields() {
        let Some(value) = object.get_mut(field.name()) else { continue };
        match (inner, value) {
            (prost_reflect::Value::Message(inner), value) => add_unknown(value, inner),
            (prost_reflect::Value::List(inner), Value::Array(values)) => {
                for (inner, value) in inner.iter().zip(values) {
                    if let Some(inner) = inner.as_message() {
                        add_unknown(value, inner);
                    }
                }
            }
            (prost_reflect::Value::Map(inner), Value::Object(values)) => {
                for (key, inner) in inner {
                    let key = match key {
                        MapKey::String(text) => text.clone(),
                        MapKey::Bool(key) => key.to_string(),
                        MapKey::I32(key) => key.to_string(),
                        MapKey::I64(key) => key.to_string(),
                        MapKey::U32(key) => key.to_string(),
                        MapKey::U64(key) => key.to_string(),
                    };
                    if let (Some(inner), Some(value)) = (inner.as_message(), values.get_mut(&key)) {
                        add_unknown(value, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the same JSON with whole numbers as integers.
fn whole_numbers(value: Value) -> Value {
    /// The limit up to which floats represent all integers exactly: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => (float as i64).into(),
            _ => number.into(),
        },
        Value::Array(values) => values.into_iter().map(whole_numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect(),
        value => value,
    }
}

/// Reformats received JSON.
fn rewrite(content: &Bytes, writing: JsonOptions) -> Result<String> {
    let text =
        std::str::from_utf8(content).map_err(|_| CommandError::new("the answer is not valid JSON: it is not UTF-8"))?;
    let no_json = |error| CommandError::new(format!("the answer is not valid JSON: {error}"));
    if writing.is_compact {
        // Edit the text instead of parsing it, to keep all digits of numbers. Strings contain no raw line breaks.
        serde_json::from_str::<IgnoredAny>(text).map_err(no_json)?;
        return Ok(text.trim().replace(['\n', '\r', '\t'], " "));
    }
    let value: Value = serde_json::from_str(text).map_err(no_json)?;
    serde_json::to_string_pretty(&value).map_err(CommandError::new)
}

fn write(message: &DynamicMessage, writing: JsonOptions) -> Result<String> {
    let options =
        SerializeOptions::new().skip_default_fields(!writing.with_defaults).use_proto_field_name(writing.proto_names);
    let mut out = Vec::new();
    let written = if writing.is_compact {
        message.serialize_with_options(&mut serde_json::Serializer::new(&mut out), &options)
    } else {
        message.serialize_with_options(&mut serde_json::Serializer::pretty(&mut out), &options)
    };
    written.map_err(|error| CommandError::new(format!("the message cannot be represented in JSON: {error}")))?;
    String::from_utf8(out).map_err(CommandError::new)
}

/// Returns the details of a status as JSON. Details of unknown types contain base64 bytes.
pub(crate) fn details(status: &Status, pool: Option<&DescriptorPool>) -> Vec<Value> {
    let detail = |any: frpc::prost_types::Any| {
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        let known = pool.and_then(|pool| pool.get_message_by_name(name));
        let message = known.and_then(|shape| DynamicMessage::decode(shape, any.value.as_slice()).ok());
        let value = message.and_then(|message| message.serialize(serde_json::value::Serializer).ok());
        match value {
            Some(value) => json!({ "@type": any.type_url, "value": value }),
            None => json!({ "@type": any.type_url, "bytes": BASE64_STANDARD.encode(&any.value) }),
        }
    };
    let details: Vec<_> = status.error_details().into_iter().map(detail).collect();
    match (&details[..], status.details()) {
        ([], bytes) if !bytes.is_empty() => vec![match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::from_str(text).unwrap_or_else(|_| json!({ "text": text })),
            Err(_) => json!({ "bytes": BASE64_STANDARD.encode(bytes) }),
        }],
        _ => details,
    }
}

/// Returns a message with all its fields as JSON, to be filled in. Recursive messages are empty, and so are the ones
/// that would exceed a limit.
pub(crate) fn template(shape: &MessageDescriptor) -> Value {
    MessageTemplate { within: Vec::new(), fields: 0 }.message(shape)
}

struct MessageTemplate {
    /// The names of the messages around this place.
    within: Vec<String>,
    /// The number of fields so far.
    fields: usize,
}

impl MessageTemplate {
    fn message(&mut self, shape: &MessageDescriptor) -> Value {
        match shape.full_name() {
            "google.protobuf.Timestamp" => return "1970-01-01T00:00:00Z".into(),
            "google.protobuf.Duration" => return "0s".into(),
            "google.protobuf.FieldMask" => return "".into(),
            "google.protobuf.Any" => return json!({ "@type": "" }),
            "google.protobuf.ListValue" => return json!([]),
            "google.protobuf.Value" => return Value::Null,
            name if self.within.iter().any(|outer| outer == name) => return json!({}),
            _ if self.within.len() >= TEMPLATE_DEPTH_MAX || self.fields >= TEMPLATE_FIELDS_MAX => return json!({}),
            name => self.within.push(name.to_owned()),
        }
        let name = shape.full_name();
        let filled = match shape.get_field(1) {
            Some(field) if name.starts_with("google.protobuf.") && name.ends_with("Value") => self.value(&field.kind()),
            _ => shape.fields().map(|field| (field.json_name().to_owned(), self.field(&field))).collect(),
        };
        self.within.pop();
        filled
    }

    fn field(&mut self, field: &FieldDescriptor) -> Value {
        self.fields += 1;
        match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let key = match entry.map_entry_key_field().kind() {
                    Kind::String => "",
                    Kind::Bool => "false",
                    _ => "0",
                };
                json!({ key: self.value(&entry.map_entry_value_field().kind()) })
            }
            kind if field.is_list() => json!([self.value(&kind)]),
            kind => self.value(&kind),
        }
    }

    fn value(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Message(shape) => self.message(shape),
            Kind::Enum(declared) => declared.default_value().name().into(),
            Kind::Bool => false.into(),
            Kind::String | Kind::Bytes => "".into(),
            Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => "0".into(),
            _ => 0.into(),
        }
    }
}

/// The maximum nesting of messages in a template.
const TEMPLATE_DEPTH_MAX: usize = 32;

/// The number of fields after which a template opens no more messages: each level of a schema can double them.
const TEMPLATE_FIELDS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use frpc_dynamic::DynamicSchema;

    use super::*;

    #[test]
    fn templates_of_hostile_schemas_end() {
        use frpc::prost_types::{
            DescriptorProto, FieldDescriptorProto, FileDescriptorProto, field_descriptor_proto::Type,
        };
        let message = |name: String, of: &str, fields: i32| DescriptorProto {
            name: Some(name),
            field: (1..=fields)
                .map(|number| FieldDescriptorProto {
                    name: Some(format!("f{number}")),
                    number: Some(number),
                    r#type: Some(Type::Message.into()),
                    type_name: Some(of.to_owned()),
                    ..FieldDescriptorProto::default()
                })
                .collect(),
            ..DescriptorProto::default()
        };
        // Each message has two fields of the next one.
        let mut messages: Vec<_> = (0..1000)
            .map(|level| message(format!("M{level}"), &format!(".google.protobuf.M{}", level + 1), 2))
            .collect();
        messages.push(message("M1000".to_owned(), ".google.protobuf.M1000", 1));
        messages.push(message("LoopValue".to_owned(), ".google.protobuf.LoopValue", 1));
        let file = FileDescriptorProto {
            name: Some("hostile.proto".to_owned()),
            package: Some("google.protobuf".to_owned()),
            message_type: messages,
            ..FileDescriptorProto::default()
        };
        let mut schema = DynamicSchema::new();
        schema.add_files([file.encode_to_vec()]).unwrap();
        let filled = |name| template(&schema.pool().get_message_by_name(name).unwrap());
        assert_eq!(filled("google.protobuf.LoopValue"), json!({}));
        assert!(filled("google.protobuf.M0").to_string().len() < 1_000_000);
        assert_eq!(filled("google.protobuf.StringValue"), json!(""));
    }

    #[test]
    fn compact_json_is_one_line_and_keeps_its_digits() {
        let compact = JsonOptions { is_compact: true, ..JsonOptions::default() };
        let text = "{\n\t\"a\": 123456789012345678901234567890,\r\n\"b\": \"c\\nd\"}\n";
        let line = rewrite(&Bytes::from(text), compact).unwrap();
        assert!(!line.contains(['\n', '\r', '\t']), "{line:?}");
        assert!(line.contains("123456789012345678901234567890") && line.contains(r#""c\nd""#), "{line}");
        assert!(rewrite(&Bytes::from("{\"a\"\x1b[2J: 1}"), compact).is_err());
        assert!(rewrite(&Bytes::from("{} {}"), compact).is_err());
    }
}
