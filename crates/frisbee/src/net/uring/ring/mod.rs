//! The ring of a thread. One system call submits the requests of all sockets and collects their results.

mod activity;
mod turn;

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    mem,
    os::fd::OwnedFd,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, Waker, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use slab::Slab;
use socket2::SockRef;
use tokio::{io::ReadBuf, time::Instant};

use self::activity::RingActivity;
pub(super) use self::turn::RingState;
use super::{
    access::RingAccess,
    slot::{ReceiveState, SocketSlot, receive_now, send_now},
};
use crate::net::low_water::set_low_water;

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// The sockets of one thread and their ring.
pub(super) struct Ring {
    /// Distinguishes this ring from those of other threads and earlier runtimes.
    id: u64,
    /// Declared before the sockets, so it is dropped first and releases them.
    kernel: RingAccess,
    slots: Slab<SocketSlot>,
    /// Sockets with requests to submit.
    dirty: Vec<usize>,
    activity: RingActivity,
    /// The start of the current series of transient errors from the kernel.
    refused_since: Option<Instant>,
    failure: Option<io::Error>,
    /// Wakes the task of the ring.
    task: Option<Waker>,
    /// Buffers of finished sends, for reuse.
    spare: Vec<Vec<u8>>,
}

impl Ring {
    /// Runs `visit` on the ring of this thread, if it has one.
    pub(super) fn here<T>(visit: impl FnOnce(&mut Self) -> T) -> Option<T> {
        // At the end of a thread, the ring may be destroyed before the last socket.
        RING.try_with(|ring| ring.borrow_mut().as_mut().map(visit)).ok().flatten()
    }

    /// Installs a ring on this thread. Returns its id.
    pub(super) fn put_here(kernel: RingAccess) -> u64 {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        RING.set(Some(Self {
            id,
            kernel,
            slots: Slab::new(),
            dirty: Vec::new(),
            activity: RingActivity::default(),
            refused_since: None,
            failure: None,
            task: None,
            spare: Vec::new(),
        }));
        id
    }

    /// Removes the ring with this id from its thread. Wakes all tasks waiting on it, which then find no ring.
    pub(super) fn remove_from_here(id: u64) {
        let ring = RING.try_with(|ring| ring.borrow_mut().take_if(|ring| ring.id == id));
        if let Ok(Some(mut ring)) = ring {
            let slots = ring.slots.iter_mut();
            let waiting: Vec<Waker> =
                slots.flat_map(|(_, slot)| [slot.reader.take(), slot.writer.take()]).flatten().collect();
            // Before the wake-ups, so the kernel has released all sockets by then.
            drop(ring);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Adds a connected socket in blocking mode.
    pub(super) fn insert(&mut self, fd: OwnedFd) -> usize {
        self.slots.insert(SocketSlot::new(fd))
    }

    /// Gives up a socket: it closes after its last request. Bytes not yet taken by the kernel are not sent.
    ///
    /// Returns the wakers of waiting tasks. They must be dropped while the ring is not borrowed.
    pub(super) fn drop(&mut self, key: usize) -> impl Sized + use<> {
        let slot = &mut self.slots[key];
        slot.is_dropped = true;
        slot.queued = Vec::new();
        slot.received = VecDeque::new();
        let waited = (slot.reader.take(), slot.writer.take(), slot.direct.take());
        self.mark(key);
        waited
    }

    pub(super) fn poll_read(
        &mut self,
        key: usize,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_quiet = self.activity.is_quiet();
        let slot = &mut self.slots[key];
        if !slot.received.is_empty() {
            self.read_received(key, buf);
            return Poll::Ready(Ok(()));
        }
        // Reports an error once. Later reads return the end of the stream.
        if let Some(end) = slot.end.take() {
            slot.end = Some(Ok(()));
            return Poll::Ready(end);
        }
        let is_large = buf.remaining() >= LARGE_LEN;
        match slot.receiving {
            // Bypasses the ring: a large read saves a copy, and a quiet thread has no system calls to share.
            ReceiveState::Off if self.kernel.receives() && (is_large || is_quiet) => {
                let received = slot.poll_direct(cx, buf);
                if received.is_ready() {
                    self.activity.note_receive();
                }
                return received;
            }
            ReceiveState::Off if self.kernel.receives() => {
                slot.direct = None;
                slot.receiving = ReceiveState::Wanted;
                self.mark(key);
            }
            // A portable ring cannot receive. Reads directly, unless the last read emptied the socket.
            ReceiveState::Off => {
                if !mem::take(&mut slot.is_drained)
                    && let Poll::Ready(received) = receive_now(&slot.fd, buf)
                {
                    slot.is_drained = buf.remaining() > 0;
                    return Poll::Ready(received);
                }
                slot.receiving = ReceiveState::Waiting;
                self.kernel.wait_readable(key, &slot.fd);
                self.mark(key);
            }
            // Stops the kernel, so that the next read can bypass the ring without reordering bytes.
            ReceiveState::On if is_large => self.stop_receiving(key),
            ReceiveState::Wanted | ReceiveState::On | ReceiveState::Stopping | ReceiveState::Waiting => {}
        }
        wait(&mut self.slots[key].reader, cx);
        Poll::Pending
    }

    /// Sets the number of bytes that the socket waits for. Returns `false` if the system cannot.
    pub(super) fn set_low_water(&self, key: usize, len: usize) -> bool {
        set_low_water(&self.slots[key].fd, len)
    }

    fn read_received(&mut self, key: usize, buf: &mut ReadBuf<'_>) {
        let slot = &mut self.slots[key];
        while let Some(first) = slot.received.front_mut()
            && buf.remaining() > 0
        {
            let len = first.len().min(buf.remaining());
            buf.put_slice(&first[..len]);
            slot.received_len -= len;
            if len == first.len() {
                slot.received.pop_front();
            } else {
                first.advance(len);
            }
        }
        debug_assert!(slot.received_len > 0 || slot.received.is_empty(), "nothing empty waits to be read");
    }

    pub(super) fn poll_write(
        &mut self,
        key: usize,
        cx: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (len, is_quiet): (usize, _) = (slices.iter().map(|slice| slice.len()).sum(), self.activity.is_quiet());
        let slot = &mut self.slots[key];
        if let Some(failure) = slot.failure.take() {
            return Poll::Ready(Err(failure));
        }
        let is_large = len > SEND_LEN_MAX;
        // Bypasses the ring only with nothing queued or in flight, to keep the bytes in order.
        if (is_large || is_quiet) && slot.queued.is_empty() && !slot.is_sending && !slot.is_waiting_writable {
            if let Poll::Ready(sent) = send_now(&slot.fd, slices) {
                return Poll::Ready(sent);
            }
            if is_large {
                slot.is_waiting_writable = true;
                self.kernel.wait_writable(key, &slot.fd);
                self.mark(key);
            }
        }
        let slot = &mut self.slots[key];
        if is_large || slot.queued.len() + len > SEND_LEN_MAX {
            wait(&mut slot.writer, cx);
            return Poll::Pending;
        }
        if slot.queued.capacity() == 0 {
            slot.queued = self.spare.pop().unwrap_or_default();
        }
        slices.iter().for_each(|slice| slot.queued.put_slice(slice));
        debug_assert!(slot.queued.len() <= SEND_LEN_MAX, "what goes through the ring is bounded");
        self.mark(key);
        Poll::Ready(Ok(len))
    }

    /// Waits until the kernel has taken all written bytes.
    pub(super) fn poll_flush(&mut self, key: usize, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key];
        if let Some(failure) = slot.failure.take() {
            return Poll::Ready(Err(failure));
        }
        if slot.queued.is_empty() && !slot.is_sending {
            return Poll::Ready(Ok(()));
        }
        wait(&mut slot.writer, cx);
        Poll::Pending
    }

    pub(super) fn poll_shutdown(&mut self, key: usize, cx: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(key, cx))?;
        Poll::Ready(SockRef::from(&self.slots[key].fd).shutdown(std::net::Shutdown::Write))
    }

