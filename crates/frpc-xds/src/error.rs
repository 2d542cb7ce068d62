//! Errors of bootstraps and targets.

use std::{error::Error, fmt, io, path::PathBuf};

/// The error for an unusable bootstrap or target.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdsError {
    /// Neither `GRPC_XDS_BOOTSTRAP` nor `GRPC_XDS_BOOTSTRAP_CONFIG` is set.
    NoBootstrap,
    /// The bootstrap file cannot be read.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The bootstrap is invalid or asks for something unsupported.
    Bootstrap {
        /// The path of the field, such as `xds_servers[0].server_uri`. Empty for the whole text.
        field: String,
        /// The reason.
        why: String,
    },
    /// The target is not `xds:///SERVICE`.
    Target(String),
}

impl fmt::Display for XdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBootstrap => f.write_str(
                "no xDS bootstrap: set GRPC_XDS_BOOTSTRAP to the path of a file, or GRPC_XDS_BOOTSTRAP_CONFIG to its content",
            ),
            Self::File { path, .. } => write!(f, "cannot read the xDS bootstrap {}", path.display()),
            Self::Bootstrap { field, why } if field.is_empty() => write!(f, "invalid xDS bootstrap: {why}"),
            Self::Bootstrap { field, why } => write!(f, "invalid xDS bootstrap: {field} {why}"),
            Self::Target(text) => write!(f, "target {text:?}: expected xds:///SERVICE or xds+SCHEME:///SERVICE"),
        }
    }
}

impl Error for XdsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<XdsError> for io::Error {
    fn from(error: XdsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
