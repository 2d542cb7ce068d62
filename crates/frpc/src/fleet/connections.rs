//! Additional connections to one server, for calls beyond the limit of the first.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use tokio::sync::Notify;

use super::server::ServerCaller;

/// The connections to one server in addition to the first.
pub(super) struct AddedConnections {
    /// The number of calls in flight on the first connection from which it is full.
    first_max: u32,
    all: Mutex<Vec<Arc<AddedConnection>>>,
    /// Notified when all connections are full.
    full: Notify,
}

pub(super) struct AddedConnection {
    caller: ServerCaller,
    calls_max: u32,
    in_flight: AtomicU32,
    /// Notified when a call found that the connection takes no more calls.
    retired: Notify,
}

/// A call in flight on an additional connection. It is counted until it is dropped.
pub(super) struct AddedCall(Arc<AddedConnection>);

impl AddedConnections {
    pub(super) fn new(first: &ServerCaller) -> Self {
        Self { first_max: first.calls_max(), all: Mutex::default(), full: Notify::new() }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<AddedConnection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place on an additional connection, if the first one is full. `in_flight` are the calls on all of them, with
    /// the one that begins.
    #[inline]
    pub(super) fn begin(&self, in_flight: u32) -> Option<AddedCall> {
        if in_flight <= self.first_max { None } else { self.begin_beyond(in_flight) }
    }

    #[cold]
    fn begin_beyond(&self, in_flight: u32) -> Option<AddedCall> {
        let all = self.all();
        let calls = |added: &Arc<AddedConnection>| added.in_flight.load(Ordering::Relaxed);
        let of_first = in_flight.saturating_sub(all.iter().map(calls).sum());
        if of_first <= self.first_max {
            return None;
        }
        // The counts only grow under the lock.
        let Some(free) = all.iter().find(|added| calls(added) < added.calls_max) else {
            self.full.notify_one();
            return None;
        };
        free.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(AddedCall(free.clone()))
    }

    /// Waits until all connections are full.
    pub(super) async fn full(&self) {
        self.full.notified().await;
    }

    /// Uses another connection until it is lost.
    pub(super) async fn serve(&self, caller: ServerCaller) {
        let (calls_max, in_flight, retired) = (caller.calls_max(), AtomicU32::new(0), Notify::new());
        let added = Arc::new(AddedConnection { caller, calls_max, in_flight, retired });
        self.all().push(added.clone());
        tokio::select! {
            // A simulation needs a fixed order. Both events have the same effect.
            biased;
            () = added.caller.caller().lost() => {}
            () = added.retired.notified() => {}
        }
        self.all().retain(|other| !Arc::ptr_eq(other, &added));
    }

    /// Forgets the additional connections. Their calls in flight finish.
    pub(super) fn clear(&self) {
        self.all().clear();
    }
}

impl AddedCall {
    pub(super) fn caller(&self) -> &ServerCaller {
        &self.0.caller
    }

    /// Removes the connection from the choice.
    pub(super) fn retire(&self) {
        self.0.retired.notify_one();
    }
}

impl Drop for AddedCall {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
