//! The vocabulary of these tests: time that jumps, a [`Clerk`] that does what messages say, a [`Peer`] that speaks the
//! wire by hand.

use std::{
    iter, process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use frisbee::proto::{Decoder, Frame, Header, HeaderFormat, Kind};
use frpc::{
    Address, CallError, Channel, ChannelBuilder, Code, Config, Connection, Operation, Packet, Request, Response,
    Server, Status, Streaming,
    codec::{self, Content, Reader},
};
use futures_util::stream::try_unfold;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use schema::{
    Words,
    desk_client::DeskClient,
    desk_server::{Desk, DeskServer},
    phone_client::PhoneClient,
    phone_server::Phone,
};

/// What was generated.
pub(crate) mod schema {
    #![allow(missing_docs, unreachable_pub, reason = "it is generated for any use")]
    frpc::include_proto!("calls");
}

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
    assert!(expected <= elapsed && elapsed <= expected + 3 * MILLI, "{elapsed:?} instead of {expected:?}");
}

/// Serves both services and does what each message says; what it does not know, it says back.
#[derive(Clone, Default)]
pub(crate) struct Clerk {
    pub(crate) log: Log,
    /// Where those wait who are told to.
    pub(crate) gate: Gate,
    /// Answers that were made in streams.
    pub(crate) made: Arc<AtomicUsize>,
}

impl Clerk {
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn begins(&self, what: String) -> Under {
        self.log.add(&*what);
        Under { log: self.log.clone(), what, is_done: false }
    }

    async fn play(&self, text: &str) -> Result<String, Status> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        match first {
            "panic" => panic!("as told"),
            "wait" => self.gate.passed().await,
            "sleep" => sleep(rest.parse::<u32>().unwrap() * SECOND).await,
            "large" => return Ok("x".repeat(rest.parse().unwrap())),
            "complain" => return Err(Status::not_found("x".repeat(rest.parse().unwrap()))),
            "bye" => return Err(Status::aborted("bye").closing_connection()),
            "fail" => {
                let (code, message) = rest.split_once(' ').unwrap();
                return Err(Status::new(Code::from_number(code.parse().unwrap()), message));
            }
            _ => {}
        }
        Ok(text.to_owned())
    }

    /// Makes a stream of a list, or an endless one.
    fn recite(&self, under: Under, list: &str) -> Streaming<Words> {
        let items: Box<dyn Iterator<Item = String> + Send> = match list.strip_prefix("endless ") {
            Some(item) => Box::new(iter::repeat(item.to_owned())),
            None => Box::new(list.split(", ").map(str::to_owned).collect::<Vec<_>>().into_iter()),
        };
        let clerk = self.clone();
        Streaming::new(try_unfold((items, under), move |(mut items, under)| {
            let clerk = clerk.clone();
            async move {
                let Some(item) = items.next() else { return under.done(None) };
                let text = clerk.play(&item).await?;
                clerk.made.fetch_add(1, Ordering::Relaxed);
                Ok(Some((words(text), (items, under))))
            }
        }))
    }

    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let text = request.get_ref().text.clone();
        let under = self.begins(format!("say {text}"));
        let answer = match text.split_once(' ') {
            Some(("back", errand)) => Errand(request.channel()?).run(errand).await?,
            _ if text == "peer" => request.peer_addr().map_or("nobody".into(), |addr| addr.to_string()),
            _ if text == "visit" => {
                let connection = request.connection().expect("it came on one");
                let visits = connection.state_or_insert_with(|| AtomicUsize::new(0));
                (visits.fetch_add(1, Ordering::Relaxed) + 1).to_string()
            }
            _ if text == "extension" => format!("{:?}", request.extensions().get::<u32>()),
            _ => self.play(&text).await?,
        };
        under.done(words(answer).into())
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let list = request.into_inner().text;
        let under = self.begins(format!("count {list}"));
        match list.strip_prefix("first ") {
            Some(first) => self.play(first).await.map(|_| self.recite(under, "").into()),
            None => Ok(self.recite(under, &list).into()),
        }
    }

    /// Joins what it is told.
    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let under = self.begins("gather".into());
        let (mut all, mut texts) = (Vec::new(), request.into_inner());
        while let Some(Words { text }) = texts.message().await? {
            all.push(self.play(&text).await?);
            if text == "now" {
                break;
            }
        }
        under.done(words(all.join(" ")).into())
    }

    /// Answers each message, or, when told so, alone without hearing the rest.
    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let under = self.begins("chat".into());
        let (clerk, texts) = (self.clone(), request.into_inner());
        Ok(Streaming::new(try_unfold((texts, under, None), move |(mut texts, under, mut alone)| {
            let clerk = clerk.clone();
            async move {
                if let Some(speech) = &mut alone {
                    let Some(next) = Streaming::message(speech).await? else { return under.done(None) };
                    return Ok(Some((next, (texts, under, alone))));
                }
                let Some(Words { text }) = texts.message().await? else { return under.done(None) };
                if let Some(list) = text.strip_prefix("alone ") {
                    let mut speech = clerk.recite(clerk.begins("speech".into()), list);
                    let first = speech.message().await?.unwrap();
                    return Ok(Some((first, (Streaming::from_iter([]), under, Some(speech)))));
                }
                if text == "stop" {
                    return under.done(None);
                }
                Ok(Some((words(format!("re: {}", clerk.play(&text).await?)), (texts, under, alone))))
            }
        }))
        .into())
    }
}

