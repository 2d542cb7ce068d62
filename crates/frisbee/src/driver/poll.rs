//! One turn of a driver.

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Buf as _;
use tokio::time::Instant;

use super::{
    Driver, End, far_future,
    handlers::{Finished, Handling},
};
use crate::{CloseReason, proto::COPY_LEN_MAX, shared::Core};

/// How a turn begins.
#[derive(PartialEq)]
enum Next {
    GoOn,
    Defer,
}

impl Driver<'_> {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> Poll<CloseReason> {
        let now = Instant::now();
        let mut is_busy = self.reap_finished(cx, handlers);
        if self.wake_up(cx) == Next::Defer {
            return Poll::Pending;
        }
        for round in 0..ROUNDS_MAX {
            is_busy |= self.start_backlog(cx, handlers);
            is_busy |= self.poll_input(cx, now, handlers);
            if is_busy || self.batch.has_remaining() || self.needs_flush {
                is_busy |= self.poll_output(cx, now);
            }
            // Not before: on a machine that is busy or was asleep, this task may be late itself. What the peer sent and
            // took meanwhile has to be seen before it is blamed for its silence.
            if round == 0 {
                self.poll_timer(cx, now);
            }
            if !is_busy && let Some(turn) = self.sleep(cx, now, handlers) {
                return turn;
            }
            // Sleep that did not come means that there is something to write, which only a busy round looks for.
            is_busy = self.reap_finished(cx, handlers) || !is_busy;
        }
        // Enough for one turn: the other connections of this thread come first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Begins a turn. As long as more is expected than was sent, the other tasks that are ready to run get to add their
    /// packets to the batch before it is written. A lone sender is not made to wait.
    fn wake_up(&mut self, cx: &Context<'_>) -> Next {
        let mut core = self.shared.core();
        self.waker = core.driver.take().or(self.waker.take());
        self.is_draining = core.proto.is_draining();
        let sent = core.proto.progress().0 - self.packets_before;
        drop(core);
        if sent == 0 {
            return Next::GoOn;
        }
        let may_defer = match self.deferrals {
            0 => sent < self.expected.max(self.last_burst),
            count => count < DEFERRALS_MAX && sent < self.expected && sent > self.deferred,
        };
        if may_defer {
            self.deferrals += 1;
            self.deferred = sent;
            cx.waker().wake_by_ref();
            return Next::Defer;
        }
        self.last_burst = sent;
        self.expected = self.expected.saturating_sub(sent) / 2;
        self.deferrals = 0;
        Next::GoOn
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.is_timer_set && now < self.sleep.deadline() {
            return;
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            let mut core = self.shared.core();
            core.proto.handle_timeout(now.into_std());
            if self.give_up.take_if(|due| *due <= now).is_some() {
                core.proto.fail(self.failure());
            }
            let mut waiting = Vec::new();
            while let Some(key) = core.proto.poll_overflowed() {
                waiting.extend(core.take_waiting(key));
            }
            let next = self.next_timeout(&core).unwrap_or_else(far_future);
            drop(core);
            waiting.into_iter().for_each(Waker::wake);
            // A timer must not fire again within the same turn.
            self.sleep.as_mut().reset(next.max(now + MOMENT));
            self.release();
        }
        self.is_timer_set = true;
    }

    /// Gives back memory that a quiet connection does not need.
    fn release(&mut self) {
        self.batch.release();
        self.inbox.release();
        for packet in self.backlog.iter_mut().skip(self.detached) {
            if packet.content.len() < COPY_LEN_MAX {
                *packet = packet.clone().detached();
            }
        }
        self.detached = self.backlog.len();
    }

    /// Whether any handler came to its end.
    fn reap_finished(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> bool {
        let mut is_busy = false;
        if self.holds_replies && self.shared.core().proto.owes_replies() {
            return false;
        }
        self.holds_replies = false;
        while !self.holds_replies
            && let Poll::Ready(finished) = handlers.poll_finished(cx)
        {
            self.is_jammed &= !matches!(finished, Finished::Handler(_));
            let mut core = self.shared.core();
            core.apply(Some(finished));
            // The others would only add to what the peer does not read. What is written makes room for them.
            self.holds_replies = core.proto.owes_replies();
            is_busy = true;
        }
        self.has_progressed |= is_busy;
        is_busy
    }

    /// Ends the turn, unless something came up that no waker announces.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, handlers: &impl Handling) -> Option<Poll<CloseReason>> {
        if (!self.backlog.is_empty() || self.stuck_since.is_some()) && self.refuse_stuck(now, handlers) {
            return None;
        }
        let mut core = self.shared.core();
        core.handlers = handlers.len();
        if let Some(failure) = &self.write_failure {
            let is_open = core.proto.is_open();
            match &self.end {
                // What has arrived is read first, and waits for room.
                None if is_open && !self.is_reading => {}
                None if is_open => {
                    self.end = Some(End::Failed(failure.clone()));
                    return None;
                }
                // Ends with the last handler.
                Some(End::Failed(_)) if is_open => {}
                Some(_) if is_open && !self.backlog.is_empty() => {}
                _ => core.proto.fail(self.failure()),
            }
        }
        if let Some(reason) = core.proto.closed() {
            return Some(Poll::Ready(reason.clone()));
        }
        // Nothing is written before the header is known, unless the connection ends.
        let may_write = core.proto.format().is_some() || core.proto.is_finishing();
        let can_write = core.proto.has_output() && !self.batch.has_remaining() && may_write;
        // Whoever began to wait for the peer while reading was about to pause found nobody to wake, and the time may have
        // made room.
        let looks_again = std::mem::take(&mut core.has_begun_to_wait) || self.has_room(&core);
        let reads_on = looks_again && !self.is_reading && self.end.is_none() && core.proto.is_open();
        if can_write || reads_on || self.is_draining != core.proto.is_draining() {
            self.is_draining = core.proto.is_draining();
            return None;
        }
        if let Some(next) = self.next_timeout(&core)
            && next < self.sleep.deadline()
        {
            self.sleep.as_mut().reset(next);
            if self.sleep.as_mut().poll(cx).is_ready() {
                self.is_timer_set = false;
                cx.waker().wake_by_ref();
            }
        }
        self.packets_before = core.proto.progress().0;
        let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
        core.driver = Some(waker.unwrap_or_else(|| cx.waker().clone()));
        Some(Poll::Pending)
    }

    /// When this side wants to be woken at the latest.
    fn next_timeout(&self, core: &Core) -> Option<Instant> {
        let stuck = self.stuck_since.and_then(|since| since.checked_add(core.proto.config().handlers_stall_max));
        core.proto.poll_timeout().map(Instant::from_std).into_iter().chain(stuck).chain(self.give_up).min()
    }
}

/// Reads and writes in one turn of a connection.
const ROUNDS_MAX: usize = 8;
/// How often a write is put off.
const DEFERRALS_MAX: u32 = 4;
const MOMENT: Duration = Duration::from_millis(1);
