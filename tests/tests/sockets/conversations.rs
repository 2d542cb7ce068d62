//! A list of conversations, run in every setting.

use std::collections::BTreeSet;

use frisbee::{
    Client, CloseReason, Config, Connection, Dispatch, Engine, HeaderFormat, Outcome, Packet, Router, SendOrder,
    Server, ServerLimits,
};
use support::{
    SECOND, in_real_time,
    sockets::{BYE, ECHO, Inbox, Kind, Served, Setting, TAKE, TestRouter, WAIT, WHERE, packet, pattern, test_server},
    until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

macro_rules! conversations {
    ($($setting:ident: $kind:ident, $tls:literal, $engine:ident;)*) => {
        $(
            mod $setting {
                use super::*;

                const SETTING: Setting = Setting { kind: Kind::$kind, tls: $tls, engine: Engine::$engine };

                conversations!(SETTING);
            }
        )*
    };
    ($setting:expr) => {
        conversations! { $setting =>
            contents_of_every_size_are_echoed
            thousands_of_packets_in_flight_are_echoed_in_order
            the_reply_before_a_close_always_arrives
            a_connection_is_taken_over_and_carries_raw_bytes
            streams_and_packets_share_a_connection
            large_packets_are_interleaved_with_small_ones
            a_hook_can_send_before_the_peer
            shutdown_waits_for_handlers_and_sends_their_replies
            shutdown_aborts_hanging_handlers
            connections_past_the_limit_are_closed
            metrics_count_traffic
            many_clients_are_served_concurrently
        }
    };
    ($setting:expr => $($conversation:ident)*) => {
        $(
            #[test]
            fn $conversation() {
                if $setting.can_be_had() {
                    in_real_time(super::$conversation($setting));
                }
            }
        )*
    };
}

conversations! {
    tcp: Tcp, false, Tokio;
    tcp_tls: Tcp, true, Tokio;
    unix_path: UnixPath, false, Tokio;
    unix_path_tls: UnixPath, true, Tokio;
    unix_abstract: UnixAbstract, false, Tokio;
    mem: Mem, false, Tokio;
    mem_tls: Mem, true, Tokio;
    own_stream: Own, false, Tokio;
    own_stream_tls: Own, true, Tokio;
    per_core_tcp: Tcp, false, PerCore;
    per_core_tcp_tls: Tcp, true, PerCore;
    per_core_unix_path: UnixPath, false, PerCore;
    per_core_unix_abstract: UnixAbstract, false, PerCore;
    uring_tcp: Tcp, false, Uring;
    uring_tcp_tls: Tcp, true, Uring;
    uring_unix_path: UnixPath, false, Uring;
    uring_unix_abstract: UnixAbstract, false, Uring;
    uring_mem: Mem, false, Uring;
    uring_portable_tcp: Tcp, false, UringPortable;
    uring_portable_unix_path: UnixPath, false, UringPortable;
    tokio_uring_tcp: Tcp, false, TokioUring;
    tokio_uring_unix_path: UnixPath, false, TokioUring;
    per_core_mem: Mem, false, PerCore;
}

async fn contents_of_every_size_are_echoed(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    let (connection, mut inbox) = served.connect().await;
    let sizes = [0, 1, 4095, 4096, 4097, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1 << 20, 5 << 20, 7];
    let sizes: Vec<usize> = sizes.repeat(2);
    let sending = async {
        for (id, size) in (0..).zip(&sizes) {
            if connection.send(packet(id, ECHO, pattern(*size))).await.is_err() {
                panic!("{size} bytes cannot be sent: {}", connection.closed().await);
            }
        }
    };
    let receiving = async {
        for (id, size) in (0..).zip(&sizes) {
            let Some(reply) = inbox.next().await else { return };
            assert!(reply == packet(id, ECHO, pattern(*size)), "{size} bytes come back");
        }
    };
    tokio::join!(sending, receiving);
    assert!(connection.close_reason().is_none());
}

async fn thousands_of_packets_in_flight_are_echoed_in_order(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    let (connection, mut inbox) = served.connect().await;
    let sending = tokio::spawn(async move {
        for id in 0..10_000 {
            connection.send(packet(id, ECHO, id.to_be_bytes().to_vec())).await.unwrap();
        }
        connection
    });
    for id in 0..10_000_u16 {
        assert_eq!(inbox.next().await.unwrap(), packet(id, ECHO, id.to_be_bytes().to_vec()));
    }
    sending.await.unwrap();
}

async fn the_reply_before_a_close_always_arrives(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    for id in 0..300 {
        let (connection, mut inbox) = served.connect().await;
        connection.send(packet(id, BYE, "bye")).await.unwrap();
        // Input the server no longer reads.
        while connection.try_send(packet(1000, ECHO, pattern(100))).is_ok() && id % 2 == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(inbox.next().await, Some(packet(id, BYE, "bye")), "number {id}");
        assert_eq!(inbox.next().await, None, "nothing comes after it");
        let reason = connection.closed().await;
        assert!(matches!(reason, CloseReason::Peer | CloseReason::Io(_)), "{reason:?}");
    }
}

async fn a_connection_is_taken_over_and_carries_raw_bytes(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    let (connection, mut inbox) = served.connect().await;
    connection.send(packet(1, ECHO, "before")).await.unwrap();
    assert_eq!(inbox.next().await, Some(packet(1, ECHO, "before")));
    connection.send(packet(2, TAKE, "mine")).await.unwrap();
    assert_eq!(inbox.next().await, Some(packet(2, TAKE, "mine")));
    let mut raw = connection.takeover().await.unwrap();
    raw.skip_heartbeats();
    let (mut reader, mut writer) = tokio::io::split(raw);
    let sent = pattern(1 << 20);
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
            writer
        }
    });
    let mut echoed = Vec::new();
    reader.read_to_end(&mut echoed).await.unwrap();
    assert!(echoed == sent);
    let raw = reader.unsplit(writing.await.unwrap());
    let is_tcp = setting.kind == Kind::Tcp && !setting.tls;
    assert_eq!(raw.into_tcp().is_ok(), is_tcp, "only plain TCP has a TCP socket");
}

