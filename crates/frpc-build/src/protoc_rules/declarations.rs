//! Checks of extension declarations: options of an extension range with the allowed extensions. The types of prost lack
//! them.

use std::collections::{HashMap, HashSet};

use frpc_schema::{
    Diagnostic,
    location::{
        EXTENSION_RANGES_OF_MESSAGE, EXTENSIONS_OF_FILE, EXTENSIONS_OF_MESSAGE, Locations, MESSAGES_OF_FILE,
        MESSAGES_OF_MESSAGE, joined as at,
    },
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use protox::prost::{self, Message as _};

use super::names::joined;

/// The parts of descriptor.proto needed to reach extension declarations.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct DeclarationFiles {
    #[prost(message, repeated, tag = "1")]
    file: Vec<DeclarationFile>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct DeclarationFile {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<ExtendedMessage>,
}

/// A message with its extension ranges.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct ExtendedMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    nested_type: Vec<ExtendedMessage>,
    #[prost(message, repeated, tag = "5")]
    extension_range: Vec<DeclaredRange>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct DeclaredRange {
    #[prost(int32, tag = "1")]
    start: i32,
    /// Exclusive.
    #[prost(int32, tag = "2")]
    end: i32,
    #[prost(message, optional, tag = "3")]
    options: Option<RangeOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct RangeOptions {
    #[prost(message, repeated, tag = "2")]
    declaration: Vec<ExtensionDeclaration>,
    #[prost(int32, optional, tag = "3")]
    verification: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "protox::prost")]
struct ExtensionDeclaration {
    #[prost(int32, tag = "1")]
    number: i32,
    #[prost(string, optional, tag = "2")]
    full_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    r#type: Option<String>,
    #[prost(bool, tag = "5")]
    reserved: bool,
    #[prost(bool, tag = "6")]
    repeated: bool,
}

/// Returns the errors in the declarations of all files, and all extensions that violate their declarations.
pub(super) fn find(compiled: &FileDescriptorSet, encoded: &[u8]) -> Vec<Diagnostic> {
    // protox encoded the bytes, so decoding cannot fail.
    let Ok(files) = DeclarationFiles::decode(encoded) else { return Vec::new() };
    let mut messages = HashMap::new();
    let mut found = Vec::new();
    for (file, source) in files.file.iter().zip(&compiled.file) {
        let locations = Locations::new(source);
        for (index, message) in (0..).zip(&file.message_type) {
            check_message(message, &file.package, &[MESSAGES_OF_FILE, index], &locations, &mut messages, &mut found);
        }
    }
    if messages.is_empty() {
        return found;
    }
    for file in &compiled.file {
        check_extensions(file, &messages, &mut found);
    }
    found
}

/// Checks the declarations of a message. Collects ranges with declarations in `messages`.
fn check_message<'a>(
    message: &'a ExtendedMessage,
    scope: &str,
    path: &[i32],
    locations: &Locations<'_>,
    messages: &mut HashMap<String, Vec<&'a DeclaredRange>>,
    found: &mut Vec<Diagnostic>,
) {
    let full_name = joined(scope, &message.name);
    for (index, nested) in (0..).zip(&message.nested_type) {
        check_message(nested, &full_name, &at(path, &[MESSAGES_OF_MESSAGE, index]), locations, messages, found);
    }
    let mut names = HashSet::new();
    for (index, range) in (0..).zip(&message.extension_range) {
        let place = || locations.place(&at(path, &[EXTENSION_RANGES_OF_MESSAGE, index]));
        let mistakes = range.mistakes(&mut names);
        found.extend(mistakes.into_iter().map(|message| Diagnostic::new(message).at(place())));
        if range.is_declared() {
            messages.entry(format!(".{full_name}")).or_default().push(range);
        }
    }
}

impl DeclaredRange {
    fn declarations(&self) -> &[ExtensionDeclaration] {
        self.options.as_ref().map_or(&[], |options| &options.declaration)
    }

    /// Returns `true` if all extensions of the range must be declared.
    fn is_declared(&self) -> bool {
        let verification = self.options.as_ref().and_then(|options| options.verification);
        !self.declarations().is_empty() || verification == Some(DECLARATION)
    }

