//! The arrival time of a packet that had to wait, while its handler starts.

use std::cell::Cell;

use crate::clock::Instant;

thread_local! {
    static ARRIVED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `start`, which starts the handler of a packet received at `at`. Only code called by `start` sees this
/// time.
pub(crate) fn arrived_at<T>(at: Instant, start: impl FnOnce() -> T) -> T {
    /// Restores the previous value, also after a panic of the handler.
    struct RestoreArrival(Option<Instant>);

    impl Drop for RestoreArrival {
        fn drop(&mut self) {
            ARRIVED.set(self.0);
        }
    }

    let _before = RestoreArrival(ARRIVED.replace(Some(at)));
    start()
}

/// Returns the arrival time of the packet whose handler is being started on this thread, if the packet had to
/// wait.
#[inline]
pub(crate) fn arrived() -> Option<Instant> {
    ARRIVED.get()
}
