//! Request bodies: one piece, or the messages of a stream.

use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use frpc::{Status, Streaming};
use futures_core::Stream;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use crate::message::{compression, envelope};

/// The body of a request.
pub(super) enum OutgoingBody {
    Whole(Option<Bytes>),
    /// A framed message. The frame contains its length, so HTTP/2 needs no header for it.
    Framed(MessageFrame),
    Stream {
        source: Arc<MessageSource>,
        /// The attempt of this body. The body is outdated if the source has a higher number.
        attempt: usize,
    },
}

/// The content of a request. It outlives the body of a single attempt.
pub(super) enum RequestContent {
    Whole(Bytes),
    Framed(MessageFrame),
    Stream(Arc<MessageSource>),
}

/// A frame of a message. Long content is not copied into it.
#[derive(Clone, Default)]
pub(super) struct MessageFrame {
    front: Bytes,
    /// Empty if the content is in `front`.
    content: Bytes,
}

impl MessageFrame {
    pub(super) fn new(front: Bytes, content: Bytes) -> Self {
        Self { front, content }
    }

    fn take(&mut self) -> Option<Bytes> {
        let piece = if self.front.is_empty() { &mut self.content } else { &mut self.front };
        Some(mem::take(piece)).filter(|piece| !piece.is_empty())
    }

    /// Returns the frame in one piece.
    pub(super) fn into_whole(self) -> Bytes {
        if self.content.is_empty() { self.front } else { [self.front, self.content].concat().into() }
    }
}

/// A stream of messages to send, one frame each.
pub(super) struct MessageSource {
    state: Mutex<SourceState>,
    framing: EnvelopeEncoder,
    ended: Notify,
}

struct SourceState {
    /// `None` while the stream is polled: it may run user code, which must not find the lock taken.
    messages: Option<Streaming<Bytes>>,
    attempt: usize,
    is_taken: bool,
    /// The rest of the previous message, or the failure after it.
    next: Option<Result<Bytes, Status>>,
    is_stopped: bool,
    failure: Option<Status>,
    waker: Option<Waker>,
}

/// Frames of messages, and a long content or an error after them.
type FramedMessages = (Bytes, Option<Result<Bytes, Status>>);

/// Encodes messages as frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnvelopeEncoder {
    /// The minimum length of compressed messages. `None` disables compression.
    pub(super) gzip_len_min: Option<usize>,
}

impl EnvelopeEncoder {
    pub(super) fn compresses(self) -> bool {
        self.gzip_len_min.is_some()
    }

    pub(super) fn frame(self, content: Bytes) -> Result<MessageFrame, Status> {
        match self.compressed(&content) {
            Some(compressed) => Self::frame_with(envelope::COMPRESSED, compressed),
            None => Self::frame_with(0, content),
        }
    }

    fn frame_with(flags: u8, content: Bytes) -> Result<MessageFrame, Status> {
        if content.len() > COPIED_LEN_MAX {
            let front = Bytes::copy_from_slice(&envelope::header(flags, content.len())?);
            return Ok(MessageFrame::new(front, content));
        }
        Ok(MessageFrame::new(envelope::frame(flags, &content)?, Bytes::new()))
    }

