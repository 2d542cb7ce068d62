//! Timeouts for peers that do not read from their sockets or have closed their side.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use frpc::Raw;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::activity::ConnectionActivity;

/// A connection whose writes fail after a long time without progress.
pub(crate) struct WriteTimeout<T> {
    io: T,
    limit: Duration,
    activity: Arc<ConnectionActivity>,
    /// The timer of a blocked write. Present while a write is blocked.
    late: Option<Pin<Box<Sleep>>>,
    half_closed: HalfClosed,
}

/// State for an HTTP/1.1 peer that has closed its sending side and may still read responses. hyper does not check for
/// this while it answers a request.
#[derive(Default)]
struct HalfClosed {
    /// The time left for responses after the peer closed its side. `None` if the end is not checked.
    limit: Option<Duration>,
    /// Bytes read while checking for the end, not yet returned to the reader.
    ahead: Bytes,
    is_ended: bool,
    late: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteTimeout<T> {
    pub(crate) fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, activity: Arc::default(), late: None, half_closed: HalfClosed::default() }
    }

    /// Makes responses fail if they take longer than `half_closed_max` after the peer closed its side.
    pub(crate) fn with_half_closed_max(mut self, half_closed_max: Duration) -> Self {
        self.half_closed.limit = Some(half_closed_max);
        self
    }

    /// Completes when the time for responses to a half-closed peer has passed. The first call starts the timer.
    pub(crate) fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let HalfClosed { limit, late, .. } = &mut self.half_closed;
        let limit = limit.unwrap_or_default();
        if limit.is_zero() {
            return Poll::Ready(());
        }
        late.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }

    /// Returns the requests in progress on this connection.
    pub(crate) fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }

    #[cfg(feature = "http2")]
    pub(crate) fn get_ref(&self) -> &T {
        &self.io
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    fn check_timeout<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            // Any progress ends the timeout; the next blocked write starts a new one.
            if self.late.take().is_some() {
                self.activity.set_writing(false);
            }
            return written;
        }
        self.activity.set_writing(true);
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        late.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped reading")))
    }
}

impl WriteTimeout<Raw> {
    pub(crate) fn into_inner(mut self) -> Raw {
        self.io.put_back(self.half_closed.ahead);
        self.io
    }
}

impl<T: AsyncRead + Unpin> WriteTimeout<T> {
    /// Checks for the end of the connection while requests are being answered.
    ///
    /// # Errors
    ///
    /// If the connection was lost, or the peer closed its side too long ago.
    fn check_peer_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.half_closed.limit.is_none() || !self.activity.is_answering() {
            return Ok(());
        }
        if !self.half_closed.is_ended && self.half_closed.ahead.is_empty() {
            let mut room = [0; AHEAD_LEN];
            let mut read = ReadBuf::new(&mut room);
            if Pin::new(&mut self.io).poll_read(cx, &mut read)?.is_ready() {
                self.half_closed.ahead = Bytes::copy_from_slice(read.filled());
                self.half_closed.is_ended = read.filled().is_empty();
                // The reader may have found the socket empty just before. Its wake-up was consumed by this read.
                cx.waker().wake_by_ref();
            }
        }
        if self.half_closed.is_ended && self.poll_half_closed(cx).is_ready() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let HalfClosed { ahead, is_ended, .. } = &mut self.half_closed;
        if *is_ended {
            return Poll::Ready(Ok(()));
        }
        if !ahead.is_empty() {
            let len = ahead.len().min(buf.remaining());
            buf.put_slice(&ahead.split_to(len));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.check_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.check_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_peer_end(cx)?;
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_timeout(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_timeout(cx, ended)
    }
}

/// The maximum number of bytes read ahead from the next request. After that many bytes, the end of the connection is
/// noticed only when the response is complete.
const AHEAD_LEN: usize = 256;
