//! The connections of a server, and the slots that limit their number.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use slab::Slab;
use tokio::{sync::Notify, time::Instant};

use super::threads::ThreadPlacement;
use crate::{
    Address, Connection,
    net::{FlowState, FrameCounts, StreamTraffic},
    proto::Counters,
};

/// The connections of a server.
#[derive(Default)]
pub(super) struct ConnectionSlots {
    open: Mutex<OpenSlots>,
    emptied: Notify,
}

#[derive(Default)]
struct OpenSlots {
    connections: Slab<OpenSlot>,
    /// Counters of closed connections.
    past: Counters,
    /// Counters of closed connections of other protocols.
    past_others: Counters,
    /// Frames of closed connections of other protocols.
    past_frames: FrameCounts,
    /// The number of all connections so far.
    accepted: u64,
}

impl OpenSlots {
    /// Keeps the counters of a connection of another protocol at its end.
    fn add_past(&mut self, other: &OtherOccupant) {
        self.past_others += other.counters();
        self.past_frames += &other.frames();
    }
}

/// The slot of one connection.
struct OpenSlot {
    number: u64,
    accepted: Instant,
    is_secure: bool,
    occupant: SlotOccupant,
}

enum SlotOccupant {
    Frisbee(Connection),
    /// A handshake, or another protocol. Boxed, because connections of frisbee know their addresses themselves.
    Other(Box<OtherOccupant>),
}

struct OtherOccupant {
    peer: Address,
    local: Address,
    /// The name of its protocol, and its counters. `None` during the handshake.
    protocol: Option<(&'static str, Arc<StreamTraffic>)>,
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
    /// `true` after a TLS handshake with this server.
    pub is_secure: bool,
    /// The connection, if it speaks frisbee. This handle does not keep it open.
    pub connection: Option<Connection>,
    /// Its counters. Only bytes, reads and writes for [other protocols](crate::Protocol).
    pub counters: Counters,
    /// Its frames by type, for other protocols that [report](crate::Raw::report_frames) them.
    pub frames: FrameCounts,
    /// Its streams and credit, for other protocols that [report](crate::Raw::report_flow) them.
    pub flow: Option<FlowState>,
}

impl OpenSlot {
    fn connection(&self) -> Option<&Connection> {
        match &self.occupant {
            SlotOccupant::Frisbee(connection) => Some(connection),
            SlotOccupant::Other(_) => None,
        }
    }

    fn counters(&self) -> Counters {
        match &self.occupant {
            SlotOccupant::Frisbee(connection) => connection.metrics().counters,
            SlotOccupant::Other(other) => other.counters(),
        }
    }

    fn info(&self) -> ConnectionInfo {
        let (peer, local, protocol) = match &self.occupant {
            SlotOccupant::Frisbee(connection) => (connection.peer_addr(), connection.local_addr(), Some("frisbee")),
            SlotOccupant::Other(other) => (&other.peer, &other.local, other.protocol.as_ref().map(|(name, _)| *name)),
        };
        let (frames, flow) = match &self.occupant {
            SlotOccupant::Frisbee(_) => (FrameCounts::default(), None),
            SlotOccupant::Other(other) => (other.frames(), other.flow()),
        };
        ConnectionInfo {
            number: self.number,
            peer: peer.clone(),
            local: local.clone(),
            age: self.accepted.elapsed(),
            protocol,
            is_secure: self.is_secure,
            connection: self.connection().map(Connection::without_keeping_open),
            counters: self.counters(),
            frames,
            flow,
        }
    }
}

impl OtherOccupant {
    fn counters(&self) -> Counters {
        self.protocol.as_ref().map(|(_, traffic)| traffic.counters()).unwrap_or_default()
    }

    fn frames(&self) -> FrameCounts {
        self.protocol.as_ref().map(|(_, traffic)| traffic.frames()).unwrap_or_default()
    }

