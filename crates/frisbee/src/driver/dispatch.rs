//! Dispatch of packets to handlers, within the limits on handlers.

use std::task::{Context, Poll};

use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver,
    backlog::{QueueEnd, QueuedPacket, cost},
    handlers::{FinishedHandler, InPlaceRoute},
    states::{InputState, OutputState},
};
use crate::{
    CloseReason, Outcome, Packet, Router,
    arrival::arrived_at,
    connection::ConnectionShared,
    router::{RefusalReason, RefusedPacket},
};

impl<R: Router, P: InPlaceRoute> Driver<'_, R, P> {
    /// Applies the results of finished handlers.
    pub(super) fn reap_finished(&mut self, cx: &mut Context<'_>) {
        if self.holds_replies && self.shared.core().proto.owes_replies() {
            return;
        }
        self.holds_replies = false;
        while !self.holds_replies
            && let Poll::Ready(finished) = self.handlers.poll_finished(cx)
        {
            if let FinishedHandler::Handler(_) | FinishedHandler::Withdrawn(_) = finished {
                self.deadlock.note_handler_end();
            }
            // Results of further handlers would only add replies for a peer that does not read. Writing makes room for
            // them.
            self.holds_replies = self.shared.apply(finished);
            self.deadlock.note_progress();
            self.turn.is_busy = true;
        }
    }

    /// Passes the decoded packets to the router.
    ///
    /// Returns the result of the last handler if it has finished. The caller applies it under a lock it needs anyway.
    ///
    /// The result of each packet is applied before the next packet is looked at. Replies and packets sent by the
    /// handlers thus stay in order. `owes_replies` and `is_draining` are the state of the core when it decoded the
    /// packets.
    pub(super) fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        mut owes_replies: bool,
        is_draining: bool,
    ) -> Option<FinishedHandler> {
        loop {
            let before = self.input.arrived.len();
            if let Err(panicked) = self.handlers.intercept(&mut self.input.arrived) {
                // The remaining packets are converted back to input.
                return Some(panicked);
            }
            let taken = before - self.input.arrived.len();
            if taken > 0 {
                self.deadlock.note_progress();
                self.output.cork.expect(taken as u64);
                // The router may have replied or closed. It has already seen the packet left at the front.
                if self.input.arrived.is_empty() || self.shared.is_closing() {
                    return None;
                }
                owes_replies |= self.shared.owes_replies();
            }
            let packet = self.input.arrived.pop_front()?;
            let finished = self.deliver(cx, packet, owes_replies, is_draining);
            if self.input.arrived.is_empty() {
                return finished;
            }
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            // A handler may have sent a reply itself. Nothing is written during the loop, so the value cannot turn
            // false.
            owes_replies |= self.shared.owes_replies();
            // A takeover or a close takes effect immediately. Packets decoded after it do not go to handlers.
            if self.shared.is_closing() {
                return None;
            }
        }
    }

    /// Starts a handler for a packet, queues the packet, or refuses it. Returns the handler's result if it has
    /// finished.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        packet: Packet,
        owes_replies: bool,
        is_draining: bool,
    ) -> Option<FinishedHandler> {
        if is_draining {
            let Packet { id, operation, .. } = packet;
            self.shared.core().proto.handle_refused();
            return Some(self.handlers.refuse(RefusedPacket { id, operation, why: RefusalReason::Draining }));
        }
        let may_start = self.backlog.is_empty() && !owes_replies;
        if may_start && self.handlers.poll_free(cx, cost(&packet)).is_ready() {
            self.handlers.start(cx, packet)
        } else {
            let timeout = self.handlers.timeout_of(&packet);
            self.enqueue_or_refuse(QueuedPacket { packet, arrived: self.turn.start, timeout })
        }
    }

    /// Queues a packet. If there is no room, refuses either this packet or the oldest one.
    fn enqueue_or_refuse(&mut self, waiting: QueuedPacket) -> Option<FinishedHandler> {
        if !self.backlog.has_room_after(0, 0, &self.shared.config)
            && self.is_overloaded()
            && let Some(oldest) = self.backlog.pop(QueueEnd::Oldest)
        {
            // The oldest packet has the least chance of a reply in time, so it makes room.
            self.backlog.push(waiting);
            return self.refuse(oldest, RefusalReason::Busy);
        }
        if self.may_enqueue() {
            self.backlog.push(waiting);
            return None;
        }
        self.refuse(waiting, RefusalReason::Busy)
    }

    /// Returns `true` if queued packets wait so long that newly arriving ones would be too late in their turn.
    ///
    /// The newest packet then goes first, because its sender will wait longest, and the oldest is refused if there is
    /// no room. Otherwise every handler would start on a packet near the end of its timeout, and all replies would be
    /// late.
    pub(super) fn is_overloaded(&self) -> bool {
        !self.handlers.is_ordered() && self.backlog.is_late(self.turn.start, self.input.pace.behind_since())
    }

    /// Starts handlers for queued packets, within the limits.
    pub(super) fn start_backlog(&mut self, cx: &mut Context<'_>) {
        // The common case, several times per turn.
        if self.backlog.is_empty() {
            return;
        }
        self.refuse_expired();
        loop {
            let next = if self.is_overloaded() { QueueEnd::Newest } else { QueueEnd::Oldest };
            let Some(cost) = self.backlog.next_cost(next) else { return };
            if !self.takes_packets() || self.handlers.poll_free(cx, cost).is_pending() {
                return;
            }
            let Some(waiting) = self.backlog.pop(next) else { return };
            let finished = match waiting.is_expired(self.turn.start) {
                true => self.refuse(waiting, RefusalReason::Expired),
                false => arrived_at(waiting.arrived, || self.handlers.start(cx, waiting.packet)),
            };
            if let Some(finished) = finished {
                self.shared.apply(finished);
            }
            self.deadlock.note_progress();
            self.turn.is_busy = true;
        }
    }

    /// Refuses queued packets whose senders no longer wait.
    fn refuse_expired(&mut self) {
        while self.takes_packets()
            && let Some(expired) = self.backlog.pop_expired(self.turn.start)
        {
            let Some(finished) = self.refuse(expired, RefusalReason::Expired) else { continue };
            self.shared.apply(finished);
            self.turn.is_busy = true;
        }
    }

    /// Closes the connection after the end of the peer's input, once all packets received before are handled.
    pub(super) fn end_after_backlog(&mut self, cx: &mut Context<'_>) {
        // The common case, several times per turn.
        if !self.input.state.has_ended() {
            return;
        }
        let is_through = self.backlog.is_empty();
        match &self.input.state {
            InputState::Broken(error) if is_through && self.handlers.poll_free(cx, 0).is_ready() => {
                self.shared.finish(CloseReason::Protocol(error.clone()));
            }
            // Streams still being served will receive nothing more, so their handlers do not delay the close.
            InputState::Closed(reason) if is_through && self.handlers.len() == 0 => self.shared.finish(reason.clone()),
            InputState::Failed(_) if is_through && self.handlers.len() == 0 => {
                // While the socket accepts writes, try to deliver the replies.
                let has_failed = matches!(self.output.state, OutputState::Failed(_));
                let end = if has_failed { ConnectionShared::fail } else { ConnectionShared::finish };
                end(self.shared, self.failure());
            }
            _ => {}
        }
    }

    /// Refuses queued packets if both sides may wait for each other and nothing has moved for too long.
    ///
    /// Returns `true` if any packet was refused.
    pub(super) fn refuse_stuck(&mut self, now: Instant) -> bool {
        let is_stuck = !self.backlog.is_empty() && self.may_all_await_peer();
        if !self.deadlock.look(now, is_stuck, self.shared.config.handlers_stall_max) {
            return false;
        }
        let stuck = self.backlog.take();
        let mut refused = stuck.len();
        warn!(packets = refused, "both sides wait for each other's handlers, refusing the queued packets");
        for waiting in stuck {
            match self.refuse(waiting, RefusalReason::Busy) {
                Some(finished) => {
                    self.shared.apply(finished);
                }
                None => refused -= 1,
            }
        }
        self.unclog();
        refused > 0
    }

    /// Refuses a packet. Returns `None` if the router has no reply for the peer: the packet is then queued anyway,
    /// without a timeout.
    fn refuse(&mut self, waiting: QueuedPacket, why: RefusalReason) -> Option<FinishedHandler> {
        let Packet { id, operation, .. } = waiting.packet;
        match self.handlers.refuse(RefusedPacket { id, operation, why }) {
            FinishedHandler::Refused(Outcome::Nothing) => {
                self.backlog.push(QueuedPacket { timeout: None, ..waiting });
                self.backlog.is_clogged = true;
                None
            }
            finished => {
                self.shared.core().proto.handle_refused();
                Some(finished)
            }
        }
    }

    /// Returns `true` if handlers may receive packets. They may not if the queue of replies is full.
    fn takes_packets(&self) -> bool {
        let core = self.shared.core();
        core.proto.is_open() && !core.proto.owes_replies()
    }

    /// Returns `true` if one more packet may be queued for its handler.
    fn may_enqueue(&self) -> bool {
        let has_room = self.backlog.has_room_after(0, 0, &self.shared.config) || !self.is_over_limit();
        has_room && !(self.deadlock.is_jammed() && self.may_all_await_peer())
    }

    /// Returns `true` if possibly all handlers wait for the peer.
    fn may_all_await_peer(&self) -> bool {
        let awaited = self.awaited().saturating_add(self.shared.core().awaited_streams());
        awaited >= self.handlers.len().max(1)
    }

    /// Returns the number of packets that this side waits for.
    pub(super) fn awaited(&self) -> usize {
        self.handlers.awaited().unwrap_or_else(|panicked| {
            self.shared.apply(panicked);
            0
        })
    }

    /// Returns `true` if the backlog is clogged. It no longer is once its packets are within the limit in bytes.
    pub(super) fn unclog(&mut self) -> bool {
        self.backlog.is_clogged &= self.is_over_limit();
        self.backlog.is_clogged
    }

    /// Returns `true` if the packets of running handlers and queued packets have reached the limit in bytes. The limit
    /// applies while this side waits for replies and keeps reading.
    fn is_over_limit(&self) -> bool {
        self.handlers.held_len() + self.backlog.len() >= self.shared.config.handlers_len_max
    }
}
