//! What the proto files say, in the order of the wire. Names are those of the files; Rust's come from
//! [naming](crate::naming).

use std::collections::BTreeMap;

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type as FieldType},
};

use crate::{
    comments,
    diagnostics::{Diagnostic, Locations, Mark},
};

/// The packages of all files, in the order of their first file.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) packages: Vec<Package>,
}

/// What the files of one package declare, in the order of the files.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) services: Vec<Service>,
}

/// A message, nested or not.
#[derive(Debug)]
pub(crate) struct Message {
    /// Starts with a dot and the package.
    pub(crate) full_name: String,
    /// In the order of the wire.
    pub(crate) fields: Vec<Field>,
    pub(crate) oneofs: Vec<Oneof>,
    pub(crate) mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) is_deprecated: bool,
    pub(crate) mark: Mark,
}

/// How often a field may occur, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Exactly once.
    Always(Type),
    /// At most once.
    Optional(Type),
    /// At most once, and then no other member of this oneof does.
    Member(usize, Type),
    List(Type),
    Map(Type, Type),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    I32,
    I64,
    U32,
    U64,
    F32,
    F64,
    String,
    Bytes,
    /// With its full name.
    Enum(String),
    /// With its full name.
    Message(String),
}

/// The wire has three groups of fields, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Scalars,
    Lists,
    MessagesAndMaps,
}

/// A oneof that the file declares; those that stand for proto3 `optional` are left out.
#[derive(Debug)]
pub(crate) struct Oneof {
    pub(crate) name: String,
    /// Names of the members, in the order of declaration.
    pub(crate) members: Vec<String>,
    /// Names of the types that are declared in the same message.
    pub(crate) siblings: Vec<String>,
    pub(crate) mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Enum {
    /// Starts with a dot and the package.
    pub(crate) full_name: String,
    /// In the order of declaration, aliases included: the index is the value on the wire.
    pub(crate) numbers: Vec<i32>,
    /// The names of these values, and where they stand.
    pub(crate) values: Vec<(String, Mark)>,
    pub(crate) mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// Starts with a dot and the package.
    pub(crate) full_name: String,
    /// The comment as Markdown.
    pub(crate) docs: Vec<String>,
    pub(crate) is_deprecated: bool,
    pub(crate) methods: Vec<Method>,
    pub(crate) mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// Its number on the wire.
    pub(crate) operation: u16,
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) kind: MethodKind,
    /// The comment as Markdown.
    pub(crate) docs: Vec<String>,
    pub(crate) is_deprecated: bool,
    pub(crate) mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodKind {
    Unary,
    ServerStreaming,
    ClientStreaming,
    Bidirectional,
}

impl Schema {
    /// Reads what the files declare. Operations count from the number given for their file, or else from 10.
    pub(crate) fn new(set: &FileDescriptorSet, first_operations: &BTreeMap<String, u16>) -> Result<Self, Diagnostic> {
        let mut packages: Vec<Package> = Vec::new();
        for file in &set.file {
            let package = match packages.iter_mut().position(|package| package.name == file.package()) {
                Some(index) => &mut packages[index],
                None => {
                    packages.push(Package { name: file.package().to_owned(), ..Package::default() });
                    packages.last_mut().expect("it was pushed just now")
                }
            };
            let first_operation = first_operations.get(file.name()).copied().unwrap_or(FIRST_OPERATION);
            FileReader::new(file, first_operation).read_into(package)?;
        }
        Ok(Self { packages })
    }
}

impl Message {
    /// The full names of the messages that it holds.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|field| match &field.shape {
            Shape::Always(Type::Message(of))
            | Shape::Optional(Type::Message(of))
            | Shape::Member(_, Type::Message(of))
            | Shape::List(Type::Message(of))
            | Shape::Map(_, Type::Message(of)) => Some(of.as_str()),
            _ => None,
        })
    }
}

