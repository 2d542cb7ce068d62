//! Drives a connection on tokio: one task owns the socket, both directions of it, and the handlers.

mod backlog;
mod closing;
mod cork;
mod dispatch;
mod handlers;
mod inbox;
mod input;
mod linger;
mod outcomes;
mod output;
mod permits;
mod poll;
mod scope;
mod standstill;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use bytes::BytesMut;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use self::{
    backlog::Backlog,
    cork::Cork,
    handlers::{Handlers, InPlaceRoute},
    inbox::Inbox,
    standstill::Standstill,
};
pub(crate) use self::{linger::refuse, scope::Scope};
use crate::{
    CloseReason, Connection, Packet, ProtocolError, Router,
    net::Wire,
    proto::{self, Transmit},
    router::{Event, RouterInfo, SendOrder},
    shared::Shared,
};

/// The socket of a connection, and what was read from it before.
pub(crate) struct Begun {
    pub(crate) wire: Wire,
    pub(crate) first: BytesMut,
}

/// Runs a connection from its first byte to the end of its last handler.
// The socket is boxed because a future keeps the room of what it was given, also once it has moved it elsewhere.
pub(crate) async fn drive<R: Router>(begun: Box<Begun>, connection: Connection, router: Arc<R>, scope: Scope) {
    debug!("connection opened");
    let shared = connection.shared();
    introduce(&scope.info, &mut shared.core().proto);
    call_hook(&connection, || router.event(&connection, Event::Opened));
    let ending = Ending { connection: &connection, router: &*router, is_told: false };
    let handlers = Handlers::new(&scope, &connection, &router, |packet| router.route(packet, &connection));
    let mut driver = Driver::new(begun, &connection, handlers);
    let reason = poll_fn(|cx| driver.poll(cx)).await;
    // Boxed, so that only connections that end hold the memory for it.
    Box::pin(end(ending, driver, reason, &scope.kill)).await;
}

/// Has this side say of itself what the router does.
fn introduce(info: &RouterInfo, proto: &mut proto::Connection) {
    for (name, part) in &info.parts {
        proto.add_part(name, part.clone());
    }
    if info.leaves {
        proto.promise_to_leave();
    }
    if info.send_order == SendOrder::Relaxed {
        proto.interleave();
    }
}

/// Ends a connection that takes nothing more, and lets the handlers that are left end.
async fn end<R: Router, P: InPlaceRoute>(
    mut ending: Ending<'_, R>,
    mut driver: Driver<'_, R, P>,
    reason: CloseReason,
    kill: &CancellationToken,
) {
    let shared = driver.shared;
    // Before the socket is parted with, which takes a while: nothing more will be read or taken for sending.
    shared.release_waiters();
    // The replies of handlers in place have nowhere to go. After a takeover they go on, because they may be part of what follows.
    if !matches!(reason, CloseReason::TakenOver) {
        driver.handlers.drop_waiting();
    }
    // Other connections of the server may wait for these permits, longer than this one takes to end.
    driver.handlers.give_back_permits();
    shared.core().handlers = driver.handlers.len();
    let (reason, handlers) = driver.leave(reason, kill).await;
    // Before the last handlers have ended: the event may be what ends them.
    ending.tell(reason);
    handlers::finish(handlers, kill).await;
    shared.core().handlers = 0;
}

/// Announces the end of a connection. Does so by itself if the driver is dropped, as happens when its runtime shuts down.
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
        call_hook(self.connection, || self.router.event(self.connection, Event::Closed(&reason)));
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

/// The state of the task of one connection between its turns.
struct Driver<'a, R, P: InPlaceRoute> {
    connection: &'a Connection,
    shared: &'a Shared,
    wire: Wire,
    handlers: Handlers<'a, R, P>,

    // Input, from the socket to the handlers.
    inbox: Inbox,
    /// Packets that were decoded and not yet looked at. Empty between turns, unless the connection is closing: then they
    /// are input again for a takeover.
    arrived: VecDeque<Packet>,
    /// Packets that no handler may start on yet.
    backlog: Backlog,
    standstill: Standstill,
    /// True if a packet was queued beyond all limits because the router had no answer for its refusal.
    is_clogged: bool,
    is_reading: bool,
    /// The time since which reading has paused now and then for want of room, and never come to the end of what had arrived.
    behind_since: Option<std::time::Instant>,
    /// The end of the peer's input, due when the backlog is through.
    end: Option<End>,
    /// Set when reading failed. What a stream like TLS had decrypted by then is read first.
    read_failure: Option<io::Error>,
    /// Tasks that wait for what a stream brought, until the core is unlocked.
    woken: Vec<Waker>,

    // Output, from the outbox to the socket.
    cork: Cork,
    batch: Transmit,
    needs_flush: bool,
    /// Set when the socket takes nothing more. What it still has to give is read first.
    write_failure: Option<Arc<io::Error>>,
    /// True if as many bytes of replies were queued as may, so that handlers under way are left where they are.
    holds_replies: bool,

    // The turn.
    /// The time at which it began.
    turn: std::time::Instant,
    /// True if anything happened in this round, so that another one may find more. A handler that was done at the end of a turn
    /// counts in the next.
    is_busy: bool,
    /// True if the connection was to close once nothing is under way, when the core was looked at last.
    closes_when_idle: bool,
    /// The time at which a connection whose socket has failed ends, whatever is still under way.
    give_up: Option<Instant>,
    /// The time at which a shutdown waits no longer for the rest of a packet.
    rest_due: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
    is_timer_set: bool,
    /// Lent to the core while the driver sleeps.
    waker: Option<Waker>,
}

/// The end of a peer's input.
enum End {
    Closed(CloseReason),
    Broken(ProtocolError),
    Failed(Arc<io::Error>),
}

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    #[expect(clippy::boxed_local, reason = "the box is freed here, and not where the future ends")]
    fn new(begun: Box<Begun>, connection: &'a Connection, handlers: Handlers<'a, R, P>) -> Self {
        let Begun { wire, first } = *begun;
        let mut inbox = Inbox::default();
        inbox.bytes = first;
        let shared = connection.shared();
        let first_timeout = shared.core().proto.poll_timeout().map_or_else(far_future, Instant::from_std);
        Self {
            connection,
            shared,
            wire,
            handlers,
            inbox,
            arrived: VecDeque::new(),
            backlog: Backlog::default(),
            standstill: Standstill::default(),
            is_clogged: false,
            is_reading: true,
            behind_since: None,
            end: None,
            read_failure: None,
            woken: Vec::new(),
            cork: Cork::default(),
            batch: Transmit::default(),
            needs_flush: false,
            write_failure: None,
            holds_replies: false,
            turn: std::time::Instant::now(),
            is_busy: false,
            closes_when_idle: false,
            give_up: None,
            rest_due: None,
            sleep: Box::pin(sleep_until(first_timeout)),
            is_timer_set: false,
            waker: None,
        }
    }
}

/// Returns a time that is not reached, for a timer that nobody waits for.
fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

/// The time that a shutdown gives a peer to say what it is, and to send the rest of a packet.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
