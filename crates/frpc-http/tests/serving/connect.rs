//! Connect according to its specification: hand-written requests over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use frpc::{CallSettings, Server, TimeLimits};
use frpc_http::{Cors, Http, HttpSettings};
use http::{Request, StatusCode};
use support::{calls::TestService, in_virtual_time, settle};

use crate::{
    h2_caller::{H2Caller, frame, frames, server},
    http1::{Http1, ask, post, split},
    probe::Probe,
};

fn serve(http: Http) -> Server {
    Server::builder().wire(http).add_service(Probe).without_listener().unwrap()
}

/// The response to an HTTP/1.1 request.
struct Reply {
    status: String,
    head: Vec<String>,
    body: Vec<u8>,
}

impl Reply {
    fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    fn assert_header(&self, line: &str) {
        assert!(self.head.iter().any(|header| header == line), "{line} in {:?}", self.head);
    }

    /// Checks that a header with a list contains these words.
    #[track_caller]
    fn assert_list(&self, name: &str, words: &[&str]) {
        let list = self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let list: Vec<&str> = list.unwrap_or_default().split(", ").collect();
        assert!(words.iter().all(|word| list.contains(word)), "{words:?} in {list:?}");
    }
}

async fn say(server: &Server, request: impl AsRef<[u8]>) -> Reply {
    let (head, body) = split(&ask(server, request).await);
    Reply { status: head[0].clone(), head, body }
}

/// Returns a request with headers, one per line.
fn with(request: Vec<u8>, headers: &str) -> Vec<u8> {
    let line = request.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    let headers = headers.replace('\n', "\r\n");
    [&request[..line], headers.as_bytes(), b"\r\n", &request[line..]].concat()
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").into_bytes()
}

fn unary(text: &str) -> Vec<u8> {
    post("/probe.Probe/Say", "application/proto", text.as_bytes())
}

#[test]
fn a_unary_call_is_an_ordinary_http_request() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (content_type, format) in [
            ("application/proto", "protobuf"),
            ("application/json", "JSON"),
            ("Application/JSON; charset=utf-8", "JSON"),
        ] {
            let reply = say(&server, post("/probe.Probe/Say", content_type, b"format")).await;
            assert_eq!((reply.status.as_str(), reply.text()), ("HTTP/1.1 200 OK", format));
            let media_type = content_type.split(';').next().unwrap().to_lowercase();
            reply.assert_header(&format!("content-type: {media_type}"));
            reply.assert_header(&format!("content-length: {}", format.len()));
        }
        let empty = say(&server, unary("")).await;
        assert_eq!((empty.status.as_str(), empty.text()), ("HTTP/1.1 200 OK", ""));

        let mut caller = H2Caller::connect(&server).await;
        let request = Request::post("http://here/probe.Probe/Say").header("content-type", "application/json");
        let reply = caller.ask(request.body(()).unwrap(), "hi").await;
        assert_eq!((reply.status, &reply.body[..], reply.trailers), (StatusCode::OK, &b"hi"[..], None));
    });
}

#[test]
fn metadata_are_headers_and_trailers_are_prefixed() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let request = with(unary("metadata"), "X-One: a\nx-one: b\nx-Two-Bin: AQI, Aw==,\nconnect-protocol-version: 1");
        let reply = say(&server, request).await;
        let received =
            r#"{"x-one": "a", "x-one": "b", "x-two-bin": b"\x01\x02", "x-two-bin": b"\x03", "x-two-bin": b""}"#;
        assert_eq!(reply.text(), received);
        for line in ["head: 7", "head-bin: /wA", "trailer-tail: 7", "trailer-tail-bin: /wA"] {
            reply.assert_header(line);
        }
        let reply = say(&server, with(unary("metadata"), "x-bin: ?")).await;
        assert_eq!((reply.status.as_str(), reply.text()), BAD_BASE64);
    });
}

