//! Base64. Written in the standard alphabet with padding; read in both alphabets, with or without padding.

/// Appends `bytes` in base64 to `out`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    let digit = |bits: u8| DIGITS[usize::from(bits & 0x3f)];
    let (threes, rest) = bytes.as_chunks::<3>();
    for &[a, b, c] in threes {
        out.extend_from_slice(&[digit(a >> 2), digit(a << 4 | b >> 4), digit(b << 2 | c >> 6), digit(c)]);
    }
    match *rest {
        [a] => out.extend_from_slice(&[digit(a >> 2), digit(a << 4), b'=', b'=']),
        [a, b] => out.extend_from_slice(&[digit(a >> 2), digit(a << 4 | b >> 4), digit(b << 2), b'=']),
        _ => {}
    }
}

/// Returns `bytes` in base64 without padding, as in headers and error details.
pub fn encode_unpadded(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    encode(bytes, &mut out);
    out.truncate((bytes.len() * 4).div_ceil(3));
    String::from_utf8(out).expect("base64 is ASCII")
}

/// Decodes base64, or returns `None` if `text` is not base64. Ignores the unused bits of the last digit.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (fours, rest) = digits.as_chunks::<4>();
    for four in fours {
        let [a, b, c, d] = four.map(|digit| VALUES[usize::from(digit)]);
        if a | b | c | d > 0x3f {
            return None;
        }
        out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
    }
    let value = |digit: u8| Some(VALUES[usize::from(digit)]).filter(|&value| value <= 0x3f);
    match *rest {
        [] => {}
        [a, b] => out.push(value(a)? << 2 | value(b)? >> 4),
        [a, b, c] => {
            let (a, b, c) = (value(a)?, value(b)?, value(c)?);
            out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2]);
        }
        _ => return None,
    }
    Some(out)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value of each digit in either alphabet, and 0xff for all other bytes.
const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut value = 0;
    while value < 64 {
        values[DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    values[b'-' as usize] = 62;
    values[b'_' as usize] = 63;
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_come_back() {
        for len in 0..70_u8 {
            let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(37).wrapping_add(len)).collect();
            let mut out = Vec::new();
            encode(&bytes, &mut out);
            let text = String::from_utf8(out).expect("base64 is ASCII");
            assert_eq!(text.len() % 4, 0);
            assert_eq!(encode_unpadded(&bytes), text.trim_end_matches('='));
            assert_eq!(decode(&text).as_ref(), Some(&bytes), "{text}");
            assert_eq!(decode(text.trim_end_matches('=')).as_ref(), Some(&bytes), "{text} without padding");
            let safe = text.replace('+', "-").replace('/', "_");
            assert_eq!(decode(&safe).as_ref(), Some(&bytes), "{safe}");
        }
    }

    #[test]
    fn known_bytes_have_known_digits() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            let mut out = Vec::new();
            encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
        }
        assert_eq!(decode("-_"), Some(vec![0xfb]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in [
            "A",
            "AAAAA",
            "A=",
            "A===",
            "=",
            "====",
            "AA=",
            "AA=A",
            "AAA==",
            "AA A",
            "AAA\n",
            "AA\u{e4}A",
            "A\0AA",
            "*AAA",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
