//! Layers around calls: on servers, services and channels.

use frpc::{
    Answer, Body, Call, Code, Layer, Layered, Next, Request, Services, Status, Streaming, interceptor,
    layers::{ConcurrencyLimit, Timeout, Trace},
};
use futures_util::StreamExt;
use support::{
    EventLog, Gate, SECOND, ThreadLog, assert_elapsed,
    calls::{
        CallbackClient, CallbackServer, TestClient, TestServer, TestService, ask, asking, each_kind, encoded, next,
        of_kind, quiet, quiet_channel, stream_of, words,
    },
    in_virtual_time, settle,
};
use tokio::time::Instant;
use tracing::Level;

use crate::transport::{Served, Transport, over_every_transport};

over_every_transport! {
    the_first_layer_is_the_outermost
    layers_of_a_service_wrap_no_other
    layers_of_a_channel_do_not_affect_its_clones
    the_handler_sees_changes_of_a_layer_to_the_head
    a_call_rejected_by_a_layer_reaches_no_handler
    a_call_rejected_by_a_channel_layer_is_not_sent
    a_layer_sees_the_peer_and_the_metadata
    a_panic_in_a_layer_becomes_a_status
    a_channel_layer_is_dropped_with_its_call
    a_server_layer_is_dropped_with_a_streaming_call
    a_timeout_layer_ends_slow_handlers
    a_timeout_layer_does_not_limit_response_streams
    a_timeout_layer_of_a_channel_ends_calls
    a_concurrency_limit_queues_excess_calls
    a_rejecting_concurrency_limit_fails_excess_calls
    a_stream_counts_towards_the_limit_until_it_ends
    a_stream_counts_on_a_channel_until_it_ends
    a_trace_has_a_method_span_and_an_event_with_the_code
    the_trace_level_depends_on_the_origin_of_the_failure
    a_layer_sees_the_end_of_streams
}

mod own {
    use super::*;

    crate::transport::over_own_transports! {
        a_layer_can_answer_without_the_handler
        a_layer_sees_the_method_and_the_body_length
        a_channel_layer_sees_failures_as_statuses
    }
}

/// Logs calls and answers.
struct Note {
    log: EventLog,
    name: &'static str,
}

impl Layer for Note {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        self.log.add(format!("{}: {}", self.name, call.method().name));
        let answer = next.run(call).await;
        self.log.add(format!("{}: answer", self.name));
        answer
    }
}

/// Serves a test service with a layer around all services of its server.
async fn layered(transport: Transport, layer: impl Layer) -> (TestService, Served, TestClient) {
    let service = TestService::default();
    let services = Services::new().layer(layer).add_service(TestServer::new(service.clone()));
    let served = transport.serve(services).await;
    let client = TestClient::new(served.channel.clone());
    (service, served, client)
}

/// Serves a test service to a client with a layer.
async fn layered_client(transport: Transport, layer: impl Layer) -> (TestService, Served, TestClient) {
    let (service, served, _) = transport.serve_and_connect().await;
    let client = TestClient::new(served.channel.clone().layer(layer));
    (service, served, client)
}

fn the_first_layer_is_the_outermost(transport: Transport) {
    in_virtual_time(async {
        let service = TestService::default();
        let note = |name| Note { log: service.log.clone(), name };
        let client = Layered::new(TestServer::new(service.clone()), note("service")).layer(note("inner service"));
        // Layers also apply to services added later.
        let services = Services::new().layer(note("server")).add_service(client).layer(note("inner server"));
        let served = transport.serve(services).await;
        let channel = served.channel.clone().layer(note("channel")).layer(note("inner channel"));
        let client = TestClient::new(channel);

        let order = ["channel", "inner channel", "server", "inner server", "service", "inner service"];
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        let mut expected = order.map(|name| format!("{name}: Say")).to_vec();
        expected.push("say hi".into());
        expected.extend(order.iter().rev().map(|name| format!("{name}: answer")));
        assert_eq!(service.log.take(), expected);

        for (kind, method) in [(1, "Count"), (2, "Gather"), (3, "Chat")] {
            of_kind(&client, kind, "hi").await.unwrap();
            let log = service.log.take();
            // A streamed answer reaches the channel before its first message.
            let calls = log.iter().filter(|line| line.ends_with(method));
            assert!(calls.eq(&order.map(|name| format!("{name}: {method}"))), "{log:?}");
            let answers = log.iter().filter(|line| line.ends_with("answer") && line.contains("ser"));
            let expected: Vec<_> = order[2..].iter().rev().map(|name| format!("{name}: answer")).collect();
            assert!(answers.eq(&expected), "{log:?}");
        }
    });
}

