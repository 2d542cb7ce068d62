//! gzip, the compression supported by all protocols here.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use frpc::Status;

/// The name of gzip in headers.
pub(crate) const GZIP: &str = "gzip";

/// Compresses content with gzip.
pub(crate) fn compress(content: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(content.len() / 2 + 32), Compression::fast());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.expect("memory takes all bytes").into()
}

/// Decompresses gzip content to at most `len_max` bytes. It stops there, so a small input cannot fill the memory.
///
/// # Errors
///
/// If the result is longer than `len_max`, or the content is not gzip.
pub(crate) fn decompress(content: &[u8], len_max: usize) -> Result<Bytes, Status> {
    // Starts with enough room for ordinary content. The sender announces no trustworthy length.
    let mut decompressed = Vec::with_capacity(content.len().saturating_mul(3).min(len_max));
    let more_than_max = u64::try_from(len_max).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(content).take(more_than_max).read_to_end(&mut decompressed);
    read.map_err(|error| Status::invalid_argument(format!("a compressed message is not valid gzip: {error}")))?;
    if decompressed.len() > len_max {
        let message = format!("a decompressed message exceeds the limit of {len_max} bytes");
        return Err(Status::resource_exhausted(message));
    }
    Ok(decompressed.into())
}
