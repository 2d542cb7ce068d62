//! The messages and enums of an API, as needed for parameters and for their description.

use std::collections::{BTreeMap, HashMap};

use frpc_schema::location::{
    ENUMS_OF_FILE, ENUMS_OF_MESSAGE, FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE,
    VALUES_OF_ENUM, joined,
};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::comments;

/// The types of a set of proto files.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeTable {
    messages: Vec<MessageInfo>,
    enums: Vec<EnumInfo>,
    by_name: HashMap<String, TypeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TypeId {
    Message(usize),
    Enum(usize),
}

/// A message of a proto file.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageInfo {
    pub(crate) name: String,
    pub(crate) docs: String,
    pub(crate) is_deprecated: bool,
    pub(crate) fields: Vec<FieldInfo>,
    /// The names of oneofs, without the implicit ones of optional fields.
    pub(crate) oneofs: Vec<String>,
    /// The indices of fields by the names accepted in JSON.
    by_name: HashMap<String, usize>,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub(crate) struct FieldInfo {
    pub(crate) name: String,
    pub(crate) json_name: String,
    pub(crate) docs: String,
    pub(crate) is_deprecated: bool,
    pub(crate) shape: FieldLabel,
    pub(crate) of: ValueKind,
    /// The index of its oneof.
    pub(crate) oneof: Option<usize>,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldLabel {
    One,
    Repeated,
    /// A map, with keys of this kind.
    Map(ScalarKind),
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Scalar(ScalarKind),
    /// An enum, by its full name.
    Enum(String),
    /// A message, by its full name.
    Message(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Float,
    Double,
    String,
    Bytes,
}

impl ScalarKind {
    /// Returns the description of a value, for errors.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Bool => "`true` or `false`",
            Self::Int32 => "an int32",
            Self::Int64 => "an int64",
            Self::Uint32 => "a uint32",
            Self::Uint64 => "a uint64",
            Self::Float => "a float",
            Self::Double => "a double",
            Self::String => "text",
            Self::Bytes => "base64",
        }
    }
}

/// An enum of a proto file.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnumInfo {
    pub(crate) docs: String,
    pub(crate) values: Vec<EnumValueInfo>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct EnumValueInfo {
    pub(crate) name: String,
    pub(crate) docs: String,
}

/// A well-known message with a special JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnown {
    Timestamp,
    Duration,
    FieldMask,
    /// A wrapper of a scalar.
    Wrapper(ScalarKind),
    Value,
    Struct,
    ListValue,
    Any,
    /// `google.api.HttpBody`: the bytes of a body with their content type.
    HttpBody,
}

impl WellKnown {
    pub(crate) fn of(message: &str) -> Option<Self> {
        if message == "google.api.HttpBody" {
            return Some(Self::HttpBody);
        }
        Some(match message.strip_prefix("google.protobuf.")? {
            "Timestamp" => Self::Timestamp,
            "Duration" => Self::Duration,
            "FieldMask" => Self::FieldMask,
            "BoolValue" => Self::Wrapper(ScalarKind::Bool),
            "Int32Value" => Self::Wrapper(ScalarKind::Int32),
            "Int64Value" => Self::Wrapper(ScalarKind::Int64),
            "UInt32Value" => Self::Wrapper(ScalarKind::Uint32),
            "UInt64Value" => Self::Wrapper(ScalarKind::Uint64),
            "FloatValue" => Self::Wrapper(ScalarKind::Float),
            "DoubleValue" => Self::Wrapper(ScalarKind::Double),
            "StringValue" => Self::Wrapper(ScalarKind::String),
            "BytesValue" => Self::Wrapper(ScalarKind::Bytes),
            "Value" => Self::Value,
            "Struct" => Self::Struct,
            "ListValue" => Self::ListValue,
            "Any" => Self::Any,
            _ => return None,
        })
    }
}

impl TypeTable {
    /// Reads the types of a file.
    pub(crate) fn add_file(&mut self, file: &FileDescriptorProto) {
        let reader = FileReader { locations: Locations::new(file) };
        let package = file.package();
        for (index, message) in (0..).zip(&file.message_type) {
            reader.message(self, package, message, &[MESSAGES_OF_FILE, index]);
        }
        for (index, declared) in (0..).zip(&file.enum_type) {
            reader.enumeration(self, package, declared, &[ENUMS_OF_FILE, index]);
        }
    }

