//! The unread rest of HTTP/1.1 requests.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{runtime::Handle, time::timeout};

/// A flag of an HTTP/1.1 connection: `true` while the unread rest of its current request may be too long to skip.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadFlag(Arc<AtomicBool>);

impl UnreadFlag {
    /// Makes a response the last of its connection if the rest of the request may be too long to skip. The peer would
    /// otherwise send its next request to a closing connection.
    pub(crate) fn mark<B>(&self, response: &mut Response<B>) {
        if self.0.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// The body of an HTTP/1.1 request. If it is dropped before its end, a [short](LEN_MAX) rest is read and discarded.
///
/// Closing the connection instead could lose the response: a peer that is still writing sees only the closed
/// connection.
pub(crate) struct DiscardOnDrop {
    /// `None` after the end of the body.
    body: Option<Incoming>,
    unread: UnreadFlag,
}

impl DiscardOnDrop {
    pub(crate) fn of(body: Incoming, unread: UnreadFlag) -> Self {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let may_be_long = body.as_ref().is_some_and(|body| body.size_hint().upper().is_none_or(|len| len > LEN_MAX));
        unread.0.store(may_be_long, Ordering::Relaxed);
        Self { body, unread }
    }
}

impl Body for DiscardOnDrop {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            self.body = None;
            self.unread.0.store(false, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for DiscardOnDrop {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        // Without a runtime, no connection exists either.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(TIME_MAX, async move {
            let mut left = LEN_MAX;
            // Runs while the response is being sent.
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let len = frame.data_ref().map_or(0, Bytes::len);
                let Some(less) = left.checked_sub(len as u64) else { return };
                left = less;
            }
        }));
    }
}

/// The maximum length of a discarded rest.
const LEN_MAX: u64 = 1024 * 1024;

/// The maximum time to discard a rest.
const TIME_MAX: Duration = Duration::from_secs(5);
