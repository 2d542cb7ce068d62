//! Connecting to servers, with timeouts and retries.

use std::{fmt, io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, timeout},
};
use tracing::{Instrument, debug_span, info};

use crate::{
    Address, Backoff, CloseReason, Config, ConnectRetry, Connection, Dispatch, Engine, InvalidSetting, Router,
    RouterInfo, SocketOptions, ToAddress,
    connection::ConnectionShared,
    driver::{BufferedStream, DriverScope, drive},
    net::{IoStream, TlsHandshake, connect},
    proto::{self, Role},
    task::AbortOnDropHandle,
};

/// Connects to servers, and handles their packets with a router.
///
/// ```no_run
/// use std::time::Duration;
///
/// use frisbee::{Client, Operation, Packet, HandlerTable};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// const NEWS: Operation = Operation::new(26).unwrap();
/// let router = HandlerTable::new().on(NEWS, async |packet: Packet| println!("{:?}", packet.content));
/// let connection = Client::new(router).timeout(Duration::from_secs(2)).connect("tcp://localhost:7300").await?;
/// connection.closed().await;
/// # Ok(())
/// # }
/// ```
pub struct Client<R> {
    router: Arc<R>,
    pub(crate) settings: DialSettings,
}

/// Settings shared by all connections of a client, independent of its router.
#[derive(Clone)]
pub(crate) struct DialSettings {
    config: Arc<Config>,
    dispatch: Dispatch,
    engine: Engine,
    sockets: SocketOptions,
    timeout: Duration,
    retry: ConnectRetry,
    checks_peer: bool,
    /// `true` if this side closes connections when the peer asks for it, even if the router does not.
    leaves: bool,
    pub(crate) secure: Option<TlsHandshake>,
}

/// The target of a connect, with the engine and the router's facts for the connection.
#[derive(Clone)]
pub(crate) struct DialTarget {
    pub(crate) address: Address,
    engine: Engine,
    /// Facts returned by the router.
    info: Arc<RouterInfo>,
}

impl<R: Router> Client<R> {
    /// Creates a client with `router` as the handler of packets from the server. The router `()` drops them.
    pub fn new(router: R) -> Self {
        let settings = DialSettings {
            config: Arc::default(),
            dispatch: Dispatch::default(),
            engine: Engine::default(),
            sockets: SocketOptions::default(),
            timeout: Duration::from_secs(1),
            retry: ConnectRetry::default(),
            checks_peer: false,
            leaves: false,
            secure: None,
        };
        Self { router: Arc::new(router), settings }
    }

    /// Creates a client with the same settings and a different router.
    pub fn with_router<T: Router>(&self, router: T) -> Client<T> {
        Client { router: Arc::new(router), settings: self.settings.clone() }
    }

    /// Sets the limits and timers of the connection.
    pub fn config(mut self, config: Config) -> Self {
        self.settings.config = Arc::new(config);
        self
    }

