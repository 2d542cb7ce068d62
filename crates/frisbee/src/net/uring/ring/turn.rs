//! One turn of a ring: submit the requests of the sockets, then collect results.

use std::{
    io, mem,
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::{Ring, SEND_LEN_MAX};
use crate::net::uring::{
    buffers::FilledBuffer,
    request::{Completion, CompletionKind, is_passing},
    slot::{ReceiveState, ReceivedBytes},
};

/// The state of a ring after a turn.
pub(in crate::net::uring) enum RingState {
    Running,
    /// The kernel reported a transient error and can be entered again later.
    Refused,
    Failed(io::Error),
}

impl Ring {
    /// Submits the requests of the sockets and collects results.
    ///
    /// Adds the tasks waiting for those results to `woken`, followed by the task of the ring itself if more work
    /// is left. `is_told` is an argument of
    /// [`RingAccess::enter`](crate::net::uring::access::RingAccess::enter).
    pub(in crate::net::uring) fn run_once(
        &mut self,
        cx: &Context<'_>,
        is_told: bool,
        woken: &mut Vec<Waker>,
    ) -> RingState {
        if self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
        }
        if self.failure.is_none() {
            let mut dirty = mem::take(&mut self.dirty);
            for key in dirty.drain(..) {
                self.submit(key);
            }
            self.dirty = dirty;
            let entered = self.kernel.enter(is_told);
            self.reap(entered, woken);
            if self.kernel.is_borrowed() {
                // The turn ends here, because a borrowed ring has no wait before the thread sleeps.
                self.activity.end_turn();
            }
        }
        match self.failure.take() {
            Some(failure) => RingState::Failed(failure),
            None if self.refused_since.is_some() => RingState::Refused,
            None => RingState::Running,
        }
    }

    /// Collects results after an entry into the kernel.
    fn reap(&mut self, entered: io::Result<()>, woken: &mut Vec<Waker>) {
        while let Some(completion) = self.kernel.next(self.task.as_ref()) {
            if let CompletionKind::Received { .. } | CompletionKind::Readable = completion.done {
                self.activity.note_receive();
            }
            self.complete(completion, woken);
        }
        match entered {
            Ok(()) => {
                self.refused_since = None;
                // Woken last: the other tasks may add requests, and the next entry submits these too.
                if self.kernel.is_unfinished() {
                    woken.extend(self.task.clone());
                }
            }
            Err(error) => {
                let since = *self.refused_since.get_or_insert_with(Instant::now);
                if !is_passing(&error) || since.elapsed() > REFUSED_MAX {
                    self.failure = Some(error);
                }
                // The task ends with the ring, or pauses before the next attempt.
                woken.extend(self.task.clone());
            }
        }
    }

    /// Waits on the ring for a moment if several sockets are likely to receive. One wake-up then serves all of
    /// them.
    pub(in crate::net::uring) fn spin_wait(&mut self, woken: &mut Vec<Waker>) {
        debug_assert!(!self.kernel.is_borrowed(), "the runtime of a borrowed ring waits on it by itself");
        if self.failure.is_none()
            && let Some(completions) = self.activity.next_spin(std::time::Instant::now())
        {
            let entered = self.kernel.enter_and_wait(completions, SPIN_MAX);
            self.reap(entered, woken);
            self.activity.end_spin();
        }
    }

    /// Submits the requests of one socket.
    fn submit(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        debug_assert!(slot.is_dirty, "a socket is listed once for each time that it was marked");
        slot.is_dirty = false;
        if slot.is_dropped {
            if slot.is_idle() {
                self.slots.remove(key);
            } else {
                self.kernel.stop(key, &slot.fd);
            }
            return;
        }
        if slot.receiving == ReceiveState::Wanted {
            slot.receiving = ReceiveState::On;
            self.kernel.receive(key, &slot.fd);
        }
        if !slot.is_sending && !slot.queued.is_empty() {
            slot.is_sending = true;
            self.kernel.send(key, &slot.fd, mem::take(&mut slot.queued));
        }
    }

    fn complete(&mut self, completion: Completion, woken: &mut Vec<Waker>) {
        let key = completion.key;
        let slot = &mut self.slots[key];
        match completion.done {
            CompletionKind::Received { result, goes_on } => self.complete_receive(key, result, goes_on, woken),
            CompletionKind::Sent { bytes, result } => self.complete_send(key, bytes, result, woken),
            CompletionKind::Readable => {
                debug_assert!(
                    matches!(slot.receiving, ReceiveState::Waiting | ReceiveState::Stopping),
                    "the kernel was asked to"
                );
                slot.receiving = ReceiveState::Off;
                woken.extend(slot.reader.take());
            }
            CompletionKind::Writable => {
                debug_assert!(slot.is_waiting_writable, "the kernel was asked to");
                slot.is_waiting_writable = false;
                woken.extend(slot.writer.take());
            }
        }
        let slot = &self.slots[key];
        if slot.is_dropped && slot.is_idle() {
            self.unmark(key);
            self.slots.remove(key);
        }
    }

    fn complete_receive(
        &mut self,
        key: usize,
        result: io::Result<Option<FilledBuffer>>,
        goes_on: bool,
        woken: &mut Vec<Waker>,
    ) {
        let slot = &mut self.slots[key];
        debug_assert!(matches!(slot.receiving, ReceiveState::On | ReceiveState::Stopping), "the kernel was asked to");
        if !goes_on {
            slot.receiving = ReceiveState::Off;
        }
        match result {
            Ok(Some(filled)) if !filled.is_empty() => self.keep_received(key, filled),
            Ok(_) => slot.end = Some(Ok(())),
            // Receiving was stopped or ran out of buffers. The next read restarts it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::ENOBUFS)) => {}
            Err(error) => slot.end = Some(Err(error)),
        }
        woken.extend(self.slots[key].reader.take());
    }

    fn complete_send(&mut self, key: usize, mut bytes: Vec<u8>, result: io::Result<usize>, woken: &mut Vec<Waker>) {
        let slot = &mut self.slots[key];
        debug_assert!(slot.is_sending, "one send is in flight for a socket");
        slot.is_sending = false;
        match result {
            Ok(len) if len < bytes.len() => {
                // A signal interrupted the send. The rest goes before newer bytes.
                bytes.drain(..len);
                bytes.append(&mut slot.queued);
                slot.queued = bytes;
            }
            Ok(_) if self.spare.len() < SPARE_MAX && bytes.capacity() <= SEND_LEN_MAX => {
                bytes.clear();
                self.spare.push(bytes);
            }
            Ok(_) => {}
            Err(error) => {
                slot.queued = Vec::new();
                slot.failure = Some(error);
            }
        }
        woken.extend(slot.writer.take());
        if !slot.queued.is_empty() {
            self.mark(key);
        }
    }

    fn keep_received(&mut self, key: usize, filled: FilledBuffer) {
        let slot = &mut self.slots[key];
        slot.received_len += filled.len();
        if slot.is_dropped {
            return;
        }
        if !filled.is_scarce() && slot.received.len() < FILLED_MAX {
            slot.received.push_back(ReceivedBytes::Filled(filled));
        } else if let Some(ReceivedBytes::Copied(copied)) = slot.received.back_mut() {
            copied.extend_from_slice(&filled);
        } else {
            slot.received.push_back(ReceivedBytes::Copied((*filled).into()));
        }
        if slot.received_len > RECEIVED_LEN_MAX && slot.receiving == ReceiveState::On {
            self.stop_receiving(key);
        }
    }
}

/// The limit on received bytes of one socket not yet read. Above it, receiving stops until the connection reads.
const RECEIVED_LEN_MAX: usize = 64 * 1024;
/// The limit on buffers held by one socket. Further bytes are copied.
const FILLED_MAX: usize = 8;
/// The limit on spare send buffers of a ring.
const SPARE_MAX: usize = 64;
/// The longest wait of a busy thread on its ring.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// The longest series of transient errors. After it, the ring has failed.
const REFUSED_MAX: Duration = Duration::from_secs(1);
