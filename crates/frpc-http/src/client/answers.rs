//! Framed responses: gRPC, gRPC-Web and Connect streams.

use std::{
    future::poll_fn,
    mem,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc::{
    Answer, Body, Code, MessageFrames, Metadata, MetadataSlot, MethodKind, Status, Streaming,
    client::{Deadline, end_at_deadline},
    shown,
};
use futures_util::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, HeaderValue, header, response::Parts};

use super::exchange::{HttpExchange, ReceivedBody};
use crate::{
    headers::metadata,
    message::{
        compression,
        envelope::{self, EnvelopeReader},
    },
};

/// Reads the messages, metadata and trailers of a framed response.
pub(super) struct FramedResponse {
    /// The metadata before the messages.
    metadata: Metadata,
    /// The trailers after the messages. Empty until the end has been read.
    trailers: Metadata,
    received: ReceivedBody,
    frames: EnvelopeReader,
    coding: ContentCoding,
    len_max: usize,
    ending: Box<dyn ResponseEnd>,
    has_body: bool,
    /// `true` after the frame at the end of the messages.
    is_over: bool,
}

/// The end of a response, as a protocol encodes it.
pub(super) trait ResponseEnd: Send + 'static {
    /// Handles a frame other than a message. Returns the trailers of a successful call, or `None` for unknown flags.
    fn frame(&self, flags: u8, content: &Bytes) -> Option<Result<Metadata, Status>>;

    /// Handles the end of the body and its HTTP trailers. `has_body` is `false` if the body was empty. Returns the
    /// trailers of a successful call.
    fn body(&mut self, has_body: bool, trailers: Option<HeaderMap>) -> Result<Metadata, Status>;
}

/// The compression of a whole body, or of messages with the compressed flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Identity,
    Gzip,
}

impl ContentCoding {
    /// Reads the compression from the header with this name.
    pub(super) fn from_headers(headers: &HeaderMap, name: &HeaderName, accepts_gzip: bool) -> Result<Self, Status> {
        match headers.get(name).map(HeaderValue::as_bytes) {
            None | Some(b"identity" | b"") => Ok(Self::Identity),
            Some(coding) if coding == compression::GZIP.as_bytes() && accepts_gzip => Ok(Self::Gzip),
            Some(coding) => {
                let coding = shown(coding);
                Err(Status::internal(format!(
                    "the server compressed the response with '{coding}' (header {name}), which this client does not accept"
                )))
            }
        }
    }

    /// Reads and decompresses a whole body. `None` if it is empty: compression never produces an empty body.
    pub(super) async fn read_whole(self, received: &mut ReceivedBody, len_max: usize) -> Result<Option<Bytes>, Status> {
        let content = received.all(len_max).await?;
        match self {
            _ if content.is_empty() => Ok(None),
            Self::Identity => Ok(Some(content)),
            Self::Gzip => self.decompressed(&content, len_max).map(Some),
        }
    }

    pub(super) fn decompressed(self, content: &[u8], len_max: usize) -> Result<Bytes, Status> {
        match self {
            Self::Gzip => compression::decompress(content, len_max).map_err(as_server_fault),
            Self::Identity => {
                Err(Status::internal("a message is compressed, but no response header names the compression"))
            }
        }
    }
}

/// Reads the metadata from response headers. Leaves out the date, because HTTP sets it, not the service.
pub(super) fn metadata_of(headers: &HeaderMap) -> Result<Metadata, Status> {
    metadata::from_headers_except(headers, &header::DATE).map_err(as_server_fault)
}

/// Turns an error about a response into a server fault. The parsers also serve requests, and report invalid input as
/// the fault of the caller.
pub(super) fn as_server_fault(status: Status) -> Status {
    if status.code() == Code::InvalidArgument { Status::internal(status.message()) } else { status }
}

impl FramedResponse {
    pub(super) fn new(
        metadata: Metadata,
        received: ReceivedBody,
        coding: ContentCoding,
        len_max: usize,
        ending: impl ResponseEnd,
    ) -> Self {
        let (frames, trailers, ending) = (EnvelopeReader::new(len_max), Metadata::new(), Box::new(ending));
        Self { metadata, trailers, received, frames, coding, len_max, ending, has_body: false, is_over: false }
    }

