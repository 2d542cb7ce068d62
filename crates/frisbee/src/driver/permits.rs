//! Limits the number of running handlers across a whole server.
//!
//! All connections share one counter, and each thread that changes it takes its cache line from another thread. A
//! connection therefore takes several permits at a time while there are plenty, and releases unused ones at the end
//! of its turn. A lock is only taken while a connection waits for a permit.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::poll_fn,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker, ready},
};

use crate::sync::{AtomicUsize, Mutex, MutexGuard};

/// Permits shared by the connections of one scope.
pub(crate) struct HandlerPermits {
    /// Number of free permits, or [`QUEUED`]. Only the holder of the lock may change the value from or to [`QUEUED`].
    free: AtomicUsize,
    /// Number of all permits.
    count: usize,
    queue: Mutex<PermitQueue>,
}

/// Queue of connections waiting for one permit each, in order.
#[derive(Default)]
struct PermitQueue {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Places in the queue with a reserved permit.
    granted: BTreeSet<u64>,
}

impl HandlerPermits {
    pub(super) fn new(count: usize) -> Arc<Self> {
        let count = count.min(QUEUED - 1);
        Arc::new(Self { free: AtomicUsize::new(count), count, queue: Mutex::default() })
    }

    /// Returns the number of permits in use, some of them taken ahead by connections in their turn.
    fn in_use(&self) -> usize {
        match self.free.load(Relaxed) {
            QUEUED => self.count,
            free => self.count.saturating_sub(free),
        }
    }

    /// Takes at least `wanted` permits, and a few more if enough remain for other connections.
    ///
    /// Takes fewer if there are not as many, and none while other connections are queued.
    fn take(&self, wanted: usize) -> usize {
        let share = |free: usize| (free / 2).min(TAKEN_AHEAD_MAX).max(wanted).min(free);
        // Relaxed is enough: no other memory depends on the counter.
        let taken = self.free.fetch_update(Relaxed, Relaxed, |free| match free {
            0 | QUEUED => None,
            free => Some(free - share(free)),
        });
        taken.map_or(0, share)
    }

    fn release(&self, count: usize) {
        let given = self.free.fetch_update(Relaxed, Relaxed, |free| (free != QUEUED).then(|| free + count));
        if given.is_err() {
            self.grant(self.queue(), count);
        }
    }

