//! Malicious peers over HTTP/2: they cause bounded work and lose the connection.

use bytes::Bytes;
use frpc::{CallSettings, Server};
use frpc_http::{Http, HttpSettings};
#[cfg(feature = "http2")]
use frpc_http::{Mount, MountContext};
#[cfg(feature = "http2")]
use futures_util::future::{BoxFuture, FutureExt};
use h2::client;
use http::{Request, StatusCode};
use support::{
    SECOND,
    calls::TestService,
    http2::{
        CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, call,
        frame, header,
    },
    in_virtual_time, settle,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::h2_caller::{H2Caller, Reply, grpc_request, messages, server};

fn serve(service: &TestService, http: Http) -> Server {
    server(service, http).without_listener().unwrap()
}

/// A peer that writes raw frames.
pub(crate) struct Frames(pub(crate) DuplexStream);

impl Frames {
    pub(crate) async fn connect(server: &Server) -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let mut frames = Self(ours);
        assert!(frames.say(PREFACE).await);
        assert!(frames.say(&frame(SETTINGS, 0, 0, b"")).await);
        frames
    }

    /// Returns `true` if the server still reads.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Returns all frames until the server closes the connection: types and payloads.
    pub(crate) async fn hear_all(mut self) -> Vec<(u8, Vec<u8>)> {
        let mut heard = Vec::new();
        let _ = self.0.read_to_end(&mut heard).await;
        let (mut frames, mut rest) = (Vec::new(), &heard[..]);
        while let Some((head, behind)) = rest.split_first_chunk::<9>() {
            let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            frames.push((head[3], behind[..len].to_vec()));
            rest = &behind[len..];
        }
        frames
    }

    /// Repeats the same bytes until the server closes the connection. Returns the reason of the server and the number
    /// of repetitions.
    pub(crate) async fn insist(mut self, times_max: u32, said: impl Fn(u32) -> Vec<u8>) -> (Option<u32>, u32) {
        let mut times = 0;
        while times < times_max && self.say(&said(times)).await {
            times += 1;
            // Lets the server run.
            tokio::task::yield_now().await;
        }
        assert!(times < times_max, "the server never has enough");
        let frames = self.hear_all().await;
        let goaway = frames.iter().rev().find(|(kind, _)| *kind == GOAWAY);
        (goaway.map(|(_, payload)| u32::from_be_bytes(*payload[4..].first_chunk().unwrap())), times)
    }
}

#[test]
fn rapid_resets_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let frames = Frames::connect(&server).await;
        // In one write, so that the server cannot see the call before its cancellation.
        let (reason, _) = frames
            .insist(1000, |index| {
                let streams = (300 * index..300 * (index + 1)).map(|index| 2 * index + 1);
                let begun_and_reset = streams.flat_map(|stream| {
                    let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
                    [frame(HEADERS, END_HEADERS, stream, &call("Gather")), reset].concat()
                });
                begun_and_reset.collect()
            })
            .await;
        assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
        settle().await;
        assert_eq!(server.metrics().connections, 0);
        let log = service.log.take();
        assert_eq!(log.iter().filter(|line| *line == "gather").count() * 2, log.len(), "all that began was dropped");
    });
}

#[test]
fn timeouts_on_a_busy_server_do_not_affect_other_calls() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let (ours, theirs) = duplex(1 << 20);
        let mut said = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
        // As many requests as may be in flight, all sent before the server runs.
        for stream in (0..256).map(|index| 2 * index + 1) {
            said.extend(frame(HEADERS, END_HEADERS, stream, &call("Gather")));
            said.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        let mut frames = Frames(ours);
        assert!(frames.say(&said).await);
        server.attach(theirs);
        settle().await;
        assert_eq!(server.metrics().connections, 1);
        drop(server);
        assert!(frames.hear_all().await.iter().all(|(_, payload)| payload.get(4..8) != Some(&[0, 0, 0, 11][..])));
    });
}

