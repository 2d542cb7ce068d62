//! JSON strings: escaping, unescaping, and the search for their ends.

use std::borrow::Cow;

use crate::search::plain_len;

/// Appends `text` to `out` as a JSON string.
#[inline]
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let [byte, behind @ ..] = special else { break };
        escape_byte(*byte, out);
        rest = behind;
    }
    out.push(b'"');
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

/// Returns the unescaped text of a string without quotes, or `None` for an invalid escape, such as half of a surrogate
/// pair.
///
/// ```
/// use frpc_json::text::unescape;
///
/// assert_eq!(unescape("plain").as_deref(), Some("plain"));
/// assert_eq!(unescape(r"two\nlines").as_deref(), Some("two\nlines"));
/// assert_eq!(unescape(r"\ud83d"), None);
/// ```
pub fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let len = unescape_into(text, &mut plain).ok()?;
    (len == text.len()).then_some(Cow::Owned(plain))
}

/// Appends the unescaped text up to a quote, a control character or the end. Returns the length of the text before it,
/// or the position of an invalid escape.
pub(crate) fn unescape_into(text: &str, out: &mut String) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let len = plain_len(&bytes[at..]);
        out.push_str(&text[at..at + len]);
        at += len;
        let Some((b'\\', escape)) = bytes[at..].split_first() else { return Ok(at) };
        at += 1 + unescape_one(escape, out).ok_or(at)?;
    }
}

/// Returns the position of the first half of a surrogate pair without the other half in valid JSON. A
/// [`Scanner`](crate::Scanner) accepts such text, because it is grammatical.
pub fn unpaired_surrogate(json: &str) -> Option<usize> {
    let mut at = 0;
    let mut letter = String::new();
    // Backslashes occur in strings only.
    while let Some(len) = json[at..].find('\\') {
        at += len;
        letter.clear();
        let Some(len) = unescape_one(&json.as_bytes()[at + 1..], &mut letter) else { return Some(at) };
        at += 1 + len;
    }
    None
}

/// Returns the length of a string before its closing quote, escapes included. `bytes` begin after its opening quote.
/// Ignores the form of escapes. Returns `None` if there is no closing quote.
#[inline]
pub fn string_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += plain_len(bytes.get(at..)?);
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Parses an escape after its backslash and returns its length. Returns `None` for half a surrogate pair.
fn unescape_one(escape: &[u8], out: &mut String) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(unescape_one(escape.as_bytes(), &mut out), Some(escape.len()), "{escape}");
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
            assert_eq!(unescape_one(escape.as_bytes(), &mut String::new()), None, "{escape}");
        }
    }

    #[test]
    fn a_string_is_read_as_it_was_written() {
        for text in ["", "plain", "\"quoted\"", "\\", "\0\u{8}\u{c}\u{1f}\u{7f}\r\n\t", "ünïcödé 🐝", "ends with \""]
        {
            let mut out = Vec::new();
            put_string(&mut out, text);
            assert_eq!(out, serde_json::to_vec(text).unwrap());
            assert_eq!(string_len(&out[1..]), Some(out.len() - 2));
            let inner = str::from_utf8(&out[1..out.len() - 1]).unwrap();
            assert_eq!(unescape(inner).unwrap(), text);
        }
        assert_eq!(unescape(r"\ud83d"), None);
        assert_eq!(unescape("\\n\""), None, "the string ends before");
        assert_eq!(string_len(b"no end\\\""), None);
    }

    #[test]
    fn half_of_a_surrogate_pair_is_found_anywhere() {
        assert_eq!(unpaired_surrogate(r#"{"a":["\\ud83d","\n\ud83d\ude00"]}"#), None);
        assert_eq!(unpaired_surrogate(r#"["\n\ud83d","\ude00"]"#), Some(4));
        assert_eq!(unpaired_surrogate(r#"{"\ude00":1}"#), Some(2));
    }
}
