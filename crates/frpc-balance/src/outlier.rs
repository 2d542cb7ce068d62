//! Endpoints with more failures than the rest.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The rules for ejecting an endpoint from the choice, and the length of an ejection.
///
/// An endpoint is ejected after several failures in a row, or when a sweep finds it worse than the rest by one of three
/// rules. The first ejection takes [`ejection`](Self::ejection), the second twice as long, and so on.
///
/// Fields may be added, so `..OutlierSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierSettings {
    /// The number of failures in a row before an ejection. Default 5; 0 disables this rule.
    pub failures_in_row: u32,
    /// The time between two sweeps. Default 10 s.
    pub sweep: Duration,
    /// Ejects an endpoint if its share of successful calls is below the mean of all by more than the threshold, in standard
    /// deviations. Default 1.9, 5 endpoints, 100 calls.
    pub success_rate: Option<OutlierRule>,
    /// Ejects an endpoint if its share of failed calls is above the threshold. Default 0.85, 5 endpoints, 50 calls.
    pub failures: Option<OutlierRule>,
    /// Ejects an endpoint if its mean latency is above the median of all, times the threshold, and above 5 ms. Only
    /// measured calls count: each one alone, and one of eight in parallel. Default none.
    pub latency: Option<OutlierRule>,
    /// The length of the first ejection. Default 30 s.
    pub ejection: Duration,
    /// The maximum length of an ejection. Default 300 s.
    pub ejection_max: Duration,
    /// The maximum share of ejected endpoints. Among several, one may always be ejected. Default 0.1.
    pub ejected_max: f32,
}

/// One rule of a sweep for outliers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierRule {
    /// The distance from the rest. Its unit depends on the rule.
    pub threshold: f32,
    /// The minimum number of endpoints with enough calls.
    pub endpoints_min: usize,
    /// The minimum number of calls of an endpoint since the last sweep.
    pub calls_min: u32,
    /// The chance of the ejection of an outlier. 1 ejects each one.
    pub enforcement: f32,
}

impl OutlierRule {
    /// Creates a rule with this threshold and number of calls, for at least five endpoints.
    pub fn new(threshold: f32, calls_min: u32) -> Self {
        Self { threshold, endpoints_min: 5, calls_min, enforcement: 1.0 }
    }

    /// Returns the values of the endpoints with enough calls, or nothing if these are too few.
    fn counted(
        &self,
        calls: &[CallCounts],
        number: impl Fn(&CallCounts) -> u32,
        value: impl Fn(&CallCounts) -> f64,
    ) -> Vec<(usize, f64)> {
        let has_enough = |(_, calls): &(usize, &CallCounts)| number(calls) >= self.calls_min.max(1);
        let counted: Vec<_> =
            calls.iter().enumerate().filter(has_enough).map(|(index, calls)| (index, value(calls))).collect();
        if counted.len() < self.endpoints_min { Vec::new() } else { counted }
    }
}

impl Default for OutlierSettings {
    fn default() -> Self {
        Self {
            failures_in_row: 5,
            sweep: Duration::from_secs(10),
            success_rate: Some(OutlierRule::new(1.9, 100)),
            failures: Some(OutlierRule::new(0.85, 50)),
            latency: None,
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

    /// Returns the outliers among the calls of all endpoints. `chance` returns a random number below 1.
    pub fn outliers(&self, calls: &[CallCounts], mut chance: impl FnMut() -> f32) -> Vec<FoundOutlier> {
        let mut found = Vec::<FoundOutlier>::new();
        let mut eject = |method, rule: &OutlierRule, endpoints: Vec<(usize, f64)>, is_outlier: &dyn Fn(f64) -> bool| {
            for (index, value) in endpoints {
                let is_known = found.iter().any(|outlier| outlier.index == index && outlier.is_enforced);
                if is_outlier(value) && !is_known {
                    found.push(FoundOutlier { index, method, is_enforced: chance() < rule.enforcement });
                }
            }
        };
        if let Some(rule) = &self.success_rate {
            let rates = rule.counted(calls, CallCounts::all, CallCounts::success_rate);
            let len = rates.len() as f64;
            let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / len;
            let variance = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / len;
            let least = mean - f64::from(rule.threshold) * variance.sqrt();
            eject(OutlierMethod::SuccessRate, rule, rates, &|rate| rate < least);
        }
        if let Some(rule) = &self.failures {
            let rates = rule.counted(calls, CallCounts::all, CallCounts::success_rate);
            eject(OutlierMethod::FailurePercentage, rule, rates, &|rate| 1.0 - rate > f64::from(rule.threshold));
        }
        if let Some(rule) = &self.latency {
            let latencies = rule.counted(calls, |calls| calls.measured, CallCounts::latency_nanos);
            let mut sorted: Vec<f64> = latencies.iter().map(|(_, latency)| *latency).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
            let most = (median * f64::from(rule.threshold)).max(LATENCY_MIN.as_nanos() as f64);
            eject(OutlierMethod::Latency, rule, latencies, &|latency| latency > most);
        }
        found
    }
}

/// An outlier found by a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOutlier {
    /// The index of the endpoint.
    pub index: usize,
    /// The rule that found it.
    pub method: OutlierMethod,
    /// `false` if the [chance](OutlierRule::enforcement) of the rule leaves it in use.
    pub is_enforced: bool,
}

/// The rule that found an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlierMethod {
    /// [`OutlierSettings::failures_in_row`].
    FailuresInRow,
    /// [`OutlierSettings::success_rate`].
    SuccessRate,
    /// [`OutlierSettings::failures`].
    FailurePercentage,
    /// [`OutlierSettings::latency`].
    Latency,
}