    /// Returns the errors in the declarations of the range. `names` holds the names declared so far in the same
    /// message.
    fn mistakes<'a>(&'a self, names: &mut HashSet<&'a str>) -> Vec<String> {
        let mut found = Vec::new();
        let verification = self.options.as_ref().and_then(|options| options.verification);
        if verification == Some(UNVERIFIED) && !self.declarations().is_empty() {
            found.push("an UNVERIFIED range cannot declare extensions".to_owned());
            return found;
        }
        let mut numbers = HashSet::new();
        for declaration in self.declarations() {
            let number = declaration.number;
            if !(self.start..self.end).contains(&number) {
                found.push(format!("the declared extension {number} is not in the range"));
            }
            if !numbers.insert(number) {
                found.push(format!("the extension {number} is declared twice"));
            }
            match (&declaration.full_name, &declaration.r#type) {
                (Some(name), Some(of)) => {
                    if !names.insert(name) {
                        found.push(format!("the extension '{}' is declared twice", name.escape_debug()));
                    }
                    if !is_full_name(name) {
                        found.push(format!("'{}' is not a full name with a leading dot", name.escape_debug()));
                    }
                    if !is_full_name(of) && SCALARS.iter().all(|(_, scalar)| scalar != of) {
                        let of = of.escape_debug();
                        found.push(format!("'{of}' is neither a full name with a leading dot nor a scalar type"));
                    }
                }
                (None, None) if declaration.reserved => {}
                _ => found.push(format!("the declared extension {number} has no full_name or no type")),
            }
        }
        found
    }

    /// Returns an error if an extension differs from its declaration.
    fn misfit(&self, extension: &FieldDescriptorProto, full_name: &str) -> Option<String> {
        let number = extension.number();
        let declared = self.declarations().iter().find(|declaration| declaration.number == number);
        let Some(declared) = declared else { return Some(format!("the extension {number} is not declared")) };
        if declared.reserved {
            return Some(format!("the extension {number} is reserved by its declaration"));
        }
        let full_name = format!(".{full_name}");
        let own_type = SCALARS.iter().find(|(of, _)| *of == extension.r#type());
        let own_type = own_type.map_or(extension.type_name(), |(_, scalar)| scalar);
        let is_repeated = extension.label() == Label::Repeated;
        let (name, of) = (declared.full_name.as_deref()?, declared.r#type.as_deref()?);
        if name != full_name {
            return Some(format!("the extension {number} is declared as {}, not {full_name}", name.escape_debug()));
        }
        if of != own_type {
            return Some(format!("the extension {number} is declared as {}, not {own_type}", of.escape_debug()));
        }
        match (declared.repeated, is_repeated) {
            (true, false) => Some(format!("the extension {number} is declared as repeated")),
            (false, true) => Some(format!("the extension {number} is not declared as repeated")),
            _ => None,
        }
    }
}

/// Checks the extensions of a file against their declarations.
fn check_extensions(
    file: &FileDescriptorProto,
    messages: &HashMap<String, Vec<&DeclaredRange>>,
    found: &mut Vec<Diagnostic>,
) {
    let locations = Locations::new(file);
    let mut check = |extensions: &[FieldDescriptorProto], scope: &str, path: &[i32]| {
        for (index, extension) in (0..).zip(extensions) {
            let ranges = messages.get(extension.extendee()).into_iter().flatten();
            let mut ranges = ranges.filter(|range| (range.start..range.end).contains(&extension.number()));
            let misfit = ranges.next().and_then(|range| range.misfit(extension, &joined(scope, extension.name())));
            found.extend(misfit.map(|text| Diagnostic::new(text).at(locations.place(&at(path, &[index])))));
        }
    };
    check(&file.extension, file.package(), &[EXTENSIONS_OF_FILE]);
    let messages = (0..).zip(&file.message_type);
    let mut next: Vec<(String, Vec<i32>, &DescriptorProto)> =
        messages.map(|(index, message)| (file.package().to_owned(), vec![MESSAGES_OF_FILE, index], message)).collect();
    while let Some((scope, path, message)) = next.pop() {
        let full_name = joined(&scope, message.name());
        check(&message.extension, &full_name, &at(&path, &[EXTENSIONS_OF_MESSAGE]));
        let nested = (0..).zip(&message.nested_type);
        next.extend(
            nested.map(|(index, nested)| (full_name.clone(), at(&path, &[MESSAGES_OF_MESSAGE, index]), nested)),
        );
    }
}

/// Returns `true` if a text is a full name with a leading dot.
fn is_full_name(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|name| {
        name.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()))
    })
}

/// Values of the enum `VerificationState`.
const DECLARATION: i32 = 0;
const UNVERIFIED: i32 = 1;

/// Types written without a leading dot in declarations.
const SCALARS: [(Type, &str); 15] = [
    (Type::Double, "double"),
    (Type::Float, "float"),
    (Type::Int64, "int64"),
    (Type::Uint64, "uint64"),
    (Type::Int32, "int32"),
    (Type::Fixed64, "fixed64"),
    (Type::Fixed32, "fixed32"),
    (Type::Bool, "bool"),
    (Type::String, "string"),
    (Type::Bytes, "bytes"),
    (Type::Uint32, "uint32"),
    (Type::Sfixed32, "sfixed32"),
    (Type::Sfixed64, "sfixed64"),
    (Type::Sint32, "sint32"),
    (Type::Sint64, "sint64"),
];
