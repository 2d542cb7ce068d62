//! Go clients against our server.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Config, Connection, Dispatch, HeaderFormat, Outcome, Packet, ProtocolError, Router, Server,
    ServerBuilder, Stream,
};
use support::GoPeers;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, split},
    net::TcpStream,
    sync::mpsc,
    task::yield_now,
    time::{sleep, timeout},
};

use crate::{
    COUNT, ECHO, HANGUP, NEWS, OPEN, OTHER, PUBLISH, RAW, REPLY, RUN_MAX, SILENT, SUBSCRIBE,
    clients::{GoClient, run_clients},
};

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_pass_against_our_server() {
    let dispatches = [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, Dispatch::Limited(EIGHT)];
    run_clients("frisbee-client", &dispatches, Dispatch::InPlace, serve).await;
}

async fn serve(client: GoClient) {
    let dispatch = client.dispatch;
    // With in-place dispatch, replies keep their order only if every handler is immediately ready.
    let service = Service { waits: dispatch != Dispatch::InPlace, ..Service::default() };
    let mut builder = Server::builder(service).dispatch(dispatch).engine(client.engine);
    if let Some(identity) = client.identity() {
        builder = builder.tls(identity.server());
    }
    let server = bind(builder).await;
    let is_promised = |check: &str| {
        matches!(dispatch, Dispatch::InPlace | Dispatch::Ordered) || !NEED_ORDER.iter().any(|name| check.contains(name))
    };
    client.run(addr(&server), is_promised).await;
    assert_eq!(server.shutdown(Duration::from_secs(5)).await, 0, "connections outlived their client");
}

/// Checks of the Go client that require handlers to run one after another.
const NEED_ORDER: [&str; 2] = ["500 packets answered in order", "packets without a reply"];
const EIGHT: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");

#[tokio::test]
async fn a_go_client_with_the_other_header_is_rejected() {
    let Some(go) = GoPeers::find() else { return };
    let (server, mut reasons) = picky_server().await;
    let mut client = go.command("frisbee-client", HeaderFormat::Plain8);
    let _process = client.arg(addr(&server)).spawn().expect("the client was built");
    assert_ends(&mut reasons, ProtocolError::BadMagic { found: 1 }).await;
}

#[tokio::test]
async fn protocol_violations_are_rejected() {
    let (server, mut reasons) = picky_server().await;
    for (bytes, error) in [
        (&b"\x00\x07\x00\x14\x00\x00\x00\x00"[..], ProtocolError::BadMagic { found: 7 }),
        (b"READY\n", ProtocolError::BadMagic { found: 0x5245 }),
        (
            b"\x00\x0f\x00\x07\x00\x14\x04\x00\x00\x01",
            ProtocolError::ContentTooLarge { announced: 0x400_0001, limit: 0x50_0000 },
        ),
        (b"\x00\x0f\x00\x00\x00\x00\x00\x00\x00\x01", ProtocolError::HeartbeatWithContent { announced: 1 }),
    ] {
        let mut socket = TcpStream::connect(addr(&server)).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        let end = timeout(RUN_MAX, socket.read_to_end(&mut Vec::new())).await;
        assert!(matches!(end, Ok(Ok(_))), "{end:?} after {error}");
        drop(socket);
        assert_ends(&mut reasons, error).await;
    }
}

/// Returns a server that accepts only the newer header format, and the reasons for the ends of its connections.
async fn picky_server() -> (Server, mpsc::UnboundedReceiver<CloseReason>) {
    struct Reasons(mpsc::UnboundedSender<CloseReason>);

    impl Router for Reasons {
        async fn route(&self, _: Packet, _: &Connection) -> Outcome {
            Outcome::Nothing
        }

        fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
            let frisbee::Event::Closed(reason) = event else { return };
            // The test may have dropped its receiver.
            let _ = self.0.send(reason.clone());
        }
    }

    let (sender, reasons) = mpsc::unbounded_channel();
    let config = Config { header: Some(HeaderFormat::Magic10), ..Config::default() };
    (bind(Server::builder(Reasons(sender)).config(config)).await, reasons)
}

async fn assert_ends(reasons: &mut mpsc::UnboundedReceiver<CloseReason>, error: ProtocolError) {
    let reason = timeout(RUN_MAX, reasons.recv()).await;
    assert!(matches!(&reason, Ok(Some(CloseReason::Protocol(found))) if *found == error), "{reason:?}, not {error}");
}

