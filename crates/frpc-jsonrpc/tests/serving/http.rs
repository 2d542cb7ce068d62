//! JSON-RPC by POST.

use frpc::Server;
use frpc_http::Http;
use serde_json::{Value, json};
use support::{
    Gate,
    calls::{TestServer, TestService},
    in_virtual_time, settle,
};
use tokio::io::AsyncReadExt;

use crate::{
    caller::{Caller, error, request, wire},
    specification::{EXAMPLES, plain},
};

fn serve(gate: &Gate) -> Server {
    let wire = wire(gate);
    let http = Http::new().mount("/rpc", wire.clone());
    let server = Server::builder().add_service(TestServer::new(TestService::default())).wire(http).wire(wire);
    server.without_listener().unwrap()
}

pub(crate) fn post(content_type: &str, body: &str, more: &str) -> String {
    let len = body.len();
    format!(
        "POST /rpc HTTP/1.1\r\nhost: h\r\ncontent-type: {content_type}\r\ncontent-length: {len}\r\n{more}\r\n{body}"
    )
}

/// Reads a response: its status and its body.
pub(crate) async fn hear(caller: &mut Caller) -> (u16, String) {
    let mut status = 0;
    let mut len = 0;
    loop {
        let line = caller.hear_line().await;
        match line.trim().to_ascii_lowercase().split_once([':', ' ']) {
            Some(("http/1.1", rest)) => status = rest[..3].parse().unwrap(),
            Some(("content-length", value)) => len = value.trim().parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; len];
    caller.0.read_exact(&mut body).await.unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[test]
fn post_requests_follow_the_specification() {
    in_virtual_time(async {
        let server = serve(&Gate::default());
        let mut caller = Caller::connect(&server);
        for (said, expected) in EXAMPLES {
            caller.say(post("application/json; charset=utf-8", said, "")).await;
            let (status, body) = hear(&mut caller).await;
            match *expected {
                "" => assert_eq!((status, &*body), (204, "")),
                expected => {
                    assert_eq!((status, plain(&body)), (200, serde_json::from_str(expected).unwrap()), "{said}");
                }
            }
        }
    });
}

#[test]
fn calls_have_a_deadline_and_no_subscriptions() {
    in_virtual_time(async {
        let server = serve(&Gate::default());
        let mut caller = Caller::connect(&server);
        let time = "connect-timeout-ms: 1000\r\n";
        for method in ["wait", "Test.Say"] {
            caller.say(post("application/json", &request(method, json!(["wait"]), 1), time)).await;
            let (status, body) = hear(&mut caller).await;
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, error(&answer)), (200, (-32004, "deadline_exceeded")));
        }
        caller.say(post("application/json", &request("Test.Count", json!(["a"]), 1), "")).await;
        let answer: Value = serde_json::from_str(&hear(&mut caller).await.1).unwrap();
        assert_eq!(error(&answer), (-32601, "unimplemented"));
    });
}

#[test]
fn a_batch_waits_for_all_of_its_calls() {
    in_virtual_time(async {
        let gate = Gate::default();
        let server = serve(&gate);
        let mut caller = Caller::connect(&server);
        let batch = format!("[{},{}]", request("wait", json!([5]), 1), request("sum", json!([1]), 2));
        caller.say(post("application/json", &batch, "")).await;
        settle().await;
        gate.open(1);
        let (_, body) = hear(&mut caller).await;
        let expected = json!([{"jsonrpc": "2.0", "result": [5], "id": 1}, {"jsonrpc": "2.0", "result": 1, "id": 2}]);
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    });
}

#[test]
fn get_shows_help_and_form_content_types_are_rejected() {
    in_virtual_time(async {
        let server = serve(&Gate::default());
        let mut caller = Caller::connect(&server);
        caller.say("GET /rpc HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let (status, body) = hear(&mut caller).await;
        assert!(status == 200 && body.contains("curl --json"), "{body}");
        caller.say("PUT /rpc HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(hear(&mut caller).await.0, 405);
        for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            caller.say(post(content_type, &request("sum", json!([1]), 1), "")).await;
            assert_eq!(hear(&mut caller).await.0, 415, "{content_type}");
        }
    });
}
