//! Layers and time limits of the server, applied to functions.

use std::sync::{Arc, Mutex};

use frpc::{Answer, Call, CallSettings, Code, Layer, Next, Server, ServerBuilder, Status, TimeLimits};
use frpc_http::Http;
use frpc_jsonrpc::{Context, JsonRpc, function};
use serde_json::{Value, json};
use support::{
    Gate, SECOND,
    calls::{TestServer, TestService},
    in_virtual_time, settle,
};

use crate::{
    caller::{Caller, error, request, wire},
    http::{hear, post},
    websocket::Socket,
};

/// A layer that records each call and its outcome. It refuses calls with this text in their path.
#[derive(Clone, Default)]
struct Guard {
    seen: Arc<Mutex<Vec<(String, Code)>>>,
    refuses: &'static str,
}

impl Layer for Guard {
    async fn call(&self, mut call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let method = call.method();
        if let Some(sent) = call.head().metadata().get("color") {
            assert_eq!(sent, "red");
            call.head_mut().metadata_mut().insert("color", "blue").unwrap();
        }
        assert!(call.head().peer_addr().is_some(), "a layer sees who calls");
        let answer = if !self.refuses.is_empty() && method.path().contains(self.refuses) {
            Err(Status::permission_denied("not you"))
        } else {
            next.run(call).await
        };
        let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.seen.lock().unwrap().push((method.path(), code));
        answer
    }
}

