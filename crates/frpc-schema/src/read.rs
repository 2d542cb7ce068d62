//! Conversion of descriptors to a schema.

use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type as FieldType},
};

use crate::{
    check,
    diagnostic::{Diagnostic, Error},
    location::{
        ENUMS_OF_FILE, ENUMS_OF_MESSAGE, FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE,
        METHODS_OF_SERVICE, ONEOFS_OF_MESSAGE, PACKAGE_OF_FILE, SERVICES_OF_FILE, SourceLocation, VALUES_OF_ENUM,
        joined,
    },
    model::{
        EnumSchema, EnumValue, FieldSchema, FieldShape, MessageSchema, MethodKind, MethodSchema, OneofSchema,
        PackageSchema, Schema, ServiceSchema, ValueType,
    },
    operations::{FileOperations, SchemaOptions},
    order,
};

impl Schema {
    /// Reads the declarations of all files in a set. The set must contain all imports.
    ///
    /// Decode the set with [`decode_descriptors`](crate::decode_descriptors) if it may contain files of an edition.
    pub fn read(set: &FileDescriptorSet, options: &SchemaOptions) -> Result<Self, Error> {
        let mut mistakes = check::find(set, options);
        mistakes.extend(options.mistakes(set));
        if !mistakes.is_empty() {
            return Err(Error { diagnostics: mistakes });
        }
        let mut schema = Self::default();
        for file in &set.file {
            FileReader::new(file, options).read_into(&mut schema, FileOperations::new(file, options))?;
        }
        Ok(schema)
    }

    /// Returns the package with this name and adds it if it is new.
    fn package(&mut self, name: &str, place: SourceLocation) -> &mut PackageSchema {
        let index = self.packages.iter().position(|package| package.name == name).unwrap_or_else(|| {
            let (messages, enums, services) = Default::default();
            self.packages.push(PackageSchema { name: name.to_owned(), messages, enums, services, place });
            self.packages.len() - 1
        });
        &mut self.packages[index]
    }
}

/// Reads a validated file.
struct FileReader<'a> {
    file: &'a FileDescriptorProto,
    locations: Locations<'a>,
    has_presence: bool,
    options: &'a SchemaOptions,
}

impl<'a> FileReader<'a> {
    fn new(file: &'a FileDescriptorProto, options: &'a SchemaOptions) -> Self {
        Self { file, locations: Locations::new(file), has_presence: matches!(file.syntax(), "" | "proto2"), options }
    }

