//! A ring whose kernel reads from sockets by itself, into buffers that it picks: Linux 6.1 and later.
#![expect(unsafe_code, reason = "the kernel works on memory while this process goes on")]

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use io_uring::{
    IoUring, cqueue,
    opcode::{AsyncCancel2, Nop, PollAdd, RecvMulti, Send},
    squeue::Entry,
    types::{CancelBuilder, Fd, SubmitArgs, Timespec},
};

use super::{
    buffers::{Buffers, GROUP},
    kernel::{Completion, Done},
    portable::result,
};

/// Belongs to the thread that made it.
pub(super) struct Native {
    /// Comes before what the kernel may still use.
    uring: IoUring,
    buffers: mem::ManuallyDrop<Rc<Buffers>>,
    /// What the kernel sends from, for each socket.
    sends: mem::ManuallyDrop<Vec<Vec<u8>>>,
    /// Signalled when the kernel has done something.
    signal: OwnedFd,
    /// Requests that have not come to their end.
    in_flight: usize,
    /// Completions that had to make room.
    early: VecDeque<cqueue::Entry>,
}

impl Native {
    pub(super) fn new() -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(super::REQUESTS)?;
        let buffers = Buffers::new(&uring)?;
        // SAFETY: nobody else has the new descriptor.
        let signal = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        uring.submitter().register_eventfd(signal.as_raw_fd())?;
        Ok(Self {
            uring,
            buffers: mem::ManuallyDrop::new(buffers),
            sends: mem::ManuallyDrop::default(),
            signal,
            in_flight: 0,
            early: VecDeque::new(),
        })
    }

    /// Has the kernel do nothing, to see whether it would do anything.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        no_op(&mut self.uring)
    }

    /// Reads until told to stop.
    pub(super) fn receive(&mut self, key: usize, fd: &OwnedFd) {
        self.request(RecvMulti::new(Fd(fd.as_raw_fd()), GROUP).build(), key, Op::Receive);
    }

    /// Sends all of it.
    pub(super) fn send(&mut self, key: usize, fd: &OwnedFd, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).expect("a send is bounded");
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let send = Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), len).flags(flags).build();
        if self.sends.len() <= key {
            self.sends.resize_with(key + 1, Vec::new);
        }
        self.sends[key] = bytes;
        self.request(send, key, Op::Send);
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &OwnedFd) {
        self.request(PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build(), key, Op::Readable);
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &OwnedFd) {
        self.request(PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLOUT as u32).build(), key, Op::Writable);
    }

    /// Stops reading, or waiting for something to read.
    pub(super) fn stop_receiving(&mut self, key: usize) {
        self.cancel(key, &[Op::Receive, Op::Readable]);
    }

    /// Stops everything that is under way on a socket.
    pub(super) fn stop(&mut self, key: usize) {
        self.cancel(key, &[Op::Receive, Op::Readable, Op::Writable, Op::Send]);
    }

    /// By name, which the kernel looks up; for a descriptor it would search everything.
    fn cancel(&mut self, key: usize, ops: &[Op]) {
        for op in ops {
            let cancel = AsyncCancel2::new(CancelBuilder::user_data(name(key, *op)));
            self.request(cancel.build(), key, Op::Other);
        }
    }

    /// Becomes readable when the kernel has done something.
    pub(super) fn signal(&self) -> io::Result<OwnedFd> {
        self.signal.try_clone()
    }

    fn request(&mut self, request: Entry, key: usize, op: Op) {
        let request = request.user_data(name(key, op));
        // SAFETY: the descriptor is open until the socket's requests have come to their end, and so is the memory:
        // buffers belong to the ring, and `sends` keeps what is sent.
        while unsafe { self.uring.submission().push(&request) }.is_err() {
            // A failure shows up again when the ring is tended.
            let _ = self.enter();
            self.early.extend(self.uring.completion());
        }
        self.in_flight += 1;
    }

    /// Hands over all requests, and lets the kernel do what is due, if there is any of that.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let queue = self.uring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        let requests = u32::try_from(queue.len()).expect("the queue is bounded");
        drop(queue);
        // SAFETY: there is no argument that would have to be valid.
        let entered = unsafe { self.uring.submitter().enter::<libc::sigset_t>(requests, 0, ENTER_GETEVENTS, None) };
        settle(entered)
    }

    /// As [`enter`](Self::enter), and waits for so many completions, for a while.
    pub(super) fn enter_and_wait(&mut self, completions: usize, limit: Duration) -> io::Result<()> {
        let limit = Timespec::from(limit);
        settle(self.uring.submitter().submit_with_args(completions, &SubmitArgs::new().timespec(&limit)))
    }

    /// The next thing that was done.
    pub(super) fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.early.pop_front().or_else(|| self.uring.completion().next())?;
            if !cqueue::more(entry.flags()) {
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
            Op::Receive => {
                let filled = cqueue::buffer_select(entry.flags());
                let result = result.map(|len| filled.map(|id| self.buffers.take(id, len)));
                Done::Received { result, goes_on: cqueue::more(entry.flags()) }
            }
            Op::Send => Done::Sent { bytes: mem::take(&mut self.sends[key]), result },
            Op::Readable => Done::Readable,
            Op::Writable => Done::Writable,
            Op::Other => return None,
        };
        Some(Completion { key, done })
    }
}

/// Whether a ring of this kind can be had and used.
pub(super) fn probe(builder: &io_uring::Builder) -> io::Result<()> {
    no_op(&mut builder.build(1)?)
}

fn no_op(uring: &mut IoUring) -> io::Result<()> {
    // SAFETY: it needs nothing.
    unsafe { uring.submission().push(&Nop::new().build()) }.map_err(io::Error::other)?;
    uring.submit_and_wait(1)?;
    uring.completion().next().map(drop).ok_or_else(|| io::Error::other("the kernel does not answer"))
}

fn settle(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        // The kernel may be entered again, now or when completions were taken.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ETIME)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.request(AsyncCancel2::new(CancelBuilder::any().all()).build(), 0, Op::Other);
        for _ in 0..FAREWELLS_MAX {
            if self.in_flight == 0 || self.enter_and_wait(1, FAREWELL_MAX).is_err() {
                break;
            }
            while self.next().is_some() {}
        }
        if self.in_flight == 0 {
            // SAFETY: neither is used again, and the kernel uses neither any more.
            unsafe {
                mem::ManuallyDrop::drop(&mut self.sends);
                mem::ManuallyDrop::drop(&mut self.buffers);
            }
        }
    }
}

/// What a request is for.
#[derive(Clone, Copy)]
enum Op {
    Receive,
    Send,
    Readable,
    Writable,
    /// Nobody waits for it.
    Other,
}

/// How the kernel names a request when it is done.
fn name(key: usize, op: Op) -> u64 {
    (key as u64) << 3 | op as u64
}

fn parse(name: u64) -> (usize, Op) {
    let op = match name & 7 {
        0 => Op::Receive,
        1 => Op::Send,
        2 => Op::Readable,
        3 => Op::Writable,
        _ => Op::Other,
    };
    ((name >> 3) as usize, op)
}

/// Completions that the kernel keeps room for. It holds on to those beyond.
const COMPLETIONS: u32 = 8192;
/// How often the kernel is asked to finish what it has under way when the ring ends.
const FAREWELLS_MAX: usize = 64;
const FAREWELL_MAX: Duration = Duration::from_millis(100);
/// `IORING_ENTER_GETEVENTS`, which the crate keeps to itself.
const ENTER_GETEVENTS: u32 = 1;