impl Shape {
    /// Whether the field holds one message and not many.
    fn has_single_message(&self) -> bool {
        let (Self::Always(of) | Self::Optional(of) | Self::Member(_, of)) = self else { return false };
        matches!(of, Type::Message(_))
    }

    fn group(&self) -> Group {
        match self {
            Self::List(_) => Group::Lists,
            Self::Map(..) => Group::MessagesAndMaps,
            _ if self.has_single_message() => Group::MessagesAndMaps,
            _ => Group::Scalars,
        }
    }
}

/// Reads one file.
struct FileReader<'a> {
    file: &'a FileDescriptorProto,
    /// A full name in front of another: a dot and the package, or nothing.
    prefix: String,
    locations: Locations<'a>,
    has_presence: bool,
    first_operation: u16,
}

impl<'a> FileReader<'a> {
    fn new(file: &'a FileDescriptorProto, first_operation: u16) -> Self {
        Self {
            file,
            prefix: if file.package().is_empty() { String::new() } else { format!(".{}", file.package()) },
            locations: Locations::new(file),
            has_presence: file.syntax() != "proto3",
            first_operation,
        }
    }

    fn read_into(&self, package: &mut Package) -> Result<(), Diagnostic> {
        for (index, message) in (0..).zip(&self.file.message_type) {
            self.message(message, &self.prefix, &[MESSAGES_OF_FILE, index], package)?;
        }
        for (index, declared) in (0..).zip(&self.file.enum_type) {
            package.enums.push(self.enumeration(declared, &self.prefix, &[ENUMS_OF_FILE, index]));
        }
        let mut operations = self.first_operation..=u16::MAX;
        for (index, service) in (0..).zip(&self.file.service) {
            package.services.push(self.service(service, &[SERVICES_OF_FILE, index], &mut operations)?);
        }
        Ok(())
    }

    fn message(
        &self,
        declared: &DescriptorProto,
        parent: &str,
        path: &[i32],
        package: &mut Package,
    ) -> Result<(), Diagnostic> {
        let full_name = format!("{parent}.{}", declared.name());
        let (entries, nested): (Vec<_>, Vec<_>) = (0..)
            .zip(&declared.nested_type)
            .partition(|(_, nested)| nested.options.as_ref().is_some_and(|o| o.map_entry()));

        let mut fields = Vec::with_capacity(declared.field.len());
        for (index, field) in (0..).zip(&declared.field) {
            let entry = entries.iter().map(|(_, entry)| *entry).find(|entry| is_type(field, &full_name, entry));
            let shape = match entry {
                Some(entry) => self.map(entry, path)?,
                None => self.shape(field, &joined(path, &[FIELDS_OF_MESSAGE, index]))?,
            };
            let is_deprecated = field.options.as_ref().is_some_and(|options| options.deprecated());
            let mark = self.mark(&joined(path, &[FIELDS_OF_MESSAGE, index]));
            fields.push(Field { name: field.name().to_owned(), shape, is_deprecated, mark });
        }
        let oneofs = self.oneofs(declared, &mut fields, path);
        fields.sort_by_key(|field| field.shape.group());

        package.messages.push(Message { full_name: full_name.clone(), fields, oneofs, mark: self.mark(path) });
        for (index, nested) in nested {
            self.message(nested, &full_name, &joined(path, &[MESSAGES_OF_MESSAGE, index]), package)?;
        }
        for (index, nested) in (0..).zip(&declared.enum_type) {
            package.enums.push(self.enumeration(nested, &full_name, &joined(path, &[ENUMS_OF_MESSAGE, index])));
        }
        Ok(())
    }