/// Uses a unit of the budget that tokio gives a task for each turn, and never responds.
#[cfg(feature = "http2")]
struct Spender;

#[cfg(feature = "http2")]
impl Mount for Spender {
    fn respond<'a>(&'a self, _: MountContext, _: Request<Bytes>) -> BoxFuture<'a, http::Response<Bytes>> {
        async {
            tokio::task::consume_budget().await;
            std::future::pending().await
        }
        .boxed()
    }
}

#[test]
#[cfg(feature = "http2")]
fn timeouts_hold_for_a_connection_with_many_handlers() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new().mount("/calls.Test/Spend", Spender));
        let (ours, theirs) = duplex(1 << 20);
        let mut said = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
        // All sent before the server runs, so that the handlers use up the budget of its first turn.
        for stream in (0..200).map(|index| 2 * index + 1) {
            said.extend(frame(HEADERS, support::http2::END_STREAM | END_HEADERS, stream, &call("Spend")));
        }
        let mut frames = Frames(ours);
        assert!(frames.say(&said).await);
        let start = tokio::time::Instant::now();
        server.attach(theirs);
        // Keepalive ends the connection: the peer answers no PING.
        assert!(frames.hear_all().await.iter().any(|(kind, _)| *kind == GOAWAY));
        support::assert_elapsed(start, 80 * SECOND);
    });
}

#[test]
fn headers_without_end_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(HEADERS, 0, 1, &call("Gather"))).await;
        let (reason, times) = frames
            .insist(10_000, |index| frame(CONTINUATION, 0, 1, &header("x", &index.to_string()).repeat(100)))
            .await;
        assert!(reason.is_some() && times < 1000, "{reason:?} after {times}");

        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(HEADERS, 0, 1, &call("Gather"))).await;
        let (reason, _) = frames.insist(10_000, |_| frame(CONTINUATION, 0, 1, b"")).await;
        assert!(reason.is_some(), "even if they are empty");
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn oversized_heads_are_rejected() {
    in_virtual_time(async {
        let service = TestService::default();
        let server =
            serve(&service, Http::new().settings(HttpSettings { head_len_max: 4096, ..HttpSettings::default() }));
        let mut caller = H2Caller::connect(&server).await;
        let large = "x".repeat(8000);
        let reply = caller.call("Say", &[("x", &large)], &["hi"]).await;
        assert_eq!(reply.end("grpc-status"), Some("8"));
        let request = Request::post("http://test/calls.Test/Say").header("content-type", "application/json");
        let reply = caller.ask(request.header("x", &large).body(()).unwrap(), "{}").await;
        assert_eq!(reply.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert!(service.log.take().is_empty());
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"], "the connection lives");
    });
}

#[test]
fn excessive_metadata_fails_only_its_call() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let mut caller = H2Caller::connect(&server).await;
        let mut other = caller.open(grpc_request("Say", &[])).await;
        other.send("wait");
        other.finish();
        settle().await;
        let (one, part) = ("x".repeat(70_000), "x".repeat(3500));
        let names: Vec<_> = (0..20).map(|index| format!("x-{index}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), part.as_str())).collect();
        for headers in [&[("x", one.as_str())][..], &many] {
            let reply = caller.call("Say", headers, &["hi"]).await;
            assert_eq!(reply.end("grpc-status"), Some("8"), "{:?}", reply.headers);
            assert!(reply.end("grpc-message").unwrap().contains("exceeds the limit of 16384"));
        }
        service.gate.open(1);
        assert_eq!(other.reply().await.texts(), ["wait"], "other calls go on");
        assert_eq!(service.log.take(), ["say wait"]);
    });
}

/// Connects as a peer that accepts heads of this size.
async fn that_takes(server: &Server, head_len_max: u32) -> H2Caller {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    let (sender, connection) = client::Builder::new().max_header_list_size(head_len_max).handshake(ours).await.unwrap();
    tokio::spawn(connection);
    H2Caller(sender)
}

