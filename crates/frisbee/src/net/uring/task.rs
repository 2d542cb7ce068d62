//! The task that brings the ring of its thread to the kernel, again and again.

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
    access::Access,
    ring::{Ring, RingState},
    slot::register,
};
use crate::net::ring_error::RingError;

thread_local! {
    /// The ring that failed on this thread, and why. There is not more than one: nothing installs a second.
    static FAILED: RefCell<Option<(u64, RingError)>> = const { RefCell::new(None) };
}

/// Gives the thread of the current runtime a ring. It has to be a runtime of this thread alone.
pub(super) fn install(kernel: Access) -> io::Result<()> {
    let signal = kernel.signal()?.map(register).transpose()?;
    let id = Ring::put_here(kernel);
    tokio::spawn(RingTask { ring: id, signal, pause: None, woken: Vec::new() }.run());
    Ok(())
}

/// Waits on the ring of this thread, before its runtime waits for everything.
pub(crate) fn spin_wait() {
    let mut woken = Vec::new();
    Ring::here(|ring| ring.spin_wait(&mut woken));
    woken.into_iter().for_each(Waker::wake);
}

/// Returns what the ring failed with, if it did and was one of this thread.
pub(super) fn failure(ring: u64) -> Option<io::Error> {
    let failed = FAILED.try_with(|failed| failed.borrow().clone());
    let (_, error) = failed.ok().flatten().filter(|(id, _)| *id == ring)?;
    Some(io::Error::new(error.kind(), error))
}

/// Runs the ring of its thread for as long as the runtime lives.
struct RingTask {
    ring: u64,
    /// Readable when the kernel has done something of which nothing else tells.
    signal: Option<AsyncFd<OwnedFd>>,
    /// Ends when the kernel may be asked again for what it refused.
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
            // Before the kernel is entered: a signal from then on is one for the next time.
            ready.clear_ready();
            is_told = true;
        }
        let state = Ring::here(|ring| ring.run_once(cx, is_told, &mut self.woken));
        // Not while the ring is in use: a waker may run code that uses it.
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
                // The wake-up of before is still to come, and has the pause polled.
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

const REFUSED_PAUSE: Duration = Duration::from_millis(1);
