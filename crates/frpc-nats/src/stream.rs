//! One call with frames: its credit, its sequence numbers, and the messages in both directions.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_nats::{Client, HeaderMap, Message, Subject};
use bytes::{Bytes, BytesMut};
use frpc::{CallError, CloseReason, MemoryAccount, MemoryHold, Metadata, Status};
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    frame::Frame,
    headers::{self, ReceivedMetadata},
};

/// The bytes that a peer may send before it gets more credit.
pub(crate) const WINDOW: u64 = 512 * 1024;
/// Added to the bytes of each frame, so that empty messages use credit as well.
pub(crate) const FRAME_COST: usize = 64;
/// The maximum number of bytes of a message in one frame.
const PIECE_LEN_MAX: usize = 64 * 1024;
/// The maximum credit in use, whatever the peer grants.
const CREDIT_MAX: usize = 8 * 1024 * 1024;
/// The interval of the credit frames that keep a call alive.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);
/// The time without a frame of the peer after which a call fails.
const SILENCE_MAX: Duration = Duration::from_secs(16);

/// A call with frames, shared by the task that receives messages, and by its reader and writer.
#[derive(Debug)]
pub(crate) struct CallStream {
    client: Client,
    /// The subject of the peer for this call.
    pub(crate) peer: Subject,
    credit: Semaphore,
    incoming: mpsc::UnboundedSender<Incoming>,
    state: Mutex<StreamState>,
    /// Cancelled when the call has failed or the peer has given up.
    pub(crate) over: CancellationToken,
    failure: OnceLock<Status>,
    metadata_len_max: usize,
}

#[derive(Debug)]
struct StreamState {
    heard: Instant,
    /// The number of the next frame.
    expected: u32,
    received: u64,
    consumed: u64,
    /// The consumption of which the peer knows.
    announced: u64,
    /// The credit granted by the peer in total.
    granted: u64,
    /// The number of numbered frames sent.
    sent: u32,
    /// The peer has ended its direction.
    has_ended: bool,
    /// The call has failed. Later frames are dropped, so the queue does not grow.
    has_failed: bool,
}

/// A part of the messages of the peer. Its queue is bounded by [`WINDOW`].
#[derive(Debug)]
pub(crate) enum Incoming {
    Data { bytes: Bytes, is_last: bool },
    Metadata(Metadata),
    End(Result<Metadata, Status>),
}

