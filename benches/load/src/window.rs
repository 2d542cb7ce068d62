use std::time::{Duration, Instant};

use crate::system::monotonic_time;

/// The span of time whose calls are counted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start: Instant,
    end: Instant,
    /// `CLOCK_MONOTONIC` at `start`, which `Instant` keeps to itself.
    pub(crate) start_ns: u64,
}

impl Window {
    /// Lasts for `seconds` once `warmup` has passed from now on.
    pub fn after(warmup: Duration, seconds: Duration) -> Self {
        let start = Instant::now() + warmup;
        Self { start, end: start + seconds, start_ns: nanoseconds(monotonic_time() + warmup) }
    }

    /// When warm-up ends.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// From here on no request is sent.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// A call without an answer by now is stuck.
    pub fn deadline(&self) -> Instant {
        self.end + ANSWER_GRACE
    }

    /// The time in which calls are counted.
    pub fn duration(&self) -> Duration {
        self.end - self.start
    }

    /// Returns whether a call that completed at `instant` counts.
    pub fn contains(&self, instant: Instant) -> bool {
        (self.start..self.end).contains(&instant)
    }
}

/// Lasts for centuries before it overflows.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

const ANSWER_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_counts_and_the_end_does_not() {
        let window = Window::after(Duration::ZERO, Duration::from_secs(3));
        assert!(window.contains(window.start()));
        assert!(!window.contains(window.end()));
    }
}
