//! The clock of the platform. In a browser, the one of the standard library panics.

use std::{
    hash::{Hash, Hasher},
    sync::OnceLock,
    time::Duration,
};

#[cfg(not(target_family = "wasm"))]
pub use std::time::Instant;
#[cfg(target_family = "wasm")]
pub use web_time::Instant;

/// A year: longer than any wait, and short enough to be added to the time of a clock. A longer setting counts as this one.
pub const TIME_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Returns the time of day.
pub fn time_of_day() -> std::time::SystemTime {
    #[cfg(not(target_family = "wasm"))]
    return std::time::SystemTime::now();
    #[cfg(target_family = "wasm")]
    return web_time::web::SystemTimeExt::to_std(web_time::SystemTime::now());
}

/// Returns a time as nanoseconds after an unspecified start, the same one for the whole process.
///
/// The difference of two numbers, with wrapping, is the difference of their times. It costs a tenth of the instructions of
/// the subtraction of two [`Instant`]s.
#[inline]
pub fn nanos_of(at: Instant) -> u64 {
    let mut parts = InstantParts::default();
    at.hash(&mut parts);
    match parts {
        InstantParts::Whole { secs, nanos } => secs.wrapping_mul(NANOS_PER_SEC).wrapping_add(nanos.into()),
        _ => nanos_since_first(at),
    }
}

/// Returns the nanoseconds between two times. Zero if the end is earlier.
#[inline]
pub fn nanos_between(start: Instant, end: Instant) -> u64 {
    nanos_until(nanos_of(start), nanos_of(end))
}

/// Returns the nanoseconds between two times from [`nanos_of`]. Zero if the end is earlier.
#[inline]
pub(crate) fn nanos_until(start: u64, end: u64) -> u64 {
    end.wrapping_sub(start).cast_signed().max(0).cast_unsigned()
}

/// The numbers inside of an [`Instant`]. Its hash is the only safe way to them.
///
/// On all platforms of today they are seconds and nanoseconds, and the compiler removes all checks. The standard library
/// does not promise this, so anything else takes the way of [`nanos_since_first`].
#[derive(Default)]
enum InstantParts {
    #[default]
    Unread,
    Seconds(u64),
    Whole {
        secs: u64,
        nanos: u32,
    },
    Unknown,
}

impl Hasher for InstantParts {
    fn write(&mut self, _: &[u8]) {
        *self = Self::Unknown;
    }

    #[inline]
    fn write_u64(&mut self, secs: u64) {
        *self = if let Self::Unread = self { Self::Seconds(secs) } else { Self::Unknown };
    }

    #[inline]
    fn write_i64(&mut self, secs: i64) {
        self.write_u64(secs.cast_unsigned());
    }

    #[inline]
    fn write_u32(&mut self, nanos: u32) {
        *self = if let Self::Seconds(secs) = *self { Self::Whole { secs, nanos } } else { Self::Unknown };
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Returns the nanoseconds from the first time of this process to another one.
#[cold]
fn nanos_since_first(at: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = *FIRST.get_or_init(|| at);
    let nanos = |start: Instant, end: Instant| {
        let since = end.saturating_duration_since(start);
        since.as_secs().wrapping_mul(NANOS_PER_SEC).wrapping_add(since.subsec_nanos().into())
    };
    nanos(first, at).wrapping_sub(nanos(at, first))
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_times_differ_as_the_times_do() {
        let start = Instant::now();
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001, 86_400_000_000_001] {
            let end = start + Duration::from_nanos(nanos);
            assert_eq!((nanos_between(start, end), nanos_between(end, start)), (nanos, 0));
            assert_eq!(nanos_since_first(end).wrapping_sub(nanos_since_first(start)), nanos);
        }
    }

    #[test]
    fn an_instant_shows_its_numbers() {
        let mut parts = InstantParts::default();
        Instant::now().hash(&mut parts);
        assert!(matches!(parts, InstantParts::Whole { nanos: 0..1_000_000_000, .. }));
    }

    #[test]
    fn other_numbers_are_not_taken_for_a_time() {
        let is_unknown = |write: fn(&mut InstantParts)| {
            let mut parts = InstantParts::default();
            write(&mut parts);
            !matches!(parts, InstantParts::Whole { .. })
        };
        assert!(is_unknown(|parts| parts.write_u64(1)));
        assert!(is_unknown(|parts| parts.write_u32(1)));
        assert!(is_unknown(|parts| (1_u64, 2_u64).hash(parts)));
        assert!(is_unknown(|parts| (1_u64, 2_u32, 3_u32).hash(parts)));
        assert!(is_unknown(|parts| (1_u64, 2_u32, 3_u8).hash(parts)));
    }
}
