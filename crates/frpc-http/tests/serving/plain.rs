//! Plain HTTP/1.1 requests, and connections that continue with other requests.

use std::{future::ready, time::Duration};

use bytes::Bytes;
use frpc::Server;
use frpc_http::{Http, HttpSettings, Mount, MountContext};
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderValue, Request, Response, StatusCode};
use support::{SECOND, assert_elapsed, calls::TestService, in_virtual_time, settle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufStream, duplex},
    time::Instant,
};

use crate::{
    h2_caller::{H2Caller, messages, server},
    http1::{Http1, ask, split},
};

fn serve(service: &TestService, http: Http) -> Server {
    server(service, http).without_listener().unwrap()
}

/// Returns a Connect call of `Say` with additional header lines.
fn say(text: &str, lines: &str) -> String {
    let body = format!("{{\"text\":\"{text}\"}}");
    let len = body.len();
    format!(
        "POST /calls.Test/Say HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: \
         {len}\r\n{lines}\r\n{body}"
    )
}

/// Reads a response with a `content-length`: the lines of its head, and its body.
async fn answer(caller: &mut Http1) -> (Vec<String>, String) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(caller.0.read_u8().await.expect("there is an answer"));
    }
    let (head, _) = split(&answer);
    let len = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("it has a length");
    let mut body = vec![0; len.parse().unwrap()];
    caller.0.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Returns the bodies of consecutive responses.
fn bodies(heard: &[u8]) -> Vec<String> {
    let heard = String::from_utf8(heard.to_vec()).unwrap();
    let answers = heard.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| answer.split_once("\r\n\r\n").unwrap().1.to_owned()).collect()
}

#[test]
fn pipelined_requests_are_answered_in_order_for_any_split() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let requests = [say("a", ""), say("b", "x-more: 1\r\n"), say("c", "Connection: Close\r\n")].concat();
        for cut in 0..requests.len() {
            let mut caller = Http1::connect(&server);
            caller.say(&requests[..cut]).await;
            settle().await;
            caller.say(&requests[cut..]).await;
            let texts = ["a", "b", "c"].map(|text| format!("{{\"text\":\"{text}\"}}"));
            assert_eq!(bodies(&caller.hear_all().await), texts, "{cut}");
        }
    });
}

#[test]
fn responses_to_pipelined_requests_share_a_write() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let mut caller = Http1::connect(&server);
        caller.say([say("a", ""), say("b", ""), say("wait", ""), say("c", "")].concat()).await;
        settle().await;
        // The third call is pending. The responses to the first two do not wait for it.
        let mut heard = vec![0; 1000];
        let len = caller.0.read(&mut heard).await.unwrap();
        assert_eq!(bodies(&heard[..len]), ["{\"text\":\"a\"}", "{\"text\":\"b\"}"]);
        assert_eq!(service.log.take().len(), 3, "the fourth has not begun");
        service.gate.open(1);
        let len = caller.0.read(&mut heard).await.unwrap();
        assert_eq!(bodies(&heard[..len]), ["{\"text\":\"wait\"}", "{\"text\":\"c\"}"]);
    });
}

#[test]
fn a_connection_continues_after_plain_requests() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let plain = [say("a", ""), say("b", "")].concat();
        let chunked = "POST /calls.Test/Say HTTP/1.1\r\nhost: test\r\ncontent-type: \
                       application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"tex\r\n7\r\nt\":\"c\"}\r\n0\r\n\r\n";
        let length = 70_000;
        let long = say(&"x".repeat(length), "");
        let last = say("d", "connection: close\r\n");
        let requests = [&plain, chunked, &plain, &long, &last].concat();
        let heard = bodies(&ask(&server, requests).await);
        let short = heard.iter().map(|body| &body[..body.len().min(12)]);
        let expected = ["a", "b", "c", "a", "b", "xxx", "d"].map(|text| format!("{{\"text\":\"{text}\"}}"));
        assert_eq!(short.collect::<Vec<_>>(), expected.each_ref().map(|text| &text[..12]));
        assert_eq!(heard[5].len(), length + 11);

        let frames = messages(&["e"]);
        let framed = format!(
            "POST /calls.Test/Say HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc-web\r\ncontent-length: \
             {}\r\nconnection: close\r\n\r\n",
            frames.len()
        );
        let heard = ask(&server, [plain.as_bytes(), framed.as_bytes(), &frames].concat()).await;
        assert!(heard.ends_with(b"\x03\n\x01e\x80\0\0\0\x10grpc-status: 0\r\n"), "{}", heard.escape_ascii());
    });
}

