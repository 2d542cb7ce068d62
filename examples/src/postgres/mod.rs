//! A PostgreSQL proxy whose clients authenticate by calls: they log in, open a database, and go on in PostgreSQL's own
//! protocol on the same connection. docs/takeover.md explains each step.

mod startup;

use std::{collections::HashMap, error::Error, io, sync::Arc, time::Duration};

use frpc::{
    Address, Connection, Drain, Endpoint, Outcome, Packet, Raw, Recognized, Request, Response, Router, Status, Wire,
};
use gate::{LogInRequest, LogInResponse, OpenDatabaseRequest, OpenDatabaseResponse, gate_server::Gate};
use startup::{NOT_AUTHORIZED, Refusal, Startup};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};

/// Made of `proto/postgres.proto`.
pub mod gate {
    frpc::include_proto!("gate");
}

/// The rights that come with a token.
#[derive(Clone, Debug)]
pub struct Account {
    /// The role that its owner has in the database. The database has to believe the proxy, as with `trust` for a Unix socket
    /// that nobody else reaches.
    pub role: String,
    /// The databases that it may open.
    pub databases: Vec<String>,
}

/// The bounds of everything that clients take up.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections to the database at once. Default 100, as many as PostgreSQL takes.
    pub sessions_max: u32,
    /// The time that a connection may take to log in. Default 10 s.
    pub log_in_max: Duration,
    /// The time that connecting to the database may take. Default 5 s.
    pub connect_max: Duration,
    /// The time that a client may take to begin with PostgreSQL. Default 10 s.
    pub startup_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [log_in_max, connect_max, startup_max] = [10, 5, 10].map(Duration::from_secs);
        Self { sessions_max: 100, log_in_max, connect_max, startup_max }
    }
}

/// The proxy. As a service, it lets callers in; as a router, it closes connections that do not log in; as a wire, it turns
/// those away that begin with PostgreSQL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    database: Address,
    /// By token. A real service keeps digests of the tokens, or checks a signature.
    accounts: HashMap<String, Account>,
    limits: Limits,
    /// A place for each session.
    places: Arc<Semaphore>,
    /// True once sessions have to end.
    ending: watch::Sender<bool>,
}

impl Proxy {
    /// Makes a proxy in front of the database at this address.
    pub fn new(database: Address, accounts: HashMap<String, Account>, limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.sessions_max as usize));
        Self(Arc::new(Shared { database, accounts, limits, places, ending: watch::Sender::new(false) }))
    }

    /// Waits for the sessions to end, and ends those that are left after `limit`. The server must have been shut down, so
    /// that there are no new ones: it neither waits for connections that were taken over nor closes them.
    pub async fn end(&self, limit: Duration) {
        let all = || self.0.places.acquire_many(self.0.limits.sessions_max);
        if timeout(limit, all()).await.is_err() {
            self.0.ending.send_replace(true);
            // Nobody closes the semaphore.
            let _ = all().await;
        }
    }
}

/// Attached to a connection that has logged in.
struct Caller(Account);

impl Gate for Proxy {
    async fn log_in(&self, request: Request<LogInRequest>) -> Result<Response<LogInResponse>, Status> {
        let connection = connection_of(&request)?;
        let Some(account) = self.0.accounts.get(&request.get_ref().token) else {
            // One guess for each connection.
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
        // Before the answer: as long as this is RPC, it can say what is wrong.
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

/// Has small messages leave at once. Frisbee's own sockets do so anyway.
fn without_delay(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// The work between a connection that was taken over and the database.
struct Session {
    proxy: Arc<Shared>,
    role: String,
    database: String,
    /// Free again when the session has ended.
    _place: OwnedSemaphorePermit,
}

impl Session {
    async fn run(
        self,
        raw: impl Future<Output = Result<Raw, Status>>,
        mut database: impl Socket,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut raw = raw.await?;
        // The client beat on until it had the answer. PostgreSQL's first byte is zero as well; its second one is not that
        // of a header with a magic number.
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
            // Nothing can be said: this may be in the middle of a message.
            _ = ending.wait_for(|ending| *ending) => {}
        }
        Ok(())
    }
}

impl Router for Proxy {
    fn opened(&self, connection: &Connection) {
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

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Close
    }
}

impl Wire for Proxy {
    fn recognize(&self, first: &[u8], _: Option<&[u8]>) -> Recognized {
        match Startup::may_begin_with(first) {
            Some(true) => Recognized::Yes,
            Some(false) => Recognized::No,
            None => Recognized::More,
        }
    }

    async fn serve(&self, mut socket: Raw, _: Endpoint, _: Drain) {
        if let Ok(Ok(_)) = timeout(self.0.limits.startup_max, Startup::read(&mut socket)).await {
            let message = "authenticate by calls of gate.Gate before you speak PostgreSQL here";
            // Somebody who has gone misses nothing.
            let _ = Refusal::new(NOT_AUTHORIZED, message).tell(&mut socket).await;
        }
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> Socket for T {}
