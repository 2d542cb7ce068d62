//! The pauses between attempts.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The pauses between attempts that fail: each is twice as long as the one before, up to 5 s, less a random part of up to
/// half of it, so that the clients of a server that was lost do not all come back at once.
///
/// [`Client::connect`](crate::Client::connect) keeps to one by itself. It is here for programs that connect again when a
/// connection is lost:
///
/// ```
/// use std::time::Duration;
///
/// let mut backoff = frisbee::Backoff::new(Duration::from_secs(1));
/// for longest in [1, 2, 4, 5, 5].map(Duration::from_secs) {
///     let pause = backoff.pause();
///     assert!(longest / 2 <= pause && pause <= longest);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    failures: u32,
}

impl Backoff {
    /// Begins with a pause of at most `first`.
    pub fn new(first: Duration) -> Self {
        Self { first, failures: 0 }
    }

    /// Returns how long to wait now, after one more failure.
    pub fn pause(&mut self) -> Duration {
        let longest = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        // Every state has other keys, which makes the hash of nothing a random number.
        let thousandths = RandomState::new().hash_one(()) % 1000;
        longest - longest / 2000 * u32::try_from(thousandths).expect("it is less than 1000")
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

const PAUSE_MAX: Duration = Duration::from_secs(5);
