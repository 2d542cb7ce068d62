//! gzip files with one member each.

use std::io::{Read, Write};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};

use super::algorithm::CompressionFunctions;

pub(super) const ALGORITHM: CompressionFunctions = CompressionFunctions { number: 3, deflate, inflate };

fn deflate(part: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut encoder = GzEncoder::new(out, Compression::default());
    encoder.write_all(part).ok()?;
    encoder.finish().ok()?;
    Some(())
}

fn inflate(part: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut decoder = GzDecoder::new(part);
    let mut len = 0;
    while len < out.len() {
        match decoder.read(&mut out[len..]).ok()? {
            0 => break,
            read => len += read,
        }
    }
    // The decoder verifies the checksum only when it reads past the last byte.
    let is_over = decoder.read(&mut [0]).ok()? == 0;
    (is_over && decoder.into_inner().is_empty()).then_some(len)
}
