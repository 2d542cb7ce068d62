//! The vocabulary of these tests: a [`Place`] where a server and its clients meet, and who meets there.

use std::{
    env,
    fmt::Debug,
    path::PathBuf,
    process,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    Address, Client, CloseReason, ConnectError, Connection, Content, Engine, Operation, Outcome, Packet, Router,
    Server, ServerBuilder, Stream,
};
pub(crate) use tests::{can_be_had, engines, rings};
use tokio::{
    io::{AsyncWriteExt, duplex},
    runtime,
    sync::{Semaphore, mpsc},
    time::timeout,
};

use crate::certificates::{Identity, localhost};

/// Runs a test on real sockets and in real time.
pub(crate) fn really(test: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, test).await.expect("a test ends in time") });
    runtime.shutdown_background();
}

/// Runs a test in virtual time, which jumps to the next deadline whenever nobody has anything to do.
pub(crate) fn virtually(test: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(3600 * SECOND, test).await.expect("a test ends in time") });
}

/// Lets others run until it is so.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// What lies below a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    UnixPath,
    UnixAbstract,
    Mem,
    /// A stream that the test makes.
    Own,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
    pub(crate) engine: Engine,
}

impl Setting {
    pub(crate) fn can_be_had(&self) -> bool {
        can_be_had(self.engine)
    }
}

/// A server, and how to get there.
pub(crate) struct Place {
    pub(crate) server: Server,
    setting: Setting,
}

impl Place {
    pub(crate) async fn serve<R: Router>(setting: Setting, server: ServerBuilder<R>) -> Self {
        let server = server.engine(setting.engine);
        let server = if setting.tls { server.tls(IDENTITY.server()) } else { server };
        let server = match setting.kind {
            Kind::Own => server.without_listener(),
            kind => server.bind(fresh(kind)).await.unwrap(),
        };
        Self { server, setting }
    }

    pub(crate) async fn try_connect<R: Router>(&self, client: Client<R>) -> Result<Connection, ConnectError> {
        let client = match (self.setting.tls, self.setting.kind) {
            (false, _) => client,
            (true, Kind::Tcp) => client.tls(IDENTITY.client()),
            (true, _) => client.tls_with_name(IDENTITY.client(), localhost()),
        };
        let client = client.timeout(LIMIT).attempts(1).engine(self.setting.engine);
        if self.setting.kind == Kind::Own {
            let (ours, theirs) = duplex(10_000);
            self.server.attach(theirs);
            return client.attach(ours).await;
        }
        client.connect(self.server.local_addr()).await
    }

    /// A connection, and what arrives on it.
    pub(crate) async fn connect(&self) -> (Connection, Inbox) {
        let (router, inbox) = Inbox::new();
        (self.try_connect(Client::new(router)).await.unwrap(), inbox)
    }
}

/// An address of this kind that nobody has.
pub(crate) fn fresh(kind: Kind) -> Address {
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

/// A path for a socket that nobody has.
pub(crate) fn fresh_path() -> PathBuf {
    match fresh(Kind::UnixPath) {
        Address::Unix(path) => path,
        other => unreachable!("{other} is no path"),
    }
}

/// A router that puts packets where the test takes them from.
pub(crate) struct Forward(mpsc::UnboundedSender<Packet>);

impl Router for Forward {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // A test that has what it wanted does not look at the rest.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

pub(crate) struct Inbox(mpsc::UnboundedReceiver<Packet>);

impl Inbox {
    pub(crate) fn new() -> (Forward, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Forward(sender), Self(receiver))
    }

    /// The next packet, or `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Packet> {
        self.0.recv().await
    }
}

/// A router with one operation for everything the tests want of a server.
#[derive(Clone, Default)]
pub(crate) struct Servant {
    /// Sent as soon as a connection is there.
    pub(crate) greeting: Option<Packet>,
    /// Handlers that were told to wait, and what lets them go on.
    pub(crate) waiting: Arc<Gate>,
    pub(crate) hooks: Option<mpsc::UnboundedSender<String>>,
}

pub(crate) struct Gate {
    arrived: Semaphore,
    open: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Semaphore::new(0), open: Semaphore::new(0) }
    }
}

impl Gate {
    /// Waits for a handler to wait.
    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets a handler go on.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }

    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }
}

impl Servant {
    /// A servant and what its hooks report.
    pub(crate) fn with_hooks() -> (Self, mpsc::UnboundedReceiver<String>) {
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

impl Router for Servant {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        match packet.operation {
            BYE => Outcome::ReplyAndClose(packet),
            WAIT => {
                self.waiting.pass().await;
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

/// A server of a [`Servant`].
pub(crate) fn servant() -> ServerBuilder<Servant> {
    Server::builder(Servant::default())
}

pub(crate) fn packet(id: u16, operation: Operation, content: impl Into<Content>) -> Packet {
    Packet::new(id, operation, content)
}

/// So many bytes that tell when they are in the wrong place.
pub(crate) fn pattern(len: usize) -> Bytes {
    (0..=250).cycle().take(len).collect()
}

pub(crate) static IDENTITY: LazyLock<Identity> = LazyLock::new(Identity::new);

pub(crate) const ECHO: Operation = Operation::new(20).expect("not reserved");
pub(crate) const BYE: Operation = Operation::new(21).expect("not reserved");
pub(crate) const WAIT: Operation = Operation::new(22).expect("not reserved");
pub(crate) const TAKE: Operation = Operation::new(23).expect("not reserved");
pub(crate) const WHERE: Operation = Operation::new(24).expect("not reserved");
pub(crate) const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);
