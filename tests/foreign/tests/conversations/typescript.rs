//! Our client in TypeScript, in Node and in a browser: the same conversation, over WebSocket.

use std::fs;

use frpc::{Answer, Call, Layer, Next, Server, Status};
use frpc_http::Http;
use support::{
    calls::{TestServer, TestService},
    foreign_browser, in_real_time_within, typescript_client,
};

use crate::{LIMIT, port, run};

/// Sends the metadata of calls back, in front of the answer and behind it.
struct Echo;

impl Layer for Echo {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let metadata = call.head().metadata().clone();
        let mut answer = next.run(call).await?;
        if !metadata.is_empty() {
            *answer.trailers_mut() = metadata.clone();
            *answer.metadata_mut() = metadata;
        }
        Ok(answer)
    }
}

fn converse(script: &str, scheme: &str) {
    let Some(client) = typescript_client() else { return };
    let script = client.join("build/test/live").join(script);
    in_real_time_within(LIMIT, async {
        let server = Server::builder()
            .layer(Echo)
            .add_service(TestServer::new(TestService::default()))
            .wire(Http::new())
            .bind("tcp://127.0.0.1:0")
            .await
            .unwrap();
        let url = format!("{scheme}://127.0.0.1:{}/", port(&server));
        // Node has a WebSocket of its own from version 22 on.
        let args = ["--experimental-websocket", script.to_str().unwrap(), &url];
        let said = run("node".as_ref(), &args).await.unwrap_or_else(|why| panic!("{why}"));
        assert!(said.contains("all went well"), "{said}");
    });
}

#[test]
fn the_typescript_client_passes_its_own_tests() {
    let Some(client) = typescript_client() else { return };
    let tests = fs::read_dir(client.join("build/test")).unwrap().map(|entry| entry.unwrap().path());
    let tests: Vec<_> = tests.filter(|path| path.to_str().unwrap().ends_with(".test.js")).collect();
    assert!(tests.len() > 4, "{tests:?}");
    let mut args = vec!["--test", "--test-force-exit", "--test-timeout=60000"];
    args.extend(tests.iter().map(|path| path.to_str().unwrap()));
    in_real_time_within(LIMIT, async {
        run("node".as_ref(), &args).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

#[test]
fn the_typescript_client_calls_from_node() {
    converse("node.js", "ws");
}

#[test]
fn the_typescript_client_calls_from_a_browser() {
    if foreign_browser().is_some() {
        converse("chromium.js", "http");
    }
}