async fn streams_and_packets_share_a_connection(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    let (connection, mut inbox) = served.connect().await;
    let streams: Vec<_> = (0..20)
        .map(|number| {
            let mut stream = connection.open_stream().unwrap();
            tokio::spawn(async move {
                for turn in 1..20 {
                    let content = pattern(number * 1000 + turn);
                    stream.send(content.clone()).await.unwrap();
                    assert_eq!(stream.read().await.unwrap(), content);
                }
            })
        })
        .collect();
    for id in 0..100 {
        connection.send(packet(id, ECHO, "packet")).await.unwrap();
        assert_eq!(inbox.next().await, Some(packet(id, ECHO, "packet")));
    }
    for stream in streams {
        stream.await.unwrap();
    }
}

async fn large_packets_are_interleaved_with_small_ones(setting: Setting) {
    let served = Served::start(setting, Server::builder(Overtaken(None))).await;
    let (replies, mut arrived) = unbounded_channel();
    let connection = served.try_connect(Client::new(Overtaken(Some(replies)))).await.unwrap();
    connection.recognized().await.unwrap();
    let sizes = [0, 1000, 65_535, 65_536, 65_537, 1 << 20, 4 << 20];
    for round in 0..3 {
        for (id, size) in (0..).zip(sizes) {
            connection.send(packet(id, ECHO, pattern(size + round))).await.unwrap();
        }
        let mut missing: BTreeSet<_> = (0..sizes.len()).collect();
        while !missing.is_empty() {
            let reply = arrived.recv().await.unwrap();
            let id = usize::from(reply.id);
            assert!(missing.remove(&id), "one reply to each");
            assert!(reply.content == pattern(sizes[id] + round), "{} bytes come back", sizes[id]);
        }
    }
    let theirs = served.server.connections()[0].metrics();
    assert!(theirs.counters.pieces_in > 0, "{theirs:?}");
    assert!(connection.metrics().counters.pieces_in > 0);
}

