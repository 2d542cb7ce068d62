//! The body of a response.

use std::{
    convert::Infallible,
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::activity::RequestGuard;

/// The body of an HTTP response to a call.
#[cfg_attr(
    not(feature = "tower"),
    expect(unreachable_pub, reason = "others see it only as the body of a tower service")
)]
pub struct ResponseBody(BodyState);

enum BodyState {
    /// Bytes ready in up to two pieces, followed by optional trailers.
    Whole { first: Bytes, second: Bytes, trailers: Option<HeaderMap> },
    /// Bytes produced over time.
    Stream(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

impl ResponseBody {
    /// Creates a body without bytes.
    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new(), Bytes::new(), None)
    }

    /// Creates a body of two consecutive pieces and optional trailers.
    pub(crate) fn whole(first: Bytes, second: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(BodyState::Whole { first, second, trailers })
    }

    /// Creates a body from a stream of pieces.
    pub(crate) fn stream(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Self {
        Self(BodyState::Stream(Box::pin(body)))
    }

    /// Returns `true` if the bytes are produced over time.
    #[cfg(feature = "http2")]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.0, BodyState::Stream(_))
    }

    /// Returns the bytes, if all are ready and the body has no trailers.
    pub(crate) fn into_content(self) -> Option<Bytes> {
        match self.0 {
            BodyState::Whole { first, second, trailers: None } if second.is_empty() => Some(first),
            BodyState::Whole { first, second, trailers: None } => Some([first, second].concat().into()),
            BodyState::Whole { .. } | BodyState::Stream(_) => None,
        }
    }
}

/// The body of a response to a request that is in progress until the body is dropped.
pub(crate) struct GuardedBody {
    body: ResponseBody,
    _underway: RequestGuard,
}

impl GuardedBody {
    pub(crate) fn new(body: ResponseBody, underway: RequestGuard) -> Self {
        Self { body, _underway: underway }
    }
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<T: Into<Bytes>> From<T> for ResponseBody {
    fn from(content: T) -> Self {
        Self::whole(content.into(), Bytes::new(), None)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match &mut self.0 {
            BodyState::Whole { first, .. } if !first.is_empty() => Some(Ok(Frame::data(mem::take(first)))),
            BodyState::Whole { second, .. } if !second.is_empty() => Some(Ok(Frame::data(mem::take(second)))),
            BodyState::Whole { trailers, .. } => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            BodyState::Stream(body) => return body.as_mut().poll_frame(cx),
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyState::Whole { first, second, trailers } => first.is_empty() && second.is_empty() && trailers.is_none(),
            BodyState::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyState::Whole { first, second, trailers: None } => {
                SizeHint::with_exact((first.len() + second.len()) as u64)
            }
            BodyState::Whole { .. } => SizeHint::default(),
            BodyState::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
