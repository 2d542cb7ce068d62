//! Request bodies: one piece, or the messages of a stream.

use std::{
    fmt,
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
    Framed(Option<Bytes>),
    Stream {
        source: Arc<MessageSource>,
        /// The attempt of this body. The body is outdated if the source has a higher number.
        attempt: usize,
    },
}

/// The content of a request. It outlives the body of a single attempt.
pub(super) enum RequestContent {
    Whole(Bytes),
    Framed(Bytes),
    Stream(Arc<MessageSource>),
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
    is_stopped: bool,
    failure: Option<Status>,
    waker: Option<Waker>,
}

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

    pub(super) fn frame(self, content: &Bytes) -> Result<Bytes, Status> {
        match self.compressed(content) {
            Some(compressed) => envelope::frame(envelope::COMPRESSED, &compressed),
            None => envelope::frame(0, content),
        }
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
            Self::Framed(content) => OutgoingBody::Framed(Some(content.clone())),
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
        let Some(mut messages) = state.messages.take().filter(|_| !is_over) else {
            return Poll::Ready(Some(Err(BodyAbandoned::new())));
        };
        // Stored before the poll, so that a concurrent `stop` wakes this task.
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        drop(state);
        let next = Pin::new(&mut messages).poll_next(cx);
        let mut state = self.state();
        // The call ended during the poll. `stop` found no stream to drop, so it is dropped here.
        if state.is_stopped {
            drop(state);
            return Poll::Ready(Some(Err(BodyAbandoned::new())));
        }
        state.messages = Some(messages);
        let framed = match ready!(next) {
            None => {
                drop(state);
                self.ended.notify_one();
                return Poll::Ready(None);
            }
            Some(message) => {
                state.is_taken = true;
                drop(state);
                message.and_then(|message| self.framing.frame(&message))
            }
        };
        Poll::Ready(Some(framed.map(Frame::data).map_err(|status| {
            self.state().failure = Some(status);
            BodyAbandoned::new()
        })))
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BodyAbandoned;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyAbandoned>>> {
        match self.get_mut() {
            Self::Whole(content) | Self::Framed(content) => {
                Poll::Ready(content.take().map(|content| Ok(Frame::data(content))))
            }
            Self::Stream { source, attempt } => source.poll(*attempt, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None) | Self::Framed(None))
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
pub(super) struct BodyAbandoned(h2::Error);

impl BodyAbandoned {
    fn new() -> Self {
        Self(h2::Reason::CANCEL.into())
    }
}

impl fmt::Display for BodyAbandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was given up")
    }
}

impl std::error::Error for BodyAbandoned {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