#[test]
fn a_failure_keeps_its_code_within_any_header_limit() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        for (head_len_max, len_max) in [(8192, 8192), (1000, 1000), (16_384, 16_384), (1_000_000, 64_000)] {
            let mut caller = that_takes(&server, head_len_max).await;
            let mut other = caller.open(grpc_request("Chat", &[])).await;
            for method in ["Say", "Count"] {
                for len in [100, 7000, 20_000, 60_000] {
                    let text = match method {
                        "Say" => format!("complain {len}"),
                        _ => format!("a, complain {len}"),
                    };
                    let reply = caller.call(method, &[], &[&text]).await;
                    assert_eq!(reply.end("grpc-status"), Some("5"));
                    let message = reply.end("grpc-message").unwrap();
                    let is_whole = message.len() == len;
                    assert!(is_whole || message.len() > len_max / 2 && message.ends_with("x..."), "{}", message.len());
                    assert!(is_whole == (len + 300 < len_max), "{len} of {len_max}");
                }
            }
            other.finish();
            other.reply().await;
        }
    });
}

#[test]
fn calls_beyond_the_concurrency_limit_are_refused() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new().settings(HttpSettings { streams_max: 3, ..HttpSettings::default() }));
        let mut frames = Frames::connect(&server).await;
        for index in 0..5 {
            frames.say(&frame(HEADERS, END_HEADERS, 2 * index + 1, &call("Gather"))).await;
        }
        settle().await;
        assert_eq!(service.log.take(), ["gather"; 3]);
        let shutdown = tokio::spawn(server.shutdown(SECOND));
        let refused = frames.hear_all().await.into_iter().filter(|(kind, _)| *kind == RST_STREAM);
        // The shutdown also resets answered streams with NO_ERROR, because their requests are unfinished.
        let refused: Vec<_> = refused.map(|(_, payload)| payload).filter(|code| *code != [0; 4]).collect();
        assert_eq!(refused, [7_u32.to_be_bytes(); 2], "REFUSED_STREAM: they may be made again");
        shutdown.await.unwrap();
    });
}

#[test]
fn floods_of_pings_and_settings_are_throttled() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        for flood in [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, b"")] {
            let mut frames = Frames::connect(&server).await;
            let mut said = 0_usize;
            let flooding = async {
                while frames.say(&flood).await {
                    said += flood.len();
                }
            };
            // The peer reads nothing, so the server holds little more than the stream buffers of both directions.
            let is_over = tokio::time::timeout(SECOND, flooding).await.is_ok();
            assert!(is_over || said < 1_000_000, "{said} bytes were taken");
        }
    });
}

#[test]
fn unread_responses_suspend_the_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server =
            serve(&service, Http::new().settings(HttpSettings { keepalive_interval: None, ..HttpSettings::default() }));
        let mut caller = H2Caller::connect(&server).await;
        let mut open = caller.open(grpc_request("Count", &[])).await;
        open.send("endless some text that is repeated");
        open.finish();
        let answers = open.response.await.unwrap();
        settle().await;
        let made = service.made();
        assert!(made < 20_000, "{made}");
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(service.made(), made);
        drop((answers, open.sending));
        settle().await;
        assert_eq!(service.log.take().len(), 2, "it is dropped with the call");
    });
}

#[test]
fn invalid_http2_requests_reach_no_handler() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let broken: [(&str, Vec<Vec<u8>>); 5] = [
            (
                "trailers that do not end",
                vec![frame(HEADERS, END_HEADERS, 1, &call("Gather")), frame(HEADERS, END_HEADERS, 1, b"")],
            ),
            ("data on no stream", vec![frame(DATA, 0, 0, b"x")]),
            ("a stream of even number", vec![frame(HEADERS, END_HEADERS, 2, &call("Gather"))]),
            ("a frame that is too long", vec![frame(DATA, 0, 1, &[0; 20_000])]),
            ("padding longer than its frame", vec![frame(DATA, 8, 1, &[200, 0])]),
        ];
        for (why, frames_of_it) in broken {
            let mut frames = Frames::connect(&server).await;
            for frame in frames_of_it {
                frames.say(&frame).await;
            }
            let heard = frames.hear_all().await;
            assert!(heard.iter().any(|(kind, _)| *kind == GOAWAY), "{why}: {heard:?}");
            settle().await;
            let log = service.log.take();
            assert!(log.is_empty() || log == ["gather", "dropped gather"], "{why}: {log:?}");
        }
    });
}

