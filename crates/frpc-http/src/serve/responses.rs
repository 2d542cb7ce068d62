//! Response messages as frames of a body.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use frpc::{CancelGuard, Metadata, Status, Streaming, codec::EncodedMessage};
use futures_core::Stream;
use futures_util::FutureExt;
use http_body::Frame;

use super::coding::CallCompression;
use crate::message::{
    compression,
    envelope::{self, HEADER_LEN},
};

/// The body format of a protocol.
pub(super) trait ResponseFraming: Send + Unpin + 'static {
    /// Encodes frames for the body.
    fn data(&self, frames: Bytes) -> Bytes;

    /// Returns the end of a body: the trailers of a successful call, or its error. `None` if the trailers are longer
    /// than a frame, 4 GiB.
    fn end(&self, outcome: Result<&Metadata, &Status>) -> Option<Frame<Bytes>>;
}

/// The body of a response with many messages.
pub(super) struct FramedBody<F> {
    messages: Streaming<Bytes>,
    coding: CallCompression,
    framing: F,
    /// Encoded frames, not sent yet.
    buffer: Vec<u8>,
    /// The length of the previous frames, and so the capacity for the next ones, up to a limit.
    last_len: usize,
    /// Content to send after the latest frames.
    content: Option<Bytes>,
    end: EndState,
    /// Cancels the handler if the body is dropped before its end.
    guard: Option<CancelGuard>,
}

/// The state of the end of a response.
enum EndState {
    /// More messages may follow. Holds the trailers known before the first message.
    Open(Metadata),
    /// All messages have been taken. The end is next.
    Ready(Result<Metadata, Status>),
    Sent,
}

impl<F: ResponseFraming> FramedBody<F> {
    /// Creates a body of messages. `trailers` are those known before the first message.
    pub(super) fn new(
        messages: Streaming<Bytes>,
        trailers: Metadata,
        coding: CallCompression,
        framing: F,
        guard: Option<CancelGuard>,
    ) -> Self {
        let end = EndState::Open(trailers);
        Self { messages, coding, framing, buffer: Vec::new(), last_len: 0, content: None, end, guard }
    }

    /// Encodes all messages that are ready, up to the buffer limit.
    fn poll_gather(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let EndState::Open(trailers) = &mut self.end
            && self.buffer.len() < BUFFER_LEN
        {
            if self.buffer.is_empty() {
                self.buffer.reserve_exact(self.last_len.min(CAPACITY_MAX));
            }
            // Compressed messages are framed one by one. Others encode themselves into the buffer.
            let next = match self.coding.of_answers {
                Some(_) => Pin::new(&mut self.messages).poll_next(cx).map_ok(Some),
                None => self.messages.poll_frames(cx, &mut self.buffer, BUFFER_LEN),
            };
            let put = match next {
                Poll::Ready(Some(Ok(None))) => Ok(None),
                Poll::Ready(Some(Ok(Some(content)))) => put_message(&mut self.buffer, self.coding, content.into()),
                Poll::Ready(Some(Err(status))) => Err(status),
                Poll::Ready(None) => {
                    let mut trailers = mem::take(trailers);
                    // The stream has ended, so its trailers are ready.
                    if let Some(Ok(Some(last))) = self.messages.trailers().now_or_never() {
                        trailers.merge(last);
                    }
                    self.end = EndState::Ready(Ok(trailers));
                    break;
                }
                Poll::Pending if self.buffer.is_empty() => {
                    // A waiting stream holds no buffer.
                    self.buffer = Vec::new();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            };
            match put {
                Ok(None) => {}
                Ok(content) => {
                    self.content = content;
                    break;
                }
                Err(status) => self.end = EndState::Ready(Err(status)),
            }
        }
        Poll::Ready(())
    }
}

impl<F: ResponseFraming> http_body::Body for FramedBody<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(content) = self.content.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.framing.data(content)))));
        }
        ready!(self.poll_gather(cx));
        if !self.buffer.is_empty() {
            self.last_len = self.buffer.len();
            let frames = mem::take(&mut self.buffer).into();
            return Poll::Ready(Some(Ok(Frame::data(self.framing.data(frames)))));
        }
        let EndState::Ready(outcome) = mem::replace(&mut self.end, EndState::Sent) else { return Poll::Ready(None) };
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
        Poll::Ready(self.framing.end(outcome.as_ref()).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, EndState::Sent)
    }
}

/// Adds the frame of a message. Returns the content if it is too long to be copied; the caller must send it next.
pub(super) fn put_message(
    out: &mut Vec<u8>,
    coding: CallCompression,
    content: EncodedMessage,
) -> Result<Option<Bytes>, Status> {
    let len = content.len();
    if coding.of_answers.is_some_and(|len_min| len >= len_min) {
        let compressed = compression::compress(&content.into_bytes());
        out.reserve(HEADER_LEN + compressed.len());
        out.extend_from_slice(&envelope::header(envelope::COMPRESSED, compressed.len())?);
        out.extend_from_slice(&compressed);
        return Ok(None);
    }
    let header = envelope::header(0, len)?;
    if len > COPIED_LEN_MAX {
        out.extend_from_slice(&header);
        return Ok(Some(content.into_bytes()));
    }
    out.reserve(HEADER_LEN + len);
    out.extend_from_slice(&header);
    content.copy_to(out);
    Ok(None)
}

/// The maximum content length copied into the frame buffer.
const COPIED_LEN_MAX: usize = 4 * 1024;

/// The maximum capacity of a buffer before its messages are known.
const CAPACITY_MAX: usize = 64 << 10;

/// The target length of small messages sent together. Together with one more of up to 4 KiB, they fit into a DATA frame.
const BUFFER_LEN: usize = (12 << 10) - HEADER_LEN;
