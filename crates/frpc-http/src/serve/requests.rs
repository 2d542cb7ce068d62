//! The messages of a request.

use std::{
    error::Error,
    future::poll_fn,
    io,
    iter::successors,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use frpc::{Head, MemoryAccount, MessageFrames, Status, Streaming};
use http_body::Body;
use tokio::time::timeout;

use super::{grpc_web::TextDecoder, request_memory::RequestMemory};
use crate::message::{
    compression,
    envelope::{COMPRESSED, EnvelopeFrame, EnvelopeReader, FrameError},
};

/// A request body of any HTTP server.
pub(crate) trait RequestBody:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

impl<B> RequestBody for B where B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{}

/// Returns the status of a body that could not be read: malformed, or cut off.
pub(super) fn body_error(error: &(dyn Error + Send + Sync + 'static)) -> Status {
    for error in successors(Some(error as &(dyn Error + 'static)), |&error| error.source()) {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)) {
            return Status::invalid_argument(format!("the body is malformed: {error}"));
        }
        // hyper has a text of its own for this. Both servers of HTTP/1.1 should give the same error.
        if kind == Some(io::ErrorKind::UnexpectedEof) {
            return Status::cancelled("the request ended early: its body is incomplete");
        }
    }
    Status::cancelled(format!("the request ended early: {error}"))
}

/// Waits for the single message of a request, for at most `time_max`.
pub(super) async fn within<F>(time_max: Duration, mut reading: Pin<&mut F>) -> Result<Bytes, Status>
where
    F: Future<Output = Result<Bytes, Status>>,
{
    // Most messages are complete already and need no timer.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        return read;
    }
    // Boxed to keep calls without a timer small.
    Box::pin(timeout(time_max, reading))
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("the request did not arrive within {time_max:?}"))))
}

/// Reads messages from the frames of a body.
pub(crate) struct RequestMessages<B> {
    body: B,
    frames: EnvelopeReader,
    text: Option<TextDecoder>,
    is_gzip: bool,
    message_len_max: usize,
    is_over: bool,
    holding: RequestMemory,
    /// The length of the latest message.
    last_len: usize,
}

impl<B: RequestBody> RequestMessages<B> {
    /// Creates a reader. Messages may be compressed if the headers of the request announced gzip.
    pub(crate) fn new(body: B, is_gzip: bool, message_len_max: usize, account: &MemoryAccount) -> Self {
        Self {
            body,
            frames: EnvelopeReader::new(message_len_max),
            text: None,
            is_gzip,
            message_len_max,
            is_over: false,
            holding: RequestMemory::new(account),
            last_len: 0,
        }
    }

    /// Moves the memory of the latest message to the call of this head.
    pub(crate) fn attach_memory_to(&mut self, head: &mut Head) {
        self.holding.attach_to(head);
    }

    /// Decodes the body as base64.
    pub(crate) fn with_base64(self) -> Self {
        Self { text: Some(TextDecoder::default()), ..self }
    }

    /// Reads the single message of a call, within `time_max`.
    ///
    /// # Errors
    ///
    /// If there is no message, or more than one, or the message arrives too late.
    pub(crate) async fn single_message(&mut self, time_max: Duration) -> Result<Bytes, Status> {
        within(time_max, pin!(self.read_one())).await
    }

    async fn read_one(&mut self) -> Result<Bytes, Status> {
        let message = poll_fn(|cx| self.poll(cx)).await.transpose()?;
        let message = message
            .ok_or_else(|| Status::unimplemented("the request has no message; this method takes exactly one"))?;
        // The end of most bodies arrives together with the message.
        let is_at_end = !self.is_partial() && self.body.is_end_stream();
        if !is_at_end && poll_fn(|cx| self.poll(cx)).await.transpose()?.is_some() {
            return Err(Status::unimplemented("the request has several messages; this method takes exactly one"));
        }
        Ok(message)
    }

    /// Returns the messages as a stream.
    pub(crate) fn into_stream(mut self) -> Streaming<Bytes> {
        let mut has_failed = false;
        Streaming::from_frames(move |cx| {
            if has_failed {
                return Poll::Ready(None);
            }
            let next = self.poll_frames(cx);
            has_failed = matches!(next, Poll::Ready(Some(Err(_))));
            next
        })
    }

    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<MessageFrames, Status>>> {
        match self.frames.next_plain() {
            Some(frames) => {
                self.last_len = frames.len();
                self.holding.set(self.frames.held_len() + self.last_len)?;
                Poll::Ready(Some(Ok(MessageFrames::Several(frames))))
            }
            None => self.poll(cx).map_ok(MessageFrames::One),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return Poll::Ready(Some(self.held_content(frame)));
            }
            if self.is_over {
                return Poll::Ready(self.is_partial().then(|| Err(FrameError::Truncated.into())));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers of a request have no meaning here.
                    if let Ok(data) = frame.into_data() {
                        let data = match &mut self.text {
                            Some(text) => text.decode(&data)?,
                            None => data,
                        };
                        self.frames.push(data);
                        // The latest message may be in use until the next one is requested.
                        self.holding.set(self.frames.held_len() + self.last_len)?;
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(body_error(&*error.into()))));
                }
                None => self.is_over = true,
            }
        }
    }

    /// Returns `true` in the middle of a frame, or of four letters of base64.
    fn is_partial(&self) -> bool {
        self.frames.is_partial() || self.text.as_ref().is_some_and(TextDecoder::is_partial)
    }

    fn held_content(&mut self, frame: EnvelopeFrame) -> Result<Bytes, Status> {
        let content = self.content(frame)?;
        self.last_len = content.len();
        self.holding.set(self.frames.held_len() + self.last_len)?;
        Ok(content)
    }

    fn content(&self, EnvelopeFrame { flags, content }: EnvelopeFrame) -> Result<Bytes, Status> {
        match flags {
            0 => Ok(content),
            COMPRESSED if self.is_gzip => compression::decompress(&content, self.message_len_max),
            COMPRESSED => Err(Status::internal("a message is compressed, but no request header names the compression")),
            flags => Err(Status::internal(format!("a message has unknown flags: {flags:#04x}"))),
        }
    }
}
