//! The body of a plain request.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// The body of a plain request, delivered in one piece.
pub(super) enum PlainBody {
    Here(Bytes),
    /// A body still being received, with its length. The connection sends it when it is complete.
    Coming(oneshot::Receiver<Bytes>, usize),
}

impl Body for PlainBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let content = match &mut *self {
            Self::Here(content) => std::mem::take(content),
            Self::Coming(coming, _) => {
                let came = ready!(Pin::new(coming).poll(cx));
                *self = Self::Here(Bytes::new());
                came.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?
            }
        };
        Poll::Ready((!content.is_empty()).then(|| Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Here(content) if content.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let len = match self {
            Self::Here(content) => content.len(),
            Self::Coming(_, len) => *len,
        };
        SizeHint::with_exact(len as u64)
    }
}
