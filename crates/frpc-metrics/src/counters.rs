//! The counters of all methods of a server or a target, on all threads.

use std::{
    cell::Cell,
    fmt, iter,
    marker::PhantomData,
    ops::Deref,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{cells::MethodCells, thread, totals::CallTotals};

/// The counters of the methods of a server, or of a target of channels.
///
/// Memory grows with the threads in use at the same time and with the methods called on each: 1.3 KiB for each pair.
pub struct CallCounters {
    /// The start of the keys of runs.
    id: u64,
    methods: usize,
    /// The counters of the first threads of the process. Most processes have no more.
    first: [OnceLock<ThreadCells>; FIRST_LEN],
    /// The counters of further threads. Each item has twice the room of the previous one.
    more: [OnceLock<Box<[OnceLock<ThreadCells>]>>; MORE_LEN],
}

/// The counters of one thread.
struct ThreadCells {
    methods: Box<[OnceLock<Box<MethodCells>>]>,
}

/// Successful calls of one method in the current turn of an event loop.
// In this order, each count is one instruction. The compiler makes more of two neighbours of the same type.
#[repr(C)]
struct CallRun {
    request_bytes: Cell<u64>,
    /// The counters and the method; see [`CallCounters::run_key`]. `NO_RUN` between the runs.
    key: Cell<u64>,
    response_bytes: Cell<u64>,
    calls: Cell<u32>,
}

impl CallRun {
    #[inline]
    fn begin(&self, key: u64, request_len: usize, response_len: usize) {
        self.key.set(key);
        self.calls.set(1);
        self.request_bytes.set(request_len as u64);
        self.response_bytes.set(response_len as u64);
    }

    #[inline]
    fn add(&self, request_len: usize, response_len: usize) {
        self.calls.set(self.calls.get() + 1);
        self.request_bytes.set(self.request_bytes.get() + request_len as u64);
        self.response_bytes.set(self.response_bytes.get() + response_len as u64);
    }
}

thread_local! {
    static RUN: CallRun = const {
        CallRun {
            request_bytes: Cell::new(0),
            key: Cell::new(NO_RUN),
            response_bytes: Cell::new(0),
            calls: Cell::new(0),
        }
    };
}

/// The key of no run.
const NO_RUN: u64 = 0;
/// The bits of a key for the method.
const METHOD_BITS: u32 = 16;

/// Returns the method in the key of a run.
#[inline]
fn method_of(key: u64) -> usize {
    let [.., high, low] = key.to_be_bytes();
    u16::from_be_bytes([high, low]).into()
}

/// The ids given so far.
static IDS: AtomicU64 = AtomicU64::new(0);

impl CallCounters {
    /// Creates counters for methods with the numbers from zero to `methods`, at most 65,536. The last one stands for every
    /// number above.
    pub fn new(methods: usize) -> Self {
        Self {
            id: (IDS.fetch_add(1, Ordering::Relaxed) + 1) << METHOD_BITS,
            methods: methods.clamp(1, METHODS_MAX),
            first: [const { OnceLock::new() }; FIRST_LEN],
            more: [const { OnceLock::new() }; MORE_LEN],
        }
    }

    /// Returns the number of methods.
    pub fn methods(&self) -> usize {
        self.methods
    }

    /// Returns the counters of a method on this thread. `None` if they are new, or if the thread is not one of the first.
    #[inline]
    fn known(&self, method: usize) -> Option<&MethodCells> {
        // An unnumbered thread is not one of the first ones either.
        let thread = self.first.get(thread::known_number())?.get()?;
        thread.methods.get(method)?.get().map(|cells| &**cells)
    }

    /// Returns the counters of a method on this thread.
    #[inline]
    pub fn here(&self, method: usize) -> LocalCells<'_> {
        LocalCells::new(self.known(method).unwrap_or_else(|| self.find(method)))
    }

    /// Returns the counters of a method on this thread, if they have this [owner](MethodCells::set_owner).
    ///
    /// It replaces a second look-up where the number of a method is a guess, such as its position in a hash table.
    #[inline]
    pub fn here_of(&self, method: usize, owner: usize) -> Option<LocalCells<'_>> {
        self.known(method).filter(|cells| cells.owner() == owner).map(LocalCells::new)
    }

    #[cold]
    fn find(&self, method: usize) -> &MethodCells {
        let number = thread::number();
        let thread = match self.first.get(number) {
            Some(thread) => thread,
            None => {
                // FIRST_LEN in the first item, then twice as many in each.
                let item = (number / FIRST_LEN).ilog2() as usize;
                let (item, start) = (item.min(MORE_LEN - 1), FIRST_LEN << item);
                let threads = self.more[item].get_or_init(|| iter::repeat_with(OnceLock::new).take(start).collect());
                &threads[(number - start).min(threads.len() - 1)]
            }
        };
        let new = || ThreadCells { methods: iter::repeat_with(OnceLock::new).take(self.methods).collect() };
        thread.get_or_init(new).methods[method.min(self.methods - 1)].get_or_init(Box::default)
    }

    /// Counts a successful call that began and ended in the current turn of an event loop on this thread.
    ///
    /// Such calls get their duration together, with [`end_turn`](Self::end_turn) or before a call of another method, so
    /// one reading of the clock is enough for many. `nanos` returns the nanoseconds since the start of the turn.
    #[inline]
    pub fn count_in_turn(&self, method: usize, request_len: usize, response_len: usize, nanos: impl FnOnce() -> u64) {
        let key = self.run_key(method);
        RUN.with(|run| match run.key.get() {
            now if now == key => run.add(request_len, response_len),
            NO_RUN => run.begin(key, request_len, response_len),
            now => self.count_next(run, now, key, request_len, response_len, nanos),
        });
    }

    /// Returns the key of the runs of a method.
    #[inline]
    fn run_key(&self, method: usize) -> u64 {
        self.id | method.min(METHODS_MAX - 1) as u64
    }

    /// Returns `true` for the key of a run of these counters.
    #[inline]
    fn owns(&self, key: u64) -> bool {
        key >> METHOD_BITS == self.id >> METHOD_BITS
    }

    /// Counts a call after one of another method or other counters.
    #[cold]
    fn count_next(
        &self,
        run: &CallRun,
        now: u64,
        key: u64,
        request_len: usize,
        response_len: usize,
        nanos: impl FnOnce() -> u64,
    ) {
        if self.owns(now) {
            self.end_run(run, nanos());
            return run.begin(key, request_len, response_len);
        }
        // The turn of another owner encloses this one.
        let cells = self.here(method_of(key));
        cells.start();
        cells.end_unary(request_len, response_len, nanos());
    }

    /// Ends a turn of an event loop. `nanos` returns the nanoseconds since its start, if the turn has ended calls.
    #[inline]
    pub fn end_turn(&self, nanos: impl FnOnce() -> u64) {
        if self.owns(RUN.with(|run| run.key.get())) {
            let nanos = nanos();
            RUN.with(|run| self.end_run(run, nanos));
        }
    }

    fn end_run(&self, run: &CallRun, nanos: u64) {
        let cells = self.here(method_of(run.key.replace(NO_RUN)));
        cells.add_run(run.calls.get().into(), run.request_bytes.get(), run.response_bytes.get(), nanos);
    }

    /// Adds up the counters of a method on all threads.
    pub fn totals(&self, method: usize) -> CallTotals {
        let more = self.more.iter().filter_map(OnceLock::get).flat_map(|threads| threads.iter());
        let threads = self.first.iter().chain(more).filter_map(OnceLock::get);
        let mut totals = CallTotals::default();
        threads.filter_map(|thread| thread.methods.get(method)?.get()).for_each(|cells| cells.add_to(&mut totals));
        totals
    }
}

