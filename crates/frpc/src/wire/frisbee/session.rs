//! The state that frpc keeps with a frisbee connection.

use std::sync::{Arc, OnceLock};

use frisbee::Connection;

use super::{
    pending::PendingCalls,
    remote::{Extended, Remote},
};
use crate::service::table::MethodTable;

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
