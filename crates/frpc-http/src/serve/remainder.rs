//! The rest of a request that nobody reads any more.

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

/// Tells whether the request of a connection of HTTP/1.1 that is being answered may go on for longer than its rest is worth reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// Makes a response the last of its connection if it begins before the end of a request that may be long. Its peer would send the next
    /// one to a connection that is being closed.
    pub(crate) fn mark<B>(&self, response: &mut Response<B>) {
        if self.0.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// The body of a request of HTTP/1.1, whose rest is read past if it is dropped before its end, as far as that is
/// [short](LEN_MAX). A connection that was closed instead would take along the response: its peer, still writing, learns of nothing but
/// the close.
pub(crate) struct Remainder {
    /// Absent once it has ended.
    body: Option<Incoming>,
    unread: Unread,
}

impl Remainder {
    pub(crate) fn of(body: Incoming, unread: Unread) -> Self {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let may_be_long = body.as_ref().is_some_and(|body| body.size_hint().upper().is_none_or(|len| len > LEN_MAX));
        unread.0.store(may_be_long, Ordering::Relaxed);
        Self { body, unread }
    }
}

impl Body for Remainder {
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

impl Drop for Remainder {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        // Outside of a runtime there is no connection, either.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(TIME_MAX, async move {
            let mut left = LEN_MAX;
            // Beside the response, which goes out meanwhile.
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let len = frame.data_ref().map_or(0, Bytes::len);
                let Some(less) = left.checked_sub(len as u64) else { return };
                left = less;
            }
        }));
    }
}

/// The most that is read past.
const LEN_MAX: u64 = 1024 * 1024;

/// The longest that it may take.
const TIME_MAX: Duration = Duration::from_secs(5);
