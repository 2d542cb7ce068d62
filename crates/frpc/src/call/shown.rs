//! Quotes of a peer in error messages.

/// Returns text of a peer for an error of this side: without control characters, and cut after 200 characters.
///
/// Quotes stay as they are, a backslash becomes two, and characters that terminals hide or obey become escapes such as
/// `\u{1b}`.
pub fn shown(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    // A character has at most four bytes.
    let (start, is_cut) = match text.get(..SHOWN_LEN_MAX * 4) {
        Some(start) => (start, text.len() > start.len()),
        None => (text, false),
    };
    let text = String::from_utf8_lossy(start);
    let mut shown = String::with_capacity(text.len().min(SHOWN_LEN_MAX));
    let mut room = SHOWN_LEN_MAX;
    for char in text.chars() {
        let escaped = match char {
            '"' | '\'' => char.to_string(),
            char => char.escape_debug().to_string(),
        };
        let Some(left) = room.checked_sub(escaped.chars().count()) else { return shown + CUT };
        room = left;
        shown.push_str(&escaped);
    }
    if is_cut { shown + CUT } else { shown }
}

/// The mark at the end of cut text. Headers and metadata allow it.
const CUT: &str = "...";
/// The maximum length of the text of a peer in an error, in characters.
const SHOWN_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_escaped_and_cut() {
        for (text, expected) in [
            ("plain 'text' \"quoted\" ä€", "plain 'text' \"quoted\" ä€"),
            ("\x1b[2J\r\n\t\0\u{9b}", "\\u{1b}[2J\\r\\n\\t\\0\\u{9b}"),
            ("\u{202e}txt\u{200b}", "\\u{202e}txt\\u{200b}"),
            ("\\", "\\\\"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(shown(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(shown("€".repeat(200)), "€".repeat(200));
        for long in ["a", "€", "\u{1f600}", "\x1b"] {
            let shown = shown(long.repeat(100_000));
            assert!(shown.ends_with(CUT) && shown.chars().count() <= SHOWN_LEN_MAX + CUT.len(), "{shown}");
        }
    }
}
