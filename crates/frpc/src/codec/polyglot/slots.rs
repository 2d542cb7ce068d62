//! The slots of a message: fields whose bytes do not tell everything; see [`trailer`](super::trailer).

/// A counter of slots, and the slots with additional information.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    next: u64,
    kept: Vec<SlotEntry>,
    /// For reading: the number of `kept` slots already reached.
    met: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SlotEntry {
    pub(super) slot: u64,
    pub(super) holds: SlotValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotValue {
    Presence,
    Number(i32),
}

impl SlotTable {
    /// Creates slots from a trailer, for reading.
    pub(super) fn of(kept: Vec<SlotEntry>) -> Self {
        Self { next: 0, kept, met: 0 }
    }

    /// Returns the slots with additional information, in order.
    pub(super) fn kept(&self) -> &[SlotEntry] {
        &self.kept
    }

    /// Counts a slot while writing and stores its additional information.
    #[inline]
    pub(super) fn count(&mut self, holds: Option<SlotValue>) {
        if let Some(holds) = holds {
            self.keep(holds);
        }
        self.next += 1;
    }

    #[cold]
    fn keep(&mut self, holds: SlotValue) {
        self.kept.push(SlotEntry { slot: self.next, holds });
    }

    /// Counts a slot while reading and returns its additional information.
    #[inline]
    pub(super) fn meet(&mut self) -> Option<SlotValue> {
        let slot = self.next;
        self.next += 1;
        let kept = self.kept.get(self.met).filter(|kept| kept.slot == slot)?;
        self.met += 1;
        Some(kept.holds)
    }

    /// Returns the bytes of memory taken by the slots.
    pub(super) fn len_in_memory(&self) -> usize {
        self.kept.capacity() * size_of::<SlotEntry>()
    }

    /// Returns `true` if a trailer is needed.
    #[inline]
    pub(super) fn holds_any(&self) -> bool {
        !self.kept.is_empty()
    }
}
