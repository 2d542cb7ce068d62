//! The messages of an answer as frames of a body.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use frpc::{CancelGuard, Metadata, Status, Streaming, codec::Pieces};
use futures_core::Stream;
use futures_util::FutureExt;
use http_body::Frame;

use super::coding::Coding;
use crate::message::{
    compression,
    envelope::{self, HEADER_LEN},
};

/// The form that a protocol gives to the body of an answer.
pub(super) trait Framing: Send + Unpin + 'static {
    /// Returns frames as the body has them.
    fn data(&self, frames: Bytes) -> Bytes;

    /// Returns the end of a body, with the trailers of a call that went well, or why it failed. `None` if it has no form, which
    /// takes trailers of 4 GiB.
    fn end(&self, outcome: Result<&Metadata, &Status>) -> Option<Frame<Bytes>>;
}

/// The body of an answer of many messages.
pub(super) struct Responses<F> {
    messages: Streaming<Bytes>,
    coding: Coding,
    framing: F,
    /// Frames that were made and not yet taken.
    buffer: BytesMut,
    /// Content that follows what was taken last.
    content: Option<Bytes>,
    end: End,
    /// Tells the handler if the body is dropped before its end.
    guard: Option<CancelGuard>,
}

/// The end of the body of an answer.
enum End {
    /// There may be more messages. These trailers were known before the first.
    Ahead(Metadata),
    /// There are no more messages.
    Next(Result<Metadata, Status>),
    Over,
}

impl<F: Framing> Responses<F> {
    /// Makes a body of messages. The trailers are those that are known before the first.
    pub(super) fn new(
        messages: Streaming<Bytes>,
        trailers: Metadata,
        coding: Coding,
        framing: F,
        guard: Option<CancelGuard>,
    ) -> Self {
        Self { messages, coding, framing, buffer: BytesMut::new(), content: None, end: End::Ahead(trailers), guard }
    }

    /// Gathers frames of messages that are here.
    fn poll_gather(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let End::Ahead(trailers) = &mut self.end
            && self.buffer.len() < BUFFER_LEN
        {
            let put = match Pin::new(&mut self.messages).poll_next(cx) {
                Poll::Ready(Some(content)) => {
                    content.and_then(|content| put_message(&mut self.buffer, self.coding, content.into()))
                }
                Poll::Ready(None) => {
                    let mut trailers = mem::take(trailers);
                    // Known by now, since the end was read.
                    if let Some(Ok(Some(last))) = self.messages.trailers().now_or_never() {
                        trailers.merge(last);
                    }
                    self.end = End::Next(Ok(trailers));
                    break;
                }
                Poll::Pending if self.buffer.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            };
            match put {
                Ok(None) => {}
                Ok(content) => {
                    self.content = content;
                    break;
                }
                Err(status) => self.end = End::Next(Err(status)),
            }
        }
        Poll::Ready(())
    }
}

impl<F: Framing> http_body::Body for Responses<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(content) = self.content.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.framing.data(content)))));
        }
        ready!(self.poll_gather(cx));
        if !self.buffer.is_empty() {
            let frames = self.buffer.split().freeze();
            return Poll::Ready(Some(Ok(Frame::data(self.framing.data(frames)))));
        }
        let End::Next(outcome) = mem::replace(&mut self.end, End::Over) else { return Poll::Ready(None) };
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
        Poll::Ready(self.framing.end(outcome.as_ref()).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Over)
    }
}

/// Adds the frame of a message. Returns the content of one that is too long to be copied, which is to follow.
pub(super) fn put_message(out: &mut BytesMut, coding: Coding, content: Pieces) -> Result<Option<Bytes>, Status> {
    let len = content.len();
    if coding.of_answers.is_some_and(|len_min| len >= len_min) {
        let compressed = compression::compress(&content.into_bytes());
        out.reserve(HEADER_LEN + compressed.len());
        out.put_slice(&envelope::header(envelope::COMPRESSED, compressed.len())?);
        out.put_slice(&compressed);
        return Ok(None);
    }
    let header = envelope::header(0, len)?;
    if len > COPIED_LEN_MAX {
        out.put_slice(&header);
        return Ok(Some(content.into_bytes()));
    }
    out.reserve(HEADER_LEN + len);
    out.put_slice(&header);
    match content {
        Pieces::One(bytes) => out.put_slice(&bytes),
        Pieces::Small(bytes) => out.put_slice(&bytes),
        Pieces::Several(pieces) => pieces.iter().for_each(|piece| out.put_slice(piece)),
    }
    Ok(None)
}

/// The longest content that is copied behind the head of its frame.
const COPIED_LEN_MAX: usize = 8 * 1024;

/// So many bytes of small messages go out together.
const BUFFER_LEN: usize = 8 * 1024;
