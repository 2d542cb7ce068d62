//! Zstandard frames without a dictionary.

use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::compress_bound,
};

use super::algorithm::CompressionFunctions;

pub(super) const ALGORITHM: CompressionFunctions = CompressionFunctions { number: 2, deflate, inflate };

fn deflate(part: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    out.resize(start + compress_bound(part.len()), 0);
    let len = Compressor::new(LEVEL).ok()?.compress_to_buffer(part, &mut out[start..]).ok()?;
    out.truncate(start + len);
    Some(())
}

/// `out` serves as the window, so the window size in the frame allocates nothing.
fn inflate(part: &[u8], out: &mut [u8]) -> Option<usize> {
    Decompressor::new().ok()?.decompress_to_buffer(part, out).ok()
}

/// The default level of the library.
const LEVEL: i32 = 3;
