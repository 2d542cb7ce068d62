//! The end of calls with streams, when the server has no more time for them.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use pin_project_lite::pin_project;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

use crate::call::status::Status;

/// Tells calls that they have to end. All clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    token: CancellationToken,
    is_over: Arc<AtomicBool>,
}

pin_project! {
    /// Waits until calls have to end. Takes a lock when it is polled first and by another task, and none for every message of a
    /// stream.
    pub(crate) struct Ended<F> {
        #[pin]
        cancelled: F,
        is_over: Arc<AtomicBool>,
        waker: Option<Waker>,
    }
}

impl Ending {
    /// Ends the calls that are under way, and all that are still to come.
    pub(crate) fn end(&self) {
        // First: those that are woken look for it.
        self.is_over.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(crate) fn ended(&self) -> Ended<WaitForCancellationFuture<'_>> {
        Ended { cancelled: self.token.cancelled(), is_over: self.is_over.clone(), waker: None }
    }

    pub(crate) fn ended_owned(&self) -> Ended<WaitForCancellationFutureOwned> {
        Ended { cancelled: self.token.clone().cancelled_owned(), is_over: self.is_over.clone(), waker: None }
    }

    /// Returns the status of a call that was under way.
    pub(crate) fn status() -> Status {
        Status::unavailable("the server shut down before the call was over (the time for calls to finish is up)")
    }
}

impl<F: Future<Output = ()>> Future for Ended<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.is_over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if this.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let polled = this.cancelled.poll(cx);
        *this.waker = Some(cx.waker().clone());
        polled
    }
}
