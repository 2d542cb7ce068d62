//! Calls: a scriptable [`TestService`], in-memory channels and servers, and peers for raw RPC frames.

use std::{
    iter,
    pin::pin,
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use frisbee::proto::{Frame, FrameKind};
use frpc::{
    Address, CallError, Channel, ChannelBuilder, Code, Config, Connection, Operation, Packet, Request, Response,
    Server, Status, Streaming,
    codec::{self, DecodedContent, Reader},
    prost_types::{Any, Duration},
};
use futures_util::stream::try_unfold;
use tokio::{
    io::{DuplexStream, duplex},
    time::sleep,
};

pub use schema::{
    Words, callback_client::CallbackClient, callback_server::CallbackServer, test_client::TestClient,
    test_server::TestServer,
};
use schema::{callback_server::Callback, test_server::Test};

use crate::{EventLog, Gate, Peer, SECOND, frames::stream_frame, settle};

/// Generated code.
pub mod schema {
    #![allow(missing_docs, unreachable_pub, reason = "it is generated for any use")]
    frpc::include_proto!("calls");
}

/// Implements both services. Each message is a command for the handler; unknown commands are echoed.
#[derive(Clone, Default)]
pub struct TestService {
    /// Log of handlers: each start, and each drop before completion.
    pub log: EventLog,
    /// Gate for handlers with the command to wait.
    pub gate: Gate,
    made: Arc<AtomicUsize>,
}

impl TestService {
    /// Returns the number of messages produced in response streams.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn begin(&self, what: String) -> Handling {
        self.log.add(&*what);
        Handling { log: self.log.clone(), what, is_done: false }
    }

    /// Executes a command and returns the answer.
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
            "explain" => {
                let detail = Any::from_msg(&Duration { seconds: 3, nanos: 0 }).unwrap();
                return Err(Status::with_error_details(Code::InvalidArgument, rest, [detail]));
            }
            _ => {}
        }
        Ok(text.to_owned())
    }

    /// Creates a stream from a list, or an endless stream.
    fn answers(&self, handling: Handling, list: &str) -> Streaming<Words> {
        let items: Box<dyn Iterator<Item = String> + Send> = match list.strip_prefix("endless ") {
            Some(item) => Box::new(iter::repeat(item.to_owned())),
            None => Box::new(list.split(", ").map(str::to_owned).collect::<Vec<_>>().into_iter()),
        };
        let service = self.clone();
        Streaming::new(try_unfold((items, handling), move |(mut items, handling)| {
            let service = service.clone();
            async move {
                let Some(item) = items.next() else { return handling.done(None) };
                let text = service.play(&item).await?;
                service.made.fetch_add(1, Ordering::Relaxed);
                Ok(Some((words(text), (items, handling))))
            }
        }))
    }

    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let text = request.get_ref().text.clone();
        let handling = self.begin(format!("say {text}"));
        let answer = match text.split_once(' ') {
            Some(("back", call)) => CallBack(request.channel()?).run(call).await?,
            _ if text == "peer" => request.peer_addr().map_or("nobody".into(), |addr| addr.to_string()),
            _ if text == "visit" => {
                let connection = request.connection().expect("it came on one");
                let visits = connection.state_or_insert_with(|| AtomicUsize::new(0));
                (visits.fetch_add(1, Ordering::Relaxed) + 1).to_string()
            }
            _ if text == "extension" => format!("{:?}", request.extensions().get::<u32>()),
            _ => self.play(&text).await?,
        };
        handling.done(words(answer).into())
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let list = request.into_inner().text;
        let handling = self.begin(format!("count {list}"));
        match list.strip_prefix("first ") {
            Some(first) => self.play(first).await.map(|_| self.answers(handling, "").into()),
            None => Ok(self.answers(handling, &list).into()),
        }
    }

    /// Joins all messages of the stream. They may contain commands.
    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let handling = self.begin("gather".into());
        let (mut all, mut texts) = (Vec::new(), request.into_inner());
        while let Some(Words { text }) = texts.message().await? {
            all.push(self.play(&text).await?);
            if text == "now" {
                break;
            }
        }
        handling.done(words(all.join(" ")).into())
    }

    /// Answers each message. On command, answers on its own without reading further messages.
    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let handling = self.begin("chat".into());
        let (service, texts) = (self.clone(), request.into_inner());
        Ok(Streaming::new(try_unfold((texts, handling, None), move |(mut texts, handling, mut alone)| {
            let service = service.clone();
            async move {
                if let Some(speech) = &mut alone {
                    let Some(next) = Streaming::message(speech).await? else { return handling.done(None) };
                    return Ok(Some((next, (texts, handling, alone))));
                }
                let Some(Words { text }) = texts.message().await? else { return handling.done(None) };
                if let Some(list) = text.strip_prefix("alone ") {
                    let mut speech = service.answers(service.begin("speech".into()), list);
                    let first = speech.message().await?.unwrap();
                    return Ok(Some((first, (Streaming::from_iter([]), handling, Some(speech)))));
                }
                if text == "stop" {
                    return handling.done(None);
                }
                Ok(Some((words(format!("re: {}", service.play(&text).await?)), (texts, handling, alone))))
            }
        }))
        .into())
    }
}

