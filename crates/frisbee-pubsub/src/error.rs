//! Error types, one for each operation of a client.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::InvalidSubject;

/// A broker's answer to a request it did not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Category of the reason.
    pub code: RefusalCode,
    /// Explanation for humans. May be empty.
    pub text: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.code {
            RefusalCode::Malformed => "the broker cannot read the packet",
            RefusalCode::Denied => "the broker denied permission",
            RefusalCode::LimitReached => "a limit of the broker is reached",
            RefusalCode::ShuttingDown => "the broker is shutting down",
            RefusalCode::Unknown => "the broker refused for an unknown reason",
        })?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

impl Error for Refusal {}

/// Category of a broker's reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The broker cannot parse the packet. The client is at fault.
    Malformed,
    /// The client lacks permission.
    Denied,
    /// A limit of the broker is reached.
    LimitReached,
    /// The broker is shutting down and accepts nothing new.
    ShuttingDown,
    /// A code added by a newer version of the protocol.
    Unknown,
}

/// Reason for a failed publication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The subject is invalid. Nothing was sent.
    InvalidSubject(InvalidSubject),
    /// The message exceeds the size limit of the connection. Nothing was sent.
    TooLarge {
        /// Bytes of the message, including its subjects.
        len: usize,
        /// Limit exceeded by the message, set by this side or by the broker.
        limit: usize,
    },
    /// The broker refused the message.
    Refused(Refusal),
    /// The connection was lost before the broker answered.
    Lost {
        /// True if the socket accepted the message. The broker may have received it then.
        may_have_left: bool,
    },
    /// The broker did not answer within [`answer_max`](crate::ClientBuilder::answer_max), although the connection lives. It
    /// may have received the message.
    NoAnswer {
        /// Limit of the wait.
        limit: Duration,
    },
    /// No connection was established within [`wait_max`](crate::ClientBuilder::wait_max). Nothing was sent.
    NotConnected,
    /// The client was closed. Nothing was sent.
    Closed,
    /// Error of another [`Backend`](crate::Backend).
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSubject(error) => error.fmt(f),
            Self::TooLarge { len, limit } => write!(f, "{len} bytes including subjects exceed the limit of {limit}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost { may_have_left: true } => {
                f.write_str("the connection was lost before the broker answered; it may have received the message")
            }
            Self::Lost { may_have_left: false } => f.write_str("the connection was lost before the message was sent"),
            Self::NoAnswer { limit } => {
                write!(f, "the broker did not answer within {limit:?} (answer_max); it may have received the message")
            }
            Self::NotConnected => f.write_str("no connection to the broker was established in time"),
            Self::Closed => f.write_str("the client is closed"),
            Self::Backend(error) => error.fmt(f),
        }
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InvalidSubject(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::Backend(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<InvalidSubject> for PublishError {
    fn from(error: InvalidSubject) -> Self {
        Self::InvalidSubject(error)
    }
}

/// Reason for a failed attempt to publish without waiting.
#[derive(Clone, Debug)]
pub enum TryPublishError {
    /// The publisher has no credit, or the outbox of the connection is full. Returns the payload.
    Full(Bytes),
    /// The message cannot be published. Waiting would not help.
    Failed(PublishError),
}

impl fmt::Display for TryPublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str(
                "there is no credit for publishing, or the outbox is full: try again later, or wait with `publish`",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for TryPublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Full(_) => None,
            Self::Failed(error) => Some(error),
        }
    }
}

impl<E: Into<PublishError>> From<E> for TryPublishError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Reason for a failed subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The pattern or the name of the group is invalid. Nothing was sent.
    InvalidPattern(InvalidSubject),
    /// The broker refused the subscription.
    Refused(Refusal),
    /// The client has reached its limit on subscriptions, in total or with this pattern.
    TooMany {
        /// Limit on the number of subscriptions.
        limit: usize,
    },
    /// The connection was lost before the broker answered.
    Lost,
    /// The broker did not answer within [`answer_max`](crate::ClientBuilder::answer_max), or there was no connection.
    NoAnswer {
        /// Limit of the wait.
        limit: Duration,
    },
    /// The client was closed.
    Closed,
    /// Error of another [`Backend`](crate::Backend).
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPattern(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::TooMany { limit } => {
                write!(f, "this client has reached its limit of {limit} subscriptions, in total or with this pattern")
            }
            Self::Lost => f.write_str("the connection was lost before the broker answered"),
            Self::NoAnswer { limit } => write!(f, "no broker answered within {limit:?} (answer_max)"),
            Self::Closed => f.write_str("the client is closed"),
            Self::Backend(error) => error.fmt(f),
        }
    }
}

impl Error for SubscribeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InvalidPattern(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::Backend(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<InvalidSubject> for SubscribeError {
    fn from(error: InvalidSubject) -> Self {
        Self::InvalidPattern(error)
    }
}

/// Reason for a request without an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The subject has no subscribers. The broker reports this without waiting for the timeout.
    NoResponders,
    /// The subject has subscribers, but none of them answered in time.
    TimedOut,
    /// The request was not published.
    Publish(PublishError),
    /// The client could not subscribe to its own answers.
    Subscribe(SubscribeError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponders => f.write_str("the subject has no subscribers"),
            Self::TimedOut => f.write_str("no subscriber answered in time"),
            Self::Publish(error) => error.fmt(f),
            Self::Subscribe(error) => write!(f, "cannot subscribe to the answers: {error}"),
        }
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Publish(error) => Some(error),
            Self::Subscribe(error) => Some(error),
            _ => None,
        }
    }
}

impl<E: Into<PublishError>> From<E> for RequestError {
    fn from(error: E) -> Self {
        Self::Publish(error.into())
    }
}

/// Reason for the end of a subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscriptionEnd {
    /// The subscriber unsubscribed.
    Unsubscribed,
    /// The [`Policy`](crate::Policy) ended it because the subscriber took messages too slowly.
    TooSlow {
        /// Messages lost to the subscriber and not reported before.
        missing: u64,
    },
    /// The broker refused to resume the subscription, for example after a reconnection.
    Refused(Refusal),
    /// The connection was lost, and the client does not reconnect.
    Lost,
    /// The client was closed.
    Closed,
    /// Error of another [`Backend`](crate::Backend).
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for SubscriptionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsubscribed => f.write_str("this side unsubscribed"),
            Self::TooSlow { missing } => {
                write!(f, "the subscriber took messages too slowly ({missing} missing)")
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost => f.write_str("the connection was lost"),
            Self::Closed => f.write_str("the client is closed"),
            Self::Backend(error) => error.fmt(f),
        }
    }
}

impl Error for SubscriptionEnd {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Backend(error) => Some(&**error),
            _ => None,
        }
    }
}