    /// Polls for messages and returns the frames of the ready ones, up to a limit. Also returns a long message,
    /// or an error, which comes after them.
    fn poll_frames(self, messages: &mut Streaming<Bytes>, cx: &mut Context<'_>) -> Poll<Option<FramedMessages>> {
        if self.compresses() {
            let next = ready!(Pin::new(messages).poll_next(cx));
            return Poll::Ready(next.map(|message| {
                let framed = message.and_then(|message| self.frame(message));
                match framed {
                    Ok(MessageFrame { front, content }) => (front, (!content.is_empty()).then_some(Ok(content))),
                    Err(status) => (Bytes::new(), Some(Err(status))),
                }
            }));
        }
        let mut frames = Vec::new();
        let mut last = None;
        while last.is_none() && frames.len() < FRAMES_LEN {
            match messages.poll_frames(cx, &mut frames, FRAMES_LEN) {
                Poll::Ready(Some(Ok(None))) => {}
                Poll::Ready(Some(Ok(Some(message)))) => match self.frame(message) {
                    Ok(MessageFrame { front, content }) => {
                        frames.extend_from_slice(&front);
                        last = (!content.is_empty()).then_some(Ok(content));
                    }
                    Err(status) => last = Some(Err(status)),
                },
                Poll::Ready(Some(Err(status))) => last = Some(Err(status)),
                Poll::Ready(None) if frames.is_empty() => return Poll::Ready(None),
                Poll::Pending if frames.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some((frames.into(), last)))
    }

    /// Returns the compressed content if it is long enough for compression.
    pub(super) fn compressed(self, content: &Bytes) -> Option<Bytes> {
        self.gzip_len_min.filter(|min| content.len() >= *min).map(|_| compression::compress(content))
    }
}

impl RequestContent {
    pub(super) fn stream(messages: Streaming<Bytes>, framing: EnvelopeEncoder) -> Self {
        let state = SourceState {
            messages: Some(messages),
            attempt: 0,
            is_taken: false,
            next: None,
            is_stopped: false,
            failure: None,
            waker: None,
        };
        Self::Stream(Arc::new(MessageSource { state: Mutex::new(state), framing, ended: Notify::new() }))
    }

    /// Returns the body for a new attempt. The body of the previous attempt, if any, ends.
    pub(super) fn body(&self) -> OutgoingBody {
        match self {
            Self::Whole(content) => OutgoingBody::Whole(Some(content.clone()).filter(|content| !content.is_empty())),
            Self::Framed(frame) => OutgoingBody::Framed(frame.clone()),
            Self::Stream(source) => {
                let mut state = source.state();
                state.attempt += 1;
                OutgoingBody::Stream { source: source.clone(), attempt: state.attempt }
            }
        }
    }

    /// Returns `true` if nothing was taken from the stream, so that the request can be sent again.
    pub(super) fn can_resend(&self) -> bool {
        match self {
            Self::Whole(_) | Self::Framed(_) => true,
            Self::Stream(source) => {
                let state = source.state();
                !state.is_taken && state.failure.is_none()
            }
        }
    }

    pub(super) fn source(&self) -> Option<&Arc<MessageSource>> {
        match self {
            Self::Whole(_) | Self::Framed(_) => None,
            Self::Stream(source) => Some(source),
        }
    }
}

impl MessageSource {
    fn state(&self) -> MutexGuard<'_, SourceState> {
        // No code under the lock can leave the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error of the stream. It becomes the status of the call.
    pub(super) fn failure(&self) -> Option<Status> {
        self.state().failure.clone()
    }

