//! Streams: ordered packets under a common id, in both directions of a connection.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{handle::Connection, sending::SendPosition};
use crate::{
    Content, StreamSendError, TrySendError,
    proto::{self, OpenError, StreamEnd, StreamKey},
};

impl Connection {
    /// Opens a stream with a free id. The peer learns of it with the first data.
    pub fn open_stream(&self) -> Result<Stream, OpenError> {
        let key = self.shared().core().proto.open_stream()?;
        Ok(Stream::new(self.clone(), key))
    }

    /// Opens a stream with this id, for protocols with ids agreed in advance.
    pub fn open_stream_with_id(&self, id: u16) -> Result<Stream, OpenError> {
        let key = self.shared().core().proto.open_stream_with_id(id)?;
        Ok(Stream::new(self.clone(), key))
    }

    /// Waits for the next stream opened by the peer. Returns `None` once the connection is closed.
    ///
    /// Needs a nonzero [`Config::accept_backlog`](crate::Config::accept_backlog) and a router without its own
    /// [`Router::stream`](crate::Router::stream).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub async fn accept_stream(&self) -> Option<Stream> {
        let key = self
            .shared()
            .wait_for(&self.shared().changed, |core| match core.unaccepted.pop_front() {
                Some(key) => Some(Some(key)),
                None if core.proto.is_open() => None,
                None => Some(None),
            })
            .await?;
        Some(Stream::new(self.clone(), key))
    }

    /// Queues a stream for [`accept_stream`](Self::accept_stream), or closes it if that queue is full.
    pub(crate) fn offer_stream(&self, stream: Stream) {
        if self.shared().core().unaccepted.len() < self.shared().config.accept_backlog {
            self.shared().core().unaccepted.push_back(stream.into_key());
            self.shared().changed.notify_waiters();
        }
    }
}

/// A stream of a connection. Dropping it closes both directions.
///
/// Between [extended](crate::Config::extended) peers, a slow reader makes its sender wait, and does not affect the
/// rest of the connection. A plain peer cannot be made to wait. Its unread data is bounded by
/// [`Config::stream_queue_len_max`](crate::Config::stream_queue_len_max). Above that limit, reading from the
/// connection pauses briefly. A stream still above it afterwards is closed with [`StreamEnd::Overflow`].
///
/// ```
/// # async fn example(connection: frisbee::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let mut stream = connection.open_stream()?;
/// stream.send("ping").await?;
/// let answer = stream.read().await?;
/// println!("{answer:?}");
/// # Ok(())
/// # }
/// ```
pub struct Stream {
    sender: StreamSender,
    reader: StreamReader,
}

/// The sending half of a [`Stream`].
#[derive(Clone)]
pub struct StreamSender {
    held: Arc<StreamHandle>,
}

/// The reading half of a [`Stream`]. After it is dropped, incoming data is discarded until the sending half is
/// dropped.
pub struct StreamReader {
    held: Arc<StreamHandle>,
}

/// The shared part of both halves. Closes the stream on drop.
struct StreamHandle {
    connection: Connection,
    key: StreamKey,
    id: u16,
    /// Cleared after handing on the key. Only the owner of both halves clears it, so relaxed ordering is enough.
    holds: AtomicBool,
}

impl Stream {
    pub(crate) fn new(connection: Connection, key: StreamKey) -> Self {
        let id = connection.shared().core().proto.stream_id(key);
        let held = Arc::new(StreamHandle { connection, key, id, holds: AtomicBool::new(true) });
        Self { sender: StreamSender { held: held.clone() }, reader: StreamReader { held } }
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.sender.id()
    }

    /// Sends data. Waits while the outbox of the connection is full, or while an extended peer has a slow reader.
    ///
    /// Refuses empty data: on the wire, an empty packet closes the stream.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends the data whole or not at all.
    pub async fn send(&self, content: impl Into<Content>) -> Result<(), StreamSendError> {
        self.sender.send(content).await
    }

    /// Waits for the next data from the peer. Data received before the end of the stream comes before the error
    /// for the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no data.
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        self.reader.read().await
    }

    /// Returns the data of the next [`read`](Self::read) without consuming it.
    ///
    /// Useful if the first data of a stream selects its protocol.
    ///
    /// # Cancel safety
    ///
    /// Neither a dropped nor a completed call consumes data.
    pub async fn peek(&mut self) -> Result<Bytes, StreamEnd> {
        let held = &self.reader.held;
        poll_fn(|cx| held.connection.shared().poll_read_from(cx, held.key, |proto, key| proto.peek_at(key))).await
    }

    /// Closes both directions, after the data sent before. The wire format cannot close one direction only.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Delays the close packet of this stream, after [`close`](Self::close) or the drop of the last half.
    ///
    /// On this side, the stream ends immediately. The close packet goes out before the next data sent on any
    /// stream of the connection, and not at all if the peer closes the stream first.
    ///
    /// Use it in protocols with an end marker in their data. A peer may close the connection after its last
    /// expected data, and frisbee-go locks up if a packet of a stream arrives during that close. A close packet
    /// followed by expected data does no harm. For an extended peer, the close packet is not delayed: such a peer
    /// does not lock up, and it keeps credit for the stream until the close.
    pub fn defer_close(&self) {
        let held = &self.sender.held;
        held.connection.shared().core().proto.defer_stream_close(held.key);
    }

    /// Splits the stream into its halves, for two tasks. The stream closes when both are dropped.
    pub fn split(self) -> (StreamSender, StreamReader) {
        (self.sender, self.reader)
    }

    /// Drops the stream without closing it.
    pub(crate) fn into_key(self) -> StreamKey {
        let held = &self.sender.held;
        held.holds.store(false, Ordering::Relaxed);
        held.key
    }
}

