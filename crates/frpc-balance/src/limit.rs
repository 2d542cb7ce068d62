//! A limit on the calls in progress in a server, found from its own latency.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{InvalidSetting, clock::Instant};

/// The rules for finding the limit.
///
/// Fields may be added, so `..LimitSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitSettings {
    /// The limit at the start. Default 40.
    pub first: u32,
    /// The minimum limit. Default 4.
    pub least: u32,
    /// The maximum limit. Default 100,000.
    pub most: u32,
    /// The minimum time between two changes of the limit. Default 20 ms.
    pub window: Duration,
    /// The minimum number of calls between two changes of the limit. Default 100.
    pub calls_min: u32,
    /// The time between two measurements of the latency without queueing. Each of them halves the limit for a moment.
    /// Default 10 s.
    pub probe_interval: Duration,
    /// The share of the limit open to calls of low priority. Default 0.9.
    pub low_share: f32,
    /// The places above the limit for calls of high priority, as a share of the limit. Default 0.25, at least 2 places.
    pub high_reserve: f32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            first: 40,
            least: 4,
            most: 100_000,
            window: Duration::from_millis(20),
            calls_min: 100,
            probe_interval: Duration::from_secs(10),
            low_share: 0.9,
            high_reserve: 0.25,
        }
    }
}

impl LimitSettings {
    /// Returns an error if a setting has an unusable value.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::require(self.least > 0, "least", "must not be zero: the server would refuse every call")?;
        InvalidSetting::require(self.most >= self.least, "most", "must be at least the minimum")?;
        let is_between = (self.least..=self.most).contains(&self.first);
        InvalidSetting::require(is_between, "first", "must be between the minimum and the maximum")?;
        InvalidSetting::require(!self.window.is_zero(), "window", "must not be zero")?;
        InvalidSetting::require(self.calls_min > 0, "calls_min", "must not be zero")?;
        InvalidSetting::require(!self.probe_interval.is_zero(), "probe_interval", "must not be zero")?;
        let is_share = self.low_share > 0.0 && self.low_share <= 1.0;
        InvalidSetting::require(is_share, "low_share", "must be above 0 and at most 1")?;
        let is_share = (0.0..=1.0).contains(&self.high_reserve);
        InvalidSetting::require(is_share, "high_reserve", "must be from 0 to 1")
    }
}

/// The importance of a call for an overloaded server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallPriority {
    /// Refused first.
    Low,
    /// The usual priority.
    #[default]
    Normal,
    /// Has reserved places above the limit.
    High,
}

/// The end of a call, for the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call had an answer. Its latency counts.
    Served,
    /// The call took too long. Its time counts without an answer.
    Expired,
    /// The call says nothing about the load: cancelled, or failed early.
    Ignored,
}

/// A limit on calls in progress: the throughput at full load times the latency without queueing (Little's law), and 6
/// to 30 % more. The algorithm follows brpc's automatic limiter, with finer windows for latencies of microseconds.
///
/// ```text
///             latency rises             probe interval passed
///   growing ----------------> holding -----------------------> probing (half of the limit)
///      ^                        | ^                               |
///      +------------------------+ +-------------------------------+
///          latency falls             the latency without queueing is known
/// ```
///
/// A call costs a few atomic operations. One call per window computes the next limit; no call waits for another.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    settings: LimitSettings,
    epoch: Instant,
    limit: AtomicU32,
    in_progress: AtomicU32,
    /// `true` if the calls in progress came close to the limit in this window.
    is_full: AtomicBool,
    served: AtomicU32,
    expired: AtomicU32,
    latency_nanos: AtomicU64,
    /// The end of the window in nanoseconds since `epoch`.
    window_end: AtomicU64,
    estimate: Mutex<LoadEstimate>,
}

