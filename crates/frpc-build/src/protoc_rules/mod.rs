//! Rules of protoc that protox does not know, and that only the text of proto files can break: descriptors, as `compile_fds` takes
//! them, no longer say how a type was named, and prost's types have no place for some options.

mod declarations;
mod enums;
mod names;
mod sources;

use std::collections::HashMap;

use frpc_schema::Diagnostic;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Returns the mistakes in files. `parsed` are the files as they were written, `compiled` the same as descriptors, which are `encoded`
/// with all their options.
pub(crate) fn find(parsed: &[FileDescriptorProto], compiled: &FileDescriptorSet, encoded: &[u8]) -> Vec<Diagnostic> {
    let by_name: HashMap<_, _> = parsed.iter().map(|file| (file.name(), file)).collect();
    let mut found = Vec::new();
    for file in &compiled.file {
        if let Some(file) = by_name.get(file.name()) {
            let symbols = names::Symbols::visible_in(file, &compiled.file);
            found.extend(sources::Rules::new(file, &symbols).find());
        }
    }
    found.extend(declarations::find(compiled, encoded));
    found
}
