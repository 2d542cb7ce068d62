//! frisbee with frisbee-go and frpc with frpc-go, each as client and as server, in both header formats, with and
//! without TLS.
#![allow(clippy::unwrap_used, reason = "the checks are tests without the attribute")]

mod clients;
mod go_client;
mod go_server;
mod pubsub_go_client;
mod rpc_go_client;
mod rpc_go_closes;
mod rpc_go_server;
mod transcript;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Once},
    time::Duration,
};

use frisbee::{Engine, HeaderFormat, Operation};
use support::{engines, hear_log};
use tokio::{sync::Semaphore, time::timeout};
use tracing::Level;

/// Header formats, with and without TLS.
const WIRES: [(HeaderFormat, bool); 4] = [
    (HeaderFormat::Magic10, false),
    (HeaderFormat::Magic10, true),
    (HeaderFormat::Plain8, false),
    (HeaderFormat::Plain8, true),
];

/// Engines with their wires. tokio is tested over all wires, the other engines only over the first.
fn settings() -> impl Iterator<Item = (Engine, HeaderFormat, bool)> {
    let wires = |engine| if engine == Engine::Tokio { &WIRES[..] } else { &WIRES[..1] };
    engines().flat_map(move |engine| wires(engine).iter().map(move |&(header, tls)| (engine, header, tls)))
}

// Operations of the servers on both sides, as described in tests/go/README.md.
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

/// Returns the name of a wire for failures.
fn name(header: HeaderFormat, tls: bool) -> String {
    format!("{header:?} {}", if tls { "tls" } else { "plain" })
}

/// A sequence of calls from our client to a server.
type Check<S> = fn(Arc<S>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lists checks with their names.
macro_rules! checks {
    ($($check:ident,)*) => {
        [$((stringify!($check), (|server| Box::pin($check(server))) as $crate::Check<_>)),*]
    };
}
use checks;

/// Runs all checks and fails with the names of those that failed or took too long.
///
/// Only a few `busy` checks run at the same time. With hundreds of active connections on two cores, each would wait for
/// seconds, and Go peers close a connection after five seconds of silence. `idle` checks mostly sleep and run
/// concurrently with the busy ones.
async fn all<F>(busy: impl IntoIterator<Item = (String, F)>, idle: impl IntoIterator<Item = (String, F)>)
where
    F: Future<Output = ()> + Send + 'static,
{
    static PLACES: Semaphore = Semaphore::const_new(PLACES_MAX);
    show_why_connections_end();
    let spawn = |name, places: Option<&'static Semaphore>, run: F| {
        let run = async move {
            let _place = match places {
                Some(places) => Some(places.acquire().await.expect("nobody closes it")),
                None => None,
            };
            timeout(RUN_MAX, run).await
        };
        (name, tokio::spawn(run))
    };
    let idle = idle.into_iter().map(|(name, run)| spawn(name, None, run));
    let running: Vec<_> = idle.chain(busy.into_iter().map(|(name, run)| spawn(name, Some(&PLACES), run))).collect();
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

/// Shows the reasons for unexpected ends of connections in the output of failed tests.
fn show_why_connections_end() {
    const EXPECTED: [&str; 3] = ["closed by this side", "closed by the peer", "taken over"];
    static HEARD: Once = Once::new();
    HEARD.call_once(|| {
        hear_log(Level::DEBUG, |_, line| {
            if line.contains("connection closed") && !EXPECTED.iter().any(|reason| line.contains(reason)) {
                println!("{line}");
            }
        });
    });
}

/// Maximum number of busy programs in all tests together.
const PLACES_MAX: usize = 6;
/// Timeout for hanging programs.
const RUN_MAX: Duration = Duration::from_secs(180);
