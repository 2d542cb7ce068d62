//! Pauses between attempts, hedged calls, and the latency at which a call is hedged.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{CodeSet, InvalidSetting, clock::Instant};

/// The maximum number of attempts of a call in a service config, as in gRFC A6. Larger numbers mean this one.
pub const ATTEMPTS_MAX: u32 = 5;

/// The retries of one method.
///
/// Fields may be added, so `..RetryPolicy::default()` belongs at the end of a literal.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The maximum number of attempts, the first included. Default 5; 1 disables retries.
    pub attempts_max: u32,
    /// The pause before the first retry. Default 10 ms.
    pub first_pause: Duration,
    /// The maximum pause before jitter. Default 1 s.
    pub pause_max: Duration,
    /// The growth of each pause over the one before. Default 1.6.
    pub multiplier: f32,
    /// Status codes of failures to retry. Default `UNAVAILABLE`.
    pub codes: CodeSet,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: ATTEMPTS_MAX,
            first_pause: Duration::from_millis(10),
            pause_max: Duration::from_secs(1),
            multiplier: 1.6,
            codes: CodeSet::UNAVAILABLE,
        }
    }
}

impl RetryPolicy {
    /// Returns an error if a setting has an unusable value.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::require(self.attempts_max > 0, "attempts_max", "must not be zero: no call would be made")?;
        let is_growth = self.multiplier.is_finite() && self.multiplier > 0.0;
        InvalidSetting::require(is_growth, "multiplier", "must be a positive number")
    }

    /// Returns the pause before the retry after `before` earlier pauses. `random` is in `0.0..1.0` and becomes a jitter
    /// of 20 % in both directions.
    pub fn pause(&self, before: u32, random: f32) -> Duration {
        let most = self.pause_max.as_secs_f64();
        let grown = self.first_pause.as_secs_f64() * f64::from(self.multiplier).powf(f64::from(before));
        // Zero times infinity is not a number.
        let pause = if grown.is_nan() { 0.0 } else { grown.min(most) };
        Duration::try_from_secs_f64(pause * (0.8 + 0.4 * f64::from(random.clamp(0.0, 1.0)))).unwrap_or(self.pause_max)
    }
}

/// The wish of a server for the next attempt, from the metadata `grpc-retry-pushback-ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPushback {
    /// The next attempt comes after this time, instead of the time in the policy.
    After(Duration),
    /// No further attempt.
    Stop,
}

impl RetryPushback {
    /// The name of the metadata entry with the pause in milliseconds.
    pub const NAME: &str = "grpc-retry-pushback-ms";

    /// Reads the value of the metadata entry. A negative or malformed number stops the attempts.
    pub fn parse(value: &str) -> Self {
        // A sign or white space is accepted by no peer, and digits of `i32` are the common range of all of them.
        let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse::<i32>().map(u64::try_from) {
            Ok(Ok(millis)) if is_digits => Self::After(Duration::from_millis(millis)),
            _ => Self::Stop,
        }
    }
}

/// The attempts of one call so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryProgress {
    failed: u32,
    since_pushback: u32,
}

impl RetryProgress {
    /// Counts a failed attempt. Returns the pause before the next one, or `None` if the failure is final.
    ///
    /// A pushback starts the growth of pauses over. `random` is in `0.0..1.0`.
    pub fn fail(
        &mut self,
        policy: &RetryPolicy,
        code: u32,
        pushback: Option<RetryPushback>,
        random: f32,
    ) -> Option<Duration> {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= policy.attempts_max || !policy.codes.contains(code) {
            return None;
        }
        match pushback {
            Some(RetryPushback::Stop) => None,
            Some(RetryPushback::After(pause)) => {
                self.since_pushback = 0;
                Some(pause)
            }
            None => {
                let pause = policy.pause(self.since_pushback, random);
                self.since_pushback = self.since_pushback.saturating_add(1);
                Some(pause)
            }
        }
    }

    /// Returns the number of failed attempts.
    pub fn failed(&self) -> u32 {
        self.failed
    }
}

/// The time between two hedged attempts of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgingDelay {
    /// Always this time.
    Fixed(Duration),
    /// The current 95th percentile of the latency of the method. No call is hedged before it is known.
    P95,
}

