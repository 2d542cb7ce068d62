//! The task that runs the ring of its thread.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::unix::AsyncFd,
    time::{Sleep, sleep},
};
use tracing::error;

use super::{
    access::RingAccess,
    ring::{Ring, RingState},
    slot::register,
};
use crate::net::ring_error::RingError;

thread_local! {
    /// The failed ring of this thread and its error. At most one: a thread gets only one ring.
    static FAILED: RefCell<Option<(u64, RingError)>> = const { RefCell::new(None) };
}

/// Installs a ring on the thread of the current runtime, which must be a current-thread runtime.
pub(super) fn install(kernel: RingAccess) -> io::Result<()> {
    let signal = kernel.signal()?.map(register).transpose()?;
    let id = Ring::put_here(kernel);
    tokio::spawn(RingTask { ring: id, signal, pause: None, woken: Vec::new() }.run());
    Ok(())
}

/// Waits on the ring of this thread, before the runtime parks the thread.
pub(crate) fn spin_wait() {
    let mut woken = Vec::new();
    Ring::here(|ring| ring.spin_wait(&mut woken));
    woken.into_iter().for_each(Waker::wake);
}

/// Returns the error of a failed ring of this thread.
pub(super) fn failure(ring: u64) -> Option<io::Error> {
    let failed = FAILED.try_with(|failed| failed.borrow().clone());
    let (_, error) = failed.ok().flatten().filter(|(id, _)| *id == ring)?;
    Some(io::Error::new(error.kind(), error))
}

/// Runs the ring of its thread until the runtime ends.
struct RingTask {
    ring: u64,
    /// Becomes readable when the ring has work.
    signal: Option<AsyncFd<OwnedFd>>,
    /// The pause before the next attempt, after a transient error of the kernel.
    pause: Option<Pin<Box<Sleep>>>,
    woken: Vec<Waker>,
}

impl RingTask {
    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let mut is_told = false;
        while let Some(signal) = &self.signal
            && let Poll::Ready(Ok(mut ready)) = signal.poll_read_ready(cx)
        {
            // Cleared before entering the kernel: a later signal is for the next turn.
            ready.clear_ready();
            is_told = true;
        }
        let state = Ring::here(|ring| ring.run_once(cx, is_told, &mut self.woken));
        // Wakes tasks only now, because a waker may run code that borrows the ring.
        self.woken.drain(..).for_each(Waker::wake);
        match state {
            Some(RingState::Failed(failure)) => {
                let error = RingError::new(failure);
                error!(%error, "the io_uring of this thread failed, its connections end");
                FAILED.set(Some((self.ring, error)));
                Poll::Ready(())
            }
            Some(RingState::Refused) => {
                self.pause = Some(Box::pin(sleep(REFUSED_PAUSE)));
                // `run_once` has already woken this task. That wake-up polls the pause for the first time.
                Poll::Pending
            }
            Some(RingState::Running) | None => Poll::Pending,
        }
    }
}

impl Drop for RingTask {
    fn drop(&mut self) {
        Ring::remove_from_here(self.ring);
    }
}

/// The pause before the next attempt, after a transient error of the kernel.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);
