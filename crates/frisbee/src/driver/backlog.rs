//! The queue of packets without a handler.

use std::{collections::VecDeque, mem, time::Duration};

use crate::{
    Config, Packet, PacketName,
    clock::Instant,
    proto::{COPY_LEN_MAX, PACKET_COST},
};

/// Queued packets in order of arrival, with their total cost.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    packets: VecDeque<QueuedPacket>,
    /// Total cost of the packets.
    len: usize,
    /// Number of packets at the front with their own memory, copied out of read buffers.
    detached: usize,
    /// `true` if a packet is queued above all limits, because the router had no reply to refuse it with.
    pub(super) is_clogged: bool,
}

/// A queued packet.
#[derive(Debug)]
pub(super) struct QueuedPacket {
    pub(super) packet: Packet,
    /// Time of the read.
    pub(super) arrived: Instant,
    /// Time for which the peer waits for the reply, if known.
    pub(super) timeout: Option<Duration>,
}

impl QueuedPacket {
    /// Returns `true` if the peer has stopped waiting for the reply.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.timeout.is_some_and(|timeout| now.saturating_duration_since(self.arrived) >= timeout)
    }
}

/// The end of the queue for the next packet to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueEnd {
    Oldest,
    Newest,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the total cost of the packets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is room for one more packet after `more` packets with a cost of `more_len`.
    pub(super) fn has_room_after(&self, more: usize, more_len: usize, config: &Config) -> bool {
        self.packets.len() + more < config.backlog_max && self.len + more_len < config.backlog_len_max
    }

    pub(super) fn push(&mut self, waiting: QueuedPacket) {
        self.len += cost(&waiting.packet);
        self.packets.push_back(waiting);
    }

    /// Returns the cost of the next packet.
    pub(super) fn next_cost(&self, next: QueueEnd) -> Option<usize> {
        let next = match next {
            QueueEnd::Oldest => self.packets.front(),
            QueueEnd::Newest => self.packets.back(),
        };
        next.map(|waiting| cost(&waiting.packet))
    }

    pub(super) fn pop(&mut self, next: QueueEnd) -> Option<QueuedPacket> {
        let waiting = match next {
            QueueEnd::Oldest => {
                self.detached = self.detached.saturating_sub(1);
                self.packets.pop_front()?
            }
            QueueEnd::Newest => self.packets.pop_back()?,
        };
        self.detached = self.detached.min(self.packets.len());
        self.len -= cost(&waiting.packet);
        debug_assert!(self.len > 0 || self.packets.is_empty(), "every packet costs something");
        Some(waiting)
    }

    /// Takes the oldest packet if its peer no longer waits for the reply.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<QueuedPacket> {
        self.packets.front().is_some_and(|oldest| oldest.is_expired(now)).then(|| self.pop(QueueEnd::Oldest)).flatten()
    }

    /// Returns `true` if the oldest packet has waited for half of its timeout.
    ///
    /// The wait includes the time since `behind_since`, the start of the last pause in reading: the packet may have
    /// been unread since then. Packets arriving now would wait equally long, and later ones longer than their timeout.
    pub(super) fn is_late(&self, now: Instant, behind_since: Option<Instant>) -> bool {
        let Some(QueuedPacket { arrived, timeout: Some(timeout), .. }) = self.packets.front() else { return false };
        let since = behind_since.map_or(*arrived, |since| since.min(*arrived));
        now.saturating_duration_since(since) >= *timeout / 2
    }

    /// Removes a withdrawn packet. Returns `true` if it was queued.
    pub(super) fn remove(&mut self, name: PacketName) -> bool {
        let Some(place) = self.packets.iter().position(|waiting| waiting.packet.name() == name) else { return false };
        self.detached -= usize::from(place < self.detached);
        self.len -= self.packets.remove(place).as_ref().map_or(0, |waiting| cost(&waiting.packet));
        true
    }

    /// Takes all packets.
    pub(super) fn take(&mut self) -> VecDeque<QueuedPacket> {
        (self.len, self.detached) = (0, 0);
        mem::take(&mut self.packets)
    }

    /// Copies small packets out of the read buffers they pin. Each packet is copied at most once.
    pub(super) fn detach(&mut self) {
        for QueuedPacket { packet, .. } in self.packets.iter_mut().skip(self.detached) {
            if packet.content.len() < COPY_LEN_MAX {
                *packet = packet.clone().detached();
            }
        }
        self.detached = self.packets.len();
    }
}

/// Returns the cost of a packet towards limits in bytes.
pub(super) fn cost(packet: &Packet) -> usize {
    packet.content.len() + PACKET_COST
}
