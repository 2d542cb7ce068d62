mod sums;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use load::{Args, Field, Report, parse_addr};
use serde::Serialize;

use crate::contender::sums::{JSON_HTTP, JSON_HTTP_BATCH};
use crate::program::{Process, Program};

/// A server and the client that loads it.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name in the report.
    pub name: &'static str,
    server: Program,
    client: Program,
    /// Its server at its best under frpc's client, if that client can talk to it.
    server_alone: Option<Program>,
    /// True if more threads of its server are measured.
    scales: bool,
    /// Its server as the published measurements of Go's fRPC have it, if they have it.
    published: Option<Program>,
    /// True if it is in the table of stacks.
    stack: bool,
    /// True if its client can load frpc's server, and no other contender has the same client.
    client_alone: bool,
    /// True if its client can count the messages of streams.
    streams: bool,
    /// The client that every server of gRPC is loaded by, if it is one.
    grpc_server: Option<Program>,
    /// The client that its server is loaded by beside others over HTTP/1.1, if it takes part there.
    http1_server: Option<Program>,
    /// True if its client speaks gRPC.
    grpc_client: bool,
    /// The wires that it takes part on where sums are asked for, and the client that every server of each is loaded by.
    sums: &'static [(SumWire, Program)],
    /// The bytes that an idle connection sends once.
    pub greeting: &'static [u8],
    /// The bytes that an idle connection sends again and again.
    pub heartbeat: &'static [u8],
}

/// The sides of a contest: which client meets which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contest {
    /// Each server under the client of its own.
    Stacks,
    /// The same, with messages of streams instead of calls.
    Streams,
    /// The loads of the published measurements of Go's fRPC.
    Published,
    /// Servers under frpc's client.
    Servers,
    /// Clients before frpc's server.
    Clients,
    /// Servers of gRPC under one client, the bare HTTP/2 below them among them.
    GrpcServers,
    /// Clients of gRPC before tonic's server.
    GrpcClients,
    /// Servers of HTTP/1.1 under one client, the bare HTTP/1.1 below them among them; and tonic, as users know it.
    Http1Servers,
    /// Servers with so many threads, each server under the client of its own.
    Scaling,
    /// Servers of `sum`, all on the same wire under the same client; and tonic, as users know it.
    Sums(SumWire),
}

/// The way to ask for a sum: JSON-RPC, but for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SumWire {
    /// Over TCP, one value after the other.
    Tcp,
    /// The same, with a connection for each call.
    TcpReset,
    /// By POST.
    Http,
    /// By POST, ten calls at once.
    HttpBatch,
    /// In text messages.
    WebSocket,
    /// By GET, as an ordinary resource.
    Rest,
    /// In text messages that are no JSON-RPC.
    RestWebSocket,
}

