//! In-memory proto files for tests.

use prost_types::FileDescriptorSet;
use protox::{
    Compiler, Error,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver},
};

use crate::{model::Schema, operations::SchemaOptions};

/// Compiles the body of a proto3 file in package `t`.
pub(crate) fn compiled(body: &str) -> FileDescriptorSet {
    compiled_files(&[("t.proto", &format!("syntax = \"proto3\"; package t; {body}"))])
}

/// Compiles files, given as pairs of name and text.
pub(crate) fn compiled_files(files: &[(&'static str, &str)]) -> FileDescriptorSet {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Memory(files.iter().map(|&(name, text)| (name, text.to_owned())).collect()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_files(files.iter().map(|(name, _)| name)).unwrap();
    compiler.file_descriptor_set()
}

/// Reads the schema from the body of a proto3 file in package `t`.
pub(crate) fn schema(body: &str) -> Schema {
    Schema::read(&compiled(body), &SchemaOptions::default()).unwrap()
}

struct Memory(Vec<(&'static str, String)>);

impl FileResolver for Memory {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map_or_else(|| Err(Error::file_not_found(name)), |(_, text)| File::from_source(name, text))
    }
}