const BAD_BASE64: (&str, &str) =
    ("HTTP/1.1 400 Bad Request", r#"{"code":"invalid_argument","message":"the value of x-bin is not base64"}"#);

const FAILURE: &str =
    r#"{"code":"not_found","message":"no \"such\" word","details":[{"type":"probe.Hint","value":"CAE"}]}"#;

#[test]
fn a_failed_unary_call_has_an_http_status_and_a_json_body() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for content_type in ["application/proto", "application/json"] {
            let reply = say(&server, post("/probe.Probe/Say", content_type, b"fail")).await;
            assert_eq!((reply.status.as_str(), reply.text()), ("HTTP/1.1 404 Not Found", FAILURE));
            for line in ["content-type: application/json", "why: 7", "why-bin: /wA"] {
                reply.assert_header(line);
            }
        }
    });
}

#[test]
fn calls_without_side_effects_accept_get() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let gzip = "H4sIAAAAAAAAA8vIBACsKpPYAgAAAA";
        for (query, expected) in [
            ("x=1&encoding=json&message=a%20b+%7B%7d&connect=v1&encoding=proto&utm&&=", "a b {}"),
            ("encoding=json&message=%4", "%4"),
            ("encoding=json&message=%zz%41%", "%zzA%"),
            ("encoding=json&base64=true&message=AQ", "AQ"),
            ("message=format&encoding=json", "JSON"),
            ("connect=v1&base64=1&encoding=proto&message=Zm9ybWF0", "protobuf"),
            ("base64=1&encoding=proto&message=aGk%3D", "hi"),
            ("base64=1&encoding=proto&message=aGk=", "hi"),
            ("base64=1&encoding=proto&message=Pz8_", "???"),
            ("encoding=proto&message=&compression=gzip", ""),
            (&format!("base64=1&compression=gzip&encoding=proto&message={gzip}"), "hi"),
        ] {
            let reply = say(&server, get(&format!("/probe.Probe/Look?{query}"))).await;
            assert_eq!((reply.status.as_str(), reply.text()), ("HTTP/1.1 200 OK", expected), "{query}");
            reply.assert_header("trailer-tail: 7");
        }
        let posted = say(&server, post("/probe.Probe/Look", "application/proto", b"hi")).await;
        assert_eq!(posted.text(), "hi");

        for (query, code, message) in [
            ("encoding=json", "invalid_argument", "the parameter 'message' is missing"),
            (
                "encoding=json&base64=1&message=%3F",
                "invalid_argument",
                "the parameter 'message' is not URL-safe base64",
            ),
            (
                "encoding=json&base64=1&message=Pz8/",
                "invalid_argument",
                "the parameter 'message' is not URL-safe base64",
            ),
            (
                "encoding=json&connect=v2&message=",
                "invalid_argument",
                r#"unsupported Connect protocol version \"v2\": expected \"v1\""#,
            ),
            (
                "encoding=json&compression=br&message=",
                "unimplemented",
                r#"the compression \"br\" is not supported: use gzip or identity"#,
            ),
        ] {
            let reply = say(&server, get(&format!("/probe.Probe/Look?{query}"))).await;
            assert_eq!(reply.text(), format!(r#"{{"code":"{code}","message":"{message}"}}"#), "{query}");
        }
        for query in ["", "message=a", "encoding=xml&message=a"] {
            let reply = say(&server, get(&format!("/probe.Probe/Look?{query}"))).await;
            assert_eq!(reply.status, "HTTP/1.1 415 Unsupported Media Type", "{query}");
        }
    });
}

