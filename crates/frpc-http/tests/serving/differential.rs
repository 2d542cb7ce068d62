//! The same random requests to our HTTP/2 and to the HTTP/2 of hyper, with equal responses.

use std::{collections::BTreeMap, convert::Infallible, fmt::Debug, io::Write};

use axum::Router;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use frpc::{Server, Services};
use frpc_http::{Cors, Http, HttpSettings, Mount, MountContext};
use futures_util::future::{BoxFuture, FutureExt};
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

const HEADERS: [(&str, &str); 28] = [
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
    ("origin", "https://other.example.com"),
    ("access-control-request-method", "POST"),
    ("access-control-request-method", "GET"),
    ("access-control-request-headers", "content-type, x-meta"),
    ("access-control-request-private-network", "true"),
    ("cookie", "a=b"),
    ("cookie", "c=d"),
    ("accept", "text/html"),
    ("x-empty", ""),
    ("authorization", "Bearer x"),
];

/// A mount whose response the query describes: status, length and headers.
struct Described;

impl Mount for Described {
    fn respond<'a>(&'a self, visit: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            let mut words = request.uri().query().unwrap_or("200&0&").split('&');
            let mut word = || words.next().unwrap_or_default();
            let (status, len) = (word().parse().unwrap_or(StatusCode::OK), word().parse().unwrap_or(0));
            let mut response = Response::builder().status(status);
            for header in word().split(';').filter(|header| !header.is_empty()) {
                let (name, value) = header.split_once(':').unwrap();
                response = response.header(name, value);
            }
            // Everything that the mount learns is a part of the comparison.
            let seen = format!(
                "{} {} {:?} {} {:?} ",
                request.method(),
                request.uri(),
                request.headers().get("x-meta"),
                request.body().len(),
                (visit.time, visit.metadata.get("x-meta")),
            );
            let mut body = if len == 0 { Vec::new() } else { seen.into_bytes() };
            body.resize(len, b'.');
            response.body(body.into()).unwrap()
        }
        .boxed()
    }
}

/// Lengths of bodies around those of frames, windows and copied pieces.
const LENS: [usize; 12] = [0, 0, 1, 100, 4095, 4096, 16_383, 16_384, 16_385, 65_536, 200_000, 1_100_000];

const STATUSES: [u16; 10] = [200, 200, 200, 201, 204, 205, 304, 404, 500, 599];

const MOUNT_HEADERS: [&str; 12] = [
    "",
    "",
    "x-meta:one",
    "set-cookie:a=b;set-cookie:c=d",
    "connection:close",
    "keep-alive:timeout=5",
    "proxy-connection:close",
    "upgrade:websocket",
    "transfer-encoding:chunked",
    "date:Thu, 01 Jan 1970 00.00.00 GMT",
    "server:test;vary:origin",
    "content-type:text/html;etag:\"7\"",
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
        let target = Self::target(random);
        let body = if target.starts_with("/mounted") && random.is_one_of(2) {
            vec![b'm'; random.pick(&LENS)]
        } else {
            Self::body(random, &mut headers, content_type)
        };
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
        Self { method, target, headers, pieces, trailers }
    }

    fn target(random: &mut Random) -> String {
        let method = random.pick(&["Say", "Say", "Look", "Count", "Gather", "Chat", "None"]);
        match random.below(16) {
            12..=14 => {
                let (status, len, headers) = (random.pick(&STATUSES), random.pick(&LENS), random.pick(&MOUNT_HEADERS));
                let headers = headers.replace(' ', "+").replace('"', "%22");
                format!("/mounted?{status}&{len}&{headers}")
            }
            15 => {
                random.pick(&["/mounted", "/mounted/", "/mounted/more", "/Mounted", "/mounte", "//mounted"]).to_owned()
            }
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
        if self.method == Method::POST {
            // Caches store no responses to POST, so calls without an origin need no `vary`.
            reply.headers.remove(header::VARY);
        }
        if [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&reply.status) {
            // hyper sends the body of a mount with a status that has none.
            reply.headers.remove(header::CONTENT_LENGTH);
            reply.body.clear();
        }
        Ok(reply)
    }
}

/// Returns everything that counts in a response. The order of different headers does not.
fn content(reply: &Result<Reply, Option<Reason>>) -> impl PartialEq + Debug {
    let headers = |headers: &HeaderMap| {
        let all = |name| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        headers.keys().map(|name| (name.as_str().to_owned(), all(name))).collect::<BTreeMap<_, _>>()
    };
    reply
        .as_ref()
        .map(|reply| (reply.status, headers(&reply.headers), reply.body.clone(), reply.trailers.as_ref().map(headers)))
        .map_err(|reason| *reason)
}

/// Returns the wire of a test: with and without mounts and CORS.
fn http(seed: u64) -> Http {
    let settings =
        HttpSettings { page: true, send_compressed: true, message_len_max: 1 << 20, ..HttpSettings::default() };
    let http = Http::new().settings(settings);
    let http = if seed.is_multiple_of(4) { http } else { http.mount("/mounted", Described) };
    if seed.is_multiple_of(3) { http } else { http.cors(Cors::origins(["https://shop.example.com"])) }
}

/// Connects to the services, served by hyper. In every other test, they are the fallback of an axum application.
async fn by_hyper(seed: u64) -> H2Caller {
    let service = http(seed).into_service(Services::new().add_service(Probe)).unwrap();
    let (ours, theirs) = duplex(64 * 1024);
    let app: Router = Router::new().fallback_service(service.clone());
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (service, app) = (service.clone(), app.clone());
        async move {
            Ok::<Response<_>, Infallible>(match seed.is_multiple_of(2) {
                true => app.oneshot(request).await.unwrap(),
                false => service.oneshot(request).await.unwrap().map(axum::body::Body::new),
            })
        }
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
        let mut differences = Vec::new();
        let mut statuses = BTreeMap::<StatusCode, usize>::new();
        for seed in 1..=60_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let services = Server::builder().config(quiet()).wire(http(seed)).add_service(Probe);
            let server = services.without_listener().unwrap();
            let (own, other) = (H2Caller::connect(&server).await, by_hyper(seed).await);
            for _ in 0..25 {
                let asked = Asked::random(&mut random);
                let (own, other) = (asked.ask(&own).await, asked.ask(&other).await);
                if let Ok(reply) = &own {
                    *statuses.entry(reply.status).or_default() += 1;
                }
                if content(&own) != content(&other) {
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
