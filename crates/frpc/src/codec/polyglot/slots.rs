//! The places of a message whose bytes do not tell all; see [`trailer`](super::trailer).

/// The slots counted so far, and what some of them hold.
#[derive(Debug, Default)]
pub(super) struct Slots {
    next: u64,
    kept: Vec<Kept>,
    /// For reading: how many of `kept` were met.
    met: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) slot: u64,
    pub(super) holds: Holds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Presence,
    Number(i32),
}

impl Slots {
    /// Returns what a trailer said, with no slot met.
    pub(super) fn of(kept: Vec<Kept>) -> Self {
        Self { next: 0, kept, met: 0 }
    }

    /// Returns the slots that hold more than the bytes say, in their order.
    pub(super) fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Counts a slot while writing, and keeps what it holds beyond the bytes.
    #[inline]
    pub(super) fn count(&mut self, holds: Option<Holds>) {
        if let Some(holds) = holds {
            self.keep(holds);
        }
        self.next += 1;
    }

    #[cold]
    fn keep(&mut self, holds: Holds) {
        self.kept.push(Kept { slot: self.next, holds });
    }

    /// Counts a slot while reading, and returns what it holds beyond the bytes.
    #[inline]
    pub(super) fn meet(&mut self) -> Option<Holds> {
        let slot = self.next;
        self.next += 1;
        let kept = self.kept.get(self.met).filter(|kept| kept.slot == slot)?;
        self.met += 1;
        Some(kept.holds)
    }

    /// Returns how many bytes they take in memory.
    pub(super) fn len_in_memory(&self) -> usize {
        self.kept.capacity() * size_of::<Kept>()
    }

    /// Returns whether a trailer is needed.
    #[inline]
    pub(super) fn holds_any(&self) -> bool {
        !self.kept.is_empty()
    }
}
