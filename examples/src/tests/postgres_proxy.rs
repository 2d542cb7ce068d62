//! The PostgreSQL proxy with well-behaved and misbehaving clients.

#![cfg(unix)]

use std::time::Duration;

use examples::gate::{Limits, postgres, proto::LogInRequest};
use frpc::{Address, CloseReason, Code};
use support::{Identity, Postgres, in_real_time, in_real_time_within};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime,
    task::JoinHandle,
    time::pause,
};
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, error::SqlState};

use super::gateway::{Gateway, log_in, open};

#[test]
fn a_client_logs_in_and_speaks_postgresql_on_one_socket() {
    in_real_time_within(DATABASE_MAX, async {
        let Some(postgres) = Postgres::start().await else { return };
        make_role(&postgres).await;
        for identity in [None, Some(Identity::new())] {
            let gateway = serve(Address::Unix(postgres.socket()), Limits::default(), identity).await;
            let gate = gateway.dial().await;
            let local_addr = gate.channel().connection().unwrap().local_addr().clone();
            assert_eq!(log_in(&gate).await.unwrap(), "ada");
            open(&gate, "postgres").await.unwrap();
            let raw = gate.into_raw().await.unwrap();
            assert_eq!(*raw.local_addr(), local_addr);

            let (client, session) = speak(raw, "ada", "postgres").await.unwrap();
            assert_eq!(value(&client, "SELECT current_user || ' in ' || current_database()").await, "ada in postgres");
            let long = value(&client, "SELECT repeat('frisbee', 1000000)").await;
            assert_eq!(long.len(), 7_000_000, "far more than any buffer on the way");
            client.batch_execute("CREATE TEMPORARY TABLE pairs (key bigint, square bigint)").await.unwrap();
            let insert = "INSERT INTO pairs VALUES ($1::bigint, $1::bigint * $1::bigint)";
            let insert = client.prepare(insert).await.unwrap();
            let inserts = (0..100_i64).map(|key| {
                let (client, insert) = (&client, &insert);
                async move { client.execute(insert, &[&key]).await.unwrap() }
            });
            assert_eq!(futures_util::future::join_all(inserts).await, [1; 100], "all of them at once");
            assert_eq!(value(&client, "SELECT sum(square) FROM pairs").await, "328350");
            drop(client);
            session.await.unwrap().unwrap();
            assert_eq!(gateway.server.metrics().accepted, 1);
            gateway.end(Duration::MAX).await;
        }
    });
}

#[test]
fn queries_are_cancelled_over_an_authenticated_connection() {
    in_real_time_within(DATABASE_MAX, async {
        let Some(postgres) = Postgres::start().await else { return };
        make_role(&postgres).await;
        let gateway = serve(Address::Unix(postgres.socket()), Limits::default(), None).await;
        let (client, _session) = speak(gateway.opened("postgres").await, "ada", "postgres").await.unwrap();
        // A lock held by the first client shows when the query of the second one is running: it waits for the lock.
        client.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
        let (waiting, _session) = speak(gateway.opened("postgres").await, "ada", "postgres").await.unwrap();
        let token = waiting.cancel_token();
        let query = tokio::spawn(async move { waiting.batch_execute("SELECT pg_advisory_lock(1)").await });
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while value(&client, waits).await != "1" {}
        token.cancel_query_raw(gateway.opened("postgres").await, NoTls).await.unwrap();
        assert_eq!(query.await.unwrap().unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    });
}

#[test]
fn an_unknown_token_closes_the_connection() {
    in_real_time(async {
        let gateway = without_database(Limits::default()).await;
        let gate = gateway.dial().await;
        let connection = gate.channel().connection().unwrap();
        let refused = gate.log_in(LogInRequest { token: "a guess".into() }).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, "the token is not known"));
        assert!(matches!(connection.closed().await, CloseReason::Peer));
    });
}

