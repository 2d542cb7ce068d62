//! Peers with another protocol: both sides report it, and clients do so already on connecting.

use frisbee::{Client, CloseReason, Connection, ProtocolError, Server, proto::ForeignProtocol};
use frpc::Channel;
use support::{
    in_real_time,
    sockets::{ECHO, IDENTITY, Inbox, TestRouter, packet, test_server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Returns the error of a client on connecting. The first attempt reports it unless a busy machine keeps the peer
/// silent for half a second.
fn told_at_once(error: &impl ToString) -> String {
    let error = error.to_string();
    assert!(error.contains("(attempts: 1)"), "{error}");
    error
}

const SETTINGS_OF_HTTP2: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];

#[test]
fn connecting_reports_that_the_server_expects_tls() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let channel = Channel::connect(server.local_addr()).await;
        let error = match channel {
            Ok(channel) => channel.connection().unwrap().closed().await.to_string(),
            Err(error) => told_at_once(&error),
        };
        assert!(error.contains("the server expects TLS"), "{error}");
    });
}

#[test]
fn a_tls_client_reports_a_server_without_tls() {
    in_real_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(()).tls(IDENTITY.client());
        let error = client.connect(server.local_addr()).await.unwrap_err().to_string();
        assert!(error.contains("(attempts: 1)"), "{error}");
        assert!(error.contains("it may not use TLS"), "{error}");
        assert_eq!(reports.recv().await.unwrap(), "opened");
        assert_eq!(reports.recv().await.unwrap(), "closed: Protocol(Foreign(TlsClient))");
    });
}

#[test]
fn a_server_reports_an_http_client() {
    in_real_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).bind("127.0.0.1:0").await.unwrap();
        for (call, expected) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", ForeignProtocol::Http1Client),
            ("POST /hello.Greeter/SayHello HTTP/1.1\r\n\r\n", ForeignProtocol::Http1Client),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ForeignProtocol::Http2Client),
        ] {
            for split in [1, 3, 7, 8] {
                let mut socket = TcpStream::connect(server.local_addr().socket_addr().unwrap()).await.unwrap();
                socket.set_nodelay(true).unwrap();
                let (front, rest) = call.as_bytes().split_at(split);
                socket.write_all(front).await.unwrap();
                assert_eq!(reports.recv().await.unwrap(), "opened");
                // The server may have closed the connection already.
                let _ = socket.write_all(rest).await;
                let closed = format!("closed: Protocol(Foreign({expected:?}))");
                assert_eq!(reports.recv().await.unwrap(), closed, "{call:?} split at {split}");
            }
        }
    });
}

#[test]
fn check_peer_reports_the_protocol_of_the_server() {
    in_real_time(async {
        for (answer, expected) in [
            (&SETTINGS_OF_HTTP2[..], "this looks like an HTTP/2 server"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this looks like an HTTP/1 server"),
            (b"-ERR unknown command\r\n", "instead of the magic number"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let mut socket = listener.accept().await.unwrap().0;
                socket.write_all(answer).await.unwrap();
                // Wait until the client closes the connection, in any way.
                let _ = socket.read_to_end(&mut Vec::new()).await;
            });
            let error = match Client::new(()).check_peer().connect(address).await {
                Ok(connection) => connection.closed().await.to_string(),
                Err(error) => told_at_once(&error),
            };
            assert!(error.contains(expected), "{error}");
            server.await.unwrap();
        }
    });
}

#[test]
fn check_peer_accepts_a_slow_server() {
    in_real_time(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(()).check_peer();
        let connection = client.connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(connection.close_reason().is_none());
    });
}

#[test]
fn check_peer_accepts_a_frisbee_server() {
    in_real_time(async {
        let server = test_server().bind("127.0.0.1:0").await.unwrap();
        let (router, mut inbox) = Inbox::new();
        let connection: Connection = Client::new(router).check_peer().connect(server.local_addr()).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        assert_eq!(inbox.next().await.unwrap().content, "hi");
    });
}

#[test]
fn without_check_peer_the_first_answer_reveals_tls() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let connection = Client::new(()).connect(server.local_addr()).await.unwrap();
        // The connection may have failed already, because the peer answered the client's hello.
        let _ = connection.send(packet(1, ECHO, "hi")).await;
        let reason = connection.closed().await;
        let is_tls = matches!(reason, CloseReason::Protocol(ProtocolError::Foreign(ForeignProtocol::TlsServer)));
        assert!(is_tls, "{reason:?}");
    });
}
