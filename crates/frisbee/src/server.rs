//! Accepting connections and giving each to a router, until told to stop.

use std::{
    fmt,
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread::JoinHandle,
    time::Duration,
};

use slab::Slab;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, debug_span, info, warn};

use crate::{
    Address, CloseReason, Config, Connection, Dispatch, Engine, InvalidSetting, ListenOn, ListenTarget, Router,
    connection::Shared,
    driver::{Bound, Listener, Scope, Wire, drive},
    engine::cores,
    proto::{self, Counters, Role},
    secure::Secure,
};

/// A server that is running. Dropping it frees its address and cuts every connection; [`shutdown`](Self::shutdown) ends it
/// gently.
///
/// ```
/// use std::time::Duration;
///
/// use frisbee::{Client, Operation, Packet, Server, Table};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// const ECHO: Operation = Operation::new(20).unwrap();
/// let router = Table::new().on(ECHO, async |packet: Packet| packet);
/// let server = Server::builder(router).bind("tcp://127.0.0.1:0").await?;
///
/// let client = Client::new(()).connect(server.local_addr()).await?;
/// client.send(Packet::new(1, ECHO, "hello")).await?;
/// server.shutdown(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    hub: Arc<Hub>,
    /// At least one.
    local: Vec<Address>,
}

/// What a server will be like. Made by [`Server::builder`].
pub struct ServerBuilder<R> {
    router: Arc<R>,
    config: Config,
    dispatch: Dispatch,
    engine: Engine,
    sockets: SocketOptions,
    connections_max: usize,
    handlers_max: usize,
    pub(crate) secure: Option<Secure>,
}

/// How sockets are set up.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Sends small packets at once instead of waiting for more to share a segment. Default true.
    pub nodelay: bool,
    /// TCP keepalive with this period. Default 3 minutes, as in the Go implementation.
    pub keepalive: Option<Duration>,
    /// Connections the kernel holds for a server that is slow to accept. Default 4096; the system may have a lower
    /// bound of its own.
    pub backlog: u32,
    /// Lets several servers share a TCP port, if all of them say so. Default false: a port that somebody listens on is
    /// an error, with the engines that have a listener for each core as well.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
    }
}

impl SocketOptions {
    /// Finds the first option that no socket would take.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match self.keepalive {
            Some(period) if period < Duration::from_secs(1) => {
                let why = format!("of {period:?} is too short: sockets take a second and more (None sends none)");
                Err(InvalidSetting::new("keepalive", why))
            }
            _ => Ok(()),
        }
    }
}

impl<R: Router> ServerBuilder<R> {
    /// The same with another router.
    pub fn router<T: Router>(self, router: T) -> ServerBuilder<T> {
        ServerBuilder {
            router: Arc::new(router),
            config: self.config,
            dispatch: self.dispatch,
            engine: self.engine,
            sockets: self.sockets,
            connections_max: self.connections_max,
            handlers_max: self.handlers_max,
            secure: self.secure,
        }
    }

