//! The text of proto files.

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use crate::edition_text::EditionText;

/// The include directories.
#[derive(Clone, Debug, Default)]
pub(crate) struct IncludeDirs {
    includes: Vec<PathBuf>,
}

impl IncludeDirs {
    pub(crate) fn new(includes: &[impl AsRef<Path>]) -> Self {
        Self { includes: includes.iter().map(|include| include.as_ref().to_owned()).collect() }
    }

    pub(crate) fn includes(&self) -> &[PathBuf] {
        &self.includes
    }

    /// Returns the path of a proto file, given its name in an include directory.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        let mut paths = self.includes.iter().map(|include| include.join(file));
        paths.find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(file))
    }

    /// Returns the text of a file without its byte order mark. Bytes that are not UTF-8 become replacement characters.
    pub(crate) fn text(&self, file: &str) -> Option<String> {
        let bytes = fs::read(self.path(file)).ok()?;
        Some(String::from_utf8_lossy(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes)).into_owned())
    }

    /// Returns the text of a file with a byte order mark, without the mark. `None` for other files.
    pub(crate) fn marked_text(&self, file: &str) -> Option<String> {
        let bytes = fs::read(self.path(file)).ok()?;
        String::from_utf8(bytes.strip_prefix(BYTE_ORDER_MARK)?.to_owned()).ok()
    }

    /// Returns the rewritten text of a file of an edition. `None` for other files.
    pub(crate) fn edition(&self, file: &str) -> Option<EditionText> {
        let bytes = fs::read(self.path(file)).ok()?;
        EditionText::of(std::str::from_utf8(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes)).ok()?)
    }

    /// Returns an error message if a proto file does not exist.
    pub(crate) fn missing(&self, proto: &Path) -> Option<String> {
        let is_somewhere = proto.is_file() || self.includes.iter().any(|include| include.join(proto).is_file());
        if is_somewhere {
            return None;
        }
        if proto.is_dir() {
            return Some(format!("'{}' is a directory, not a proto file", proto.display()));
        }
        let absolute = |path: &Path| path::absolute(Path::new(".").join(path));
        let is_inside = |include: &PathBuf| match (absolute(proto), absolute(include)) {
            (Ok(proto), Ok(include)) => proto.starts_with(include),
            _ => false,
        };
        let is_meant = proto.is_absolute() || self.includes.iter().any(is_inside);
        is_meant.then(|| format!("file '{}' does not exist", proto.display()))
    }

    /// Returns a note with the directories searched for a missing file.
    pub(crate) fn searched(&self, missing: &Path) -> String {
        let joined = |paths: Vec<PathBuf>| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            paths.join(", ")
        };
        if missing.is_file() {
            return format!("include directories are {}", joined(self.includes.clone()));
        }
        match self.includes.is_empty() {
            true => "there are no include directories".to_owned(),
            false => format!("looked for {}", joined(self.includes.iter().map(|dir| dir.join(missing)).collect())),
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
