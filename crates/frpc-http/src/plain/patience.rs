//! The wait for the next request of a connection.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use frpc::Drain;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

/// Tells when a connection without requests is to end: after some time, or when the server shuts down.
pub(super) struct Patience<'a> {
    drain: &'a Drain,
    time_max: Duration,
    until: Instant,
    /// Absent until a wait has begun.
    alarm: Option<Alarm<'a>>,
}

/// Wakes the task of the connection. Both are asked only if they could have to wake another one than before: asking takes more
/// than all the rest of a wait.
struct Alarm<'a> {
    drain: BoxFuture<'a, ()>,
    /// At the end of this wait or of one before it.
    late: Pin<Box<Sleep>>,
    wakes: Waker,
}

impl<'a> Patience<'a> {
    pub(super) fn new(drain: &'a Drain, time_max: Duration) -> Self {
        Self { drain, time_max, until: Instant::now(), alarm: None }
    }

    /// Returns whether the server is shutting down.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_requested()
    }

    /// Begins a wait.
    pub(super) fn begin(&mut self) {
        let now = Instant::now();
        self.until = now.checked_add(self.time_max).unwrap_or(now + FAR);
    }

    /// Waits until the connection is to end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { drain, until, .. } = *self;
        let alarm = self.alarm.get_or_insert_with(|| Alarm {
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

/// Later than anybody waits.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);
