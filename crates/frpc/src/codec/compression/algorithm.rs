//! The trait of every algorithm.

/// The functions of an algorithm.
pub(super) struct Algorithm {
    /// Its number on the wire.
    pub(super) number: u8,
    /// Appends a part, compressed.
    pub(super) deflate: fn(part: &[u8], out: &mut Vec<u8>) -> Option<()>,
    /// Inflates a part into a buffer, and returns how many bytes of it that made.
    pub(super) inflate: fn(part: &[u8], out: &mut [u8]) -> Option<usize>,
}
