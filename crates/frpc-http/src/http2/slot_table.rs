//! A table of small numbers by stream id.

use frpc_http2::StreamId;

/// The slots of open streams, in an open hash table.
///
/// A peer can choose ids with long probes, but only among the streams that it may open at the same time.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    /// Ids with their slots. The id zero, which no stream has, marks a free entry. The length is a power of two.
    entries: Vec<(u32, u32)>,
    len: usize,
}

const ENTRIES_MIN: usize = 16;

impl SlotTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first entry for an id. Ids come in sequence, and the golden ratio spreads them: without gaps between
    /// them, each removal would look at all later ones.
    #[inline]
    fn home(&self, id: u32) -> usize {
        (id.wrapping_mul(0x9e37_79b9) >> (u32::BITS - self.entries.len().trailing_zeros())) as usize
    }

    #[inline]
    fn position(&self, id: StreamId) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = self.home(id.get());
        loop {
            match self.entries[at] {
                (0, _) => return None,
                (other, _) if other == id.get() => return Some(at),
                _ => at = (at + 1) & (self.entries.len() - 1),
            }
        }
    }

    /// Returns the slot of a stream.
    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<usize> {
        self.position(id).map(|at| self.entries[at].1 as usize)
    }

    /// Adds a stream, which is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: StreamId, slot: usize) {
        // Half of the table stays free, so probes end.
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.len += 1;
        self.link(id.get(), u32::try_from(slot).unwrap_or(u32::MAX));
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.entries.len() * 2).max(ENTRIES_MIN);
        let before = std::mem::replace(&mut self.entries, vec![(0, 0); len]);
        before.into_iter().filter(|(id, _)| *id != 0).for_each(|(id, slot)| self.link(id, slot));
    }

    #[inline]
    fn link(&mut self, id: u32, slot: u32) {
        let mut at = self.home(id);
        while self.entries[at].0 != 0 {
            at = (at + 1) & (self.entries.len() - 1);
        }
        self.entries[at] = (id, slot);
    }

    /// Removes a stream and returns its slot.
    #[inline]
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<usize> {
        let mut hole = self.position(id)?;
        let (slot, mask) = (self.entries[hole].1, self.entries.len() - 1);
        self.len -= 1;
        // Later entries of the same run move back, or probes for them would end at the hole.
        let mut at = (hole + 1) & mask;
        while self.entries[at].0 != 0 {
            let home = self.home(self.entries[at].0);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.entries[hole] = (0, 0);
        Some(slot as usize)
    }

    /// Removes all streams, and frees the memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use frpc_http2::{Connection, Header, Settings};

    use super::*;

    /// Returns ids in sequence.
    fn ids(count: usize) -> Vec<StreamId> {
        let mut core = Connection::client(Settings::default(), Instant::now());
        let mut open = || {
            let id = core.open(Header::fields(&[]), false).unwrap();
            core.reset(id, frpc_http2::ErrorCode::CANCEL);
            id
        };
        (0..count).map(|_| open()).collect()
    }

    #[test]
    fn the_table_agrees_with_a_map() {
        let (ids, mut table, mut map, mut seed) = (ids(400), SlotTable::default(), BTreeMap::new(), 1u32);
        for step in 0..20_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let id = ids[(seed >> 16) as usize % ids.len()];
            if step % 3 == 0 {
                assert_eq!(table.remove(id), map.remove(&id));
            } else if map.insert(id, step).is_none() {
                table.insert(id, step);
            } else {
                let before = table.remove(id);
                table.insert(id, step);
                assert!(before.is_some());
            }
            let probe = ids[(seed >> 8) as usize % ids.len()];
            assert_eq!(table.get(probe), map.get(&probe).copied());
            assert_eq!(table.is_empty(), map.is_empty());
        }
        table.clear();
        assert!(table.is_empty() && table.get(ids[0]).is_none() && table.remove(ids[0]).is_none());
    }
}
