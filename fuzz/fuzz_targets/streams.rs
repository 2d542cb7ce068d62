//! Sends any content on the stream of a call. The caller receives exactly what the framing defines, and the server
//! answers later calls.
#![no_main]

use std::future::Future;

use arbitrary::Arbitrary;
use bytes::{Bytes, BytesMut};
use frisbee::proto::{Decoder, FrameKind, Header, HeaderFormat};
use frisbee_fuzz::fuzz_target;
use frpc::{
    Answer, Call, Channel, Code, Config, Method, Request, Response, Server, Service, Status, Streaming,
    codec::{self, DecodedContent},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime,
    time::{Duration, timeout},
};

#[allow(dead_code, reason = "more is generated than is used here")]
mod vectors {
    frpc::include_proto!("vectors");
}

use vectors::Text;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Packets of the server on the stream of a call.
    answers: Vec<Said<'a>>,
    /// Packets of a caller, on any stream.
    requests: Vec<(u8, Said<'a>)>,
}

#[derive(Arbitrary, Debug)]
enum Said<'a> {
    Open(u8),
    Message(&'a str),
    Error { text: &'a str, code: Option<u8> },
    End,
    Close,
    Bytes(&'a [u8]),
}

impl Said<'_> {
    fn content(&self) -> Bytes {
        match *self {
            Self::Open(operation) => vec![9, operation].into(),
            Self::Message(text) => codec::encode(&Text { text: text.into() }),
            Self::Error { text, code } => codec::encode_error(text, code),
            Self::End => codec::encode_error("EOF", None),
            Self::Close => Bytes::new(),
            Self::Bytes(bytes) => Bytes::copy_from_slice(bytes),
        }
    }
}

fuzz_target!(|input: Input| {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime needs nothing");
    runtime.block_on(async {
        within(hear(&input.answers)).await;
        within(serve(&input.requests)).await;
    });
});

async fn within(work: impl Future<Output = ()>) {
    timeout(Duration::from_secs(4), work).await.expect("nothing hangs");
}

/// Checks that a caller receives all data up to the end, whatever the end is.
async fn hear(said: &[Said<'_>]) {
    let contents: Vec<Bytes> = said.iter().map(Said::content).collect();
    let (ours, mut theirs) = duplex(ROOM);
    let channel = Channel::builder().config(quiet()).attach(ours).await.expect("a stream is there");
    let requests = Streaming::<Text>::from_iter([]);
    let answers = channel.bidirectional::<Text, Text>(&METHODS[3], requests).await.expect("the stream opens");
    let mut answers = answers.into_inner();
    theirs.write_all(&frames(contents.iter().map(|content| (1, content)))).await.expect("there is room");
    theirs.shutdown().await.expect("it can be shut");
    for content in &contents {
        let expected = match codec::decode::<Text>(content) {
            _ if content.is_empty() => Err(Code::Cancelled),
            _ if content.starts_with(&END) => return assert_eq!(next(&mut answers).await, Ok(None)),
            Ok(DecodedContent::Message(message)) => Ok(Some(message)),
            Ok(DecodedContent::Error(failure)) => Err(Status::from(failure).code()),
            Err(_) => Err(Code::Internal),
        };
        assert_eq!(next(&mut answers).await, expected);
        if content.is_empty() {
            return assert_eq!(next(&mut answers).await, Ok(None));
        }
    }
    assert_eq!(next(&mut answers).await, Err(Code::Unavailable), "the connection ended first");
}

async fn next(answers: &mut Streaming<Text>) -> Result<Option<Text>, Code> {
    answers.message().await.map_err(|status| status.code())
}

/// Checks that the server answers a further call after any input.
async fn serve(said: &[(u8, Said<'_>)]) {
    let contents: Vec<(u16, Bytes)> = said.iter().map(|(id, said)| ((*id % 8).into(), said.content())).collect();
    let server = Server::builder().config(quiet()).add_service(Echo).without_listener().expect("the settings are good");
    let (mut ours, theirs) = duplex(ROOM);
    server.attach(theirs);
    let mut bytes = frames(contents.iter().map(|(id, content)| (*id, content)));
    let question = codec::encode(&Text { text: "still there".into() });
    encode(&mut bytes, 7, SAY, &question);
    ours.write_all(&bytes).await.expect("there is room");
    let (mut decoder, mut inbox) = (Decoder::new(None, u32::MAX), BytesMut::new());
    loop {
        while let Some(frame) = decoder.decode(&mut inbox).expect("only whole frames are written") {
            if let FrameKind::Application(_) = frame.kind {
                return assert_eq!((frame.id, frame.content), (7, question));
            }
        }
        assert!(ours.read_buf(&mut inbox).await.expect("it can be read") > 0, "the connection goes on");
    }
}

/// A service echoing its requests, with a method of each kind.
struct Echo;

impl Service for Echo {
    const NAME: &'static str = "Echo";
    const METHODS: &'static [Method] = &METHODS;

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        match call.method().operation {
            SAY => call.unary(async |request: Request<Text>| Ok(Response::new(request.into_inner()))).await,
            COUNT => call.server_streaming(count).await,
            GATHER => call.client_streaming(gather).await,
            CHAT => call.bidirectional(chat).await,
            _ => call.unknown(),
        }
    }
}

async fn count(request: Request<Text>) -> Result<Response<Streaming<Text>>, Status> {
    Ok(Streaming::from_iter([request.into_inner()]).into())
}

async fn gather(request: Request<Streaming<Text>>) -> Result<Response<Text>, Status> {
    let (mut texts, mut all) = (request.into_inner(), String::new());
    while let Some(Text { text }) = texts.message().await? {
        all.push_str(&text);
    }
    Ok(Text { text: all }.into())
}

async fn chat(request: Request<Streaming<Text>>) -> Result<Response<Streaming<Text>>, Status> {
    Ok(request.into_inner().into())
}

const SAY: u16 = 10;
const COUNT: u16 = 11;
const GATHER: u16 = 12;
const CHAT: u16 = 13;
const METHODS: [Method; 4] = [
    Method::unary("Echo", "Say", SAY),
    Method::server_streaming("Echo", "Count", COUNT),
    Method::client_streaming("Echo", "Gather", GATHER),
    Method::bidirectional("Echo", "Chat", CHAT),
];
/// Bytes of a connection in flight: more than the frames of the longest input.
const ROOM: usize = 1 << 17;
const STREAM: u16 = 2;
const END: [u8; 7] = [6, 5, 10, 3, b'E', b'O', b'F'];

fn frames<'a>(contents: impl Iterator<Item = (u16, &'a Bytes)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    contents.for_each(|(id, content)| encode(&mut bytes, id, STREAM, content));
    bytes
}

fn encode(bytes: &mut Vec<u8>, id: u16, operation: u16, content: &[u8]) {
    let len = u32::try_from(content.len()).expect("inputs are small");
    Header { id, operation, len }.encode(HeaderFormat::Magic10, bytes);
    bytes.extend_from_slice(content);
}

/// Returns a configuration without timers.
fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, extended: false, ..Config::default() }
}