#[test]
fn conflicting_lengths_reach_no_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let hidden = say("hidden", "");
        for lines in [
            "transfer-encoding: chunked\r\n",
            "content-length: 6\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding : chunked\r\n",
            "transfer-encoding: xchunked\r\n",
        ] {
            let heard = ask(&server, [say("seen", lines), hidden.clone()].concat()).await;
            assert!(bodies(&heard).len() <= 1, "{lines:?} was answered with {}", heard.escape_ascii());
            assert!(service.log.take().is_empty(), "{lines:?} reached a handler");
        }
    });
}

#[test]
fn a_late_or_short_body_calls_no_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(
            &service,
            Http::new().settings(HttpSettings {
                body_time_max: 3 * SECOND,
                head_time_max: 5 * SECOND,
                ..HttpSettings::default()
            }),
        );
        let request = say("hi", "");
        let (start, mut caller) = (Instant::now(), Http1::connect(&server));
        caller.say(&request[..request.len() - 1]).await;
        assert!(answer(&mut caller).await.1.contains("\"code\":\"deadline_exceeded\""));
        assert_elapsed(start, 3 * SECOND);
        // The rest of the body arrives late and is discarded.
        caller.say([&request[request.len() - 1..], &say("there", "")].concat()).await;
        assert_eq!(answer(&mut caller).await.1, "{\"text\":\"there\"}");
        assert_eq!(service.log.take(), ["say there"]);

        // hyper serves the connection after a PUT, and answers the same.
        for is_by_hyper in [false, true] {
            let mut caller = Http1::connect(&server);
            if is_by_hyper {
                caller.say("PUT /none HTTP/1.1\r\nhost: a\r\n\r\n").await;
                assert_eq!(answer(&mut caller).await.0[0], "HTTP/1.1 404 Not Found");
            }
            caller.say(&request[..request.len() - 1]).await;
            caller.0.shutdown().await.unwrap();
            let error = r#"{"code":"canceled","message":"the request ended early: its body is incomplete"}"#;
            assert_eq!(answer(&mut caller).await.1, error);
            assert!(caller.hear_all().await.is_empty());
        }

        // Refused before its body arrives. The body never does.
        let (start, mut caller) = (Instant::now(), Http1::connect(&server));
        caller.say("POST /calls.Test/None HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{").await;
        assert_eq!(answer(&mut caller).await.0[0], "HTTP/1.1 404 Not Found");
        assert!(caller.hear_all().await.is_empty());
        assert_elapsed(start, 5 * SECOND);
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn disconnecting_cancels_the_call() {
    in_virtual_time(async {
        for (limit, chunked) in [(0, false), (0, true), (5, false), (5, true)] {
            let service = TestService::default();
            let server = serve(
                &service,
                Http::new().settings(HttpSettings { half_closed_max: limit * SECOND, ..HttpSettings::default() }),
            );
            let mut caller = Http1::connect(&server);
            caller.say(if chunked { say_in_chunks("wait") } else { say("wait", "") }).await;
            settle().await;
            assert_eq!(service.log.take(), ["say wait"]);
            let start = Instant::now();
            drop(caller);
            while server.metrics().connections > 0 {
                tokio::time::sleep(SECOND / 10).await;
            }
            assert_eq!(service.log.take(), ["dropped say wait"], "{limit} s, in chunks: {chunked}");
            assert!(
                start.elapsed() >= limit * SECOND && start.elapsed() < (limit + 1) * SECOND,
                "{:?}",
                start.elapsed()
            );
        }
    });
}

/// Returns a Connect call of `Say` that is not plain, so hyper serves it.
fn say_in_chunks(text: &str) -> String {
    let body = format!("{{\"text\":\"{text}\"}}");
    let len = body.len();
    format!(
        "POST /calls.Test/Say HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ntransfer-encoding: \
         chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
    )
}