fn layers_of_a_service_wrap_no_other(transport: Transport) {
    in_virtual_time(async {
        let service = TestService::default();
        let note = Note { log: service.log.clone(), name: "client" };
        let services = Services::new().add_service(Layered::new(TestServer::new(service.clone()), note));
        let served = transport.serve(services.add_service(CallbackServer::new(service.clone()))).await;
        let (client, callback) = (TestClient::new(served.channel.clone()), CallbackClient::new(served.channel.clone()));
        callback.say(words("hi")).await.unwrap();
        assert_eq!(service.log.take(), ["say hi"]);
        client.say(words("hi")).await.unwrap();
        assert_eq!(service.log.take(), ["client: Say", "say hi", "client: answer"]);
    });
}

fn layers_of_a_channel_do_not_affect_its_clones(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = transport.serve_and_connect().await;
        let note = Note { log: service.log.clone(), name: "client" };
        let noted = TestClient::new(served.channel.clone().layer(note));
        ask(&client, "hi").await.unwrap();
        assert_eq!(service.log.take(), ["say hi"]);
        ask(&noted, "hi").await.unwrap();
        assert_eq!(service.log.take(), ["client: Say", "say hi", "client: answer"]);
    });
}

fn the_handler_sees_changes_of_a_layer_to_the_head(transport: Transport) {
    in_virtual_time(async {
        let tag = interceptor(|call: &mut Call| {
            call.head_mut().extensions_mut().insert(7_u32);
            Ok(())
        });
        let (_service, _served, client) = layered(transport, tag).await;
        assert_eq!(ask(&client, "extension").await.unwrap(), "Some(7)");
    });
}

#[test]
fn metadata_of_a_channel_layer_arrives_in_process() {
    in_virtual_time(async {
        let service = TestService::default();
        let log = service.log.clone();
        let look = interceptor(move |call: &mut Call| {
            log.add(call.head().metadata().get("x-caller").unwrap_or_default());
            Ok(())
        });
        let services = Services::new().layer(look).add_service(TestServer::new(service.clone()));
        let served = Transport::InProcess.serve(services).await;
        let tag = interceptor(|call: &mut Call| Ok(call.head_mut().metadata_mut().insert("x-caller", "billing")?));
        let client = TestClient::new(served.channel.layer(tag));
        for kind in 0..4 {
            of_kind(&client, kind, "hi").await.unwrap();
            assert_eq!(service.log.take()[0], "billing");
        }
    });
}

#[test]
fn metadata_of_a_channel_layer_fails_plain_calls() {
    in_virtual_time(async {
        let tag = interceptor(|call: &mut Call| Ok(call.head_mut().metadata_mut().insert("x-caller", "billing")?));
        let (service, _served, client) = layered_client(Transport::Frisbee, tag).await;
        for result in each_kind(&client, "hi").await {
            assert_eq!(result.unwrap_err().code(), Code::FailedPrecondition);
        }
        assert!(service.log.take().is_empty());
    });
}

/// Answers every call without the next layer.
struct Cache;

impl Layer for Cache {
    async fn call(&self, call: Call, _: Next<'_>) -> Result<Answer, Status> {
        let content = encoded("cached");
        Ok(Answer::new(match call.method().name {
            "Count" | "Chat" => Body::Many(Streaming::from_iter([content])),
            _ => content.into(),
        }))
    }
}

fn a_layer_can_answer_without_the_handler(transport: Transport) {
    in_virtual_time(async {
        let around_server = layered(transport, Cache).await;
        let around_client = layered_client(transport, Cache).await;
        for (service, served, client) in [around_server, around_client] {
            for result in each_kind(&client, "hi").await {
                assert_eq!(result.unwrap(), "cached");
            }
            assert!(service.log.take().is_empty(), "no handler was called");
            served.assert_unharmed().await;
        }
    });
}

