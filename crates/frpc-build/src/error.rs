//! Errors of code generation.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
};

use frpc_schema::Diagnostic;

use crate::{protox_errors, render, sources::Sources};

/// The reason why no code was generated. Its text contains the place in the proto file and the source line.
pub struct Error(Box<Kind>);

enum Kind {
    Schema(String),
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    Other(String),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self(Box::new(Kind::Io { doing, path: path.to_owned(), error }))
    }

    pub(crate) fn other(message: impl fmt::Display) -> Self {
        Self(Box::new(Kind::Other(message.to_string())))
    }

    pub(crate) fn schema(diagnostics: &[Diagnostic], sources: &Sources) -> Self {
        Self(Box::new(Kind::Schema(render::all(diagnostics, sources))))
    }

    pub(crate) fn protox(error: &protox::Error, sources: &Sources) -> Self {
        Self::schema(&protox_errors::diagnostics(error, sources), sources)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Schema(text) | Kind::Other(text) => f.write_str(text),
            Kind::Io { doing, path, error } => write!(f, "cannot {doing} {}: {error}", path.display()),
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
            Kind::Schema(_) | Kind::Other(_) => None,
            Kind::Io { error, .. } => Some(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
