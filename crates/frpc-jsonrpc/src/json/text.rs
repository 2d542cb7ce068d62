//! Strings of JSON: which letters need an escape, and what escapes stand for.

use std::borrow::Cow;

/// Returns how many bytes stand before the first that cannot stand in a string as it is: a quote, a backslash or a control
/// character.
#[inline]
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest mark is right; a borrow may set others above it.
        let marks = below(word, 0x20) | below(word ^ (EACH * b'"' as u64), 1) | below(word ^ (EACH * b'\\' as u64), 1);
        if marks != 0 {
            return index * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Marks the highest bit of each byte that is less than `limit`.
#[inline]
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(EACH * limit) & !word & (EACH * 0x80)
}

/// One in each byte.
const EACH: u64 = u64::MAX / 0xff;

/// Writes a string in quotes at the end of `out`.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let [byte, behind @ ..] = special else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => {
                let digit = |bits: u8| b"0123456789abcdef"[usize::from(bits & 0xf)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(*byte)]);
            }
        }
        rest = behind;
    }
    out.push(b'"');
}

/// Returns what a string stands for, of which this is the well-formed text between the quotes. `None` if an escape is half of a pair.
pub(crate) fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    serde_json::from_str(&format!("\"{text}\"")).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_not_plain_is_found_at_every_place() {
        for len in 0..40 {
            let plain = "ü!aß".repeat(8).into_bytes();
            for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
                let mut bytes = plain.clone();
                bytes[len] = special;
                bytes[39] = b'"';
                assert_eq!(plain_len(&bytes), len);
            }
            assert_eq!(plain_len(&plain[..len]), len);
        }
    }

    #[test]
    fn a_string_is_read_as_it_was_written() {
        for text in ["", "plain", "\"quoted\"", "\\", "\0\u{1f}\u{7f}\n\t", "ünïcödé 🐝", "ends with \""] {
            let mut out = Vec::new();
            put_string(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            let inner = str::from_utf8(&out[1..out.len() - 1]).unwrap();
            assert_eq!(unescape(inner).unwrap(), text);
        }
        assert_eq!(unescape(r"\ud83d"), None);
    }
}
