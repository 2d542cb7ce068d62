//! Rules of protoc that protox does not implement.
//!
//! They apply to the text of proto files only. Descriptors, as accepted by `compile_fds`, no longer contain the type
//! names as written, and the types of prost lack some options.

mod declarations;
mod enums;
mod names;
mod sources;

use std::collections::HashMap;

use frpc_schema::Diagnostic;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Returns the errors in files. `parsed` holds the files as written, `compiled` their descriptors, and `encoded` the
/// encoded descriptors with all options.
pub(crate) fn find(parsed: &[FileDescriptorProto], compiled: &FileDescriptorSet, encoded: &[u8]) -> Vec<Diagnostic> {
    let by_name: HashMap<_, _> = parsed.iter().map(|file| (file.name(), file)).collect();
    let mut found = Vec::new();
    for file in &compiled.file {
        if let Some(file) = by_name.get(file.name()) {
            let symbols = names::SymbolTable::visible_in(file, &compiled.file);
            found.extend(sources::SourceRules::new(file, &symbols).find());
        }
    }
    found.extend(declarations::find(compiled, encoded));
    found
}
