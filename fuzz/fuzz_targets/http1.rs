//! HTTP/1.1 served by our own code and by hyper. Both give the same responses to the same bytes, for any split.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc::{
    Server,
    generated::{Answer, Call, Method, Service, Status},
};
use frpc_http::{Http, HttpSettings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::{Builder, Runtime},
    task::yield_now,
    time::timeout,
};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    cuts: Vec<u8>,
    requests: Vec<Request<'a>>,
    after: &'a [u8],
}

/// A request with a few lines of a real one, or any bytes.
#[derive(Arbitrary, Debug)]
enum Request<'a> {
    Any(&'a [u8]),
    Made { method: u8, path: u8, lines: Vec<Line<'a>>, body: &'a [u8], len: Option<u8> },
}

#[derive(Arbitrary, Debug)]
enum Line<'a> {
    Known(u8),
    Any(&'a [u8]),
}

const METHODS: [&str; 6] = ["POST", "GET", "GET", "HEAD", "PUT", "OPTIONS"];

const PATHS: [&str; 6] =
    ["/echo.Echo/Say", "/", "/echo.Echo/None", "/twirp/echo.Echo/Say", "/echo.Echo/Say?x", "/none"];

const LINES: [&str; 20] = [
    "host: a",
    "Host: a:80",
    "content-type: application/json",
    "content-type: application/proto",
    "content-type: application/grpc-web+proto",
    "connection: keep-alive",
    "connection: close",
    "Connection: Close",
    "connection: upgrade",
    "content-length: 3",
    "content-length: 0",
    "transfer-encoding: chunked",
    "expect: 100-continue",
    "upgrade: h2c",
    "connect-timeout-ms: 0",
    "connect-timeout-ms: 1000",
    "accept-encoding: gzip",
    "content-encoding: gzip",
    "x: 1",
    "host: b",
];

impl Request<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        let Self::Made { method, path, lines, body, len } = self else {
            let Self::Any(bytes) = self else { return };
            return out.extend_from_slice(bytes);
        };
        let pick = |choices: &[&'static str], index: u8| choices[usize::from(index) % choices.len()];
        let (method, path) = (pick(&METHODS, *method), pick(&PATHS, *path));
        out.extend_from_slice(format!("{method} {path} HTTP/1.1\r\n").as_bytes());
        for line in lines {
            out.extend_from_slice(match line {
                Line::Known(index) => pick(&LINES, *index).as_bytes(),
                Line::Any(bytes) => bytes,
            });
            out.extend_from_slice(b"\r\n");
        }
        let len = len.map_or(body.len(), usize::from);
        out.extend_from_slice(format!("content-length: {len}\r\n\r\n").as_bytes());
        out.extend_from_slice(body);
    }
}

/// A service echoing its requests.
struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo.Echo";
    const METHODS: &'static [Method] = &[Method::unary("echo.Echo", "Say", 10)];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        Ok(Answer::new(call.into_parts().1))
    }
}

fuzz_target!(|input: Input<'_>| {
    let mut bytes = Vec::new();
    input.requests.iter().for_each(|request| request.put(&mut bytes));
    bytes.extend_from_slice(input.after);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("it can be made");
    let plain = after_first(PLAIN, &bytes, |bytes| heard(&runtime, bytes, &input.cuts));
    let by_hyper = after_first(OTHER, &bytes, |bytes| heard(&runtime, bytes, &[]));
    assert_eq!(lines(&plain), lines(&by_hyper));
});

/// A request that our own code serves. It also shows the server that the connection is HTTP/1.1.
const PLAIN: &str = "GET /none HTTP/1.1\r\nhost: a\r\n\r\n";
/// A request that is left to hyper, with the rest of the connection.
const OTHER: &str = "PUT /none HTTP/1.1\r\nhost: a\r\n\r\n";

/// Returns the responses after the response to the first request.
fn after_first(first: &str, bytes: &[u8], ask: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut heard = ask(&[first.as_bytes(), bytes].concat());
    let head_len = 4 + heard.windows(4).position(|end| end == b"\r\n\r\n").expect("the first request is answered");
    let head = str::from_utf8(&heard[..head_len]).expect("it is ours");
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("it has a body");
    heard.split_off(head_len + len.parse::<usize>().expect("it is a number"))
}

/// Returns the lines of responses, with the headers in order. Leaves out the date, the end of the connection, which shows
/// itself, and the reasons of statuses, which hyper invents for unknown ones.
fn lines(heard: &[u8]) -> Vec<String> {
    let text = heard.escape_ascii().to_string().replace("HTTP/1.1 ", "\\r\\n\\r\\nHTTP/1.1 ");
    let mut lines = Vec::new();
    for line in text.split("\\r\\n") {
        match line.get(..STATUS_LEN) {
            Some(status) if status.starts_with("HTTP/1.1 ") => lines.push(status.to_owned()),
            _ if line.starts_with("date: ") || line == "connection: close" => {}
            _ => lines.push(line.to_owned()),
        }
    }
    // Only if it has written everything before, hyper answers an invalid head before it closes the connection.
    if lines.ends_with(&["HTTP/1.1 400", "content-length: 0", "", ""].map(str::to_owned)) {
        lines.truncate(lines.len() - 4);
    }
    for head in lines.split_mut(String::is_empty) {
        head.sort_unstable();
    }
    lines.retain(|line| !line.is_empty());
    lines
}

const STATUS_LEN: usize = "HTTP/1.1 200".len();

/// Returns the responses to these bytes.
fn heard(runtime: &Runtime, bytes: &[u8], cuts: &[u8]) -> Vec<u8> {
    runtime.block_on(async {
        let http = Http::new().settings(HttpSettings { message_len_max: 300, page: true, ..HttpSettings::default() });
        let server = Server::builder().wire(http).add_service(Echo).without_listener().expect("nothing is wrong");
        let (mut ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let (mut reader, mut writer) = tokio::io::split(&mut ours);
        let mut heard = Vec::new();
        let talking = async {
            let mut rest = bytes;
            for cut in cuts {
                let (piece, after) = rest.split_at(usize::from(*cut).min(rest.len()));
                // The server may close the connection early.
                let _ = writer.write_all(piece).await;
                for _ in 0..4 {
                    yield_now().await;
                }
                rest = after;
            }
            let _ = writer.write_all(rest).await;
            let _ = writer.shutdown().await;
        };
        let ended = timeout(Duration::from_secs(3600), async { tokio::join!(reader.read_to_end(&mut heard), talking) });
        let (_ended_or_cut, ()) = ended.await.expect("a connection whose peer has said all ends");
        assert_eq!(server.shutdown(Duration::from_secs(60)).await, 0);
        heard
    })
}