impl CallStream {
    pub(crate) fn new(
        client: Client,
        peer: Subject,
        metadata_len_max: usize,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Incoming>) {
        let (incoming, receiver) = mpsc::unbounded_channel();
        let state = StreamState {
            heard: Instant::now(),
            expected: 0,
            received: 0,
            consumed: 0,
            announced: 0,
            granted: WINDOW,
            sent: 0,
            has_ended: false,
            has_failed: false,
        };
        let credit = Semaphore::new(usize::try_from(WINDOW).unwrap_or(usize::MAX));
        let (state, over, failure) = (Mutex::new(state), CancellationToken::new(), OnceLock::new());
        (Arc::new(Self { client, peer, credit, incoming, state, over, failure, metadata_len_max }), receiver)
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        // No panic under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message of the peer. Returns `false` if it fails the call.
    pub(crate) fn receive(&self, message: Message) -> bool {
        let taken = self.take(message);
        let is_valid = taken.is_ok();
        if let Err(status) = taken {
            self.fail(status);
        }
        is_valid
    }

    fn take(&self, message: Message) -> Result<(), Status> {
        let headers = message.headers;
        let frame = Frame::read(message.payload).ok_or_else(|| Status::internal("the peer sent an invalid frame"))?;
        let mut state = self.state();
        if state.has_failed {
            return Ok(());
        }
        state.heard = Instant::now();
        match frame {
            Frame::Credit { total, sent } => {
                if sent != state.expected && sent.wrapping_sub(state.expected) < u32::MAX / 2 {
                    return Err(frames_lost());
                }
                let more = total.saturating_sub(state.granted);
                let room = CREDIT_MAX.saturating_sub(self.credit.available_permits());
                state.granted = state.granted.max(total);
                self.credit.add_permits(usize::try_from(more).unwrap_or(usize::MAX).min(room));
            }
            Frame::Data { number, is_last, bytes } => {
                state.number(number)?;
                state.receive(bytes.len())?;
                let _ = self.incoming.send(Incoming::Data { bytes, is_last });
            }
            Frame::Metadata { number } => {
                state.number(number)?;
                state.receive(0)?;
                let ReceivedMetadata { metadata, .. } = headers::metadata_of(headers.as_ref(), self.metadata_len_max)?;
                let _ = self.incoming.send(Incoming::Metadata(metadata));
            }
            Frame::End { number } => {
                state.number(number)?;
                state.has_ended = true;
                let end = match headers::status_of(headers.as_ref()) {
                    Some(status) => Err(status),
                    None => headers::metadata_of(headers.as_ref(), self.metadata_len_max).map(|found| found.trailers),
                };
                state.has_failed = end.is_err();
                if end.is_err() {
                    self.over.cancel();
                }
                let _ = self.incoming.send(Incoming::End(end));
            }
            Frame::Cancel => return Err(Status::cancelled("the caller has cancelled the call")),
        }
        Ok(())
    }

    /// Fails the call locally with a status.
    pub(crate) fn fail(&self, status: Status) {
        if !std::mem::replace(&mut self.state().has_failed, true) {
            let _ = self.failure.set(status.clone());
            let _ = self.incoming.send(Incoming::End(Err(status)));
            self.over.cancel();
        }
    }

    /// Returns the status of a local failure.
    pub(crate) fn failure(&self) -> Option<Status> {
        self.failure.get().cloned()
    }

    /// Publishes a frame without waiting for anything but room in the queue of the connection.
    async fn publish(&self, frame: &Frame, headers: HeaderMap) -> Result<(), Status> {
        let (subject, payload) = (self.peer.clone(), frame.encode());
        let published = match headers.is_empty() {
            true => self.client.publish(subject, payload).await,
            false => self.client.publish_with_headers(subject, headers, payload).await,
        };
        published.map_err(|error| Status::unavailable(format!("cannot publish a frame of the call: {error}")))
    }

    /// Tells the peer that the caller has given up.
    pub(crate) async fn cancel(&self) {
        // Without a connection, the peer notices the silence.
        let _ = self.publish(&Frame::Cancel, HeaderMap::new()).await;
    }

    /// Fails the call after a silence of the peer. Otherwise tells the peer that this side is alive.
    pub(crate) async fn keep_alive(&self) {
        if self.over.is_cancelled() {
            return;
        }
        let silence = self.state().heard.elapsed();
        if silence > SILENCE_MAX {
            let reason =
                format!("nothing was heard of the peer for {} s: it has ended, or NATS is down", silence.as_secs());
            self.fail(Status::unavailable(reason).with_source(lost(true)));
            return;
        }
        self.announce().await;
    }

    async fn announce(&self) {
        let frame = {
            let mut state = self.state();
            state.announced = state.consumed;
            Frame::Credit { total: WINDOW + state.consumed, sent: state.sent }
        };
        let _ = self.publish(&frame, HeaderMap::new()).await;
    }

    /// Records that the reader has taken a frame. Returns `true` if the peer should get credit: after a quarter of the
    /// window.
    fn consume(&self, len: usize) -> bool {
        let mut state = self.state();
        state.consumed += cost(len);
        let is_due = state.consumed - state.announced >= WINDOW / 4;
        if is_due {
            state.announced = state.consumed;
        }
        is_due
    }
}

impl StreamState {
    fn number(&mut self, number: u32) -> Result<(), Status> {
        if self.has_ended {
            return Err(Status::internal("the peer sent a frame after its end"));
        }
        if number != self.expected {
            return Err(frames_lost());
        }
        self.expected = self.expected.wrapping_add(1);
        Ok(())
    }

    fn receive(&mut self, len: usize) -> Result<(), Status> {
        self.received += cost(len);
        if self.received > self.consumed + WINDOW {
            return Err(Status::resource_exhausted("the peer sent more than its credit"));
        }
        Ok(())
    }
}

fn cost(len: usize) -> u64 {
    (len + FRAME_COST) as u64
}

fn frames_lost() -> Status {
    Status::unavailable("NATS has lost a frame of the call, as it may when a server dies or a client is slow")
        .with_source(lost(true))
}

/// Returns the cause of a call that ended without an answer of its handler.
pub(crate) fn lost(may_have_executed: bool) -> Arc<dyn std::error::Error + Send + Sync> {
    let kind = if may_have_executed { std::io::ErrorKind::ConnectionAborted } else { std::io::ErrorKind::NotConnected };
    let reason = CloseReason::Io(Arc::new(kind.into()));
    Arc::new(CallError::ConnectionLost { reason, may_have_executed })
}

/// The end of a direction.
#[derive(Debug)]
pub(crate) enum Next {
    Message(Bytes),
    /// The end, with trailers.
    End(Metadata),
}

/// The messages of the peer.
#[derive(Debug)]
pub(crate) struct MessageReader {
    stream: Arc<CallStream>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    partial: BytesMut,
    /// The account for messages in pieces, and its hold for the current one.
    account: Option<MemoryAccount>,
    hold: Option<MemoryHold>,
    len_max: usize,
    metadata: Option<Metadata>,
}

impl MessageReader {
    pub(crate) fn new(
        stream: Arc<CallStream>,
        incoming: mpsc::UnboundedReceiver<Incoming>,
        len_max: usize,
        account: Option<MemoryAccount>,
    ) -> Self {
        Self { stream, incoming, partial: BytesMut::new(), account, hold: None, len_max, metadata: None }
    }

