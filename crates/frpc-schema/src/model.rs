//! The schema: declarations of proto files, prepared for frpc. Full names have no leading dot.

use prost_types::{field_descriptor_proto::Type as FieldType, method_options::IdempotencyLevel};

use crate::location::{Comment, SourceLocation};

/// All packages, in the order of their first file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Schema {
    /// The packages.
    pub packages: Vec<PackageSchema>,
}

/// The declarations of one package, in the order of its files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PackageSchema {
    /// Package name, such as `shop.order.v1`. Empty for files without a package.
    pub name: String,
    /// Messages, each before those nested in it.
    pub messages: Vec<MessageSchema>,
    /// Enums, including nested ones.
    pub enums: Vec<EnumSchema>,
    /// Services.
    pub services: Vec<ServiceSchema>,
    /// Place of the package name in its first file.
    pub place: SourceLocation,
}

/// A message, top-level or nested. Map entries are not included.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageSchema {
    /// Name with the package and the enclosing messages.
    pub full_name: String,
    /// Fields in wire order.
    pub fields: Vec<FieldSchema>,
    /// Oneofs with members. The generated oneofs of proto3 `optional` fields are not included.
    pub oneofs: Vec<OneofSchema>,
    /// Names of the messages and enums declared in this message, including its map entries.
    pub nested: Vec<String>,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// A field of a message, including members of oneofs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FieldSchema {
    /// Name in the proto file.
    pub name: String,
    /// Name in JSON: the option `json_name`, or the name in lower camel case.
    pub json_name: String,
    /// Number in protobuf's own encoding. The encoding of frpc has no field numbers.
    pub number: i32,
    /// Type and cardinality.
    pub shape: FieldShape,
    /// True for a `required` field of proto2, and for [`SchemaOptions::required_fields`](crate::SchemaOptions). The latter
    /// keep their shape, because the encoding is the same.
    pub is_required: bool,
    /// True if protobuf encodes its values with a fixed length: `fixed32`, `sfixed64`, `float`, `double` and similar
    /// types.
    pub is_fixed: bool,
    /// True if the field is deprecated.
    pub is_deprecated: bool,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// Type and cardinality of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldShape {
    /// Exactly one value, such as a proto3 field without a label and not of a message type.
    Always(ValueType),
    /// At most one value.
    Optional(ValueType),
    /// At most one value among all members of a oneof, given as an index into [`MessageSchema::oneofs`].
    Member(usize, ValueType),
    /// Any number of values.
    List(ValueType),
    /// A map from keys to values.
    Map(ValueType, ValueType),
}

/// Type of a single value. Types with the same encoding in frpc, such as `int32`, `sint32` and `sfixed32`, are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `bool`.
    Bool,
    /// A signed 32-bit integer.
    I32,
    /// A signed 64-bit integer.
    I64,
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// An enum, by full name.
    Enum(String),
    /// A message, by full name.
    Message(String),
}

/// A oneof of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OneofSchema {
    /// Name of the oneof.
    pub name: String,
    /// Names of the members, in the order of declaration.
    pub members: Vec<String>,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// An enum, top-level or nested.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnumSchema {
    /// Name with the package and the enclosing messages.
    pub full_name: String,
    /// Values in the order of declaration, including aliases. frpc encodes a value as its position in this list.
    pub values: Vec<EnumValue>,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// A value of an enum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnumValue {
    /// Name of the value.
    pub name: String,
    /// Number of the value. Aliases share a number.
    pub number: i32,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// A service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceSchema {
    /// Name without the package.
    pub name: String,
    /// Name with the package.
    pub full_name: String,
    /// Methods in the order of declaration.
    pub methods: Vec<MethodSchema>,
    /// True if the service is deprecated.
    pub is_deprecated: bool,
    /// Comment in the proto file.
    pub comment: Comment,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// A method of a service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodSchema {
    /// Name of the method.
    pub name: String,
    /// Full name of the service and name of the method, as in `shop.Orders/Place`. gRPC adds a leading slash.
    pub path: String,
    /// Operation number in frisbee packets.
    pub operation: u16,
    /// Streaming on the side of the caller, the server, or both.
    pub kind: MethodKind,
    /// Full name of the request message.
    pub input: String,
    /// Full name of the response message.
    pub output: String,
    /// Declared idempotency: calls may be repeated, or even answered from a cache.
    pub idempotency: IdempotencyLevel,
    /// True if the method is deprecated.
    pub is_deprecated: bool,
    /// Comment in the proto file.
    pub comment: Comment,
    /// Place of the declaration.
    pub place: SourceLocation,
}

/// Streaming of a method: which sides of a call send a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// One request, one response.
    Unary,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream of requests, one response.
    ClientStreaming,
    /// A stream in each direction.
    Bidirectional,
}

impl MessageSchema {
    /// Returns the full names of the message types of all fields.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|field| match field.shape.element() {
            ValueType::Message(of) => Some(of.as_str()),
            _ => None,
        })
    }
}

impl ValueType {
    /// Returns the type for a scalar, string or bytes field, or `None` for named types: enums, messages and groups.
    pub fn of_scalar(scalar: FieldType) -> Option<Self> {
        Some(match scalar {
            FieldType::Bool => Self::Bool,
            FieldType::Int32 | FieldType::Sint32 | FieldType::Sfixed32 => Self::I32,
            FieldType::Int64 | FieldType::Sint64 | FieldType::Sfixed64 => Self::I64,
            FieldType::Uint32 | FieldType::Fixed32 => Self::U32,
            FieldType::Uint64 | FieldType::Fixed64 => Self::U64,
            FieldType::Float => Self::F32,
            FieldType::Double => Self::F64,
            FieldType::String => Self::String,
            FieldType::Bytes => Self::Bytes,
            FieldType::Enum | FieldType::Message | FieldType::Group => return None,
        })
    }
}

impl FieldShape {
    /// Returns the type of a single value: of a list's item or a map's value.
    pub fn element(&self) -> &ValueType {
        match self {
            Self::Always(of) | Self::Optional(of) | Self::Member(_, of) | Self::List(of) | Self::Map(_, of) => of,
        }
    }
}
