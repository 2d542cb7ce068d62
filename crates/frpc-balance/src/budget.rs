//! A limit on the share of repeated calls.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The limit on retries and hedged calls together.
///
/// Fields may be added, so `..BudgetSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetSettings {
    /// The repeated calls per call of the last ten seconds. Default 0.2.
    pub ratio: f32,
    /// The repeated calls allowed in each second apart from the ratio, for callers with few calls. Default 10.
    pub per_second: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { ratio: 0.2, per_second: 10 }
    }
}

/// Counts calls and repeated calls over ten seconds. Without it, the retries of all callers would multiply the load of
/// overloaded servers.
#[derive(Debug)]
pub struct RetryBudget {
    settings: BudgetSettings,
    calls: [SecondCounter; WINDOW],
    repeated: [SecondCounter; WINDOW],
}

/// The count of one second in the lower half, the number of that second in the upper half.
#[derive(Debug, Default)]
struct SecondCounter(AtomicU64);

impl SecondCounter {
    #[inline]
    fn add(&self, second: u32) {
        let state = self.0.load(Ordering::Relaxed);
        if state >> 32 == u64::from(second) {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.start(state, second);
        }
    }

    /// Begins the count of another second. A concurrent count may be lost.
    #[cold]
    fn start(&self, before: u64, second: u32) {
        let started = u64::from(second) << 32 | 1;
        if self.0.compare_exchange(before, started, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count, if it belongs to the window with its end at `second`.
    fn get(&self, second: u32) -> u32 {
        let state = self.0.load(Ordering::Relaxed);
        let age = u64::from(second).wrapping_sub(state >> 32);
        if age < WINDOW as u64 { u32::try_from(state & u64::from(u32::MAX)).unwrap_or(u32::MAX) } else { 0 }
    }
}

impl RetryBudget {
    /// Creates the budget of a caller without calls so far. Times count from the start of the client.
    pub fn new(settings: BudgetSettings) -> Self {
        Self { settings, calls: Default::default(), repeated: Default::default() }
    }

    /// Counts a call.
    #[inline]
    pub fn call(&self, now: Duration) {
        let second = second(now);
        self.calls[second as usize % WINDOW].add(second);
    }

    /// Counts a repeated call if the budget allows it.
    pub fn try_spend(&self, now: Duration) -> bool {
        let second = second(now);
        let [calls, repeated] = [&self.calls, &self.repeated]
            .map(|counters| counters.iter().map(|counter| u64::from(counter.get(second))).sum::<u64>());
        let reserve = u64::from(self.settings.per_second) * WINDOW as u64;
        let is_allowed = (repeated + 1) as f64 <= calls as f64 * f64::from(self.settings.ratio) + reserve as f64;
        if is_allowed {
            self.repeated[second as usize % WINDOW].add(second);
        }
        is_allowed
    }
}

/// Returns the number of the second, never zero: an unused counter is of second zero.
#[inline]
fn second(now: Duration) -> u32 {
    u32::try_from(now.as_secs() + WINDOW as u64).unwrap_or(u32::MAX)
}

/// The number of seconds in the window.
const WINDOW: usize = 10;
/// The same as a duration.
pub const BUDGET_WINDOW: Duration = Duration::from_secs(WINDOW as u64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quiet_caller_may_repeat_some_calls() {
        let epoch = Duration::from_secs(7);
        let budget = RetryBudget::new(BudgetSettings::default());
        assert_eq!((0..1_000).filter(|_| budget.try_spend(epoch)).count(), 100, "ten per second of the window");
        assert!(!budget.try_spend(epoch + Duration::from_secs(9)));
        assert!(budget.try_spend(epoch + BUDGET_WINDOW), "the window has passed");
    }

    #[test]
    fn a_busy_caller_may_repeat_a_share() {
        let epoch = Duration::from_secs(7);
        let budget = RetryBudget::new(BudgetSettings { per_second: 0, ..BudgetSettings::default() });
        assert!(!budget.try_spend(epoch));
        for _ in 0..1_000 {
            budget.call(epoch);
        }
        assert_eq!((0..1_000).filter(|_| budget.try_spend(epoch)).count(), 200);
    }

    proptest! {
        #[test]
        fn repeats_stay_within_the_share(steps in proptest::collection::vec((0_u64..3_000, 0..50_u32, 0..50_u32), 1..60)) {
            let epoch = Duration::from_secs(7);
            let settings = BudgetSettings { ratio: 0.2, per_second: 3 };
            let budget = RetryBudget::new(settings);
            let (mut millis, mut calls, mut repeated) = (0, 0_u32, 0_u32);
            for (pause, new, wanted) in steps {
                millis += pause;
                let now = epoch + Duration::from_millis(millis);
                (0..new).for_each(|_| budget.call(now));
                calls += new;
                repeated += u32::try_from((0..wanted).filter(|_| budget.try_spend(now)).count()).unwrap();
                // Each window allows the share of its calls and the reserve of ten seconds.
                let windows = millis / 10_000 + 2;
                let most = f64::from(calls) * 0.2 * 2.0 + (windows * 30) as f64;
                prop_assert!(f64::from(repeated) <= most, "{repeated} of {calls}");
            }
        }
    }
}
