//! Paths that do not fit their message.

use std::{error, fmt};

use crate::call::{shown::shown, status::Status};

/// A path of a field mask that does not fit the message: it names a field that the message lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath {
    path: String,
    message: &'static str,
    reason: String,
}

impl InvalidPath {
    pub(super) fn new(path: &str, message: &'static str, reason: String) -> Self {
        Self { path: shown(path), message, reason }
    }

    /// Returns the path. A long one is truncated.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, message, reason } = self;
        write!(f, "the path `{path}` does not fit {message}: {reason}")
    }
}

impl error::Error for InvalidPath {}

impl From<InvalidPath> for Status {
    fn from(error: InvalidPath) -> Self {
        Self::invalid_argument(error.to_string())
    }
}
