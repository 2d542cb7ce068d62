//! Connecting, with time limits and retries.

use std::{fmt, io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, debug_span, info};

use crate::{
    Address, Backoff, CloseReason, Config, Connection, Dispatch, Engine, InvalidSetting, Router, RouterInfo,
    SocketOptions, ToAddress,
    driver::{Begun, Scope, drive},
    net::{Secure, Wire, connect},
    proto::{self, Role},
    shared::Shared,
};

/// Makes connections to servers, and has a router handle what they send.
///
/// ```no_run
/// use std::time::Duration;
///
/// use frisbee::{Client, Operation, Packet, Table};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// const NEWS: Operation = Operation::new(26).unwrap();
/// let router = Table::new().on(NEWS, async |packet: Packet| println!("{:?}", packet.content));
/// let connection = Client::new(router).timeout(Duration::from_secs(2)).connect("tcp://localhost:7300").await?;
/// connection.closed().await;
/// # Ok(())
/// # }
/// ```
pub struct Client<R> {
    router: Arc<R>,
    pub(crate) settings: Settings,
}

/// All that the connections of a client have in common, but for what its router does.
#[derive(Clone)]
pub(crate) struct Settings {
    config: Arc<Config>,
    dispatch: Dispatch,
    engine: Engine,
    sockets: SocketOptions,
    timeout: Duration,
    attempts: usize,
    pause: Duration,
    checks_peer: bool,
    /// True if connections are left by this side when the peer asks for it, whatever the router says.
    leaves: bool,
    pub(crate) secure: Option<Secure>,
}

/// A peer to connect to, and how.
#[derive(Clone)]
pub(crate) struct DialTarget {
    pub(crate) address: Address,
    engine: Engine,
    /// The facts that the router said of itself.
    info: Arc<RouterInfo>,
}

impl<R: Router> Client<R> {
    /// Makes a client whose packets from the server are handled by `router`. `()` drops them all.
    pub fn new(router: R) -> Self {
        let settings = Settings {
            config: Arc::default(),
            dispatch: Dispatch::default(),
            engine: Engine::default(),
            sockets: SocketOptions::default(),
            timeout: Duration::from_secs(1),
            attempts: 10,
            pause: Duration::from_millis(10),
            checks_peer: false,
            leaves: false,
            secure: None,
        };
        Self { router: Arc::new(router), settings }
    }

    /// Makes a client with the same settings and another router.
    pub fn with_router<T: Router>(&self, router: T) -> Client<T> {
        Client { router: Arc::new(router), settings: self.settings.clone() }
    }

    /// Sets the limits and timers of the connection.
    pub fn config(mut self, config: Config) -> Self {
        self.settings.config = Arc::new(config);
        self
    }

    /// Sets how handlers run. Default [`Dispatch::InPlace`]. A limit counts for each connection by itself.
    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.settings.dispatch = dispatch;
        self
    }

    /// Sets the threads that serve the connections. With any but [`Engine::Tokio`], the default, they are threads of
    /// their own that all clients of the process share, one for each core. What uses a connection from another thread
    /// pays for two hops each time; tasks that are spawned on [`Connection::runtime`] do not. Connections that are made
    /// on a thread of an io_uring engine stay on it.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.settings.engine = engine;
        self
    }

    /// Sets how sockets are set up.
    pub fn sockets(mut self, sockets: SocketOptions) -> Self {
        self.settings.sockets = sockets;
        self
    }

    /// Limits the time for one attempt, TLS handshake included. Default 1 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Limits the number of attempts. Default 10; 0 counts as 1.
    pub fn attempts(mut self, attempts: usize) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets the pause after the first failed attempt; see [`Backoff`] for those after it. Default 10 ms.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.settings.pause = pause;
        self
    }

    /// Has connections say that this side leaves them by itself when it is asked to.
    pub(crate) fn leaving(mut self) -> Self {
        self.settings.leaves = true;
        self
    }

    pub(crate) fn first_pause(&self) -> Duration {
        self.settings.pause
    }

    /// Finds the first setting under which no connection could work: a limit of zero, for example.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("timeout", &self.settings.timeout, "no attempt to connect could ever succeed")?;
        self.settings.sockets.check()?;
        self.settings.config.check()
    }

    /// Has [`connect`](Self::connect) send a PING and look at what the peer answers, so that a peer that does not speak
    /// frisbee, or wants TLS, is an error of connecting and not of the first packet. Takes one round trip; a peer that
    /// says nothing for half a second is believed.
    pub fn check_peer(mut self) -> Self {
        self.settings.checks_peer = true;
        self
    }

    /// Connects to an address, such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`. The connection is served by
    /// the threads of the [engine](Self::engine), and closes when the handle and its clones are dropped.
    ///
    /// Each attempt that fails is logged at INFO, with the error and the pause that follows. There is no other attempt
    /// where it would end the same: where settings or the address are no good, TLS fails, the peer speaks something else,
    /// the system forbids it (such as a Unix socket without permission), or the name does not exist. Whatever may pass is
    /// tried again: a server that refuses, resets or does not answer, a resolver that fails for now, and a Unix socket
    /// whose file is not there, because its server may be about to start.
    ///
    /// # Errors
    ///
    /// [Settings](Self::check) under which no connection could work and a router that [refuses](Router::describe) are found
    /// before anything is tried. Otherwise the error is that of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of an attempt if the future is dropped.
    pub async fn connect(&self, address: impl ToAddress) -> Result<Connection, ConnectError> {
        let target = self.begin(address)?;
        let address = &target.address;
        let Settings { attempts: attempts_max, pause, .. } = self.settings;
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

    /// Finds out where to connect to, how, and whether that could work at all.
    pub(crate) fn begin(&self, address: impl ToAddress) -> Result<DialTarget, ConnectError> {
        let address = match address.to_address() {
            Ok(address) => address,
            Err(source) => return Err(ConnectError { address: Address::Unnamed, attempts: 0, source }),
        };
        let found = self.describe().and_then(|info| match self.settings.engine.choose()? {
            // Its callers are where it is made: threads of its own would cost each call two hops.
            Engine::PerCore if self.settings.engine == Engine::Auto => Ok((info, Engine::Tokio)),
            engine => Ok((info, engine)),
        });
        match found {
            Ok((info, engine)) => Ok(DialTarget { address, engine, info }),
            Err(source) => Err(ConnectError { address, attempts: 0, source }),
        }
    }

    /// Makes one attempt to connect, behind this number of others.
    pub(crate) async fn attempt(&self, target: &DialTarget, number: usize) -> Result<Connection, ConnectError> {
        let limit = self.settings.timeout;
        let source = match timeout(limit, self.attempt_on(target, number)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")),
        };
        Err(ConnectError { address: target.address.clone(), attempts: number + 1, source })
    }

    /// Talks over a stream of the user's own, on the current tokio runtime. TLS comes on top if it is configured with
    /// a name.
    ///
    /// # Cancel safety
    ///
    /// The stream is closed if the future is dropped.
    pub async fn attach(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Connection, ConnectError> {
        self.attach_to(stream, Address::Unnamed).await
    }

    /// Talks over a stream of the user's own as [`attach`](Self::attach) does, and takes this for the address of the
    /// peer: TLS expects a certificate for it, unless another name is configured.
    ///
    /// # Cancel safety
    ///
    /// The stream is closed if the future is dropped.
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
        let wire = Wire::Other(Box::new(stream));
        let start = self.settings.start(self.router.clone(), info, wire, (Address::Unnamed, address.clone()), &address);
        let started = timeout(self.settings.timeout, start).await;
        let started = started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        started.map_err(|source| ConnectError { address, attempts: 1, source })
    }

    /// Returns what the router says of itself, or why no connection could work at all.
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
            Some(runtime) => AbortOnDropHandle::new(runtime.spawn(attempt)).await?,
        }
    }
}