    pub(crate) fn message(&self, name: &str) -> Option<&MessageInfo> {
        match self.by_name.get(name)? {
            TypeId::Message(index) => self.messages.get(*index),
            TypeId::Enum(_) => None,
        }
    }

    pub(crate) fn enumeration(&self, name: &str) -> Option<&EnumInfo> {
        match self.by_name.get(name)? {
            TypeId::Enum(index) => self.enums.get(*index),
            TypeId::Message(_) => None,
        }
    }

    /// Returns the field at the end of a path.
    pub(crate) fn field_at(&self, message: &str, indices: &[usize]) -> Option<&FieldInfo> {
        let (last, before) = indices.split_last()?;
        let mut message = self.message(message)?;
        for index in before {
            message = self.message(message.fields.get(*index)?.message()?)?;
        }
        message.fields.get(*last)
    }

    /// Finds a field by its path, with dots. All fields before the last one are messages and occur once.
    ///
    /// # Errors
    ///
    /// The reason, for the author of the proto file.
    pub(crate) fn field_path(&self, message: &str, path: &str) -> Result<(Vec<usize>, &FieldInfo), String> {
        let mut indices = Vec::new();
        let mut message = message;
        let mut parts = path.split('.').peekable();
        loop {
            let name = parts.next().unwrap_or_default();
            let info = self.message(message).ok_or_else(|| format!("{message} has no fields"))?;
            let index = info.index_of(name).ok_or_else(|| format!("{message} has no field `{name}`"))?;
            indices.push(index);
            let field = &info.fields[index];
            if parts.peek().is_none() {
                return Ok((indices, field));
            }
            match (&field.of, field.shape) {
                (ValueKind::Message(of), FieldLabel::One) => message = of,
                _ => return Err(format!("the field `{name}` of {message} is not a single message")),
            }
        }
    }
}

impl MessageInfo {
    /// Returns the index of a field with this name in the proto file or in JSON.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl FieldInfo {
    /// Returns the name of the message in the field.
    pub(crate) fn message(&self) -> Option<&str> {
        match &self.of {
            ValueKind::Message(name) => Some(name),
            _ => None,
        }
    }

    /// Returns `true` if a single text is a value of the field: a scalar, an enum, or a well-known type.
    pub(crate) fn has_text_form(&self) -> bool {
        let is_text = match &self.of {
            ValueKind::Message(name) => {
                WellKnown::of(name).is_some_and(|known| !matches!(known, WellKnown::Any | WellKnown::HttpBody))
            }
            _ => true,
        };
        is_text && !matches!(self.shape, FieldLabel::Map(_))
    }
}

struct FileReader<'a> {
    locations: Locations<'a>,
}

