//! Wake-ups of a connection by its streams.

#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};
use std::{
    convert::Infallible,
    mem,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::{Wake, Waker},
};

use frpc_http2::StreamId;
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicBool};

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

#[cfg(loom)]
#[cfg(test)]
mod models {
    use std::{future::poll_fn, task::Poll};

    use loom::{
        future::block_on,
        model::Builder,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        thread,
    };

    use super::*;

    const SLOT: usize = 7;

    /// Checks all orders with at most two switches of running threads.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }

    /// The entries taken by a connection.
    #[derive(Default)]
    struct Taken {
        woken: Vec<usize>,
        released: Vec<(StreamId, usize)>,
        commands: Vec<usize>,
    }

    /// Runs a connection until `turn` returns `true`. It sleeps in between, and a lost wake-up is a deadlock.
    fn run(list: &WakeList<usize>, released_late_max: usize, mut turn: impl FnMut(Taken) -> bool) {
        block_on(poll_fn(|cx| {
            loop {
                let mut taken = Taken::default();
                list.take(&mut taken.woken, &mut taken.released, &mut taken.commands);
                if turn(taken) {
                    return Poll::Ready(());
                }
                if list.sleep(cx.waker(), released_late_max) {
                    return Poll::Pending;
                }
            }
        }));
    }

    #[test]
    fn a_stream_is_polled_after_the_last_of_its_wake_ups() {
        check(|| {
            let (list, progress) = (Arc::new(WakeList::default()), Arc::new(AtomicUsize::new(0)));
            let slot = SlotWaker::new(list.clone(), SLOT);
            let application = [(); 2].map(|()| {
                let (waker, progress) = (Waker::from(slot.clone()), progress.clone());
                thread::spawn(move || {
                    progress.fetch_add(1, Relaxed);
                    waker.wake();
                })
            });
            run(&list, 0, |taken| {
                assert!(taken.woken.len() <= 1, "the stream is polled twice for one wake-up");
                taken.woken.iter().any(|woken| {
                    assert_eq!(*woken, SLOT);
                    slot.rearm();
                    progress.load(Relaxed) == 2
                })
            });
            application.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn data_above_the_limit_wakes_the_connection() {
        check(|| {
            let list = Arc::new(WakeList::default());
            let application = [(); 2].map(|()| {
                let list = list.clone();
                thread::spawn(move || list.release(StreamId::new(1).unwrap(), 3))
            });
            let mut received = 0;
            run(&list, 2, |taken| {
                received += taken.released.iter().map(|(_, len)| len).sum::<usize>();
                received == 6
            });
            application.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn each_accepted_command_is_taken_once_also_at_the_end() {
        check(|| {
            let (list, accepted) = (Arc::new(WakeList::default()), Arc::new(AtomicUsize::new(0)));
            let caller = thread::spawn({
                let (list, accepted) = (list.clone(), accepted.clone());
                move || {
                    for command in 1..3 {
                        match list.submit(command) {
                            Ok(()) => _ = accepted.fetch_add(command, Relaxed),
                            Err(refused) => assert_eq!(refused, command),
                        }
                    }
                }
            });
            let mut sum = 0;
            run(&list, 0, |taken| {
                sum += taken.commands.iter().sum::<usize>();
                sum > 0
            });
            list.close();
            let mut taken = Taken::default();
            list.take(&mut taken.woken, &mut taken.released, &mut taken.commands);
            let last = list.end();
            caller.join().unwrap();
            sum += taken.commands.iter().chain(&last).sum::<usize>();
            assert_eq!(sum, accepted.load(Relaxed), "a command is lost, or taken twice");
        });
    }
}
