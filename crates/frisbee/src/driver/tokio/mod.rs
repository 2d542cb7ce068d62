//! Drives a connection on tokio: one task owns the socket, both directions of it, and the handlers.

mod handlers;
mod inbox;
mod listener;
mod wire;

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io::{self, IoSlice},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, Sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

pub(crate) use self::{
    handlers::Scope,
    listener::{Bound, Listener, connect},
    wire::Wire,
};
use self::{
    handlers::{Calls, Entry, Finished, Handlers, Handling, cost},
    inbox::Inbox,
};
use crate::{
    CloseReason, Config, Connection, Outcome, Packet, ProtocolError, Raw, Router, SendError, Stream,
    connection::{Core, Shared},
    proto::{self, COPY_LEN_MAX, Event, HeaderFormat, Transmit},
    router::{Refusal, Refused},
};

/// Runs a connection from its first byte to the end of its last handler.
pub(crate) async fn drive<R: Router>(wire: Wire, connection: Connection, router: Arc<R>, scope: Scope) {
    debug!("connection opened");
    call_hook(&connection, || router.opened(&connection));
    let mut ending = Ending { connection: &connection, router: &*router, is_told: false };

    let calls = Calls {
        take: |packet| router.take(packet, &connection),
        refuse: |refused| router.refuse(refused, &connection),
        awaited: || router.awaited(&connection),
        in_place: |packet| router.route(packet, &connection),
        detached: |packet| {
            let (router, connection) = (router.clone(), connection.clone());
            async move { router.route(packet, &connection).await }
        },
        stream: |stream, entry| {
            let (router, connection) = (router.clone(), connection.clone());
            async move {
                match entry {
                    Entry::Served => router.stream(stream, &connection).await,
                    Entry::Refused => router.refuse_stream(stream, &connection).await,
                }
            }
        },
    };
    let shared = connection.shared();
    let mut handlers = Handlers::new(&scope, connection.config(), calls);
    let mut driver = Driver::new(wire, &connection);
    let reason = poll_fn(|cx| driver.poll(cx, &mut handlers)).await;
    shared.release_waiters();
    if !matches!(reason, CloseReason::TakenOver) {
        handlers.drop_waiting();
    }
    handlers.give_back_permits();
    shared.core().handlers = handlers.len();
    // Boxed, so that only connections that end hold the memory for it.
    let reason = Box::pin(driver.leave(reason, &scope.cut)).await;
    ending.tell(reason);
    Box::pin(handlers::finish(handlers, &scope.cut)).await;
    shared.core().handlers = 0;
}

/// Tells everybody that a connection has ended: by itself if its driver is dropped, as a runtime does that shuts down.
struct Ending<'a, R: Router> {
    connection: &'a Connection,
    router: &'a R,
    is_told: bool,
}

impl<R: Router> Ending<'_, R> {
    fn tell(&mut self, reason: CloseReason) {
        self.is_told = true;
        debug!(%reason, "connection closed");
        self.connection.shared().end(reason.clone());
        call_hook(self.connection, || self.router.closed(self.connection, &reason));
    }
}

impl<R: Router> Drop for Ending<'_, R> {
    fn drop(&mut self) {
        if !self.is_told {
            let error = io::Error::other("the runtime that served the connection shut down");
            let reason = CloseReason::Io(Arc::new(error));
            self.connection.shared().fail(reason.clone());
            self.tell(reason);
        }
    }
}

fn call_hook(connection: &Connection, hook: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
        let message = handlers::message(&*panic);
        error!(%message, "a hook of the router panicked");
        connection.shared().finish(CloseReason::HandlerPanicked(message));
    }
}

