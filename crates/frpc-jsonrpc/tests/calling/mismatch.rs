//! Channels to servers of another protocol.

use std::time::{Duration, Instant};

use frpc::{CallError, Channel, Code, ConnectRetry, Server};
use frpc_jsonrpc::JsonRpc;
use support::{
    calls::{TestClient, TestServer, TestService, ask},
    in_real_time,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Serves connections: sends `first` unless it is empty, and answers the first bytes of the client with `answer`.
async fn raw(first: &'static [u8], answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = socket.write_all(first).await;
                let mut said = [0; 1024];
                if socket.read(&mut said).await.is_ok_and(|len| len > 0) {
                    let _ = socket.write_all(answer).await;
                }
            });
        }
    });
    address.to_string()
}

/// Connects with this scheme, then makes a call. Returns the text of the failure, and the time until then.
async fn failure(scheme: &str, address: &str) -> (String, Duration) {
    let start = Instant::now();
    let builder = match scheme.split_once("://").unwrap().0 {
        "grpc" | "http" => Channel::builder().transport(frpc_http::Client::new()),
        "ws" => Channel::builder().transport(frpc_websocket::Client::new()),
        _ => crate::channel(),
    };
    // Attempts are slow, so that a second one is noticed.
    let builder = builder.retry(ConnectRetry { pause: Duration::from_secs(5), ..ConnectRetry::default() });
    let failure = match builder.connect(&*scheme.replace("ADDRESS", address)).await {
        Err(error) => error.to_string(),
        Ok(channel) => ask(&TestClient::new(channel), "hi").await.unwrap_err().to_string(),
    };
    (failure, start.elapsed())
}

/// The call fails with a typed error and is not retried.
#[test]
fn calls_to_an_http2_server_are_unreachable() {
    in_real_time(async {
        let address = raw(b"", b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01").await;
        let channel = crate::channel().connect(format!("jsonrpc+http://{address}/rpc")).await.unwrap();
        for _ in 0..3 {
            let status = ask(&TestClient::new(channel.clone()), "hi").await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(matches!(status.call_error(), Some(CallError::Unreachable(_))), "{status:?}");
        }
    });
}

#[test]
fn connecting_to_a_foreign_protocol_fails_immediately() {
    in_real_time(async {
        let service = || TestServer::new(TestService::default());
        let plain = Server::builder().add_service(service()).bind("127.0.0.1:0").await.unwrap();
        let wired = Server::builder().add_service(service()).wire(JsonRpc::new()).bind("127.0.0.1:0").await.unwrap();
        let [plain, wired] = [&plain, &wired].map(|server| server.local_addr().socket_addr().unwrap().to_string());
        let http2 = raw(b"\0\0\0\x04\0\0\0\0\0", b"").await;
        let late_http2 = raw(b"", b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01").await;
        let http1 = raw(b"", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        let mut cases = Vec::new();
        for address in [&plain, &wired] {
            cases.extend([
                ("grpc://ADDRESS", address, "the server speaks HTTP/1.1 instead of HTTP/2"),
                ("ws://ADDRESS", address, "this port does not speak HTTP"),
                ("jsonrpc+ws://ADDRESS/rpc", address, "this port does not speak HTTP"),
                ("jsonrpc+http://ADDRESS/rpc", address, "400 Bad Request"),
            ]);
        }
        cases.extend([
            ("tcp://ADDRESS", &http1, "this looks like an HTTP/1 server"),
            ("tcp://ADDRESS", &http2, "this looks like an HTTP/2 server"),
            ("grpc://ADDRESS", &http1, "the server speaks HTTP/1.1 instead of HTTP/2"),
            ("ws://ADDRESS", &http2, "the server does not speak HTTP"),
            ("jsonrpc+tcp://ADDRESS", &http1, "the server speaks HTTP: for JSON-RPC over HTTP"),
            ("jsonrpc+tcp://ADDRESS", &http2, "the server speaks HTTP/2, gRPC or frisbee"),
        ]);
        // A server that sends first, and a server that waits for the client.
        for address in [&http2, &late_http2] {
            cases.extend([
                ("jsonrpc+http://ADDRESS/rpc", address, "the server speaks HTTP/2 instead of HTTP/1.1"),
                ("http://ADDRESS", address, "the server speaks HTTP/2 instead of HTTP/1.1"),
            ]);
        }
        let checks = cases.into_iter().map(async |(scheme, address, expected)| {
            let (failure, time) = failure(scheme, address).await;
            assert!(failure.contains(expected), "{scheme}: {failure}");
            assert!(time < Duration::from_secs(4), "{scheme}: {failure} after {time:?}");
        });
        futures_util::future::join_all(checks).await;
    });
}