#[test]
fn a_denied_database_leaves_the_connection_usable() {
    in_real_time(async {
        let gateway = without_database(Limits::default()).await;
        let gate = gateway.dial().await;
        let refused = open(&gate, "postgres").await.unwrap_err();
        let message = "the connection has not logged in: call LogIn on it before";
        assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, message));
        log_in(&gate).await.unwrap();
        assert_eq!(log_in(&gate).await.unwrap_err().code(), Code::FailedPrecondition, "nobody becomes somebody else");
        let refused = open(&gate, "payroll").await.unwrap_err();
        let message = "ada may not open the database \"payroll\"";
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, message));
        let refused = open(&gate, "postgres").await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().starts_with("the database cannot be reached: "), "{refused}");
        assert_eq!(gateway.server.metrics().accepted, 1, "all that was on one connection");
    });
}

#[test]
fn a_takeover_without_a_database_is_disconnected() {
    in_real_time(async {
        let gateway = without_database(Limits::default()).await;
        for logs_in in [false, true] {
            let gate = gateway.dial().await;
            if logs_in {
                log_in(&gate).await.unwrap();
            }
            // Bytes other than packets end a connection immediately.
            let error = speak(gate.into_raw().await.unwrap(), "ada", "postgres").await.unwrap_err();
            assert!(error.is_closed() || error.to_string().contains("communicating"), "{error}");
        }
    });
}

#[test]
fn postgresql_without_login_is_rejected_with_advice() {
    in_real_time(async {
        let gateway = without_database(Limits::default()).await;
        let socket = || TcpStream::connect(gateway.server.local_addr().socket_addr().unwrap());
        let error = speak(socket().await.unwrap(), "ada", "postgres").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION));
        let message = "authenticate by calls of gate.Gate before you speak to the database here";
        assert_eq!(error.as_db_error().unwrap().message(), message);
        // Like psql, it offers encryption and continues without.
        let mut offering = socket().await.unwrap();
        offering.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await.unwrap();
        assert_eq!(offering.read_u8().await.unwrap(), b'N');
        let error = speak(offering, "ada", "postgres").await.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().message(), message);
    });
}

#[test]
fn a_session_cannot_change_its_user_or_database() {
    in_real_time(async {
        let database = Database::listen().await;
        let gateway = serve(database.address(), Limits::default(), None).await;
        for (role, name) in [("postgres", "postgres"), ("ada", "payroll")] {
            let error = speak(gateway.opened("postgres").await, role, name).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION));
            let refused = if role == "ada" { name } else { role };
            let message = error.as_db_error().unwrap().message();
            assert!(message.contains(&format!("{refused:?} is not what this connection was opened for")), "{message}");
            assert_eq!(database.hears_all().await, b"");
        }
        // For a duplicate parameter, every value is checked, and the database receives only the checked one.
        let twice = startup(&[("user", "ada"), ("user", "postgres")]);
        let mut raw = gateway.opened("postgres").await;
        raw.write_all(&twice).await.unwrap();
        let mut refusal = Vec::new();
        raw.read_to_end(&mut refusal).await.unwrap();
        assert!(refusal.starts_with(b"E"));
        let mut raw = gateway.opened("postgres").await;
        raw.write_all(&startup(&[("user", "ada"), ("user", "ada"), ("options", "-c x=y")])).await.unwrap();
        raw.shutdown().await.unwrap();
        database.hears_all().await;
        let expected = startup(&[("user", "ada"), ("database", "postgres"), ("options", "-c x=y")]);
        assert_eq!(database.hears_all().await, expected);
    });
}

#[test]
fn silent_or_malformed_clients_are_disconnected() {
    on_one_thread(async {
        let database = Database::listen().await;
        let gateway = serve(database.address(), Limits::default(), None).await;
        let mut silent = gateway.opened("postgres").await;
        pause();
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "it took too long to begin");
    });
    in_real_time(async {
        let database = Database::listen().await;
        let gateway = serve(database.address(), Limits::default(), None).await;
        for nonsense in [&b"\x00\x01\x00\x00long"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x00\x04\x00\x00"] {
            let mut raw = gateway.opened("postgres").await;
            raw.write_all(nonsense).await.unwrap();
            // Closing with unread bytes may reset the connection instead of ending it.
            assert!(!matches!(raw.read(&mut [0]).await, Ok(1..)));
        }
        // This connection never left RPC.
        let gate = gateway.dial().await;
        log_in(&gate).await.unwrap();
        let connection = gate.channel().connection().unwrap();
        open(&gate, "postgres").await.unwrap();
        assert_eq!(open(&gate, "postgres").await.unwrap_err().code(), Code::Unavailable);
        connection.closed().await;
    });
}

