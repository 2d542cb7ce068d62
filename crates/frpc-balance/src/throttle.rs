//! Limits of a client on calls and retries to overloaded servers.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use crate::{InvalidSetting, clock::Instant};

/// The rules for refusing calls in the client while servers refuse many of them.
///
/// Fields may be added, so `..ThrottleSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// The number of calls per accepted call before the client refuses some. Default 2, at least 1.
    pub factor: f32,
    /// The time over which calls count. Default 2 min.
    pub window: Duration,
    /// The minimum number of calls in the window before the client refuses any. Default 10.
    pub calls_min: u32,
    /// The maximum share of refused calls. The rest finds out when the servers have recovered. Default 0.9.
    pub refused_max: f32,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self { factor: 2.0, window: Duration::from_secs(120), calls_min: 10, refused_max: 0.9 }
    }
}

impl ThrottleSettings {
    /// Returns an error if a setting has an unusable value.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::require(self.factor >= 1.0, "factor", "must be at least 1: accepted calls would be refused")?;
        let is_long = self.window >= Duration::from_millis(PARTS as u64);
        InvalidSetting::require(is_long, "window", "must be at least 12 ms")?;
        let is_share = (0.0..1.0).contains(&self.refused_max);
        InvalidSetting::require(
            is_share,
            "refused_max",
            "must be from 0 to less than 1: the client would never recover",
        )
    }
}

/// Refuses a share of calls in the client while servers refuse many: `(calls - K x accepted) / (calls + 1)`.
///
/// The algorithm is the adaptive throttling in the chapter "Handling Overload" of Google's SRE book. Calls count at
/// their end, so calls in flight are not taken for refused ones.
#[derive(Debug)]
pub struct ClientThrottle {
    settings: ThrottleSettings,
    epoch: Instant,
    calls: WindowCounter,
    accepted: WindowCounter,
}

impl ClientThrottle {
    /// Creates the throttle of a client without calls so far. Times count from `epoch`.
    pub fn new(settings: ThrottleSettings, epoch: Instant) -> Self {
        Self { settings, epoch, calls: WindowCounter::default(), accepted: WindowCounter::default() }
    }

    /// Returns `true` if the client may send a call. `random` is in `0.0..1.0`. A refused call counts and needs no
    /// further method.
    pub fn admits(&self, now: Instant, random: f32) -> bool {
        let is_admitted = random >= self.refused_share(now);
        if !is_admitted {
            self.refused(now);
        }
        is_admitted
    }

    /// Counts a call accepted by its server, with any result.
    pub fn accepted(&self, now: Instant) {
        let part = self.part(now);
        self.calls.add(part);
        self.accepted.add(part);
    }

    /// Counts a call refused by an overloaded server, or one without an answer.
    pub fn refused(&self, now: Instant) {
        self.calls.add(self.part(now));
    }

    /// Returns the share of calls refused at present.
    pub fn refused_share(&self, now: Instant) -> f32 {
        let part = self.part(now);
        let [calls, accepted] = [&self.calls, &self.accepted].map(|counter| counter.sum(part));
        if calls < u64::from(self.settings.calls_min) {
            return 0.0;
        }
        let excess = calls as f32 - self.settings.factor * accepted as f32;
        (excess / (calls as f32 + 1.0)).clamp(0.0, self.settings.refused_max)
    }

    /// Returns the number of the part of the window, never zero: unused counters are of part zero.
    fn part(&self, now: Instant) -> u32 {
        let len = (self.settings.window.as_nanos() / PARTS as u128).max(1);
        let part = now.saturating_duration_since(self.epoch).as_nanos() / len + PARTS as u128;
        u32::try_from(part).unwrap_or(u32::MAX)
    }
}

/// The number of parts of a window.
const PARTS: usize = 12;

/// A count over a sliding window.
#[derive(Debug, Default)]
struct WindowCounter {
    /// The count of one part in the lower half, the number of this part in the upper half.
    parts: [AtomicU64; PARTS],
}

impl WindowCounter {
    fn add(&self, part: u32) {
        let counter = &self.parts[part as usize % PARTS];
        let add = |state: u64| {
            let count = if state >> 32 == u64::from(part) { state & u64::from(u32::MAX) } else { 0 };
            Some(u64::from(part) << 32 | (count + 1).min(u64::from(u32::MAX)))
        };
        let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn sum(&self, part: u32) -> u64 {
        let recent = |state: u64| u64::from(part).wrapping_sub(state >> 32) < PARTS as u64;
        let states = self.parts.iter().map(|counter| counter.load(Ordering::Relaxed));
        states.filter(|state| recent(*state)).map(|state| state & u64::from(u32::MAX)).sum()
    }
}

/// The limit on retries from the field `retryThrottling` of a service config (gRFC A6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryThrottling {
    /// The number of tokens at the start, at most 1,000. Retries stop at half of them.
    pub tokens_max: u32,
    /// The tokens returned by a successful call. A failed call takes one. Precise to three digits.
    pub ratio: f32,
}

impl RetryThrottling {
    /// Returns an error if a setting has an unusable value.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::require((1..=1_000).contains(&self.tokens_max), "tokens_max", "must be from 1 to 1000")?;
        let is_counted = self.ratio.is_finite() && self.ratio >= 0.001;
        InvalidSetting::require(is_counted, "ratio", "must be at least 0.001")
    }
}

/// Counts the tokens of [`RetryThrottling`] for one server name.
#[derive(Debug)]
pub struct RetryTokens {
    max: u32,
    refund: u32,
    /// Thousandths of a token.
    left: AtomicU32,
}

