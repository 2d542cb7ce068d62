//! A proxy to a database with authentication by RPC: clients log in by a call, open a database by another call, and then
//! speak the protocol of the database on the same connection. docs/takeover.md explains each step.
//!
//! The modules are the protocols: [`etcd`], [`postgres`] and [`redis`].

pub mod etcd;
pub mod postgres;
pub mod redis;

use std::{collections::HashMap, error::Error, future::ready, io, sync::Arc, time::Duration};

use frpc::{
    Address, Connection, Drain, Endpoint, Event, Outcome, Packet, ProtocolMatch, Raw, Request, Response, Router,
    Status, Wire,
};
use proto::{LogInRequest, LogInResponse, OpenDatabaseRequest, OpenDatabaseResponse, gate_server::Gate};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional, sink},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};

/// Generated from `proto/gate.proto`.
pub mod proto {
    frpc::include_proto!("gate");
}

/// The parts of the proxy that depend on the protocol of the database.
pub trait Protocol: Send + Sync + 'static {
    /// Logs in at the database with a new connection to it. Returns a token for calls of the client, or an empty text.
    ///
    /// By default the database trusts the proxy.
    fn log_in(
        &self,
        _: &Address,
        _: &Account,
        _: &mut dyn Socket,
    ) -> impl Future<Output = Result<String, Status>> + Send {
        ready(Ok(String::new()))
    }

    /// Checks the first bytes of a client that has opened a database, and passes them on. Returns `false` if the client
    /// was refused.
    fn start(
        &self,
        account: &Account,
        database: &str,
        client: &mut Raw,
        socket: &mut dyn Socket,
    ) -> impl Future<Output = io::Result<bool>> + Send;

    /// Returns whether a new connection begins with the protocol of the database instead of calls.
    fn recognize(&self, first: &[u8]) -> ProtocolMatch;

    /// Refuses a client that speaks the protocol of the database without a login.
    fn refuse(&self, client: &mut Raw) -> impl Future<Output = io::Result<()>> + Send;
}

/// The permissions granted by a token.
#[derive(Clone, Debug)]
pub struct Account {
    /// The database role of its owner.
    pub role: String,
    /// The password of the role, known to the proxy only. PostgreSQL has to trust the proxy without one, for example on
    /// a Unix socket reachable by the proxy only.
    pub password: String,
    /// The databases that may be opened.
    pub databases: Vec<String>,
}

/// Limits on all resources used by clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of simultaneous database connections. Default: 100.
    pub sessions_max: u32,
    /// The maximum time for a connection to log in. Default: 10 s.
    pub log_in_max: Duration,
    /// The maximum time to connect to the database, and to log in there. Default: 5 s.
    pub connect_max: Duration,
    /// The maximum time for a client to start its session with the database. Default: 10 s.
    pub startup_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [log_in_max, connect_max, startup_max] = [10, 5, 10].map(Duration::from_secs);
        Self { sessions_max: 100, log_in_max, connect_max, startup_max }
    }
}

/// The proxy. Cloning is cheap.
///
/// It has three roles: as a service, it authenticates callers; as a router, it closes connections that do not log in;
/// as a wire, it rejects clients that speak the protocol of the database without logging in.
#[derive(Debug)]
pub struct Proxy<P>(Arc<Shared<P>>);

impl<P> Clone for Proxy<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Shared<P> {
    protocol: P,
    database: Address,
    /// Accounts by token. A real service stores digests of the tokens, or checks a signature.
    accounts: HashMap<String, Account>,
    limits: Limits,
    /// One permit per session.
    places: Arc<Semaphore>,
    /// `true` once sessions must end.
    ending: watch::Sender<bool>,
}

impl<P: Protocol> Proxy<P> {
    /// Creates a proxy for the database at this address.
    pub fn new(protocol: P, database: Address, accounts: HashMap<String, Account>, limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.sessions_max as usize));
        Self(Arc::new(Shared { protocol, database, accounts, limits, places, ending: watch::Sender::new(false) }))
    }

    /// Waits for sessions to end, and ends the remaining ones after `limit`.
    ///
    /// Shut down the server first, so that no new sessions start. The shutdown neither waits for connections that were
    /// taken over nor closes them.
    pub async fn end(&self, limit: Duration) {
        let all = || self.0.places.acquire_many(self.0.limits.sessions_max);
        if timeout(limit, all()).await.is_err() {
            self.0.ending.send_replace(true);
            // The semaphore is never closed, so this cannot fail.
            let _ = all().await;
        }
    }
}

/// The state of a connection that has logged in.
struct Caller(Account);

impl<P: Protocol> Gate for Proxy<P> {
    async fn log_in(&self, request: Request<LogInRequest>) -> Result<Response<LogInResponse>, Status> {
        let connection = connection_of(&request)?;
        let Some(account) = self.0.accounts.get(&request.get_ref().token) else {
            // Close the connection, so that each connection has only one guess.
            return Err(Status::unauthenticated("the token is not known").closing_connection());
        };
        if connection.set_state(Caller(account.clone())).is_err() {
            return Err(Status::failed_precondition("the connection has logged in already"));
        }
        Ok(LogInResponse { role: account.role.clone() }.into())
    }

