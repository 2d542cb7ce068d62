//! Authentication in both directions, and rejection of peers without it.

use std::{
    io::{self, Read, Write},
    net,
    sync::Arc,
};

use frisbee::{Client, CloseReason, Config, ConnectRetry, Connection, Drain, Protocol, ProtocolMatch, Raw, Server};
use rustls::{ClientConnection, ServerConnection};
use support::{
    Identity, SECOND, engines, in_real_time, in_virtual_time, localhost,
    sockets::{ECHO, IDENTITY, Inbox, Kind, TestRouter, packet, test_server, unused_address},
    until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::{TcpListener, TcpStream},
    task::spawn_blocking,
    time::Instant,
};

#[test]
fn both_sides_see_the_certificate_of_the_other() {
    for kind in [Kind::Tcp, Kind::UnixPath, Kind::Mem] {
        in_real_time(async {
            let (alice, bob) = (Identity::new(), Identity::new());
            let server = test_server().tls(alice.server_for(&bob)).bind(unused_address(kind)).await.unwrap();
            let (router, mut inbox) = Inbox::new();
            let client = Client::new(router).tls_with_name(alice.client_as(&bob), localhost());
            let connection = client.connect(server.local_addr()).await.unwrap();
            connection.send(packet(1, ECHO, "hi")).await.unwrap();
            assert!(inbox.next().await.is_some());
            let certificates = |connection: &Connection| connection.peer_certificates().unwrap().to_vec();
            assert_eq!(certificates(&connection), [alice.certificate]);
            assert_eq!(certificates(&server.connections()[0]), [bob.certificate]);
        });
    }
}

#[test]
fn peer_certificates_are_absent_without_tls() {
    in_real_time(async {
        for secure in [false, true] {
            let (server, (router, mut inbox)) = (test_server(), Inbox::new());
            let (server, client) = match secure {
                true => (server.tls(IDENTITY.server()), Client::new(router).tls(IDENTITY.client())),
                false => (server, Client::new(router)),
            };
            let server = server.bind("127.0.0.1:0").await.unwrap();
            let connection = client.connect(server.local_addr()).await.unwrap();
            connection.send(packet(1, ECHO, "hi")).await.unwrap();
            assert!(inbox.next().await.is_some());
            assert_eq!(connection.peer_certificates().is_some(), secure);
            assert!(server.connections()[0].peer_certificates().is_none());
            assert_eq!(server.observer().connections(0, 1)[0].is_secure, secure);
        }
    });
}

#[test]
fn an_untrusted_server_is_rejected() {
    in_real_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .tls(Identity::new().client());
        let error = client.connect(server.local_addr()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        until(|| server.metrics().handshakes_failed == 1).await;
        assert_eq!((server.metrics().tls_failed, server.metrics().tls_handshakes), (1, 0));
        drop(server);
        assert_eq!(reports.recv().await, None, "no hook was called");
    });
}

#[test]
fn a_server_with_another_name_is_rejected() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(()).retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() });
        let client = client.tls_with_name(IDENTITY.client(), "example.org");
        let error = client.connect(server.local_addr()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn certificates_are_checked_against_the_requested_name() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("localhost:0").await.unwrap();
        let port = server.local_addr().socket_addr().unwrap().port();
        let (router, mut inbox) = Inbox::new();
        let client = Client::new(router).tls(IDENTITY.client());
        let connection = client.connect(format!("localhost:{port}")).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        assert!(inbox.next().await.is_some());
    });
}

#[test]
fn addresses_without_a_name_require_one() {
    in_virtual_time(async {
        let client = Client::new(()).tls(IDENTITY.client());
        let error = client.attach(duplex(1000).0).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    });
}

#[test]
fn a_client_without_the_required_certificate_is_rejected() {
    in_real_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).tls(IDENTITY.server_for(&Identity::new()));
        let server = server.bind("127.0.0.1:0").await.unwrap();
        // With TLS 1.3, the client completes its handshake before the server has verified it.
        if let Ok(connection) = Client::new(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .tls(IDENTITY.client())
            .connect(server.local_addr())
            .await
        {
            let reason = connection.closed().await;
            assert!(matches!(reason, CloseReason::Io(_) | CloseReason::Peer), "{reason:?}");
        }
        until(|| server.metrics().handshakes_failed == 1).await;
        assert_eq!((server.metrics().tls_failed, server.metrics().tls_handshakes), (1, 0));
        drop(server);
        assert_eq!(reports.recv().await, None, "no hook was called");
    });
}

