//! Pauses between repeated attempts.

use std::time::Duration;

/// The attempts to connect to a server.
///
/// Fields may be added, so `..ConnectRetry::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRetry {
    /// The number of attempts. Default 10; 0 counts as 1.
    pub attempts: usize,
    /// The pause after the first failed attempt. Default 10 ms. [`Backoff`] describes later pauses.
    pub pause: Duration,
}

impl Default for ConnectRetry {
    fn default() -> Self {
        Self { attempts: 10, pause: Duration::from_millis(10) }
    }
}

/// Exponential backoff with jitter, for repeated attempts.
///
/// Each pause is twice as long as the previous one, up to 5 s, minus a random part of up to half of it. The random
/// part spreads out the clients of a restarted server. [`Client::connect`](crate::Client::connect) already uses a
/// backoff. Programs with their own reconnect loop can use this type:
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
    /// Creates a backoff with a first pause of at most `first`.
    pub fn new(first: Duration) -> Self {
        Self { first, failures: 0 }
    }

    /// Returns the next pause, and counts one more failure.
    pub fn pause(&mut self) -> Duration {
        let longest = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        longest - longest / 2000 * fastrand::u32(..1000)
    }

    /// Starts over with the first pause, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
