//! The load of one endpoint, as its callers see it.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use crate::report::{ReportSettings, ReportedLoad, ServerReport};

/// Settings for the measurement of load.
///
/// Fields may be added, so `..LoadSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSettings {
    /// The time in which an old latency loses two thirds of its weight. Default 10 s.
    pub decay: Duration,
    /// The latency counted for a failed call, so an endpoint does not attract calls by failing fast. Default 1 s.
    pub failure: Duration,
    /// The use of the load that servers report.
    pub reports: ReportSettings,
}

impl Default for LoadSettings {
    fn default() -> Self {
        let reports = ReportSettings::default();
        Self { decay: Duration::from_secs(10), failure: Duration::from_secs(1), reports }
    }
}

/// The calls in flight to one endpoint, and its recent latency.
///
/// The latency is a moving average and jumps to each higher value (peak EWMA). It falls with time even without calls, so
/// a slow endpoint is tried again. All methods are atomic and relaxed: a lost update among many does no harm.
#[derive(Debug)]
pub struct EndpointLoad {
    /// The number of calls in flight in the lower half, the number of all calls in the upper half.
    calls: AtomicU64,
    /// The latency in nanoseconds as `f32` in the lower half, the tick of its last change in the upper half. Zero
    /// before the first call.
    latency: AtomicU64,
    /// The calls of other clients in the last report of the server in the lower half, its tick in the upper half. Zero
    /// without a report.
    others: AtomicU64,
    reported: ReportedLoad,
    /// `true` if the last known call failed or was given up.
    is_doubtful: AtomicBool,
    /// The inverse of the time of decay, in ticks.
    decay_rate: f32,
    failure: Duration,
}

impl EndpointLoad {
    /// Creates the load of an endpoint without calls.
    pub fn new(settings: &LoadSettings) -> Self {
        Self {
            calls: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            others: AtomicU64::new(0),
            reported: ReportedLoad::new(settings.reports),
            is_doubtful: AtomicBool::new(false),
            decay_rate: (1_u64 << TICK_BITS) as f32 / settings.decay.as_nanos().max(1) as f32,
            failure: settings.failure,
        }
    }

    /// Counts a call as begun. Returns `true` if its latency should be measured. Reading the clock costs more than all
    /// else here, so it happens for one of eight overlapping calls.
    #[inline]
    pub fn begin(&self) -> bool {
        let before = self.calls.fetch_add(ONE_BEGUN | 1, Ordering::Relaxed);
        low(before) == 0 || high(before).is_multiple_of(MEASURED_EACH)
    }

    /// Counts a call as over.
    #[inline]
    pub fn end(&self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of calls in flight.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        low(self.calls.load(Ordering::Relaxed))
    }

    /// Records a report of the server.
    pub fn record_report(&self, report: &ServerReport, now: Duration) {
        self.reported.record(report, now);
        if let Some(in_flight) = report.in_flight {
            let others = in_flight.saturating_sub(self.in_flight());
            self.others.store(u64::from(tick(now).max(1)) << 32 | u64::from(others), Ordering::Relaxed);
        }
    }

    /// Returns the number of calls in flight of this client, and of the others by a report within the last second.
    #[inline]
    pub fn known_in_flight(&self, now: Duration) -> u32 {
        let others = self.others.load(Ordering::Relaxed);
        let is_fresh = others != 0 && tick(now).wrapping_sub(high(others)) <= REPORT_TICKS;
        self.in_flight().saturating_add(if is_fresh { low(others) } else { 0 })
    }

    /// Returns the share of the server by its own reports. `None` without enough of them.
    pub fn reported_weight(&self, now: Duration) -> Option<f32> {
        self.reported.weight(now)
    }

    /// Records the latency of a call, which ended now.
    pub fn record(&self, latency: Duration, now: Duration) {
        self.average(latency, now);
        self.doubt(false);
    }

