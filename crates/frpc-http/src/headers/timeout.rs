//! Timeouts of calls in headers.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// The timeout header of gRPC and gRPC-Web.
pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static(GRPC_TIMEOUT_NAME);
pub(crate) const GRPC_TIMEOUT_NAME: &str = "grpc-timeout";

/// The timeout header of Connect.
pub(crate) const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// Parses `grpc-timeout`: at most 8 digits and a unit. Returns `None` if the value is invalid.
pub(crate) fn parse_grpc(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let number = number(digits, 8)?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Formats `grpc-timeout` in the finest unit with at most 8 digits. The maximum is 99,999,999 hours.
pub(crate) fn grpc(timeout: Duration) -> HeaderValue {
    const NUMBER_MAX: u128 = 99_999_999;
    let units = [
        (timeout.as_nanos(), 'n'),
        (timeout.as_micros(), 'u'),
        (timeout.as_millis(), 'm'),
        (timeout.as_secs().into(), 'S'),
        ((timeout.as_secs() / 60).into(), 'M'),
    ];
    let fits = units.into_iter().find(|(number, _)| *number <= NUMBER_MAX);
    let (number, unit) = fits.unwrap_or((NUMBER_MAX.min((timeout.as_secs() / 3600).into()), 'H'));
    value(format!("{number}{unit}"))
}

/// Parses `connect-timeout-ms`: at most 10 digits. Returns `None` if the value is invalid.
pub(crate) fn parse_connect(value: &[u8]) -> Option<Duration> {
    number(value, 10).map(Duration::from_millis)
}

/// Formats `connect-timeout-ms`. The maximum is 10 digits.
pub(crate) fn connect(timeout: Duration) -> HeaderValue {
    value(timeout.as_millis().min(9_999_999_999).to_string())
}

fn number(digits: &[u8], len_max: usize) -> Option<u64> {
    if digits.is_empty() || digits.len() > len_max || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and letters are a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_grpc_have_a_unit() {
        for (text, timeout) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(parse_grpc(text.as_bytes()), Some(timeout), "{text}");
        }
        for text in ["", "S", "1", "1s", "123456789S", "-1S", "+1S", "1 S", "1.5S", "\u{661}S"] {
            assert_eq!(parse_grpc(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn timeouts_use_the_finest_unit_with_enough_digits() {
        for (timeout, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_millis(100), "100000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(100_000_000), "1666666M"),
            (Duration::MAX, "99999999H"),
        ] {
            assert_eq!(grpc(timeout), text);
        }
    }

    #[test]
    fn timeouts_of_connect_are_milliseconds() {
        assert_eq!(parse_connect(b"0"), Some(Duration::ZERO));
        assert_eq!(parse_connect(b"9999999999"), Some(Duration::from_millis(9_999_999_999)));
        for text in ["", "-1", "1m", "12345678901", " 1"] {
            assert_eq!(parse_connect(text.as_bytes()), None, "{text}");
        }
        assert_eq!(connect(Duration::from_micros(1999)), "1");
        assert_eq!(connect(Duration::MAX), "9999999999");
    }
}
