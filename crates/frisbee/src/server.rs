//! Accepting connections and giving each to a router, until told to stop.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use slab::Slab;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, debug_span, info, warn};

use crate::{
    Address, CloseReason, Config, Connection, Dispatch, Engine, Router, ToAddress,
    connection::Shared,
    driver::{Bound, Listener, Scope, Wire, drive},
    engine::cores,
    proto::{self, Counters, Role},
    secure::Secure,
};

/// A server that is running. Dropping it cuts every connection; [`shutdown`](Self::shutdown) ends it gently.
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
    local: Address,
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
    /// Lets several listeners share a TCP port. Default false; the engines with a thread for each core set it.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
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

    /// Listens at an address, such as `"tcp://127.0.0.1:7000"` or `"unix:/run/app.sock"`, and serves from now on.
    pub async fn bind(mut self, address: impl ToAddress) -> io::Result<Server> {
        let address = address.to_address()?;
        self.engine = self.engine.choose()?;
        if self.engine == Engine::Uring && self.secure.is_some() {
            info!("connections with TLS are served without io_uring");
        }
        self.sockets.reuse_port |= self.engine != Engine::Tokio;
        let bound = Bound::bind(&address, &self.sockets)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        let local = bound.local_addr()?;
        let hub = Arc::new(self.into_hub());
        match hub.engine {
            Engine::Tokio => {
                tokio::spawn(hub.begin_accepting(bound.listen()?));
            }
            _ => start_cores(&hub, bound)?,
        }
        debug!(%local, "listening");
        Ok(Server { hub, local })
    }

    /// Serves only what [`Server::attach`] is given, on the current tokio runtime.
    pub fn without_listener(self) -> Server {
        Server { hub: Arc::new(Self { engine: Engine::Tokio, ..self }.into_hub()), local: Address::Unnamed }
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

    /// Where it listens, with the port that was really bound.
    pub fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Which threads serve it: what [`Engine::Auto`] came to, if that was asked for.
    pub fn engine(&self) -> Engine {
        self.hub.engine
    }

    /// Serves a stream of the user's own, on the current tokio runtime. TLS comes on top if it is configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.hub.clone().admit(Wire::Other(Box::new(stream)), self.local.clone(), Address::Unnamed);
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
    /// `limit` is cut. Returns how many connections that were.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let hub = &self.hub;
        let deadline = Instant::now() + limit;
        hub.draining.cancel();
        for connection in self.connections() {
            connection.shared().drain();
        }
        // Whether it was enough shows below.
        let _ = timeout_at(deadline, hub.wait_until_empty()).await;
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
        f.debug_struct("Server").field("local", &self.local).finish_non_exhaustive()
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
    /// Listeners that are not closed yet.
    listeners: usize,
}

impl Seats {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.listeners == 0
    }
}

/// One connection's place among those a server may have.
struct Seat {
    hub: Arc<Hub>,
    key: usize,
}

impl Hub {
    /// Accepts until the server shuts down.
    fn begin_accepting(self: &Arc<Self>, listener: Listener) -> impl Future<Output = ()> + Send + use<> {
        self.seats().listeners += 1;
        self.clone().accept(listener)
    }

    async fn accept(self: Arc<Self>, mut listener: Listener) {
        let mut pause = ACCEPT_PAUSE_MIN;
        while let Some(accepted) = self.draining.run_until_cancelled(listener.accept()).await {
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
        drop(listener);
        self.seats().listeners -= 1;
        self.emptied.notify_waiters();
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
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_until_empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.seats().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn cut(&self) {
        self.draining.cancel();
        self.scope.cut.cancel();
        let open: Vec<Connection> = self.seats().open.iter().filter_map(|(_, connection)| connection.clone()).collect();
        for connection in open {
            connection.shared().fail(CloseReason::Shutdown);
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
        let is_empty = seats.is_empty();
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
    seat.take(&connection);
    drive(wire, connection, router, hub.scope.clone()).await;
}

/// Starts a thread with a runtime and a listener for each core.
fn start_cores(hub: &Arc<Hub>, bound: Bound) -> io::Result<()> {
    let mut listeners = Vec::with_capacity(cores());
    for _ in 1..cores() {
        listeners.extend(bound.share()?);
    }
    listeners.push(bound);
    for (core, bound) in listeners.into_iter().enumerate() {
        let on_thread = hub.clone();
        hub.engine.start(core, move || {
            let accepting = on_thread.begin_accepting(bound.listen()?);
            let serving = async move {
                accepting.await;
                on_thread.scope.cut.cancelled().await;
                // The connections of this thread have been told; this lets them hear it.
                let _ = timeout(CUT_GRACE, on_thread.wait_until_empty()).await;
            };
            Ok((serving, ()))
        })?;
    }
    Ok(())
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | NotConnected)
}

const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
const CUT_GRACE: Duration = Duration::from_millis(100);
