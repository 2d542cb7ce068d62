//! A listener that accepts until it is closed.

use std::{
    future::poll_fn,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use crate::{
    Address,
    net::{Listener, Wire},
};

/// The place of a listener until it is closed.
pub(super) struct ListenerPlace(pub(super) Mutex<Option<Listener>>);

impl ListenerPlace {
    pub(super) fn close(&self) {
        // The lock is never held across a wait, so an accept that is under way is done at once. The listener is closed
        // under the lock: another thread that closes it too must not return before it is closed.
        *lock(&self.0) = None;
    }
}

/// The task that accepts. If it ends because its runtime does, nobody would answer at the address any more.
pub(super) struct Accepting(pub(super) Arc<ListenerPlace>);

impl Accepting {
    /// Waits for the next connection. `None` once the listener is closed.
    pub(super) async fn accept(&self) -> Option<io::Result<(Wire, Address, Address)>> {
        poll_fn(|cx| match &mut *lock(&self.0.0) {
            Some(listener) => listener.poll_accept(cx).map(Some),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Tells errors of one connection from errors of the listener.
pub(super) fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | NotConnected)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
