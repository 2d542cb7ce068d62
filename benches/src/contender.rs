mod sums;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use load::{Args, Field, Report, parse_addr};
use serde::Serialize;

use crate::contender::sums::{JSON_HTTP, JSON_HTTP_BATCH};
use crate::program::{Process, Program};

/// A server and its load client.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name in the report.
    pub name: &'static str,
    server: Program,
    client: Program,
    /// Its fastest server configuration under frpc's client, if that client supports its protocol.
    server_alone: Option<Program>,
    /// `true` to measure the server with more threads.
    scales: bool,
    /// `true` to include it in the table of stacks.
    stack: bool,
    /// `true` if its client can load frpc's server, and no other contender has the same client.
    client_alone: bool,
    /// `true` if its client can count stream messages.
    streams: bool,
    /// The common client of all gRPC servers, if it is a gRPC server.
    grpc_server: Option<Program>,
    /// The common client for the comparison over HTTP/1.1, if it takes part.
    http1_server: Option<Program>,
    /// Its client of gRPC, if it has one.
    grpc_client: Option<Program>,
    /// The protocols on which it serves sums, each with the common client of that protocol.
    sums: &'static [(SumWire, Program)],
    /// The bytes sent once on an idle connection.
    pub greeting: &'static [u8],
    /// The bytes sent repeatedly on an idle connection.
    pub heartbeat: &'static [u8],
}

/// A contest: the rule that pairs clients with servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contest {
    /// Each server with its own client.
    Stacks,
    /// The same, with stream messages instead of calls.
    Streams,
    /// Servers with frpc's client.
    Servers,
    /// Clients with frpc's server.
    Clients,
    /// gRPC servers with gRPC clients of their own; and frpc over frisbee as a reference.
    Grpc,
    /// The same, with stream messages instead of calls.
    GrpcStreams,
    /// gRPC servers with one common client, including bare HTTP/2.
    GrpcServers,
    /// gRPC clients with tonic's server.
    GrpcClients,
    /// HTTP/1.1 servers with one common client, including bare HTTP/1.1; and tonic as a familiar reference.
    Http1Servers,
    /// Servers with a fixed number of threads, each with its own client.
    Scaling,
    /// Servers of `sum` on one protocol with a common client; and tonic as a familiar reference.
    Sums(SumWire),
}

/// The protocol to request a sum: JSON-RPC, except for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SumWire {
    /// Values over TCP, one after another.
    Tcp,
    /// The same, with a connection per call.
    TcpReset,
    /// POST requests.
    Http,
    /// POST requests with batches of ten calls.
    HttpBatch,
    /// WebSocket text messages.
    WebSocket,
    /// GET requests for an ordinary resource.
    Rest,
    /// WebSocket text messages without JSON-RPC.
    RestWebSocket,
}

impl Contender {
    /// All contenders, in the order of the report's rows.
    pub const ALL: [Self; 27] = [
        Self::FLOOR,
        Self::FRISBEE,
        Self::FRPC,
        Self::FRPC_PER_CORE,
        Self::FRPC_URING,
        Self::TONIC,
        Self::CONNECT,
        Self::TARPC,
        Self::GO_FRPC,
        Self::GRPC_GO,
        Self::HYPER,
        Self::FRPC_GRPC,
        Self {
            name: "frpc-grpc-per-core",
            server: Self::frpc_with(&["--layer", "frpc", "--http", "--engine", "per-core"]).server,
            ..Self::FRPC_GRPC
        },
        Self {
            name: "frpc-grpc-uring",
            server: Self::frpc_with(&["--layer", "frpc", "--http", "--engine", "uring"]).server,
            ..Self::FRPC_GRPC
        },
        Self { name: "frpc-connect", http1_server: Some(HTTP_CONNECT), ..Self::FRPC_HTTP },
        Self { name: "frpc-connect-json", http1_server: Some(HTTP_JSON), ..Self::FRPC_HTTP },
        Self { name: "frpc-twirp", http1_server: Some(HTTP_TWIRP), ..Self::FRPC_HTTP },
        Self::AXUM,
        Self::FRPC_JSON,
        Self::FRPC_JSON_PER_CORE,
        Self::FRPC_JSON_URING,
        Self::JSON_LOOP,
        Self::JSONRPSEE,
        Self::UCALL_POSIX,
        Self::UCALL_URING,
        Self::FASTAPI,
        Self::GRPC_PYTHON,
    ];

    /// Only a socket and a reader.
    const FLOOR: Self = Self {
        name: "floor",
        server: Program::rust("benches", "floor_server", &[]),
        client: Program::rust("benches", "floor_client", &[]),
        // It echoes any packet. A response has the same bytes as its request.
        server_alone: Some(Program::rust("benches", "floor_server", &[])),
        scales: true,
        stack: true,
        client_alone: false,
        streams: false,
        grpc_server: None,
        http1_server: None,
        grpc_client: None,
        sums: &[],
        greeting: &[],
        heartbeat: &PING,
    };