/// A router without order between packets. It echoes or forwards them.
struct Overtaken(Option<UnboundedSender<Packet>>);

impl Router for Overtaken {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        match &self.0 {
            Some(replies) => replies.send(packet).map_or(Outcome::Close, |()| Outcome::Nothing),
            None => Outcome::Reply(packet),
        }
    }

    fn describe(&self) -> Result<frisbee::RouterInfo, Box<dyn std::error::Error + Send + Sync>> {
        Ok(frisbee::RouterInfo { send_order: SendOrder::Relaxed, ..Default::default() })
    }
}

async fn a_hook_can_send_before_the_peer(setting: Setting) {
    for header in [None, Some(HeaderFormat::Magic10), Some(HeaderFormat::Plain8)] {
        let config = Config { header, ..Config::default() };
        let greeting = packet(7, ECHO, "welcome");
        let router = TestRouter { greeting: Some(greeting.clone()), ..TestRouter::default() };
        let served = Served::start(setting, Server::builder(router).config(config.clone())).await;
        let (router, mut inbox) = Inbox::new();
        let _connection = served.try_connect(Client::new(router).config(config)).await.unwrap();
        assert_eq!(inbox.next().await, Some(greeting));
    }
}

async fn shutdown_waits_for_handlers_and_sends_their_replies(setting: Setting) {
    let (router, mut reports) = TestRouter::with_hooks();
    let waiting = router.waiting.clone();
    let served = Served::start(setting, Server::builder(router)).await;
    let mut clients = Vec::new();
    for id in 0..5 {
        let (connection, inbox) = served.connect().await;
        connection.send(packet(id, WAIT, "wait")).await.unwrap();
        waiting.arrival().await;
        clients.push((connection, inbox));
    }
    let shutdown = tokio::spawn(served.server.shutdown(SECOND * 15));
    for _ in 0..5 {
        waiting.open(1);
    }
    for (id, (connection, inbox)) in (0..).zip(&mut clients) {
        assert_eq!(inbox.next().await, Some(packet(id, WAIT, "wait")));
        assert!(matches!(connection.closed().await, CloseReason::Peer));
    }
    assert_eq!(shutdown.await.unwrap(), 0);
    let mut log = Vec::new();
    while let Some(report) = reports.recv().await {
        log.push(report);
    }
    log.sort();
    assert_eq!(log, [["closed: Shutdown"; 5], ["opened"; 5]].concat());
}

async fn shutdown_aborts_hanging_handlers(setting: Setting) {
    let router = TestRouter::default();
    let waiting = router.waiting.clone();
    let config = Config { outbox_len_max: 1 << 30, ..Config::default() };
    let served = Served::start(setting, Server::builder(router).config(config)).await;
    let (hanging, _inbox) = served.connect().await;
    hanging.send(packet(1, WAIT, "wait")).await.unwrap();
    waiting.arrival().await;
    let deaf = deaf(&served).await;
    let (idle, _inbox) = served.connect().await;
    idle.send(packet(1, ECHO, "hi")).await.unwrap();
    assert_eq!(served.server.shutdown(SECOND / 2).await, 2);
    for connection in [hanging, deaf, idle] {
        connection.closed().await;
    }
}