#[test]
fn a_plain_client_is_rejected_by_a_tls_server() {
    in_real_time(async {
        let (router, mut reports) = TestRouter::with_hooks();
        let server = Server::builder(router).tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let connection = Client::new(()).connect(server.local_addr()).await.unwrap();
        let _ = connection.send(packet(1, ECHO, "hi")).await;
        let reason = connection.closed().await;
        assert!(matches!(reason, CloseReason::Protocol(_) | CloseReason::Io(_) | CloseReason::Peer), "{reason:?}");
        until(|| server.metrics().handshakes_failed == 1).await;
        assert_eq!((server.metrics().tls_failed, server.metrics().tls_handshakes), (1, 0));
        drop(server);
        assert_eq!(reports.recv().await, None, "no hook was called");
    });
}

#[test]
fn a_tls_client_rejects_a_plain_server() {
    in_real_time(async {
        let server = test_server().bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .timeout(15 * SECOND)
            .tls(IDENTITY.client());
        assert!(client.connect(server.local_addr()).await.is_err());
    });
}

#[test]
fn handshakes_are_limited_in_time_and_block_no_others() {
    in_virtual_time(async {
        let config = Config { handshake_max: 3 * SECOND, ..Config::default() };
        let server = test_server().tls(IDENTITY.server()).config(config).without_listener();
        let (mut mute, theirs) = duplex(1000);
        server.attach(theirs);
        let since = Instant::now();

        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let (router, mut inbox) = Inbox::new();
        let client = Client::new(router).tls_with_name(IDENTITY.client(), localhost());
        let connection = client.attach(ours).await.unwrap();
        connection.send(packet(1, ECHO, "hi")).await.unwrap();
        assert!(inbox.next().await.is_some());
        assert!(since.elapsed() < SECOND);

        assert_eq!(mute.read(&mut [0]).await.unwrap(), 0);
        assert!((3 * SECOND..4 * SECOND).contains(&since.elapsed()));
        assert_eq!(server.metrics().handshakes_failed, 1);
    });
}

#[test]
fn silent_clients_do_not_block_accepting() {
    for engine in engines() {
        in_real_time(async {
            let server = test_server().tls(IDENTITY.server()).engine(engine).bind("127.0.0.1:0").await.unwrap();
            let addr = server.local_addr().socket_addr().unwrap();
            let mut mutes = Vec::new();
            for _ in 0..20 {
                mutes.push(TcpStream::connect(addr).await.unwrap());
            }
            for _ in 0..10 {
                let (router, mut inbox) = Inbox::new();
                let client = Client::new(router).timeout(15 * SECOND).tls(IDENTITY.client());
                let connection = client.connect(addr).await.unwrap();
                connection.send(packet(1, ECHO, "hi")).await.unwrap();
                assert!(inbox.next().await.is_some());
            }
            assert!(20 <= server.metrics().connections);
        });
    }
}

#[test]
fn the_connect_timeout_includes_the_handshake() {
    in_virtual_time(async {
        let (ours, _mute) = duplex(1000);
        let client = Client::new(()).timeout(3 * SECOND).tls_with_name(IDENTITY.client(), localhost());
        let since = Instant::now();
        let error = client.attach(ours).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!((3 * SECOND..4 * SECOND).contains(&since.elapsed()));
    });
    in_real_time(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(())
            .timeout(SECOND / 20)
            .retry(ConnectRetry { attempts: 2, ..ConnectRetry::default() })
            .tls(IDENTITY.client());
        let error = client.connect(listener.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("(attempts: 2)"), "{error}");
    });
}

/// Greets peers that agreed on it in their handshake, before they send anything.
struct Hello;

const HELLO: &[u8] = b"hello";

impl Protocol for Hello {
    fn recognize(&self, _: &[u8], alpn: Option<&[u8]>) -> ProtocolMatch {
        if alpn == Some(HELLO) { ProtocolMatch::Yes } else { ProtocolMatch::No }
    }

    async fn serve(&self, mut socket: Raw, _: Drain) {
        socket.write_all(b"hello to you").await.unwrap();
        socket.shutdown().await.unwrap();
    }
}

#[test]
fn alpn_negotiates_a_protocol() {
    in_real_time(async {
        let alpn = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
        let mut tls = IDENTITY.server();
        tls.alpn_protocols = alpn(&[HELLO, b"packets"]);
        let server = test_server().protocol(Hello).tls(tls).bind("127.0.0.1:0").await.unwrap();
        let addr = server.local_addr().socket_addr().unwrap();

        let mut tls = IDENTITY.client();
        tls.alpn_protocols = alpn(&[HELLO]);
        let caller = spawn_blocking(move || {
            let session = ClientConnection::new(Arc::new(tls), localhost()).unwrap();
            let mut peer = Peer::new(session, net::TcpStream::connect(addr).unwrap());
            assert_eq!(peer.hear(12), b"hello to you");
            peer.hear_the_end();
        });
        caller.await.unwrap();

        for names in [alpn(&[]), alpn(&[b"packets"])] {
            let mut tls = IDENTITY.client();
            tls.alpn_protocols = names;
            let (router, mut inbox) = Inbox::new();
            let connection = Client::new(router).tls(tls).connect(addr).await.unwrap();
            connection.send(packet(1, ECHO, "hi")).await.unwrap();
            assert!(inbox.next().await.is_some(), "frisbee is for those who agreed on nothing else");
        }
    });
}

