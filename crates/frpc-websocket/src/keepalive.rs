//! Peers that say nothing any more.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

/// Tells when to ask a silent peer, and when to give it up.
pub(crate) struct Keepalive {
    interval: Duration,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// True if something came since the timer was set.
    is_heard: bool,
    is_asked: bool,
}

impl Keepalive {
    pub(crate) fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, timer: Box::pin(sleep(interval)), is_heard: false, is_asked: false }
    }

    /// Notes that the peer said something.
    pub(crate) fn hear(&mut self) {
        self.is_heard = true;
    }

    /// Ready with true when the peer is to be asked.
    ///
    /// # Errors
    ///
    /// If it did not answer in time.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let asks = !self.is_heard;
            if asks && self.is_asked {
                let why = format!("the peer did not answer a ping within {:?}", self.timeout);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            (self.is_heard, self.is_asked) = (false, asks);
            let pause = if asks { self.timeout } else { self.interval };
            // One that is too far away to tell never comes; ask again in a day.
            let now = Instant::now();
            self.timer.as_mut().reset(now.checked_add(pause).unwrap_or(now + Duration::from_secs(24 * 3600)));
            if asks {
                return Poll::Ready(Ok(true));
            }
        }
    }
}