impl OutlierMethod {
    /// All rules.
    pub const ALL: [Self; 4] = [Self::FailuresInRow, Self::SuccessRate, Self::FailurePercentage, Self::Latency];

    /// Returns the name in metrics: gRPC's (A91) if it has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::FailuresInRow => "consecutive_failures",
            Self::SuccessRate => "success_rate",
            Self::FailurePercentage => "failure_percentage",
            Self::Latency => "latency",
        }
    }
}

/// A latency of at most this makes no outlier.
const LATENCY_MIN: Duration = Duration::from_millis(5);

/// The outcomes of the calls to one endpoint.
#[derive(Debug, Default)]
pub struct CallOutcomes {
    /// Failed calls since the last successful one in the lower half, calls given up in the upper half.
    since_success: AtomicU64,
    /// Successful calls since the last sweep in the lower half, failed ones in the upper half.
    counts: AtomicU64,
    /// The number of measured calls since the last sweep in the upper 24 bits, the sum of their latencies in microseconds in
    /// the lower 40.
    latencies: AtomicU64,
}

/// The calls to one endpoint since the last sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls with an answer.
    pub succeeded: u32,
    /// Calls failed by the fault of the endpoint.
    pub failed: u32,
    /// Calls with a measured latency.
    pub measured: u32,
    /// The sum of the measured latencies.
    pub latency: Duration,
}

impl CallCounts {
    fn all(&self) -> u32 {
        self.succeeded.saturating_add(self.failed)
    }

    fn success_rate(&self) -> f64 {
        f64::from(self.succeeded) / f64::from(self.all())
    }

    fn latency_nanos(&self) -> f64 {
        self.latency.as_nanos() as f64 / f64::from(self.measured)
    }
}

impl CallOutcomes {
    /// Counts a successful call.
    #[inline]
    pub fn succeed(&self) {
        self.counts.fetch_add(1, Ordering::Relaxed);
        // Read first: the line of an endpoint without failures needs no second write.
        if self.since_success.load(Ordering::Relaxed) != 0 {
            self.since_success.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed call. Returns the number of failures in a row.
    pub fn fail(&self) -> u32 {
        self.counts.fetch_add(1 << 32, Ordering::Relaxed);
        low(self.since_success.fetch_add(1, Ordering::Relaxed)) + 1
    }

    /// Counts a call given up without an answer. Returns the number of such calls since the last successful one. They
    /// are no failures.
    pub fn give_up(&self) -> u32 {
        low(self.since_success.fetch_add(1 << 32, Ordering::Relaxed) >> 32) + 1
    }

    /// Records the latency of a call.
    #[inline]
    pub fn measure(&self, latency: Duration) {
        // At most 12 days in all, by calls of at most a minute.
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(60_000_000);
        if self.latencies.load(Ordering::Relaxed) & MICROS < MICROS / 2 {
            self.latencies.fetch_add(ONE_MEASURED | micros, Ordering::Relaxed);
        }
    }

    /// Returns the counts, and starts over.
    pub fn take(&self) -> CallCounts {
        let [counts, latencies] = [&self.counts, &self.latencies].map(|number| number.swap(0, Ordering::Relaxed));
        CallCounts {
            succeeded: low(counts),
            failed: low(counts >> 32),
            measured: low(latencies / ONE_MEASURED),
            latency: Duration::from_micros(latencies & MICROS),
        }
    }

    /// Forgets the failures in a row, at the end of an ejection.
    pub fn reset(&self) {
        self.since_success.store(0, Ordering::Relaxed);
    }
}

const ONE_MEASURED: u64 = 1 << 40;
/// The part of [`CallOutcomes::latencies`] with the sum.
const MICROS: u64 = ONE_MEASURED - 1;

#[allow(clippy::cast_possible_truncation, reason = "the lower half")]
fn low(state: u64) -> u32 {
    state as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(u32, u32)]) -> Vec<CallCounts> {
        all.iter().map(|&(succeeded, failed)| CallCounts { succeeded, failed, ..CallCounts::default() }).collect()
    }

    fn enforced(found: Vec<FoundOutlier>) -> Vec<usize> {
        found.iter().filter(|outlier| outlier.is_enforced).map(|outlier| outlier.index).collect()
    }

    fn outliers(settings: &OutlierSettings, calls: &[CallCounts]) -> Vec<usize> {
        enforced(settings.outliers(calls, || 0.5))
    }

