//! The lock file: the layout of all types that methods send, as of the last build. A change that breaks peers is an
//! error; other changes are written into the file.

mod changes;
mod layout;
mod text;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use frpc_schema::{
    Diagnostic, Schema,
    location::{SourceLocation, Span},
};
use prost_types::FileDescriptorSet;

use self::{layout::LockedLayout, text::MalformedLine};
use crate::{error::Error, files, sources::IncludeDirs};

/// A lock file, and the peers it guards.
#[derive(Clone, Debug)]
pub(crate) struct LockFile {
    pub(crate) path: PathBuf,
    /// `true` if plain peers must understand the generated code.
    pub(crate) has_plain_peers: bool,
}

/// The required content of a lock file.
#[derive(Debug)]
pub(crate) struct LockContent {
    path: PathBuf,
    text: String,
}

impl LockFile {
    /// Checks a schema against the file, if it exists. `is_here` returns `true` for the full name of a service
    /// generated here.
    pub(crate) fn check(
        &self,
        schema: &Schema,
        set: &FileDescriptorSet,
        is_here: impl Fn(&str) -> bool,
        sources: &IncludeDirs,
    ) -> Result<LockContent, Error> {
        let now = LockedLayout::of(schema, set, is_here);
        let shown = self.path.display().to_string();
        if let Some(before) = self.read()? {
            let before: LockedLayout =
                before.parse().map_err(|malformed| Error::schema(&[refused(malformed, &shown)], sources))?;
            let changes = changes::find(&before, &now, schema);
            let mistakes = changes.into_iter().filter_map(|change| change.diagnostic(&shown, self.has_plain_peers));
            let mistakes: Vec<_> = mistakes.collect();
            if !mistakes.is_empty() {
                return Err(Error::schema(&mistakes, sources));
            }
        }
        Ok(LockContent { path: self.path.clone(), text: now.to_string() })
    }

    fn read(&self) -> Result<Option<String>, Error> {
        read(&self.path)
    }
}

impl LockContent {
    /// Returns `true` if the content of the file differs. Ignores line endings, because git changes them on Windows.
    pub(crate) fn is_stale(&self) -> Result<bool, Error> {
        Ok(read(&self.path)?.is_none_or(|before| before.replace("\r\n", "\n") != self.text))
    }

    /// Writes the file if its content differs.
    pub(crate) fn write(&self) -> Result<(), Error> {
        if self.is_stale()? { files::write(&self.path, self.text.as_bytes()) } else { Ok(()) }
    }
}

/// Returns the text of a file, or `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

fn refused(MalformedLine { line, reason }: MalformedLine, path: &str) -> Diagnostic {
    let help = "restore the file from version control, or delete it to accept the current layout";
    Diagnostic::new(reason).at(SourceLocation::new(path, Some(Span::new(line, 0, usize::MAX)))).help(help)
}