#[test]
fn a_half_closed_caller_gets_its_responses() {
    in_virtual_time(async {
        let (plain, chunked) = (say("wait", ""), say_in_chunks("wait"));
        let cases = [plain.clone(), plain.repeat(3), chunked.clone(), chunked.repeat(3), plain + &chunked];
        for (count, said) in [1, 3, 1, 3, 2].into_iter().zip(cases) {
            let service = TestService::default();
            let server = serve(&service, Http::new());
            let mut caller = Http1::connect(&server);
            caller.say(&said).await;
            caller.0.shutdown().await.unwrap();
            for _ in 0..count {
                tokio::time::sleep(5 * SECOND).await;
                service.gate.open(1);
            }
            assert_eq!(bodies(&caller.hear_all().await), vec!["{\"text\":\"wait\"}"; count]);
            settle().await;
            assert_eq!(server.metrics().connections, 0);
        }
    });
}

/// A truncated body and the end of a connection without a request are detected immediately.
#[test]
fn an_early_half_close_ends_the_connection_immediately() {
    in_virtual_time(async {
        let (plain, chunked) = (say("hi", ""), say_in_chunks("hi"));
        for said in [
            &plain[..plain.len() - 1],
            &chunked[..chunked.len() - 1],
            &chunked[..chunked.len() - 7],
            "GET / HT",
            &plain,
        ] {
            let server = serve(&TestService::default(), Http::new());
            let mut caller = Http1::connect(&server);
            caller.say(said).await;
            let start = Instant::now();
            caller.0.shutdown().await.unwrap();
            caller.hear_all().await;
            assert_elapsed(start, Duration::ZERO);
        }
    });
}