/// Refuses calls without a valid token.
fn refusal() -> impl Layer {
    interceptor(|call: &mut Call| match call.head().metadata().get("authorization") {
        Some("Bearer s3cret") => Ok(()),
        _ => Err(Status::unauthenticated("no valid token")),
    })
}

fn a_call_rejected_by_a_layer_reaches_no_handler(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = layered(transport, refusal()).await;
        for result in each_kind(&client, "hi").await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no valid token"));
        }
        assert!(service.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

fn a_call_rejected_by_a_channel_layer_is_not_sent(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = layered_client(transport, refusal()).await;
        for result in each_kind(&client, "hi").await {
            assert_eq!(result.unwrap_err().code(), Code::Unauthenticated);
        }
        assert!(service.log.take().is_empty());
        if let Some(connection) = served.channel.connection() {
            settle().await;
            assert_eq!(connection.metrics().counters.packets_out, 0);
        }
    });
}

/// Logs the information about each call visible to a layer.
fn looking(log: &EventLog) -> impl Layer {
    let log = log.clone();
    interceptor(move |call: &mut Call| {
        log.add(format!("{} {:?}", call.method().path(), call.body().content_len()));
        Ok(())
    })
}

fn a_layer_sees_the_method_and_the_body_length(transport: Transport) {
    in_virtual_time(async {
        let log = EventLog::default();
        let (_service, served, _) = layered(transport, looking(&log)).await;
        let client = TestClient::new(served.channel.clone().layer(looking(&log)));
        let len = encoded("hi").len();
        for (kind, seen) in [
            format!("calls.Test/Say Some({len})"),
            format!("calls.Test/Count Some({len})"),
            "calls.Test/Gather None".into(),
            "calls.Test/Chat None".into(),
        ]
        .into_iter()
        .enumerate()
        {
            of_kind(&client, kind, "hi").await.unwrap();
            assert_eq!(log.take(), [&*seen, &*seen], "on the channel and on the server");
        }
    });
}

fn a_layer_sees_the_peer_and_the_metadata(transport: Transport) {
    in_virtual_time(async {
        let log = EventLog::default();
        let look = interceptor({
            let log = log.clone();
            move |call: &mut Call| {
                log.add(format!("{:?} {:?}", call.peer_addr(), call.head().metadata().get("x-caller")));
                Ok(())
            }
        });
        let (_service, _served, client) = layered(transport, look).await;
        let (mut request, seen) = (
            Request::new(words("hi")),
            match transport {
                Transport::InProcess => "None Some(\"billing\")",
                Transport::Nats => "None None",
                _ => "Some(Unnamed) None",
            },
        );
        if transport == Transport::InProcess {
            request.metadata_mut().insert("x-caller", "billing").unwrap();
        }
        client.say(request).await.unwrap();
        assert_eq!(log.take(), [seen]);
    });
}

/// Turns failed calls into successful ones.
struct Cure;

impl Layer for Cure {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let is_not_found = |status: &Status| status.code() == Code::NotFound;
        match next.run(call).await {
            Err(status) if is_not_found(&status) => Ok(Answer::new(encoded("cured").into())),
            Ok(answer) => match answer.into_body() {
                Body::Many(contents) => Ok(Answer::new(Body::Many(Streaming::new(contents.map(move |content| {
                    content.or_else(|status| if is_not_found(&status) { Ok(encoded("cured")) } else { Err(status) })
                }))))),
                body => Ok(Answer::new(body)),
            },
            answer => answer,
        }
    }
}

fn a_channel_layer_sees_failures_as_statuses(transport: Transport) {
    in_virtual_time(async {
        let (_service, served, client) = layered_client(transport, Cure).await;
        for result in each_kind(&client, "fail 5 no such order").await {
            assert_eq!(result.unwrap(), "cured");
        }
        for result in each_kind(&client, "fail 6 there is one").await {
            assert_eq!(result.unwrap_err().code(), Code::AlreadyExists);
        }
        assert_eq!(each_kind(&client, "hi").await.map(Result::unwrap), ["hi", "hi", "hi", "re: hi"]);
        served.assert_unharmed().await;
    });
}

