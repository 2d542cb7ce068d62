//! Endpoints with more failures than the rest.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// The rules for ejecting an endpoint from the choice, and the length of an ejection.
///
/// An endpoint is ejected after several failures in a row, or when a sweep finds more failures than for the rest. The
/// first ejection takes [`ejection`](Self::ejection), the second twice as long, and so on.
///
/// Fields may be added, so `..OutlierSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierSettings {
    /// The number of failures in a row before an ejection. Default 5; 0 disables this rule.
    pub failures_in_row: u32,
    /// The time between two sweeps. Default 10 s.
    pub sweep: Duration,
    /// The minimum number of endpoints with enough calls for a sweep. Default 5.
    pub endpoints_min: usize,
    /// The minimum number of calls of an endpoint since the last sweep. Default 50.
    pub calls_min: u32,
    /// The maximum share of failed calls. Default 0.85.
    pub failures_max: f32,
    /// The maximum distance of the share of successful calls below the mean of all, in standard deviations. Default 1.9.
    pub deviations_max: f32,
    /// The length of the first ejection. Default 30 s.
    pub ejection: Duration,
    /// The maximum length of an ejection. Default 300 s.
    pub ejection_max: Duration,
    /// The maximum share of ejected endpoints. Among several, one may always be ejected. Default 0.1.
    pub ejected_max: f32,
}

impl Default for OutlierSettings {
    fn default() -> Self {
        Self {
            failures_in_row: 5,
            sweep: Duration::from_secs(10),
            endpoints_min: 5,
            calls_min: 50,
            failures_max: 0.85,
            deviations_max: 1.9,
            ejection: Duration::from_secs(30),
            ejection_max: Duration::from_secs(300),
            ejected_max: 0.1,
        }
    }
}

impl OutlierSettings {
    /// Returns the length of an ejection after `before` earlier ones.
    pub fn ejection_after(&self, before: u32) -> Duration {
        self.ejection.saturating_mul(before.saturating_add(1)).min(self.ejection_max)
    }

    /// Returns the maximum number of ejected endpoints among `all`.
    pub fn ejected_max(&self, all: usize) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
        let share = (all as f32 * self.ejected_max) as usize;
        share.max(1).min(all.saturating_sub(1))
    }

    /// Returns the indices of the outliers among the calls of all endpoints.
    pub fn outliers(&self, calls: &[CallCounts]) -> Vec<usize> {
        let counted: Vec<_> = calls
            .iter()
            .enumerate()
            .filter(|(_, calls)| calls.all() >= self.calls_min.max(1))
            .map(|(index, calls)| (index, f64::from(calls.succeeded) / f64::from(calls.all())))
            .collect();
        if counted.len() < self.endpoints_min {
            return Vec::new();
        }
        let len = counted.len() as f64;
        let mean = counted.iter().map(|(_, rate)| rate).sum::<f64>() / len;
        let variance = counted.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / len;
        let least = mean - f64::from(self.deviations_max) * variance.sqrt();
        let is_outlier = |rate: f64| rate < least || 1.0 - rate > f64::from(self.failures_max);
        counted.into_iter().filter(|(_, rate)| is_outlier(*rate)).map(|(index, _)| index).collect()
    }
}

/// The outcomes of the calls to one endpoint.
#[derive(Debug, Default)]
pub struct CallOutcomes {
    failures_in_row: AtomicU32,
    /// Successful calls since the last sweep in the lower half, failed ones in the upper half.
    counts: AtomicU64,
}

/// The calls to one endpoint since the last sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls with an answer.
    pub succeeded: u32,
    /// Calls failed by the fault of the endpoint.
    pub failed: u32,
}

impl CallCounts {
    fn all(self) -> u32 {
        self.succeeded.saturating_add(self.failed)
    }
}

impl CallOutcomes {
    /// Counts a successful call.
    #[inline]
    pub fn succeed(&self) {
        self.counts.fetch_add(1, Ordering::Relaxed);
        // Read first: the line of an endpoint without failures needs no second write.
        if self.failures_in_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_row.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed call. Returns the number of failures in a row.
    pub fn fail(&self) -> u32 {
        self.counts.fetch_add(1 << 32, Ordering::Relaxed);
        self.failures_in_row.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the counts, and starts over.
    pub fn take(&self) -> CallCounts {
        let counts = self.counts.swap(0, Ordering::Relaxed);
        let part = |shift: u32| u32::try_from(counts >> shift & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        CallCounts { succeeded: part(0), failed: part(32) }
    }

    /// Forgets the failures in a row, at the end of an ejection.
    pub fn reset(&self) {
        self.failures_in_row.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(u32, u32)]) -> Vec<CallCounts> {
        all.iter().map(|(succeeded, failed)| CallCounts { succeeded: *succeeded, failed: *failed }).collect()
    }

    #[test]
    fn an_endpoint_that_fails_more_often_than_others_is_an_outlier() {
        let settings = OutlierSettings::default();
        let all = counts(&[(100, 0), (99, 1), (60, 40), (100, 0), (98, 2), (97, 3)]);
        assert_eq!(settings.outliers(&all), [2]);
        let equal = counts(&[(90, 10), (91, 9), (89, 11), (90, 10), (92, 8)]);
        assert!(settings.outliers(&equal).len() <= 1, "equal endpoints stay");
    }

    #[test]
    fn an_endpoint_that_mostly_fails_is_an_outlier_even_among_bad_ones() {
        let settings = OutlierSettings::default();
        let all = counts(&[(40, 60), (10, 90), (45, 55), (12, 88), (50, 50), (48, 52)]);
        assert_eq!(settings.outliers(&all), [1, 3]);
    }

    #[test]
    fn too_few_calls_or_endpoints_prove_nothing() {
        let settings = OutlierSettings::default();
        assert_eq!(settings.outliers(&counts(&[(100, 0), (100, 0), (0, 100), (100, 0)])), []);
        assert_eq!(settings.outliers(&counts(&[(100, 0), (100, 0), (100, 0), (100, 0), (100, 0), (0, 49)])), []);
        assert_eq!(settings.outliers(&[]), []);
    }

    #[test]
    fn outcomes_count_failures_in_a_row() {
        let outcomes = CallOutcomes::default();
        assert_eq!([outcomes.fail(), outcomes.fail()], [1, 2]);
        outcomes.succeed();
        assert_eq!(outcomes.fail(), 1);
        assert_eq!(outcomes.take(), CallCounts { succeeded: 1, failed: 3 });
        assert_eq!(outcomes.take(), CallCounts::default());
        outcomes.reset();
        assert_eq!(outcomes.fail(), 1);
    }

    #[test]
    fn ejections_grow_and_leave_endpoints() {
        let settings = OutlierSettings::default();
        assert_eq!([0, 1, 20].map(|before| settings.ejection_after(before).as_secs()), [30, 60, 300]);
        assert_eq!([0, 1, 2, 19, 40].map(|all| settings.ejected_max(all)), [0, 0, 1, 1, 4]);
    }
}
