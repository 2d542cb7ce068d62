//! One turn of a driver.

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Buf as _;
use tokio::time::Instant;

use super::{Driver, End, cork::Write, far_future, handlers::InPlaceRoute};
use crate::{CloseReason, Router, connection::Core, router::Event};

impl<R: Router, P: InPlaceRoute> Driver<'_, R, P> {
    /// Takes one turn: a few rounds of reading, handling and writing, until a round finds nothing to do.
    ///
    /// Then the driver sleeps until the socket, a handler, the timer or a handle of the connection wakes it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let turn = self.take_turn(cx);
        self.handlers.end_turn();
        turn
    }

    fn take_turn(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let now = Instant::now();
        self.turn = now.into_std();
        self.shared.begin_turn(self.turn);
        self.reap_finished(cx);
        if self.wake_up() == Write::Later {
            // Run again after the currently ready tasks, which can add to the batch.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut has_come_up = false;
        for round in 0..ROUNDS_MAX {
            self.start_backlog(cx);
            self.end_behind_backlog(cx);
            self.poll_input(cx, now);
            // Before the write, so that it includes packets sent by the router in this event.
            if self.is_busy
                && let Some(panicked) = self.handlers.tell(Event::Received)
            {
                self.shared.apply(panicked);
            }
            self.is_busy |= has_come_up;
            self.poll_output(cx, now);
            // Not before reading: on a busy machine, or after a suspend, this task may itself be late. It must see the
            // bytes sent and acknowledged in the meantime before it treats the peer as silent.
            if round == 0 {
                self.poll_timer(cx, now);
            }
            has_come_up = !self.is_busy;
            if has_come_up && let Some(turn) = self.sleep(cx, now) {
                return turn;
            }
            // Otherwise something changed after this round looked for it: there may be something to write, for example.
            self.is_busy = false;
            self.reap_finished(cx);
        }
        // Enough for one turn: let the other connections of this thread run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Begins a turn. Takes the waker back, so that nothing wakes an awake driver, and checks for changes of the core.
    fn wake_up(&mut self) -> Write {
        let mut core = self.shared.core();
        self.waker = core.driver.take().or(self.waker.take());
        self.closes_when_idle = core.proto.closes_when_idle().is_some();
        self.cork.wake(core.proto.progress().0)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.is_timer_set && now < self.sleep.deadline() {
            return;
        }
        // Repeat until the timer is pending: only a pending poll registers the waker.
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
            // The timer must not fire again within the same turn.
            self.sleep.as_mut().reset(next.max(now + MOMENT));
            self.release();
        }
        self.is_timer_set = true;
    }

    /// Frees memory not needed by a quiet connection.
    fn release(&mut self) {
        self.batch.release();
        self.inbox.release();
        self.backlog.detach();
        if self.arrived.is_empty() {
            self.arrived.shrink_to_fit();
        }
        self.woken.shrink_to_fit();
    }

    /// Ends the turn, unless something changed without a wake-up.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<Poll<CloseReason>> {
        let may_be_stuck = !self.backlog.is_empty() || self.deadlock.is_watching();
        if may_be_stuck && self.refuse_stuck(now) {
            return None;
        }
        let shared = self.shared;
        let mut core = shared.core();
        core.handlers = self.handlers.len();
        if self.gives_up_on_writing(&mut core) {
            return None;
        }
        if let Some(reason) = core.proto.closed() {
            return Some(Poll::Ready(reason.clone()));
        }
        if self.has_more_to_do(&mut core) {
            return None;
        }
        self.set_timer(cx, &core);
        self.cork.sleep(core.proto.progress().0);
        // Under the same lock as all checks above. A change before them was seen, and a change after them finds the
        // waker, so no wake-up is lost.
        let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
        core.driver = Some(waker.unwrap_or_else(|| cx.waker().clone()));
        debug_assert!(self.arrived.is_empty() || core.proto.is_finishing(), "what was decoded is dealt with");
        debug_assert!(self.woken.is_empty(), "every reader with something to read was woken");
        Some(Poll::Pending)
    }

    /// Decides how to continue after a write error. Returns `true` if this needs another round.
    fn gives_up_on_writing(&mut self, core: &mut Core) -> bool {
        let Some(failure) = &self.write_failure else { return false };
        let is_open = core.proto.is_open();
        match &self.end {
            // Received bytes are read first, once there is room for them.
            None if is_open && !self.is_reading => {}
            None if is_open => {
                self.end = Some(End::Failed(failure.clone()));
                return true;
            }
            // Ends with the last handler.
            Some(End::Failed(_)) if is_open => {}
            Some(_) if is_open && !self.backlog.is_empty() => {}
            _ => core.proto.fail(self.failure()),
        }
        false
    }

    /// Returns `true` if anything changed since this turn looked for it. An awake driver receives no wake-up for that.
    fn has_more_to_do(&mut self, core: &mut Core) -> bool {
        // Before the header format is known, nothing is written unless the connection ends.
        let may_write = core.proto.format().is_some() || core.proto.is_finishing();
        let can_write = core.proto.has_output() && !self.batch.has_remaining() && may_write;
        // A task that started to wait for the peer just before reading paused found no waker. Time passing may also
        // have made room.
        let has_begun_to_wait = std::mem::take(&mut core.has_begun_to_wait);
        let is_paused = !self.is_reading && self.end.is_none() && core.proto.is_open();
        let reads_on = is_paused && (has_begun_to_wait || self.has_room(core));
        let closes_when_idle = core.proto.closes_when_idle().is_some();
        let had_to_close = std::mem::replace(&mut self.closes_when_idle, closes_when_idle);
        can_write || reads_on || closes_when_idle != had_to_close
    }

    /// Sets the timer for the next deadline.
    fn set_timer(&mut self, cx: &mut Context<'_>, core: &Core) {
        // A later deadline leaves the timer unchanged. One early wake-up costs less than a reset in each turn.
        if let Some(next) = self.next_timeout(core)
            && next < self.sleep.deadline()
        {
            self.sleep.as_mut().reset(next);
            if self.sleep.as_mut().poll(cx).is_ready() {
                self.is_timer_set = false;
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Returns the earliest deadline of the connection.
    fn next_timeout(&self, core: &Core) -> Option<Instant> {
        let stuck = self.deadlock.due(core.proto.config().handlers_stall_max);
        let due = core.proto.poll_timeout().map(Instant::from_std);
        match (stuck, self.give_up, self.rest_due) {
            (None, None, None) => due,
            (stuck, give_up, rest) => [due, stuck, give_up, rest].into_iter().flatten().min(),
        }
    }
}

/// Maximum number of rounds in one turn of a connection.
const ROUNDS_MAX: usize = 8;
const MOMENT: Duration = Duration::from_millis(1);
