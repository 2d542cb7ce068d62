//! Other protocols on the port of a server.

use std::time::Duration;

use frisbee::{
    Config, Drain, Protocol, ProtocolMatch, Raw, Server, ServerLimits,
    proto::{Header, HeaderFormat},
};
use support::{assert_elapsed, in_virtual_time, settle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, timeout},
};

use crate::scripts::{OPERATION, Script, peer_of, quiet};

/// A protocol whose connections begin with a word. It answers with its name and sends back what it gets, until the peer ends
/// or, once told to drain, says goodbye.
struct Shout(&'static str);

impl Protocol for Shout {
    fn recognize(&self, first: &[u8], _: Option<&[u8]>) -> ProtocolMatch {
        ProtocolMatch::by_prefix(first, self.0.as_bytes())
    }

    async fn serve(&self, mut socket: Raw, drain: Drain) {
        socket.write_all(format!("{}: ", self.0).as_bytes()).await.unwrap();
        let mut input = [0; 100];
        loop {
            tokio::select! {
                read = socket.read(&mut input) => match read.unwrap() {
                    0 => return,
                    len => socket.write_all(&input[..len]).await.unwrap(),
                },
                () = drain.requested() => {
                    assert!(drain.is_requested());
                    return socket.write_all(b"goodbye").await.unwrap();
                }
            }
        }
    }
}

fn server() -> Server {
    let server = Server::builder(Script::new()).config(quiet());
    server.protocol(Shout("GET")).protocol(Shout("GO ")).without_listener()
}

fn connect(server: &Server) -> DuplexStream {
    let (ours, theirs) = duplex(1024);
    server.attach(theirs);
    ours
}

async fn read(io: &mut DuplexStream, len: usize) -> String {
    let mut bytes = vec![0; len];
    io.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn protocols_are_recognized_for_any_split_of_the_bytes() {
    in_virtual_time(async {
        let server = server();
        for (words, expected) in [("GET me", "GET: GET me"), ("GO on!", "GO : GO on!")] {
            for at in 0..words.len() {
                let mut io = connect(&server);
                io.write_all(&words.as_bytes()[..at]).await.unwrap();
                settle().await;
                io.write_all(&words.as_bytes()[at..]).await.unwrap();
                assert_eq!(read(&mut io, expected.len()).await, expected, "split at {at}");
            }
        }
    });
}

#[test]
fn packets_are_recognized_next_to_other_protocols() {
    in_virtual_time(async {
        let server = server();
        for format in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
            let mut packet = Vec::new();
            Header { id: 1, operation: OPERATION.number(), len: 2 }.encode(format, &mut packet);
            packet.extend_from_slice(b"hi");
            for at in 0..packet.len() {
                let mut peer = peer_of(&server);
                peer.say(&packet[..at]).await;
                settle().await;
                peer.say(&packet[at..]).await;
                assert_eq!(peer.hear().await, "packet 1: hi", "{format:?} split at {at}");
            }
        }
    });
}

#[test]
fn unrecognized_connections_are_closed() {
    in_virtual_time(async {
        let mut id_of_256 = Vec::new();
        Header { id: 256, operation: OPERATION.number(), len: 0 }.encode(HeaderFormat::Plain8, &mut id_of_256);
        let server = server();
        for (count, said) in (1..).zip([b"GEX is no word of anybody", &id_of_256[..], &[0x16, 3, 1, 0, 5], b"\n"]) {
            let mut io = connect(&server);
            io.write_all(said).await.unwrap();
            assert_eq!(io.read_to_end(&mut Vec::new()).await.unwrap(), 0, "{said:?}");
            let metrics = server.metrics();
            assert_eq!((metrics.handshakes_failed, metrics.tls_failed, metrics.connections), (count, 0, 0));
        }
    });
}

#[test]
fn recognition_is_limited_by_the_handshake_timeout() {
    in_virtual_time(async {
        let limit = Duration::from_secs(3);
        let config = Config { handshake_max: limit, ..Config::default() };
        let server = Server::builder(Script::new()).config(config).protocol(Shout("GET")).without_listener();
        for said in ["", "GE"] {
            let start = Instant::now();
            let mut io = connect(&server);
            io.write_all(said.as_bytes()).await.unwrap();
            assert_eq!(io.read_to_end(&mut Vec::new()).await.unwrap(), 0);
            assert_elapsed(start, limit);
        }
        assert_eq!((server.metrics().handshakes_failed, server.metrics().connections), (2, 0));
    });
}

#[test]
fn connections_of_other_protocols_count_and_are_awaited() {
    in_virtual_time(async {
        let server = Server::builder(Script::new())
            .protocol(Shout("GET"))
            .limits(ServerLimits { connections_max: 1, ..ServerLimits::default() })
            .without_listener();
        let mut io = connect(&server);
        io.write_all(b"GET").await.unwrap();
        assert_eq!(read(&mut io, 8).await, "GET: GET");
        assert_eq!(server.metrics().connections, 1);

        let mut refused = connect(&server);
        assert_eq!(refused.read_to_end(&mut Vec::new()).await.unwrap(), 0);

        let killed = server.shutdown(Duration::from_secs(60)).await;
        assert_eq!((killed, &*read(&mut io, 7).await), (0, "goodbye"));
        assert_eq!(io.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    });
}

#[test]
fn dropping_a_server_drops_connections_of_other_protocols() {
    in_virtual_time(async {
        let server = server();
        let mut io = connect(&server);
        io.write_all(b"GET").await.unwrap();
        assert_eq!(read(&mut io, 8).await, "GET: GET");
        drop(server);
        let ended = timeout(Duration::from_secs(1), io.read_to_end(&mut Vec::new())).await;
        assert_eq!(ended.unwrap().unwrap(), 0, "nothing is said any more");
    });
}

/// A protocol that ends with its first line: packets follow.
struct Upgrade;

impl Protocol for Upgrade {
    fn recognize(&self, first: &[u8], _: Option<&[u8]>) -> ProtocolMatch {
        ProtocolMatch::by_prefix(first, b"UPGRADE\n")
    }

    async fn serve(&self, mut socket: Raw, drain: Drain) {
        socket.read_exact(&mut [0; 8]).await.unwrap();
        socket.write_all(b"welcome\n").await.unwrap();
        drain.leave_to_frisbee(socket);
    }
}

#[test]
fn a_protocol_can_hand_its_connection_over_to_frisbee() {
    in_virtual_time(async {
        let server = Server::builder(Script::new())
            .config(quiet())
            .protocol(Upgrade)
            .limits(ServerLimits { connections_max: 1, ..ServerLimits::default() })
            .without_listener();
        let mut io = connect(&server);
        let mut packet = Vec::new();
        Header { id: 1, operation: OPERATION.number(), len: 2 }.encode(HeaderFormat::Magic10, &mut packet);
        packet.extend_from_slice(b"hi");
        io.write_all(&[b"UPGRADE\n", &packet[..]].concat()).await.unwrap();
        assert_eq!(read(&mut io, 8).await, "welcome\n");
        let mut echoed = vec![0; packet.len()];
        io.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, packet);
        let metrics = server.metrics();
        assert_eq!(
            (metrics.accepted, metrics.connections, server.connections().len()),
            (1, 1, 1),
            "it is one connection"
        );
        let mut refused = connect(&server);
        assert_eq!(refused.read_to_end(&mut Vec::new()).await.unwrap(), 0);

        drop(io);
        settle().await;
        assert_eq!(server.metrics().connections, 0);
    });
}
