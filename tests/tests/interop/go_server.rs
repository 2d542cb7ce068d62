//! Our client against Go servers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use frisbee::{
    Client, CloseReason, Config, Connection, Content, Engine, HeaderFormat, Operation, Outcome, Packet, Router,
    SendError, Stream, StreamEnd, StreamSendError,
};
use support::{GoPeers, GoServer, trusting};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, split},
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    COUNT, ECHO, HANGUP, NEWS, OPEN, OTHER, PUBLISH, RAW, REPLY, SILENT, SUBSCRIBE, all, checks, name, operation,
    settings,
};

#[tokio::test(flavor = "multi_thread")]
async fn our_client_passes_against_go_servers() {
    let Some(peers) = GoPeers::find() else { return };
    let checks = checks![
        echo_keeps_id_operation_and_content,
        the_largest_content_passes,
        content_over_the_limit_is_rejected_locally,
        a_reply_may_be_another_packet,
        many_packets_may_be_in_flight,
        packets_without_a_reply_are_counted,
        unknown_operations_are_dropped,
        news_reach_every_subscriber,
        a_stream_is_echoed_and_its_id_reused,
        streams_do_not_interfere,
        the_server_closes_a_stream,
        the_server_opens_a_stream,
        the_server_hangs_up_after_its_reply,
        both_sides_leave_packet_mode,
        garbage_ends_the_connection,
    ];
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for (engine, header, tls) in settings() {
        for concurrency in ["1", "0"] {
            let server = peers.serve("frisbee-server", header, tls, &["-concurrency", concurrency]).await;
            let go = Arc::new(Go { server, header, engine, is_ordered: concurrency == "1" });
            let name = format!("{} {engine:?} concurrency {concurrency}", name(header, tls));
            busy.extend(checks.map(|(check, run)| (format!("{name}: {check}"), run(go.clone()))));
            let sleeping = checks![an_idle_connection_stays_open,];
            idle.extend(sleeping.map(|(check, run)| (format!("{name}: {check}"), run(go.clone()))));
        }
    }
    all(busy, idle).await;
}

async fn echo_keeps_id_operation_and_content(go: Arc<Go>) {
    let mut peer = go.dial().await;
    for id in [1, 0, u16::MAX, 256] {
        for len in [0, 1, 9, 10, 511, 512, 513, 65_525, 65_526, 65_536, 300_000] {
            peer.echo(id, pattern(len)).await;
        }
    }
}

async fn the_largest_content_passes(go: Arc<Go>) {
    go.dial().await.echo(1, pattern(CONTENT_LEN_MAX)).await;
}

async fn content_over_the_limit_is_rejected_locally(go: Arc<Go>) {
    let mut peer = go.dial().await;
    let refused = peer.connection.send(Packet::new(1, ECHO, pattern(CONTENT_LEN_MAX + 1))).await;
    assert_eq!(refused, Err(SendError::ContentTooLarge { len: CONTENT_LEN_MAX + 1, limit: 5 * 1024 * 1024 }));
    peer.echo(2, "after").await;
}

async fn a_reply_may_be_another_packet(go: Arc<Go>) {
    let reply = go.dial().await.ask(7, OTHER, "abc").await;
    assert_eq!(reply, Packet::new(8, REPLY, "cba"));
}

async fn many_packets_may_be_in_flight(go: Arc<Go>) {
    let mut peer = go.dial().await;
    let packets: Vec<_> = (0..500).map(|id| Packet::new(id, ECHO, id.to_string())).collect();
    for packet in &packets {
        peer.connection.send(packet.clone()).await.unwrap();
    }
    let mut replies = Vec::new();
    while replies.len() < packets.len() {
        replies.push(peer.next().await);
    }
    if !go.is_ordered {
        replies.sort_by_key(|reply| reply.id);
    }
    assert_eq!(replies, packets);
}

