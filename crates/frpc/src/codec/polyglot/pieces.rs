use bytes::Bytes;

use super::small::Small;

/// The bytes of a message in pieces: those of its large `Bytes` fields are shared and not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// All bytes in one piece, as those of most messages are.
    One(Bytes),
    /// All bytes in one piece, which will be copied soon.
    Small(Small),
    /// Pieces that follow each other.
    Several(Vec<Bytes>),
}

impl Pieces {
    /// Returns the number of bytes in all pieces.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Small(bytes) => bytes.len(),
            Self::Several(pieces) => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes in one piece. Copies them if they are not in one that can be kept.
    #[inline]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes,
            pieces => pieces.into_copied(),
        }
    }

    #[cold]
    fn into_copied(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes,
            Self::Small(bytes) => Bytes::copy_from_slice(&bytes),
            Self::Several(pieces) => pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Pieces {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self::One(bytes)
    }
}