macro_rules! serves {
    ($($service:ident)*) => {$(
        impl $service for Clerk {
            async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
                self.say(request).await
            }

            async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
                self.count(request).await
            }

            async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
                self.gather(request).await
            }

            async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
                self.chat(request).await
            }
        }
    )*};
}

serves!(Desk Phone);

/// Calls from a handler to the side that called it.
struct Errand(Channel);

impl Errand {
    async fn run(self, errand: &str) -> Result<String, Status> {
        let (how, text) = errand.split_once(' ').expect("an errand has two words");
        let (desk, phone) = (DeskClient::new(self.0.clone()), PhoneClient::new(self.0));
        Ok(match how {
            "desk" => desk.say(words(text)).await?.into_inner().text,
            "say" => phone.say(words(text)).await?.into_inner().text,
            "count" => all(phone.count(words(text)).await?).await?.join(" "),
            "gather" => phone.gather(speech(text)).await?.into_inner().text,
            "chat" => all(phone.chat(speech(text)).await?).await?.join(" "),
            _ => unreachable!("{how} is no errand"),
        })
    }
}

/// A handler under way. Tells when it is dropped before it is done.
struct Under {
    log: Log,
    what: String,
    is_done: bool,
}

impl Under {
    fn done<T>(mut self, result: T) -> Result<T, Status> {
        self.is_done = true;
        Ok(result)
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        if !self.is_done && !std::thread::panicking() {
            self.log.add(format!("dropped {}", self.what));
        }
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

/// Lets one pass each time it opens.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn open(&self, times: usize) {
        self.0.add_permits(times);
    }

    pub(crate) async fn passed(&self) {
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
    io: DuplexStream,
    decoder: Decoder,
    inbox: BytesMut,
}

impl Peer {
    /// A peer, and the stream to it.
    pub(crate) fn new() -> (DuplexStream, Self) {
        Self::with_buffer(64 * 1024)
    }

    /// A peer that has so many bytes under way at most, in each direction.
    pub(crate) fn with_buffer(buffer_len: usize) -> (DuplexStream, Self) {
        let (theirs, io) = duplex(buffer_len);
        (theirs, Self { io, decoder: Decoder::new(None, u32::MAX), inbox: BytesMut::new() })
    }

    pub(crate) fn of(server: &Server) -> Self {
        let (theirs, peer) = Self::new();
        server.attach(theirs);
        peer
    }

    /// A client and its peer.
    pub(crate) async fn of_channel(builder: ChannelBuilder) -> (DeskClient, Self) {
        let (theirs, peer) = Self::new();
        (DeskClient::new(builder.attach(theirs).await.unwrap()), peer)
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next frame, in words, or `"end"`.
    pub(crate) async fn hear(&mut self) -> String {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.inbox).expect("only whole frames come") {
                return name(&frame);
            }
            if self.io.read_buf(&mut self.inbox).await.unwrap() == 0 {
                return "end".into();
            }
        }
    }

    /// Everything that the other side has said up to this moment.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        while let Ok(frame) = timeout(MILLI, self.hear()).await {
            let is_end = frame == "end";
            frames.push(frame);
            if is_end {
                break;
            }
        }
        frames
    }

    /// Says something, and hears what comes back at once.
    pub(crate) async fn asks(&mut self, bytes: impl AsRef<[u8]>) -> Vec<String> {
        self.say(bytes).await;
        self.heard().await
    }
}

/// A frame in words.
fn name(frame: &Frame) -> String {
    let content = match frame.content.first() {
        Some(9) => format!("open {}", Reader::new(&frame.content).u16().unwrap()),
        _ => match codec::decode::<Words>(&frame.content) {
            Ok(Content::Message(Words { text })) if text.len() <= 20 => text,
            Ok(Content::Message(Words { text })) => format!("{} letters", text.len()),
            Ok(Content::Error(failure)) if failure.text == "EOF" => "end".into(),
            Ok(Content::Error(failure)) => format!("error {} {}", failure.code.unwrap_or(2), failure.text),
            Err(_) => format!("{:x?}", frame.content),
        },
    };
    match frame.kind {
        Kind::Ping => "PING".into(),
        Kind::Pong => "PONG".into(),
        Kind::Stream if frame.content.is_empty() => format!("stream {} closed", frame.id),
        Kind::Stream => format!("stream {}: {content}", frame.id),
        Kind::Reserved => format!("reserved {}", frame.id),
        Kind::Application(operation) => format!("{operation} {}: {content}", frame.id),
    }
}

