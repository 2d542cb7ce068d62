use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use benches::{Contender, Contest, SumWire, cores};
use load::{Args, Field};
use serde::Serialize;

/// A load, identical for every contender.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// `true` to include it in a quick report.
    #[serde(skip)]
    pub(crate) quick: bool,
    pub(crate) contest: Contest,
    pub(crate) size: usize,
    pub(crate) field: Field,
    pub(crate) clients: usize,
    pub(crate) concurrent: u16,
    /// The sleep time of each handler.
    pub(crate) sleep_us: u64,
    /// The number of cores of the server, and therefore of its threads. `None` for all cores.
    pub(crate) server_cores: Option<usize>,
}

impl Workload {
    /// Returns the contenders able to take part, in the form for this contest.
    pub(crate) fn entrants(&self, contenders: &[Contender]) -> impl Iterator<Item = Contender> {
        contenders.iter().filter_map(|contender| contender.entrant(self.contest))
    }

    /// Returns the arguments of the client, for a run of at least these times.
    pub(crate) fn args(&self, addr: SocketAddr, seconds: Duration, warmup: Duration) -> Args {
        let &Self { size, field, clients, concurrent, .. } = self;
        let streaming = matches!(self.contest, Contest::Streams | Contest::GrpcStreams);
        let (seconds, warmup) = (seconds.max(self.settling()), warmup.max(self.settling()));
        Args { addr, size, field, streaming, joined: false, clients, concurrent, seconds, warmup }
    }

    /// Returns the cores of the server, and the remaining cores for the client. `None` without a restriction.
    pub(crate) fn cores(&self) -> io::Result<Option<(Vec<usize>, Vec<usize>)>> {
        let Some(len) = self.server_cores else { return Ok(None) };
        let all = cores::all()?;
        let Some((server, rest)) = all.split_at_checked(len) else {
            return Err(io::Error::other(format!("there are {} cores", all.len())));
        };
        Ok(Some((server.to_vec(), if rest.is_empty() { all.clone() } else { rest.to_vec() })))
    }

    /// Returns the minimum time in which each client gets its turn.
    pub(crate) fn settling(&self) -> Duration {
        PER_CLIENT * u32::try_from(self.clients).expect("workloads have thousands of clients at most")
    }

    /// Returns the name without the property that differs within a chart.
    pub(crate) fn family(&self) -> String {
        match self.contest {
            Contest::Streams => format!("stream-C{}-K{}", self.clients, self.concurrent),
            Contest::GrpcStreams => format!("grpc-stream-C{}-K{}", self.clients, self.concurrent),
            Contest::Grpc => self.name.replace(&format!("-K{}", self.concurrent), ""),
            Contest::Scaling => self.name.rsplit_once("-S").map_or(self.name, |(family, _)| family).to_owned(),
            _ => self.name.replace(&format!("-C{}-", self.clients), "-"),
        }
    }
}

/// Returns the names of our contenders in a contest. The report prints their ratios to every other contender.
pub(crate) fn subjects(contest: Contest) -> &'static [&'static str] {
    match contest {
        Contest::Grpc | Contest::GrpcStreams | Contest::GrpcServers | Contest::GrpcClients => {
            &["frpc-grpc", "frpc-grpc-per-core", "frpc-grpc-uring"]
        }
        Contest::Http1Servers => &["frpc-connect", "frpc-connect-json", "frpc-twirp"],
        Contest::Sums(_) => &["frpc-json", "frpc-json-per-core", "frpc-json-uring"],
        _ => &["frpc", "frpc-per-core", "frpc-uring"],
    }
}

