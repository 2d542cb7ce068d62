//! A byte stream in binary messages.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    close::{CloseFrame, NORMAL, UNSUPPORTED},
    decoder::MessageKind,
    link::{OUTPUT_LEN_MAX, WebSocketConnection},
};

/// A byte stream in the binary messages of a [`WebSocket`](crate::WebSocket), independent of message boundaries.
/// Created by [`WebSocket::into_stream`](crate::WebSocket::into_stream).
///
/// Reading and writing must happen in the same task. Written bytes are buffered until the task
/// [flushes](AsyncWrite::poll_flush), reads, or fills the buffer. Shutting down the stream closes the WebSocket.
pub struct WebSocketStream {
    link: WebSocketConnection,
    /// Received bytes that were not read yet.
    rest: Bytes,
}

impl WebSocketStream {
    pub(crate) fn new(mut link: WebSocketConnection, rest: Bytes) -> Self {
        link.decoder.limit(u64::MAX);
        // More than poll_write adds. Otherwise two peers with full buffers would both wait for the other to read.
        link.output_len_max = 2 * (OUTPUT_LEN_MAX + WRITTEN_LEN_MAX);
        Self { link, rest }
    }
}

impl AsyncRead for WebSocketStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            let Some(data) = ready!(self.link.poll_data(cx)).transpose()? else { return Poll::Ready(Ok(())) };
            match data.kind {
                MessageKind::Binary => self.rest = data.bytes,
                MessageKind::Text => {
                    self.link.refuse(CloseFrame::new(UNSUPPORTED, "expected binary messages, received text"))
                }
            }
        }
        let len = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..len]);
        self.rest.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl WebSocketStream {
    /// Waits for room in the output and returns the maximum length of a message.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.link.queued() >= OUTPUT_LEN_MAX {
            ready!(self.link.poll_write_out(cx))?;
        }
        if !self.link.is_open() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the WebSocket is closed")));
        }
        Poll::Ready(Ok(WRITTEN_LEN_MAX))
    }
}

impl AsyncWrite for WebSocketStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let room = ready!(self.poll_room(cx))?;
        let parts = slices.iter().scan(room, |left, slice| {
            let part = &slice[..slice.len().min(*left)];
            *left -= part.len();
            Some(part)
        });
        let len = parts.clone().map(<[u8]>::len).sum();
        if len > 0 {
            self.link.queue(MessageKind::Binary, parts);
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_write_out(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.close(&CloseFrame::new(NORMAL, ""));
        self.link.poll_shutdown(cx)
    }
}

impl fmt::Debug for WebSocketStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketStream").field("queued", &self.link.queued()).finish_non_exhaustive()
    }
}

/// The maximum length of a sent message.
const WRITTEN_LEN_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use std::{future::poll_fn, time::Duration};

    use tokio::{io::duplex, time::timeout};

    use super::*;
    use crate::{Role, WebSocket};

    /// Writes until the stream is full before each read, in one task, as a connection of frisbee does.
    async fn exchange(mut stream: WebSocketStream, len: usize) {
        let (mut sent, mut received) = (0, 0);
        let chunk = vec![7; WRITTEN_LEN_MAX];
        poll_fn(|cx| {
            while sent < len {
                match Pin::new(&mut stream).poll_write(cx, &chunk[..chunk.len().min(len - sent)]) {
                    Poll::Ready(written) => sent += written.unwrap(),
                    Poll::Pending => break,
                }
            }
            let mut room = vec![0; 4096];
            while received < len {
                let mut read = ReadBuf::new(&mut room);
                ready!(Pin::new(&mut stream).poll_read(cx, &mut read)).unwrap();
                received += read.filled().len();
            }
            Pin::new(&mut stream).poll_flush(cx).map(Result::unwrap)
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_peers_that_fill_all_buffers_go_on_reading() {
        let (near, far) = duplex(1024);
        let [near, far] = [WebSocket::new(near, Role::Client), WebSocket::new(far, Role::Server)];
        let both = async { tokio::join!(exchange(near.into_stream(), 1 << 20), exchange(far.into_stream(), 1 << 20)) };
        assert!(timeout(Duration::from_secs(60), both).await.is_ok(), "both peers wait for the other to read");
    }
}
