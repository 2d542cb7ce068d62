//! A view of a running server.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{Server, ServerLimits, ServerMetrics, shared::ServerShared};
use crate::{Address, Config, Connection, Engine};

/// A view of a running [`Server`] that does not keep it running. Cheap to clone.
#[derive(Clone)]
pub struct ServerObserver {
    shared: Weak<ServerShared>,
    local: Arc<[Address]>,
    config: Arc<Config>,
    limits: ServerLimits,
    engine: Engine,
}

/// An open connection of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The number of the connection, counted from the start of the server.
    pub number: u64,
    /// The address of the peer.
    pub peer: Address,
    /// The address of the server.
    pub local: Address,
    /// The time since it was accepted.
    pub age: Duration,
    /// The name of its protocol. `None` during the handshake.
    pub protocol: Option<&'static str>,
    /// The connection, if it speaks frisbee. This handle does not keep it open.
    pub connection: Option<Connection>,
}

impl ServerObserver {
    pub(super) fn new(server: &Server) -> Self {
        let Server { shared, local } = server;
        Self {
            shared: Arc::downgrade(shared),
            local: local.as_slice().into(),
            config: shared.config.clone(),
            limits: shared.limits.clone(),
            engine: shared.engine,
        }
    }

    /// Returns `true` until the last connection after the end of the server.
    pub fn is_running(&self) -> bool {
        self.shared.strong_count() > 0
    }

    /// Returns the addresses of the server.
    pub fn local_addrs(&self) -> &[Address] {
        &self.local
    }

    /// Returns the settings of its connections.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the limits over all connections.
    pub fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// Returns the engine in use.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the counters and the load. `None` after the end of the server.
    pub fn metrics(&self) -> Option<ServerMetrics> {
        Some(ServerMetrics::of(&*self.shared.upgrade()?))
    }

    /// Returns the first `max` connections with a higher [number](ConnectionInfo::number) than `after`, sorted by number.
    pub fn connections(&self, after: u64, max: usize) -> Vec<ConnectionInfo> {
        self.shared.upgrade().map(|shared| shared.slots.list(after, max)).unwrap_or_default()
    }
}

impl fmt::Debug for ServerObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerObserver").field("local", &self.local).finish_non_exhaustive()
    }
}
