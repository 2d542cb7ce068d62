//! The state of frpc on a frisbee connection.

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
    codec::Compression,
    error::ServerCause,
    service::{settings::CompressionSettings, table::MethodTable},
};

/// The state of frpc on a connection, on either side.
pub(crate) struct Session {
    /// The methods served on this side. Their operations cannot be called on the peer.
    pub(crate) serves: MethodTable,
    /// The calls made from this side. Empty until the first one.
    pub(crate) calls: OnceLock<Arc<PendingCalls>>,
    /// The maximum size of the metadata that the peer may send with a call or an answer.
    pub(crate) metadata_max: usize,
    pub(crate) compressing: CompressionSettings,
    /// True if messages of the peer may lose values here:
    /// [`MessageSettings::accept_narrowing`](crate::MessageSettings::accept_narrowing).
    pub(crate) accepts_narrowing: bool,
    /// The budget for inflated messages of the peer.
    pub(crate) inflated: Inflated,
    /// The number of the connection in its table of calls.
    pub(crate) number: u64,
    /// The peer, once it is recognized.
    pub(crate) remote: OnceLock<Arc<Remote>>,
    /// The announced default timeout of the peer's unary calls.
    pub(crate) announced: OnceLock<Duration>,
    /// The number of concurrent unary calls of the peer, if [limited](crate::CallSettings::calls_max).
    pub(crate) served: AtomicU32,
}

/// A permit for one concurrent call of the peer. Returned on drop.
pub(crate) struct Place(Option<Connection>);

impl Place {
    /// Takes a permit. Fails if the peer is at its limit.
    pub(crate) fn take(connection: &Connection, calls_max: Option<u32>) -> Result<Self, ServerCause> {
        let Some((limit, session)) = calls_max.zip(Session::of(connection)) else { return Ok(Self(None)) };
        // Counted before the check, so the permit is returned on both paths.
        let before = session.served.fetch_add(1, Ordering::Relaxed);
        let place = Self(Some(connection.clone()));
        if before < limit { Ok(place) } else { Err(ServerCause::TooManyCalls { limit }) }
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
    /// Returns the session of a connection. `None` if frpc does not serve the connection.
    #[inline]
    pub(crate) fn of(connection: &Connection) -> Option<&Self> {
        connection.state()
    }

    /// Returns the peer of a connection, once it is recognized.
    pub(crate) fn remote(&self, connection: &Connection) -> Option<&Arc<Remote>> {
        match self.remote.get() {
            Some(remote) => Some(remote),
            None => {
                let remote = Arc::new(Remote::of(connection, self.serves.clone())?);
                Some(self.remote.get_or_init(|| remote))
            }
        }
    }

    /// Returns whether the peer is extended, on a connection served by frpc.
    pub(crate) fn is_extended(connection: &Connection) -> bool {
        Self::of_peer(connection, |extended| extended.is_some())
    }

    /// Returns the maximum size of metadata to the peer, on a connection served by frpc.
    pub(crate) fn metadata_max(connection: &Connection) -> usize {
        Self::of_peer(connection, |extended| extended.map_or(0, |extended| extended.metadata_len_max))
    }

    /// Returns the compression settings for messages to the peer of a connection, if any.
    pub(crate) fn deflating(connection: &Connection) -> Option<Deflating> {
        let session = Self::of(connection)?;
        let peer = session.remote(connection)?.extended()?;
        Deflating::choose(&session.compressing, &peer.inflates, connection.content_len_max())
    }

    /// Inflates bytes of the peer, if the budget allows it now. They use the budget until the last slice of them is
    /// dropped.
    pub(crate) fn inflate(
        connection: &Connection,
        compressed: Compressed,
        bytes: &[u8],
    ) -> Result<Bytes, CannotInflate> {
        let (session, algorithm) = Self::check(connection, compressed)?;
        let held = session.inflated.try_hold(compressed)?;
        Ok(Bytes::from_owner(InRoom { bytes: compressed.inflate(algorithm, bytes)?, _held: held }))
    }

    /// Inflates the request of a call.
    ///
    /// Waits for the budget up to the time limit of waiting packets, because the calls that use it may depend on this
    /// one.
    pub(crate) async fn inflate_request(
        connection: &Connection,
        compressed: Compressed,
        bytes: &[u8],
    ) -> Result<(Bytes, Held), CannotInflate> {
        let (session, algorithm) = Self::check(connection, compressed)?;
        let held = session.inflated.hold(compressed, connection.config().handlers_stall_max).await?;
        Ok((compressed.inflate(algorithm, bytes)?, held))
    }

    /// Checks the limits before anything waits or allocates.
    fn check(connection: &Connection, compressed: Compressed) -> Result<(&Self, Compression), CannotInflate> {
        let session = Self::of(connection).ok_or_else(|| compressed.unknown())?;
        let algorithm = compressed.check(&session.compressing, connection.config().content_len_max)?;
        Ok((session, algorithm))
    }

    /// Returns the announced default timeout of the peer's unary calls.
    #[inline]
    pub(crate) fn announced(connection: &Connection) -> Option<Duration> {
        Self::of(connection)?.announced.get().copied()
    }

    fn of_peer<T>(connection: &Connection, look: impl FnOnce(Option<&Extended>) -> T) -> T {
        let remote = Self::of(connection).and_then(|session| session.remote(connection));
        look(remote.and_then(|remote| remote.extended()))
    }
}