fn a_panic_in_a_layer_becomes_a_status(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = layered(transport, interceptor(|_: &mut Call| panic!("as told"))).await;
        for result in each_kind(&client, "hi").await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
        }
        assert!(service.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

/// Holds every call until the gate opens. Logs calls dropped meanwhile.
#[derive(Clone, Default)]
struct Hold {
    log: EventLog,
    gate: Gate,
}

struct Held(EventLog);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

impl Layer for Hold {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let _held = Held(self.log.clone());
        self.log.add("holds");
        self.gate.passed().await;
        next.run(call).await
    }
}

/// Makes a call and drops it while the layer holds it. Returns the log of the layer.
async fn seen_of_dropped(client: &TestClient, kind: usize, log: &EventLog) -> Vec<String> {
    let client = client.clone();
    let call = tokio::spawn(async move { of_kind(&client, kind, "hi").await });
    settle().await;
    call.abort();
    settle().await;
    log.take()
}

fn a_channel_layer_is_dropped_with_its_call(transport: Transport) {
    in_virtual_time(async {
        let hold = Hold::default();
        let (service, _served, client) = layered_client(transport, hold.clone()).await;
        for kind in 0..4 {
            assert_eq!(seen_of_dropped(&client, kind, &hold.log).await, ["holds", "dropped"]);
        }
        assert!(service.log.take().is_empty());
    });
}

fn a_server_layer_is_dropped_with_a_streaming_call(transport: Transport) {
    in_virtual_time(async {
        let hold = Hold::default();
        let (service, served, client) = layered(transport, hold.clone()).await;
        for kind in 1..4 {
            assert_eq!(seen_of_dropped(&client, kind, &hold.log).await, ["holds", "dropped"]);
        }
        // frisbee does not notify the server about dropped unary calls.
        if transport == Transport::InProcess {
            assert_eq!(seen_of_dropped(&client, 0, &hold.log).await, ["holds", "dropped"]);
        }
        assert!(service.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

#[track_caller]
fn assert_too_slow(status: &Status) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(status.message(), "the call took longer than 5s");
}

fn a_timeout_layer_ends_slow_handlers(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = layered(transport, Timeout::new(5 * SECOND)).await;
        for (kind, text) in [(0, "sleep 10"), (1, "first sleep 10"), (2, "sleep 10")] {
            let since = Instant::now();
            assert_too_slow(&of_kind(&client, kind, text).await.unwrap_err());
            assert_elapsed(since, 5 * SECOND);
            assert!(service.log.take()[1].starts_with("dropped "));
        }
        for result in each_kind(&client, "sleep 4").await {
            result.unwrap();
        }
        served.assert_unharmed().await;
    });
}

fn a_timeout_layer_does_not_limit_response_streams(transport: Transport) {
    in_virtual_time(async {
        // One after another: an HTTP server does not keep connections without a request.
        for is_around_server in [true, false] {
            let (_service, _served, client) = match is_around_server {
                true => layered(transport, Timeout::new(5 * SECOND)).await,
                false => layered_client(transport, Timeout::new(5 * SECOND)).await,
            };
            assert_eq!(of_kind(&client, 1, "sleep 10, sleep 10").await.unwrap(), "sleep 10 sleep 10");
            assert_eq!(of_kind(&client, 3, "sleep 10").await.unwrap(), "re: sleep 10");
        }
    });
}

fn a_timeout_layer_of_a_channel_ends_calls(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = layered_client(transport, Timeout::new(5 * SECOND)).await;
        for kind in [0, 2] {
            let since = Instant::now();
            assert_too_slow(&of_kind(&client, kind, "sleep 10").await.unwrap_err());
            assert_elapsed(since, 5 * SECOND);
        }
    });
}

