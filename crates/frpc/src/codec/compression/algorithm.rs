//! The interface common to all algorithms.

/// The functions of a compression algorithm.
pub(super) struct CompressionFunctions {
    /// The number of the algorithm on the wire.
    pub(super) number: u8,
    /// Compresses a part and appends it to `out`.
    pub(super) deflate: fn(part: &[u8], out: &mut Vec<u8>) -> Option<()>,
    /// Inflates a part into a buffer and returns the number of bytes written.
    pub(super) inflate: fn(part: &[u8], out: &mut [u8]) -> Option<usize>,
}
