//! Drives a connection on tokio: one task owns the socket, both directions of it, and the handlers.

mod backlog;
mod closing;
mod handlers;
mod inbox;
mod input;
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

use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{debug, error};

pub(crate) use self::scope::Scope;
use self::{
    handlers::{Entrances, Entry, Handlers, Handling as _},
    inbox::Inbox,
};
use crate::{CloseReason, Connection, Packet, ProtocolError, Router, net::Wire, proto::Transmit, shared::Shared};

/// Runs a connection from its first byte to the end of its last handler.
pub(crate) async fn drive<R: Router>(wire: Wire, connection: Connection, router: Arc<R>, scope: Scope) {
    debug!("connection opened");
    call_hook(&connection, || router.opened(&connection));
    let mut ending = Ending { connection: &connection, router: &*router, is_told: false };

    let entrances = Entrances {
        intercept: |packet| router.intercept(packet, &connection),
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
    let mut handlers = Handlers::new(&scope, connection.config(), entrances);
    let mut driver = Driver::new(wire, &connection);
    let reason = poll_fn(|cx| driver.poll(cx, &mut handlers)).await;
    shared.release_waiters();
    if !matches!(reason, CloseReason::TakenOver) {
        handlers.drop_waiting();
    }
    handlers.give_back_permits();
    shared.core().handlers = handlers.len();
    // Boxed, so that only connections that end hold the memory for it.
    let reason = Box::pin(driver.leave(reason, &scope.kill)).await;
    ending.tell(reason);
    Box::pin(handlers::finish(handlers, &scope.kill)).await;
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
    last_burst: u64,
    /// How many packets are likely to follow: whoever took one will ask again.
    expected: u64,
    deferrals: u32,
    /// How many packets there were to write when that was put off last.
    deferred: u64,
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
            last_burst: 0,
            expected: 0,
            deferrals: 0,
            deferred: 0,
        }
    }
}

/// A time that is not reached, for a timer that nobody waits for.
fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}
