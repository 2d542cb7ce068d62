//! Errors of NATS itself. Those of publishing and subscribing are of `frisbee_pubsub`.

use std::{error::Error, fmt, io, path::Path};

/// The reason why there is no connection to a broker or a cluster.
#[derive(Debug)]
pub struct ConnectError(Why);

#[derive(Debug)]
enum Why {
    Url { servers: String, why: String },
    Credentials { path: String, error: io::Error },
    Nats(async_nats::ConnectError),
    Frisbee(frisbee_pubsub::ConnectError),
}

impl ConnectError {
    pub(crate) fn url(url: &str, why: impl Into<String>) -> Self {
        // Behind the `@` there is no secret. Options have none either.
        let servers = url.split(',').map(|server| server.rsplit_once('@').map_or(server, |(_, host)| host));
        Self(Why::Url { servers: servers.collect::<Vec<_>>().join(","), why: why.into() })
    }

    pub(crate) fn credentials(path: &Path, error: io::Error) -> Self {
        Self(Why::Credentials { path: path.display().to_string(), error })
    }

    /// Tells whether the servers refused what this client showed of itself. Trying again does not help.
    pub fn is_refused(&self) -> bool {
        use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation};
        matches!(&self.0, Why::Nats(error) if matches!(error.kind(), Authentication | AuthorizationViolation))
    }
}

impl From<async_nats::ConnectError> for ConnectError {
    fn from(error: async_nats::ConnectError) -> Self {
        Self(Why::Nats(error))
    }
}

impl From<frisbee_pubsub::ConnectError> for ConnectError {
    fn from(error: frisbee_pubsub::ConnectError) -> Self {
        Self(Why::Frisbee(error))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Url { servers, why } => write!(f, "the address {servers:?} cannot be read: {why}"),
            Why::Credentials { path, error } => write!(f, "the credentials in {path} cannot be read: {error}"),
            Why::Nats(error) => write!(f, "cannot connect to NATS: {error}"),
            Why::Frisbee(error) => error.fmt(f),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Why::Url { .. } => None,
            Why::Credentials { error, .. } => Some(error),
            Why::Nats(error) => Some(error),
            Why::Frisbee(error) => Some(error),
        }
    }
}

/// A message that NATS has no place for.
#[derive(Debug)]
pub(crate) struct Unsupported(pub(crate) &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Unsupported {}
