//! Peers that stop at every stage, on every wire: each wait for a peer ends within its documented limit.
//!
//! The limits are those of docs/notes/campaign.md. A proxy between a real client and a real server lets one side stop after
//! a number of bytes: its connection stays open, and nothing more comes from it. Time is virtual.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frisbee::{Connection, Operation, Outcome, Packet, Router};
use frisbee_pubsub::{BASE, Broker, PublishError, RequestError, SubscribeError};
use frpc::{Channel, ChannelBuilder, Code, ConnectRetry, Server, Status, Streaming, Unimplemented};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use support::{
    SECOND, assert_elapsed,
    calls::{TestClient, TestServer, TestService, ask, next, words},
    in_virtual_time,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    time::{Instant, sleep, timeout},
};

/// A wire between a client and a server, with the limits for a stopped peer.
#[derive(Clone, Copy)]
struct WireCase {
    url: &'static str,
    /// The limit for a call without a timeout of its own, and for each wait on a stream.
    client_max: Duration,
    /// The limit for the connection of a stopped client.
    server_max: Duration,
}

/// The connect attempts of a channel, the default timeout of a call, and the sum of both.
const CONNECTING: Duration = Duration::from_secs(3);
const CALL: Duration = Duration::from_secs(30);
const HTTP1_SILENCE: Duration = Duration::from_secs(2 * 3600);

const WIRES: [WireCase; 6] = [
    // silence_max, and linger_max.
    WireCase { url: "tcp+sim://server", client_max: SECOND.saturating_mul(6), server_max: SECOND.saturating_mul(8) },
    // keepalive_interval and keepalive_timeout of both sides.
    WireCase { url: "grpc://server", client_max: SECOND.saturating_mul(331), server_max: SECOND.saturating_mul(81) },
    // http1_silence_max, twice at most.
    WireCase { url: "http://server", client_max: HTTP1_SILENCE, server_max: SECOND.saturating_mul(61) },
    WireCase { url: "grpc-web+http://server", client_max: HTTP1_SILENCE, server_max: SECOND.saturating_mul(61) },
    WireCase { url: "twirp+http://server", client_max: HTTP1_SILENCE, server_max: SECOND.saturating_mul(61) },
    WireCase { url: "ws://server/", client_max: SECOND.saturating_mul(6), server_max: SECOND.saturating_mul(81) },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// The way in which a side stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopKind {
    /// It reads, and sends nothing.
    Silent,
    /// It neither reads nor sends, like a stopped process. The buffers of the system fill up.
    Stopped,
}

/// The point at which a side stops.
#[derive(Clone, Copy, Debug)]
struct StopPoint {
    side: Side,
    /// The bytes sent by this side on the first connection. Later connections stop with the first byte.
    after: u64,
    kind: StopKind,
}

/// A server, and a dialer whose connections pass through a proxy.
#[derive(Clone)]
struct Proxy {
    server: Arc<Server>,
    stop: Option<StopPoint>,
    connections: Arc<AtomicU64>,
    /// The bytes sent by the client and by the server.
    sent: [Arc<AtomicU64>; 2],
}

impl Proxy {
    fn new(stop: Option<StopPoint>) -> Self {
        let server = Server::builder()
            .add_service(TestServer::new(TestService::default()))
            .router(Broker::new().over(Unimplemented))
            .wire(Http::new())
            .wire(JsonRpc::new())
            .without_listener()
            .unwrap();
        Self { server: Arc::new(server), stop, connections: Arc::default(), sent: Default::default() }
    }

    fn dial(&self) -> DuplexStream {
        let (client, from_client) = duplex(BUFFER_LEN);
        let (server, from_server) = duplex(BUFFER_LEN);
        self.server.attach(server);
        let is_first = self.connections.fetch_add(1, Ordering::Relaxed) == 0;
        let stop = self.stop.map(|stop| StopPoint { after: if is_first { stop.after } else { 0 }, ..stop });
        let ((client_read, client_write), (server_read, server_write)) = (split(from_client), split(from_server));
        let [from_client, from_server] = self.sent.clone();
        tokio::spawn(carry(Side::Client, client_read, server_write, from_client.clone(), stop, from_server.clone()));
        tokio::spawn(carry(Side::Server, server_read, client_write, from_server, stop, from_client));
        client
    }

