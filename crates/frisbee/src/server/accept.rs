//! The listener of the accept loop. Other tasks can close it.

use std::{
    future::poll_fn,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use tokio_util::sync::CancellationToken;

use crate::{
    Address,
    net::{IoStream, Listener},
};

/// The owner of a listener. Empty once the listener is closed.
pub(super) struct ListenerCell {
    /// The requested address, or else the actual one.
    #[cfg_attr(not(unix), expect(dead_code, reason = "listeners are passed to other processes on Unix only"))]
    pub(super) name: String,
    pub(super) listener: Mutex<Option<Listener>>,
    /// Cancelled after the last connection was admitted.
    pub(super) ended: CancellationToken,
}

impl ListenerCell {
    pub(super) fn new(name: String, listener: Listener) -> Self {
        Self { name, listener: Mutex::new(Some(listener)), ended: CancellationToken::new() }
    }

    pub(super) fn close(&self) {
        // No task holds the lock across an await, so a running accept releases it immediately. The listener is
        // dropped under the lock: a second caller must not return before the listener is closed.
        *lock(&self.listener) = None;
    }
}

/// The handle of the accepting task. Closes the listener on drop, because a runtime may end before its server
/// does.
pub(super) struct ListenerGuard(pub(super) Arc<ListenerCell>);

impl ListenerGuard {
    /// Waits for the next connection. Returns `None` once the listener is closed.
    pub(super) async fn accept(&self) -> Option<io::Result<(IoStream, Address, Address)>> {
        poll_fn(|cx| match &mut *lock(&self.0.listener) {
            Some(listener) => listener.poll_accept(cx).map(Some),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.0.close();
        self.0.ended.cancel();
    }
}

/// Returns `true` for errors of a single connection, `false` for errors of the listener.
pub(super) fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | NotConnected)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
