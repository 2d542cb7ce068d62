use bytes::{BufMut, Bytes};

use super::small::SmallMessage;

/// The bytes of an encoded message. Large `Bytes` fields are separate pieces, shared instead of copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedMessage {
    /// All bytes in one buffer. The case of most messages.
    One(Bytes),
    /// All bytes in one reusable buffer, to be copied soon.
    Small(SmallMessage),
    /// Consecutive pieces.
    Several(Vec<Bytes>),
}

impl EncodedMessage {
    /// Returns the total number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Small(bytes) => bytes.len(),
            Self::Several(pieces) => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes if they are in one buffer.
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::One(bytes) => Some(bytes),
            Self::Small(bytes) => Some(bytes),
            Self::Several(_) => None,
        }
    }

    /// Returns all bytes in one buffer. Copies them unless they are a single `Bytes`.
    #[inline]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes,
            pieces => pieces.into_copied(),
        }
    }

    /// Appends all bytes to a buffer.
    #[inline]
    pub fn copy_to(&self, out: &mut impl BufMut) {
        match self {
            Self::One(bytes) => out.put_slice(bytes),
            Self::Small(bytes) => out.put_slice(bytes),
            Self::Several(pieces) => pieces.iter().for_each(|piece| out.put_slice(piece)),
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

impl From<Bytes> for EncodedMessage {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self::One(bytes)
    }
}