    async fn connect(&self, wire: WireCase) -> Result<TestClient, Status> {
        let (proxy, retry) = (self.clone(), ConnectRetry { attempts: 2, ..ConnectRetry::default() });
        let dial = move || std::future::ready(Ok(proxy.dial()));
        let builder: ChannelBuilder = Channel::builder().retry(retry);
        let connected = match wire.url.split_once("://").unwrap().0 {
            "tcp+sim" => builder.attach(self.dial()).await,
            "ws" => builder.transport(frpc_websocket::Client::new().connector(dial)).connect(wire.url).await,
            _ => builder.transport(frpc_http::Client::new().connector(dial)).connect(wire.url).await,
        };
        connected.map(TestClient::new).map_err(|error| Status::unavailable(error.to_string()))
    }
}

/// Carries bytes of one side until it stops. A stopped connection stays open.
async fn carry(
    side: Side,
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    sent: Arc<AtomicU64>,
    stop: Option<StopPoint>,
    sent_by_peer: Arc<AtomicU64>,
) {
    let (mut buffer, mut own) = (vec![0; BUFFER_LEN], 0);
    loop {
        let read = match stop {
            // The stopped process does not read either.
            Some(stop) if stop.kind == StopKind::Stopped && stop.side != side => {
                while sent_by_peer.load(Ordering::Relaxed) < stop.after {
                    match timeout(Duration::from_millis(1), from.read(&mut buffer)).await {
                        Ok(Ok(read @ 1..)) => {
                            sent.fetch_add(read as u64, Ordering::Relaxed);
                            if to.write_all(&buffer[..read]).await.is_err() {
                                break;
                            }
                        }
                        Ok(_) => break,
                        Err(_) => {}
                    }
                }
                std::future::pending().await
            }
            _ => from.read(&mut buffer).await.unwrap_or_default(),
        };
        if read == 0 {
            match stop {
                // The stopped side would not end its connection.
                Some(stop) if stop.side == side => std::future::pending().await,
                _ => {
                    let _ = to.shutdown().await;
                    return;
                }
            }
        }
        let allowed = stop.filter(|stop| stop.side == side).map_or(u64::MAX, |stop| stop.after - own);
        let len = read.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        own += len as u64;
        sent.fetch_add(len as u64, Ordering::Relaxed);
        let _ = to.write_all(&buffer[..len]).await;
        // The rest of the stopped side gets lost.
        while len < read && from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        if len < read {
            std::future::pending::<()>().await;
        }
    }
}

/// The stages of a conversation: a call, streams in each direction, and a part of a long stream.
async fn talk(client: &TestClient, mut note: impl FnMut(&'static str, Result<(), Status>)) {
    note("unary", ask(client, &"x".repeat(300)).await.map(drop));
    let stream = async {
        let mut answers = client.count(words("a, b, c")).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok(())
    };
    note("answers", stream.await);
    let requests = Streaming::from_iter(["a", "b"].map(words));
    note("requests", client.gather(requests).await.map(drop));
    note("large", ask(client, &"x".repeat(40_000)).await.map(drop));
}

/// Runs the conversation without a stop. Returns the bytes sent by both sides.
fn conversation_lens(wire: WireCase) -> [u64; 2] {
    let mut lens = [0; 2];
    in_virtual_time(async {
        let proxy = Proxy::new(None);
        let client = proxy.connect(wire).await.unwrap();
        talk(&client, |stage, result| {
            let is_refused = wire.url.starts_with("twirp") && stage != "unary" && stage != "large";
            assert!(result.is_ok() || is_refused, "{} {stage}: {result:?}", wire.url);
        })
        .await;
        lens = [0, 1].map(|side: usize| proxy.sent[side].load(Ordering::Relaxed));
    });
    lens
}

/// Returns places in all stages: all of the first bytes would take long, so their distance grows.
fn places(len: u64) -> Vec<u64> {
    let early = [0, 1, 3, 9, 10, 11, 24, 25, 40, 60, 90, 120, 160, 200, 260, 300, 400, 500, 700, 1_000, 1_500, 3_000];
    early.into_iter().chain([len / 2, len - 1, len]).filter(|&place| place <= len).collect()
}

fn for_each_stop(side: Side, check: impl Fn(WireCase, StopPoint)) {
    for wire in WIRES {
        let len = conversation_lens(wire)[usize::from(side == Side::Server)];
        for after in places(len) {
            for kind in [StopKind::Silent, StopKind::Stopped] {
                check(wire, StopPoint { side, after, kind });
            }
        }
    }
}

#[test]
fn a_server_that_stops_leaves_no_caller_waiting() {
    for_each_stop(Side::Server, |wire, stop| {
        in_virtual_time(async {
            let (proxy, begun) = (Proxy::new(Some(stop)), Instant::now());
            let connected = timeout(CONNECTING, proxy.connect(wire)).await;
            let connected = connected.unwrap_or_else(|_| panic!("{} {stop:?}: connecting hangs", wire.url));
            let Ok(client) = connected else { return };
            let each_max = wire.client_max.max(CALL) + CONNECTING;
            let mut since = begun;
            let talking = talk(&client, |stage, result| {
                let took = since.elapsed();
                since = Instant::now();
                assert!(took <= each_max, "{} {stop:?}: {stage} takes {took:?}", wire.url);
                if let Err(status) = result {
                    let is_typed = status.call_error().is_some()
                        || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Unimplemented);
                    assert!(is_typed, "{} {stop:?}: {stage} fails with {status:?}", wire.url);
                }
            });
            timeout(each_max * 4, talking).await.unwrap_or_else(|_| panic!("{} {stop:?}: a call hangs", wire.url));
            // A dropped channel closes its connections in spite of the silent peer.
            drop(client);
        });
    });
}

