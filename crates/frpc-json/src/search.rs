//! Fast searches for special bytes.

/// Moves `at` over white space and returns the byte there.
#[inline]
pub(crate) fn next_token(text: &str, at: &mut usize) -> Option<u8> {
    let bytes = text.as_bytes();
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(*at) {
        *at += 1;
    }
    bytes.get(*at).copied()
}

/// Returns the number of bytes before the first quote, backslash or control character: strings escape them.
#[inline]
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let marks = |word| below(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
    len_before(bytes, marks, |byte| (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
}

/// Returns the number of bytes before the first quote, bracket or brace.
#[inline]
pub(crate) fn flat_len(bytes: &[u8]) -> usize {
    // Brackets and braces differ in this bit only.
    const BIT: u8 = b'[' ^ b'{';
    let marks = |word| {
        let braces = word | (EACH * u64::from(BIT));
        equal(word, b'"') | equal(braces, b'{') | equal(braces, b'}')
    };
    len_before(bytes, marks, |byte| (byte == b'"') | (byte | BIT == b'{') | (byte | BIT == b'}'))
}

/// Returns the number of digits at the beginning of `bytes`.
#[inline]
pub(crate) fn digits_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // Digits become 0 to 9, all other bytes 10 or more.
        let values = u64::from_le_bytes(*word) ^ (EACH * u64::from(b'0'));
        let marks = (((values & (EACH * 0x7f)) + EACH * (0x80 - 10)) | values) & (EACH * 0x80);
        if marks != 0 {
            return index * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
}

/// Returns the number of bytes before the first special byte. `marks` finds special bytes in a word of eight.
#[inline]
fn len_before(bytes: &[u8], marks: impl Fn(u64) -> u64, is_special: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    loop {
        // Most strings end within this loop. Its single, simple branch is easy to predict.
        let (words, rest) = bytes[at..].as_chunks::<8>();
        for (index, word) in words.iter().take(WORDS).enumerate() {
            // The lowest mark is exact. A borrow can set false marks, but only above it.
            let marks = marks(u64::from_le_bytes(*word));
            if marks != 0 {
                return at + index * 8 + marks.trailing_zeros() as usize / 8;
            }
        }
        if words.len() < WORDS {
            let first = rest.iter().position(|byte| is_special(*byte));
            return at + words.len() * 8 + first.unwrap_or(rest.len());
        }
        at += WORDS * 8;
        // The compiler vectorizes this check: it reads all bytes of a piece without branches. It tells whether one is
        // special, but not which, so the next round looks for it.
        let is_plain =
            |piece: &&[u8; PIECE_LEN]| piece.iter().fold(0, |any, byte| any | u8::from(is_special(*byte))) == 0;
        let (pieces, _) = bytes[at..].as_chunks::<PIECE_LEN>();
        at += PIECE_LEN * pieces.iter().take_while(is_plain).count();
    }
}

/// The number of words examined before larger pieces are.
const WORDS: usize = 16;

/// The number of bytes examined at a time after that.
const PIECE_LEN: usize = 32;

/// Marks the highest bit of each byte less than `limit`.
#[inline]
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(EACH * limit) & !word & (EACH * 0x80)
}

/// Marks the highest bit of each byte equal to `byte`.
#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (EACH * u64::from(byte)), 1)
}

/// A word of eight bytes with the value one.
const EACH: u64 = u64::MAX / 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_special_is_found_at_every_place() {
        for (is_string, specials) in [(true, &b"\"\\\0\x1f\n"[..]), (false, b"\"[]{}")] {
            let len_of = |bytes: &[u8]| if is_string { plain_len(bytes) } else { flat_len(bytes) };
            let plain = "\u{fc}!a\u{df}|:, 9z~\u{7f}\u{e4}Z^\u{f4}1".repeat(12).into_bytes();
            for len in 0..240 {
                assert_eq!(len_of(&plain[..len]), len);
                for special in specials {
                    let mut bytes = plain[..240].to_vec();
                    bytes[len] = *special;
                    bytes[239] = b'"';
                    assert_eq!(len_of(&bytes), len);
                }
            }
        }
    }

    #[test]
    fn the_first_byte_that_is_no_digit_is_found_at_every_place() {
        let digits = b"9876543210123456789012345";
        for len in 0..digits.len() {
            assert_eq!(digits_len(&digits[..len]), len);
            for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                let mut bytes = digits.to_vec();
                bytes[len] = other;
                assert_eq!(digits_len(&bytes), len);
            }
        }
    }
}
