//! The state that frpc keeps with a frisbee connection.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::Connection;

use super::{
    compressed::{CannotInflate, Compressed, Deflating, Held, InRoom, Inflated},
    pending::PendingCalls,
    remote::{Extended, Remote},
};
use crate::{
    call::status::Status,
    codec::Compression,
    error::CallError,
    service::{compressing::Compressing, table::MethodTable},
};

/// The state that frpc keeps with a connection, whichever side made it.
pub(crate) struct Session {
    /// The methods of this side's own, which cannot be called on the other.
    pub(crate) serves: MethodTable,
    /// The calls made from this side, once there are any.
    pub(crate) calls: OnceLock<Arc<PendingCalls>>,
    /// The size of the metadata that the peer may send with a call or an answer.
    pub(crate) metadata_max: usize,
    pub(crate) compressing: Compressing,
    /// True if messages of the peer may lose values here: [`Services::accept_narrowing`](crate::Services::accept_narrowing).
    pub(crate) accepts_narrowing: bool,
    /// The messages of the peer that are inflated.
    pub(crate) inflated: Inflated,
    /// The number of the connection for its calls.
    pub(crate) number: u64,
    /// The peer, once it is known.
    pub(crate) remote: OnceLock<Arc<Remote>>,
    /// The time that unary calls of the peer have unless they say otherwise, if it said so.
    pub(crate) announced: OnceLock<Duration>,
    /// The unary calls of the peer that are under way, if they are [limited](crate::Services::calls_max).
    pub(crate) served: AtomicU32,
}

/// The place of a call of the peer among those that may be under way. Dropping it gives the place back.
pub(crate) struct Place(Option<Connection>);

impl Place {
    /// Takes a place for a call. Fails if the peer has as many as it may have.
    pub(crate) fn take(connection: &Connection, calls_max: Option<u32>) -> Result<Self, Status> {
        let Some((limit, session)) = calls_max.zip(Session::of(connection)) else { return Ok(Self(None)) };
        // Before the look, so that the place is given back in any case.
        let before = session.served.fetch_add(1, Ordering::Relaxed);
        let place = Self(Some(connection.clone()));
        if before < limit { Ok(place) } else { Err(CallError::TooManyForPeer { limit }.into()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.0.as_ref().and_then(Session::of) {
            session.served.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Session {
    #[inline]
    pub(crate) fn of(connection: &Connection) -> Option<&Self> {
        connection.state()
    }

    /// Returns the peer of a connection, once it is known.
    pub(crate) fn remote(&self, connection: &Connection) -> Option<&Arc<Remote>> {
        match self.remote.get() {
            Some(remote) => Some(remote),
            None => {
                let remote = Arc::new(Remote::of(connection, self.serves.clone())?);
                Some(self.remote.get_or_init(|| remote))
            }
        }
    }

    /// Tells whether the peer of a connection that frpc serves is extended.
    pub(crate) fn is_extended(connection: &Connection) -> bool {
        Self::of_peer(connection, |extended| extended.is_some())
    }

    /// Returns the size of the metadata that the peer of a connection that frpc serves accepts.
    pub(crate) fn metadata_max(connection: &Connection) -> usize {
        Self::of_peer(connection, |extended| extended.map_or(0, |extended| extended.metadata_len_max))
    }

    /// Returns how this side compresses messages for the peer of a connection, if it does.
    pub(crate) fn deflating(connection: &Connection) -> Option<Deflating> {
        let session = Self::of(connection)?;
        let peer = session.remote(connection)?.extended()?;
        Deflating::choose(&session.compressing, &peer.inflates, connection.content_len_max())
    }

    /// Inflates bytes of the peer, if there is room at once. They take it until the last part of them is dropped.
    pub(crate) fn inflate(
        connection: &Connection,
        compressed: Compressed,
        bytes: &[u8],
    ) -> Result<Bytes, CannotInflate> {
        let (session, algorithm) = Self::check(connection, compressed)?;
        let held = session.inflated.try_hold(compressed)?;
        Ok(Bytes::from_owner(InRoom { bytes: compressed.inflate(algorithm, bytes)?, _held: held }))
    }

    /// Inflates the request of a call. Waits for room as long as packets wait for handlers: those that hold it may be waiting for
    /// this very call.
    pub(crate) async fn inflate_request(
        connection: &Connection,
        compressed: Compressed,
        bytes: &[u8],
    ) -> Result<(Bytes, Held), CannotInflate> {
        let (session, algorithm) = Self::check(connection, compressed)?;
        let held = session.inflated.hold(compressed, connection.config().handlers_stall_max).await?;
        Ok((compressed.inflate(algorithm, bytes)?, held))
    }

    /// Refuses what is beyond the limits before anything waits for it or is held.
    fn check(connection: &Connection, compressed: Compressed) -> Result<(&Self, Compression), CannotInflate> {
        let session = Self::of(connection).ok_or_else(|| compressed.unknown())?;
        let algorithm = compressed.check(&session.compressing, connection.config().content_len_max)?;
        Ok((session, algorithm))
    }

    /// Returns the time that unary calls of the peer have unless they say otherwise, if it said so.
    #[inline]
    pub(crate) fn announced(connection: &Connection) -> Option<Duration> {
        Self::of(connection)?.announced.get().copied()
    }

    fn of_peer<T>(connection: &Connection, look: impl FnOnce(Option<&Extended>) -> T) -> T {
        let remote = Self::of(connection).and_then(|session| session.remote(connection));
        look(remote.and_then(|remote| remote.extended()))
    }
}
