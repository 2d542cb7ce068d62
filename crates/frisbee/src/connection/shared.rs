//! State shared by the handles and the driver of one connection.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::runtime::Handle;

use super::{core::ConnectionCore, space::SpaceQueue, states::AttachedStates};
use crate::{
    Address, CloseReason, Config,
    clock::{Instant, nanos_of, nanos_until},
    net::PeerIdentity,
    proto,
    sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Notify},
};

/// State shared by the handles and the driver of one connection.
pub(crate) struct ConnectionShared {
    core: Mutex<ConnectionCore>,
    /// `true` if the core is closing. Readable without its lock.
    is_closing: AtomicBool,
    /// `true` if the queue of replies may be full. Readable without the lock of the core.
    may_owe_replies: AtomicBool,
    /// Largest content length that both sides accept. Readable without the lock of the core.
    content_len_max: AtomicU32,
    /// Notified after a write.
    pub(crate) progress: Notify,
    pub(super) space: SpaceQueue,
    /// Notified when the connection ends, a stream can be accepted, the first bytes of the peer arrive, or the peer
    /// asks this side to leave.
    pub(crate) changed: Notify,
    pub(crate) config: Arc<Config>,
    /// Values attached by the user.
    pub(super) states: AttachedStates,
    began: Instant,
    /// Start time of the driver's turn, as [`nanos_of`] returns it.
    turn: AtomicU64,
    pub(crate) runtime: Handle,
    pub(crate) local: Address,
    pub(crate) peer: Address,
}

impl ConnectionShared {
    /// Creates the shared state of a connection served by the current runtime.
    pub(crate) fn new(
        proto: proto::Connection,
        config: Arc<Config>,
        local: Address,
        peer: Address,
        identity: PeerIdentity,
        now: Instant,
    ) -> Self {
        Self {
            core: Mutex::new(ConnectionCore::new(proto)),
            is_closing: AtomicBool::new(false),
            may_owe_replies: AtomicBool::new(false),
            content_len_max: AtomicU32::new(config.content_len_max),
            progress: Notify::new(),
            space: SpaceQueue::new(),
            changed: Notify::new(),
            config,
            states: AttachedStates::new(identity.map(|proof| Box::new(proof) as _)),
            began: now,
            turn: AtomicU64::new(nanos_of(now)),
            runtime: Handle::current(),
            local,
            peer,
        }
    }

    /// Records the start time of a driver's turn.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.turn.store(nanos_of(now), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn nanos_in_turn(&self, now: Instant) -> u64 {
        nanos_until(self.turn.load(Ordering::Relaxed), nanos_of(now))
    }

    #[inline]
    pub(crate) fn nanos_to_turn(&self, from: Instant) -> u64 {
        nanos_until(nanos_of(from), self.turn.load(Ordering::Relaxed))
    }

    pub(crate) fn turn(&self) -> Instant {
        self.began + Duration::from_nanos(nanos_until(nanos_of(self.began), self.turn.load(Ordering::Relaxed)))
    }

    #[inline]
    pub(crate) fn core(&self) -> MutexGuard<'_, ConnectionCore> {
        // Ignoring poison is sound: no code under the lock leaves the core in an inconsistent state.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the core and wakes the driver to look at it.
    #[inline]
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut ConnectionCore) -> T) -> T {
        let mut core = self.core();
        let result = change(&mut core);
        // Take the waker, so that a driver already woken is not woken again until it sleeps. Wake it after unlocking,
        // because it needs the lock immediately.
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    pub(crate) fn drain(&self, reason: CloseReason) {
        self.change(|core| core.proto.drain(reason));
    }

    /// Closes a connection without remaining users on this side.
    ///
    /// If the peer asked this side to leave, packets of the peer are answered first.
    pub(crate) fn leave(&self) {
        self.change(|core| {
            if core.proto.is_asked_to_leave() {
                core.proto.drain(CloseReason::Local);
            } else {
                core.proto.finish(CloseReason::Local);
            }
            self.note_closing(core);
        });
    }

    pub(crate) fn finish(&self, reason: CloseReason) {
        self.change(|core| {
            core.proto.finish(reason);
            self.note_closing(core);
        });
    }

    pub(crate) fn fail(&self, reason: CloseReason) {
        self.change(|core| {
            core.proto.fail(reason);
            self.note_closing(core);
        });
    }

    /// Updates [`is_closing`](Self::is_closing). Call this under the lock after any change that may have closed the
    /// connection.
    pub(crate) fn note_closing(&self, core: &ConnectionCore) {
        // Relaxed is enough: this is a hint for a task about to lock the core anyway.
        self.is_closing.store(core.proto.is_finishing(), Ordering::Relaxed);
    }

    /// Returns `true` if the queue of replies is full, and records it. Call this under the lock after adding replies.
    pub(crate) fn note_replies(&self, core: &ConnectionCore) -> bool {
        let owes_replies = core.proto.owes_replies();
        self.may_owe_replies.store(owes_replies, Ordering::Relaxed);
        owes_replies
    }

    /// Returns `true` if the queue of replies is full, at least for replies added by this thread.
    #[inline]
    pub(crate) fn owes_replies(&self) -> bool {
        // Some of the recorded replies may have been written since, so check again under the lock.
        self.may_owe_replies.load(Ordering::Relaxed) && self.core().proto.owes_replies()
    }

    /// Copies frequently used announcements of an extended peer out of the core. Call this under the lock.
    pub(crate) fn note_recognized(&self, core: &ConnectionCore) {
        self.content_len_max.store(core.proto.content_len_max(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn content_len_max(&self) -> u32 {
        self.content_len_max.load(Ordering::Relaxed)
    }

    /// Returns `true` if the connection is closing, without taking the lock. Closes by other threads may not be visible
    /// yet.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }
}
