//! Names visible in a file, with the lookup rules of protoc.

use std::collections::{HashMap, HashSet};

use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// Full names of all visible declarations. The value is `true` for messages.
pub(super) struct SymbolTable(HashMap<String, bool>);

impl SymbolTable {
    /// Returns the declarations of a file, of its imports, and of their public imports.
    pub(super) fn visible_in(file: &FileDescriptorProto, files: &[FileDescriptorProto]) -> Self {
        let by_name: HashMap<_, _> = files.iter().map(|file| (file.name(), file)).collect();
        let mut symbols = Self(HashMap::new());
        let mut seen = HashSet::from([file.name()]);
        let mut next: Vec<&str> = file.dependency.iter().map(String::as_str).collect();
        symbols.add_file(file);
        while let Some(name) = next.pop() {
            let Some(imported) = by_name.get(name).filter(|_| seen.insert(name)) else { continue };
            symbols.add_file(imported);
            let public = imported.public_dependency.iter().filter_map(|&index| usize::try_from(index).ok());
            next.extend(public.filter_map(|index| imported.dependency.get(index)).map(String::as_str));
        }
        symbols
    }

    /// Returns the full name of the declaration that hides a message, if there is one. `name` is a name without dots,
    /// used in `scope`. protoc takes the first declaration it finds, from the innermost scope outwards.
    pub(super) fn hidden_by(&self, name: &str, scope: &str) -> Option<String> {
        let mut scope = scope;
        loop {
            let full_name = joined(scope, name);
            match self.0.get(&full_name) {
                Some(true) => return None,
                Some(false) => return Some(full_name),
                None if scope.is_empty() => return None,
                None => scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer),
            }
        }
    }

    fn add(&mut self, full_name: String, is_message: bool) {
        self.0.insert(full_name, is_message);
    }

    fn add_file(&mut self, file: &FileDescriptorProto) {
        let package = file.package();
        for (dot, _) in package.match_indices('.') {
            self.add(package[..dot].to_owned(), false);
        }
        if !package.is_empty() {
            self.add(package.to_owned(), false);
        }
        file.message_type.iter().for_each(|message| self.add_message(message, package));
        file.enum_type.iter().for_each(|declared| self.add_enum(declared, package));
        self.add_fields(&file.extension, package);
        for service in &file.service {
            let full_name = joined(package, service.name());
            for method in &service.method {
                self.add(joined(&full_name, method.name()), false);
            }
            self.add(full_name, false);
        }
    }

    fn add_message(&mut self, message: &DescriptorProto, scope: &str) {
        let full_name = joined(scope, message.name());
        message.nested_type.iter().for_each(|nested| self.add_message(nested, &full_name));
        message.enum_type.iter().for_each(|nested| self.add_enum(nested, &full_name));
        self.add_fields(&message.field, &full_name);
        self.add_fields(&message.extension, &full_name);
        message.oneof_decl.iter().for_each(|oneof| self.add(joined(&full_name, oneof.name()), false));
        self.add(full_name, true);
    }

    fn add_fields(&mut self, fields: &[FieldDescriptorProto], scope: &str) {
        fields.iter().for_each(|field| self.add(joined(scope, field.name()), false));
    }

    /// Adds an enum. Its values belong to the scope around the enum.
    fn add_enum(&mut self, declared: &EnumDescriptorProto, scope: &str) {
        declared.value.iter().for_each(|value| self.add(joined(scope, value.name()), false));
        self.add(joined(scope, declared.name()), false);
    }
}

/// Returns the full name of a declaration in a scope.
pub(super) fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}
