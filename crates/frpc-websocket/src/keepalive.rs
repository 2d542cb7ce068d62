//! Detection of dead peers.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

/// A timer for pinging silent peers and giving up dead ones.
pub(crate) struct KeepaliveTimer {
    interval: Duration,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// `true` if the peer sent something since the timer was set.
    is_heard: bool,
    is_asked: bool,
}

impl KeepaliveTimer {
    pub(crate) fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, timer: Box::pin(sleep(interval)), is_heard: false, is_asked: false }
    }

    /// Records that the peer sent something.
    pub(crate) fn record_input(&mut self) {
        self.is_heard = true;
    }

    /// Completes when a ping must be sent.
    ///
    /// # Errors
    ///
    /// Returns [`TimedOut`](io::ErrorKind::TimedOut) if the peer did not answer the last ping in time, or took nothing
    /// of a full output.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let asks = !self.is_heard;
            if asks && self.is_asked {
                let why = format!("the peer did not answer a ping or take output within {:?}", self.timeout);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            (self.is_heard, self.is_asked) = (false, asks);
            let pause = if asks { self.timeout } else { self.interval };
            // For a pause too long to represent, check again after a day.
            let now = Instant::now();
            self.timer.as_mut().reset(now.checked_add(pause).unwrap_or(now + Duration::from_secs(24 * 3600)));
            if asks {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
