//! Tools that these tests share: a [`Script`] that does what packets say, clients, servers, and their peers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use frisbee::{
    Client, CloseReason, Config, Connection, Content, Dispatch, Operation, Outcome, Packet, Raw, RefusedPacket, Router,
    Server, ServerBuilder, Stream,
    proto::{Frame, FrameKind},
};
use support::{EventLog, Gate, Peer, frames::frame, settle};
use tokio::{io::duplex, sync::mpsc};

/// A router that does what the content of each packet says; what it does not know, it sends back.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) log: EventLog,
    /// The gate at which handlers wait that were told to.
    pub(crate) gate: Gate,
    /// Handlers at the gate, and the most there ever were.
    running: Arc<(AtomicUsize, AtomicUsize)>,
    raws: mpsc::UnboundedSender<Result<Raw, CloseReason>>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::with_raws().0
    }

    /// A script, and where the results of takeovers arrive.
    pub(crate) fn with_raws() -> (Self, mpsc::UnboundedReceiver<Result<Raw, CloseReason>>) {
        let (raws, taken) = mpsc::unbounded_channel();
        (Self { log: EventLog::default(), gate: Gate::default(), running: Arc::default(), raws }, taken)
    }

    /// Handlers at the gate now.
    pub(crate) fn running(&self) -> usize {
        self.running.0.load(Ordering::Relaxed)
    }

    /// The most handlers that ever were at the gate.
    pub(crate) fn running_max(&self) -> usize {
        self.running.1.load(Ordering::Relaxed)
    }

    async fn wait(&self, id: u16) {
        let now = self.running.0.fetch_add(1, Ordering::Relaxed) + 1;
        self.running.1.fetch_max(now, Ordering::Relaxed);
        let _left = Left(&self.running.0);
        self.gate.passed().await;
        self.log.add(format!("done {id}"));
    }

    async fn play(&self, packet: Packet, connection: &Connection) -> Outcome {
        let mut words = str::from_utf8(&packet.content).unwrap_or_default();
        if let Some(rest) = words.strip_prefix("wait") {
            self.wait(packet.id).await;
            words = rest.trim_start();
        }
        match words {
            "nothing" => Outcome::Nothing,
            "close" => Outcome::Close,
            "bye" => Outcome::ReplyAndClose(packet),
            "large" => {
                let content = vec![0; connection.config().content_len_max as usize + 1];
                Outcome::Reply(Packet { content: content.into(), ..packet })
            }
            "panic" => panic!("as told"),
            "take" => {
                let raw = connection.takeover().await;
                self.raws.send(raw).expect("the test waits for it");
                Outcome::Nothing
            }
            _ => Outcome::Reply(packet),
        }
    }
}

impl Router for Script {
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.log.add(format!("packet {}", packet.id));
        assert!(packet.content != "panic at once", "at once");
        self.play(packet, connection)
    }

    fn refuse(&self, refused: RefusedPacket, _: &Connection) -> Outcome {
        Outcome::Reply(packet(refused.id, format!("{:?}", refused.why)))
    }

    /// Sends everything back.
    async fn stream(&self, mut stream: Stream, refusal: Option<frisbee::RefusalReason>, _: &Connection) {
        if refusal.is_some() {
            return stream.send("refused").await.map(drop).unwrap();
        }
        self.log.add(format!("stream {}", stream.id()));
        loop {
            match stream.read().await {
                Ok(content) if content == "panic" => panic!("as told"),
                Ok(content) if content == "wait" => self.gate.passed().await,
                // The next read tells how it ended.
                Ok(content) => drop(stream.send(content).await),
                Err(end) => return self.log.add(format!("stream {}: {end:?}", stream.id())),
            }
        }
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Opened => self.log.add("opened"),
            frisbee::Event::Closed(reason) => self.log.add(format!("closed: {reason:?}")),
            _ => {}
        }
    }
}

struct Left<'a>(&'a AtomicUsize);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A peer of this server.
pub(crate) fn peer_of(server: &Server) -> Peer {
    peer_with_buffer(server, 64 * 1024)
}

/// A peer of this server that has at most `buffer_len` bytes under way in each direction.
pub(crate) fn peer_with_buffer(server: &Server, buffer_len: usize) -> Peer {
    let (theirs, peer) = Peer::pair(buffer_len, describe);
    server.attach(theirs);
    peer
}

/// A client's connection and its peer.
pub(crate) async fn peer_of_client(client: &Client<impl Router>) -> (Connection, Peer) {
    peer_of_client_with_buffer(client, 64 * 1024).await
}

pub(crate) async fn peer_of_client_with_buffer(client: &Client<impl Router>, buffer_len: usize) -> (Connection, Peer) {
    let (theirs, peer) = Peer::pair(buffer_len, describe);
    (client.attach(theirs).await.unwrap(), peer)
}

/// A frame in words.
pub(crate) fn describe(frame: &Frame) -> String {
    let content = match frame.content.len() {
        len @ 0..=20 => String::from_utf8_lossy(&frame.content[..len]).into_owned(),
        len => format!("{len} bytes"),
    };
    match frame.kind {
        FrameKind::Application(_) => format!("packet {}: {content}", frame.id),
        _ => format!("stream {}: {content}", frame.id),
    }
}

/// A server of streams that the test hands to it, without timers.
pub(crate) fn server<R: Router>(router: R) -> ServerBuilder<R> {
    Server::builder(router).config(quiet())
}

/// A client without timers.
pub(crate) fn client<R: Router>(router: R) -> Client<R> {
    Client::new(router).config(quiet())
}

/// A client connected to this server.
pub(crate) async fn connected<R: Router>(client: Client<R>, server: &Server) -> Connection {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    client.attach(ours).await.unwrap()
}

/// The one connection that this server has.
pub(crate) async fn only_connection(server: &Server) -> Connection {
    settle().await;
    let connections = server.connections();
    assert_eq!(connections.len(), 1);
    connections[0].clone()
}

/// A configuration without timers and without the extended protocol, so that every byte is one that the test asked for.
pub(crate) fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, extended: false, ..Config::default() }
}

/// A packet of the one operation these tests use.
pub(crate) fn packet(id: u16, content: impl Into<Content>) -> Packet {
    Packet::new(id, OPERATION, content)
}

/// The bytes of that packet.
pub(crate) fn packet_frame(id: u16, content: &str) -> Vec<u8> {
    frame(id, OPERATION.number(), content)
}

pub(crate) fn zeros(len: usize) -> Bytes {
    Bytes::from(vec![0; len])
}

/// Every way in which handlers can run.
pub(crate) fn dispatches() -> [Dispatch; 4] {
    [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(2)]
}

pub(crate) fn limited(limit: usize) -> Dispatch {
    Dispatch::Limited(limit.try_into().expect("a limit is not zero"))
}

pub(crate) const OPERATION: Operation = Operation::new(20).expect("not reserved");
