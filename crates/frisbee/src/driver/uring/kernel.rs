//! What a ring can ask of the kernel, and what the kernel answers.

use std::{io, os::fd::OwnedFd, rc::Rc, task::Context, time::Duration};

use super::{buffers::Filled, native::Native, portable::Portable};

/// The way to the kernel, as far as this one goes along.
#[expect(clippy::large_enum_variant, reason = "there is one for each thread")]
pub(super) enum Kernel {
    Native(Native),
    Portable(Portable),
}

/// What the kernel has done for a socket.
pub(super) struct Completion {
    pub(super) key: usize,
    pub(super) done: Done,
}

pub(super) enum Done {
    /// Nothing filled is the end of the stream. If it does not go on, nothing more is read before the next request.
    Received {
        result: io::Result<Option<Filled>>,
        goes_on: bool,
    },
    Sent {
        bytes: Vec<u8>,
        result: io::Result<usize>,
    },
    Readable,
    Writable,
}

impl Kernel {
    /// Whether it reads by itself.
    pub(super) fn receives(&self) -> bool {
        matches!(self, Self::Native(_))
    }

    /// Reads until told to stop, if it reads by itself.
    pub(super) fn receive(&mut self, key: usize, fd: &OwnedFd) {
        match self {
            Self::Native(native) => native.receive(key, fd),
            Self::Portable(_) => unreachable!("it does not read by itself"),
        }
    }

    pub(super) fn send(&mut self, key: usize, fd: &Rc<OwnedFd>, bytes: Vec<u8>) {
        match self {
            Self::Native(native) => native.send(key, fd, bytes),
            Self::Portable(portable) => portable.send(key, fd, bytes),
        }
    }

    pub(super) fn wait_readable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Native(native) => native.wait_readable(key, fd),
            Self::Portable(portable) => portable.wait_readable(key, fd),
        }
    }

    pub(super) fn wait_writable(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Native(native) => native.wait_writable(key, fd),
            Self::Portable(portable) => portable.wait_writable(key, fd),
        }
    }

    /// Stops reading, or waiting for something to read.
    pub(super) fn stop_receiving(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Native(native) => native.stop_receiving(key),
            Self::Portable(portable) => portable.stop(fd),
        }
    }

    /// Stops everything that is under way on a socket.
    pub(super) fn stop(&mut self, key: usize, fd: &Rc<OwnedFd>) {
        match self {
            Self::Native(native) => native.stop(key),
            Self::Portable(portable) => portable.stop(fd),
        }
    }

    /// Hands over all requests, and lets the kernel do what is due. Waits a while for so many completions if that is
    /// more than none.
    pub(super) fn enter(&mut self, completions: usize, limit: Duration) -> io::Result<()> {
        match self {
            Self::Native(native) if completions == 0 => native.enter(),
            Self::Native(native) => native.enter_and_wait(completions, limit),
            // Its runtime does that.
            Self::Portable(_) => Ok(()),
        }
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<Completion> {
        match self {
            Self::Native(native) => native.next(),
            Self::Portable(portable) => portable.poll_next(cx),
        }
    }
}
