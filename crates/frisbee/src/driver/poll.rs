//! One turn of a driver.

use std::task::{Context, Poll, Waker};

use bytes::Buf as _;
use tokio::time::Instant;

use super::{
    Driver,
    cork::WriteTiming,
    handlers::InPlaceRoute,
    states::{InputState, OutputState},
};
use crate::{CloseReason, Router, connection::ConnectionCore, router::Event};

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
        self.turn.start = now.into_std();
        self.shared.begin_turn(self.turn.start);
        self.reap_finished(cx);
        if self.wake_up() == WriteTiming::Later {
            // Run again after the currently ready tasks, which can add to the batch.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut has_come_up = false;
        for round in 0..ROUNDS_MAX {
            self.start_backlog(cx);
            self.end_after_backlog(cx);
            self.poll_input(cx, now);
            // Before the write, so that it includes packets sent by the router in this event.
            if self.turn.is_busy
                && let Some(panicked) = self.handlers.notify_router(Event::Received)
            {
                self.shared.apply(panicked);
            }
            self.turn.is_busy |= has_come_up;
            self.poll_output(cx, now);
            // Not before reading: on a busy machine, or after a suspend, this task may itself be late. It must see the
            // bytes sent and acknowledged in the meantime before it treats the peer as silent.
            if round == 0 {
                self.poll_timer(cx, now);
            }
            has_come_up = !self.turn.is_busy;
            if has_come_up && let Some(turn) = self.sleep(cx, now) {
                return turn;
            }
            // Another round follows: this one did something, or something changed after this round looked for it.
            self.turn.is_busy = false;
            self.reap_finished(cx);
        }
        // Enough for one turn: let the other connections of this thread run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Begins a turn. Takes the waker back, so that nothing wakes an awake driver, and checks for changes of the core.
    fn wake_up(&mut self) -> WriteTiming {
        let mut core = self.shared.core();
        self.turn.waker = core.driver.take().or(self.turn.waker.take());
        self.idle_close.update(core.proto.closes_when_idle().is_some());
        if let Some(load) = self.handlers.load() {
            core.proto.set_load(load);
        }
        self.output.cork.wake(core.proto.progress().0)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) {
        if !self.timer.poll(cx, now) {
            return;
        }
        let mut core = self.shared.core();
        core.proto.handle_timeout(now.into_std());
        if self.timer.give_up.take_if(|due| *due <= now).is_some() {
            core.proto.fail(self.failure());
        }
        let mut waiting = Vec::new();
        while let Some(key) = core.proto.poll_overflowed() {
            waiting.extend(core.take_waiting(key));
        }
        let next = self.next_timeout(&core);
        drop(core);
        waiting.into_iter().for_each(Waker::wake);
        self.timer.reset(cx, next, now);
        self.release();
    }

    /// Frees memory not needed by a quiet connection.
    fn release(&mut self) {
        self.output.batch.release();
        self.input.inbox.release(&self.wire);
        self.backlog.detach();
        if self.input.arrived.is_empty() {
            self.input.arrived.shrink_to_fit();
        }
        self.input.woken.shrink_to_fit();
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
        if let Some(next) = self.next_timeout(&core) {
            self.timer.advance(cx, next);
        }
        self.output.cork.sleep(core.proto.progress().0);
        // Under the same lock as all checks above. A change before them was seen, and a change after them finds the
        // waker, so no wake-up is lost.
        let waker = self.turn.waker.take().filter(|waker| waker.will_wake(cx.waker()));
        core.driver = Some(waker.unwrap_or_else(|| cx.waker().clone()));
        debug_assert!(self.input.arrived.is_empty() || core.proto.is_finishing(), "what was decoded is dealt with");
        debug_assert!(self.input.woken.is_empty(), "every reader with something to read was woken");
        Some(Poll::Pending)
    }

    /// Decides how to continue after a write error. Returns `true` if this needs another round.
    fn gives_up_on_writing(&mut self, core: &mut ConnectionCore) -> bool {
        let OutputState::Failed(failure) = &self.output.state else { return false };
        let is_open = core.proto.is_open();
        match &self.input.state {
            // Received bytes are read first, once there is room for them.
            InputState::Open | InputState::Failing(_) if is_open && !self.input.pace.is_reading() => {}
            InputState::Open | InputState::Failing(_) if is_open => {
                self.input.state = InputState::Failed(failure.clone());
                return true;
            }
            // Ends with the last handler.
            InputState::Failed(_) if is_open => {}
            InputState::Closed(_) | InputState::Broken(_) if is_open && !self.backlog.is_empty() => {}
            _ => core.proto.fail(self.failure()),
        }
        false
    }

    /// Starts the time limit after a socket failure. Handlers of packets received before may use this time, but no
    /// more.
    pub(super) fn start_give_up_timer(&mut self, now: Instant) {
        if self.timer.give_up.is_none() {
            self.timer.give_up = now.checked_add(self.shared.config.write_stall_max);
        }
    }

    /// Returns the close reason for the failure of the socket.
    pub(super) fn failure(&self) -> CloseReason {
        match (&self.input.state, &self.output.state) {
            (InputState::Closed(reason), _) => reason.clone(),
            (InputState::Failed(error), _) | (_, OutputState::Failed(error)) => CloseReason::Io(error.clone()),
            _ => CloseReason::Peer,
        }
    }

    /// Returns `true` if anything changed since this turn looked for it. An awake driver receives no wake-up for that.
    fn has_more_to_do(&mut self, core: &mut ConnectionCore) -> bool {
        // Before the header format is known, nothing is written unless the connection ends.
        let may_write = core.proto.format().is_some() || core.proto.is_finishing();
        let can_write = core.proto.has_output() && !self.output.batch.has_remaining() && may_write;
        // A task that started to wait for the peer just before reading paused found no waker. Time passing may also
        // have made room.
        let has_begun_to_wait = std::mem::take(&mut core.has_begun_to_wait);
        let is_paused = !self.input.pace.is_reading() && !self.input.state.has_ended() && core.proto.is_open();
        let reads_on = is_paused && (has_begun_to_wait || self.has_room(core));
        let has_changed = self.idle_close.update(core.proto.closes_when_idle().is_some());
        can_write || reads_on || has_changed
    }

    /// Returns the earliest deadline of the connection.
    fn next_timeout(&self, core: &ConnectionCore) -> Option<Instant> {
        let stuck = self.deadlock.due(core.proto.config().handlers_stall_max);
        let due = core.proto.poll_timeout().map(Instant::from_std);
        match (stuck, self.timer.give_up, self.idle_close.rest_due()) {
            (None, None, None) => due,
            (stuck, give_up, rest) => [due, stuck, give_up, rest].into_iter().flatten().min(),
        }
    }
}

/// Maximum number of rounds in one turn of a connection.
const ROUNDS_MAX: usize = 8;
