//! Reading, and what arrives.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Buf as _;
use tokio::time::Instant;
use tracing::warn;

use super::{
    Driver, End,
    handlers::{Entry, Handling, cost},
};
use crate::{
    CloseReason, Config, Packet, Stream,
    proto::Event,
    router::{Refusal, Refused},
    shared::Core,
};

impl Driver<'_> {
    /// Reads once and starts handlers on what came. Whether anything came.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant, handlers: &mut impl Handling) -> bool {
        if self.end.is_some() {
            return false;
        }
        // What was left undecoded for want of room goes first.
        let mut is_busy = !self.inbox.bytes.is_empty() && self.handle_input(cx, now, 0, handlers);
        let Some(content_len) = self.may_read(now, handlers) else { return is_busy };
        let read = self
            .inbox
            .poll_read(cx, &mut self.wire, content_len, |bytes| self.shared.core().proto.announced_len(bytes));
        match (read, &self.read_failure) {
            (Poll::Ready(Ok(len @ 1..)), _) => {
                self.handle_input(cx, now, len, handlers);
                is_busy = true;
            }
            (Poll::Ready(Err(error)), None) => {
                self.read_failure = Some(error);
                is_busy = true;
            }
            (_, Some(_)) => {
                let failure = self.read_failure.take().map(Arc::new);
                self.end_input(now, failure.map_or_else(|| self.peer_end(), End::Failed));
                is_busy = true;
            }
            (Poll::Ready(Ok(_)), None) => {
                self.end_input(now, self.peer_end());
                is_busy = true;
            }
            // Everything that has arrived is answered, and nothing has arrived in part: whoever sent it is told.
            (Poll::Pending, None) if self.is_draining && self.is_quiet() && handlers.is_idle() => {
                self.shared.finish(CloseReason::Shutdown);
            }
            (Poll::Pending, None) => {}
        }
        is_busy
    }

    /// Decodes what was read, as far as there is room for it. Whether anything was.
    fn handle_input(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        received: usize,
        handlers: &mut impl Handling,
    ) -> bool {
        let before = self.inbox.bytes.len();
        let mut core = self.shared.core();
        let is_first = received > 0 && !core.proto.has_received();
        if received > 0 {
            core.proto.handle_received(now.into_std(), received);
        }
        loop {
            if !self.has_room(&core) {
                drop(core);
                let reads_on = self.reads_on(handlers);
                core = self.shared.core();
                if !reads_on {
                    break;
                }
            }
            match core.proto.handle_input(now.into_std(), &mut self.inbox.bytes) {
                Ok(Some(Event::Packet(packet))) => {
                    let may_start = self.backlog.is_empty() && !core.proto.owes_replies();
                    let is_draining = core.proto.is_draining();
                    drop(core);
                    let mut finished = None;
                    match handlers.offer(packet) {
                        Ok(None) => {
                            self.expected += 1;
                            self.has_progressed = true;
                        }
                        Ok(Some(Packet { id, operation, .. })) if is_draining => {
                            finished = Some(handlers.refuse(Refused { id, operation, why: Refusal::Draining }));
                            self.shared.core().proto.handle_refused();
                        }
                        Ok(Some(packet)) if may_start && handlers.poll_free(cx, cost(&packet)).is_ready() => {
                            finished = handlers.start(cx, packet);
                        }
                        Ok(Some(packet)) if self.may_wait(handlers) => self.queue(packet),
                        Ok(Some(packet)) => self.refuse(packet, handlers),
                        Err(panicked) => finished = Some(panicked),
                    }
                    core = self.shared.core();
                    core.apply(finished);
                }
                Ok(Some(Event::StreamOpened(key))) => {
                    let entry = if core.proto.is_draining() { Entry::Refused } else { Entry::Served };
                    drop(core);
                    let finished = handlers.start_stream(cx, Stream::new(self.connection.clone(), key), entry);
                    core = self.shared.core();
                    core.apply(finished);
                }
                Ok(Some(Event::TooLarge { id, operation, announced })) => {
                    let why = Refusal::TooLarge { announced, limit: core.proto.config().content_len_max };
                    drop(core);
                    let finished = handlers.refuse(Refused { id, operation, why });
                    core = self.shared.core();
                    core.apply(Some(finished));
                }
                // Usually nobody waits: whoever reads is behind.
                Ok(Some(Event::StreamReadable(key))) if core.has_waiting(key) => {
                    let waiting = core.take_waiting(key);
                    drop(core);
                    waiting.for_each(Waker::wake);
                    core = self.shared.core();
                }
                Ok(Some(Event::StreamReadable(_))) => {}
                Ok(None) => break,
                Err(error) => {
                    warn!(%error, "the peer broke the protocol");
                    core.proto.set_reading(now.into_std(), false);
                    self.end = Some(End::Broken(error));
                    return true;
                }
            }
        }
        if received > 0 && !self.batch.has_remaining() {
            core.proto.poll_transmit(now.into_std(), &mut self.batch);
        }
        drop(core);
        if is_first {
            self.shared.tell_changed();
        }
        self.inbox.bytes.len() < before
    }

    /// Whether nothing of what was received is left to be dealt with.
    fn is_quiet(&self) -> bool {
        self.backlog.is_empty() && self.inbox.bytes.is_empty() && self.shared.core().proto.content_len() == 0
    }

    /// How the input ends when the socket has nothing more. Whole packets were decoded before it was read again.
    fn peer_end(&self) -> End {
        let is_between_packets = self.inbox.bytes.is_empty() && self.shared.core().proto.content_len() == 0;
        End::Closed(if is_between_packets { CloseReason::Peer } else { CloseReason::Truncated })
    }

    fn end_input(&mut self, now: Instant, end: End) {
        if let End::Failed(_) = end {
            self.begin_to_give_up(now);
        }
        self.end = Some(end);
        self.shared.core().proto.set_reading(now.into_std(), false);
    }

    /// Reading pauses while there is no room for what it would bring. The length of the content under way if not.
    fn may_read(&mut self, now: Instant, handlers: &impl Handling) -> Option<usize> {
        let mut core = self.shared.core();
        let mut may_read = self.has_room(&core);
        if !may_read {
            drop(core);
            may_read = self.reads_on(handlers);
            core = self.shared.core();
        }
        may_read &= core.proto.is_open();
        if may_read != self.is_reading {
            self.is_reading = may_read;
            core.is_paused = !may_read;
            core.proto.set_reading(now.into_std(), may_read);
        }
        may_read.then(|| core.proto.content_len())
    }

    /// Whether there is room for one more packet.
    pub(super) fn has_room(&self, core: &Core) -> bool {
        self.has_backlog_room(core.proto.config()) && !core.proto.is_overrun() && !core.proto.is_stalled()
    }

    pub(super) fn has_backlog_room(&self, config: &Config) -> bool {
        self.backlog.len() < config.backlog_max && self.backlog_len < config.backlog_len_max
    }

    /// Whether more is read although there is no room for it: what this side waits for may be behind it, and the handlers
    /// that would make room may be the ones that wait.
    fn reads_on(&mut self, handlers: &impl Handling) -> bool {
        self.is_clogged &= self.is_over_limit(handlers);
        let core = self.shared.core();
        if self.is_clogged || core.proto.is_flooded() || core.proto.is_stalled() {
            return false;
        }
        let awaits_stream = core.awaited_streams().next().is_some();
        drop(core);
        awaits_stream || self.awaited(handlers) > 0
    }
}
