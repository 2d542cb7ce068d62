//! Ordered packets beside the others, in both directions, under an id of their own.

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

use crate::{
    Connection, Content, Sent, StreamSendError, TrySendError,
    proto::{self, OpenError, StreamEnd, StreamKey},
    shared::Core,
};

impl Connection {
    /// Opens a stream with an id that is free. The peer learns of it by the first data sent.
    pub fn open_stream(&self) -> Result<Stream, OpenError> {
        let key = self.shared().core().proto.open_stream()?;
        Ok(Stream::new(self.clone(), key))
    }

    /// Opens the stream with this id, for protocols that agree on ids in advance.
    pub fn open_stream_with_id(&self, id: u16) -> Result<Stream, OpenError> {
        let key = self.shared().core().proto.open_stream_with_id(id)?;
        Ok(Stream::new(self.clone(), key))
    }

    /// Waits for the next stream that the peer opens. `None` once the connection is closed. Needs
    /// [`Config::accept_backlog`](crate::Config::accept_backlog) and a router that does not serve streams itself.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken no stream.
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

    /// Queues a stream for [`accept_stream`](Self::accept_stream), or closes it.
    pub(crate) fn offer_stream(&self, stream: Stream) {
        if self.shared().core().unaccepted.len() < self.shared().config.accept_backlog {
            self.shared().core().unaccepted.push_back(stream.into_key());
            self.shared().changed.notify_waiters();
        }
    }
}

/// One stream of a connection. Dropping it closes both directions.
///
/// Between [extended](crate::Config::extended) peers, a sender waits for a reader that is behind, and nothing else on the
/// connection does. A plain peer has no way to wait. What it sent and nobody has read is bounded by
/// [`Config::stream_queue_len_max`](crate::Config::stream_queue_len_max); past it, nothing is read from the connection
/// for a moment, and a stream whose reader does not catch up by then is closed with [`StreamEnd::Overflow`].
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
    held: Arc<Held>,
}

/// The reading half of a [`Stream`]. What still comes after it is dropped is discarded, as long as the sending half is
/// there.
pub struct StreamReader {
    held: Arc<Held>,
}

/// Closes the stream with the last half.
struct Held {
    connection: Connection,
    key: StreamKey,
    id: u16,
    /// Cleared when the key was handed on. Only the owner of both halves clears it, so no order is needed.
    holds: AtomicBool,
}

impl Stream {
    pub(crate) fn new(connection: Connection, key: StreamKey) -> Self {
        let id = connection.shared().core().proto.stream_id(key);
        let held = Arc::new(Held { connection, key, id, holds: AtomicBool::new(true) });
        Self { sender: StreamSender { held: held.clone() }, reader: StreamReader { held } }
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.sender.id()
    }

    /// Sends data, waiting while the connection's outbox is full, or the reader on the other side is behind and the peer
    /// can say so. Empty data is refused: it would close the stream.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent the data whole or not at all.
    pub async fn send(&self, content: impl Into<Content>) -> Result<(), StreamSendError> {
        self.sender.send(content).await
    }

    /// Waits for the next data of the peer. An error says why no more will come. Data that came before the end is read
    /// first.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        self.reader.read().await
    }

    /// Returns what [`read`](Self::read) will return next, and leaves it where it is: for a protocol that decides by
    /// the first data who gets the stream.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing, nor has one that returned.
    pub async fn peek(&mut self) -> Result<Bytes, StreamEnd> {
        let held = &self.reader.held;
        poll_fn(|cx| held.connection.shared().poll_read_from(cx, held.key, |proto, key| proto.peek_at(key))).await
    }

    /// Closes both directions, after the data sent before. The wire has no close of one direction.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Defers the close of this stream, whether [`close`](Self::close) or the drop of the last half causes it. On this
    /// side the stream ends at once. The peer is told ahead of the next data sent on any stream of the connection, and
    /// not at all if it closes the stream itself before.
    ///
    /// Use it in protocols whose data says when a stream is through. A peer that has received all it waits for may be
    /// closing the connection, and frisbee-go locks up if a packet of a stream arrives during that. A close that comes
    /// ahead of data that the peer waits for does no harm. An extended peer is told at once: it does not lock up, and keeps
    /// a credit for the stream until then.
    pub fn defer_close(&self) {
        let held = &self.sender.held;
        held.connection.shared().core().proto.defer_stream_close(held.key);
    }

    /// Takes the halves apart, for two tasks. The stream closes when both are gone.
    pub fn split(self) -> (StreamSender, StreamReader) {
        (self.sender, self.reader)
    }

    /// Lets go of the stream without closing it.
    pub(crate) fn into_key(self) -> StreamKey {
        let held = &self.sender.held;
        held.holds.store(false, Ordering::Relaxed);
        held.key
    }
}