    /// Waits for the end of the stream.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Drops the stream at the end of the call.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        let (messages, waker) = (state.messages.take(), state.waker.take());
        drop(state);
        // Both run user code, which may call back, so the lock has been released.
        drop(messages);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, attempt: usize, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyAbandoned>>> {
        let mut state = self.state();
        let is_over = state.failure.is_some() || state.is_stopped || state.attempt != attempt;
        if is_over {
            return Poll::Ready(Some(Err(BodyAbandoned::new())));
        }
        if let Some(next) = state.next.take() {
            return Poll::Ready(Some(next.map(Frame::data).map_err(|status| {
                state.failure = Some(status);
                BodyAbandoned::new()
            })));
        }
        let Some(mut messages) = state.messages.take() else {
            return Poll::Ready(Some(Err(BodyAbandoned::new())));
        };
        // Stored before the poll, so that a concurrent `stop` wakes this task.
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        drop(state);
        let next = self.framing.poll_frames(&mut messages, cx);
        let mut state = self.state();
        // The call ended during the poll. `stop` found no stream to drop, so it is dropped here.
        if state.is_stopped {
            drop(state);
            return Poll::Ready(Some(Err(BodyAbandoned::new())));
        }
        state.messages = Some(messages);
        let Some((frames, next)) = ready!(next) else {
            drop(state);
            self.ended.notify_one();
            return Poll::Ready(None);
        };
        state.is_taken = true;
        match next {
            Some(Err(status)) if frames.is_empty() => {
                state.failure = Some(status);
                Poll::Ready(Some(Err(BodyAbandoned::new())))
            }
            next => {
                state.next = next;
                Poll::Ready(Some(Ok(Frame::data(frames))))
            }
        }
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BodyAbandoned;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyAbandoned>>> {
        match self.get_mut() {
            Self::Whole(content) => Poll::Ready(content.take().map(|content| Ok(Frame::data(content)))),
            Self::Framed(frame) => Poll::Ready(frame.take().map(|piece| Ok(Frame::data(piece)))),
            Self::Stream { source, attempt } => source.poll(*attempt, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(content) => content.is_none(),
            Self::Framed(frame) => frame.front.is_empty() && frame.content.is_empty(),
            Self::Stream { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(content) => {
                let len = content.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(len).unwrap_or(u64::MAX))
            }
            Self::Framed(_) | Self::Stream { .. } => SizeHint::default(),
        }
    }
}

/// The error that ends a body after its call is over or its stream failed. HTTP/2 resets the stream as cancelled.
#[derive(Debug)]
pub(super) struct BodyAbandoned {
    /// The error code for hyper.
    #[cfg(not(feature = "http2"))]
    source: h2::Error,
}

impl BodyAbandoned {
    fn new() -> Self {
        Self {
            #[cfg(not(feature = "http2"))]
            source: h2::Reason::CANCEL.into(),
        }
    }
}

impl fmt::Display for BodyAbandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was given up")
    }
}

impl std::error::Error for BodyAbandoned {
    #[cfg(not(feature = "http2"))]
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The maximum length of content copied into its frame.
const COPIED_LEN_MAX: usize = 8 << 10;

/// The target length of small messages sent together.
const FRAMES_LEN: usize = (12 << 10) - envelope::HEADER_LEN;

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn pieces(messages: Vec<Result<Bytes, Status>>) -> (Vec<Bytes>, Arc<MessageSource>) {
        let content =
            RequestContent::stream(Streaming::new(stream::iter(messages)), EnvelopeEncoder { gzip_len_min: None });
        let (mut body, mut pieces) = (content.body(), Vec::new());
        let cx = &mut Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(cx) {
            pieces.push(frame.into_data().unwrap());
        }
        (pieces, content.source().unwrap().clone())
    }

    #[test]
    fn small_messages_share_a_piece_and_long_ones_are_not_copied() {
        let (small, long) = (Bytes::from_static(b"ab"), Bytes::from(vec![7; COPIED_LEN_MAX + 1]));
        let (pieces, _) = pieces([&small, &small, &long, &small].map(|message| Ok(message.clone())).into());
        let front = [&b"\0\0\0\0\x02ab\0\0\0\0\x02ab"[..], &envelope::header(0, long.len()).unwrap()].concat();
        assert_eq!(pieces.len(), 3);
        assert_eq!((&pieces[0], &pieces[2]), (&Bytes::from(front), &Bytes::from_static(b"\0\0\0\0\x02ab")));
        assert_eq!(pieces[1].as_ptr(), long.as_ptr());
    }

    #[test]
    fn a_failure_comes_after_the_messages_before_it() {
        let (pieces, source) = pieces(vec![Ok(Bytes::from_static(b"a")), Err(Status::aborted("enough"))]);
        assert_eq!(pieces, [&b"\0\0\0\0\x01a"[..]]);
        assert_eq!(source.failure().unwrap().message(), "enough");
    }
}