impl Contender {
    /// In the order of the report's rows.
    pub const ALL: [Self; 30] = [
        Self::FLOOR,
        Self::FRISBEE,
        Self::FRPC,
        Self::FRPC_PER_CORE,
        Self::FRPC_URING,
        Self { name: "frpc-ordered", ..Self::frpc_with(&["--layer", "frpc", "--mode", "ordered"]) },
        Self { name: "frpc-spawn", ..Self::frpc_with(&["--layer", "frpc", "--mode", "spawn"]) },
        Self::TONIC,
        Self::CONNECT,
        Self::TARPC,
        Self::GO_FRPC,
        Self { name: "go-frpc-ordered", server: GO_FRPC_ORDERED, client_alone: false, ..Self::GO_FRPC },
        Self::GRPC_GO,
        Self::TWIRP,
        Self::HYPER,
        Self::FRPC_EVERY_WIRE,
        Self::FRPC_GRPC,
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

    /// The names of those that take part unless others are chosen.
    pub const DEFAULT: [&str; 25] = [
        "floor",
        "frpc",
        "frpc-per-core",
        "frpc-uring",
        "tonic",
        "connect-rust",
        "tarpc",
        "go-frpc",
        "grpc-go",
        "twirp",
        "hyper",
        "frpc-grpc",
        "frpc-connect",
        "frpc-connect-json",
        "frpc-twirp",
        "axum",
        "frpc-json",
        "frpc-json-per-core",
        "frpc-json-uring",
        "json-loop",
        "jsonrpsee",
        "ucall-posix",
        "ucall-uring",
        "fastapi",
        "grpc-python",
    ];

    /// Nothing between the socket and the reader.
    const FLOOR: Self = Self {
        name: "floor",
        server: Program::rust("benches", "floor_server", &[]),
        client: Program::rust("benches", "floor_client", &[]),
        // It answers any packet with the same, and so a request with a response.
        server_alone: Some(Program::rust("benches", "floor_server", &[])),
        scales: true,
        published: None,
        stack: true,
        client_alone: false,
        streams: false,
        grpc_server: None,
        http1_server: None,
        grpc_client: false,
        sums: &[],
        greeting: &[],
        heartbeat: &PING,
    };

    /// The library, without RPC on top.
    const FRISBEE: Self = Self {
        name: "frisbee",
        server: Program::rust("examples", "load_server", &["--layer", "frisbee"]),
        client: Program::rust("examples", "load_client", &["--layer", "frisbee"]),
        server_alone: Some(Program::rust("examples", "load_server", &["--layer", "frisbee"])),
        ..Self::FLOOR
    };

    /// The whole stack, on its default engine and in its default mode.
    const FRPC: Self = Self {
        published: Some(Program::rust("examples", "load_server", &["--layer", "frpc"])),
        client_alone: true,
        ..Self::frpc_with(&["--layer", "frpc"])
    };

    /// A thread, a runtime and a listener for each core, on both sides.
    const FRPC_PER_CORE: Self = Self {
        name: "frpc-per-core",
        client: Program::rust("examples", "load_client", &["--layer", "frpc", "--engine", "per-core"]),
        client_alone: true,
        ..Self::frpc_with(&["--layer", "frpc", "--engine", "per-core"])
    };

    /// On io_uring on both sides.
    const FRPC_URING: Self = Self {
        name: "frpc-uring",
        client: Program::rust("examples", "load_client", &["--layer", "frpc", "--engine", "uring"]),
        client_alone: true,
        ..Self::frpc_with(&["--layer", "frpc", "--engine", "uring"])
    };

    /// gRPC.
    const TONIC: Self = Self {
        name: "tonic",
        server: Program::peer("tonic_server", &[]),
        client: Program::peer("tonic_client", &[]),
        server_alone: None,
        scales: false,
        published: None,
        stack: true,
        client_alone: false,
        streams: true,
        grpc_server: Some(HTTP_GRPC),
        // Users compare what they have with it, over whatever wire.
        http1_server: Some(HTTP_GRPC),
        grpc_client: true,
        sums: &[
            (SumWire::Tcp, HTTP_GRPC),
            (SumWire::Http, HTTP_GRPC),
            (SumWire::HttpBatch, HTTP_GRPC),
            (SumWire::WebSocket, HTTP_GRPC),
        ],
        greeting: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        heartbeat: &[],
    };

    /// The Connect protocol over HTTP/2, which is faster here than its gRPC.
    const CONNECT: Self = Self {
        name: "connect-rust",
        server: Program::peer("connect_server", &[]),
        client: Program::peer("connect_client", &[]),
        http1_server: Some(HTTP_CONNECT),
        grpc_client: false,
        sums: &[],
        ..Self::TONIC
    };

    /// Rust's traits as services.
    const TARPC: Self = Self {
        name: "tarpc",
        server: Program::peer("tarpc_server", &[]),
        client: Program::peer("tarpc_client", &[]),
        streams: false,
        grpc_server: None,
        http1_server: None,
        grpc_client: false,
        greeting: &[],
        sums: &[],
        ..Self::TONIC
    };

    /// frisbee-go and polyglot under the call code of `tests/go`.
    const GO_FRPC: Self = Self {
        name: "go-frpc",
        server: Program::go("tests/go/bin/header10", "rpc-bench-server", &[]),
        client: Program::go("tests/go/bin/header10", "rpc-bench-client", &[]),
        server_alone: Some(GO_FRPC_ORDERED),
        scales: false,
        published: Some(GO_FRPC_ORDERED),
        client_alone: true,
        ..Self::FLOOR
    };

    /// gRPC again.
    const GRPC_GO: Self = Self {
        name: "grpc-go",
        server: Program::go("benches/go/bin", "grpc-bench-server", &[]),
        client: Program::go("benches/go/bin", "grpc-bench-client", &[]),
        published: Some(Program::go("benches/go/bin", "grpc-bench-server", &[])),
        http1_server: None,
        sums: &[],
        ..Self::TONIC
    };

    /// Protobuf over HTTP/1.1.
    const TWIRP: Self = Self {
        name: "twirp",
        server: Program::go("benches/go/bin", "twirp-bench-server", &[]),
        client: Program::go("benches/go/bin", "twirp-bench-client", &[]),
        published: Some(Program::go("benches/go/bin", "twirp-bench-server", &[])),
        stack: false,
        streams: false,
        grpc_server: None,
        http1_server: Some(HTTP_TWIRP),
        grpc_client: false,
        greeting: &[],
        sums: &[],
        ..Self::TONIC
    };

    /// HTTP with nothing on top, below every stack that stands on hyper.
    const HYPER: Self = Self {
        name: "hyper",
        server: Program::peer("hyper_server", &[]),
        client: HTTP_GRPC,
        stack: false,
        streams: false,
        // It answers any body with the same, and so a request with a response.
        http1_server: Some(HTTP_CONNECT),
        grpc_client: false,
        sums: &[JSON_HTTP, JSON_HTTP_BATCH],
        ..Self::TONIC
    };

    /// JSON without a schema.
    const AXUM: Self = Self {
        name: "axum",
        server: Program::peer("axum_server", &[]),
        client: HTTP_JSON,
        stack: false,
        streams: false,
        grpc_server: None,
        http1_server: Some(HTTP_JSON),
        grpc_client: false,
        sums: &[JSON_HTTP, JSON_HTTP_BATCH],
        ..Self::TONIC
    };

    /// Frisbee on a port on which every other wire is served as well.
    const FRPC_EVERY_WIRE: Self = Self { name: "frpc-every-wire", ..Self::frpc_with(&["--layer", "frpc", "--http"]) };

    /// The services of frpc over HTTP.
    const FRPC_HTTP: Self =
        Self { server: Self::FRPC_EVERY_WIRE.server, stack: false, server_alone: None, scales: false, ..Self::FLOOR };

    /// The same over gRPC, under frpc's client of gRPC if clients are compared.
    const FRPC_GRPC: Self = Self {
        name: "frpc-grpc",
        client: Program::rust("examples", "load_client", &["--layer", "frpc", "--wire", "grpc"]),
        grpc_server: Some(HTTP_GRPC),
        grpc_client: true,
        ..Self::FRPC_HTTP
    };

    const fn frpc_with(server_options: &'static [&'static str]) -> Self {
        let server = Program::rust("examples", "load_server", server_options);
        let client = Program::rust("examples", "load_client", &["--layer", "frpc"]);
        Self { name: "frpc", server, client, server_alone: Some(server), streams: true, ..Self::FLOOR }
    }

