//! The Huffman code of RFC 7541, appendix B.

use super::HpackError;

/// Bits of the code of each byte, and of the end of string. The code is canonical, so the lengths define it.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const END_OF_STRING: u16 = 256;
const LONGEST: u8 = 30;

/// Codes by symbol, in the lowest bits.
static CODES: [u32; 257] = codes();

/// Returns the canonical codes: shorter ones first, and symbols in order within one length.
const fn codes() -> [u32; 257] {
    let mut codes = [0; 257];
    let (mut len, mut code) = (1, 0u32);
    while len <= LONGEST {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == len {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        len += 1;
    }
    codes
}

/// One step of the decoder: four bits of input in one state.
#[derive(Clone, Copy)]
struct DecodeStep {
    /// The next state: a node of the code's tree.
    next: u16,
    /// The byte completed by these bits. Codes have at least five bits, so there is at most one.
    symbol: u8,
    flags: u8,
}

/// The step completes `symbol`.
const EMITS: u8 = 1;
/// A string may end after the step: the bits since the last symbol are padding.
const MAY_END: u8 = 2;
/// The bits are the start of the end of string, and an error.
const INVALID: u8 = 4;

/// Inner nodes of a tree with 257 leaves.
const STATES: usize = 256;

static STEPS: [[DecodeStep; 16]; STATES] = steps();

/// Returns the children of each node: another node, or `LEAF` plus a symbol.
#[expect(clippy::cast_possible_truncation, reason = "symbols have nine bits")]
const fn tree() -> [[u16; 2]; STATES] {
    let codes = codes();
    let mut nodes = [[0; 2]; STATES];
    let (mut used, mut symbol) = (1, 0);
    while symbol < 257 {
        let (mut at, mut bit) = (0, LENGTHS[symbol]);
        while bit > 0 {
            bit -= 1;
            let side = (codes[symbol] >> bit & 1) as usize;
            if bit == 0 {
                nodes[at][side] = LEAF + symbol as u16;
            } else {
                if nodes[at][side] == 0 {
                    nodes[at][side] = used;
                    used += 1;
                }
                at = nodes[at][side] as usize;
            }
        }
        symbol += 1;
    }
    nodes
}

const LEAF: u16 = 0x1000;

#[expect(clippy::cast_possible_truncation, reason = "bytes and states are below 256")]
const fn steps() -> [[DecodeStep; 16]; STATES] {
    let nodes = tree();
    // Padding has at most seven bits, all ones: the nodes on this path may end a string.
    let mut may_end = [false; STATES];
    let (mut at, mut depth) = (0, 0);
    while depth < 8 {
        may_end[at] = true;
        at = nodes[at][1] as usize;
        depth += 1;
    }
    let mut steps = [[DecodeStep { next: 0, symbol: 0, flags: 0 }; 16]; STATES];
    let mut state = 0;
    while state < STATES {
        let mut nibble = 0;
        while nibble < 16 {
            let mut step = DecodeStep { next: 0, symbol: 0, flags: 0 };
            let (mut at, mut bit) = (state, 4);
            while bit > 0 {
                bit -= 1;
                let child = nodes[at][nibble >> bit & 1];
                if child == LEAF + END_OF_STRING {
                    step.flags |= INVALID;
                    at = 0;
                } else if child >= LEAF {
                    step.flags |= EMITS;
                    step.symbol = (child - LEAF) as u8;
                    at = 0;
                } else {
                    at = child as usize;
                }
            }
            step.next = at as u16;
            if may_end[at] {
                step.flags |= MAY_END;
            }
            steps[state][nibble] = step;
            nibble += 1;
        }
        state += 1;
    }
    steps
}

/// Appends the decoded bytes of `input`, at most eight for five of input.
pub(super) fn decode_huffman(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let (mut state, mut flags) = (0, MAY_END);
    for byte in input {
        for nibble in [byte >> 4, byte & 15] {
            let step = STEPS[state][usize::from(nibble)];
            if step.flags & EMITS != 0 {
                out.push(step.symbol);
            }
            if step.flags & INVALID != 0 {
                return Err(HpackError::InvalidHuffman);
            }
            (state, flags) = (usize::from(step.next), step.flags);
        }
    }
    if flags & MAY_END == 0 { Err(HpackError::InvalidHuffman) } else { Ok(()) }
}

/// Returns the encoded length of `input`, in bytes.
pub(super) fn huffman_len(input: &[u8]) -> usize {
    let bits: usize = input.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends `input` encoded, and padded with ones.
pub(super) fn encode_huffman(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0);
    for byte in input {
        let symbol = usize::from(*byte);
        bits = bits << LENGTHS[symbol] | u64::from(CODES[symbol]);
        count += LENGTHS[symbol];
        while count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    if count > 0 {
        out.push(((bits << (8 - count) | (0xff >> count)) & 0xff) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_decodes_as_it_was_encoded() {
        let all: Vec<u8> = (0..=255).collect();
        let rows = all.chunks(1).chain(all.chunks(7)).chain([&all[..], b"www.example.com"]);
        for bytes in rows {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode_huffman(bytes, &mut encoded);
            assert_eq!(encoded.len(), huffman_len(bytes));
            decode_huffman(&encoded, &mut decoded).unwrap();
            assert_eq!(decoded, bytes);
        }
    }

    #[test]
    fn padding_has_at_most_seven_ones() {
        // `0` is 00000, so three ones complete its byte.
        let decode = |bytes: &[u8]| decode_huffman(bytes, &mut Vec::new());
        assert_eq!(decode(&[0b0000_0111]), Ok(()));
        assert_eq!(decode(&[0b0000_0110]), Err(HpackError::InvalidHuffman), "padding of zeros");
        assert_eq!(decode(&[0b0000_0111, 0xff]), Err(HpackError::InvalidHuffman), "padding of eleven ones");
        assert_eq!(decode(&[0xff; 4]), Err(HpackError::InvalidHuffman), "the end of string");
        assert_eq!(decode(&[]), Ok(()));
    }
}