#[test]
fn clients_without_a_login_are_disconnected_in_time() {
    on_one_thread(async {
        let gateway = without_database(Limits::default()).await;
        let connection = gateway.dial().await.channel().connection().unwrap();
        pause();
        assert!(matches!(connection.closed().await, CloseReason::Peer));
    });
}

#[test]
fn sessions_are_limited_and_end_with_the_program() {
    in_real_time(async {
        let database = Database::listen().await;
        let gateway = serve(database.address(), Limits { sessions_max: 1, ..Limits::default() }, None).await;
        let mut first = gateway.opened("postgres").await;
        first.write_all(&startup(&[("user", "ada")])).await.unwrap();
        let gate = gateway.dial().await;
        log_in(&gate).await.unwrap();
        let refused = open(&gate, "postgres").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "all 1 sessions are in use"));

        let mut session = database.0.accept().await.unwrap().0;
        session.read_exact(&mut [0; 8]).await.unwrap();
        let proxy = gateway.proxy.clone();
        assert_eq!(gateway.server.shutdown(Duration::from_secs(60)).await, 0);
        first.write_all(b"still here").await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"still here") {
            session.read_buf(&mut heard).await.unwrap();
        }
        proxy.end(Duration::ZERO).await;
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(session.read(&mut [0]).await.unwrap(), 0);
    });
}

/// Runs a test on real sockets with one thread. It may [`pause`] the clock: when idle, time then advances to the next
/// deadline.
fn on_one_thread(test: impl Future<Output = ()>) {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

async fn serve(database: Address, limits: Limits, identity: Option<Identity>) -> Gateway<postgres::Postgres> {
    Gateway::serve(postgres::Postgres, database, limits, identity).await
}

/// Creates a proxy for a database that is not running.
async fn without_database(limits: Limits) -> Gateway<postgres::Postgres> {
    // The port is free again, and the system does not reassign it that soon.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    serve(address.into(), limits, None).await
}

/// A listener standing in for a database.
struct Database(TcpListener);

impl Database {
    async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn address(&self) -> Address {
        self.0.local_addr().unwrap().into()
    }

    /// Returns all bytes received on the next connection.
    async fn hears_all(&self) -> Vec<u8> {
        let mut heard = Vec::new();
        self.0.accept().await.unwrap().0.read_to_end(&mut heard).await.unwrap();
        heard
    }
}

/// Starts a PostgreSQL session.
async fn speak<S>(socket: S, role: &str, database: &str) -> Result<(Client, JoinHandle<Result<(), Error>>), Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut config = Config::new();
    let (client, session) = config.user(role).dbname(database).connect_raw(socket, NoTls).await?;
    Ok((client, tokio::spawn(session)))
}

/// Creates the role of the account, directly in the database.
async fn make_role(postgres: &Postgres) {
    let socket = tokio::net::UnixStream::connect(postgres.socket()).await.unwrap();
    let (client, _session) = speak(socket, "postgres", "postgres").await.unwrap();
    client.batch_execute("CREATE ROLE ada LOGIN").await.unwrap();
}

async fn value(client: &Client, query: &str) -> String {
    let messages = client.simple_query(query).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}

/// Returns the first message of a session.
fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut content = vec![0, 3, 0, 0];
    for (name, value) in parameters {
        content.extend(format!("{name}\0{value}\0").bytes());
    }
    content.push(0);
    let len = u32::try_from(content.len() + 4).unwrap();
    [&len.to_be_bytes()[..], &content].concat()
}

/// Creating a database takes seconds on a busy machine.
const DATABASE_MAX: Duration = Duration::from_secs(240);
