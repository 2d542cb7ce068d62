//! The timer of a driver.

use std::{pin::Pin, task::Context, time::Duration};

use tokio::{
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

use crate::clock::TIME_MAX;

/// The next deadline of a connection, and the deadline of a failed socket.
pub(super) struct DriverTimer {
    sleep: Pin<Box<Sleep>>,
    /// `true` if the sleep has the waker of the driver.
    is_set: bool,
    /// Time at which a connection with a failed socket ends, even with work in progress.
    pub(super) give_up: Option<Instant>,
}

impl DriverTimer {
    pub(super) fn new(due: Option<Instant>) -> Self {
        Self { sleep: Box::pin(sleep_until(due.unwrap_or_else(far_future))), is_set: false, give_up: None }
    }

    /// Returns `true` if the timer has fired. Otherwise wakes the task when it does.
    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        !(self.is_set && now < self.sleep.deadline()) && self.poll_sleep(cx)
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> bool {
        // Handlers may have used up the budget of this task. A sleep without budget would not keep the waker.
        let has_fired = Pin::new(&mut unconstrained(self.sleep.as_mut())).poll(cx).is_ready();
        // Only a pending poll registers the waker.
        self.is_set = !has_fired;
        has_fired
    }

    /// Sets the next deadline after the timer has fired.
    pub(super) fn reset(&mut self, cx: &mut Context<'_>, next: Option<Instant>, now: Instant) {
        self.set(cx, next.unwrap_or_else(far_future).max(now + MOMENT));
    }

    /// Sets an earlier deadline.
    ///
    /// A later one leaves the timer unchanged: one early wake-up costs less than a reset in each turn.
    #[inline]
    pub(super) fn advance(&mut self, cx: &mut Context<'_>, next: Instant) {
        if next < self.sleep.deadline() {
            self.set(cx, next);
        }
    }

    /// Sets the deadline. One that has passed is for the next turn: the time of this turn is too early for it.
    fn set(&mut self, cx: &mut Context<'_>, next: Instant) {
        self.sleep.as_mut().reset(next);
        if self.poll_sleep(cx) {
            cx.waker().wake_by_ref();
        }
    }
}

/// Returns a time far in the future, for a timer without a deadline.
fn far_future() -> Instant {
    Instant::now() + TIME_MAX
}

const MOMENT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use tokio::{
        task::coop,
        time::{advance, timeout},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_set_without_budget_wakes_its_task() {
        let due = Instant::now() + Duration::from_secs(1);
        let mut timer = DriverTimer::new(Some(due));
        let firing = poll_fn(|cx| {
            while coop::has_budget_remaining()
                && let Poll::Ready(unit) = coop::poll_proceed(cx)
            {
                unit.made_progress();
            }
            if timer.poll(cx, Instant::now()) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(Duration::from_secs(60), firing).await.expect("the timer fires");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_passes_in_a_long_turn_is_handled_in_the_next_turn() {
        let turn = Instant::now();
        let mut timer = DriverTimer::new(Some(turn));
        let due = turn + MOMENT * 2;
        advance(MOMENT * 10).await;
        let mut turns = 0;
        let turns = poll_fn(|cx| {
            turns += 1;
            match turns {
                1 => {
                    assert!(timer.poll(cx, turn));
                    timer.reset(cx, Some(due), turn);
                    Poll::Pending
                }
                _ if timer.poll(cx, Instant::now()) => Poll::Ready(turns),
                _ => Poll::Pending,
            }
        });
        assert_eq!(timeout(Duration::from_secs(60), turns).await, Ok(2));
    }
}