#[test]
fn invalid_requests_are_rejected_with_an_http_status() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (request, status, header) in [
            (get("/probe.Probe/Say?encoding=json&message=a"), "405 Method Not Allowed", "allow: POST"),
            (get("/probe.Probe/Count?encoding=json&message=a"), "405 Method Not Allowed", "allow: POST"),
            (
                b"DELETE /probe.Probe/Look HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_vec(),
                "405 Method Not Allowed",
                "allow: GET, POST",
            ),
            (
                post("/probe.Probe/Sing", "application/json", b""),
                "404 Not Found",
                "content-type: text/plain; charset=utf-8",
            ),
            (get("/"), "404 Not Found", "content-type: text/plain; charset=utf-8"),
            (
                post("/probe.Probe/Say", "text/plain", b""),
                "415 Unsupported Media Type",
                "accept-post: application/json, application/proto",
            ),
            (
                post("/probe.Probe/Say", "application/connect+proto", b""),
                "415 Unsupported Media Type",
                "accept-post: application/json, application/proto",
            ),
            (
                post("/probe.Probe/Count", "application/proto", b""),
                "415 Unsupported Media Type",
                "accept-post: application/connect+json, application/connect+proto",
            ),
        ] {
            let reply = say(&server, &request).await;
            assert_eq!(reply.status, format!("HTTP/1.1 {status}"), "{}", request.escape_ascii());
            reply.assert_header(header);
        }
        let off = serve(Http::new().settings(HttpSettings { connect: false, ..HttpSettings::default() }));
        assert_eq!(say(&off, unary("hi")).await.status, "HTTP/1.1 415 Unsupported Media Type");
    });
}

