//! Callers that give up, and functions notified of it.

use std::time::Duration;

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use frpc_jsonrpc::{Context, JsonRpc, JsonRpcSettings, function};
use serde_json::json;
use support::{Gate, SECOND, in_virtual_time, settle};
use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    caller::{Caller, error, request},
    http::post,
    websocket::Socket,
};

/// Releases waiting functions, and records callers that gave up.
struct Watch {
    gate: Gate,
    heard: mpsc::UnboundedSender<&'static str>,
}

impl Watch {
    fn leave_behind(&self, context: &Context, name: &'static str) {
        let (cancelled, heard) = (context.cancelled(), self.heard.clone());
        tokio::spawn(async move {
            cancelled.await;
            heard.send(name)
        });
    }
}

#[function]
async fn waiting(watch: &Watch, context: Context) {
    let _ = watch.heard.send("began");
    watch.leave_behind(&context, "waiting");
    watch.gate.passed().await;
}

#[function]
fn in_place(watch: &Watch, context: &Context) {
    watch.leave_behind(context, "in place");
}

#[function(blocking)]
fn blocking(watch: &Watch, context: &Context) {
    let _ = watch.heard.send("began");
    Handle::current().block_on(context.cancelled());
    let _ = watch.heard.send("blocking");
}

fn serve(wire: JsonRpc) -> (Server, Gate, mpsc::UnboundedReceiver<&'static str>) {
    let (gate, (heard, hearing)) = (Gate::default(), mpsc::unbounded_channel());
    let wire = wire.function(waiting).function(in_place).function(blocking).state(Watch { gate: gate.clone(), heard });
    // In virtual time, no timer would fire while a function blocks.
    let http = Http::new()
        .settings(HttpSettings { half_closed_max: Duration::ZERO, ..HttpSettings::default() })
        .mount("/rpc", wire.clone());
    let server = Server::builder().wire(http).wire(wire);
    (server.without_listener().unwrap(), gate, hearing)
}

#[test]
fn a_function_learns_that_its_caller_disconnected() {
    in_virtual_time(async {
        for name in ["waiting", "blocking"] {
            let (server, _gate, mut hearing) = serve(JsonRpc::new());
            let mut caller = Caller::connect(&server);
            caller.say(post("application/json", &request(name, json!([]), 1), "")).await;
            assert_eq!(hearing.recv().await, Some("began"));
            drop(caller);
            assert_eq!(hearing.recv().await, Some(name));

            let mut caller = Socket::connect(&server, "").await;
            caller.say(&request(name, json!([]), 1)).await;
            assert_eq!(hearing.recv().await, Some("began"));
            drop(caller);
            assert_eq!(hearing.recv().await, Some(name));
        }
    });
}

#[test]
fn a_function_learns_of_its_timeout_unless_it_answered() {
    in_virtual_time(async {
        let (server, gate, mut hearing) = serve(
            JsonRpc::new().settings(JsonRpcSettings { call_time_max: Some(3 * SECOND), ..JsonRpcSettings::default() }),
        );
        let mut caller = Caller::connect(&server);
        gate.open(1);
        assert_eq!(caller.ask("waiting", json!([])).await["result"], json!(null));
        assert_eq!(caller.ask("in_place", json!([])).await["result"], json!(null));
        assert_eq!(error(&caller.ask("waiting", json!([])).await).1, "deadline_exceeded");
        for expected in ["began", "began", "waiting"] {
            assert_eq!(hearing.recv().await, Some(expected));
        }
        drop(caller);
        settle().await;
        assert!(hearing.try_recv().is_err());
    });
}
