//! Locked instructions of a unary 32-byte call with ten calls in flight, on each side, and where they are. More than
//! recorded is a failure.
//!
//! A locked instruction (`lock`, or `xchg` with memory) reads and writes memory as one step. It takes several times as long
//! where another core had that memory last: this is what the threads of a program pay for what they share, and counts of
//! instructions do not show it.
//!
//! callgrind says how often each address was executed, and `objdump` which addresses have such instructions. What runs is
//! what `instructions` counts; the pipe and the other end are part of it here, too. Runs of one build do not differ.

mod code;
mod profile;
mod table;

use std::{env, path::Path, process::ExitCode};

use bench_rpc::{
    callgrind,
    in_memory::{Calling, Serving},
};
use profile::Profile;

/// The most for a call. 3 % are left for other versions of tokio and of the compiler.
const LIMITS: [(&str, f64); 3] = [("client", 25.9), ("server", 10.5), ("server whose handlers wait", 25.5)];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, count, side] = &arguments[..]
        && count == COUNT
    {
        calls_of(side);
        return ExitCode::SUCCESS;
    }
    if let Some(reason) = why_not() {
        println!("nothing is counted: {reason}");
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    for (side, limit) in LIMITS {
        let rows = table::rows(&count(side), CALLS);
        let total: f64 = rows.iter().map(|row| row.per_call).sum();
        println!("{side}: {total:.2} locked instructions for a call, {limit} at most");
        for row in rows.iter().filter(|row| row.per_call >= SHOWN_MIN) {
            println!("{:8.2}  {}", row.per_call, row.place);
        }
        if total > limit {
            eprintln!("{side}: {total:.2} locked instructions for a call are more than {limit}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Says what is missing to count.
fn why_not() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("it is done with the instructions of x86-64, on Linux".to_owned());
    }
    let missing = callgrind::missing_tool(&["valgrind", "objdump", "addr2line"])?;
    Some(format!("{missing} is not installed"))
}

/// Has this program make calls under callgrind.
fn count(side: &str) -> Profile {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("locked.{}.callgrind", side.replace(' ', "-")));
    let options = ["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no", "--demangle=no"];
    let profile = Profile::parse(&callgrind::dump(&file, "make_counted_calls", &options, &[COUNT, side]));
    assert!(!profile.executed.is_empty(), "nothing was counted: {}", file.display());
    profile
}

/// Makes calls on a connection that is warm.
fn calls_of(side: &str) {
    match side {
        "client" => make_counted_calls(&mut Side::Client(Calling::start(CALLS_IN_FLIGHT))),
        "server" => make_counted_calls(&mut Side::Server(Serving::start(CALLS_IN_FLIGHT))),
        "server whose handlers wait" => make_counted_calls(&mut Side::Server(Serving::start_waiting(CALLS_IN_FLIGHT))),
        other => panic!("no side {other:?}"),
    }
}

enum Side {
    Client(Calling),
    Server(Serving),
}

/// callgrind knows what to count by the name of this function, so no other may have it as a part of its own.
#[inline(never)]
fn make_counted_calls(side: &mut Side) {
    match side {
        Side::Client(calling) => calling.call(CALLS),
        Side::Server(serving) => serving.serve(CALLS),
    }
}

/// The argument with which this program makes calls instead of counting.
const COUNT: &str = "--make-calls";
const CALLS: usize = 1000;
const CALLS_IN_FLIGHT: usize = 10;
/// Places with fewer for a call are not shown.
const SHOWN_MIN: f64 = 0.05;
