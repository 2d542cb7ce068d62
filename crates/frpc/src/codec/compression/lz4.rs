//! LZ4 blocks without a size prefix.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::algorithm::CompressionFunctions;

pub(super) const ALGORITHM: CompressionFunctions = CompressionFunctions { number: 1, deflate, inflate };

fn deflate(part: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    out.resize(start + get_maximum_output_size(part.len()), 0);
    let len = compress_into(part, &mut out[start..]).ok()?;
    out.truncate(start + len);
    Some(())
}

fn inflate(part: &[u8], out: &mut [u8]) -> Option<usize> {
    decompress_into(part, out).ok()
}
