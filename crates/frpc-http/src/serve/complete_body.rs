//! Detection of truncated HTTP/2 requests.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// The body of an HTTP/2 request. It fails if it was cut off for any reason.
///
/// hyper reports a reset with `NO_ERROR`, for example after a missed keepalive response, as a normal end. A handler
/// would then take a truncated stream for a complete one.
pub(crate) struct CompleteBody(Incoming);

impl CompleteBody {
    pub(crate) fn of(body: Incoming) -> Self {
        Self(body)
    }
}

impl Body for CompleteBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
            Some(frame) => Poll::Ready(Some(frame.map_err(Into::into))),
            None if self.0.is_end_stream() => Poll::Ready(None),
            None => Poll::Ready(Some(Err("the stream was reset".into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
