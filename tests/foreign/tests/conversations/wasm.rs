//! Our client on WebAssembly, in Node over WebSocket. `examples/src/tests/browser.rs` runs it in Chromium.

use std::path::Path;

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use support::{
    calls::{TestServer, TestService},
    has_wasm, in_real_time_within,
};
use tokio::process::Command;

use crate::{LIMIT, echo::Echo, output, port};

#[test]
fn the_client_on_webassembly_converses() {
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = foreign.join("bin/wasm");
    if !has_wasm(&folder.join("wasm_conversation_bg.wasm")) {
        return;
    }
    in_real_time_within(LIMIT, async {
        let service = TestService::default();
        let log = service.log.clone();
        let server = Server::builder().layer(Echo).add_service(TestServer::new(service)).wire(Http::new());
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let mut command = Command::new("node");
        // Node has a WebSocket without this flag from version 22 on.
        command.arg("--experimental-websocket").arg(foreign.join("wasm/run.js")).arg(folder);
        command.arg(format!("ws://127.0.0.1:{}/", port(&server)));
        let http = Http::new().settings(HttpSettings { websocket: false, ..HttpSettings::default() });
        let refusing = Server::builder().wire(http).bind("tcp://127.0.0.1:0").await.unwrap();
        command.arg(format!("ws://127.0.0.1:{}/", port(&refusing)));
        let said = output(&mut command).await.unwrap_or_else(|why| panic!("{why}"));
        assert!(said.contains("all went well"), "{said}");
        let log = log.take();
        for (call, attempts) in [("say fail 14 once", 1), ("say fail 14 again", 5)] {
            assert_eq!(log.iter().filter(|event| *event == call).count(), attempts, "{call}: {log:?}");
        }
        for dropped in ["dropped say wait", "dropped count endless tick"] {
            assert!(log.iter().any(|event| event == dropped), "{dropped}: {log:?}");
        }
    });
}
