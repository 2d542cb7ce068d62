//! The ring of a thread: what its sockets ask of the kernel goes there in one system call, with what the kernel did.
#![expect(unsafe_code, reason = "descriptors and buffers that are not yet initialised")]

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::{Future, poll_fn},
    io::{self, IoSlice},
    mem,
    ops::Deref,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use slab::Slab;
use socket2::SockRef;
use tokio::{
    io::{Interest, ReadBuf, unix::AsyncFd},
    time::{Instant, Sleep, sleep},
};
use tracing::error;

use super::{
    access::Access,
    buffers::Filled,
    kernel::{Completion, Done, is_passing},
};
use crate::RingError;

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
    /// The ring that failed on this thread, and why. There is not more than one: nothing installs a second.
    static FAILED: RefCell<Option<(u64, RingError)>> = const { RefCell::new(None) };
}

/// The sockets of one thread and their way to the kernel.
pub(super) struct Ring {
    /// Tells this ring from those of other threads and of earlier runtimes.
    id: u64,
    /// Comes before the sockets: it is dropped first, and lets go of them.
    kernel: Access,
    slots: Slab<Slot>,
    /// Sockets that have something to tell the kernel.
    dirty: Vec<usize>,
    /// How often something was received since the thread was idle last.
    received: usize,
    /// The same on average over some turns, times their number.
    crowd: usize,
    /// How many times the thread goes without waiting on the ring.
    lingers_to_skip: u32,
    lingers_skipped: u32,
    /// Since when the kernel refuses what it may do later.
    refused_since: Option<Instant>,
    failure: Option<io::Error>,
    /// Wakes the task that tends the ring.
    tender: Option<Waker>,
    /// Buffers of sends that are through.
    spare: Vec<Vec<u8>>,
}

/// What a ring knows of a socket.
struct Slot {
    fd: Rc<OwnedFd>,
    receiving: Receiving,
    received: VecDeque<Received>,
    received_len: usize,
    /// How the peer's input ended.
    end: Option<io::Result<()>>,
    reader: Option<Waker>,
    /// Tells when there is something to read past the ring, if the kernel could read by itself.
    direct: Option<AsyncFd<Rc<OwnedFd>>>,
    /// The same where it could not: whether the last read left nothing behind.
    is_drained: bool,
    /// Written, and not yet given to the kernel.
    queued: Vec<u8>,
    is_sending: bool,
    failure: Option<io::Error>,
    is_waiting_writable: bool,
    writer: Option<Waker>,
    is_dirty: bool,
    is_dropped: bool,
}

/// Whether the kernel reads by itself.
#[derive(Clone, Copy, PartialEq)]
enum Receiving {
    Off,
    Wanted,
    On,
    /// On until the kernel says that it stopped.
    Stopping,
    /// Only waiting for something to be there.
    Waiting,
}

enum Received {
    Filled(Filled),
    Copied(BytesMut),
}

impl Received {
    fn advance(&mut self, len: usize) {
        match self {
            Self::Filled(filled) => filled.advance(len),
            Self::Copied(copied) => copied.advance(len),
        }
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Filled(filled) => filled,
            Self::Copied(copied) => copied,
        }
    }
}

