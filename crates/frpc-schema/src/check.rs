//! Rejects descriptors no proto file can produce. Compilers do not create them, but descriptors may come from any
//! source, and their names become source code and file paths.

use std::collections::{HashMap, HashSet};

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::{
    diagnostic::{Diagnostic, shown},
    location::{
        ENUMS_OF_FILE, ENUMS_OF_MESSAGE, FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE,
        METHODS_OF_SERVICE, ONEOFS_OF_MESSAGE, PACKAGE_OF_FILE, SERVICES_OF_FILE, VALUES_OF_ENUM, joined,
    },
    operations::SchemaOptions,
    rules::{self, DeclarationRules, NUMBER_MAX},
    syntax::{UNRESOLVED, is_resolved_edition},
};

/// Returns all mistakes in a set of files.
pub(crate) fn find(set: &FileDescriptorSet, options: &SchemaOptions) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut files = HashSet::new();
    for file in &set.file {
        if !files.insert(file.name()) {
            let message = format!("there are two files named '{}'", shown(file.name()));
            found.push(Diagnostic::new(message).at(Locations::new(file).place(&[])));
        }
    }
    let types = TypeIndex::of(set);
    let mut packages: HashMap<_, HashSet<_>> = HashMap::new();
    for file in &set.file {
        let names = packages.entry(file.package()).or_default();
        FileChecker { file, locations: Locations::new(file), types: &types, options, found: &mut found }.file(names);
    }
    found.extend(rules::extensions(set));
    found
}

/// Decodes the default value of a `bytes` field. Descriptors write it with the escapes of C. Returns `None` if an
/// escape is invalid.
pub fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes().peekable();
    let mut unescaped = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            unescaped.push(byte);
            continue;
        }
        unescaped.push(match bytes.next()? {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            sign @ (b'\\' | b'?' | b'\'' | b'"') => sign,
            b'x' | b'X' => {
                let mut digits = String::new();
                while digits.len() < 2
                    && let Some(digit) = bytes.next_if(u8::is_ascii_hexdigit)
                {
                    digits.push(char::from(digit));
                }
                u8::from_str_radix(&digits, 16).ok()?
            }
            first @ b'0'..=b'7' => {
                let mut number = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|digit| matches!(digit, b'0'..=b'7')) else { break };
                    number = number * 8 + u32::from(digit - b'0');
                }
                u8::try_from(number).ok()?
            }
            _ => return None,
        });
    }
    Some(unescaped)
}

/// Types of all files by full name.
struct TypeIndex<'a>(HashMap<String, DeclaredType<'a>>);