#[test]
fn duplicate_host_and_coding_headers_are_rejected() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let of = |host: &str, lines: &str| {
            let start = format!("POST /calls.Test/Say HTTP/1.1\r\n{host}content-type: application/json\r\n{lines}");
            async { String::from_utf8(ask(&server, start).await).unwrap() }
        };
        let body = "connection: close\r\ncontent-length: 2\r\n\r\n{}";
        for host in ["host: a\r\n", "host: a:80\r\n", "host: [::1]:80\r\n", "host:\r\n"] {
            assert!(of(host, body).await.starts_with("HTTP/1.1 200 "), "{host:?}");
        }
        for host in ["", "host: a\r\nhost: a\r\n", "host: a b\r\n", "host: a/b\r\n", "host: a, b\r\n", "host: x@a\r\n"]
        {
            let heard = of(host, &body.replace("connection: close\r\n", "")).await;
            assert!(heard.starts_with("HTTP/1.1 400 "), "{host:?}: {heard}");
            assert_eq!(heard.matches("HTTP/1.1").count(), 1);
        }
        let old = "POST /calls.Test/Say HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert!(ask(&server, old).await.starts_with(b"HTTP/1.0 200 "), "HTTP/1.0 has no hosts");
        service.log.take();
        let chunks = "\r\n2\r\n{}\r\n0\r\n\r\n";
        let (host, end) = ("host: a\r\n", format!("connection: close\r\n{chunks}"));
        assert!(of(host, &format!("transfer-encoding: Chunked\r\n{end}")).await.starts_with("HTTP/1.1 200 "));
        service.log.take();
        for codings in [
            "chunked, chunked",
            "gzip, chunked",
            "gzip\r\ntransfer-encoding: chunked",
            "chunked\r\ntransfer-encoding: chunked",
        ] {
            let heard = of(host, &format!("transfer-encoding: {codings}\r\n{chunks}{}", say("b", ""))).await;
            assert!(heard.starts_with("HTTP/1.1 501 "), "{codings:?}: {heard}");
            assert_eq!(heard.matches("HTTP/1.1").count(), 1, "{heard}");
        }
        for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}xx0\r\n\r\n", "ffffffffffffffff1\r\n"] {
            let heard = of(host, &format!("transfer-encoding: chunked\r\n\r\n{chunks}")).await;
            assert!(heard.starts_with("HTTP/1.1 400 "), "{chunks:?}: {heard}");
        }
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn requests_for_other_hosts_are_rejected() {
    in_virtual_time(async {
        let service = TestService::default();
        let http = Http::new().allowed_hosts(["Test", "localhost:8080", "[::1]"]).mount("/mounted", Odd);
        let server = serve(&service, http);
        let requests = |host: &str| {
            let json = say("hi", "connection: close\r\n");
            let mounted =
                "POST /mounted HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned();
            let chunked = "POST /mounted HTTP/1.1\r\nhost: test\r\nconnection: close\r\ntransfer-encoding: \
                           chunked\r\n\r\n0\r\n\r\n";
            let upgrade = "GET /any HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: \
                           websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: \
                           AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: frpc\r\n\r\n";
            let host = format!("host: {host}\r\n");
            [json, mounted, chunked.to_owned(), upgrade.to_owned()]
                .map(|request| request.replace("host: test\r\n", &host))
        };
        for (host, is_served) in [
            ("test", true),
            ("TEST:99", true),
            ("localhost:8080", true),
            ("[::1]:50051", true),
            ("localhost", false),
            ("localhost:8081", false),
            ("test.evil.org", false),
            ("evil.org", false),
        ] {
            for request in requests(host) {
                let mut caller = Http1::connect(&server);
                caller.say(&request).await;
                let mut status = [0; 12];
                caller.0.read_exact(&mut status).await.unwrap();
                assert_eq!(&status != b"HTTP/1.1 421", is_served, "{request}");
            }
            let mut caller = H2Caller::connect(&server).await;
            let request =
                Request::post(format!("http://{host}/calls.Test/Say")).header("content-type", "application/grpc");
            let reply = caller.ask(request.body(()).unwrap(), messages(&["hi"])).await;
            assert_eq!(reply.status != StatusCode::MISDIRECTED_REQUEST, is_served, "{host}");
            assert_eq!(service.log.take().len(), if is_served { 2 } else { 0 }, "{host}");
        }
        // The target of a request takes precedence over its header. It must not contain a user.
        for (host, is_served) in [("test", true), ("evil.org", false), ("a@test", false)] {
            for header in ["test", "evil.org"] {
                let request = say("hi", "connection: close\r\n").replace("host: test", &format!("host: {header}"));
                let heard = ask(&server, request.replacen(" /", &format!(" http://{host}/"), 1)).await;
                let is_ok = heard.starts_with(b"HTTP/1.1 200");
                assert_eq!(is_ok, is_served, "{host} {header}: {}", heard.escape_ascii());
            }
        }
    });
}

#[test]
fn an_http2_upgrade_offer_is_ignored() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let offer = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";
        let heard = ask(&server, [say("a", offer), say("b", "connection: close\r\n")].concat()).await;
        assert!(heard.starts_with(b"HTTP/1.1 200 "), "{}", heard.escape_ascii());
        assert_eq!(bodies(&heard), ["{\"text\":\"a\"}", "{\"text\":\"b\"}"]);
    });
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    in_virtual_time(async {
        let server = Server::builder()
            .wire(Http::new().settings(HttpSettings { page: true, ..HttpSettings::default() }))
            .add_service(crate::probe::Probe)
            .without_listener()
            .unwrap();
        for path in ["/", "/probe.Probe/Look?encoding=json&message=hi", "/none"] {
            let request = |verb| format!("{verb} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let ([get, body], [head, nothing]) =
                (of(&server, request("GET")).await, of(&server, request("HEAD")).await);
            assert_eq!((head, nothing.len()), (get, 0), "{path}");
            let mut caller = H2Caller::connect(&server).await;
            let request = Request::head(format!("http://test{path}")).body(()).unwrap();
            let mut open = caller.open(request).await;
            open.finish();
            let reply = open.reply().await;
            assert_eq!(
                (reply.headers["content-length"].to_str().unwrap(), reply.body.len()),
                (&*body.len().to_string(), 0)
            );
        }
    });
}

