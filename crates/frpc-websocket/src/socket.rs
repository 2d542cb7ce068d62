//! The message interface of a WebSocket.

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
    close::{CloseFrame, WebSocketError},
    decoder::{MessageFragment, MessageKind, Role},
    keepalive::KeepaliveTimer,
    link::WebSocketConnection,
    stream::WebSocketStream,
};

/// A WebSocket on a byte stream, after its handshake.
///
/// It has no background task. Waiting for the next message also writes [queued](Self::queue) messages and answers
/// pings, so a task should always be waiting.
///
/// ```
/// use frpc_websocket::{CloseFrame, MessageKind, Role, WebSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (ours, theirs) = tokio::io::duplex(1024);
/// let mut server = WebSocket::new(ours, Role::Server);
/// let mut client = WebSocket::new(theirs, Role::Client);
///
/// client.send(MessageKind::Text, b"hello").await?;
/// let message = server.next().await.expect("it is open")?;
/// assert_eq!((message.kind, &*message.data), (MessageKind::Text, &b"hello"[..]));
///
/// client.close(CloseFrame::new(1000, "that was all"));
/// let (closed, _) = tokio::join!(server.next(), client.next());
/// assert!(closed.is_none());
/// assert_eq!(server.peer_close().unwrap().reason, "that was all");
/// # Ok(())
/// # }
/// ```
pub struct WebSocket {
    link: WebSocketConnection,
    /// The first fragments of an incomplete message.
    begun: BytesMut,
    subprotocol: Option<Box<str>>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketMessage {
    /// The type of the message.
    pub kind: MessageKind,
    /// The content. It is valid UTF-8 for text messages.
    pub data: Bytes,
}

impl WebSocket {
    /// Creates a WebSocket from a stream after its handshake. The maximum message length is 4 MiB.
    pub fn new(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, role: Role) -> Self {
        let link = WebSocketConnection::new(Box::new(io), role, MESSAGE_LEN_MAX);
        Self { link, begun: BytesMut::new(), subprotocol: None }
    }

    /// Adds bytes already read from the stream after the handshake.
    pub fn with_unread(mut self, unread: &[u8]) -> Self {
        self.link.input.extend_from_slice(unread);
        self
    }

    /// Sets the negotiated subprotocol.
    pub fn with_subprotocol(self, subprotocol: Option<&str>) -> Self {
        Self { subprotocol: subprotocol.map(Into::into), ..self }
    }

    /// Sets the maximum length of received messages.
    ///
    /// A longer message ends the connection with code 1009. It is rejected by its header, without receiving it.
    pub fn message_len_max(mut self, message_len_max: usize) -> Self {
        self.link.decoder.limit(u64::try_from(message_len_max).unwrap_or(u64::MAX));
        self
    }

    /// Pings the peer after `interval` without input, and fails if it stays silent for `timeout`.
    ///
    /// If too much output is queued for a ping, a peer that takes none of it in this time counts as silent.
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.link.keepalive = Some(KeepaliveTimer::new(interval, timeout));
        self
    }

    /// Returns the negotiated subprotocol, if any.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// Returns the number of bytes received of an incomplete message.
    pub fn received_len(&self) -> usize {
        self.begun.len()
    }

    /// Returns the next message, or `None` after a clean close by either side.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection was lost, or if the peer violated the protocol or a limit. The connection has
    /// then ended.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Result<WebSocketMessage, WebSocketError>> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    /// Polls for the next message, as [`next`](Self::next) does.
    ///
    /// Messages already received are returned before any further I/O.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WebSocketMessage, WebSocketError>>> {
        loop {
            let Some(data) = ready!(self.link.poll_data(cx)).transpose()? else { return Poll::Ready(None) };
            let MessageFragment { kind, bytes, is_last } = data;
            if is_last && self.begun.is_empty() {
                return Poll::Ready(Some(Ok(WebSocketMessage { kind, data: bytes })));
            }
            self.begun.extend_from_slice(&bytes);
            if is_last {
                return Poll::Ready(Some(Ok(WebSocketMessage { kind, data: self.begun.split().freeze() })));
            }
        }
    }

    /// Queues a message for writing. Text must be valid UTF-8. After a close by either side, the message is discarded.
    ///
    /// The queue is unbounded. Check [`queued`](Self::queued) before adding to it.
    pub fn queue(&mut self, kind: MessageKind, data: &[u8]) {
        debug_assert!(kind == MessageKind::Binary || str::from_utf8(data).is_ok(), "a text message must be UTF-8");
        self.link.queue(kind, iter::once(data));
    }

    /// Returns the number of bytes queued for writing.
    pub fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Returns `true` if messages can be sent, because neither side has closed.
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Writes all queued messages.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: unwritten messages stay queued.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Polls until all queued messages are written.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_write_out(cx)
    }

    /// Queues a message and writes the queue.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the message stays queued.
    pub async fn send(&mut self, kind: MessageKind, data: &[u8]) -> io::Result<()> {
        self.queue(kind, data);
        self.flush().await
    }

    /// Starts the closing handshake. The close frame follows all queued messages.
    ///
    /// Call [`next`](Self::next) until it returns `None` or an error to complete the close. This takes 5 s at most.
    /// Messages sent by the peer before it saw the close are still returned.
    pub fn close(&mut self, close: CloseFrame) {
        self.link.close(&close);
    }

    /// Ends the connection with a close frame. Discards the incomplete message and everything received from now on.
    ///
    /// Call [`next`](Self::next) until it returns an error, to write the close frame.
    pub fn refuse(&mut self, close: CloseFrame) {
        self.begun = BytesMut::new();
        self.link.refuse(close);
    }

    /// Returns the close frame of the peer, if received.
    pub fn peer_close(&self) -> Option<&CloseFrame> {
        self.link.peer_close.as_ref()
    }

    /// Converts the WebSocket to a byte stream carried by its binary messages. Message boundaries are ignored.
    pub fn into_stream(self) -> WebSocketStream {
        WebSocketStream::new(self.link, self.begun.freeze())
    }
}

impl Stream for WebSocket {
    type Item = Result<WebSocketMessage, WebSocketError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("subprotocol", &self.subprotocol).finish_non_exhaustive()
    }
}

/// The default maximum length of a message.
const MESSAGE_LEN_MAX: u64 = 4 * 1024 * 1024;