    /// The oneofs that have members; what those of `optional` fields were counts no more.
    fn oneofs(&self, declared: &DescriptorProto, fields: &mut [Field], path: &[i32]) -> Vec<Oneof> {
        let siblings = declared.nested_type.iter().map(|nested| nested.name());
        let siblings: Vec<_> = siblings.chain(declared.enum_type.iter().map(|nested| nested.name())).collect();
        let mut oneofs = Vec::new();
        for ((before, oneof), index) in declared.oneof_decl.iter().enumerate().zip(0..) {
            let mut members = Vec::new();
            for field in &mut *fields {
                if let Shape::Member(of, _) = &mut field.shape
                    && *of == before
                {
                    *of = oneofs.len();
                    members.push(field.name.clone());
                }
            }
            if !members.is_empty() {
                let siblings = siblings.iter().map(|&name| name.to_owned()).collect();
                let mark = self.mark(&joined(path, &[ONEOFS_OF_MESSAGE, index]));
                oneofs.push(Oneof { name: oneof.name().to_owned(), members, siblings, mark });
            }
        }
        oneofs
    }

    fn shape(&self, field: &FieldDescriptorProto, path: &[i32]) -> Result<Shape, Diagnostic> {
        let of = self.type_of(field, path)?;
        Ok(match (field.label(), field.oneof_index) {
            (Label::Repeated, _) => Shape::List(of),
            (Label::Required, _) => Shape::Always(of),
            (Label::Optional, Some(oneof)) if !field.proto3_optional() => Shape::Member(index(oneof), of),
            (Label::Optional, _) => match of {
                Type::Message(_) => Shape::Optional(of),
                _ if self.has_presence || field.proto3_optional() => Shape::Optional(of),
                _ => Shape::Always(of),
            },
        })
    }

    fn map(&self, entry: &DescriptorProto, path: &[i32]) -> Result<Shape, Diagnostic> {
        let [key, value] = &entry.field[..] else {
            return Err(Diagnostic::new(
                format!("map entry '{}' is not a key and a value", entry.name()),
                self.mark(path),
            ));
        };
        Ok(Shape::Map(self.type_of(key, path)?, self.type_of(value, path)?))
    }

    fn type_of(&self, field: &FieldDescriptorProto, path: &[i32]) -> Result<Type, Diagnostic> {
        Ok(match field.r#type() {
            FieldType::Bool => Type::Bool,
            FieldType::Int32 | FieldType::Sint32 | FieldType::Sfixed32 => Type::I32,
            FieldType::Int64 | FieldType::Sint64 | FieldType::Sfixed64 => Type::I64,
            FieldType::Uint32 | FieldType::Fixed32 => Type::U32,
            FieldType::Uint64 | FieldType::Fixed64 => Type::U64,
            FieldType::Float => Type::F32,
            FieldType::Double => Type::F64,
            FieldType::String => Type::String,
            FieldType::Bytes => Type::Bytes,
            FieldType::Enum => Type::Enum(field.type_name().to_owned()),
            FieldType::Message => Type::Message(field.type_name().to_owned()),
            FieldType::Group => {
                let message = format!("field '{}' is a group, which has no place on the wire", field.name());
                return Err(
                    Diagnostic::new(message, self.mark(path)).help("declare a message and a field of its type instead")
                );
            }
        })
    }

    fn enumeration(&self, declared: &EnumDescriptorProto, parent: &str, path: &[i32]) -> Enum {
        Enum {
            full_name: format!("{parent}.{}", declared.name()),
            numbers: declared.value.iter().map(|value| value.number()).collect(),
            values: (0..)
                .zip(&declared.value)
                .map(|(index, value)| (value.name().to_owned(), self.mark(&joined(path, &[VALUES_OF_ENUM, index]))))
                .collect(),
            mark: self.mark(path),
        }
    }

    fn service(
        &self,
        declared: &ServiceDescriptorProto,
        path: &[i32],
        operations: &mut impl Iterator<Item = u16>,
    ) -> Result<Service, Diagnostic> {
        let methods = (0..).zip(&declared.method).map(|(index, method)| {
            let path = joined(path, &[METHODS_OF_SERVICE, index]);
            let operation = operations.next().ok_or_else(|| self.too_many_methods(&path))?;
            Ok(self.method(method, operation, &path))
        });
        Ok(Service {
            name: declared.name().to_owned(),
            full_name: format!("{}.{}", self.prefix, declared.name()),
            docs: self.docs(path),
            is_deprecated: declared.options.as_ref().is_some_and(|options| options.deprecated()),
            methods: methods.collect::<Result<_, _>>()?,
            mark: self.mark(path),
        })
    }

    fn method(&self, declared: &MethodDescriptorProto, operation: u16, path: &[i32]) -> Method {
        Method {
            name: declared.name().to_owned(),
            operation,
            input: declared.input_type().to_owned(),
            output: declared.output_type().to_owned(),
            kind: match (declared.client_streaming(), declared.server_streaming()) {
                (false, false) => MethodKind::Unary,
                (false, true) => MethodKind::ServerStreaming,
                (true, false) => MethodKind::ClientStreaming,
                (true, true) => MethodKind::Bidirectional,
            },
            docs: self.docs(path),
            is_deprecated: declared.options.as_ref().is_some_and(|options| options.deprecated()),
            mark: self.mark(path),
        }
    }

    fn too_many_methods(&self, path: &[i32]) -> Diagnostic {
        let methods: usize = self.file.service.iter().map(|service| service.method.len()).sum();
        let first = self.first_operation;
        let methods_max = usize::from(u16::MAX - first) + 1;
        let message = format!("this file cannot have {methods} methods, but {methods_max} at most");
        let note =
            format!("on the wire a method is a 16-bit number, counted from {first} over all services of its file");
        let help = match first {
            FIRST_OPERATION => "move some of the services to another file",
            _ => "give the file a lower first operation",
        };
        Diagnostic::new(message, self.mark(path)).note(note).help(help)
    }

    fn docs(&self, path: &[i32]) -> Vec<String> {
        let (leading, trailing) = self.locations.comments(path);
        comments::rustdoc(leading, trailing)
    }

    fn mark(&self, path: &[i32]) -> Mark {
        self.locations.mark(path)
    }
}