impl StreamSender {
    /// Returns the connection of the stream.
    pub fn connection(&self) -> &Connection {
        &self.held.connection
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// Sends data like [`Stream::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends the data whole or not at all.
    pub async fn send(&self, content: impl Into<Content>) -> Result<(), StreamSendError> {
        self.send_tracked(content).await.map(drop)
    }

    /// Sends data like [`Stream::send`], and returns its position for [`Connection::may_have_left`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends the data whole or not at all.
    pub async fn send_tracked(&self, content: impl Into<Content>) -> Result<SendPosition, StreamSendError> {
        let StreamHandle { connection, key, .. } = &*self.held;
        let content = content.into();
        let (shared, len) = (connection.shared(), content.len());
        let push = |proto: &mut proto::Connection, content| proto.send_on(*key, content);
        shared.until_sent(len, content, |content| shared.try_push_on(*key, len, content, push)).await
    }

    /// Sends several packets, at a lower cost than one call of [`send`](Self::send) for each.
    ///
    /// After an error, the packets remaining in `contents` were not sent, and neither was the last one removed.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future, all packets removed from `contents` are sent, each of them whole.
    pub async fn send_many(&self, contents: &mut VecDeque<impl Into<Content>>) -> Result<(), StreamSendError> {
        let StreamHandle { connection, key, .. } = &*self.held;
        let shared = connection.shared();
        // Each content is assumed to be as long as the previous one, because it stays in the queue until there is
        // room.
        let mut len = 0;
        while !contents.is_empty() {
            let expected = len;
            let mut push = |proto: &mut proto::Connection, ()| {
                for _ in 0..SENT_AT_ONCE_MAX {
                    // On a closing connection, sending has to fail: without a failure, this loop would never end.
                    if proto.is_open() && proto.is_full_for(len) || !proto.has_credit(*key) {
                        break;
                    }
                    let Some(content) = contents.pop_front() else { break };
                    let content = content.into();
                    len = content.len();
                    proto.send_on(*key, content)?;
                }
                Ok(())
            };
            shared.until_sent(expected, (), |()| shared.try_push_on(*key, expected, (), &mut push)).await?;
        }
        Ok(())
    }

    /// Sends data without waiting. Returns the data if the outbox of the connection is full or the peer reads too
    /// slowly.
    pub fn try_send(&self, content: impl Into<Content>) -> Result<(), TrySendError<Content, StreamSendError>> {
        let StreamHandle { connection, key, .. } = &*self.held;
        let (content, push) = (content.into(), |proto: &mut proto::Connection, content| proto.send_on(*key, content));
        connection.shared().try_push_on(*key, content.len(), content, push)?;
        Ok(())
    }

    /// Closes both directions like [`Stream::close`].
    pub fn close(&self) {
        let waiting = self.held.connection.shared().change(|core| {
            core.proto.close_stream(self.held.key);
            core.take_waiting(self.held.key)
        });
        waiting.for_each(Waker::wake);
    }

    /// Waits for the end of the stream and returns its cause.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) -> StreamEnd {
        poll_fn(|cx| self.held.connection.shared().poll_stream_ended(cx, self.held.key)).await
    }
}

impl StreamReader {
    /// Returns the connection of the stream.
    pub fn connection(&self) -> &Connection {
        &self.held.connection
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// Waits for the next data like [`Stream::read`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no data.
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        poll_fn(|cx| self.poll_read(cx)).await
    }

    /// Polls for the next data, for manual futures and streams. Only the last task to poll is woken.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, StreamEnd>> {
        self.held.connection.shared().poll_read_from(cx, self.held.key, proto::Connection::read_from)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        if self.held.holds.load(Ordering::Relaxed) && Arc::strong_count(&self.held) > 1 {
            self.held.connection.shared().change(|core| core.proto.ignore_stream(self.held.key));
        }
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if *self.holds.get_mut() {
            self.connection.shared().change(|core| core.forget_stream(self.key));
        }
    }
}

/// The largest number of packets sent under one lock, and per unit of tokio's cooperative budget.
const SENT_AT_ONCE_MAX: usize = 64;

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).finish_non_exhaustive()
    }
}
