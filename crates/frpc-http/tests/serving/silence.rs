//! Silent peers: connections without a complete first request, unread responses, and shutdowns in the meantime.

use std::time::Duration;

use frpc::Server;
use frpc_http::{Http, HttpSettings};
use h2::{Reason, client};
use http::Request;
use support::{
    SECOND, assert_elapsed,
    calls::{TestService, peer_of},
    in_virtual_time, settle,
    sockets::IDENTITY,
};
use tokio::{io::duplex, time::Instant};

use crate::{
    h2_caller::{H2Caller, grpc_request, messages, server},
    http1::{Http1, ask},
};

fn serve(service: &TestService, http: Http) -> Server {
    server(service, http).without_listener().unwrap()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The head of a request with an unfinished body.
const HALF_HEAD: &[u8] = b"\0\0\x03\x01\0\0\0\0\x01\x83\x86\x84";

/// The first bytes of connections without a complete request.
fn beginnings() -> Vec<Vec<u8>> {
    let one_short = &PREFACE[..23];
    let magic = &PREFACE[..24];
    let half_settings = &PREFACE[..PREFACE.len() - 1];
    let half_head = [PREFACE, HALF_HEAD].concat();
    let http2 = [&b"PRI"[..], one_short, magic, half_settings, PREFACE, &half_head];
    let http1 = [&b"GET"[..], b"GET / HTTP/1.1\r\nhost: a", b"PUT / HTTP/1.1\r\nhost: a\r\n"];
    http2.into_iter().chain(http1).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_connection_without_a_complete_request_is_closed() {
    in_virtual_time(async {
        for said in [vec![vec![]], beginnings()].concat() {
            let server = serve(
                &TestService::default(),
                Http::new().settings(HttpSettings { head_time_max: 20 * SECOND, ..HttpSettings::default() }),
            );
            let mut caller = Http1::connect(&server);
            caller.say(&said).await;
            tokio::time::sleep(9 * SECOND).await;
            assert_eq!(server.metrics().connections, 1, "{}", said.escape_ascii());
            tokio::time::sleep(13 * SECOND).await;
            assert_eq!(server.metrics().connections, 0, "{}", said.escape_ascii());
        }
    });
}

#[test]
fn the_longest_times_mean_no_limit() {
    in_virtual_time(async {
        let longest = Duration::MAX;
        let server = serve(
            &TestService::default(),
            Http::new().settings(HttpSettings {
                head_time_max: longest,
                body_time_max: longest,
                keepalive_interval: Some(longest),
                keepalive_timeout: longest,
                write_stall_max: longest,
                half_closed_max: longest,
                ..HttpSettings::default()
            }),
        );
        let mut caller = H2Caller::connect(&server).await;
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        let head = "POST /calls.Test/Say HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
        let plain = format!("{head}content-length: 2\r\n\r\n{{}}");
        let chunked = format!("{head}connection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
        let heard = String::from_utf8(ask(&server, plain + &chunked).await).unwrap();
        assert_eq!(heard.matches("200 OK").count(), 2, "{heard}");
        server.shutdown(longest).await;
    });
}

#[test]
fn a_zero_that_allows_no_call_is_refused() {
    in_virtual_time(async {
        let default = HttpSettings::default;
        for (name, settings) in [
            ("head_len_max", HttpSettings { head_len_max: 0, ..default() }),
            ("head_time_max", HttpSettings { head_time_max: Duration::ZERO, ..default() }),
            ("body_time_max", HttpSettings { body_time_max: Duration::ZERO, ..default() }),
            ("streams_max", HttpSettings { streams_max: 0, ..default() }),
            ("keepalive_interval", HttpSettings { keepalive_interval: Some(Duration::ZERO), ..default() }),
            ("keepalive_timeout", HttpSettings { keepalive_timeout: Duration::ZERO, ..default() }),
            ("write_stall_max", HttpSettings { write_stall_max: Duration::ZERO, ..default() }),
        ] {
            let builder = server(&TestService::default(), Http::new().settings(settings));
            let error = builder.without_listener().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} must not be zero")), "{error}");
        }
        let settings = HttpSettings { keepalive_interval: None, half_closed_max: Duration::ZERO, ..default() };
        serve(&TestService::default(), Http::new().settings(settings));
    });
}

#[test]
fn a_peer_with_pings_but_no_calls_is_closed() {
    in_virtual_time(async {
        let http = Http::new().settings(HttpSettings {
            head_time_max: 10 * SECOND,
            keepalive_interval: Some(SECOND),
            ..HttpSettings::default()
        });
        let server = serve(&TestService::default(), http);
        let idle = H2Caller::connect(&server).await;
        let mut used = H2Caller::connect(&server).await;
        assert_eq!(used.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        tokio::time::sleep(12 * SECOND).await;
        assert_eq!(server.metrics().connections, 1);
        assert_eq!(used.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
        drop(idle);
    });
}

#[test]
fn shutdown_ignores_connections_without_a_request() {
    in_virtual_time(async {
        let answered = b"GET /calls.Test/None HTTP/1.1\r\nhost: a\r\n\r\n";
        // The header `expect` moves the connection to hyper.
        let expecting = b"GET /calls.Test/None HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n";
        let more = [&answered[..], expecting].map(|first| [first, b"GET / HT"].concat());
        for said in [vec![vec![]], beginnings(), more.to_vec()].concat() {
            let server = serve(&TestService::default(), Http::new());
            let mut caller = Http1::connect(&server);
            caller.say(&said).await;
            settle().await;
            let start = Instant::now();
            assert_eq!(server.shutdown(9 * SECOND).await, 0, "{}", said.escape_ascii());
            let took = start.elapsed();
            // A connection accepted just before the shutdown has a second to begin.
            assert!(took <= SECOND * 3 / 2, "{took:?}: {}", said.escape_ascii());
        }
    });
}

#[test]
fn a_shutdown_waits_a_second_for_handshakes() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).tls(IDENTITY.server()).without_listener().unwrap();
        let mut silent = Http1::connect(&server);
        silent.say(b"\x16\x03\x01\0\x05").await;
        settle().await;
        let start = Instant::now();
        assert_eq!(server.shutdown(9 * SECOND).await, 0);
        assert_elapsed(start, SECOND);
    });
}

