//! The kernel interface of a thread's sockets: frisbee's own ring, or the ring of tokio-uring.

use std::{
    io,
    os::fd::OwnedFd,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use super::{borrowed::BorrowedRing, kernel::OwnedRing, request::Completion};

#[expect(clippy::large_enum_variant, reason = "there is one for each thread")]
pub(super) enum RingAccess {
    Own(OwnedRing),
    Borrowed(BorrowedRing),
}

impl RingAccess {
    /// Returns a descriptor that becomes readable when the ring has work, or `None` if a runtime polls the ring.
    pub(super) fn signal(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Own(kernel) => kernel.signal().map(Some),
            Self::Borrowed(_) => Ok(None),
        }
    }

    /// Returns `true` if the kernel receives without separate read requests.
    pub(super) fn receives(&self) -> bool {
        matches!(self, Self::Own(kernel) if kernel.receives())
    }

    /// Returns `true` if the ring belongs to the runtime, which then waits on it.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_))
    }

    /// Starts receiving like [`OwnedRing::receive`].
    pub(super) fn receive(&mut self, key: usize, fd: &OwnedFd) {
        match self {
            Self::Own(kernel) => kernel.receive(key, fd),
            Self::Borrowed(_) => unreachable!("the kernel does not read by itself"),
        }
    }

    /// Sends like [`OwnedRing::send`].
    pub(super) fn send(&mut self, key: usize, fd: &Rc<OwnedFd>, bytes: Vec<u8>) {
        match self {
            Self::Own(kernel) => kernel.send(key, fd, bytes),
            Self::Borrowed(ring) => ring.send(key, fd, bytes),
        }
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.wait_readable(key, fd),
            Self::Borrowed(ring) => ring.wait_readable(key, fd),
        }
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.wait_writable(key, fd),
            Self::Borrowed(ring) => ring.wait_writable(key, fd),
        }
    }

    /// Stops receiving, or waiting for the socket to become readable.
    pub(super) fn stop_receiving(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.stop_receiving(key),
            Self::Borrowed(ring) => ring.stop(fd),
        }
    }

    /// Cancels all requests for a socket.
    pub(super) fn stop(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.stop(key),
            Self::Borrowed(ring) => ring.stop(fd),
        }
    }

    /// Enters the kernel like [`OwnedRing::enter`]. For a borrowed ring, the runtime does so.
    pub(super) fn enter(&mut self, is_told: bool) -> io::Result<()> {
        match self {
            Self::Own(kernel) => kernel.enter(is_told),
            Self::Borrowed(_) => Ok(()),
        }
    }

    /// Waits like [`OwnedRing::enter_and_wait`].
    pub(super) fn enter_and_wait(&mut self, completions: usize, limit: Duration) -> io::Result<()> {
        match self {
            Self::Own(kernel) => kernel.enter_and_wait(completions, limit),
            Self::Borrowed(_) => Ok(()),
        }
    }

    /// Returns `true` if the kernel must be entered again, possibly without a signal.
    pub(super) fn is_unfinished(&mut self) -> bool {
        match self {
            Self::Own(kernel) => kernel.is_unfinished(),
            Self::Borrowed(_) => false,
        }
    }

    /// Returns the next completion. For a borrowed ring, the runtime wakes `task` when there is one.
    pub(super) fn next(&mut self, task: Option<&Waker>) -> Option<Completion> {
        match self {
            Self::Own(kernel) => kernel.next(),
            Self::Borrowed(ring) => ring.poll_next(&mut Context::from_waker(task.unwrap_or(Waker::noop()))),
        }
    }
}