    /// Takes a socket off the ring, with received bytes not yet read.
    pub(super) fn poll_remove(&mut self, key: usize, cx: &Context<'_>) -> Poll<io::Result<(OwnedFd, Bytes)>> {
        let slot = &mut self.slots[key];
        match slot.receiving {
            // Stops receiving only after the last send: until then, it reports errors of the connection.
            _ if slot.is_sending || !slot.queued.is_empty() => {}
            ReceiveState::Wanted => slot.receiving = ReceiveState::Off,
            ReceiveState::On | ReceiveState::Waiting => self.stop_receiving(key),
            ReceiveState::Off | ReceiveState::Stopping => {}
        }
        let slot = &mut self.slots[key];
        if !slot.is_idle() || !slot.queued.is_empty() || slot.receiving == ReceiveState::Wanted {
            wait(&mut slot.reader, cx);
            wait(&mut slot.writer, cx);
            return Poll::Pending;
        }
        slot.direct = None;
        self.unmark(key);
        let slot = self.slots.remove(key);
        debug_assert!(slot.is_idle(), "the kernel has let go of it");
        if let Some(failure) = slot.failure.or(slot.end.and_then(Result::err)) {
            return Poll::Ready(Err(failure));
        }
        let mut unread = BytesMut::with_capacity(slot.received_len);
        slot.received.iter().for_each(|received| unread.extend_from_slice(received));
        // On a borrowed ring, a cancellation may still hold a reference.
        let fd = Rc::try_unwrap(slot.fd).or_else(|fd| fd.try_clone())?;
        Poll::Ready(Ok((fd, unread.freeze())))
    }

    fn stop_receiving(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        debug_assert!(matches!(slot.receiving, ReceiveState::On | ReceiveState::Waiting), "there is something to stop");
        slot.receiving = ReceiveState::Stopping;
        self.kernel.stop_receiving(key, &slot.fd);
        self.mark(key);
    }

    /// Adds the socket to those with requests, and wakes the task of the ring. It runs after all tasks that are
    /// ready now.
    fn mark(&mut self, key: usize) {
        if mem::replace(&mut self.slots[key].is_dirty, true) {
            return;
        }
        self.dirty.push(key);
        if self.dirty.len() == 1
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    fn unmark(&mut self, key: usize) {
        if self.slots[key].is_dirty {
            self.dirty.retain(|dirty| *dirty != key);
        }
    }
}

fn wait(waiting: &mut Option<Waker>, cx: &Context<'_>) {
    if waiting.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
        *waiting = Some(cx.waker().clone());
    }
}

/// Reads into a buffer of this length or more bypass the ring, to save a copy.
const LARGE_LEN: usize = 32 * 1024;
/// Larger writes bypass the ring.
const SEND_LEN_MAX: usize = 16 * 1024;
