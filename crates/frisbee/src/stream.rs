//! Ordered packets beside the others, in both directions, under an id of their own.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Connection, SendError,
    proto::{StreamEnd, StreamKey},
};

/// One stream of a connection. Dropping it closes both directions.
///
/// The wire has no flow control for a stream. What is not read in time is bounded by
/// [`Config::stream_queue_len_max`](crate::Config::stream_queue_len_max), past which the stream is closed with
/// [`StreamEnd::Overflow`]; nothing else on the connection is held up.
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

/// The reading half of a [`Stream`].
pub struct StreamReader {
    held: Arc<Held>,
}

/// Closes the stream with the last half.
struct Held {
    connection: Connection,
    key: StreamKey,
    id: u16,
    /// Cleared when somebody else took over the key.
    holds: bool,
}

impl Stream {
    pub(crate) fn new(connection: Connection, key: StreamKey) -> Self {
        let id = connection.shared().core().proto.stream_id(key);
        let held = Arc::new(Held { connection, key, id, holds: true });
        Self { sender: StreamSender { held: held.clone() }, reader: StreamReader { held } }
    }

    /// The id on the wire.
    pub fn id(&self) -> u16 {
        self.sender.id()
    }

    /// Sends data, waiting while the connection's outbox is full. Empty data is refused: it would close the stream.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent the data whole or not at all.
    pub async fn send(&self, content: impl Into<Bytes>) -> Result<(), SendError> {
        self.sender.send(content).await
    }

    /// The next data of the peer, or why there will be no more. Data that came before the end is read first.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        self.reader.read().await
    }

    /// Closes both directions, after the data sent before. The wire has no close of one direction.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Takes the halves apart, for two tasks. The stream closes when both are gone.
    pub fn split(self) -> (StreamSender, StreamReader) {
        (self.sender, self.reader)
    }

    /// Lets go of the stream without closing it.
    pub(crate) fn into_key(self) -> Option<StreamKey> {
        let Self { sender, reader } = self;
        drop(reader);
        let mut held = Arc::into_inner(sender.held)?;
        held.holds = false;
        Some(held.key)
    }
}

impl StreamSender {
    /// The id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// As [`Stream::send`].
    pub async fn send(&self, content: impl Into<Bytes>) -> Result<(), SendError> {
        let content = content.into();
        self.held.connection.when_not_full(|core| core.proto.send_on(self.held.key, content.clone())).await
    }

    /// As [`Stream::close`].
    pub fn close(&self) {
        let reader = self.held.connection.shared().change(|core| {
            core.proto.close_stream(self.held.key);
            core.readers.remove(&self.held.key)
        });
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl StreamReader {
    /// The id on the wire.
    pub fn id(&self) -> u16 {
        self.held.id
    }

    /// As [`Stream::read`].
    pub async fn read(&mut self) -> Result<Bytes, StreamEnd> {
        self.held.connection.shared().read_from(self.held.key).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.holds {
            self.connection.shared().change(|core| {
                core.readers.remove(&self.key);
                core.proto.release_stream(self.key);
            });
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).finish_non_exhaustive()
    }
}
