//! Bodies of HTTP/2 messages, sent in pieces that fit the windows and queues.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use frpc_http2::{Connection, ErrorCode, Field, Header, SendError, StreamId};
use http::HeaderMap;
use http_body::Body;

/// A body being sent, after its head.
pub(crate) struct SendingBody<B> {
    body: B,
    /// Data refused by the queue of the stream.
    rest: Option<Bytes>,
}

/// The progress of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The body waits for data or for room in the queue.
    Pending,
    /// All of it is in the queue or in the output, or the stream is gone.
    Done,
    /// The body failed, so its stream was reset.
    Failed,
}

impl<B: Body<Data = Bytes> + Unpin> SendingBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, rest: None }
    }

    /// Sends the parts of the body that are ready and have room.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, core: &mut Connection, stream: StreamId) -> SendProgress {
        if let Some(rest) = self.rest.take()
            && let Some(progress) = self.send_data(core, stream, rest)
        {
            return progress;
        }
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => {
                    core.reset(stream, ErrorCode::CANCEL);
                    return SendProgress::Failed;
                }
                None => {
                    // An end without data is always accepted.
                    let _ = core.send_slice(stream, &[], true);
                    return SendProgress::Done;
                }
            };
            let progress = match frame.into_data() {
                Ok(data) => self.send_data(core, stream, data),
                Err(frame) => {
                    send_trailers(core, stream, &frame.into_trailers().unwrap_or_default());
                    return SendProgress::Done;
                }
            };
            if let Some(progress) = progress {
                return progress;
            }
        }
        SendProgress::Pending
    }

    /// Sends data, in pieces as long as the room. Returns the progress of the body unless it goes on now.
    fn send_data(&mut self, core: &mut Connection, stream: StreamId, mut data: Bytes) -> Option<SendProgress> {
        let is_end = self.body.is_end_stream();
        loop {
            // Without room the queue refuses the data, and an event follows once there is some.
            let room = Some(core.capacity(stream)).filter(|room| *room > 0).unwrap_or(data.len());
            let piece = data.split_to(data.len().min(room));
            let is_last = data.is_empty();
            // The clone keeps refused data. Short data is copied into the output instead.
            let sent = if piece.len() < COPIED_LEN_MAX {
                core.send_slice(stream, &piece, is_end && is_last)
            } else {
                core.send_data(stream, piece.clone(), is_end && is_last)
            };
            match sent {
                Ok(()) if !is_last => {}
                Ok(()) => return is_end.then_some(SendProgress::Done),
                Err(SendError::Full) => {
                    debug_assert!(data.is_empty(), "refused data is never cut");
                    self.rest = Some(piece);
                    return Some(SendProgress::Pending);
                }
                Err(_) => return Some(SendProgress::Done),
            }
        }
    }
}

fn send_trailers(core: &mut Connection, stream: StreamId, trailers: &HeaderMap) {
    let fields: Vec<_> = trailers.iter().map(|(name, value)| Field::new(name.as_str(), value.as_bytes())).collect();
    if let Err(error) = core.send_trailers(stream, Header::fields(&fields)) {
        fail(core, stream, error);
    }
}

/// Resets a stream after its message was refused.
#[cold]
pub(super) fn fail(core: &mut Connection, stream: StreamId, error: SendError) {
    if error != SendError::Closed {
        tracing::debug!(%error, "reset a call: its response could not be sent");
        core.reset(stream, ErrorCode::INTERNAL_ERROR);
    }
}

/// Data of this length and above is not copied.
pub(super) const COPIED_LEN_MAX: usize = 4096;
