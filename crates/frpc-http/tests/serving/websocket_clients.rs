//! Channels and bare clients, against HTTP servers with and without WebSocket.

use std::{
    future::ready,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frpc::{Channel, ConnectRetry, Server};
use frpc_websocket::Client;
use support::{
    calls::{TestClient, TestServer, TestService, ask, quiet, quiet_channel},
    engines, in_real_time, in_virtual_time,
    sockets::IDENTITY,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// Returns a client whose connections are served by this function.
fn client_to(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Client {
    Client::new().connector(move || {
        let (ours, theirs) = duplex(64 * 1024);
        accept(theirs);
        ready(io::Result::Ok(ours))
    })
}

fn serve() -> Server {
    let service = TestServer::new(TestService::default());
    Server::builder().config(quiet()).wire(frpc_http::Http::new()).add_service(service).without_listener().unwrap()
}

#[test]
fn a_channel_reconnects_after_losing_the_websocket() {
    in_virtual_time(async {
        let server = Arc::new(Mutex::new(serve()));
        let accepting = server.clone();
        let client = client_to(move |stream| accepting.lock().unwrap().attach(stream));
        let channel = quiet_channel().transport(client).connect("ws://test/any").await.unwrap();
        let client = TestClient::new(channel);
        assert_eq!(ask(&client, "one").await.unwrap(), "one");
        let former = std::mem::replace(&mut *server.lock().unwrap(), serve());
        drop(former);
        support::settle().await;
        assert_eq!(ask(&client, "two").await.unwrap(), "two");
    });
}

#[test]
fn a_rejected_handshake_is_reported_and_not_retried() {
    in_virtual_time(async {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        let client = client_to(move |mut stream| {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let len = stream.read(&mut request).await.unwrap();
                let request = str::from_utf8(&request[..len]).unwrap();
                assert!(request.starts_with("GET /chat?a=b HTTP/1.1\r\nhost: test:7\r\n"), "{request}");
                assert!(request.contains("sec-websocket-protocol: frpc\r\ncolor: red\r\n\r\n"), "{request}");
                stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 8\r\n\r\nno entry").await.unwrap();
            });
        });
        let client = client.header("color", "red").unwrap();
        let refused = Channel::builder().transport(client).connect("ws://test:7/chat?a=b").await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("ws://test:7/chat?a=b") && text.contains("403 Forbidden: no entry"), "{text}");
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_silent_server_times_out() {
    in_virtual_time(async {
        let kept = Mutex::new(Vec::new());
        let client = client_to(move |stream| kept.lock().unwrap().push(stream));
        let channel = Channel::builder()
            .transport(client)
            .retry(ConnectRetry { attempts: 2, ..ConnectRetry::default() })
            .connect_timeout(Duration::from_secs(3));
        let late = channel.connect("ws://test").await.unwrap_err().to_string();
        assert!(late.contains("attempts: 2") && late.contains("no connection within 3s"), "{late}");
    });
}

#[test]
fn invalid_headers_are_rejected() {
    assert!(Client::new().header("a", "b\r\nc: d").is_err());
    assert!(Client::new().header("a b", "c").is_err());
}

#[test]
fn calls_work_over_tls_and_every_engine() {
    in_virtual_time(async {
        let service = TestServer::new(TestService::default());
        let server = Server::builder().config(quiet()).wire(frpc_http::Http::new()).add_service(service);
        let server = server.tls(IDENTITY.server()).without_listener().unwrap();
        let client = client_to(move |stream| server.attach(stream));
        let channel = quiet_channel().transport(client).tls(IDENTITY.client());
        let client = TestClient::new(channel.connect("wss://localhost").await.unwrap());
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
    for engine in engines() {
        in_real_time(async {
            let service = TestServer::new(TestService::default());
            let server = Server::builder().wire(frpc_http::Http::new()).add_service(service).engine(engine);
            let server = server.bind("127.0.0.1:0").await.unwrap();
            let url = format!("ws://{}", server.local_addr().socket_addr().unwrap());
            let channel = Channel::builder().transport(Client::new()).connect(&*url).await.unwrap();
            let client = TestClient::new(channel);
            let large = "x".repeat(1_000_000);
            for text in ["hi", &*large] {
                assert!(ask(&client, text).await.unwrap() == text, "{engine:?}");
            }
        });
    }
}
