//! The cost of metrics and of a trace context that is not sampled: instructions of a unary 32-byte call with it, by
//! callgrind, minus those without it. More than recorded is a failure.
//!
//! One program runs both ways, so inlining is the same. What runs is what `instructions` counts. The time of counting a
//! call, and of reading and writing a context, is the minimum of many short rounds: other work on the machine only adds.
#![allow(missing_docs, reason = "nothing is public")]

use std::{
    env,
    hint::black_box,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use bench_rpc::{
    GrpcServing, callgrind, connected_by_grpc,
    in_memory::{Both, Calling, Serving, connected},
    plain,
    schema::echo_client::EchoClient,
};
use frpc::{Metadata, Server, TraceContext};
use frpc_metrics::CallCounters;
use tokio::runtime::Runtime;

/// A kind of calls, and the most instructions of a call that it may add.
struct Case {
    name: &'static str,
    start: fn(bool) -> Box<dyn FnMut()>,
    limit: f64,
}

const CASES: [Case; 11] = [
    Case { name: "reading and writing a trace context", start: |on| pass_contexts(on), limit: 780.0 },
    Case { name: "metrics, server, 1 call in flight", start: |on| server(1, on), limit: 155.0 },
    Case { name: "metrics, server, 10 calls in flight", start: |on| server(10, on), limit: 38.0 },
    Case { name: "metrics, channel, 1 call in flight", start: |on| channel(1, on), limit: 88.0 },
    Case { name: "metrics, channel, 10 calls in flight", start: |on| channel(10, on), limit: 88.0 },
    Case { name: "metrics, gRPC server, 1 call in flight", start: |on| grpc_server(1, on), limit: 155.0 },
    Case { name: "metrics, gRPC server, 10 calls in flight", start: |on| grpc_server(10, on), limit: 38.0 },
    Case { name: "metrics, gRPC channel, 1 call in flight", start: |on| grpc_channel(1, on), limit: 86.0 },
    Case { name: "metrics, gRPC channel, 10 calls in flight", start: |on| grpc_channel(10, on), limit: 87.0 },
    Case { name: "trace context, both sides", start: |on| traced(connected, on), limit: 3_600.0 },
    Case { name: "trace context, both sides of gRPC", start: |on| traced(connected_by_grpc, on), limit: 9_900.0 },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, count, name, side] = &arguments[..]
        && count == COUNT
    {
        let case = CASES.iter().find(|case| case.name == name).expect("the name is from the table");
        make_counted_calls(&mut (case.start)(side == ON));
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    let nanos = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(ROUND_LEN);
    let counting = nanos(best_time(count_a_call));
    println!("counting a call: {counting:.1} ns, {COUNTING_NANOS_MAX} at most");
    if counting > COUNTING_NANOS_MAX {
        eprintln!("counting a call takes more than {COUNTING_NANOS_MAX} ns");
        code = ExitCode::FAILURE;
    }
    // Near its goal of 50 ns, so only its instructions have a bound.
    println!("reading and writing a trace context: {:.1} ns", nanos(best_time(pass_a_context)));
    if let Some(tool) = callgrind::missing_tool(&["valgrind"]) {
        println!("no instructions are counted: {tool} is not installed");
        return code;
    }
    // Arguments choose cases by parts of their names.
    let wanted: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with("--")).collect();
    let is_wanted = |case: &&Case| wanted.is_empty() || wanted.iter().any(|part| case.name.contains(&**part));
    for Case { name, limit, .. } in CASES.iter().filter(is_wanted) {
        let (without, with) = (instructions(name, OFF), instructions(name, ON));
        let more = with - without;
        print!("{name}: {more:.0} instructions, {limit:.0} at most");
        match without > 1.0 {
            true => println!(" ({:.2} % of {without:.0})", 100.0 * more / without),
            false => println!(),
        }
        if more > *limit {
            eprintln!("{name}: {more:.0} instructions for a call are more than {limit}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Has this program make calls under callgrind, and returns the instructions of each.
fn instructions(name: &str, side: &str) -> f64 {
    let file = format!("overhead.{}.{side}.callgrind", name.replace([' ', ','], "-"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    callgrind::total(&callgrind::dump(&file, "make_counted_calls", &[], &[COUNT, name, side])) as f64 / CALLS as f64
}

/// callgrind knows what to count by the name of this function, so no other may have it as a part of its own.
#[inline(never)]
fn make_counted_calls(calls: &mut dyn FnMut()) {
    calls();
}

fn server(calls: usize, metrics: bool) -> Box<dyn FnMut()> {
    let mut serving = Serving::start_measured(calls, metrics);
    Box::new(move || serving.serve(CALLS))
}

fn channel(callers: usize, metrics: bool) -> Box<dyn FnMut()> {
    let calling = Calling::start_measured(callers, metrics);
    Box::new(move || calling.call(CALLS))
}

fn grpc_server(calls: usize, metrics: bool) -> Box<dyn FnMut()> {
    let mut serving = GrpcServing::start_measured(calls, metrics);
    Box::new(move || serving.serve(CALLS))
}

fn grpc_channel(callers: usize, metrics: bool) -> Box<dyn FnMut()> {
    let calling = Calling::start_measured_grpc(callers, metrics);
    Box::new(move || calling.call(CALLS))
}

fn traced(connect: fn(&Runtime) -> (Server, EchoClient), has_context: bool) -> Box<dyn FnMut()> {
    // Calls with the same context would be faster than those of a real program.
    let context = |caller| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902{caller:02x}-00").parse().ok();
    let both = Both::start_over(connect, plain, if has_context { context } else { |_| None });
    Box::new(move || both.call(CALLS))
}

fn pass_contexts(are_passed: bool) -> Box<dyn FnMut()> {
    let mut pass = pass_a_context();
    Box::new(move || (0..if are_passed { CALLS } else { 0 }).for_each(|_| pass()))
}

/// Returns the shortest time of a round.
fn best_time<F: FnMut()>(prepare: fn() -> F) -> Duration {
    let mut step = prepare();
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        (0..ROUND_LEN).for_each(|_| step());
        start.elapsed()
    });
    rounds.min().expect("there are rounds")
}

/// Counts a call as a channel does, without the clock: it is read for other reasons.
fn count_a_call() -> impl FnMut() {
    let counters = CallCounters::new(300);
    let (mut method, mut duration) = (7, Duration::from_micros(20));
    move || {
        let cells = counters.here(black_box(method));
        cells.start();
        let cells = counters.here(black_box(method));
        cells.add_request(1, black_box(32));
        cells.add_response(1, black_box(32));
        cells.end(0, black_box(duration));
        duration += Duration::from_nanos(10);
        method ^= 1;
    }
}

/// Reads the context of a received call, and writes it to a call made by its handler.
fn pass_a_context() -> impl FnMut() {
    let (mut received, mut called) = (Metadata::new(), Metadata::new());
    received.insert("traceparent", TRACE).expect("it is valid");
    move || {
        called.clear();
        let context = TraceContext::of(black_box(&received)).expect("it is valid");
        context.write_to(black_box(&mut called));
    }
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
/// The argument with which this program makes calls instead of counting.
const COUNT: &str = "--make-calls";
/// The longest time of counting a call on an idle machine is a fifth of it.
const COUNTING_NANOS_MAX: f64 = 25.0;
const ON: &str = "on";
const OFF: &str = "off";
const CALLS: usize = 1000;
const ROUNDS: usize = 500;
const ROUND_LEN: u32 = 1000;
