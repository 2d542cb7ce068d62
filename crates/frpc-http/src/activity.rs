//! The requests of a connection that are being answered, and the end of connections that have none.

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

/// The requests of a connection that are being answered.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    begun: AtomicUsize,
    over: AtomicUsize,
    /// True while bytes are there that the socket does not take.
    is_writing: AtomicBool,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway(Arc<Activity>);

impl Activity {
    /// Counts a request.
    pub(crate) fn begin(self: &Arc<Self>) -> Underway {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Underway(self.clone())
    }

    /// Notes whether bytes are there that the socket does not take.
    pub(crate) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Returns whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != self.over.load(Ordering::Relaxed)
    }

    /// Returns the number of requests so far, unless something is under way.
    fn begun_if_idle(&self) -> Option<usize> {
        let begun = self.begun.load(Ordering::Relaxed);
        let is_idle = !self.is_answering() && !self.is_writing.load(Ordering::Relaxed);
        is_idle.then_some(begun)
    }

    /// Waits for this time, and then until the end of time if there was a request.
    async fn none_within(&self, time: Duration) {
        sleep(time).await;
        if self.begun.load(Ordering::Relaxed) > 0 {
            pending().await
        }
    }

    /// Waits until there was nothing under way for [`GOODBYE_MAX`].
    async fn idle(&self) {
        loop {
            let before = self.begun_if_idle();
            sleep(GOODBYE_MAX).await;
            if before.is_some() && self.begun_if_idle() == before {
                return;
            }
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Ordering::Relaxed);
    }
}

/// Drives a connection to its end. It is asked to end by `shut_down` when the server shuts down, or if no request came within
/// `first_max`. From then on, it may be without a request for [`GOODBYE_MAX`]. `None` if that passes: then it is to be dropped.
pub(crate) async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    activity: &Activity,
    first_max: Duration,
    drain: &Drain,
) -> Option<C::Output> {
    tokio::select! {
        biased;
        ended = &mut connection => return Some(ended),
        () = drain.requested() => {}
        () = activity.none_within(first_max) => {}
    }
    shut_down(connection.as_mut());
    tokio::select! {
        biased;
        ended = connection => Some(ended),
        () = activity.idle() => None,
    }
}

/// The time that a connection without requests has for its last words.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
