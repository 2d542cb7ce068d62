//! The declarations of proto files. Full names have no leading dot.

use prost_types::{field_descriptor_proto::Type as FieldType, method_options::IdempotencyLevel};

use crate::location::{Comment, Place};

/// The packages of all files, in the order of their first file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Schema {
    /// The packages.
    pub packages: Vec<Package>,
}

/// The declarations of one package, in the order of its files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Package {
    /// The name, such as `shop.order.v1`; empty for files without one.
    pub name: String,
    /// The messages, each before those nested in it.
    pub messages: Vec<Message>,
    /// The enums, nested ones included.
    pub enums: Vec<Enum>,
    /// The services.
    pub services: Vec<Service>,
    /// The place of the name in the first file.
    pub place: Place,
}

/// A message, nested or not. The entries of maps are no messages here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// The name with the package and the messages around it.
    pub full_name: String,
    /// The fields, in the order of the wire.
    pub fields: Vec<Field>,
    /// The oneofs that have members. Those that stand for proto3 `optional` are left out.
    pub oneofs: Vec<Oneof>,
    /// The names of the messages and enums that are declared in this one, the entries of its maps among them.
    pub nested: Vec<String>,
    /// The place of the declaration.
    pub place: Place,
}

/// A field of a message, or a member of one of its oneofs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Field {
    /// The name.
    pub name: String,
    /// The name in JSON: `json_name`, or the name in lower camel case.
    pub json_name: String,
    /// The number in protobuf's own encoding. The wire of frpc has none.
    pub number: i32,
    /// The type, and how often a value may occur.
    pub shape: Shape,
    /// True if the field is a `required` one of proto2.
    pub is_required: bool,
    /// True if protobuf's own encoding has its values in a fixed length: `fixed32`, `sfixed64`, `float`, `double` and so on.
    pub is_fixed: bool,
    /// True if the field is deprecated.
    pub is_deprecated: bool,
    /// The place of the declaration.
    pub place: Place,
}

/// The type of a field, and how often a value may occur.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Exactly once. A field of proto3 without a label is one, unless it holds a message.
    Always(Type),
    /// At most once.
    Optional(Type),
    /// At most once, and then no other member of this oneof, an index into [`Message::oneofs`].
    Member(usize, Type),
    /// Any number of times.
    List(Type),
    /// Any number of times, with keys.
    Map(Type, Type),
}

/// The type of a value, as the wire tells them apart: `int32`, `sint32` and `sfixed32` are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `bool`.
    Bool,
    /// 32 bits with a sign.
    I32,
    /// 64 bits with a sign.
    I64,
    /// 32 bits without a sign.
    U32,
    /// 64 bits without a sign.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// An enum, by its full name.
    Enum(String),
    /// A message, by its full name.
    Message(String),
}

/// A oneof of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Oneof {
    /// The name.
    pub name: String,
    /// The names of the members, in the order of declaration.
    pub members: Vec<String>,
    /// The place of the declaration.
    pub place: Place,
}

/// An enum, nested or not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Enum {
    /// The name with the package and the messages around it.
    pub full_name: String,
    /// The values in the order of declaration, aliases included. The wire names a value by its position here.
    pub values: Vec<EnumValue>,
    /// The place of the declaration.
    pub place: Place,
}

/// A value of an enum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnumValue {
    /// The name.
    pub name: String,
    /// The number, which several values share if they are aliases.
    pub number: i32,
    /// The place of the declaration.
    pub place: Place,
}

/// A service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Service {
    /// The name without the package.
    pub name: String,
    /// The name with the package.
    pub full_name: String,
    /// The methods, in the order of declaration.
    pub methods: Vec<Method>,
    /// True if the service is deprecated.
    pub is_deprecated: bool,
    /// The comment.
    pub comment: Comment,
    /// The place of the declaration.
    pub place: Place,
}

/// A method of a service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Method {
    /// The name.
    pub name: String,
    /// The name behind that of its service, as in `shop.Orders/Place`. gRPC puts a slash in front.
    pub path: String,
    /// The number in the packets of frisbee.
    pub operation: u16,
    /// The sides that send a stream of messages.
    pub kind: MethodKind,
    /// The full name of the message that callers send.
    pub input: String,
    /// The full name of the message that they receive.
    pub output: String,
    /// A promise that calls may be repeated, or even answered from a cache.
    pub idempotency: IdempotencyLevel,
    /// True if the method is deprecated.
    pub is_deprecated: bool,
    /// The comment.
    pub comment: Comment,
    /// The place of the declaration.
    pub place: Place,
}

/// The sides of a call that send a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodKind {
    /// One message each way.
    Unary,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream of requests, one response.
    ClientStreaming,
    /// A stream of messages each way.
    Bidirectional,
}

impl Message {
    /// Returns the full names of the messages that this one holds.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|field| match field.shape.element() {
            Type::Message(of) => Some(of.as_str()),
            _ => None,
        })
    }
}

impl Type {
    /// Returns the type of a scalar, a text or bytes, or `None` for what has a name: enums, messages and groups.
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

impl Shape {
    /// Returns the type of a single value: that of an item for a list, that of a value for a map.
    pub fn element(&self) -> &Type {
        match self {
            Self::Always(of) | Self::Optional(of) | Self::Member(_, of) | Self::List(of) | Self::Map(_, of) => of,
        }
    }
}
