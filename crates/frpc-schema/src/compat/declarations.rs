//! Declared messages, by name.

use std::collections::HashMap;

use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use super::types::{EncodingKind, is_repeated, kind, single_type};
use crate::check::is_entry;

/// The messages declared in a set of descriptors, by name.
#[derive(Clone, Debug)]
pub struct Declarations<'a> {
    /// Packages and messages by parent node and own name. The root is node 0.
    nodes: HashMap<(usize, &'a str), usize>,
    /// The message of each node. `None` for packages.
    messages: Vec<Option<&'a DescriptorProto>>,
}

impl<'a> Declarations<'a> {
    /// Collects the messages of a set. If a name is declared twice, the first declaration counts.
    pub fn of(set: &'a FileDescriptorSet) -> Self {
        let mut declarations = Self { nodes: HashMap::new(), messages: vec![None] };
        let mut left = Vec::new();
        for file in &set.file {
            let mut package = ROOT;
            for part in file.package().split('.').filter(|part| !part.is_empty()) {
                package = declarations.node(package, part);
            }
            left.extend(file.message_type.iter().rev().map(|message| (package, message)));
            // Use a stack instead of recursion: a peer may nest its messages to any depth.
            while let Some((parent, message)) = left.pop() {
                let node = declarations.node(parent, message.name());
                declarations.messages[node].get_or_insert(message);
                left.extend(message.nested_type.iter().rev().map(|nested| (node, nested)));
            }
        }
        declarations
    }

    fn node(&mut self, parent: usize, name: &'a str) -> usize {
        *self.nodes.entry((parent, name)).or_insert_with(|| {
            self.messages.push(None);
            self.messages.len() - 1
        })
    }

    /// Returns a message by its full name, with or without a leading dot.
    pub(crate) fn get(&self, full_name: &str) -> Option<&'a DescriptorProto> {
        self.find(full_name).map(|node| self.message(node))
    }

    /// Returns the node of a message by its full name, with or without a leading dot.
    pub(super) fn find(&self, full_name: &str) -> Option<usize> {
        let mut parts = full_name.strip_prefix('.').unwrap_or(full_name).split('.');
        let node = parts.try_fold(ROOT, |node, part| self.nodes.get(&(node, part)).copied())?;
        self.messages[node].map(|_| node)
    }

    pub(super) fn message(&self, node: usize) -> &'a DescriptorProto {
        self.messages[node].expect("only nodes of messages are compared")
    }

    /// Returns the type of a field in the syntax of proto files.
    pub(super) fn type_of(&self, field: &FieldDescriptorProto) -> String {
        let entry = (kind(field) == Some(EncodingKind::Message)).then(|| self.find(field.type_name())).flatten();
        if let Some(entry) = entry.map(|entry| self.message(entry)).filter(|entry| is_entry(entry)) {
            let part = |number| entry.field.iter().find(|field| field.number() == number).map(single_type);
            let [key, value] = [1, 2].map(|number| part(number).unwrap_or_else(|| "nothing".to_owned()));
            return format!("map<{key}, {value}>");
        }
        match is_repeated(field) {
            true => format!("repeated {}", single_type(field)),
            false => single_type(field),
        }
    }
}

const ROOT: usize = 0;
