//! Calls in flight.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use frpc::{Answer, Body, CancelGuard, Inherited, Status, Streaming};
use tokio::time::{Sleep, sleep};
use tracing::error;

use super::subscriptions::Notices;

/// The pending result of a function.
pub(super) type Later = Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send>>;

/// A call in flight.
pub(super) struct Running {
    work: Work,
    /// `None` once the call has finished.
    place: Option<Place>,
}

enum Work {
    Function {
        later: Later,
        /// The deadline and metadata inherited by calls of the function.
        inherited: Inherited,
        /// Cancels the context of the function when dropped before the end of the call, or when its deadline passes.
        guard: Option<CancelGuard>,
        end: Option<(Duration, Pin<Box<Sleep>>)>,
    },
    Endpoint {
        call: Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>,
        /// The method name of the notifications, for methods with a response stream.
        notices: Option<Notices>,
    },
}

/// The destination of an answer.
#[derive(Debug)]
pub(super) struct Place {
    /// The id of the request, or `None` for a notification.
    pub(super) id: Option<Box<str>>,
    /// The key of the batch and the index of the hole in it, for requests of a batch.
    pub(super) batch: Option<(usize, usize)>,
    /// The share of this call in the length of its message.
    pub(super) len: usize,
}

/// A finished call.
pub(super) struct Finished {
    pub(super) place: Place,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    Result(Bytes),
    Stream((Notices, Streaming<Bytes>)),
    Failed(Status),
}

impl Running {
    pub(super) fn of_function(
        later: Later,
        inherited: Inherited,
        guard: Option<CancelGuard>,
        place: Place,
        time: Option<Duration>,
    ) -> Self {
        let end = time.map(|time| (time, Box::pin(sleep(time))));
        Self { work: Work::Function { later, inherited, guard, end }, place: Some(place) }
    }

    pub(super) fn of_endpoint(
        call: Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>,
        place: Place,
        notices: Option<Notices>,
    ) -> Self {
        Self { work: Work::Endpoint { call, notices }, place: Some(place) }
    }

    /// Returns the length of its part of the message.
    pub(super) fn len(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.len)
    }

    pub(super) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished> {
        let outcome = match &mut self.work {
            Work::Function { later, inherited, guard, end } => {
                ready!(poll_function(later, inherited, guard, end, cx))
            }
            Work::Endpoint { call, notices } => outcome_of(ready!(call.as_mut().poll(cx)), notices.take()),
        };
        let place = self.place.take().expect("a finished future is not polled again");
        Poll::Ready(Finished { place, outcome })
    }
}

fn poll_function(
    later: &mut Later,
    inherited: &mut Inherited,
    guard: &mut Option<CancelGuard>,
    end: &mut Option<(Duration, Pin<Box<Sleep>>)>,
    cx: &mut Context<'_>,
) -> Poll<Outcome> {
    let polled = inherited.run(|| catch_unwind(AssertUnwindSafe(|| later.as_mut().poll(cx))));
    if !matches!(polled, Ok(Poll::Pending))
        && let Some(guard) = guard.take()
    {
        guard.disarm();
    }
    match polled {
        Ok(Poll::Ready(Ok(result))) => Poll::Ready(Outcome::Result(result.into())),
        Ok(Poll::Ready(Err(status))) => Poll::Ready(Outcome::Failed(status)),
        Ok(Poll::Pending) => {
            let Some((time, sleep)) = end else { return Poll::Pending };
            ready!(sleep.as_mut().poll(cx));
            Poll::Ready(Outcome::Failed(Status::deadline_exceeded(format!("the call took longer than {time:?}"))))
        }
        Err(panic) => {
            error!(panic = text_of(&*panic), "a function panicked");
            Poll::Ready(Outcome::Failed(panicked()))
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Returns the status of a call to a function that panicked. The reason is logged, not sent to the caller.
pub(super) fn panicked() -> Status {
    Status::internal("the function panicked")
}

fn outcome_of(answer: Result<Answer, Status>, notices: Option<Notices>) -> Outcome {
    match (answer.map(Answer::into_body), notices) {
        // A handwritten service may encode a message without fields as an empty body.
        (Ok(Body::One(result)), None) if result.is_empty() => Outcome::Result(Bytes::from_static(b"{}")),
        (Ok(Body::One(result)), None) => Outcome::Result(result.into_bytes()),
        (Ok(Body::Many(messages)), Some(notices)) => Outcome::Stream((notices, messages)),
        (Ok(_), _) => {
            Outcome::Failed(Status::internal("the handler returned a body that does not match the kind of its method"))
        }
        (Err(status), _) => Outcome::Failed(status),
    }
}

impl Future for Running {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        self.poll_finished(cx)
    }
}
