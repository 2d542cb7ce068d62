//! Packets that wait for a handler.

use std::task::Context;

use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, End,
    handlers::{Finished, Handling, cost},
};
use crate::{
    CloseReason, Outcome, Packet,
    router::{Refusal, Refused},
    shared::Shared,
};

impl Driver<'_> {
    /// Starts handlers on packets that waited, as far as they may, and then ends what the peer ended.
    pub(super) fn start_backlog(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> bool {
        let mut is_busy = false;
        while let Some(next) = self.backlog.front().map(cost)
            && self.takes_packets()
            && handlers.poll_free(cx, next).is_ready()
            && let Some(packet) = self.backlog.pop_front()
        {
            self.backlog_len -= next;
            self.detached = self.detached.saturating_sub(1);
            let finished = handlers.start(cx, packet);
            self.shared.core().apply(finished);
            self.has_progressed = true;
            is_busy = true;
        }
        let is_through = self.backlog.is_empty();
        match &self.end {
            Some(End::Broken(error)) if is_through && handlers.poll_free(cx, 0).is_ready() => {
                self.shared.finish(CloseReason::Protocol(error.clone()));
            }
            // A stream that is still served has nothing more to hear.
            Some(End::Closed(reason)) if is_through && handlers.len() == 0 => self.shared.finish(reason.clone()),
            Some(End::Failed(_)) if is_through && handlers.len() == 0 => {
                // As long as the socket takes anything, the answers are attempted.
                let end = if self.write_failure.is_none() { Shared::finish } else { Shared::fail };
                end(self.shared, self.failure());
            }
            _ => {}
        }
        is_busy
    }

    /// Whether handlers may be given packets: not when their replies would have nowhere to go.
    fn takes_packets(&self) -> bool {
        let core = self.shared.core();
        core.proto.is_open() && !core.proto.owes_replies()
    }

    pub(super) fn queue(&mut self, packet: Packet) {
        self.backlog_len += cost(&packet);
        self.backlog.push_back(packet);
    }

    /// Refuses a packet that would wait for too long. One that nobody can be told of waits all the same.
    pub(super) fn refuse(&mut self, packet: Packet, handlers: &impl Handling) {
        let Packet { id, operation, .. } = packet;
        match handlers.refuse(Refused { id, operation, why: Refusal::Busy }) {
            Finished::Refused(Outcome::Nothing) => {
                self.queue(packet);
                self.is_clogged = true;
            }
            finished => {
                let mut core = self.shared.core();
                core.proto.handle_refused();
                core.apply(Some(finished));
            }
        }
    }

    /// Refuses what waits, if the peer may wait for it in turn and nothing has moved for too long. Whether anything was.
    pub(super) fn refuse_stuck(&mut self, now: Instant, handlers: &impl Handling) -> bool {
        let is_stuck = !self.backlog.is_empty() && self.all_wait(handlers);
        if std::mem::take(&mut self.has_progressed) || !is_stuck {
            self.stuck_since = is_stuck.then_some(now);
            return false;
        }
        let since = *self.stuck_since.get_or_insert(now);
        if now.duration_since(since) < self.connection.config().handlers_stall_max {
            return false;
        }
        self.stuck_since = Some(now);
        // The peer may have as much waiting: each of its handlers would wait for as long again.
        self.is_jammed = true;
        (self.backlog_len, self.detached) = (0, 0);
        let stuck = std::mem::take(&mut self.backlog);
        let before = stuck.len();
        warn!(packets = before, "both sides wait for each other's handlers: what waits is refused");
        stuck.into_iter().for_each(|packet| self.refuse(packet, handlers));
        self.is_clogged &= self.is_over_limit(handlers);
        self.backlog.len() < before
    }

    /// How many packets this side waits for.
    pub(super) fn awaited(&self, handlers: &impl Handling) -> usize {
        handlers.awaited().unwrap_or_else(|panicked| {
            self.shared.core().apply(Some(panicked));
            0
        })
    }

    /// Whether every handler may be one that waits for the peer.
    fn all_wait(&self, handlers: &impl Handling) -> bool {
        let awaited = self.awaited(handlers).saturating_add(self.shared.core().awaited_streams().count());
        awaited >= handlers.len().max(1)
    }

    /// Whether one more packet may wait for its handler.
    pub(super) fn may_wait(&self, handlers: &impl Handling) -> bool {
        let has_room = self.has_backlog_room(self.connection.config()) || !self.is_over_limit(handlers);
        has_room && !(self.is_jammed && self.all_wait(handlers))
    }

    /// Whether packets that wait are as much as may be held while this side waits for answers.
    pub(super) fn is_over_limit(&self, handlers: &impl Handling) -> bool {
        handlers.held_len() + self.backlog_len >= self.connection.config().handlers_len_max
    }
}
