use std::time::{Duration, Instant};

use crate::system::monotonic_time;

/// The time span of counted calls.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start: Instant,
    end: Instant,
    /// `CLOCK_MONOTONIC` at `start`. `Instant` does not expose it.
    pub(crate) start_ns: u64,
}

impl Window {
    /// Creates a window that starts after `warmup` and lasts for `seconds`.
    pub fn after(warmup: Duration, seconds: Duration) -> Self {
        let start = Instant::now() + warmup;
        Self { start, end: start + seconds, start_ns: nanoseconds(monotonic_time() + warmup) }
    }

    /// Returns the end of the warm-up.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Returns the time after which no request is sent.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Returns the time at which a call without an answer counts as stuck.
    pub fn deadline(&self) -> Instant {
        self.end + ANSWER_GRACE
    }

    /// Returns the length of the window.
    pub fn duration(&self) -> Duration {
        self.end - self.start
    }

    /// Returns `true` if a call completed at `instant` counts.
    pub fn contains(&self, instant: Instant) -> bool {
        (self.start..self.end).contains(&instant)
    }
}

/// Returns a duration in nanoseconds. Overflows only after centuries.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

const ANSWER_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_includes_its_start_and_excludes_its_end() {
        let window = Window::after(Duration::ZERO, Duration::from_secs(3));
        assert!(window.contains(window.start()));
        assert!(!window.contains(window.end()));
    }
}
