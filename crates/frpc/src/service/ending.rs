//! The end of streaming calls that outlive the shutdown deadline of the server.

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

/// The signal for streaming calls to end. All clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndSignal {
    token: CancellationToken,
    is_over: Arc<AtomicBool>,
}

pin_project! {
    /// Waits for the signal to end. Takes a lock at the first poll and when the polling task changes, but not for every
    /// message of a stream.
    pub(crate) struct EndFuture<F> {
        #[pin]
        cancelled: F,
        is_over: Arc<AtomicBool>,
        waker: Option<Waker>,
    }
}

impl EndSignal {
    /// Ends all running streaming calls and all later ones.
    pub(crate) fn end(&self) {
        // Set before the wake-up, because woken calls check this flag.
        self.is_over.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(crate) fn ended(&self) -> EndFuture<WaitForCancellationFuture<'_>> {
        EndFuture { cancelled: self.token.cancelled(), is_over: self.is_over.clone(), waker: None }
    }

    pub(crate) fn ended_owned(&self) -> EndFuture<WaitForCancellationFutureOwned> {
        EndFuture { cancelled: self.token.clone().cancelled_owned(), is_over: self.is_over.clone(), waker: None }
    }

    /// Returns the status of a call ended by the signal.
    pub(crate) fn status() -> Status {
        Status::unavailable("the server shut down before the call ended (the time limit of the shutdown passed)")
    }
}

impl<F: Future<Output = ()>> Future for EndFuture<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.is_over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // Already registered with this waker. A second registration would take the lock again.
        if this.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let polled = this.cancelled.poll(cx);
        *this.waker = Some(cx.waker().clone());
        polled
    }
}