struct Driver<'a> {
    wire: Wire,
    inbox: Inbox,
    batch: Transmit,
    connection: &'a Connection,
    shared: &'a Shared,
    /// Packets that no handler may start on yet.
    backlog: VecDeque<Packet>,
    /// What they cost.
    backlog_len: usize,
    /// How many at the front have memory of their own.
    detached: usize,
    /// Whether a packet was queued beyond all limits because nobody could be told of its refusal.
    is_clogged: bool,
    /// Whether a handler began or ended, or an answer came, since the last sleep.
    has_progressed: bool,
    /// Since when nothing of this happened although packets wait that the peer may wait for in turn.
    stuck_since: Option<Instant>,
    /// Whether as many bytes of replies were queued as may, so that handlers under way are left where they are.
    holds_replies: bool,
    /// Whether nothing moved for too long, and no handler has ended since: nothing more is made to wait.
    is_jammed: bool,
    /// What the peer's input ended with, due when the backlog is through.
    end: Option<End>,
    is_reading: bool,
    /// Whether a shutdown had begun when the core was looked at last.
    is_draining: bool,
    needs_flush: bool,
    /// Set when the socket takes nothing more. What it still has to give is read first.
    write_failure: Option<Arc<io::Error>>,
    /// Set when reading failed. What a stream like TLS had decrypted by then is read first.
    read_failure: Option<io::Error>,
    /// When a connection whose socket has failed ends, whatever is still under way.
    give_up: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
    is_timer_set: bool,
    /// Lent to the core while the driver sleeps.
    waker: Option<Waker>,
    /// How many packets had been queued when the driver went to sleep.
    packets_before: u64,
    /// How many packets came from handles and finished handlers during the last sleep in which any did.
    crowd: u64,
    /// How many packets are likely to follow: whoever took one will ask again.
    expected: u64,
    deferrals: u32,
    /// How many packets there were to write when that was put off last.
    deferred: u64,
}

/// How a turn begins.
#[derive(PartialEq)]
enum Next {
    GoOn,
    Defer,
}

/// How a peer's input ends.
enum End {
    Closed(CloseReason),
    Broken(ProtocolError),
    Failed(Arc<io::Error>),
}

