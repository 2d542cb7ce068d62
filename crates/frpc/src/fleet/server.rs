//! The transport to one server.

use std::{sync::Arc, time::Duration};

use frisbee::{Connection, ConnectionMetrics, FlowState, FrameCounts};
use futures_util::stream::BoxStream;

use crate::{
    call::{deadline::Deadline, method::Method, status::Status},
    client::caller::Caller,
    codec::Format,
    wire::frisbee::calling::reconnecting::FrisbeeCaller,
};

/// The transport to one server. Frisbee has its own variant, because its unary calls must not allocate a box.
#[derive(Clone)]
pub(crate) enum ServerCaller {
    Frisbee(Arc<FrisbeeCaller>),
    Other(Arc<dyn Caller>),
}

/// A server with a later answer to a PING gets no calls until it answers.
const PONG_TIME_MAX: Duration = Duration::from_millis(250);

/// A new connection to a server.
pub(crate) struct ConnectedServer {
    pub(crate) caller: ServerCaller,
    /// `true` while the server is able to serve, in the last value.
    pub(crate) health: BoxStream<'static, bool>,
}

/// The encoding of the calls of a transport. All servers of one channel have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEncoding {
    /// Frisbee converts messages for each peer.
    Frisbee,
    Fixed(Format),
}

impl ServerCaller {
    pub(super) fn encoding(&self) -> CallEncoding {
        match self {
            Self::Frisbee(_) => CallEncoding::Frisbee,
            Self::Other(caller) => CallEncoding::Fixed(caller.format()),
        }
    }

    pub(crate) fn caller(&self) -> &dyn Caller {
        match self {
            Self::Frisbee(connection) => connection,
            Self::Other(caller) => &**caller,
        }
    }

    /// Returns `true` if the server owes an answer to a PING for longer than it should take.
    pub(super) fn is_silent(&self) -> bool {
        let Self::Frisbee(caller) = self else { return false };
        let connection = &caller.current().connection;
        let usual = connection.config().ping_interval.unwrap_or_default().saturating_add(PONG_TIME_MAX);
        connection.silence().is_some_and(|silence| silence >= usual)
    }

    /// Returns the number of calls in progress on the server, in its last PONG.
    pub(super) fn peer_load(&self) -> Option<u32> {
        match self {
            Self::Frisbee(connection) => connection.current().connection.peer_load().map(u32::from),
            Self::Other(_) => None,
        }
    }

    /// Returns the number of concurrent calls on the current connection. Other transports than frisbee open further
    /// connections themselves.
    pub(super) fn calls_max(&self) -> u32 {
        match self {
            Self::Frisbee(connection) => connection.current().calls_max(),
            Self::Other(_) => u32::MAX,
        }
    }

    /// Returns the message format for a call to a method. `waits` as for [`FrisbeeCaller::format`].
    pub(crate) async fn format(
        &self,
        method: &'static Method,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Format, Status> {
        match self {
            Self::Frisbee(connection) => connection.format(method, waits, deadline).await,
            Self::Other(caller) => Ok(caller.format()),
        }
    }

    /// Returns the format for a call with encoded messages.
    pub(crate) async fn bytes_format(&self, deadline: Deadline) -> Result<Format, Status> {
        match self {
            Self::Frisbee(connection) => connection.bytes_format(deadline).await,
            Self::Other(caller) => Ok(caller.format()),
        }
    }

    /// Returns the current connection, for frisbee only.
    pub(crate) fn connection(&self) -> Option<Connection> {
        match self {
            Self::Frisbee(connection) => Some(connection.current().connection.clone()),
            Self::Other(_) => None,
        }
    }

    /// Returns the counters and queues of the current connection, or of all connections of other transports.
    pub(crate) fn traffic(&self) -> Option<ConnectionMetrics> {
        match self {
            Self::Frisbee(connection) => Some(connection.current().connection.metrics()),
            Self::Other(caller) => caller.traffic(),
        }
    }

    /// Returns the frames of other transports than frisbee.
    pub(crate) fn frames(&self) -> FrameCounts {
        match self {
            Self::Frisbee(_) => FrameCounts::default(),
            Self::Other(caller) => caller.frames(),
        }
    }

    /// Returns the streams and the credit of other transports than frisbee.
    pub(crate) fn flow(&self) -> Option<FlowState> {
        match self {
            Self::Frisbee(_) => None,
            Self::Other(caller) => caller.flow(),
        }
    }

    /// Returns `true` if the current connection uses TLS, or all connections of other transports do.
    pub(crate) fn is_secure(&self) -> bool {
        match self {
            Self::Frisbee(connection) => connection.current().is_secure(),
            Self::Other(caller) => caller.is_secure(),
        }
    }

    /// Announces the methods of a client, for the comparison with the methods of the server.
    pub(crate) fn declare(&self, methods: &'static [Method]) {
        if let Self::Frisbee(connection) = self {
            connection.declare(methods);
        }
    }
}
