//! WebSockets on the HTTP port.

use bytes::Bytes;
use frpc::Server;
use frpc_http::{Cors, Http, HttpSettings, Mount, MountContext};
use frpc_websocket::{CloseFrame, MessageKind, Role, TOO_LONG, WebSocket};
use futures_util::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use support::{
    calls::{TestClient, TestService, ask, quiet_channel},
    in_virtual_time, settle,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::{
    h2_caller::server,
    http1::{self, Http1},
};

/// Echoes messages, and closes when the server shuts down.
struct Parrot;

impl Mount for Parrot {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async { Response::new(Bytes::from_static(b"use a WebSocket")) }.boxed()
    }

    fn subprotocols(&self) -> &[&'static str] {
        &["parrot", "parrot.v2"]
    }

    fn websocket<'a>(&'a self, visit: MountContext, mut socket: WebSocket) -> BoxFuture<'a, ()> {
        async move {
            let color = visit.metadata.get("color").unwrap_or_default();
            let greeting = format!("{:?} {color:?}", socket.subprotocol());
            socket.queue(MessageKind::Text, greeting.as_bytes());
            let drain = visit.drain.clone().unwrap();
            loop {
                tokio::select! {
                    message = socket.next() => match message {
                        Some(Ok(message)) => socket.queue(message.kind, &message.data),
                        _ => return,
                    },
                    () = drain.requested(), if socket.is_open() => socket.close(CloseFrame::new(1001, "")),
                }
            }
        }
        .boxed()
    }
}

fn serve(http: Http) -> Server {
    server(&TestService::default(), http.mount("/parrot", Parrot)).without_listener().unwrap()
}

fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: shop.example.com\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// Sends a handshake. Returns the head of the response, and the connection.
async fn upgrade(server: &Server, request: &str) -> (String, DuplexStream) {
    let mut caller = Http1::connect(server);
    caller.say(request).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(caller.0.read_u8().await.expect("there is an answer"));
    }
    (String::from_utf8(head).unwrap(), caller.0)
}

async fn status(server: &Server, request: &str) -> String {
    upgrade(server, request).await.0.lines().next().unwrap().to_owned()
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols";

#[test]
fn calls_work_over_a_websocket_at_every_path() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for path in ["/", "/any/path?a=b", "/parrot"] {
            let request = handshake(path, "sec-websocket-protocol: other, frpc\r\n");
            let (head, stream) = upgrade(&server, &request).await;
            let names = head.to_ascii_lowercase();
            assert!(head.starts_with(SWITCHING) && names.contains("sec-websocket-protocol: frpc\r\n"), "{head}");
            assert!(
                names.contains("sec-websocket-accept: ") && head.contains(": s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
                "{head}"
            );
            let stream = WebSocket::new(stream, Role::Client).into_stream();
            let client = TestClient::new(quiet_channel().attach(stream).await.unwrap());
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
            assert_eq!(server.connections().len(), 1);
            drop(client);
            settle().await;
            assert_eq!(server.connections().len(), 0);
        }
    });
}

#[test]
fn mounts_accept_websockets_at_their_path() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (more, greeting) in [
            ("color: red\r\n", "None \"red\""),
            ("sec-websocket-protocol: x\r\nsec-websocket-protocol: parrot.v2,parrot\r\n", "Some(\"parrot.v2\") \"\""),
        ] {
            let (head, stream) = upgrade(&server, &handshake("/parrot", more)).await;
            assert!(head.starts_with(SWITCHING), "{head}");
            let mut socket = WebSocket::new(stream, Role::Client);
            assert_eq!(socket.next().await.unwrap().unwrap().data, greeting.as_bytes());
            socket.send(MessageKind::Text, b"hello").await.unwrap();
            assert_eq!(&*socket.next().await.unwrap().unwrap().data, b"hello");
            socket.close(CloseFrame::new(1000, ""));
            assert!(socket.next().await.is_none());
        }
    });
}

#[test]
fn frames_sent_with_the_handshake_are_read() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let mut caller = Http1::connect(&server);
        caller.say([handshake("/parrot", "").as_bytes(), b"\x81\x82\0\0\0\0hi\x88\x80\0\0\0\0"].concat()).await;
        let heard = caller.hear_all().await;
        assert!(heard.ends_with(b"\x81\x02hi\x88\x00"), "{}", heard.escape_ascii());
    });
}

#[test]
fn wire_limits_apply_to_messages() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { message_len_max: 4, ..HttpSettings::default() }));
        let (_, mut stream) = upgrade(&server, &handshake("/parrot", "")).await;
        stream.write_all(b"\x81\x85\0\0\0\0").await.unwrap();
        let mut socket = WebSocket::new(stream, Role::Client);
        socket.next().await.unwrap().unwrap();
        assert!(socket.next().await.is_none());
        assert_eq!(socket.peer_close().unwrap().code, TOO_LONG);
    });
}

