//! Error types of the crate.

use std::{fmt, sync::Arc, time::Duration};

use crate::Packet;

/// A setting with an unusable value, found before anything listens or connects.
///
/// Converts to an [`io::Error`](std::io::Error) of kind [`InvalidInput`](std::io::ErrorKind::InvalidInput).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    name: &'static str,
    why: String,
}

impl InvalidSetting {
    /// Creates an error for the setting `name`. Crates built on this one use it for their own settings.
    pub fn new(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, why: why.into() }
    }

    /// Returns an error if `value` is zero. `effect` describes the consequence of a zero in the message.
    pub fn refuse_zero<T: Default + PartialEq>(name: &'static str, value: &T, effect: &str) -> Result<(), Self> {
        if *value != T::default() {
            return Ok(());
        }
        Err(Self::new(name, format!("must not be zero: {effect}")))
    }

    /// Returns the name of the setting, such as `handlers_max`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.why)
    }
}

impl std::error::Error for InvalidSetting {}

impl From<InvalidSetting> for std::io::Error {
    fn from(error: InvalidSetting) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
    }
}

/// A violation of the wire format by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The peer does not speak frisbee.
    Foreign(ForeignProtocol),
    /// A packet did not start with the magic number.
    BadMagic {
        /// The two bytes found instead.
        found: u16,
    },
    /// The peer announced more content than this side accepts or [discards](crate::Config::discard_len_max).
    ContentTooLarge {
        /// Bytes of content announced by the peer.
        announced: u32,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
    /// A PING or PONG announced content.
    HeartbeatWithContent {
        /// Bytes of content announced by the peer.
        announced: u32,
    },
    /// The peer sent control packets faster than [`Config::control_burst`](crate::Config::control_burst) allows.
    ControlFlood {
        /// The configured burst.
        burst: u32,
    },
    /// The peer withdrew packets faster than [`Config::cancel_burst`](crate::Config::cancel_burst) allows.
    CancelFlood {
        /// The configured burst.
        burst: u32,
    },
    /// A frame does not match its checksum. Faulty memory, a network card or a middlebox changed it on its way.
    BadChecksum,
    /// A control frame of the extended protocol is malformed.
    BadControl {
        /// The kind of the frame, as named in docs/protocol.md.
        kind: &'static str,
        /// The broken rule, as the rest of a sentence about the frame.
        why: &'static str,
    },
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::BadMagic { found } => {
                write!(f, "packet starts with {found:#06x} instead of the magic number 0x000f")
            }
            Self::ContentTooLarge { announced, limit } => {
                write!(f, "packet announces {announced} bytes of content, the limit is {limit} (content_len_max)")
            }
            Self::HeartbeatWithContent { announced } => {
                write!(f, "heartbeat announces {announced} bytes of content, it must have none")
            }
            Self::ControlFlood { burst } => {
                write!(f, "more control packets than the allowance of {burst} (control_burst)")
            }
            Self::CancelFlood { burst } => {
                write!(f, "more packets withdrawn than the allowance of {burst} (cancel_burst)")
            }
            Self::BadChecksum => f.write_str("frame does not match its checksum: it was changed between the peers"),
            Self::BadControl { kind, why } => write!(f, "a {kind} frame {why}"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// The reason for the end of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed the connection, through its handle or the outcome of a handler.
    Local,
    /// The peer closed the connection, or its write half, after a complete packet.
    ///
    /// A server closes this way at the end of a shutdown, with everything it received answered. With nothing in
    /// flight, this is therefore an orderly end. With requests in flight, the peer left without answering them.
    /// The wire format has no message for an orderly end: a process killed while idle looks the same.
    Peer,
    /// The input ended in the middle of a packet: the peer crashed, or the network cut it off.
    Truncated,
    /// The server of this connection shut down.
    Shutdown,
    /// The connection reached the server's age limit, and its peer did not leave in time.
    TooOld,
    /// This side took over the connection as a raw byte stream.
    TakenOver,
    /// Nothing arrived from the peer for too long.
    Silent {
        /// [`Config::silence_max`](crate::Config::silence_max).
        limit: Duration,
    },
    /// The peer stopped reading, and a write made no progress for too long.
    WriteStalled {
        /// [`Config::write_stall_max`](crate::Config::write_stall_max).
        limit: Duration,
    },
    /// The peer broke a rule of the wire format.
    Protocol(ProtocolError),
    /// A handler of this side panicked with this message.
    HandlerPanicked(Arc<str>),
    /// A handler of this side replied with more content than the connection carries. Its caller cannot be
    /// answered.
    ReplyTooLarge {
        /// Bytes of content.
        len: usize,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
    /// The peer read too slowly, and the outbox is configured to close the connection.
    OutboxFull {
        /// [`OutboxLimit::len_max`](crate::OutboxLimit::len_max).
        limit: usize,
    },
    /// The socket failed.
    Io(Arc<std::io::Error>),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this side"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Truncated => {
                f.write_str("the input ended in the middle of a packet: the peer crashed, or the network cut it off")
            }
            Self::Shutdown => f.write_str("the server shut down"),
            Self::TooOld => f.write_str("the connection reached its age limit (connection_age_max)"),
            Self::TakenOver => f.write_str("taken over as a raw connection"),
            Self::Silent { limit } => write!(f, "nothing received for {limit:?} (silence_max)"),
            Self::WriteStalled { limit } => write!(f, "the peer read nothing for {limit:?} (write_stall_max)"),
            Self::Protocol(error) => write!(f, "the peer broke the protocol: {error}"),
            Self::HandlerPanicked(message) => write!(f, "a handler panicked: {message}"),
            Self::ReplyTooLarge { len, limit } => {
                write!(f, "a handler replied with {len} bytes of content, the limit is {limit} (content_len_max)")
            }
            Self::OutboxFull { limit } => {
                write!(f, "the peer reads too slowly: more than {limit} bytes are queued for it (len_max)")
            }
            Self::Io(error) => write!(f, "connection failed: {error}"),
        }
    }
}