#[test]
fn a_client_that_stops_keeps_no_connection_of_a_server() {
    for_each_stop(Side::Client, |wire, stop| {
        in_virtual_time(async {
            let proxy = Proxy::new(Some(stop));
            let talking = tokio::spawn({
                let proxy = proxy.clone();
                async move {
                    let client = proxy.connect(wire).await;
                    if let Ok(client) = &client {
                        talk(client, |_, _| {}).await;
                    }
                    // The client stays there.
                    std::future::pending::<()>().await;
                    drop(client);
                }
            });
            // Attempts of the client last until here.
            let attempts = (wire.client_max + CALL) * 4;
            sleep(attempts + wire.server_max).await;
            let open = proxy.server.metrics().connections;
            let is_whole = stop.after > 0 && proxy.sent[0].load(Ordering::Relaxed) <= stop.after;
            assert!(open == 0 || is_whole, "{} {stop:?}: {open} connections after {:?}", wire.url, wire.server_max);
            talking.abort();
        });
    });
}

#[test]
fn a_stopped_stream_ends_within_the_limits() {
    for wire in WIRES.into_iter().filter(|wire| !wire.url.starts_with("twirp")) {
        in_virtual_time(async {
            // Both sides are healthy until the stream runs.
            let proxy = Proxy::new(None);
            let client = proxy.connect(wire).await.unwrap();
            let mut answers = client.count(words("a, wait")).await.unwrap().into_inner();
            assert_eq!(next(&mut answers).await, "a");
            let reading = timeout(Duration::from_secs(3600), answers.message()).await;
            assert!(reading.is_err(), "{}: a stream of a living server goes on: {reading:?}", wire.url);
        });
    }
}

/// A broker that welcomes its clients, and answers nothing else.
struct MuteBroker;

impl Router for MuteBroker {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        let [hello, welcome] = [BASE, BASE + 1].map(|number| Operation::new(number).unwrap());
        // The version of the protocol, and credit for publications.
        let content = vec![1, 0, 1, 0, 0];
        match packet.operation == hello && packet.id == 0 {
            true => Outcome::Reply(Packet::new(packet.id, welcome, content)),
            false => Outcome::Nothing,
        }
    }
}

#[test]
fn a_broker_without_answers_leaves_no_client_waiting() {
    in_virtual_time(async {
        let server = frisbee::Server::builder(MuteBroker).without_listener();
        let (ours, theirs) = duplex(BUFFER_LEN);
        server.attach(theirs);
        let client = frisbee_pubsub::Client::builder().answer_max(7 * SECOND).attach(ours).await.unwrap();
        let begun = Instant::now();
        let error = client.publish_acknowledged("a", "1").await.unwrap_err();
        assert!(matches!(error, PublishError::NoAnswer { limit } if limit == 7 * SECOND), "{error}");
        let error = client.subscribe("a").await.unwrap_err();
        assert!(matches!(error, SubscribeError::NoAnswer { .. }), "{error}");
        client.publish("a", "2").await.unwrap();
        let error = client.flush().await.unwrap_err();
        assert!(matches!(error, PublishError::NoAnswer { .. }), "{error}");
        assert_elapsed(begun, 21 * SECOND);
        let error = client.request("a", "3").await.unwrap_err();
        assert!(matches!(error, RequestError::TimedOut), "{error}");
        timeout(SECOND * 60, client.close()).await.unwrap();
    });
}

/// The buffer of a socket in each direction.
const BUFFER_LEN: usize = 8 * 1024;