#[test]
fn the_protocol_version_header_can_be_required() {
    in_virtual_time(async {
        let (lax, strict) = (
            serve(Http::new()),
            serve(Http::new().settings(HttpSettings { connect_version_required: true, ..HttpSettings::default() })),
        );
        let versioned = with(unary("hi"), "connect-protocol-version: 1");
        for server in [&lax, &strict] {
            assert_eq!(say(server, &versioned).await.text(), "hi");
            let other = say(server, with(unary("hi"), "connect-protocol-version: 2")).await;
            assert_eq!(other.status, "HTTP/1.1 400 Bad Request");
            assert_eq!(say(server, get("/probe.Probe/Look?connect=v1&encoding=json&message=a")).await.text(), "a");
        }
        assert_eq!(say(&lax, unary("hi")).await.text(), "hi");
        for request in [unary("hi"), get("/probe.Probe/Look?encoding=json&message=a")] {
            let reply = say(&strict, request).await;
            assert!(
                reply
                    .text()
                    .starts_with(r#"{"code":"invalid_argument","message":"the Connect protocol version is missing"#)
            );
        }
    });
}

#[test]
fn deadlines_reach_handlers_and_cancel_them() {
    in_virtual_time(async {
        let server = serve(Http::new());
        assert_eq!(say(&server, with(unary("time"), "connect-timeout-ms: 5000")).await.text(), "Some(5s)");
        assert_eq!(say(&server, unary("time")).await.text(), "None");
        let late = say(&server, with(unary("hang"), "connect-timeout-ms: 20")).await;
        assert_eq!(late.status, "HTTP/1.1 504 Gateway Timeout");
        assert!(late.text().starts_with(r#"{"code":"deadline_exceeded""#));
        for value in ["", "-1", "1s", "12345678901"] {
            let reply = say(&server, with(unary("hi"), &format!("connect-timeout-ms: {value}"))).await;
            assert_eq!(reply.status, "HTTP/1.1 400 Bad Request", "{value}");
        }
        let times = TimeLimits { default: Some(Duration::from_secs(1)), ..TimeLimits::default() };
        let server = Server::builder()
            .calls(CallSettings { times, ..CallSettings::default() })
            .wire(Http::new())
            .add_service(Probe)
            .without_listener()
            .unwrap();
        assert_eq!(say(&server, unary("hang")).await.status, "HTTP/1.1 504 Gateway Timeout");
    });
}

#[test]
fn slow_or_truncated_requests_call_no_handler() {
    in_virtual_time(async {
        let server = serve(
            Http::new().settings(HttpSettings { body_time_max: Duration::from_secs(1), ..HttpSettings::default() }),
        );
        let mut slow = Http1::connect(&server);
        let request = unary("hi");
        slow.say(&request[..request.len() - 1]).await;
        let (head, body) = split(&slow.hear_all().await);
        assert_eq!(head[0], "HTTP/1.1 504 Gateway Timeout");
        assert!(body.starts_with(br#"{"code":"deadline_exceeded""#));
    });
}

#[test]
fn messages_above_the_limit_are_refused() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { message_len_max: 8, ..HttpSettings::default() }));
        assert_eq!(say(&server, unary("12345678")).await.text(), "12345678");
        let exhausted = "HTTP/1.1 429 Too Many Requests";
        assert_eq!(say(&server, unary("123456789")).await.status, exhausted);
        let chunked = "POST /probe.Probe/Say HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/proto\r\n\
                       transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n";
        assert_eq!(say(&server, chunked).await.status, exhausted);
        let bomb = gzipped(&[b'0'; 9]);
        let bomb = with(post("/probe.Probe/Say", "application/proto", &bomb), "content-encoding: gzip");
        assert_eq!(
            say(&serve(Http::new().settings(HttpSettings { message_len_max: 8, ..HttpSettings::default() })), &bomb)
                .await
                .status,
            exhausted
        );
        let get = say(&server, get("/probe.Probe/Look?encoding=proto&message=123456789")).await;
        assert_eq!(get.status, exhausted);
    });
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn gunzipped(content: &[u8]) -> String {
    std::io::read_to_string(flate2::read::GzDecoder::new(content)).unwrap()
}

#[test]
fn unary_messages_are_compressed_as_negotiated() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { compression_len_min: 4, ..HttpSettings::default() }));
        let text = "long enough";
        let packed = post("/probe.Probe/Say", "application/proto", &gzipped(text.as_bytes()));
        let reply = say(&server, with(packed.clone(), "content-encoding: gzip")).await;
        reply.assert_header("content-encoding: gzip");
        assert_eq!(gunzipped(&reply.body), text, "a caller that says nothing accepts what it sends");
        let reply = say(&server, with(packed, "content-encoding: gzip\naccept-encoding: br")).await;
        assert_eq!(reply.text(), text);
        let reply = say(&server, with(unary(text), "accept-encoding: gzip")).await;
        assert_eq!(reply.text(), text, "a caller that compresses nothing gets nothing compressed");
        let always = serve(Http::new().settings(HttpSettings {
            compression_len_min: 4,
            send_compressed: true,
            ..HttpSettings::default()
        }));
        for accepted in ["br, gzip", "gzip;q=0.5"] {
            let reply = say(&always, with(unary(text), &format!("accept-encoding: {accepted}"))).await;
            assert_eq!(gunzipped(&reply.body), text, "{accepted}");
        }
        let refused = with(unary(text), "accept-encoding: gzip;q=0.0, gzipped");
        assert_eq!(say(&always, refused).await.text(), text);
        assert_eq!(say(&always, unary(text)).await.text(), text, "a caller that accepts nothing by name");

        let short = with(post("/probe.Probe/Say", "application/proto", &gzipped(b"hi")), "content-encoding: gzip");
        assert_eq!(say(&server, short).await.text(), "hi");
        let cut = |len: usize| gzipped(text.as_bytes())[..len].to_vec();
        for broken in [b"no gzip".to_vec(), cut(5), cut(gzipped(text.as_bytes()).len() - 1)] {
            let broken = with(post("/probe.Probe/Say", "application/proto", &broken), "content-encoding: gzip");
            assert_eq!(say(&server, broken).await.status, "HTTP/1.1 400 Bad Request");
        }
        let identity = with(unary(text), "content-encoding: identity\naccept-encoding: gzip");
        assert_eq!(say(&server, identity).await.text(), text);
        let unknown = say(&server, with(unary("hi"), "content-encoding: br")).await;
        assert_eq!(unknown.status, "HTTP/1.1 501 Not Implemented");
        assert_eq!(say(&server, with(unary(""), "content-encoding: gzip")).await.text(), "");
    });
}