/// Whether this is a field of a type that is nested in the message.
fn is_type(field: &FieldDescriptorProto, message: &str, nested: &DescriptorProto) -> bool {
    field.type_name().strip_prefix(message).and_then(|rest| rest.strip_prefix('.')) == Some(nested.name())
}

fn index(number: i32) -> usize {
    usize::try_from(number).expect("indices of a descriptor were checked when it was read")
}

pub(crate) fn joined(path: &[i32], rest: &[i32]) -> Vec<i32> {
    [path, rest].concat()
}

/// Those below belong to frisbee.
pub(crate) const FIRST_OPERATION: u16 = 10;

// Field numbers of descriptor.proto, of which the paths of locations are made.
pub(crate) const PACKAGE_OF_FILE: i32 = 2;
pub(crate) const MESSAGES_OF_FILE: i32 = 4;
pub(crate) const ENUMS_OF_FILE: i32 = 5;
pub(crate) const SERVICES_OF_FILE: i32 = 6;
pub(crate) const FIELDS_OF_MESSAGE: i32 = 2;
pub(crate) const MESSAGES_OF_MESSAGE: i32 = 3;
pub(crate) const ENUMS_OF_MESSAGE: i32 = 4;
pub(crate) const ONEOFS_OF_MESSAGE: i32 = 8;
pub(crate) const VALUES_OF_ENUM: i32 = 2;
pub(crate) const METHODS_OF_SERVICE: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_three_groups_each_in_the_order_of_declaration() {
        let schema = vectors();
        let names = |message: &str| {
            let fields = &find(&schema, message).fields;
            fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>()
        };
        let scalars = ["first_scalar", "second_scalar", "third_scalar", "fourth_scalar", "fifth_scalar"];
        let lists = ["first_list", "second_list", "third_list"];
        let others = ["first_message", "first_map", "second_message", "second_map"];
        assert_eq!(names("Ordering"), [&scalars[..], &lists[..], &others[..]].concat());
        assert_eq!(names("Choice"), ["before", "number", "text", "blob", "color", "after", "leaf"]);
        assert_eq!(names("Empty"), [""; 0]);
    }

    #[test]
    fn the_members_of_a_oneof_stay_in_the_order_of_declaration() {
        let schema = vectors();
        let [oneof] = &find(&schema, "Choice").oneofs[..] else { panic!("there is one oneof") };
        assert_eq!(
            (oneof.name.as_str(), &oneof.members[..]),
            ("value", &["number", "text", "leaf", "blob", "color"].map(str::to_owned)[..])
        );
    }

    #[test]
    fn fields_have_the_kinds_of_the_wire() {
        let schema = vectors();
        let shapes = |message: &str| {
            let fields = &find(&schema, message).fields;
            fields.iter().map(|field| field.shape.clone()).collect::<Vec<_>>()
        };
        use Type::{Bool, Bytes, F32, F64, I32, I64, String, U32, U64};
        let scalars = [F64, F32, I32, I64, U32, U64, I32, I64, U32, U64, I32, I64, Bool, String];
        let singular = scalars.iter().cloned().chain([Bytes]).map(Shape::Always);
        assert_eq!(shapes("Scalars"), singular.collect::<Vec<_>>());
        let leaf = Type::Message(".vectors.Leaf".to_owned());
        let repeated = scalars.iter().cloned().chain([leaf]).map(Shape::List);
        assert_eq!(shapes("Repeated"), repeated.collect::<Vec<_>>());
        let keys = [I32, I64, U32, U64, I32, I64, U32, U64, I32, I64, Bool, String];
        assert_eq!(shapes("MapKeys"), keys.map(|key| Shape::Map(key, String)));
    }

    #[test]
    fn enums_are_numbered_by_their_position_aliases_included() {
        let schema = vectors();
        let numbers = |name: &str| {
            let enums = &schema.packages[0].enums;
            &enums.iter().find(|declared| declared.full_name == format!(".vectors.{name}")).unwrap().numbers[..]
        };
        assert_eq!(numbers("Color"), [0, 1, 2, 3]);
        assert_eq!(numbers("Sparse"), [0, 100, 10, -1, i32::MAX]);
        assert_eq!(numbers("Aliased"), [0, 1, 1, 2]);
        assert_eq!(numbers("Enums.Level"), [0, 7]);
    }

    #[test]
    fn operations_count_all_methods_of_all_services_of_a_file() {
        let schema = vectors();
        let methods = schema.packages[0].services.iter().flat_map(|service| {
            service
                .methods
                .iter()
                .map(|method| (service.name.as_str(), method.name.as_str(), method.operation, method.kind))
        });
        use MethodKind::{Bidirectional, ClientStreaming, ServerStreaming, Unary};
        let expected = [
            ("Alpha", "Echo", 10, Unary),
            ("Alpha", "Fail", 11, Unary),
            ("Alpha", "Count", 12, ServerStreaming),
            ("Alpha", "Sum", 13, ClientStreaming),
            ("Alpha", "Chat", 14, Bidirectional),
            ("Beta", "Nothing", 15, Unary),
            ("Beta", "Mirror", 16, Unary),
            ("Beta", "Watch", 17, ServerStreaming),
            ("Beta", "Hangup", 18, Unary),
        ];
        assert_eq!(methods.collect::<Vec<_>>(), expected);
    }

    fn vectors() -> Schema {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
        Schema::new(&protox::compile(["vectors.proto"], [dir]).unwrap(), &BTreeMap::new()).unwrap()
    }

    fn find<'a>(schema: &'a Schema, name: &str) -> &'a Message {
        let mut messages = schema.packages.iter().flat_map(|package| &package.messages);
        messages.find(|message| message.full_name == format!(".vectors.{name}")).unwrap()
    }
}
