//! Packets that wait for a handler.

use std::{collections::VecDeque, mem};

use crate::{
    Config, Packet, PacketName,
    proto::{COPY_LEN_MAX, PACKET_COST},
};

/// Packets in the order in which they arrived, and what they cost.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    packets: VecDeque<Packet>,
    /// The cost of all of them.
    len: usize,
    /// The number of packets at the front that have memory of their own.
    detached: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns what all packets cost.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is room for one more packet behind `more` that cost `more_len`.
    pub(super) fn has_room_behind(&self, more: usize, more_len: usize, config: &Config) -> bool {
        self.packets.len() + more < config.backlog_max && self.len + more_len < config.backlog_len_max
    }

    pub(super) fn push(&mut self, packet: Packet) {
        self.len += cost(&packet);
        self.packets.push_back(packet);
    }

    /// Returns what the first packet costs.
    pub(super) fn first_cost(&self) -> Option<usize> {
        self.packets.front().map(cost)
    }

    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.len -= cost(&packet);
        self.detached = self.detached.saturating_sub(1);
        debug_assert!(self.len > 0 || self.packets.is_empty(), "every packet costs something");
        Some(packet)
    }

    /// Takes out a packet that was withdrawn. Returns whether it was there.
    pub(super) fn remove(&mut self, name: PacketName) -> bool {
        let Some(place) = self.packets.iter().position(|packet| packet.name() == name) else { return false };
        self.detached -= usize::from(place < self.detached);
        self.len -= self.packets.remove(place).as_ref().map_or(0, cost);
        true
    }

    /// Takes all packets.
    pub(super) fn take(&mut self) -> VecDeque<Packet> {
        mem::take(self).packets
    }

    /// Copies small packets out of the read buffers that they pin, each once.
    pub(super) fn detach(&mut self) {
        for packet in self.packets.iter_mut().skip(self.detached) {
            if packet.content.len() < COPY_LEN_MAX {
                *packet = packet.clone().detached();
            }
        }
        self.detached = self.packets.len();
    }
}

/// Returns what a packet counts towards the limits in bytes.
pub(super) fn cost(packet: &Packet) -> usize {
    packet.content.len() + PACKET_COST
}
