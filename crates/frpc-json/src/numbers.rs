//! Numbers in JSON.

use std::{
    fmt::{Display, LowerExp},
    io::Write,
};

use crate::Scanner;

/// Appends the decimal digits of a number to `out`.
#[inline]
pub fn put_u64(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    while number >= 100 {
        let pair = usize::try_from(number % 100).expect("it is below 100") * 2;
        number /= 100;
        start -= 2;
        digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    let pair = usize::try_from(number).expect("it is below 100") * 2;
    start -= 2;
    digits[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    start += usize::from(number < 10);
    out.extend_from_slice(&digits[start..]);
}

/// Appends the decimal digits of a number to `out`.
#[inline]
pub fn put_i64(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    put_u64(number.unsigned_abs(), out);
}

/// Appends the shortest text that parses to the same number, or a quoted word for infinities and NaN.
pub fn put_f64(number: f64, out: &mut Vec<u8>) {
    put_float(number, &number, out);
}

/// Appends the shortest text that parses to the same number, or a quoted word for infinities and NaN.
pub fn put_f32(number: f32, out: &mut Vec<u8>) {
    put_float(number.into(), &number, out);
}

fn put_float(number: f64, text: &(impl Display + LowerExp), out: &mut Vec<u8>) {
    let written = match word(number) {
        Some(word) => out.write_all(word),
        None if is_handy(number) => write!(out, "{text}"),
        None => write!(out, "{text:e}"),
    };
    written.expect("a vector takes everything");
}

fn word(number: f64) -> Option<&'static [u8]> {
    match number {
        f64::INFINITY => Some(b"\"Infinity\""),
        f64::NEG_INFINITY => Some(b"\"-Infinity\""),
        number if number.is_nan() => Some(b"\"NaN\""),
        _ => None,
    }
}

/// Returns `true` if a number is short without an exponent.
fn is_handy(number: f64) -> bool {
    number == 0.0 || (1e-5..1e16).contains(&number.abs())
}

/// Returns `true` if all of `text` is a number.
pub fn is_number(text: &str) -> bool {
    let mut scanner = Scanner::new(text, 0);
    scanner.number().is_ok() && scanner.position() == text.len()
}

/// Returns the sign and absolute value of a number, or `None` if it is no integer or exceeds 64 bits. `text` must be a
/// valid number.
pub fn integer(text: &str) -> Option<(bool, u64)> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // The exponent of the last digit. An exponent outside `i64` is saturated: it exceeds any possible count of digits.
    let is_small = exponent.starts_with('-');
    let exponent = exponent.parse::<i64>().unwrap_or(if is_small { i64::MIN } else { i64::MAX });
    let fraction_len = i64::try_from(fraction.len()).ok()?;
    let digits = whole.bytes().chain(fraction.bytes()).map(|digit| u64::from(digit - b'0'));
    let zeros_behind = digits.clone().rev().take_while(|digit| *digit == 0).count();
    let count = whole.len() + fraction.len() - zeros_behind;
    if count == 0 {
        return Some((is_negative, 0));
    }
    let exponent = exponent.saturating_sub(fraction_len).saturating_add(i64::try_from(zeros_behind).ok()?);
    let power = 10_u64.checked_pow(u32::try_from(exponent).ok()?)?;
    let mut digits = digits.take(count);
    let value = digits.try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(digit))?;
    Some((is_negative, value.checked_mul(power)?))
}

/// Returns the number with this sign and absolute value, if it fits.
#[inline]
pub fn signed(is_negative: bool, number: u64) -> Option<i64> {
    if is_negative { 0_i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// Returns the number with this sign and absolute value, unless it is negative.
#[inline]
pub fn unsigned(is_negative: bool, number: u64) -> Option<u64> {
    (!is_negative || number == 0).then_some(number)
}

/// The digit pairs 00 to 99.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut number = 0_u8;
    while number < 100 {
        pairs[number as usize * 2] = b'0' + number / 10;
        pairs[number as usize * 2 + 1] = b'0' + number % 10;
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_the_standard_library_does() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        for number in powers.flat_map(|power| [power - 1, power, power + 1]).chain([u64::MAX, 42, 1234]) {
            let mut out = Vec::new();
            put_u64(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
        for number in [i64::MIN, -1, 0, i64::MAX] {
            let mut out = Vec::new();
            put_i64(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    #[test]
    fn fractions_are_short_and_come_back() {
        let table = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e15, "1000000000000000"),
            (1e16, "1e16"),
            (1e-5, "0.00001"),
            (1.5e-6, "1.5e-6"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (f64::NAN, "\"NaN\""),
            (f64::INFINITY, "\"Infinity\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ];
        for (number, text) in table {
            let mut out = Vec::new();
            put_f64(number, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
            if number.is_finite() {
                assert!(is_number(text));
                assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
            }
        }
        let mut out = Vec::new();
        put_f32(0.1, &mut out);
        assert_eq!(out, b"0.1", "the digits of its own type");
    }

    #[test]
    fn a_number_ends_where_its_grammar_ends() {
        for number in ["0", "-0", "7", "10", "1.5", "-0.25", "1e2", "1E+2", "1e-2", "0e0", "12.5e10"] {
            assert!(is_number(number), "{number}");
            let text = format!("{number},");
            let mut scanner = Scanner::new(&text, 0);
            assert_eq!((scanner.number(), scanner.position()), (Ok(()), number.len()), "{number}");
        }
        for other in ["", "-", "+1", "01", "-01", ".5", "1.", "1.e2", "1e", "1e+", "e1", "0x1", "--1", "NaN"] {
            assert!(!is_number(other), "{other}");
        }
    }

    #[test]
    fn integers_may_have_a_fraction_of_zeros_or_an_exponent() {
        let table = [
            ("0", Some((false, 0))),
            ("-0.0e5", Some((true, 0))),
            ("0e99999999999999999999", Some((false, 0))),
            ("1.0", Some((false, 1))),
            ("1e2", Some((false, 100))),
            ("-1.5E+1", Some((true, 15))),
            ("1200e-2", Some((false, 12))),
            ("18446744073709551615", Some((false, u64::MAX))),
            ("1844674407370955161.5e1", Some((false, u64::MAX))),
            ("18446744073709551615000e-3", Some((false, u64::MAX))),
            ("18446744073709551616", None),
            ("1e20", None),
            ("1e99999999999999999999", None),
            ("1e-99999999999999999999", None),
            ("0.5", None),
            ("12e-1", None),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text), expected, "{text}");
        }
        let zeros = "0".repeat(1000);
        assert_eq!(integer(&format!("0.{zeros}7e1001")), Some((false, 7)));
        assert_eq!(integer(&format!("7{zeros}e-1000")), Some((false, 7)));
    }
}
