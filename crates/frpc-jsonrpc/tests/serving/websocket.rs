//! JSON-RPC over WebSocket.

use frpc::{CallSettings, Server};
use frpc_http::Http;
use frpc_jsonrpc::{JsonRpc, JsonRpcSettings};
use frpc_websocket::{CloseFrame, GOING_AWAY, MessageKind, Role, TRY_AGAIN_LATER, WebSocket};
use serde_json::{Value, json};
use support::{
    Gate, SECOND,
    calls::{TestServer, TestService},
    in_virtual_time, settle,
};

use crate::{
    caller::{Caller, error, request, wire},
    specification::{EXAMPLES, plain},
};

fn serve(wire: JsonRpc) -> (Server, TestService) {
    let service = TestService::default();
    let server = Server::builder().add_service(TestServer::new(service.clone()));
    (server.wire(Http::new().mount("/rpc", wire)).without_listener().unwrap(), service)
}

/// A WebSocket after its handshake.
pub(crate) struct Socket(WebSocket);

impl Socket {
    pub(crate) async fn connect(server: &Server, more: &str) -> Self {
        Self::with_buffer(server, 64 * 1024, more).await
    }

    pub(crate) async fn with_buffer(server: &Server, len: usize, more: &str) -> Self {
        Self(WebSocket::new(Self::handshake(server, len, more).await.0, Role::Client))
    }

    async fn handshake(server: &Server, len: usize, more: &str) -> Caller {
        let mut caller = Caller::with_buffer(server, len);
        let head = format!(
            "GET /rpc HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        );
        caller.say(head).await;
        assert!(caller.hear_line().await.starts_with("HTTP/1.1 101"));
        while caller.hear_line().await != "\r" {}
        caller
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.0.send(MessageKind::Text, text.as_bytes()).await.unwrap();
    }

    async fn hear_text(&mut self) -> String {
        let message = self.0.next().await.unwrap().unwrap();
        assert_eq!(message.kind, MessageKind::Text);
        String::from_utf8(message.data.to_vec()).unwrap()
    }

    pub(crate) async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.hear_text().await).unwrap()
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(&request(method, params, 1)).await;
        self.hear().await
    }
}

#[test]
fn messages_follow_the_specification_over_websocket() {
    in_virtual_time(async {
        let (server, _) = serve(wire(&Gate::default()));
        for more in ["", "sec-websocket-protocol: jsonrpc\r\n"] {
            let mut socket = Socket::connect(&server, more).await;
            for (said, expected) in EXAMPLES {
                socket.say(said).await;
                if !expected.is_empty() {
                    let expected: Value = serde_json::from_str(expected).unwrap();
                    assert_eq!(plain(&socket.hear_text().await), expected, "{said}");
                }
            }
        }
    });
}

#[test]
fn ended_calls_answer_and_closing_cancels_streams() {
    in_virtual_time(async {
        let (server, service) = serve(wire(&Gate::default()));
        let mut socket = Socket::connect(&server, "").await;
        socket.say(&request("Test.Say", json!(["wait"]), 7)).await;
        assert_eq!(socket.ask("Test.Count", json!(["a, wait"])).await["result"], "1");
        assert_eq!(socket.hear().await["params"]["result"]["text"], "a");
        service.gate.open(2);
        let rest = [socket.hear().await, socket.hear().await, socket.hear().await];
        assert!(rest.iter().any(|message| message["id"] == 7), "{rest:?}");
        assert!(rest.iter().any(|message| message["params"]["end"] == true), "{rest:?}");
        socket.ask("Test.Count", json!(["wait"])).await;
        service.log.take();
        drop(socket);
        settle().await;
        assert!(service.log.take().iter().any(|event| event.starts_with("dropped count")));
        assert_eq!(server.metrics().connections, 0);
    });
}

