//! Finding proto files.

use std::{
    collections::{HashMap, HashSet},
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
    /// The public imports of files that were looked at, by file.
    public_imports: Mutex<HashMap<String, Vec<String>>>,
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
        Self { resolver, sources: sources.clone(), parsed: parsed.clone(), public_imports: Mutex::default() }
    }

    fn parse(&self, name: &str) -> Result<File, protox::Error> {
        let edition = self.sources.edition(name).map(|edition| edition.text);
        match edition.or_else(|| self.sources.marked_text(name)) {
            Some(text) => File::from_source(name, &text),
            None => self.resolver.open_file(name),
        }
    }

    /// Returns the files that an importer sees only through two or more public imports in a row. prost-reflect does not
    /// follow such a chain to its end.
    fn chained_imports(&self, importer: &FileDescriptorProto) -> Vec<String> {
        let first: Vec<_> = importer.dependency.iter().flat_map(|import| self.public_imports(import)).collect();
        let mut seen: HashSet<_> = importer.dependency.iter().chain(&first).cloned().collect();
        seen.insert(importer.name().to_owned());
        let mut chained = Vec::new();
        let mut next = first;
        while let Some(file) = next.pop() {
            for import in self.public_imports(&file) {
                if seen.insert(import.clone()) {
                    chained.push(import.clone());
                    next.push(import);
                }
            }
        }
        chained
    }

    /// Returns the public imports of a file. A file that does not parse has none; protox reports it later.
    fn public_imports(&self, name: &str) -> Vec<String> {
        let mut known = self.public_imports.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(name.to_owned()).or_insert_with(|| self.read_public_imports(name).unwrap_or_default()).clone()
    }

    fn read_public_imports(&self, name: &str) -> Option<Vec<String>> {
        // Most files have no public import. They are not parsed twice.
        if !self.sources.text(name)?.contains("public") {
            return None;
        }
        let file = self.parse(name).ok()?;
        let file = file.file_descriptor_proto();
        let indexes = file.public_dependency.iter().filter_map(|&index| usize::try_from(index).ok());
        Some(indexes.filter_map(|index| file.dependency.get(index).cloned()).collect())
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
        let file = self.parse(name)?;
        // The well-known types come without a source. They need no check.
        let Some(source) = file.source() else { return Ok(file) };
        let mut parsed = FileDescriptorProto { name: Some(name.to_owned()), ..file.file_descriptor_proto().clone() };
        if let Some(edition) = self.sources.edition(name) {
            editions::convert(&edition, parsed.source_code_info.as_mut());
            parsed.syntax = Some("editions".to_owned());
        }
        let chained = self.chained_imports(&parsed);
        self.parsed.lock().push(parsed);
        if chained.is_empty() {
            return Ok(file);
        }
        // At the end, the statements move no other place. `descriptors::as_written` removes them. The empty line keeps
        // a comment at the end of the file where it was.
        let statements: String = chained.iter().map(|import| format!("import \"{import}\";\n")).collect();
        File::from_source(name, &format!("{source}\n\n{statements}"))
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