#[test]
fn shutdown_ignores_silent_frisbee_peers() {
    in_virtual_time(async {
        // With other protocols, and without any.
        let services = || frpc::Server::builder().config(support::calls::quiet());
        for server in [serve(&TestService::default(), Http::new()), services().without_listener().unwrap()] {
            let _silent = peer_of(&server);
            settle().await;
            let start = Instant::now();
            assert_eq!(server.shutdown(9 * SECOND).await, 0);
            // A server for frisbee only tells the peer first, and the peer may close the connection.
            assert!(start.elapsed() <= SECOND + support::MILLI, "{:?}", start.elapsed());
        }
    });
}

#[test]
fn shutdown_waits_for_calls_in_flight() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let mut caller = H2Caller::connect(&server).await;
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.send("wait");
        open.finish();
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(9 * SECOND));
        tokio::time::sleep(5 * SECOND).await;
        service.gate.open(1);
        assert_eq!(open.reply().await.texts(), ["wait"]);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

/// Connects with a flow-control window of this size for each response.
async fn with_window(server: &Server, window: u32) -> H2Caller {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let (sender, connection) = client::Builder::new().initial_window_size(window).handshake(ours).await.unwrap();
    tokio::spawn(connection);
    H2Caller(sender)
}

#[test]
fn unread_responses_are_reset_despite_keepalive() {
    in_virtual_time(async {
        for window in [0, 1, 100] {
            let service = TestService::default();
            let http = Http::new().settings(HttpSettings {
                write_stall_max: 7 * SECOND,
                keepalive_interval: Some(SECOND),
                ..HttpSettings::default()
            });
            let server = serve(&service, http);
            let mut caller = with_window(&server, window).await;
            let large = "x".repeat(1_000_000);
            let mut calls = Vec::new();
            for _ in 0..3 {
                let mut open = caller.open(grpc_request("Say", &[])).await;
                open.send(&large);
                open.finish();
                calls.push(open);
                let mut open = caller.open(grpc_request("Count", &[])).await;
                open.send("endless some text that is repeated");
                open.finish();
                calls.push(open);
                let request = Request::post("http://test/calls.Test/Say").header("content-type", "application/json");
                let mut open = caller.open(request.body(()).unwrap()).await;
                open.sending.send_data(format!("{{\"text\":\"{large}\"}}").into(), true).unwrap();
                calls.push(open);
            }
            settle().await;
            let start = Instant::now();
            for open in calls {
                let mut body = open.response.await.unwrap().into_body();
                let reset = loop {
                    match body.data().await.unwrap() {
                        Ok(_) => {}
                        Err(reset) => break reset,
                    }
                };
                assert_eq!(reset.reason(), Some(Reason::CANCEL), "with a window of {window}");
            }
            assert_elapsed(start, 7 * SECOND - support::MILLI);
            settle().await;
            let dropped = service.log.take().iter().filter(|line| line.starts_with("dropped count")).count();
            assert_eq!(dropped, 3, "the handlers are gone");
            assert_eq!(server.metrics().connections, 1);
        }
    });
}

#[test]
fn slowly_read_responses_continue() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(
            &service,
            Http::new().settings(HttpSettings {
                write_stall_max: 7 * SECOND,
                keepalive_interval: None,
                ..HttpSettings::default()
            }),
        );
        let mut caller = with_window(&server, 40_000).await;
        let large = "x".repeat(1_000_000);
        let mut open = caller.open(grpc_request("Say", &[])).await;
        open.sending.send_data(messages(&[&large]), true).unwrap();
        let mut body = open.response.await.unwrap().into_body();
        let mut len = 0;
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            len += data.len();
            body.flow_control().release_capacity(data.len()).unwrap();
            tokio::time::sleep(SECOND / 4).await;
        }
        assert!(len > 1_000_000);
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        // A slow handler does not count as a blocked write.
        let mut open = caller.open(grpc_request("Count", &[])).await;
        open.send("a, wait, b");
        open.finish();
        let response = open.response.await.unwrap();
        tokio::time::sleep(60 * SECOND).await;
        service.gate.open(1);
        assert_eq!(crate::h2_caller::Reply::read(response).await.texts(), ["a", "wait", "b"]);
    });
}
