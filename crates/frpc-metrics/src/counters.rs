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
    time::Duration,
};

use crate::{cells::MethodCells, thread, totals::CallTotals};

/// The counters of the methods of a server, or of a target of channels.
///
/// Memory grows with the threads in use at the same time and with the methods called on each: 1.3 KiB for each pair.
pub struct CallCounters {
    id: u64,
    methods: usize,
    /// The counters of the first threads of the process. Most processes have no more.
    first: Box<[OnceLock<ThreadCells>]>,
    /// The counters of further threads. Each item has twice the room of the previous one.
    more: [OnceLock<Box<[OnceLock<ThreadCells>]>>; MORE_LEN],
}

/// The counters of one thread.
struct ThreadCells {
    methods: Box<[OnceLock<Box<MethodCells>>]>,
}

/// Successful calls of one method in the current turn of an event loop.
struct CallRun {
    /// The id of the counters.
    owner: Cell<u64>,
    method: Cell<usize>,
    calls: Cell<u64>,
    request_bytes: Cell<u64>,
    response_bytes: Cell<u64>,
}

impl CallRun {
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
            owner: Cell::new(NOBODY),
            method: Cell::new(0),
            calls: Cell::new(0),
            request_bytes: Cell::new(0),
            response_bytes: Cell::new(0),
        }
    };
}

/// The owner of no run.
const NOBODY: u64 = 0;

/// The ids given so far.
static IDS: AtomicU64 = AtomicU64::new(NOBODY);

impl CallCounters {
    /// Creates counters for methods with the numbers from zero to `methods`. The last one stands for every number above.
    pub fn new(methods: usize) -> Self {
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed) + 1,
            methods: methods.max(1),
            first: iter::repeat_with(OnceLock::new).take(FIRST_LEN).collect(),
            more: [const { OnceLock::new() }; MORE_LEN],
        }
    }

    /// Returns the number of methods.
    pub fn methods(&self) -> usize {
        self.methods
    }

    #[inline]
    fn thread(&self) -> &ThreadCells {
        let number = thread::number();
        match self.first.get(number).and_then(OnceLock::get) {
            Some(cells) => cells,
            None => self.new_thread(number),
        }
    }

    #[cold]
    fn new_thread(&self, number: usize) -> &ThreadCells {
        let cells = match self.first.get(number) {
            Some(cells) => cells,
            None => {
                // FIRST_LEN in the first item, then twice as many in each.
                let item = (number / FIRST_LEN).ilog2() as usize;
                let (item, start) = (item.min(MORE_LEN - 1), FIRST_LEN << item);
                let cells = self.more[item].get_or_init(|| iter::repeat_with(OnceLock::new).take(start).collect());
                &cells[(number - start).min(cells.len() - 1)]
            }
        };
        cells.get_or_init(|| ThreadCells { methods: iter::repeat_with(OnceLock::new).take(self.methods).collect() })
    }

    /// Returns the counters of a method on this thread.
    #[inline]
    pub fn here(&self, method: usize) -> LocalCells<'_> {
        LocalCells { cells: self.thread().method(method), not_send: PhantomData }
    }

    /// Counts a successful call that began and ended in the current turn of an event loop on this thread.
    ///
    /// Such calls get their duration together, with [`end_turn`](Self::end_turn) or before a call of another method, so
    /// one reading of the clock is enough for many. `duration` returns the time since the start of the turn.
    #[inline]
    pub fn count_in_turn(
        &self,
        method: usize,
        request_len: usize,
        response_len: usize,
        duration: impl FnOnce() -> Duration,
    ) {
        RUN.with(|run| {
            if run.owner.get() == self.id && run.method.get() == method {
                run.add(request_len, response_len);
            } else {
                self.begin_run(run, method, request_len, response_len, duration);
            }
        });
    }

    #[cold]
    fn begin_run(
        &self,
        run: &CallRun,
        method: usize,
        request_len: usize,
        response_len: usize,
        duration: impl FnOnce() -> Duration,
    ) {
        if run.owner.get() == self.id {
            self.end_run(run, duration());
        } else if run.owner.get() != NOBODY {
            // The turn of another owner encloses this one.
            let cells = self.here(method);
            cells.start();
            cells.add_request(1, request_len);
            cells.add_response(1, response_len);
            return cells.end(0, duration());
        }
        run.owner.set(self.id);
        run.method.set(method);
        run.add(request_len, response_len);
    }

    /// Ends a turn of an event loop. `duration` returns the time since its start, if the turn has ended calls.
    #[inline]
    pub fn end_turn(&self, duration: impl FnOnce() -> Duration) {
        RUN.with(|run| {
            if run.owner.get() == self.id {
                self.end_run(run, duration());
            }
        });
    }

    fn end_run(&self, run: &CallRun, duration: Duration) {
        run.owner.set(NOBODY);
        let (calls, cells) = (run.calls.take(), self.here(run.method.get()));
        cells.add_run(calls, run.request_bytes.take(), run.response_bytes.take(), duration);
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

impl ThreadCells {
    #[inline]
    fn method(&self, method: usize) -> &MethodCells {
        match self.methods.get(method).and_then(OnceLock::get) {
            Some(cells) => cells,
            None => self.new_method(method),
        }
    }

    #[cold]
    fn new_method(&self, method: usize) -> &MethodCells {
        self.methods[method.min(self.methods.len() - 1)].get_or_init(Box::default)
    }
}

impl fmt::Debug for CallCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallCounters").field("methods", &self.methods).finish_non_exhaustive()
    }
}

/// The threads with a short way to their counters.
const FIRST_LEN: usize = 64;
/// Room for 4 million threads.
const MORE_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

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
                        counters.end_turn(|| Duration::from_micros(7));
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
    fn calls_of_a_turn_get_its_duration_at_its_end() {
        let (counters, other) = (CallCounters::new(3), CallCounters::new(1));
        let unread = || -> Duration { panic!("no run has ended") };
        counters.count_in_turn(0, 1, 2, unread);
        counters.count_in_turn(0, 1, 2, unread);
        counters.count_in_turn(2, 1, 2, || Duration::from_millis(1));
        other.count_in_turn(0, 1, 2, || Duration::from_millis(2));
        other.end_turn(|| panic!("the turn belongs to other counters"));
        counters.end_turn(|| Duration::from_millis(3));
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
        counters.count_in_turn(9, 0, 0, || Duration::ZERO);
        counters.end_turn(|| Duration::ZERO);
        let totals = counters.totals(1);
        assert_eq!((totals.started, totals.ended(2), totals.ended(0)), (2, 1, 1));
        assert_eq!(counters.totals(2), CallTotals::default());
    }
}