    /// Takes one permit, or queues the caller. A caller already in the queue keeps its place.
    fn poll_take(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<()> {
        let mut queue = self.queue();
        if let Some(place) = place.take_if(|place| queue.granted.contains(place)) {
            queue.granted.remove(&place);
            return Poll::Ready(());
        }
        if place.is_none() {
            // Under the lock, so that a permit released from now on finds the place in the queue.
            let free = self.free.fetch_update(Relaxed, Relaxed, |free| match free {
                0 => Some(QUEUED),
                QUEUED => None,
                free => Some(free - 1),
            });
            if !matches!(free, Ok(0) | Err(_)) {
                return Poll::Ready(());
            }
        }
        let place = *place.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        let before = queue.waiting.insert(place, cx.waker().clone());
        drop(queue);
        // Not under the lock: the waker may be the last reference to a task with its own place in the queue.
        drop(before);
        Poll::Pending
    }

    /// Leaves the queue, and releases the permit reserved for this place.
    fn leave(&self, place: u64) {
        let mut queue = self.queue();
        let waker = queue.waiting.remove(&place);
        let kept = usize::from(queue.granted.remove(&place));
        self.grant(queue, kept);
        drop(waker);
    }

    /// Reserves released permits for queued connections, and makes the rest free.
    fn grant(&self, mut queue: MutexGuard<'_, PermitQueue>, mut count: usize) {
        let mut wakers = Vec::new();
        while count > 0
            && let Some((place, waker)) = queue.waiting.pop_first()
        {
            queue.granted.insert(place);
            wakers.push(waker);
            count -= 1;
        }
        let is_queued = self.free.load(Relaxed) == QUEUED;
        debug_assert!(is_queued || queue.waiting.is_empty(), "nobody waits while there may be permits");
        if !is_queued {
            self.free.fetch_add(count, Relaxed);
        } else if queue.waiting.is_empty() {
            self.free.store(count, Relaxed);
        }
        // Wake after unlocking: a woken connection locks the queue.
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn queue(&self) -> MutexGuard<'_, PermitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shared permits, with a separate reference count for the tasks of one connection.
struct SharedPermits(Arc<HandlerPermits>);

/// Permits held by one connection for its handlers.
pub(super) struct HeldPermits {
    all: Arc<HandlerPermits>,
    /// Reference for the tasks of the connection, created for the first task.
    of_tasks: Option<Arc<SharedPermits>>,
    count: usize,
    /// Place in the queue, while the connection waits for one more permit.
    place: Option<u64>,
}

impl HeldPermits {
    pub(super) fn new(all: Arc<HandlerPermits>) -> Self {
        Self { all, of_tasks: None, count: 0, place: None }
    }

    /// Waits until at least `count` permits are held.
    pub(super) fn poll_hold(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<()> {
        // A connection already in the queue must not take permits outside it.
        if self.count < count && self.place.is_none() {
            self.count += self.all.take(count - self.count);
        }
        while self.count < count {
            ready!(self.all.poll_take(cx, &mut self.place));
            self.count += 1;
        }
        Poll::Ready(())
    }

    /// Returns the number of permits in use by all connections.
    pub(super) fn in_use_by_all(&self) -> usize {
        self.all.in_use()
    }

    /// Returns `true` if this connection is queued for a permit.
    pub(super) fn is_waiting(&self) -> bool {
        self.place.is_some()
    }

    /// Releases all permits beyond `count`.
    pub(super) fn release_beyond(&mut self, count: usize) {
        let Some(beyond) = self.count.checked_sub(count) else { return };
        if beyond > 0 {
            self.count = count;
            self.all.release(beyond);
        }
        // Leave the queue: nothing needs the permit any more.
        self.stop_waiting();
    }

    pub(super) fn stop_waiting(&mut self) {
        if let Some(place) = self.place.take() {
            self.all.leave(place);
        }
    }

    /// Moves one permit to a handler with its own task.
    pub(super) fn take_task_permit(&mut self) -> Option<TaskPermit> {
        self.count = self.count.checked_sub(1)?;
        let of_tasks = self.of_tasks.get_or_insert_with(|| Arc::new(SharedPermits(self.all.clone())));
        Some(TaskPermit(of_tasks.clone()))
    }
}

impl Drop for HeldPermits {
    fn drop(&mut self) {
        self.stop_waiting();
        self.release_beyond(0);
    }
}

/// The permit of one task.
pub(super) struct TaskPermit(Arc<SharedPermits>);

impl Drop for TaskPermit {
    fn drop(&mut self) {
        self.0.0.release(1);
    }
}

/// The right to run one handler of a server. Dropping it gives the right back.
///
/// [`Drain::handler_permit`](crate::Drain::handler_permit) waits for one.
pub struct HandlerPermit(Arc<HandlerPermits>);

impl HandlerPermit {
    pub(crate) async fn take(all: &Arc<HandlerPermits>) -> Self {
        let mut held = HeldPermits::new(all.clone());
        poll_fn(|cx| held.poll_hold(cx, 1)).await;
        held.give(all)
    }

    /// Takes a permit. Returns `None` if there is none, or if others wait.
    pub(crate) fn try_take(all: &Arc<HandlerPermits>) -> Option<Self> {
        let mut held = HeldPermits::new(all.clone());
        held.count = all.take(1);
        (held.count > 0).then(|| held.give(all))
    }
}

impl HeldPermits {
    /// Moves a permit out of the held ones, and releases the rest.
    fn give(mut self, all: &Arc<HandlerPermits>) -> HandlerPermit {
        debug_assert!(self.count > 0, "the permit is held");
        self.count -= 1;
        HandlerPermit(all.clone())
    }
}

impl Drop for HandlerPermit {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl fmt::Debug for HandlerPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerPermit").finish_non_exhaustive()
    }
}

/// Value of the counter while connections are queued, so that permits are only taken in order.
const QUEUED: usize = usize::MAX;
/// Maximum number of permits that a connection takes in advance, until the end of its turn.
const TAKEN_AHEAD_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::Ordering::SeqCst,
        task::Wake,
        thread::{self, Thread},
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn is_held(held: &mut HeldPermits, count: usize) -> bool {
        held.poll_hold(&mut Context::from_waker(Waker::noop()), count).is_ready()
    }

    #[test]
    fn permits_are_granted_in_fifo_order() {
        let permits = HandlerPermits::new(1);
        let [mut first, mut second, mut third] = [(); 3].map(|()| HeldPermits::new(permits.clone()));
        assert!(is_held(&mut first, 1));
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        assert!(second.poll_hold(&mut Context::from_waker(&waker), 1).is_pending());
        assert!(!is_held(&mut third, 1));
        first.release_beyond(0);
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(!is_held(&mut first, 1), "it is kept for another");
        assert!(!is_held(&mut third, 1), "it is kept for another");
        assert!(is_held(&mut second, 1));
        drop(second);
        assert!(!is_held(&mut first, 1), "it came behind the third");
        assert!(is_held(&mut third, 1));
        third.release_beyond(0);
        assert!(is_held(&mut first, 1));
        first.release_beyond(0);
        assert_eq!(permits.free.load(SeqCst), 1);
    }

    #[test]
    fn cancelled_waiters_release_their_permit() {
        let permits = HandlerPermits::new(1);
        let [mut first, mut second, mut third] = [(); 3].map(|()| HeldPermits::new(permits.clone()));
        assert!(is_held(&mut first, 1));
        assert!(!is_held(&mut second, 1) && !is_held(&mut third, 1));
        first.release_beyond(0);
        // By now, a permit is reserved for this place.
        drop(second);
        assert!(is_held(&mut third, 1));
        assert!(!is_held(&mut first, 1));
        first.stop_waiting();
        third.release_beyond(0);
        assert_eq!(permits.free.load(SeqCst), 1);
    }

    #[test]
    fn prefetched_permits_are_returned() {
        let permits = HandlerPermits::new(64);
        let [mut one, mut other] = [(); 2].map(|()| HeldPermits::new(permits.clone()));
        assert!(is_held(&mut one, 1));
        assert_eq!(permits.free.load(SeqCst), 64 - TAKEN_AHEAD_MAX);
        assert!(is_held(&mut one, TAKEN_AHEAD_MAX));
        assert_eq!(permits.free.load(SeqCst), 64 - TAKEN_AHEAD_MAX, "they were there");
        one.release_beyond(3);
        assert_eq!(permits.free.load(SeqCst), 61);
        assert!(is_held(&mut other, 60));
        assert_eq!(permits.free.load(SeqCst), 1, "nothing ahead where little is left");
        drop(one);
        let permit = other.take_task_permit();
        drop(other);
        assert_eq!(permits.free.load(SeqCst), 63);
        drop(permit);
        assert_eq!(permits.free.load(SeqCst), 64);
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn competing_threads_never_exceed_the_limit() {
        const LIMIT: usize = 3;
        let permits = HandlerPermits::new(LIMIT);
        let under_way = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (permits, under_way) = (permits.clone(), &under_way);
                scope.spawn(move || {
                    let waker = Arc::new(Unpark(thread::current())).into();
                    let mut held = HeldPermits::new(permits);
                    for round in 0..if cfg!(miri) { 20 } else { 5000 } {
                        while held.poll_hold(&mut Context::from_waker(&waker), 1).is_pending() {
                            if (thread + round) % 7 == 0 {
                                held.stop_waiting();
                            } else {
                                thread::park();
                            }
                        }
                        assert!(under_way.fetch_add(1, SeqCst) < LIMIT);
                        let permit = held.take_task_permit();
                        under_way.fetch_sub(1, SeqCst);
                        drop(permit);
                        held.release_beyond(0);
                    }
                });
            }
        });
        assert_eq!(permits.free.load(SeqCst), LIMIT);
        assert!(permits.queue().waiting.is_empty() && permits.queue().granted.is_empty());
    }
}

