//! The bytes of a call with streams on the wire of frpc-go, and the time at which its frisbee stream may be closed.
//!
//! ```text
//! caller                                         server
//!   open        kind u16, operation        ─▶
//!   [message]   the request                ─▶    server streaming
//!   message …                              ─▶    client streaming, bidirectional
//!               ◀─  message …                    any time
//!   end         the error "EOF"            ─▶    client streaming, bidirectional
//!               ◀─  [error]  end                 once or twice
//! ```
//!
//! Go peers never close the stream, which leaves its id taken. Closing it too early makes them lose what they have not
//! read: the caller closes when both ends are through, the server of a client's stream as well.
//!
//! Closing it late hangs them: frisbee-go waits for its reading task while it closes a connection, and that task waits for
//! ever if it reads anything about a stream meanwhile. So nothing follows the last end marker, which callers wait for: the
//! server's close is [deferred](frisbee::Stream::defer_close) until it has more data for the caller. For callers that wait
//! only for the answer, end markers go out together with what is before them.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Connection, Content, Refusal, Stream, StreamEnd, StreamReader, StreamSendError, StreamSender,
};
use tokio::{
    runtime::Handle,
    task::{AbortHandle, yield_now},
    time::{Instant, Sleep, sleep_until},
};

use super::{
    compressed::{Compressed, Deflating},
    envelope::{self, BATCH_LEN_MAX, Data, Messages},
    session::Session,
};
use crate::{
    call::{
        deadline::Deadline,
        metadata::Metadata,
        packed::{Contents, Packed, PollNext, Received, Source},
        status::Status,
        streaming::{MetadataSlot, Streaming},
    },
    client::with_own_timeout,
    codec::{Reader, Writer, decode_error, short_error},
    error::CallError,
};

/// Returns the first data of a stream that carries a call.
pub(crate) fn encode_open(operation: u16) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(OPEN_LEN_MAX));
    out.u16(operation);
    out.finish().into()
}

/// Returns the operation that the first data of a stream calls, if it is a call.
pub(crate) fn parse_open(content: &Bytes) -> Option<u16> {
    Reader::new(content).u16().ok()
}

/// The end marker: one direction of a call is through.
pub(crate) const END: Bytes = Bytes::from_static(&END_BYTES);

const END_BYTES: [u8; 7] = short_error("EOF");
const OPEN_LEN_MAX: usize = 4;

pub(crate) fn is_end(content: &Bytes) -> bool {
    content.starts_with(&END_BYTES)
}

/// Returns a content that is a message, or the status in its place, which layers are to see as one.
#[inline]
pub(crate) fn message_or_status(content: Bytes) -> Result<Bytes, Status> {
    match decode_error(&content) {
        None => Ok(content),
        Some(failure) => Err(failure?.into()),
    }
}

/// Encodes a status for a stream, where one with the text of the end marker would be taken for it.
fn failure(status: &Status) -> Bytes {
    let content = status.encode();
    if is_end(&content) { Status::new(status.code(), status.to_string()).encode() } else { content }
}

/// The way in which the messages of a call stand on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Each is the data of one frame, as frpc-go has it.
    Plain,
    /// As docs/protocol.md has it. Metadata of the peer may have a size of `metadata_max`.
    Extended { metadata_max: usize, deflating: Option<Deflating> },
}

impl Framing {
    /// Returns the end marker, with trailers as far as there is a place for them.
    pub(crate) fn end(self, trailers: &Metadata) -> Bytes {
        match self {
            Self::Plain => END,
            Self::Extended { .. } => envelope::end(trailers),
        }
    }

    fn is_end(self, content: &Bytes) -> bool {
        match self {
            Self::Plain => is_end(content),
            Self::Extended { .. } => envelope::is_end(content),
        }
    }
}

/// The contents that arrive on a stream, up to the end marker.
pub(crate) struct Incoming {
    framing: Framing,
    /// The places of what is in front of the messages and behind them.
    pub(crate) metadata: MetadataSlot,
    pub(crate) trailers: MetadataSlot,
    reader: Option<StreamReader>,
    /// The runtime that discards the rest when nobody reads here any more and the end has not come.
    discards_on: Option<Handle>,
}