    async fn open_database(
        &self,
        request: Request<OpenDatabaseRequest>,
    ) -> Result<Response<OpenDatabaseResponse>, Status> {
        let connection = connection_of(&request)?;
        let Some(Caller(account)) = connection.state() else {
            return Err(Status::unauthenticated("the connection has not logged in: call LogIn on it before"));
        };
        let database = request.into_inner().database;
        if !account.databases.contains(&database) {
            let role = &account.role;
            return Err(Status::permission_denied(format!("{role} may not open the database {database:?}")));
        }
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("all {} sessions are in use", self.0.limits.sessions_max)));
        };
        // Connect before answering: errors can only be reported while the connection still speaks RPC.
        let (socket, token) = timeout(self.0.limits.connect_max, self.0.connect(account))
            .await
            .unwrap_or_else(|_| Err(Status::unavailable("the database does not answer in time")))?;
        let (response, raw) = Response::new(OpenDatabaseResponse { token }).then_take_over();
        let session = Session { proxy: self.0.clone(), account: account.clone(), database, _place: place };
        tokio::spawn(async move {
            let role = session.account.role.clone();
            if let Err(error) = session.run(raw, socket).await {
                eprintln!("the session of {role} failed: {error}");
            }
        });
        Ok(response)
    }
}

fn connection_of<T>(request: &Request<T>) -> Result<Connection, Status> {
    request.connection().ok_or_else(|| Status::failed_precondition("only calls over frisbee have a connection to use"))
}

impl<P: Protocol> Shared<P> {
    /// Connects to the database and logs in there.
    async fn connect(&self, account: &Account) -> Result<(Box<dyn Socket>, String), Status> {
        let mut socket = self.open().await.map_err(|error| {
            Status::unavailable(format!("the database cannot be reached: {error}"))
                .with_source(Arc::new(error) as Arc<_>)
        })?;
        let token = self.protocol.log_in(&self.database, account, &mut *socket).await?;
        Ok((socket, token))
    }

    async fn open(&self) -> io::Result<Box<dyn Socket>> {
        Ok(match &self.database {
            Address::Tcp(address) => Box::new(without_delay(TcpStream::connect(address).await?)?),
            Address::Host { name, port } => Box::new(without_delay(TcpStream::connect((&name[..], *port)).await?)?),
            #[cfg(unix)]
            Address::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
            other => return Err(io::Error::other(format!("{other} is no address of a database"))),
        })
    }
}

/// Disables Nagle's algorithm, so that small messages are sent immediately. Frisbee does this for its own sockets.
fn without_delay(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// A session between a connection that was taken over and the database.
struct Session<P> {
    proxy: Arc<Shared<P>>,
    account: Account,
    database: String,
    /// Released at the end of the session.
    _place: OwnedSemaphorePermit,
}

impl<P: Protocol> Session<P> {
    async fn run(
        self,
        raw: impl Future<Output = Result<Raw, Status>>,
        mut socket: Box<dyn Socket>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Self { proxy, account, database, _place } = self;
        let mut raw = raw.await?;
        // The client sent heartbeats until it received the answer. PostgreSQL messages also start with a zero byte, but
        // their second byte differs from that of a frisbee header.
        raw.skip_heartbeats();
        let start = proxy.protocol.start(&account, &database, &mut raw, &mut *socket);
        if !timeout(proxy.limits.startup_max, start).await?? {
            return Ok(());
        }
        let mut ending = proxy.ending.subscribe();
        tokio::select! {
            copied = copy_bidirectional(&mut raw, &mut socket) => {
                copied?;
            }
            // No error can be sent: it might end up in the middle of a message.
            _ = ending.wait_for(|ending| *ending) => {}
        }
        Ok(())
    }
}

impl<P: Protocol> Router for Proxy<P> {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Close
    }

    fn event(&self, connection: &Connection, event: Event<'_>) {
        let Event::Opened = event else { return };
        let (connection, log_in_max) = (connection.clone(), self.0.limits.log_in_max);
        connection.runtime().clone().spawn(async move {
            tokio::select! {
                _ = connection.closed() => {}
                () = sleep(log_in_max) => {
                    if connection.state::<Caller>().is_none() {
                        connection.close();
                    }
                }
            }
        });
    }
}

impl<P: Protocol> Wire for Proxy<P> {
    fn recognize(&self, first: &[u8], _: Option<&[u8]>) -> ProtocolMatch {
        self.0.protocol.recognize(first)
    }

    async fn serve(&self, mut socket: Raw, _: Endpoint, _: Drain) {
        let refusing = async {
            self.0.protocol.refuse(&mut socket).await?;
            socket.shutdown().await?;
            // A close before the rest is read might reset the connection, and the client lose the refusal.
            copy(&mut socket, &mut sink()).await
        };
        // The client may be gone. The refusal is only information.
        let _ = timeout(self.0.limits.startup_max, refusing).await;
    }
}

/// Returns whether the bytes begin like `expected`, of which some may be missing.
fn begins_with(first: &[u8], expected: &[u8]) -> ProtocolMatch {
    match first.len().min(expected.len()) {
        len if first[..len] != expected[..len] => ProtocolMatch::No,
        len if len < expected.len() => ProtocolMatch::More,
        _ => ProtocolMatch::Yes,
    }
}

/// A connection to a database.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> Socket for T {}

/// The advice for clients that have not logged in.
const ADVICE: &str = "authenticate by calls of gate.Gate before you speak to the database here";