#[derive(Debug)]
struct LoadEstimate {
    window_start: u64,
    next_probe: u64,
    /// The latency without queueing in nanoseconds, or 0 before the first window.
    least_latency: f64,
    /// The highest recent throughput in calls per nanosecond.
    most_rate: f64,
    /// `most_rate` at the last probe.
    probed_rate: f64,
    /// The distance of the limit from the product of both, as a share.
    margin: f64,
    probe: ProbeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeState {
    Idle,
    /// Calls from before the reduced limit are still ending.
    Settling,
    Measuring,
}

/// The longest window. With fewer calls than [`LimitSettings::calls_min`] in it, it says nothing.
const WINDOW_MAX: u64 = 1_000_000_000;
const MARGIN_MIN: f64 = 0.06;
const MARGIN_MAX: f64 = 0.3;
const MARGIN_STEP: f64 = 0.02;
/// The weight of a window in the falling average of the throughput.
const RATE_WEIGHT: f64 = 0.05;
/// The share of the throughput at the last probe that causes the next probe.
const RATE_FALLEN: f64 = 0.85;
/// The share of the throughput that shows a limit too high even after halving.
const RATE_KEPT: f64 = 0.9;

impl ConcurrencyLimit {
    /// Starts with [`LimitSettings::first`]. Times count from `epoch`.
    pub fn new(settings: LimitSettings, epoch: Instant) -> Self {
        let window = nanos(settings.window);
        let estimate = LoadEstimate {
            window_start: 0,
            // The first windows measure the throughput, then the first probe comes soon: the server may be overloaded
            // from its start.
            next_probe: window.saturating_mul(4),
            least_latency: 0.0,
            most_rate: 0.0,
            probed_rate: 0.0,
            margin: MARGIN_MAX,
            probe: ProbeState::Idle,
        };
        Self {
            settings,
            epoch,
            limit: AtomicU32::new(settings.first),
            in_progress: AtomicU32::new(0),
            is_full: AtomicBool::new(false),
            served: AtomicU32::new(0),
            expired: AtomicU32::new(0),
            latency_nanos: AtomicU64::new(0),
            window_end: AtomicU64::new(window),
            estimate: Mutex::new(estimate),
        }
    }

    /// Returns the current limit.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the number of calls in progress.
    pub fn in_progress(&self) -> u32 {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Returns `true` if the server has room for the call. Each admitted call needs one [`end`](Self::end).
    #[must_use = "a refused call must not be executed, an admitted one must end"]
    pub fn try_begin(&self, priority: CallPriority) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let places = self.places(limit, priority);
        let before = self.in_progress.fetch_add(1, Ordering::Relaxed);
        let is_admitted = before < places;
        if !is_admitted {
            self.in_progress.fetch_sub(1, Ordering::Relaxed);
        }
        // Reads first: all calls write to this line otherwise.
        if before.saturating_add(1) >= limit - limit / 4 && !self.is_full.load(Ordering::Relaxed) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Ends an admitted call after `latency`.
    pub fn end(&self, latency: Duration, now: Instant, end: CallEnd) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        if end == CallEnd::Ignored {
            return;
        }
        self.latency_nanos.fetch_add(nanos(latency), Ordering::Relaxed);
        let counter = if end == CallEnd::Served { &self.served } else { &self.expired };
        counter.fetch_add(1, Ordering::Relaxed);
        let now = nanos(now.saturating_duration_since(self.epoch));
        if now >= self.window_end.load(Ordering::Relaxed) {
            self.end_window(now);
        }
    }

    fn places(&self, limit: u32, priority: CallPriority) -> u32 {
        match priority {
            CallPriority::Normal => limit,
            CallPriority::Low => share(limit, self.settings.low_share).max(1),
            CallPriority::High => limit.saturating_add(share(limit, self.settings.high_reserve).max(2)),
        }
    }

