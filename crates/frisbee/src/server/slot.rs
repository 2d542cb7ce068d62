//! The connections of a server, and the place of each among those it may have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;
use tokio::sync::Notify;

use super::threads::OnThread;
use crate::{Connection, proto::Counters};

/// The connections of a server.
#[derive(Default)]
pub(super) struct Slots {
    open: Mutex<Open>,
    emptied: Notify,
}

#[derive(Default)]
struct Open {
    /// `None` during a handshake.
    connections: Slab<Option<Connection>>,
    /// Packets and bytes that went through connections that have ended.
    past: Counters,
}

/// The place of one connection among those that a server may have.
pub(super) struct ConnectionSlot {
    slots: Arc<Slots>,
    key: usize,
    /// Its place on one of the server's threads, if it has any.
    pub(super) on_thread: Option<OnThread>,
}

impl Slots {
    /// Reserves a place for a connection, if there are fewer than `limit` and `may_take` still says yes.
    pub(super) fn reserve(self: &Arc<Self>, limit: usize, may_take: impl FnOnce() -> bool) -> Option<ConnectionSlot> {
        let mut open = self.open();
        if open.connections.len() >= limit || !may_take() {
            return None;
        }
        let key = open.connections.insert(None);
        drop(open);
        Some(ConnectionSlot { slots: self.clone(), key, on_thread: None })
    }

    /// Returns how many places are taken, handshakes included.
    pub(super) fn len(&self) -> usize {
        self.open().connections.len()
    }

    /// Returns the connections that are through their handshakes.
    pub(super) fn connections(&self) -> Vec<Connection> {
        self.open().connections.iter().filter_map(|(_, connection)| connection.clone()).collect()
    }

    /// Returns how many places are taken, what went through connections that have ended, and those that are open: all of
    /// one moment.
    pub(super) fn snapshot(&self) -> (usize, Counters, Vec<Connection>) {
        let open = self.open();
        let connections = open.connections.iter().filter_map(|(_, connection)| connection.clone()).collect();
        (open.connections.len(), open.past, connections)
    }

    /// Waits until no place is taken.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Before the look: the last connection may end right behind it.
            emptied.as_mut().enable();
            if self.open().connections.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Puts the connection into its place, once its handshake is through.
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
