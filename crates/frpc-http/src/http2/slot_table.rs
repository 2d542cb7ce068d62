//! A table of small numbers by stream id.

use std::{collections::BTreeMap, mem};

use frpc_http2::StreamId;

/// The slots of open streams.
///
/// Ids come in sequence, so the place of a stream follows from its id. A stream whose place is taken by an older one is
/// in a map.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    /// Ids with their slots, each in the place for its id. The id zero, which no stream has, marks a free place. The length
    /// is a power of two.
    direct: Box<[(u32, u32)]>,
    /// Boxed, because most connections have none.
    others: Option<Box<OtherSlots>>,
    len: usize,
}

/// The slots of streams whose places are taken, by their ids.
#[derive(Debug, Default)]
struct OtherSlots(BTreeMap<u32, u32>);

const PLACES_MIN: usize = 16;

impl SlotTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place for an id. The ids of one side are all odd or all even.
    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & self.direct.len().wrapping_sub(1)
    }

    /// Returns the slot of a stream.
    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<usize> {
        let slot = match self.direct.get(self.place(id.get())) {
            Some((found, slot)) if *found == id.get() => *slot,
            _ => *self.others.as_ref()?.0.get(&id.get())?,
        };
        Some(slot as usize)
    }

    /// Adds a stream, which is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: StreamId, slot: usize) {
        // Half of the places stay free, so few streams find theirs taken.
        if (self.len + 1) * 2 > self.direct.len() {
            self.grow();
        }
        self.len += 1;
        self.link(id.get(), u32::try_from(slot).unwrap_or(u32::MAX));
    }

    #[cold]
    fn grow(&mut self) {
        let places = vec![(0, 0); (self.direct.len() * 2).max(PLACES_MIN)];
        let direct = mem::replace(&mut self.direct, places.into());
        let others = self.others.take().map(|others| others.0).unwrap_or_default();
        let streams = direct.into_iter().filter(|(id, _)| *id != 0).chain(others);
        streams.for_each(|(id, slot)| self.link(id, slot));
    }

    #[inline]
    fn link(&mut self, id: u32, slot: u32) {
        let place = self.place(id);
        match &mut self.direct[place] {
            free @ (0, _) => *free = (id, slot),
            _ => self.link_other(id, slot),
        }
    }

    #[cold]
    fn link_other(&mut self, id: u32, slot: u32) {
        self.others.get_or_insert_default().0.insert(id, slot);
    }

    /// Removes a stream and returns its slot.
    #[inline]
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<usize> {
        let place = self.place(id.get());
        let slot = match self.direct.get_mut(place) {
            Some(found) if found.0 == id.get() => mem::take(found).1,
            _ => self.others.as_mut()?.0.remove(&id.get())?,
        };
        self.len -= 1;
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
