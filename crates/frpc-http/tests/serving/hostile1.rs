//! Malicious peers over HTTP/1.1: they get an error or lose the connection, and no handler runs for an invalid request.

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use support::{SECOND, assert_elapsed, calls::TestService, in_virtual_time, settle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use crate::{
    h2_caller::{messages, server},
    http1::{self, Http1, post, split},
};

fn serve(service: &TestService, http: Http) -> Server {
    server(service, http).without_listener().unwrap()
}

const START: &str = "POST /calls.Test/Say HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc-web\r\n";

/// Returns a request with these lines in its head, and this body.
fn request(lines: &str, body: &[u8]) -> Vec<u8> {
    [START.as_bytes(), lines.as_bytes(), b"\r\n", body].concat()
}

/// Returns the number of responses.
fn count(answer: &[u8]) -> usize {
    answer.windows(8).filter(|window| *window == b"HTTP/1.1").count()
}

#[test]
fn conflicting_lengths_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let hidden = [START.as_bytes(), b"content-length: 9\r\n\r\n", &messages(&["hi"])].concat();
        let open = request("content-length: 9\r\n", &messages(&["ok"]));
        let closing = request("content-length: 9\r\nconnection: close\r\n", &messages(&["hi"]));
        let heard = http1::ask(&server, [open, closing].concat()).await;
        assert_eq!((count(&heard), service.log.take().len()), (2, 2), "two requests in order have two answers");
        for lines in [
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: 5, 6\r\n",
            "content-length: +5\r\n",
            "content-length: 0x5\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding: chunked, identity\r\n",
            "transfer-encoding : chunked\r\n",
            "transfer-encoding: chunked\r\n content-length: 5\r\n",
        ] {
            let heard = http1::ask(&server, [&request(lines, b"0\r\n\r\n")[..], &hidden].concat()).await;
            assert!(count(&heard) <= 1, "{lines:?} was answered with {}", heard.escape_ascii());

            assert!(service.log.take().is_empty(), "{lines:?} reached a handler");
        }
    });
}

#[test]
fn invalid_chunks_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let chunked = "transfer-encoding: chunked\r\n";
        let long = [b"1;", &[b'x'; 100_000][..]].concat();
        for body in [&b"ffffffffffffffff1\r\n"[..], b"-1\r\n", b"zz\r\n\r\n", b"1\r\nab\r\n", b"\r\n", &long] {
            let heard = http1::ask(&server, request(chunked, body)).await;
            assert!(count(&heard) <= 1, "{}", heard.escape_ascii());
            assert!(service.log.take().is_empty(), "{:?} reached a handler", &body[..body.len().min(20)]);
        }
    });
}

#[test]
fn oversized_heads_are_rejected() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let many: String = (0..1000).map(|index| format!("x-{index}: y\r\n")).collect();
        let long = format!("x: {}\r\n", "y".repeat(1_000_000));
        for lines in [many, long] {
            let heard = http1::ask(&server, request(&lines, b"")).await;
            assert!(heard.starts_with(b"HTTP/1.1 431 "), "{}", heard.escape_ascii());
        }
        let endless = ["GET /", &"x".repeat(1_000_000)].concat();
        let heard = http1::ask(&server, endless).await;
        assert!(heard.starts_with(b"HTTP/1.1 4"), "{}", heard.escape_ascii());
        for lines in ["x\r\n", "x: \0\r\n", "x\u{1}: y\r\n", ": y\r\n"] {
            let heard = http1::ask(&server, request(lines, b"")).await;
            assert!(heard.starts_with(b"HTTP/1.1 400 "), "{lines:?}: {}", heard.escape_ascii());
        }
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn endless_trailers_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let mut caller = Http1::connect(&serve(&service, Http::new()));
        caller.say(request("transfer-encoding: chunked\r\n", b"0\r\n")).await;
        let mut sent = 0;
        while caller.0.write_all(b"x-trailer: some more of them\r\n").await.is_ok() {
            sent += 1;
            assert!(sent < 100_000, "they are read for ever");
        }
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn a_slow_head_ends_the_connection() {
    in_virtual_time(async {
        let server = serve(
            &TestService::default(),
            Http::new().settings(HttpSettings { head_time_max: 3 * SECOND, ..HttpSettings::default() }),
        );
        let (start, mut caller) = (Instant::now(), Http1::connect(&server));
        caller.say(START).await;
        let heard = caller.hear_all().await;
        assert!(heard.is_empty() || heard.starts_with(b"HTTP/1.1 408"), "{}", heard.escape_ascii());
        assert_elapsed(start, 3 * SECOND);
    });
}

#[test]
fn a_slow_or_short_body_calls_no_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(
            &service,
            Http::new().settings(HttpSettings { body_time_max: 3 * SECOND, ..HttpSettings::default() }),
        );
        let (start, mut caller) = (Instant::now(), Http1::connect(&server));
        caller.say(request("content-length: 9\r\n", b"\0\0")).await;
        let mut front = vec![0; 15];
        caller.0.read_exact(&mut front).await.unwrap();
        assert_elapsed(start, 3 * SECOND);
        let (head, _) = split(&[front, caller.hear_all().await].concat());
        assert!(head.contains(&"grpc-status: 4".to_owned()), "{head:?}");

        let mut caller = Http1::connect(&server);
        caller.say(request("content-length: 9\r\n", b"\0\0")).await;
        caller.0.shutdown().await.unwrap();
        caller.hear_all().await;
        settle().await;
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn unread_responses_end_the_connection_and_its_handlers() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(
            &service,
            Http::new().settings(HttpSettings { write_stall_max: 7 * SECOND, ..HttpSettings::default() }),
        );
        let mut caller = Http1::connect(&server);
        caller.say(post("/calls.Test/Count", "application/grpc-web", &messages(&["endless large 50000"]))).await;
        settle().await;
        let made = service.made();
        tokio::time::sleep(6 * SECOND).await;
        assert_eq!((server.metrics().connections, service.made()), (1, made), "it waits, and the handler with it");
        // A peer that reads from time to time keeps its connection.
        caller.0.read_exact(&mut [0; 30_000]).await.unwrap();
        tokio::time::sleep(6 * SECOND).await;
        assert_eq!(server.metrics().connections, 1);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(server.metrics().connections, 0);
        assert_eq!(service.log.take().len(), 2, "began and was dropped");
    });
}