fn a_concurrency_limit_queues_excess_calls(transport: Transport) {
    in_virtual_time(async {
        let around_server = layered(transport, ConcurrencyLimit::new(2)).await;
        let around_client = layered_client(transport, ConcurrencyLimit::new(2)).await;
        for (service, _served, client) in [around_server, around_client] {
            let calls: Vec<_> = (0..3).map(|_| asking(&client, "wait")).collect();
            settle().await;
            assert_eq!(service.log.take(), ["say wait"; 2]);
            service.gate.open(1);
            settle().await;
            assert_eq!(service.log.take(), ["say wait"], "one has ended, and so the third has begun");
            service.gate.open(2);
            for call in calls {
                call.await.unwrap().unwrap();
            }
        }
    });
}

fn a_rejecting_concurrency_limit_fails_excess_calls(transport: Transport) {
    in_virtual_time(async {
        let limit = || ConcurrencyLimit::new(1).failing();
        let (around_server, around_client) =
            (layered(transport, limit()).await, layered_client(transport, limit()).await);
        for (service, _served, client) in [around_server, around_client] {
            let call = asking(&client, "wait");
            settle().await;
            for result in each_kind(&client, "hi").await {
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert_eq!(status.message(), "the limit of 1 concurrent calls is reached");
            }
            assert_eq!(service.log.take(), ["say wait"]);
            service.gate.open(1);
            call.await.unwrap().unwrap();
            for result in each_kind(&client, "hi").await {
                result.unwrap();
            }
        }
    });
}

/// Checks that a response stream counts from its start until its end or drop.
async fn check_that_a_stream_counts(client: &TestClient) {
    let is_full = async || {
        settle().await;
        ask(client, "hi").await.is_err_and(|status| status.code() == Code::ResourceExhausted)
    };
    let mut answers = client.count(words("one, two")).await.unwrap().into_inner();
    assert_eq!(next(&mut answers).await, "one");
    assert!(is_full().await, "the stream has not ended");
    assert_eq!(next(&mut answers).await, "two");
    assert_eq!(answers.message().await.unwrap(), None);
    assert!(!is_full().await, "the stream has ended");

    let mut failing = client.count(words("one, fail 5 enough")).await.unwrap().into_inner();
    assert_eq!(next(&mut failing).await, "one");
    assert!(is_full().await);
    failing.message().await.unwrap_err();
    assert_eq!(failing.message().await.unwrap(), None);
    assert!(!is_full().await, "the stream has failed");

    let mut dropped = client.chat(stream_of("a b")).await.unwrap().into_inner();
    assert_eq!(next(&mut dropped).await, "re: a");
    assert!(is_full().await);
    drop(dropped);
    assert!(!is_full().await, "the stream was dropped");
    drop((answers, failing));
}

fn a_stream_counts_towards_the_limit_until_it_ends(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = layered(transport, ConcurrencyLimit::new(1).failing()).await;
        // Messages in flight may all be sent before the caller reads them, so make the handler wait.
        let mut answers = client.count(words("one, wait")).await.unwrap().into_inner();
        assert_eq!(next(&mut answers).await, "one");
        assert_eq!(ask(&client, "hi").await.unwrap_err().code(), Code::ResourceExhausted);
        drop(answers);
        settle().await;
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
    });
}

fn a_stream_counts_on_a_channel_until_it_ends(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = layered_client(transport, ConcurrencyLimit::new(1).failing()).await;
        check_that_a_stream_counts(&client).await;
    });
}

fn a_trace_has_a_method_span_and_an_event_with_the_code(transport: Transport) {
    in_virtual_time(async {
        let around_server = layered(transport, Trace::new()).await;
        let around_client = layered_client(transport, Trace::for_channel()).await;
        for ((_service, _served, client), side) in [(around_server, "server"), (around_client, "client")] {
            let log = ThreadLog::hear(Level::DEBUG);
            let methods = ["Say", "Count", "Gather", "Chat"].into_iter().enumerate();
            for (kind, method) in methods {
                let span = format!("DEBUG call{{otel.name=calls.Test/{method} otel.kind=\"{side}\"");
                of_kind(&client, kind, "hi").await.unwrap();
                assert_one_has(&traced(&log), &span, "rpc.status_code=\"OK\"}: call answered code=Ok elapsed=");
                of_kind(&client, kind, "fail 5 no such order").await.unwrap_err();
                let end = "rpc.status_code=\"NOT_FOUND\" error.type=\"NOT_FOUND\"}: call failed code=NotFound reason=\"no such order\" elapsed=";
                assert_one_has(&traced(&log), &span, end);
            }
        }
    });
}

