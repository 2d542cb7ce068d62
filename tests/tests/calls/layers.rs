//! Layers around calls, on servers, on services and on channels.

use frpc::{
    Answer, Body, Call, Code, Layer, Layered, Next, Request, Services, Status, Streaming, interceptor,
    layers::{ConcurrencyLimit, Timeout, Trace},
};
use futures_util::StreamExt;
use tests::ThreadLog;
use tokio::time::Instant;
use tracing::Level;

use crate::{
    support::{
        Clerk, Gate, Log, SECOND, ask, asking, assert_elapsed, each_kind, next, of_kind, quiet, said,
        schema::{desk_client::DeskClient, desk_server::DeskServer},
        settled, speech, virtually, words,
    },
    transport::{Served, Transport, over_every_transport},
};

over_every_transport! {
    the_layer_that_was_added_first_sees_a_call_first_and_its_answer_last
    layers_of_a_service_are_around_no_other
    layers_of_a_channel_are_not_around_the_calls_of_its_clones
    what_a_layer_puts_into_the_head_is_there_for_the_handler
    a_layer_may_answer_by_itself
    a_call_that_a_layer_refuses_never_reaches_the_handler
    a_call_that_a_layer_of_the_channel_refuses_never_leaves
    a_layer_sees_the_method_and_the_length_of_the_body
    a_layer_sees_who_calls_and_with_what
    a_layer_of_a_channel_sees_a_status_as_one
    a_panic_of_a_layer_is_a_status
    a_layer_of_a_channel_is_dropped_with_its_call
    a_layer_of_a_server_is_dropped_with_a_call_with_streams
    a_timeout_ends_handlers_that_are_not_done_in_time
    a_timeout_lets_a_stream_of_answers_go_on
    a_timeout_of_a_channel_ends_calls
    a_limit_lets_calls_wait_for_others_to_end
    a_limit_that_fails_calls_refuses_one_more
    a_stream_counts_until_it_ends
    a_stream_counts_on_a_channel_until_it_ends
    a_trace_is_a_span_with_the_method_and_an_event_with_the_code
}

