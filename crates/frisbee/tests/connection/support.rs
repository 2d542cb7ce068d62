//! The vocabulary of these tests: time that jumps, a [`Script`] that does what packets say, a [`Peer`] that speaks bytes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use frisbee::{
    Client, CloseReason, Config, Connection, Content, Dispatch, Operation, Outcome, Packet, Raw, Refused, Router,
    Server, ServerBuilder, Stream,
    proto::{Decoder, Frame, Header, HeaderFormat, Kind},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime,
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};

/// Runs a test in virtual time, which jumps to the next deadline whenever nobody has anything to do.
pub(crate) fn virtually(test: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(DAY, test).await.expect("a test ends within a day of virtual time") });
}

/// Comes back when everybody has done what they can do without time passing.
pub(crate) async fn settled() {
    sleep(MILLI).await;
}

/// Asserts that so much virtual time has passed, up to the resolution of timers.
#[track_caller]
pub(crate) fn assert_elapsed(since: Instant, expected: Duration) {
    let elapsed = since.elapsed();
    assert!(expected <= elapsed && elapsed <= expected + 2 * MILLI, "{elapsed:?} instead of {expected:?}");
}

/// A router that does what the content of each packet says; what it does not know, it sends back.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) log: Log,
    /// Where handlers wait that were told to.
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
        (Self { log: Log::default(), gate: Gate::default(), running: Arc::default(), raws }, taken)
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

    fn refuse(&self, refused: Refused, _: &Connection) -> Outcome {
        Outcome::Reply(packet(refused.id, format!("{:?}", refused.why)))
    }

    async fn refuse_stream(&self, stream: Stream, _: &Connection) {
        stream.send("refused").await.unwrap();
    }

    /// Sends everything back.
    async fn stream(&self, mut stream: Stream, _: &Connection) {
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

    fn opened(&self, _: &Connection) {
        self.log.add("opened");
    }

    fn closed(&self, _: &Connection, reason: &CloseReason) {
        self.log.add(format!("closed: {reason:?}"));
    }
}

struct Left<'a>(&'a AtomicUsize);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// What happened since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Lets one handler pass each time it opens.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn open(&self, times: usize) {
        self.0.add_permits(times);
    }

    async fn passed(&self) {
        self.0.acquire().await.expect("nobody closes it").forget();
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

/// The other end of a connection, which speaks in bytes and answers nothing by itself.
pub(crate) struct Peer {
    pub(crate) io: DuplexStream,
    decoder: Decoder,
    inbox: BytesMut,
}

impl Peer {
    pub(crate) fn over(io: DuplexStream) -> Self {
        Self { io, decoder: Decoder::new(None, u32::MAX), inbox: BytesMut::new() }
    }

    /// A peer of this server.
    pub(crate) fn of(server: &Server) -> Self {
        Self::with_buffer(server, 64 * 1024)
    }

    /// A peer of this server that has so many bytes under way at most, in each direction.
    pub(crate) fn with_buffer(server: &Server, buffer_len: usize) -> Self {
        let (ours, theirs) = duplex(buffer_len);
        server.attach(theirs);
        Self::over(ours)
    }

    /// A client's connection and its peer.
    pub(crate) async fn of_client(client: &Client<impl Router>) -> (Connection, Self) {
        Self::of_client_with_buffer(client, 64 * 1024).await
    }

    pub(crate) async fn of_client_with_buffer(client: &Client<impl Router>, buffer_len: usize) -> (Connection, Self) {
        let (ours, theirs) = duplex(buffer_len);
        (client.attach(theirs).await.unwrap(), Self::over(ours))
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Says everything in one write.
    pub(crate) async fn say_all(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.say(frames.into_iter().collect::<Vec<_>>().concat()).await;
    }

    /// The next frame, in words, or `"end"`.
    pub(crate) async fn hear_any(&mut self) -> String {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.inbox).expect("only whole frames come") {
                return name(&frame);
            }
            if self.io.read_buf(&mut self.inbox).await.unwrap() == 0 {
                assert!(self.inbox.is_empty() && self.decoder.content_len() == 0, "it ends with a whole frame");
                return "end".into();
            }
        }
    }

    /// The next frame that is no heartbeat.
    pub(crate) async fn hear(&mut self) -> String {
        loop {
            let frame = self.hear_any().await;
            if frame != "PING" && frame != "PONG" {
                return frame;
            }
        }
    }

    /// So many frames that are no heartbeats.
    pub(crate) async fn hear_times(&mut self, times: usize) -> Vec<String> {
        let mut frames = Vec::new();
        for _ in 0..times {
            frames.push(self.hear().await);
        }
        frames
    }

    /// Everything up to the end.
    pub(crate) async fn hear_out(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            match self.hear().await {
                end if end == "end" => return frames,
                frame => frames.push(frame),
            }
        }
    }

    /// Everything that the other side has said up to this moment.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        while let Ok(frame) = timeout(MILLI, self.hear_any()).await {
            let is_end = frame == "end";
            frames.push(frame);
            if is_end {
                break;
            }
        }
        frames
    }

    pub(crate) async fn hears_nothing(&mut self) -> bool {
        self.heard().await.is_empty()
    }

    /// Ends what it says, and goes on hearing.
    pub(crate) async fn fall_silent(&mut self) {
        self.io.shutdown().await.unwrap();
    }
}

/// A frame in words.
fn name(frame: &Frame) -> String {
    let content = match frame.content.len() {
        len @ 0..=20 => String::from_utf8_lossy(&frame.content[..len]).into_owned(),
        len => format!("{len} bytes"),
    };
    match frame.kind {
        Kind::Ping => "PING".into(),
        Kind::Pong => "PONG".into(),
        Kind::Stream if content.is_empty() => format!("stream {} closed", frame.id),
        Kind::Stream => format!("stream {}: {content}", frame.id),
        Kind::Reserved => format!("reserved {}", frame.id),
        Kind::Application(_) => format!("packet {}: {content}", frame.id),
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
    settled().await;
    let connections = server.connections();
    assert_eq!(connections.len(), 1);
    connections[0].clone()
}

/// A configuration without timers.
pub(crate) fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, ..Config::default() }
}

/// A packet of the one operation these tests use.
pub(crate) fn packet(id: u16, content: impl Into<Content>) -> Packet {
    Packet::new(id, OPERATION, content)
}

/// The bytes of that packet.
pub(crate) fn packet_bytes(id: u16, content: &str) -> Vec<u8> {
    frame(id, OPERATION.number(), content.as_bytes())
}

pub(crate) fn ping() -> Vec<u8> {
    frame(0, 0, b"")
}

pub(crate) fn pong() -> Vec<u8> {
    frame(0, 1, b"")
}

/// Data of a stream, or its close if there is none.
pub(crate) fn stream_bytes(id: u16, content: &str) -> Vec<u8> {
    frame(id, 2, content.as_bytes())
}

/// A whole frame in the ten byte layout.
pub(crate) fn frame(id: u16, operation: u16, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).expect("test contents are small");
    [head(id, operation, len), content.to_vec()].concat()
}

/// A header in the ten byte layout.
pub(crate) fn head(id: u16, operation: u16, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { id, operation, len }.encode(HeaderFormat::Magic10, &mut bytes);
    bytes
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
pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
