//! One side of a connection in memory, for benchmarks that count instructions instead of measuring time.

use frpc::{
    CallSettings, Channel, ChannelCallSettings, Config, ConnectError, ConnectSettings, Connected, Inherited, Request,
    Response, Server, Status, Streaming, TraceContext, Transport, codec,
};
use futures_util::future::{BoxFuture, join_all};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::{self, Runtime},
    task::yield_now,
};

use crate::{
    Service,
    schema::{
        Message, RepeatRequest,
        echo_client::EchoClient,
        echo_methods::ONCE,
        echo_server::{Echo, EchoServer},
    },
    text,
};

/// A server, and the peer end of its connection.
pub struct Serving {
    runtime: Runtime,
    _server: Server,
    peer: DuplexStream,
    /// The frames of one batch of concurrent calls.
    requests: Vec<u8>,
    calls: usize,
}

impl Serving {
    /// Starts a server and warms it up, with `calls` calls in flight.
    pub fn start(calls: usize) -> Self {
        Self::start_with(Service, calls, true)
    }

    /// Starts a server with metrics or without, and warms it up.
    pub fn start_measured(calls: usize, metrics: bool) -> Self {
        Self::start_with(Service, calls, metrics)
    }

    /// Starts a server whose handlers wait for one turn of the scheduler.
    pub fn start_waiting(calls: usize) -> Self {
        Self::start_with(Waiting, calls, true)
    }

    fn start_with(service: impl Echo, calls: usize, metrics: bool) -> Self {
        let runtime = current_thread();
        let (wire, peer) = duplex(PIPE_LEN);
        let server = Server::builder().config(quiet()).calls(CallSettings { metrics, ..CallSettings::default() });
        let server = server.add_service(EchoServer::new(service)).without_listener().expect("it has one service");
        let entered = runtime.enter();
        server.attach(wire);
        drop(entered);
        let mut serving = Self { runtime, _server: server, peer, requests: request().repeat(calls), calls };
        serving.serve(WARM_UP_CALLS);
        serving
    }

    /// Makes the server answer `calls` calls.
    pub fn serve(&mut self, calls: usize) {
        let Self { runtime, peer, requests, .. } = self;
        runtime.block_on(async {
            let mut answers = vec![0; requests.len()];
            for _ in 0..calls / self.calls {
                peer.write_all(requests).await.expect("the server reads");
                peer.read_exact(&mut answers).await.expect("the server answers");
                assert_eq!(answers, *requests);
            }
        });
    }
}

/// A client connected to a peer that echoes all bytes.
pub struct Calling {
    runtime: Runtime,
    client: EchoClient,
    callers: usize,
}

impl Calling {
    /// Starts a client and warms it up with `callers` concurrent callers.
    pub fn start(callers: usize) -> Self {
        Self::start_measured(callers, true)
    }

    /// Starts a client with metrics or without, and warms it up.
    pub fn start_measured(callers: usize, metrics: bool) -> Self {
        let runtime = current_thread();
        let (wire, peer) = duplex(PIPE_LEN);
        runtime.spawn(echo(peer));
        let calls = ChannelCallSettings { metrics, ..ChannelCallSettings::default() };
        let connecting = Channel::builder().config(quiet()).calls(calls).attach(wire);
        let channel = runtime.block_on(connecting).expect("there is nothing to connect to");
        Self::warmed_up(runtime, EchoClient::new(channel), callers)
    }

    /// Starts a client of a channel to four servers, with this number of callers for each.
    pub fn start_fleet(callers: usize) -> Self {
        let runtime = current_thread();
        let channel = Channel::builder().config(quiet()).transport(EchoPipes).connect(ENDPOINTS);
        let channel = runtime.block_on(channel).expect("there is nothing to connect to");
        Self::warmed_up(runtime, EchoClient::new(channel), callers * ENDPOINTS.len())
    }

    pub(crate) fn warmed_up(runtime: Runtime, client: EchoClient, callers: usize) -> Self {
        let calling = Self { runtime, client, callers };
        calling.call(WARM_UP_CALLS);
        calling
    }

    /// Makes `calls` calls.
    pub fn call(&self, calls: usize) {
        let calls = calls / self.callers;
        let callers = (0..self.callers).map(|_| {
            let client = self.client.clone();
            self.runtime.spawn(async move {
                let request = Message { text: text(MESSAGE_LEN) };
                for _ in 0..calls {
                    let answer = client.once(request.clone()).await.expect("it is sent back");
                    assert_eq!(*answer.get_ref(), request);
                }
            })
        });
        for called in self.runtime.block_on(join_all(callers)) {
            called.expect("a call that fails ends the bench");
        }
    }
}

