//! frisbee servers and clients over all kinds of addresses, and a router for their tests.

use std::{
    env,
    path::PathBuf,
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    Address, Client, ConnectError, ConnectRetry, Connection, Content, Engine, Operation, Outcome, Packet, Router,
    Server, ServerBuilder, Stream,
};
use tokio::{
    io::{AsyncWriteExt, duplex},
    sync::mpsc,
};

use crate::{Gate, Identity, can_be_had, localhost};

/// Kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// A Unix socket with a path.
    UnixPath,
    /// A Unix socket with an abstract name.
    UnixAbstract,
    /// An in-process listener.
    Mem,
    /// A stream created by the test.
    Own,
}

/// Environment of a test: socket, TLS and engine.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Kind of socket.
    pub kind: Kind,
    /// True to use TLS.
    pub tls: bool,
    /// Engine of both sides.
    pub engine: Engine,
}

impl Setting {
    /// Returns `true` if the engine is available here.
    pub fn can_be_had(&self) -> bool {
        can_be_had(self.engine)
    }
}

/// A running server with its setting. It can connect clients.
pub struct Served {
    /// The server.
    pub server: Server,
    setting: Setting,
}

impl Served {
    /// Starts a server in a setting.
    pub async fn start<R: Router>(setting: Setting, server: ServerBuilder<R>) -> Self {
        let server = server.engine(setting.engine);
        let server = if setting.tls { server.tls(IDENTITY.server()) } else { server };
        let server = match setting.kind {
            Kind::Own => server.without_listener(),
            kind => server.bind(unused_address(kind)).await.unwrap(),
        };
        Self { server, setting }
    }

    /// Connects a client.
    pub async fn try_connect<R: Router>(&self, client: Client<R>) -> Result<Connection, ConnectError> {
        let client = match (self.setting.tls, self.setting.kind) {
            (false, _) => client,
            (true, Kind::Tcp) => client.tls(IDENTITY.client()),
            (true, _) => client.tls_with_name(IDENTITY.client(), localhost()),
        };
        let client = client
            .timeout(CONNECT_MAX)
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .engine(self.setting.engine);
        if self.setting.kind == Kind::Own {
            let (ours, theirs) = duplex(10_000);
            self.server.attach(theirs);
            return client.attach(ours).await;
        }
        client.connect(self.server.local_addr()).await
    }

    /// Returns a connection, and an inbox of the packets it receives.
    pub async fn connect(&self) -> (Connection, Inbox) {
        let (router, inbox) = Inbox::new();
        (self.try_connect(Client::new(router)).await.unwrap(), inbox)
    }
}

/// Returns an unused address of this kind.
pub fn unused_address(kind: Kind) -> Address {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("frisbee-tests-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    match kind {
        Kind::Tcp => Address::Tcp(([127, 0, 0, 1], 0).into()),
        Kind::UnixPath => Address::Unix(env::temp_dir().join(name)),
        Kind::UnixAbstract => Address::Abstract(name),
        Kind::Mem => Address::Mem(name),
        Kind::Own => Address::Unnamed,
    }
}

/// Returns an unused path for a socket.
pub fn unused_path() -> PathBuf {
    match unused_address(Kind::UnixPath) {
        Address::Unix(path) => path,
        other => unreachable!("{other} is no path"),
    }
}

/// A router that forwards all packets to an [`Inbox`].
pub struct Forward(mpsc::UnboundedSender<Packet>);

impl Router for Forward {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // The test may drop its inbox before the last packet.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

/// The packets received by a [`Forward`].
pub struct Inbox(mpsc::UnboundedReceiver<Packet>);

impl Inbox {
    /// Returns a router and its inbox.
    pub fn new() -> (Forward, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Forward(sender), Self(receiver))
    }

    /// Returns the next packet, or `None` after the end.
    pub async fn next(&mut self) -> Option<Packet> {
        self.0.recv().await
    }
}

/// A router with one operation per behavior needed by tests. It echoes unknown operations.
#[derive(Clone, Default)]
pub struct TestRouter {
    /// Packet sent on each new connection.
    pub greeting: Option<Packet>,
    /// Gate for handlers of [`WAIT`].
    pub waiting: Gate,
    /// Channel for reports of the router's hooks.
    pub hooks: Option<mpsc::UnboundedSender<String>>,
}

impl TestRouter {
    /// Returns a router, and the receiver of its hooks' reports.
    pub fn with_hooks() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (hooks, reports) = mpsc::unbounded_channel();
        (Self { hooks: Some(hooks), ..Self::default() }, reports)
    }

    fn report(&self, hook: String) {
        if let Some(hooks) = &self.hooks {
            // The test may drop its receiver before the last report.
            let _ = hooks.send(hook);
        }
    }
}

impl Router for TestRouter {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        match packet.operation {
            BYE => Outcome::ReplyAndClose(packet),
            WAIT => {
                self.waiting.passed().await;
                Outcome::Reply(packet)
            }
            WHERE => {
                let thread = std::thread::current().name().unwrap_or_default().to_owned();
                Outcome::Reply(Packet { content: thread.into(), ..packet })
            }
            TAKE => {
                connection.send(packet).await.unwrap();
                let mut raw = connection.takeover().await.unwrap();
                // The client takes over after the server, so its heartbeats may still arrive. It also sends the first
                // bytes.
                raw.skip_heartbeats();
                tokio::spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(raw);
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                    writer.shutdown().await.unwrap();
                });
                Outcome::Nothing
            }
            _ => Outcome::Reply(packet),
        }
    }

    async fn stream(&self, mut stream: Stream, refusal: Option<frisbee::RefusalReason>, _: &Connection) {
        if refusal.is_some() {
            return;
        }
        while let Ok(content) = stream.read().await {
            if stream.send(content).await.is_err() {
                return;
            }
        }
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Opened => {
                self.report("opened".into());
                if let Some(greeting) = &self.greeting {
                    connection.try_send(greeting.clone()).unwrap();
                }
            }
            frisbee::Event::Closed(reason) => self.report(format!("closed: {reason:?}")),
            _ => {}
        }
    }
}

/// Returns a server builder with a [`TestRouter`].
pub fn test_server() -> ServerBuilder<TestRouter> {
    Server::builder(TestRouter::default())
}

/// Returns a packet.
pub fn packet(id: u16, operation: Operation, content: impl Into<Content>) -> Packet {
    Packet::new(id, operation, content)
}

/// Returns this number of bytes with a position-dependent pattern.
pub fn pattern(len: usize) -> Bytes {
    (0..=250).cycle().take(len).collect()
}

/// Certificate of servers with TLS.
pub static IDENTITY: LazyLock<Identity> = LazyLock::new(Identity::new);

/// Operation: echo the packet.
pub const ECHO: Operation = Operation::new(20).expect("not reserved");
/// Operation: echo the packet, then close the connection.
pub const BYE: Operation = Operation::new(21).expect("not reserved");
/// Operation: echo the packet after the gate has opened.
pub const WAIT: Operation = Operation::new(22).expect("not reserved");
/// Operation: echo the packet, take over the connection, and echo all further bytes.
pub const TAKE: Operation = Operation::new(23).expect("not reserved");
/// Operation: answer with the name of the handler's thread.
pub const WHERE: Operation = Operation::new(24).expect("not reserved");
/// Timeout of a connection attempt.
const CONNECT_MAX: Duration = Duration::from_secs(20);
