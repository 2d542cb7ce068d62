use bytes::Bytes;

/// The bytes of a message in pieces: those of its large `Bytes` fields are shared and not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// How they begin; often all there is.
    pub first: Bytes,
    /// How they go on.
    pub rest: Vec<Bytes>,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them in one piece.
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
    fn from(first: Bytes) -> Self {
        Self { first, rest: Vec::new() }
    }
}
