//! Errors of calls, servers and channels on this side.

use std::{fmt, io, sync::Arc, time::Duration};

use frisbee::{CloseReason, GoAway, InvalidSetting, Refusal};

use crate::{
    call::status::{Code, Status},
    codec::{CodecError, Failure},
    service::table::Collision,
};

/// The reason why a call got no answer, as [`Status::call_error`] returns it for a status that was made on the calling
/// side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The connection ended before the answer came. A server that shuts down in good order answers what it received
    /// before it closes the connection, so a request that may have been executed was not lost to that: the server
    /// crashed, was cut off, or went without waiting for it.
    ConnectionLost {
        /// The reason of its end.
        reason: CloseReason,
        /// True if the request may have reached a handler. If not, it is safe to make the call again, whatever it does.
        may_have_executed: bool,
    },
    /// The connection was lost before, and the server cannot be reached. Nothing was sent.
    Unreachable(Arc<ConnectError>),
    /// The time was up before the request was sent: while the channel connected, while there were as many calls as there may
    /// be, or while the peer took nothing. It was not executed.
    NotSent {
        /// The timeout of the call.
        limit: Duration,
    },
    /// The answer did not come in time. The request may have been executed, and may still be.
    TimedOut {
        /// The timeout of the call.
        limit: Duration,
    },
    /// The peer turned the call away before a handler saw it. It was not executed.
    Refused {
        /// The peer's reason.
        why: Refusal,
    },
    /// The peer wants no new calls on the connection, because it shuts down or the connection is old. Nothing was sent. A
    /// channel that connects by itself makes the call on a new connection instead; one over a connection of somebody else
    /// cannot.
    GoingAway {
        /// The peer's reason.
        why: GoAway,
    },
    /// There are as many calls on the connection as it may have, and the channel does not wait.
    TooManyCalls {
        /// [`ChannelBuilder::calls_max`](crate::ChannelBuilder::calls_max).
        limit: usize,
    },
    /// The peer has as many calls of this side under way as it takes at once. It was not executed.
    TooManyForPeer {
        /// [`ServerBuilder::calls_max`](crate::ServerBuilder::calls_max) of the peer.
        limit: u32,
    },
    /// Too many calls on the connection were given up and may still be answered, which leaves no ids for new ones: a call
    /// with such an id could get the answer of another. Nothing was sent. A channel that connects by itself makes
    /// the call on a new connection instead; one over a connection of somebody else takes calls again as the answers
    /// come.
    OutOfIds {
        /// The number of answers that may still come. More than half of the 65 536 ids.
        owed: usize,
    },
    /// The answer is larger than this side accepts, and was discarded. The request was executed.
    AnswerTooLarge {
        /// Its length in bytes.
        len: u32,
        /// [`Config::content_len_max`](frisbee::Config::content_len_max) of this side.
        limit: u32,
    },
    /// The call has metadata, and the peer speaks plain fRPC, which carries none. Nothing was sent. Remove the metadata, or
    /// accept its loss with [`ChannelBuilder::lost_metadata`](crate::ChannelBuilder::lost_metadata).
    MetadataNotCarried {
        /// The first of the names.
        name: String,
    },
    /// A message is larger than the connection carries. It was not sent.
    MessageTooLarge {
        /// Its length in bytes.
        len: usize,
        /// [`Config::content_len_max`](frisbee::Config::content_len_max).
        limit: u32,
    },
}

impl CallError {
    /// Returns whether the call can be made again without any risk that it is executed twice.
    pub fn is_safe_to_repeat(&self) -> bool {
        !matches!(
            self,
            Self::ConnectionLost { may_have_executed: true, .. } | Self::TimedOut { .. } | Self::AnswerTooLarge { .. }
        )
    }
}

/// The end of every text of [`CallError::Refused`], by which the calling side knows it again.
pub(crate) const NOT_EXECUTED: &str = "was not executed";

/// The beginning of the text of [`CallError::AnswerTooLarge`].
const ANSWER_TOO_LARGE: &str = "the client accepts at most";

/// The beginning of the text of a status that a handler passes on, where the text alone would be that of its own server.
const PASSED_ON: &str = "a call that the handler made failed: ";

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectionLost { reason, may_have_executed: true } => {
                write!(f, "connection lost, the request may have been executed: {reason}")
            }
            Self::ConnectionLost { reason, may_have_executed: false } => {
                write!(f, "connection lost, the request was not sent: {reason}")
            }
            Self::Unreachable(error) => error.fmt(f),
            Self::NotSent { limit } => write!(f, "the request could not be sent within {limit:?}"),
            Self::TimedOut { limit } => write!(f, "no answer within {limit:?}"),
            Self::Refused { why } => write!(f, "{why}: the call {NOT_EXECUTED}"),
            Self::GoingAway { why } => write!(f, "the peer takes no new calls on this connection: {}", why.text),
            Self::TooManyCalls { limit } => write!(f, "{limit} calls wait on the connection already (calls_max)"),
            Self::TooManyForPeer { limit } => {
                write!(f, "the peer takes at most {limit} calls at once (calls_max): the call {NOT_EXECUTED}")
            }
            Self::OutOfIds { owed } => {
                write!(
                    f,
                    "{owed} calls on the connection were given up and may still be answered: it takes no new calls"
                )
            }
            Self::AnswerTooLarge { len, limit } => {
                write!(f, "{ANSWER_TOO_LARGE} {limit} bytes (content_len_max), the answer has {len}")
            }
            Self::MetadataNotCarried { name } => {
                write!(
                    f,
                    "the peer speaks plain fRPC, which carries no metadata ({name}): remove it, or accept its loss \
                     (lost_metadata)"
                )
            }
            Self::MessageTooLarge { len, limit } => {
                write!(f, "the message has {len} bytes, the limit is {limit} (content_len_max)")
            }
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ConnectionLost { reason, .. } => Some(reason),
            Self::Unreachable(error) => Some(&**error),
            _ => None,
        }
    }
}

