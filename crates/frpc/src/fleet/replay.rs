//! Requests that can be sent again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::call::{
    exchange::Body,
    status::{Code, Status},
    streaming::Streaming,
};

/// The request of a call, for several attempts one after another.
pub(super) enum ReplayedRequest {
    One(Bytes),
    Many(Arc<Mutex<RequestRecorder>>),
}

/// A request stream, and the messages that were taken from it.
pub(super) struct RequestRecorder {
    source: Streaming<Bytes>,
    is_over: bool,
    kept: Vec<Bytes>,
    kept_len: usize,
    len_max: usize,
    /// True if more was taken than is kept, so no other attempt can be made.
    is_incomplete: bool,
    /// The number of the latest attempt. Earlier attempts get no more messages.
    attempt: usize,
}

impl ReplayedRequest {
    pub(super) fn new(body: Body, len_max: usize) -> Self {
        match body {
            Body::One(message) => Self::One(message.into_bytes()),
            Body::Many(source) => Self::Many(Arc::new(Mutex::new(RequestRecorder {
                source,
                is_over: false,
                kept: Vec::new(),
                kept_len: 0,
                len_max,
                is_incomplete: false,
                attempt: 0,
            }))),
        }
    }

    /// Returns the request for the next attempt. It must not be called while [`is_complete`](Self::is_complete) is
    /// `false`.
    pub(super) fn body(&self) -> Body {
        match self {
            Self::One(message) => message.clone().into(),
            Self::Many(recorder) => {
                let recorder = recorder.clone();
                let attempt = {
                    let mut recorder = lock(&recorder);
                    recorder.attempt += 1;
                    recorder.attempt
                };
                let mut position = 0;
                Body::Many(Streaming::new(stream::poll_fn(move |cx| lock(&recorder).poll(attempt, &mut position, cx))))
            }
        }
    }

    /// Returns whether another attempt would send the whole request.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(recorder) => !lock(recorder).is_incomplete,
        }
    }
}

fn lock(recorder: &Mutex<RequestRecorder>) -> MutexGuard<'_, RequestRecorder> {
    // A panic of the user's stream leaves the kept messages whole.
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestRecorder {
    fn poll(
        &mut self,
        attempt: usize,
        position: &mut usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        if attempt != self.attempt {
            // Not the end of the stream, because the request would seem whole.
            return Poll::Ready(Some(Err(Status::new(Code::Cancelled, "the call is made on another connection"))));
        }
        if let Some(message) = self.kept.get(*position) {
            *position += 1;
            return Poll::Ready(Some(Ok(message.clone())));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = ready!(self.source.poll_next_unpin(cx));
        match &next {
            None => self.is_over = true,
            Some(Ok(message)) if !self.is_incomplete && message.len() <= self.len_max - self.kept_len => {
                self.kept_len += message.len();
                self.kept.push(message.clone());
                *position += 1;
            }
            Some(_) => {
                self.is_incomplete = true;
                self.kept.clear();
                *position = 0;
            }
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: &[&'static [u8]], len_max: usize) -> ReplayedRequest {
        let messages: Vec<_> = messages.iter().map(|message| Bytes::from_static(message)).collect();
        ReplayedRequest::new(Body::Many(Streaming::from_iter(messages)), len_max)
    }

    fn stream(request: &ReplayedRequest) -> Streaming<Bytes> {
        let Body::Many(stream) = request.body() else { panic!("the request is a stream") };
        stream
    }

    #[tokio::test]
    async fn another_attempt_gets_the_messages_from_the_start() {
        let request = request(&[b"one", b"two", b"three"], 100);
        let mut first = stream(&request);
        assert_eq!(first.message().await.unwrap().unwrap(), "one");
        assert_eq!(first.message().await.unwrap().unwrap(), "two");
        let mut second = stream(&request);
        for expected in ["one", "two", "three"] {
            assert_eq!(second.message().await.unwrap().unwrap(), expected);
        }
        assert!(second.message().await.unwrap().is_none());
        assert_eq!(first.message().await.unwrap_err().code(), Code::Cancelled, "it must not seem to end");
        assert!(request.is_complete());
        let mut third = stream(&request);
        assert_eq!(third.message().await.unwrap().unwrap(), "one", "the end is kept as well");
    }

    #[tokio::test]
    async fn a_request_beyond_the_limit_is_sent_once() {
        let request = request(&[b"one", b"two"], 5);
        let mut first = stream(&request);
        assert_eq!(first.message().await.unwrap().unwrap(), "one");
        assert!(request.is_complete());
        assert_eq!(first.message().await.unwrap().unwrap(), "two");
        assert!(!request.is_complete());
        assert!(first.message().await.unwrap().is_none());
    }
}
