//! Rules for the text of a single file.

use frpc_schema::{
    Diagnostic,
    location::{
        ENUMS_OF_FILE, ENUMS_OF_MESSAGE, EXTENSION_RANGES_OF_MESSAGE, EXTENSIONS_OF_FILE, EXTENSIONS_OF_MESSAGE,
        FIELDS_OF_MESSAGE, Locations, MESSAGES_OF_FILE, MESSAGES_OF_MESSAGE, METHODS_OF_SERVICE, ONEOFS_OF_MESSAGE,
        SERVICES_OF_FILE, VALUES_OF_ENUM, joined as at,
    },
};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, FieldDescriptorProto, FileDescriptorProto,
    ServiceDescriptorProto, UninterpretedOption,
};

use super::{
    enums,
    names::{SymbolTable, joined},
};

pub(super) struct SourceRules<'a> {
    file: &'a FileDescriptorProto,
    locations: Locations<'a>,
    symbols: &'a SymbolTable,
    found: Vec<Diagnostic>,
}

/// Returns the uninterpreted options of a declaration. A macro, because each kind of declaration has its own option
/// type.
macro_rules! options {
    ($declared:expr) => {
        $declared.options.as_ref().map_or(&[][..], |options| &options.uninterpreted_option)
    };
}

impl<'a> SourceRules<'a> {
    pub(super) fn new(file: &'a FileDescriptorProto, symbols: &'a SymbolTable) -> Self {
        Self { file, locations: Locations::new(file), symbols, found: Vec::new() }
    }

    /// Returns the errors in the file.
    pub(super) fn find(mut self) -> Vec<Diagnostic> {
        let file = self.file;
        self.options(options!(file), &[]);
        for (index, message) in (0..).zip(&file.message_type) {
            self.message(message, file.package(), &[MESSAGES_OF_FILE, index]);
        }
        for (index, declared) in (0..).zip(&file.enum_type) {
            self.enumeration(declared, &[ENUMS_OF_FILE, index]);
        }
        for (index, extension) in (0..).zip(&file.extension) {
            self.extension(extension, file.package(), &[EXTENSIONS_OF_FILE, index]);
        }
        for (index, service) in (0..).zip(&file.service) {
            self.service(service, &[SERVICES_OF_FILE, index]);
        }
        self.found
    }

    fn message(&mut self, declared: &DescriptorProto, scope: &str, path: &[i32]) {
        let full_name = joined(scope, declared.name());
        self.options(options!(declared), path);
        for (index, field) in (0..).zip(&declared.field) {
            self.options(options!(field), &at(path, &[FIELDS_OF_MESSAGE, index]));
        }
        for (index, oneof) in (0..).zip(&declared.oneof_decl) {
            self.options(options!(oneof), &at(path, &[ONEOFS_OF_MESSAGE, index]));
        }
        for (index, range) in (0..).zip(&declared.extension_range) {
            self.options(options!(range), &at(path, &[EXTENSION_RANGES_OF_MESSAGE, index]));
        }
        for (index, extension) in (0..).zip(&declared.extension) {
            self.extension(extension, &full_name, &at(path, &[EXTENSIONS_OF_MESSAGE, index]));
        }
        for (index, nested) in (0..).zip(&declared.enum_type) {
            self.enumeration(nested, &at(path, &[ENUMS_OF_MESSAGE, index]));
        }
        for (index, nested) in (0..).zip(&declared.nested_type) {
            self.message(nested, &full_name, &at(path, &[MESSAGES_OF_MESSAGE, index]));
        }
    }

    fn enumeration(&mut self, declared: &EnumDescriptorProto, path: &[i32]) {
        self.options(options!(declared), path);
        for (index, value) in (0..).zip(&declared.value) {
            self.options(options!(value), &at(path, &[VALUES_OF_ENUM, index]));
        }
        if self.file.syntax() != "proto3" && declared.options.as_ref().is_some_and(may_clash) {
            return;
        }
        for (value, other) in enums::clashes(declared) {
            let [name, other_name] = [value, other].map(|index| declared.value[index].name());
            let message = format!(
                "values '{name}' and '{other_name}' have the same name, ignoring case and the name of the enum"
            );
            let place = |index: usize| {
                let index = i32::try_from(index).unwrap_or(i32::MAX);
                self.locations.place(&at(path, &[VALUES_OF_ENUM, index]))
            };
            let mistake = Diagnostic::new(message).at(place(value)).labelled(place(other), "the other is here");
            self.found.push(mistake.help("rename one of them"));
        }
    }

    fn extension(&mut self, declared: &FieldDescriptorProto, scope: &str, path: &[i32]) {
        self.options(options!(declared), path);
        self.is_message(declared.extendee(), scope, path);
        if declared.json_name.as_ref().is_some_and(|name| *name != lower_camel(declared.name())) {
            let message = "an extension cannot have a `json_name`: its full name is its name in JSON";
            self.refuse(message.to_owned(), path, "remove the option");
        }
    }

    fn service(&mut self, declared: &ServiceDescriptorProto, path: &[i32]) {
        self.options(options!(declared), path);
        let full_name = joined(self.file.package(), declared.name());
        for (index, method) in (0..).zip(&declared.method) {
            let path = at(path, &[METHODS_OF_SERVICE, index]);
            self.options(options!(method), &path);
            self.is_message(method.input_type(), &full_name, &path);
            if method.output_type() != method.input_type() {
                self.is_message(method.output_type(), &full_name, &path);
            }
        }
    }

    /// Reports an error if another declaration hides the message with this name. protoc searches from the innermost
    /// scope outwards and takes the first match of any kind. For a name with dots, it searches for the first part only,
    /// like protox.
    fn is_message(&mut self, name: &str, scope: &str, path: &[i32]) {
        if !name.contains('.')
            && let Some(other) = self.symbols.hidden_by(name, scope)
        {
            let message = format!("'{name}' refers to {other} here, and that is not a message");
            let help = "write the full name of the message with a leading dot";
            self.refuse(message, path, help);
        }
    }

    fn options(&mut self, options: &[UninterpretedOption], path: &[i32]) {
        let is_features = |option: &UninterpretedOption| {
            option.name.first().is_some_and(|part| !part.is_extension && part.name_part == "features")
        };
        if self.file.syntax() != "editions" && options.iter().any(is_features) {
            let message = "`features` are only allowed in files with an edition".to_owned();
            self.refuse(message, path, "remove the option");
        }
    }

    fn refuse(&mut self, message: String, path: &[i32], help: &str) {
        self.found.push(Diagnostic::new(message).at(self.locations.place(path)).help(help));
    }
}

/// Returns `true` if an enum has the option to allow conflicting JSON names.
fn may_clash(options: &EnumOptions) -> bool {
    options.uninterpreted_option.iter().any(|option| {
        matches!(&option.name[..], [name] if name.name_part == "deprecated_legacy_json_field_conflicts")
            && option.identifier_value() == "true"
    })
}

/// Returns the JSON name of a field.
fn lower_camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.filter(|word| !word.is_empty()).fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
}
