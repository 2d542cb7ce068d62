//! A socket on a ring, with tokio's I/O traits.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ring::Ring, task};

/// A connected socket on the ring of its thread. Works on that thread only.
pub(crate) struct RingSocket {
    ring: u64,
    key: usize,
    kind: SocketKind,
}

/// The tokio type of a socket.
#[derive(Clone, Copy)]
pub(crate) enum SocketKind {
    Tcp,
    Unix,
}

impl RingSocket {
    /// Adds a connected socket to the ring of this thread. Fails without a ring.
    pub(crate) fn new(fd: OwnedFd, kind: SocketKind) -> io::Result<Self> {
        // On a ring, the kernel waits for the socket. On a nonblocking one, it would fail with `EAGAIN` instead.
        SockRef::from(&fd).set_nonblocking(false)?;
        let placed = Ring::here(|ring| Self { ring: ring.id(), key: ring.insert(fd), kind });
        placed.ok_or_else(no_ring)
    }

    /// Takes the socket off the ring, with received bytes not yet read.
    pub(crate) async fn into_fd(self) -> io::Result<(OwnedFd, Bytes)> {
        let removed = std::future::poll_fn(|cx| self.with(|ring, key| ring.poll_remove(key, cx))).await;
        std::mem::forget(self);
        let (fd, unread) = removed?;
        SockRef::from(&fd).set_nonblocking(true)?;
        Ok((fd, unread))
    }

    /// Returns the type of the socket before it was added to the ring.
    pub(crate) fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Makes a TCP socket wake its reader for `len` bytes, also through the ring. Returns `false` if it still wakes for any.
    pub(crate) fn set_low_water(&self, len: usize) -> bool {
        let set = |ring: &mut Ring, key| Poll::Ready(Ok(ring.set_low_water(key, len)));
        matches!(self.kind, SocketKind::Tcp) && matches!(self.with(set), Poll::Ready(Ok(true)))
    }

    fn with<T>(&self, visit: impl FnOnce(&mut Ring, usize) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let visited = Ring::here(|ring| (ring.id() == self.ring).then(|| visit(ring, self.key)));
        visited.flatten().unwrap_or_else(|| Poll::Ready(Err(task::failure(self.ring).unwrap_or_else(no_ring))))
    }
}

fn no_ring() -> io::Error {
    io::Error::other("the connection is used on a thread without its ring")
}

impl Drop for RingSocket {
    fn drop(&mut self) {
        let waited = Ring::here(|ring| (ring.id() == self.ring).then(|| ring.drop(self.key)));
        drop(waited);
    }
}

impl AsyncRead for RingSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_read(key, cx, buf))
    }
}

impl AsyncWrite for RingSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|ring, key| ring.poll_write(key, cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_flush(key, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_shutdown(key, cx))
    }
}