/// Returns the connection of a client that has stopped reading, with more data queued than any socket buffers.
async fn deaf(served: &Served) -> Connection {
    let router = TestRouter::default();
    let waiting = router.waiting.clone();
    // After the end of the connection, its handler has this time.
    let config = Config { backlog_max: 1, write_stall_max: SECOND / 2, ..Config::default() };
    let client = Client::new(router).config(config).dispatch(Dispatch::Ordered);
    let before = served.server.connections();
    let connection = served.try_connect(client).await.unwrap();
    until(|| served.server.connections().len() > before.len()).await;
    let connections = served.server.connections();
    let other = connections.iter().find(|other| !before.contains(other)).unwrap();
    other.send(packet(1, WAIT, "wait")).await.unwrap();
    waiting.arrival().await;
    let content = pattern(1 << 20);
    for _ in 0..64 {
        other.try_send(packet(2, ECHO, content.clone())).unwrap();
    }
    connection
}

async fn connections_past_the_limit_are_closed(setting: Setting) {
    let (router, mut reports) = TestRouter::with_hooks();
    let served = Served::start(
        setting,
        Server::builder(router).limits(ServerLimits { connections_max: 2, ..ServerLimits::default() }),
    )
    .await;
    let mut clients = Vec::new();
    for id in 0..2 {
        let (connection, mut inbox) = served.connect().await;
        connection.send(packet(id, ECHO, "hi")).await.unwrap();
        assert!(inbox.next().await.is_some(), "at the limit");
        clients.push((connection, inbox));
    }
    if let Ok(connection) = served.try_connect(Client::new(())).await {
        connection.closed().await;
    }
    let metrics = served.server.metrics();
    assert_eq!((metrics.connections, metrics.accepted, metrics.refused), (2, 3, 1));
    clients.pop();
    while reports.recv().await.unwrap() != "closed: Peer" {}
    until(|| served.server.metrics().connections == 1).await;
    let (connection, mut inbox) = served.connect().await;
    connection.send(packet(9, ECHO, "hi")).await.unwrap();
    assert!(inbox.next().await.is_some(), "there is room again");
}

async fn metrics_count_traffic(setting: Setting) {
    let quiet = Config { ping_interval: None, extended: false, ..Config::default() };
    let (router, mut reports) = TestRouter::with_hooks();
    let served = Served::start(setting, Server::builder(router).config(quiet.clone())).await;
    let (router, mut inbox) = Inbox::new();
    let connection = served.try_connect(Client::new(router).config(quiet)).await.unwrap();
    for id in 0..10 {
        connection.send(packet(id, ECHO, pattern(90))).await.unwrap();
        inbox.next().await.unwrap();
    }
    let ours = connection.metrics();
    assert_eq!((ours.outbox_len, ours.streams, ours.handlers), (0, 0, 0));
    // The last reply may arrive shortly before the server counts it.
    until(|| served.server.metrics().counters.bytes_out == 1000).await;
    let theirs = served.server.connections()[0].metrics().counters;
    for counters in [ours.counters, theirs, served.server.metrics().counters] {
        assert_eq!((counters.packets_in, counters.packets_out), (10, 10));
        assert_eq!((counters.bytes_in, counters.bytes_out), (1000, 1000));
        assert_eq!((counters.dropped, counters.streams_refused), (0, 0));
    }
    drop(connection);
    while reports.recv().await.unwrap() != "closed: Peer" {}
    until(|| served.server.metrics().connections == 0).await;
    let metrics = served.server.metrics();
    assert_eq!((metrics.accepted, metrics.refused, metrics.handshakes_failed), (1, 0, 0));
    assert_eq!((metrics.counters.packets_in, metrics.counters.bytes_in), (10, 1000), "past connections count");
}

async fn many_clients_are_served_concurrently(setting: Setting) {
    let served = Served::start(setting, test_server()).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(served.connect().await);
    }
    for (connection, _) in &clients {
        connection.send(packet(1, WHERE, "")).await.unwrap();
    }
    for (_, inbox) in &mut clients {
        let thread = inbox.next().await.unwrap().content;
        assert_eq!(thread.starts_with(b"frisbee-"), setting.engine != Engine::Tokio, "{thread:?}");
    }
    assert_eq!(served.server.connections().len(), 50);
}
