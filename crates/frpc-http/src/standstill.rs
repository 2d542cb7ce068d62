//! Connections whose peers do not read from their sockets.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

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
}

impl<T> Standstill<T> {
    pub(crate) fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, activity: Arc::default(), late: None }
    }

    /// Returns the requests on this connection.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(crate) fn into_inner(self) -> T {
        self.io
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

impl<T: AsyncRead + Unpin> AsyncRead for Standstill<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Standstill<T> {
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
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.unless_late(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.io).poll_shutdown(cx);
        self.unless_late(cx, ended)
    }
}
