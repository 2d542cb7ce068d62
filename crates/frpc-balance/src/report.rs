//! The load of a server in its own reports.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// The use of the reports of servers.
///
/// Fields may be added, so `..ReportSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportSettings {
    /// The time after the first report of a server before its reports count. Default 10 s.
    pub blackout: Duration,
    /// The time without a report after which earlier ones are forgotten. Default 3 min.
    pub expiry: Duration,
    /// The time between two computations of the shares, at least 100 ms. Default 1 s.
    pub update: Duration,
    /// The utilization added for failures, times their share of the calls. Default 1.
    pub failure_penalty: f32,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self {
            blackout: Duration::from_secs(10),
            expiry: Duration::from_secs(180),
            update: Duration::from_secs(1),
            failure_penalty: 1.0,
        }
    }
}

/// One report of a server about itself. Unknown values are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerReport {
    /// The used part of its capacity. 1 means that the server is fully utilized.
    pub utilization: f64,
    /// The number of calls per second.
    pub calls_per_second: f64,
    /// The number of failed calls per second.
    pub failures_per_second: f64,
    /// The number of calls in progress, from all clients.
    pub in_flight: Option<u32>,
}

/// The recent reports of one server. All methods are atomic and relaxed, like those of [`EndpointLoad`](crate::EndpointLoad).
#[derive(Debug)]
pub(crate) struct ReportedLoad {
    settings: ReportSettings,
    /// The share of the server as `f32`.
    weight: AtomicU32,
    /// The times of the first and the last report in milliseconds, plus 1. Zero without a report.
    first: AtomicU64,
    last: AtomicU64,
}

impl ReportedLoad {
    pub(crate) fn new(settings: ReportSettings) -> Self {
        Self { settings, weight: AtomicU32::new(0), first: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Records a report. Without calls or utilization, it says nothing about the share.
    pub(crate) fn record(&self, report: &ServerReport, now: Duration) {
        let failures = report.failures_per_second / report.calls_per_second * f64::from(self.settings.failure_penalty);
        let utilization = report.utilization + if failures.is_finite() { failures.max(0.0) } else { 0.0 };
        #[allow(clippy::cast_possible_truncation, reason = "a share needs no more digits")]
        let weight = (report.calls_per_second / utilization) as f32;
        if report.utilization > 0.0 && weight.is_finite() && weight > 0.0 {
            let now = millis(now);
            self.weight.store(weight.to_bits(), Ordering::Relaxed);
            self.last.store(now, Ordering::Relaxed);
            let _ = self.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns the share of the server. `None` before the end of the blackout, and after the reports have expired.
    pub(crate) fn weight(&self, now: Duration) -> Option<f32> {
        let [first, last] = [&self.first, &self.last].map(|time| time.load(Ordering::Relaxed));
        let since = |time: u64| Duration::from_millis(millis(now).saturating_sub(time));
        if first == 0 {
            return None;
        }
        if since(last) >= self.settings.expiry {
            // The next report begins another blackout.
            self.first.store(0, Ordering::Relaxed);
            return None;
        }
        (since(first) >= self.settings.blackout).then(|| f32::from_bits(self.weight.load(Ordering::Relaxed)))
    }
}

fn millis(now: Duration) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1
}

/// Returns whole numbers in proportion to the weights. A weight of `None` counts as the mean of the known ones, and without
/// two known weights all are equal.
pub(crate) fn proportions(weights: &[Option<f32>]) -> Vec<u64> {
    // As `f64`, the sum of the highest weights is finite.
    let known: Vec<f64> = weights.iter().copied().flatten().map(f64::from).collect();
    let most = known.iter().copied().fold(0.0, f64::max);
    if known.len() < 2 || most <= 0.0 {
        return vec![1; weights.len()];
    }
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to SCALE")]
    let scaled = |weight: f64| (weight / most * SCALE).max(1.0) as u64;
    weights.iter().map(|weight| scaled(weight.map_or(mean, f64::from))).collect()
}

/// The number for the highest weight.
const SCALE: f64 = 65_535.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn report(utilization: f64, calls: f64, failures: f64) -> ServerReport {
        ServerReport { utilization, calls_per_second: calls, failures_per_second: failures, in_flight: None }
    }

    #[test]
    fn the_weight_is_the_rate_at_full_utilization() {
        let load = ReportedLoad::new(ReportSettings { blackout: Duration::ZERO, ..ReportSettings::default() });
        for (utilization, calls, failures, expected) in
            [(0.5, 100.0, 0.0, 200.0), (0.5, 100.0, 50.0, 100.0), (2.0, 100.0, 0.0, 50.0)]
        {
            load.record(&report(utilization, calls, failures), SECOND);
            assert_eq!(load.weight(SECOND), Some(expected), "{utilization} {calls} {failures}");
        }
    }

    #[test]
    fn useless_reports_change_nothing() {
        let load = ReportedLoad::new(ReportSettings { blackout: Duration::ZERO, ..ReportSettings::default() });
        load.record(&report(0.5, 100.0, 0.0), SECOND);
        for [utilization, calls, failures] in [
            [0.0, 100.0, 0.0],
            [0.5, 0.0, 0.0],
            [f64::NAN, 100.0, 0.0],
            [0.5, f64::INFINITY, 0.0],
            [-1.0, 100.0, 0.0],
            [0.5, -100.0, 0.0],
        ] {
            load.record(&report(utilization, calls, failures), SECOND);
            assert_eq!(load.weight(SECOND), Some(200.0));
        }
        load.record(&report(0.5, 100.0, f64::NAN), SECOND);
        assert_eq!(load.weight(SECOND), Some(200.0));
    }

    #[test]
    fn reports_count_after_the_blackout_until_they_expire() {
        let load = ReportedLoad::new(ReportSettings::default());
        for second in 0..=20 {
            load.record(&report(0.5, 100.0, 0.0), SECOND * second);
            assert_eq!(load.weight(SECOND * second).is_some(), second >= 10, "{second}");
        }
        assert!(load.weight(SECOND * 199).is_some());
        assert_eq!(load.weight(SECOND * 200), None);
        load.record(&report(0.5, 100.0, 0.0), SECOND * 201);
        assert_eq!(load.weight(SECOND * 201), None, "the blackout begins again");
        assert!(load.weight(SECOND * 211).is_some());
    }

    #[test]
    fn unknown_weights_count_as_the_mean() {
        assert_eq!(proportions(&[Some(100.0), None, Some(300.0)]), [21_845, 43_690, 65_535]);
        assert_eq!(proportions(&[Some(100.0), None]), [1, 1], "one weight has nothing to compare with");
        assert_eq!(proportions(&[]), [0; 0]);
        assert_eq!(proportions(&[Some(1e-9), Some(1e9)]), [1, 65_535], "each server gets some calls");
        assert_eq!(proportions(&[Some(f32::MAX), Some(f32::MAX), None]), [65_535; 3]);
    }
}