#[derive(Clone, Copy)]
enum DeclaredType<'a> {
    Message(&'a DescriptorProto),
    Enum(&'a EnumDescriptorProto),
    /// An enum declared in proto2.
    ClosedEnum(&'a EnumDescriptorProto),
}

impl<'a> TypeIndex<'a> {
    fn of(set: &'a FileDescriptorSet) -> Self {
        let mut types = Self(HashMap::new());
        for file in &set.file {
            let prefix = prefix(file);
            let of_enum =
                if matches!(file.syntax(), "" | "proto2") { DeclaredType::ClosedEnum } else { DeclaredType::Enum };
            types.add(&prefix, &file.message_type, &file.enum_type, of_enum, 0);
        }
        types
    }

    fn add(
        &mut self,
        parent: &str,
        messages: &'a [DescriptorProto],
        enums: &'a [EnumDescriptorProto],
        of_enum: fn(&'a EnumDescriptorProto) -> DeclaredType<'a>,
        depth: usize,
    ) {
        for declared in enums {
            self.0.insert(format!("{parent}.{}", declared.name()), of_enum(declared));
        }
        for declared in messages {
            let name = format!("{parent}.{}", declared.name());
            // `FileChecker::message` reports deeper nesting. Do not recurse into it here.
            if depth < DEPTH_MAX {
                self.add(&name, &declared.nested_type, &declared.enum_type, of_enum, depth + 1);
            }
            self.0.insert(name, DeclaredType::Message(declared));
        }
    }

    /// Returns the required fields by which a message contains itself, so that no value can be complete.
    fn required_cycle(&self, name: &str, options: &SchemaOptions) -> Option<Vec<&'a str>> {
        let mut seen = HashSet::new();
        let mut next = vec![(name, Vec::new())];
        while let Some((at, path)) = next.pop() {
            let Some(DeclaredType::Message(message)) = self.0.get(at) else { continue };
            let messages = message.field.iter().filter(|field| matches!(field.r#type(), Type::Message | Type::Group));
            for field in messages.filter(|field| options.is_required(at, field, true)) {
                let path = [&path[..], &[field.name()]].concat();
                if field.type_name() == name {
                    return Some(path);
                }
                if seen.insert(field.type_name()) {
                    next.push((field.type_name(), path));
                }
            }
        }
        None
    }
}

struct FileChecker<'a, 'b> {
    file: &'a FileDescriptorProto,
    locations: Locations<'a>,
    types: &'b TypeIndex<'a>,
    options: &'b SchemaOptions,
    found: &'b mut Vec<Diagnostic>,
}

impl<'a> FileChecker<'a, '_> {
    /// Checks all declarations. `names` holds the names declared in other files of the package.
    fn file(&mut self, names: &mut HashSet<&'a str>) {
        let file = self.file;
        if file.syntax() == UNRESOLVED {
            let message = "the features of this file are not resolved: the types of prost have no editions".to_owned();
            let help = "decode the descriptors with `frpc_schema::decode_descriptors`, or generate code with \
                        `compile_descriptor_set`";
            self.found.push(Diagnostic::new(message).at(self.locations.place(&[])).help(help));
        } else if !matches!(file.syntax(), "" | "proto2" | "proto3") && !is_resolved_edition(file.syntax()) {
            self.refuse(format!("syntax '{}' is not known", shown(file.syntax())), &[]);
        }
        if !file.package().is_empty() {
            file.package().split('.').for_each(|part| self.name("part of a package", part, &[PACKAGE_OF_FILE]));
        }
        let prefix = prefix(file);
        for (index, message) in (0..).zip(&file.message_type) {
            self.message(message, &prefix, &[MESSAGES_OF_FILE, index], names, 1);
        }
        for (index, declared) in (0..).zip(&file.enum_type) {
            self.enumeration(declared, &prefix, &[ENUMS_OF_FILE, index], names);
        }
        for (index, service) in (0..).zip(&file.service) {
            self.service(service, &[SERVICES_OF_FILE, index], names);
        }
    }

    fn message(
        &mut self,
        declared: &'a DescriptorProto,
        parent: &str,
        path: &[i32],
        siblings: &mut HashSet<&'a str>,
        depth: usize,
    ) {
        if depth > DEPTH_MAX {
            return self.refuse(format!("messages can be nested at most {DEPTH_MAX} levels deep"), path);
        }
        self.own_name("message", declared.name(), path, siblings);
        let full_name = format!("{parent}.{}", declared.name());
        if is_entry(declared) {
            self.entry(declared, path, depth);
        }
        if let Some(cycle) = self.types.required_cycle(&full_name, self.options) {
            let name = shown(&full_name[1..]);
            let message = format!("message {name} requires itself, so no value of it can be complete");
            self.found.push(
                Diagnostic::new(message)
                    .at(self.locations.place(path))
                    .note(format_args!("{name}.{} is required", shown(&cycle.join("."))))
                    .help("make one of the required fields of this cycle optional"),
            );
        }

        let mistakes = DeclarationRules::new(self.file, &self.locations).message(declared, path);
        self.found.extend(mistakes);
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        for (index, field) in (0..).zip(&declared.field) {
            let path = joined(path, &[FIELDS_OF_MESSAGE, index]);
            self.own_name("field", field.name(), &path, &mut names);
            if !(1..=NUMBER_MAX).contains(&field.number()) {
                self.refuse(format!("{} is not a valid field number", field.number()), &path);
            } else if !numbers.insert(field.number()) {
                self.refuse(format!("field number {} is already used", field.number()), &path);
            }
            if let Err(message) = self.field(field, &full_name, declared) {
                self.refuse(message, &path);
            }
        }
        for (index, oneof) in (0..).zip(&declared.oneof_decl) {
            // Compilers generate the oneof of a proto3 `optional` field. It is not part of the schema, so its name
            // needs no check.
            let mut fields = declared.field.iter().filter(|field| field.oneof_index == Some(index));
            if !fields.all(|field| field.proto3_optional()) {
                self.own_name("oneof", oneof.name(), &joined(path, &[ONEOFS_OF_MESSAGE, index]), &mut names);
            }
        }
        let mut names = HashSet::new();
        for (index, nested) in (0..).zip(&declared.nested_type) {
            self.message(nested, &full_name, &joined(path, &[MESSAGES_OF_MESSAGE, index]), &mut names, depth + 1);
        }
        for (index, nested) in (0..).zip(&declared.enum_type) {
            self.enumeration(nested, &full_name, &joined(path, &[ENUMS_OF_MESSAGE, index]), &mut names);
        }
    }

    /// Checks that a map entry consists of a key and a value.
    fn entry(&mut self, declared: &DescriptorProto, path: &[i32], depth: usize) {
        let is_right = depth > 1 && is_entry_of_map(declared);
        if !is_right {
            self.refuse(
                format!(
                    "'{}' is marked as a map entry, but does not consist of a key and a value",
                    shown(declared.name())
                ),
                path,
            );
        }
    }

    fn field(&self, field: &FieldDescriptorProto, message: &str, parent: &DescriptorProto) -> Result<(), String> {
        let is_proto3 = self.file.syntax() == "proto3";
        let of = field.r#type.and_then(|of| Type::try_from(of).ok());
        let of = of.ok_or_else(|| format!("field '{}' has no type", shown(field.name())))?;
        let label = Label::try_from(field.label.unwrap_or(Label::Optional as i32));
        let label = label.map_err(|_| format!("field '{}' has no label", shown(field.name())))?;
        if is_proto3 && label == Label::Required {
            return Err("fields of proto3 cannot be required".to_owned());
        }
        let may_be_marked = is_proto3 || is_resolved_edition(self.file.syntax());
        if field.proto3_optional() && (label != Label::Optional || !may_be_marked) {
            return Err("only fields of proto3 that are not repeated can be `optional`".to_owned());
        }
        if let Some(oneof) = field.oneof_index {
            if usize::try_from(oneof).ok().and_then(|oneof| parent.oneof_decl.get(oneof)).is_none() {
                return Err(format!("oneof {oneof} is not declared"));
            }
            if label != Label::Optional {
                return Err("members of a oneof cannot be repeated or required".to_owned());
            }
        }
        match (of, self.types.0.get(field.type_name())) {
            (Type::Message, Some(DeclaredType::Message(entry))) if is_entry(entry) => {
                let is_own = field.type_name().strip_prefix(message).and_then(|rest| rest.strip_prefix('.'))
                    == Some(entry.name());
                if !is_own || label != Label::Repeated {
                    return Err(format!("{} is a map entry and cannot be used as a type", shown(field.type_name())));
                }
            }
            (Type::Enum, Some(DeclaredType::ClosedEnum(_))) if is_proto3 => {
                let of = shown(field.type_name());
                return Err(format!("messages of proto3 cannot hold {of}, which is an enum of proto2"));
            }
            (Type::Message, Some(DeclaredType::Message(_)))
            | (Type::Enum, Some(DeclaredType::Enum(_) | DeclaredType::ClosedEnum(_))) => {}
            (Type::Group, Some(DeclaredType::Message(message))) if !is_entry(message) => {}
            (Type::Message | Type::Group | Type::Enum, found) => {
                return Err(not_declared(field.type_name(), found.is_some()));
            }
            _ => {}
        }
        match &field.default_value {
            Some(_) if is_proto3 || label == Label::Repeated => {
                Err("only fields of proto2 that are not repeated can have a default".to_owned())
            }
            Some(default) if !self.is_default(default, of, field.type_name()) => {
                Err(format!("'{}' is not a valid default for this field", shown(default)))
            }
            _ => Ok(()),
        }
    }

    fn is_default(&self, default: &str, of: Type, type_name: &str) -> bool {
        match of {
            Type::Bool => matches!(default, "true" | "false"),
            Type::Int32 | Type::Sint32 | Type::Sfixed32 => default.parse::<i32>().is_ok(),
            Type::Int64 | Type::Sint64 | Type::Sfixed64 => default.parse::<i64>().is_ok(),
            Type::Uint32 | Type::Fixed32 => default.parse::<u32>().is_ok(),
            Type::Uint64 | Type::Fixed64 => default.parse::<u64>().is_ok(),
            Type::Float | Type::Double => default.parse::<f64>().is_ok(),
            Type::String => true,
            Type::Bytes => unescaped(default).is_some(),
            Type::Enum => match self.types.0.get(type_name) {
                Some(DeclaredType::Enum(declared) | DeclaredType::ClosedEnum(declared)) => {
                    declared.value.iter().any(|value| value.name() == default)
                }
                _ => false,
            },
            Type::Message | Type::Group => false,
        }
    }

    fn enumeration(
        &mut self,
        declared: &'a EnumDescriptorProto,
        parent: &str,
        path: &[i32],
        siblings: &mut HashSet<&'a str>,
    ) {
        self.own_name("enum", declared.name(), path, siblings);
        let full_name = format!("{parent}.{}", declared.name());
        match &declared.value[..] {
            [] => self.refuse(format!("enum {} has no values", shown(&full_name[1..])), path),
            [first, ..] if first.number() != 0 && self.file.syntax() == "proto3" => {
                self.refuse("the first value of an enum of proto3 must have the number 0".to_owned(), path);
            }
            _ => {}
        }
        let mistakes = DeclarationRules::new(self.file, &self.locations).enumeration(declared, path);
        self.found.extend(mistakes);
        let mut names = HashSet::new();
        for (index, value) in (0..).zip(&declared.value) {
            self.own_name("value of an enum", value.name(), &joined(path, &[VALUES_OF_ENUM, index]), &mut names);
        }
    }

    fn service(&mut self, declared: &'a ServiceDescriptorProto, path: &[i32], siblings: &mut HashSet<&'a str>) {
        self.own_name("service", declared.name(), path, siblings);
        let mut names = HashSet::new();
        for (index, method) in (0..).zip(&declared.method) {
            let path = joined(path, &[METHODS_OF_SERVICE, index]);
            self.own_name("method", method.name(), &path, &mut names);
            for of in [method.input_type(), method.output_type()] {
                match self.types.0.get(of) {
                    Some(DeclaredType::Message(message)) if !is_entry(message) => {}
                    found => self.refuse(not_declared(of, found.is_some()), &path),
                }
            }
        }
    }

    /// Checks that a name is valid and not used by a sibling.
    fn own_name(&mut self, what: &str, name: &'a str, path: &[i32], siblings: &mut HashSet<&'a str>) {
        self.name(what, name, path);
        if !siblings.insert(name) {
            self.refuse(format!("'{}' is declared twice", shown(name)), path);
        }
    }

    fn name(&mut self, what: &str, name: &str, path: &[i32]) {
        let is_first = |char: char| char.is_ascii_alphabetic() || char == '_';
        let is_next = |char: char| char.is_ascii_alphanumeric() || char == '_';
        if !name.starts_with(is_first) || !name.chars().all(is_next) {
            let message = format!("'{}' is not a valid name for this {what}", shown(name));
            let help = "names consist of letters, digits and underscores, and start with a letter or an underscore";
            self.found.push(Diagnostic::new(message).at(self.locations.place(path)).help(help));
        } else if name.len() > NAME_LEN_MAX {
            let len = name.len();
            self.refuse(
                format!("the name of this {what} is {len} characters long, at most {NAME_LEN_MAX} are allowed"),
                path,
            );
        }
    }

    fn refuse(&mut self, message: String, path: &[i32]) {
        self.found.push(Diagnostic::new(message).at(self.locations.place(path)));
    }
}

fn prefix(file: &FileDescriptorProto) -> String {
    if file.package().is_empty() { String::new() } else { format!(".{}", file.package()) }
}

/// Returns `true` if a message is a map entry.
pub(crate) fn is_entry(declared: &DescriptorProto) -> bool {
    declared.options.as_ref().is_some_and(|options| options.map_entry())
}

/// Returns `true` if a message consists of a key and a value, as a map entry has to.
pub fn is_entry_of_map(declared: &DescriptorProto) -> bool {
    let is_single = |field: &FieldDescriptorProto| field.label() == Label::Optional && field.oneof_index.is_none();
    declared.nested_type.is_empty()
        && declared.enum_type.is_empty()
        && matches!(&declared.field[..], [key, value]
            if (key.name(), key.number()) == ("key", 1) && (value.name(), value.number()) == ("value", 2)
                && is_single(key) && is_single(value) && is_key(key.r#type()) && value.r#type() != Type::Group)
}

fn is_key(of: Type) -> bool {
    !matches!(of, Type::Float | Type::Double | Type::Bytes | Type::Enum | Type::Message | Type::Group)
}

fn not_declared(name: &str, is_other: bool) -> String {
    match is_other {
        true => format!("'{}' is declared, but it is not of the kind required here", shown(name)),
        false => {
            format!("type '{}' is not declared in any of the files: the set has to include imported files", shown(name))
        }
    }
}

/// Maximum nesting of messages. protoc and protox allow less, and compilers handle generated code of this depth easily.
const DEPTH_MAX: usize = 64;
/// Maximum length of a name. Tools such as rustdoc add some characters to type names for file names, and file systems
/// allow 255 bytes.
const NAME_LEN_MAX: usize = 200;
