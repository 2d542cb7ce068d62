//! Declarations that are two in the proto files and one in Rust.

use std::collections::{HashMap, HashSet};

use crate::{
    accessors,
    diagnostics::{Diagnostic, Mark},
    emit::Emitter,
    naming::{self, Names},
    schema::{Enum, Message, Schema, Service, Shape, Type},
};

/// All pairs of declarations that would become the same type, module or function.
///
/// `keeps_prefix` says that the values of enums keep the enum's name in front of theirs.
pub(crate) fn find(schema: &Schema, emitter: &Emitter, keeps_prefix: bool) -> Vec<Diagnostic> {
    let mut taken = Taken::default();
    for package in &schema.packages {
        let messages = package.messages.iter().map(|message| (&message.full_name, &message.mark));
        let enums = package.enums.iter().map(|declared| (&declared.full_name, &declared.mark));
        let is_here = |(name, _): &(&String, _)| emitter.names.external(name).is_none();
        for (name, mark) in messages.chain(enums).filter(is_here) {
            taken.add_modules(parent(name), mark);
            taken.add(&emitter.names.path(name, "", 0), name, mark);
        }
        for message in package.messages.iter().filter(|message| is_here(&(&message.full_name, &message.mark))) {
            taken.add_fields(message);
            taken.add_oneofs(message, emitter);
        }
        for declared in package.enums.iter().filter(|declared| is_here(&(&declared.full_name, &declared.mark))) {
            taken.add_values(declared, keeps_prefix);
        }
        for service in package.services.iter().filter(|service| is_here(&(&service.full_name, &service.mark))) {
            taken.add_service(service, emitter);
        }
    }
    taken.conflicts.extend(unsupported(schema, &emitter.names));
    taken.conflicts
}

/// The uses of types that come with prost and cannot be sent, and of maps that prost's macro cannot do justice to.
fn unsupported(schema: &Schema, names: &Names) -> Vec<Diagnostic> {
    let messages = || schema.packages.iter().flat_map(|package| &package.messages);
    let messages = || messages().filter(|message| names.external(&message.full_name).is_none());
    let fields = messages().flat_map(|message| &message.fields).filter_map(|field| match &field.shape {
        Shape::Always(of) | Shape::Optional(of) | Shape::Member(_, of) | Shape::List(of) | Shape::Map(_, of) => {
            match of {
                Type::Enum(name) | Type::Message(name) => Some((name, &field.mark)),
                _ => None,
            }
        }
    });
    let services = schema.packages.iter().flat_map(|package| &package.services);
    let services = services.filter(|service| names.external(&service.full_name).is_none());
    let methods = services.flat_map(|service| &service.methods);
    let methods = methods.flat_map(|method| [(&method.input, &method.mark), (&method.output, &method.mark)]);
    let mut found: Vec<_> = fields
        .chain(methods)
        .filter(|(name, _)| names.lacks_codec(name))
        .map(|(name, mark)| {
            let message = format!("frpc cannot send the {} that comes with prost", shown(name));
            Diagnostic::new(message, mark.clone())
                .help("generate it like all other types, with `compile_well_known_types(true)`")
        })
        .collect();

    let enums = schema.packages.iter().flat_map(|package| &package.enums);
    let enums: HashMap<_, _> = enums.map(|declared| (&declared.full_name, &declared.numbers)).collect();
    for field in messages().flat_map(accessors::taken) {
        if let Shape::Map(_, Type::Enum(of)) = &field.shape
            && enums.get(of).is_some_and(|numbers| numbers.first() != Some(&0))
        {
            let message = format!("prost cannot name the accessors of map '{}'", field.name);
            found.push(Diagnostic::new(message, field.mark.clone()).help("rename the field"));
        }
    }
    found
}

