use bytes::Bytes;

/// The bytes of a message in pieces: those of its large `Bytes` fields are shared and not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The first piece, and often the only one.
    pub first: Bytes,
    /// The other pieces, in their order.
    pub rest: Vec<Bytes>,
}

impl Pieces {
    /// Returns the number of bytes in all pieces.
    #[inline]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes in one piece. Copies them if there are several pieces.
    #[inline]
    pub fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut all = Vec::with_capacity(self.len());
        all.extend_from_slice(&self.first);
        self.rest.iter().for_each(|piece| all.extend_from_slice(piece));
        all.into()
    }
}

impl From<Bytes> for Pieces {
    #[inline]
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new() }
    }
}
