//! A catalog of the services of a server, built from their descriptors.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    ptr,
};

use bytes::Bytes;
use frpc::{
    Method,
    prost::Message,
    prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto},
};

/// The services of a server, and their proto files with all imports.
#[derive(Debug, Default)]
pub(crate) struct FileCatalog {
    services: BTreeSet<&'static str>,
    files: HashMap<String, CatalogFile>,
    /// The file name for each full name.
    symbols: HashMap<String, String>,
    /// The file name for each extension, by the full name of the extended message and the field number.
    extensions: BTreeMap<(String, i32), String>,
}

/// A `google.protobuf.FileDescriptorSet` with files that stay encoded.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "::frpc::prost")]
struct EncodedFiles {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

#[derive(Debug)]
struct CatalogFile {
    encoded: Bytes,
    imports: Vec<String>,
}

impl FileCatalog {
    /// Reads the descriptors of `methods`. Handwritten methods have none, so only their service is listed.
    pub(crate) fn new(methods: &[&'static Method]) -> Self {
        let mut catalog = Self::default();
        let mut read = HashSet::new();
        for method in methods {
            catalog.services.insert(method.service);
            let Some(types) = method.types else { continue };
            for message in [types.request, types.response] {
                // All methods of a package share a descriptor set, so read it once.
                if read.insert(ptr::from_ref(message.descriptors)) {
                    // Generated descriptors are valid. Skip invalid ones from handwritten methods.
                    let files = EncodedFiles::decode(message.descriptors).unwrap_or_default().file;
                    let files = files
                        .into_iter()
                        .filter_map(|encoded| Some((FileDescriptorProto::decode(encoded.clone()).ok()?, encoded)));
                    files.for_each(|(file, encoded)| catalog.add(&file, encoded));
                }
            }
        }
        catalog
    }

    /// Returns the full names of the services in alphabetical order.
    pub(crate) fn services(&self) -> impl Iterator<Item = &'static str> {
        self.services.iter().copied()
    }

    /// Returns the name of the file that declares `symbol`, a full name.
    pub(crate) fn file_of_symbol(&self, symbol: &str) -> Option<&str> {
        self.symbols.get(symbol).map(String::as_str)
    }

    /// Returns the name of the file that declares an extension of `message`.
    pub(crate) fn file_of_extension(&self, message: &str, number: i32) -> Option<&str> {
        self.extensions.get(&(message.to_owned(), number)).map(String::as_str)
    }

    /// Returns the field numbers of the extensions of `message`, or `None` for an unknown message.
    pub(crate) fn extension_numbers(&self, message: &str) -> Option<Vec<i32>> {
        let all = (message.to_owned(), i32::MIN)..=(message.to_owned(), i32::MAX);
        let numbers: Vec<i32> = self.extensions.range(all).map(|((_, number), _)| *number).collect();
        (!numbers.is_empty() || self.symbols.contains_key(message)).then_some(numbers)
    }

    /// Returns a file and its transitive imports, without imports sent before. Returns `None` for an unknown file.
    pub(crate) fn file_with_imports<'a>(&'a self, name: &'a str, sent: &mut SentFiles) -> Option<Vec<Bytes>> {
        let (name, file) = self.files.get_key_value(name)?;
        sent.0.insert(name.clone());
        let mut found = vec![file.encoded.clone()];
        let mut left: VecDeque<&str> = file.imports.iter().map(String::as_str).collect();
        while let Some(name) = left.pop_front() {
            // An import may be missing if its descriptors were not compiled into the program.
            let Some(file) = self.files.get(name) else { continue };
            if sent.0.insert(name.to_owned()) {
                found.push(file.encoded.clone());
                left.extend(file.imports.iter().map(String::as_str));
            }
        }
        Some(found)
    }

    /// Adds a file. `encoded` also has the edition and the custom options, which the types of prost lack.
    fn add(&mut self, file: &FileDescriptorProto, encoded: Bytes) {
        if self.files.contains_key(file.name()) {
            return;
        }
        let name = file.name().to_owned();
        self.files.insert(name.clone(), CatalogFile { encoded, imports: file.dependency.clone() });
        let mut names = SymbolIndexer { catalog: self, file: name };
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

/// The names of files already sent on a stream. It is bounded by the number of files.
#[derive(Debug, Default)]
pub(crate) struct SentFiles(HashSet<String>);

/// Adds the declarations of a file to a catalog.
struct SymbolIndexer<'a> {
    catalog: &'a mut FileCatalog,
    file: String,
}

impl SymbolIndexer<'_> {
    /// Adds a name and returns the full name.
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
        // Enum values are in the scope around their enum.
        declared.value.iter().for_each(|value| drop(self.add(scope, value.name())));
    }

    fn add_extension(&mut self, scope: &str, extension: &FieldDescriptorProto) {
        self.add(scope, extension.name());
        let message = extension.extendee().trim_start_matches('.').to_owned();
        self.catalog.extensions.insert((message, extension.number()), self.file.clone());
    }
}
