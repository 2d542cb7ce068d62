//! Servers of `sum`, most of them with JSON-RPC.

use crate::contender::{Contender, HTTP_GRPC, SumWire};
use crate::program::Program;

impl Contender {
    /// frpc with JSON-RPC on every protocol.
    pub(super) const FRPC_JSON: Self = Self {
        name: "frpc-json",
        server: Program::rust("examples", "load_server", &["--layer", "frpc", "--http"]),
        sums: &[JSON_TCP, JSON_TCP_RESET, JSON_HTTP, JSON_HTTP_BATCH, JSON_WEBSOCKET],
        ..Self::JSON
    };

    /// The same with a thread, a runtime and a listener per core.
    pub(super) const FRPC_JSON_PER_CORE: Self = Self {
        name: "frpc-json-per-core",
        server: Program::rust("examples", "load_server", &["--layer", "frpc", "--http", "--engine", "per-core"]),
        ..Self::FRPC_JSON
    };

    /// The same with io_uring.
    pub(super) const FRPC_JSON_URING: Self = Self {
        name: "frpc-json-uring",
        server: Program::rust("examples", "load_server", &["--layer", "frpc", "--http", "--engine", "uring"]),
        ..Self::FRPC_JSON
    };

    /// A loop with tokio and serde_json: the lower bound of JSON-RPC servers over TCP.
    pub(super) const JSON_LOOP: Self = Self {
        name: "json-loop",
        server: Program::peer("json_loop_server", &[]),
        client: JSON_TCP.1,
        sums: &[JSON_TCP, JSON_TCP_RESET],
        ..Self::JSON
    };

    pub(super) const JSONRPSEE: Self = Self {
        name: "jsonrpsee",
        server: Program::peer("jsonrpsee_server", &[]),
        sums: &[JSON_HTTP, JSON_HTTP_BATCH, JSON_WEBSOCKET],
        ..Self::JSON
    };

    /// UCall on POSIX closes each connection after the first answer.
    pub(super) const UCALL_POSIX: Self = Self {
        name: "ucall-posix",
        server: Program::python("ucall_server", &["--engine", "posix"]),
        client: JSON_TCP_RESET.1,
        sums: &[JSON_TCP_RESET],
        ..Self::JSON
    };

    pub(super) const UCALL_URING: Self = Self {
        name: "ucall-uring",
        server: Program::python("ucall_server", &["--engine", "uring"]),
        client: JSON_TCP.1,
        sums: &[JSON_TCP, JSON_TCP_RESET, JSON_HTTP, JSON_HTTP_BATCH],
        ..Self::JSON
    };

    pub(super) const FASTAPI: Self = Self {
        name: "fastapi",
        server: Program::python("fastapi_server", &[]),
        sums: &[
            (SumWire::Rest, Program::peer("json_client", &["--wire", "rest"])),
            (SumWire::RestWebSocket, Program::peer("json_client", &["--wire", "rest-websocket"])),
        ],
        client: Program::peer("json_client", &["--wire", "rest"]),
        ..Self::JSON
    };

    /// gRPC for Python, without parsing messages.
    pub(super) const GRPC_PYTHON: Self = Self {
        name: "grpc-python",
        server: Program::python("grpc_server", &[]),
        client: HTTP_GRPC,
        sums: &[(SumWire::Http, HTTP_GRPC)],
        ..Self::JSON
    };

    const JSON: Self = Self {
        client: JSON_HTTP.1,
        server_alone: None,
        scales: false,
        stack: false,
        greeting: &[],
        heartbeat: &[],
        ..Self::FLOOR
    };
}

const JSON_TCP: (SumWire, Program) = (SumWire::Tcp, Program::peer("json_client", &["--wire", "tcp"]));
const JSON_TCP_RESET: (SumWire, Program) = (SumWire::TcpReset, Program::peer("json_client", &["--wire", "tcp-reset"]));
pub(super) const JSON_HTTP: (SumWire, Program) = (SumWire::Http, Program::peer("json_client", &["--wire", "http"]));
pub(super) const JSON_HTTP_BATCH: (SumWire, Program) =
    (SumWire::HttpBatch, Program::peer("json_client", &["--wire", "http-batch"]));
const JSON_WEBSOCKET: (SumWire, Program) = (SumWire::WebSocket, Program::peer("json_client", &["--wire", "websocket"]));