    /// Sets how handlers run. Default [`Dispatch::InPlace`]. A limit applies to each connection separately.
    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.settings.dispatch = dispatch;
        self
    }

    /// Sets the threads that serve the connections. Default [`Engine::Tokio`].
    ///
    /// [`Engine::Tokio`] and [`Engine::Auto`] use the current runtime. All other engines use their own threads, one per
    /// core, shared by all clients of the process. Using a connection from any other thread costs two thread switches
    /// each time; tasks spawned on [`Connection::runtime`] avoid this. Connections created on a thread of an io_uring
    /// engine stay on that thread.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.settings.engine = engine;
        self
    }

    /// Sets the socket options.
    pub fn sockets(mut self, sockets: SocketOptions) -> Self {
        self.settings.sockets = sockets;
        self
    }

    /// Limits the time of one attempt, including the TLS handshake. Default 1 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets the number of attempts and the pauses between them.
    pub fn retry(mut self, retry: ConnectRetry) -> Self {
        self.settings.retry = retry;
        self
    }

    /// Makes connections announce that this side closes them when asked to leave.
    pub(crate) fn leaving(mut self) -> Self {
        self.settings.leaves = true;
        self
    }

    pub(crate) fn first_pause(&self) -> Duration {
        self.settings.retry.pause
    }

    /// Returns an error for the first setting that makes every connection impossible, such as a limit of zero.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("timeout", &self.settings.timeout, "no attempt to connect could ever succeed")?;
        self.settings.sockets.check()?;
        self.settings.config.check()
    }

    /// Makes [`connect`](Self::connect) send a PING and check the answer of the peer.
    ///
    /// A peer that does not speak frisbee, or expects TLS, is then an error of connecting instead of an error of the
    /// first packet. Takes one round trip. A peer that stays silent for half a second is accepted.
    pub fn check_peer(mut self) -> Self {
        self.settings.checks_peer = true;
        self
    }

    /// Connects to an address such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`.
    ///
    /// The threads of the [engine](Self::engine) serve the connection. It closes when the handle and its clones are
    /// dropped.
    ///
    /// Each failed attempt is logged at INFO, with the error and the pause before the next attempt. Permanent failures
    /// are not retried: invalid settings or addresses, a TLS failure, a peer with another protocol, a missing
    /// permission (such as for a Unix socket), or a host name that does not exist. Temporary failures are retried: a
    /// server that refuses, resets or does not answer, a temporary resolver failure, and a missing Unix socket file,
    /// because its server may be about to start.
    ///
    /// # Errors
    ///
    /// Invalid [settings](Self::check) and an error of [`Router::describe`] are returned before the first attempt.
    /// Otherwise the error is that of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the attempt.
    pub async fn connect(&self, address: impl ToAddress) -> Result<Connection, ConnectError> {
        let target = self.begin(address)?;
        let address = &target.address;
        let ConnectRetry { attempts: attempts_max, pause } = self.settings.retry;
        let (mut attempts, mut backoff) = (0, Backoff::new(pause));
        loop {
            let error = match self.attempt(&target, attempts).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            attempts += 1;
            if attempts >= attempts_max || error.is_final() {
                info!(%address, attempt = attempts, error = %error.source, "cannot connect");
                return Err(error);
            }
            let pause = backoff.pause();
            info!(%address, attempt = attempts, error = %error.source, ?pause, "cannot connect, trying again after a pause");
            sleep(pause).await;
        }
    }

    /// Resolves the address syntax, the engine and the router's facts, and checks the settings.
    pub(crate) fn begin(&self, address: impl ToAddress) -> Result<DialTarget, ConnectError> {
        let address = match address.to_address() {
            Ok(address) => address,
            Err(source) => return Err(ConnectError { address: Address::Unnamed, attempts: 0, source }),
        };
        let found = self.describe().and_then(|info| match self.settings.engine.choose()? {
            // For a client, `Auto` means the runtime of its callers. Separate threads would cost each call two thread
            // switches.
            Engine::PerCore if self.settings.engine == Engine::Auto => Ok((info, Engine::Tokio)),
            engine => Ok((info, engine)),
        });
        match found {
            Ok((info, engine)) => Ok(DialTarget { address, engine, info }),
            Err(source) => Err(ConnectError { address, attempts: 0, source }),
        }
    }

    /// Makes one attempt to connect, after `number` previous attempts.
    pub(crate) async fn attempt(&self, target: &DialTarget, number: usize) -> Result<Connection, ConnectError> {
        let limit = self.settings.timeout;
        let source = match timeout(limit, self.attempt_on(target, number)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")),
        };
        Err(ConnectError { address: target.address.clone(), attempts: number + 1, source })
    }

    /// Connects over an existing stream, on the current tokio runtime. Adds TLS if TLS is configured with a name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    pub async fn attach(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Connection, ConnectError> {
        self.attach_to(stream, Address::Unnamed).await
    }

    /// Connects over an existing stream like [`attach`](Self::attach), with `peer` as the address of the peer.
    ///
    /// TLS expects a certificate for this address, unless another name is configured.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    pub async fn attach_to(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        peer: impl Into<Address>,
    ) -> Result<Connection, ConnectError> {
        let address = peer.into();
        let info = match self.describe() {
            Ok(info) => info,
            Err(source) => return Err(ConnectError { address, attempts: 0, source }),
        };
        let wire = IoStream::Other(Box::new(stream));
        let start = self.settings.start(self.router.clone(), info, wire, (Address::Unnamed, address.clone()), &address);
        let started = timeout(self.settings.timeout, start).await;
        let started = started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        started.map_err(|source| ConnectError { address, attempts: 1, source })
    }

    /// Returns the facts of the router, or an error if the settings or the router make every connection impossible.
    fn describe(&self) -> io::Result<Arc<RouterInfo>> {
        self.check()?;
        self.router.describe().map(Arc::new).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    async fn attempt_on(&self, target: &DialTarget, number: usize) -> io::Result<Connection> {
        let (router, settings, target) = (self.router.clone(), self.settings.clone(), target.clone());
        let engine = target.engine;
        let attempt = async move { settings.attempt(router, &target, number).await };
        match engine.runtime()? {
            None => attempt.await,
            // Dropping the future must also abort the attempt on the other runtime.
            Some(runtime) => AbortOnDropHandle::new(runtime.spawn(attempt)).await?,
        }
    }
}