/// The hedged attempts of one method: further attempts while the first is still without an answer.
///
/// Fields may be added, so `..HedgingPolicy::default()` belongs at the end of a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgingPolicy {
    /// The maximum number of attempts, the first included. Default 2.
    pub attempts_max: u32,
    /// The time from one attempt to the next. Default the 95th percentile.
    pub delay: HedgingDelay,
    /// Failures with these status codes start the next attempt immediately. Any other failure ends the call. Default
    /// `UNAVAILABLE`.
    pub non_fatal_codes: CodeSet,
}

impl Default for HedgingPolicy {
    fn default() -> Self {
        Self { attempts_max: 2, delay: HedgingDelay::P95, non_fatal_codes: CodeSet::UNAVAILABLE }
    }
}

impl HedgingPolicy {
    /// Returns an error if a setting has an unusable value.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::require(self.attempts_max > 0, "attempts_max", "must not be zero: no call would be made")
    }

    /// Returns the time until the next attempt after `started` attempts without a failure, or `None` if there is none.
    pub fn delay(&self, started: u32, p95: Option<Duration>) -> Option<Duration> {
        if started >= self.attempts_max {
            return None;
        }
        match self.delay {
            HedgingDelay::Fixed(delay) => Some(delay),
            HedgingDelay::P95 => p95,
        }
    }

    /// Returns the time until the next attempt after a failure of one of `started` attempts, or `None` if there is
    /// none. Other attempts in flight continue if [`is_fatal`](Self::is_fatal) returns `false`.
    /// After [`RetryPushback::Stop`] the caller starts no further attempt of this call.
    pub fn delay_after_failure(&self, started: u32, code: u32, pushback: Option<RetryPushback>) -> Option<Duration> {
        if started >= self.attempts_max || self.is_fatal(code) {
            return None;
        }
        match pushback {
            None => Some(Duration::ZERO),
            Some(RetryPushback::After(pause)) => Some(pause),
            Some(RetryPushback::Stop) => None,
        }
    }

    /// Returns `true` if a failure with this code ends the call and its other attempts.
    pub fn is_fatal(&self, code: u32) -> bool {
        !self.non_fatal_codes.contains(code)
    }
}

/// The number of latencies needed before [`LatencyQuantile::p95`] returns one.
pub const LATENCIES_MIN: u32 = 20;

/// Recent latencies of a method in logarithmic buckets, four per doubling, from 1 µs to 68 s.
///
/// Each window halves the counts, so the figure follows changes within a few windows.
#[derive(Debug)]
pub struct LatencyQuantile {
    epoch: Instant,
    window: Duration,
    /// The number of the current window, modulo 2^32.
    current: AtomicU32,
    counts: [AtomicU32; BUCKETS],
}

/// Latencies below 2^10 ns are in the first bucket, latencies from 2^36 ns in the last.
const OCTAVE_MIN: u32 = 10;
const OCTAVE_MAX: u32 = 36;
const BUCKETS: usize = ((OCTAVE_MAX - OCTAVE_MIN) * 4 + 1) as usize;

impl LatencyQuantile {
    /// Creates an empty record. Windows count from `epoch`; a usual length is 10 s.
    pub fn new(window: Duration, epoch: Instant) -> Self {
        let window = window.max(Duration::from_millis(1));
        Self { epoch, window, current: AtomicU32::new(0), counts: [const { AtomicU32::new(0) }; BUCKETS] }
    }