async fn packets_without_a_reply_are_counted(go: Arc<Go>) {
    let mut peer = go.dial().await;
    for id in 0..10 {
        peer.send(id, SILENT, "x").await;
    }
    let mut count = peer.ask(99, COUNT, "").await;
    while !go.is_ordered && count.content != "10" {
        count = peer.ask(99, COUNT, "").await;
    }
    assert_eq!(count, Packet::new(99, COUNT, "10"));
}

async fn unknown_operations_are_dropped(go: Arc<Go>) {
    let mut peer = go.dial().await;
    assert!((0..Operation::FIRST).all(|reserved| Operation::new(reserved).is_none()));
    for number in [10, 9999, u16::MAX] {
        peer.send(1, operation(number), "lost").await;
    }
    peer.echo(5, "after").await;
}

async fn news_reach_every_subscriber(go: Arc<Go>) {
    let (mut publisher, mut subscribers) = (go.dial().await, [go.dial().await, go.dial().await]);
    let nobody = publisher.ask(1, PUBLISH, "nobody\0hello").await;
    assert_eq!(nobody, Packet::new(1, PUBLISH, "0"));
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.ask(3, SUBSCRIBE, "topic").await, Packet::new(3, SUBSCRIBE, "topic"));
    }
    for id in 1..=50 {
        let published = publisher.ask(id, PUBLISH, format!("topic\0news {id}")).await;
        assert_eq!(published, Packet::new(id, PUBLISH, "2"));
    }
    for subscriber in &mut subscribers {
        for id in 1..=50 {
            assert_eq!(subscriber.next().await, Packet::new(id, NEWS, format!("news {id}")));
        }
    }
}

async fn a_stream_is_echoed_and_its_id_reused(go: Arc<Go>) {
    let peer = go.dial().await;
    for round in 0..3 {
        let mut stream = peer.connection.open_stream_with_id(100).unwrap();
        for number in 0..20 {
            stream.send(format!("{round} {number}")).await.unwrap();
        }
        for number in 0..20 {
            assert_eq!(stream.read().await.unwrap(), format!("{round} {number}"));
        }
        assert_eq!(stream.send("").await, Err(StreamSendError::Empty));
        stream.close();
        assert_eq!(stream.read().await, Err(StreamEnd::Closed));
    }
}

async fn streams_do_not_interfere(go: Arc<Go>) {
    let peer = go.dial().await;
    let mut streams: [Stream; 3] = std::array::from_fn(|_| peer.connection.open_stream().unwrap());
    for number in 0..10 {
        for stream in &streams {
            stream.send(format!("{} {number}", stream.id())).await.unwrap();
        }
    }
    for stream in &mut streams {
        for number in 0..10 {
            assert_eq!(stream.read().await.unwrap(), format!("{} {number}", stream.id()));
        }
    }
}

async fn the_server_closes_a_stream(go: Arc<Go>) {
    let mut peer = go.dial().await;
    let mut stream = peer.connection.open_stream().unwrap();
    stream.send("one").await.unwrap();
    stream.send("close me").await.unwrap();
    assert_eq!(stream.read().await.unwrap(), "one");
    assert_eq!(stream.read().await, Err(StreamEnd::ClosedByPeer));
    assert_eq!(stream.send("late").await, Err(StreamSendError::Ended(StreamEnd::ClosedByPeer)));
    peer.echo(1, "after").await;
}

async fn the_server_opens_a_stream(go: Arc<Go>) {
    let peer = go.dial().await;
    peer.send(1, OPEN, &b"\x01\x90welcome"[..]).await;
    let mut stream = peer.connection.accept_stream().await.unwrap();
    assert_eq!(stream.id(), 400);
    assert_eq!(stream.read().await.unwrap(), "welcome");
    stream.send("thanks").await.unwrap();
    assert_eq!(stream.read().await.unwrap(), "thanks");
}

async fn the_server_hangs_up_after_its_reply(go: Arc<Go>) {
    // A Go server loses one in some hundreds of these replies, and a late PING of ours may hit its closed socket.
    for _ in 0..5 {
        let mut peer = go.dial().await;
        peer.send(1, HANGUP, "bye").await;
        let reply = peer.packets.recv().await;
        let reason = peer.connection.closed().await;
        if let (Some(reply), CloseReason::Peer) = (reply, reason) {
            assert_eq!(reply, Packet::new(1, HANGUP, "bye"));
            return;
        }
    }
    panic!("never a reply and then the end");
}

