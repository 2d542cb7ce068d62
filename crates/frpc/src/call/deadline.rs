//! Deadlines and timeouts of calls.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{method::MethodKind, status::Status};

/// The deadline of a call or of one of its steps.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Deadline {
    /// The timeout counted from the start of the call.
    pub limit: Duration,
    /// The point in time. `None` if the clock cannot represent it.
    pub at: Option<Instant>,
}

impl Deadline {
    /// A deadline in the infinite future.
    pub(crate) const NEVER: Self = Self { limit: Duration::MAX, at: None };

    /// Returns the deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self::since(Instant::now(), limit)
    }

    #[inline]
    pub(crate) fn since(start: Instant, limit: Duration) -> Self {
        Self { limit, at: start.checked_add(limit) }
    }

    /// Returns `true` if the deadline has passed.
    pub fn is_over(self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Returns the remaining time, or `None` if the clock cannot represent the deadline.
    pub fn left(self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Fails a future with the status of `passed` when the deadline passes.
    pub(crate) fn bound_with<F>(self, future: F, passed: fn(Self) -> Status) -> DeadlineFuture<F> {
        DeadlineFuture { future, deadline: self, passed, sleep: None }
    }
}

pin_project! {
    /// A future that fails with a status at a deadline. It creates no timer if it is ready at the first poll.
    #[derive(Debug)]
    pub struct DeadlineFuture<F> {
        #[pin]
        future: F,
        deadline: Deadline,
        passed: fn(Deadline) -> Status,
        // Boxed, so that only calls that wait pay for its memory.
        sleep: Option<Pin<Box<Sleep>>>,
    }
}

impl<T, F: Future<Output = Result<T, Status>>> Future for DeadlineFuture<F> {
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

/// The time limit of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandlerTime {
    deadline: Deadline,
    passed: fn(Deadline) -> Status,
}

impl HandlerTime {
    /// Returns the point in time, or `None` if the clock cannot represent it.
    pub(crate) fn at(self) -> Option<frisbee::clock::Instant> {
        self.deadline.at.map(Instant::into_std)
    }

    /// Returns the time limit of the whole call.
    pub(crate) fn limit(self) -> Duration {
        self.deadline.limit
    }

    pub(crate) fn is_over(self) -> bool {
        self.deadline.is_over()
    }

    /// Returns the status sent to the caller when the time is up.
    pub(crate) fn status(self) -> Status {
        (self.passed)(self.deadline)
    }

    /// Bounds a handler. At the deadline, the returned future fails with the status for the caller.
    pub(crate) fn bound<F>(self, handling: F) -> DeadlineFuture<F> {
        self.deadline.bound_with(handling, self.passed)
    }
}

/// Bounds a handler by its time limit, if there is one.
#[inline]
pub(crate) fn within<F>(time: Option<HandlerTime>, handling: F) -> DeadlineFuture<F> {
    match time {
        Some(time) => time.bound(handling),
        None => Deadline::NEVER.bound(handling),
    }
}

/// Time limits of a server for calls to all methods ([`CallSettings::times`](crate::CallSettings::times)) or to one
/// ([`method_times`](crate::CallSettings::method_times)). Timeouts requested by callers are clamped between `min` and
/// `max`.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::{CallSettings, Server, TimeLimits};
///
/// let times = TimeLimits { max: Some(Duration::from_secs(60)), default: Some(Duration::from_secs(10)), ..TimeLimits::default() };
/// let server = Server::builder().calls(CallSettings { times, ..CallSettings::default() });
/// # let _ = server;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// The shortest time limit. Protects against callers that give up too early and then retry.
    pub min: Option<Duration>,
    /// The longest time limit.
    pub max: Option<Duration>,
    /// The limit of unary calls without a requested timeout. Plain callers never send one; other channels send the
    /// timeout of their unary calls. At the deadline, the server drops the handler and answers with
    /// [`DeadlineExceeded`](crate::Code::DeadlineExceeded). With `None`, `max` applies.
    pub default: Option<Duration>,
    /// The limit of streaming calls without a requested timeout. With `None`, they are unlimited, even if `max` is set.
    pub stream_default: Option<Duration>,
}

impl TimeLimits {
    #[inline]
    pub(crate) fn of(
        self,
        kind: MethodKind,
        timeout: Option<Duration>,
        start: impl FnOnce() -> Instant,
    ) -> Option<HandlerTime> {
        let unsaid = match kind {
            MethodKind::Unary => self.default.or(self.max),
            MethodKind::ServerStreaming | MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                self.stream_default
            }
        };
        let wanted = timeout.or(unsaid)?;
        let at_least = self.min.map_or(wanted, |min| wanted.max(min));
        let limit = self.max.map_or(at_least, |max| at_least.min(max));
        // The message names the side with the effective limit, because that side can change it.
        let passed = if timeout == Some(limit) {
            |Deadline { limit, .. }: Deadline| out_of_time(limit)
        } else {
            |Deadline { limit, .. }: Deadline| {
                Status::deadline_exceeded(format!("the call took longer than {limit:?}, the time limit of the server"))
            }
        };
        Some(HandlerTime { deadline: Deadline::since(start(), limit), passed })
    }
}

/// The deadlines of a call on the calling side.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallTime {
    /// The deadline for sending the request. A single answer to a request stream has the same time, counted from the
    /// end of that stream.
    pub opening: Deadline,
    /// The deadline of the whole call, streams included, if the request has a timeout.
    pub whole: Option<Deadline>,
}

impl CallTime {
    /// Starts the call now. A timeout of the request covers the whole call; otherwise the timeout of the channel covers
    /// its opening.
    pub(crate) fn start(request: Option<Duration>, channel: Duration) -> Self {
        Self::since(Instant::now(), request, channel)
    }

    #[inline]
    pub(crate) fn since(start: Instant, request: Option<Duration>, channel: Duration) -> Self {
        let whole = request.map(|limit| Deadline::since(start, limit));
        Self { opening: whole.unwrap_or_else(|| Deadline::since(start, channel)), whole }
    }

    /// Returns the deadline for the end of the answer. A unary call without a timeout uses the timeout of its channel.
    pub fn answer(self, kind: MethodKind) -> Option<Deadline> {
        if kind == MethodKind::Unary { Some(self.opening) } else { self.whole }
    }
}

/// Returns the status of a call dropped because the timeout of its caller passed.
pub(crate) fn out_of_time(left: Duration) -> Status {
    Status::deadline_exceeded(format!("the call took longer than {left:?}, the remaining timeout of its caller"))
}