impl std::error::Error for CloseReason {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Protocol(error) => Some(error),
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// An error from sending a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is closed or closing and sends nothing more.
    Closed,
    /// The content is larger than the connection carries. Nothing was sent, and the connection stays open.
    ContentTooLarge {
        /// Bytes of content.
        len: usize,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
    /// The content is larger than the limit announced by the peer. Nothing was sent, and the connection stays
    /// open.
    TooLargeForPeer {
        /// Bytes of content.
        len: usize,
        /// [`Config::content_len_max`](crate::Config::content_len_max) of the peer.
        limit: u32,
    },
    /// The packet needs an extended peer. This peer is plain, or has not yet announced the extended protocol.
    PlainPeer,
    /// The outbox is full, and the packet was dropped ([`WhenFull::Drop`](crate::WhenFull::Drop)).
    OutboxFull,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection is closed"),
            Self::ContentTooLarge { len, limit } => write_too_large(f, *len, *limit),
            Self::TooLargeForPeer { len, limit } => write_too_large_for_peer(f, *len, *limit),
            Self::PlainPeer => f.write_str("the peer is not known to speak the extended protocol"),
            Self::OutboxFull => f.write_str("the outbox is full, and the packet was dropped"),
        }
    }
}

impl std::error::Error for SendError {}

/// An error from sending data on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamSendError {
    /// The stream ended.
    Ended(StreamEnd),
    /// The data is larger than one packet of the connection. Nothing was sent, and the stream stays open.
    ContentTooLarge {
        /// Bytes of data.
        len: usize,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
    /// The data is larger than the packet limit announced by the peer. Nothing was sent, and the stream stays
    /// open.
    TooLargeForPeer {
        /// Bytes of data.
        len: usize,
        /// [`Config::content_len_max`](crate::Config::content_len_max) of the peer.
        limit: u32,
    },
    /// The data is empty. On the wire, an empty packet closes the stream.
    Empty,
}

impl fmt::Display for StreamSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(end) => end.fmt(f),
            Self::ContentTooLarge { len, limit } => write_too_large(f, *len, *limit),
            Self::TooLargeForPeer { len, limit } => write_too_large_for_peer(f, *len, *limit),
            Self::Empty => f.write_str("data of a stream must not be empty"),
        }
    }
}

impl std::error::Error for StreamSendError {}

