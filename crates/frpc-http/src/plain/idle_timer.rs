//! The idle timeout of a plain connection.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use frpc::Drain;
use tokio::time::Instant;

use crate::alarm::Alarm;

/// Ends the wait of a connection for input: after a timeout, or when the server shuts down.
pub(super) struct IdleTimer<'a> {
    alarm: Alarm<'a>,
    time_max: Duration,
}

impl<'a> IdleTimer<'a> {
    pub(super) fn new(drain: &'a Drain, time_max: Duration) -> Self {
        Self { alarm: Alarm::new(drain), time_max }
    }

    /// Returns `true` if the server is shutting down.
    pub(super) fn is_draining(&self) -> bool {
        self.alarm.is_draining()
    }

    /// Starts the timeout of a new wait.
    pub(super) fn begin(&mut self) {
        // A timeout beyond the range of the clock never ends the wait.
        self.alarm.set(Instant::now().checked_add(self.time_max));
    }

    /// Completes when the connection must end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(cx).map(|_| ())
    }
}