    /// The limits and timers of each connection.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// How handlers run. Default [`Dispatch::InPlace`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// Which threads serve connections. Default [`Engine::Tokio`].
    pub fn engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// How sockets are set up.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        Self { sockets, ..self }
    }

    /// Connections open at once, handshakes included. Default 65 536. More are closed as soon as they are accepted.
    pub fn connections_max(self, connections_max: usize) -> Self {
        Self { connections_max, ..self }
    }

    /// Handlers under way at once over all connections. Default 65 536. At the limit, packets wait. A handler in
    /// place counts from its first wait on, so each connection may be one ahead.
    pub fn handlers_max(self, handlers_max: usize) -> Self {
        Self { handlers_max, ..self }
    }

    /// Finds the first setting under which no connection could be served: a limit of zero, for example.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("connections_max", &self.connections_max, "every connection would be refused")?;
        InvalidSetting::refuse_zero("handlers_max", &self.handlers_max, "no handler could ever start")?;
        self.sockets.check()?;
        self.config.check()
    }

    /// Listens at an address, such as `"tcp://127.0.0.1:7000"` or `"unix:/run/app.sock"`, at several, or with listeners
    /// that exist: everything that is [`ListenOn`]. Serves from now on.
    ///
    /// A port or path on which somebody else listens is an error of kind [`AddrInUse`](io::ErrorKind::AddrInUse), with
    /// every engine, unless [`SocketOptions::reuse_port`] shares the port. The file of a Unix socket that a server left
    /// behind when it died is replaced.
    ///
    /// # Errors
    ///
    /// [Settings](Self::check) under which nothing could be served, a router that [refuses](Router::check), an address
    /// that is no good or taken, threads or rings that cannot be had. Nothing is left of the server then: no thread, no
    /// socket, no file. No connection was served.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a server if the future is dropped.
    pub async fn bind(mut self, on: impl ListenOn) -> io::Result<Server> {
        self.check()?;
        self.router.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let targets = on.into_targets()?;
        self.engine = self.engine.choose()?;
        if self.engine == Engine::Uring && self.secure.is_some() {
            info!("connections with TLS are served without io_uring");
        }
        let sockets = self.sockets.clone();
        let threads = match self.engine {
            Engine::Tokio => 1,
            _ => cores(),
        };
        let mut bound = Vec::new();
        for ListenTarget(target) in targets {
            let name = target.to_string();
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            bound.push((Bound::bind(target, &sockets, threads).await.map_err(named)?, name));
        }
        let hub = Arc::new(self.into_hub());
        let starting = Starting::new(&hub, threads)?;
        let (mut local, mut listeners) = (Vec::new(), Vec::new());
        for (bound, name) in bound {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"));
            let (address, on_runtimes) = bound.listen(&sockets, &starting.runtimes).await.map_err(named)?;
            debug!(local = %address, "listening");
            local.push(address);
            listeners.extend(on_runtimes);
        }
        starting.succeed();
        for (runtime, listener) in listeners {
            runtime.spawn(hub.begin_accepting(listener));
        }
        Ok(Server { hub, local })
    }

    /// Serves only what [`Server::attach`] is given, on the current tokio runtime.
    ///
    /// # Panics
    ///
    /// Panics if [`bind`](Self::bind) would refuse the [settings](Self::check) or the [router](Router::check).
    pub fn without_listener(self) -> Server {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        if let Err(error) = self.router.check() {
            panic!("{error}");
        }
        Server { hub: Arc::new(Self { engine: Engine::Tokio, ..self }.into_hub()), local: vec![Address::Unnamed] }
    }

    fn into_hub(self) -> Hub {
        let (router, secure) = (self.router, self.secure);
        let scope = Scope::new(self.dispatch, self.handlers_max);
        Hub {
            config: Arc::new(self.config),
            engine: self.engine,
            connections_max: self.connections_max,
            scope,
            draining: CancellationToken::new(),
            listeners: Mutex::default(),
            seats: Mutex::default(),
            emptied: Notify::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            start: Box::new(move |seat, wire, local, peer| {
                let span = debug_span!("connection", %peer);
                let serving = serve(seat, wire, local, peer, router.clone(), secure.clone());
                tokio::spawn(serving.instrument(span));
            }),
        }
    }
}

impl Server {
    /// A server whose connections are handled by `router`.
    pub fn builder<R: Router>(router: R) -> ServerBuilder<R> {
        ServerBuilder {
            router: Arc::new(router),
            config: Config::default(),
            dispatch: Dispatch::default(),
            engine: Engine::default(),
            sockets: SocketOptions::default(),
            connections_max: 65_536,
            handlers_max: 65_536,
            secure: None,
        }
    }

    /// Returns the address it listens on, with the port that was really bound: the first of several.
    pub fn local_addr(&self) -> &Address {
        &self.local[0]
    }

    /// Returns all addresses it listens on, in the order given to [`bind`](ServerBuilder::bind).
    pub fn local_addrs(&self) -> &[Address] {
        &self.local
    }

    /// Which threads serve it: what [`Engine::Auto`] came to, if that was asked for.
    pub fn engine(&self) -> Engine {
        self.hub.engine
    }

