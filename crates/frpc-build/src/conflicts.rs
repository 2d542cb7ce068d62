//! Declarations without a valid Rust name, or with the same Rust name as another.

use std::collections::{HashMap, HashSet};

use frpc_schema::{
    Diagnostic, EnumSchema, FieldShape, MessageSchema, Schema, ServiceSchema, ValueType, location::SourceLocation,
};

use crate::{
    emit::EmitSettings,
    naming::{self, TypePaths},
};

/// Reports declarations without a valid Rust name, and packages without a valid file name.
pub(crate) fn unnamed(schema: &Schema) -> Vec<Diagnostic> {
    let mut unnamed = Vec::new();
    let mut name = |kind: &str, name: &str, place: &SourceLocation| {
        if name.chars().all(|char| char == '_') {
            let message = format!("{kind} '{name}' has no name in Rust");
            let help = "rename it: a name in Rust needs at least one letter or digit";
            unnamed.push(Diagnostic::new(message).at(place.clone()).help(help));
        }
    };
    for package in &schema.packages {
        let parts = package.name.split('.').filter(|_| !package.name.is_empty());
        parts.for_each(|part| name("part of a package", part, &package.place));
        for message in &package.messages {
            name("message", own(&message.full_name), &message.place);
            message.fields.iter().for_each(|field| name("field", &field.name, &field.place));
            message.oneofs.iter().for_each(|oneof| name("oneof", &oneof.name, &oneof.place));
        }
        for declared in &package.enums {
            name("enum", own(&declared.full_name), &declared.place);
            declared.values.iter().for_each(|value| name("value of an enum", &value.name, &value.place));
        }
        for service in &package.services {
            name("service", &service.name, &service.place);
            service.methods.iter().for_each(|method| name("method", &method.name, &method.place));
        }
    }
    for package in &schema.packages {
        let (len, file_len) = (package.name.len(), naming::file(&package.name).len());
        if file_len > FILE_NAME_LEN_MAX {
            let len_max = FILE_NAME_LEN_MAX - (file_len - len);
            let message = format!(
                "the name of this package is {len} characters long, at most {len_max} fit into the name of its file"
            );
            unnamed.push(Diagnostic::new(message).at(package.place.clone()));
        }
    }
    unnamed
}

/// Reports pairs of declarations that would become the same type, module or function.
///
/// With `keeps_prefix`, enum variants keep the name of the enum as a prefix.
pub(crate) fn find(schema: &Schema, emitter: &EmitSettings, keeps_prefix: bool) -> Vec<Diagnostic> {
    let mut taken = UsedPaths::default();
    for package in &schema.packages {
        let messages = package.messages.iter().map(|message| (&message.full_name, &message.place));
        let enums = package.enums.iter().map(|declared| (&declared.full_name, &declared.place));
        let is_here = |(name, _): &(&String, _)| emitter.names.external(name).is_none();
        for (name, place) in messages.chain(enums).filter(is_here) {
            taken.add_modules(parent(name), place);
            taken.add(&emitter.names.path(name, "", 0), name, place);
        }
        for message in package.messages.iter().filter(|message| is_here(&(&message.full_name, &message.place))) {
            taken.add_fields(message);
            taken.add_oneofs(message, emitter);
        }
        for declared in package.enums.iter().filter(|declared| is_here(&(&declared.full_name, &declared.place))) {
            taken.add_values(declared, keeps_prefix);
        }
        for service in package.services.iter().filter(|service| is_here(&(&service.full_name, &service.place))) {
            taken.add_service(service, emitter);
        }
    }
    taken.conflicts.extend(unsupported(schema, &emitter.names));
    taken.conflicts
}

/// Reports uses of prost types that cannot be sent, and maps of enums without a zero.
fn unsupported(schema: &Schema, names: &TypePaths) -> Vec<Diagnostic> {
    let messages = || schema.packages.iter().flat_map(|package| &package.messages);
    let messages = || messages().filter(|message| names.external(&message.full_name).is_none());
    let fields = messages().flat_map(|message| &message.fields).filter_map(|field| match field.shape.element() {
        ValueType::Enum(name) | ValueType::Message(name) => Some((name, &field.place)),
        _ => None,
    });
    let services = schema.packages.iter().flat_map(|package| &package.services);
    let services = services.filter(|service| names.external(&service.full_name).is_none());
    let methods = services.flat_map(|service| &service.methods);
    let methods = methods.flat_map(|method| [(&method.input, &method.place), (&method.output, &method.place)]);
    let mut found: Vec<_> = fields
        .chain(methods)
        .filter(|(name, _)| names.lacks_codec(name))
        .map(|(name, place)| {
            let message = format!("frpc cannot send the {name} of prost-types");
            Diagnostic::new(message)
                .at(place.clone())
                .help("generate it like all other types, with `compile_well_known_types(true)`")
        })
        .collect();

    let enums = schema.packages.iter().flat_map(|package| &package.enums);
    let enums: HashMap<_, _> = enums.map(|declared| (&declared.full_name, &declared.values)).collect();
    for field in messages().flat_map(|message| &message.fields) {
        // An entry without a value has the value 0, so protoc refuses these maps too.
        if let FieldShape::Map(_, ValueType::Enum(of)) = &field.shape
            && enums.get(of).is_some_and(|values| values.first().is_some_and(|first| first.number != 0))
        {
            let message = format!("the values of map '{}' are of enum {of}, whose first value is not 0", field.name);
            found.push(Diagnostic::new(message).at(field.place.clone()).help("give the enum a first value of 0"));
        }
    }
    found
}