macro_rules! serves {
    ($($service:ident)*) => {$(
        impl $service for TestService {
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

serves!(Test Callback);

/// Calls from a handler back to its caller.
struct CallBack(Channel);

impl CallBack {
    async fn run(self, call: &str) -> Result<String, Status> {
        let (method, text) = call.split_once(' ').expect("a call has a method and a text");
        let (test, callback) = (TestClient::new(self.0.clone()), CallbackClient::new(self.0));
        Ok(match method {
            "test" => test.say(words(text)).await?.into_inner().text,
            "say" => callback.say(words(text)).await?.into_inner().text,
            "count" => all(callback.count(words(text)).await?).await?.join(" "),
            "gather" => callback.gather(stream_of(text)).await?.into_inner().text,
            "chat" => all(callback.chat(stream_of(text)).await?).await?.join(" "),
            _ => unreachable!("{method} is no method"),
        })
    }
}

/// A running handler. Logs if it is dropped before completion.
struct Handling {
    log: EventLog,
    what: String,
    is_done: bool,
}

impl Handling {
    fn done<T>(mut self, result: T) -> Result<T, Status> {
        self.is_done = true;
        Ok(result)
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        if !self.is_done && !std::thread::panicking() {
            self.log.add(format!("dropped {}", self.what));
        }
    }
}

/// Returns a stream, and the peer at its other end.
pub fn peer() -> (DuplexStream, Peer) {
    peer_with_buffer(64 * 1024)
}

/// Returns a stream with a buffer of this length per direction, and the peer at its other end.
pub fn peer_with_buffer(buffer_len: usize) -> (DuplexStream, Peer) {
    Peer::pair(buffer_len, describe)
}

/// Returns a peer connected to a server.
pub fn peer_of(server: &Server) -> Peer {
    let (theirs, peer) = peer();
    server.attach(theirs);
    peer
}

/// Returns a client and its peer. Like any plain peer, it has answered the opening PING.
pub async fn peer_of_channel(builder: ChannelBuilder) -> (TestClient, Peer) {
    let (theirs, mut peer) = peer();
    (attach_to_peer(builder, theirs, &mut peer).await, peer)
}

/// Returns a client of this peer. Like any plain peer, it answers the opening PING.
pub async fn attach_to_peer(builder: ChannelBuilder, theirs: DuplexStream, peer: &mut Peer) -> TestClient {
    let mut attaching = pin!(builder.attach(theirs));
    let channel = tokio::select! {
        channel = &mut attaching => channel,
        () = peer.answer_opening() => attaching.await,
    };
    TestClient::new(channel.unwrap())
}

fn describe(frame: &Frame) -> String {
    let content = match frame.content.first() {
        Some(9) => format!("open {}", Reader::new(&frame.content).u16().unwrap()),
        _ => match codec::decode::<Words>(&frame.content) {
            Ok(DecodedContent::Message(Words { text })) if text.len() <= 20 => text,
            Ok(DecodedContent::Message(Words { text })) => format!("{} letters", text.len()),
            Ok(DecodedContent::Error(failure)) if failure.text == "EOF" => "end".into(),
            Ok(DecodedContent::Error(failure)) => format!("error {} {}", failure.code.unwrap_or(2), failure.text),
            Err(_) => format!("{:x?}", frame.content),
        },
    };
    match frame.kind {
        FrameKind::Application(operation) => format!("{operation} {}: {content}", frame.id),
        _ => format!("stream {}: {content}", frame.id),
    }
}

/// Returns the frame to open a stream for a call.
pub fn open_frame(id: u16, operation: u8) -> Vec<u8> {
    stream_frame(id, [9, operation])
}

/// Encodes a message.
pub fn encoded(text: &str) -> Bytes {
    codec::encode(&words(text))
}

/// Encodes an error in the form of Go peers.
pub fn error(text: &str) -> Bytes {
    codec::encode_error(text, None)
}

/// Returns the content after a stream's last message.
pub fn end() -> Bytes {
    error("EOF")
}

/// Returns a message.
pub fn words(text: impl Into<String>) -> Words {
    Words { text: text.into() }
}

/// Returns a stream with one message per word, all immediately available.
pub fn stream_of(text: &str) -> Streaming<Words> {
    text.split_whitespace().map(words).collect()
}

/// Returns all messages of a stream, or the status at its end.
pub async fn all(stream: Response<Streaming<Words>>) -> Result<Vec<String>, Status> {
    let (mut stream, mut texts) = (stream.into_inner(), Vec::new());
    while let Some(Words { text }) = stream.message().await? {
        texts.push(text);
    }
    Ok(texts)
}

/// Returns the next message of a stream. Panics if there is none.
pub async fn next(stream: &mut Streaming<Words>) -> String {
    stream.message().await.unwrap().expect("there is another message").text
}

/// Makes a call of each kind with the same text and returns all results.
pub async fn each_kind(client: &TestClient, text: &str) -> [Result<String, Status>; 4] {
    [
        of_kind(client, 0, text).await,
        of_kind(client, 1, text).await,
        of_kind(client, 2, text).await,
        of_kind(client, 3, text).await,
    ]
}

/// Returns all messages of a stream as one text.
pub async fn joined(stream: Result<Response<Streaming<Words>>, Status>) -> Result<String, Status> {
    all(stream?).await.map(|texts| texts.join(" "))
}

/// Makes a call of one of the four kinds.
pub async fn of_kind(client: &TestClient, kind: usize, text: &str) -> Result<String, Status> {
    let answer = |answer: Result<Response<Words>, Status>| answer.map(|answer| answer.into_inner().text);
    match kind {
        0 => answer(client.say(words(text)).await),
        1 => joined(client.count(words(text)).await).await,
        2 => answer(client.gather(Streaming::from_iter([words(text)])).await),
        _ => joined(client.chat(Streaming::from_iter([words(text)])).await).await,
    }
}

/// Makes a unary call.
pub async fn ask(client: &TestClient, text: &str) -> Result<String, Status> {
    client.say(words(text)).await.map(|answer| answer.into_inner().text)
}

/// Starts a unary call in the background.
pub fn asking(client: &TestClient, text: &str) -> tokio::task::JoinHandle<Result<String, Status>> {
    let (client, text) = (client.clone(), text.to_owned());
    tokio::spawn(async move { ask(&client, &text).await })
}

/// Returns `true` if the request of a call with a lost connection may have been executed.
#[track_caller]
pub fn may_have_executed(status: &Status) -> bool {
    match status.call_error() {
        Some(CallError::ConnectionLost { may_have_executed, .. }) => {
            assert_eq!(status.code(), Code::Unavailable);
            *may_have_executed
        }
        _ => panic!("{status} instead of a lost connection"),
    }
}

/// Returns a server of the service, without a listener and without timers.
pub fn serve(service: &TestService) -> Server {
    Server::builder().config(quiet()).add_service(TestServer::new(service.clone())).without_listener().unwrap()
}

/// Returns a client of this server, without timers.
pub async fn connect(server: &Server) -> TestClient {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    TestClient::new(quiet_channel().attach(ours).await.unwrap())
}

/// Returns a client of this server limited to the plain protocol, like Go peers.
pub async fn connect_plainly(server: &Server) -> TestClient {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    TestClient::new(quiet_channel().config(plain()).attach(ours).await.unwrap())
}

/// Returns a service, its server and a client.
pub async fn serve_and_connect() -> (TestService, Server, TestClient) {
    let service = TestService::default();
    let server = serve(&service);
    let client = connect(&server).await;
    (service, server, client)
}

/// Returns a channel builder without timers.
pub fn quiet_channel() -> ChannelBuilder {
    Channel::builder().config(quiet())
}

/// Returns a configuration without timers.
pub fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, ..Config::default() }
}

/// Returns a configuration without timers, limited to the plain protocol, like Go peers.
pub fn plain() -> Config {
    Config { extended: false, ..quiet() }
}

/// Returns the only connection of a server.
pub async fn only_connection(server: &Server) -> Connection {
    settle().await;
    let connections = server.connections();
    assert_eq!(connections.len(), 1);
    connections[0].clone()
}

/// Returns an unused in-memory address.
pub fn unused_address() -> Address {
    static MADE: AtomicU32 = AtomicU32::new(0);
    Address::Mem(format!("calls-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed)))
}

/// Returns a packet of an operation outside of RPC.
pub fn own_packet(id: u16, content: &'static str) -> Packet {
    Packet::new(id, OWN, content)
}

/// The unary method.
pub const SAY: u16 = 10;
/// The method with a response stream.
pub const COUNT: u8 = 11;
/// The method with a request stream.
pub const GATHER: u8 = 12;
/// The method with streams in both directions.
pub const CHAT: u8 = 13;
/// An operation without a method.
pub const OWN: Operation = Operation::new(1000).expect("not reserved");
