//! Reading: bytes from the socket to events.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard},
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, End, SHUTDOWN_GRACE,
    backlog::{Backlog, cost},
    handlers::{Finished, InPlaceRoute},
};
use crate::{
    CloseReason, Config, Packet, Router, Stream,
    proto::{self, Peer},
    router::{Event, Refusal, Refused},
    shared::Core,
};

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    /// Reads once and deals with what came.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.end.is_some() {
            return;
        }
        // Bytes that were left undecoded for want of room go first.
        if !self.inbox.bytes.is_empty() {
            self.handle_input(cx, now, 0);
        }
        let Some(content_len) = self.may_read(now) else { return };
        let read = self
            .inbox
            .poll_read(cx, &mut self.wire, content_len, |bytes| self.shared.core().proto.announced_len(bytes));
        match read {
            Poll::Ready(Ok(len @ 1..)) => {
                self.is_busy = true;
                self.handle_input(cx, now, len);
            }
            // Once more: a stream like TLS may have decrypted something before it failed.
            Poll::Ready(Err(error)) if self.read_failure.is_none() => {
                self.is_busy = true;
                self.read_failure = Some(error);
            }
            Poll::Pending if self.read_failure.is_none() => {
                self.behind_since = None;
                self.finish_shutdown(now);
            }
            Poll::Ready(_) | Poll::Pending => self.end_input(now),
        }
    }

    /// Ends a connection that shuts down, when everything that has arrived is answered. What has arrived in part gets
    /// [`SHUTDOWN_GRACE`] for its rest: its sender is told.
    fn finish_shutdown(&mut self, now: Instant) {
        if !self.closes_when_idle {
            return;
        }
        if !self.backlog.is_empty() || !self.handlers.is_idle() {
            self.rest_due = None;
            return;
        }
        if !self.is_between_packets() && now < *self.rest_due.get_or_insert(now + SHUTDOWN_GRACE) {
            return;
        }
        self.rest_due = None;
        // Looked up again: what arrived in this turn may have shown that the peer leaves by itself.
        let reason = self.shared.core().proto.closes_when_idle().cloned();
        reason.into_iter().for_each(|reason| self.shared.finish(reason));
    }

    /// Notes that the socket has nothing more, whole packets having been decoded before it was read again.
    fn end_input(&mut self, now: Instant) {
        self.is_busy = true;
        self.end = Some(match self.read_failure.take() {
            Some(failure) => {
                self.begin_to_give_up(now);
                End::Failed(Arc::new(failure))
            }
            None if self.is_between_packets() => End::Closed(CloseReason::Peer),
            None => End::Closed(CloseReason::Truncated),
        });
        self.woken.extend(self.shared.core().end_input(now.into_std()));
        self.wake_readers();
    }

    /// Tells whether nothing has arrived of a packet that is not whole.
    fn is_between_packets(&self) -> bool {
        let core = self.shared.core();
        self.inbox.bytes.is_empty() && core.proto.content_len() == 0 && !core.proto.has_pieces()
    }

    /// Decides whether to read: not while there is no room for what it would bring. Returns the length of the content
    /// under way if so.
    fn may_read(&mut self, now: Instant) -> Option<usize> {
        let shared = self.shared;
        let mut core = shared.core();
        let mut may_read = self.has_room(&core);
        if !may_read {
            drop(core);
            may_read = self.reads_on();
            if !may_read {
                self.behind_since.get_or_insert(self.turn);
            }
            core = shared.core();
        }
        may_read &= core.proto.is_open();
        if may_read != self.is_reading {
            self.is_reading = may_read;
            core.is_paused = !may_read;
            core.proto.set_reading(now.into_std(), may_read);
        }
        may_read.then(|| core.proto.content_len())
    }

    /// Tells whether there is room for one more packet.
    pub(super) fn has_room(&self, core: &Core) -> bool {
        let has_backlog_room = self.backlog.has_room_behind(0, 0, core.proto.config());
        has_backlog_room && !core.proto.is_overrun() && !core.proto.is_stalled()
    }

    /// Tells whether more is read although there is no room for it: what this side waits for may be behind it, and the
    /// handlers that would make room may be the ones that wait. Asks the router, so the core must not be locked.
    fn reads_on(&mut self) -> bool {
        self.is_clogged &= self.is_over_limit();
        let core = self.shared.core();
        if self.is_clogged || core.proto.is_flooded() || core.proto.is_stalled() {
            return false;
        }
        // Unread bytes wait as well, and nobody could say for how long. Not if it is the peer that does not read.
        if !core.proto.owes_replies() && self.is_overloaded() {
            return true;
        }
        let awaits_stream = core.awaits_peer();
        drop(core);
        awaits_stream || self.awaited() > 0
    }

    /// Decodes what was read, as far as there is room for it, and deals with it.
    fn handle_input(&mut self, cx: &mut Context<'_>, now: Instant, received: usize) {
        let (shared, before) = (self.shared, self.inbox.bytes.len());
        let mut core = shared.core();
        let is_first = received > 0 && !core.proto.has_received();
        if received > 0 {
            core.proto.handle_received(now.into_std(), received);
        }
        self.handle_events(cx, now, core);
        self.wake_readers();
        if is_first {
            shared.tell_changed();
        }
        self.is_busy |= self.inbox.bytes.len() < before;
    }

    /// Deals with one event after the other. Packets are decoded in batches under one lock, and dispatched without it: no
    /// lock may be held while the user's code runs.
    fn handle_events(&mut self, cx: &mut Context<'_>, now: Instant, mut core: MutexGuard<'a, Core>) {
        let shared = self.shared;
        loop {
            let has_room = self.has_room(&core);
            if !has_room {
                drop(core);
                if !self.reads_on() {
                    return;
                }
                core = shared.core();
            }
            let Some(event) = self.decode(now, &mut core) else { return };
            if let proto::Event::StreamReadable(key) = event {
                // Usually no task waits: the reader is behind.
                if core.has_waiting(key) {
                    self.woken.extend(core.take_waiting(key));
                }
                continue;
            }
            if let proto::Event::StreamWritable(key) = event {
                self.woken.extend(core.take_senders(key));
                continue;
            }
            let finished = self.handle_event(cx, event, has_room, core);
            if self.inbox.bytes.is_empty() {
                // Nothing is left to decode: the lock is taken only for what there is to apply.
                if let Some(finished) = finished {
                    shared.apply(finished);
                }
                return;
            }
            core = shared.core();
            core.apply(finished);
        }
    }

    /// Decodes the next event, or notes that the peer broke the protocol.
    fn decode(&mut self, now: Instant, core: &mut Core) -> Option<proto::Event> {
        match core.proto.handle_input(now.into_std(), &mut self.inbox.bytes) {
            Ok(event) => event,
            Err(error) => {
                warn!(%error, "the peer broke the protocol");
                self.woken.extend(core.end_input(now.into_std()));
                self.end = Some(End::Broken(error));
                self.is_busy = true;
                None
            }
        }
    }

    /// Gives an event to the router, which runs without the lock. Returns how a handler ended, if one did.
    fn handle_event(
        &mut self,
        cx: &mut Context<'_>,
        event: proto::Event,
        has_room: bool,
        mut core: MutexGuard<'a, Core>,
    ) -> Option<Finished> {
        let is_draining = core.proto.is_draining();
        match event {
            proto::Event::Packet(packet) => {
                debug_assert!(self.arrived.is_empty(), "what was decoded is dispatched before more is");
                let len = cost(&packet);
                self.arrived.push_back(packet);
                if has_room && !self.inbox.bytes.is_empty() {
                    let config = self.connection.config();
                    decode_packets(&mut core, &mut self.inbox.bytes, &mut self.arrived, len, &self.backlog, config);
                }
                let owes_replies = core.proto.owes_replies();
                drop(core);
                self.wake_readers();
                self.dispatch(cx, owes_replies, is_draining)
            }
            proto::Event::StreamOpened(key) => {
                drop(core);
                self.wake_readers();
                let refusal = is_draining.then_some(Refusal::Draining);
                self.handlers.start_stream(cx, Stream::new(self.connection.clone(), key), refusal)
            }
            proto::Event::TooLarge { id, operation, announced } => {
                let why = Refusal::TooLarge { announced, limit: core.proto.config().content_len_max };
                drop(core);
                self.wake_readers();
                Some(self.handlers.refuse(Refused { id, operation, why }))
            }
            proto::Event::Recognized => {
                let peer = core.proto.peer().clone();
                self.shared.note_recognized(&core);
                drop(core);
                self.shared.tell_changed();
                if let Peer::Extended(_) = peer {
                    self.handlers.expect_withdrawals();
                }
                self.handlers.tell(Event::Recognized(&peer))
            }
            proto::Event::GoingAway(why) => {
                drop(core);
                self.shared.tell_changed();
                self.handlers.tell(Event::GoingAway(&why))
            }
            proto::Event::Cancelled(packet) => {
                drop(core);
                self.handlers.tell(Event::Withdrawn(packet))
            }
            proto::Event::Cancel(packet) => {
                drop(core);
                // One whose handler is done was answered, or is about to be.
                if !self.handlers.withdraw(packet) && self.backlog.remove(packet) {
                    return Some(Finished::Withdrawn(packet));
                }
                None
            }
            // The caller dealt with them under the lock.
            proto::Event::StreamReadable(_) | proto::Event::StreamWritable(_) => None,
        }
    }

    /// Wakes the tasks that wait for what streams brought. Not under the lock: a waker may use the connection at once.
    fn wake_readers(&mut self) {
        if !self.woken.is_empty() {
            self.woken.drain(..).for_each(Waker::wake);
        }
    }
}

/// Decodes whole packets after one that costs `len`, as long as the backlog has room for all of them. Stops at
/// anything else, because a packet can be put back if an earlier one turns out to be a takeover, and nothing else
/// can.
// Not a method: what has no type parameters is compiled here, where the steps of the core are inlined.
fn decode_packets(
    core: &mut Core,
    bytes: &mut BytesMut,
    arrived: &mut VecDeque<Packet>,
    mut len: usize,
    backlog: &Backlog,
    config: &Config,
) {
    while arrived.len() < DECODED_MAX
        && backlog.has_room_behind(arrived.len(), len, config)
        && let Some(packet) = core.proto.handle_packet(bytes)
    {
        len += cost(&packet);
        arrived.push_back(packet);
    }
}

/// The number of packets that are decoded under one lock at most. Others wait for it meanwhile.
const DECODED_MAX: usize = 64;
