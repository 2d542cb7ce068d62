//! Finds proto files.

use std::path::Path;

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::sources::Sources;

/// Finds proto files as protox does, and reads those too that start with a byte order mark.
pub(crate) struct Resolver {
    resolver: ChainFileResolver,
    sources: Sources,
}

impl Resolver {
    pub(crate) fn new(sources: &Sources) -> Self {
        let mut resolver = ChainFileResolver::new();
        sources.includes().iter().for_each(|include| resolver.add(IncludeFileResolver::new(include.clone())));
        resolver.add(GoogleFileResolver::new());
        Self { resolver, sources: sources.clone() }
    }
}

impl FileResolver for Resolver {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.resolver.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.sources.marked_text(name) {
            Some(text) => File::from_source(name, &text),
            None => self.resolver.open_file(name),
        }
    }
}