#[test]
fn invalid_handshakes_are_rejected_without_closing() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let good = handshake("/parrot", "");
        for (bad, answer) in [
            (good.replace("GET", "POST"), "HTTP/1.1 400 Bad Request"),
            (good.replace("version: 13", "version: 8"), "HTTP/1.1 426 Upgrade Required"),
            (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), "HTTP/1.1 400 Bad Request"),
            (handshake("/parrot", "sec-websocket-protocol: cat\r\n"), "HTTP/1.1 400 Bad Request"),
            (handshake("/", ""), "HTTP/1.1 400 Bad Request"),
            (handshake("/", "sec-websocket-protocol: parrot\r\n"), "HTTP/1.1 400 Bad Request"),
            (handshake("/parrot", "x-bin: !\r\n"), "HTTP/1.1 400 Bad Request"),
            // Without one of the upgrade headers, it is an ordinary request.
            (good.replace("keep-alive, Upgrade", "keep-alive"), "HTTP/1.1 200 OK"),
            (good.replace("WebSocket", "h2c"), "HTTP/1.1 200 OK"),
        ] {
            assert_eq!(status(&server, &bad).await, answer, "{bad}");
        }
        let (head, mut stream) = upgrade(&server, &handshake("/", "")).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{head}");
        stream.write_all(http1::post("/parrot", "", b"").as_slice()).await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        let rest = String::from_utf8(rest).unwrap();
        assert!(rest.starts_with("sec-websocket-protocol: this path supports the subprotocols frpc\n"), "{rest}");
        assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");
    });
}

#[test]
fn scripts_of_other_origins_are_rejected() {
    in_virtual_time(async {
        let connects = async |server: &Server, origin: &str| {
            let status = status(server, &handshake("/parrot", &format!("origin: {origin}\r\n"))).await;
            assert!([SWITCHING, "HTTP/1.1 403 Forbidden"].contains(&&*status), "{status}");
            status == SWITCHING
        };
        let server = serve(Http::new());
        assert!(connects(&server, "https://shop.example.com").await);
        for origin in
            ["https://evil.example.com", "null", "https://shop.example.com:8443", "https://shop.example.com.evil"]
        {
            assert!(!connects(&server, origin).await, "{origin}");
        }
        let server = serve(Http::new().cors(Cors::origins(["https://friend.example.com"])));
        assert!(connects(&server, "https://friend.example.com").await);
        assert!(!connects(&server, "https://evil.example.com").await);
        assert!(connects(&serve(Http::new().cors(Cors::any_origin())), "https://evil.example.com").await);
    });
}

#[test]
fn frisbee_over_websocket_can_be_disabled() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { websocket: false, ..HttpSettings::default() }));
        let request = handshake("/", "sec-websocket-protocol: frpc\r\n");
        assert_eq!(status(&server, &request).await, "HTTP/1.1 400 Bad Request");
        assert_eq!(status(&server, &handshake("/parrot", "")).await, SWITCHING);
    });
}

#[test]
fn a_shutdown_ends_websockets_of_both_kinds() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let (_, stream) = upgrade(&server, &handshake("/parrot", "")).await;
        let mut socket = WebSocket::new(stream, Role::Client);
        socket.next().await.unwrap().unwrap();
        let (_, stream) = upgrade(&server, &handshake("/", "sec-websocket-protocol: frpc\r\n")).await;
        let stream = WebSocket::new(stream, Role::Client).into_stream();
        let client = TestClient::new(quiet_channel().attach(stream).await.unwrap());
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        let shutdown = tokio::spawn(async move { server.shutdown(support::SECOND).await });
        assert!(socket.next().await.is_none());
        assert_eq!(socket.peer_close().unwrap().code, 1001);
        assert_eq!(shutdown.await.unwrap(), 0);
        assert!(ask(&client, "hi").await.is_err());
    });
}

#[test]
fn a_connection_lost_during_its_upgrade_ends() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for path in ["/", "/parrot"] {
            let mut caller = Http1::connect(&server);
            caller.say(&handshake(path, "")).await;
            drop(caller);
            settle().await;
            assert_eq!(server.metrics().connections, 0, "{path}");
        }
    });
}

#[test]
fn a_protocol_violation_in_a_websocket_closes_it() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let bad: [(MessageKind, &[u8], u16); 3] = [
            (MessageKind::Text, b"hello", 1003),
            (MessageKind::Binary, b"GET / HTTP/1.1\r\n\r\n", 1000),
            (MessageKind::Binary, b"\x00\x0f\0\0\0\x0a\xff\xff\xff\xff", 1000),
        ];
        for (kind, content, code) in bad {
            let (_, stream) = upgrade(&server, &handshake("/", "sec-websocket-protocol: frpc\r\n")).await;
            let mut socket = WebSocket::new(stream, Role::Client);
            socket.send(kind, content).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                assert_eq!(message.kind, MessageKind::Binary);
            }
            let close = socket.peer_close().map(|close| close.code);
            assert_eq!(close, Some(code), "{}", content.escape_ascii());
        }
    });
}