    /// Records the latency of a successful call.
    pub fn record(&self, latency: Duration, now: Instant) {
        self.turn(now);
        self.counts[bucket(latency)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the latency exceeded by one of twenty calls, or `None` with fewer than [`LATENCIES_MIN`] recent calls.
    pub fn p95(&self, now: Instant) -> Option<Duration> {
        self.turn(now);
        let count = |bucket: &AtomicU32| u64::from(bucket.load(Ordering::Relaxed));
        let all = self.counts.iter().map(count).sum::<u64>();
        if all < u64::from(LATENCIES_MIN) {
            return None;
        }
        let rank = all * 95 / 100;
        let mut before = 0;
        for (index, bucket) in self.counts.iter().enumerate() {
            let inside = count(bucket);
            if before + inside > rank {
                let (start, end) = (bucket_start(index), bucket_start(index + 1));
                return Some(Duration::from_nanos(start + (end - start) * (rank - before) / inside));
            }
            before += inside;
        }
        // Counts fell during the loop.
        None
    }

    /// Halves the counts once per window since the last call.
    fn turn(&self, now: Instant) {
        let windows = now.saturating_duration_since(self.epoch).as_nanos() / self.window.as_nanos();
        let window = u32::try_from(windows).unwrap_or(u32::MAX);
        let current = self.current.load(Ordering::Relaxed);
        if window > current {
            self.halve(current, window);
        }
    }

    #[cold]
    fn halve(&self, current: u32, window: u32) {
        if self.current.compare_exchange(current, window, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        for count in &self.counts {
            let before = count.load(Ordering::Relaxed);
            let kept = before.checked_shr(window - current).unwrap_or(0);
            count.fetch_sub(before - kept, Ordering::Relaxed);
        }
    }
}

fn bucket(latency: Duration) -> usize {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1 << OCTAVE_MIN);
    let octave = nanos.ilog2();
    let quarter = nanos >> (octave - 2) & 3;
    let index = u64::from(octave - OCTAVE_MIN) * 4 + quarter;
    usize::try_from(index).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// Returns the lowest latency of a bucket in nanoseconds.
fn bucket_start(index: usize) -> u64 {
    let octave = u64::from(OCTAVE_MIN) + index as u64 / 4;
    (4 + index as u64 % 4) << (octave - 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNAVAILABLE: u32 = 14;

    #[test]
    fn pauses_grow_up_to_the_maximum() {
        let policy = RetryPolicy { multiplier: 2.0, pause_max: Duration::from_millis(35), ..RetryPolicy::default() };
        let millis = [0, 1, 2, 40].map(|before| policy.pause(before, 0.5).as_secs_f64() * 1e3);
        for (found, expected) in millis.into_iter().zip([10.0, 20.0, 35.0, 35.0]) {
            assert!((found - expected).abs() < 0.01, "{millis:?}");
        }
        let [least, most] = [0.0, 1.0].map(|random| policy.pause(0, random).as_secs_f64() * 1e3);
        assert!((least - 8.0).abs() < 0.01 && (most - 12.0).abs() < 0.01, "{least} {most}");
    }

    #[test]
    fn attempts_end_at_the_maximum_and_at_other_codes() {
        let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
        let mut progress = RetryProgress::default();
        assert!(progress.fail(&policy, UNAVAILABLE, None, 0.5).is_some());
        assert!(progress.fail(&policy, UNAVAILABLE, None, 0.5).is_some());
        assert_eq!(progress.fail(&policy, UNAVAILABLE, None, 0.5), None, "the third attempt was the last");
        assert_eq!(progress.failed(), 3);
        assert_eq!(RetryProgress::default().fail(&policy, 3, None, 0.5), None);
        let after = Some(RetryPushback::After(Duration::ZERO));
        assert_eq!(RetryProgress::default().fail(&policy, 3, after, 0.5), None, "a pushback makes no code retryable");
    }

    #[test]
    fn a_pushback_replaces_the_pause_and_starts_the_growth_over() {
        let policy = RetryPolicy { attempts_max: 9, ..RetryPolicy::default() };
        let mut progress = RetryProgress::default();
        let first = progress.fail(&policy, UNAVAILABLE, None, 0.5);
        let second = progress.fail(&policy, UNAVAILABLE, None, 0.5);
        assert!(first < second);
        let wanted = Duration::from_millis(700);
        assert_eq!(progress.fail(&policy, UNAVAILABLE, Some(RetryPushback::After(wanted)), 0.5), Some(wanted));
        assert_eq!(progress.fail(&policy, UNAVAILABLE, None, 0.5), first);
        assert_eq!(progress.fail(&policy, UNAVAILABLE, Some(RetryPushback::Stop), 0.5), None);
    }

    #[test]
    fn malformed_pushbacks_stop() {
        for value in ["-1", "", "abc", "1.5", " 7", "+7", "2147483648", "99999999999999999999"] {
            assert_eq!(RetryPushback::parse(value), RetryPushback::Stop, "{value:?}");
        }
        assert_eq!(RetryPushback::parse("0"), RetryPushback::After(Duration::ZERO));
        assert_eq!(RetryPushback::parse("250"), RetryPushback::After(Duration::from_millis(250)));
    }

    #[test]
    fn hedged_attempts_follow_delays_failures_and_pushbacks() {
        let policy = HedgingPolicy { attempts_max: 3, ..HedgingPolicy::default() };
        let p95 = Some(Duration::from_millis(3));
        assert_eq!(policy.delay(1, None), None, "the latency is unknown");
        assert_eq!(policy.delay(2, p95), p95);
        assert_eq!(policy.delay(3, p95), None);
        assert_eq!(policy.delay_after_failure(1, UNAVAILABLE, None), Some(Duration::ZERO));
        let pushback = Some(RetryPushback::After(Duration::from_secs(1)));
        assert_eq!(policy.delay_after_failure(1, UNAVAILABLE, pushback), Some(Duration::from_secs(1)));
        assert_eq!(policy.delay_after_failure(1, UNAVAILABLE, Some(RetryPushback::Stop)), None);
        assert_eq!(policy.delay_after_failure(1, 3, None), None);
        assert_eq!(policy.delay_after_failure(3, UNAVAILABLE, None), None);
    }

    #[test]
    fn unusable_settings_are_refused() {
        let policy = RetryPolicy { attempts_max: 0, ..RetryPolicy::default() };
        assert_eq!(policy.check().unwrap_err().name(), "attempts_max");
        let policy = RetryPolicy { multiplier: f32::NAN, ..RetryPolicy::default() };
        assert_eq!(policy.check().unwrap_err().to_string(), "multiplier must be a positive number");
        assert_eq!(
            HedgingPolicy { attempts_max: 0, ..HedgingPolicy::default() }.check().unwrap_err().name(),
            "attempts_max"
        );
        assert!(RetryPolicy::default().check().is_ok() && HedgingPolicy::default().check().is_ok());
    }

    #[test]
    fn the_quantile_follows_a_change_of_latency() {
        let epoch = Instant::now();
        let window = Duration::from_secs(10);
        let quantile = LatencyQuantile::new(window, epoch);
        assert_eq!(quantile.p95(epoch), None);
        for _ in 0..1_000 {
            quantile.record(Duration::from_millis(1), epoch);
        }
        let p95 = quantile.p95(epoch).unwrap();
        assert!((Duration::from_micros(750)..Duration::from_micros(1_350)).contains(&p95), "{p95:?}");
        for window_number in 1..=6 {
            for _ in 0..1_000 {
                quantile.record(Duration::from_millis(20), epoch + window * window_number);
            }
        }
        let p95 = quantile.p95(epoch + window * 6).unwrap();
        assert!((Duration::from_millis(16)..Duration::from_millis(26)).contains(&p95), "{p95:?}");
        assert_eq!(quantile.p95(epoch + window * 60), None, "old calls are forgotten");
    }

    #[test]
    fn extreme_latencies_and_pauses_have_a_result() {
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        let policy = RetryPolicy { first_pause: Duration::MAX, pause_max: Duration::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.pause(u32::MAX, 1.0), Duration::MAX);
        let policy = RetryPolicy { first_pause: Duration::ZERO, ..RetryPolicy::default() };
        assert_eq!(policy.pause(u32::MAX, 1.0), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn latencies_are_within_their_bucket(nanos in 1_u64 << OCTAVE_MIN..1 << OCTAVE_MAX) {
            let index = bucket(Duration::from_nanos(nanos));
            prop_assert!(bucket_start(index) <= nanos && nanos < bucket_start(index + 1), "{nanos} in {index}");
        }

        #[test]
        fn the_quantile_is_within_a_bucket_of_the_exact_one(mut micros in proptest::collection::vec(2_u64..1_000_000, 20..300)) {
            let epoch = Instant::now();
            let quantile = LatencyQuantile::new(Duration::from_secs(10), epoch);
            micros.iter().for_each(|micros| quantile.record(Duration::from_micros(*micros), epoch));
            micros.sort_unstable();
            let exact = Duration::from_micros(micros[micros.len() * 95 / 100]).as_secs_f64();
            let found = quantile.p95(epoch).unwrap().as_secs_f64();
            prop_assert!(found > exact / 1.26 && found < exact * 1.26, "{found} for {exact}");
        }

        #[test]
        fn pauses_stay_within_jitter(before in 0_u32..1_000, random in 0.0_f32..1.0) {
            let policy = RetryPolicy::default();
            let pause = policy.pause(before, random);
            prop_assert!(pause >= policy.first_pause.mul_f64(0.799) && pause <= policy.pause_max.mul_f64(1.201));
        }
    }
}