#[cfg(loom)]
#[cfg(test)]
mod models {
    use loom::{future::block_on, model, thread};

    use super::*;

    /// Runs a handler on a connection.
    async fn run(permits: Arc<HandlerPermits>, running: Arc<AtomicUsize>) {
        let mut held = HeldPermits::new(permits);
        poll_fn(|cx| held.poll_hold(cx, 1)).await;
        assert_eq!(running.fetch_add(1, Relaxed), 0, "there is one permit");
        running.fetch_sub(1, Relaxed);
        drop(held.take_task_permit());
    }

    #[test]
    fn each_permit_is_used_by_one_connection_and_released_once() {
        model(|| {
            let (permits, running) = (HandlerPermits::new(1), Arc::new(AtomicUsize::new(0)));
            let other = thread::spawn({
                let (permits, running) = (permits.clone(), running.clone());
                move || block_on(run(permits, running))
            });
            block_on(run(permits.clone(), running));
            other.join().unwrap();
            assert_eq!(permits.free.load(Relaxed), 1);
        });
    }

    #[test]
    fn a_queued_connection_that_leaves_passes_its_permit_on() {
        model(|| {
            let (permits, running) = (HandlerPermits::new(1), Arc::new(AtomicUsize::new(0)));
            let mut first = HeldPermits::new(permits.clone());
            assert!(first.poll_hold(&mut Context::from_waker(Waker::noop()), 1).is_ready());
            let mut leaving = HeldPermits::new(permits.clone());
            assert!(leaving.poll_hold(&mut Context::from_waker(Waker::noop()), 1).is_pending());
            let other = thread::spawn({
                let (permits, running) = (permits.clone(), running.clone());
                move || block_on(run(permits, running))
            });
            let leaves = thread::spawn(move || drop(leaving));
            first.release_beyond(0);
            leaves.join().unwrap();
            other.join().unwrap();
            assert_eq!(permits.free.load(Relaxed), 1);
            assert!(permits.queue().waiting.is_empty() && permits.queue().granted.is_empty());
        });
    }
}