    /// Returns the metadata sent before the first message, once.
    pub(crate) fn take_metadata(&mut self) -> Option<Metadata> {
        self.metadata.take()
    }

    /// Returns the next message.
    ///
    /// # Cancel safety
    ///
    /// No message is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Next, Status> {
        loop {
            let Some(incoming) = self.incoming.recv().await else {
                return Err(Status::internal("the call is over"));
            };
            let (bytes, is_last) = match incoming {
                Incoming::Data { bytes, is_last } => (bytes, is_last),
                Incoming::Metadata(metadata) => {
                    self.metadata = Some(metadata);
                    self.stream.consume(0);
                    continue;
                }
                Incoming::End(Ok(_)) if !self.partial.is_empty() => {
                    return Err(Status::internal("the peer ended the call in the middle of a message"));
                }
                Incoming::End(end) => return end.map(Next::End),
            };
            let (len, len_max) = (self.partial.len() + bytes.len(), self.len_max);
            if len > len_max {
                return Err(Status::resource_exhausted(format!("a message exceeds the limit of {len_max} bytes")));
            }
            let piece_len = bytes.len();
            let message = if is_last && self.partial.is_empty() {
                Some(bytes)
            } else {
                if let Some(account) = &self.account {
                    self.hold.get_or_insert_with(|| account.hold()).grow(bytes.len())?;
                }
                self.partial.extend_from_slice(&bytes);
                is_last.then(|| {
                    self.hold = None;
                    std::mem::take(&mut self.partial).freeze()
                })
            };
            if self.stream.consume(piece_len) {
                // Not awaited in place: the message would be lost if the caller drops the future.
                let stream = self.stream.clone();
                tokio::spawn(async move { stream.announce().await });
            }
            if let Some(message) = message {
                return Ok(Next::Message(message));
            }
        }
    }
}

/// The messages of this side.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    stream: Arc<CallStream>,
    piece_len_max: usize,
}

impl MessageWriter {
    pub(crate) fn new(stream: Arc<CallStream>) -> Self {
        let piece_len_max = PIECE_LEN_MAX.min(stream.client.max_payload().saturating_sub(FRAME_COST).max(1));
        Self { stream, piece_len_max }
    }

    /// Sends a message in frames, within the credit of the peer.
    ///
    /// # Errors
    ///
    /// The call is over, or the connection to NATS has ended.
    pub(crate) async fn message(&mut self, mut message: Bytes) -> Result<(), Status> {
        loop {
            let bytes = message.split_to(message.len().min(self.piece_len_max));
            let permits = u32::try_from(cost(bytes.len())).unwrap_or(u32::MAX);
            let permit = tokio::select! {
                biased;
                () = self.stream.over.cancelled() => return Err(Status::cancelled("the call is over")),
                permit = self.stream.credit.acquire_many(permits) => permit,
            };
            permit.map_err(|_| Status::internal("the call is over"))?.forget();
            let is_last = message.is_empty();
            let frame = |number| Frame::Data { number, is_last, bytes };
            self.numbered(frame, HeaderMap::new()).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Sends the metadata of an answer.
    pub(crate) async fn metadata(&mut self, metadata: &Metadata) -> Result<(), Status> {
        let mut headers = HeaderMap::new();
        headers::put_metadata(&mut headers, metadata);
        self.numbered(|number| Frame::Metadata { number }, headers).await
    }

    /// Ends this direction.
    pub(crate) async fn end(mut self, headers: HeaderMap) -> Result<(), Status> {
        self.numbered(|number| Frame::End { number }, headers).await
    }

    async fn numbered(&mut self, frame: impl FnOnce(u32) -> Frame, headers: HeaderMap) -> Result<(), Status> {
        let number = self.stream.state().sent;
        self.stream.publish(&frame(number), headers).await?;
        // After the frame: a credit frame must not announce a frame that follows it.
        self.stream.state().sent = number.wrapping_add(1);
        Ok(())
    }
}