    fn average(&self, latency: Duration, now: Duration) {
        let (sample, tick) = (latency.as_nanos() as f32, tick(now));
        let before = self.latency.load(Ordering::Relaxed);
        let weight = self.weight(before, tick);
        let value = match f32::from_bits(low(before)) {
            value if before == 0 || sample > value * weight => sample,
            value => value * weight + sample * (1.0 - weight),
        };
        // Never zero: zero means an unknown latency.
        self.latency.store(u64::from(tick) << 32 | u64::from(value.max(1.0).to_bits()), Ordering::Relaxed);
    }

    /// Records a call given up after this time, the last of `in_row` such calls. Its latency is unknown, but higher.
    ///
    /// The figure doubles with each further call in a row, up to that of a failed call. So an endpoint without answers
    /// is tried again after longer and longer pauses.
    pub fn record_wait(&self, waited: Duration, in_row: u32, now: Duration) {
        let doubled = waited.saturating_mul(1 << in_row.saturating_sub(1).min(DOUBLED_MAX));
        let assumed = doubled.min(self.failure).max(waited);
        if self.latency(now).is_none_or(|known| assumed.as_nanos() as f32 > known) {
            self.average(assumed, now);
        }
        self.doubt(true);
    }

    /// Records a failed call.
    pub fn penalize(&self, now: Duration) {
        self.average(self.failure, now);
        self.doubt(true);
    }