/// Returns the head of a response without its date, and its body.
async fn of(server: &Server, request: String) -> [String; 2] {
    let (head, body) = split(&ask(server, request).await);
    let head: Vec<_> = head.into_iter().filter(|line| !line.starts_with("date")).collect();
    [head.join("\n"), String::from_utf8(body).unwrap()]
}

#[test]
fn an_idle_connection_is_closed() {
    in_virtual_time(async {
        let server = serve(
            &TestService::default(),
            Http::new().settings(HttpSettings { head_time_max: 3 * SECOND, ..HttpSettings::default() }),
        );
        let mut caller = Http1::connect(&server);
        let mut start = Instant::now();
        for pause in [0, 2, 2] {
            tokio::time::sleep(pause * SECOND).await;
            caller.say(say("a", "")).await;
            answer(&mut caller).await;
            start = Instant::now();
        }
        assert!(caller.hear_all().await.is_empty());
        assert_elapsed(start, 3 * SECOND);
    });
}

#[test]
fn shutdown_ends_connections_with_the_current_response() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let (mut idle, mut busy) = (Http1::connect(&server), Http1::connect(&server));
        idle.say(say("a", "")).await;
        answer(&mut idle).await;
        busy.say(say("wait", "")).await;
        settle().await;
        let shutdown = tokio::spawn(async move { server.shutdown(60 * SECOND).await });
        assert!(idle.hear_all().await.is_empty());
        service.gate.open(1);
        let (head, body) = answer(&mut busy).await;
        assert!(head.contains(&"connection: close".to_owned()), "{head:?}");
        assert_eq!(body, "{\"text\":\"wait\"}");
        assert!(busy.hear_all().await.is_empty());
        shutdown.await.unwrap();
    });
}

#[test]
fn a_peer_with_stalled_reads_is_paused_and_disconnected() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(
            &service,
            Http::new().settings(HttpSettings { write_stall_max: 7 * SECOND, ..HttpSettings::default() }),
        );
        let mut caller = Http1::connect(&server);
        let requests = say("large 10000", "").repeat(100);
        let mut sent = 0;
        loop {
            tokio::select! {
                biased;
                written = caller.0.write(requests.as_bytes()) => match written {
                    Ok(len) => sent += len,
                    Err(_) => break,
                },
                () = tokio::time::sleep(60 * SECOND) => panic!("it waits for ever"),
            }
        }
        assert!(sent < 1024 * 1024, "{sent} bytes were read");
        assert_eq!(server.metrics().connections, 0);
    });
}

#[test]
fn large_responses_are_flushed_on_buffering_streams() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(BufStream::with_capacity(1024, 1024 * 1024, theirs));
        let mut caller = Http1(ours);
        for len in [100, 100_000, 100] {
            caller.say(say(&format!("large {len}"), "")).await;
            assert_eq!(answer(&mut caller).await.1.len(), len + "{\"text\":\"\"}".len());
        }
    });
}

/// A mount with invalid responses.
struct Odd;

impl Mount for Odd {
    fn respond<'a>(&'a self, _: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        let (status, headers) = match request.uri().query().unwrap_or_default() {
            "length" => (200, vec![("content-length", "3")]),
            "chunked" => (200, vec![("transfer-encoding", "chunked")]),
            "close" => (200, vec![("connection", "close")]),
            "date" => (200, vec![("date", "Thu, 01 Jan 1970 00:00:00 GMT")]),
            "nothing" => (204, vec![("content-length", "4")]),
            "same" => (304, vec![]),
            "early" => (103, vec![("link", "a")]),
            _ => (299, vec![("x-a", "1"), ("x-a", "2")]),
        };
        let mut response = Response::new(Bytes::from_static(b"four"));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        ready(response).boxed()
    }
}

