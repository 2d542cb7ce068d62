//! The allowance of packets that cost this side work and bring it nothing.

use std::time::{Duration, Instant};

/// A bucket of control packets: each takes one out, time and useful packets put them back.
#[derive(Debug)]
pub(super) struct Budget {
    burst: u32,
    left: u32,
    refilled: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant, burst: u32) -> Self {
        Self { burst, left: burst, refilled: now }
    }

    /// Takes one out: `false` if the bucket is empty.
    pub(super) fn spend(&mut self, now: Instant) -> bool {
        self.refill(now);
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// Puts one back, for a packet with content.
    pub(super) fn earn(&mut self) {
        self.earn_several(1);
    }

    /// Puts one back for each of several packets.
    pub(super) fn earn_several(&mut self, count: usize) {
        self.left = self.burst.min(self.left.saturating_add(count.try_into().unwrap_or(u32::MAX)));
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled);
        if elapsed >= REFILL_TIME {
            (self.left, self.refilled) = (self.burst, now);
            return;
        }
        let earned = (elapsed * self.burst).as_nanos() / REFILL_TIME.as_nanos();
        if let Ok(earned @ 1..) = u32::try_from(earned) {
            self.left = self.burst.min(self.left.saturating_add(earned));
            self.refilled += REFILL_TIME * earned / self.burst;
        }
    }
}

/// A full bucket flows in during this time.
const REFILL_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_refills() {
        let start = Instant::now();
        let mut budget = Budget::new(start, 10);
        assert_eq!((0..20).filter(|_| budget.spend(start)).count(), 10);
        assert!(!budget.spend(start + Duration::from_millis(999)));
        assert!(budget.spend(start + Duration::from_secs(1)));
        assert!(!budget.spend(start + Duration::from_secs(1)));
        budget.earn();
        assert!(budget.spend(start + Duration::from_secs(1)));
        assert_eq!((0..20).filter(|_| budget.spend(start + Duration::from_secs(1000))).count(), 10);
    }
}
