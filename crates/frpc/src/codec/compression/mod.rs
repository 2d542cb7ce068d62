//! Compression of messages. Inflating allocates step by step, and never more than the agreed length.
//!
//! ```text
//!   compressed = part…     part = length u32 | bytes that inflate to 256 KiB, or to the remaining length
//! ```
//!
//! Each part is compressed separately, as an LZ4 block, a Zstandard frame or a gzip file.

mod algorithm;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "zstd")]
mod zstd;

use self::algorithm::CompressionFunctions;

/// A compression algorithm for messages. Each needs a feature of this crate: `lz4`, `zstd`, `gzip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// LZ4: fast. Halves the length of typical text.
    #[cfg(feature = "lz4")]
    Lz4,
    /// Zstandard: slower than LZ4. Reduces typical text to about a third. Needs a C compiler to build.
    #[cfg(feature = "zstd")]
    Zstd,
    /// gzip: slower than Zstandard, with about the same ratio for text. Written in Rust, so it needs no C compiler.
    #[cfg(feature = "gzip")]
    Gzip,
}

/// The error for bytes that do not inflate to the expected length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CannotInflate;

impl Compression {
    /// The algorithms enabled in this build.
    pub(crate) const ALL: &[Self] = &[
        #[cfg(feature = "lz4")]
        Self::Lz4,
        #[cfg(feature = "zstd")]
        Self::Zstd,
        #[cfg(feature = "gzip")]
        Self::Gzip,
    ];

    fn algorithm(self) -> &'static CompressionFunctions {
        match self {
            #[cfg(feature = "lz4")]
            Self::Lz4 => &lz4::ALGORITHM,
            #[cfg(feature = "zstd")]
            Self::Zstd => &zstd::ALGORITHM,
            #[cfg(feature = "gzip")]
            Self::Gzip => &gzip::ALGORITHM,
        }
    }

    /// Returns the number of the algorithm on the wire.
    pub(crate) fn number(self) -> u8 {
        self.algorithm().number
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.number() == number)
    }

    /// Compresses bytes. Returns `None` if the result is not shorter.
    pub(crate) fn deflate(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for part in bytes.chunks(PART_LEN) {
            let start = out.len();
            out.resize(start + LEN_LEN, 0);
            (self.algorithm().deflate)(part, &mut out)?;
            let len = u32::try_from(out.len() - start - LEN_LEN).ok()?;
            out[start..start + LEN_LEN].copy_from_slice(&len.to_be_bytes());
        }
        (out.len() < bytes.len()).then_some(out)
    }

    /// Inflates bytes to exactly `len` bytes.
    pub(crate) fn inflate(self, mut bytes: &[u8], len: usize) -> Result<Vec<u8>, CannotInflate> {
        let mut out = Vec::new();
        while out.len() < len {
            let (part_len, rest) = bytes.split_first_chunk().ok_or(CannotInflate)?;
            let part_len = u32::from_be_bytes(*part_len) as usize;
            let (part, rest) = rest.split_at_checked(part_len).ok_or(CannotInflate)?;
            let (start, left) = (out.len(), len - out.len());
            // Doubles at most, so the announced length allocates nothing before enough bytes were inflated.
            out.reserve_exact(left.min(start.max(PART_LEN)));
            out.resize(start + left.min(PART_LEN), 0);
            if (self.algorithm().inflate)(part, &mut out[start..]) != Some(left.min(PART_LEN)) {
                return Err(CannotInflate);
            }
            bytes = rest;
        }
        if bytes.is_empty() { Ok(out) } else { Err(CannotInflate) }
    }
}

/// The length of an uncompressed part. Only the last part may be shorter.
const PART_LEN: usize = 256 * 1024;
/// The length prefix of a part.
const LEN_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Text with some repetition, like typical messages.
    fn text(len: usize) -> Vec<u8> {
        (0..).flat_map(|n: u32| format!("order {} of {}; ", n * 7919 % 1000, n / 3).into_bytes()).take(len).collect()
    }

    #[test]
    fn compressed_bytes_round_trip() {
        for &algorithm in Compression::ALL {
            for len in [100, 5000, PART_LEN - 1, PART_LEN, PART_LEN + 1, 3 * PART_LEN + 77] {
                let text = text(len);
                let deflated = algorithm.deflate(&text).expect("it gets shorter");
                assert!(deflated.len() < len, "{algorithm:?} {len}");
                assert_eq!(algorithm.inflate(&deflated, len).as_ref(), Ok(&text), "{algorithm:?} {len}");
            }
        }
    }

    #[test]
    fn incompressible_bytes_are_not_compressed() {
        for &algorithm in Compression::ALL {
            assert_eq!(algorithm.deflate(b""), None);
            assert_eq!(algorithm.deflate(b"short"), None);
            let mut state = 1_u32;
            let noise: Vec<u8> = (0..PART_LEN + 5)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state.to_be_bytes()[0]
                })
                .collect();
            assert_eq!(algorithm.deflate(&noise), None, "{algorithm:?}");
        }
    }

    #[test]
    fn wrong_announced_lengths_are_rejected() {
        for &algorithm in Compression::ALL {
            for len in [1000, PART_LEN, PART_LEN + 1000] {
                let deflated = algorithm.deflate(&text(len)).expect("it gets shorter");
                for wrong in [0, 1, len - 1, len + 1, len + PART_LEN, u32::MAX as usize] {
                    assert_eq!(algorithm.inflate(&deflated, wrong), Err(CannotInflate), "{algorithm:?} {len} {wrong}");
                }
            }
        }
    }

    #[test]
    fn truncated_and_invalid_bytes_are_rejected() {
        for &algorithm in Compression::ALL {
            let text = text(300);
            let deflated = algorithm.deflate(&text).expect("it gets shorter");
            for at in 0..deflated.len() {
                assert_eq!(algorithm.inflate(&deflated[..at], text.len()), Err(CannotInflate), "{algorithm:?} {at}");
                for bit in 0..8 {
                    let mut wrong = deflated.clone();
                    wrong[at] ^= 1 << bit;
                    // A changed literal yields wrong text of the right length.
                    if let Ok(inflated) = algorithm.inflate(&wrong, text.len()) {
                        assert_eq!(inflated.len(), text.len());
                    }
                }
            }
            let more = [&deflated[..], &[0]].concat();
            assert_eq!(algorithm.inflate(&more, text.len()), Err(CannotInflate), "{algorithm:?}: more behind the end");
        }
    }

    #[test]
    fn algorithm_numbers_match_the_wire() {
        for &algorithm in Compression::ALL {
            assert_eq!(Compression::of_number(algorithm.number()), Some(algorithm));
        }
        assert_eq!(Compression::of_number(0), None);
        assert_eq!(Compression::of_number(4), None);
    }
}
