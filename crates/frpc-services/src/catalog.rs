//! The services of a server, as their descriptors tell.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    ptr,
};

use bytes::Bytes;
use frpc::{
    Method,
    prost::Message,
    prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet},
};

/// Returns the beginning of a name that a caller asked for: a status repeats no more of what may be megabytes.
pub(crate) fn short(name: &str) -> &str {
    name.char_indices().nth(NAME_LEN_SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// The most characters of an unknown name that a status repeats.
const NAME_LEN_SHOWN: usize = 200;

/// Services, and the files that declare them with everything that they import.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    services: BTreeSet<&'static str>,
    files: HashMap<String, File>,
    /// The file of each full name.
    symbols: HashMap<String, String>,
    /// The file of each extension, by the full name of the message and the number.
    extensions: BTreeMap<(String, i32), String>,
}

#[derive(Debug)]
struct File {
    encoded: Bytes,
    imports: Vec<String>,
}

impl Catalog {
    /// Reads the descriptors of methods. Those of methods that were written by hand have none.
    pub(crate) fn new(methods: &[&'static Method]) -> Self {
        let mut catalog = Self::default();
        let mut read = HashSet::new();
        for method in methods {
            catalog.services.insert(method.service);
            let Some(types) = method.types else { continue };
            for message in [types.request, types.response] {
                // All methods of a package share the descriptors.
                if read.insert(ptr::from_ref(message.descriptors)) {
                    // Generated code cannot have others; those of somebody's own are not found then.
                    let set = FileDescriptorSet::decode(message.descriptors).unwrap_or_default();
                    set.file.into_iter().for_each(|file| catalog.add(&file));
                }
            }
        }
        catalog
    }

    /// Returns the full names of the services, in their order.
    pub(crate) fn services(&self) -> impl Iterator<Item = &'static str> {
        self.services.iter().copied()
    }

    /// Returns the name of the file that declares what has this full name.
    pub(crate) fn file_of_symbol(&self, symbol: &str) -> Option<&str> {
        self.symbols.get(symbol).map(String::as_str)
    }

    /// Returns the name of the file that declares the extension of a message with this number.
    pub(crate) fn file_of_extension(&self, message: &str, number: i32) -> Option<&str> {
        self.extensions.get(&(message.to_owned(), number)).map(String::as_str)
    }

    /// Returns the numbers of the extensions of a message, or `None` if there is no such message.
    pub(crate) fn extension_numbers(&self, message: &str) -> Option<Vec<i32>> {
        let all = (message.to_owned(), i32::MIN)..=(message.to_owned(), i32::MAX);
        let numbers: Vec<i32> = self.extensions.range(all).map(|((_, number), _)| *number).collect();
        (!numbers.is_empty() || self.symbols.contains_key(message)).then_some(numbers)
    }

    /// Returns a file by its name, and all that it imports as far as they were not sent before; or `None` if there is no such file.
    pub(crate) fn file_with_imports<'a>(&'a self, name: &'a str, sent: &mut Sent) -> Option<Vec<Bytes>> {
        let (name, file) = self.files.get_key_value(name)?;
        sent.0.insert(name.clone());
        let mut found = vec![file.encoded.clone()];
        let mut left: VecDeque<&str> = file.imports.iter().map(String::as_str).collect();
        while let Some(name) = left.pop_front() {
            // Imports that a program was compiled without are missing.
            let Some(file) = self.files.get(name) else { continue };
            if sent.0.insert(name.to_owned()) {
                found.push(file.encoded.clone());
                left.extend(file.imports.iter().map(String::as_str));
            }
        }
        Some(found)
    }

    fn add(&mut self, file: &FileDescriptorProto) {
        if self.files.contains_key(file.name()) {
            return;
        }
        let name = file.name().to_owned();
        let encoded = file.encode_to_vec().into();
        self.files.insert(name.clone(), File { encoded, imports: file.dependency.clone() });
        let mut names = Names { catalog: self, file: name };
        let package = file.package();
        file.message_type.iter().for_each(|message| names.add_message(package, message));
        file.enum_type.iter().for_each(|declared| names.add_enum(package, declared));
        file.extension.iter().for_each(|extension| names.add_extension(package, extension));
        for service in &file.service {
            let name = names.add(package, service.name());
            service.method.iter().for_each(|method| drop(names.add(&name, method.name())));
        }
    }
}

/// The files that a stream has had, at most all there are.
#[derive(Debug, Default)]
pub(crate) struct Sent(HashSet<String>);

/// Adds what one file declares.
struct Names<'a> {
    catalog: &'a mut Catalog,
    file: String,
}

impl Names<'_> {
    /// Adds a name, and returns it in full.
    fn add(&mut self, scope: &str, name: &str) -> String {
        let full = if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") };
        self.catalog.symbols.insert(full.clone(), self.file.clone());
        full
    }

    fn add_message(&mut self, scope: &str, message: &DescriptorProto) {
        let name = self.add(scope, message.name());
        message.field.iter().for_each(|field| drop(self.add(&name, field.name())));
        message.oneof_decl.iter().for_each(|oneof| drop(self.add(&name, oneof.name())));
        message.nested_type.iter().for_each(|nested| self.add_message(&name, nested));
        message.enum_type.iter().for_each(|nested| self.add_enum(&name, nested));
        message.extension.iter().for_each(|extension| self.add_extension(&name, extension));
    }

    fn add_enum(&mut self, scope: &str, declared: &EnumDescriptorProto) {
        self.add(scope, declared.name());
        // Values stand beside their enum, not within.
        declared.value.iter().for_each(|value| drop(self.add(scope, value.name())));
    }

    fn add_extension(&mut self, scope: &str, extension: &FieldDescriptorProto) {
        self.add(scope, extension.name());
        let message = extension.extendee().trim_start_matches('.').to_owned();
        self.catalog.extensions.insert((message, extension.number()), self.file.clone());
    }
}
