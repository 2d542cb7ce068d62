//! Errors of calls, servers and channels on this side.

use std::{fmt, io, sync::Arc, time::Duration};

use frisbee::{CloseReason, GoAway, InvalidSetting, OpenError, RefusalReason};

use crate::{
    call::status::{Code, Status},
    codec::{CodecError, Failure},
    service::table::Collision,
};

/// The reason for a call without an answer from its handler.
///
/// Returned by [`Status::call_error`]. A status from a handler has none, and neither has a refusal by a server with
/// plain fRPC, which sends only a code and a text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The connection ended before the answer arrived.
    ///
    /// A server in a graceful shutdown answers all received requests before it closes the connection. So if the request
    /// may have been executed, the server crashed, was cut off, or stopped without waiting for it.
    ConnectionLost {
        /// The reason for the end of the connection.
        reason: CloseReason,
        /// True if the request may have reached a handler. If false, a retry is safe for any method.
        may_have_executed: bool,
    },
    /// The connection was lost earlier, and the server cannot be reached. Nothing was sent.
    Unreachable(Arc<ConnectError>),
    /// The timeout passed before the request was sent. The request was not executed.
    ///
    /// The call was waiting for a connection, for the end of other calls, or for a peer that did not read.
    NotSent {
        /// The timeout of the call.
        limit: Duration,
    },
    /// No answer arrived before the timeout. The request may have been executed, or may still be executing.
    TimedOut {
        /// The timeout of the call.
        limit: Duration,
    },
    /// The peer refused the call before it reached a handler. The request was not executed.
    Refused {
        /// The peer's reason.
        why: RefusalReason,
    },
    /// The peer takes no new calls on the connection, because it is shutting down or the connection is old.
    ///
    /// Nothing was sent. A channel made by `connect` makes the call on a new connection instead. A channel over an
    /// existing connection or stream cannot.
    GoingAway {
        /// The peer's reason.
        why: GoAway,
    },
    /// The connection is at its limit of concurrent calls, and the channel does not wait.
    TooManyCalls {
        /// [`ChannelCallSettings::calls_max`](crate::ChannelCallSettings::calls_max).
        limit: usize,
    },
    /// The peer is at its limit of concurrent calls for this connection. The request was not executed.
    TooManyForPeer {
        /// [`CallSettings::calls_max`](crate::CallSettings::calls_max) of the peer.
        limit: u32,
    },
    /// The connection is at its limit of concurrent streams. Nothing was sent.
    ///
    /// [`Config::streams_max`](frisbee::Config::streams_max) of one side allows no more. Other calls of the connection go on.
    TooManyStreams {
        /// The limit, and the side that sets it.
        why: OpenError,
    },
    /// No packet id is free: too many cancelled calls may still be answered.
    ///
    /// A new call with such an id could get the answer to an old one. Nothing was sent. A channel made by
    /// `connect` makes the call on a new connection instead. A channel over an existing connection or stream takes
    /// calls again as the answers arrive.
    OutOfIds {
        /// The number of outstanding answers. More than half of the 65 536 ids.
        owed: usize,
    },
    /// The answer exceeds the size limit of this side and was discarded. The request was executed.
    AnswerTooLarge {
        /// The length of the answer in bytes.
        len: u32,
        /// [`Config::content_len_max`](frisbee::Config::content_len_max) of this side.
        limit: u32,
    },
    /// The call has metadata, but the peer speaks plain fRPC, which cannot carry it. Nothing was sent.
    ///
    /// Remove the metadata, or accept its loss with
    /// [`ChannelCallSettings::lost_metadata`](crate::ChannelCallSettings::lost_metadata).
    MetadataNotCarried {
        /// The first name in the metadata.
        name: String,
    },
    /// The channel refuses the call itself while the servers refuse many calls
    /// ([`FleetSettings::throttle`](crate::fleet::FleetSettings::throttle)). Not executed.
    Throttled,
    /// A message exceeds the size limit of the connection. It was not sent.
    MessageTooLarge {
        /// The length of the message in bytes.
        len: usize,
        /// [`Config::content_len_max`](frisbee::Config::content_len_max).
        limit: u32,
    },
}

impl CallError {
    /// Returns whether the call can be retried without the risk of executing it twice.
    pub fn is_safe_to_repeat(&self) -> bool {
        !matches!(
            self,
            Self::ConnectionLost { may_have_executed: true, .. } | Self::TimedOut { .. } | Self::AnswerTooLarge { .. }
        )
    }
}

/// The cause of a failure that a server reports instead of a handler.
///
/// Extended peers send it as a separate field. A status cannot contain it, so a handler that forwards the status of
/// its own call never appears to be a server that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCause {
    /// [`CallError::Refused`].
    Refused(RefusalReason),
    /// [`CallError::TooManyForPeer`].
    TooManyCalls { limit: u32 },
    /// [`CallError::AnswerTooLarge`].
    AnswerTooLarge { len: u32, limit: u32 },
}

/// A failed call on the server: the status for its caller, and the cause if the server itself reports it.
#[derive(Clone, Debug)]
pub(crate) struct ServerFailure {
    pub(crate) status: Status,
    pub(crate) cause: Option<ServerCause>,
}

impl From<ServerCause> for CallError {
    fn from(cause: ServerCause) -> Self {
        match cause {
            ServerCause::Refused(why) => Self::Refused { why },
            ServerCause::TooManyCalls { limit } => Self::TooManyForPeer { limit },
            ServerCause::AnswerTooLarge { len, limit } => Self::AnswerTooLarge { len, limit },
        }
    }
}

impl From<ServerCause> for ServerFailure {
    fn from(cause: ServerCause) -> Self {
        Self { status: CallError::from(cause).into(), cause: Some(cause) }
    }
}

