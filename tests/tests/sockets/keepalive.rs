//! Servers that vanish without closing their connections, over every transport with sockets. A proxy discards all bytes
//! once the connections are open.

use std::net::SocketAddr;

use frpc::{CallError, Channel, Code, Config, Engine, Request, SocketOptions};
use frpc_http::ClientSettings;
use support::{
    MILLI, SECOND,
    calls::{TestClient, TestServer, TestService, Words, ask},
    in_real_time,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::wires::{SCHEMES, serve};

/// Long enough for a busy machine to answer pings.
const PING_PERIOD: std::time::Duration = SECOND.saturating_mul(2);

/// Returns `true` for transports whose protocol has pings.
fn has_pings(scheme: &str) -> bool {
    matches!(scheme, "tcp" | "ws" | "grpc" | "jsonrpc+ws")
}

#[test]
fn a_silent_server_fails_calls_over_transports_with_pings() {
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
        let proxy = Proxy::new(server.local_addr().socket_addr().unwrap()).await;
        let mut calls = Vec::new();
        for (scheme, path, _) in SCHEMES.into_iter().filter(|(scheme, ..)| has_pings(scheme)) {
            let client = TestClient::new(proxy.connect(scheme, path).await);
            calls.push((scheme, tokio::spawn(async move { ask(&client, "wait").await })));
            service.gate.arrival().await;
        }
        proxy.freeze();
        for (scheme, call) in calls {
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{scheme}: {status}");
            let is_lost =
                matches!(status.call_error(), Some(CallError::ConnectionLost { may_have_executed: true, .. }));
            assert!(is_lost, "{scheme}: {status:?}");
        }
    });
}

#[test]
fn calls_to_a_silent_server_end_at_their_deadline() {
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service)).await;
        let proxy = Proxy::new(server.local_addr().socket_addr().unwrap()).await;
        let mut clients = Vec::new();
        for (scheme, path, _) in SCHEMES {
            let client = TestClient::new(proxy.connect(scheme, path).await);
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi", "{scheme}");
            clients.push((scheme, client));
        }
        proxy.freeze();
        for (scheme, client) in clients {
            let mut request = Request::new(Words { text: "hi".into() });
            request.set_timeout(50 * MILLI);
            let status = client.say(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{scheme}: {status}");
            assert!(matches!(status.call_error(), Some(CallError::TimedOut { .. })), "{scheme}: {status:?}");
        }
    });
}

/// A proxy in front of a server. It forwards bytes until it is frozen, and then reads and discards them.
struct Proxy {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
}

impl Proxy {
    async fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, is_frozen) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                let ((client_input, client_output), (server_input, server_output)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(forward(client_input, server_output, is_frozen.clone()));
                tokio::spawn(forward(server_input, client_output, is_frozen.clone()));
            }
        });
        Self { address, frozen }
    }

    fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Connects through the proxy, with pings where the transport has them.
    async fn connect(&self, scheme: &str, path: &str) -> Channel {
        let http = ClientSettings {
            keepalive_interval: Some(PING_PERIOD),
            keepalive_timeout: PING_PERIOD,
            ..ClientSettings::default()
        };
        Channel::builder()
            .config(Config { silence_max: Some(2 * PING_PERIOD), ..Config::default() })
            .sockets(SocketOptions { keepalive: Some(PING_PERIOD), ..SocketOptions::default() })
            .transport(frpc_http::transport().settings(http))
            .transport(frpc_websocket::transport())
            .transport(frpc_jsonrpc::transport())
            .connect(format!("{scheme}://{}{path}", self.address))
            .await
            .unwrap()
    }
}

async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, is_frozen: watch::Receiver<bool>) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        if !*is_frozen.borrow() && to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