    fn read_into(&self, schema: &mut Schema, mut operations: FileOperations) -> Result<(), Diagnostic> {
        let name = self.file.package();
        let package = schema.package(name, self.place(&[PACKAGE_OF_FILE]));
        for (index, message) in (0..).zip(&self.file.message_type) {
            self.message(message, name, &[MESSAGES_OF_FILE, index], package)?;
        }
        for (index, declared) in (0..).zip(&self.file.enum_type) {
            package.enums.push(self.enumeration(declared, name, &[ENUMS_OF_FILE, index]));
        }
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
        package: &mut PackageSchema,
    ) -> Result<(), Diagnostic> {
        let full_name = within(parent, declared.name());
        let (entries, nested): (Vec<_>, Vec<_>) =
            (0..).zip(&declared.nested_type).partition(|(_, nested)| check::is_entry(nested));

        let mut fields = Vec::with_capacity(declared.field.len());
        for (index, field) in (0..).zip(&declared.field) {
            let path = joined(path, &[FIELDS_OF_MESSAGE, index]);
            // Validation ensures that a field with the type of a map entry refers to an entry in its own message.
            let entry = entries
                .iter()
                .map(|(_, entry)| *entry)
                .find(|entry| field.type_name().strip_prefix('.') == Some(within(&full_name, entry.name()).as_str()));
            let shape = match entry {
                Some(entry) => map(entry),
                None => self.shape(field),
            };
            fields.push(FieldSchema {
                name: field.name().to_owned(),
                json_name: field.json_name.clone().unwrap_or_else(|| camel_case(field.name())),
                number: field.number(),
                shape,
                is_required: self.options.is_required(&full_name, field, self.has_presence),
                is_fixed: is_fixed(field.r#type()),
                is_deprecated: field.options.as_ref().is_some_and(|options| options.deprecated()),
                place: self.place(&path),
            });
        }
        let oneofs = self.oneofs(declared, &mut fields, path);
        // Sort after `oneofs`, which lists members in the order of declaration.
        order::sort(&mut fields);

        let names = declared.nested_type.iter().map(|nested| nested.name());
        let names = names.chain(declared.enum_type.iter().map(|nested| nested.name())).map(str::to_owned).collect();
        let place = self.place(path);
        package.messages.push(MessageSchema { full_name: full_name.clone(), fields, oneofs, nested: names, place });
        for (index, nested) in nested {
            self.message(nested, &full_name, &joined(path, &[MESSAGES_OF_MESSAGE, index]), package)?;
        }
        for (index, nested) in (0..).zip(&declared.enum_type) {
            package.enums.push(self.enumeration(nested, &full_name, &joined(path, &[ENUMS_OF_MESSAGE, index])));
        }
        Ok(())
    }

    /// Returns the oneofs with members, without the generated ones of `optional` fields, and renumbers the members'
    /// oneofs to match.
    fn oneofs(&self, declared: &DescriptorProto, fields: &mut [FieldSchema], path: &[i32]) -> Vec<OneofSchema> {
        let mut oneofs = Vec::new();
        for ((before, oneof), index) in declared.oneof_decl.iter().enumerate().zip(0..) {
            let mut members = Vec::new();
            for field in &mut *fields {
                if let FieldShape::Member(of, _) = &mut field.shape
                    && *of == before
                {
                    *of = oneofs.len();
                    members.push(field.name.clone());
                }
            }
            if !members.is_empty() {
                let place = self.place(&joined(path, &[ONEOFS_OF_MESSAGE, index]));
                oneofs.push(OneofSchema { name: oneof.name().to_owned(), members, place });
            }
        }
        oneofs
    }

    fn shape(&self, field: &FieldDescriptorProto) -> FieldShape {
        let of = type_of(field);
        match (field.label(), field.oneof_index) {
            (Label::Repeated, _) => FieldShape::List(of),
            (Label::Required, _) => FieldShape::Always(of),
            (Label::Optional, Some(oneof)) if !field.proto3_optional() => FieldShape::Member(index(oneof), of),
            (Label::Optional, _) => match of {
                ValueType::Message(_) => FieldShape::Optional(of),
                _ if self.has_presence || field.proto3_optional() => FieldShape::Optional(of),
                _ => FieldShape::Always(of),
            },
        }
    }

    fn enumeration(&self, declared: &EnumDescriptorProto, parent: &str, path: &[i32]) -> EnumSchema {
        let value = |(index, value): (i32, &EnumValueDescriptorProto)| EnumValue {
            name: value.name().to_owned(),
            number: value.number(),
            place: self.place(&joined(path, &[VALUES_OF_ENUM, index])),
        };
        EnumSchema {
            full_name: within(parent, declared.name()),
            values: (0..).zip(&declared.value).map(value).collect(),
            place: self.place(path),
        }
    }

    fn service(
        &self,
        declared: &ServiceDescriptorProto,
        path: &[i32],
        operations: &mut FileOperations,
    ) -> Result<ServiceSchema, Diagnostic> {
        let full_name = within(self.file.package(), declared.name());
        let methods = (0..).zip(&declared.method).map(|(index, method)| {
            let path = joined(path, &[METHODS_OF_SERVICE, index]);
            let operation = operations.next(&self.place(&path))?;
            Ok(self.method(method, &full_name, operation, &path))
        });
        Ok(ServiceSchema {
            name: declared.name().to_owned(),
            methods: methods.collect::<Result<_, _>>()?,
            full_name,
            is_deprecated: declared.options.as_ref().is_some_and(|options| options.deprecated()),
            comment: self.locations.comment(path),
            place: self.place(path),
        })
    }

    fn method(&self, declared: &MethodDescriptorProto, service: &str, operation: u16, path: &[i32]) -> MethodSchema {
        let options = declared.options.as_ref();
        MethodSchema {
            name: declared.name().to_owned(),
            path: format!("{service}/{}", declared.name()),
            operation,
            kind: match (declared.client_streaming(), declared.server_streaming()) {
                (false, false) => MethodKind::Unary,
                (false, true) => MethodKind::ServerStreaming,
                (true, false) => MethodKind::ClientStreaming,
                (true, true) => MethodKind::Bidirectional,
            },
            input: undotted(declared.input_type()),
            output: undotted(declared.output_type()),
            idempotency: options.map(|options| options.idempotency_level()).unwrap_or_default(),
            is_deprecated: options.is_some_and(|options| options.deprecated()),
            comment: self.locations.comment(path),
            place: self.place(path),
        }
    }

    fn place(&self, path: &[i32]) -> SourceLocation {
        self.locations.place(path)
    }
}

fn map(entry: &DescriptorProto) -> FieldShape {
    let [key, value] = &entry.field[..] else { unreachable!("a checked map entry has a key and a value") };
    FieldShape::Map(type_of(key), type_of(value))
}

fn type_of(field: &FieldDescriptorProto) -> ValueType {
    match field.r#type() {
        FieldType::Enum => ValueType::Enum(undotted(field.type_name())),
        FieldType::Message | FieldType::Group => ValueType::Message(undotted(field.type_name())),
        scalar => ValueType::of_scalar(scalar).expect("all other types are scalars, strings or bytes"),
    }
}

