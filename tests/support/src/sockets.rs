//! Servers and clients of frisbee over every kind of address, and a router that does what tests of them need.

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
    Address, Client, CloseReason, ConnectError, Connection, Content, Engine, Operation, Outcome, Packet, Router,
    Server, ServerBuilder, Stream,
};
use tokio::{
    io::{AsyncWriteExt, duplex},
    sync::mpsc,
};

use crate::{Gate, Identity, can_be_had, localhost};

/// The kinds of sockets below a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// A Unix socket with a path.
    UnixPath,
    /// A Unix socket with an abstract name.
    UnixAbstract,
    /// A listener in this process.
    Mem,
    /// A stream of the test's own.
    Own,
}

/// The ways to run a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The kind of socket.
    pub kind: Kind,
    /// True with TLS on top.
    pub tls: bool,
    /// The engine of both sides.
    pub engine: Engine,
}

impl Setting {
    /// Tells whether the engine can be had here.
    pub fn can_be_had(&self) -> bool {
        can_be_had(self.engine)
    }
}

/// A server in a setting, which knows how to connect to it.
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
        let client = client.timeout(CONNECT_MAX).attempts(1).engine(self.setting.engine);
        if self.setting.kind == Kind::Own {
            let (ours, theirs) = duplex(10_000);
            self.server.attach(theirs);
            return client.attach(ours).await;
        }
        client.connect(self.server.local_addr()).await
    }

    /// Returns a connection, and what arrives on it.
    pub async fn connect(&self) -> (Connection, Inbox) {
        let (router, inbox) = Inbox::new();
        (self.try_connect(Client::new(router)).await.unwrap(), inbox)
    }
}

/// Returns an address of this kind that nobody has.
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

/// Returns a path for a socket that nobody has.
pub fn unused_path() -> PathBuf {
    match unused_address(Kind::UnixPath) {
        Address::Unix(path) => path,
        other => unreachable!("{other} is no path"),
    }
}

/// A router that puts packets where the test takes them from.
pub struct Forward(mpsc::UnboundedSender<Packet>);

impl Router for Forward {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // A test that has what it wanted does not look at the rest.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

/// The packets that a [`Forward`] gets.
pub struct Inbox(mpsc::UnboundedReceiver<Packet>);

impl Inbox {
    /// Returns a router, and the inbox that it puts packets into.
    pub fn new() -> (Forward, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Forward(sender), Self(receiver))
    }

    /// Returns the next packet, or `None` after the end.
    pub async fn next(&mut self) -> Option<Packet> {
        self.0.recv().await
    }
}

/// A router with an operation for each thing that tests want of a server. Others it echoes.
#[derive(Clone, Default)]
pub struct TestRouter {
    /// Sent as soon as a connection is there.
    pub greeting: Option<Packet>,
    /// Handlers that were told to wait, and what lets them go on.
    pub waiting: Gate,
    /// The channel to which its hooks report.
    pub hooks: Option<mpsc::UnboundedSender<String>>,
}

impl TestRouter {
    /// Returns a router and what its hooks report.
    pub fn with_hooks() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (hooks, reports) = mpsc::unbounded_channel();
        (Self { hooks: Some(hooks), ..Self::default() }, reports)
    }

    fn report(&self, hook: String) {
        if let Some(hooks) = &self.hooks {
            // As for packets.
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
                // The client is the second to change, and the first to speak.
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

    async fn stream(&self, mut stream: Stream, _: &Connection) {
        while let Ok(content) = stream.read().await {
            if stream.send(content).await.is_err() {
                return;
            }
        }
    }

    fn opened(&self, connection: &Connection) {
        self.report("opened".into());
        if let Some(greeting) = &self.greeting {
            connection.try_send(greeting.clone()).unwrap();
        }
    }

    fn closed(&self, _: &Connection, reason: &CloseReason) {
        self.report(format!("closed: {reason:?}"));
    }
}

/// Returns the settings of a server of a [`TestRouter`].
pub fn test_server() -> ServerBuilder<TestRouter> {
    Server::builder(TestRouter::default())
}

/// Returns a packet.
pub fn packet(id: u16, operation: Operation, content: impl Into<Content>) -> Packet {
    Packet::new(id, operation, content)
}

/// Returns this many bytes that tell when they are in the wrong place.
pub fn pattern(len: usize) -> Bytes {
    (0..=250).cycle().take(len).collect()
}

/// The certificate of servers in settings with TLS.
pub static IDENTITY: LazyLock<Identity> = LazyLock::new(Identity::new);

/// Is echoed.
pub const ECHO: Operation = Operation::new(20).expect("not reserved");
/// Is echoed, and then the connection closes.
pub const BYE: Operation = Operation::new(21).expect("not reserved");
/// Is echoed when the test lets it.
pub const WAIT: Operation = Operation::new(22).expect("not reserved");
/// Is echoed, and then the connection taken over, whose bytes are echoed.
pub const TAKE: Operation = Operation::new(23).expect("not reserved");
/// Is answered with the name of the thread that handles it.
pub const WHERE: Operation = Operation::new(24).expect("not reserved");
/// The time after which a connect counts as hanging.
const CONNECT_MAX: Duration = Duration::from_secs(20);
