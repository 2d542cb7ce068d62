//! Error codes of the wire, and the typed errors of a connection.

use std::{error::Error, fmt};

/// An error code of RFC 9113, section 7.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// A graceful shutdown, or a stream no longer needed.
    pub const NO_ERROR: Self = Self(0);
    /// A violation of the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// An unexpected internal error.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// A violation of flow control.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// SETTINGS without a timely acknowledgement.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame on a stream that is half-closed or closed.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame with an invalid length.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// A request not seen by any application; a retry is safe.
    pub const REFUSED_STREAM: Self = Self(7);
    /// A stream no longer needed.
    pub const CANCEL: Self = Self(8);
    /// An invalid header block.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// A failed tunnel of a CONNECT request.
    pub const CONNECT_ERROR: Self = Self(10);
    /// A peer that causes too much load.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// Transport security below the requirements.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// A resource that needs HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(usize::try_from(self.0).ok()?).copied()
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {:#x}", self.0),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The side at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This side, or its application.
    Local,
    /// The peer, by a violation, an exceeded limit, silence, or an error code.
    Peer,
}

/// A fatal error of a connection.
///
/// The connection has queued a GOAWAY frame with the code. A driver writes the remaining output and closes the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code of the GOAWAY frame.
    pub code: ErrorCode,
    /// The side at fault for the error.
    pub fault: Fault,
    /// The violated rule or exceeded limit.
    pub reason: &'static str,
}

impl ConnectionError {
    /// Creates an error caused by the peer.
    pub(crate) const fn peer(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, fault: Fault::Peer, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::peer(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(crate) const fn calm(reason: &'static str) -> Self {
        Self::peer(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }

    pub(crate) const fn frame_size(reason: &'static str) -> Self {
        Self::peer(ErrorCode::FRAME_SIZE_ERROR, reason)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the HTTP/2 connection failed with {}: {}", self.code, self.reason)
    }
}

impl Error for ConnectionError {}

/// The early end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The code of the RST_STREAM frame.
    pub code: ErrorCode,
    /// The side at fault for the end.
    pub fault: Fault,
    /// `true` if the peer sent the code. Otherwise this side reset the stream, because of a violation or a limit.
    pub is_remote: bool,
    /// `true` if no application of the peer has seen the request, so a retry is safe.
    pub is_unprocessed: bool,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the HTTP/2 stream was reset with {}", self.code)
    }
}

impl Error for StreamError {}

/// The reason why [`Connection::open`](crate::Connection::open) opened no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer allows no more concurrent streams now. [`Event::Capacity`](crate::Event::Capacity) follows.
    NoCapacity,
    /// The ids of this connection are used up. Further requests need a new connection.
    IdsExhausted,
    /// One side shuts the connection down. Further requests need a new connection.
    GoingAway,
    /// The request exceeds the header list limit of the peer.
    HeadTooLarge,
    /// The connection has failed, or belongs to a server.
    Closed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCapacity => "the peer allows no more concurrent streams; retry after one ends",
            Self::IdsExhausted => "the stream ids of the connection are used up; open a new connection",
            Self::GoingAway => "the connection is shutting down; open a new connection",
            Self::HeadTooLarge => "the request exceeds the header list limit of the peer; send fewer headers",
            Self::Closed => "the connection is closed; open a new connection",
        })
    }
}

impl Error for OpenError {}

/// The reason why a stream accepted no head, data or trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The stream or connection is closed, or this side has ended the stream.
    Closed,
    /// The queue of the stream or connection is full. [`Event::Writable`](crate::Event::Writable) follows.
    Full,
    /// The headers exceed the header list limit of the peer.
    HeadTooLarge,
    /// The call does not fit the state of the stream, for example data before the head of a response.
    OutOfOrder,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the stream is closed",
            Self::Full => "the send queue is full; retry after the event Writable",
            Self::HeadTooLarge => "the headers exceed the header list limit of the peer; send fewer headers",
            Self::OutOfOrder => "a stream carries one head, then data, then trailers; send them in this order",
        })
    }
}

impl Error for SendError {}