    /// Serves a stream of the user's own, on the current tokio runtime. TLS comes on top if it is configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.attach_from(stream, Address::Unnamed);
    }

    /// Serves a stream of the user's own as [`attach`](Self::attach) does, and takes this for the address of the peer: what
    /// an accept, a proxy or a tunnel told.
    pub fn attach_from(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: impl Into<Address>) {
        self.hub.clone().admit(Wire::Other(Box::new(stream)), self.local_addr().clone(), peer.into());
    }

    /// The connections that are open.
    pub fn connections(&self) -> Vec<Connection> {
        self.hub.seats().open.iter().filter_map(|(_, connection)| connection.clone()).collect()
    }

    /// What the server did so far and is doing now.
    pub fn metrics(&self) -> ServerMetrics {
        let seats = self.hub.seats();
        let mut metrics = ServerMetrics {
            connections: seats.open.len(),
            accepted: self.hub.accepted.load(Ordering::Relaxed),
            refused: self.hub.refused.load(Ordering::Relaxed),
            handshakes_failed: self.hub.handshakes_failed.load(Ordering::Relaxed),
            counters: seats.past,
            outbox_len: 0,
            handlers: 0,
        };
        for connection in seats.open.iter().filter_map(|(_, connection)| connection.as_ref()) {
            let one = connection.metrics();
            metrics.counters += one.counters;
            metrics.outbox_len += one.outbox_len;
            metrics.handlers += one.handlers;
        }
        metrics
    }

    /// Stops accepting, lets the handlers under way finish and their replies arrive, then closes. What is left after
    /// `limit` is cut; [`Duration::MAX`] waits as long as it takes. Returns how many connections that were.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the server, and every connection is cut.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let hub = &self.hub;
        hub.stop_accepting();
        for connection in self.connections() {
            connection.shared().drain();
        }
        // Whether it was enough shows below.
        let _ = timeout(limit, hub.wait_until_empty()).await;
        let left = hub.seats().open.len();
        hub.cut();
        // Only a handler that blocks its thread can still be there after this.
        let _ = timeout(CUT_GRACE, hub.wait_until_empty()).await;
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hub.cut();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

/// A snapshot of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Connections open now, handshakes included.
    pub connections: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: u64,
    /// What went through all connections, past and present.
    pub counters: Counters,
    /// Bytes that wait to be written.
    pub outbox_len: usize,
    /// Handlers under way that were not ready at once.
    pub handlers: usize,
}

/// What the acceptors, the connections and the handle of one server have in common.
struct Hub {
    config: Arc<Config>,
    engine: Engine,
    connections_max: usize,
    scope: Scope,
    draining: CancellationToken,
    /// The place of each listener. Whoever empties it closes the listener at once, wherever its task is.
    listeners: Mutex<Vec<Arc<ListenerPlace>>>,
    seats: Mutex<Seats>,
    emptied: Notify,
    accepted: AtomicU64,
    refused: AtomicU64,
    handshakes_failed: AtomicU64,
    /// Spawns the task of one connection; the only part that knows the router's type.
    start: Box<dyn Fn(Seat, Wire, Address, Address) + Send + Sync>,
}

#[derive(Default)]
struct Seats {
    /// `None` during a handshake.
    open: Slab<Option<Connection>>,
    past: Counters,
}

/// One connection's place among those a server may have.
struct Seat {
    hub: Arc<Hub>,
    key: usize,
}

impl Hub {
    /// Accepts until the server shuts down.
    fn begin_accepting(self: &Arc<Self>, listener: Listener) -> impl Future<Output = ()> + Send + use<> {
        let place = Arc::new(ListenerPlace(Mutex::new(Some(listener))));
        lock(&self.listeners).push(place.clone());
        self.clone().accept(Accepting(place))
    }

