//! The state that frpc keeps with a frisbee connection.

use std::sync::{Arc, OnceLock};

use frisbee::Connection;

use super::pending::PendingCalls;
use crate::service::table::MethodTable;

/// The state that frpc keeps with a connection, whichever side made it.
pub(crate) struct Session {
    /// The methods of this side's own, which cannot be called on the other.
    pub(crate) serves: MethodTable,
    /// The calls made from this side, once there are any.
    pub(crate) calls: OnceLock<Arc<PendingCalls>>,
    /// The number of the connection for its calls.
    pub(crate) number: u64,
}

impl Session {
    pub(crate) fn of(connection: &Connection) -> Option<Arc<Self>> {
        connection.state()
    }
}