/// The counters of a method on this thread.
#[derive(Clone, Copy)]
pub struct LocalCells<'a> {
    cells: &'a MethodCells,
    /// Another thread would lose counts.
    not_send: PhantomData<*const ()>,
}

/// The counters of a method on the thread with this number, which may be another one by now.
#[derive(Clone, Copy)]
pub struct ThreadedCells<'a> {
    cells: &'a MethodCells,
    thread: usize,
}

impl<'a> LocalCells<'a> {
    #[inline]
    fn new(cells: &'a MethodCells) -> Self {
        Self { cells, not_send: PhantomData }
    }

    /// Returns the same counters in a form that may move to other threads.
    #[inline]
    pub fn with_thread(self) -> ThreadedCells<'a> {
        ThreadedCells { cells: self.cells, thread: thread::known_number() }
    }
}

impl<'a> ThreadedCells<'a> {
    /// Returns the counters if they belong to the current thread. Costs less than [`CallCounters::here`].
    #[inline]
    pub fn if_here(self) -> Option<LocalCells<'a>> {
        (thread::known_number() == self.thread).then(|| LocalCells::new(self.cells))
    }
}

impl fmt::Debug for ThreadedCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadedCells").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Deref for LocalCells<'_> {
    type Target = MethodCells;

    #[inline]
    fn deref(&self) -> &MethodCells {
        self.cells
    }
}