    /// frisbee, without RPC.
    const FRISBEE: Self = Self {
        name: "frisbee",
        server: Program::rust("examples", "load_server", &["--layer", "frisbee"]),
        client: Program::rust("examples", "load_client", &["--layer", "frisbee"]),
        server_alone: Some(Program::rust("examples", "load_server", &["--layer", "frisbee"])),
        ..Self::FLOOR
    };

    /// The whole stack with its default engine and mode.
    const FRPC: Self = Self { client_alone: true, ..Self::frpc_with(&["--layer", "frpc"]) };

    /// A thread, a runtime and a listener per core, on both sides.
    const FRPC_PER_CORE: Self = Self {
        name: "frpc-per-core",
        client: Program::rust("examples", "load_client", &["--layer", "frpc", "--engine", "per-core"]),
        client_alone: true,
        ..Self::frpc_with(&["--layer", "frpc", "--engine", "per-core"])
    };

    /// io_uring on both sides.
    const FRPC_URING: Self = Self {
        name: "frpc-uring",
        client: Program::rust("examples", "load_client", &["--layer", "frpc", "--engine", "uring"]),
        client_alone: true,
        ..Self::frpc_with(&["--layer", "frpc", "--engine", "uring"])
    };

    /// tonic: gRPC.
    const TONIC: Self = Self {
        name: "tonic",
        server: Program::peer("tonic_server", &[]),
        client: Program::peer("tonic_client", &[]),
        server_alone: None,
        scales: false,
        stack: true,
        client_alone: false,
        streams: true,
        grpc_server: Some(HTTP_GRPC),
        // Users know tonic, so it serves as a reference on any protocol.
        http1_server: Some(HTTP_GRPC),
        grpc_client: Some(Program::peer("tonic_client", &[])),
        sums: &[
            (SumWire::Tcp, HTTP_GRPC),
            (SumWire::Http, HTTP_GRPC),
            (SumWire::HttpBatch, HTTP_GRPC),
            (SumWire::WebSocket, HTTP_GRPC),
        ],
        greeting: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        heartbeat: &[],
    };

    /// connect-rust with the Connect protocol over HTTP/2, which is faster here than its gRPC.
    const CONNECT: Self = Self {
        name: "connect-rust",
        server: Program::peer("connect_server", &[]),
        client: Program::peer("connect_client", &[]),
        http1_server: Some(HTTP_CONNECT),
        grpc_client: Some(Program::peer("connect_client", &["--protocol", "grpc"])),
        sums: &[],
        ..Self::TONIC
    };

    /// tarpc: Rust traits as services.
    const TARPC: Self = Self {
        name: "tarpc",
        server: Program::peer("tarpc_server", &[]),
        client: Program::peer("tarpc_client", &[]),
        streams: false,
        grpc_server: None,
        http1_server: None,
        grpc_client: None,
        greeting: &[],
        sums: &[],
        ..Self::TONIC
    };

    /// frisbee-go and polyglot, with the call code of `tests/go`.
    const GO_FRPC: Self = Self {
        name: "go-frpc",
        server: Program::go("tests/go/bin/header10", "rpc-bench-server", &[]),
        client: Program::go("tests/go/bin/header10", "rpc-bench-client", &[]),
        server_alone: Some(GO_FRPC_ORDERED),
        scales: false,
        client_alone: true,
        ..Self::FLOOR
    };

    /// grpc-go: gRPC.
    const GRPC_GO: Self = Self {
        name: "grpc-go",
        server: Program::go("benches/go/bin", "grpc-bench-server", &[]),
        client: Program::go("benches/go/bin", "grpc-bench-client", &[]),
        http1_server: None,
        grpc_client: Some(Program::go("benches/go/bin", "grpc-bench-client", &[])),
        sums: &[],
        ..Self::TONIC
    };

    /// Bare HTTP: the lower bound of every stack based on hyper.
    const HYPER: Self = Self {
        name: "hyper",
        server: Program::peer("hyper_server", &[]),
        client: HTTP_GRPC,
        stack: false,
        streams: false,
        // It echoes any body. A response has the same bytes as its request.
        http1_server: Some(HTTP_CONNECT),
        grpc_client: None,
        sums: &[JSON_HTTP, JSON_HTTP_BATCH],
        ..Self::TONIC
    };

    /// axum: JSON without a schema.
    const AXUM: Self = Self {
        name: "axum",
        server: Program::peer("axum_server", &[]),
        client: HTTP_JSON,
        stack: false,
        streams: false,
        grpc_server: None,
        http1_server: Some(HTTP_JSON),
        grpc_client: None,
        sums: &[JSON_HTTP, JSON_HTTP_BATCH],
        ..Self::TONIC
    };

    /// frpc services over HTTP, on a port that serves all protocols.
    const FRPC_HTTP: Self = Self {
        server: Self::frpc_with(&["--layer", "frpc", "--http"]).server,
        stack: false,
        server_alone: None,
        scales: false,
        ..Self::FLOOR
    };

