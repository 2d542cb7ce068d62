//! The body of an HTTP/2 request.

use std::{
    error::Error,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use frpc_http2::StreamId;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::{received::ReceivedData, wakes::WakeList};

/// The reason why a body ended early.
type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request, as its handler reads it.
pub(crate) struct Http2Body(BodyKind);

enum BodyKind {
    /// A body that arrived together with its head.
    Whole(Bytes),
    /// A body that arrives over time.
    Queue { queue: Arc<BodyQueue>, len_left: Option<u64> },
}

/// The received part of a body. The connection fills it, and the handler empties it.
#[derive(Debug)]
pub(super) struct BodyQueue {
    stream: StreamId,
    wakes: Arc<WakeList>,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    data: ReceivedData,
    trailers: Option<HeaderMap>,
    end: BodyEnd,
    /// `true` once no handler reads the body any more.
    is_dropped: bool,
    /// The reader while it waits for data.
    reader: Option<Waker>,
}

#[derive(Debug, Default)]
enum BodyEnd {
    /// More may arrive.
    #[default]
    Open,
    Complete,
    /// The stream or its connection ended early.
    Failed(Option<BodyError>),
}

impl Http2Body {
    pub(super) fn whole(content: Bytes) -> Self {
        Self(BodyKind::Whole(content))
    }

    /// Creates the body that reads a queue. `len` is the value of `content-length`.
    pub(super) fn queue(queue: Arc<BodyQueue>, len: Option<u64>) -> Self {
        Self(BodyKind::Queue { queue, len_left: len })
    }
}

impl BodyQueue {
    pub(super) fn new(stream: StreamId, wakes: Arc<WakeList>) -> Arc<Self> {
        Arc::new(Self { stream, wakes, state: Mutex::default() })
    }

    /// Adds data. Returns `false` if no handler reads it.
    pub(super) fn push(&self, data: &[u8]) -> bool {
        let mut state = self.state();
        if state.is_dropped {
            return false;
        }
        state.data.push(data);
        wake(state);
        true
    }

    /// Ends the body.
    pub(super) fn complete(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state();
        state.trailers = trailers;
        state.end = BodyEnd::Complete;
        wake(state);
    }

    /// Ends the body with an error, after the data that has arrived. A complete body stays complete.
    pub(super) fn fail(&self, error: impl Into<BodyError>) {
        let mut state = self.state();
        if matches!(state.end, BodyEnd::Open) {
            state.end = BodyEnd::Failed(Some(error.into()));
            wake(state);
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state();
        if let Some(data) = state.data.pop() {
            drop(state);
            self.wakes.release(self.stream, data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match &mut state.end {
            BodyEnd::Open => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            BodyEnd::Complete => Poll::Ready(state.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            BodyEnd::Failed(error) => Poll::Ready(error.take().map(Err)),
        }
    }

    /// Discards the body, and returns the credit of its unread data.
    fn discard(&self) {
        let mut state = self.state();
        state.is_dropped = true;
        state.reader = None;
        let len = mem::take(&mut state.data).len();
        drop(state);
        if len > 0 {
            self.wakes.release(self.stream, len);
        }
    }

    fn is_at_end(&self) -> bool {
        let state = self.state();
        state.data.is_empty() && state.trailers.is_none() && matches!(state.end, BodyEnd::Complete)
    }
}

/// Wakes the reader after its queue is unlocked.
fn wake(mut state: MutexGuard<'_, QueueState>) {
    let reader = state.reader.take();
    drop(state);
    reader.into_iter().for_each(Waker::wake);
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BodyError;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            BodyKind::Whole(content) => {
                let content = mem::take(content);
                Poll::Ready((!content.is_empty()).then(|| Ok(Frame::data(content))))
            }
            BodyKind::Queue { queue, len_left } => {
                let polled = queue.poll(cx);
                if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&polled, len_left) {
                    *left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Whole(content) => content.is_empty(),
            BodyKind::Queue { queue, .. } => queue.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Whole(content) => SizeHint::with_exact(content.len() as u64),
            BodyKind::Queue { len_left, .. } => len_left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        if let BodyKind::Queue { queue, .. } = &self.0 {
            queue.discard();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use frpc_http2::{Connection, Field, Header, Settings};
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    fn queue() -> Arc<BodyQueue> {
        let mut client = Connection::client(Settings::default(), std::time::Instant::now());
        let stream = client.open(Header::fields(&[Field::new(":method", "POST")]), false).unwrap();
        BodyQueue::new(stream, Arc::default())
    }

    #[test]
    fn data_in_single_bytes_is_a_few_chunks() {
        let queue = queue();
        let mut body = Http2Body::queue(queue.clone(), None);
        for byte in 0..100_000_u32 {
            assert!(queue.push(&[byte.to_le_bytes()[0]]));
        }
        queue.complete(None);
        let frames = std::iter::from_fn(|| pin!(body.frame()).now_or_never().unwrap());
        let lens: Vec<_> = frames.map(|frame| frame.unwrap().into_data().unwrap().len()).collect();
        assert!(lens.iter().sum::<usize>() == 100_000 && lens.len() < 10, "{lens:?}");
        assert!(body.is_end_stream());
    }

    #[test]
    fn a_failed_body_has_its_data_before_the_error() {
        let queue = queue();
        let mut body = Http2Body::queue(queue.clone(), Some(7));
        assert!(queue.push(b"abc"));
        queue.fail("gone");
        assert_eq!(body.size_hint().exact(), Some(7));
        assert!(pin!(body.frame()).now_or_never().unwrap().unwrap().is_ok());
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(pin!(body.frame()).now_or_never().unwrap().unwrap().is_err());
        drop(body);
        assert!(!queue.push(b"d"), "no handler reads it");
    }
}
