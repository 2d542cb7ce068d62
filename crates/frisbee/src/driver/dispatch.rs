//! From packets to handlers, as far as the limits on handlers allow.

use std::task::{Context, Poll};

use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, End,
    backlog::{Next, Waiting, cost},
    handlers::{Finished, InPlaceRoute},
};
use crate::{
    CloseReason, Outcome, Packet, Router,
    arrival::arrived_at,
    router::{Refusal, Refused},
    shared::Shared,
};

impl<R: Router, P: InPlaceRoute> Driver<'_, R, P> {
    /// Applies what handlers under way ended with.
    pub(super) fn reap_finished(&mut self, cx: &mut Context<'_>) {
        if self.holds_replies && self.shared.core().proto.owes_replies() {
            return;
        }
        self.holds_replies = false;
        while !self.holds_replies
            && let Poll::Ready(finished) = self.handlers.poll_finished(cx)
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

    /// Gives the packets that were decoded to the router. Returns how the last handler
    /// ended, if it did, which the caller applies under the lock that it takes anyway.
    ///
    /// The outcome of each packet is applied before the next is looked at, so that replies and what handlers send by
    /// themselves stay in order. `owes_replies` and `is_draining` are what the core said when it decoded them.
    pub(super) fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        mut owes_replies: bool,
        is_draining: bool,
    ) -> Option<Finished> {
        loop {
            let before = self.arrived.len();
            if let Err(panicked) = self.handlers.intercept(&mut self.arrived) {
                // Whatever it left is input again.
                return Some(panicked);
            }
            let taken = before - self.arrived.len();
            if taken > 0 {
                self.standstill.note_progress();
                self.cork.expect(taken as u64);
                // The router may have replied or closed. It has looked at the packet that it left in front.
                if self.arrived.is_empty() || self.shared.is_closing() {
                    return None;
                }
                owes_replies |= self.shared.owes_replies();
            }
            let packet = self.arrived.pop_front()?;
            let finished = self.deliver(cx, packet, owes_replies, is_draining);
            if self.arrived.is_empty() {
                return finished;
            }
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            // A handler may have replied by itself. Nothing is written meanwhile.
            owes_replies |= self.shared.owes_replies();
            // A takeover or a close takes effect at once: what was decoded after it is not for handlers any more.
            if self.shared.is_closing() {
                return None;
            }
        }
    }

    /// Has a handler start on a packet, or has it wait, or refuses it. Returns how its handler ended, if it did.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        packet: Packet,
        owes_replies: bool,
        is_draining: bool,
    ) -> Option<Finished> {
        if is_draining {
            let Packet { id, operation, .. } = packet;
            self.shared.core().proto.handle_refused();
            return Some(self.handlers.refuse(Refused { id, operation, why: Refusal::Draining }));
        }
        let may_start = self.backlog.is_empty() && !owes_replies;
        if may_start && self.handlers.poll_free(cx, cost(&packet)).is_ready() {
            self.handlers.start(cx, packet)
        } else {
            let timeout = self.handlers.timeout_of(&packet);
            self.wait(Waiting { packet, arrived: self.turn, timeout })
        }
    }

    /// Has a packet wait, or refuses it or another.
    fn wait(&mut self, waiting: Waiting) -> Option<Finished> {
        if !self.backlog.has_room_behind(0, 0, self.connection.config())
            && self.is_overloaded()
            && let Some(oldest) = self.backlog.pop(Next::Oldest)
        {
            // The one that can hope for least makes room.
            self.backlog.push(waiting);
            return self.refuse(oldest, Refusal::Busy);
        }
        if self.may_wait() {
            self.backlog.push(waiting);
            return None;
        }
        self.refuse(waiting, Refusal::Busy)
    }

    /// Tells whether packets wait for so long that those which come now would be too late in their turn. Then the newest goes
    /// first, whose sender waits for longest yet, and the oldest is refused where there is no room. Otherwise every handler
    /// would start on a packet whose time is almost over, and all would be too late.
    pub(super) fn is_overloaded(&self) -> bool {
        !self.handlers.is_ordered() && self.backlog.is_late(self.turn, self.behind_since)
    }

    /// Starts handlers on packets that waited, as far as they may.
    pub(super) fn start_backlog(&mut self, cx: &mut Context<'_>) {
        // Nearly always, and asked several times in a turn.
        if self.backlog.is_empty() {
            return;
        }
        self.refuse_expired();
        loop {
            let next = if self.is_overloaded() { Next::Newest } else { Next::Oldest };
            let Some(cost) = self.backlog.next_cost(next) else { return };
            if !self.takes_packets() || self.handlers.poll_free(cx, cost).is_pending() {
                return;
            }
            let Some(waiting) = self.backlog.pop(next) else { return };
            let finished = match waiting.is_expired(self.turn) {
                true => self.refuse(waiting, Refusal::Expired),
                false => arrived_at(waiting.arrived, || self.handlers.start(cx, waiting.packet)),
            };
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            self.standstill.note_progress();
            self.is_busy = true;
        }
    }

    /// Refuses packets that waited for longer than their senders do.
    fn refuse_expired(&mut self) {
        while self.takes_packets()
            && let Some(expired) = self.backlog.pop_expired(self.turn)
        {
            let Some(finished) = self.refuse(expired, Refusal::Expired) else { continue };
            self.shared.apply(finished);
            self.is_busy = true;
        }
    }

    /// Ends what the peer ended, once everything that came before is through.
    pub(super) fn end_behind_backlog(&mut self, cx: &mut Context<'_>) {
        let is_through = self.backlog.is_empty();
        match &self.end {
            Some(End::Broken(error)) if is_through && self.handlers.poll_free(cx, 0).is_ready() => {
                self.shared.finish(CloseReason::Protocol(error.clone()));
            }
            // A stream that is still served has nothing more to hear.
            Some(End::Closed(reason)) if is_through && self.handlers.len() == 0 => self.shared.finish(reason.clone()),
            Some(End::Failed(_)) if is_through && self.handlers.len() == 0 => {
                // As long as the socket takes anything, the answers are attempted.
                let end = if self.write_failure.is_none() { Shared::finish } else { Shared::fail };
                end(self.shared, self.failure());
            }
            _ => {}
        }
    }

    /// Refuses what waits, if the peer may wait for it in turn and nothing has moved for too long. Tells whether anything
    /// was refused.
    pub(super) fn refuse_stuck(&mut self, now: Instant) -> bool {
        let is_stuck = !self.backlog.is_empty() && self.all_wait();
        if !self.standstill.look(now, is_stuck, self.connection.config().handlers_stall_max) {
            return false;
        }
        let stuck = self.backlog.take();
        let mut refused = stuck.len();
        warn!(packets = refused, "both sides wait for each other's handlers, the packets that wait are refused");
        for waiting in stuck {
            match self.refuse(waiting, Refusal::Busy) {
                Some(finished) => {
                    self.shared.apply(finished);
                }
                None => refused -= 1,
            }
        }
        self.is_clogged &= self.is_over_limit();
        refused > 0
    }

    /// Refuses a packet that waited or would wait for too long. `None` if the router has no answer for the peer: then it waits
    /// all the same, without a time.
    fn refuse(&mut self, waiting: Waiting, why: Refusal) -> Option<Finished> {
        let Packet { id, operation, .. } = waiting.packet;
        match self.handlers.refuse(Refused { id, operation, why }) {
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
    fn may_wait(&self) -> bool {
        let has_room = self.backlog.has_room_behind(0, 0, self.connection.config()) || !self.is_over_limit();
        has_room && !(self.standstill.is_jammed() && self.all_wait())
    }

    /// Tells whether every handler may be one that waits for the peer.
    fn all_wait(&self) -> bool {
        let awaited = self.awaited().saturating_add(self.shared.core().awaited_streams());
        awaited >= self.handlers.len().max(1)
    }

    /// Returns how many packets this side waits for.
    pub(super) fn awaited(&self) -> usize {
        self.handlers.awaited().unwrap_or_else(|panicked| {
            self.shared.apply(panicked);
            0
        })
    }

    /// Tells whether packets that wait are as much as may be held while this side waits for answers.
    pub(super) fn is_over_limit(&self) -> bool {
        self.handlers.held_len() + self.backlog.len() >= self.connection.config().handlers_len_max
    }
}
