//! The same random requests to our HTTP/2 and to the HTTP/2 of hyper, with equal responses.

use std::{convert::Infallible, io::Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use frpc::{Server, Services};
use frpc_http::{Http, HttpSettings};
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use support::{calls::quiet, in_virtual_time};
use tokio::{io::duplex, task::yield_now};
use tower::ServiceExt;

use crate::{
    h2_caller::{H2Caller, Reply, frame},
    probe::Probe,
};

struct Random(u64);

impl Random {
    fn below(&mut self, max: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % max
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn is_one_of(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Debug)]
struct Asked {
    method: Method,
    target: String,
    headers: HeaderMap,
    /// The body in the pieces of the caller.
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

const CONTENT_TYPES: [&str; 16] = [
    "application/grpc",
    "application/grpc",
    "application/grpc+proto",
    "application/grpc+json",
    "application/grpc+other",
    "application/grpc-web",
    "application/grpc-web+json",
    "application/grpc-web-text",
    "application/proto",
    "application/json",
    "application/json; charset=utf-8",
    "application/connect+proto",
    "application/connect+json",
    "application/protobuf",
    "text/plain",
    "",
];

const TEXTS: [&str; 9] = ["hi", "a b c", "", "fail", "format", "metadata", "time", "a fail b", "\"quoted\""];

const HEADERS: [(&str, &str); 24] = [
    ("te", "trailers"),
    ("grpc-timeout", "5S"),
    ("grpc-timeout", "5000000u"),
    ("grpc-timeout", "soon"),
    ("connect-timeout-ms", "5000"),
    ("connect-timeout-ms", "-1"),
    ("connect-protocol-version", "1"),
    ("connect-protocol-version", "2"),
    ("grpc-accept-encoding", "gzip"),
    ("accept-encoding", "gzip"),
    ("connect-accept-encoding", "gzip"),
    ("x-meta", "one"),
    ("x-meta", "two"),
    ("x-bytes-bin", "/wA"),
    ("x-bytes-bin", "!"),
    ("user-agent", "differential"),
    ("expect", "100-continue"),
    ("origin", "https://shop.example.com"),
    ("access-control-request-method", "POST"),
    ("cookie", "a=b"),
    ("cookie", "c=d"),
    ("accept", "text/html"),
    ("x-empty", ""),
    ("authorization", "Bearer x"),
];

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

impl Asked {
    fn random(random: &mut Random) -> Self {
        let methods = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
        let method = if random.is_one_of(5) { random.pick(&methods) } else { Method::POST };
        let mut headers = HeaderMap::new();
        let content_type = random.pick(&CONTENT_TYPES);
        if !content_type.is_empty() || random.is_one_of(2) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for _ in 0..random.below(4) {
            let (name, value) = random.pick(&HEADERS);
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let body = Self::body(random, &mut headers, content_type);
        if random.is_one_of(3) {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        let mut pieces = Vec::new();
        let mut rest = Bytes::from(body);
        while !rest.is_empty() {
            let len = if random.is_one_of(2) { rest.len() } else { 1 + random.below(rest.len()) };
            pieces.push(rest.split_to(len));
        }
        let trailers = random.is_one_of(8).then(|| {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("7"));
            trailers
        });
        Self { method, target: Self::target(random), headers, pieces, trailers }
    }

    fn target(random: &mut Random) -> String {
        let method = random.pick(&["Say", "Say", "Look", "Count", "Gather", "Chat", "None"]);
        match random.below(12) {
            0 => format!("/twirp/probe.Probe/{method}"),
            1 => random.pick(&["/", "/nothing", "/probe.Probe", "/probe.Probe/Say/", "/twirp/"]).to_owned(),
            2 => format!("/probe.Probe/{method}?connect=v1&encoding=json&message=%22hi%22"),
            3 => format!("/probe.Probe/{method}?encoding=proto&base64=1&message=aGk&compression=gzip"),
            _ => format!("/probe.Probe/{method}"),
        }
    }

    fn body(random: &mut Random, headers: &mut HeaderMap, content_type: &str) -> Vec<u8> {
        let text = |random: &mut Random| match random.below(12) {
            0 => "long ".repeat(random.pick(&[300, 14_000, 60_000])),
            _ => random.pick(&TEXTS).to_owned(),
        };
        let coding = random.pick(&["", "", "", "gzip", "identity", "br"]);
        let is_framed = content_type.contains("grpc") || content_type.contains("connect+");
        if !coding.is_empty() {
            let name = match content_type {
                _ if content_type.contains("grpc") => "grpc-encoding",
                _ if is_framed => "connect-content-encoding",
                _ => "content-encoding",
            };
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(coding));
        }
        let compressed = |random: &mut Random, text: String| match coding {
            "gzip" if !random.is_one_of(8) => gzip(text.as_bytes()),
            _ => text.into_bytes(),
        };
        let mut body = Vec::new();
        if !is_framed {
            let text = text(random);
            body = compressed(random, text);
        } else {
            for _ in 0..random.pick(&[1, 1, 1, 1, 0, 2, 5]) {
                let (text, is_compressed) = (text(random), !coding.is_empty() && random.is_one_of(2));
                let content = if is_compressed { compressed(random, text) } else { text.into_bytes() };
                body.extend(frame(u8::from(is_compressed), &content));
            }
            if content_type.contains("connect+") && random.is_one_of(2) {
                body.extend(frame(2, b"{}"));
            }
        }
        if random.is_one_of(16) {
            body.truncate(random.below(body.len() + 1));
        }
        body
    }

    /// Makes the request. Returns the response, or the reason of a reset.
    async fn ask(&self, caller: &H2Caller) -> Result<Reply, Option<Reason>> {
        let mut request = Request::builder().method(self.method.clone()).uri(format!("http://test{}", self.target));
        *request.headers_mut().unwrap() = self.headers.clone();
        let is_whole = self.pieces.is_empty() && self.trailers.is_none();
        let mut sender = caller.0.clone().ready().await.unwrap();
        let (response, mut sending) = sender.send_request(request.body(()).unwrap(), is_whole).unwrap();
        for (index, piece) in self.pieces.iter().enumerate() {
            let is_end = index + 1 == self.pieces.len() && self.trailers.is_none();
            // The server may have answered already.
            let _ = sending.send_data(piece.clone(), is_end);
            yield_now().await;
        }
        if let Some(trailers) = &self.trailers {
            let _ = sending.send_trailers(trailers.clone());
        }
        let response = response.await.map_err(|error| error.reason())?;
        let mut reply = Reply::read(response).await;
        reply.headers.remove(header::DATE);
        Ok(reply)
    }
}

fn http() -> Http {
    Http::new().settings(HttpSettings { page: true, send_compressed: true, ..HttpSettings::default() })
}

/// Connects to the services, served by hyper.
async fn by_hyper() -> H2Caller {
    let service = http().into_service(Services::new().add_service(Probe)).unwrap();
    let (ours, theirs) = duplex(64 * 1024);
    let service = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<Response<_>, Infallible>(service.oneshot(request).await.unwrap()) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(theirs), service);
    tokio::spawn(connection);
    H2Caller::over(ours).await
}

#[test]
fn responses_are_those_of_hyper() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).wire(http()).add_service(Probe).without_listener().unwrap();
        let mut differences = Vec::new();
        let mut statuses = std::collections::BTreeMap::<StatusCode, usize>::new();
        for seed in 1..=40_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let (own, other) = (H2Caller::connect(&server).await, by_hyper().await);
            for _ in 0..25 {
                let asked = Asked::random(&mut random);
                let (own, other) = (asked.ask(&own).await, asked.ask(&other).await);
                if let Ok(reply) = &own {
                    *statuses.entry(reply.status).or_default() += 1;
                }
                if format!("{own:?}") != format!("{other:?}") {
                    differences.push(format!("{asked:.300?}\n{own:.300?}\n{other:.300?}"));
                }
            }
        }
        assert!(
            differences.is_empty(),
            "{}: {}",
            differences.len(),
            differences[..differences.len().min(12)].join("\n\n")
        );
        // The requests reach all parts of the services.
        assert!(statuses.len() >= 6 && statuses[&StatusCode::OK] > 400, "{statuses:?}");
    });
}
