//! Runs the framings of HTTP and an HTTP server on any input. The result does not depend on the boundaries of chunks,
//! headers round-trip, and connections end without a panic.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc::{
    Config, Server,
    generated::{Answer, Call, Method, Service, Status},
};
use frpc_http::{Cors, Http, HttpSettings, fuzzing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::timeout,
};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Frames { bytes: &'a [u8], cuts: Vec<u8>, len_max: u8 },
    Text { bytes: &'a [u8], cuts: Vec<u8> },
    Gzip { bytes: &'a [u8], len_max: u16 },
    Headers(Vec<(&'a [u8], &'a [u8])>),
    Value(&'a [u8]),
    Status(&'a [u8]),
    Similar { fields: Vec<Field<'a>>, later: Vec<Field<'a>> },
    Any(&'a [u8]),
    Http1(Vec<Request<'a>>),
    Http2(Vec<Frame<'a>>),
}

/// A mostly valid HTTP/1.1 request.
#[derive(Arbitrary, Debug)]
struct Request<'a> {
    method: u8,
    kind: u8,
    path: u8,
    line: &'a str,
    body: &'a [u8],
}

/// An HTTP/2 frame, mostly on one of a few streams.
#[derive(Arbitrary, Debug)]
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u8,
    /// The head of a call, instead of the payload.
    call: Option<(u8, u8)>,
    payload: &'a [u8],
}

/// A field of a gRPC request.
#[derive(Arbitrary, Debug)]
struct Field<'a> {
    name: u8,
    value: &'a [u8],
    /// A valid value of the timeout or of the trace context, instead of `value`.
    valid: Option<u8>,
}

const FIELDS: [&str; 10] = [
    "traceparent",
    "tracestate",
    "grpc-timeout",
    "x-a",
    "x-a-bin",
    "user-agent",
    "grpc-encoding",
    "grpc-accept-encoding",
    "content-type",
    "te",
];

const VALUES: [&str; 8] = [
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "rojo=00f067aa0ba902b7",
    "10S",
    "0S",
    "99999999H",
    "identity",
    "gzip",
    "trailers",
];

const METHODS: [&str; 5] = ["POST", "GET", "OPTIONS", "PUT", "HEAD"];

const KINDS: [&str; 10] = [
    "application/grpc",
    "application/grpc-web",
    "application/grpc-web-text",
    "application/grpc+json",
    "application/json",
    "application/proto",
    "application/protobuf",
    "application/connect+proto",
    "application/connect+json",
    "text/plain",
];

const PATHS: [&str; 7] = [
    "/echo.Echo/Say",
    "/echo.Echo/Chat",
    "/echo.Echo/Count",
    "/echo.Echo/Gather",
    "/twirp/echo.Echo/Say",
    "/echo.Echo/Say?connect=v1&encoding=proto&base64=1&message=AAEC",
    "/",
];

fn pick<'a>(choices: &[&'a str], index: u8) -> &'a str {
    choices[usize::from(index) % choices.len()]
}

impl Request<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (method, path, kind) = (pick(&METHODS, self.method), pick(&PATHS, self.path), pick(&KINDS, self.kind));
        let (line, len) = (self.line, self.body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\ncontent-type: {kind}\r\n{line}\r\ncontent-length: {len}\r\n\r\n");
        [head.as_bytes(), self.body].concat()
    }
}

impl Frame<'_> {
    fn bytes(&self) -> Vec<u8> {
        let call;
        let payload = match self.call {
            None => self.payload,
            Some((path, kind)) => {
                call = head(pick(&PATHS, path), pick(&KINDS, kind));
                &call
            }
        };
        let len = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        let stream = u32::from(self.stream % 8).to_be_bytes();
        [&len[1..], &[self.kind % 11, self.flags], &stream, payload].concat()
    }
}

/// Returns the head of a call with these fields.
fn grpc_head<'a>(fields: &'a [Field<'a>]) -> Vec<(&'static str, &'a [u8])> {
    let start: [(&str, &[u8]); 5] = [
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", b"/echo.Echo/Say"),
        (":authority", b"a"),
        ("content-type", b"application/grpc"),
    ];
    let fields = fields.iter().map(|Field { name, value, valid }| {
        (pick(&FIELDS, *name), valid.map_or(*value, |valid| pick(&VALUES, valid).as_bytes()))
    });
    start.into_iter().chain(fields).collect()
}

/// Returns the encoded headers of a request, as literals outside the dynamic table.
fn head(path: &str, kind: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("it is short")][..], text.as_bytes()].concat();
    let headers = [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", kind)];
    headers.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn cut<'a>(mut bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for cut in cuts {
        let (chunk, rest) = bytes.split_at(usize::from(*cut).min(bytes.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks.push(bytes);
    chunks
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Frames { bytes, cuts, len_max } => {
        let len_max = len_max.into();
        assert_eq!(fuzzing::frames(cut(bytes, &cuts), len_max), fuzzing::frames([bytes], len_max));
    }
    Input::Text { bytes, cuts } => assert_eq!(fuzzing::text(cut(bytes, &cuts)), fuzzing::text([bytes])),
    Input::Gzip { bytes, len_max } => fuzzing::inflate(bytes, len_max.into()),
    Input::Headers(lines) => fuzzing::headers(lines),
    Input::Value(bytes) => fuzzing::value(bytes),
    Input::Status(bytes) => fuzzing::statuses(bytes),
    Input::Similar { fields, later } => {
        // Both heads differ by the last fields only.
        let (first, all) = (grpc_head(&fields), grpc_head(&later));
        let second = [&first[..], &all[5..]].concat();
        fuzzing::similar_heads(&first, &second);
        fuzzing::similar_heads(&second, &first);
        fuzzing::similar_heads(&first, &all);
    }
    Input::Any(bytes) => serve(bytes),
    Input::Http1(requests) => serve(&requests.iter().flat_map(Request::bytes).collect::<Vec<_>>()),
    Input::Http2(frames) => {
        let frames: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        serve(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", &frames[..]].concat());
    }
});

/// A service echoing its requests.
struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo.Echo";
    const METHODS: &'static [Method] = &[
        Method::unary("echo.Echo", "Say", 10),
        Method::bidirectional("echo.Echo", "Chat", 11),
        Method::server_streaming("echo.Echo", "Count", 12),
        Method::client_streaming("echo.Echo", "Gather", 13),
    ];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        Ok(Answer::new(call.into_parts().1))
    }
}

fn serve(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("it can be made").block_on(async {
        let http = Http::new()
            .settings(HttpSettings { message_len_max: 300, page: true, ..HttpSettings::default() })
            .cors(Cors::any_origin());
        let server = Server::builder().config(Config::default()).wire(http).add_service(Echo);
        let server = server.without_listener().expect("nothing is wrong with it");
        let (mut ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let (mut reader, mut writer) = tokio::io::split(&mut ours);
        let (mut heard, talking) = (Vec::new(), async {
            // The server may close the connection early.
            let _ = writer.write_all(bytes).await;
            let _ = writer.shutdown().await;
        });
        let ended = timeout(Duration::from_secs(3600), async { tokio::join!(reader.read_to_end(&mut heard), talking) });
        let (_ended_or_cut, ()) = ended.await.expect("a connection whose peer has said all ends");
        assert_eq!(server.shutdown(Duration::from_secs(60)).await, 0);
    });
}
