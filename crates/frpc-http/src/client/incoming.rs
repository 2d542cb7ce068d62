//! Responses of a connection, from either implementation of HTTP.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::TrySendError};

#[cfg(feature = "http2")]
use super::http2::{Http2Body, Http2Failure, Http2Response};
use super::outgoing::OutgoingBody;

/// The response of hyper, or an error with the request if it was certainly not sent.
type HyperResponse = Result<Response<Incoming>, TrySendError<Request<OutgoingBody>>>;

/// The future of a response.
pub(super) enum PendingResponse {
    Hyper(Pin<Box<dyn Future<Output = HyperResponse> + Send>>),
    #[cfg(feature = "http2")]
    Http2(Http2Response),
}

/// The failure of a request without a response.
pub(super) struct RequestFailure {
    pub(super) error: TransferError,
    /// `true` if the request was certainly not sent.
    pub(super) is_unsent: bool,
}

/// The failure of a request or a response.
pub(super) enum TransferError {
    Hyper(hyper::Error),
    #[cfg(feature = "http2")]
    Http2(Http2Failure),
}

impl Future for PendingResponse {
    type Output = Result<Response<IncomingBody>, RequestFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Hyper(responding) => responding.as_mut().poll(cx).map(|responded| match responded {
                Ok(response) => Ok(response.map(IncomingBody::Hyper)),
                Err(error) => {
                    // hyper returns a request if it has not begun to send it.
                    let is_unsent = error.message().is_some();
                    Err(RequestFailure { error: TransferError::Hyper(error.into_error()), is_unsent })
                }
            }),
            #[cfg(feature = "http2")]
            Self::Http2(responding) => Pin::new(responding).poll(cx).map(|responded| match responded {
                Ok(response) => Ok(response.map(IncomingBody::Http2)),
                Err(failure) => {
                    let is_unsent = failure.is_unsent();
                    Err(RequestFailure { error: TransferError::Http2(failure), is_unsent })
                }
            }),
        }
    }
}

/// The body of a response.
pub(super) enum IncomingBody {
    Hyper(Incoming),
    #[cfg(feature = "http2")]
    Http2(Http2Body),
}

impl IncomingBody {
    /// Makes the next data a message of `len` bytes, if the body supports it. `start` returns its start, read before,
    /// and the length.
    #[cfg_attr(not(feature = "http2"), expect(unused_variables, reason = "hyper collects no messages"))]
    pub(super) fn collect(&mut self, start: impl FnOnce() -> Option<(BytesMut, usize)>) {
        match self {
            Self::Hyper(_) => {}
            #[cfg(feature = "http2")]
            Self::Http2(body) => body.collect(start),
        }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = TransferError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransferError>>> {
        match self.get_mut() {
            Self::Hyper(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(TransferError::Hyper)))
            }
            #[cfg(feature = "http2")]
            Self::Http2(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(TransferError::Http2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            #[cfg(feature = "http2")]
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Hyper(body) => body.size_hint(),
            #[cfg(feature = "http2")]
            Self::Http2(body) => body.size_hint(),
        }
    }
}
