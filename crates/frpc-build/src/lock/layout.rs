//! The layout of all types that methods send.

use std::collections::{BTreeMap, HashMap};

use frpc_schema::{FieldShape, MessageSchema, MethodKind, Schema, ValueType};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, field_descriptor_proto::Type as Scalar};

/// The layout of all types that methods send. Full names have no leading dot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LockedLayout {
    /// The methods of each file, by operation.
    pub(super) files: BTreeMap<String, BTreeMap<u16, LockedMethod>>,
    /// The fields of each message, in wire order.
    pub(super) messages: BTreeMap<String, Vec<LockedField>>,
    /// The values of each enum, in declaration order.
    pub(super) enums: BTreeMap<String, Vec<LockedValue>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockedMethod {
    pub(super) kind: MethodKind,
    pub(super) path: String,
    pub(super) input: String,
    pub(super) output: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockedField {
    pub(super) number: i32,
    pub(super) name: String,
    pub(super) label: FieldLabel,
    /// The type of a single value: for a list its item, for a map its value.
    pub(super) of: LockedType,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FieldLabel {
    Always,
    Optional,
    Repeated,
    /// A member of the oneof with this name.
    Member(String),
    /// A map with keys of this type.
    Map(Scalar),
}

/// A type as declared in a proto file. Scalars with the same frpc encoding may differ in protobuf.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LockedType {
    Scalar(Scalar),
    Enum(String),
    Message(String),
    /// A message in the form of a group.
    Group(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockedValue {
    pub(super) number: i32,
    pub(super) name: String,
}

impl LockedLayout {
    /// Returns the layout of all services generated here, and of all types reachable from their methods. `set` must be
    /// the source of `schema`.
    pub(super) fn of(schema: &Schema, set: &FileDescriptorSet, is_here: impl Fn(&str) -> bool) -> Self {
        let mut layout = Self::default();
        let mut left = Vec::new();
        for service in schema.packages.iter().flat_map(|package| &package.services) {
            for method in service.methods.iter().filter(|_| is_here(&service.full_name)) {
                left.extend([method.input.as_str(), method.output.as_str()]);
                let (path, input, output) = (method.path.clone(), method.input.clone(), method.output.clone());
                let methods = layout.files.entry(service.place.file.clone()).or_default();
                methods.insert(method.operation, LockedMethod { kind: method.kind, path, input, output });
            }
        }

        let declared = DescriptorIndex::of(set);
        let messages = schema.packages.iter().flat_map(|package| &package.messages);
        let messages: HashMap<_, _> = messages.map(|message| (message.full_name.as_str(), message)).collect();
        let enums = schema.packages.iter().flat_map(|package| &package.enums);
        let enums: HashMap<_, _> = enums.map(|declared| (declared.full_name.as_str(), declared)).collect();
        while let Some(name) = left.pop() {
            if layout.messages.contains_key(name) {
                continue;
            }
            let message = messages[name];
            layout.messages.insert(name.to_owned(), declared.fields(message));
            for field in &message.fields {
                match field.shape.element() {
                    ValueType::Message(of) => left.push(of),
                    ValueType::Enum(of) => {
                        let value = |value: &frpc_schema::EnumValue| (value.number, value.name.clone());
                        let values = enums[of.as_str()].values.iter().map(value);
                        let values = values.map(|(number, name)| LockedValue { number, name }).collect();
                        layout.enums.insert(of.clone(), values);
                    }
                    _ => {}
                }
            }
        }
        layout
    }

    /// Returns all methods with their files and operations.
    pub(super) fn methods(&self) -> impl Iterator<Item = (&str, u16, &LockedMethod)> {
        let files = self.files.iter();
        files.flat_map(|(file, methods)| {
            methods.iter().map(move |(&operation, method)| (file.as_str(), operation, method))
        })
    }
}

/// The declarations of all messages, by full name.
struct DescriptorIndex<'a>(HashMap<String, &'a DescriptorProto>);

impl<'a> DescriptorIndex<'a> {
    /// Collects the messages of a checked set. The check limits the nesting, so recursion is safe.
    fn of(set: &'a FileDescriptorSet) -> Self {
        let mut declared = Self(HashMap::new());
        for file in &set.file {
            declared.add(file.package(), &file.message_type);
        }
        declared
    }

    fn add(&mut self, parent: &str, messages: &'a [DescriptorProto]) {
        for message in messages {
            let dot = if parent.is_empty() { "" } else { "." };
            let name = format!("{parent}{dot}{}", message.name());
            self.add(&name, &message.nested_type);
            self.0.insert(name, message);
        }
    }

    fn fields(&self, message: &MessageSchema) -> Vec<LockedField> {
        let declared = &self.0[&message.full_name].field;
        let declared: HashMap<_, _> = declared.iter().map(|field| (field.number(), field)).collect();
        let field = |field: &frpc_schema::FieldSchema| {
            let declared = declared[&field.number];
            let (label, of) = match &field.shape {
                FieldShape::Always(_) => (FieldLabel::Always, of(declared)),
                FieldShape::Optional(_) => (FieldLabel::Optional, of(declared)),
                FieldShape::Member(oneof, _) => (FieldLabel::Member(message.oneofs[*oneof].name.clone()), of(declared)),
                FieldShape::List(_) => (FieldLabel::Repeated, of(declared)),
                FieldShape::Map(..) => {
                    let entry = &self.0[&undotted(declared.type_name())].field;
                    (FieldLabel::Map(entry[0].r#type()), of(&entry[1]))
                }
            };
            LockedField { number: field.number, name: field.name.clone(), label, of }
        };
        message.fields.iter().map(field).collect()
    }
}

fn of(declared: &FieldDescriptorProto) -> LockedType {
    match declared.r#type() {
        Scalar::Enum => LockedType::Enum(undotted(declared.type_name())),
        Scalar::Message => LockedType::Message(undotted(declared.type_name())),
        Scalar::Group => LockedType::Group(undotted(declared.type_name())),
        scalar => LockedType::Scalar(scalar),
    }
}

fn undotted(name: &str) -> String {
    name.trim_start_matches('.').to_owned()
}
