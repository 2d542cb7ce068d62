//! Words of the broker for one client, besides messages. It waits when the outbox is full, and is never dropped.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use frisbee::{Connection, Packet, TrySendError};
use tokio::sync::Notify;

use crate::wire::{Base, Kind};

/// Answers in their order. What would add more than may wait waits itself; see [`is_full`](Self::is_full).
#[derive(Debug)]
pub(super) struct Answers {
    base: Base,
    len_max: usize,
    waiting: Mutex<Waiting>,
    /// The number of those that wait, for a look without the lock.
    len: AtomicUsize,
    /// Notified when fewer wait.
    pub(super) drained: Notify,
}

#[derive(Debug)]
struct Waiting {
    /// None when it has ended: the connection holds the value that holds this, and neither would ever go.
    connection: Option<Connection>,
    packets: VecDeque<Packet>,
    /// Credit for publishing that is not told yet. One packet tells of all of it.
    allowed: usize,
}

impl Answers {
    pub(super) fn new(base: Base, len_max: usize, connection: Option<Connection>) -> Self {
        let waiting = Waiting { connection, packets: VecDeque::new(), allowed: 0 };
        Self { base, len_max, waiting: Mutex::new(waiting), len: AtomicUsize::new(0), drained: Notify::new() }
    }

    /// Sends an answer, or has it wait.
    pub(super) fn say(&self, kind: Kind, id: u16, content: impl Into<frisbee::Content>) {
        let mut waiting = self.waiting();
        waiting.packets.push_back(Packet::new(id, self.base.operation(kind), content));
        self.send(waiting);
    }

    /// Gives a publisher credit.
    pub(super) fn allow(&self, bytes: usize) {
        let mut waiting = self.waiting();
        waiting.allowed += bytes;
        self.send(waiting);
    }

    /// Sends what waits, as far as the outbox takes it. Returns whether all of it was sent.
    pub(super) fn drain(&self) -> bool {
        let waiting = self.waiting();
        self.send(waiting);
        !self.are_waiting()
    }

    /// Returns whether anything waits, which goes before all messages. Without a lock: what this thread said counts.
    pub(super) fn are_waiting(&self) -> bool {
        self.len.load(Ordering::Relaxed) > 0
    }

    /// Returns whether as many wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) >= self.len_max
    }

    /// Lets go of the connection, which has ended.
    pub(super) fn end(&self) {
        let mut waiting = self.waiting();
        waiting.connection = None;
        waiting.packets.clear();
        self.len.store(0, Ordering::Relaxed);
        drop(waiting);
        self.drained.notify_waiters();
    }

    fn send(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let Waiting { connection, packets, allowed } = &mut *waiting;
        let Some(connection) = connection else {
            packets.clear();
            return;
        };
        let before = self.len.load(Ordering::Relaxed);
        while let Some(packet) = packets.pop_front() {
            match connection.try_send(packet) {
                Ok(_) => {}
                Err(TrySendError::Full(packet)) => {
                    packets.push_front(packet);
                    break;
                }
                // The connection ends, and whoever waits for the answer learns of that.
                Err(TrySendError::Failed(_)) => {}
            }
        }
        if packets.is_empty() && *allowed > 0 {
            let bytes = u32::try_from(*allowed).unwrap_or(u32::MAX);
            let content = bytes.to_be_bytes().to_vec();
            match connection.try_send(Packet::new(0, self.base.operation(Kind::Allow), content)) {
                Err(TrySendError::Full(_)) => {}
                _ => *allowed -= bytes as usize,
            }
        }
        let now = packets.len() + usize::from(*allowed > 0);
        self.len.store(now, Ordering::Relaxed);
        drop(waiting);
        if now < before {
            self.drained.notify_waiters();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that runs under the lock leaves it half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
