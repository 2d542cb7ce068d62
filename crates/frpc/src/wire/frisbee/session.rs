//! The state that frpc keeps with a frisbee connection.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use frisbee::Connection;

use super::{
    pending::PendingCalls,
    remote::{Extended, Remote},
};
use crate::{call::status::Status, error::CallError, service::table::MethodTable};

/// The state that frpc keeps with a connection, whichever side made it.
pub(crate) struct Session {
    /// The methods of this side's own, which cannot be called on the other.
    pub(crate) serves: MethodTable,
    /// The calls made from this side, once there are any.
    pub(crate) calls: OnceLock<Arc<PendingCalls>>,
    /// The size of the metadata that the peer may send with a call or an answer.
    pub(crate) metadata_max: usize,
    /// The number of the connection for its calls.
    pub(crate) number: u64,
    /// The peer, once it is known.
    pub(crate) remote: OnceLock<Arc<Remote>>,
    /// The unary calls of the peer that are under way, if they are [limited](crate::Services::calls_max).
    pub(crate) served: AtomicU32,
}

/// The place of a call of the peer among those that may be under way. Dropping it gives the place back.
pub(crate) struct Place(Option<Arc<Session>>);

impl Place {
    /// Takes a place for a call. Fails if the peer has as many as it may have.
    pub(crate) fn take(connection: &Connection, calls_max: Option<u32>) -> Result<Self, Status> {
        let Some((limit, session)) = calls_max.zip(Session::of(connection)) else { return Ok(Self(None)) };
        // Before the look, so that the place is given back in any case.
        let before = session.served.fetch_add(1, Ordering::Relaxed);
        let place = Self(Some(session));
        if before < limit { Ok(place) } else { Err(CallError::TooManyForPeer { limit }.into()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.served.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Session {
    pub(crate) fn of(connection: &Connection) -> Option<Arc<Self>> {
        connection.state()
    }

    /// Returns the peer of a connection, once it is known.
    pub(crate) fn remote(&self, connection: &Connection) -> Option<&Arc<Remote>> {
        match self.remote.get() {
            Some(remote) => Some(remote),
            None => {
                let remote = Arc::new(Remote::of(connection)?);
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

    fn of_peer<T>(connection: &Connection, look: impl FnOnce(Option<&Extended>) -> T) -> T {
        let session = Self::of(connection);
        let remote = session.as_ref().and_then(|session| session.remote(connection));
        look(remote.and_then(|remote| remote.extended()))
    }
}