/// A client and a server in one process, and calls of one kind between them.
pub struct Both {
    runtime: Runtime,
    _server: Server,
    client: EchoClient,
    request: fn(usize) -> Request<Message>,
    context: fn(usize) -> Option<TraceContext>,
}

impl Both {
    /// Starts both over frisbee and warms them up.
    pub fn start(request: fn(usize) -> Request<Message>) -> Self {
        Self::start_over(connected, request, |_| None)
    }

    /// Starts both over a connection and warms them up. Each caller has a number and inherits a trace context.
    pub fn start_over(
        connect: fn(&Runtime) -> (Server, EchoClient),
        request: fn(usize) -> Request<Message>,
        context: fn(usize) -> Option<TraceContext>,
    ) -> Self {
        let runtime = current_thread();
        let (server, client) = connect(&runtime);
        let both = Self { runtime, _server: server, client, request, context };
        both.call(WARM_UP_CALLS);
        both
    }

    /// Makes `calls` calls.
    pub fn call(&self, calls: usize) {
        let callers = (0..CALLERS).map(|caller| {
            let (client, request) = (self.client.clone(), self.request);
            let inherited = Inherited::here().with_trace((self.context)(caller));
            self.runtime.spawn(inherited.wrap(async move {
                for _ in 0..calls / CALLERS {
                    client.once(request(MESSAGE_LEN)).await.expect("the server answers");
                }
            }))
        });
        for called in self.runtime.block_on(join_all(callers)) {
            called.expect("a call that fails ends the bench");
        }
    }
}

/// Returns a server, and a client that is connected to it over frisbee.
pub fn connected(runtime: &Runtime) -> (Server, EchoClient) {
    let (wire, peer) = duplex(LARGE_PIPE_LEN);
    let server = Server::builder().config(quiet()).add_service(EchoServer::new(Service)).without_listener();
    let server = server.expect("it has one service");
    let channel = runtime.block_on(async {
        server.attach(wire);
        Channel::builder().config(quiet()).attach(peer).await.expect("there is nothing to connect to")
    });
    (server, EchoClient::new(channel))
}

/// Sends all bytes back.
async fn echo(mut peer: DuplexStream) {
    let mut bytes = [0; PIPE_LEN];
    while let Ok(len @ 1..) = peer.read(&mut bytes).await {
        peer.write_all(&bytes[..len]).await.expect("the client reads");
    }
}

/// Connects each address to a peer that echoes all bytes.
struct EchoPipes;

impl Transport for EchoPipes {
    fn schemes(&self) -> &[&str] {
        &["pipe"]
    }

    fn connect(&self, _: String, _: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let (wire, peer) = duplex(PIPE_LEN);
        Box::pin(async {
            tokio::spawn(echo(peer));
            Ok(Connected::Frisbee(Box::new(wire)))
        })
    }
}

/// The echo service with unary answers delayed by one turn of the scheduler.
struct Waiting;

impl Echo for Waiting {
    async fn once(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        yield_now().await;
        Service.once(request).await
    }

    async fn repeat(&self, request: Request<RepeatRequest>) -> Result<Response<Streaming<Message>>, Status> {
        Service.repeat(request).await
    }

    async fn each(&self, request: Request<Streaming<Message>>) -> Result<Response<Streaming<Message>>, Status> {
        Service.each(request).await
    }
}

/// Returns a runtime on the current thread, without I/O.
pub fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().build().expect("it has no threads")
}

/// Returns a configuration without heartbeats, because they depend on the clock.
pub fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, ..Config::default() }
}

/// Returns an encoded request. Its answer has the same bytes.
fn request() -> Vec<u8> {
    let content = codec::encode(&Message { text: text(MESSAGE_LEN) });
    let len = u32::try_from(content.len()).expect("it is short");
    [&MAGIC[..], &ID, &ONCE.operation.to_be_bytes(), &len.to_be_bytes(), &content].concat()
}

/// The number of calls to warm up a connection.
pub const WARM_UP_CALLS: usize = 1000;
/// The text length of each message.
pub const MESSAGE_LEN: usize = 32;
pub(crate) const PIPE_LEN: usize = 4 << 10;
pub(crate) const LARGE_PIPE_LEN: usize = 64 << 10;
const CALLERS: usize = 10;
const ENDPOINTS: [&str; 4] = ["pipe://one", "pipe://two", "pipe://three", "pipe://four"];
const MAGIC: [u8; 2] = [0x00, 0x0f];
const ID: [u8; 2] = [0, 1];