    /// The same over gRPC on both sides.
    const FRPC_GRPC: Self = Self {
        name: "frpc-grpc",
        client: FRPC_GRPC_CLIENT,
        grpc_server: Some(HTTP_GRPC),
        grpc_client: Some(FRPC_GRPC_CLIENT),
        greeting: Self::TONIC.greeting,
        heartbeat: Self::TONIC.heartbeat,
        ..Self::FRPC_HTTP
    };

    const fn frpc_with(server_options: &'static [&'static str]) -> Self {
        let server = Program::rust("examples", "load_server", server_options);
        let client = Program::rust("examples", "load_client", &["--layer", "frpc"]);
        Self { name: "frpc", server, client, server_alone: Some(server), streams: true, ..Self::FLOOR }
    }

    /// Returns the form of this contender for a contest, if it takes part.
    pub fn entrant(&self, contest: Contest) -> Option<Self> {
        match contest {
            Contest::Stacks => self.stack.then_some(*self),
            Contest::Streams => self.streams.then_some(*self),
            Contest::Servers => self.server_alone.map(|server| Self { server, client: Self::FRPC.client, ..*self }),
            Contest::Scaling => self.scales.then_some(*self),
            Contest::GrpcServers => self.grpc_server.map(|client| Self { client, ..*self }),
            Contest::Grpc | Contest::GrpcStreams if self.name == Self::FRPC.name => Some(*self),
            Contest::Grpc | Contest::GrpcStreams => self.grpc_client.map(|client| Self { client, ..*self }),
            Contest::GrpcClients => self.grpc_client.map(|client| Self { server: Self::TONIC.server, client, ..*self }),
            Contest::Http1Servers => self.http1_server.map(|client| Self { client, ..*self }),
            Contest::Sums(wire) => {
                let (_, client) = *self.sums.iter().find(|(on, _)| *on == wire)?;
                Some(Self { client, ..*self })
            }
            Contest::Clients => self.client_alone.then_some(Self { server: Self::FRPC.server, ..*self }),
        }
    }

    /// Returns `true` if it is measured unless the user chooses contenders.
    pub fn is_default(&self) -> bool {
        self.name != Self::FRISBEE.name
    }

    /// Returns `true` if idle connections are worth measuring.
    pub fn idles(&self) -> bool {
        self.stack || self.grpc_client.is_some()
    }

    /// Makes a few calls. Fails with the command that builds a missing program.
    pub fn check(&self) -> io::Result<()> {
        self.server.check_built()?;
        self.client.check_built()?;
        let server = self.start_server(Duration::ZERO, None)?;
        let args = Args {
            addr: server.addr,
            size: 32,
            field: Field::String,
            streaming: false,
            joined: false,
            clients: 1,
            concurrent: 1,
            seconds: Duration::from_millis(100),
            warmup: Duration::ZERO,
        };
        self.run_client(&args, None).map(drop)
    }

    /// Starts the server on a free port and on these cores. Its handlers sleep for `sleep`.
    pub fn start_server(&self, sleep: Duration, cores: Option<&[usize]>) -> io::Result<Server> {
        let process = self.server.start(&["--sleep-us", &sleep.as_micros().to_string(), "127.0.0.1:0"], cores)?;
        let line = process.line(SERVER_PATIENCE)?;
        let addr = line.strip_prefix("listening on ").and_then(|addr| parse_addr(addr).ok());
        let addr = addr.ok_or_else(|| io::Error::other(format!("the server does not listen: {line}")))?;
        Ok(Server { process, addr })
    }

    /// Runs the client to its end on these cores.
    pub fn run_client(&self, args: &Args, cores: Option<&[usize]>) -> io::Result<Report> {
        let words = args.to_words();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let client = self.client.start(&words, cores)?;
        let connecting = CONNECT_PATIENCE.saturating_mul(u32::try_from(args.clients).unwrap_or(u32::MAX));
        let line = client.line(connecting + args.warmup + args.seconds + CLIENT_PATIENCE)?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// The listening address.
    pub addr: SocketAddr,
}

impl Server {
    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// Handles the calls of a connection in order. This is faster for clients with many calls in flight, because replies
/// share writes.
const GO_FRPC_ORDERED: Program = Program::go("tests/go/bin/header10", "rpc-bench-server", &["-concurrency", "1"]);

const FRPC_GRPC_CLIENT: Program = Program::rust("examples", "load_client", &["--layer", "frpc", "--wire", "grpc"]);

/// The common client of all servers of a protocol.
const HTTP_GRPC: Program = Program::peer("http_client", &["--wire", "grpc"]);
const HTTP_CONNECT: Program = Program::peer("http_client", &["--wire", "connect"]);
const HTTP_JSON: Program = Program::peer("http_client", &["--wire", "connect-json"]);
const HTTP_TWIRP: Program = Program::peer("http_client", &["--wire", "twirp"]);

/// The PING frame.
const PING: [u8; 10] = [0x00, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0];

const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Long enough to wait for stuck calls.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// Per connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(2);
