//! Declarations that are two in the proto files and one in Rust.

use std::collections::{HashMap, HashSet};

use crate::{
    diagnostics::{Diagnostic, Mark},
    emit::Emitter,
    naming,
    schema::{Schema, Service},
};

/// All pairs of declarations that would become the same type, module or function.
pub(crate) fn find(schema: &Schema, emitter: &Emitter) -> Vec<Diagnostic> {
    let mut taken = Taken::default();
    for package in &schema.packages {
        let messages = package.messages.iter().map(|message| (&message.full_name, &message.mark));
        let enums = package.enums.iter().map(|declared| (&declared.full_name, &declared.mark));
        let is_here = |(name, _): &(&String, _)| emitter.names.external(name).is_none();
        for (name, mark) in messages.chain(enums).filter(is_here) {
            taken.add_modules(parent(name), mark);
            taken.add(&emitter.names.path(name, "", 0), name, mark);
        }
        for message in package.messages.iter().filter(|message| !message.oneofs.is_empty()) {
            taken.add_modules(&message.full_name, &message.mark);
        }
        for service in package.services.iter().filter(|service| is_here(&(&service.full_name, &service.mark))) {
            taken.add_service(service, emitter);
        }
    }
    taken.conflicts
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
