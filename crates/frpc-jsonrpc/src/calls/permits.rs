//! The permits of calls in flight: the limit of the server on handlers, over all wires.

use std::task::{Context, Poll};

use frpc::{Drain, HandlerPermit};
use futures_util::{FutureExt, future::BoxFuture};

/// One permit for each call in flight, as far as the server has them.
///
/// A call is polled before it takes a permit, because most calls end with their first poll. So a connection may exceed the
/// limit by the calls of one message, and starts no other calls until it has a permit for each.
pub(super) struct CallPermits {
    /// `None` if another HTTP server runs the services.
    drain: Option<Drain>,
    held: Vec<HandlerPermit>,
    waiting: Option<BoxFuture<'static, HandlerPermit>>,
}

impl CallPermits {
    pub(super) fn new(drain: Option<Drain>) -> Self {
        Self { drain, held: Vec::new(), waiting: None }
    }

    /// Returns `true` while a call in flight has no permit.
    pub(super) fn is_missing(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes or releases permits for this number of calls in flight.
    pub(super) fn resize(&mut self, calls: usize) {
        self.held.truncate(calls);
        if self.held.len() == calls {
            self.waiting = None;
        }
        let Some(drain) = &self.drain else { return };
        while self.held.len() < calls && self.waiting.is_none() {
            match drain.try_handler_permit() {
                Some(permit) => self.held.push(permit),
                None => {
                    let drain = drain.clone();
                    self.waiting = Some(async move { drain.handler_permit().await }.boxed());
                }
            }
        }
    }

    /// Waits for missing permits, and wakes the connection after the last of them.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, calls: usize) {
        while let Some(waiting) = &mut self.waiting {
            let Poll::Ready(permit) = waiting.poll_unpin(cx) else { return };
            self.waiting = None;
            self.held.push(permit);
            self.resize(calls);
            if !self.is_missing() {
                cx.waker().wake_by_ref();
            }
        }
    }
}