impl Ring {
    /// Runs `visit` on the ring of this thread, if it has one.
    pub(super) fn here<T>(visit: impl FnOnce(&mut Self) -> T) -> Option<T> {
        // While a thread ends, its ring may be gone before the last socket.
        RING.try_with(|ring| ring.borrow_mut().as_mut().map(visit)).ok().flatten()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Takes a connected socket in blocking mode.
    pub(super) fn insert(&mut self, fd: OwnedFd) -> usize {
        self.slots.insert(Slot {
            fd: Rc::new(fd),
            receiving: Receiving::Off,
            received: VecDeque::new(),
            received_len: 0,
            end: None,
            reader: None,
            direct: None,
            is_drained: false,
            queued: Vec::new(),
            is_sending: false,
            failure: None,
            is_waiting_writable: false,
            writer: None,
            is_dirty: false,
            is_dropped: false,
        })
    }

    /// The socket closes when the kernel has let go of it. What it has not taken yet is not sent. Returns who waited,
    /// to be dropped when the ring is not in use.
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
        let is_quiet = self.is_quiet();
        let slot = &mut self.slots[key];
        if !slot.received.is_empty() {
            self.read_received(key, buf);
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = slot.end.take() {
            slot.end = Some(Ok(()));
            return Poll::Ready(end);
        }
        let is_large = buf.remaining() >= LARGE_LEN;
        match slot.receiving {
            Receiving::Off if self.kernel.receives() && (is_large || is_quiet) => {
                let received = slot.poll_direct(cx, buf);
                self.received += usize::from(received.is_ready());
                return received;
            }
            Receiving::Off if self.kernel.receives() => {
                slot.direct = None;
                slot.receiving = Receiving::Wanted;
                self.mark(key);
            }
            Receiving::Off => {
                if !mem::take(&mut slot.is_drained)
                    && let Poll::Ready(received) = receive_now(&slot.fd, buf)
                {
                    slot.is_drained = buf.remaining() > 0;
                    return Poll::Ready(received);
                }
                slot.receiving = Receiving::Waiting;
                self.kernel.wait_readable(key, &slot.fd);
                self.mark(key);
            }
            Receiving::On if is_large => self.stop_receiving(key),
            Receiving::Wanted | Receiving::On | Receiving::Stopping | Receiving::Waiting => {}
        }
        wait(&mut self.slots[key].reader, cx);
        Poll::Pending
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
    }

    pub(super) fn poll_write(
        &mut self,
        key: usize,
        cx: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (len, is_quiet): (usize, _) = (slices.iter().map(|slice| slice.len()).sum(), self.is_quiet());
        let slot = &mut self.slots[key];
        if let Some(failure) = slot.failure.take() {
            return Poll::Ready(Err(failure));
        }
        let is_large = len > SEND_LEN_MAX;
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
        self.mark(key);
        Poll::Ready(Ok(len))
    }

    /// Waits until the kernel has everything that was written.
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

    /// Takes a socket back from the ring, with what was received and not read.
    pub(super) fn poll_remove(&mut self, key: usize, cx: &Context<'_>) -> Poll<io::Result<(OwnedFd, Bytes)>> {
        let slot = &mut self.slots[key];
        match slot.receiving {
            // Reading stops last, so that what is in the way of writing is heard of.
            _ if slot.is_sending || !slot.queued.is_empty() => {}
            Receiving::Wanted => slot.receiving = Receiving::Off,
            Receiving::On | Receiving::Waiting => self.stop_receiving(key),
            Receiving::Off | Receiving::Stopping => {}
        }
        let slot = &mut self.slots[key];
        if !slot.is_idle() || !slot.queued.is_empty() || slot.receiving == Receiving::Wanted {
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
        // A cancellation on a ring that is borrowed may still hold it.
        let fd = Rc::try_unwrap(slot.fd).or_else(|fd| fd.try_clone())?;
        Poll::Ready(Ok((fd, unread.freeze())))
    }

    /// Whether so little is going on that a system call has nothing to share: then the ring would only be in the way.
    fn is_quiet(&self) -> bool {
        self.crowd + self.received < 2 * CROWD_MEMORY
    }

    fn stop_receiving(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        debug_assert!(matches!(slot.receiving, Receiving::On | Receiving::Waiting), "there is something to stop");
        slot.receiving = Receiving::Stopping;
        self.kernel.stop_receiving(key, &slot.fd);
        self.mark(key);
    }

    /// Has the ring tended when the tasks that are ready now have run.
    fn mark(&mut self, key: usize) {
        if mem::replace(&mut self.slots[key].is_dirty, true) {
            return;
        }
        self.dirty.push(key);
        if self.dirty.len() == 1
            && let Some(tender) = &self.tender
        {
            tender.wake_by_ref();
        }
    }

    fn unmark(&mut self, key: usize) {
        if self.slots[key].is_dirty {
            self.dirty.retain(|dirty| *dirty != key);
        }
    }

    /// Tells the kernel what the sockets want, and hears what it has done. Leaves in `woken` who waited for that, and
    /// behind them the task that tends the ring if there is more to do. `is_told` is for [`Access::enter`].
    fn tend(&mut self, is_told: bool, woken: &mut Vec<Waker>) {
        let mut dirty = mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            self.settle(key);
        }
        self.dirty = dirty;
        let entered = self.kernel.enter(is_told);
        self.hear(entered, woken);
        if self.kernel.is_borrowed() {
            // Nobody lingers, which ends a turn otherwise.
            self.end_turn();
        }
    }

    /// Hears what the kernel has done, now that it was entered.
    fn hear(&mut self, entered: io::Result<()>, woken: &mut Vec<Waker>) {
        while let Some(completion) = self.kernel.next(self.tender.as_ref()) {
            self.received += usize::from(matches!(completion.done, Done::Received { .. } | Done::Readable));
            self.complete(completion, woken);
        }
        match entered {
            Ok(()) => {
                self.refused_since = None;
                // Behind all others: what they want is handed over on the way.
                if self.kernel.is_unfinished() {
                    woken.extend(self.tender.clone());
                }
            }
            Err(error) => {
                let since = *self.refused_since.get_or_insert_with(Instant::now);
                if !is_passing(&error) || since.elapsed() > REFUSED_MAX {
                    self.failure = Some(error);
                }
                // It ends with the ring, or waits before it tries again.
                woken.extend(self.tender.clone());
            }
        }
    }

    /// How often something was received since this was called last.
    fn end_turn(&mut self) -> usize {
        let received = mem::take(&mut self.received);
        self.crowd = self.crowd - self.crowd / CROWD_MEMORY + received;
        received
    }

    /// Waits on the ring for a while, if that is likely to end with several sockets that received something, for half as
    /// many as did since the thread was idle last: one wake-up serves them all. Nothing else wakes the thread meanwhile,
    /// so a wait in vain puts off the next.
    fn linger(&mut self, woken: &mut Vec<Waker>) {
        let crowd = self.end_turn() / 2;
        if crowd < 2 || self.failure.is_some() {
            return;
        }
        if self.lingers_skipped < self.lingers_to_skip {
            self.lingers_skipped += 1;
            return;
        }
        let entered = self.kernel.enter_and_wait(crowd, LINGER_MAX);
        self.hear(entered, woken);
        self.lingers_skipped = 0;
        self.lingers_to_skip = match self.received {
            0 => (2 * self.lingers_to_skip + 1).min(LINGERS_SKIPPED_MAX),
            _ => 0,
        };
    }

    /// Asks the kernel for what a socket needs now.
    fn settle(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        slot.is_dirty = false;
        if slot.is_dropped {
            if slot.is_idle() {
                self.slots.remove(key);
            } else {
                self.kernel.stop(key, &slot.fd);
            }
            return;
        }
        if slot.receiving == Receiving::Wanted {
            slot.receiving = Receiving::On;
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
            Done::Received { result, goes_on } => {
                if !goes_on {
                    slot.receiving = Receiving::Off;
                }
                match result {
                    Ok(Some(filled)) if !filled.is_empty() => self.keep_received(key, filled),
                    Ok(_) => slot.end = Some(Ok(())),
                    // Stopped, or out of buffers: reading goes on when somebody reads.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::ENOBUFS)) => {}
                    Err(error) => slot.end = Some(Err(error)),
                }
                woken.extend(self.slots[key].reader.take());
            }
            Done::Sent { mut bytes, result } => {
                slot.is_sending = false;
                match result {
                    Ok(len) if len < bytes.len() => {
                        // Cut short by a signal: the rest goes first.
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
            Done::Readable => {
                slot.receiving = Receiving::Off;
                woken.extend(slot.reader.take());
            }
            Done::Writable => {
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

    fn keep_received(&mut self, key: usize, filled: Filled) {
        let slot = &mut self.slots[key];
        slot.received_len += filled.len();
        if slot.is_dropped {
            return;
        }
        if !filled.is_scarce() && slot.received.len() < FILLED_MAX {
            slot.received.push_back(Received::Filled(filled));
        } else if let Some(Received::Copied(copied)) = slot.received.back_mut() {
            copied.extend_from_slice(&filled);
        } else {
            slot.received.push_back(Received::Copied((*filled).into()));
        }
        if slot.received_len > RECEIVED_LEN_MAX && slot.receiving == Receiving::On {
            self.stop_receiving(key);
        }
    }
}

impl Slot {
    /// Reads past the ring.
    fn poll_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let direct = match &mut self.direct {
            Some(direct) => direct,
            none => none.insert(register(self.fd.clone())?),
        };
        loop {
            let mut ready = ready!(direct.poll_read_ready(cx))?;
            let received = receive_now(&self.fd, buf);
            if received.is_pending() || buf.remaining() > 0 {
                ready.clear_ready();
            }
            if received.is_ready() {
                return received;
            }
        }
    }

    /// Whether the kernel has nothing under way for it.
    fn is_idle(&self) -> bool {
        matches!(self.receiving, Receiving::Off | Receiving::Wanted) && !self.is_sending && !self.is_waiting_writable
    }
}

/// Gives the thread of the current runtime a ring. It has to be a runtime of this thread alone.
pub(super) fn install(kernel: Access) -> io::Result<()> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    let signal = kernel.signal()?.map(register).transpose()?;
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let ring = Ring {
        id,
        kernel,
        slots: Slab::new(),
        dirty: Vec::new(),
        received: 0,
        crowd: 0,
        lingers_to_skip: 0,
        lingers_skipped: 0,
        refused_since: None,
        failure: None,
        tender: None,
        spare: Vec::new(),
    };
    RING.set(Some(ring));
    tokio::spawn(Tender { ring: id, signal, pause: None, woken: Vec::new() }.run());
    Ok(())
}

fn register<T: AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `T` is an owned descriptor or a share of one, and the `AsyncFd` has it until it is not registered any more.
    unsafe { Ok(AsyncFd::register_with_interest(fd, Interest::READABLE)?) }
}

/// Waits on the ring of this thread, before its runtime waits for everything.
pub(crate) fn linger() {
    let mut woken = Vec::new();
    Ring::here(|ring| ring.linger(&mut woken));
    woken.into_iter().for_each(Waker::wake);
}

/// Returns what the ring failed with, if it did and was one of this thread.
pub(super) fn failure(ring: u64) -> Option<io::Error> {
    let failed = FAILED.try_with(|failed| failed.borrow().clone());
    let (_, error) = failed.ok().flatten().filter(|(id, _)| *id == ring)?;
    Some(io::Error::new(error.kind(), error))
}

/// Tends the ring of its thread for as long as the runtime lives.
struct Tender {
    ring: u64,
    /// Readable when the kernel has done something of which nobody else tells.
    signal: Option<AsyncFd<OwnedFd>>,
    /// Ends when the kernel may be asked again for what it refused.
    pause: Option<Pin<Box<Sleep>>>,
    woken: Vec<Waker>,
}

impl Tender {
    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let mut is_told = false;
        while let Some(signal) = &self.signal
            && let Poll::Ready(Ok(mut ready)) = signal.poll_read_ready(cx)
        {
            // Before the kernel is entered: a signal from then on is one for the next time.
            ready.clear_ready();
            is_told = true;
        }
        let tended = Ring::here(|ring| {
            if ring.tender.as_ref().is_none_or(|tender| !tender.will_wake(cx.waker())) {
                ring.tender = Some(cx.waker().clone());
            }
            if ring.failure.is_none() {
                ring.tend(is_told, &mut self.woken);
            }
            (ring.failure.take(), ring.refused_since.is_some())
        });
        self.woken.drain(..).for_each(Waker::wake);
        match tended {
            Some((Some(failure), _)) => {
                let error = RingError::new(failure);
                error!(%error, "a ring failed, and its connections with it");
                FAILED.set(Some((self.ring, error)));
                Poll::Ready(())
            }
            Some((None, true)) => {
                self.pause = Some(Box::pin(sleep(REFUSED_PAUSE)));
                // The wake-up of before is still to come, and has the pause polled.
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        let ring = RING.try_with(|ring| ring.borrow_mut().take_if(|ring| ring.id == self.ring));
        // Whoever waits finds that there is no ring any more.
        if let Ok(Some(mut ring)) = ring {
            let waiting: Vec<Waker> = ring
                .slots
                .iter_mut()
                .flat_map(|(_, slot)| [slot.reader.take(), slot.writer.take()])
                .flatten()
                .collect();
            drop(ring);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

fn wait(waiting: &mut Option<Waker>, cx: &Context<'_>) {
    if waiting.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
        *waiting = Some(cx.waker().clone());
    }
}

/// Sends without waiting.
fn send_now(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    let (socket, flags) = (SockRef::from(fd), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let sent = match slices {
        [slice] => socket.send_with_flags(slice, flags),
        slices => socket.send_vectored_with_flags(slices, flags),
    };
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        sent => Poll::Ready(sent),
    }
}

/// Reads without waiting, which is better than the ring for what would have to be copied once more.
fn receive_now(fd: &OwnedFd, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    // SAFETY: `recv` only writes, so that what is initialised stays so, and says how much it wrote.
    let room = unsafe { buf.unfilled_mut() };
    match SockRef::from(fd).recv_with_flags(room, libc::MSG_DONTWAIT) {
        Ok(len) => {
            // SAFETY: the kernel has written as many bytes as it reports, and into `room`.
            unsafe { buf.assume_init(len) };
            buf.advance(len);
            Poll::Ready(Ok(()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Reads into a buffer of this size go past the ring.
const LARGE_LEN: usize = 32 * 1024;
/// What is received for a socket before somebody has to read.
const RECEIVED_LEN_MAX: usize = 64 * 1024;
/// Buffers that may wait for one socket to be read.
const FILLED_MAX: usize = 8;
/// More than this at once goes past the ring.
const SEND_LEN_MAX: usize = 16 * 1024;
const SPARE_MAX: usize = 64;
/// How long a busy thread waits for more.
const LINGER_MAX: Duration = Duration::from_micros(50);
/// How many turns tell whether a thread is busy.
const CROWD_MEMORY: usize = 4;
const LINGERS_SKIPPED_MAX: u32 = 255;
/// For how long the kernel may refuse what it could do later. Its ring has failed then.
const REFUSED_MAX: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_millis(1);
