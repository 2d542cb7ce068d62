//! Per-socket state of a ring, and system calls that bypass the ring.
#![expect(unsafe_code, reason = "descriptors and buffers that are not yet initialised")]

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    ops::Deref,
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf, unix::AsyncFd};

use super::buffers::FilledBuffer;

/// The state of one socket on a ring.
pub(super) struct SocketSlot {
    pub(super) fd: Rc<OwnedFd>,
    pub(super) receiving: ReceiveState,
    pub(super) received: VecDeque<ReceivedBytes>,
    pub(super) received_len: usize,
    /// The end of the input: `Ok` after a close by the peer, or an error.
    pub(super) end: Option<io::Result<()>>,
    pub(super) reader: Option<Waker>,
    /// Reports readiness for reads that bypass the ring, if the kernel receives without read requests.
    pub(super) direct: Option<AsyncFd<Rc<OwnedFd>>>,
    /// `true` if the last read emptied the socket, so the next one should wait first. Used by portable rings.
    pub(super) is_drained: bool,
    /// Written bytes not yet passed to the kernel.
    pub(super) queued: Vec<u8>,
    pub(super) is_sending: bool,
    pub(super) failure: Option<io::Error>,
    pub(super) is_waiting_writable: bool,
    pub(super) writer: Option<Waker>,
    pub(super) is_dirty: bool,
    pub(super) is_dropped: bool,
}

/// The state of receiving.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ReceiveState {
    Off,
    Wanted,
    On,
    /// Receiving was canceled and the kernel has not yet confirmed it.
    Stopping,
    /// Waiting for the socket to become readable.
    Waiting,
}

pub(super) enum ReceivedBytes {
    Filled(FilledBuffer),
    Copied(BytesMut),
}

impl ReceivedBytes {
    pub(super) fn advance(&mut self, len: usize) {
        match self {
            Self::Filled(filled) => filled.advance(len),
            Self::Copied(copied) => copied.advance(len),
        }
    }
}

impl Deref for ReceivedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Filled(filled) => filled,
            Self::Copied(copied) => copied,
        }
    }
}

impl SocketSlot {
    /// Creates the state of a connected socket in blocking mode.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Rc::new(fd),
            receiving: ReceiveState::Off,
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
        }
    }

    /// Reads without the ring.
    pub(super) fn poll_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let direct = match &mut self.direct {
            Some(direct) => direct,
            none => none.insert(register(self.fd.clone())?),
        };
        loop {
            let mut ready = ready!(direct.poll_read_ready(cx))?;
            let received = receive_now(&self.fd, buf);
            // A short read has emptied the socket, so the next one has to wait for readiness.
            if received.is_pending() || buf.remaining() > 0 {
                ready.clear_ready();
            }
            if received.is_ready() {
                return received;
            }
        }
    }

    /// Returns `true` if the kernel has no request in flight for the socket.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.receiving, ReceiveState::Off | ReceiveState::Wanted)
            && !self.is_sending
            && !self.is_waiting_writable
    }
}

pub(super) fn register<T: AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `T` is an owned descriptor or a shared reference to one, and the `AsyncFd` keeps it until
    // deregistered.
    unsafe { Ok(AsyncFd::register_with_interest(fd, Interest::READABLE)?) }
}

/// Sends without blocking.
pub(super) fn send_now(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
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

/// Reads without blocking. For large reads, this saves the copy out of a ring buffer.
pub(super) fn receive_now(fd: &OwnedFd, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    // SAFETY: `recv` only writes, so initialized bytes stay initialized, and it returns the number of bytes
    // written.
    let room = unsafe { buf.unfilled_mut() };
    match SockRef::from(fd).recv_with_flags(room, libc::MSG_DONTWAIT) {
        Ok(len) => {
            // SAFETY: the kernel has written `len` bytes into `room`.
            unsafe { buf.assume_init(len) };
            buf.advance(len);
            Poll::Ready(Ok(()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}
