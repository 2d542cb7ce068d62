//! The time that a call may take.

use std::time::Duration;

use frpc::{Call, CallError, MethodKind, Status};
use tokio::time::{Instant, timeout_at};

/// A time that is up at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) limit: Duration,
    /// `None` if it is too far away to tell.
    pub(super) at: Option<Instant>,
}

/// The times of a call, as those of [`Channel`](frpc::Channel) are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// For everything up to the request being sent, and for the one answer to a stream from its end on.
    pub(super) opening: Deadline,
    /// For all of the call, streams included.
    pub(super) whole: Option<Deadline>,
    kind: MethodKind,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self { limit, at: Instant::now().checked_add(limit) }
    }

    /// Lets the wait for an answer take no longer.
    pub(super) async fn bound<T>(self, wait: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        self.bound_with(wait, |limit| CallError::TimedOut { limit }).await
    }

    /// Lets what comes before the request is sent take no longer.
    pub(super) async fn bound_unsent<T>(self, wait: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        self.bound_with(wait, |limit| CallError::NotSent { limit }).await
    }

    async fn bound_with<T>(
        self,
        wait: impl Future<Output = Result<T, Status>>,
        passed: fn(Duration) -> CallError,
    ) -> Result<T, Status> {
        match self.at {
            None => wait.await,
            Some(at) => timeout_at(at, wait).await.unwrap_or_else(|_| Err(passed(self.limit).into())),
        }
    }

    pub(super) fn is_over(self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    pub(super) fn passed(self) -> Status {
        CallError::TimedOut { limit: self.limit }.into()
    }
}

impl Times {
    /// Starts now.
    pub(super) fn of(call: &Call) -> Self {
        let whole = call.head().timeout().map(Deadline::after);
        let opening = whole.unwrap_or_else(|| Deadline::after(call.opening_timeout()));
        Self { opening, whole, kind: call.kind() }
    }

    /// Returns the deadline of the whole call: of a unary one, that is the time of the channel if it has none of its own.
    pub(super) fn answer(self) -> Option<Deadline> {
        if self.kind == MethodKind::Unary { Some(self.opening) } else { self.whole }
    }

    /// Returns the time to tell the server of when a call is sent as soon as it is made: all of it. Calls with the same limit have
    /// the same header then, which takes a byte of HTTP/2.
    pub(super) fn told_at_once(self) -> Option<Duration> {
        self.answer().filter(|deadline| deadline.at.is_some()).map(|deadline| deadline.limit)
    }

    /// Returns the time to tell the server of: what is left of it now.
    pub(super) fn told(self) -> Option<Duration> {
        self.answer()?.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Bounds a wait, if there is a bound.
pub(super) async fn bounded<T>(
    deadline: Option<Deadline>,
    wait: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        Some(deadline) => deadline.bound(wait).await,
        None => wait.await,
    }
}
