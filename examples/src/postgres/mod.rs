//! A PostgreSQL proxy with authentication by RPC: clients log in by a call, open a database by another call, and then
//! speak PostgreSQL's own protocol on the same connection. docs/guide.md explains each step.

mod startup;

use std::{collections::HashMap, error::Error, io, sync::Arc, time::Duration};

use frpc::{
    Address, Connection, Drain, Endpoint, Event, Outcome, Packet, ProtocolMatch, Raw, Request, Response, Router,
    Status, Wire,
};
use gate::{LogInRequest, LogInResponse, OpenDatabaseRequest, OpenDatabaseResponse, gate_server::Gate};
use startup::{NOT_AUTHORIZED, Refusal, Startup};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};

/// Generated from `proto/postgres.proto`.
pub mod gate {
    frpc::include_proto!("gate");
}

/// The permissions granted by a token.
#[derive(Clone, Debug)]
pub struct Account {
    /// The database role of its owner. The database must trust the proxy, for example with `trust` authentication on a
    /// Unix socket reachable by the proxy only.
    pub role: String,
    /// The databases that may be opened.
    pub databases: Vec<String>,
}

/// Limits on all resources used by clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of simultaneous database connections. Default: 100, as in PostgreSQL.
    pub sessions_max: u32,
    /// The maximum time for a connection to log in. Default: 10 s.
    pub log_in_max: Duration,
    /// The maximum time to connect to the database. Default: 5 s.
    pub connect_max: Duration,
    /// The maximum time for a client to start its PostgreSQL session. Default: 10 s.
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
/// as a wire, it rejects clients that speak PostgreSQL without logging in.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    database: Address,
    /// Accounts by token. A real service stores digests of the tokens, or checks a signature.
    accounts: HashMap<String, Account>,
    limits: Limits,
    /// One permit per session.
    places: Arc<Semaphore>,
    /// `true` once sessions must end.
    ending: watch::Sender<bool>,
}

impl Proxy {
    /// Creates a proxy for the database at this address.
    pub fn new(database: Address, accounts: HashMap<String, Account>, limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.sessions_max as usize));
        Self(Arc::new(Shared { database, accounts, limits, places, ending: watch::Sender::new(false) }))
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

impl Gate for Proxy {
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
        let Some(Caller(Account { role, databases })) = connection.state() else {
            return Err(Status::unauthenticated("the connection has not logged in: call LogIn on it before"));
        };
        let database = request.into_inner().database;
        if !databases.contains(&database) {
            return Err(Status::permission_denied(format!("{role} may not open the database {database:?}")));
        }
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("all {} sessions are in use", self.0.limits.sessions_max)));
        };
        // Connect before answering: errors can only be reported while the connection still speaks RPC.
        let socket = self.0.connect().await.map_err(|error| {
            Status::unavailable(format!("the database cannot be reached: {error}"))
                .with_source(Arc::new(error) as Arc<_>)
        })?;
        let (response, raw) = Response::new(OpenDatabaseResponse {}).then_take_over();
        let session = Session { proxy: self.0.clone(), role: role.clone(), database, _place: place };
        tokio::spawn(async move {
            let role = session.role.clone();
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

impl Shared {
    async fn connect(&self) -> io::Result<Box<dyn Socket>> {
        let connecting = async {
            Ok::<Box<dyn Socket>, io::Error>(match &self.database {
                Address::Tcp(address) => Box::new(without_delay(TcpStream::connect(address).await?)?),
                Address::Host { name, port } => Box::new(without_delay(TcpStream::connect((&name[..], *port)).await?)?),
                #[cfg(unix)]
                Address::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
                other => return Err(io::Error::other(format!("{other} is no address of a PostgreSQL server"))),
            })
        };
        timeout(self.limits.connect_max, connecting).await?
    }
}

/// Disables Nagle's algorithm, so that small messages are sent immediately. Frisbee does this for its own sockets.
fn without_delay(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// A session between a connection that was taken over and the database.
struct Session {
    proxy: Arc<Shared>,
    role: String,
    database: String,
    /// Released at the end of the session.
    _place: OwnedSemaphorePermit,
}

impl Session {
    async fn run(
        self,
        raw: impl Future<Output = Result<Raw, Status>>,
        mut database: impl Socket,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut raw = raw.await?;
        // The client sent heartbeats until it received the answer. PostgreSQL messages also start with a zero byte, but
        // their second byte differs from that of a frisbee header.
        raw.skip_heartbeats();
        match timeout(self.proxy.limits.startup_max, Startup::read(&mut raw)).await?? {
            Startup::Session(session) => {
                if let Err(refusal) = session.check(&self.role, &self.database) {
                    return Ok(refusal.tell(&mut raw).await?);
                }
                database.write_all(&session.message(&self.role, &self.database)).await?;
            }
            Startup::Cancel(message) => database.write_all(&message).await?,
        }
        let mut ending = self.proxy.ending.subscribe();
        tokio::select! {
            copied = copy_bidirectional(&mut raw, &mut database) => {
                copied?;
            }
            // No error can be sent: it might end up in the middle of a message.
            _ = ending.wait_for(|ending| *ending) => {}
        }
        Ok(())
    }
}

impl Router for Proxy {
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

impl Wire for Proxy {
    fn recognize(&self, first: &[u8], _: Option<&[u8]>) -> ProtocolMatch {
        match Startup::may_begin_with(first) {
            Some(true) => ProtocolMatch::Yes,
            Some(false) => ProtocolMatch::No,
            None => ProtocolMatch::More,
        }
    }

    async fn serve(&self, mut socket: Raw, _: Endpoint, _: Drain) {
        if let Ok(Ok(_)) = timeout(self.0.limits.startup_max, Startup::read(&mut socket)).await {
            let message = "authenticate by calls of gate.Gate before you speak PostgreSQL here";
            // The client may be gone. The refusal is only information.
            let _ = Refusal::new(NOT_AUTHORIZED, message).tell(&mut socket).await;
        }
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> Socket for T {}