impl FileReader<'_> {
    fn docs(&self, path: &[i32]) -> String {
        comments::text(&self.locations.comment(path))
    }

    fn message(&self, table: &mut TypeTable, scope: &str, message: &DescriptorProto, path: &[i32]) {
        let name = full_name(scope, message.name());
        if table.by_name.contains_key(&name) {
            return;
        }
        let entries: BTreeMap<String, &DescriptorProto> = message
            .nested_type
            .iter()
            .filter(|nested| nested.options.as_ref().is_some_and(|options| options.map_entry()))
            .map(|nested| (full_name(&name, nested.name()), nested))
            .collect();
        let mut info = MessageInfo {
            docs: self.docs(path),
            is_deprecated: message.options.as_ref().is_some_and(|options| options.deprecated()),
            ..MessageInfo::default()
        };
        // Oneofs of optional fields come after all others.
        let synthetic = message.field.iter().filter(|field| field.proto3_optional()).count();
        let oneofs = message.oneof_decl.len().saturating_sub(synthetic);
        info.oneofs = message.oneof_decl[..oneofs].iter().map(|oneof| oneof.name().to_owned()).collect();
        for (index, field) in (0..).zip(&message.field) {
            let docs = self.docs(&joined(path, &[FIELDS_OF_MESSAGE, index]));
            let read = read_field(field, &entries, docs, oneofs);
            for name in [&read.json_name, &read.name] {
                info.by_name.entry(name.clone()).or_insert(info.fields.len());
            }
            info.fields.push(read);
        }
        info.name.clone_from(&name);
        table.by_name.insert(name.clone(), TypeId::Message(table.messages.len()));
        table.messages.push(info);
        for (index, nested) in (0..).zip(&message.nested_type) {
            if !entries.contains_key(&full_name(&name, nested.name())) {
                self.message(table, &name, nested, &joined(path, &[MESSAGES_OF_MESSAGE, index]));
            }
        }
        for (index, nested) in (0..).zip(&message.enum_type) {
            self.enumeration(table, &name, nested, &joined(path, &[ENUMS_OF_MESSAGE, index]));
        }
    }

    fn enumeration(&self, table: &mut TypeTable, scope: &str, declared: &EnumDescriptorProto, path: &[i32]) {
        let name = full_name(scope, declared.name());
        if table.by_name.contains_key(&name) {
            return;
        }
        let values = (0..).zip(&declared.value).map(|(index, value)| EnumValueInfo {
            name: value.name().to_owned(),
            docs: self.docs(&joined(path, &[VALUES_OF_ENUM, index])),
        });
        let info = EnumInfo { docs: self.docs(path), values: values.collect() };
        table.by_name.insert(name, TypeId::Enum(table.enums.len()));
        table.enums.push(info);
    }
}

fn read_field(
    field: &FieldDescriptorProto,
    entries: &BTreeMap<String, &DescriptorProto>,
    docs: String,
    oneofs: usize,
) -> FieldInfo {
    let entry = Some(field).filter(|field| field.r#type() == Type::Message);
    let entry = entry.and_then(|field| entries.get(field.type_name().trim_start_matches('.')));
    let (shape, of) = match entry {
        Some(entry) => {
            let part = |number| entry.field.iter().find(|field| field.number() == number).map(kind_of);
            let key = match part(1) {
                Some(ValueKind::Scalar(key)) => key,
                _ => ScalarKind::String,
            };
            (FieldLabel::Map(key), part(2).unwrap_or(ValueKind::Scalar(ScalarKind::String)))
        }
        None if field.label() == Label::Repeated => (FieldLabel::Repeated, kind_of(field)),
        None => (FieldLabel::One, kind_of(field)),
    };
    let json_name = field.json_name.clone().unwrap_or_else(|| lower_camel(field.name()));
    let oneof = field.oneof_index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < oneofs);
    FieldInfo {
        name: field.name().to_owned(),
        json_name,
        docs,
        is_deprecated: field.options.as_ref().is_some_and(|options| options.deprecated()),
        shape,
        of,
        oneof,
    }
}

fn kind_of(field: &FieldDescriptorProto) -> ValueKind {
    let name = || field.type_name().trim_start_matches('.').to_owned();
    ValueKind::Scalar(match field.r#type() {
        Type::Bool => ScalarKind::Bool,
        Type::Int32 | Type::Sint32 | Type::Sfixed32 => ScalarKind::Int32,
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => ScalarKind::Int64,
        Type::Uint32 | Type::Fixed32 => ScalarKind::Uint32,
        Type::Uint64 | Type::Fixed64 => ScalarKind::Uint64,
        Type::Float => ScalarKind::Float,
        Type::Double => ScalarKind::Double,
        Type::String => ScalarKind::String,
        Type::Bytes => ScalarKind::Bytes,
        Type::Enum => return ValueKind::Enum(name()),
        Type::Message | Type::Group => return ValueKind::Message(name()),
    })
}

/// Returns the name of a declaration with the name of its package or message.
pub(crate) fn full_name(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

/// Returns the default name of a field in JSON.
fn lower_camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut is_upper = false;
    for letter in name.chars() {
        match letter {
            '_' => is_upper = true,
            letter if std::mem::take(&mut is_upper) => camel.push(letter.to_ascii_uppercase()),
            letter => camel.push(letter),
        }
    }
    camel
}
