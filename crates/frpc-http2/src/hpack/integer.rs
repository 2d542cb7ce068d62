//! Integers and strings of RFC 7541, section 5.

use super::{
    HpackError,
    huffman::{decode_huffman, encode_huffman, huffman_len},
};

/// Reads an integer with a prefix of `prefix` bits, at most 2^28 or so.
#[inline]
pub(super) fn read_integer(input: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let (&first, mut rest) = input.split_first().ok_or(HpackError::Truncated)?;
    let mask = (1usize << prefix) - 1;
    let mut value = usize::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(HpackError::Truncated)?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            // Five bytes of continuation would exceed any length or index in use.
            if shift > 21 {
                return Err(HpackError::IntegerOverflow);
            }
        }
    }
    *input = rest;
    Ok(value)
}

/// Appends an integer after the bits `first` of its first byte.
#[expect(clippy::cast_possible_truncation, reason = "every cast value is masked to eight bits or fewer")]
pub(super) fn put_integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        out.push(first | (value & 0xff) as u8);
        return;
    }
    out.push(first | (mask & 0xff) as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7f) as u8);
}

/// Reads a string and appends it, decoded, to `out`. Stops at `len_max` decoded bytes and returns `false`.
pub(super) fn read_string(input: &mut &[u8], out: &mut Vec<u8>, len_max: usize) -> Result<bool, HpackError> {
    let is_huffman = input.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
    let len = read_integer(input, 7)?;
    let (string, rest) = input.split_at_checked(len).ok_or(HpackError::Truncated)?;
    *input = rest;
    let start = out.len();
    if is_huffman {
        // A string expands to at most 8/5 of its bytes, and the limit on blocks holds for these.
        decode_huffman(string, out)?;
    } else if string.len() <= len_max {
        out.extend_from_slice(string);
    } else {
        return Ok(false);
    }
    let fits = out.len() - start <= len_max;
    if !fits {
        out.truncate(start);
    }
    Ok(fits)
}

/// Appends a string without Huffman code.
pub(super) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_integer(out, 0, 7, string.len());
    out.extend_from_slice(string);
}

/// Appends a string with the Huffman code, if that is shorter.
pub(super) fn put_short_string(out: &mut Vec<u8>, string: &[u8]) {
    let len = huffman_len(string);
    if len >= string.len() {
        return put_string(out, string);
    }
    put_integer(out, 0x80, 7, len);
    encode_huffman(string, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_as_they_were_written() {
        for prefix in 4..=7 {
            for value in [0, 1, 14, 15, 16, 126, 127, 128, 255, 1337, 1 << 20, 1 << 27] {
                let mut out = Vec::new();
                put_integer(&mut out, 0, prefix, value);
                let mut input = &out[..];
                assert_eq!(read_integer(&mut input, prefix), Ok(value));
                assert!(input.is_empty());
                assert_eq!(read_integer(&mut &out[..out.len() - 1], prefix), Err(HpackError::Truncated));
            }
        }
        // RFC 7541, C.1.2.
        let mut out = Vec::new();
        put_integer(&mut out, 0, 5, 1337);
        assert_eq!(out, [31, 154, 10]);
    }

    #[test]
    fn every_short_integer_is_read_as_its_bytes_say() {
        for prefix in 1..=7 {
            let mask = (1_u8 << prefix) - 1;
            for first in 0..=u8::MAX {
                let expected =
                    if first & mask == mask { Err(HpackError::Truncated) } else { Ok((first & mask).into()) };
                assert_eq!(read_integer(&mut &[first][..], prefix), expected);
            }
            for rest in 0..=u16::MAX {
                let [low, high] = rest.to_le_bytes();
                let mut input = &[mask, low, high][..];
                let (expected, left) = match (low & 0x80, high & 0x80) {
                    (0, _) => (Ok(usize::from(mask) + usize::from(low)), 1),
                    (_, 0) => (Ok(usize::from(mask) + usize::from(low & 0x7f) + (usize::from(high) << 7)), 0),
                    _ => (Err(HpackError::Truncated), 3),
                };
                assert_eq!(read_integer(&mut input, prefix), expected);
                assert_eq!(input.len(), left, "an error consumes nothing");
            }
            for value in 0..=usize::from(u16::MAX) {
                let mut out = Vec::new();
                put_integer(&mut out, 0, prefix, value);
                assert_eq!(read_integer(&mut &out[..], prefix), Ok(value));
            }
        }
    }

    #[test]
    fn every_short_string_has_one_huffman_code() {
        let texts = (0..=u16::MAX).map(u16::to_be_bytes);
        for text in texts.flat_map(|text| [text[1..].to_vec(), text.to_vec()]) {
            let mut code = Vec::new();
            encode_huffman(&text, &mut code);
            assert_eq!(code.len(), huffman_len(&text));
            let mut decoded = Vec::new();
            assert_eq!(decode_huffman(&code, &mut decoded), Ok(()));
            assert_eq!(decoded, text);
            // Read as a code, the text is invalid or the only code of its decoded bytes.
            decoded.clear();
            if decode_huffman(&text, &mut decoded).is_ok() {
                code.clear();
                encode_huffman(&decoded, &mut code);
                assert_eq!(code, text);
            }
        }
    }

    #[test]
    fn integers_have_at_most_four_bytes_after_the_prefix() {
        assert!(read_integer(&mut &[0x7f, 0xff, 0xff, 0xff, 0x7f][..], 7).is_ok());
        assert_eq!(read_integer(&mut &[0x7f, 0xff, 0xff, 0xff, 0xff, 0][..], 7), Err(HpackError::IntegerOverflow));
    }
}
