//! Calls made by functions, for a caller on each wire.

use std::future::Future;

use frpc::{Request, Response, Server, Status, Streaming};
use frpc_http::Http;
use frpc_jsonrpc::{Context, Functions, JsonRpc, JsonRpcSettings, function};
use futures_util::FutureExt;
use serde_json::{Value, json};
use support::{
    SECOND,
    calls::{TestClient, TestServer, Words, connect, quiet, schema::test_server::Test, words},
    in_virtual_time,
};
use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    caller::{Caller, request},
    http::{hear, post},
    websocket::Socket,
};

/// Answers with the remaining seconds of a call and its trace.
struct Tell;

impl Test for Tell {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let left = request.timeout().map(|left| left.as_secs());
        Ok(words(format!("{left:?} {:?}", request.metadata().get("traceparent"))).into())
    }

    async fn count(&self, _: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for here"))
    }

    async fn gather(&self, _: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        Err(Status::unimplemented("not asked for here"))
    }

    async fn chat(&self, _: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        Err(Status::unimplemented("not asked for here"))
    }
}

/// A client of the backend, and a channel for answers that functions do not wait for.
struct Behind {
    client: TestClient,
    heard: mpsc::UnboundedSender<String>,
}

impl Behind {
    fn ask(&self) -> impl Future<Output = Result<String, Status>> + Send + 'static {
        let client = self.client.clone();
        async move { Ok(client.say(words("")).await?.into_inner().text) }
    }
}

#[function]
async fn at_once(behind: &Behind) -> Result<String, Status> {
    behind.ask().await
}

#[function]
async fn later(behind: &Behind) -> Result<String, Status> {
    tokio::time::sleep(SECOND).await;
    behind.ask().await
}

/// Starts a call. A task completes it.
#[function]
fn in_place(behind: &Behind) {
    let mut call = Box::pin(behind.ask());
    assert!(call.as_mut().now_or_never().is_none());
    let heard = behind.heard.clone();
    tokio::spawn(async move { heard.send(call.await.unwrap()) });
}

#[function(blocking)]
fn blocking(behind: &Behind) -> Result<String, Status> {
    Handle::current().block_on(behind.ask())
}

#[function]
fn seconds_left(context: &Context) -> Option<u64> {
    let deadline = context.deadline()?;
    Some(deadline.duration_since(tokio::time::Instant::now().into_std()).as_secs())
}

/// Serves the functions on every wire. Returns this server and the backend, and the answers that functions do not wait
/// for.
async fn serve(wire: JsonRpc) -> ([Server; 2], mpsc::UnboundedReceiver<String>) {
    let last = Server::builder().config(quiet()).add_service(TestServer::new(Tell)).without_listener().unwrap();
    let (heard, hearing) = mpsc::unbounded_channel();
    let behind = Behind { client: connect(&last).await, heard };
    let functions = Functions::new().function(at_once).function(later).function(in_place).function(blocking);
    let functions = functions.function(seconds_left).state(behind);
    let wire = wire.functions(functions.clone());
    let server =
        Server::builder().add_services([functions.service()]).wire(Http::new().mount("/rpc", wire.clone())).wire(wire);
    ([server.without_listener().unwrap(), last], hearing)
}

/// Calls each function, and checks the remaining seconds and the trace of the calls it makes.
async fn check(
    mut call: impl AsyncFnMut(&str) -> Value,
    hearing: &mut mpsc::UnboundedReceiver<String>,
    seconds: u64,
    trace: Option<&str>,
) {
    let expected = |seconds: u64| format!("{:?} {trace:?}", Some(seconds));
    for (function, seconds) in [("at_once", seconds), ("later", seconds - 1), ("blocking", seconds)] {
        assert_eq!(call(function).await, json!(expected(seconds)), "{function}");
    }
    assert_eq!(call("in_place").await, json!(null));
    assert_eq!(hearing.recv().await.unwrap(), expected(seconds));
    assert_eq!(call("seconds_left").await, json!(seconds));
}

const HEADERS: &str =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\nsecret: s\r\nconnect-timeout-ms: 9000\r\n";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

#[test]
fn calls_of_functions_over_tcp_inherit_the_call_timeout() {
    in_virtual_time(async {
        let ([server, _behind], mut hearing) = serve(
            JsonRpc::new().settings(JsonRpcSettings { call_time_max: Some(5 * SECOND), ..JsonRpcSettings::default() }),
        )
        .await;
        let mut caller = Caller::connect(&server);
        check(async |name| caller.ask(name, json!([])).await["result"].take(), &mut hearing, 5, None).await;
        tokio::time::advance(2 * SECOND).await;
        check(async |name| caller.ask(name, json!([])).await["result"].take(), &mut hearing, 5, None).await;
    });
}

#[test]
fn calls_of_functions_by_post_inherit_deadline_and_metadata() {
    in_virtual_time(async {
        for (wire, seconds) in [
            (JsonRpc::new(), 9),
            (
                JsonRpc::new()
                    .settings(JsonRpcSettings { call_time_max: Some(5 * SECOND), ..JsonRpcSettings::default() }),
                5,
            ),
        ] {
            let ([server, _behind], mut hearing) = serve(wire).await;
            let mut caller = Caller::connect(&server);
            let call = async |name: &str| {
                caller.say(post("application/json", &request(name, json!([]), 1), HEADERS)).await;
                let (_, body) = hear(&mut caller).await;
                serde_json::from_str::<Value>(&body).unwrap()["result"].take()
            };
            check(call, &mut hearing, seconds, Some(TRACE)).await;
        }
    });
}

#[test]
fn calls_of_functions_inherit_the_handshake_metadata() {
    in_virtual_time(async {
        let ([server, _behind], mut hearing) = serve(
            JsonRpc::new().settings(JsonRpcSettings { call_time_max: Some(5 * SECOND), ..JsonRpcSettings::default() }),
        )
        .await;
        let mut socket = Socket::connect(&server, HEADERS).await;
        check(async |name| socket.ask(name, json!([])).await["result"].take(), &mut hearing, 5, Some(TRACE)).await;
    });
}

#[test]
fn calls_of_functions_inherit_as_methods_of_a_service() {
    in_virtual_time(async {
        let ([server, _behind], mut hearing) = serve(JsonRpc::new()).await;
        let mut caller = Caller::connect(&server);
        let call = async |name: &str| {
            let head = format!("POST /frpc.Functions/{name} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n");
            caller.say(head + "content-length: 2\r\n" + HEADERS + "\r\n[]").await;
            serde_json::from_str(&hear(&mut caller).await.1).unwrap()
        };
        check(call, &mut hearing, 9, Some(TRACE)).await;
    });
}