/// Returns the body of a streaming call.
fn stream(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| frame(0, text.as_bytes())).collect()
}

/// Describes the frames of a response.
fn told(body: &[u8]) -> Vec<String> {
    let told = frames(body).into_iter().map(|(flags, content)| match flags {
        1 => format!("gzip {}", gunzipped(&content)),
        flags => format!("{flags} {}", String::from_utf8(content.to_vec()).unwrap()),
    });
    told.collect()
}

const TAIL: &str = r#"2 {"metadata":{"tail":["7"],"tail-bin":["/wA"]}}"#;

#[test]
fn streams_are_frames_with_a_final_end_frame() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let counted = r#"2 {"metadata":{"tail":["7"],"tail-bin":["/wA"],"end":["7"],"end-bin":["/wA"]}}"#;
        let failed = format!(r#"2 {{"error":{FAILURE},"metadata":{{"why":["7"],"why-bin":["/wA"]}}}}"#);
        for (method, texts, expected) in [
            ("Count", &["a b"][..], &["0 a", "0 b", counted][..]),
            ("Gather", &["a", "b"], &["0 a b", TAIL]),
            ("Gather", &[], &["0 ", TAIL]),
            ("Chat", &["a", "b"], &["0 a", "0 b", TAIL]),
            ("Count", &["a fail b"], &["0 a", &failed]),
            ("Gather", &["a", "fail"], &[&failed]),
            ("Chat", &["fail"], &[&failed]),
        ] {
            for (content_type, version) in [("application/connect+proto", "1"), ("application/connect+json", "1")] {
                let request = post(&format!("/probe.Probe/{method}"), content_type, &stream(texts));
                let reply = say(&server, with(request, &format!("connect-protocol-version: {version}"))).await;
                assert_eq!(reply.status, "HTTP/1.1 200 OK");
                assert_eq!(told(&reply.body), expected, "{method} {texts:?}");
                reply.assert_header(&format!("content-type: {content_type}"));
                if method != "Gather" || !texts.contains(&"fail") {
                    reply.assert_header("head: 7");
                }
            }
        }
    });
}

#[test]
fn invalid_streams_end_with_an_error() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { message_len_max: 8, ..HttpSettings::default() }));
        let cut = &stream(&["hello"])[..7];
        for (method, body, code) in [
            ("Count", stream(&[]), "unimplemented"),
            ("Count", stream(&["a", "b"]), "unimplemented"),
            ("Gather", cut.to_vec(), "invalid_argument"),
            ("Gather", cut[..3].to_vec(), "invalid_argument"),
            ("Gather", stream(&["123456789"]), "resource_exhausted"),
            ("Gather", frame(1, b"a"), "internal"),
            ("Gather", frame(2, b"{}"), "internal"),
            ("Gather", frame(4, b"a"), "internal"),
            ("Chat", vec![0, 255, 255, 255, 255], "resource_exhausted"),
        ] {
            let request = post(&format!("/probe.Probe/{method}"), "application/connect+proto", &body);
            let reply = say(&server, request).await;
            assert_eq!(reply.status, "HTTP/1.1 200 OK");
            let told = told(&reply.body);
            let expected = format!(r#"2 {{"error":{{"code":"{code}","#);
            assert!(told.len() == 1 && told[0].starts_with(&expected), "{method} {}: {told:?}", body.escape_ascii());
        }
        for header in
            ["connect-protocol-version: 7", "connect-timeout-ms: x", "connect-content-encoding: br", "x-bin: ?"]
        {
            let request = post("/probe.Probe/Gather", "application/connect+proto", &stream(&["a"]));
            let reply = say(&server, with(request, header)).await;
            assert!(
                reply.status == "HTTP/1.1 200 OK" && told(&reply.body)[0].starts_with(r#"2 {"error":"#),
                "{header}"
            );
        }
    });
}