impl Guard {
    fn seen(&self) -> Vec<(String, Code)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

#[function]
fn color(context: &Context) -> String {
    context.metadata().get("color").unwrap_or("none").to_owned()
}

fn serve(gate: &Gate, set: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    let wire = wire(gate).function(color);
    let server = set(Server::builder()).add_service(TestServer::new(TestService::default()));
    server.wire(Http::new().mount("/rpc", wire.clone())).wire(wire).without_listener().unwrap()
}

fn seen(calls: &[(&str, Code)]) -> Vec<(String, Code)> {
    calls.iter().map(|(path, code)| ((*path).to_owned(), *code)).collect()
}

#[test]
fn layers_of_the_server_wrap_functions_on_every_wire() {
    in_virtual_time(async {
        let (gate, guard) = (Gate::default(), Guard::default());
        let server = serve(&gate, |server| server.layer(guard.clone()));
        gate.open(6);
        let batch = format!(
            "[{},{},{},{}]",
            request("sum", json!([1, 2]), 1),
            request("wait", json!(["fail"]), 2),
            request("panic", json!([]), 3),
            request("wait", json!([4]), 4),
        );
        let notification = r#"{"jsonrpc":"2.0","method":"update"}"#;
        let check = |answers: Value| {
            assert_eq!((&answers[0]["result"], &answers[3]["result"]), (&json!(3), &json!([4])));
            assert_eq!((error(&answers[1]).1, error(&answers[2]).1), ("not_found", "internal"));
            // A panic skips the layers, as with methods.
            let found = guard.seen();
            let expected = [("/sum", Code::Ok), ("/update", Code::Ok), ("/wait", Code::NotFound), ("/wait", Code::Ok)];
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(seen(&expected).iter().all(|call| found.contains(call)), "{found:?}");
        };
        let mut caller = Caller::connect(&server);
        caller.say(notification.to_owned() + &batch).await;
        check(caller.hear().await);

        let mut socket = Socket::connect(&server, "").await;
        socket.say(notification).await;
        socket.say(&batch).await;
        check(socket.hear().await);

        let mut caller = Caller::connect(&server);
        caller.say(post("application/json", notification, "")).await;
        assert_eq!(hear(&mut caller).await.0, 204);
        caller.say(post("application/json", &batch, "")).await;
        check(serde_json::from_str(&hear(&mut caller).await.1).unwrap());

        caller.say(post("application/json", &request("color", json!([]), 1), "color: red\r\n")).await;
        let answer: Value = serde_json::from_str(&hear(&mut caller).await.1).unwrap();
        assert_eq!(answer["result"], "blue", "a function has the head that the layers made");
    });
}

#[test]
fn a_layer_can_reject_functions_subscriptions_and_discovery() {
    in_virtual_time(async {
        for (refuses, method) in [("/sum", "sum"), ("rpc.discover", "rpc.discover"), ("Count", "Test.Count")] {
            let guard = Guard { refuses, ..Guard::default() };
            let server = serve(&Gate::default(), |server| server.layer(guard.clone()));
            let mut caller = Caller::connect(&server);
            let answer = caller.ask(method, json!([])).await;
            assert_eq!(error(&answer), (-32007, "permission_denied"), "{method}");
            let mut socket = Socket::connect(&server, "").await;
            assert_eq!(error(&socket.ask(method, json!([])).await), (-32007, "permission_denied"), "{method}");
            assert!(guard.seen().iter().all(|(_, code)| *code == Code::PermissionDenied));
            assert_eq!(caller.ask("echo", json!([1])).await["result"], json!([1]));
        }
    });
}

#[test]
fn server_timeouts_apply_to_functions_and_layers() {
    in_virtual_time(async {
        for is_layered in [false, true] {
            let guard = Guard::default();
            let server = serve(&Gate::default(), |server| {
                let server = server.calls(CallSettings {
                    times: TimeLimits { max: Some(2 * SECOND), default: Some(SECOND), ..TimeLimits::default() },
                    ..CallSettings::default()
                });
                if is_layered { server.layer(guard.clone()) } else { server }
            });
            let start = tokio::time::Instant::now();
            let mut caller = Caller::connect(&server);
            assert_eq!(error(&caller.ask("wait", json!([])).await), (-32004, "deadline_exceeded"));
            assert_eq!(start.elapsed(), SECOND);
            caller = Caller::connect(&server);
            let time = "connect-timeout-ms: 60000\r\n";
            caller.say(post("application/json", &request("wait", json!([]), 1), time)).await;
            let answer: Value = serde_json::from_str(&hear(&mut caller).await.1).unwrap();
            assert_eq!(error(&answer), (-32004, "deadline_exceeded"));
            assert_eq!(start.elapsed(), 3 * SECOND);
        }
    });
}

#[test]
fn a_call_inside_layers_is_dropped_with_its_connection() {
    in_virtual_time(async {
        let guard = Guard::default();
        let server = serve(&Gate::default(), |server| server.layer(guard.clone()));
        let held = Arc::strong_count(&guard.seen);
        let mut socket = Socket::connect(&server, "").await;
        socket.say(&request("wait", json!([]), 1)).await;
        settle().await;
        drop(socket);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
        assert_eq!(Arc::strong_count(&guard.seen), held);
        assert!(guard.seen().is_empty(), "a call that was given up has no outcome");
    });
}

#[test]
fn a_function_without_output_returns_null() {
    use frpc_jsonrpc::{Called, Description, Function};

    struct Nothing(Description);

    impl Function for Nothing {
        fn description(&self) -> &Description {
            &self.0
        }

        fn call(&self, params: Option<&str>, _: &Context, _: &mut Vec<u8>) -> Called {
            match params {
                None => Called::Written,
                Some(_) => Called::Later(Box::pin(async { Ok(Vec::new()) })),
            }
        }
    }

    in_virtual_time(async {
        for is_layered in [false, true] {
            let wire = JsonRpc::new().function(Nothing(Description::new("nothing")));
            let server = Server::builder().wire(wire);
            let server = if is_layered { server.layer(Guard::default()) } else { server };
            let server = server.without_listener().unwrap();
            let mut caller = Caller::connect(&server);
            caller.say(r#"{"jsonrpc":"2.0","method":"nothing","id":1}"#).await;
            assert_eq!(caller.hear_line().await, r#"{"jsonrpc":"2.0","result":null,"id":1}"#);
            caller.say(r#"{"jsonrpc":"2.0","method":"nothing","params":[],"id":1}"#).await;
            assert_eq!(caller.hear_line().await, r#"{"jsonrpc":"2.0","result":null,"id":1}"#);
        }
    });
}
