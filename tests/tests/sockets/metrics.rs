//! The counters of calls, compared with calls counted by hand, on both sides and over every wire.

use std::collections::BTreeMap;

use frisbee_pubsub::Broker;
use frpc::{
    Answer, BoxService, Channel, Code, Dispatch, Engine, Method, Request, Services, Streaming,
    frisbee::FrameCounts,
    inspect,
    metrics::{MethodMetrics, MetricsSnapshot, TextFormat},
};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, Words, ask, words},
    in_real_time, until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::wires::{SCHEMES, connect, schemes, serve};

/// Calls of one method, as counted by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HandCount {
    by_code: BTreeMap<u8, u64>,
    requests: u64,
    responses: u64,
}

impl HandCount {
    fn end(&mut self, code: Code) {
        *self.by_code.entry(code.into()).or_default() += 1;
    }

    fn of(method: &MethodMetrics) -> Self {
        let totals = &method.totals;
        let by_code = totals.durations.iter().map(|(code, durations)| (*code, durations.count()));
        Self { by_code: by_code.collect(), requests: totals.request_messages, responses: totals.response_messages }
    }
}

fn code_of<T>(outcome: &Result<T, frpc::Status>) -> Code {
    outcome.as_ref().map_or_else(frpc::Status::code, |_| Code::Ok)
}

/// Makes calls with all outcomes, and counts them.
async fn make_calls(
    channel: &Channel,
    service: &TestService,
    (scheme, has_request_streams): (&str, bool),
) -> BTreeMap<String, HandCount> {
    let (client, mut counts) = (TestClient::new(channel.clone()), BTreeMap::<String, HandCount>::new());
    let say = counts.entry("calls.Test/Say".to_owned()).or_default();
    for call in 0..60 {
        let text = match call % 6 {
            0 => "fail 5 nothing".to_owned(),
            1 => "panic".to_owned(),
            2 => "large 70000".to_owned(),
            _ => "x".repeat(call * 20),
        };
        let outcome = ask(&client, &text).await;
        say.requests += 1;
        say.responses += u64::from(outcome.is_ok());
        say.end(code_of(&outcome));
    }
    let mut late = Request::new(words("wait"));
    late.set_timeout(SECOND / 30);
    assert_eq!(client.say(late).await.unwrap_err().code(), Code::DeadlineExceeded, "{scheme}");
    say.end(Code::DeadlineExceeded);
    service.gate.arrival().await;
    // Dropped by its caller while the handler runs.
    tokio::select! {
        biased;
        outcome = ask(&client, "wait") => panic!("{scheme}: {outcome:?}"),
        () = service.gate.arrival() => {}
    }
    say.end(Code::Cancelled);
    // Their requests were sent, and have no answer.
    say.requests += 2;

    if !scheme.starts_with("twirp") && scheme != "jsonrpc+http" {
        let count = counts.entry("calls.Test/Count".to_owned()).or_default();
        for list in ["a, b, c", "a, fail 9 no, b", "a"] {
            count.requests += 1;
            let outcome = async {
                let mut answers = client.count(words(list)).await?.into_inner();
                while let Some(Words { .. }) = answers.message().await? {
                    count.responses += 1;
                }
                Ok(())
            };
            let outcome = outcome.await;
            count.end(code_of(&outcome));
        }
    }
    if has_request_streams {
        let gather = counts.entry("calls.Test/Gather".to_owned()).or_default();
        client.gather(Streaming::from_iter(["a", "b", "c"].map(words))).await.unwrap();
        gather.end(Code::Ok);
        (gather.requests, gather.responses) = (3, 1);
    }
    counts
}

