//! Finding proto files.

use std::{
    mem,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use frpc_rest::GOOGLE_API_FILES;
use prost_types::FileDescriptorProto;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::{editions, sources::IncludeDirs};

/// Finds proto files like protox, and also reads files of an edition or with a byte order mark.
pub(crate) struct ProtoResolver {
    resolver: ChainFileResolver,
    sources: IncludeDirs,
    parsed: ParsedFiles,
}

/// The parsed files as written: type names are not resolved yet, and options are not interpreted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedFiles(Arc<Mutex<Vec<FileDescriptorProto>>>);

impl ProtoResolver {
    pub(crate) fn new(sources: &IncludeDirs, parsed: &ParsedFiles) -> Self {
        let mut resolver = ChainFileResolver::new();
        sources.includes().iter().for_each(|include| resolver.add(IncludeFileResolver::new(include.clone())));
        resolver.add(GoogleFileResolver::new());
        resolver.add(AnnotationResolver);
        Self { resolver, sources: sources.clone(), parsed: parsed.clone() }
    }
}

/// Finds the proto files that declare REST annotations. The include directories come first.
struct AnnotationResolver;

impl FileResolver for AnnotationResolver {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match GOOGLE_API_FILES.iter().find(|(file, _)| *file == name) {
            Some((_, text)) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

impl FileResolver for ProtoResolver {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.resolver.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let edition = self.sources.edition(name);
        let file = match edition.as_ref().map(|edition| edition.text.clone()).or(self.sources.marked_text(name)) {
            Some(text) => File::from_source(name, &text),
            None => self.resolver.open_file(name),
        }?;
        // The well-known types come without a source. They need no check.
        if file.source().is_some() {
            let mut parsed =
                FileDescriptorProto { name: Some(name.to_owned()), ..file.file_descriptor_proto().clone() };
            if let Some(edition) = &edition {
                editions::convert(edition, parsed.source_code_info.as_mut());
                parsed.syntax = Some("editions".to_owned());
            }
            self.parsed.lock().push(parsed);
        }
        Ok(file)
    }
}

impl ParsedFiles {
    /// Returns all files.
    pub(crate) fn take(&self) -> Vec<FileDescriptorProto> {
        mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FileDescriptorProto>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
