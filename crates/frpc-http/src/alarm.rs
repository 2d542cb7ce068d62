//! The timer of a connection, and its wake-up when the server shuts down.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use frpc::Drain;
use futures_util::future::BoxFuture;
use tokio::{
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

use crate::settings::TIME_MAX;

/// Wakes a connection at a given time, and once when the server shuts down.
pub(crate) struct Alarm<'a> {
    /// `None` for clients.
    drain: Option<&'a Drain>,
    is_drain_reported: bool,
    due: Option<Instant>,
    /// `None` until the first wait.
    wakeups: Option<Wakeups<'a>>,
}

/// The reason why an [`Alarm`] went off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlarmCause {
    /// The server is shutting down. This is reported once.
    Drain,
    /// The time is over.
    Time,
}

/// The futures that wake a waiting connection. They are polled only when the waker changed or the timer fired, because
/// polling them costs more than the rest of a wait.
struct Wakeups<'a> {
    drain: Option<BoxFuture<'a, ()>>,
    /// A timer for the time of this wait or for an earlier one. It is not reset for a later time until it fires.
    late: Pin<Box<Sleep>>,
    waker: Waker,
}

impl<'a> Alarm<'a> {
    pub(crate) fn new(drain: &'a Drain) -> Self {
        Self { drain: Some(drain), is_drain_reported: false, due: None, wakeups: None }
    }

    /// Creates an alarm for a client, which goes off at its time only.
    #[cfg(feature = "http2")]
    pub(crate) fn timer() -> Self {
        Self { drain: None, is_drain_reported: true, due: None, wakeups: None }
    }

    /// Returns `true` if the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_some_and(Drain::is_requested)
    }

    /// Sets the time, or removes it.
    pub(crate) fn set(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// Completes at the set time, which is removed then, and when the server shuts down.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AlarmCause> {
        if !self.is_drain_reported && self.is_draining() {
            self.is_drain_reported = true;
            return Poll::Ready(AlarmCause::Drain);
        }
        let (drain, due) = (self.drain, self.due);
        let wakeups = self.wakeups.get_or_insert_with(|| Wakeups {
            drain: drain.map(|drain| Box::pin(drain.requested()) as BoxFuture<'a, ()>),
            late: Box::pin(sleep_until(due.unwrap_or_else(far))),
            waker: Waker::noop().clone(),
        });
        if let Some(due) = due.filter(|due| *due < wakeups.late.deadline()) {
            wakeups.late.as_mut().reset(due);
            wakeups.waker = Waker::noop().clone();
        }
        loop {
            if wakeups.late.is_elapsed() {
                if due.is_some_and(|due| due <= Instant::now()) {
                    self.due = None;
                    return Poll::Ready(AlarmCause::Time);
                }
                // The time has moved since the timer was set. The timer must be polled again for its wake-up.
                wakeups.late.as_mut().reset(due.unwrap_or_else(far));
                wakeups.waker = Waker::noop().clone();
            }
            if wakeups.waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            wakeups.waker.clone_from(cx.waker());
            if !self.is_drain_reported
                && let Some(drain) = &mut wakeups.drain
                && drain.as_mut().poll(cx).is_ready()
            {
                self.is_drain_reported = true;
                return Poll::Ready(AlarmCause::Drain);
            }
            // Handlers may have used up the budget of this task. A sleep without budget would not keep the waker.
            if Pin::new(&mut unconstrained(wakeups.late.as_mut())).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Returns a time after any wait.
fn far() -> Instant {
    Instant::now() + TIME_MAX
}
