//! Wake-ups of a connection by its streams.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

use frpc_http2::StreamId;

/// The streams of a connection that can make progress, and the data that handlers have read.
///
/// Handlers may run in other tasks than the connection. The connection leaves its waker here while it sleeps, so an
/// entry added while it is awake wakes nothing.
#[derive(Debug, Default)]
pub(super) struct WakeList(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// Slots of streams to be polled.
    woken: Vec<usize>,
    /// Data read by handlers, which returns to the peer as credit.
    released: Vec<(StreamId, usize)>,
    /// The waker of the sleeping connection.
    connection: Option<Waker>,
}

impl WakeList {
    /// Adds data read by a handler.
    pub(super) fn release(&self, stream: StreamId, len: usize) {
        let mut entries = self.entries();
        entries.released.push((stream, len));
        wake(entries);
    }

    /// Moves all entries to these lists, which are empty.
    pub(super) fn take(&self, woken: &mut Vec<usize>, released: &mut Vec<(StreamId, usize)>) {
        let mut entries = self.entries();
        entries.connection = None;
        mem::swap(&mut entries.woken, woken);
        mem::swap(&mut entries.released, released);
    }

    /// Leaves the waker of the connection for the next entry. Returns `false` if there is an entry already.
    pub(super) fn sleep(&self, waker: &Waker) -> bool {
        let mut entries = self.entries();
        let is_empty = entries.woken.is_empty() && entries.released.is_empty();
        if is_empty {
            entries.connection = Some(waker.clone());
        }
        is_empty
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the connection after its list is unlocked.
fn wake(mut entries: MutexGuard<'_, Entries>) {
    let waker = entries.connection.take();
    drop(entries);
    waker.into_iter().for_each(Waker::wake);
}

/// The waker of one slot. Streams that use the slot later share it, so a late wake-up may poll one of them for nothing.
#[derive(Debug)]
pub(super) struct SlotWaker {
    list: Arc<WakeList>,
    slot: usize,
    is_woken: AtomicBool,
}

impl SlotWaker {
    pub(super) fn new(list: Arc<WakeList>, slot: usize) -> Arc<Self> {
        Arc::new(Self { list, slot, is_woken: AtomicBool::new(false) })
    }

    /// Accepts wake-ups again. Call this before the stream is polled.
    pub(super) fn rearm(&self) {
        // Acquire: the poll sees everything written before the wake-up.
        self.is_woken.swap(false, Ordering::Acquire);
    }
}

impl Wake for SlotWaker {
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
