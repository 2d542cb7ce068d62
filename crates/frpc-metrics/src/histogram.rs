//! Durations in buckets of equal ratio: four per power of two.

use std::time::Duration;

/// The number of buckets: 256 ns and less, four per power of two up to 73 minutes, and everything longer.
pub const BUCKETS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * SUB_BUCKETS + 2;

/// Returns the number of the bucket of a duration.
#[inline]
pub(crate) fn bucket_of(nanos: u64) -> usize {
    // The upper bound of a bucket belongs to it. The first bucket is the quarter before the second.
    let below = nanos.max(1 << FIRST_OCTAVE) - 1;
    let octave = below.ilog2();
    let mantissa = below << (63 - octave);
    // A quarter of the range is at most one below the quarter of the ratio.
    let linear = (mantissa >> 61) as usize;
    let quarter = linear + usize::from(mantissa >= QUARTERS[linear]);
    // The first octave begins after the first bucket, and the top bit of the mantissa is set.
    let bucket = octave as usize * SUB_BUCKETS + quarter + 1 - (FIRST_OCTAVE as usize + 1) * SUB_BUCKETS;
    bucket.min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in seconds, which belongs to it. Infinite for the last one.
pub fn bucket_bound(bucket: usize) -> f64 {
    if bucket + 1 >= BUCKETS {
        return f64::INFINITY;
    }
    (f64::from(FIRST_OCTAVE) + bucket as f64 / SUB_BUCKETS as f64).exp2() / 1e9
}

/// Durations counted in buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationHistogram {
    /// The number of durations in each bucket.
    pub counts: [u64; BUCKETS],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: Duration::ZERO }
    }
}

impl DurationHistogram {
    /// The powers of two per factor of the bounds, as an exponential histogram of OpenTelemetry has them.
    pub const SCALE: i8 = 2;
    /// The index of the second bucket in an exponential histogram of nanoseconds.
    pub const OFFSET: i32 = 32;

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the mean. `None` without durations.
    pub fn mean(&self) -> Option<Duration> {
        let count = self.count();
        (count > 0).then(|| self.sum.div_f64(count as f64))
    }

    /// Returns the duration with this share of all durations at or below it, such as 0.99. `None` without durations.
    ///
    /// It is the upper bound of a bucket, so at most 19 % too long.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let (rank, mut seen) = ((count as f64 * share).max(1.0), 0);
        let found = self.counts.iter().position(|in_bucket| {
            seen += in_bucket;
            seen as f64 >= rank
        })?;
        Some(Duration::from_secs_f64(bucket_bound(found.min(BUCKETS - 2))))
    }

    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    /// Returns the durations added since an earlier state of the same histogram.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        since.counts.iter_mut().zip(before.counts).for_each(|(count, earlier)| *count = count.saturating_sub(earlier));
        since.sum = self.sum.saturating_sub(before.sum);
        since
    }
}

/// The first bucket ends at this power of two, in nanoseconds.
const FIRST_OCTAVE: u32 = 8;
/// The last bucket begins at this power of two, in nanoseconds.
const LAST_OCTAVE: u32 = 42;
const SUB_BUCKETS: usize = 4;
/// The bounds between the buckets of a power of two: 2^63 times 2^(1/4), 2^(2/4) and 2^(3/4), by the first three bits of
/// a number with its top bit set.
const QUARTERS: [u64; 2 * SUB_BUCKETS] =
    [0, 0, 0, 0, 10_968_499_650_544_839_023, 13_043_817_825_332_782_212, 15_511_800_964_685_064_948, u64::MAX];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quarters_are_powers_of_the_fourth_root_of_two() {
        for (index, quarter) in QUARTERS[4..7].iter().enumerate() {
            let exact = 2_f64.powi(63) * 2_f64.powf((index + 1) as f64 / 4.0);
            assert!((*quarter as f64 / exact - 1.0).abs() < 1e-12, "{index}");
        }
    }

    #[test]
    fn powers_of_two_belong_to_the_bucket_below() {
        assert_eq!((bucket_of(0), bucket_of(256), bucket_of(257)), (0, 0, 1));
        assert_eq!((bucket_of(512), bucket_of(513)), (4, 5));
        assert_eq!(
            (bucket_of(1 << 42), bucket_of((1 << 42) + 1), bucket_of(u64::MAX)),
            (BUCKETS - 2, BUCKETS - 1, BUCKETS - 1)
        );
    }

    proptest! {
        #[test]
        fn a_duration_lies_within_the_bounds_of_its_bucket(nanos in 1_u64..1 << 43) {
            let (bucket, seconds) = (bucket_of(nanos), nanos as f64 / 1e9);
            prop_assert!(seconds <= bucket_bound(bucket) + 1e-9);
            prop_assert!(bucket == 0 || seconds >= bucket_bound(bucket - 1));
        }
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut histogram = DurationHistogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (None, None));
        for micros in 1..=100 {
            histogram.counts[bucket_of(micros * 1000)] += 1;
            histogram.sum += Duration::from_micros(micros);
        }
        let micros = |share| histogram.quantile(share).unwrap().as_secs_f64() * 1e6;
        for (share, exact) in [(0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = micros(share);
            assert!(found >= exact && found <= exact * 1.2, "{share}: {found}");
        }
        assert_eq!(histogram.mean(), Some(Duration::from_nanos(50_500)));
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!((twice.count(), twice.since(&histogram)), (200, histogram));
    }
}
