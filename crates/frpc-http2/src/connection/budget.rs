//! Budgets against floods of useless frames.

use std::time::{Duration, Instant};

/// A budget refilled by useful work: completed streams, or frames with content.
#[derive(Debug)]
pub(super) struct WorkBudget {
    left: u32,
    max: u32,
}

impl WorkBudget {
    pub(super) fn new(max: u32) -> Self {
        Self { left: max, max }
    }

    /// Takes one unit. Returns `false` if none is left.
    #[inline]
    pub(super) fn spend(&mut self) -> bool {
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// Returns one unit.
    #[inline]
    pub(super) fn earn(&mut self) {
        if self.left < self.max {
            self.left += 1;
        }
    }
}

/// A budget refilled by time, once it is used up.
#[derive(Debug)]
pub(super) struct RateBudget {
    left: u32,
    per_second: u32,
    refilled: Instant,
}

impl RateBudget {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { left: per_second, per_second, refilled: now }
    }

    /// Takes one unit. Returns `false` if none is left.
    pub(super) fn spend(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            if now.saturating_duration_since(self.refilled) < Duration::from_secs(1) {
                return false;
            }
            (self.left, self.refilled) = (self.per_second, now);
        }
        self.left = self.left.saturating_sub(1);
        self.per_second > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_returns_one_unit_each_and_no_more_than_the_maximum() {
        let mut budget = WorkBudget::new(2);
        budget.earn();
        assert_eq!([budget.spend(), budget.spend(), budget.spend()], [true, true, false]);
        budget.earn();
        assert_eq!([budget.spend(), budget.spend()], [true, false]);
    }

    #[test]
    fn a_second_refills_a_rate() {
        let now = Instant::now();
        let mut budget = RateBudget::new(2, now);
        assert_eq!([budget.spend(now), budget.spend(now), budget.spend(now)], [true, true, false]);
        assert!(!budget.spend(now + Duration::from_millis(999)));
        let later = now + Duration::from_secs(1);
        assert_eq!([budget.spend(later), budget.spend(later), budget.spend(later)], [true, true, false]);
        assert!(!RateBudget::new(0, now).spend(later));
    }
}