impl StreamSender {
    /// Returns the connection it is a part of.
    pub fn connection(&self) -> &Connection {
        &self.held.connection
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// Sends data as [`Stream::send`] does.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent the data whole or not at all.
    pub async fn send(&self, content: impl Into<Content>) -> Result<(), StreamSendError> {
        self.send_tracked(content).await.map(drop)
    }

    /// Sends data as [`Stream::send`] does, and tells which packet it was; see [`Connection::may_have_left`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent the data whole or not at all.
    pub async fn send_tracked(&self, content: impl Into<Content>) -> Result<Sent, StreamSendError> {
        let Held { connection, key, .. } = &*self.held;
        let content = content.into();
        let push = |core: &mut Core, content| core.send_on(*key, content);
        connection.shared().when_sendable(*key, content.len(), content, push).await
    }

    /// Sends several data, which takes less than sending one after the other. What is left in `contents` after an error
    /// was not sent, nor was the one before it.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent what is no longer in `contents`, each whole.
    pub async fn send_many(&self, contents: &mut VecDeque<impl Into<Content>>) -> Result<(), StreamSendError> {
        let Held { connection, key, .. } = &*self.held;
        // The next content is taken to be as long as the last: it has to stay where it is until there is room.
        let mut len = 0;
        while !contents.is_empty() {
            let expected = len;
            let push = |core: &mut Core, ()| {
                for _ in 0..SENT_AT_ONCE_MAX {
                    if core.proto.is_full_for(len) || !core.proto.has_credit(*key) {
                        break;
                    }
                    let Some(content) = contents.pop_front() else { break };
                    let content = content.into();
                    len = content.len();
                    core.proto.send_on(*key, content)?;
                }
                Ok(())
            };
            connection.shared().when_sendable(*key, expected, (), push).await?;
        }
        Ok(())
    }

    /// Sends data unless the connection's outbox is full or the reader on the other side is behind, either of which gives
    /// the data back.
    pub fn try_send(&self, content: impl Into<Content>) -> Result<(), TrySendError<Content, StreamSendError>> {
        let Held { connection, key, .. } = &*self.held;
        let (content, push) = (content.into(), |core: &mut Core, content| core.proto.send_on(*key, content));
        Ok(connection.shared().try_push_on(*key, content.len(), content, push)?)
    }

    /// Closes both directions as [`Stream::close`] does.
    pub fn close(&self) {
        let waiting = self.held.connection.shared().change(|core| {
            core.proto.close_stream(self.held.key);
            core.take_waiting(self.held.key)
        });
        waiting.for_each(Waker::wake);
    }

    /// Waits until the stream has ended, and returns why.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing.
    pub async fn closed(&self) -> StreamEnd {
        poll_fn(|cx| self.held.connection.shared().poll_stream_ended(cx, self.held.key)).await
    }
}

impl StreamReader {
    /// Returns the connection it is a part of.
    pub fn connection(&self) -> &Connection {
        &self.held.connection
    }

    /// Returns the id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// Waits for the next data as [`Stream::read`] does.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        poll_fn(|cx| self.poll_read(cx)).await
    }

    /// Polls for the next data, for futures and streams written by hand. Only the last task that polled is woken.
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

impl Drop for Held {
    fn drop(&mut self) {
        if *self.holds.get_mut() {
            self.connection.shared().change(|core| core.forget_stream(self.key));
        }
    }
}

/// The number of data that are sent under one lock, and for one unit of what a task may do before it lets others run.
const SENT_AT_ONCE_MAX: usize = 64;

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).finish_non_exhaustive()
    }
}