async fn both_sides_leave_packet_mode(go: Arc<Go>) {
    let mut peer = go.dial().await;
    peer.echo(1, "still packets").await;
    peer.send(1, RAW, "").await;
    let mut raw = peer.connection.takeover().await.unwrap();
    raw.skip_heartbeats();
    assert_eq!(read(&mut raw, 6).await, "READY\n");
    for len in [1, 10, 1000, 100_000] {
        let sent = pattern(len);
        let (mut reader, mut writer) = split(&mut raw);
        let (written, echoed) = tokio::join!(writer.write_all(&sent), read(&mut reader, len));
        written.unwrap();
        assert!(echoed == sent, "{len} raw bytes differ");
    }
    assert!(matches!(peer.connection.closed().await, CloseReason::TakenOver));
}

async fn an_idle_connection_stays_open(go: Arc<Go>) {
    let mut peer = go.dial().await;
    // Longer than the silence timeout of the Go peer, which runs in real time.
    sleep(Duration::from_millis(6500)).await;
    peer.echo(2, "awake").await;
}

async fn garbage_ends_the_connection(go: Arc<Go>) {
    if go.header == HeaderFormat::Plain8 {
        return; // Without a magic number, whatever comes is a header.
    }
    let mut raw = go.dial().await.connection.takeover().await.unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // Unread bytes may turn the close into a reset.
    let ended = timeout(Duration::from_secs(4), raw.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "closed for silence if at all");
}

/// A Go server.
struct Go {
    server: GoServer,
    header: HeaderFormat,
    engine: Engine,
    is_ordered: bool,
}

/// A connection to the server, with the received packets.
struct Peer {
    connection: Connection,
    packets: mpsc::UnboundedReceiver<Packet>,
}

struct Forward(mpsc::UnboundedSender<Packet>);

impl Router for Forward {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // The check may have dropped its receiver.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

impl Go {
    async fn dial(&self) -> Peer {
        let (sender, packets) = mpsc::unbounded_channel();
        let config = Config { header: Some(self.header), accept_backlog: 1, ..Config::default() };
        let mut client = Client::new(Forward(sender)).config(config).engine(self.engine);
        if let Some(certificate) = &self.server.certificate {
            client = client.tls(trusting(certificate.clone()));
        }
        Peer { connection: client.connect(self.server.addr).await.expect("the server listens"), packets }
    }
}

impl Peer {
    async fn send(&self, id: u16, operation: Operation, content: impl Into<Content>) {
        if let Err(error) = self.connection.send(Packet::new(id, operation, content)).await {
            panic!("{error}: {}", self.connection.closed().await);
        }
    }

    async fn next(&mut self) -> Packet {
        match self.packets.recv().await {
            Some(packet) => packet,
            None => panic!("nothing more comes: {}", self.connection.closed().await),
        }
    }

    async fn ask(&mut self, id: u16, operation: Operation, content: impl Into<Content>) -> Packet {
        self.send(id, operation, content).await;
        self.next().await
    }

    async fn echo(&mut self, id: u16, content: impl Into<Content>) {
        let packet = Packet::new(id, ECHO, content);
        let reply = self.ask(id, ECHO, packet.content.clone()).await;
        let lens = (packet.content.len(), reply.content.len());
        assert!(reply == packet, "lengths {lens:?}, id {} instead of {id}, {:?}", reply.id, reply.operation);
    }
}

async fn read(raw: &mut (impl AsyncReadExt + Unpin), len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    raw.read_exact(&mut bytes).await.expect("so many bytes come");
    bytes.into()
}

/// Returns bytes resembling headers.
fn pattern(len: usize) -> Bytes {
    Bytes::from(b"\x00\x0fab".repeat(len / 4 + 1)).slice(..len)
}

const CONTENT_LEN_MAX: usize = 5 * 1024 * 1024;
