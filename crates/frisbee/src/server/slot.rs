//! The connections of a server, and the slots that limit their number.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;
use tokio::sync::Notify;

use super::threads::ThreadPlacement;
use crate::{Connection, proto::Counters};

/// The connections of a server.
#[derive(Default)]
pub(super) struct ConnectionSlots {
    open: Mutex<OpenSlots>,
    emptied: Notify,
}

#[derive(Default)]
struct OpenSlots {
    /// The connection of each slot, `None` during its handshake.
    connections: Slab<Option<Connection>>,
    /// Counters of closed connections.
    past: Counters,
}

/// A reserved slot for one connection. Frees the slot on drop.
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    key: usize,
    /// The place of the connection on one of the server's threads, if the engine has its own threads.
    pub(super) on_thread: Option<ThreadPlacement>,
}

impl ConnectionSlots {
    /// Reserves a slot if fewer than `limit` are taken and `may_take` returns `true`.
    pub(super) fn reserve(self: &Arc<Self>, limit: usize, may_take: impl FnOnce() -> bool) -> Option<ConnectionSlot> {
        let mut open = self.open();
        if open.connections.len() >= limit || !may_take() {
            return None;
        }
        let key = open.connections.insert(None);
        drop(open);
        Some(ConnectionSlot { slots: self.clone(), key, on_thread: None })
    }

    /// Returns the number of slots taken, including handshakes.
    pub(super) fn len(&self) -> usize {
        self.open().connections.len()
    }

    /// Returns the connections with a finished handshake.
    pub(super) fn connections(&self) -> Vec<Connection> {
        self.open().connections.iter().filter_map(|(_, connection)| connection.clone()).collect()
    }

    /// Returns the number of slots taken, the counters of closed connections, and the open connections, all at one
    /// instant.
    pub(super) fn snapshot(&self) -> (usize, Counters, Vec<Connection>) {
        let open = self.open();
        let connections = open.connections.iter().filter_map(|(_, connection)| connection.clone()).collect();
        (open.connections.len(), open.past, connections)
    }

    /// Waits until no slot is taken.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Registered before the check, so an end of the last connection in between is not missed.
            emptied.as_mut().enable();
            if self.open().connections.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenSlots> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Puts the connection into its slot after the handshake.
    pub(super) fn fill(&self, connection: &Connection) {
        self.slots.open().connections[self.key] = Some(connection.clone());
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open();
        let connection = open.connections.remove(self.key);
        if let Some(connection) = &connection {
            open.past += connection.metrics().counters;
        }
        let is_empty = open.connections.is_empty();
        drop(open);
        if is_empty {
            self.slots.emptied.notify_waiters();
        }
    }
}
