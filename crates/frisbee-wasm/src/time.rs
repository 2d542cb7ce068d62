//! Timers with the interface of `tokio::time`.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{Either, select};

use crate::timers::{self, TimerKey};

/// A moment, as `tokio::time::Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(web_time::Instant);

impl Instant {
    /// Returns the current moment.
    pub fn now() -> Self {
        Self(web_time::Instant::now())
    }

    /// Converts from the clock of the browser.
    pub fn from_std(instant: web_time::Instant) -> Self {
        Self(instant)
    }

    /// Converts to the clock of the browser.
    pub fn into_std(self) -> web_time::Instant {
        self.0
    }

    /// Returns the time since this moment.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Returns the time since an earlier moment, or zero if it is later.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.duration_since(earlier.0)
    }

    /// Returns the time since an earlier moment, or zero if it is later.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Returns the time since an earlier moment, or `None` if it is later.
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// Returns a later moment, or `None` if the clock does not reach it.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// Returns an earlier moment, or `None` if the clock does not reach it.
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl From<web_time::Instant> for Instant {
    fn from(instant: web_time::Instant) -> Self {
        Self(instant)
    }
}

impl From<Instant> for web_time::Instant {
    fn from(instant: Instant) -> Self {
        instant.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// A wait until a moment.
#[derive(Debug)]
pub struct Sleep {
    end: Instant,
    key: Option<TimerKey>,
}

impl Sleep {
    /// Returns the end of the wait.
    pub fn deadline(&self) -> Instant {
        self.end
    }

    /// Returns `true` after the end.
    pub fn is_elapsed(&self) -> bool {
        self.end <= Instant::now()
    }

    /// Changes the end of the wait.
    pub fn reset(self: Pin<&mut Self>, end: Instant) {
        let this = self.get_mut();
        this.key.take().into_iter().for_each(timers::remove);
        this.end = end;
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.is_elapsed() {
            this.key.take().into_iter().for_each(timers::remove);
            return Poll::Ready(());
        }
        match this.key {
            Some(key) => timers::set_waker(key, cx.waker()),
            None => this.key = Some(timers::add(this.end.0, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.key.take().into_iter().for_each(timers::remove);
    }
}

/// Waits for a time.
pub fn sleep(duration: Duration) -> Sleep {
    let now = Instant::now();
    sleep_until(now.checked_add(duration).unwrap_or(now + FAR_FUTURE))
}

/// Waits until a moment.
pub fn sleep_until(end: Instant) -> Sleep {
    Sleep { end, key: None }
}

/// The error of [`timeout`] and [`timeout_at`].
#[derive(Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Waits for a future, and drops it after a time.
pub async fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    within(sleep(duration), future.into_future()).await
}

/// Waits for a future, and drops it at a moment.
pub async fn timeout_at<F: IntoFuture>(end: Instant, future: F) -> Result<F::Output, Elapsed> {
    within(sleep_until(end), future.into_future()).await
}

async fn within<F: Future>(sleep: Sleep, future: F) -> Result<F::Output, Elapsed> {
    match select(std::pin::pin!(future), sleep).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(((), _)) => Err(Elapsed(())),
    }
}

/// The policy of an [`Interval`] after a late tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// The next ticks follow without a pause.
    #[default]
    Burst,
    /// The next tick is one period later.
    Delay,
    /// The next tick is at the next multiple of the period.
    Skip,
}

/// A series of ticks.
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Sets the policy after a late tick.
    pub fn set_missed_tick_behavior(&mut self, missed: MissedTickBehavior) {
        self.missed = missed;
    }

    /// Waits for the next tick.
    pub async fn tick(&mut self) -> Instant {
        sleep_until(self.next).await;
        let (tick, now) = (self.next, Instant::now());
        self.next = match self.missed {
            MissedTickBehavior::Burst => tick + self.period,
            MissedTickBehavior::Delay => now + self.period,
            MissedTickBehavior::Skip => {
                let mut next = tick + self.period;
                while next <= now {
                    next += self.period;
                }
                next
            }
        };
        tick
    }
}

/// Returns a series of ticks. The first is now.
///
/// # Panics
///
/// Panics if the period is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { next: Instant::now(), period, missed: MissedTickBehavior::Burst }
}

/// Far beyond the life of a page.
const FAR_FUTURE: Duration = Duration::from_secs(86_400 * 365 * 30);