    fn doubt(&self, is_doubtful: bool) {
        if self.is_doubtful() != is_doubtful {
            self.is_doubtful.store(is_doubtful, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the last known call failed or was given up, so the endpoint may be dead.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// Copies the latency of an earlier connection to the same server.
    pub fn continue_from(&self, before: &Self) {
        self.latency.store(before.latency.load(Ordering::Relaxed), Ordering::Relaxed);
        self.doubt(before.is_doubtful());
    }

    /// Returns the recent latency in nanoseconds. `None` before the first call has ended.
    #[inline]
    pub fn latency(&self, now: Duration) -> Option<f32> {
        let state = self.latency.load(Ordering::Relaxed);
        (state != 0).then(|| f32::from_bits(low(state)) * self.weight(state, tick(now)))
    }

    /// Returns the weight of the latency in `state`.
    #[inline]
    fn weight(&self, state: u64, tick: u32) -> f32 {
        let elapsed = tick.wrapping_sub(high(state));
        // Ticks of two threads may come in the wrong order. Such a difference wraps around.
        match elapsed {
            TICKS_IGNORED..=TICKS_MAX => {
                let time = elapsed as f32 * self.decay_rate;
                // Close to e^-time, at a fraction of the cost.
                1.0 / (1.0 + time + time * time / 2.0)
            }
            _ => 1.0,
        }
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "ticks wrap around after three days")]
fn tick(now: Duration) -> u32 {
    ((now.as_secs() * NANOS_PER_SECOND + u64::from(now.subsec_nanos())) >> TICK_BITS) as u32
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the lower half")]
fn low(state: u64) -> u32 {
    state as u32
}

#[inline]
fn high(state: u64) -> u32 {
    low(state >> 32)
}

/// A tick has 2 to the power of this nanoseconds: about 65 µs.
const TICK_BITS: u32 = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// The number of ticks without an effect on the average: 1 ms.
const TICKS_IGNORED: u32 = 16;
const TICKS_MAX: u32 = u32::MAX / 2;
/// The number of ticks for which the calls of other clients count: 1 s.
const REPORT_TICKS: u32 = 15_259;
const ONE_BEGUN: u64 = 1 << 32;
/// The maximum number of doublings for calls given up.
const DOUBLED_MAX: u32 = 16;
/// One of this many overlapping calls is measured.
const MEASURED_EACH: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn load() -> (EndpointLoad, Duration) {
        (EndpointLoad::new(&LoadSettings::default()), Duration::from_secs(7))
    }

    #[test]
    fn a_peak_counts_immediately_and_falls_with_time() {
        let (load, start) = load();
        assert_eq!(load.latency(start), None);
        load.record(MILLI, start);
        load.record(MILLI * 100, start + MILLI);
        assert!((load.latency(start + MILLI).unwrap() - 1e8).abs() < 1e5);
        let later = start + Duration::from_secs(10);
        assert!((3.6e7..4.1e7).contains(&load.latency(later).unwrap()), "two thirds less without any call");
        load.record(MILLI, later);
        assert!((3.6e7..4.1e7).contains(&load.latency(later).unwrap()), "one fast call does not hide the peak");
    }

    #[test]
    fn an_average_approaches_the_latency_of_its_calls() {
        let (load, start) = load();
        load.record(MILLI * 100, start);
        for second in 1..=100 {
            load.record(MILLI, start + Duration::from_secs(second));
        }
        let latency = load.latency(start + Duration::from_secs(100)).unwrap();
        assert!((1e6..2e6).contains(&latency), "{latency}");
    }

    #[test]
    fn each_call_alone_is_measured_and_one_of_eight_together() {
        let (load, _) = load();
        for _ in 0..10 {
            assert!(load.begin());
            load.end();
        }
        let measured = (0..80).filter(|_| load.begin()).count();
        assert_eq!((load.in_flight(), measured), (80, 11), "the first, and ten of eighty");
    }

    #[test]
    fn clocks_of_threads_may_disagree() {
        let (load, start) = load();
        load.record(MILLI, start + Duration::from_secs(1));
        load.record(MILLI, start);
        assert!((9e5..1.1e6).contains(&load.latency(start).unwrap()));
    }

    #[test]
    fn calls_of_other_clients_count_for_a_second() {
        let (load, start) = load();
        load.begin();
        assert_eq!(load.known_in_flight(start), 1);
        load.record_report(&ServerReport { in_flight: Some(8), ..ServerReport::default() }, start);
        load.begin();
        assert_eq!(load.known_in_flight(start + MILLI * 999), 9, "seven others and two");
        assert_eq!(load.known_in_flight(start + MILLI * 1002), 2);
        load.record_report(&ServerReport { in_flight: Some(1), ..ServerReport::default() }, start);
        assert_eq!(load.known_in_flight(start), 2, "fewer than this client alone has");
    }

    #[test]
    fn a_failure_counts_as_a_slow_call() {
        let (load, start) = load();
        load.record(MILLI, start);
        load.penalize(start);
        assert!(load.latency(start).unwrap() > 9e8);
    }

    #[test]
    fn a_call_given_up_raises_the_latency_only() {
        let load = EndpointLoad::new(&LoadSettings::default());
        let now = Duration::from_secs(1);
        load.record(Duration::from_millis(10), now);
        load.record_wait(Duration::from_millis(1), 1, now);
        assert_eq!(load.latency(now), Some(10e6));
        load.record_wait(Duration::from_millis(50), 1, now);
        assert_eq!(load.latency(now), Some(50e6));
    }

    #[test]
    fn an_endpoint_is_doubtful_until_its_next_answer() {
        let (load, now) = load();
        load.record_wait(MILLI, 1, now);
        assert!(load.is_doubtful());
        load.record(MILLI, now);
        assert!(!load.is_doubtful());
        load.penalize(now);
        let (next, _) = self::load();
        next.continue_from(&load);
        assert!(next.is_doubtful() && next.latency(now) == load.latency(now));
    }

    #[test]
    fn calls_given_up_in_a_row_raise_the_latency_up_to_that_of_a_failure() {
        let (load, now) = load();
        let after = |in_row| {
            load.record_wait(MILLI * 10, in_row, now);
            (load.latency(now).unwrap() / 1e6).round()
        };
        assert_eq!([1, 2, 3, 7, 8, 100].map(after), [10.0, 20.0, 40.0, 640.0, 1_000.0, 1_000.0]);
        load.record_wait(MILLI * 2_000, 9, now);
        assert_eq!(load.latency(now), Some(2e9), "known to be slower than a failure");
    }
}
