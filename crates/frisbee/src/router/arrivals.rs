//! Packets that arrived together, as given to `Router::intercept`.

use std::{collections::VecDeque, fmt};

use crate::{Connection, Packet};

/// Packets that arrived together, oldest first.
///
/// A router takes packets from the front if they need no handler. Once the connection closes or is taken over, no more
/// packets can be taken: later bytes do not belong to frisbee.
pub struct Arrivals<'a> {
    packets: &'a mut VecDeque<Packet>,
    connection: &'a Connection,
    end: Option<&'a LendBoundary<'a>>,
}

/// A test for the first packet that a wrapping router does not lend to its fallback.
struct LendBoundary<'a> {
    is_reached: &'a dyn Fn(&Packet) -> bool,
    outer: Option<&'a LendBoundary<'a>>,
}

impl<'a> Arrivals<'a> {
    /// Creates arrivals from `packets`, for testing a router.
    pub fn new(packets: &'a mut VecDeque<Packet>, connection: &'a Connection) -> Self {
        Self { packets, connection, end: None }
    }

    /// Returns the next packet without taking it.
    #[inline]
    pub fn peek(&self) -> Option<&Packet> {
        let packet = self.packets.front()?;
        // Routers may be nested: the packets end at the first packet that any outer router keeps.
        let mut end = self.end;
        while let Some(LendBoundary { is_reached, outer }) = end {
            if is_reached(packet) {
                return None;
            }
            end = *outer;
        }
        Some(packet)
    }

    /// Takes the next packet if `is_taken` returns `true` for it.
    #[inline]
    pub fn next_if(&mut self, is_taken: impl FnOnce(&Packet) -> bool) -> Option<Packet> {
        // Checked for each packet, because handling the previous one may have closed the connection.
        let is_next = is_taken(self.peek()?) && !self.connection.shared().is_closing();
        if is_next { self.packets.pop_front() } else { None }
    }

    /// Puts the packet taken last back at the front.
    pub fn put_back(&mut self, packet: Packet) {
        self.packets.push_front(packet);
    }

    /// Lends the packets before the first one with `is_end` returning `true`.
    ///
    /// Lets a router pass packets to its fallback and keep some for itself.
    pub fn lend_until(&mut self, is_end: &dyn Fn(&Packet) -> bool, borrower: impl FnOnce(&mut Arrivals<'_>)) {
        let end = LendBoundary { is_reached: is_end, outer: self.end };
        borrower(&mut Arrivals { packets: self.packets, connection: self.connection, end: Some(&end) });
    }
}

/// Takes all packets.
impl Iterator for Arrivals<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        self.next_if(|_| true)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.packets.len()))
    }
}

impl fmt::Debug for Arrivals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals").field("packets", &self.packets.len()).finish_non_exhaustive()
    }
}