#[test]
fn stream_messages_are_compressed_as_negotiated() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { compression_len_min: 4, ..HttpSettings::default() }));
        let body = [frame(1, &gzipped(b"hello")), frame(0, b"there"), frame(1, &gzipped(b"you"))].concat();
        let request = post("/probe.Probe/Chat", "application/connect+proto", &body);
        let reply = say(&server, with(request, "connect-content-encoding: gzip\nconnect-accept-encoding: gzip")).await;
        reply.assert_header("connect-content-encoding: gzip");
        assert_eq!(told(&reply.body), ["gzip hello", "gzip there", "0 you", TAIL]);
    });
}

#[test]
fn bidirectional_streams_interleave_on_http2() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let mut caller = H2Caller::connect(&server).await;
        let request = Request::post("http://here/probe.Probe/Chat").header("content-type", "application/connect+proto");
        let mut open = caller.open(request.body(()).unwrap()).await;
        let mut body = open.response.await.unwrap().into_body();
        for text in ["one", "two"] {
            open.sending.send_data(stream(&[text]).into(), false).unwrap();
            assert_eq!(told(&body.data().await.unwrap().unwrap()), [format!("0 {text}")]);
        }
        open.sending.send_data(Bytes::new(), true).unwrap();
        assert_eq!(told(&body.data().await.unwrap().unwrap()), [TAIL]);
        assert!(body.data().await.is_none());
        assert_eq!(body.trailers().await.unwrap(), None);
    });
}

#[test]
fn a_stream_ends_at_its_deadline() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let mut caller = Http1::connect(&server);
        let head = "POST /probe.Probe/Chat HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/connect+proto\r\n\
                    connect-timeout-ms: 1000\r\ntransfer-encoding: chunked\r\n\r\n6\r\n\0\0\0\0\x01a\r\n";
        caller.say(head).await;
        settle().await;
        let (_, body) = split(&caller.hear_all().await);
        let told = told(&body);
        assert!(told[0] == "0 a" && told[1].starts_with(r#"2 {"error":{"code":"deadline_exceeded""#), "{told:?}");
    });
}

