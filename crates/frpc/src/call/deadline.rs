//! The time that a call may take.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    method::{Method, MethodKind},
    status::Status,
};

/// The end of the time for a call, or for a step of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Deadline {
    /// The time from the start of the call.
    pub limit: Duration,
    /// The moment. `None` if it is too far away for a clock.
    pub at: Option<Instant>,
}

impl Deadline {
    /// The one that never passes.
    pub(crate) const NEVER: Self = Self { limit: Duration::MAX, at: None };

    /// Returns the deadline in this time from now.
    pub fn after(limit: Duration) -> Self {
        Self::since(Instant::now(), limit)
    }

    pub(crate) fn since(start: Instant, limit: Duration) -> Self {
        Self { limit, at: start.checked_add(limit) }
    }

    /// Returns whether the time is up.
    pub fn is_over(self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Returns the time that is left. `None` if the deadline is too far away for a clock.
    pub fn left(self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Ends a wait with a status when the time is up.
    pub(crate) fn bound_with<F>(self, future: F, passed: fn(Self) -> Status) -> Bounded<F> {
        Bounded { future, deadline: self, passed, sleep: None }
    }
}

pin_project! {
    /// A future with a deadline, after which it fails with a status. It needs no timer if it is ready at the first poll.
    #[derive(Debug)]
    pub struct Bounded<F> {
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

/// The time that a handler may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandlerTime {
    deadline: Deadline,
    passed: fn(Deadline) -> Status,
}

impl HandlerTime {
    /// Returns when the time is up. `None` if that is too far away to tell.
    pub(crate) fn at(self) -> Option<std::time::Instant> {
        self.deadline.at.map(Instant::into_std)
    }

    /// Returns how long the call may take in all.
    pub(crate) fn limit(self) -> Duration {
        self.deadline.limit
    }

    pub(crate) fn is_over(self) -> bool {
        self.deadline.is_over()
    }

    /// Returns the status that the caller gets when the time is up.
    pub(crate) fn status(self) -> Status {
        (self.passed)(self.deadline)
    }

    /// Drops a handler, with the status that its caller gets, when the time is up.
    pub(crate) fn bound<F>(self, handling: F) -> Bounded<F> {
        self.deadline.bound_with(handling, self.passed)
    }
}

/// The times that a server lets calls take, for all methods ([`ServerBuilder::times`](crate::ServerBuilder::times)) or for one
/// ([`method_times`](crate::ServerBuilder::method_times)). What a caller says is moved between the shortest and the longest.
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
    /// The one of unary calls whose callers say nothing, as all plain callers do; a channel of an extended one says how long its
    /// unary calls take. The handler is dropped, and the call answered with
    /// [`DeadlineExceeded`](crate::Code::DeadlineExceeded), when it is over. With `None`, it is the longest.
    pub default: Option<Duration>,
    /// The one of calls with streams whose callers say nothing. With `None`, they take as long as they like, whatever the longest
    /// is.
    pub stream_default: Option<Duration>,
}

/// The times of a server, with those of single methods.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerTimes {
    pub(crate) all: Times,
    pub(crate) methods: Vec<(&'static Method, Times)>,
}

impl ServerTimes {
    /// Returns whether calls take as long as their callers say.
    pub(crate) fn are_open(&self) -> bool {
        self.all == Times::default() && self.methods.is_empty()
    }

    /// Returns the time of a call to a method whose caller gives it this one, from `start` on.
    pub(crate) fn of(&self, method: &Method, timeout: Option<Duration>, start: Instant) -> Option<HandlerTime> {
        let own = self.methods.iter().rfind(|(own, _)| *own == method);
        own.map_or(self.all, |(_, times)| *times).of(method.kind, timeout, start)
    }
}

impl Times {
    pub(crate) fn of(self, kind: MethodKind, timeout: Option<Duration>, start: Instant) -> Option<HandlerTime> {
        let unsaid = match kind {
            MethodKind::Unary => self.default.or(self.max),
            MethodKind::ServerStreaming | MethodKind::ClientStreaming | MethodKind::Bidirectional => {
                self.stream_default
            }
        };
        let wanted = timeout.or(unsaid)?;
        let at_least = self.min.map_or(wanted, |min| wanted.max(min));
        let limit = self.max.map_or(at_least, |max| at_least.min(max));
        // The side that set it is named, because it can change it.
        let passed = if timeout == Some(limit) {
            |Deadline { limit, .. }: Deadline| out_of_time(limit)
        } else {
            |Deadline { limit, .. }: Deadline| {
                Status::deadline_exceeded(format!("the server lets the call take {limit:?}"))
            }
        };
        Some(HandlerTime { deadline: Deadline::since(start, limit), passed })
    }
}

/// The deadlines of a call on the calling side.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallTime {
    /// The deadline for sending the request. The single answer to a stream of requests has the same time from the end of that stream.
    pub opening: Deadline,
    /// The deadline of the whole call, streams included, if the request has a timeout.
    pub whole: Option<Deadline>,
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

    /// Returns the deadline for the end of the answer. A unary call without a timeout has that of its channel.
    pub fn answer(self, kind: MethodKind) -> Option<Deadline> {
        if kind == MethodKind::Unary { Some(self.opening) } else { self.whole }
    }
}

/// Returns the status of a call whose handler was dropped because its caller gave it no more time.
pub(crate) fn out_of_time(left: Duration) -> Status {
    Status::deadline_exceeded(format!("the call took longer than the {left:?} that its caller had left"))
}
