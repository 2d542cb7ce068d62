//! Instructions of unary 32-byte calls, counted by callgrind on each side by itself and on both together, plain and with
//! metadata, and of the messages of a stream, over frisbee and gRPC. More than recorded is a failure.
//!
//! The server answers frames that were encoded beforehand; the client is answered by a task that sends back what it
//! reads, which is what an echo answers, or over gRPC by one that puts each message into the frames of an answer. Both
//! run on a current-thread runtime without I/O, over a pipe in memory; the pipe and the other end are part of the count,
//! about a fifteenth. `fleet_client` has 40 callers of a channel to four servers. The peer of the gRPC client takes 450
//! per call with ten callers, and 1,230 with one. What is counted is calls on a connection that is warm, and nothing of
//! its setup.
//!
//! Runs of one build differ by less than 0.01 %: no thread, no seed of a hash and no heartbeat takes part. The limits
//! leave 0.5 to 3 % for other versions of the C library and for changes elsewhere that move what is inlined.
#![allow(missing_docs, reason = "the macros of gungraun write none")]

use std::process;

use bench_rpc::{
    GrpcServing, TonicStreaming,
    callgrind::missing_tool,
    connected_by_grpc,
    in_memory::{Both, Calling, MESSAGE_LEN, Serving, connected, current_thread},
    plain,
    schema::{Message, RepeatRequest, echo_client::EchoClient},
    text, with_metadata,
};
use frpc::Server;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use tokio::runtime::Runtime;

#[library_benchmark]
#[bench::one(args = (1), setup = Serving::start, config = at_most(7_400, CALLS))]
#[bench::ten(args = (10), setup = Serving::start, config = at_most(2_640, CALLS))]
fn server(mut serving: Serving) -> Serving {
    serving.serve(CALLS);
    serving
}

#[library_benchmark]
#[bench::one(args = (1), setup = Calling::start, config = at_most(10_650, CALLS))]
#[bench::ten(args = (10), setup = Calling::start, config = at_most(4_300, CALLS))]
fn client(calling: Calling) -> Calling {
    calling.call(CALLS);
    calling
}

#[library_benchmark]
#[bench::ten(args = (10), setup = Calling::start_fleet, config = at_most(5_960, CALLS))]
fn fleet_client(calling: Calling) -> Calling {
    calling.call(CALLS);
    calling
}

#[library_benchmark]
#[bench::one(args = (1), setup = GrpcServing::start, config = at_most(9_170, CALLS))]
#[bench::ten(args = (10), setup = GrpcServing::start, config = at_most(3_930, CALLS))]
fn grpc_server(mut serving: GrpcServing) -> GrpcServing {
    serving.serve(CALLS);
    serving
}

#[library_benchmark]
#[bench::one(args = (1), setup = Calling::start_grpc, config = at_most(10_800, CALLS))]
#[bench::ten(args = (10), setup = Calling::start_grpc, config = at_most(5_900, CALLS))]
fn grpc_client(calling: Calling) -> Calling {
    calling.call(CALLS);
    calling
}

#[library_benchmark]
#[bench::plain(args = (plain,), setup = Both::start, config = at_most(7_450, CALLS))]
#[bench::metadata(args = (with_metadata,), setup = Both::start, config = at_most(14_700, CALLS))]
fn both(both: Both) -> Both {
    both.call(CALLS);
    both
}

#[library_benchmark]
#[bench::small(setup = Streaming::start, config = at_most(1_060, MESSAGES))]
fn stream(mut streaming: Streaming) -> Streaming {
    streaming.receive(MESSAGES);
    streaming
}

#[library_benchmark]
#[bench::small(setup = Streaming::start_grpc, config = at_most(1_205, MESSAGES))]
fn grpc_stream(mut streaming: Streaming) -> Streaming {
    streaming.receive(MESSAGES);
    streaming
}

// The same with tonic over loopback TCP, for comparison.
#[library_benchmark]
#[bench::small(setup = start_tonic)]
fn tonic_stream(mut streaming: TonicStreaming) -> TonicStreaming {
    streaming.receive(TONIC_MESSAGES);
    streaming
}

fn start_tonic() -> TonicStreaming {
    let mut streaming = TonicStreaming::start(text(MESSAGE_LEN));
    streaming.receive(TONIC_MESSAGES);
    streaming
}

/// A client and a server in one process, and a stream between them.
struct Streaming {
    runtime: Runtime,
    _server: Server,
    messages: frpc::Streaming<Message>,
}

impl Streaming {
    fn start() -> Self {
        Self::start_over(connected)
    }

    fn start_grpc() -> Self {
        Self::start_over(connected_by_grpc)
    }

    fn start_over(connect: fn(&Runtime) -> (Server, EchoClient)) -> Self {
        let runtime = current_thread();
        let (server, client) = connect(&runtime);
        let request = RepeatRequest { text: text(MESSAGE_LEN), count: u32::MAX };
        let messages = runtime.block_on(client.repeat(request)).expect("it is sent").into_inner();
        let mut streaming = Self { runtime, _server: server, messages };
        streaming.receive(WARM_UP_MESSAGES);
        streaming
    }

    fn receive(&mut self, count: usize) {
        let Self { runtime, messages, .. } = self;
        runtime.block_on(async {
            for _ in 0..count {
                let message =
                    messages.message().await.expect("the server sends on").expect("it sends more than are read");
                assert_eq!(message.text.len(), MESSAGE_LEN);
            }
        });
    }
}

fn at_most(instructions_each: usize, count: usize) -> LibraryBenchmarkConfig {
    let limit = (instructions_each * count) as u64;
    LibraryBenchmarkConfig::default().tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)])).clone()
}

/// Ends the program if it cannot count. The runner evaluates the configuration first of all.
fn if_there_are_tools() -> LibraryBenchmarkConfig {
    if let Some(tool) = missing_tool(&["valgrind", "gungraun-runner"]) {
        println!("nothing is counted: {tool} is not installed");
        process::exit(0);
    }
    LibraryBenchmarkConfig::default()
}

const CALLS: usize = 1000;
/// Many times what may be under way.
const MESSAGES: usize = 100_000;
const WARM_UP_MESSAGES: usize = 20_000;
/// More than the windows of its client hold.
const TONIC_MESSAGES: usize = 200_000;

library_benchmark_group!(
    name = calls,
    benchmarks = [server, client, fleet_client, grpc_server, grpc_client, both, stream, grpc_stream, tonic_stream]
);
main!(config = if_there_are_tools(), library_benchmark_groups = calls);
