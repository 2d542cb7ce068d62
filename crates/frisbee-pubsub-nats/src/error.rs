//! Errors specific to NATS. Publishing and subscribing return the errors of `frisbee_pubsub`.

use std::{error::Error, fmt, io, path::Path, sync::Arc};

use frisbee_pubsub::InvalidSubject;

/// Reason for a failed connection to a broker or cluster.
#[derive(Debug)]
pub struct ConnectError(ConnectFailure);

#[derive(Debug)]
enum ConnectFailure {
    Url { servers: String, why: String },
    Credentials { path: String, error: io::Error },
    Nats(async_nats::ConnectError),
    Frisbee(frisbee_pubsub::ConnectError),
}

impl ConnectError {
    pub(crate) fn url(url: &str, why: impl Into<String>) -> Self {
        // Credentials precede the `@`. The host and the options hold no secrets.
        let servers = url.split(',').map(|server| server.rsplit_once('@').map_or(server, |(_, host)| host));
        Self(ConnectFailure::Url { servers: servers.collect::<Vec<_>>().join(","), why: why.into() })
    }

    pub(crate) fn credentials(path: &Path, error: io::Error) -> Self {
        Self(ConnectFailure::Credentials { path: path.display().to_string(), error })
    }

    /// Returns `true` if the servers rejected the client's login. A retry does not help then.
    pub fn is_refused(&self) -> bool {
        use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation};
        matches!(&self.0, ConnectFailure::Nats(error) if matches!(error.kind(), Authentication | AuthorizationViolation))
    }
}

impl From<async_nats::ConnectError> for ConnectError {
    fn from(error: async_nats::ConnectError) -> Self {
        Self(ConnectFailure::Nats(error))
    }
}

impl From<frisbee_pubsub::ConnectError> for ConnectError {
    fn from(error: frisbee_pubsub::ConnectError) -> Self {
        Self(ConnectFailure::Frisbee(error))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ConnectFailure::Url { servers, why } => write!(f, "the address {servers:?} cannot be read: {why}"),
            ConnectFailure::Credentials { path, error } => {
                write!(f, "the credentials in {path} cannot be read: {error}")
            }
            ConnectFailure::Nats(error) => write!(f, "cannot connect to NATS: {error}"),
            ConnectFailure::Frisbee(error) => error.fmt(f),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            ConnectFailure::Url { .. } => None,
            ConnectFailure::Credentials { error, .. } => Some(error),
            ConnectFailure::Nats(error) => Some(error),
            ConnectFailure::Frisbee(error) => Some(error),
        }
    }
}

/// Reason for a failed operation on a stream or durable subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// A pattern is invalid. Nothing was sent.
    InvalidPattern(InvalidSubject),
    /// No stream has this name.
    NoStream(String),
    /// The durable subscription was deleted on the servers, and its position with it.
    Deleted,
    /// The client was closed.
    Closed,
    /// The servers refused, did not answer in time, or could not be reached.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl StreamError {
    pub(crate) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(Arc::from(error.into()))
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPattern(error) => error.fmt(f),
            Self::NoStream(name) => write!(f, "there is no stream {name:?}: create it with `Nats::make_stream`"),
            Self::Deleted => f.write_str("the durable subscription was deleted"),
            Self::Closed => f.write_str("the client is closed"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InvalidPattern(error) => Some(error),
            Self::NoStream(_) | Self::Deleted | Self::Closed => None,
            Self::Failed(error) => Some(&**error),
        }
    }
}

impl From<InvalidSubject> for StreamError {
    fn from(error: InvalidSubject) -> Self {
        Self::InvalidPattern(error)
    }
}

/// A message or option without an equivalent in NATS.
#[derive(Debug)]
pub(crate) struct UnsupportedFeature(pub(crate) &'static str);

impl fmt::Display for UnsupportedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for UnsupportedFeature {}