impl Settings {
    async fn attempt<R: Router>(&self, router: Arc<R>, target: &DialTarget, number: usize) -> io::Result<Connection> {
        let DialTarget { address, info, .. } = target;
        let (wire, local, peer) = connect(address, &self.sockets, number).await?;
        let connection = self.start(router, info.clone(), wire, (local, peer), address).await?;
        if self.checks_peer {
            connection.shared().recognize_peer(SILENCE_BELIEVED).await.map_err(no_frisbee)?;
        }
        Ok(connection)
    }

    /// Secures and starts a connection. The name that was asked for is the one the peer has to prove.
    async fn start<R: Router>(
        &self,
        router: Arc<R>,
        info: Arc<RouterInfo>,
        wire: Wire,
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
        let shared = Arc::new(Shared::new(proto, self.config.clone(), local, peer, identity, now));
        let connection = Connection::new(shared.clone());
        if let Some(credentials) = credentials {
            // Nothing of this type can be there before.
            let _ = connection.set_state(credentials);
        }
        let scope = Scope::new(info, self.dispatch, usize::MAX);
        let begun = Box::new(Begun { wire, first: BytesMut::new() });
        tokio::spawn(drive(begun, connection, router, scope).instrument(span));
        Ok(Connection::owning(shared))
    }
}

impl<R> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("timeout", &self.settings.timeout)
            .field("attempts", &self.settings.attempts)
            .finish_non_exhaustive()
    }
}

/// Tells whether another attempt would end the same.
fn is_final(address: &Address, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::Unsupported
        | io::ErrorKind::PermissionDenied => true,
        // A name that does not exist. The file of a Unix socket comes with its server.
        io::ErrorKind::NotFound => matches!(address, Address::Host { .. }),
        _ => false,
    }
}

/// Returns the error of a peer that was reached and does not speak frisbee.
fn no_frisbee(reason: CloseReason) -> io::Error {
    match reason {
        CloseReason::Protocol(_) => io::Error::new(io::ErrorKind::InvalidData, reason),
        CloseReason::Peer => {
            let text = "the peer closed the connection without a word: it may expect TLS, speak another protocol, or take \
                        no more connections";
            io::Error::new(io::ErrorKind::ConnectionAborted, text)
        }
        reason => io::Error::other(reason),
    }
}

const SILENCE_BELIEVED: Duration = Duration::from_millis(500);

/// An error of connecting: the one of the last attempt.
#[derive(Debug)]
pub struct ConnectError {
    address: Address,
    attempts: usize,
    source: io::Error,
}

impl ConnectError {
    /// Makes the error of an attempt to connect, for transports on top of frisbee.
    pub fn new(address: Address, attempts: usize, source: io::Error) -> Self {
        Self { address, attempts, source }
    }

    /// Makes the error of a connection to this address that was there, and could not be used.
    pub(crate) fn of_setup(address: &Address, attempts: usize, source: io::Error) -> Self {
        Self { address: address.clone(), attempts, source }
    }

    /// Returns the number of attempts.
    pub fn attempts(&self) -> usize {
        self.attempts
    }

    /// Tells whether another attempt would end the same, so that none followed; see [`Client::connect`].
    pub fn is_final(&self) -> bool {
        is_final(&self.address, &self.source)
    }

    /// Returns the kind of error that the last attempt ended with.
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