pub(crate) const WORKLOADS: [Workload; 51] = [
    Workload { name: "32B-C1-K1", clients: 1, ..SMALL },
    Workload { name: "32B-C32-K1", clients: 32, ..SMALL },
    Workload { name: "32B-C256-K1", clients: 256, ..SMALL },
    Workload { name: "32B-C8192-K1", quick: false, clients: 8192, ..SMALL },
    Workload { name: "512B-C32-K1", clients: 32, size: 512, ..SMALL },
    Workload { name: "128KiB-string-C32-K1", clients: 32, size: 128 << 10, ..SMALL },
    Workload { name: "128KiB-bytes-C32-K1", clients: 32, size: 128 << 10, field: Field::Bytes, ..SMALL },
    Workload { name: "1MiB-string-C32-K1", clients: 32, size: 1 << 20, ..SMALL },
    Workload { name: "1MiB-bytes-C32-K1", clients: 32, size: 1 << 20, field: Field::Bytes, ..SMALL },
    Workload { name: "32B-C1-K10", clients: 1, concurrent: 10, ..SMALL },
    Workload { name: "32B-C32-K10", clients: 32, concurrent: 10, ..SMALL },
    Workload { name: "32B-C256-K10", clients: 256, concurrent: 10, ..SMALL },
    Workload { name: "32B-C1024-K10", clients: 1024, concurrent: 10, ..SMALL },
    Workload { name: "50us-C32-K10", quick: false, clients: 32, concurrent: 10, sleep_us: 50, ..SMALL },
    Workload { name: "50us-C256-K10", clients: 256, concurrent: 10, sleep_us: 50, ..SMALL },
    Workload { name: "stream-32B-C1-K1", ..STREAM },
    Workload { name: "stream-16KiB-C1-K1", quick: false, size: 16 << 10, ..STREAM },
    Workload { name: "stream-128KiB-C1-K1", size: 128 << 10, ..STREAM },
    Workload { name: "stream-1MiB-C1-K1", quick: false, size: 1 << 20, ..STREAM },
    Workload { name: "servers-32B-C32-K1", contest: Contest::Servers, clients: 32, ..SMALL },
    Workload { name: "servers-32B-C32-K10", contest: Contest::Servers, clients: 32, concurrent: 10, ..SMALL },
    Workload { name: "servers-128KiB-C32-K1", contest: Contest::Servers, clients: 32, size: 128 << 10, ..SMALL },
    Workload { name: "clients-32B-C32-K1", contest: Contest::Clients, clients: 32, ..SMALL },
    Workload { name: "clients-32B-C32-K10", contest: Contest::Clients, clients: 32, concurrent: 10, ..SMALL },
    Workload { name: "grpc-32B-C32-K1", ..GRPC },
    Workload { name: "grpc-32B-C32-K10", concurrent: 10, ..GRPC },
    Workload { name: "grpc-32B-C32-K100", concurrent: 100, ..GRPC },
    Workload { name: "grpc-stream-32B-C1-K1", ..GRPC_STREAM },
    Workload { name: "grpc-stream-16KiB-C1-K1", size: 16 << 10, ..GRPC_STREAM },
    Workload { name: "grpc-stream-1MiB-C1-K1", size: 1 << 20, ..GRPC_STREAM },
    Workload { name: "grpc-servers-32B-C32-K1", ..GRPC_SERVERS },
    Workload { name: "grpc-servers-32B-C32-K10", concurrent: 10, ..GRPC_SERVERS },
    Workload { name: "grpc-clients-32B-C32-K1", ..GRPC_CLIENTS },
    Workload { name: "grpc-clients-32B-C32-K10", concurrent: 10, ..GRPC_CLIENTS },
    Workload { name: "http1-servers-32B-C32-K1", ..HTTP1_SERVERS },
    Workload { name: "http1-servers-32B-C32-K10", concurrent: 10, ..HTTP1_SERVERS },
    Workload { name: "scaling-32B-C256-K1-S1", server_cores: Some(1), ..SCALING },
    Workload { name: "scaling-32B-C256-K1-S2", server_cores: Some(2), ..SCALING },
    Workload { name: "scaling-32B-C256-K10-S1", concurrent: 10, server_cores: Some(1), ..SCALING },
    Workload { name: "scaling-32B-C256-K10-S2", concurrent: 10, server_cores: Some(2), ..SCALING },
    Workload { name: "sum-tcp-C1-K1", clients: 1, ..sum(SumWire::Tcp) },
    Workload { name: "sum-tcp-C32-K1", clients: 32, ..sum(SumWire::Tcp) },
    Workload { name: "sum-tcp-C32-K10", clients: 32, concurrent: 10, ..sum(SumWire::Tcp) },
    Workload { name: "sum-tcp-reset-C32-K1", clients: 32, ..sum(SumWire::TcpReset) },
    Workload { name: "sum-http-C1-K1", clients: 1, ..sum(SumWire::Http) },
    Workload { name: "sum-http-C32-K1", clients: 32, ..sum(SumWire::Http) },
    Workload { name: "sum-http-batch-C32-K1", clients: 32, ..sum(SumWire::HttpBatch) },
    Workload { name: "sum-websocket-C32-K1", clients: 32, ..sum(SumWire::WebSocket) },
    Workload { name: "sum-websocket-C32-K10", clients: 32, concurrent: 10, ..sum(SumWire::WebSocket) },
    Workload { name: "sum-rest-C32-K1", clients: 32, ..sum(SumWire::Rest) },
    Workload { name: "sum-rest-websocket-C32-K1", clients: 32, ..sum(SumWire::RestWebSocket) },
];

/// The minimum time per client, so that each of thousands of clients gets its turn.
pub(crate) const PER_CLIENT: Duration = Duration::from_micros(250);

const SMALL: Workload = Workload {
    name: "",
    quick: true,
    contest: Contest::Stacks,
    size: 32,
    field: Field::String,
    clients: 1,
    concurrent: 1,
    sleep_us: 0,
    server_cores: None,
};

/// The server sends the same message repeatedly.
const STREAM: Workload = Workload { contest: Contest::Streams, ..SMALL };

const GRPC: Workload = Workload { contest: Contest::Grpc, quick: false, clients: 32, ..SMALL };

const GRPC_STREAM: Workload = Workload { contest: Contest::GrpcStreams, quick: false, ..SMALL };

const GRPC_SERVERS: Workload = Workload { contest: Contest::GrpcServers, ..GRPC };

const GRPC_CLIENTS: Workload = Workload { contest: Contest::GrpcClients, ..GRPC };

const HTTP1_SERVERS: Workload = Workload { contest: Contest::Http1Servers, ..GRPC };

const SCALING: Workload = Workload { contest: Contest::Scaling, quick: false, clients: 256, ..SMALL };

const fn sum(wire: SumWire) -> Workload {
    Workload { contest: Contest::Sums(wire), quick: false, ..SMALL }
}
