//! The way of a thread's sockets to the kernel: a ring of our own, or the one that tokio-uring has.

use std::{
    io,
    os::fd::OwnedFd,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use super::{borrowed::Borrowed, kernel::Kernel, request::Completion};

#[expect(clippy::large_enum_variant, reason = "there is one for each thread")]
pub(super) enum Access {
    Own(Kernel),
    Borrowed(Borrowed),
}

impl Access {
    /// Returns what becomes readable when there is something to do for the ring, unless a runtime sees to that.
    pub(super) fn signal(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Own(kernel) => kernel.signal().map(Some),
            Self::Borrowed(_) => Ok(None),
        }
    }

    /// Tells whether the kernel reads by itself.
    pub(super) fn receives(&self) -> bool {
        matches!(self, Self::Own(kernel) if kernel.receives())
    }

    /// Tells whether a runtime waits on the ring.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_))
    }

    /// Reads as [`Kernel::receive`] does.
    pub(super) fn receive(&mut self, key: usize, fd: &OwnedFd) {
        match self {
            Self::Own(kernel) => kernel.receive(key, fd),
            Self::Borrowed(_) => unreachable!("the kernel does not read by itself"),
        }
    }

    /// Sends as [`Kernel::send`] does.
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

    /// Stops reading, or waiting for something to read.
    pub(super) fn stop_receiving(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.stop_receiving(key),
            Self::Borrowed(ring) => ring.stop(fd),
        }
    }

    /// Stops everything that is under way on a socket.
    pub(super) fn stop(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Own(kernel) => kernel.stop(key),
            Self::Borrowed(ring) => ring.stop(fd),
        }
    }

    /// Enters the kernel as [`Kernel::enter`] does. A runtime does so itself.
    pub(super) fn enter(&mut self, is_told: bool) -> io::Result<()> {
        match self {
            Self::Own(kernel) => kernel.enter(is_told),
            Self::Borrowed(_) => Ok(()),
        }
    }

    /// Waits as [`Kernel::enter_and_wait`] does.
    pub(super) fn enter_and_wait(&mut self, completions: usize, limit: Duration) -> io::Result<()> {
        match self {
            Self::Own(kernel) => kernel.enter_and_wait(completions, limit),
            Self::Borrowed(_) => Ok(()),
        }
    }

    /// Tells whether the kernel has to be entered again though no signal may come.
    pub(super) fn is_unfinished(&mut self) -> bool {
        match self {
            Self::Own(kernel) => kernel.is_unfinished(),
            Self::Borrowed(_) => false,
        }
    }

    /// Takes the next thing that was done. A runtime wakes the task that runs the ring when there is one.
    pub(super) fn next(&mut self, task: Option<&Waker>) -> Option<Completion> {
        match self {
            Self::Own(kernel) => kernel.next(),
            Self::Borrowed(ring) => ring.poll_next(&mut Context::from_waker(task.unwrap_or(Waker::noop()))),
        }
    }
}