impl fmt::Debug for LocalCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalCells").finish_non_exhaustive()
    }
}

impl fmt::Debug for CallCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallCounters").field("methods", &self.methods).finish_non_exhaustive()
    }
}

/// The numbers of methods have as many bits as keys of runs have for them.
const METHODS_MAX: usize = 1 << METHOD_BITS;
/// The threads with a short way to their counters.
const FIRST_LEN: usize = 64;
/// Room for 4 million threads.
const MORE_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, time::Duration};

    use super::*;

    #[test]
    fn threads_count_without_loss() {
        let (counters, together) = (CallCounters::new(3), Barrier::new(100));
        std::thread::scope(|scope| {
            for thread in 0..100_u64 {
                let (counters, together) = (&counters, &together);
                scope.spawn(move || {
                    together.wait();
                    for call in 0..1000 {
                        if call % 10 == 0 {
                            let cells = counters.here(1);
                            cells.start();
                            cells.add_request(1, 10);
                            cells.add_response(1, 20);
                            cells.end((thread % 17) as u8, Duration::from_micros(5));
                        } else {
                            counters.count_in_turn(1, 10, 20, || panic!("it is the first method of the turn"));
                        }
                        counters.end_turn(|| 7_000);
                    }
                });
            }
        });
        let totals = counters.totals(1);
        assert_eq!((totals.started, totals.all_ended(), totals.in_flight()), (100_000, 100_000, 0));
        assert_eq!((totals.request_messages, totals.request_bytes), (100_000, 1_000_000));
        assert_eq!((totals.response_messages, totals.response_bytes), (100_000, 2_000_000));
        assert_eq!(totals.all_durations().sum, Duration::from_micros(90_000 * 7 + 10_000 * 5));
        assert_eq!(totals.ended(16), 500);
        assert_eq!((counters.totals(0), counters.totals(2)), <(CallTotals, CallTotals)>::default());
    }

    #[test]
    fn counters_of_another_thread_are_not_used() {
        let counters = CallCounters::new(1);
        let cells = counters.here(0).with_thread();
        assert!(cells.if_here().is_some());
        std::thread::scope(|scope| assert!(scope.spawn(|| cells.if_here().is_none()).join().unwrap()));
    }

    #[test]
    fn counters_are_found_for_their_owner_on_each_thread() {
        let counters = CallCounters::new(2);
        assert!(counters.here_of(1, 7).is_none());
        counters.here(1).set_owner(7);
        let is_found = |method, owner| counters.here_of(method, owner).is_some();
        assert_eq!([is_found(1, 7), is_found(1, 8), is_found(0, 7), is_found(2, 7)], [true, false, false, false]);
        std::thread::scope(|scope| assert!(!scope.spawn(|| is_found(1, 7)).join().unwrap()));
    }

    #[test]
    fn calls_of_a_turn_get_its_duration_at_its_end() {
        let (counters, other) = (CallCounters::new(3), CallCounters::new(1));
        let unread = || -> u64 { panic!("no run has ended") };
        counters.count_in_turn(0, 1, 2, unread);
        counters.count_in_turn(0, 1, 2, unread);
        counters.count_in_turn(2, 1, 2, || 1_000_000);
        other.count_in_turn(0, 1, 2, || 2_000_000);
        other.end_turn(|| panic!("the turn belongs to other counters"));
        counters.end_turn(|| 3_000_000);
        counters.end_turn(|| panic!("this turn has no calls"));
        let of = |counters: &CallCounters, method| {
            let totals = counters.totals(method);
            (totals.started, totals.ended(0), totals.response_bytes, totals.all_durations().sum.as_millis())
        };
        assert_eq!([of(&counters, 0), of(&counters, 1), of(&counters, 2)], [(2, 2, 4, 2), (0, 0, 0, 0), (1, 1, 2, 3)]);
        assert_eq!(of(&other, 0), (1, 1, 2, 2));
    }

    #[test]
    fn unknown_methods_and_codes_share_the_last_ones() {
        let counters = CallCounters::new(2);
        counters.here(7).start();
        counters.here(usize::MAX).end(200, Duration::ZERO);
        counters.count_in_turn(usize::MAX, 0, 0, || 0);
        counters.end_turn(|| 0);
        let totals = counters.totals(1);
        assert_eq!((totals.started, totals.ended(2), totals.ended(0)), (2, 1, 1));
        assert_eq!(counters.totals(2), CallTotals::default());
    }
}