/// Contents up to a time, and a status from then on.
pub(crate) struct Until<S> {
    /// `None` once the time is up.
    contents: Option<S>,
    deadline: Deadline,
    sleep: Pin<Box<Sleep>>,
}

impl Incoming {
    pub(crate) fn new(framing: Framing, reader: StreamReader) -> Self {
        Self {
            framing,
            metadata: MetadataSlot::default(),
            trailers: MetadataSlot::default(),
            reader: Some(reader),
            discards_on: None,
        }
    }

    /// Makes the same, keeping the stream open until the end has come, whether anybody reads until then or not: a Go caller
    /// loses the answer if the stream closes before its own end is through.
    pub(crate) fn to_the_end(framing: Framing, reader: StreamReader) -> Self {
        let mut incoming = Self::new(framing, reader);
        incoming.discards_on = Some(Handle::current());
        incoming
    }

    fn end(&mut self) {
        self.reader = None;
    }

    /// Inflates the messages of a frame.
    fn inflate(&mut self, compressed: Compressed, bytes: &[u8]) -> Option<Result<Received<Bytes>, Status>> {
        let inflated = Session::inflate(self.reader.as_ref()?.connection(), compressed, bytes);
        let serves = self.discards_on.is_some();
        let messages = inflated.map_err(|why| if serves { why.of_request() } else { why.of_answer() });
        if messages.is_err() {
            self.end();
        }
        Some(messages.map(|messages| Received::Several(Packed::new(messages))))
    }