    #[test]
    fn an_endpoint_that_fails_more_often_than_others_is_an_outlier() {
        let settings = OutlierSettings::default();
        let all = counts(&[(100, 0), (99, 1), (60, 40), (100, 0), (98, 2), (97, 3)]);
        assert_eq!(outliers(&settings, &all), [2]);
        let equal = counts(&[(90, 10), (91, 9), (89, 11), (90, 10), (92, 8)]);
        assert!(outliers(&settings, &equal).len() <= 1, "equal endpoints stay");
    }

    #[test]
    fn an_endpoint_that_mostly_fails_is_an_outlier_even_among_bad_ones() {
        let settings = OutlierSettings::default();
        let all = counts(&[(40, 60), (10, 90), (45, 55), (12, 88), (50, 50), (48, 52)]);
        assert_eq!(outliers(&settings, &all), [1, 3]);
    }

    #[test]
    fn too_few_calls_or_endpoints_prove_nothing() {
        let settings = OutlierSettings::default();
        assert_eq!(outliers(&settings, &counts(&[(100, 0), (100, 0), (0, 100), (100, 0)])), []);
        assert_eq!(outliers(&settings, &counts(&[(100, 0), (100, 0), (100, 0), (100, 0), (100, 0), (0, 49)])), []);
        assert_eq!(outliers(&settings, &[]), []);
    }

    #[test]
    fn outcomes_count_failures_in_a_row() {
        let outcomes = CallOutcomes::default();
        assert_eq!([outcomes.fail(), outcomes.fail()], [1, 2]);
        outcomes.succeed();
        assert_eq!(outcomes.fail(), 1);
        assert_eq!(outcomes.take(), CallCounts { succeeded: 1, failed: 3, ..CallCounts::default() });
        assert_eq!(outcomes.take(), CallCounts::default());
        outcomes.reset();
        assert_eq!(outcomes.fail(), 1);
    }

    #[test]
    fn a_slow_endpoint_is_an_outlier_by_its_mean_latency() {
        let settings = OutlierSettings { latency: Some(OutlierRule::new(3.0, 5)), ..OutlierSettings::default() };
        let measured = |millis: &[u64]| {
            let calls = |millis: &u64| {
                let outcomes = CallOutcomes::default();
                (0..5).for_each(|_| outcomes.measure(Duration::from_millis(*millis)));
                outcomes.take()
            };
            millis.iter().map(calls).collect::<Vec<_>>()
        };
        assert_eq!(measured(&[7])[0].latency, Duration::from_millis(35));
        assert_eq!(outliers(&settings, &measured(&[5, 6, 4, 50, 5])), [3]);
        assert_eq!(outliers(&settings, &measured(&[5, 6, 4, 14, 5])), []);
        assert_eq!(outliers(&settings, &measured(&[1, 1, 1, 5, 1])), [], "5 ms are never slow");
        assert_eq!(outliers(&settings, &measured(&[5, 6, 50, 5])), [], "too few endpoints");
        assert_eq!(outliers(&OutlierSettings::default(), &measured(&[5, 6, 4, 50, 5])), []);
    }

    #[test]
    fn the_sum_of_latencies_never_reaches_the_count() {
        let outcomes = CallOutcomes::default();
        (0..20_000).for_each(|_| outcomes.measure(Duration::MAX));
        let counts = outcomes.take();
        assert!(counts.measured < 20_000 && counts.latency_nanos() == 60e9, "{counts:?}");
    }

    #[test]
    fn outliers_are_ejected_by_chance() {
        let rule = OutlierRule { enforcement: 0.5, ..OutlierRule::new(0.85, 50) };
        let settings = OutlierSettings { failures: Some(rule), success_rate: None, ..OutlierSettings::default() };
        let all = counts(&[(100, 0), (0, 100), (100, 0), (100, 0), (100, 0)]);
        let found = |is_enforced| [FoundOutlier { index: 1, method: OutlierMethod::FailurePercentage, is_enforced }];
        assert_eq!(settings.outliers(&all, || 0.4), found(true));
        assert_eq!(settings.outliers(&all, || 0.6), found(false));
    }

    #[test]
    fn calls_given_up_are_no_failures() {
        let outcomes = CallOutcomes::default();
        assert_eq!([outcomes.give_up(), outcomes.fail(), outcomes.give_up()], [1, 1, 2]);
        assert_eq!(outcomes.take(), CallCounts { succeeded: 0, failed: 1, ..CallCounts::default() });
        outcomes.succeed();
        assert_eq!([outcomes.give_up(), outcomes.fail()], [1, 1]);
    }

    #[test]
    fn ejections_grow_and_leave_endpoints() {
        let settings = OutlierSettings::default();
        assert_eq!([0, 1, 20].map(|before| settings.ejection_after(before).as_secs()), [30, 60, 300]);
        assert_eq!([0, 1, 2, 19, 40].map(|all| settings.ejected_max(all)), [0, 0, 1, 1, 4]);
    }
}
