//! The messages of a call on a frisbee stream, in both directions, and the end of the stream.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Connection, Content, RefusalReason, Stream, StreamEnd, StreamReader, StreamSendError, StreamSender,
};
use tokio::{
    runtime::Handle,
    task::{AbortHandle, yield_now},
    time::{Instant, Sleep, sleep_until},
};

use super::{
    bytes::{
        compressed::CompressionHeader,
        envelope::{self, BATCH_LEN_MAX, OutgoingBatch, StreamFrame},
        stream_framing::{END, StreamFraming, failure, is_end, without_text},
    },
    peer::PeerState,
};
use crate::{
    call::{
        deadline::Deadline,
        metadata::Metadata,
        packed::{BatchSource, ContentSource, PackedMessages, PollNext, ReceivedMessages},
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    client::with_own_timeout,
    error::{CallError, ServerFailure},
};

/// The messages received on a stream, up to the end marker.
pub(crate) struct IncomingMessages {
    framing: StreamFraming,
    /// Slots for the metadata before the messages and the trailers after them.
    pub(crate) metadata: MetadataSlot,
    pub(crate) trailers: MetadataSlot,
    reader: Option<StreamReader>,
    /// The runtime for discarding the rest of the stream, if the reader is dropped before the end marker.
    discards_on: Option<Handle>,
}

/// Contents until a deadline, and a status afterwards.
pub(crate) struct DeadlineStream<S> {
    /// `None` after the deadline.
    contents: Option<S>,
    deadline: Deadline,
    sleep: Pin<Box<Sleep>>,
}

impl IncomingMessages {
    pub(crate) fn new(framing: StreamFraming, reader: StreamReader) -> Self {
        Self {
            framing,
            metadata: MetadataSlot::default(),
            trailers: MetadataSlot::default(),
            reader: Some(reader),
            discards_on: None,
        }
    }

    /// Creates a reader that continues to the end marker even after it is dropped.
    ///
    /// A Go caller loses the answer if the stream closes before its own end marker is through.
    pub(crate) fn reading_to_end(framing: StreamFraming, reader: StreamReader) -> Self {
        let mut incoming = Self::new(framing, reader);
        incoming.discards_on = Some(Handle::current());
        incoming
    }

    /// Drops the reader. Afterwards, nothing is left to discard.
    fn end(&mut self) {
        self.reader = None;
    }

    /// Inflates the messages of a frame.
    fn inflate(
        &mut self,
        compressed: CompressionHeader,
        bytes: &[u8],
    ) -> Option<Result<ReceivedMessages<Bytes>, Status>> {
        let inflated = PeerState::inflate(self.reader.as_ref()?.connection(), compressed, bytes);
        let serves = self.discards_on.is_some();
        let messages = inflated.map_err(|why| if serves { why.request_status() } else { why.answer_status() });
        if messages.is_err() {
            self.end();
        }
        Some(messages.map(|messages| ReceivedMessages::Several(PackedMessages::new(messages))))
    }

    /// Processes a frame of an extended peer. `None` if it has no message and is not the end.
    fn take_data(
        &mut self,
        content: Bytes,
        metadata_max: usize,
    ) -> Option<Option<Result<ReceivedMessages<Bytes>, Status>>> {
        let data = StreamFrame::decode(content, metadata_max);
        match data {
            Ok(StreamFrame::Messages(messages)) if messages.is_empty() => return None,
            Ok(StreamFrame::Messages(messages)) => return Some(Some(Ok(ReceivedMessages::Several(messages)))),
            Ok(StreamFrame::Compressed(compressed, bytes)) => return Some(self.inflate(compressed, &bytes)),
            Ok(StreamFrame::Head(head)) => {
                self.metadata.set(head.metadata);
                return None;
            }
            Ok(StreamFrame::Unknown) => return None,
            _ => {}
        }
        self.end();
        Some(match data {
            // The cause says why a server refuses. A caller has no use for it.
            Ok(StreamFrame::Failure(head)) if self.discards_on.is_some() => Some(Err(head.into_status())),
            Ok(StreamFrame::Failure(head)) => Some(Err(head.into_server_status())),
            Ok(StreamFrame::End(head)) => {
                if !head.trailers.is_empty() {
                    self.trailers.set(head.trailers);
                }
                None
            }
            Ok(_) => None,
            Err(status) => Some(Err(status)),
        })
    }
}

impl ContentSource for IncomingMessages {
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<ReceivedMessages<Bytes>> {
        let serves = self.discards_on.is_some();
        let framing = self.framing;
        loop {
            let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
            let read = ready!(reader.poll_read(cx));
            if let (Ok(content), StreamFraming::Extended { metadata_max, .. }) = (&read, framing) {
                match self.take_data(content.clone(), metadata_max) {
                    None => continue,
                    Some(next) => return Poll::Ready(next),
                }
            }
            break Poll::Ready(match read {
                Ok(content) if is_end(&content) => {
                    self.end();
                    None
                }
                Ok(content) => Some(Ok(ReceivedMessages::One(content))),
                Err(end) => {
                    let status = match end {
                        StreamEnd::TooLarge { announced, limit } if serves => {
                            Status::resource_exhausted(RefusalReason::TooLarge { announced, limit }.to_string())
                        }
                        end => stream_end_status(end, reader.connection()),
                    };
                    self.end();
                    Some(Err(status))
                }
            });
        }
    }
}

impl<S> DeadlineStream<S> {
    pub(crate) fn new(contents: S, at: Instant, deadline: Deadline) -> Self {
        Self { contents: Some(contents), deadline, sleep: Box::pin(sleep_until(at)) }
    }
}

impl<S: BatchSource<Bytes>> BatchSource<Bytes> for DeadlineStream<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        let Some(contents) = &mut self.contents else { return Poll::Ready(None) };
        // Checked before each message, even if more are ready: a server as fast as its reader would never be late.
        if self.sleep.as_mut().poll(cx).is_ready() {
            self.contents = None;
            return Poll::Ready(Some(Err(self.deadline.passed())));
        }
        let next = ready!(contents.poll_next(cx));
        Poll::Ready(next.map(|next| next.map_err(|status| with_own_timeout(status, Some(self.deadline)))))
    }
}

