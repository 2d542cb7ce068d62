//! The handlers of a whole server that may be under way.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of one connection, out of those of its scope.
pub(super) struct Permits {
    pub(super) all: Arc<Semaphore>,
    pub(super) held: Vec<OwnedSemaphorePermit>,
    pub(super) acquiring: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
}

impl Permits {
    /// Waits until this number is held.
    pub(super) fn poll_hold(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<()> {
        while self.held.len() < count {
            // Not past a wait that has begun: the semaphore is fair, and this has a place in its queue.
            if self.acquiring.is_none()
                && let Ok(permit) = self.all.clone().try_acquire_owned()
            {
                self.held.push(permit);
                continue;
            }
            let all = &self.all;
            let acquiring = self.acquiring.get_or_insert_with(|| {
                let all = all.clone();
                Box::pin(async move { all.acquire_owned().await.ok() })
            });
            let permit = ready!(acquiring.as_mut().poll(cx));
            self.acquiring = None;
            self.held.extend(permit);
        }
        Poll::Ready(())
    }

    /// Gives back what is held beyond this number.
    pub(super) fn keep(&mut self, count: usize) {
        self.held.truncate(count);
        // A place in the queue would take a permit that nothing here waits for.
        if self.held.len() == count {
            self.acquiring = None;
        }
    }
}