impl From<Status> for ServerFailure {
    fn from(mut status: Status) -> Self {
        let cause = status.is_refusal().then_some(ServerCause::Refused(RefusalReason::Busy));
        if cause.is_some() {
            // The cause says it already.
            status.take_not_executed();
        }
        Self { status, cause }
    }
}

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
            Self::Refused { why } => write!(f, "{why}: the call was not executed"),
            Self::GoingAway { why } => write!(f, "the peer takes no new calls on this connection: {}", why.text),
            Self::TooManyCalls { limit } => write!(f, "the connection already has {limit} calls in flight (calls_max)"),
            Self::TooManyForPeer { limit } => {
                write!(f, "the peer takes at most {limit} calls at once (calls_max): the call was not executed")
            }
            Self::TooManyStreams { why } => write!(f, "{why}: the call was not sent"),
            Self::OutOfIds { owed } => {
                write!(f, "{owed} cancelled calls on the connection may still be answered: it takes no new calls")
            }
            Self::AnswerTooLarge { len, limit } => {
                write!(f, "the client accepts at most {limit} bytes (content_len_max), the answer has {len}")
            }
            Self::MetadataNotCarried { name } => {
                write!(
                    f,
                    "the peer speaks plain fRPC, which carries no metadata ({name}): remove it, or accept its loss \
                     (lost_metadata)"
                )
            }
            Self::Throttled => f.write_str("the servers refuse many calls, so the channel refuses this one (throttle)"),
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
    /// Returns the reason if the call got no answer from its handler. `None` for a status from the handler.
    pub fn call_error(&self) -> Option<&CallError> {
        std::error::Error::source(self)?.downcast_ref()
    }
}

/// Reads the refusal of a server on a wire without a field for it.
pub(crate) fn recognize_refusal(mut status: Status) -> Status {
    match status.take_not_executed() {
        true => status.with_source(Arc::new(CallError::Refused { why: RefusalReason::Busy }) as Arc<_>),
        false => status,
    }
}

/// Converts a failure sent by the peer. Never [`Code::Ok`], whatever the peer sends.
impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = failure.code.map_or(Code::Unknown, |code| Code::from_number(code.into()));
        Self::new(if code == Code::Ok { Code::Unknown } else { code }, failure.text)
    }
}

/// Converts the error of a call without an answer. The error becomes the source of the status.
impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::ConnectionLost { .. } | CallError::Unreachable(_) | CallError::GoingAway { .. } => {
                Code::Unavailable
            }
            CallError::Refused { why: RefusalReason::Draining } => Code::Unavailable,
            CallError::NotSent { .. }
            | CallError::TimedOut { .. }
            | CallError::Refused { why: RefusalReason::Expired } => Code::DeadlineExceeded,
            CallError::MetadataNotCarried { .. } => Code::FailedPrecondition,
            CallError::Refused { .. }
            | CallError::TooManyCalls { .. }
            | CallError::TooManyForPeer { .. }
            | CallError::TooManyStreams { .. }
            | CallError::OutOfIds { .. }
            | CallError::Throttled
            | CallError::MessageTooLarge { .. }
            | CallError::AnswerTooLarge { .. } => Code::ResourceExhausted,
        };
        Self::new(code, error.to_string()).with_source(Arc::new(error) as Arc<_>)
    }
}

/// The reason for a server that did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// A service was added twice.
    Collision(Collision),
    /// A setting allows no call to be served.
    Setting(InvalidSetting),
    /// The address is invalid or in use.
    Listen(io::Error),
    /// A wire cannot serve the services: [`Wire::prepare`](crate::Wire::prepare).
    Wire(Box<dyn std::error::Error + Send + Sync>),
}

/// The reason for a failed connect.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A service offered to the server was added twice.
    Collision(Collision),
    /// A setting allows no call to be made.
    Setting(InvalidSetting),
    /// The address is invalid or cannot be used: no transport has its scheme, or its server reports that it does not serve.
    Address(io::Error),
    /// The server cannot be reached.
    Connect(frisbee::ConnectError),
    /// None of several servers can be reached, or they cannot be found. The error is the last one.
    Endpoints(Arc<ConnectError>),
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

one_of!(ServeError {
    Collision(Collision),
    Setting(InvalidSetting),
    Listen(io::Error),
    Wire(Box<dyn std::error::Error + Send + Sync>)
});
one_of!(ConnectError {
    Collision(Collision),
    Setting(InvalidSetting),
    Address(io::Error),
    Connect(frisbee::ConnectError),
    Endpoints(Arc<ConnectError>)
});

impl ConnectError {
    /// Returns `true` for failed TLS handshakes, such as for an untrusted certificate or a server without TLS.
    ///
    /// With TLS 1.3, a server refuses the certificate of a client after the handshake: the connection is then lost.
    pub fn is_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        {
            use std::error::Error;

            let first: &(dyn Error + 'static) = match self {
                Self::Endpoints(last) => return last.is_tls(),
                Self::Address(error) => error,
                Self::Connect(error) => error,
                Self::Collision(_) | Self::Setting(_) => return false,
            };
            // The source of an I/O error is that of the error inside.
            std::iter::successors(Some(first), |&error| {
                match error.downcast_ref::<io::Error>().map(io::Error::get_ref) {
                    Some(Some(inner)) => Some(inner as &(dyn Error + 'static)),
                    Some(None) => None,
                    None => error.source(),
                }
            })
            .any(|error| error.is::<frisbee::rustls::Error>())
        }
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// Converts the error of a message that could not be encoded or decoded: a bug on either side, or different schemas.
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