impl<'a> Driver<'a> {
    fn new(wire: Wire, connection: &'a Connection) -> Self {
        let shared = connection.shared();
        let first_timeout = shared.core().proto.poll_timeout().map_or_else(far_future, Instant::from_std);
        Self {
            wire,
            inbox: Inbox::default(),
            batch: Transmit::default(),
            connection,
            shared,
            backlog: VecDeque::new(),
            backlog_len: 0,
            detached: 0,
            is_clogged: false,
            has_progressed: false,
            stuck_since: None,
            holds_replies: false,
            is_jammed: false,
            end: None,
            is_reading: true,
            is_draining: false,
            needs_flush: false,
            write_failure: None,
            read_failure: None,
            give_up: None,
            sleep: Box::pin(sleep_until(first_timeout)),
            is_timer_set: false,
            waker: None,
            packets_before: 0,
            crowd: 0,
            expected: 0,
            deferrals: 0,
            deferred: 0,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> Poll<CloseReason> {
        let now = Instant::now();
        let mut is_busy = self.settle_finished(cx, handlers);
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
            is_busy = self.settle_finished(cx, handlers) || !is_busy;
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
            0 => sent < self.expected.max(self.crowd),
            count => count < DEFERRALS_MAX && sent < self.expected && sent > self.deferred,
        };
        if may_defer {
            self.deferrals += 1;
            self.deferred = sent;
            cx.waker().wake_by_ref();
            return Next::Defer;
        }
        self.crowd = sent;
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

    /// Starts handlers on packets that waited, as far as they may, and then ends what the peer ended.
    fn start_backlog(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> bool {
        let mut is_busy = false;
        while let Some(next) = self.backlog.front().map(cost)
            && self.takes_packets()
            && handlers.poll_free(cx, next).is_ready()
            && let Some(packet) = self.backlog.pop_front()
        {
            self.backlog_len -= next;
            self.detached = self.detached.saturating_sub(1);
            let finished = handlers.start(cx, packet);
            self.shared.core().settle(finished);
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

    /// Whether any handler came to its end.
    fn settle_finished(&mut self, cx: &mut Context<'_>, handlers: &mut impl Handling) -> bool {
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
            core.settle(Some(finished));
            // The others would only add to what the peer does not read. What is written makes room for them.
            self.holds_replies = core.proto.owes_replies();
            is_busy = true;
        }
        self.has_progressed |= is_busy;
        is_busy
    }

    /// Reads once and starts handlers on what came. Whether anything came.
    fn poll_input(&mut self, cx: &mut Context<'_>, now: Instant, handlers: &mut impl Handling) -> bool {
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

    /// Bounds what follows a failure of the socket: handlers of what had arrived get their time, and no more than that.
    fn begin_to_give_up(&mut self, now: Instant) {
        if self.give_up.is_none() {
            self.give_up = now.checked_add(self.connection.config().write_stall_max);
        }
    }

    /// Says how the failure of the socket ends the connection.
    fn failure(&self) -> CloseReason {
        match (&self.end, &self.write_failure) {
            (Some(End::Failed(error)), _) => CloseReason::Io(error.clone()),
            (Some(End::Closed(reason)), _) => reason.clone(),
            (_, None) => CloseReason::Peer,
            (_, Some(error)) => CloseReason::Io(error.clone()),
        }
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
    fn has_room(&self, core: &Core) -> bool {
        self.has_backlog_room(core.proto.config()) && !core.proto.is_overrun() && !core.proto.is_stalled()
    }

    fn has_backlog_room(&self, config: &Config) -> bool {
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

    /// How many packets this side waits for.
    fn awaited(&self, handlers: &impl Handling) -> usize {
        handlers.awaited().unwrap_or_else(|panicked| {
            self.shared.core().settle(Some(panicked));
            0
        })
    }

    /// Whether packets that wait are as much as may be held while this side waits for answers.
    fn is_over_limit(&self, handlers: &impl Handling) -> bool {
        handlers.held_len() + self.backlog_len >= self.connection.config().handlers_len_max
    }

    fn queue(&mut self, packet: Packet) {
        self.backlog_len += cost(&packet);
        self.backlog.push_back(packet);
    }

    /// Refuses a packet that would wait for too long. One that nobody can be told of waits all the same.
    fn refuse(&mut self, packet: Packet, handlers: &impl Handling) {
        let Packet { id, operation, .. } = packet;
        match handlers.refuse(Refused { id, operation, why: Refusal::Busy }) {
            Finished::Refused(Outcome::Nothing) => {
                self.queue(packet);
                self.is_clogged = true;
            }
            finished => {
                let mut core = self.shared.core();
                core.proto.handle_refused();
                core.settle(Some(finished));
            }
        }
    }

    /// Whether every handler may be one that waits for the peer.
    fn all_wait(&self, handlers: &impl Handling) -> bool {
        let awaited = self.awaited(handlers).saturating_add(self.shared.core().awaited_streams().count());
        awaited >= handlers.len().max(1)
    }

    /// Whether one more packet may wait for its handler.
    fn may_wait(&self, handlers: &impl Handling) -> bool {
        let has_room = self.has_backlog_room(self.connection.config()) || !self.is_over_limit(handlers);
        has_room && !(self.is_jammed && self.all_wait(handlers))
    }

    /// Refuses what waits, if the peer may wait for it in turn and nothing has moved for too long. Whether anything was.
    fn refuse_stuck(&mut self, now: Instant, handlers: &impl Handling) -> bool {
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

    /// When this side wants to be woken at the latest.
    fn next_timeout(&self, core: &Core) -> Option<Instant> {
        let stuck = self.stuck_since.and_then(|since| since.checked_add(core.proto.config().handlers_stall_max));
        core.proto.poll_timeout().map(Instant::from_std).into_iter().chain(stuck).chain(self.give_up).min()
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
                    core.settle(finished);
                }
                Ok(Some(Event::StreamOpened(key))) => {
                    let entry = if core.proto.is_draining() { Entry::Refused } else { Entry::Served };
                    drop(core);
                    let finished = handlers.start_stream(cx, Stream::new(self.connection.clone(), key), entry);
                    core = self.shared.core();
                    core.settle(finished);
                }
                Ok(Some(Event::TooLarge { id, operation, announced })) => {
                    let why = Refusal::TooLarge { announced, limit: core.proto.config().content_len_max };
                    drop(core);
                    let finished = handlers.refuse(Refused { id, operation, why });
                    core = self.shared.core();
                    core.settle(Some(finished));
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

    /// Writes what there is to write, as far as the socket takes it. Whether it took anything.
    fn poll_output(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.write_failure.is_some() {
            self.shared.core().proto.discard_output();
            return false;
        }
        let mut is_busy = false;
        if !self.batch.has_remaining() {
            self.shared.core().proto.poll_transmit(now.into_std(), &mut self.batch);
        }
        while self.batch.has_remaining() {
            match self.poll_write(cx) {
                Poll::Ready(Ok(len)) => {
                    is_busy = true;
                    self.needs_flush = self.wire.needs_flush();
                    self.shared.handle_written(now.into_std(), len, &mut self.batch);
                }
                Poll::Ready(Err(error)) => {
                    self.batch = Transmit::default();
                    let error = Arc::new(error);
                    if self.shared.core().proto.is_open() {
                        self.write_failure = Some(error);
                        self.begin_to_give_up(now);
                    } else {
                        let read_failure = self.end.as_ref().filter(|end| matches!(end, End::Failed(_)));
                        let reason = read_failure.map_or(CloseReason::Io(error), |_| self.failure());
                        self.shared.fail(reason);
                    }
                    return true;
                }
                Poll::Pending => return is_busy,
            }
        }
        if self.needs_flush && Pin::new(&mut self.wire).poll_flush(cx).is_ready() {
            self.needs_flush = false;
        }
        is_busy
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let wire = Pin::new(&mut self.wire);
        // A plain write costs the kernel less than a vectored one.
        let written = if self.batch.chunk().len() < self.batch.remaining() && wire.is_write_vectored() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.batch.chunks_vectored(&mut slices);
            wire.poll_write_vectored(cx, &slices[..count])
        } else {
            wire.poll_write(cx, self.batch.chunk())
        };
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
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

    /// Parts with the socket in the way the reason asks for. Returns the reason that it came to.
    async fn leave(mut self, reason: CloseReason, cut: &CancellationToken) -> CloseReason {
        let has_parted = match &reason {
            CloseReason::TakenOver => return self.hand_over().await.err().unwrap_or(reason),
            CloseReason::Silent { .. } | CloseReason::WriteStalled { .. } | CloseReason::Io(_) => false,
            // However it ends: the connection is over.
            _ => cut.run_until_cancelled(self.part(&reason)).await.is_some(),
        };
        if !has_parted && self.wire.needs_flush() {
            // Nobody waits for such an end, but TLS may say that it is one if the socket takes that at once.
            let _ = self.wire.shutdown().now_or_never();
        }
        reason
    }

    /// Has everything that was written arrive, and the end of it.
    async fn part(&mut self, reason: &CloseReason) {
        let config = self.connection.config();
        // TLS may still hold some of it. A failure says that the peer does not want it.
        let _ = timeout(config.write_stall_max, self.wire.flush()).await;
        if !matches!(reason, CloseReason::Peer | CloseReason::Truncated) {
            let _ = timeout(config.linger_max, linger(&mut self.wire)).await;
        } else if self.wire.needs_flush() {
            // Closing the socket says nothing to TLS: without its own end, the peer takes the stream for cut off.
            let _ = timeout(config.write_stall_max, self.wire.shutdown()).await;
        }
    }

    async fn hand_over(mut self) -> Result<(), CloseReason> {
        let limit = self.shared.core().proto.config().write_stall_max;
        let flushed = timeout(limit, async {
            // A failure shows up again as soon as the new owner uses the stream.
            let _ = self.wire.flush().await;
            self.wire.off_ring().await
        });
        let (mut wire, more) = match flushed.await {
            Ok(Ok(flushed)) => flushed,
            Ok(Err(error)) => return Err(CloseReason::Io(Arc::new(error))),
            Err(_) => return Err(CloseReason::WriteStalled { limit }),
        };
        let mut unread = self.inbox.into_bytes();
        unread.extend_from_slice(&more);
        // The rest of a content that was being discarded belongs to a packet: what is raw begins behind it.
        let left = self.shared.core().proto.discard_len();
        let here = left.min(unread.len());
        unread.advance(here);
        let limit = self.connection.config().discard_time_max;
        let discarding = timeout(limit, discard(&mut wire, left - here));
        if let Err(error) = discarding.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            return Err(CloseReason::Io(Arc::new(error)));
        }
        let mut core = self.shared.core();
        core.proto.undo_input(self.backlog.drain(..), &mut unread);
        let Some(taker) = core.taker.take() else { return Ok(()) };
        let format = core.proto.format().unwrap_or(HeaderFormat::Magic10);
        drop(core);
        let (local, peer) = self.shared.addresses();
        // A taker that went away has given up the connection.
        let _ = taker.send(Raw::new(wire, unread.freeze(), format, local.clone(), peer.clone()));
        Ok(())
    }
}

impl Core {
    /// Does what the end of a handler asks for.
    fn settle(&mut self, finished: Option<Finished>) {
        match finished {
            None | Some(Finished::Handler(Outcome::Nothing) | Finished::Stream) => {}
            Some(Finished::Handler(outcome)) => self.apply(outcome, proto::Connection::reply_pieces),
            Some(Finished::Refused(outcome)) => self.apply(outcome, proto::Connection::refuse),
            Some(Finished::Panicked(message)) => {
                error!(%message, "a handler panicked");
                self.proto.finish(CloseReason::HandlerPanicked(message));
            }
        }
    }

    fn apply(
        &mut self,
        outcome: Outcome,
        reply: impl Fn(&mut proto::Connection, Packet, Vec<Bytes>) -> Result<(), SendError>,
    ) {
        let (packet, rest, closes) = match outcome {
            Outcome::Nothing => return,
            Outcome::Close => return self.proto.finish(CloseReason::Local),
            Outcome::Reply(packet) => (packet, Vec::new(), false),
            Outcome::ReplyPieces(packet, rest) => (packet, rest, false),
            Outcome::ReplyAndClose(packet) => (packet, Vec::new(), true),
        };
        let replied = reply(&mut self.proto, packet, rest);
        self.check_reply(replied);
        if closes {
            self.proto.finish(CloseReason::Local);
        }
    }

    fn check_reply(&mut self, replied: Result<(), SendError>) {
        // Nobody can be told of a reply that comes too late.
        if let Err(SendError::ContentTooLarge { len, limit }) = replied {
            warn!(len, limit, "a reply is larger than the connection carries");
            self.proto.finish(CloseReason::ReplyTooLarge { len, limit });
        }
    }
}

/// Closes the writing half and waits for the peer to do the same. Closing a socket with unread input would reset it,
/// and the reset could overtake the last packets.
async fn linger(wire: &mut Wire) -> io::Result<()> {
    wire.shutdown().await?;
    let mut discarded = BytesMut::with_capacity(LINGER_READ_LEN);
    while wire.read_buf(&mut discarded).await? > 0 {
        discarded.clear();
    }
    Ok(())
}

/// Reads so many bytes, or up to the end.
async fn discard(wire: &mut Wire, mut left: usize) -> io::Result<()> {
    let mut discarded = BytesMut::with_capacity(LINGER_READ_LEN);
    while left > 0 {
        match wire.read_buf(&mut (&mut discarded).limit(left)).await? {
            0 => break,
            len => left -= len,
        }
        discarded.clear();
    }
    Ok(())
}

fn far_future() -> Instant {
    Instant::now() + std::time::Duration::from_secs(365 * 24 * 3600)
}

/// Reads and writes in one turn of a connection.
const ROUNDS_MAX: usize = 8;
/// How often a write is put off.
const DEFERRALS_MAX: u32 = 4;
const SLICES_MAX: usize = 64;
const LINGER_READ_LEN: usize = 4 * 1024;
const MOMENT: std::time::Duration = std::time::Duration::from_millis(1);