/// Writes down which calls come by, and which answers.
struct Note {
    log: Log,
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

/// A desk with layers around all services of its server.
async fn layered(transport: Transport, layer: impl Layer) -> (Clerk, Served, DeskClient) {
    let clerk = Clerk::default();
    let services = Services::new().layer(layer).add_service(DeskServer::new(clerk.clone()));
    let served = transport.serve(services).await;
    let desk = DeskClient::new(served.channel.clone());
    (clerk, served, desk)
}

/// A desk whose client has a layer.
async fn layered_client(transport: Transport, layer: impl Layer) -> (Clerk, Served, DeskClient) {
    let (clerk, served, _) = transport.desk().await;
    let desk = DeskClient::new(served.channel.clone().layer(layer));
    (clerk, served, desk)
}

fn the_layer_that_was_added_first_sees_a_call_first_and_its_answer_last(transport: Transport) {
    virtually(async {
        let clerk = Clerk::default();
        let note = |name| Note { log: clerk.log.clone(), name };
        let desk = Layered::new(DeskServer::new(clerk.clone()), note("service")).layer(note("inner service"));
        // Layers are around services that are added later, too.
        let services = Services::new().layer(note("server")).add_service(desk).layer(note("inner server"));
        let served = transport.serve(services).await;
        let channel = served.channel.clone().layer(note("channel")).layer(note("inner channel"));
        let desk = DeskClient::new(channel);

        let order = ["channel", "inner channel", "server", "inner server", "service", "inner service"];
        assert_eq!(ask(&desk, "hi").await.unwrap(), "hi");
        let mut expected = order.map(|name| format!("{name}: Say")).to_vec();
        expected.push("say hi".into());
        expected.extend(order.iter().rev().map(|name| format!("{name}: answer")));
        assert_eq!(clerk.log.take(), expected);

        for (kind, method) in [(1, "Count"), (2, "Gather"), (3, "Chat")] {
            of_kind(&desk, kind, "hi").await.unwrap();
            let log = clerk.log.take();
            // An answer that is a stream comes back to the channel before it has begun.
            let calls = log.iter().filter(|line| line.ends_with(method));
            assert!(calls.eq(&order.map(|name| format!("{name}: {method}"))), "{log:?}");
            let answers = log.iter().filter(|line| line.ends_with("answer") && line.contains("ser"));
            let expected: Vec<_> = order[2..].iter().rev().map(|name| format!("{name}: answer")).collect();
            assert!(answers.eq(&expected), "{log:?}");
        }
    });
}

fn layers_of_a_service_are_around_no_other(transport: Transport) {
    virtually(async {
        use crate::support::schema::{phone_client::PhoneClient, phone_server::PhoneServer};
        let clerk = Clerk::default();
        let note = Note { log: clerk.log.clone(), name: "desk" };
        let services = Services::new().add_service(Layered::new(DeskServer::new(clerk.clone()), note));
        let served = transport.serve(services.add_service(PhoneServer::new(clerk.clone()))).await;
        let (desk, phone) = (DeskClient::new(served.channel.clone()), PhoneClient::new(served.channel.clone()));
        phone.say(words("hi")).await.unwrap();
        assert_eq!(clerk.log.take(), ["say hi"]);
        desk.say(words("hi")).await.unwrap();
        assert_eq!(clerk.log.take(), ["desk: Say", "say hi", "desk: answer"]);
    });
}

fn layers_of_a_channel_are_not_around_the_calls_of_its_clones(transport: Transport) {
    virtually(async {
        let (clerk, served, desk) = transport.desk().await;
        let note = Note { log: clerk.log.clone(), name: "client" };
        let noted = DeskClient::new(served.channel.clone().layer(note));
        ask(&desk, "hi").await.unwrap();
        assert_eq!(clerk.log.take(), ["say hi"]);
        ask(&noted, "hi").await.unwrap();
        assert_eq!(clerk.log.take(), ["client: Say", "say hi", "client: answer"]);
    });
}

fn what_a_layer_puts_into_the_head_is_there_for_the_handler(transport: Transport) {
    virtually(async {
        let tag = interceptor(|call: &mut Call| {
            call.head_mut().extensions_mut().insert(7_u32);
            Ok(())
        });
        let (_clerk, _served, desk) = layered(transport, tag).await;
        assert_eq!(ask(&desk, "extension").await.unwrap(), "Some(7)");
    });
}

#[test]
fn metadata_of_a_layer_of_the_channel_arrives_in_process() {
    virtually(async {
        let clerk = Clerk::default();
        let log = clerk.log.clone();
        let look = interceptor(move |call: &mut Call| {
            log.add(call.head().metadata().get("x-caller").unwrap_or_default());
            Ok(())
        });
        let services = Services::new().layer(look).add_service(DeskServer::new(clerk.clone()));
        let served = Transport::InProcess.serve(services).await;
        let tag = interceptor(|call: &mut Call| Ok(call.head_mut().metadata_mut().insert("x-caller", "billing")?));
        let desk = DeskClient::new(served.channel.layer(tag));
        for kind in 0..4 {
            of_kind(&desk, kind, "hi").await.unwrap();
            assert_eq!(clerk.log.take()[0], "billing");
        }
    });
}

#[test]
fn metadata_of_a_layer_of_the_channel_fails_calls_over_frisbee() {
    virtually(async {
        let tag = interceptor(|call: &mut Call| Ok(call.head_mut().metadata_mut().insert("x-caller", "billing")?));
        let (clerk, _served, desk) = layered_client(Transport::Frisbee, tag).await;
        for result in each_kind(&desk, "hi").await {
            assert_eq!(result.unwrap_err().code(), Code::FailedPrecondition);
        }
        assert!(clerk.log.take().is_empty());
    });
}

/// Answers every call without running what is next.
struct Cache;

impl Layer for Cache {
    async fn call(&self, call: Call, _: Next<'_>) -> Result<Answer, Status> {
        let content = said("cached");
        Ok(Answer::new(match call.method().name {
            "Count" | "Chat" => Body::Many(Streaming::from_iter([content])),
            _ => content.into(),
        }))
    }
}

fn a_layer_may_answer_by_itself(transport: Transport) {
    virtually(async {
        let around_server = layered(transport, Cache).await;
        let around_client = layered_client(transport, Cache).await;
        for (clerk, served, desk) in [around_server, around_client] {
            for result in each_kind(&desk, "hi").await {
                assert_eq!(result.unwrap(), "cached");
            }
            assert!(clerk.log.take().is_empty(), "no handler was called");
            served.assert_unharmed().await;
        }
    });
}

/// Lets no call on, as an interceptor that finds no valid token.
fn refusal() -> impl Layer {
    interceptor(|call: &mut Call| match call.head().metadata().get("authorization") {
        Some("Bearer s3cret") => Ok(()),
        _ => Err(Status::unauthenticated("no valid token")),
    })
}

fn a_call_that_a_layer_refuses_never_reaches_the_handler(transport: Transport) {
    virtually(async {
        let (clerk, served, desk) = layered(transport, refusal()).await;
        for result in each_kind(&desk, "hi").await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no valid token"));
        }
        assert!(clerk.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

fn a_call_that_a_layer_of_the_channel_refuses_never_leaves(transport: Transport) {
    virtually(async {
        let (clerk, served, desk) = layered_client(transport, refusal()).await;
        for result in each_kind(&desk, "hi").await {
            assert_eq!(result.unwrap_err().code(), Code::Unauthenticated);
        }
        assert!(clerk.log.take().is_empty());
        if let Some(connection) = served.channel.connection() {
            settled().await;
            assert_eq!(connection.metrics().counters.packets_out, 0);
        }
    });
}

/// Writes down what a layer sees of each call.
fn looking(log: &Log) -> impl Layer {
    let log = log.clone();
    interceptor(move |call: &mut Call| {
        log.add(format!("{} {:?}", call.method().path(), call.body().content_len()));
        Ok(())
    })
}

fn a_layer_sees_the_method_and_the_length_of_the_body(transport: Transport) {
    virtually(async {
        let log = Log::default();
        let (_clerk, served, _) = layered(transport, looking(&log)).await;
        let desk = DeskClient::new(served.channel.clone().layer(looking(&log)));
        let len = said("hi").len();
        for (kind, seen) in [
            format!("calls.Desk/Say Some({len})"),
            format!("calls.Desk/Count Some({len})"),
            "calls.Desk/Gather None".into(),
            "calls.Desk/Chat None".into(),
        ]
        .into_iter()
        .enumerate()
        {
            of_kind(&desk, kind, "hi").await.unwrap();
            assert_eq!(log.take(), [&*seen, &*seen], "on the channel and on the server");
        }
    });
}

fn a_layer_sees_who_calls_and_with_what(transport: Transport) {
    virtually(async {
        let log = Log::default();
        let look = interceptor({
            let log = log.clone();
            move |call: &mut Call| {
                log.add(format!("{:?} {:?}", call.peer_addr(), call.head().metadata().get("x-caller")));
                Ok(())
            }
        });
        let (_clerk, _served, desk) = layered(transport, look).await;
        let (mut request, seen) = (
            Request::new(words("hi")),
            match transport {
                Transport::InProcess => "None Some(\"billing\")",
                Transport::Frisbee => "Some(Unnamed) None",
            },
        );
        if transport == Transport::InProcess {
            request.metadata_mut().insert("x-caller", "billing").unwrap();
        }
        desk.say(request).await.unwrap();
        assert_eq!(log.take(), [seen]);
    });
}

/// Makes the best of calls that fail.
struct Cure;

impl Layer for Cure {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let is_not_found = |status: &Status| status.code() == Code::NotFound;
        match next.run(call).await {
            Err(status) if is_not_found(&status) => Ok(Answer::new(said("cured").into())),
            Ok(answer) => match answer.into_body() {
                Body::Many(contents) => Ok(Answer::new(Body::Many(Streaming::new(contents.map(move |content| {
                    content.or_else(|status| if is_not_found(&status) { Ok(said("cured")) } else { Err(status) })
                }))))),
                body => Ok(Answer::new(body)),
            },
            answer => answer,
        }
    }
}

fn a_layer_of_a_channel_sees_a_status_as_one(transport: Transport) {
    virtually(async {
        let (_clerk, served, desk) = layered_client(transport, Cure).await;
        for result in each_kind(&desk, "fail 5 no such order").await {
            assert_eq!(result.unwrap(), "cured");
        }
        for result in each_kind(&desk, "fail 6 there is one").await {
            assert_eq!(result.unwrap_err().code(), Code::AlreadyExists);
        }
        assert_eq!(each_kind(&desk, "hi").await.map(Result::unwrap), ["hi", "hi", "hi", "re: hi"]);
        served.assert_unharmed().await;
    });
}

fn a_panic_of_a_layer_is_a_status(transport: Transport) {
    virtually(async {
        let (clerk, served, desk) = layered(transport, interceptor(|_: &mut Call| panic!("as told"))).await;
        for result in each_kind(&desk, "hi").await {
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
        }
        assert!(clerk.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

/// Holds every call until the gate opens. Tells when a call is dropped meanwhile.
#[derive(Clone, Default)]
struct Hold {
    log: Log,
    gate: Gate,
}

struct Held(Log);

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

/// Makes a call, drops it while the layer holds it, and returns what the layer saw.
async fn seen_of_dropped(desk: &DeskClient, kind: usize, log: &Log) -> Vec<String> {
    let desk = desk.clone();
    let call = tokio::spawn(async move { of_kind(&desk, kind, "hi").await });
    settled().await;
    call.abort();
    settled().await;
    log.take()
}

fn a_layer_of_a_channel_is_dropped_with_its_call(transport: Transport) {
    virtually(async {
        let hold = Hold::default();
        let (clerk, _served, desk) = layered_client(transport, hold.clone()).await;
        for kind in 0..4 {
            assert_eq!(seen_of_dropped(&desk, kind, &hold.log).await, ["holds", "dropped"]);
        }
        assert!(clerk.log.take().is_empty());
    });
}

fn a_layer_of_a_server_is_dropped_with_a_call_with_streams(transport: Transport) {
    virtually(async {
        let hold = Hold::default();
        let (clerk, served, desk) = layered(transport, hold.clone()).await;
        for kind in 1..4 {
            assert_eq!(seen_of_dropped(&desk, kind, &hold.log).await, ["holds", "dropped"]);
        }
        // Frisbee tells nobody of a unary call that is given up.
        if transport == Transport::InProcess {
            assert_eq!(seen_of_dropped(&desk, 0, &hold.log).await, ["holds", "dropped"]);
        }
        assert!(clerk.log.take().is_empty());
        served.assert_unharmed().await;
    });
}

#[track_caller]
fn assert_too_slow(status: &Status) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(status.message(), "the call took longer than 5s");
}

fn a_timeout_ends_handlers_that_are_not_done_in_time(transport: Transport) {
    virtually(async {
        let (clerk, served, desk) = layered(transport, Timeout::new(5 * SECOND)).await;
        for (kind, text) in [(0, "sleep 10"), (1, "first sleep 10"), (2, "sleep 10")] {
            let since = Instant::now();
            assert_too_slow(&of_kind(&desk, kind, text).await.unwrap_err());
            assert_elapsed(since, 5 * SECOND);
            assert!(clerk.log.take()[1].starts_with("dropped "));
        }
        for result in each_kind(&desk, "sleep 4").await {
            result.unwrap();
        }
        served.assert_unharmed().await;
    });
}

fn a_timeout_lets_a_stream_of_answers_go_on(transport: Transport) {
    virtually(async {
        let around_server = layered(transport, Timeout::new(5 * SECOND)).await;
        let around_client = layered_client(transport, Timeout::new(5 * SECOND)).await;
        for (_clerk, _served, desk) in [around_server, around_client] {
            assert_eq!(of_kind(&desk, 1, "sleep 10, sleep 10").await.unwrap(), "sleep 10 sleep 10");
            assert_eq!(of_kind(&desk, 3, "sleep 10").await.unwrap(), "re: sleep 10");
        }
    });
}

fn a_timeout_of_a_channel_ends_calls(transport: Transport) {
    virtually(async {
        let (_clerk, _served, desk) = layered_client(transport, Timeout::new(5 * SECOND)).await;
        for kind in [0, 2] {
            let since = Instant::now();
            assert_too_slow(&of_kind(&desk, kind, "sleep 10").await.unwrap_err());
            assert_elapsed(since, 5 * SECOND);
        }
    });
}

fn a_limit_lets_calls_wait_for_others_to_end(transport: Transport) {
    virtually(async {
        let around_server = layered(transport, ConcurrencyLimit::new(2)).await;
        let around_client = layered_client(transport, ConcurrencyLimit::new(2)).await;
        for (clerk, _served, desk) in [around_server, around_client] {
            let calls: Vec<_> = (0..3).map(|_| asking(&desk, "wait")).collect();
            settled().await;
            assert_eq!(clerk.log.take(), ["say wait"; 2]);
            clerk.gate.open(1);
            settled().await;
            assert_eq!(clerk.log.take(), ["say wait"], "one has ended, and so the third has begun");
            clerk.gate.open(2);
            for call in calls {
                call.await.unwrap().unwrap();
            }
        }
    });
}

fn a_limit_that_fails_calls_refuses_one_more(transport: Transport) {
    virtually(async {
        let limit = || ConcurrencyLimit::new(1).failing();
        let (around_server, around_client) =
            (layered(transport, limit()).await, layered_client(transport, limit()).await);
        for (clerk, _served, desk) in [around_server, around_client] {
            let call = asking(&desk, "wait");
            settled().await;
            for result in each_kind(&desk, "hi").await {
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert_eq!(status.message(), "1 calls are under way already");
            }
            assert_eq!(clerk.log.take(), ["say wait"]);
            clerk.gate.open(1);
            call.await.unwrap().unwrap();
            for result in each_kind(&desk, "hi").await {
                result.unwrap();
            }
        }
    });
}

/// Checks that a stream of answers counts from its begin until it ends or is dropped.
async fn check_that_a_stream_counts(desk: &DeskClient) {
    let is_full = async || {
        settled().await;
        ask(desk, "hi").await.is_err_and(|status| status.code() == Code::ResourceExhausted)
    };
    let mut answers = desk.count(words("one, two")).await.unwrap().into_inner();
    assert_eq!(next(&mut answers).await, "one");
    assert!(is_full().await, "the stream has not ended");
    assert_eq!(next(&mut answers).await, "two");
    assert_eq!(answers.message().await.unwrap(), None);
    assert!(!is_full().await, "the stream has ended");

    let mut failing = desk.count(words("one, fail 5 enough")).await.unwrap().into_inner();
    assert_eq!(next(&mut failing).await, "one");
    assert!(is_full().await);
    failing.message().await.unwrap_err();
    assert_eq!(failing.message().await.unwrap(), None);
    assert!(!is_full().await, "the stream has failed");

    let mut dropped = desk.chat(speech("a b")).await.unwrap().into_inner();
    assert_eq!(next(&mut dropped).await, "re: a");
    assert!(is_full().await);
    drop(dropped);
    assert!(!is_full().await, "the stream was dropped");
    drop((answers, failing));
}

fn a_stream_counts_until_it_ends(transport: Transport) {
    virtually(async {
        let (_clerk, _served, desk) = layered(transport, ConcurrencyLimit::new(1).failing()).await;
        // Messages under way are none that a caller has read: the handler has to wait for something.
        let mut answers = desk.count(words("one, wait")).await.unwrap().into_inner();
        assert_eq!(next(&mut answers).await, "one");
        assert_eq!(ask(&desk, "hi").await.unwrap_err().code(), Code::ResourceExhausted);
        drop(answers);
        settled().await;
        assert_eq!(ask(&desk, "hi").await.unwrap(), "hi");
    });
}

fn a_stream_counts_on_a_channel_until_it_ends(transport: Transport) {
    virtually(async {
        let (_clerk, _served, desk) = layered_client(transport, ConcurrencyLimit::new(1).failing()).await;
        check_that_a_stream_counts(&desk).await;
    });
}

fn a_trace_is_a_span_with_the_method_and_an_event_with_the_code(transport: Transport) {
    virtually(async {
        let around_server = layered(transport, Trace::new()).await;
        let around_client = layered_client(transport, Trace::new()).await;
        for (_clerk, _served, desk) in [around_server, around_client] {
            let log = ThreadLog::hear(Level::DEBUG);
            for (kind, method) in ["Say", "Count", "Gather", "Chat"].into_iter().enumerate() {
                of_kind(&desk, kind, "hi").await.unwrap();
                let span = format!("call{{service=\"calls.Desk\" method=\"{method}\"}}");
                assert_eq!(traced(&log), [format!("DEBUG {span}: call answered code=Ok")]);
            }
            for (kind, method) in [(0, "Say"), (2, "Gather")] {
                of_kind(&desk, kind, "fail 5 no such order").await.unwrap_err();
                let span = format!("call{{service=\"calls.Desk\" method=\"{method}\"}}");
                let event = format!("DEBUG {span}: call failed code=NotFound message=\"no such order\"");
                assert_eq!(traced(&log), [event]);
            }
        }
    });
}

/// Returns what was logged within spans.
fn traced(log: &ThreadLog) -> Vec<String> {
    log.take().into_iter().filter(|line| line.contains("call{")).collect()
}

/// A server of frpc takes layers as its services do.
#[test]
fn a_server_and_the_builder_of_a_channel_take_layers() {
    virtually(async {
        let clerk = Clerk::default();
        let note = |name| Note { log: clerk.log.clone(), name };
        let server = frpc::Server::builder().config(quiet()).layer(note("server"));
        let server = server.add_service(DeskServer::new(clerk.clone())).without_listener().unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        let channel = crate::support::quietly().layer(note("channel")).attach(ours).await.unwrap();
        ask(&DeskClient::new(channel), "hi").await.unwrap();
        let expected = ["channel: Say", "server: Say", "say hi", "server: answer", "channel: answer"];
        assert_eq!(clerk.log.take(), expected);
    });
}
