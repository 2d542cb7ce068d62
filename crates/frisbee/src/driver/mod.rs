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
mod states;
mod timer;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use bytes::BytesMut;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use self::{
    backlog::Backlog,
    closing::Remains,
    cork::Cork,
    deadlock::DeadlockDetector,
    handlers::{Handlers, InPlaceRoute},
    inbox::Inbox,
    states::{IdleClose, InputState, OutputState, ReadPace},
    timer::DriverTimer,
};
pub use self::{inbox::keep_freed_memory, permits::HandlerPermit};
pub(crate) use self::{linger::refuse, permits::HandlerPermits, scope::DriverScope};
use crate::{
    CloseReason, Connection, Packet, Router,
    connection::ConnectionShared,
    net::IoStream,
    proto::{self, Transmit},
    router::{Event, RouterInfo, SendOrder},
};

/// The socket of a connection, with the bytes already read from it.
pub(crate) struct BufferedStream {
    pub(crate) wire: IoStream,
    pub(crate) first: BytesMut,
}

/// Runs a connection from its first byte to the end of its last handler.
// `begun` is boxed because a future keeps the space of its arguments even after moving out of them.
pub(crate) fn drive<R: Router>(
    begun: Box<BufferedStream>,
    connection: Connection,
    router: Arc<R>,
    scope: DriverScope,
) -> impl Future<Output = ()> + Send {
    // Before the first poll: a runtime that shuts down drops tasks that it has never polled.
    let driven = DrivenConnection(connection);
    async move {
        debug!("connection opened");
        let connection = &driven.0;
        let shared = connection.shared();
        introduce(&scope.info, &mut shared.core().proto);
        call_hook(connection, || router.event(connection, Event::Opened));
        let ending = CloseNotifier { connection, router: &*router, is_told: false };
        let handlers = Handlers::new(&scope, connection, &router, |packet| router.route(packet, connection));
        let mut driver = Driver::new(begun, shared, handlers);
        let reason = poll_fn(|cx| driver.poll(cx)).await;
        // Boxed, so that only ending connections use memory for this future.
        Box::pin(end(ending, driver, reason, &scope.kill)).await;
    }
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
    mut ending: CloseNotifier<'_, R>,
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
    let (remains, handlers) = driver.into_remains();
    let reason = remains.close(reason, kill).await;
    // Before the last handlers have ended, because this event may be what ends them.
    ending.notify_closed(reason);
    handlers::finish(handlers, kill).await;
    shared.core().handlers = 0;
}

/// A connection that ends with its driver.
struct DrivenConnection(Connection);

impl Drop for DrivenConnection {
    fn drop(&mut self) {
        let shared = self.0.shared();
        if shared.core().ended.is_none() {
            let reason = runtime_ended();
            shared.fail(reason.clone());
            shared.end(reason);
        }
    }
}

/// Announces the end of a connection, also if the driver is dropped because its runtime shuts down.
struct CloseNotifier<'a, R: Router> {
    connection: &'a Connection,
    router: &'a R,
    is_told: bool,
}

impl<R: Router> CloseNotifier<'_, R> {
    fn notify_closed(&mut self, reason: CloseReason) {
        self.is_told = true;
        debug!(%reason, "connection closed");
        self.connection.shared().end(reason.clone());
        call_hook(self.connection, || self.router.event(self.connection, Event::Closed(&reason)));
    }
}

impl<R: Router> Drop for CloseNotifier<'_, R> {
    fn drop(&mut self) {
        if !self.is_told {
            let reason = runtime_ended();
            self.connection.shared().fail(reason.clone());
            self.notify_closed(reason);
        }
    }
}

fn runtime_ended() -> CloseReason {
    CloseReason::Io(Arc::new(io::Error::other("the runtime that served the connection shut down")))
}

fn call_hook(connection: &Connection, hook: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
        let message = handlers::panic_message(&*panic);
        error!(%message, "a hook of the router panicked");
        connection.shared().finish(CloseReason::HandlerPanicked(message));
    }
}

/// State of a connection's task between its turns.
struct Driver<'a, R, P: InPlaceRoute> {
    shared: &'a ConnectionShared,
    wire: IoStream,
    handlers: Handlers<'a, R, P>,
    /// `true` if the queue of replies is full. Results of finished handlers are then not collected.
    holds_replies: bool,
    input: Input,
    /// Packets queued until a handler may start.
    backlog: Backlog,
    deadlock: DeadlockDetector,
    output: Output,
    idle_close: IdleClose,
    timer: DriverTimer,
    turn: Turn,
}

/// Input, from the socket to the handlers.
struct Input {
    inbox: Inbox,
    /// Packets decoded but not dispatched yet. Empty between turns, unless the connection is closing: then they are
    /// converted back to input for a takeover.
    arrived: VecDeque<Packet>,
    /// Wakers of tasks waiting for streams, kept until the core is unlocked.
    woken: Vec<Waker>,
    pace: ReadPace,
    state: InputState,
}

/// Output, from the outbox to the socket.
struct Output {
    cork: Cork,
    batch: Transmit,
    state: OutputState,
}

/// The current or last turn.
struct Turn {
    start: crate::clock::Instant,
    /// `true` if this round has done anything, so that another round may find more work. A handler that finishes at the
    /// end of a turn counts for the next turn.
    is_busy: bool,
    /// Waker of the driver. Moved to the core while the driver sleeps.
    waker: Option<Waker>,
}

impl<'a, R: Router, P: InPlaceRoute> Driver<'a, R, P> {
    #[expect(clippy::boxed_local, reason = "the box is freed here, and not where the future ends")]
    fn new(begun: Box<BufferedStream>, shared: &'a ConnectionShared, handlers: Handlers<'a, R, P>) -> Self {
        let BufferedStream { wire, first } = *begun;
        // Otherwise no timer would show that a content arrives slowly.
        let inbox = Inbox::new(first, shared.config.ping_interval.is_some());
        let first_timeout = shared.core().proto.poll_timeout().map(Instant::from_std);
        Self {
            shared,
            wire,
            handlers,
            holds_replies: false,
            input: Input {
                inbox,
                arrived: VecDeque::new(),
                woken: Vec::new(),
                pace: ReadPace::UpToDate,
                state: InputState::Open,
            },
            backlog: Backlog::default(),
            deadlock: DeadlockDetector::default(),
            output: Output { cork: Cork::default(), batch: Transmit::default(), state: OutputState::Flushed },
            idle_close: IdleClose::Off,
            timer: DriverTimer::new(first_timeout),
            turn: Turn { start: crate::clock::Instant::now(), is_busy: false, waker: None },
        }
    }

    /// Keeps the parts needed to close the socket, and the running handlers.
    fn into_remains(mut self) -> (Remains<'a>, Handlers<'a, R, P>) {
        // In order of arrival: packets in the backlog are older than packets only decoded.
        let packets = self.backlog.take().into_iter().map(|waiting| waiting.packet);
        let packets = packets.chain(self.input.arrived).collect();
        (Remains { shared: self.shared, wire: self.wire, inbox: self.input.inbox, packets }, self.handlers)
    }
}

/// Time for a peer to identify itself or to send the rest of a packet during a shutdown.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
