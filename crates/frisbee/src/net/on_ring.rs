//! Moving a socket onto the ring of its thread, and off it.

use std::io;
#[cfg(all(feature = "uring", target_os = "linux"))]
use std::os::fd::OwnedFd;

use bytes::Bytes;
#[cfg(all(feature = "uring", target_os = "linux"))]
use tokio::net::{TcpStream, UnixStream};

#[cfg(all(feature = "uring", target_os = "linux"))]
use super::uring::{self, RingSocket, SocketKind};
use super::wire::IoStream;

#[cfg(all(feature = "uring", target_os = "linux"))]
impl IoStream {
    /// Moves a TCP or Unix socket onto the ring of this thread, if the thread has one.
    pub(crate) fn onto_ring(self) -> io::Result<Self> {
        if !uring::is_here() {
            return Ok(self);
        }
        let (fd, kind): (OwnedFd, _) = match self {
            Self::Tcp(socket) => (socket.into_std()?.into(), SocketKind::Tcp),
            Self::Unix(socket) => (socket.into_std()?.into(), SocketKind::Unix),
            other => return Ok(other),
        };
        RingSocket::new(fd, kind).map(Self::Ring)
    }

    /// Takes a socket off its ring. Returns a stream for any thread, and received bytes not yet read.
    pub(crate) async fn off_ring(self) -> io::Result<(Self, Bytes)> {
        let Self::Ring(socket) = self else { return Ok((self, Bytes::new())) };
        let kind = socket.kind();
        let (fd, unread) = socket.into_fd().await?;
        let wire = match kind {
            SocketKind::Tcp => Self::Tcp(TcpStream::from_std(fd.into())?),
            SocketKind::Unix => Self::Unix(UnixStream::from_std(fd.into())?),
        };
        Ok((wire, unread))
    }
}

#[cfg(not(all(feature = "uring", target_os = "linux")))]
impl IoStream {
    pub(crate) fn onto_ring(self) -> io::Result<Self> {
        Ok(self)
    }

    pub(crate) async fn off_ring(self) -> io::Result<(Self, Bytes)> {
        Ok((self, Bytes::new()))
    }
}
