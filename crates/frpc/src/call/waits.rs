//! Times for which calls waited in a queue, on the way from the queue to the counters of their method.

use std::{cell::Cell, ptr, time::Duration};

use frisbee::clock::Instant;

use super::method::Method;

thread_local! {
    /// The wait that ended in the current poll of a call.
    static ENDED: Cell<Option<(&'static Method, Duration)>> = const { Cell::new(None) };
}

/// A wait of a call in a queue.
pub(crate) struct CallWait {
    method: &'static Method,
    begun: Instant,
}

impl CallWait {
    /// Begins a wait. Only calls that have to wait do this: others do not read the clock.
    pub(crate) fn begin(method: &'static Method) -> Self {
        Self { method, begun: now() }
    }

    /// Ends the wait, and returns its time. The measure of the call counts it after the current poll.
    pub(crate) fn end(self) -> Duration {
        let waited = now().saturating_duration_since(self.begun);
        ENDED.set(Some((self.method, waited)));
        waited
    }
}

/// Takes the wait of a call to this method that ended in the current poll. Calls made by its handler have other methods.
pub(crate) fn take_ended(method: &'static Method) -> Option<Duration> {
    let (_, waited) = ENDED.get().filter(|(waiting, _)| ptr::eq(*waiting, method))?;
    ENDED.set(None);
    Some(waited)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_taken_once_and_by_its_method() {
        static METHODS: [Method; 2] = [Method::unary("a.A", "Do", 10), Method::unary("a.A", "Say", 11)];
        let waited = CallWait::begin(&METHODS[0]).end();
        assert_eq!(take_ended(&METHODS[1]), None);
        assert_eq!((take_ended(&METHODS[0]), take_ended(&METHODS[0])), (Some(waited), None));
    }
}