#[track_caller]
fn assert_one_has(lines: &[String], begin: &str, rest: &str) {
    assert_one_begins(lines, begin);
    assert!(lines[0].contains(rest), "{lines:?} without {rest:?}");
}

#[track_caller]
fn assert_one_begins(lines: &[String], begin: &str) {
    assert!(lines.len() == 1 && lines[0].starts_with(begin), "{lines:?} instead of one that begins with {begin:?}");
}

fn the_trace_level_depends_on_the_origin_of_the_failure(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = layered(transport, Trace::new()).await;
        let log = ThreadLog::hear(Level::DEBUG);
        for (code, level) in [
            (2, "WARN"),
            (13, "WARN"),
            (15, "WARN"),
            (4, "INFO"),
            (8, "INFO"),
            (14, "INFO"),
            (3, "DEBUG"),
            (16, "DEBUG"),
        ] {
            for kind in 0..4 {
                of_kind(&client, kind, &format!("fail {code} text")).await.unwrap_err();
                let lines = traced(&log);
                assert_one_begins(&lines, &format!("{level} call{{"));
                let has_peer = lines[0].contains(" peer=");
                assert_eq!(has_peer, !matches!(transport, Transport::InProcess | Transport::Nats), "{lines:?}");
            }
        }
    });
}

/// Logs the results and durations of calls.
struct Ends(EventLog);

impl Layer for Ends {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (log, begun) = (self.0.clone(), Instant::now());
        let end = move |end: Result<(), &Status>| {
            log.add(format!(
                "{:?} after {} s",
                end.map_or_else(Status::code, |()| Code::Ok),
                begun.elapsed().as_secs()
            ));
        };
        Ok(next.run(call).await?.on_end(end))
    }
}

fn a_layer_sees_the_end_of_streams(transport: Transport) {
    in_virtual_time(async {
        let (on_server, on_channel) = (EventLog::default(), EventLog::default());
        let around_server = layered(transport, Ends(on_server.clone())).await;
        let around_client = layered_client(transport, Ends(on_channel.clone())).await;
        for ((service, _served, client), log) in [(around_server, on_server), (around_client, on_channel)] {
            ask(&client, "sleep 1").await.unwrap();
            assert_eq!(log.take(), ["Ok after 1 s"]);
            let mut answers = client.count(words("one, sleep 2, three")).await.unwrap().into_inner();
            assert_eq!(next(&mut answers).await, "one");
            assert!(log.take().is_empty(), "it goes on");
            while answers.message().await.unwrap().is_some() {}
            assert_eq!(log.take(), ["Ok after 2 s"]);
            of_kind(&client, 1, "one, sleep 3, fail 5 no more").await.unwrap_err();
            assert_eq!(log.take(), ["NotFound after 3 s"]);
            let mut given_up = client.count(words("one, wait")).await.unwrap().into_inner();
            assert_eq!(next(&mut given_up).await, "one");
            drop(given_up);
            settle().await;
            assert_eq!(log.take(), ["Cancelled after 0 s"]);
            service.gate.open(1);
        }
    });
}

/// Returns the log lines within spans.
fn traced(log: &ThreadLog) -> Vec<String> {
    log.take().into_iter().filter(|line| line.contains("call{")).collect()
}

/// A server of frpc accepts layers like its services do.
#[test]
fn servers_and_channel_builders_accept_layers() {
    in_virtual_time(async {
        let service = TestService::default();
        let note = |name| Note { log: service.log.clone(), name };
        let server = frpc::Server::builder().config(quiet()).layer(note("server"));
        let server = server.add_service(TestServer::new(service.clone())).without_listener().unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        let channel = quiet_channel().layer(note("channel")).attach(ours).await.unwrap();
        ask(&TestClient::new(channel), "hi").await.unwrap();
        let expected = ["channel: Say", "server: Say", "say hi", "server: answer", "channel: answer"];
        assert_eq!(service.log.take(), expected);
    });
}
