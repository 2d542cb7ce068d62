//! Senders waiting for space in the outbox.
//!
//! A write wakes about as many senders as it made room for. If it woke all of a thousand waiting senders, most of them
//! would find the outbox full again, after each write.

use super::core::ConnectionCore;
use crate::{
    proto::PIECED_LEN_MIN,
    sync::{Notified, Notify},
};

/// Waiting senders, in two queues because contents in pieces have a separate limit.
///
/// A woken sender that finds its space taken waits again, at the end of its queue. Other woken senders either queue a
/// packet, after whose write the next sender is woken, or wake the next one themselves.
pub(super) struct SpaceQueue {
    small: Notify,
    large: Notify,
}

impl SpaceQueue {
    pub(super) fn new() -> Self {
        Self { small: Notify::new(), large: Notify::new() }
    }

    /// Waits for an offer of space for a content of `len` bytes.
    pub(super) fn offered(&self, len: usize) -> Notified<'_> {
        self.queue(len).notified()
    }

    /// Wakes the next sender of a content of about `len` bytes.
    pub(super) fn offer(&self, len: usize) {
        self.queue(len).notify_one();
    }

    /// Wakes senders after a write.
    pub(super) fn offer_several(&self, offers: SpaceOffers) {
        (0..offers.small).for_each(|_| self.small.notify_one());
        (0..offers.large).for_each(|_| self.large.notify_one());
    }

    pub(super) fn offer_to_all(&self) {
        self.small.notify_waiters();
        self.large.notify_waiters();
    }

    fn queue(&self, len: usize) -> &Notify {
        if len < PIECED_LEN_MIN { &self.small } else { &self.large }
    }
}

/// The number of senders to wake after a write, for each queue.
pub(super) struct SpaceOffers {
    small: u64,
    large: u64,
}

impl SpaceOffers {
    /// Returns one offer for each written packet, or twice as many while the outbox is at most half full: the waiting
    /// contents may be shorter than the written ones.
    pub(super) fn after_write(core: &ConnectionCore, packets_written: u64) -> Self {
        let offers = |len| packets_written.max(1) << u32::from(core.proto.is_half_empty_for(len));
        Self { small: offers(0), large: offers(PIECED_LEN_MIN) }
    }
}
