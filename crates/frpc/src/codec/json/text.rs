//! Escaping and unescaping of strings.

/// Returns the number of bytes before the first one that needs an escape: a quote, a backslash or a control character.
#[inline]
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<16>();
    // Checking whole blocks without an early exit lets the compiler use vector instructions.
    let is_plain = |block: &&[u8; 16]| block.iter().fold(0, |found, byte| found | u8::from(is_special(byte))) == 0;
    let len = 16 * blocks.iter().take_while(is_plain).count();
    len + plain_len_by_words(&bytes[len..])
}

/// Like [`plain_len`], but eight bytes at a time. Faster for a writer, because it copies the bytes afterwards.
#[inline]
fn plain_len_by_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Only the lowest mark is reliable: a borrow may set marks above it.
        let marks = below(word, 0x20) | below(word ^ (EACH * b'"' as u64), 1) | below(word ^ (EACH * b'\\' as u64), 1);
        if marks != 0 {
            return index * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

#[inline]
fn is_special(byte: &u8) -> bool {
    *byte < 0x20 || matches!(byte, b'"' | b'\\')
}

/// Sets the highest bit of each byte less than `limit`.
#[inline]
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(EACH * limit) & !word & (EACH * 0x80)
}

/// Appends the escaped string to `out`.
#[inline]
pub(super) fn escape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_len_by_words(rest));
        out.extend_from_slice(plain);
        let [byte, behind @ ..] = special else { return };
        escape_byte(*byte, out);
        rest = behind;
    }
}

#[cold]
fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        b'"' | b'\\' => byte,
        _ => {
            let digit = |bits: u8| b"0123456789abcdef"[usize::from(bits & 0xf)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Parses an escape after its backslash and returns its length. Returns `None` for half a surrogate pair.
pub(super) fn unescape(escape: &[u8], out: &mut String) -> Option<usize> {
    let letter = match escape.first()? {
        b'b' => '\u{8}',
        b't' => '\t',
        b'n' => '\n',
        b'f' => '\u{c}',
        b'r' => '\r',
        b'u' => return unescape_number(escape, out),
        &byte @ (b'"' | b'\\' | b'/') => char::from(byte),
        _ => return None,
    };
    out.push(letter);
    Some(1)
}

fn unescape_number(escape: &[u8], out: &mut String) -> Option<usize> {
    let first = four_digits(escape.get(1..5)?)?;
    if !(0xd800..0xdc00).contains(&first) {
        // `None` for the second half of a surrogate pair.
        out.push(char::from_u32(first)?);
        return Some(5);
    }
    let second = four_digits(escape.get(5..11)?.strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    out.push(char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)?);
    Some(11)
}

fn four_digits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
}

/// A one in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_is() {
        for special in (0..0x20).chain([b'"', b'\\']) {
            for plain in [b' ', b'a', b'#', b'!', b'[', b']', 0x7f, 0x80, 0xc3, 0xff] {
                for len in 0..20 {
                    let mut bytes = vec![plain; 20];
                    assert_eq!(plain_len(&bytes), 20, "{plain:#x}");
                    bytes[len] = special;
                    bytes[19] = special;
                    assert_eq!(plain_len(&bytes), len, "{special:#x} behind {plain:#x}");
                }
            }
        }
    }

    #[test]
    fn escapes_stand_for_letters() {
        let table = [
            ("n", "\n"),
            ("\"", "\""),
            ("/", "/"),
            ("u0041", "A"),
            ("u00e4", "\u{e4}"),
            ("uD83D\\ude00", "\u{1f600}"),
            ("u0000", "\0"),
            ("uFFFF", "\u{ffff}"),
        ];
        for (escape, expected) in table {
            let mut out = String::new();
            assert_eq!(unescape(escape.as_bytes(), &mut out), Some(escape.len()), "{escape}");
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for escape in [
            "",
            "x",
            "N",
            "'",
            "u",
            "u004",
            "u00g0",
            "u+041",
            "ud83d",
            "ud83d\\n",
            "ude00",
            "ud83d\\ud83d",
            "ud83d\\u004",
        ] {
            assert_eq!(unescape(escape.as_bytes(), &mut String::new()), None, "{escape}");
        }
    }
}