impl RetryTokens {
    /// Starts with all tokens.
    pub fn new(settings: RetryThrottling) -> Self {
        let max = settings.tokens_max.clamp(1, 1_000) * 1_000;
        // The small summand keeps 0.1 from becoming 0.099.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let refund = (f64::from(settings.ratio) * 1_000.0 + 0.001) as u32;
        Self { max, refund: refund.min(max), left: AtomicU32::new(max) }
    }

    /// Counts a successful call.
    pub fn succeed(&self) {
        // Read first: without failures the line needs no write.
        if self.left.load(Ordering::Relaxed) < self.max {
            let add = |left: u32| Some((left + self.refund).min(self.max));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Counts a failure with a retryable code, or with a pushback against retries. Returns `true` if a retry is
    /// allowed.
    pub fn fail(&self) -> bool {
        let take = |left: u32| Some(left.saturating_sub(1_000));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        self.admits()
    }

    /// Returns `true` if a retry or hedged attempt is allowed.
    pub fn admits(&self) -> bool {
        self.left.load(Ordering::Relaxed) > self.max / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepted_calls_are_never_throttled() {
        let epoch = Instant::now();
        let throttle = ClientThrottle::new(ThrottleSettings::default(), epoch);
        for number in 0..1_000 {
            assert!(throttle.admits(epoch, 0.0), "call {number}");
            throttle.accepted(epoch);
        }
    }

    #[test]
    fn a_server_that_refuses_all_gets_a_tenth() {
        let epoch = Instant::now();
        let throttle = ClientThrottle::new(ThrottleSettings::default(), epoch);
        let (mut random, mut sent) = (fastrand::Rng::with_seed(7), 0);
        for _ in 0..10_000 {
            if throttle.admits(epoch, random.f32()) {
                throttle.refused(epoch);
                sent += 1;
            }
        }
        assert!((900..1_200).contains(&sent), "{sent}");
    }

    #[test]
    fn an_overloaded_server_gets_about_twice_its_capacity() {
        let epoch = Instant::now();
        let throttle = ClientThrottle::new(ThrottleSettings::default(), epoch);
        let mut random = fastrand::Rng::with_seed(7);
        let (mut sent, mut accepted) = (0, 0);
        // 100 calls a second, capacity for 20.
        for second in 0..600 {
            let now = epoch + Duration::from_secs(second);
            let mut capacity = 20;
            for _ in 0..100 {
                if !throttle.admits(now, random.f32()) {
                    continue;
                }
                let is_measured = second >= 300;
                sent += u32::from(is_measured);
                if capacity > 0 {
                    capacity -= 1;
                    accepted += u32::from(is_measured);
                    throttle.accepted(now);
                } else {
                    throttle.refused(now);
                }
            }
        }
        assert!(f64::from(accepted) > 0.98 * 6_000.0, "{accepted} of the capacity are used");
        assert!((10_000..14_000).contains(&sent), "{sent} calls for 6000 places");
    }

    #[test]
    fn the_past_is_forgotten() {
        let epoch = Instant::now();
        let throttle = ClientThrottle::new(ThrottleSettings::default(), epoch);
        (0..9).for_each(|_| throttle.refused(epoch));
        assert!(throttle.admits(epoch, 0.0), "nine calls prove nothing");
        (0..100).for_each(|_| throttle.refused(epoch));
        assert!(throttle.refused_share(epoch + Duration::from_secs(109)) > 0.8);
        assert_eq!(throttle.refused_share(epoch + Duration::from_secs(121)), 0.0);
    }

    #[test]
    fn retries_stop_at_half_of_the_tokens() {
        let tokens = RetryTokens::new(RetryThrottling { tokens_max: 10, ratio: 0.1 });
        assert_eq!([(); 5].map(|()| tokens.fail()), [true, true, true, true, false]);
        tokens.succeed();
        assert!(tokens.admits(), "5.1 of 10");
        (0..100).for_each(|_| _ = tokens.fail());
        (0..50).for_each(|_| tokens.succeed());
        assert!(!tokens.admits(), "5.0 of 10");
        (0..1_000).for_each(|_| tokens.succeed());
        assert_eq!(tokens.left.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn unusable_settings_are_refused() {
        let of = |settings: ThrottleSettings| settings.check().unwrap_err().name();
        let usual = ThrottleSettings::default();
        assert!(usual.check().is_ok());
        assert_eq!(of(ThrottleSettings { factor: 0.5, ..usual }), "factor");
        assert_eq!(of(ThrottleSettings { factor: f32::NAN, ..usual }), "factor");
        assert_eq!(of(ThrottleSettings { window: Duration::ZERO, ..usual }), "window");
        assert_eq!(of(ThrottleSettings { refused_max: 1.0, ..usual }), "refused_max");
        assert_eq!(RetryThrottling { tokens_max: 0, ratio: 0.1 }.check().unwrap_err().name(), "tokens_max");
        assert_eq!(RetryThrottling { tokens_max: 10, ratio: 0.0001 }.check().unwrap_err().name(), "ratio");
    }

    proptest! {
        #[test]
        fn a_share_is_a_share(steps in proptest::collection::vec((0_u64..60, 0..30_u32, 0..30_u32), 1..40)) {
            let epoch = Instant::now();
            let settings = ThrottleSettings::default();
            let throttle = ClientThrottle::new(settings, epoch);
            let mut now = epoch;
            for (pause, accepted, refused) in steps {
                now += Duration::from_secs(pause);
                (0..accepted).for_each(|_| throttle.accepted(now));
                (0..refused).for_each(|_| throttle.refused(now));
                let share = throttle.refused_share(now);
                prop_assert!((0.0..=settings.refused_max).contains(&share), "{share}");
            }
        }
    }
}