#[test]
fn empty_data_without_end_ends_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service, Http::new());
        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(HEADERS, END_HEADERS, 1, &call("Say"))).await;
        let (reason, _) = frames.insist(100_000, |_| frame(DATA, 0, 1, b"")).await;
        assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
        assert!(service.log.take().is_empty());
    });
}

#[test]
fn a_4_gib_message_is_rejected_when_announced() {
    in_virtual_time(async {
        let server = serve(&TestService::default(), Http::new());
        let mut caller = H2Caller::connect(&server).await;
        for method in ["Say", "Gather"] {
            let mut open = caller.open(grpc_request(method, &[])).await;
            open.sending.send_data(Bytes::from_static(&[0, 255, 255, 255, 255]), false).unwrap();
            let texts = open.reply().await.texts();
            assert_eq!(texts, ["8 a message of 4294967295 bytes exceeds the limit of 4194304 bytes"]);
        }
        assert_eq!(caller.ask(grpc_request("Say", &[]), messages(&["hi"])).await.texts(), ["hi"]);
    });
}

#[test]
fn a_lost_peer_is_detected_by_keepalive() {
    in_virtual_time(async {
        let service = TestService::default();
        let http = Http::new().settings(HttpSettings {
            keepalive_interval: Some(10 * SECOND),
            keepalive_timeout: 5 * SECOND,
            ..HttpSettings::default()
        });
        let server = serve(&service, http);
        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(HEADERS, END_HEADERS, 1, &call("Gather"))).await;
        settle().await;
        assert_eq!(server.metrics().connections, 1);
        tokio::time::sleep(16 * SECOND).await;
        assert_eq!(
            (server.metrics().connections, service.log.take()),
            (0, vec!["gather".into(), "dropped gather".into()])
        );
    });
}

/// Many partly received messages. None is completed.
#[test]
fn incomplete_messages_are_bounded_by_connection_memory() {
    in_virtual_time(async {
        let service = TestService::default();
        let builder = server(&service, Http::new())
            .calls(CallSettings { connection_memory_max: 1 << 20, ..CallSettings::default() });
        let server = builder.without_listener().unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let text = "x".repeat(900_000);
        let whole = messages(&[&text]);
        let (part, rest) = (whole.slice(..700_000), whole.slice(700_000..));
        for method in ["Say", "Gather"] {
            let mut calls = Vec::new();
            for _ in 0..2 {
                let mut open = caller.open(grpc_request(method, &[])).await;
                open.sending.send_data(part.clone(), false).unwrap();
                calls.push(open);
            }
            let mut other = calls.pop().unwrap();
            let mut one = calls.pop().unwrap();
            // The second message has no room.
            let (refused, mut going_on) = tokio::select! {
                response = &mut one.response => (response, other),
                response = &mut other.response => (response, one),
            };
            let refused = Reply::read(refused.unwrap()).await.texts();
            assert!(
                refused[0].starts_with("8 the call was not executed: ")
                    && refused[0].contains("`connection_memory_max`")
            );
            going_on.sending.send_data(rest.clone(), true).unwrap();
            let answer = going_on.reply().await.texts();
            assert!(answer.len() == 1 && answer[0].len() >= 900_000, "{}", answer[0].len());
        }
        // The memory was released.
        assert_eq!(caller.call("Say", &[], &["hi"]).await.texts(), ["hi"]);
    });
}
