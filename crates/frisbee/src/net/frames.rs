//! Counts of frames on connections of other protocols.

use std::{collections::BTreeMap, ops::AddAssign};

/// Frames of connections of [other protocols](crate::Protocol) by type, such as `HEADERS` of HTTP/2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts(BTreeMap<&'static str, FrameCount>);

/// Frames of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameCount {
    /// Frames received.
    pub received: u64,
    /// Frames queued for writing.
    pub sent: u64,
}

impl FrameCounts {
    /// Adds frames of a type.
    pub fn add(&mut self, kind: &'static str, received: u64, sent: u64) {
        let count = self.0.entry(kind).or_default();
        count.received += received;
        count.sent += sent;
    }

    /// Returns the frames of a type. Zeros if there are none.
    pub fn of(&self, kind: &str) -> FrameCount {
        self.0.get(kind).copied().unwrap_or_default()
    }

    /// Returns the frames of all types together.
    pub fn total(&self) -> FrameCount {
        self.0.values().fold(FrameCount::default(), |sum, count| FrameCount {
            received: sum.received + count.received,
            sent: sum.sent + count.sent,
        })
    }

    /// Returns the types with their frames, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, FrameCount)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}

impl AddAssign<&Self> for FrameCounts {
    fn add_assign(&mut self, other: &Self) {
        other.iter().for_each(|(kind, count)| self.add(kind, count.received, count.sent));
    }
}