/// Rust paths, and the declarations that use them.
#[derive(Default)]
struct UsedPaths<'a> {
    owners: HashMap<String, (String, &'a SourceLocation)>,
    reported: HashSet<(String, String)>,
    conflicts: Vec<Diagnostic>,
}

impl<'a> UsedPaths<'a> {
    fn add(&mut self, path: &str, owner: &str, place: &'a SourceLocation) {
        let (first, first_place) = self.owners.entry(path.to_owned()).or_insert_with(|| (owner.to_owned(), place));
        if first == owner || !self.reported.insert((first.clone(), owner.to_owned())) {
            return;
        }
        let message = format!("{first} and {owner} are both {path} in Rust");
        let diagnostic =
            Diagnostic::new(message).at(place.clone()).labelled((*first_place).clone(), "the other is here");
        self.conflicts.push(diagnostic.help("rename one of them"));
    }

    /// Adds the modules that contain the declarations of this package or message.
    fn add_modules(&mut self, name: &str, place: &'a SourceLocation) {
        let ends = name.match_indices('.').map(|(dot, _)| dot).chain([name.len()]);
        for owner in ends.map(|end| &name[..end]).filter(|owner| !owner.is_empty()) {
            self.add(&naming::modules(owner).join("::"), owner, place);
        }
    }

    fn add_fields(&mut self, message: &'a MessageSchema) {
        let owner = |name: &str| format!("{}.{name}", message.full_name);
        let path = |name: &str| format!("{}::{}", message.full_name, naming::snake(name));
        for field in message.fields.iter().filter(|field| !matches!(field.shape, FieldShape::Member(..))) {
            self.add(&path(&field.name), &owner(&field.name), &field.place);
        }
        for oneof in &message.oneofs {
            self.add(&path(&oneof.name), &owner(&oneof.name), &oneof.place);
        }
    }

    /// Adds the types of oneofs, and their variants.
    fn add_oneofs(&mut self, message: &'a MessageSchema, emitter: &EmitSettings) {
        for (index, oneof) in message.oneofs.iter().enumerate() {
            self.add_modules(&message.full_name, &message.place);
            let owner = format!("{}.{}", message.full_name, oneof.name);
            let own = naming::oneof_type(&oneof.name, message.nested.iter().map(String::as_str));
            let modules = emitter.names.path(&format!("{}.x", message.full_name), "", 0);
            let path = format!("{}{own}", modules.strip_suffix('X').unwrap_or(&modules));
            self.add(&path, &owner, &oneof.place);
            for field in &message.fields {
                if matches!(field.shape, FieldShape::Member(of, _) if of == index) {
                    let variant = format!("{path}::{}", naming::upper_camel(&field.name));
                    self.add(&variant, &format!("{}.{}", message.full_name, field.name), &field.place);
                }
            }
        }
    }

    /// Adds the variants of an enum. Of several values with the same number, only the first becomes a variant.
    fn add_values(&mut self, declared: &'a EnumSchema, keeps_prefix: bool) {
        let mut numbers = HashSet::new();
        let own = own(&declared.full_name);
        for value in &declared.values {
            if numbers.insert(value.number) {
                let name = &value.name;
                let variant = if keeps_prefix { naming::upper_camel(name) } else { naming::variant(own, name) };
                let path = format!("{}::{variant}", declared.full_name);
                self.add(&path, &format!("{}.{name}", declared.full_name), &value.place);
            }
        }
    }

    fn add_service(&mut self, service: &'a ServiceSchema, emitter: &EmitSettings) {
        let package = parent(&service.full_name);
        self.add_modules(package, &service.place);
        let (server, client) = (emitter.has_server, emitter.has_client);
        let modules =
            [("server", server), ("client", client), ("methods", server || client), ("mock", emitter.has_mocks)];
        for (module, _) in modules.iter().filter(|(_, is_built)| *is_built) {
            let path = naming::modules(&format!("{package}.{}_{module}", service.name)).join("::");
            self.add(&path, &service.full_name, &service.place);
        }
        for method in &service.methods {
            let owner = format!("{}.{}", service.full_name, method.name);
            self.add(&format!("{}::{}", service.full_name, naming::method(&method.name)), &owner, &method.place);
        }
    }
}

/// Returns the last part of a full name.
fn own(full_name: &str) -> &str {
    full_name.rsplit('.').next().unwrap_or(full_name)
}

fn parent(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Maximum length of a file name in bytes. Most file systems allow 255; rustdoc needs five more for its page of the
/// file.
const FILE_NAME_LEN_MAX: usize = 250;
