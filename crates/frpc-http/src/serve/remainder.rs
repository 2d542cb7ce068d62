//! The rest of a request that nobody reads any more.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{runtime::Handle, time::timeout};

/// The body of a request of HTTP/1.1, whose rest is read past if it is dropped before its end, as far as that is
/// [short](LEN_MAX). A connection that was closed instead would take along the response: its peer, still writing, learns of nothing but
/// the close.
pub(crate) struct Remainder {
    /// Absent once it has ended.
    body: Option<Incoming>,
}

impl Remainder {
    pub(crate) fn of(body: Incoming) -> Self {
        Self { body: Some(body).filter(|body| !body.is_end_stream()) }
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
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Remainder {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        // Outside of a runtime there is no connection, either.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(TIME_MAX, async move {
            let mut left = LEN_MAX;
            // Beside the response, which goes out meanwhile.
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let len = frame.data_ref().map_or(0, Bytes::len);
                let Some(less) = left.checked_sub(len) else { return };
                left = less;
            }
        }));
    }
}

/// The most that is read past.
const LEN_MAX: usize = 1024 * 1024;

/// The longest that it may take.
const TIME_MAX: Duration = Duration::from_secs(5);
