//! Percent-encoding of header text as in gRPC: printable ASCII is kept, other bytes become `%` and two hex digits.

use bytes::Bytes;
use http::HeaderValue;

/// Encodes text for a header. Also encodes leading and trailing blanks, because readers of headers drop them.
pub(crate) fn encode(text: &str) -> HeaderValue {
    let encoded: Bytes = if marked(text).all(|(_, is_plain)| is_plain) {
        Bytes::copy_from_slice(text.as_bytes())
    } else {
        let mut encoded = Vec::with_capacity(text.len() + text.len() / 2);
        for (byte, is_plain) in marked(text) {
            if is_plain {
                encoded.push(byte);
            } else {
                encoded.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
        }
        encoded.into()
    };
    HeaderValue::from_maybe_shared(encoded).expect("printable ASCII is left")
}

/// Returns the encoded length of text.
pub(crate) fn encoded_len(text: &str) -> usize {
    marked(text).map(|(_, is_plain)| if is_plain { 1 } else { 3 }).sum()
}

/// Returns the bytes of text, each with `true` if it stays unencoded.
fn marked(text: &str) -> impl Iterator<Item = (u8, bool)> {
    let from = text.len() - text.trim_start_matches(' ').len();
    let to = text.trim_end_matches(' ').len();
    text.bytes().enumerate().map(move |(at, byte)| {
        let is_plain = matches!(byte, b'!'..=b'~') && byte != b'%' || byte == b' ' && from <= at && at < to;
        (byte, is_plain)
    })
}

/// Encodes text for a header of at most `len_max` bytes. Cuts longer text, and ends it with dots if there is room.
pub(crate) fn encode_within(text: &str, len_max: usize) -> HeaderValue {
    if encoded_len(text) <= len_max {
        return encode(text);
    }
    let dots = if len_max > CUT.len() { CUT } else { "" };
    let mut left = len_max - dots.len();
    let cut = text.char_indices().find(|(at, char)| {
        let len = encoded_len(&text[*at..at + char.len_utf8()]);
        let fits = len <= left;
        left = left.saturating_sub(len);
        !fits
    });
    let end = cut.map_or(text.len(), |(at, _)| at);
    encode(&[&text[..end], dots].concat())
}

/// The mark at the end of cut text.
const CUT: &str = "...";

/// Decodes text from a header. Keeps invalid escapes unchanged: a garbled error message is better than none.
pub(crate) fn decode(encoded: &[u8]) -> String {
    if !encoded.contains(&b'%') {
        return String::from_utf8_lossy(encoded).into_owned();
    }
    String::from_utf8(decode_bytes(encoded))
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Decodes escapes. Keeps invalid ones unchanged.
pub(crate) fn decode_bytes(encoded: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, behind @ ..]) = (first, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            decoded.push(high << 4 | low);
            rest = behind;
        } else {
            decoded.push(*first);
        }
    }
    decoded
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn printable_text_stays_as_it_is() {
        assert_eq!(encode("no such order: #7 ~"), "no such order: #7 ~");
        assert_eq!(encode("  two words "), "%20%20two words%20");
        assert_eq!(encode("100 %\n\u{e9}"), "100 %25%0A%C3%A9");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let cut = |text, len_max| encode_within(text, len_max).to_str().unwrap().to_owned();
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lo...");
        assert_eq!(cut("\u{e9}\u{e9}\u{e9}", 17), "%C3%A9%C3%A9...");
        assert_eq!(cut("\u{e9}", 5), "...");
        assert_eq!((cut("abcd", 3), cut("abcd", 0)), ("abc".to_owned(), String::new()));
    }

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(decode(b"100 %"), "100 %");
        assert_eq!(decode(b"%4"), "%4");
        assert_eq!(decode(b"%zz%41%c3%a9"), "%zzA\u{e9}");
        assert_eq!(decode(b"%ff"), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn text_round_trips(text: String) {
            prop_assert_eq!(decode(encode(&text).as_bytes()), text);
        }

        #[test]
        fn arbitrary_bytes_are_decoded(bytes: Vec<u8>) {
            decode(&bytes);
        }
    }
}
