//! Measures the things that only two Rust peers have, beside the same without them, over loopback TCP.
//!
//! - A unary call with four metadata entries and a deadline of its own, beside a plain one.
//! - A unary call of 32 bytes and of 64 KiB on a connection with checksums, and without.
//! - The messages of 99 streams of a connection, with a hundredth on it that nobody reads, and without.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use bench_rpc::{
    Service, plain,
    schema::{Message, RepeatRequest, echo_client::EchoClient, echo_server::EchoServer},
    text, with_metadata,
};
use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use frpc::{Channel, Config, Request, Server, Streaming};
use futures_util::future::join_all;
use tokio::runtime::Runtime;

fn metadata(criterion: &mut Criterion) {
    let pair = Pair::start();
    let mut group = criterion.benchmark_group("unary, 32 callers");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat).sample_size(30);
    for (name, request) in [("plain", plain as fn(usize) -> _), ("4 metadata and a deadline", with_metadata)] {
        group.bench_function(BenchmarkId::new(name, MESSAGE_LEN), |bencher| {
            bencher.iter_custom(|calls| pair.unary(calls, MESSAGE_LEN, request));
        });
    }
    group.finish();
}

fn checksums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksums, 32 callers");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat).sample_size(30);
    for (name, checksums) in [("without", false), ("with", true)] {
        let pair = Pair::start_with(&Config { checksums, ..Config::default() });
        for len in [MESSAGE_LEN, LARGE_LEN] {
            group.bench_function(BenchmarkId::new(name, len), |bencher| {
                bencher.iter_custom(|calls| pair.unary(calls, len, plain));
            });
        }
    }
    group.finish();
}

fn stalled(criterion: &mut Criterion) {
    let pair = Pair::start();
    let mut group = criterion.benchmark_group("99 streams");
    group.throughput(Throughput::Elements(1)).sampling_mode(SamplingMode::Flat).sample_size(30);
    streams(&mut group, &pair, "alone");
    let unread = pair.unread();
    streams(&mut group, &pair, "beside one that nobody reads");
    drop(unread);
    streams(&mut group, &pair, "alone again, to tell the noise");
    group.finish();
}

fn streams(group: &mut criterion::BenchmarkGroup<'_, WallTime>, pair: &Pair, name: &str) {
    group.bench_function(name, |bencher| bencher.iter_custom(|messages| pair.streams(messages)));
}

/// A server and one connection to it, each side on a runtime of its own.
struct Pair {
    _server: Runtime,
    runtime: Runtime,
    client: EchoClient,
}

impl Pair {
    fn start() -> Self {
        Self::start_with(&Config::default())
    }

    fn start_with(config: &Config) -> Self {
        let (serving, runtime) =
            (Runtime::new().expect("threads can be started"), Runtime::new().expect("threads can be started"));
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::builder().config(config.clone()).add_service(EchoServer::new(Service));
        let server = serving.block_on(server.bind(any_port)).expect("a port is free");
        let addr = server.local_addr().socket_addr().expect("it is bound to TCP");
        serving.spawn(async move {
            let _server = server;
            std::future::pending::<()>().await;
        });
        let channel = runtime.block_on(Channel::builder().config(config.clone()).connect(addr));
        let client = EchoClient::new(channel.expect("the server listens"));
        Self { _server: serving, runtime, client }
    }

    /// The time for so many calls with a message of this length, by callers that each have one under way.
    fn unary(&self, calls: u64, len: usize, request: fn(usize) -> Request<Message>) -> Duration {
        let callers = (0..CALLERS).map(|caller| {
            let (client, share) = (self.client.clone(), calls / CALLERS + u64::from(caller < calls % CALLERS));
            async move {
                for _ in 0..share {
                    client.once(request(len)).await.expect("the server answers");
                }
            }
        });
        self.timed(callers)
    }

    /// The time for so many messages on all streams.
    fn streams(&self, messages: u64) -> Duration {
        let each = u32::try_from(messages.div_ceil(STREAMS)).expect("a sample is short");
        let readers = (0..STREAMS).map(|_| {
            let client = self.client.clone();
            async move {
                let mut messages = repeat(&client, each).await;
                while messages.message().await.expect("the stream comes to its end").is_some() {}
            }
        });
        self.timed(readers)
    }

    /// A stream of which one message was read, and many wait.
    fn unread(&self) -> Streaming<Message> {
        self.runtime.block_on(async {
            let mut messages = repeat(&self.client, u32::MAX).await;
            messages.message().await.expect("the stream begins").expect("it has messages");
            messages
        })
    }

    fn timed(&self, tasks: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) -> Duration {
        let entered = self.runtime.enter();
        let start = Instant::now();
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        drop(entered);
        for ended in self.runtime.block_on(join_all(tasks)) {
            ended.expect("a call that fails ends the bench");
        }
        start.elapsed()
    }
}

async fn repeat(client: &EchoClient, count: u32) -> Streaming<Message> {
    let request = RepeatRequest { text: text(MESSAGE_LEN), count };
    client.repeat(request).await.expect("the server answers").into_inner()
}

const MESSAGE_LEN: usize = 32;
const LARGE_LEN: usize = 64 * 1024;
const CALLERS: u64 = 32;
const STREAMS: u64 = 99;

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = metadata, checksums, stalled
}
criterion_main!(benches);
