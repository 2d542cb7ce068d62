//! The idle timeout of a plain connection.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use frpc::Drain;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

/// Ends the wait of a connection for input: after a timeout, or when the server shuts down.
pub(super) struct IdleTimer<'a> {
    drain: &'a Drain,
    time_max: Duration,
    until: Instant,
    /// `None` until the first wait.
    alarm: Option<IdleWakeups<'a>>,
}

/// The futures that wake a waiting connection. They are polled only when the waker changed or the timer fired, because
/// polling them costs more than the rest of a wait.
struct IdleWakeups<'a> {
    drain: BoxFuture<'a, ()>,
    /// A timer for the end of this wait or of an earlier one. A new wait does not reset it; it is reset when it fires
    /// early.
    late: Pin<Box<Sleep>>,
    wakes: Waker,
}

impl<'a> IdleTimer<'a> {
    pub(super) fn new(drain: &'a Drain, time_max: Duration) -> Self {
        Self { drain, time_max, until: Instant::now(), alarm: None }
    }

    /// Returns `true` if the server is shutting down.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_requested()
    }

    /// Starts the timeout of a new wait.
    pub(super) fn begin(&mut self) {
        let now = Instant::now();
        self.until = now.checked_add(self.time_max).unwrap_or(now + FAR);
    }

    /// Completes when the connection must end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { drain, until, .. } = *self;
        let alarm = self.alarm.get_or_insert_with(|| IdleWakeups {
            drain: Box::pin(drain.requested()),
            late: Box::pin(sleep_until(until)),
            wakes: Waker::noop().clone(),
        });
        loop {
            if drain.is_requested() {
                return Poll::Ready(());
            }
            if alarm.late.is_elapsed() {
                if until <= Instant::now() {
                    return Poll::Ready(());
                }
                // A new wait has begun since the timer was set. Both futures must be polled again for their wake-ups.
                alarm.late.as_mut().reset(until);
                alarm.wakes = Waker::noop().clone();
            }
            if alarm.wakes.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            alarm.wakes.clone_from(cx.waker());
            if alarm.drain.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if alarm.late.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Longer than any wait, and short enough to be added to an [`Instant`].
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);
