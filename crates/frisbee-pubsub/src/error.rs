//! Errors: one type for each question that a caller can ask.

use std::{error::Error, fmt, sync::Arc};

use bytes::Bytes;

use crate::InvalidSubject;

/// The answer of a broker that does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of reason.
    pub code: RefusalCode,
    /// The reason in words.
    pub text: String,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.code {
            RefusalCode::Malformed => "the broker cannot read the packet",
            RefusalCode::Denied => "the broker does not allow it",
            RefusalCode::LimitReached => "a limit of the broker is reached",
            RefusalCode::ShuttingDown => "the broker shuts down",
            RefusalCode::Unknown => "the broker refuses, for a reason that is not known here",
        })?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

impl Error for Refusal {}

/// The kind of reason for which a broker refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCode {
    /// It cannot read what it was sent: the fault of the client.
    Malformed,
    /// The client is not allowed to do that.
    Denied,
    /// There is no room for it.
    LimitReached,
    /// The broker takes nothing new.
    ShuttingDown,
    /// A code that a later broker has.
    Unknown,
}

/// The reason why something was not published.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The subject cannot be one. Nothing was sent.
    InvalidSubject(InvalidSubject),
    /// The message is larger than the connection carries. Nothing was sent.
    TooLarge {
        /// Bytes of the message with its subjects.
        len: usize,
        /// The most that both sides carry.
        limit: usize,
    },
    /// The broker refused it.
    Refused(Refusal),
    /// The connection was lost. Whether the broker has got the message is not known if it may have left.
    Lost {
        /// True if the message was given to the socket.
        may_have_left: bool,
    },
    /// There was no connection for as long as a message may wait for one. Nothing was sent.
    NotConnected,
    /// The client was closed. Nothing was sent.
    Closed,
    /// An error of another backend.
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSubject(error) => error.fmt(f),
            Self::TooLarge { len, limit } => write!(f, "{len} bytes with subjects, the limit is {limit}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost { may_have_left: true } => {
                f.write_str("the connection was lost before the broker answered; it may have got the message")
            }
            Self::Lost { may_have_left: false } => f.write_str("the connection was lost before the message left"),
            Self::NotConnected => f.write_str("there is no connection to the broker"),
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

/// The reason why something was not published without waiting.
#[derive(Clone, Debug)]
pub enum TryPublishError {
    /// The broker has to give credit first, or the connection takes nothing now. Gives the payload back.
    Full(Bytes),
    /// It cannot be published, and waiting would not help.
    Failed(PublishError),
}

impl fmt::Display for TryPublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the broker has to give credit first, or the outbox is full"),
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

/// The reason why there is no subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The pattern, or the name of the group, cannot be one. Nothing was sent.
    InvalidPattern(InvalidSubject),
    /// The broker refused it.
    Refused(Refusal),
    /// This client has as many subscriptions as it may have.
    TooMany {
        /// The most that there may be.
        limit: usize,
    },
    /// The connection was lost before the broker answered.
    Lost,
    /// The client was closed.
    Closed,
    /// An error of another backend.
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPattern(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::TooMany { limit } => write!(f, "this client has {limit} subscriptions already"),
            Self::Lost => f.write_str("the connection was lost before the broker answered"),
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

/// The reason why a request has no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// Nobody has subscribed to the subject: known at once.
    NoResponders,
    /// Somebody has subscribed, and nobody answered in time.
    TimedOut,
    /// The request was not published.
    Publish(PublishError),
    /// The answers could not be subscribed to.
    Subscribe(SubscribeError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponders => f.write_str("nobody has subscribed to the subject"),
            Self::TimedOut => f.write_str("nobody answered in time"),
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

/// The reason why a subscription ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscriptionEnd {
    /// This side ended it.
    Unsubscribed,
    /// Its [`Policy`](crate::Policy) ended it, because this side took messages too slowly.
    TooSlow {
        /// Messages that it did not get.
        missing: u64,
    },
    /// The broker does not go on with it, such as after a connection was lost.
    Refused(Refusal),
    /// The connection was lost, and there will be no other.
    Lost,
    /// The client was closed.
    Closed,
    /// An error of another backend.
    Backend(Arc<dyn Error + Send + Sync>),
}

impl fmt::Display for SubscriptionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsubscribed => f.write_str("the subscription was ended by this side"),
            Self::TooSlow { missing } => {
                write!(f, "the subscription was ended because messages were not taken fast enough ({missing} missing)")
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
