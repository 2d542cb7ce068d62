//! HPACK (RFC 7541): compression of header fields.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
#[cfg(test)]
mod vectors;

use std::{error::Error, fmt};

pub use decoder::BlockDecoder;
pub use encoder::{BlockEncoder, Field};
pub(crate) use encoder::{OwnedField, PROTOCOL_MAX};

/// Bytes that each field costs in addition to its name and value, in tables and lists.
pub(crate) const FIELD_OVERHEAD: usize = 32;

/// An invalid header block. The tables of both sides differ afterwards, so the connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer exceeds any useful value.
    IntegerOverflow,
    /// A string has an invalid Huffman code or padding.
    InvalidHuffman,
    /// An index points to no entry.
    InvalidIndex,
    /// A change of the table size is above the limit, missing, or not at the start of the block.
    InvalidTableSize,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl HpackError {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "the header block ends within a field",
            Self::IntegerOverflow => "an integer in a header block is too large",
            Self::InvalidHuffman => "a string in a header block has an invalid Huffman code",
            Self::InvalidIndex => "an index in a header block has no entry",
            Self::InvalidTableSize => "the table size in a header block is above the limit, missing, or misplaced",
        }
    }
}

impl Error for HpackError {}
