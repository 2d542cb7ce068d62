//! Errors of settings and exports.

use std::{error::Error, fmt, io};

use frpc::{ConnectError, Status, shown};

/// The error for a setting of an exporter.
#[derive(Debug)]
#[non_exhaustive]
pub enum OtlpError {
    /// An environment variable has an invalid or unsupported value.
    Variable {
        /// The name of the variable.
        name: &'static str,
        /// Its value. Empty for headers, because they may contain secrets.
        value: String,
        /// The expected form of the value.
        expected: &'static str,
    },
    /// The interval or the timeout is zero.
    Zero(&'static str),
    /// The endpoint is invalid.
    Endpoint(ConnectError),
    /// The thread of the exporter cannot be started.
    Thread(io::Error),
}

/// The error for a failed export. The counters are cumulative, so the next export contains the lost values.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The time limit of the export passed, including the wait for an export in progress.
    Timeout,
    /// The call to the collector failed.
    Call(Status),
    /// The collector rejected a part of the points.
    Rejected {
        /// The number of rejected points or spans.
        count: i64,
        /// The reason given by the collector.
        message: String,
    },
}

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value, expected } => write!(f, "{name}={value:?} is invalid: expected {expected}"),
            Self::Zero(name) => write!(f, "the {name} of the exporter is zero"),
            Self::Endpoint(_) => f.write_str("the endpoint of the collector is invalid"),
            Self::Thread(_) => f.write_str("the thread of the exporter cannot be started"),
        }
    }
}

impl Error for OtlpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Endpoint(error) => Some(error),
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the export did not finish within its timeout"),
            Self::Call(status) => write!(f, "the collector failed: {status}"),
            Self::Rejected { count, message } => {
                write!(f, "the collector rejected {count} items: {}", shown(message))
            }
        }
    }
}

impl Error for ExportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(status) => Some(status),
            _ => None,
        }
    }
}

impl From<Status> for ExportError {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}
