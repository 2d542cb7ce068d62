//! The broker's answers to one client. They wait while the outbox is full. None is dropped while the connection is
//! open.

use std::{collections::VecDeque, sync::atomic::Ordering};

use frisbee::{Connection, Packet, TrySendError};

use crate::{
    lock::lock,
    sync::{AtomicUsize, Mutex, MutexGuard, Notify},
    wire::{OperationBase, PacketKind},
};

/// A queue of answers in order. While [`is_full`](Self::is_full) returns `true`, the router delays packets that need an
/// answer.
#[derive(Debug)]
pub(super) struct AnswerQueue {
    base: OperationBase,
    len_max: usize,
    waiting: Mutex<QueuedAnswers>,
    /// Number of queued answers, readable without the lock.
    len: AtomicUsize,
    /// Notified when the number of queued answers falls.
    pub(super) drained: Notify,
}

#[derive(Debug)]
struct QueuedAnswers {
    /// `None` after the connection has ended. The connection owns this queue, so keeping it would leak both.
    connection: Option<Connection>,
    packets: VecDeque<Packet>,
    /// Credit for publishing that the client was not told of yet. A single ALLOW carries all of it.
    allowed: usize,
}

impl AnswerQueue {
    pub(super) fn new(base: OperationBase, len_max: usize, connection: Option<Connection>) -> Self {
        let waiting = QueuedAnswers { connection, packets: VecDeque::new(), allowed: 0 };
        Self { base, len_max, waiting: Mutex::new(waiting), len: AtomicUsize::new(0), drained: Notify::new() }
    }

    /// Sends an answer, or queues it if the outbox is full.
    pub(super) fn queue_answer(&self, kind: PacketKind, id: u16, content: impl Into<frisbee::Content>) {
        let mut waiting = lock(&self.waiting);
        waiting.packets.push_back(Packet::new(id, self.base.operation(kind), content));
        self.send(waiting);
    }

    /// Grants a publisher more credit.
    pub(super) fn allow(&self, bytes: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.allowed += bytes;
        self.send(waiting);
    }

    /// Sends queued answers until the outbox is full. Returns `true` if none is left.
    pub(super) fn drain(&self) -> bool {
        let waiting = lock(&self.waiting);
        self.send(waiting);
        !self.are_waiting()
    }

    /// Returns `true` if answers are queued. They go before all messages. Reads without the lock, but sees every answer
    /// queued by this thread.
    pub(super) fn are_waiting(&self) -> bool {
        self.len.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if the queue has reached its limit.
    pub(super) fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) >= self.len_max
    }

    #[cfg(all(loom, test))]
    pub(super) fn allowed(&self) -> usize {
        lock(&self.waiting).allowed
    }

    /// Drops the queue and the connection, after the connection has ended.
    pub(super) fn end(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.connection = None;
        waiting.packets.clear();
        self.len.store(0, Ordering::Relaxed);
        drop(waiting);
        self.drained.notify_waiters();
    }

    fn send(&self, mut waiting: MutexGuard<'_, QueuedAnswers>) {
        let QueuedAnswers { connection, packets, allowed } = &mut *waiting;
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
                // The connection is about to end, which also ends the client's wait for the answer.
                Err(TrySendError::Failed(_)) => {}
            }
        }
        // Credit takes no place in the queue. It accumulates until all packets are sent.
        if packets.is_empty() && *allowed > 0 {
            let bytes = u32::try_from(*allowed).unwrap_or(u32::MAX);
            let content = bytes.to_be_bytes().to_vec();
            match connection.try_send(Packet::new(0, self.base.operation(PacketKind::Allow), content)) {
                Err(TrySendError::Full(_)) => {}
                _ => *allowed -= bytes as usize,
            }
        }
        let now = packets.len() + usize::from(*allowed > 0);
        self.len.store(now, Ordering::Relaxed);
        drop(waiting);
        // Notify without the lock held, because the woken tasks take it.
        if now < before {
            self.drained.notify_waiters();
        }
    }
}