/// The bytes of a packet.
pub(crate) fn packet(id: u16, operation: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let (mut bytes, len) = (Vec::new(), content.len().try_into().unwrap());
    Header { id, operation, len }.encode(HeaderFormat::Magic10, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// The bytes of data in a stream, or of its close if there is none.
pub(crate) fn stream(id: u16, content: impl AsRef<[u8]>) -> Vec<u8> {
    packet(id, 2, content)
}

/// The bytes that open a stream for a call.
pub(crate) fn open(id: u16, operation: u8) -> Vec<u8> {
    stream(id, [9, operation])
}

/// A message as content.
pub(crate) fn said(text: &str) -> Bytes {
    codec::encode(&words(text))
}

/// The error of a Go peer as content.
pub(crate) fn error(text: &str) -> Bytes {
    codec::encode_error(text, None)
}

pub(crate) fn end() -> Bytes {
    error("EOF")
}

pub(crate) fn words(text: impl Into<String>) -> Words {
    Words { text: text.into() }
}

/// A stream of words, all there already.
pub(crate) fn speech(text: &str) -> Streaming<Words> {
    text.split_whitespace().map(words).collect()
}

/// All messages of a stream, or the status that ends it.
pub(crate) async fn all(stream: Response<Streaming<Words>>) -> Result<Vec<String>, Status> {
    let (mut stream, mut texts) = (stream.into_inner(), Vec::new());
    while let Some(Words { text }) = stream.message().await? {
        texts.push(text);
    }
    Ok(texts)
}

pub(crate) async fn next(stream: &mut Streaming<Words>) -> String {
    stream.message().await.unwrap().expect("there is another message").text
}

/// Makes a call of each kind with the same text, and says what came of each.
pub(crate) async fn each_kind(desk: &DeskClient, text: &str) -> [Result<String, Status>; 4] {
    [
        of_kind(desk, 0, text).await,
        of_kind(desk, 1, text).await,
        of_kind(desk, 2, text).await,
        of_kind(desk, 3, text).await,
    ]
}

pub(crate) async fn joined(stream: Result<Response<Streaming<Words>>, Status>) -> Result<String, Status> {
    all(stream?).await.map(|texts| texts.join(" "))
}

/// Makes a call of one of the four kinds.
pub(crate) async fn of_kind(desk: &DeskClient, kind: usize, text: &str) -> Result<String, Status> {
    let answer = |answer: Result<Response<Words>, Status>| answer.map(|answer| answer.into_inner().text);
    match kind {
        0 => answer(desk.say(words(text)).await),
        1 => joined(desk.count(words(text)).await).await,
        2 => answer(desk.gather(Streaming::from_iter([words(text)])).await),
        _ => joined(desk.chat(Streaming::from_iter([words(text)])).await).await,
    }
}

/// How a call to say something went.
pub(crate) async fn ask(desk: &DeskClient, text: &str) -> Result<String, Status> {
    desk.say(words(text)).await.map(|answer| answer.into_inner().text)
}

/// A call that goes on while the test does something else.
pub(crate) fn asking(desk: &DeskClient, text: &str) -> tokio::task::JoinHandle<Result<String, Status>> {
    let (desk, text) = (desk.clone(), text.to_owned());
    tokio::spawn(async move { ask(&desk, &text).await })
}

/// Whether the request of a call whose connection was lost may have been executed.
#[track_caller]
pub(crate) fn may_have_executed(status: &Status) -> bool {
    match status.call_error() {
        Some(CallError::ConnectionLost { may_have_executed, .. }) => {
            assert_eq!(status.code(), Code::Unavailable);
            *may_have_executed
        }
        _ => panic!("{status} instead of a lost connection"),
    }
}

/// A server of a desk, for streams that the test hands to it, without timers.
pub(crate) fn serving(clerk: &Clerk) -> Server {
    Server::builder().config(quiet()).add_service(DeskServer::new(clerk.clone())).without_listener().unwrap()
}

/// A client of this server, without timers.
pub(crate) async fn connected(server: &Server) -> DeskClient {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    DeskClient::new(quietly().attach(ours).await.unwrap())
}

/// A desk, and a client of it.
pub(crate) async fn desk() -> (Clerk, Server, DeskClient) {
    let clerk = Clerk::default();
    let server = serving(&clerk);
    let client = connected(&server).await;
    (clerk, server, client)
}

pub(crate) fn quietly() -> ChannelBuilder {
    Channel::builder().config(quiet())
}

/// A configuration without timers.
pub(crate) fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, ..Config::default() }
}

/// The one connection that this server has.
pub(crate) async fn only_connection(server: &Server) -> Connection {
    settled().await;
    let connections = server.connections();
    assert_eq!(connections.len(), 1);
    connections[0].clone()
}

/// An address in memory that nobody has.
pub(crate) fn fresh() -> Address {
    static MADE: AtomicU32 = AtomicU32::new(0);
    Address::Mem(format!("calls-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed)))
}

/// A packet of the user's own.
pub(crate) fn own_packet(id: u16, content: &'static str) -> Packet {
    Packet::new(id, OWN, content)
}

pub(crate) const SAY: u16 = 10;
pub(crate) const COUNT: u8 = 11;
pub(crate) const GATHER: u8 = 12;
pub(crate) const CHAT: u8 = 13;
pub(crate) const OWN: Operation = Operation::new(1000).expect("not reserved");
pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