    /// Takes the data of a frame between extended peers. `None` if it has no message and is not the end.
    fn take_data(&mut self, content: Bytes, metadata_max: usize) -> Option<Option<Result<Received<Bytes>, Status>>> {
        let data = Data::decode(content, metadata_max);
        match data {
            Ok(Data::Messages(messages)) if messages.is_empty() => return None,
            Ok(Data::Messages(messages)) => return Some(Some(Ok(Received::Several(messages)))),
            Ok(Data::Compressed(compressed, bytes)) => return Some(self.inflate(compressed, &bytes)),
            Ok(Data::Head(head)) => {
                self.metadata.set(head.metadata);
                return None;
            }
            Ok(Data::Unknown) => return None,
            _ => {}
        }
        self.end();
        Some(match data {
            Ok(Data::Failure(head)) => Some(Err(head.into_status().with_known_cause())),
            Ok(Data::End(head)) => {
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

impl Contents for Incoming {
    fn poll_contents(&mut self, cx: &mut Context<'_>) -> PollNext<Received<Bytes>> {
        let serves = self.discards_on.is_some();
        let framing = self.framing;
        loop {
            let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
            let read = ready!(reader.poll_read(cx));
            if let (Ok(content), Framing::Extended { metadata_max, .. }) = (&read, framing) {
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
                Ok(content) => Some(Ok(Received::One(content))),
                Err(end) => {
                    let status = match end {
                        StreamEnd::TooLarge { announced, limit } if serves => {
                            Status::resource_exhausted(Refusal::TooLarge { announced, limit }.to_string())
                        }
                        end => cut(end, reader.connection()),
                    };
                    self.end();
                    Some(Err(status))
                }
            });
        }
    }
}

impl<S> Until<S> {
    pub(crate) fn new(contents: S, at: Instant, deadline: Deadline) -> Self {
        Self { contents: Some(contents), deadline, sleep: Box::pin(sleep_until(at)) }
    }
}

impl<S: Source<Bytes>> Source<Bytes> for Until<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        let Some(contents) = &mut self.contents else { return Poll::Ready(None) };
        // Before each content, even with more to read: a server as fast as the reader would never be late.
        if self.sleep.as_mut().poll(cx).is_ready() {
            self.contents = None;
            return Poll::Ready(Some(Err(self.deadline.passed())));
        }
        let next = ready!(contents.poll_next(cx));
        Poll::Ready(next.map(|next| next.map_err(|status| with_own_timeout(status, Some(self.deadline)))))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let (Some(reader), Some(runtime)) = (self.reader.take(), &self.discards_on) {
            let connection = reader.connection().clone();
            connection
                .state_or_insert_with(Rests::default)
                .add(runtime.spawn(discard(self.framing, reader)).abort_handle());
        }
    }
}

/// The reason why not all of some contents were sent.
pub(crate) enum Halted {
    /// There is one that cannot be sent, or a status in its place.
    Failed(Status),
    /// There is one that is larger than the peer accepts.
    TooLargeForPeer { len: usize, limit: u32 },
    /// The stream they were sent on has ended.
    Cut,
}

/// Sends contents up to their end, and the end marker.
pub(crate) async fn send_all(
    framing: Framing,
    contents: &mut Streaming<Bytes>,
    sender: &StreamSender,
) -> Result<(), Halted> {
    let mut pace = Pace::default();
    let Framing::Extended { metadata_max, deflating } = framing else {
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
    let mut batch = Messages::new(sender.connection().content_len_max());
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

/// Has a task that sends a stream pause now and then. The connection may wait for its thread, and would send everything that
/// there is room for at once, while the other side has nothing to do.
#[derive(Default)]
struct Pace {
    /// The number of bytes sent since the last pause.
    len: usize,
}

impl Pace {
    async fn sent(&mut self, len: usize) {
        self.len += len;
        if self.len >= PAUSE_LEN {
            self.len = 0;
            yield_now().await;
        }
    }
}

/// Some frames, which the connection sends in one system call.
const PAUSE_LEN: usize = 8 * BATCH_LEN_MAX;

/// Waits for a content, and takes what else is ready. Returns the end of the contents, if it has come.
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

/// The number of contents of a stream that are sent at once to a plain peer, if they are there at once.
const BATCH_MAX: usize = 512;

impl From<Status> for Halted {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl From<StreamSendError> for Halted {
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::ContentTooLarge { len, limit } => {
                Self::Failed(CallError::MessageTooLarge { len, limit }.into())
            }
            StreamSendError::TooLargeForPeer { len, limit } => Self::TooLargeForPeer { len, limit },
            _ => Self::Cut,
        }
    }
}

/// Sends a status and the end marker: the answer to a call that failed.
pub(crate) async fn send_failure(framing: Framing, status: &Status, sender: &StreamSender) {
    if let Framing::Extended { metadata_max, .. } = framing {
        let content = envelope::failure(status, sender.connection().content_len_max(), metadata_max);
        // If nobody hears it, nobody waits for it.
        let _ = sender.send(content).await;
        return;
    }
    let send = async |content| sender.send_many(&mut VecDeque::from([content, END])).await;
    // If nobody hears it, nobody waits for it.
    let is_too_large = |sent| {
        let too_large =
            |error| matches!(error, StreamSendError::ContentTooLarge { .. } | StreamSendError::TooLargeForPeer { .. });
        Result::is_err_and(sent, too_large)
    };
    if is_too_large(send(failure(status)).await) && is_too_large(send(without_text(status).encode()).await) {
        let _ = send(Status::new(status.code(), "").encode()).await;
    }
}

/// Answers a call with a status, whatever else comes on its stream.
pub(crate) async fn refuse(framing: Framing, stream: Stream, status: &Status) {
    stream.defer_close();
    let (sender, mut reader) = stream.split();
    // Its first data, which called.
    let _ = reader.read().await;
    send_failure(framing, status, &sender).await;
    drop(Incoming::to_the_end(framing, reader));
}

/// Returns a status in place of one whose text is more than the connection carries.
pub(crate) fn without_text(status: &Status) -> Status {
    Status::new(status.code(), "the error message is too large")
}

/// The tasks of a connection that [discard] the rests of streams, the newest last. A caller that never ends what it sends
/// would have them wait for ever, so beyond a number of them the oldest is given up, and its stream closed.
#[derive(Default)]
struct Rests {
    tasks: Mutex<VecDeque<AbortHandle>>,
}

impl Rests {
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

/// Less than the streams that a connection may have by default.
const RESTS_MAX: usize = 256;

/// Discards what arrives up to the end marker or the end of the stream.
async fn discard(framing: Framing, mut reader: StreamReader) {
    while let Ok(content) = reader.read().await {
        if framing.is_end(&content) {
            return;
        }
    }
}

/// Returns the status of a stream that ended before its end marker came.
pub(crate) fn cut(end: StreamEnd, connection: &Connection) -> Status {
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

/// Returns the reason why a connection takes nothing more.
pub(crate) fn why_closed(connection: &Connection) -> CloseReason {
    connection.close_reason().unwrap_or(CloseReason::Local)
}
