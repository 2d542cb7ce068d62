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

use super::subscriptions::NotificationStyle;

/// The pending result of a function.
pub(super) type FunctionFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send>>;

/// A call in flight.
pub(super) struct RunningCall {
    work: CallExecution,
    /// `None` once the call has finished.
    place: Option<AnswerDestination>,
}

enum CallExecution {
    Function {
        later: FunctionFuture,
        /// The deadline and metadata inherited by calls of the function.
        inherited: Inherited,
        /// Cancels the context of the function when dropped before the end of the call, or when its deadline passes.
        guard: Option<CancelGuard>,
        end: Option<(Duration, Pin<Box<Sleep>>)>,
    },
    Endpoint {
        call: Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>,
        /// The method name of the notifications, for methods with a response stream.
        notices: Option<NotificationStyle>,
    },
}

/// The destination of an answer.
#[derive(Debug)]
pub(super) struct AnswerDestination {
    /// The id of the request, or `None` for a notification.
    pub(super) id: Option<Box<str>>,
    /// The key of the batch and the index of the hole in it, for requests of a batch.
    pub(super) batch: Option<(usize, usize)>,
    /// The share of this call in the length of its message.
    pub(super) len: usize,
}

/// A finished call.
pub(super) struct FinishedCall {
    pub(super) place: AnswerDestination,
    pub(super) outcome: CallOutcome,
}

pub(super) enum CallOutcome {
    Result(Bytes),
    Stream((NotificationStyle, Streaming<Bytes>)),
    Failed(Status),
}

impl RunningCall {
    pub(super) fn of_function(
        later: FunctionFuture,
        inherited: Inherited,
        guard: Option<CancelGuard>,
        place: AnswerDestination,
        time: Option<Duration>,
    ) -> Self {
        let end = time.map(|time| (time, Box::pin(sleep(time))));
        Self { work: CallExecution::Function { later, inherited, guard, end }, place: Some(place) }
    }

    pub(super) fn of_endpoint(
        call: Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>,
        place: AnswerDestination,
        notices: Option<NotificationStyle>,
    ) -> Self {
        Self { work: CallExecution::Endpoint { call, notices }, place: Some(place) }
    }

    /// Returns the length of its part of the message.
    pub(super) fn len(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.len)
    }
}

fn poll_function(
    later: &mut FunctionFuture,
    inherited: &mut Inherited,
    guard: &mut Option<CancelGuard>,
    end: &mut Option<(Duration, Pin<Box<Sleep>>)>,
    cx: &mut Context<'_>,
) -> Poll<CallOutcome> {
    let polled = inherited.run(|| catch_unwind(AssertUnwindSafe(|| later.as_mut().poll(cx))));
    if !matches!(polled, Ok(Poll::Pending))
        && let Some(guard) = guard.take()
    {
        guard.disarm();
    }
    match polled {
        Ok(Poll::Ready(Ok(result))) => Poll::Ready(CallOutcome::Result(result.into())),
        Ok(Poll::Ready(Err(status))) => Poll::Ready(CallOutcome::Failed(status)),
        Ok(Poll::Pending) => {
            let Some((time, sleep)) = end else { return Poll::Pending };
            ready!(sleep.as_mut().poll(cx));
            Poll::Ready(CallOutcome::Failed(Status::deadline_exceeded(format!("the call took longer than {time:?}"))))
        }
        Err(panic) => {
            error!(panic = text_of(&*panic), "a function panicked");
            Poll::Ready(CallOutcome::Failed(panicked()))
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

fn outcome_of(answer: Result<Answer, Status>, notices: Option<NotificationStyle>) -> CallOutcome {
    match (answer.map(Answer::into_body), notices) {
        // A handwritten service may encode a message without fields as an empty body.
        (Ok(Body::One(result)), None) if result.is_empty() => CallOutcome::Result(Bytes::from_static(b"{}")),
        (Ok(Body::One(result)), None) => CallOutcome::Result(result.into_bytes()),
        (Ok(Body::Many(messages)), Some(notices)) => CallOutcome::Stream((notices, messages)),
        (Ok(_), _) => CallOutcome::Failed(Status::internal(
            "the handler returned a body that does not match the kind of its method",
        )),
        (Err(status), _) => CallOutcome::Failed(status),
    }
}

impl Future for RunningCall {
    type Output = FinishedCall;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FinishedCall> {
        let outcome = match &mut self.work {
            CallExecution::Function { later, inherited, guard, end } => {
                ready!(poll_function(later, inherited, guard, end, cx))
            }
            CallExecution::Endpoint { call, notices } => outcome_of(ready!(call.as_mut().poll(cx)), notices.take()),
        };
        let place = self.place.take().expect("a finished future is not polled again");
        Poll::Ready(FinishedCall { place, outcome })
    }
}
