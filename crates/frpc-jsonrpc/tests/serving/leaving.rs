//! Peers that are silent, stop in the middle of a message, or disconnect.

use frpc_jsonrpc::JsonRpcSettings;
use std::time::Duration;

use frpc::Server;
use frpc_http::Http;
use serde_json::json;
use support::{Gate, SECOND, calls::TestService, in_real_time, in_virtual_time, settle, until};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::Instant,
};

use crate::{
    caller::{Caller, request, serve_with, wire},
    websocket::Socket,
};

#[test]
fn whitespace_does_not_extend_the_first_message_timeout() {
    in_virtual_time(async {
        let server = serve_with(
            &TestService::default(),
            wire(&Gate::default())
                .settings(JsonRpcSettings { message_time_max: 3 * SECOND, ..JsonRpcSettings::default() }),
        );
        let start = Instant::now();
        let mut caller = Caller::connect(&server);
        for blank in [" ", "\n"] {
            caller.say(blank).await;
            tokio::time::sleep(SECOND).await;
        }
        let heard = caller.hear_all().await;
        assert!(heard.contains("-32700"), "{heard}");
        assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());

        let mut caller = Caller::connect(&server);
        assert_eq!(caller.ask("sum", json!([1])).await["result"], 1);
        caller.say("\n").await;
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(caller.ask("sum", json!([2])).await["result"], 2, "later it may be silent for as long as it likes");
    });
}

#[test]
fn calls_of_a_half_closed_peer_are_limited_in_time() {
    in_virtual_time(async {
        let gate = Gate::default();
        let wire = wire(&gate).settings(JsonRpcSettings {
            calls_max: 2,
            half_closed_max: 5 * SECOND,
            ..JsonRpcSettings::default()
        });
        let server = serve_with(&TestService::default(), wire);
        // The third call has no room, so the end of the input comes after a call that cannot start.
        let waits: String = (1..=3).map(|id| request("wait", json!([id]), id)).collect();
        let mut caller = Caller::connect(&server);
        caller.say(&waits).await;
        caller.0.shutdown().await.unwrap();
        tokio::time::sleep(4 * SECOND).await;
        assert_eq!(server.metrics().connections, 1);
        gate.open(3);
        let heard = caller.hear_all().await;
        assert_eq!(heard.lines().count(), 3, "{heard}");

        for said in [waits.clone(), request("wait", json!([]), 1)] {
            let mut caller = Caller::connect(&server);
            caller.say(&said).await;
            settle().await;
            let start = Instant::now();
            drop(caller);
            while server.metrics().connections > 0 {
                tokio::time::sleep(SECOND).await;
                assert!(start.elapsed() < 10 * SECOND, "calls of a peer that is gone run on");
            }
            assert!(start.elapsed() >= 5 * SECOND);
        }
    });
}

#[test]
fn calls_of_a_lost_peer_with_unread_input_are_limited() {
    in_real_time(async {
        let wire = wire(&Gate::default()).settings(JsonRpcSettings {
            calls_max: 1,
            half_closed_max: Duration::ZERO,
            ..JsonRpcSettings::default()
        });
        // The kernel buffers the rest of the input, and the end after it.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1 << 20).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().wire(wire).bind(listener).await.unwrap();
        // Slightly more than the read-ahead during the first call.
        let message = request("wait", json!(["x".repeat(500)]), 1);
        let said = message.repeat((256 << 10) / message.len() + 3);
        let mut caller = TcpStream::connect(address).await.unwrap();
        caller.write_all(said.as_bytes()).await.unwrap();
        until(|| server.metrics().connections == 1).await;
        drop(caller);
        until(|| server.metrics().connections == 0).await;
    });
}

#[test]
fn a_lost_websocket_drops_running_and_queued_calls() {
    in_virtual_time(async {
        let wire = wire(&Gate::default()).settings(JsonRpcSettings { calls_max: 1, ..JsonRpcSettings::default() });
        let server = Server::builder().wire(Http::new().mount("/rpc", wire)).without_listener().unwrap();
        let mut socket = Socket::connect(&server, "").await;
        for id in 1..=20 {
            socket.say(&request("wait", json!([]), id)).await;
        }
        settle().await;
        assert_eq!(server.metrics().connections, 1);
        drop(socket);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
    });
}

#[test]
fn requests_read_ahead_are_bounded_and_answered_in_order() {
    in_virtual_time(async {
        let gate = Gate::default();
        let wire = wire(&gate).settings(JsonRpcSettings { calls_max: 1, ..JsonRpcSettings::default() });
        let server = Server::builder().wire(Http::new().mount("/rpc", wire.clone())).wire(wire);
        let server = server.without_listener().unwrap();
        let text = "x".repeat(10_000);
        let message = |id| request("wait", json!([text]), id);
        let mut caller = Caller::with_buffer(&server, 1000);
        let saying = async {
            for id in 1..=100 {
                caller.say(message(id)).await;
            }
        };
        let blocked = tokio::time::timeout(SECOND, saying).await;
        assert!(blocked.is_err(), "no more is read than may be");
        drop(caller);

        let mut socket = Socket::with_buffer(&server, 1000, "").await;
        let mut said = 0;
        while tokio::time::timeout(SECOND, socket.say(&message(said + 1))).await.is_ok() {
            said += 1;
            assert!(said < 100, "no more is read than may be");
        }
        assert!(said >= 20, "{said}");
        gate.open(200);
        for id in 1..=said {
            assert_eq!(socket.hear().await["id"], id);
        }
    });
}

#[test]
fn shutdown_ignores_silent_and_partial_requests() {
    in_virtual_time(async {
        for said in ["", " ", "{\"jsonrpc\"", "Content-Len", "Content-Length: 10\r\n\r\n{"] {
            let server = serve_with(&TestService::default(), wire(&Gate::default()));
            let mut caller = Caller::connect(&server);
            caller.say(said).await;
            settle().await;
            let start = Instant::now();
            assert_eq!(server.shutdown(60 * SECOND).await, 0);
            assert!(start.elapsed() <= 2 * SECOND, "{said}: {:?}", start.elapsed());
        }
    });
}
