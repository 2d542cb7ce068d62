//! Our client in TypeScript, in Node, Deno, Bun and a browser: the same conversation, over WebSocket with and without TLS.

use std::{fs, path::Path};

use frpc::Server;
use frpc_http::Http;
use support::{
    Identity,
    calls::{TestServer, TestService},
    foreign_browser, foreign_packages, foreign_runtime, in_real_time_within, typescript_client,
};
use tokio::process::Command;

use crate::{LIMIT, echo::Echo, output, port, run, with_server};

/// Has the conversation, or skips it.
fn converse(runtime: Runtime, security: Security) {
    let (Some(client), true) = (typescript_client(), runtime.is_there()) else { return };
    let identity = Identity::new();
    let certificate = identity.pem_file();
    in_real_time_within(LIMIT, async {
        let mut server =
            Server::builder().layer(Echo).add_service(TestServer::new(TestService::default())).wire(Http::new());
        if let Security::Tls = security {
            server = server.tls(identity.server());
        }
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let scheme = match (&runtime, &security) {
            (Runtime::Chromium, Security::None) => "http",
            (Runtime::Chromium, Security::Tls) => "https",
            (_, Security::None) => "ws",
            (_, Security::Tls) => "wss",
        };
        let url = format!("{scheme}://127.0.0.1:{}/", port(&server));
        let mut command = runtime.command(&client.join("build/test/live"));
        let trusted = certificate.path();
        command.arg(url).env("NODE_EXTRA_CA_CERTS", trusted).env("DENO_CERT", trusted);
        let said = output(&mut command).await.unwrap_or_else(|why| panic!("{why}"));
        assert!(said.contains("all went well"), "{said}");
    });
}

/// A place that the client runs in.
enum Runtime {
    Node,
    Deno,
    Bun,
    Chromium,
}

impl Runtime {
    fn is_there(&self) -> bool {
        match self {
            Self::Node => true,
            Self::Deno => foreign_runtime("deno").is_some(),
            Self::Bun => foreign_runtime("bun").is_some(),
            Self::Chromium => foreign_browser().is_some(),
        }
    }

    /// Returns a command that has the conversation with the server at its last argument.
    fn command(&self, scripts: &Path) -> Command {
        let mut command = match self {
            Self::Node | Self::Chromium => Command::new("node"),
            Self::Deno => Command::new(foreign_runtime("deno").unwrap()),
            Self::Bun => Command::new(foreign_runtime("bun").unwrap()),
        };
        match self {
            // Node has a WebSocket of its own from version 22 on.
            Self::Node => command.arg("--experimental-websocket"),
            // The package is in no need of more.
            Self::Deno => command.args(["run", "--no-lock", "--allow-net"]),
            Self::Bun | Self::Chromium => &mut command,
        };
        command.arg(scripts.join(if let Self::Chromium = self { "chromium.js" } else { "program.js" }));
        command
    }
}

enum Security {
    None,
    Tls,
}

/// Runs the client's own tests. They are written for `node:test`, which others have as well.
fn test_itself(program: &Path, args: &[&str]) {
    let Some(client) = typescript_client() else { return };
    let tests = fs::read_dir(client.join("build/test")).unwrap().map(|entry| entry.unwrap().path());
    let tests: Vec<_> = tests.filter(|path| path.to_str().unwrap().ends_with(".test.js")).collect();
    assert!(tests.len() > 4, "{tests:?}");
    in_real_time_within(LIMIT, async {
        output(Command::new(program).args(args).args(tests)).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

#[test]
fn the_typescript_client_passes_its_tests_in_node() {
    test_itself("node".as_ref(), &["--test", "--test-timeout=60000"]);
}

#[test]
fn the_typescript_client_passes_its_tests_in_deno() {
    if let Some(deno) = foreign_runtime("deno") {
        test_itself(&deno, &["test", "--no-check", "--no-lock", "--allow-read"]);
    }
}

#[test]
fn the_typescript_client_passes_its_tests_in_bun() {
    if let Some(bun) = foreign_runtime("bun") {
        test_itself(&bun, &["test"]);
    }
}

#[test]
fn the_typescript_client_calls_from_node() {
    converse(Runtime::Node, Security::None);
}

#[test]
fn the_typescript_client_calls_from_node_over_tls() {
    converse(Runtime::Node, Security::Tls);
}

#[test]
fn the_typescript_client_calls_from_deno() {
    converse(Runtime::Deno, Security::None);
}

#[test]
fn the_typescript_client_calls_from_deno_over_tls() {
    converse(Runtime::Deno, Security::Tls);
}

#[test]
fn the_typescript_client_calls_from_bun() {
    converse(Runtime::Bun, Security::None);
}

#[test]
fn the_typescript_client_calls_from_bun_over_tls() {
    converse(Runtime::Bun, Security::Tls);
}

#[test]
fn the_typescript_client_calls_from_a_browser() {
    converse(Runtime::Chromium, Security::None);
}

#[test]
fn the_typescript_client_calls_from_a_browser_over_tls() {
    converse(Runtime::Chromium, Security::Tls);
}

#[test]
fn the_typescript_readme_example_works() {
    let (Some(client), Some(packages)) = (typescript_client(), foreign_packages()) else { return };
    with_server(async |port| {
        let (script, packages) = (client.join("build/test/live/package.js"), packages.join("node_modules"));
        let args = [script.to_str().unwrap(), packages.to_str().unwrap(), &format!("ws://127.0.0.1:{port}/")];
        let said = run("node".as_ref(), &args).await.unwrap_or_else(|why| panic!("{why}"));
        assert!(said.contains("all went well"), "{said}");
    });
}