#[test]
fn a_server_half_closes_tls_after_its_client() {
    for engine in engines() {
        for half in [Half::Tls, Half::Socket] {
            in_real_time(async {
                let config = Config { ping_interval: None, silence_max: None, ..Config::default() };
                let server = test_server().tls(IDENTITY.server()).config(config).engine(engine);
                let server = server.bind("127.0.0.1:0").await.unwrap();
                let addr = server.local_addr().socket_addr().unwrap();
                let client = move || {
                    let session = ClientConnection::new(Arc::new(IDENTITY.client()), localhost()).unwrap();
                    let mut peer = Peer::new(session, net::TcpStream::connect(addr).unwrap());
                    peer.say(&[0, 0x0f, 0, 1, 0, 20, 0, 0, 0, 0]);
                    assert_eq!(peer.hear(10), [0, 0x0f, 0, 1, 0, 20, 0, 0, 0, 0]);
                    peer.end(half);
                    peer.hear_the_end();
                };
                spawn_blocking(client).await.unwrap();
            });
        }
    }
}

#[test]
fn a_client_half_closes_tls_after_its_server() {
    for engine in engines() {
        for half in [Half::Tls, Half::Socket] {
            in_real_time(async {
                let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
                let addr = listener.local_addr().unwrap();
                let server = spawn_blocking(move || {
                    let session = ServerConnection::new(Arc::new(IDENTITY.server())).unwrap();
                    let mut peer = Peer::new(session, listener.accept().unwrap().0);
                    peer.end(half);
                    peer.hear_the_end();
                });
                let client = Client::new(()).timeout(15 * SECOND).tls(IDENTITY.client()).engine(engine);
                let connection = client.connect(addr).await.unwrap();
                let reason = connection.closed().await;
                assert!(matches!(reason, CloseReason::Peer), "{reason}");
                server.await.unwrap();
            });
        }
    }
}

#[test]
fn an_aborted_connection_sends_close_notify() {
    in_real_time(async {
        let server = test_server().tls(IDENTITY.server()).bind("127.0.0.1:0").await.unwrap();
        let addr = server.local_addr().socket_addr().unwrap();
        let client = spawn_blocking(move || {
            let session = ClientConnection::new(Arc::new(IDENTITY.client()), localhost()).unwrap();
            let mut peer = Peer::new(session, net::TcpStream::connect(addr).unwrap());
            peer.say(&[0, 0x0f, 0, 1, 0, 20, 0, 0, 0, 0]);
            peer.hear_the_end();
        });
        until(|| server.metrics().counters.packets_out > 0).await;
        drop(server);
        client.await.unwrap();
    });
}

/// The way a peer closes its side.
#[derive(Clone, Copy)]
enum Half {
    /// With a close_notify.
    Tls,
    /// With a close_notify, then by closing its half of the socket.
    Socket,
}

/// A peer with a hand-driven TLS session.
struct Peer {
    session: rustls::Connection,
    socket: net::TcpStream,
}

impl Peer {
    fn new(session: impl Into<rustls::Connection>, socket: net::TcpStream) -> Self {
        socket.set_read_timeout(Some(15 * SECOND)).unwrap();
        let mut peer = Self { session: session.into(), socket };
        while peer.session.is_handshaking() {
            peer.session.complete_io(&mut peer.socket).unwrap();
        }
        peer
    }

    fn say(&mut self, bytes: &[u8]) {
        self.session.writer().write_all(bytes).unwrap();
        self.flush();
    }

    fn end(&mut self, half: Half) {
        self.session.send_close_notify();
        self.flush();
        if let Half::Socket = half {
            self.socket.shutdown(net::Shutdown::Write).unwrap();
        }
    }

    fn flush(&mut self) {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket).unwrap();
        }
    }

    fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut heard = vec![0; len];
        let mut filled = 0;
        while filled < len {
            filled += self.read(&mut heard[filled..]).unwrap();
        }
        heard
    }

    /// Reads heartbeats up to a regular end. Panics if the stream was truncated.
    fn hear_the_end(&mut self) {
        while self.read(&mut [0; 1000]).unwrap() > 0 {}
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.session.read_tls(&mut self.socket)?;
            self.session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

#[test]
fn invalid_input_fails_the_handshake() {
    in_virtual_time(async {
        let server = test_server().tls(IDENTITY.server()).without_listener();
        let (mut peer, theirs) = duplex(1000);
        server.attach(theirs);
        peer.write_all(&[b'x'; 100]).await.unwrap();
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).await.unwrap();
        assert_eq!(server.metrics().handshakes_failed, 1);
    });
}