    async fn accept(self: Arc<Self>, accepting: Accepting) {
        let mut pause = ACCEPT_PAUSE_MIN;
        while let Some(Some(accepted)) = self.draining.run_until_cancelled(accepting.accept()).await {
            match accepted {
                Ok((wire, local, peer)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    self.clone().admit(wire, local, peer);
                }
                Err(error) if is_about_one_connection(&error) => {
                    debug!(%error, "a connection was gone before it was accepted")
                }
                Err(error) => {
                    warn!(%error, ?pause, "cannot accept, trying again after a pause");
                    self.draining.run_until_cancelled(sleep(pause)).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    /// Closes the listeners before it returns.
    fn stop_accepting(&self) {
        self.draining.cancel();
        for place in std::mem::take(&mut *lock(&self.listeners)) {
            place.close();
        }
    }

    fn admit(self: Arc<Self>, wire: Wire, local: Address, peer: Address) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut seats = self.seats();
        if seats.open.len() >= self.connections_max || self.draining.is_cancelled() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            debug!(%peer, limit = self.connections_max, "connection refused");
            return;
        }
        let key = seats.open.insert(None);
        drop(seats);
        let seat = Seat { hub: self.clone(), key };
        (self.start)(seat, wire, local, peer);
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        lock(&self.seats)
    }

    async fn wait_until_empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.seats().open.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn cut(&self) {
        self.stop_accepting();
        self.scope.cut.cancel();
        let open: Vec<Connection> = self.seats().open.iter().filter_map(|(_, connection)| connection.clone()).collect();
        for connection in open {
            connection.shared().fail(CloseReason::Shutdown);
        }
    }
}

/// Where a listener is until it is closed.
struct ListenerPlace(Mutex<Option<Listener>>);

impl ListenerPlace {
    fn close(&self) {
        // The lock is never held across a wait, so whoever accepts just now is done at once. The listener is closed under
        // the lock: another thread that closes it too must not return before it is closed.
        *lock(&self.0) = None;
    }
}

/// The task that accepts. If it ends because its runtime does, nobody would answer at the address any more.
struct Accepting(Arc<ListenerPlace>);

impl Accepting {
    /// Waits for the next connection. `None` once the listener is closed.
    async fn accept(&self) -> Option<io::Result<(Wire, Address, Address)>> {
        poll_fn(|cx| match &mut *lock(&self.0.0) {
            Some(listener) => listener.poll_accept(cx).map(Some),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The threads of a server that is about to serve. Unless that succeeds, they have ended when this is dropped.
struct Starting {
    hub: Arc<Hub>,
    /// Where to listen.
    runtimes: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl Starting {
    fn new(hub: &Arc<Hub>, threads: usize) -> io::Result<Self> {
        let mut starting = Self { hub: hub.clone(), runtimes: Vec::new(), threads: Vec::new() };
        if hub.engine == Engine::Tokio {
            starting.runtimes.push(Handle::current());
            return Ok(starting);
        }
        for core in 0..threads {
            let on_thread = hub.clone();
            let started = hub.engine.start(core, async move {
                on_thread.scope.cut.cancelled().await;
                // The connections of this thread have been told; this lets them hear it.
                let _ = timeout(CUT_GRACE, on_thread.wait_until_empty()).await;
            });
            let (runtime, thread) = started.map_err(|error| {
                let engine = hub.engine;
                io::Error::new(error.kind(), format!("cannot start the threads of the engine {engine}: {error}"))
            })?;
            starting.runtimes.push(runtime);
            starting.threads.push(thread);
        }
        Ok(starting)
    }

    fn succeed(mut self) {
        self.threads.clear();
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.hub.scope.cut.cancel();
        for thread in self.threads.drain(..) {
            // There is nothing for it to do, so it ends at once. A panic of it was reported already.
            let _ = thread.join();
        }
    }
}

impl Seat {
    fn take(&self, connection: &Connection) {
        self.hub.seats().open[self.key] = Some(connection.clone());
        // A shutdown may have begun during the handshake.
        if self.hub.draining.is_cancelled() {
            connection.shared().drain();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.hub.seats();
        let connection = seats.open.remove(self.key);
        if let Some(connection) = &connection {
            seats.past += connection.metrics().counters;
        }
        let is_empty = seats.open.is_empty();
        drop(seats);
        if is_empty {
            self.hub.emptied.notify_waiters();
        }
    }
}

/// Takes a connection through its handshake and its life.
async fn serve<R: Router>(
    seat: Seat,
    wire: Wire,
    local: Address,
    peer: Address,
    router: Arc<R>,
    secure: Option<Secure>,
) {
    let hub = &seat.hub;
    let mut identity = None;
    let credentials = wire.peer_credentials();
    let wire = match secure {
        None => match wire.onto_ring() {
            Ok(wire) => wire,
            Err(error) => {
                debug!(%error, "the connection was gone before it was served");
                return;
            }
        },
        Some(secure) => {
            let handshake = timeout(hub.config.handshake_max, secure.handshake(wire, &peer));
            match hub.scope.cut.run_until_cancelled(handshake).await {
                Some(Ok(Ok((wire, peer_identity)))) => {
                    identity = peer_identity;
                    wire
                }
                failed => {
                    hub.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    let error = failed.map(|result| result.map(|handshake| handshake.err()));
                    debug!(?error, "handshake failed");
                    return;
                }
            }
        }
    };
    let proto = proto::Connection::new(Role::Server, hub.config.clone(), Instant::now().into_std());
    let connection = Connection::new(Arc::new(Shared::new(proto, hub.config.clone(), local, peer, identity)));
    if let Some(credentials) = credentials {
        connection.set_state(credentials);
    }
    seat.take(&connection);
    drive(wire, connection, router, hub.scope.clone()).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | NotConnected)
}

const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
const CUT_GRACE: Duration = Duration::from_millis(100);
