//! Drives a connection on tokio: one task owns both directions of the socket, and the handlers.

mod backlog;
mod closing;
mod cork;
mod deadlock;
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
    deadlock::DeadlockDetector,
    handlers::{Handlers, InPlaceRoute},
    inbox::Inbox,
};
pub(crate) use self::{linger::refuse, scope::Scope};
use crate::{
    CloseReason, Connection, Packet, ProtocolError, Router,
    connection::Shared,
    net::Wire,
    proto::{self, Transmit},
    router::{Event, RouterInfo, SendOrder},
};

/// The socket of a connection, with the bytes already read from it.
pub(crate) struct Begun {
    pub(crate) wire: Wire,
    pub(crate) first: BytesMut,
}

/// Runs a connection from its first byte to the end of its last handler.
// `begun` is boxed because a future keeps the space of its arguments even after moving out of them.
pub(crate) async fn drive<R: Router>(begun: Box<Begun>, connection: Connection, router: Arc<R>, scope: Scope) {
    debug!("connection opened");
    let shared = connection.shared();
    introduce(&scope.info, &mut shared.core().proto);
    call_hook(&connection, || router.event(&connection, Event::Opened));
    let ending = Ending { connection: &connection, router: &*router, is_told: false };
    let handlers = Handlers::new(&scope, &connection, &router, |packet| router.route(packet, &connection));
    let mut driver = Driver::new(begun, &connection, handlers);
    let reason = poll_fn(|cx| driver.poll(cx)).await;
    // Boxed, so that only ending connections use memory for this future.
    Box::pin(end(ending, driver, reason, &scope.kill)).await;
}

/// Announces the router's facts to the peer.
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

/// Ends a connection that no longer accepts packets, and waits for its remaining handlers.
async fn end<R: Router, P: InPlaceRoute>(
    mut ending: Ending<'_, R>,
    mut driver: Driver<'_, R, P>,
    reason: CloseReason,
    kill: &CancellationToken,
) {
    let shared = driver.shared;
    // Before closing the socket, which takes a while: nothing more will be read or accepted for sending.
    shared.release_waiters();
    // Replies of handlers in place can no longer be sent. After a takeover these handlers continue, because they may
    // use the raw stream.
    if !matches!(reason, CloseReason::TakenOver) {
        driver.handlers.drop_waiting();
    }
    // Other connections of the server may wait for these permits, and closing the socket takes a while.
    driver.handlers.give_back_permits();
    shared.core().handlers = driver.handlers.len();
    let (reason, handlers) = driver.leave(reason, kill).await;
    // Before the last handlers have ended, because this event may be what ends them.
    ending.tell(reason);
    handlers::finish(handlers, kill).await;
    shared.core().handlers = 0;
}

/// Announces the end of a connection, also if the driver is dropped because its runtime shuts down.
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

/// State of a connection's task between its turns.
struct Driver<'a, R, P: InPlaceRoute> {
    connection: &'a Connection,
    shared: &'a Shared,
    wire: Wire,
    handlers: Handlers<'a, R, P>,

    // Input, from the socket to the handlers.
    inbox: Inbox,
    /// Packets decoded but not dispatched yet. Empty between turns, unless the connection is closing: then they are
    /// converted back to input for a takeover.
    arrived: VecDeque<Packet>,
    /// Packets queued until a handler may start.
    backlog: Backlog,
    deadlock: DeadlockDetector,
    /// `true` if a packet was queued above all limits because the router had no reply for its refusal.
    is_clogged: bool,
    is_reading: bool,
    /// Time since which reading has paused repeatedly for lack of room, without reaching the end of the input.
    behind_since: Option<std::time::Instant>,
    /// The end of the peer's input, effective when the backlog is empty.
    end: Option<End>,
    /// Error of a read. Data decrypted before the error, as by TLS, is read first.
    read_failure: Option<io::Error>,
    /// Wakers of tasks waiting for streams, kept until the core is unlocked.
    woken: Vec<Waker>,

    // Output, from the outbox to the socket.
    cork: Cork,
    batch: Transmit,
    needs_flush: bool,
    /// Error of a write. Bytes already received are read first.
    write_failure: Option<Arc<io::Error>>,
    /// `true` if the queue of replies is full. Results of finished handlers are then not collected.
    holds_replies: bool,

    // The turn.
    /// Start time of the turn.
    turn: std::time::Instant,
    /// `true` if this round has done anything, so that another round may find more work. A handler that finishes at the
    /// end of a turn counts for the next turn.
    is_busy: bool,
    /// `true` if the connection was to close when idle, at the last look at the core.
    closes_when_idle: bool,
    /// Time at which a connection with a failed socket ends, even with work in progress.
    give_up: Option<Instant>,
    /// Time at which a shutdown stops waiting for the rest of a packet.
    rest_due: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
    is_timer_set: bool,
    /// Waker of the driver. Moved to the core while the driver sleeps.
    waker: Option<Waker>,
}

/// The cause of the end of the peer's input.
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
            deadlock: DeadlockDetector::default(),
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

/// Returns a time far in the future, for a timer without a deadline.
fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

/// Time for a peer to identify itself or to send the rest of a packet during a shutdown.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
