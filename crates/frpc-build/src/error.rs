//! Errors of code generation.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
};

use frpc_schema::Diagnostic;

use crate::{protox_errors, render, sources::IncludeDirs};

/// The reason why no code was generated. Its text contains the place in the proto file and the source line.
pub struct Error(Box<BuildErrorKind>);

enum BuildErrorKind {
    Schema { text: String, is_file_not_found: bool },
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    Other(String),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self(Box::new(BuildErrorKind::Io { doing, path: path.to_owned(), error }))
    }

    pub(crate) fn other(message: impl fmt::Display) -> Self {
        Self(Box::new(BuildErrorKind::Other(message.to_string())))
    }

    pub(crate) fn schema(diagnostics: &[Diagnostic], sources: &IncludeDirs) -> Self {
        let text = render::all(diagnostics, sources);
        Self(Box::new(BuildErrorKind::Schema { text, is_file_not_found: false }))
    }

    /// Returns `true` if no include directory has a proto file or import.
    pub fn is_file_not_found(&self) -> bool {
        matches!(*self.0, BuildErrorKind::Schema { is_file_not_found: true, .. })
    }

    pub(crate) fn protox(error: &protox::Error, sources: &IncludeDirs) -> Self {
        let text = render::all(&protox_errors::diagnostics(error, sources), sources);
        Self(Box::new(BuildErrorKind::Schema { text, is_file_not_found: error.is_file_not_found() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            BuildErrorKind::Schema { text, .. } | BuildErrorKind::Other(text) => f.write_str(text),
            BuildErrorKind::Io { doing, path, error } => write!(f, "cannot {doing} {}: {error}", path.display()),
        }
    }
}

/// Same as `Display`, because `main` of a build script prints errors with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &*self.0 {
            BuildErrorKind::Schema { .. } | BuildErrorKind::Other(_) => None,
            BuildErrorKind::Io { error, .. } => Some(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
