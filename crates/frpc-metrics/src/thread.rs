//! Numbers of threads, so that each thread finds its own counters.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNNUMBERED) };
    static LEASE: Cell<Option<NumberLease>> = const { Cell::new(None) };
}

/// Returns the number of this thread, or [`UNNUMBERED`] before the first call of [`number`].
#[inline]
pub(crate) fn known_number() -> usize {
    NUMBER.get()
}

/// Returns the number of this thread. No two running threads have the same. The numbers of ended threads are used again.
#[inline]
pub(crate) fn number() -> usize {
    match NUMBER.get() {
        UNNUMBERED => take(),
        number => number,
    }
}

#[cold]
fn take() -> usize {
    let number = {
        let mut numbers = numbers();
        numbers.free.pop_first().unwrap_or_else(|| {
            numbers.used += 1;
            numbers.used - 1
        })
    };
    NUMBER.set(number);
    // A thread near its end has no lease any more. Its number is never used again.
    let _ = LEASE.try_with(|lease| lease.set(Some(NumberLease(number))));
    number
}

/// The number of a thread until the end of the thread.
struct NumberLease(usize);

impl Drop for NumberLease {
    fn drop(&mut self) {
        NUMBER.set(UNNUMBERED);
        numbers().free.insert(self.0);
    }
}

struct ThreadNumbers {
    /// The count of numbers given so far.
    used: usize,
    free: BTreeSet<usize>,
}

static NUMBERS: Mutex<ThreadNumbers> = Mutex::new(ThreadNumbers { used: 0, free: BTreeSet::new() });

fn numbers() -> MutexGuard<'static, ThreadNumbers> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

const UNNUMBERED: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Barrier, thread};

    use super::*;

    #[test]
    fn running_threads_have_different_numbers() {
        let (together, own) = (Barrier::new(20), number());
        let numbers: HashSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..20)
                .map(|_| {
                    scope.spawn(|| {
                        let number = number();
                        together.wait();
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((numbers.len(), numbers.contains(&own), number()), (20, false, own));
    }

    #[test]
    fn numbers_of_ended_threads_are_used_again() {
        // Threads of other tests end at any time, so numbers may change owners, but they do not grow without limit.
        let highest = (0..1000).map(|_| thread::spawn(number).join().unwrap()).max().unwrap();
        assert!(highest < 500, "{highest}");
    }
}
