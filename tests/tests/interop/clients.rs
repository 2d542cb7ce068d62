//! Runs Go clients against our servers, in every setting.

use std::future::Future;

use frisbee::{Dispatch, Engine};
use support::{GoPeers, Identity, PemFile, engines};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{WIRES, all, name, settings};

/// A Go client with its requirements on the server.
pub(crate) struct GoClient {
    name: String,
    command: Command,
    pub(crate) dispatch: Dispatch,
    pub(crate) engine: Engine,
    tls: Option<(Identity, PemFile)>,
}

impl GoClient {
    /// Returns the identity of the TLS server trusted by the client.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.tls.as_ref().map(|(identity, _)| identity)
    }

    /// Runs the client against a server. Fails if one of the promised checks fails.
    pub(crate) async fn run(mut self, addr: String, is_promised: impl Fn(&str) -> bool) {
        let mut process = self.command.arg(addr).spawn().expect("the client was built");
        let mut lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
        let (mut report, mut failures) = (String::new(), 0);
        while let Some(line) = lines.next_line().await.expect("its output is text") {
            if line.starts_with("FAIL") && is_promised(&line) {
                println!("{}: {line}", self.name);
                failures += 1;
            }
            report = line;
        }
        assert_eq!(failures, 0, "{report}");
        assert!(report.contains(" passed, "), "the client ended with {report:?}");
    }
}

/// Runs the quick checks of a client over each wire, dispatch and engine, and its mostly idle checks at the same time.
/// `serve` starts the server of each client and runs the client.
pub(crate) async fn run_clients<F>(
    program: &str,
    dispatches: &[Dispatch],
    idle_dispatch: Dispatch,
    serve: impl Fn(GoClient) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(go) = GoPeers::find() else { return };
    let run = |header, tls: bool, dispatch, engine, part| {
        let name = format!("{} {dispatch:?} {engine:?} {part}", name(header, tls));
        let mut command = go.command(program, header);
        command.arg(part);
        let tls = tls.then(|| {
            let identity = Identity::new();
            let file = identity.pem_file();
            command.arg("-tls-ca").arg(file.path());
            (identity, file)
        });
        (name.clone(), serve(GoClient { name, command, dispatch, engine, tls }))
    };
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for (header, tls) in WIRES {
        for dispatch in dispatches {
            busy.extend(engines().map(|engine| run(header, tls, *dispatch, engine, "-quick")));
        }
    }
    for (engine, header, tls) in settings() {
        idle.push(run(header, tls, idle_dispatch, engine, "-idle"));
    }
    all(busy, idle).await;
}
