//! Connections whose peers do not read from their sockets, or have closed their side.

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

use crate::activity::Activity;

/// A connection that fails when nothing could be written for too long.
pub(crate) struct Standstill<T> {
    io: T,
    limit: Duration,
    activity: Arc<Activity>,
    /// From the moment on at which a write had to wait.
    late: Option<Pin<Box<Sleep>>>,
    half_closed: HalfClosed,
}

/// The end of what a peer of HTTP/1.1 says, which may still read answers. hyper does not look for it while it answers.
#[derive(Default)]
struct HalfClosed {
    /// The time that answers have from then on. `None` where nobody looks for it.
    limit: Option<Duration>,
    /// Bytes that were read in the meantime.
    ahead: Bytes,
    is_ended: bool,
    late: Option<Pin<Box<Sleep>>>,
}

impl<T> Standstill<T> {
    pub(crate) fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, activity: Arc::default(), late: None, half_closed: HalfClosed::default() }
    }

    /// Fails once answers take longer than this whose peer has closed its side.
    pub(crate) fn with_half_closed_max(mut self, half_closed_max: Duration) -> Self {
        self.half_closed.limit = Some(half_closed_max);
        self
    }

    /// Waits for the end of the time that answers have whose peer has closed its side. It begins with the first call.
    pub(crate) fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let HalfClosed { limit, late, .. } = &mut self.half_closed;
        let limit = limit.unwrap_or_default();
        if limit.is_zero() {
            return Poll::Ready(());
        }
        late.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }

    /// Returns the requests on this connection.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    fn unless_late<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            if self.late.take().is_some() {
                self.activity.set_writing(false);
            }
            return written;
        }
        self.activity.set_writing(true);
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        late.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl Standstill<Raw> {
    pub(crate) fn into_inner(mut self) -> Raw {
        self.io.put_back(self.half_closed.ahead);
        self.io
    }
}

impl<T: AsyncRead + Unpin> Standstill<T> {
    /// Looks for the end of the connection while requests are answered.
    ///
    /// # Errors
    ///
    /// If it was lost, or its end is here for too long.
    fn look_for_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.half_closed.limit.is_none() || !self.activity.is_answering() {
            return Ok(());
        }
        if !self.half_closed.is_ended && self.half_closed.ahead.is_empty() {
            let mut room = [0; AHEAD_LEN];
            let mut read = ReadBuf::new(&mut room);
            if Pin::new(&mut self.io).poll_read(cx, &mut read)?.is_ready() {
                self.half_closed.ahead = Bytes::copy_from_slice(read.filled());
                self.half_closed.is_ended = read.filled().is_empty();
                // Whoever reads may have found nothing just before.
                cx.waker().wake_by_ref();
            }
        }
        if self.half_closed.is_ended && self.poll_half_closed(cx).is_ready() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Standstill<T> {
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Standstill<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.unless_late(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.unless_late(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look_for_end(cx)?;
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.unless_late(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.io).poll_shutdown(cx);
        self.unless_late(cx, ended)
    }
}

/// The most that is read of a next request while one is answered. Behind that, the end of the connection is not seen.
const AHEAD_LEN: usize = 256;
