//! frisbee against frisbee-go and frpc against frpc-go, each as client and as server, in both header formats, plain and
//! with TLS.
#![allow(clippy::unwrap_used, reason = "the checks are tests without the attribute")]

mod go_client;
mod go_server;
mod rpc_go_client;
mod rpc_go_closes;
mod rpc_go_server;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use frisbee::{Engine, HeaderFormat, Operation};
use tests::engines;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

/// What the wire can be like.
const WIRES: [(HeaderFormat, bool); 4] = [
    (HeaderFormat::Magic10, false),
    (HeaderFormat::Magic10, true),
    (HeaderFormat::Plain8, false),
    (HeaderFormat::Plain8, true),
];

/// What our clients run on, and over which wires: tokio over all, the others over the plainest.
fn client_settings() -> impl Iterator<Item = (Engine, HeaderFormat, bool)> {
    let wires = |engine| if engine == Engine::Tokio { &WIRES[..] } else { &WIRES[..1] };
    engines().flat_map(move |engine| wires(engine).iter().map(move |&(header, tls)| (engine, header, tls)))
}

// The operations of the servers on both sides; tests/go/README.md says what each does.
const ECHO: Operation = operation(20);
const OTHER: Operation = operation(21);
const SILENT: Operation = operation(22);
const HANGUP: Operation = operation(23);
const SUBSCRIBE: Operation = operation(24);
const PUBLISH: Operation = operation(25);
const NEWS: Operation = operation(26);
const RAW: Operation = operation(27);
const OPEN: Operation = operation(28);
const COUNT: Operation = operation(29);
const REPLY: Operation = operation(31);

const fn operation(number: u16) -> Operation {
    Operation::new(number).expect("the number is not reserved")
}

/// How failures call it.
fn name(header: HeaderFormat, tls: bool) -> String {
    format!("{header:?} {}", if tls { "tls" } else { "plain" })
}

/// What our client does with a server.
type Check<S> = fn(Arc<S>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Checks with their names.
macro_rules! checks {
    ($($check:ident,)*) => {
        [$((stringify!($check), (|server| Box::pin($check(server))) as $crate::Check<_>)),*]
    };
}
use checks;

/// Runs a client written in Go, and fails if one of its checks does that is promised.
async fn run_client(name: &str, client: &mut Command, is_promised: impl Fn(&str) -> bool) {
    let mut process = client.spawn().expect("the client was built");
    let mut lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
    let (mut report, mut failures) = (String::new(), 0);
    while let Some(line) = lines.next_line().await.expect("its output is text") {
        if line.starts_with("FAIL") && is_promised(&line) {
            println!("{name}: {line}");
            failures += 1;
        }
        report = line;
    }
    assert_eq!(failures, 0, "{report}");
    assert!(report.contains(" passed, "), "the client ended with {report:?}");
}

/// Lets all run at once, and fails with the names of those that failed or took too long.
async fn all<F>(runs: impl IntoIterator<Item = (String, F)>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let spawn = |(name, run): (String, F)| (name, tokio::spawn(timeout(RUN_MAX, run)));
    let running: Vec<_> = runs.into_iter().map(spawn).collect();
    let mut failed = Vec::new();
    for (name, run) in running {
        match run.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => failed.push(format!("{name}: not done within {RUN_MAX:?}")),
            Err(panic) => failed.push(format!("{name}: {panic}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

const RUN_MAX: Duration = Duration::from_secs(60);
