//! The sending half of a connection: the outbox, its limit, and the progress of writing.

use std::time::Duration;

use bytes::Buf as _;

use crate::{
    clock::Instant,
    proto::{flight::PiecesInFlight, heartbeat::Heartbeat, outbox::Outbox, transmit::Transmit},
};

/// The outbox and the progress of writing it.
#[derive(Debug)]
pub(super) struct WriteHalf {
    pub(super) outbox: Outbox,
    /// The length of a full outbox for packets, in bytes.
    pub(super) len_max: usize,
    /// The time of the last write progress, while a batch is being written.
    stalled: Option<Instant>,
    /// The number of packets completely written.
    pub(super) written: u64,
    /// The number of packets handed out for writing, at least in part.
    pub(super) attempted: u64,
}

impl WriteHalf {
    pub(super) fn new(outbox: Outbox, len_max: usize) -> Self {
        Self { outbox, len_max, stalled: None, written: 0, attempted: 0 }
    }

    /// Returns `true` if the outbox has no room for a packet.
    pub(super) fn is_full(&self) -> bool {
        self.is_full_for(0)
    }

    /// Returns `true` if the outbox has no room for a content of `len` bytes.
    pub(super) fn is_full_for(&self, len: usize) -> bool {
        self.queued_len_for(len) >= self.len_max
    }

    /// Returns the queued bytes that share the limit of a content of `len` bytes.
    pub(super) fn queued_len_for(&self, len: usize) -> usize {
        match self.outbox.interleaves(len) {
            true => self.outbox.bulk_len(),
            false => self.outbox.len() - self.outbox.bulk_len(),
        }
    }

    /// Records that `len` bytes of `batch` were written.
    #[inline]
    pub(super) fn handle_written(&mut self, now: Instant, len: usize, batch: &Transmit) {
        self.outbox.handle_written(len);
        if batch.has_remaining() {
            self.stalled = Some(now);
            return;
        }
        self.stalled = None;
        self.written = self.written.max(batch.packets);
    }

    /// Moves the next batch into `batch`. Returns `false` if there is none.
    #[inline]
    pub(super) fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit, heartbeat: &mut Heartbeat) -> bool {
        let pings = self.outbox.pings();
        let due = self.outbox.poll_transmit(now, batch);
        if due {
            for _ in pings..self.outbox.pings() {
                heartbeat.handle_ping_sent(now);
            }
            self.stalled = Some(now);
            self.attempted = self.attempted.max(batch.attempted);
        }
        due
    }

    /// Returns the time when a write has made no progress for `limit`.
    pub(super) fn stall_due(&self, limit: Duration) -> Option<Instant> {
        self.stalled?.checked_add(limit)
    }

    /// Returns the time when a window of pieces in flight has been full for too long.
    pub(super) fn flight_due(&self) -> Option<Instant> {
        self.outbox.flight().and_then(PiecesInFlight::poll_timeout)
    }

    /// Stops waiting for PONGs, which will not be read.
    pub(super) fn send_without_pongs(&mut self) {
        if let Some(flight) = self.outbox.flight_mut() {
            flight.give_up();
        }
    }

    /// Drops all queued frames.
    pub(super) fn clear(&mut self) {
        self.outbox.clear();
        self.stalled = None;
    }
}
