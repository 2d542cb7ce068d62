//! Compatibility of the types of fields.

use prost_types::{
    FieldDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::diagnostic::shown;

/// Returns `true` if two types share protobuf's own encoding and have the same range.
pub fn has_same_values(one: Type, other: Type) -> bool {
    EncodingKind::of(one) == EncodingKind::of(other) && range(one) == range(other)
}

/// Groups of types with the same encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodingKind {
    Varint,
    ZigZag,
    Fixed32,
    Fixed64,
    Float,
    Double,
    Bytes,
    Message,
    Group,
}

pub(super) fn kind(field: &FieldDescriptorProto) -> Option<EncodingKind> {
    scalar(field).map(EncodingKind::of)
}

impl EncodingKind {
    pub(super) fn of(declared: Type) -> Self {
        match declared {
            Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Bool | Type::Enum => Self::Varint,
            Type::Sint32 | Type::Sint64 => Self::ZigZag,
            Type::Fixed32 | Type::Sfixed32 => Self::Fixed32,
            Type::Fixed64 | Type::Sfixed64 => Self::Fixed64,
            Type::Float => Self::Float,
            Type::Double => Self::Double,
            Type::String | Type::Bytes => Self::Bytes,
            Type::Message => Self::Message,
            Type::Group => Self::Group,
        }
    }
}

/// Returns `true` if the reader's type holds all values of the writer's type. Expects types with the same encoding.
pub(super) fn holds(reader: Type, writer: Type) -> bool {
    match (range(reader), range(writer)) {
        (Some(reader), Some(writer)) => reader.0 <= writer.0 && writer.1 <= reader.1,
        _ => true,
    }
}

/// Returns the smallest and largest number of an integer type, or `None` for other types.
fn range(of: Type) -> Option<(i128, i128)> {
    Some(match of {
        Type::Bool => (0, 1),
        Type::Int32 | Type::Sint32 | Type::Sfixed32 | Type::Enum => (i32::MIN.into(), i32::MAX.into()),
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => (i64::MIN.into(), i64::MAX.into()),
        Type::Uint32 | Type::Fixed32 => (0, u32::MAX.into()),
        Type::Uint64 | Type::Fixed64 => (0, u64::MAX.into()),
        Type::Float | Type::Double | Type::String | Type::Bytes | Type::Message | Type::Group => return None,
    })
}

/// Returns the type of a field, or `None` if a peer's descriptor has an invalid one.
pub(super) fn scalar(field: &FieldDescriptorProto) -> Option<Type> {
    field.r#type.and_then(|of| Type::try_from(of).ok())
}

/// Returns the type of a field's single value in the syntax of proto files.
pub(super) fn single_type(field: &FieldDescriptorProto) -> String {
    match scalar(field) {
        Some(Type::Message) if field.type_name().is_empty() => "untyped".to_owned(),
        Some(Type::Message) => shown(field.type_name()),
        Some(Type::Enum) => format!("enum {}", shown(field.type_name())),
        Some(Type::Group) => format!("group {}", shown(field.type_name())),
        Some(of) => of.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
        None => "untyped".to_owned(),
    }
}

pub(super) fn is_repeated(field: &FieldDescriptorProto) -> bool {
    field.label == Some(Label::Repeated as i32)
}
