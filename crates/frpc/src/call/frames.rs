//! Frames of the connections of channels to a target.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use frisbee::FrameCounts;

/// The frames of all connections to a target, also of closed ones.
#[derive(Default)]
pub(crate) struct ConnectionFrames(Mutex<FrameSources>);

#[derive(Default)]
struct FrameSources {
    closed: FrameCounts,
    open: BTreeMap<u64, ReadFrames>,
    /// The number of the next connection.
    next: u64,
}

/// Reads the frames of a connection.
pub(crate) type ReadFrames = Box<dyn Fn() -> FrameCounts + Send + Sync>;

impl ConnectionFrames {
    fn sources(&self) -> MutexGuard<'_, FrameSources> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and returns its number.
    pub(crate) fn begin(&self, read: ReadFrames) -> u64 {
        let mut sources = self.sources();
        let next = sources.next + 1;
        let number = mem::replace(&mut sources.next, next);
        sources.open.insert(number, read);
        number
    }

    /// Keeps the last counts of a connection.
    pub(crate) fn end(&self, number: u64) {
        let mut sources = self.sources();
        // Under one lock, so no snapshot counts the connection twice or not at all.
        if let Some(read) = sources.open.remove(&number) {
            sources.closed += &read();
        }
    }

    pub(crate) fn counts(&self) -> FrameCounts {
        let sources = self.sources();
        let mut counts = sources.closed.clone();
        sources.open.values().for_each(|read| counts += &read());
        counts
    }
}