#[test]
fn limits_apply_and_slow_readers_block_only_their_stream() {
    in_virtual_time(async {
        let gate = Gate::default();
        let (server, service) = serve(wire(&gate).settings(JsonRpcSettings {
            calls_max: 1,
            answers_len_max: 1000,
            message_len_max: 500,
            ..JsonRpcSettings::default()
        }));
        let mut socket = Socket::with_buffer(&server, 1000, "").await;
        socket.say(&request("wait", json!([1]), 1)).await;
        socket.say(&request("sum", json!([2]), 2)).await;
        settle().await;
        gate.open(1);
        assert_eq!(socket.hear().await["id"], 1);
        assert_eq!(socket.hear().await["id"], 2);
        assert_eq!(error(&socket.ask("sum", json!(["x".repeat(500)])).await).0, -32700);
        socket.say(&request("Test.Count", json!(["endless a"]), 1)).await;
        settle().await;
        let made = service.made();
        assert!((10..40).contains(&made), "{made}");
        for _ in 0..100 {
            socket.hear().await;
        }
    });
}

#[test]
fn incomplete_messages_use_the_memory_of_the_connection() {
    in_virtual_time(async {
        let calls = CallSettings { connection_memory_max: 200_000, ..CallSettings::default() };
        let wire = Http::new().mount("/rpc", wire(&Gate::default()));
        let server = Server::builder().wire(wire).calls(calls).without_listener().unwrap();
        for (len, is_refused) in [(100_000, false), (300_000, true)] {
            let (mut caller, text) = (Socket::handshake(&server, 64 * 1024, "").await, "x".repeat(len));
            let message = request("sum", json!([text]), 1);
            // A masked text frame of this length without its last byte.
            let mut frame = vec![0x81, 0xff];
            frame.extend_from_slice(&(message.len() as u64).to_be_bytes());
            frame.extend_from_slice(&[0; 4]);
            frame.extend_from_slice(&message.as_bytes()[..message.len() - 1]);
            caller.say(frame).await;
            settle().await;
            if !is_refused {
                caller.say("}").await;
            }
            let mut socket = Socket(WebSocket::new(caller.0, Role::Client));
            let answer = socket.hear().await;
            assert_eq!(answer["error"].is_object() && answer["id"].is_null(), is_refused, "{answer}");
            if is_refused {
                assert!(socket.0.next().await.is_none_or(|closed| closed.is_err()));
                assert_eq!(socket.0.peer_close().map(|close| close.code), Some(TRY_AGAIN_LATER));
            }
        }
    });
}

#[test]
fn shutdown_answers_running_calls_and_closes() {
    in_virtual_time(async {
        let (server, service) = serve(wire(&Gate::default()));
        let mut socket = Socket::connect(&server, "").await;
        socket.say(&request("Test.Say", json!(["wait"]), 1)).await;
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        settle().await;
        assert_eq!(error(&socket.ask("sum", json!([1])).await), (-32014, "unavailable"));
        service.gate.open(1);
        assert_eq!(socket.hear().await["result"]["text"], "wait");
        assert!(socket.0.next().await.is_none());
        assert_eq!(socket.0.peer_close().map(|close| close.code), Some(GOING_AWAY));
        assert_eq!(shutdown.await.unwrap(), 0, "no connection had to be cut");
    });
}

#[test]
fn the_handshake_timeout_does_not_apply_to_calls() {
    in_virtual_time(async {
        let (server, service) = serve(wire(&Gate::default()));
        let mut socket = Socket::connect(&server, "connect-timeout-ms: 1000\r\n").await;
        tokio::time::sleep(2 * SECOND).await;
        socket.say(&request("Test.Say", json!(["wait"]), 1)).await;
        settle().await;
        service.gate.open(1);
        assert_eq!(socket.hear().await["result"]["text"], "wait");
    });
}

#[test]
fn a_closing_peer_is_disconnected() {
    in_virtual_time(async {
        let (server, _) = serve(wire(&Gate::default()));
        let mut socket = Socket::connect(&server, "").await;
        assert_eq!(socket.ask("sum", json!([1])).await["result"], 1);
        socket.0.close(CloseFrame::new(1000, ""));
        assert!(socket.0.next().await.is_none());
        settle().await;
        assert_eq!(server.metrics().connections, 0);
    });
}