#[test]
fn counters_agree_with_calls_counted_by_hand_on_both_sides_of_every_wire() {
    for (scheme, path, has_request_streams) in schemes() {
        in_real_time(async {
            let service = TestService::default();
            let server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
            let channel = connect(&server, scheme, path).await;
            let counts = make_calls(&channel, &service, (scheme, has_request_streams)).await;
            // Some wires do not tell the server of a dropped or late call. Its handler may end now.
            service.gate.open(2);
            let in_flight = || server.metrics().methods.iter().map(|method| method.totals.in_flight()).sum::<u64>();
            until(|| in_flight() == 0).await;

            let (served, called) = (server.metrics().methods, channel.metrics());
            let by_hand = |methods: &[MethodMetrics]| -> BTreeMap<String, HandCount> {
                methods.iter().map(|method| (method.method.clone(), HandCount::of(method))).collect()
            };
            assert_eq!(by_hand(&called), counts, "{scheme}");
            let system = match scheme.split('+').next().unwrap() {
                "grpc-web" => "grpc",
                "http" => "connectrpc",
                "ws" | "tcp" => "frpc",
                scheme => scheme,
            };
            for method in served.iter().chain(&called) {
                assert_eq!(method.system.name(), system, "{scheme}: {}", method.method);
            }
            let mut at_server = by_hand(&served);
            // The server may learn of the deadline from its caller, as of any cancellation, or of neither.
            let (say, expected) = (at_server.get_mut("calls.Test/Say").unwrap(), &counts["calls.Test/Say"]);
            let answered = say.responses - expected.responses;
            let ended = [Code::Cancelled, Code::DeadlineExceeded].map(|code| say.by_code.remove(&code.into()));
            assert_eq!(answered + ended.into_iter().flatten().sum::<u64>(), 2, "{scheme}");
            *say.by_code.get_mut(&0).unwrap() -= answered;
            say.responses -= answered;
            say.by_code.extend([(Code::Cancelled.into(), 1), (Code::DeadlineExceeded.into(), 1)]);
            assert_eq!(at_server, counts, "{scheme}");
            let bytes = |methods: &[MethodMetrics]| -> Vec<u64> {
                methods.iter().map(|method| method.totals.response_bytes).collect()
            };
            let answer_len = if scheme.starts_with("jsonrpc") { r#"{"text":"wait"}"# } else { "\n\u{4}wait" }.len();
            let mut received = bytes(&called);
            *received.last_mut().unwrap() += answered * answer_len as u64;
            assert_eq!(bytes(&served), received, "{scheme}");
        });
    }
}

#[test]
fn each_wire_of_a_method_has_a_series_and_the_names_of_grpc_have_their_sum() {
    static UNKNOWN: Method = Method::unary("calls.No", "One", 1);
    in_real_time(async {
        let service = TestService::default();
        let server = serve(Engine::Tokio, TestServer::new(service.clone())).await;
        for (scheme, path, _) in SCHEMES {
            let channel = connect(&server, scheme, path).await;
            ask(&TestClient::new(channel.clone()), "a").await.unwrap();
            let _ = channel.unary::<Words, Words>(&UNKNOWN, words("a")).await;
        }
        let metrics = server.metrics();
        let said = metrics.methods.iter().filter(|method| method.method == "calls.Test/Say");
        let said: Vec<_> = said.map(|method| (method.system.name(), method.totals.ended(0))).collect();
        assert_eq!(said, [("frpc", 2), ("grpc", 2), ("connectrpc", 1), ("twirp", 1), ("jsonrpc", 3)]);
        assert_eq!(metrics.method("calls.Test/Say").ended(0), 9);
        // Two points with the same attributes are invalid in every format.
        for family in MetricsSnapshot::take().families() {
            let mut attributes: Vec<_> = family.points.iter().map(|point| &point.attributes).collect();
            attributes.sort();
            let len = attributes.len();
            attributes.dedup();
            assert_eq!(attributes.len(), len, "{family:?}");
        }
    });
}

#[test]
fn bytes_and_frames_of_http_connections_are_counted() {
    in_real_time(async {
        let server = serve(Engine::Tokio, TestServer::new(TestService::default())).await;
        let address = server.local_addr().to_string();
        let request = "POST /calls.Test/Say HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                       content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"text\":\"a\"}";
        let mut socket = TcpStream::connect(address.trim_start_matches("tcp://")).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        let counted = || {
            let others = server.metrics().others;
            [others.bytes_in, others.bytes_out].map(|bytes| usize::try_from(bytes).unwrap())
        };
        let one = [request.len(), answer.len()];
        until(|| counted() == one).await;

        // HTTP/2, while it is open.
        assert_eq!(server.metrics().frames, FrameCounts::default(), "HTTP/1.1 has no frames");
        let channel = connect(&server, "grpc", "").await;
        let client = TestClient::new(channel.clone());
        for _ in 0..3 {
            ask(&client, "a").await.unwrap();
        }
        assert_eq!(server.metrics().counters.bytes_in, 0, "no frisbee");
        let frames = |kind: &str| {
            let count = server.metrics().frames.of(kind);
            (count.received, count.sent)
        };
        assert_eq!((frames("HEADERS"), frames("DATA"), frames("RST_STREAM")), ((3, 6), (3, 3), (0, 0)));
        let long = "a long text ".repeat(1000);
        ask(&client, &long).await.unwrap();
        until(|| counted().iter().zip(one).all(|(now, before)| *now > before + long.len())).await;
        // Both sides count the same, once the last frames have arrived.
        let target = server.local_addr().to_string().replace("tcp", "grpc");
        let view = inspect::channels().into_iter().find(|view| view.target() == target).unwrap();
        let endpoint = || view.endpoints().pop().unwrap();
        let mirrored = || {
            let mut mirrored = FrameCounts::default();
            endpoint().frames.iter().for_each(|(kind, count)| mirrored.add(kind, count.sent, count.received));
            mirrored
        };
        until(|| server.metrics().frames == mirrored()).await;
        let sum = || {
            let counters = endpoint().traffic.unwrap().counters;
            let theirs = [counters.bytes_out, counters.bytes_in].map(|bytes| usize::try_from(bytes).unwrap());
            [one[0] + theirs[0], one[1] + theirs[1]]
        };
        until(|| counted() == sum()).await;
        // Frames of closed connections remain.
        let total = server.metrics().frames.total();
        drop((client, channel));
        until(|| server.metrics().connections == 0).await;
        assert!(server.metrics().frames.total().received >= total.received);
        // The same frames are in the metrics of the target, also those of the closed connection.
        let called = || MetricsSnapshot::take().frames[&*target].clone();
        for kind in ["HEADERS", "DATA", "SETTINGS", "WINDOW_UPDATE", "RST_STREAM"] {
            let (ours, theirs) = (called().of(kind), server.metrics().frames.of(kind));
            assert_eq!((ours.sent, ours.received), (theirs.received, theirs.sent), "{kind}");
        }
        let again = connect(&server, "grpc", "").await;
        let (before, asked) = (called().of("DATA"), ask(&TestClient::new(again), "a").await);
        asked.unwrap();
        let now = called().of("DATA");
        assert_eq!((now.sent, now.received), (before.sent + 1, before.received + 1));
        let text = MetricsSnapshot::take().to_text(TextFormat::OpenMetrics);
        let line = "frpc_server_connection_frames_total{network_io_direction=\"receive\",frpc_frame_type=\"HEADERS\"} ";
        assert!(text.contains(line), "{line} is missing in {text}");
        let line = format!(
            "frpc_client_connection_frames_total{{grpc_target=\"{target}\",network_io_direction=\"transmit\",frpc_frame_type=\"HEADERS\"}} 5\n"
        );
        assert!(text.contains(&line), "{line} is missing in {text}");
    });
}

#[test]
fn unknown_methods_share_one_series() {
    static UNKNOWN: [Method; 3] = [
        Method::unary("calls.No", "One", 1),
        Method::unary("calls.No", "Two", 2),
        Method::unary("calls.Test", "No", 3),
    ];
    in_real_time(async {
        for (scheme, path, _) in SCHEMES.into_iter().take(4) {
            let server = serve(Engine::Tokio, TestServer::new(TestService::default())).await;
            let channel = connect(&server, scheme, path).await;
            for method in &UNKNOWN {
                let called = channel.unary::<Words, Words>(method, words("a")).await;
                assert_eq!(called.unwrap_err().code(), Code::Unimplemented, "{scheme}");
            }
            let metrics = server.metrics();
            if !metrics.methods.is_empty() {
                let names: Vec<_> = metrics.methods.iter().map(|method| &*method.method).collect();
                assert_eq!(
                    (names, metrics.method("_OTHER").ended(Code::Unimplemented.into())),
                    (vec!["_OTHER"], 3),
                    "{scheme}"
                );
            }
        }
    });
}

#[test]
fn handlers_in_tasks_are_counted_when_they_end() {
    static SAY: [Method; 1] = [Method::unary("metrics.InTasks", "Say", 60_000)];
    in_real_time(async {
        let echo = BoxService::of_methods(&SAY, |_, call| Box::pin(async { Ok(Answer::new(call.into_parts().1)) }));
        // Not a server of frpc, so its settings do not know of the tasks.
        let server = frisbee::Server::builder(Services::new().add_services([echo])).dispatch(Dispatch::Spawned);
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let channel = Channel::connect(server.local_addr()).await.unwrap();
        for calls in 1..=10 {
            channel.unary::<Words, Words>(&SAY[0], words("a")).await.unwrap();
            let counted = || {
                let snapshot = MetricsSnapshot::take();
                let found = snapshot.served.iter().find(|method| method.method == "metrics.InTasks/Say");
                found.map_or(0, |method| method.totals.ended(0))
            };
            until(|| counted() == calls).await;
        }
    });
}

#[test]
fn brokers_are_exported_as_totals_until_they_are_dropped() {
    in_real_time(async {
        let text = || MetricsSnapshot::take().to_text(TextFormat::Prometheus);
        let brokers = [(); 2].map(|()| Broker::new());
        for broker in &brokers {
            broker.export_metrics("orders");
            for subject in ["eu.created", "us.created", "eu.paid"] {
                broker.publish(subject, "a book").await.unwrap();
            }
        }
        let shown = text();
        for line in [
            r#"frisbee_broker_published_total{frisbee_broker="orders"} 6"#,
            r#"frisbee_broker_published_io_bytes_total{frisbee_broker="orders"} 36"#,
            r#"frisbee_broker_queued_bytes{frisbee_broker="orders"} 0"#,
        ] {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
        drop(brokers);
        assert!(!text().contains("frisbee_broker"));
    });
}

#[test]
fn the_snapshot_of_the_process_has_servers_channels_and_ended_servers() {
    in_real_time(async {
        let ended = |snapshot: &MetricsSnapshot| {
            let found = snapshot.served.iter().find(|method| method.method == "calls.Test/Chat");
            found.map_or(0, |method| method.totals.all_ended())
        };
        let before = ended(&MetricsSnapshot::take());
        for _ in 0..3 {
            let server = serve(Engine::Tokio, TestServer::new(TestService::default())).await;
            let client = TestClient::new(connect(&server, "tcp", "").await);
            let mut answers = client.chat(Streaming::from_iter(["a", "b"].map(words))).await.unwrap().into_inner();
            while answers.message().await.unwrap().is_some() {}
            until(|| server.metrics().method("calls.Test/Chat").in_flight() == 0).await;
        }
        let snapshot = MetricsSnapshot::take();
        assert!(ended(&snapshot) >= before + 3);
        let text = snapshot.to_text(TextFormat::OpenMetrics);
        for name in
            ["rpc_server_call_duration_seconds_bucket", "grpc_client_attempt_started_total", "grpc_target=\"tcp://"]
        {
            assert!(text.contains(name), "{name} is not in {text}");
        }
    });
}