fn write_too_large(f: &mut fmt::Formatter<'_>, len: usize, limit: u32) -> fmt::Result {
    write!(f, "{len} bytes of content, the limit is {limit} (content_len_max)")
}

fn write_too_large_for_peer(f: &mut fmt::Formatter<'_>, len: usize, limit: u32) -> fmt::Result {
    write!(f, "{len} bytes of content, the limit of the peer is {limit} (its content_len_max)")
}

/// An error from sending without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrySendError<T = Packet, E = SendError> {
    /// The outbox is full, or the peer has to read more of the stream first. Contains the unsent value for a
    /// retry.
    Full(T),
    /// Sending failed, and waiting would not help.
    Failed(E),
}

impl<T, E: fmt::Display> fmt::Display for TrySendError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the outbox is full (outbox_len_max), or the stream waits for its reader"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<T: fmt::Debug, E: std::error::Error> std::error::Error for TrySendError<T, E> {}

/// A protocol other than frisbee, detected in the first bytes of a peer.
///
/// Either the peer called the wrong port, or this side's client connected to the wrong server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignProtocol {
    /// A client began a TLS handshake.
    TlsClient,
    /// A server that requires TLS rejected this side's unencrypted bytes.
    TlsServer,
    /// An HTTP/1 request.
    Http1Client,
    /// An HTTP/1 response.
    Http1Server,
    /// The connection preface of an HTTP/2 client, for example a gRPC client.
    Http2Client,
    /// The first frame of an HTTP/2 server, for example a gRPC server.
    Http2Server,
}

impl fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TlsClient => {
                "the client began a TLS handshake, and this server has no TLS: configure it here, or connect without it"
            }
            Self::TlsServer => "the server expects TLS: configure TLS on the client",
            Self::Http1Client => "this looks like an HTTP/1 request: call this port with a frisbee or fRPC client",
            Self::Http1Server => "this looks like an HTTP/1 server: it does not speak frisbee",
            Self::Http2Client => {
                "this looks like HTTP/2, perhaps gRPC: call this port with a frisbee or fRPC client, or serve gRPC on another"
            }
            Self::Http2Server => {
                "this looks like an HTTP/2 server, perhaps of gRPC: it does not speak frisbee, call it with a client for gRPC"
            }
        })
    }
}

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEnd {
    /// This side closed the stream.
    Closed,
    /// The peer closed the stream.
    ClosedByPeer,
    /// This side closed the stream: its unread data stayed above the limit for too long.
    Overflow,
    /// The peer sent data larger than this side accepts. That data and everything after it is discarded.
    ///
    /// This side can still send, for a last message, until it drops the stream. Only then does the peer learn of
    /// the end.
    TooLarge {
        /// Bytes of data announced by the peer.
        announced: u32,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
    /// The connection ended.
    ConnectionClosed,
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the stream was closed by this side",
            Self::ClosedByPeer => "the stream was closed by the peer",
            Self::Overflow => "the stream was closed because its unread data exceeded a limit for too long (stream_queue_len_max, stream_stall_max)",
            Self::TooLarge { announced, limit } => {
                return write!(
                    f,
                    "the peer sent {announced} bytes at once on the stream, this side accepts at most {limit} bytes \
                     (content_len_max)"
                );
            }
            Self::ConnectionClosed => "the connection of the stream ended",
        })
    }
}

impl std::error::Error for StreamEnd {}

/// An error from opening a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The connection has as many streams as its configuration allows.
    TooManyStreams {
        /// [`Config::streams_max`](crate::Config::streams_max).
        limit: usize,
    },
    /// This side has opened as many streams as the peer allows.
    TooManyForPeer {
        /// [`Config::streams_max`](crate::Config::streams_max) of the peer.
        limit: u32,
    },
    /// Another open stream has the requested id.
    IdInUse,
    /// The connection is closed or closing and opens no streams.
    ConnectionClosed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyStreams { limit } => write!(f, "there are {limit} streams already (streams_max)"),
            Self::TooManyForPeer { limit } => {
                write!(f, "there are {limit} streams already, the limit of the peer (its streams_max)")
            }
            Self::IdInUse => f.write_str("a stream with this id is open"),
            Self::ConnectionClosed => f.write_str("the connection is closed"),
        }
    }
}

impl std::error::Error for OpenError {}