    #[cold]
    fn end_window(&self, now: u64) {
        // Another call has just ended this window if the lock is held.
        let Ok(mut estimate) = self.estimate.try_lock() else { return };
        let elapsed = now.saturating_sub(estimate.window_start);
        let is_over = now >= self.window_end.load(Ordering::Relaxed);
        let is_long = elapsed >= WINDOW_MAX;
        let [served, expired] = [&self.served, &self.expired].map(|count| count.load(Ordering::Relaxed));
        if !is_over || served.saturating_add(expired) < self.settings.calls_min && !is_long {
            return;
        }
        let latency = self.latency_nanos.swap(0, Ordering::Relaxed);
        let [served, expired] = [&self.served, &self.expired].map(|count| count.swap(0, Ordering::Relaxed));
        let is_full = self.is_full.swap(false, Ordering::Relaxed);
        estimate.window_start = now;
        let mut window = nanos(self.settings.window);
        if expired >= self.settings.calls_min / 2 && expired > served {
            // Most calls wait longer than their callers: the throughput of the rest says nothing.
            self.limit.store((self.limit() / 2).max(self.settings.least), Ordering::Relaxed);
            estimate.probe = ProbeState::Idle;
        } else if served >= self.settings.calls_min.div_ceil(2) && elapsed > 0 {
            let latency = latency as f64 / f64::from(served);
            let rate = f64::from(served) / elapsed as f64;
            let limit = self.limit();
            let next = estimate.next_limit(&self.settings, now, latency, rate, is_full, limit);
            if let Some(next) = next {
                self.limit.store(next.clamp(self.settings.least, self.settings.most), Ordering::Relaxed);
            }
            if estimate.probe == ProbeState::Settling {
                // Calls from before the probe need about this time to end.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
                let settle = (latency * 2.0) as u64;
                window = window.max(settle);
            }
        } else if estimate.probe != ProbeState::Idle {
            // The load has gone during the probe.
            self.limit.store(estimate.product(limit_of(estimate.margin), &self.settings), Ordering::Relaxed);
            estimate.probe = ProbeState::Idle;
        }
        self.window_end.store(now.saturating_add(window), Ordering::Relaxed);
    }
}

impl LoadEstimate {
    /// Returns the limit after a window, or `None` to keep it.
    fn next_limit(
        &mut self,
        settings: &LimitSettings,
        now: u64,
        latency: f64,
        rate: f64,
        is_full: bool,
        limit: u32,
    ) -> Option<u32> {
        match self.probe {
            ProbeState::Settling => {
                self.probe = ProbeState::Measuring;
                return None;
            }
            ProbeState::Measuring => {
                self.probe = ProbeState::Idle;
                // The latency may have risen since the last probe, for other reasons than queueing.
                self.least_latency = latency;
                self.next_probe = now.saturating_add(nanos(settings.probe_interval));
                if rate >= self.most_rate * RATE_KEPT && limit > settings.least {
                    // Half of the limit serves as many calls, so the rest was a queue. The next probe follows soon.
                    self.next_probe = now.saturating_add(nanos(settings.window));
                }
                return Some(self.product(limit_of(self.margin), settings));
            }
            ProbeState::Idle => {}
        }
        if self.least_latency == 0.0 || latency < self.least_latency {
            self.least_latency = latency;
        }
        if !is_full {
            // Without load, the throughput says nothing about the capacity.
            return None;
        }
        self.most_rate =
            if rate > self.most_rate { rate } else { self.most_rate + (rate - self.most_rate) * RATE_WEIGHT };
        // A slower service needs more calls in progress for the same throughput. Without a new probe, the old latency
        // would shrink the limit, and the throughput with it.
        self.probed_rate = self.probed_rate.max(self.most_rate);
        if now >= self.next_probe || self.most_rate < self.probed_rate * RATE_FALLEN {
            self.probed_rate = self.most_rate;
            self.probe = ProbeState::Settling;
            return Some(limit / 2);
        }
        let is_queue_free = latency <= self.least_latency * (1.0 + MARGIN_MIN);
        let step =
            if is_queue_free || rate <= self.most_rate / (1.0 + MARGIN_MIN) { MARGIN_STEP } else { -MARGIN_STEP };
        self.margin = (self.margin + step).clamp(MARGIN_MIN, MARGIN_MAX);
        Some(self.product(limit_of(self.margin), settings))
    }