    /// Returns the next message, or `None` at the end of a successful call.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next message, or for all messages that have arrived.
    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<MessageFrames>, Status>> {
        match self.frames.next_plain() {
            Some(_) if self.is_over => Poll::Ready(Err(data_after_end())),
            Some(frames) => Poll::Ready(Ok(Some(MessageFrames::Several(frames)))),
            None => self.poll_next(cx).map_ok(|message| message.map(MessageFrames::One)),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        while !self.is_over {
            let frame = self.frames.next().map_err(|error| as_server_fault(error.into()))?;
            let Some(frame) = frame else {
                let data = ready!(self.received.poll_frames(cx, &mut self.frames))?;
                let Some(data) = data else { return Poll::Ready(self.end_of_body()) };
                self.has_body = true;
                self.frames.push(data);
                continue;
            };
            let content = match frame.flags & envelope::COMPRESSED {
                0 => frame.content,
                _ => self.coding.decompressed(&frame.content, self.len_max)?,
            };
            let flags = frame.flags & !envelope::COMPRESSED;
            if flags == 0 {
                return Poll::Ready(Ok(Some(content)));
            }
            let Some(ended) = self.ending.frame(flags, &content) else {
                return Poll::Ready(Err(Status::internal(format!("a message has unknown flags: {flags:#04x}"))));
            };
            self.trailers = ended?;
            self.is_over = true;
        }
        if self.frames.is_partial() || ready!(self.received.poll_data(cx))?.is_some() {
            return Poll::Ready(Err(data_after_end()));
        }
        Poll::Ready(Ok(None))
    }

    fn end_of_body(&mut self) -> Result<Option<Bytes>, Status> {
        if self.frames.is_partial() {
            return Err(Status::internal("the response ended in the middle of a message"));
        }
        self.trailers = self.ending.body(self.has_body, self.received.take_trailers())?;
        Ok(None)
    }
}

/// A function to read the head of a response.
pub(super) trait OpenResponse:
    FnOnce(Parts, ReceivedBody) -> Result<FramedResponse, Status> + Send + 'static
{
}

impl<F: FnOnce(Parts, ReceivedBody) -> Result<FramedResponse, Status> + Send + 'static> OpenResponse for F {}

/// Returns the answer of a call with framed messages.
pub(super) async fn answer(
    kind: MethodKind,
    exchange: HttpExchange,
    whole: Option<Deadline>,
    open: impl OpenResponse,
) -> Result<Answer, Status> {
    if kind.has_response_stream() {
        return Ok(stream_answer(exchange, whole, open));
    }
    exchange
        .read_by_deadline(async |parts, received| {
            let mut answers = open(parts, received)?;
            let message = async {
                let Some(message) = answers.next().await? else {
                    return Err(Status::unimplemented("the response has no message; this method returns exactly one"));
                };
                match answers.next().await? {
                    None => Ok(message),
                    Some(_) => {
                        Err(Status::unimplemented("the response has several messages; this method returns exactly one"))
                    }
                }
            };
            match message.await {
                Ok(message) => Ok(answer_of(message, answers.metadata, answers.trailers)),
                Err(status) => Err(prepend_metadata(answers.metadata, status)),
            }
        })
        .await
}

/// Returns the answer of a successful call with one message.
pub(super) fn answer_of(content: Bytes, metadata: Metadata, trailers: Metadata) -> Answer {
    let mut answer = Answer::new(content.into());
    if !metadata.is_empty() {
        *answer.metadata_mut() = metadata;
    }
    if !trailers.is_empty() {
        *answer.trailers_mut() = trailers;
    }
    answer
}

/// Prepends the metadata of a response to the metadata of its final status. A failed call has no other place for it.
pub(super) fn prepend_metadata(mut metadata: Metadata, mut status: Status) -> Status {
    if metadata.is_empty() {
        return status;
    }
    for (name, value) in status.metadata().iter() {
        // The entries were valid metadata before, so this cannot fail.
        let _ = match value {
            frpc::MetadataValue::Ascii(value) => metadata.append(name, value),
            frpc::MetadataValue::Binary(value) => metadata.append_bin(name, value),
        };
    }
    *status.metadata_mut() = metadata;
    status
}

fn data_after_end() -> Status {
    Status::internal("the server sent data after the end of the response")
}

/// Returns the answer of a call with a response stream. The request has been sent already.
fn stream_answer(exchange: HttpExchange, whole: Option<Deadline>, open: impl OpenResponse) -> Answer {
    let (metadata, trailers) = (MetadataSlot::new(), MetadataSlot::new());
    let of_head = metadata.clone();
    let opening = Box::pin(async move {
        let (parts, received) = exchange.response().await?;
        let answers = open(parts, received)?;
        if !answers.metadata.is_empty() {
            of_head.set(answers.metadata.clone());
        }
        Ok(Box::new(answers))
    });
    let (mut response, of_end) = (StreamedResponse::Opening(opening), trailers.clone());
    let contents = Streaming::from_frames(move |cx| response.poll_frames(cx, &of_end));
    let contents = match whole {
        None => contents,
        Some(deadline) => Streaming::new(end_at_deadline(contents.boxed(), deadline)),
    };
    Answer::new(Body::Many(contents.with_metadata_from(metadata).with_trailers_from(trailers)))
}

/// ```text
///   Opening ──head──▶ Open ──last message──▶ Over
///      └───────────────┴────────error──────────▲
/// ```
enum StreamedResponse {
    Opening(BoxFuture<'static, Result<Box<FramedResponse>, Status>>),
    Open(Box<FramedResponse>),
    Over,
}

impl StreamedResponse {
    fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        of_end: &MetadataSlot,
    ) -> Poll<Option<Result<MessageFrames, Status>>> {
        let next = loop {
            match self {
                Self::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(response) => *self = Self::Open(response),
                    Err(status) => break Err(status),
                },
                Self::Open(response) => break ready!(response.poll_frames(cx)),
                Self::Over => return Poll::Ready(None),
            }
        };
        if !matches!(next, Ok(Some(_)))
            && let Self::Open(mut response) = mem::replace(self, Self::Over)
            && next.is_ok()
            && !response.trailers.is_empty()
        {
            of_end.set(mem::take(&mut response.trailers));
        }
        Poll::Ready(next.transpose())
    }
}
