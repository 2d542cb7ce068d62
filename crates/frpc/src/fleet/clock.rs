//! The time of a channel to several servers.

use std::time::Duration;

use frisbee::clock::TIME_MAX;
use tokio::time::Instant;

/// Counts time from the start of the channel, in the form of the rules of `frisbee-rpc-balance`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetClock(Instant);

impl FleetClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Duration {
        self.at(Instant::now())
    }

    #[inline]
    pub(super) fn at(self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.0)
    }
}

/// Returns the time after a pause. No pause overflows the clock: above a year, it counts as a year.
pub(super) fn after(pause: Duration) -> Instant {
    Instant::now() + pause.min(TIME_MAX)
}
