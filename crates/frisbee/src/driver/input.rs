//! Reading: from bytes of the socket to events.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, SHUTDOWN_GRACE,
    backlog::{Backlog, cost},
    handlers::{FinishedHandler, InPlaceRoute},
    states::{IdleClose, InputState, ReadPace},
};
use crate::{
    CloseReason, Config, Packet, Router,
    connection::ConnectionCore,
    proto::{self, PeerProtocol},
    router::{Event, RefusalReason, RefusedPacket},
    sync::MutexGuard,
};

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    /// Reads once and handles the input.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.input.state.has_ended() {
            return;
        }
        // Bytes left undecoded for lack of room go first.
        if !self.input.inbox.bytes.is_empty() {
            self.handle_input(cx, now, 0);
        }
        let Some(content_len) = self.may_read(now) else { return };
        let announced_len = |bytes: &[u8]| self.shared.core().proto.announced_len(bytes);
        let read = self.input.inbox.poll_read(cx, &mut self.wire, content_len, announced_len);
        match read {
            Poll::Ready(Ok(len @ 1..)) => {
                self.turn.is_busy = true;
                self.handle_input(cx, now, len);
            }
            // Read again: a TLS stream may have decrypted data before it failed.
            Poll::Ready(Err(error)) if !self.input.state.is_failing() => {
                self.turn.is_busy = true;
                self.input.state = InputState::Failing(error);
            }
            Poll::Pending if !self.input.state.is_failing() => {
                self.input.pace = ReadPace::UpToDate;
                self.finish_shutdown(now);
            }
            Poll::Ready(_) | Poll::Pending => self.end_input(now),
        }
    }

    /// Closes a connection that shuts down, after everything received is answered.
    ///
    /// A peer with a partially received packet gets [`SHUTDOWN_GRACE`] to send the rest, so that it receives a reply.
    fn finish_shutdown(&mut self, now: Instant) {
        if !self.idle_close.is_on() {
            return;
        }
        if !self.backlog.is_empty() || !self.handlers.is_idle() {
            self.idle_close = IdleClose::WhenIdle;
            return;
        }
        let rest_due = self.idle_close.rest_due().unwrap_or(now + SHUTDOWN_GRACE);
        if !self.is_between_packets() && now < rest_due {
            self.idle_close = IdleClose::RestBy(rest_due);
            return;
        }
        self.idle_close = IdleClose::WhenIdle;
        // Checked again: input of this turn may have shown that the peer closes the connection itself.
        let reason = self.shared.core().proto.closes_when_idle().cloned();
        reason.into_iter().for_each(|reason| self.shared.finish(reason));
    }

    /// Records the end of input. Whole packets were decoded before the last read.
    fn end_input(&mut self, now: Instant) {
        self.turn.is_busy = true;
        self.input.state = match mem::replace(&mut self.input.state, InputState::Open) {
            InputState::Failing(failure) => {
                self.start_give_up_timer(now);
                InputState::Failed(Arc::new(failure))
            }
            _ if self.is_between_packets() => InputState::Closed(CloseReason::Peer),
            _ => InputState::Closed(CloseReason::Truncated),
        };
        self.input.woken.extend(self.shared.core().end_input(now.into_std()));
        self.wake_readers();
    }

    /// Returns `true` if no packet is partially received.
    fn is_between_packets(&self) -> bool {
        let core = self.shared.core();
        self.input.inbox.bytes.is_empty() && core.proto.content_len() == 0 && !core.proto.has_pieces()
    }

    /// Decides whether to read, depending on the room for more packets. Returns the length of the partially received
    /// content if so.
    fn may_read(&mut self, now: Instant) -> Option<usize> {
        let shared = self.shared;
        let mut core = shared.core();
        let mut may_read = self.has_room(&core);
        if !may_read {
            drop(core);
            may_read = self.reads_without_room();
            core = shared.core();
        }
        may_read &= core.proto.is_open();
        if may_read != self.input.pace.is_reading() {
            self.input.pace = self.input.pace.after(may_read, self.turn.start);
            core.is_paused = !may_read;
            core.proto.set_reading(now.into_std(), may_read);
        }
        may_read.then(|| core.proto.content_len())
    }

    /// Returns `true` if there is room for one more packet.
    pub(super) fn has_room(&self, core: &ConnectionCore) -> bool {
        let has_backlog_room = self.backlog.has_room_after(0, 0, core.proto.config());
        has_backlog_room && !core.proto.is_overrun() && !core.proto.is_stalled()
    }

    /// Returns `true` if reading continues although there is no room.
    ///
    /// The input may contain replies that this side waits for, and the handlers that would make room may wait for those
    /// replies. Asks the router, so the core must not be locked.
    fn reads_without_room(&mut self) -> bool {
        let is_clogged = self.unclog();
        let core = self.shared.core();
        if is_clogged || core.proto.is_flooded() || core.proto.is_stalled() {
            return false;
        }
        // Unread packets wait too, for an unknown time, so an overloaded side reads and refuses them. Not if the peer
        // itself does not read its replies.
        if !core.proto.owes_replies() && self.is_overloaded() {
            return true;
        }
        let awaits_stream = core.awaits_peer();
        drop(core);
        awaits_stream || self.awaited() > 0
    }

    /// Decodes and handles received bytes, within the available room.
    fn handle_input(&mut self, cx: &mut Context<'_>, now: Instant, received: usize) {
        let (shared, before) = (self.shared, self.input.inbox.bytes.len());
        let mut core = shared.core();
        let is_first = received > 0 && !core.proto.has_received();
        if received > 0 {
            core.proto.handle_received(now.into_std(), received);
        }
        self.handle_events(cx, now, core);
        self.wake_readers();
        if is_first {
            shared.changed.notify_waiters();
        }
        self.turn.is_busy |= self.input.inbox.bytes.len() < before;
    }

    /// Handles one event after another.
    ///
    /// Packets are decoded in batches under one lock and dispatched without it, because no lock may be held while user
    /// code runs.
    fn handle_events(&mut self, cx: &mut Context<'_>, now: Instant, mut core: MutexGuard<'a, ConnectionCore>) {
        let shared = self.shared;
        loop {
            let has_room = self.has_room(&core);
            if !has_room {
                drop(core);
                if !self.reads_without_room() {
                    return;
                }
                core = shared.core();
            }
            let Some(event) = self.decode(now, &mut core) else { return };
            if let proto::InputEvent::StreamReadable(key) = event {
                // The common case: no task waits, because the reader has not caught up.
                if core.has_waiting(key) {
                    self.input.woken.extend(core.take_waiting(key));
                }
                continue;
            }
            if let proto::InputEvent::StreamWritable(key) = event {
                self.input.woken.extend(core.take_senders(key));
                continue;
            }
            let finished = self.handle_event(cx, event, has_room, core);
            if self.input.inbox.bytes.is_empty() {
                // Nothing is left to decode, so the lock is only needed to apply the result.
                if let Some(finished) = finished {
                    shared.apply(finished);
                }
                return;
            }
            core = shared.core();
            core.apply(finished);
        }
    }

    /// Decodes the next event. Records a protocol violation by the peer.
    fn decode(&mut self, now: Instant, core: &mut ConnectionCore) -> Option<proto::InputEvent> {
        match core.proto.handle_input(now.into_std(), &mut self.input.inbox.bytes) {
            Ok(event) => event,
            Err(error) => {
                warn!(%error, "the peer broke the protocol");
                self.input.woken.extend(core.end_input(now.into_std()));
                self.input.state = InputState::Broken(error);
                self.turn.is_busy = true;
                None
            }
        }
    }

    /// Passes an event to the router, without the lock. Returns the result of a handler if one has finished.
    fn handle_event(
        &mut self,
        cx: &mut Context<'_>,
        event: proto::InputEvent,
        has_room: bool,
        mut core: MutexGuard<'a, ConnectionCore>,
    ) -> Option<FinishedHandler> {
        let is_draining = core.proto.is_draining();
        match event {
            proto::InputEvent::Packet(packet) => {
                debug_assert!(self.input.arrived.is_empty(), "what was decoded is dispatched before more is");
                let len = cost(&packet);
                self.input.arrived.push_back(packet);
                if has_room && !self.input.inbox.bytes.is_empty() {
                    let config = &self.shared.config;
                    decode_packets(
                        &mut core,
                        &mut self.input.inbox.bytes,
                        &mut self.input.arrived,
                        len,
                        &self.backlog,
                        config,
                    );
                }
                let owes_replies = core.proto.owes_replies();
                drop(core);
                self.wake_readers();
                self.dispatch(cx, owes_replies, is_draining)
            }
            proto::InputEvent::StreamOpened(key) => {
                drop(core);
                self.wake_readers();
                let refusal = is_draining.then_some(RefusalReason::Draining);
                self.handlers.start_stream(cx, key, refusal)
            }
            proto::InputEvent::TooLarge { id, operation, announced } => {
                let why = RefusalReason::TooLarge { announced, limit: core.proto.config().content_len_max };
                drop(core);
                self.wake_readers();
                Some(self.handlers.refuse(RefusedPacket { id, operation, why }))
            }
            proto::InputEvent::Recognized => {
                let peer = core.proto.peer().clone();
                self.shared.note_recognized(&core);
                drop(core);
                self.shared.changed.notify_waiters();
                if let PeerProtocol::Extended(_) = peer {
                    self.handlers.may_withdraw = true;
                }
                self.handlers.notify_router(Event::Recognized(&peer))
            }
            proto::InputEvent::GoingAway(why) => {
                drop(core);
                self.shared.changed.notify_waiters();
                self.handlers.notify_router(Event::GoingAway(&why))
            }
            proto::InputEvent::Cancelled(packet) => {
                drop(core);
                self.handlers.notify_router(Event::Withdrawn(packet))
            }
            proto::InputEvent::Cancel(packet) => {
                drop(core);
                // Otherwise the handler is done, and its reply was sent or is about to be.
                if !self.handlers.withdraw(packet) && self.backlog.remove(packet) {
                    return Some(FinishedHandler::Withdrawn(packet));
                }
                None
            }
            // Handled by the caller under the lock.
            proto::InputEvent::StreamReadable(_) | proto::InputEvent::StreamWritable(_) => None,
        }
    }

    /// Wakes tasks waiting for streams. Not under the lock, because a waker may use the connection immediately.
    fn wake_readers(&mut self) {
        if !self.input.woken.is_empty() {
            self.input.woken.drain(..).for_each(Waker::wake);
        }
    }
}

/// Decodes whole packets after one with a cost of `len`, while the backlog has room for all of them.
///
/// Stops at any other event. If an earlier packet turns out to request a takeover, packets can be converted back to
/// bytes, but other events cannot.
// Not a method: a function without type parameters is compiled in this crate, where the steps of the core are inlined.
fn decode_packets(
    core: &mut ConnectionCore,
    bytes: &mut BytesMut,
    arrived: &mut VecDeque<Packet>,
    mut len: usize,
    backlog: &Backlog,
    config: &Config,
) {
    while arrived.len() < DECODED_MAX
        && backlog.has_room_after(arrived.len(), len, config)
        && let Some(packet) = core.proto.handle_packet(bytes)
    {
        len += cost(&packet);
        arrived.push_back(packet);
    }
}

/// Maximum number of packets decoded under one lock, because other tasks wait for it.
const DECODED_MAX: usize = 64;
