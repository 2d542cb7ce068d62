//! An io_uring: requests go into the submission queue, results come out of the completion queue.
#![expect(unsafe_code, reason = "the kernel works on memory while this process goes on")]

use std::{
    collections::VecDeque,
    io,
    mem::{self, ManuallyDrop},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use io_uring::{
    IoUring, cqueue,
    opcode::{AsyncCancel2, Nop, PollAdd, RecvMulti, Send},
    squeue::Entry,
    types::{CancelBuilder, Fd, SubmitArgs, Timespec},
};
use tracing::warn;

use super::{
    buffers::{GROUP, RingBuffers},
    request::{Completion, CompletionKind, RequestKind, is_passing, name, parse, result},
    way::RingFeatures,
};

/// An io_uring, owned by its creating thread.
///
/// The kernel accesses only memory owned by this type, and no memory is freed while the kernel may access it.
pub(super) struct OwnedRing {
    uring: IoUring,
    /// Receive buffers, if the kernel selects them. Freed by `drop` only, after the kernel's last access.
    buffers: ManuallyDrop<Option<Rc<RingBuffers>>>,
    /// Memory of sends in flight, by socket. Freed like `buffers`.
    sends: ManuallyDrop<Vec<Vec<u8>>>,
    /// Becomes readable after a completion, and when the kernel has deferred work for this thread.
    signal: OwnedFd,
    /// Requests without room in the submission queue.
    waiting: VecDeque<Entry>,
    /// Requests taken by the kernel and not yet finished.
    in_flight: usize,
    /// `true` if the last entry into the kernel left deferred work.
    has_left_work: bool,
}

impl OwnedRing {
    /// Creates a ring. [`probe`](Self::probe) it once: creation may succeed where use is forbidden.
    pub(super) fn new(way: RingFeatures) -> io::Result<Self> {
        let uring = match way {
            RingFeatures::Native => {
                let mut builder = IoUring::builder();
                builder.setup_single_issuer().setup_defer_taskrun();
                build(&mut builder)?
            }
            RingFeatures::Portable => build(IoUring::builder().setup_coop_taskrun())?,
        };
        let (buffers, signal) = match way {
            RingFeatures::Native => {
                let (buffers, signal) = (RingBuffers::new(), eventfd()?);
                buffers.register(&uring)?;
                uring.submitter().register_eventfd(signal.as_raw_fd())?;
                (Some(buffers), signal)
            }
            // SAFETY: the ring keeps its descriptor open.
            RingFeatures::Portable => {
                (None, unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) }.try_clone_to_owned()?)
            }
        };
        Ok(Self {
            uring,
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::default(),
            signal,
            waiting: VecDeque::new(),
            in_flight: 0,
            has_left_work: false,
        })
    }

    /// Submits an empty request to check that the kernel executes any. Some systems allow creating a ring, but not
    /// using it.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        self.request(Nop::new().build(), 0, RequestKind::Other);
        self.enter_and_wait(1, ANSWER_MAX)?;
        while self.next().is_some() {}
        if self.outstanding_requests() == 0 { Ok(()) } else { Err(io::Error::other("the kernel does not answer")) }
    }

    /// Returns a descriptor that becomes readable after a completion, and for deferred work on this thread.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.signal.try_clone()
    }

    /// Returns `true` if the kernel receives into buffers it selects, without separate read requests.
    pub(super) fn receives(&self) -> bool {
        self.buffers.is_some()
    }

    /// Receives until stopped, if the kernel [supports it](Self::receives).
    pub(super) fn receive(&mut self, key: usize, fd: &OwnedFd) {
        debug_assert!(self.receives(), "there are buffers to receive into");
        self.request(RecvMulti::new(Fd(fd.as_raw_fd()), GROUP).build(), key, RequestKind::Receive);
    }

    /// Sends all bytes. The socket must have no other send in flight.
    pub(super) fn send(&mut self, key: usize, fd: &OwnedFd, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).expect("a send is bounded");
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let send = Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), len).flags(flags).build();
        if self.sends.len() <= key {
            self.sends.resize_with(key + 1, Vec::new);
        }
        let last = mem::replace(&mut self.sends[key], bytes);
        assert!(last.capacity() == 0, "the kernel may still be sending what this would free");
        self.request(send, key, RequestKind::Send);
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &OwnedFd) {
        self.request(PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build(), key, RequestKind::Readable);
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &OwnedFd) {
        self.request(PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLOUT as u32).build(), key, RequestKind::Writable);
    }

    /// Stops receiving, or waiting for the socket to become readable.
    pub(super) fn stop_receiving(&mut self, key: usize) {
        self.cancel(key, &[RequestKind::Receive, RequestKind::Readable]);
    }

    /// Cancels all requests for a socket.
    pub(super) fn stop(&mut self, key: usize) {
        self.cancel(key, &[RequestKind::Receive, RequestKind::Readable, RequestKind::Writable, RequestKind::Send]);
    }

    /// Cancels requests by user data, which the kernel can look up. For a descriptor, it would search all
    /// requests.
    fn cancel(&mut self, key: usize, ops: &[RequestKind]) {
        for op in ops {
            let cancel = AsyncCancel2::new(CancelBuilder::user_data(name(key, *op)));
            self.request(cancel.build(), key, RequestKind::Other);
        }
    }

    /// Queues a request for the next entry into the kernel. Does not enter the kernel to make room, because that
    /// could fail.
    fn request(&mut self, request: Entry, key: usize, op: RequestKind) {
        let request = request.user_data(name(key, op));
        // Keeps requests in order.
        if !self.waiting.is_empty() || !self.push(&request) {
            self.waiting.push_back(request);
        }
    }

    fn push(&mut self, request: &Entry) -> bool {
        // SAFETY: the ring of sockets keeps a descriptor open until its last request is finished. The memory of a
        // send is in `sends`: `send` replaces no memory in use, `next` removes memory after its completion, and
        // `drop` frees the rest without requests in flight. Other requests refer to no memory.
        unsafe { self.uring.submission().push(request) }.is_ok()
    }

    /// Submits queued requests and lets the kernel do deferred work, if there is either.
    ///
    /// `is_told` is `true` after a wake-up by the [signal](Self::signal).
    ///
    /// # Errors
    ///
    /// Nothing is lost on an error. After a [transient](is_passing) one, the kernel can be entered again later.
    pub(super) fn enter(&mut self, is_told: bool) -> io::Result<()> {
        let requests = self.fill_queue();
        if !self.needs_entering(is_told) {
            return Ok(());
        }
        // SAFETY: the call passes no pointer.
        let entered = unsafe { self.uring.submitter().enter::<libc::sigset_t>(requests, 0, ENTER_GETEVENTS, None) };
        self.count_taken(requests, entered)
    }

    /// Submits queued requests, and waits for `completions` completions until `limit` has passed.
    ///
    /// # Errors
    ///
    /// Like [`enter`](Self::enter).
    pub(super) fn enter_and_wait(&mut self, completions: usize, limit: Duration) -> io::Result<()> {
        let requests = self.fill_queue();
        let limit = Timespec::from(limit);
        let entered = self.uring.submitter().submit_with_args(completions, &SubmitArgs::new().timespec(&limit));
        self.count_taken(requests, entered)
    }

    /// Moves waiting requests into the submission queue, and returns its length.
    fn fill_queue(&mut self) -> u32 {
        while let Some(request) = self.waiting.pop_front() {
            if !self.push(&request) {
                self.waiting.push_front(request);
                break;
            }
        }
        self.queue_len()
    }

    fn queue_len(&mut self) -> u32 {
        u32::try_from(self.uring.submission().len()).expect("the queue is bounded")
    }

    fn needs_entering(&mut self, is_told: bool) -> bool {
        let may_look = mem::take(&mut self.has_left_work) || is_told;
        let queue = self.uring.submission();
        // New deferred work is signaled, now or soon. Waiting for that signal lets more work share the system
        // call, so the flag alone is no reason to enter.
        !queue.is_empty() || queue.cq_overflow() || (queue.taskrun() && may_look)
    }

    /// Returns `true` if the kernel must be entered again, possibly without a signal.
    pub(super) fn is_unfinished(&mut self) -> bool {
        let queue = self.uring.submission();
        let is_due = !queue.is_empty() || queue.cq_overflow();
        drop(queue);
        is_due || !self.waiting.is_empty() || self.has_left_work
    }

    /// Updates the counts after an entry with `requests` queued requests.
    fn count_taken(&mut self, requests: u32, entered: io::Result<usize>) -> io::Result<()> {
        let taken = requests - self.queue_len();
        self.in_flight += taken as usize;
        // Since Linux 6.13, the kernel does only part of the deferred work per entry. It sets the flag for the
        // rest, but sends no signal.
        self.has_left_work = self.uring.submission().taskrun();
        match entered {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => Ok(()),
            Err(error) => Err(error),
            // The kernel took nothing and reported no error. It may do so later.
            Ok(_) if taken == 0 && requests > 0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Ok(_) => Ok(()),
        }
    }

    /// Returns the next completion.
    pub(super) fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.uring.completion().next()?;
            if !cqueue::more(entry.flags()) {
                debug_assert!(self.in_flight > 0, "every request ends once");
                self.in_flight -= 1;
            }
            if let Some(completion) = self.completion(&entry) {
                return Some(completion);
            }
        }
    }

    fn completion(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (key, op) = parse(entry.user_data());
        let result = result(entry.result());
        let done = match op {
            RequestKind::Receive => {
                let buffers = self.buffers.as_ref().expect("only a kernel that has buffers is asked to receive");
                let filled = cqueue::buffer_select(entry.flags());
                let result = result.map(|len| filled.map(|id| buffers.claim(id, len)));
                CompletionKind::Received { result, goes_on: cqueue::more(entry.flags()) }
            }
            RequestKind::Send => {
                debug_assert!(!cqueue::more(entry.flags()), "a send ends with its first completion");
                CompletionKind::Sent { bytes: mem::take(&mut self.sends[key]), result }
            }
            RequestKind::Readable => CompletionKind::Readable,
            RequestKind::Writable => CompletionKind::Writable,
            RequestKind::Other => return None,
        };
        Some(Completion { key, done })
    }

    fn outstanding_requests(&mut self) -> usize {
        self.in_flight + self.queue_len() as usize
    }

    /// Cancels all requests in flight, and waits until the kernel has finished them.
    fn cancel_all(&mut self) -> io::Result<()> {
        // The kernel has never seen these requests.
        self.waiting.clear();
        if self.in_flight > 0 {
            self.request(AsyncCancel2::new(CancelBuilder::any().all()).build(), 0, RequestKind::Other);
        }
        let mut deadline = Instant::now() + ANSWER_MAX;
        while self.in_flight > 0 {
            let before = self.outstanding_requests();
            match self.enter_and_wait(1, ANSWER_MAX) {
                Err(error) if !is_passing(&error) => return Err(error),
                Err(_) => thread::yield_now(),
                Ok(()) => {}
            }
            while self.next().is_some() {}
            if self.outstanding_requests() < before {
                deadline = Instant::now() + ANSWER_MAX;
            } else if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

impl Drop for OwnedRing {
    fn drop(&mut self) {
        let cancelled = self.cancel_all();
        if self.in_flight > 0 {
            // The kernel may still access this memory. Freeing it would corrupt its next use, so it is leaked.
            warn!(error = ?cancelled.err(), requests = self.in_flight, "the kernel did not release a ring: its memory is leaked");
            return;
        }
        // SAFETY: neither is used again. Without requests in flight, the kernel uses neither. Requests not yet
        // taken end with the ring.
        unsafe {
            ManuallyDrop::drop(&mut self.sends);
            ManuallyDrop::drop(&mut self.buffers);
        }
    }
}

fn build(builder: &mut io_uring::Builder) -> io::Result<IoUring> {
    builder.setup_taskrun_flag().setup_submit_all().setup_cqsize(COMPLETIONS).build(REQUESTS)
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the new descriptor has no other owner.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The length of the submission queue.
pub(super) const REQUESTS: u32 = 1024;
/// The length of the completion queue. The kernel keeps further completions until there is room.
const COMPLETIONS: u32 = 8192;
/// The longest wait for one more completion while probing or closing a ring.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// `IORING_ENTER_GETEVENTS`, a private constant of the io_uring crate.
const ENTER_GETEVENTS: u32 = 1;

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    /// Creates a ring, or returns `None` without io_uring on this machine.
    fn kernel(way: RingFeatures) -> Option<OwnedRing> {
        let made = OwnedRing::new(way).and_then(|mut kernel| kernel.probe().map(|()| kernel));
        let told = |reason: &io::Error| {
            assert!(env::var_os("CI").is_none(), "io_uring has to be tested in CI: {reason}");
            println!("skipped: {reason}");
        };
        made.inspect_err(told).ok()
    }

    fn pair() -> (OwnedFd, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours.into(), theirs)
    }

    /// Returns completions until there is no more work. `is_told` as for [`OwnedRing::enter`].
    fn reap_all(kernel: &mut OwnedRing, mut is_told: bool) -> Vec<Completion> {
        let mut heard = Vec::new();
        loop {
            kernel.enter(mem::take(&mut is_told)).unwrap();
            heard.extend(std::iter::from_fn(|| kernel.next()));
            if !kernel.is_unfinished() {
                return heard;
            }
        }
    }

    #[test]
    fn dropping_a_ring_cancels_its_requests() {
        for mut kernel in [RingFeatures::Native, RingFeatures::Portable].into_iter().filter_map(kernel) {
            let (ours, mut theirs) = pair();
            let more_than_fits = vec![7; 4 << 20];
            kernel.send(0, &ours, more_than_fits);
            kernel.wait_readable(1, &ours);
            if kernel.receives() {
                kernel.receive(2, &ours);
            }
            assert!(reap_all(&mut kernel, false).is_empty());
            assert_eq!(kernel.in_flight, if kernel.receives() { 3 } else { 2 });
            drop((kernel, ours));
            // Closed immediately, because the kernel has released the socket.
            theirs.set_nonblocking(true).unwrap();
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).unwrap();
            assert!(!heard.is_empty() && heard.len() < 4 << 20 && heard.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn dropping_a_ring_cancels_more_requests_than_it_holds() {
        for mut kernel in [RingFeatures::Native, RingFeatures::Portable].into_iter().filter_map(kernel) {
            let (ours, mut theirs) = pair();
            (0..4 * REQUESTS as usize).for_each(|key| kernel.wait_readable(key, &ours));
            assert!(reap_all(&mut kernel, false).is_empty());
            assert_eq!(kernel.in_flight, 4 * REQUESTS as usize);
            drop((kernel, ours));
            theirs.set_nonblocking(true).unwrap();
            assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn requests_beyond_the_ring_size_are_queued() {
        for mut kernel in [RingFeatures::Native, RingFeatures::Portable].into_iter().filter_map(kernel) {
            let ((ours, _theirs), count) = (pair(), 3 * REQUESTS as usize + 1);
            (0..count).for_each(|key| kernel.wait_writable(key, &ours));
            assert_eq!(kernel.waiting.len(), count - REQUESTS as usize);
            let mut keys: Vec<_> = reap_all(&mut kernel, false).iter().map(|completion| completion.key).collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..count));
            assert_eq!(kernel.in_flight, 0);
        }
    }

    #[test]
    fn deferred_kernel_work_is_found_without_completions() {
        let Some(mut kernel) = kernel(RingFeatures::Native) else { return };
        let mut pairs: Vec<_> = (0..60).map(|_| pair()).collect();
        for (key, (ours, _)) in pairs.iter().enumerate() {
            kernel.receive(key, ours);
        }
        assert!(reap_all(&mut kernel, false).is_empty());
        for (_, theirs) in &mut pairs {
            theirs.write_all(b"!").unwrap();
        }
        // A read that bypasses the ring leaves deferred work without a completion.
        for (ours, _) in &pairs[..40] {
            let mut past = UnixStream::from(ours.try_clone().unwrap());
            past.read_exact(&mut [0]).unwrap();
        }
        let heard = reap_all(&mut kernel, true);
        assert_eq!(heard.len(), 20);
        for Completion { key, done } in heard {
            let CompletionKind::Received { result: Ok(Some(filled)), goes_on: true } = done else {
                panic!("it was received")
            };
            assert!(key >= 40 && *filled == *b"!");
        }
    }
}
