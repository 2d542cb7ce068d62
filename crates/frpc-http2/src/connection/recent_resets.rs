//! A bounded memory of streams this side has reset.

use std::collections::VecDeque;

/// Ids of recently reset streams. Frames that the peer sent before it saw the reset are no errors.
#[derive(Debug)]
pub(super) struct RecentResets {
    ids: VecDeque<u32>,
    max: usize,
    /// The highest id that had to leave.
    forgotten: u32,
}

impl RecentResets {
    pub(super) fn new(max: usize) -> Self {
        Self { ids: VecDeque::new(), max, forgotten: 0 }
    }

    pub(super) fn insert(&mut self, id: u32) {
        self.ids.push_back(id);
        if self.ids.len() > self.max {
            self.forgotten = self.forgotten.max(self.ids.pop_front().unwrap_or(0));
        }
    }

    /// Returns `true` if this side has reset the stream.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Returns `true` if this side may have reset the stream too long ago to know.
    pub(super) fn may_have_forgotten(&self, id: u32) -> bool {
        id <= self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_id_leaves_first() {
        let mut resets = RecentResets::new(2);
        [1, 5].into_iter().for_each(|id| resets.insert(id));
        assert!(resets.contains(1) && resets.contains(5) && !resets.may_have_forgotten(1));
        resets.insert(7);
        assert!(!resets.contains(1) && resets.contains(7));
        assert!(resets.may_have_forgotten(1) && !resets.may_have_forgotten(3));
        let mut none = RecentResets::new(0);
        none.insert(9);
        assert!(!none.contains(9) && none.may_have_forgotten(9));
    }
}