impl Drop for IncomingMessages {
    fn drop(&mut self) {
        if let (Some(reader), Some(runtime)) = (self.reader.take(), &self.discards_on) {
            let connection = reader.connection().clone();
            connection
                .state_or_insert_with(DiscardTasks::default)
                .add(runtime.spawn(discard(self.framing, reader)).abort_handle());
        }
    }
}

/// The reason for sending only a part of a stream.
pub(crate) enum IncompleteSend {
    /// A message cannot be sent, or the stream of messages has failed.
    Failed(Status),
    /// A message exceeds the size limit of the peer.
    TooLargeForPeer { len: usize, limit: u32 },
    /// The frisbee stream has ended.
    StreamEnded,
}

/// Sends a stream of messages, and the end marker after the last.
pub(crate) async fn send_all(
    framing: StreamFraming,
    contents: &mut Streaming<Bytes>,
    sender: &StreamSender,
) -> Result<(), IncompleteSend> {
    let mut pace = YieldPacer::default();
    let StreamFraming::Extended { metadata_max, deflating } = framing else {
        let mut batch = VecDeque::new();
        loop {
            let end = gather(contents, &mut batch).await;
            batch.extend(matches!(end, Some(Ok(()))).then_some(END));
            let len = batch.iter().map(Bytes::len).sum();
            sender.send_many(&mut batch).await?;
            if let Some(end) = end {
                return Ok(end?);
            }
            pace.sent(len).await;
        }
    };
    let mut batch = OutgoingBatch::new(sender.connection().content_len_max());
    loop {
        let end = poll_fn(|cx| batch.poll_fill(cx, contents)).await;
        let mut data = batch.take();
        if let Some(deflating) = deflating {
            data = data.into_iter().map(|data| envelope::deflate(data, &deflating)).collect();
        }
        if let Some(Ok(())) = end {
            let trailers = contents.trailers_slot();
            let trailers = trailers.as_ref().and_then(|slot| slot.get());
            if let Some(trailers) = trailers {
                envelope::check_metadata(envelope::metadata_len(trailers), metadata_max)?;
            }
            data.push_back(envelope::end(trailers.unwrap_or(&Metadata::new())).into());
        }
        let len = data.iter().map(Content::len).sum();
        sender.send_many(&mut data).await?;
        if let Some(end) = end {
            return Ok(end?);
        }
        pace.sent(len).await;
    }
}

/// Makes a sending task yield from time to time.
///
/// The connection may be waiting for the thread of the task. Without a pause, the task would first fill the whole
/// outbox while the peer is idle.
#[derive(Default)]
struct YieldPacer {
    /// The number of bytes sent since the last pause.
    len: usize,
}

