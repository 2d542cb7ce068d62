//! A token bucket against floods of useless packets.

use std::time::Duration;

use crate::clock::Instant;

/// A token bucket for control packets. Each packet takes a token; time and useful packets return tokens.
#[derive(Debug)]
pub(super) struct TokenBucket {
    burst: u32,
    left: u32,
    refilled: Instant,
}

impl TokenBucket {
    pub(super) fn new(now: Instant, burst: u32) -> Self {
        Self { burst, left: burst, refilled: now }
    }

    /// Takes one token. Returns `false` if the bucket is empty.
    pub(super) fn spend(&mut self, now: Instant) -> bool {
        self.refill(now);
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// Returns one token, for a packet with content.
    pub(super) fn earn(&mut self) {
        self.earn_several(1);
    }

    /// Returns one token for each of several packets.
    pub(super) fn earn_several(&mut self, count: usize) {
        self.left = self.burst.min(self.left.saturating_add(count.try_into().unwrap_or(u32::MAX)));
    }

    pub(super) fn burst(&self) -> u32 {
        self.burst
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

/// The time to fill an empty bucket.
const REFILL_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_refills() {
        let start = Instant::now();
        let mut budget = TokenBucket::new(start, 10);
        assert_eq!((0..20).filter(|_| budget.spend(start)).count(), 10);
        assert!(!budget.spend(start + Duration::from_millis(999)));
        assert!(budget.spend(start + Duration::from_secs(1)));
        assert!(!budget.spend(start + Duration::from_secs(1)));
        budget.earn();
        assert!(budget.spend(start + Duration::from_secs(1)));
        assert_eq!((0..20).filter(|_| budget.spend(start + Duration::from_secs(1000))).count(), 10);
    }
}
