//! The time that a call may take.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::status::{Code, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) limit: Duration,
    /// `None` if it is too far away to tell.
    pub(crate) at: Option<Instant>,
}

impl Deadline {
    /// The one that never passes.
    pub(crate) const NEVER: Self = Self { limit: Duration::MAX, at: None };

    pub(crate) fn after(limit: Duration) -> Self {
        Self::since(Instant::now(), limit)
    }

    pub(crate) fn since(start: Instant, limit: Duration) -> Self {
        Self { limit, at: start.checked_add(limit) }
    }

    /// Drops a handler, with the status that its caller gets, when the time is up.
    pub(crate) fn bound_handler<F>(self, handling: F) -> Bounded<F> {
        self.bound_with(handling, |Self { limit, .. }| out_of_time(limit))
    }

    /// Ends a wait with a status when the time is up.
    pub(crate) fn bound_with<F>(self, future: F, passed: fn(Self) -> Status) -> Bounded<F> {
        Bounded { future, deadline: self, passed, sleep: None }
    }
}

pin_project! {
    /// A future that ends with a status when the time is up. One that is ready at once needs no timer.
    pub(crate) struct Bounded<F> {
        #[pin]
        future: F,
        deadline: Deadline,
        passed: fn(Deadline) -> Status,
        // Boxed, so that only calls that have to wait hold the memory for it.
        sleep: Option<Pin<Box<Sleep>>>,
    }
}

impl<T, F: Future<Output = Result<T, Status>>> Future for Bounded<F> {
    type Output = Result<T, Status>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(result) = this.future.poll(cx) {
            return Poll::Ready(result);
        }
        let Some(at) = this.deadline.at else { return Poll::Pending };
        ready!(this.sleep.get_or_insert_with(|| Box::pin(sleep_until(at))).as_mut().poll(cx));
        Poll::Ready(Err((this.passed)(*this.deadline)))
    }
}

/// The times that a server lets calls take. What a caller says is moved between the shortest and the longest.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::{Server, Times};
///
/// let times = Times { max: Some(Duration::from_secs(60)), default: Some(Duration::from_secs(10)), ..Times::default() };
/// let server = Server::builder().times(times);
/// # let _ = server;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The shortest, for callers that would give up what they cannot get faster and only try again.
    pub min: Option<Duration>,
    /// The longest.
    pub max: Option<Duration>,
    /// The one of calls whose callers say nothing, as all plain callers do; a channel of an extended one says how long its unary
    /// calls take. The handler is dropped, and the call answered with
    /// [`DeadlineExceeded`](crate::Code::DeadlineExceeded), when it is over.
    pub default: Option<Duration>,
}

impl Times {
    /// Returns the time of a call whose caller gives it this one.
    pub(crate) fn of(self, timeout: Option<Duration>) -> Option<Duration> {
        let timeout = timeout.or(self.default).or(self.max)?;
        let at_least = self.min.map_or(timeout, |min| timeout.max(min));
        Some(self.max.map_or(at_least, |max| at_least.min(max)))
    }
}

/// The time that the caller gives a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTime {
    /// For everything up to the request being sent, and for the one answer to a stream from its end on.
    pub(crate) opening: Deadline,
    /// For all of the call, streams included.
    pub(crate) whole: Option<Deadline>,
}

impl CallTime {
    /// Starts now: with the timeout of the request for all of the call, or else that of the channel for its opening.
    pub(crate) fn start(request: Option<Duration>, channel: Duration) -> Self {
        Self::since(Instant::now(), request, channel)
    }

    pub(crate) fn since(start: Instant, request: Option<Duration>, channel: Duration) -> Self {
        let whole = request.map(|limit| Deadline::since(start, limit));
        Self { opening: whole.unwrap_or_else(|| Deadline::since(start, channel)), whole }
    }
}

/// Returns the status of a call whose handler was dropped because its caller gave it no more time.
pub(crate) fn out_of_time(left: Duration) -> Status {
    Status::deadline_exceeded(format!("{OUT_OF_TIME} {left:?} that its caller had left"))
}

/// Tells whether a status is one of [`out_of_time`].
pub(crate) fn is_out_of_time(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && status.message().starts_with(OUT_OF_TIME)
}

const OUT_OF_TIME: &str = "the call took longer than the";
