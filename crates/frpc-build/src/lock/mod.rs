//! The lock file: the layout of everything that methods send, as it was when the file was last written. A change that breaks
//! peers is a mistake; all others are written into the file.

mod changes;
mod layout;
mod text;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use frpc_schema::{
    Diagnostic, Schema,
    location::{Place, Span},
};
use prost_types::FileDescriptorSet;

use self::{layout::Layout, text::Malformed};
use crate::{error::Error, files, sources::Sources};

/// A lock file, and what it guards.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) path: PathBuf,
    /// True if plain peers have to understand what is generated.
    pub(crate) has_plain_peers: bool,
}

/// The text that a lock file is to have.
#[derive(Debug)]
pub(crate) struct Checked {
    path: PathBuf,
    text: String,
}

impl Lock {
    /// Checks a schema against the file, if there is one. `is_here` tells by their full names which services are generated
    /// here.
    pub(crate) fn check(
        &self,
        schema: &Schema,
        set: &FileDescriptorSet,
        is_here: impl Fn(&str) -> bool,
        sources: &Sources,
    ) -> Result<Checked, Error> {
        let now = Layout::of(schema, set, is_here);
        let shown = self.path.display().to_string();
        if let Some(before) = self.read()? {
            let before: Layout =
                before.parse().map_err(|malformed| Error::schema(&[refused(malformed, &shown)], sources))?;
            let changes = changes::find(&before, &now, schema);
            let mistakes = changes.into_iter().filter_map(|change| change.diagnostic(&shown, self.has_plain_peers));
            let mistakes: Vec<_> = mistakes.collect();
            if !mistakes.is_empty() {
                return Err(Error::schema(&mistakes, sources));
            }
        }
        Ok(Checked { path: self.path.clone(), text: now.to_string() })
    }

    fn read(&self) -> Result<Option<String>, Error> {
        read(&self.path)
    }
}

impl Checked {
    /// Returns whether the file says anything else. Other ends of lines, as git makes them on Windows, are nothing else.
    pub(crate) fn is_stale(&self) -> Result<bool, Error> {
        Ok(read(&self.path)?.is_none_or(|before| before.replace("\r\n", "\n") != self.text))
    }

    /// Writes the file if it says anything else.
    pub(crate) fn write(&self) -> Result<(), Error> {
        if self.is_stale()? { files::write(&self.path, self.text.as_bytes()) } else { Ok(()) }
    }
}

/// Returns the text of a file, or `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

fn refused(Malformed { line, reason }: Malformed, path: &str) -> Diagnostic {
    let help = "take the file of a version that was built, or delete it to accept everything as it is now";
    Diagnostic::new(reason).at(Place::new(path, Some(Span::new(line, 0, usize::MAX)))).help(help)
}
