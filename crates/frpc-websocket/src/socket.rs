//! A WebSocket as people use it: messages.

use std::{
    fmt,
    future::poll_fn,
    io, iter,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    close::{Close, WebSocketError},
    decoder::{Kind, Role},
    keepalive::Keepalive,
    link::{Data, Link},
    stream::WebSocketStream,
};

/// A WebSocket on a stream of bytes, after its handshake.
///
/// Everything is done by the task that polls it: while it waits for the next message, it writes what is
/// [queued](Self::queue) and answers pings. It does nothing of that while nobody waits.
///
/// ```
/// use frpc_websocket::{Close, Kind, Role, WebSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (ours, theirs) = tokio::io::duplex(1024);
/// let mut server = WebSocket::new(ours, Role::Server);
/// let mut client = WebSocket::new(theirs, Role::Client);
///
/// client.send(Kind::Text, b"hello").await?;
/// let message = server.next().await.expect("it is open")?;
/// assert_eq!((message.kind, &*message.data), (Kind::Text, &b"hello"[..]));
///
/// client.close(Close::new(1000, "that was all"));
/// let (closed, _) = tokio::join!(server.next(), client.next());
/// assert!(closed.is_none());
/// assert_eq!(server.peer_close().unwrap().reason, "that was all");
/// # Ok(())
/// # }
/// ```
pub struct WebSocket {
    link: Link,
    /// The beginning of a message that did not come at once.
    begun: BytesMut,
    subprotocol: Option<Box<str>>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind of it.
    pub kind: Kind,
    /// The content: UTF-8, if it is text.
    pub data: Bytes,
}

impl WebSocket {
    /// Makes a WebSocket of a stream on which the handshake is done. It takes messages of up to 4 MiB.
    pub fn new(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, role: Role) -> Self {
        let link = Link::new(Box::new(io), role, MESSAGE_LEN_MAX);
        Self { link, begun: BytesMut::new(), subprotocol: None }
    }

    /// Has these bytes, which were read behind the handshake, come first.
    pub fn with_unread(mut self, unread: &[u8]) -> Self {
        self.link.push_unread(unread);
        self
    }

    /// Sets the sub-protocol that both sides agreed on.
    pub fn with_subprotocol(self, subprotocol: Option<&str>) -> Self {
        Self { subprotocol: subprotocol.map(Into::into), ..self }
    }

    /// Sets the length that a message of the peer may have. A longer one ends the connection with the code 1009, before it is received.
    pub fn message_len_max(mut self, message_len_max: usize) -> Self {
        self.link.decoder.limit(u64::try_from(message_len_max).unwrap_or(u64::MAX));
        self
    }

    /// Has a peer asked for a sign of life that was silent for `interval`, and given up if there is none within `timeout`.
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.link.keepalive = Some(Keepalive::new(interval, timeout));
        self
    }

    /// Returns the sub-protocol that both sides agreed on, if any.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// Returns the next message of the peer. `None` at the end of a connection that one side closed as it should.
    ///
    /// # Errors
    ///
    /// If the connection was lost, or the peer broke the protocol or a limit. Then it is over.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Message, WebSocketError>> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    /// Polls for the next message, as [`next`](Self::next) does. Messages that came together are returned one after the other before
    /// anything is written or read.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, WebSocketError>>> {
        loop {
            let Some(data) = ready!(self.link.poll_data(cx)).transpose()? else { return Poll::Ready(None) };
            let Data { kind, bytes, is_last } = data;
            if is_last && self.begun.is_empty() {
                return Poll::Ready(Some(Ok(Message { kind, data: bytes })));
            }
            self.begun.extend_from_slice(&bytes);
            if is_last {
                return Poll::Ready(Some(Ok(Message { kind, data: self.begun.split().freeze() })));
            }
        }
    }

    /// Adds a message to those that are written next. Text must be UTF-8. Nothing is added once one side has closed.
    ///
    /// Look at [`queued`](Self::queued) before: there is no limit.
    pub fn queue(&mut self, kind: Kind, data: &[u8]) {
        debug_assert!(kind == Kind::Binary || str::from_utf8(data).is_ok(), "a text is UTF-8");
        self.link.queue(kind, iter::once(data));
    }

    /// Returns the number of bytes that are queued and not written.
    pub fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Returns whether messages may be sent: neither side has closed.
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Writes all that is queued.
    ///
    /// # Errors
    ///
    /// If the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// The rest stays queued if the future is dropped.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Polls whether all that is queued was written.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_write_out(cx)
    }

    /// Sends a message, and all that is queued.
    ///
    /// # Errors
    ///
    /// If the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// The message is queued, whenever the future is dropped.
    pub async fn send(&mut self, kind: Kind, data: &[u8]) -> io::Result<()> {
        self.queue(kind, data);
        self.flush().await
    }

    /// Begins to close: the close is queued behind all messages. Call [`next`](Self::next) until it returns `None` or an error, so that
    /// it gets there; that takes 5 s at most. Messages of the peer that cross the close are still returned.
    pub fn close(&mut self, close: Close) {
        self.link.close(&close);
    }

    /// Returns the close that the peer has said.
    pub fn peer_close(&self) -> Option<&Close> {
        self.link.peer_close.as_ref()
    }

    /// Makes a stream of bytes of the binary messages: their boundaries mean nothing.
    pub fn into_stream(self) -> WebSocketStream {
        WebSocketStream::new(self.link, self.begun.freeze())
    }
}

impl Stream for WebSocket {
    type Item = Result<Message, WebSocketError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("subprotocol", &self.subprotocol).finish_non_exhaustive()
    }
}

/// The default length of a message.
const MESSAGE_LEN_MAX: u64 = 4 * 1024 * 1024;
