//! From packets to handlers, as far as the limits on handlers allow.

use std::task::{Context, Poll};

use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, End,
    backlog::{Next, Waiting, cost},
    handlers::{Finished, Handling},
};
use crate::{
    CloseReason, Outcome, Packet,
    arrival::arrived_at,
    router::{Refusal, Refused},
    shared::Shared,
};

impl Driver<'_> {
    /// Applies what handlers under way ended with.
    pub(super) fn reap_finished(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) {
        if self.holds_replies && self.shared.core().proto.owes_replies() {
            return;
        }
        self.holds_replies = false;
        while !self.holds_replies
            && let Poll::Ready(finished) = handlers.poll_finished(cx)
        {
            if let Finished::Handler(_) | Finished::Withdrawn(_) = finished {
                self.standstill.note_handler_end();
            }
            // The others would only add to what the peer does not read. What is written makes room for them.
            self.holds_replies = self.shared.apply(finished);
            self.standstill.note_progress();
            self.is_busy = true;
        }
    }

    /// Gives a packet, and those that were decoded behind it, to the router. Returns how the last handler
    /// ended, if it did, which the caller applies under the lock that it takes anyway.
    ///
    /// The outcome of each packet is applied before the next is looked at, so that replies and what handlers send by
    /// themselves stay in order. `owes_replies` and `is_draining` are what the core said when it decoded them.
    pub(super) fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        mut packet: Packet,
        mut owes_replies: bool,
        is_draining: bool,
        handlers: &mut impl Handling,
    ) -> Option<Finished> {
        loop {
            let finished = self.deliver(cx, packet, owes_replies, is_draining, handlers);
            let Some(next) = self.arrived.pop_front() else { return finished };
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            // A handler may have replied by itself. Nothing is written meanwhile.
            owes_replies |= self.shared.owes_replies();
            // A takeover or a close takes effect at once: what was decoded behind it is not for handlers any more.
            if self.shared.is_closing() {
                self.arrived.push_front(next);
                return None;
            }
            packet = next;
        }
    }

    /// Gives one packet to the router, or has it wait, or refuses it. Returns how its handler ended, if it did.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        packet: Packet,
        owes_replies: bool,
        is_draining: bool,
        handlers: &mut impl Handling,
    ) -> Option<Finished> {
        let packet = match handlers.offer(packet) {
            Ok(Some(packet)) => packet,
            Ok(None) => return self.offer_more(handlers),
            Err(panicked) => return Some(panicked),
        };
        if is_draining {
            let Packet { id, operation, .. } = packet;
            self.shared.core().proto.handle_refused();
            return Some(handlers.refuse(Refused { id, operation, why: Refusal::Draining }));
        }
        let may_start = self.backlog.is_empty() && !owes_replies;
        if may_start && handlers.poll_free(cx, cost(&packet)).is_ready() {
            handlers.start(cx, packet)
        } else {
            let timeout = handlers.timeout_of(&packet);
            self.wait(Waiting { packet, arrived: self.turn, timeout }, handlers)
        }
    }

    /// Has a packet wait, or refuses it or another.
    fn wait(&mut self, waiting: Waiting, handlers: &impl Handling) -> Option<Finished> {
        if !self.backlog.has_room_behind(0, 0, self.connection.config())
            && self.is_overloaded(handlers)
            && let Some(oldest) = self.backlog.pop(Next::Oldest)
        {
            // The one that can hope for least makes room.
            self.backlog.push(waiting);
            return self.refuse(oldest, Refusal::Busy, handlers);
        }
        if self.may_wait(handlers) {
            self.backlog.push(waiting);
            return None;
        }
        self.refuse(waiting, Refusal::Busy, handlers)
    }

    /// Tells whether packets wait for so long that those which come now would be too late in their turn. Then the newest goes
    /// first, whose sender waits for longest yet, and the oldest is refused where there is no room. Otherwise every handler
    /// would start on a packet whose time is almost over, and all would be too late.
    pub(super) fn is_overloaded(&self, handlers: &impl Handling) -> bool {
        !handlers.is_ordered() && self.backlog.is_late(self.turn, self.behind_since)
    }

    /// Lets the router take what arrived together with a packet that it took.
    fn offer_more(&mut self, handlers: &impl Handling) -> Option<Finished> {
        self.standstill.note_progress();
        let more = match self.arrived.is_empty() {
            true => Ok(0),
            false => handlers.offer_more(&mut self.arrived),
        };
        self.cork.expect(1 + *more.as_ref().unwrap_or(&0) as u64);
        more.err()
    }

    /// Starts handlers on packets that waited, as far as they may.
    pub(super) fn start_backlog(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) {
        // Nearly always, and asked several times in a turn.
        if self.backlog.is_empty() {
            return;
        }
        self.refuse_expired(handlers);
        loop {
            let next = if self.is_overloaded(handlers) { Next::Newest } else { Next::Oldest };
            let Some(cost) = self.backlog.next_cost(next) else { return };
            if !self.takes_packets() || handlers.poll_free(cx, cost).is_pending() {
                return;
            }
            let Some(waiting) = self.backlog.pop(next) else { return };
            let finished = match waiting.is_expired(self.turn) {
                true => self.refuse(waiting, Refusal::Expired, handlers),
                false => arrived_at(waiting.arrived, || handlers.start(cx, waiting.packet)),
            };
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            self.standstill.note_progress();
            self.is_busy = true;
        }
    }

    /// Refuses packets that waited for longer than their senders do.
    fn refuse_expired(&mut self, handlers: &impl Handling) {
        while self.takes_packets()
            && let Some(expired) = self.backlog.pop_expired(self.turn)
        {
            let Some(finished) = self.refuse(expired, Refusal::Expired, handlers) else { continue };
            self.shared.apply(finished);
            self.is_busy = true;
        }
    }

    /// Ends what the peer ended, once everything that came before is through.
    pub(super) fn end_behind_backlog(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) {
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
    }

    /// Refuses what waits, if the peer may wait for it in turn and nothing has moved for too long. Tells whether anything
    /// was refused.
    pub(super) fn refuse_stuck(&mut self, now: Instant, handlers: &impl Handling) -> bool {
        let is_stuck = !self.backlog.is_empty() && self.all_wait(handlers);
        if !self.standstill.look(now, is_stuck, self.connection.config().handlers_stall_max) {
            return false;
        }
        let stuck = self.backlog.take();
        let mut refused = stuck.len();
        warn!(packets = refused, "both sides wait for each other's handlers, the packets that wait are refused");
        for waiting in stuck {
            match self.refuse(waiting, Refusal::Busy, handlers) {
                Some(finished) => {
                    self.shared.apply(finished);
                }
                None => refused -= 1,
            }
        }
        self.is_clogged &= self.is_over_limit(handlers);
        refused > 0
    }

    /// Refuses a packet that waited or would wait for too long. `None` if the router has no answer for the peer: then it waits
    /// all the same, without a time.
    fn refuse(&mut self, waiting: Waiting, why: Refusal, handlers: &impl Handling) -> Option<Finished> {
        let Packet { id, operation, .. } = waiting.packet;
        match handlers.refuse(Refused { id, operation, why }) {
            Finished::Refused(Outcome::Nothing) => {
                self.backlog.push(Waiting { timeout: None, ..waiting });
                self.is_clogged = true;
                None
            }
            finished => {
                self.shared.core().proto.handle_refused();
                Some(finished)
            }
        }
    }

    /// Tells whether handlers may be given packets: not when their replies would have nowhere to go.
    fn takes_packets(&self) -> bool {
        let core = self.shared.core();
        core.proto.is_open() && !core.proto.owes_replies()
    }

    /// Tells whether one more packet may wait for its handler.
    fn may_wait(&self, handlers: &impl Handling) -> bool {
        let has_room = self.backlog.has_room_behind(0, 0, self.connection.config()) || !self.is_over_limit(handlers);
        has_room && !(self.standstill.is_jammed() && self.all_wait(handlers))
    }

    /// Tells whether every handler may be one that waits for the peer.
    fn all_wait(&self, handlers: &impl Handling) -> bool {
        let awaited = self.awaited(handlers).saturating_add(self.shared.core().awaited_streams());
        awaited >= handlers.len().max(1)
    }

    /// Returns how many packets this side waits for.
    pub(super) fn awaited(&self, handlers: &impl Handling) -> usize {
        handlers.awaited().unwrap_or_else(|panicked| {
            self.shared.apply(panicked);
            0
        })
    }

    /// Tells whether packets that wait are as much as may be held while this side waits for answers.
    pub(super) fn is_over_limit(&self, handlers: &impl Handling) -> bool {
        handlers.held_len() + self.backlog.len() >= self.connection.config().handlers_len_max
    }
}