impl YieldPacer {
    async fn sent(&mut self, len: usize) {
        self.len += len;
        if self.len >= PAUSE_LEN {
            self.len = 0;
            yield_now().await;
        }
    }
}

/// A few frames, which the connection sends in one system call.
const PAUSE_LEN: usize = 8 * BATCH_LEN_MAX;

/// Waits for a message, and takes further messages that are ready. Returns the end of the stream, if it is reached.
async fn gather(contents: &mut Streaming<Bytes>, batch: &mut VecDeque<Bytes>) -> Option<Result<(), Status>> {
    let mut len = 0;
    poll_fn(|cx| {
        while batch.len() < BATCH_MAX && len < BATCH_LEN_MAX {
            match contents.poll(cx) {
                Poll::Ready(Some(Ok(content))) => {
                    len += content.len();
                    batch.push_back(content);
                }
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => return Poll::Ready(Some(Ok(()))),
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(None)
    })
    .await
}

/// The maximum number of messages per batch to a plain peer.
const BATCH_MAX: usize = 512;

impl From<Status> for IncompleteSend {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl From<StreamSendError> for IncompleteSend {
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::ContentTooLarge { len, limit } => {
                Self::Failed(CallError::MessageTooLarge { len, limit }.into())
            }
            StreamSendError::TooLargeForPeer { len, limit } => Self::TooLargeForPeer { len, limit },
            _ => Self::StreamEnded,
        }
    }
}

/// Answers a failed call with a status and the end marker.
pub(crate) async fn send_failure(framing: StreamFraming, refused: &ServerFailure, sender: &StreamSender) {
    if let StreamFraming::Extended { metadata_max, .. } = framing {
        let content = envelope::failure(refused, sender.connection().content_len_max(), metadata_max);
        // If the send fails, the caller is gone.
        let _ = sender.send(content).await;
        return;
    }
    let status = &refused.status;
    let send = async |content| sender.send_many(&mut VecDeque::from([content, END])).await;
    // If the send fails for any other reason than its size, the caller is gone.
    let is_too_large = |sent| {
        let too_large =
            |error| matches!(error, StreamSendError::ContentTooLarge { .. } | StreamSendError::TooLargeForPeer { .. });
        Result::is_err_and(sent, too_large)
    };
    if is_too_large(send(failure(status)).await) && is_too_large(send(without_text(status).encode()).await) {
        let _ = send(Status::new(status.code(), "").encode()).await;
    }
}

/// Answers a call with a status, and discards the rest of its stream.
pub(crate) async fn refuse(framing: StreamFraming, stream: Stream, refused: &ServerFailure) {
    stream.defer_close();
    let (sender, mut reader) = stream.split();
    // The opening data of the call.
    let _ = reader.read().await;
    send_failure(framing, refused, &sender).await;
    drop(IncomingMessages::reading_to_end(framing, reader));
}

/// The tasks of a connection that [discard] the rest of streams, the newest last.
///
/// A caller may never end its stream. So above a maximum number of tasks, the oldest is aborted and its stream closed.
#[derive(Default)]
struct DiscardTasks {
    tasks: Mutex<VecDeque<AbortHandle>>,
}

impl DiscardTasks {
    fn add(&self, task: AbortHandle) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.len() >= RESTS_MAX
            && let Some(oldest) = tasks.pop_front()
        {
            oldest.abort();
        }
        tasks.push_back(task);
    }
}

/// Below the default limit on streams per connection.
const RESTS_MAX: usize = 256;

/// Discards messages up to the end marker or the end of the stream.
async fn discard(framing: StreamFraming, mut reader: StreamReader) {
    while let Ok(content) = reader.read().await {
        if framing.is_end(&content) {
            return;
        }
    }
}

/// Returns the status for a stream that ended before its end marker.
pub(crate) fn stream_end_status(end: StreamEnd, connection: &Connection) -> Status {
    let status = match end {
        StreamEnd::Overflow => Status::resource_exhausted(end.to_string()),
        StreamEnd::TooLarge { announced, limit } => return CallError::AnswerTooLarge { len: announced, limit }.into(),
        StreamEnd::ConnectionClosed => {
            let reason = why_closed(connection);
            return CallError::ConnectionLost { reason, may_have_executed: true }.into();
        }
        _ => Status::cancelled(end.to_string()),
    };
    status.with_source(Arc::new(end) as Arc<_>)
}

/// Returns the reason why a connection accepts no more packets.
pub(crate) fn why_closed(connection: &Connection) -> CloseReason {
    connection.close_reason().unwrap_or(CloseReason::Local)
}
