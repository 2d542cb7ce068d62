//! Wake-ups of a connection by its streams.

use std::{
    convert::Infallible,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

use frpc_http2::StreamId;

/// The streams of a connection that can make progress, the data that the application has read, and its commands.
///
/// The application may run in other tasks than the connection. The connection leaves its waker here while it sleeps, so
/// an entry added while it is awake wakes nothing. Servers have no commands.
#[derive(Debug)]
pub(crate) struct WakeList<C = Infallible>(Mutex<Entries<C>>);

#[derive(Debug)]
struct Entries<C> {
    /// Slots of streams to be polled.
    woken: Vec<usize>,
    /// Data read by the application, which returns to the peer as credit.
    released: Vec<(StreamId, usize)>,
    /// The length of that data since the last turn.
    released_len: usize,
    /// The length of that data that wakes nothing.
    released_late_max: usize,
    commands: Vec<C>,
    accepts: Accepts,
    /// The waker of the sleeping connection.
    connection: Option<Waker>,
}

/// The commands accepted by a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    All,
    /// Cancellations of calls in flight.
    Pushes,
    /// No commands: the connection has ended.
    Nothing,
}

impl<C> Default for WakeList<C> {
    fn default() -> Self {
        Self(Mutex::new(Entries {
            woken: Vec::new(),
            released: Vec::new(),
            released_len: 0,
            released_late_max: 0,
            commands: Vec::new(),
            accepts: Accepts::All,
            connection: None,
        }))
    }
}

impl<C> WakeList<C> {
    /// Adds data read by the application. It wakes the connection once there is more of it than the connection allowed
    /// when it went to [`sleep`](Self::sleep). Less is handled in its next turn.
    pub(crate) fn release(&self, stream: StreamId, len: usize) {
        let mut entries = self.entries();
        match entries.released.last_mut() {
            Some((last, sum)) if *last == stream => *sum += len,
            _ => entries.released.push((stream, len)),
        }
        entries.released_len += len;
        if entries.released_len > entries.released_late_max {
            wake(entries);
        }
    }

    /// Adds a command. After the end of the connection, drops it.
    pub(crate) fn push(&self, command: C) {
        let mut entries = self.entries();
        if entries.accepts == Accepts::Nothing {
            // It may hold this list, and run code of the application.
            drop(entries);
            return drop(command);
        }
        entries.commands.push(command);
        wake(entries);
    }

    /// Adds a command, unless the list is closed.
    pub(crate) fn submit(&self, command: C) -> Result<(), C> {
        let mut entries = self.entries();
        if entries.accepts != Accepts::All {
            return Err(command);
        }
        entries.commands.push(command);
        wake(entries);
        Ok(())
    }

    /// Refuses further submissions.
    pub(crate) fn close(&self) {
        let mut entries = self.entries();
        if entries.accepts == Accepts::All {
            entries.accepts = Accepts::Pushes;
        }
    }

    /// Refuses all further commands, and returns the last ones.
    pub(crate) fn end(&self) -> Vec<C> {
        let mut entries = self.entries();
        entries.accepts = Accepts::Nothing;
        mem::take(&mut entries.commands)
    }

    /// Moves all entries to these lists, which are empty.
    pub(crate) fn take(&self, woken: &mut Vec<usize>, released: &mut Vec<(StreamId, usize)>, commands: &mut Vec<C>) {
        let mut entries = self.entries();
        entries.connection = None;
        entries.released_len = 0;
        mem::swap(&mut entries.woken, woken);
        mem::swap(&mut entries.released, released);
        mem::swap(&mut entries.commands, commands);
    }

    /// Leaves the waker of the connection for the next entry, except released data up to a length. Returns `false` if
    /// there is an entry already.
    pub(crate) fn sleep(&self, waker: &Waker, released_late_max: usize) -> bool {
        let mut entries = self.entries();
        let is_empty = entries.woken.is_empty() && entries.released.is_empty() && entries.commands.is_empty();
        if is_empty {
            entries.connection = Some(waker.clone());
            entries.released_late_max = released_late_max;
        }
        is_empty
    }

    fn entries(&self) -> MutexGuard<'_, Entries<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the connection after its list is unlocked.
fn wake<C>(mut entries: MutexGuard<'_, Entries<C>>) {
    let waker = entries.connection.take();
    drop(entries);
    waker.into_iter().for_each(Waker::wake);
}

/// The waker of one slot. Streams that use the slot later share it, so a late wake-up may poll one of them for nothing.
#[derive(Debug)]
pub(crate) struct SlotWaker<C = Infallible> {
    list: Arc<WakeList<C>>,
    slot: usize,
    is_woken: AtomicBool,
}

impl<C> SlotWaker<C> {
    pub(crate) fn new(list: Arc<WakeList<C>>, slot: usize) -> Arc<Self> {
        Arc::new(Self { list, slot, is_woken: AtomicBool::new(false) })
    }

    /// Accepts wake-ups again. Call this before the stream is polled.
    pub(crate) fn rearm(&self) {
        // Acquire: the poll sees everything written before the wake-up.
        self.is_woken.swap(false, Ordering::Acquire);
    }
}

impl<C: Send + 'static> Wake for SlotWaker<C> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let mut entries = self.list.entries();
            entries.woken.push(self.slot);
            wake(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_list_takes_cancellations_and_an_ended_one_drops_them() {
        let list = WakeList::default();
        let command = Arc::new(());
        list.close();
        assert!(list.submit(command.clone()).is_err());
        list.push(command.clone());
        assert_eq!(list.end().len(), 1);
        list.push(command.clone());
        list.close();
        assert!(list.submit(command.clone()).is_err());
        list.push(command.clone());
        assert_eq!(Arc::strong_count(&command), 1, "an ended list keeps a command");
    }
}