    fn flow(&self) -> Option<FlowState> {
        self.protocol.as_ref().and_then(|(_, traffic)| traffic.flow())
    }
}

/// The slots of a server at one instant.
pub(super) struct SlotsSnapshot {
    /// The number of slots taken.
    pub(super) slots: usize,
    /// The counters of closed connections.
    pub(super) past: Counters,
    /// The counters of other protocols.
    pub(super) others: Counters,
    pub(super) frames: FrameCounts,
    pub(super) flow: FlowState,
    pub(super) open: Vec<Connection>,
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
    pub(super) fn reserve(
        self: &Arc<Self>,
        limit: usize,
        (local, peer): (&Address, &Address),
        may_take: impl FnOnce() -> bool,
    ) -> Option<ConnectionSlot> {
        let accepted = Instant::now();
        let other = Box::new(OtherOccupant { peer: peer.clone(), local: local.clone(), protocol: None });
        let mut open = self.open();
        if open.connections.len() >= limit || !may_take() {
            return None;
        }
        open.accepted += 1;
        let number = open.accepted;
        let slot = OpenSlot { number, accepted, is_secure: false, occupant: SlotOccupant::Other(other) };
        let key = open.connections.insert(slot);
        drop(open);
        Some(ConnectionSlot { slots: self.clone(), key, on_thread: None })
    }

    /// Returns the number of slots taken, including handshakes.
    pub(super) fn len(&self) -> usize {
        self.open().connections.len()
    }

    /// Returns the connections with a finished handshake.
    pub(super) fn connections(&self) -> Vec<Connection> {
        self.open().connections.iter().filter_map(|(_, slot)| slot.connection().cloned()).collect()
    }

    /// Returns the first `max` slots after this number, in the order of their connections.
    pub(super) fn list(&self, after: u64, max: usize) -> Vec<ConnectionInfo> {
        let mut found: Vec<_> = {
            let open = self.open();
            let later = open.connections.iter().filter(|(_, slot)| slot.number > after);
            later.map(|(_, slot)| slot.info()).collect()
        };
        found.sort_unstable_by_key(|info| info.number);
        found.truncate(max);
        found
    }

    /// Returns the counters and the open connections, all at one instant.
    pub(super) fn snapshot(&self) -> SlotsSnapshot {
        let open = self.open();
        let mut snapshot = SlotsSnapshot {
            slots: open.connections.len(),
            past: open.past,
            others: open.past_others,
            frames: open.past_frames.clone(),
            flow: FlowState::default(),
            open: Vec::new(),
        };
        for (_, slot) in &open.connections {
            match &slot.occupant {
                SlotOccupant::Frisbee(connection) => snapshot.open.push(connection.clone()),
                SlotOccupant::Other(other) => {
                    snapshot.others += other.counters();
                    snapshot.frames += &other.frames();
                    snapshot.flow += other.flow().unwrap_or_default();
                }
            }
        }
        snapshot
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
        let mut open = self.slots.open();
        let occupant = SlotOccupant::Frisbee(connection.clone());
        let before = std::mem::replace(&mut open.connections[self.key].occupant, occupant);
        // A protocol may have left its stream to frisbee.
        if let SlotOccupant::Other(other) = before {
            open.add_past(&other);
        }
    }

    /// Notes that the TLS handshake has succeeded.
    pub(super) fn set_secure(&self) {
        self.slots.open().connections[self.key].is_secure = true;
    }

    /// Notes that the connection speaks another protocol. Returns its counters.
    pub(super) fn set_protocol(&self, name: &'static str) -> Arc<StreamTraffic> {
        let traffic = Arc::<StreamTraffic>::default();
        if let SlotOccupant::Other(other) = &mut self.slots.open().connections[self.key].occupant {
            other.protocol = Some((name, traffic.clone()));
        }
        traffic
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open();
        let slot = open.connections.remove(self.key);
        match slot.occupant {
            SlotOccupant::Frisbee(connection) => open.past += connection.metrics().counters,
            SlotOccupant::Other(other) => open.add_past(&other),
        }
        let is_empty = open.connections.is_empty();
        drop(open);
        if is_empty {
            self.slots.emptied.notify_waiters();
        }
    }
}
