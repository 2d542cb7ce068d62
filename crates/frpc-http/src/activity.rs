//! The requests in progress on a connection, and the shutdown of idle connections.

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use frpc::Drain;
use tokio::time::sleep;

/// Counts the requests in progress on one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionActivity {
    begun: AtomicUsize,
    over: AtomicUsize,
    /// `true` while the socket does not accept bytes ready to be written.
    is_writing: AtomicBool,
}

/// A request in progress. Dropping it ends the request.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// Counts a new request until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.begun.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.clone())
    }

    /// Records whether the socket refuses bytes ready to be written.
    pub(crate) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Returns `true` if a request is in progress.
    pub(crate) fn is_answering(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != self.over.load(Ordering::Relaxed)
    }

    /// Returns the number of requests so far, or `None` if a request or a write is in progress.
    fn begun_if_idle(&self) -> Option<usize> {
        let begun = self.begun.load(Ordering::Relaxed);
        let is_idle = !self.is_answering() && !self.is_writing.load(Ordering::Relaxed);
        is_idle.then_some(begun)
    }

    /// Completes after `time` if the connection has had no request. Never completes if it has had one.
    async fn first_request_timeout(&self, time: Duration) {
        sleep(time).await;
        if self.begun.load(Ordering::Relaxed) > 0 {
            pending().await
        }
    }

    /// Waits until nothing has been in progress for [`GOODBYE_MAX`].
    async fn idle(&self) {
        loop {
            let before = self.begun_if_idle();
            sleep(GOODBYE_MAX).await;
            // Both checks miss a request shorter than the pause, but it changes the number of requests.
            if before.is_some() && self.begun_if_idle() == before {
                return;
            }
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Ordering::Relaxed);
    }
}

/// Drives a connection to its end and returns its output.
///
/// Calls `shut_down` when the server shuts down, or when no request arrives within `first_max`. After that call, the
/// connection may be idle for [`GOODBYE_MAX`]. Returns `None` if it is idle for longer; the caller must drop it.
pub(crate) async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    activity: &ConnectionActivity,
    first_max: Duration,
    drain: &Drain,
) -> Option<C::Output> {
    tokio::select! {
        biased;
        ended = &mut connection => return Some(ended),
        () = drain.requested() => {}
        () = activity.first_request_timeout(first_max) => {}
    }
    shut_down(connection.as_mut());
    tokio::select! {
        biased;
        ended = connection => Some(ended),
        () = activity.idle() => None,
    }
}

/// The time that an idle connection has to say goodbye after the call of `shut_down`.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