#[test]
fn cors_preflights_are_answered() {
    in_virtual_time(async {
        let shop = "origin: https://shop.example.com";
        let cors = || Cors::origins(["https://shop.example.com"]).expose_headers(["head"]);
        let server = serve(Http::new().cors(cors().allow_headers(["Authorization"]).max_age(Duration::from_secs(60))));
        let plain = b"OPTIONS /probe.Probe/Say HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_vec();
        let question = |origin: &str| with(plain.clone(), &format!("{origin}\naccess-control-request-method: POST"));
        let reply = say(&server, question(shop)).await;
        assert_eq!(reply.status, "HTTP/1.1 204 No Content");
        for line in [
            "access-control-allow-origin: https://shop.example.com",
            "access-control-allow-methods: GET, POST",
            "access-control-max-age: 60",
            "vary: origin",
            "vary: access-control-request-method",
            "vary: access-control-request-headers",
        ] {
            reply.assert_header(line);
        }
        reply.assert_list("access-control-allow-headers", &["content-type", "connect-timeout-ms", "x-grpc-web"]);
        reply.assert_list("access-control-allow-headers", &["connect-protocol-version", "authorization"]);
        let has = |reply: &Reply, start: &str| reply.head.iter().any(|line| line.starts_with(start));
        assert!(!has(&reply, "access-control-allow-credentials"));
        for request in [unary("hi"), post("/probe.Probe/Count", "application/grpc-web", b""), get("/nothing")] {
            let reply = say(&server, with(request, shop)).await;
            reply.assert_header("access-control-allow-origin: https://shop.example.com");
            let exposed = ["grpc-status", "grpc-message", "head", "trailer-head"];
            reply.assert_list("access-control-expose-headers", &exposed);
        }

        let server = serve(Http::new().cors(cors().allow_credentials()));
        for request in [question(shop), with(unary("hi"), shop)] {
            say(&server, request).await.assert_header("access-control-allow-credentials: true");
        }
        for origin in ["https://evil.example.com", "http://shop.example.com", "https://shop.example.com.evil", "null"] {
            let origin = format!("origin: {origin}");
            for request in [question(&origin), with(unary("hi"), &origin)] {
                let reply = say(&server, request).await;
                reply.assert_header("vary: origin");
                assert!(!has(&reply, "access-control"), "{origin}");
            }
        }
        let any = serve(Http::new().cors(Cors::any_origin().allow_credentials()));
        let reply = say(&any, with(unary("hi"), shop)).await;
        reply.assert_header("access-control-allow-origin: *");
        assert!(!has(&reply, "access-control-allow-credentials") && !has(&reply, "vary"));

        let without_method = say(&server, with(plain.clone(), shop)).await;
        assert_eq!(without_method.status, "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(say(&server, question("x: y")).await.status, "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(say(&serve(Http::new()), question(shop)).await.status, "HTTP/1.1 405 Method Not Allowed");
    });
}

#[test]
fn the_page_lists_methods_when_enabled() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { page: true, ..HttpSettings::default() }));
        let reply = say(&server, get("/")).await;
        assert_eq!(reply.status, "HTTP/1.1 200 OK");
        reply.assert_header("content-type: text/html; charset=utf-8");
        reply.assert_header("x-frame-options: DENY");
        assert!(
            reply
                .head
                .iter()
                .any(|line| line.starts_with("content-security-policy: default-src 'none'; script-src 'sha256-"))
        );
        assert!(
            reply.text().contains("<h2>probe.Probe</h2>") && reply.text().contains("data-path=\"probe.Probe/Look\"")
        );
        assert!(!reply.text().contains("data-path=\"probe.Probe/Chat\""));
        assert_eq!(say(&server, post("/", "application/json", b"")).await.status, "HTTP/1.1 404 Not Found");
    });
}

#[test]
fn json_follows_proto3_and_hostile_json_is_rejected() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let call = |body: &[u8]| post("/calls.Test/Say", "application/json", body);
        let reply = say(&server, call(br#"{"text": "h\u00e9", "unknown": [1, {}]}"#)).await;
        assert_eq!((reply.status.as_str(), reply.text()), ("HTTP/1.1 200 OK", "{\"text\":\"h\u{e9}\"}"));

        let deep = format!("{{\"unknown\":{}", "[".repeat(100_000));
        let long = format!("{{\"text\":\"{}", "\\u0061".repeat(100_000));
        for body in
            ["", "{", "[]", "null", r#"{"text": 7}"#, r#"{"text": "a"} {}"#, "{\"text\": \"\u{1}\"}", &deep, &long]
        {
            let reply = say(&server, call(body.as_bytes())).await;
            assert_eq!(reply.status, "HTTP/1.1 400 Bad Request", "{:.40}", body);
            assert!(reply.text().starts_with(r#"{"code":"invalid_argument","message":"#) && reply.body.len() < 1000);
            let twirp = post("/twirp/calls.Test/Say", "application/json", body.as_bytes());
            assert!(say(&server, twirp).await.text().starts_with(r#"{"code":"malformed","#), "{body:.40}");
        }
        let frames = [frame(0, br#"{"text":"a, b"}"#), frame(0, deep.as_bytes())];
        let reply = say(&server, post("/calls.Test/Count", "application/connect+json", &frames[0])).await;
        assert_eq!(told(&reply.body), [r#"0 {"text":"a"}"#, r#"0 {"text":"b"}"#, "2 {}"]);
        let reply = say(&server, post("/calls.Test/Gather", "application/connect+json", &frames.concat())).await;
        assert!(told(&reply.body)[0].starts_with(r#"2 {"error":{"code":"invalid_argument""#));
    });
}
