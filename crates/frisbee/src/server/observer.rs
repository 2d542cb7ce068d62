//! A view of a running server.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use super::{metrics::ServerMetrics, settings::ServerLimits, shared::ServerShared, slot::ConnectionInfo};
use crate::{Address, Config, Engine};

/// A view of a running [`Server`](crate::Server) that does not keep it running. Cheap to clone.
#[derive(Clone)]
pub struct ServerObserver {
    shared: Weak<ServerShared>,
    local: Arc<[Address]>,
    config: Arc<Config>,
    limits: ServerLimits,
    engine: Engine,
}

impl ServerObserver {
    pub(super) fn new(shared: &Arc<ServerShared>, local: &[Address]) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            local: local.into(),
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