impl DialSettings {
    async fn attempt<R: Router>(&self, router: Arc<R>, target: &DialTarget, number: usize) -> io::Result<Connection> {
        let DialTarget { address, info, .. } = target;
        let (wire, local, peer) = connect(address, &self.sockets, number).await?;
        let connection = self.start(router, info.clone(), wire, (local, peer), address).await?;
        if self.checks_peer {
            connection.shared().recognize_peer(SILENCE_BELIEVED).await.map_err(no_frisbee)?;
        }
        Ok(connection)
    }

    /// Performs the TLS handshake, if configured, and starts the connection. The peer has to prove the name in `asked`.
    async fn start<R: Router>(
        &self,
        router: Arc<R>,
        info: Arc<RouterInfo>,
        wire: IoStream,
        (local, peer): (Address, Address),
        asked: &Address,
    ) -> io::Result<Connection> {
        let credentials = wire.peer_credentials();
        let (wire, identity) = match &self.secure {
            None => (wire.onto_ring()?, None),
            Some(secure) => {
                let secured = secure.handshake(wire, asked).await?;
                (secured.wire, secured.identity)
            }
        };
        let now = Instant::now().into_std();
        let mut proto = proto::Connection::new(Role::Client, self.config.clone(), now);
        if self.leaves {
            proto.promise_to_leave();
        }
        let span = debug_span!("connection", %peer);
        let shared = Arc::new(ConnectionShared::new(proto, self.config.clone(), local, peer, identity, now));
        let connection = Connection::new(shared.clone());
        if let Some(credentials) = credentials {
            // Cannot fail: no value of this type has been attached yet.
            let _ = connection.set_state(credentials);
        }
        let scope = DriverScope::new(info, self.dispatch, None);
        let begun = Box::new(BufferedStream { wire, first: BytesMut::new() });
        // On the current runtime. With an engine of separate threads, the attempt already runs on one of them.
        tokio::spawn(drive(begun, connection, router, scope).instrument(span));
        Ok(Connection::owning(shared))
    }
}

impl<R> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("timeout", &self.settings.timeout)
            .field("retry", &self.settings.retry)
            .finish_non_exhaustive()
    }
}

/// Returns `true` if another attempt would fail in the same way.
fn is_final(address: &Address, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::Unsupported
        | io::ErrorKind::PermissionDenied => true,
        // A host name that does not exist. A missing Unix socket file appears once its server starts.
        io::ErrorKind::NotFound => matches!(address, Address::Host { .. }),
        _ => false,
    }
}

/// Converts the close reason of a reachable peer that does not speak frisbee.
fn no_frisbee(reason: CloseReason) -> io::Error {
    match reason {
        CloseReason::Protocol(_) => io::Error::new(io::ErrorKind::InvalidData, reason),
        CloseReason::Peer => {
            let text = "the peer closed the connection before it answered: it may expect TLS, speak another protocol, or \
                        accept no more connections";
            io::Error::new(io::ErrorKind::ConnectionAborted, text)
        }
        reason => io::Error::other(reason),
    }
}

const SILENCE_BELIEVED: Duration = Duration::from_millis(500);

/// The error of a failed connect, taken from its last attempt.
#[derive(Debug)]
pub struct ConnectError {
    address: Address,
    attempts: usize,
    source: io::Error,
}

impl ConnectError {
    /// Creates the error of a failed connect, for transports on top of frisbee.
    pub fn new(address: Address, attempts: usize, source: io::Error) -> Self {
        Self { address, attempts, source }
    }

    /// Creates the error of an established connection that could not be set up for use.
    pub(crate) fn of_setup(address: &Address, attempts: usize, source: io::Error) -> Self {
        Self { address: address.clone(), attempts, source }
    }

    /// Returns the number of attempts.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// Returns `true` if another attempt would fail in the same way, so none was made. See [`Client::connect`].
    pub fn is_final(&self) -> bool {
        is_final(&self.address, &self.source)
    }

    /// Returns the I/O error kind of the last attempt.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {} (attempts: {}): {}", self.address, self.attempts, self.source)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