impl Status {
    /// Returns the status of a peer with its cause, if it is one of those that this side would have had as well.
    pub(crate) fn with_known_cause(self) -> Self {
        let text = self.message();
        let may_be = text.ends_with(NOT_EXECUTED) || text.starts_with(ANSWER_TOO_LARGE);
        may_be.then(|| with_cause(&self)).flatten().unwrap_or(self)
    }

    /// Returns the status of a handler as its caller gets it. One that the handler passes on from a call of its own could be taken
    /// for this side's refusal of the handler's call, by its text: then the text says where it comes from.
    pub(crate) fn of_handler(self) -> Self {
        let text = self.message();
        let may_be = text.ends_with(NOT_EXECUTED) || text.starts_with(ANSWER_TOO_LARGE);
        if may_be { self.not_ours() } else { self }
    }

    #[cold]
    fn not_ours(self) -> Self {
        let is_ours = with_cause(&self).is_some();
        if is_ours { self.map_message(|text| format!("{PASSED_ON}{text}")) } else { self }
    }

    /// Returns what went wrong on the way, if the status was made on this side because the call did not come through.
    pub fn call_error(&self) -> Option<&CallError> {
        std::error::Error::source(self)?.downcast_ref()
    }
}

/// Reads the answer of a peer. A failure is never [`Code::Ok`], whatever the peer says.
impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = failure.code.map_or(Code::Unknown, |code| Code::from_number(code.into()));
        let status = Self::new(if code == Code::Ok { Code::Unknown } else { code }, failure.text);
        status.with_known_cause()
    }
}

/// Returns the same status with its cause, if the peer refused the call or could not send its answer. The wire has no other
/// place for the cause than its text.
fn with_cause(status: &Status) -> Option<Status> {
    let mut numbers = status.message().split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    let first = numbers.next();
    let too_many = first.map(|limit| CallError::TooManyForPeer { limit });
    let sizes = first.zip(numbers.next());
    let too_large = sizes.map(|(limit, announced)| Refusal::TooLarge { announced, limit });
    let refusals = [Refusal::Busy, Refusal::Expired, Refusal::Draining].into_iter().chain(too_large);
    let unsent = sizes.map(|(limit, len)| CallError::AnswerTooLarge { len, limit });
    let causes = refusals.map(|why| CallError::Refused { why }).chain(unsent).chain(too_many);
    let is_same = |cause: &Status| (cause.code(), cause.message()) == (status.code(), status.message());
    causes.map(Status::from).find(is_same)
}

/// Makes the status of a call that did not come through, with the error as its source.
impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::ConnectionLost { .. } | CallError::Unreachable(_) | CallError::GoingAway { .. } => {
                Code::Unavailable
            }
            CallError::Refused { why: Refusal::Draining } => Code::Unavailable,
            CallError::NotSent { .. } | CallError::TimedOut { .. } | CallError::Refused { why: Refusal::Expired } => {
                Code::DeadlineExceeded
            }
            CallError::MetadataNotCarried { .. } => Code::FailedPrecondition,
            CallError::Refused { .. }
            | CallError::TooManyCalls { .. }
            | CallError::TooManyForPeer { .. }
            | CallError::OutOfIds { .. }
            | CallError::MessageTooLarge { .. }
            | CallError::AnswerTooLarge { .. } => Code::ResourceExhausted,
        };
        Self::new(code, error.to_string()).with_source(Arc::new(error) as Arc<_>)
    }
}

/// The reason why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// A service is there twice.
    Collision(Collision),
    /// A setting allows no call to be served.
    Setting(InvalidSetting),
    /// The address is no good, or taken.
    Listen(io::Error),
}

/// The reason why there is no channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A service that the channel offers to the server is there twice.
    Collision(Collision),
    /// A setting allows no call to be made.
    Setting(InvalidSetting),
    /// The text is no address.
    Address(io::Error),
    /// The server cannot be reached.
    Connect(frisbee::ConnectError),
}

macro_rules! one_of {
    ($name:ident { $($variant:ident($source:ty)),* }) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(error) => error.fmt(f),)*
                }
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $(Self::$variant(error) => error.source(),)*
                }
            }
        }

        $(impl From<$source> for $name {
            fn from(error: $source) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

one_of!(ServeError { Collision(Collision), Setting(InvalidSetting), Listen(io::Error) });
one_of!(ConnectError {
    Collision(Collision),
    Setting(InvalidSetting),
    Address(io::Error),
    Connect(frisbee::ConnectError)
});

/// A message that could not be written or read: a bug on either side, or different schemas.
impl From<CodecError> for Status {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Failure(failure) => failure.into(),
            CodecError::Polyglot(error) => error.into(),
            error @ CodecError::OtherCodec { .. } => {
                Self::unimplemented(error.to_string()).with_source(Arc::new(error) as Arc<_>)
            }
            error => {
                let source: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
                Self::internal(source.to_string()).with_source(source)
            }
        }
    }
}
