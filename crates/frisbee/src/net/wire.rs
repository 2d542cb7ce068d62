//! The byte stream below a connection, of any kind.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, Interest, ReadBuf},
    net::TcpStream,
};

#[cfg(all(feature = "uring", target_os = "linux"))]
use super::uring;
use super::{credentials::PeerCredentials, low_water::set_low_water};

/// A custom stream, or a stream wrapped in TLS.
pub(crate) trait CustomStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> CustomStream for T {}

/// The byte stream of a connection. An enum, so the common kinds need no dynamic dispatch.
pub(crate) enum IoStream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    #[cfg(all(feature = "uring", target_os = "linux"))]
    Ring(uring::RingSocket),
    Mem(DuplexStream),
    Other(Box<dyn CustomStream>),
}

/// Calls the same method on the stream of any variant.
macro_rules! on_stream {
    ($wire:expr, $stream:ident => $call:expr) => {
        match $wire {
            IoStream::Tcp($stream) => $call,
            #[cfg(unix)]
            IoStream::Unix($stream) => $call,
            #[cfg(all(feature = "uring", target_os = "linux"))]
            IoStream::Ring($stream) => $call,
            IoStream::Mem($stream) => $call,
            IoStream::Other($stream) => $call,
        }
    };
}

impl IoStream {
    /// Moves a socket to the current runtime. Other streams are not bound to a runtime.
    pub(crate) fn onto_current_runtime(self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(TcpStream::from_std(socket.into_std()?)?),
            #[cfg(unix)]
            Self::Unix(socket) => Self::Unix(tokio::net::UnixStream::from_std(socket.into_std()?)?),
            other => other,
        })
    }

    /// Returns the credentials of the peer of a Unix socket, unless the socket is on a ring.
    pub(crate) fn peer_credentials(&self) -> Option<PeerCredentials> {
        match self {
            #[cfg(unix)]
            Self::Unix(socket) => {
                let peer = socket.peer_cred().ok()?;
                Some(PeerCredentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
            }
            _ => None,
        }
    }

    /// Returns `true` if the peer has closed its side after bytes not read yet.
    pub(crate) fn is_read_closed(&self) -> bool {
        let ready = match self {
            Self::Tcp(socket) => socket.ready(Interest::READABLE).now_or_never(),
            #[cfg(unix)]
            Self::Unix(socket) => socket.ready(Interest::READABLE).now_or_never(),
            _ => None,
        };
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }

    /// Makes a TCP socket wake its reader for `len` bytes, and not earlier. Returns `false` if it still wakes for any.
    pub(crate) fn set_low_water(&self, len: usize) -> bool {
        match self {
            Self::Tcp(socket) => set_low_water(socket, len),
            #[cfg(all(feature = "uring", target_os = "linux"))]
            Self::Ring(socket) => socket.set_low_water(len),
            _ => false,
        }
    }

    /// Returns `true` if written bytes may still be buffered in this process.
    pub(crate) fn needs_flush(&self) -> bool {
        matches!(self, Self::Other(_))
    }
}

impl AsyncRead for IoStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for IoStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        on_stream!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