/// Returns the full name of a declaration in a package or message. An empty parent adds nothing.
fn within(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// Returns a full name without the leading dot used in descriptors.
fn undotted(name: &str) -> String {
    name.strip_prefix('.').unwrap_or(name).to_owned()
}

/// Returns the default name of a field in JSON.
fn camel_case(name: &str) -> String {
    let mut is_first = false;
    let mut camel = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '_' => is_first = true,
            letter if std::mem::take(&mut is_first) => camel.push(letter.to_ascii_uppercase()),
            letter => camel.push(letter),
        }
    }
    camel
}

fn index(number: i32) -> usize {
    usize::try_from(number).expect("indices of a checked descriptor are not negative")
}

fn is_fixed(of: FieldType) -> bool {
    use FieldType::{Double, Fixed32, Fixed64, Float, Sfixed32, Sfixed64};
    matches!(of, Fixed32 | Fixed64 | Sfixed32 | Sfixed64 | Float | Double)
}

#[cfg(test)]
mod tests {
    use prost_types::{MethodOptions, method_options::IdempotencyLevel};

    use super::*;

    #[test]
    fn fields_form_three_groups_in_declaration_order() {
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
    fn oneof_members_stay_in_declaration_order() {
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
        use ValueType::{Bool, Bytes, F32, F64, I32, I64, String, U32, U64};
        let scalars = [F64, F32, I32, I64, U32, U64, I32, I64, U32, U64, I32, I64, Bool, String];
        let singular = scalars.iter().cloned().chain([Bytes]).map(FieldShape::Always);
        assert_eq!(shapes("Scalars"), singular.collect::<Vec<_>>());
        let leaf = ValueType::Message("vectors.Leaf".to_owned());
        let repeated = scalars.iter().cloned().chain([leaf]).map(FieldShape::List);
        assert_eq!(shapes("Repeated"), repeated.collect::<Vec<_>>());
        let keys = [I32, I64, U32, U64, I32, I64, U32, U64, I32, I64, Bool, String];
        assert_eq!(shapes("MapKeys"), keys.map(|key| FieldShape::Map(key, String)));
    }

    #[test]
    fn enum_values_are_numbered_by_position_with_aliases() {
        let schema = vectors();
        let numbers = |name: &str| {
            let enums = &schema.packages[0].enums;
            let declared = enums.iter().find(|declared| declared.full_name == format!("vectors.{name}")).unwrap();
            declared.values.iter().map(|value| value.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers("Color"), [0, 1, 2, 3]);
        assert_eq!(numbers("Sparse"), [0, 100, 10, -1, i32::MAX]);
        assert_eq!(numbers("Aliased"), [0, 1, 1, 2]);
        assert_eq!(numbers("Enums.Level"), [0, 7]);
    }

    #[test]
    fn operations_are_numbered_across_the_services_of_a_file() {
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

    #[test]
    fn a_method_has_a_path_and_options() {
        let mut set = compiled();
        let options = MethodOptions {
            idempotency_level: Some(IdempotencyLevel::NoSideEffects as i32),
            deprecated: Some(true),
            ..MethodOptions::default()
        };
        set.file[0].service[0].method[0].options = Some(options);
        let schema = Schema::read(&set, &SchemaOptions::default()).unwrap();
        let [echo, fail, ..] = &schema.packages[0].services[0].methods[..] else { panic!("there are more methods") };
        assert_eq!(echo.path, "vectors.Alpha/Echo");
        assert_eq!((echo.idempotency, echo.is_deprecated), (IdempotencyLevel::NoSideEffects, true));
        assert_eq!((fail.idempotency, fail.is_deprecated), (IdempotencyLevel::IdempotencyUnknown, false));
        assert!(schema.packages[0].messages.iter().any(|message| message.full_name == echo.input));
    }

    #[test]
    fn fields_keep_their_numbers() {
        let schema = vectors();
        let numbers: Vec<_> = find(&schema, "Choice").fields.iter().map(|field| (&*field.name, field.number)).collect();
        let declared = compiled().file[0].message_type.iter().find(|declared| declared.name() == "Choice").cloned();
        for field in declared.unwrap().field {
            assert!(numbers.contains(&(field.name(), field.number())), "{field:?}");
        }
    }

    #[test]
    fn operations_start_at_the_first_operation_of_their_file() {
        let mut options = SchemaOptions::default();
        options.first_operations.insert("vectors.proto".to_owned(), 200);
        let schema = Schema::read(&compiled(), &options).unwrap();
        let services = &schema.packages[0].services;
        assert_eq!((services[0].methods[0].operation, services[1].methods[0].operation), (200, 205));
    }

    #[test]
    fn errors_show_their_location() {
        let mut options = SchemaOptions::default();
        options.first_operations.insert("vectors.proto".to_owned(), 9);
        let mut set = compiled();
        let message = set.file[0].message_type.iter_mut().find(|message| !message.field.is_empty());
        message.unwrap().field[0].number = Some(0);
        set.file[0].service[0].method[0].name = Some("a b".to_owned());
        let text = Schema::read(&set, &options).unwrap_err().to_string();
        let expected = "\
0 is not a valid field number
--> vectors.proto:42:3

'a b' is not a valid name for this method
--> vectors.proto:207:3
 = help: names consist of letters, digits and underscores, and start with a letter or an underscore

first operation 9 for 'vectors.proto' is below 10: lower numbers belong to frisbee";
        assert_eq!(text, expected);
    }

    fn vectors() -> Schema {
        Schema::read(&compiled(), &SchemaOptions::default()).unwrap()
    }

    fn compiled() -> FileDescriptorSet {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
        protox::compile(["vectors.proto"], [dir]).unwrap()
    }

    fn find<'a>(schema: &'a Schema, name: &str) -> &'a MessageSchema {
        let mut messages = schema.packages.iter().flat_map(|package| &package.messages);
        messages.find(|message| message.full_name == format!("vectors.{name}")).unwrap()
    }
}