    /// Returns the part that it takes in a contest, if it takes any.
    pub fn entrant(&self, contest: Contest) -> Option<Self> {
        match contest {
            Contest::Stacks => self.stack.then_some(*self),
            Contest::Streams => self.streams.then_some(*self),
            Contest::Published => self.published.map(|server| Self { server, ..*self }),
            Contest::Servers => self.server_alone.map(|server| Self { server, client: Self::FRPC.client, ..*self }),
            Contest::Scaling => self.scales.then_some(*self),
            Contest::GrpcServers => self.grpc_server.map(|client| Self { client, ..*self }),
            Contest::GrpcClients => self.grpc_client.then_some(Self { server: Self::TONIC.server, ..*self }),
            Contest::Http1Servers => self.http1_server.map(|client| Self { client, ..*self }),
            Contest::Sums(wire) => {
                let (_, client) = *self.sums.iter().find(|(on, _)| *on == wire)?;
                Some(Self { client, ..*self })
            }
            Contest::Clients => self.client_alone.then_some(Self { server: Self::FRPC.server, ..*self }),
        }
    }

    /// True if its idle connections are worth measuring: those that only add are on wires that others show.
    pub fn idles(&self) -> bool {
        self.sums.is_empty() || self.http1_server.is_some()
    }

    /// Makes a few calls. Fails with the command that builds what is missing.
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

    /// Starts the server on a free port and on these cores, with handlers that sleep.
    pub fn start_server(&self, sleep: Duration, cores: Option<&[usize]>) -> io::Result<Server> {
        let process = self.server.start(&["--sleep-us", &sleep.as_micros().to_string(), "127.0.0.1:0"], cores)?;
        let line = process.line(SERVER_PATIENCE)?;
        let addr = line.strip_prefix("listening on ").and_then(|addr| parse_addr(addr).ok());
        let addr = addr.ok_or_else(|| io::Error::other(format!("the server does not listen: {line}")))?;
        Ok(Server { process, addr })
    }

    /// Runs the client to its end, on these cores.
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
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

/// A client that has many calls in flight is served best one after another: their replies share writes.
const GO_FRPC_ORDERED: Program = Program::go("tests/go/bin/header10", "rpc-bench-server", &["-concurrency", "1"]);

/// One client for all servers of a wire.
const HTTP_GRPC: Program = Program::peer("http_client", &["--wire", "grpc"]);
const HTTP_CONNECT: Program = Program::peer("http_client", &["--wire", "connect"]);
const HTTP_JSON: Program = Program::peer("http_client", &["--wire", "connect-json"]);
const HTTP_TWIRP: Program = Program::peer("http_client", &["--wire", "twirp"]);

/// The wire format's PING.
const PING: [u8; 10] = [0x00, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0];

const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Enough to wait for stuck calls.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// For each connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(2);
