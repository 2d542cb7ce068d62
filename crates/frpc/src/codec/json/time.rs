//! Timestamps in RFC 3339 format, and durations in seconds.

use frpc_json::numbers::put_u64;

/// Writes a timestamp in UTC, or returns `None` if it is outside the years 1 to 9999.
pub(super) fn put_timestamp(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> Option<()> {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)?;
    if !(TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(&seconds) {
        return None;
    }
    let (days, second) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    let (year, month, day) = date(days);
    put_digits(year, 4, out);
    for (sign, number) in
        [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
    {
        out.push(sign);
        put_digits(number, 2, out);
    }
    put_fraction(nanos, out);
    out.push(b'Z');
    Some(())
}

/// Parses a timestamp in any time zone.
pub(super) fn timestamp(text: &str) -> Option<(i64, i32)> {
    let (date, time) = text.split_at_checked(10)?;
    let (time, rest) = time.strip_prefix('T')?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let (nanos, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
            (fraction(&rest[..end])?, &rest[end..])
        }
        None => (0, rest),
    };
    let offset = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign @ ("+" | "-"), zone) => {
            let [hours, minutes] = numbers(zone, ':', [2, 2])?;
            let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            if sign == "+" { minutes * 60 } else { -minutes * 60 }
        }
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_date = (1..=12).contains(&month) && day >= 1 && day <= days_of_month(year, month);
    let seconds = days(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    let is_in_range = (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(&seconds);
    (is_time && is_date && is_in_range).then_some((seconds, nanos))
}

/// Writes a duration, or returns `None` if it exceeds 10,000 years or its parts differ in sign.
pub(super) fn put_duration(seconds: i64, nanos: i32, out: &mut Vec<u8>) -> Option<()> {
    let is_whole = seconds.unsigned_abs() <= DURATION_MAX && nanos.unsigned_abs() < NANOS_PER_SECOND;
    let has_one_sign = !(seconds < 0 && nanos > 0 || seconds > 0 && nanos < 0);
    if !is_whole || !has_one_sign {
        return None;
    }
    if seconds < 0 || nanos < 0 {
        out.push(b'-');
    }
    put_u64(seconds.unsigned_abs(), out);
    put_fraction(nanos.unsigned_abs(), out);
    out.push(b's');
    Some(())
}

/// Parses a duration.
pub(super) fn duration(text: &str) -> Option<(i64, i32)> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let text = text.strip_suffix('s')?;
    let (seconds, nanos) = match text.split_once('.') {
        Some((seconds, nanos)) => (seconds, fraction(nanos)?),
        None => (text, 0),
    };
    let seconds = Some(seconds).filter(|seconds| is_digits(seconds))?.parse::<u64>().ok()?;
    let seconds = i64::try_from(Some(seconds).filter(|seconds| *seconds <= DURATION_MAX)?).ok()?;
    Some(if is_negative { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// Writes the fraction of a second with zero, three, six or nine digits.
fn put_fraction(nanos: u32, out: &mut Vec<u8>) {
    if nanos == 0 {
        return;
    }
    out.push(b'.');
    let (number, len) = match nanos {
        nanos if nanos.is_multiple_of(1_000_000) => (nanos / 1_000_000, 3),
        nanos if nanos.is_multiple_of(1_000) => (nanos / 1_000, 6),
        nanos => (nanos, 9),
    };
    put_digits(number.into(), len, out);
}

/// Writes the last `len` digits of a non-negative number.
fn put_digits(number: i64, len: u32, out: &mut Vec<u8>) {
    for place in (0..len).rev() {
        let digit = u8::try_from(number / 10_i64.pow(place) % 10).expect("it is one digit");
        out.push(b'0' + digit);
    }
}

/// Converts the digits after the decimal point to nanoseconds.
fn fraction(digits: &str) -> Option<i32> {
    if !is_digits(digits) || digits.len() > 9 {
        return None;
    }
    let scale = 10_i32.pow(u32::try_from(9 - digits.len()).ok()?);
    Some(digits.parse::<i32>().ok()? * scale)
}

/// Parses numbers between separators, each with an exact count of digits.
fn numbers<const COUNT: usize>(text: &str, sign: char, lens: [usize; COUNT]) -> Option<[i64; COUNT]> {
    let mut parts = text.split(sign);
    let mut numbers = [0; COUNT];
    for (number, len) in numbers.iter_mut().zip(lens) {
        let digits = parts.next().filter(|digits| digits.len() == len && is_digits(digits))?;
        *number = digits.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the days from 1970 to a date of the Gregorian calendar. Years start in March here, so the leap day is the
/// last day of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + days_before_month + day - 1 - DAYS_BEFORE_1970
}

/// Returns the date `days` after the start of 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (eras, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    // Subtracts the leap days before it, so all years have the same length.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, day) = (year + eras * 400, day - (153 * month + 2) / 5 + 1);
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The days of 400 years. The calendar repeats after that.
const DAYS_PER_ERA: i64 = 146_097;
/// The days from March of the year 0 to the start of 1970.
const DAYS_BEFORE_1970: i64 = 719_468;
/// The valid range of seconds in a timestamp.
const TIMESTAMP_MIN: i64 = -62_135_596_800;
const TIMESTAMP_MAX: i64 = 253_402_300_799;
/// The maximum number of seconds in a duration.
const DURATION_MAX: u64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<String> {
        let mut out = Vec::new();
        put(&mut out)?;
        Some(String::from_utf8(out).expect("times are ASCII"))
    }

    #[test]
    fn every_day_round_trips() {
        let mut expected = (1, 1, 1);
        for day in TIMESTAMP_MIN / SECONDS_PER_DAY..=TIMESTAMP_MAX / SECONDS_PER_DAY {
            let (year, month, of_month) = date(day);
            assert_eq!((year, month, of_month), expected, "day {day}");
            assert_eq!(days(year, month, of_month), day);
            expected = if of_month < days_of_month(year, month) {
                (year, month, of_month + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
        }
        assert_eq!(expected, (10_000, 1, 1));
    }

    #[test]
    fn timestamps_are_written_in_utc() {
        let table = [
            (0, 0, "1970-01-01T00:00:00Z"),
            (1_700_000_000, 120_000_000, "2023-11-14T22:13:20.120Z"),
            (-1, 999_999_999, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400, 1_000, "2000-02-29T00:00:00.000001Z"),
            (TIMESTAMP_MIN, 0, "0001-01-01T00:00:00Z"),
            (TIMESTAMP_MAX, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
        ];
        for (seconds, nanos, text) in table {
            assert_eq!(written(|out| put_timestamp(seconds, nanos, out)).as_deref(), Some(text));
            assert_eq!(timestamp(text), Some((seconds, nanos)));
        }
        for (seconds, nanos) in
            [(TIMESTAMP_MIN - 1, 0), (TIMESTAMP_MAX + 1, 0), (i64::MIN, 0), (i64::MAX, 0), (0, -1), (0, 1_000_000_000)]
        {
            assert_eq!(written(|out| put_timestamp(seconds, nanos, out)), None, "{seconds} {nanos}");
        }
    }

    #[test]
    fn timestamps_of_all_zones_are_read() {
        assert_eq!(timestamp("1970-01-01T01:30:00+01:30"), Some((0, 0)));
        assert_eq!(timestamp("1969-12-31T16:00:00.5-08:00"), Some((0, 500_000_000)));
        assert_eq!(timestamp("1970-01-01T00:00:00.123456789Z"), Some((0, 123_456_789)));
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01t00:00:00Z",
            "1970-01-01T00:00:00z",
            "1970-01-01 00:00:00Z",
            "1970-1-01T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "1970-01-32T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00,5Z",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+0100",
            "1970-01-01T00:00:00+01",
            "1970-01-01T00:00:00Z ",
            "+970-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "1970-01-01T00:00:0\u{e4}Z",
            "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}T00:00:00Z",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_decimal_seconds() {
        let table = [
            (0, 0, "0s"),
            (1, 500_000_000, "1.500s"),
            (-1, -1, "-1.000000001s"),
            (0, -340_000, "-0.000340s"),
            (315_576_000_000, 999_999_999, "315576000000.999999999s"),
        ];
        for (seconds, nanos, text) in table {
            assert_eq!(written(|out| put_duration(seconds, nanos, out)).as_deref(), Some(text));
            assert_eq!(duration(text), Some((seconds, nanos)));
        }
        assert_eq!(duration("1.5s"), Some((1, 500_000_000)));
        for (seconds, nanos) in
            [(1, -1), (-1, 1), (315_576_000_001, 0), (i64::MIN, 0), (0, 1_000_000_000), (0, i32::MIN)]
        {
            assert_eq!(written(|out| put_duration(seconds, nanos, out)), None, "{seconds} {nanos}");
        }
        for text in [
            "",
            "s",
            "1",
            "1 s",
            "1.s",
            ".5s",
            "1.0000000000s",
            "--1s",
            "1.-5s",
            "+1s",
            "315576000001s",
            "1e2s",
            "1S",
            "99999999999999999999s",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