    /// Returns the number of calls in progress at full load without queueing, times `factor`.
    fn product(&self, factor: f64, settings: &LimitSettings) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let limit = (self.least_latency * self.most_rate * factor).ceil() as u32;
        limit.clamp(settings.least, settings.most)
    }
}

fn limit_of(margin: f64) -> f64 {
    1.0 + margin
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
fn share(limit: u32, share: f32) -> u32 {
    (limit as f32 * share) as u32
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque};

    use super::*;

    /// A server with `workers` and exponential service times, under a Poisson load.
    struct Simulation {
        workers: usize,
        service: Duration,
        /// The load as a multiple of the capacity.
        load: f64,
        /// The share of calls of high priority.
        high: f64,
        /// The growth of the service time in the middle of the run.
        slowdown: f64,
    }

    #[derive(Debug)]
    struct Outcome {
        /// The throughput of calls served within ten service times, as a share of the capacity.
        goodput: f64,
        high_served: f64,
        limit: u32,
    }

    impl Simulation {
        /// Runs for this many service times per worker, and measures in the second half.
        fn run(&self, services: u32) -> Outcome {
            let epoch = Instant::now();
            let limiter = ConcurrencyLimit::new(LimitSettings::default(), epoch);
            let mut random = fastrand::Rng::with_seed(11);
            let service = self.service.as_nanos() as f64;
            let arrival = service / self.workers as f64 / self.load;
            let end = service * f64::from(services);
            let mut exponential = move |mean: f64| {
                let seconds = -mean * (1.0 - random.f64()).ln() / 1e9;
                (nanos(Duration::from_secs_f64(seconds)), random.f64())
            };
            // (time of the end, time of the arrival)
            let mut running = BinaryHeap::new();
            let mut queue = VecDeque::new();
            let (mut good, mut high_all, mut high_served, mut at) = (0_u64, 0_u64, 0_u64, 0_u64);
            let mut service_now = service;
            while (at as f64) < end {
                if at as f64 > end / 2.0 {
                    service_now = service * self.slowdown;
                }
                let (pause, kind) = exponential(arrival);
                at += pause;
                while let Some(&Reverse((time, begun))) = running.peek().filter(|Reverse((time, _))| *time <= at) {
                    running.pop();
                    limiter.end(
                        Duration::from_nanos(time - begun),
                        epoch + Duration::from_nanos(time),
                        CallEnd::Served,
                    );
                    let is_good = ((time - begun) as f64) < service_now * 10.0;
                    good += u64::from(is_good && time as f64 > end / 2.0);
                    if let Some(begun) = queue.pop_front() {
                        running.push(Reverse((time + exponential(service_now).0, begun)));
                    }
                }
                let priority = if kind < self.high { CallPriority::High } else { CallPriority::Normal };
                let is_admitted = limiter.try_begin(priority);
                if priority == CallPriority::High && at as f64 > end / 2.0 {
                    high_all += 1;
                    high_served += u64::from(is_admitted);
                }
                if is_admitted && running.len() < self.workers {
                    running.push(Reverse((at + exponential(service_now).0, at)));
                } else if is_admitted {
                    queue.push_back(at);
                }
            }
            let goodput = good as f64 / (end / 2.0 / service_now * self.workers as f64);
            Outcome { goodput, high_served: high_served as f64 / high_all.max(1) as f64, limit: limiter.limit() }
        }
    }

    #[test]
    fn goodput_stays_high_with_calls_of_50_microseconds() {
        let service = Duration::from_micros(50);
        for workers in [4, 16] {
            let outcome = Simulation { workers, service, load: 10.0, high: 0.0, slowdown: 1.0 }.run(20_000);
            assert!(outcome.goodput > 0.9, "{workers} workers: {outcome:?}");
            assert!((outcome.limit as usize) < workers * 3, "{workers} workers: {outcome:?}");
        }
    }

    #[test]
    fn goodput_stays_high_with_calls_of_5_milliseconds() {
        let service = Duration::from_millis(5);
        for workers in [4, 64] {
            let outcome = Simulation { workers, service, load: 10.0, high: 0.0, slowdown: 1.0 }.run(8_000);
            assert!(outcome.goodput > 0.9, "{workers} workers: {outcome:?}");
            assert!((outcome.limit as usize) < workers * 3, "{workers} workers: {outcome:?}");
        }
    }

    #[test]
    fn goodput_stays_high_after_the_service_slows_down() {
        for (service, services) in [(Duration::from_micros(50), 40_000), (Duration::from_millis(5), 8_000)] {
            let outcome = Simulation { workers: 16, service, load: 10.0, high: 0.0, slowdown: 3.0 }.run(services);
            assert!(outcome.goodput > 0.9, "{service:?}: {outcome:?}");
        }
    }

    #[test]
    fn calls_beyond_their_deadline_halve_the_limit() {
        let epoch = Instant::now();
        let limiter = ConcurrencyLimit::new(LimitSettings::default(), epoch);
        let end = |window: u32, calls: u32, end: CallEnd| {
            for _ in 0..calls {
                assert!(limiter.try_begin(CallPriority::Normal));
                limiter.end(Duration::from_secs(1), epoch + Duration::from_millis(100) * window, end);
            }
        };
        end(1, 100, CallEnd::Expired);
        assert_eq!(limiter.limit(), 20);
        end(2, 1_000, CallEnd::Expired);
        assert_eq!(limiter.limit(), 10, "once per window");
        (3..10).for_each(|window| end(window, 100, CallEnd::Expired));
        assert_eq!(limiter.limit(), LimitSettings::default().least);
    }

    #[test]
    fn calls_of_high_priority_are_served_in_an_overload() {
        // The share of high priority is a tenth of the capacity.
        let simulation =
            Simulation { workers: 16, service: Duration::from_micros(50), load: 10.0, high: 0.01, slowdown: 1.0 };
        let outcome = simulation.run(20_000);
        assert!(outcome.high_served > 0.99, "{outcome:?}");
        assert!(outcome.goodput > 0.9, "{outcome:?}");
    }

    #[test]
    fn a_server_with_capacity_refuses_hardly_a_call() {
        let simulation =
            Simulation { workers: 16, service: Duration::from_micros(50), load: 0.5, high: 0.0, slowdown: 1.0 };
        let outcome = simulation.run(20_000);
        assert!(outcome.goodput > 0.49, "{outcome:?}");
    }

    #[test]
    fn priorities_have_different_places() {
        let epoch = Instant::now();
        let limiter = ConcurrencyLimit::new(LimitSettings { first: 10, ..LimitSettings::default() }, epoch);
        let admitted = |priority| (0..100).filter(|_| limiter.try_begin(priority)).count();
        assert_eq!([CallPriority::Low, CallPriority::Normal, CallPriority::High].map(admitted), [9, 1, 2]);
        assert_eq!(limiter.in_progress(), 12);
        (0..12).for_each(|_| limiter.end(Duration::ZERO, epoch, CallEnd::Ignored));
        assert_eq!((limiter.in_progress(), limiter.limit()), (0, 10));
    }

    #[test]
    fn unusable_settings_are_refused() {
        let of = |settings: LimitSettings| settings.check().unwrap_err().name();
        let usual = LimitSettings::default();
        assert!(usual.check().is_ok());
        assert_eq!(of(LimitSettings { least: 0, ..usual }), "least");
        assert_eq!(of(LimitSettings { most: 3, ..usual }), "most");
        assert_eq!(of(LimitSettings { first: 3, ..usual }), "first");
        assert_eq!(of(LimitSettings { window: Duration::ZERO, ..usual }), "window");
        assert_eq!(of(LimitSettings { low_share: f32::NAN, ..usual }), "low_share");
        assert_eq!(of(LimitSettings { high_reserve: 2.0, ..usual }), "high_reserve");
    }
}