/// Rust paths, and what they stand for.
#[derive(Default)]
struct Taken<'a> {
    owners: HashMap<String, (String, &'a Mark)>,
    reported: HashSet<(String, String)>,
    conflicts: Vec<Diagnostic>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, path: &str, owner: &str, mark: &'a Mark) {
        let (first, first_mark) = self.owners.entry(path.to_owned()).or_insert_with(|| (owner.to_owned(), mark));
        if first == owner || !self.reported.insert((first.clone(), owner.to_owned())) {
            return;
        }
        let message = format!("{} and {} are both {path} in Rust", shown(first), shown(owner));
        let diagnostic = Diagnostic::new(message, mark.clone()).and((*first_mark).clone(), "the other is here");
        self.conflicts.push(diagnostic.help("rename one of them"));
    }

    /// The modules down to what is declared in this package or message.
    fn add_modules(&mut self, name: &str, mark: &'a Mark) {
        let ends = name.match_indices('.').map(|(dot, _)| dot).chain([name.len()]);
        for owner in ends.map(|end| &name[..end]).filter(|owner| !owner.is_empty()) {
            self.add(&naming::modules(owner).join("::"), owner, mark);
        }
    }

    fn add_fields(&mut self, message: &'a Message) {
        let owner = |name: &str| format!("{}.{name}", message.full_name);
        let path = |name: &str| format!("{}::{}", shown(&message.full_name), naming::snake(name));
        for field in message.fields.iter().filter(|field| !matches!(field.shape, Shape::Member(..))) {
            self.add(&path(&field.name), &owner(&field.name), &field.mark);
        }
        for oneof in &message.oneofs {
            self.add(&path(&oneof.name), &owner(&oneof.name), &oneof.mark);
        }
    }

    /// The types of oneofs, and their variants.
    fn add_oneofs(&mut self, message: &'a Message, emitter: &Emitter) {
        for (index, oneof) in message.oneofs.iter().enumerate() {
            self.add_modules(&message.full_name, &message.mark);
            let owner = format!("{}.{}", message.full_name, oneof.name);
            let own = naming::oneof_type(&oneof.name, oneof.siblings.iter().map(String::as_str));
            let modules = emitter.names.path(&format!("{}.x", message.full_name), "", 0);
            let path = format!("{}{own}", modules.strip_suffix('X').unwrap_or(&modules));
            self.add(&path, &owner, &oneof.mark);
            for field in &message.fields {
                if matches!(field.shape, Shape::Member(of, _) if of == index) {
                    let variant = format!("{path}::{}", naming::upper_camel(&field.name));
                    self.add(&variant, &format!("{}.{}", message.full_name, field.name), &field.mark);
                }
            }
        }
    }

    /// The variants of an enum. Of values with the same number only the first is one.
    fn add_values(&mut self, declared: &'a Enum, keeps_prefix: bool) {
        let mut numbers = HashSet::new();
        let own = declared.full_name.rsplit('.').next().unwrap_or_default();
        for (number, (value, mark)) in declared.numbers.iter().zip(&declared.values) {
            if numbers.insert(number) {
                let variant = if keeps_prefix { naming::upper_camel(value) } else { naming::variant(own, value) };
                let path = format!("{}::{variant}", shown(&declared.full_name));
                self.add(&path, &format!("{}.{value}", declared.full_name), mark);
            }
        }
    }

    fn add_service(&mut self, service: &'a Service, emitter: &Emitter) {
        let package = parent(&service.full_name);
        self.add_modules(package, &service.mark);
        let (server, client) = (emitter.has_server, emitter.has_client);
        let modules = [("server", server), ("client", client), ("methods", server || client)];
        for (module, _) in modules.iter().filter(|(_, is_built)| *is_built) {
            let path = naming::modules(&format!("{package}.{}_{module}", service.name)).join("::");
            self.add(&path, &service.full_name, &service.mark);
        }
        for method in &service.methods {
            let owner = format!("{}.{}", service.full_name, method.name);
            self.add(&format!("{}::{}", shown(&service.full_name), naming::method(&method.name)), &owner, &method.mark);
        }
    }
}

fn parent(full_name: &str) -> &str {
    full_name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn shown(full_name: &str) -> &str {
    full_name.trim_start_matches('.')
}
