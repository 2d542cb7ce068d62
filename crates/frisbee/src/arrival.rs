//! The arrival of the packet that a thread starts a handler for, if that is not the time of the driver's turn.

use std::{cell::Cell, time::Instant};

thread_local! {
    static ARRIVED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts a handler on a packet that arrived at this time. Only what runs before `start` returns sees it.
pub(crate) fn arrived_at<T>(at: Instant, start: impl FnOnce() -> T) -> T {
    /// Puts back what stood here before, also if the handler panics.
    struct Before(Option<Instant>);

    impl Drop for Before {
        fn drop(&mut self) {
            ARRIVED.set(self.0);
        }
    }

    let _before = Before(ARRIVED.replace(Some(at)));
    start()
}

/// Returns when the packet arrived for which this thread starts a handler, if it had to wait.
#[inline]
pub(crate) fn arrived() -> Option<Instant> {
    ARRIVED.get()
}