#[test]
fn length_and_connection_headers_of_a_mount_are_replaced() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new().mount("/odd", Odd));
        for (query, lines, body, is_last) in [
            ("", &["HTTP/1.1 299 ", "X-A: 1", "X-A: 2", "Content-Length: 4"][..], "four", false),
            ("length", &["HTTP/1.1 200 OK", "Content-Length: 4"], "four", false),
            ("chunked", &["HTTP/1.1 200 OK", "Content-Length: 4"], "four", false),
            ("close", &["HTTP/1.1 200 OK", "Content-Length: 4", "Connection: close"], "four", true),
            ("date", &["HTTP/1.1 200 OK", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Content-Length: 4"], "four", false),
            ("nothing", &["HTTP/1.1 204 No Content"], "", false),
            ("same", &["HTTP/1.1 304 Not Modified"], "", false),
            ("early", &["HTTP/1.1 500 Internal Server Error", "Content-Length: 0", "Connection: close"], "", true),
        ] {
            let odd = format!("GET /odd?{query} HTTP/1.1\r\nhost: a\r\n\r\n");
            let heard = ask(&server, [odd.as_str(), &say("next", "connection: close\r\n")].concat()).await;
            let next = heard.windows(8).rposition(|window| window == b"HTTP/1.1").unwrap();
            assert_eq!(next == 0, is_last, "{query}: {}", heard.escape_ascii());
            let (mut head, answered) = split(if is_last { &heard } else { &heard[..next] });
            head.retain(|line| !line.starts_with("Date: ") || line.contains("1970"));
            assert_eq!(
                (&head[..], &answered[..]),
                (&lines.iter().map(|line| line.to_string()).collect::<Vec<_>>()[..], body.as_bytes())
            );
        }
    });
}

/// Returns the first line of each response, and the body of each successful one.
fn summary(heard: &[u8]) -> Vec<(String, String)> {
    let heard = String::from_utf8_lossy(heard).into_owned();
    let answers = heard.split("HTTP/1.1 ").skip(1).map(|answer| {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head is whole");
        let line = head.lines().next().unwrap_or_default();
        (line.to_owned(), if line.starts_with("200") { body.to_owned() } else { String::new() })
    });
    answers.collect()
}

/// Sends these bytes, after a request or none, and waits until the server closes the connection.
async fn told(server: &Server, first: &str, requests: &[u8]) -> Vec<(String, String)> {
    let mut caller = Http1::connect(server);
    caller.say(first).await;
    if !first.is_empty() {
        settle().await;
        let mut answer = vec![0; 4096];
        let len = caller.0.read(&mut answer).await.unwrap();
        assert!(answer[..len].starts_with(b"HTTP/1.1 404"), "{}", answer[..len].escape_ascii());
    }
    caller.say(requests).await;
    summary(&caller.hear_all().await)
}

/// Fragments that change the meaning of a request, or look as if they did.
const PIECES: [&str; 24] = [
    "\r\n",
    "\r",
    "\n",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    "9",
    "é",
    "\r\ncontent-length: 12",
    "\r\nContent-Length: 5",
    "\r\ncontent-length : 12",
    "\r\ntransfer-encoding: chunked",
    "\r\nconnection: close",
    "\r\nconnection: keep-alive",
    "\r\nexpect: 100-continue",
    "\r\n folded",
    "\r\n\r\n",
    "HTTP/1.0",
    "http://a",
    "*",
    "?a=b",
    "GET / HTTP/1.1\r\n\r\n",
];

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 1000, failure_persistence: None, ..Default::default() })]

    /// hyper serves a connection from its first request that is not plain.
    #[test]
    fn responses_match_hyper(
        changes in proptest::collection::vec((0..PIECES.len(), proptest::prelude::any::<proptest::sample::Index>(), 0..4_usize), 0..3),
    ) {
        let mut requests = [say("a", ""), say("b", "x-more: 1\r\n"), say("c", "Connection: Close\r\n")].concat().into_bytes();
        for (piece, at, removed) in changes {
            // The first bytes decide whether a connection is HTTP.
            let at = 6 + at.index(requests.len() - 6);
            let end = (at + removed).min(requests.len());
            requests.splice(at..end, PIECES[piece].bytes());
        }
        in_virtual_time(async {
            let server = serve(&TestService::default(), Http::new());
            let ours = told(&server, "", &requests).await;
            let first = "DELETE /none HTTP/1.1\r\nhost: test\r\n\r\n";
            let hypers = told(&server, first, &requests).await;
            assert_eq!(ours, hypers, "{}", requests.escape_ascii());
        });
    }
}