async fn bind(builder: ServerBuilder<impl Router>) -> Server {
    builder.bind("tcp://127.0.0.1:0").await.expect("some port is free")
}

fn addr(server: &Server) -> String {
    server.local_addr().socket_addr().expect("it listens on TCP").to_string()
}

/// Behaves like the Go server.
#[derive(Default)]
struct Service {
    /// True if every other handler has to wait.
    waits: bool,
    topics: Mutex<HashMap<Bytes, Topic>>,
}

#[derive(Default)]
struct Topic {
    published: u16,
    subscribers: Vec<Connection>,
}

/// Packets of one connection without a reply.
#[derive(Default)]
struct Silent(AtomicU64);

impl Router for Service {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        let Packet { id, operation, content } = packet.clone();
        if self.waits && id % 2 == 0 {
            yield_now().await;
        }
        match operation {
            ECHO => Outcome::Reply(packet),
            OTHER => {
                let reversed: Bytes = content.iter().rev().copied().collect();
                Outcome::Reply(Packet::new(id.wrapping_add(1), REPLY, reversed))
            }
            SILENT => {
                silent(connection).0.fetch_add(1, Ordering::Relaxed);
                Outcome::Nothing
            }
            COUNT => Outcome::Reply(Packet::new(id, COUNT, silent(connection).0.load(Ordering::Relaxed).to_string())),
            HANGUP => Outcome::ReplyAndClose(packet),
            SUBSCRIBE => {
                self.subscribe(content.into_bytes(), connection);
                Outcome::Reply(packet)
            }
            PUBLISH => Outcome::Reply(Packet::new(id, PUBLISH, self.publish(&content).to_string())),
            OPEN if content.len() > 2 => {
                open(content.into_bytes(), connection).await;
                Outcome::Nothing
            }
            RAW => {
                serve_raw(connection).await;
                Outcome::Nothing
            }
            _ => Outcome::Nothing,
        }
    }

    async fn stream(&self, stream: Stream, refusal: Option<frisbee::RefusalReason>, _: &Connection) {
        if refusal.is_none() {
            echo(stream).await;
        }
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Opened = event else { return };
        assert!(connection.set_state(Silent::default()).is_ok(), "it opens once");
    }
}

impl Service {
    fn subscribe(&self, topic: Bytes, connection: &Connection) {
        let mut topics = self.topics.lock().expect("no handler panics");
        topics.entry(topic).or_default().subscribers.push(connection.clone());
    }

    /// Sends a content to all subscribers of its topic. Returns their number.
    fn publish(&self, content: &Bytes) -> usize {
        let end = content.iter().position(|&byte| byte == 0).unwrap_or(content.len());
        let mut topics = self.topics.lock().expect("no handler panics");
        let Some(topic) = topics.get_mut(&content[..end]) else { return 0 };
        topic.published += 1;
        let news = Packet::new(topic.published, NEWS, content.slice((end + 1).min(content.len())..));
        topic.subscribers.retain(|subscriber| subscriber.try_send(news.clone()).is_ok());
        topic.subscribers.len()
    }
}

fn silent(connection: &Connection) -> &Silent {
    connection.state().expect("it was set when the connection was opened")
}

async fn open(content: Bytes, connection: &Connection) {
    let id = u16::from_be_bytes([content[0], content[1]]);
    let Ok(stream) = connection.open_stream_with_id(id) else { return };
    if stream.send(content.slice(2..)).await.is_ok() {
        tokio::spawn(echo(stream));
    }
}

async fn echo(mut stream: Stream) {
    while let Ok(content) = stream.read().await {
        if content == "close me" || stream.send(content).await.is_err() {
            return;
        }
    }
}

async fn serve_raw(connection: &Connection) {
    // The client leaves packet mode without notice, so the only way is to wait.
    sleep(Duration::from_millis(50)).await;
    let Ok(raw) = connection.takeover().await else { return };
    let (mut reader, mut writer) = split(raw);
    if writer.write_all(b"READY\n").await.is_ok() {
        // The client may close the connection with a reset.
        let _ = copy(&mut reader, &mut writer).await;
    }
}
