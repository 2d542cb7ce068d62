//! Time limits of calls, to the millisecond. The tests for every transport come first, then those of connections and
//! runtimes.

use std::time::Duration;

use frpc::{
    CallError, CallSettings, Channel, Code, Config, Engine, Request, Server, Services, Status, Streaming, TimeLimits,
};
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        TestClient, TestServer, TestService, Words, all, ask, asking, next, of_kind, only_connection, own_packet,
        peer_of_channel, quiet_channel, schema::test_methods, serve, serve_and_connect, unused_address, words,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    runtime::{self, Handle, Runtime},
    time::{Instant, timeout},
};

use crate::transport::{Served, Transport, over_every_transport};

over_every_transport! {
    calls_end_at_their_timeout
    each_call_has_its_own_deadline
    timeouts_may_be_zero_or_infinite
    the_response_timeout_starts_at_the_end_of_the_requests
    response_streams_have_no_default_timeout
    a_request_timeout_covers_the_whole_stream
    an_endless_stream_ends_at_its_timeout
    an_unused_timeout_does_not_affect_later_calls
    servers_have_a_separate_timeout_for_streams
    methods_can_have_their_own_timeouts
}

/// Asserts that a call ended because of its timeout of this length.
#[track_caller]
fn assert_timed_out(status: &Status, expected: Duration) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let error = status.call_error().unwrap();
    assert!(matches!(error, CallError::TimedOut { limit } if *limit == expected), "{error:?}");
    assert!(!error.is_safe_to_repeat());
}

fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// Serves a test service with time limits to a channel without any.
async fn serve_with(transport: Transport, change: impl FnOnce(Services) -> Services) -> (Served, TestClient) {
    // In-process services have no server to limit their time.
    assert!(transport != Transport::InProcess);
    let service = TestServer::new(TestService::default());
    let served = transport.serve(change(Services::new()).add_service(service)).await;
    let client = TestClient::new(served.channel.clone().with_timeout(3600 * SECOND));
    (served, client)
}

/// Asserts that the server ended a call for lack of time, and that the status says so.
#[track_caller]
fn assert_ended_by_the_server(result: Result<String, Status>, limit: &str) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(status.message(), format!("the call took longer than {limit}, the time limit of the server"));
    assert!(status.call_error().is_none(), "the time of the caller is not over: {status:?}");
}

fn servers_have_a_separate_timeout_for_streams(transport: Transport) {
    if transport == Transport::InProcess {
        return;
    }
    in_virtual_time(async {
        let times = TimeLimits { default: Some(5 * SECOND), max: Some(60 * SECOND), ..TimeLimits::default() };
        let (_served, client) =
            serve_with(transport, |services| services.calls(CallSettings { times, ..CallSettings::default() })).await;
        for kind in 1..4 {
            let answer = of_kind(&client, kind, "sleep 300").await;
            assert!(answer.unwrap().ends_with("sleep 300"), "nobody said how long it may take");
        }
        let times = TimeLimits { stream_default: Some(7 * SECOND), ..times };
        let (_served, client) =
            serve_with(transport, |services| services.calls(CallSettings { times, ..CallSettings::default() })).await;
        for kind in 1..4 {
            let since = Instant::now();
            assert_ended_by_the_server(of_kind(&client, kind, "sleep 300").await, "7s");
            assert_elapsed(since, 7 * SECOND);
        }
        let mut begun = client.count(words("one, sleep 300")).await.unwrap().into_inner();
        assert_eq!(next(&mut begun).await, "one");
        assert_ended_by_the_server(begun.message().await.map(|_| String::new()), "7s");
    });
}

fn methods_can_have_their_own_timeouts(transport: Transport) {
    if transport == Transport::InProcess {
        return;
    }
    in_virtual_time(async {
        let all = TimeLimits { stream_default: Some(60 * SECOND), ..TimeLimits::default() };
        let count = TimeLimits { stream_default: Some(2 * SECOND), ..TimeLimits::default() };
        let say = TimeLimits { max: Some(3 * SECOND), ..TimeLimits::default() };
        let (_served, client) = serve_with(transport, |services| {
            services.calls(CallSettings {
                method_times: vec![(&test_methods::SAY, say), (&test_methods::COUNT, count)],
                times: all,
                ..CallSettings::default()
            })
        })
        .await;
        for (kind, limit) in ["3s", "2s", "60s", "60s"].into_iter().enumerate() {
            assert_ended_by_the_server(of_kind(&client, kind, "sleep 300").await, limit);
        }
    });
}

fn calls_end_at_their_timeout(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let short = TestClient::new(client.channel().clone().with_timeout(3 * SECOND));
        for (client, limit) in [(&client, 30 * SECOND), (&short, 3 * SECOND)] {
            for own in [None, Some(SECOND), Some(100 * SECOND)] {
                let (since, mut request) = (Instant::now(), Request::new(words("wait")));
                own.inspect(|own| request.set_timeout(*own));
                let status = client.say(request).await.unwrap_err();
                assert_elapsed(since, own.unwrap_or(limit));
                assert_timed_out(&status, own.unwrap_or(limit));
            }
        }
    });
}

#[test]
fn a_channel_has_the_timeout_of_its_builder() {
    in_virtual_time(async {
        let (client, _peer) = peer_of_channel(quiet_channel().timeout(7 * SECOND)).await;
        let since = Instant::now();
        assert_timed_out(&ask(&client, "hi").await.unwrap_err(), 7 * SECOND);
        assert_elapsed(since, 7 * SECOND);
    });
}

fn each_call_has_its_own_deadline(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let (since, mut calls) = (Instant::now(), Vec::new());
        for limit in [20, 10, 5, 15, 1, 1, 25].map(|seconds| seconds * SECOND) {
            let client = client.clone();
            calls.push((
                limit,
                tokio::spawn(async move {
                    let status = client.say(within(limit, words("wait"))).await.unwrap_err();
                    (status, since.elapsed())
                }),
            ));
            settle().await;
        }
        for (limit, call) in calls {
            let (status, elapsed) = call.await.unwrap();
            assert_timed_out(&status, limit);
            assert!((limit..limit + 20 * MILLI).contains(&elapsed), "{elapsed:?} instead of {limit:?}");
        }
        // One more call, long after all known deadlines.
        let since = Instant::now();
        client.say(within(2 * SECOND, words("wait"))).await.unwrap_err();
        assert_elapsed(since, 2 * SECOND);
    });
}

fn timeouts_may_be_zero_or_infinite(transport: Transport) {
    in_virtual_time(async {
        let (service, _served, client) = transport.serve_and_connect().await;
        let since = Instant::now();
        assert_timed_out(&client.say(within(Duration::ZERO, words("wait"))).await.unwrap_err(), Duration::ZERO);
        assert_elapsed(since, Duration::ZERO);
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.say(within(Duration::MAX, words("wait"))).await }
        });
        tokio::time::sleep(3600 * SECOND).await;
        service.gate.open(2);
        assert_eq!(call.await.unwrap().unwrap().into_inner(), words("wait"));
    });
}

fn the_response_timeout_starts_at_the_end_of_the_requests(transport: Transport) {
    in_virtual_time(async {
        let (service, _served, client) = transport.serve_and_connect().await;
        let client = TestClient::new(client.channel().clone().with_timeout(2 * SECOND));
        let (sender, requests) = Streaming::channel(1);
        let call = tokio::spawn(async move { client.gather(requests).await });
        for _ in 0..10 {
            tokio::time::sleep(10 * SECOND).await;
            sender.send(words("hi")).await.unwrap();
        }
        sender.send(words("wait")).await.unwrap();
        drop(sender);
        let since = Instant::now();
        assert_timed_out(&call.await.unwrap().unwrap_err(), 2 * SECOND);
        assert_elapsed(since, 2 * SECOND);
        settle().await;
        assert_eq!(service.log.take(), ["gather", "dropped gather"]);
    });
}

fn response_streams_have_no_default_timeout(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let client = TestClient::new(client.channel().clone().with_timeout(2 * SECOND));
        assert_eq!(all(client.count(words("sleep 50, sleep 60")).await.unwrap()).await.unwrap().len(), 2);
        let texts = Streaming::from_iter([words("sleep 70")]);
        assert_eq!(all(client.chat(texts).await.unwrap()).await.unwrap(), ["re: sleep 70"]);
    });
}

fn a_request_timeout_covers_the_whole_stream(transport: Transport) {
    in_virtual_time(async {
        let (service, served, client) = transport.serve_and_connect().await;
        let limit = 3 * SECOND;
        let answers: [fn(_) -> _; 2] = [
            |client: TestClient| {
                tokio::spawn(async move { client.count(within(3 * SECOND, words("endless sleep 2"))).await })
            },
            |client: TestClient| {
                tokio::spawn(async move { client.chat(within(3 * SECOND, endless(2 * SECOND))).await })
            },
        ];
        for call in answers {
            let since = Instant::now();
            let mut answers = call(client.clone()).await.unwrap().unwrap().into_inner();
            next(&mut answers).await;
            assert_timed_out(&answers.message().await.unwrap_err(), limit);
            assert_elapsed(since, limit);
            assert_eq!(answers.message().await.unwrap(), None);
        }
        let since = Instant::now();
        assert_timed_out(&client.gather(within(limit, endless(2 * SECOND))).await.unwrap_err(), limit);
        assert_elapsed(since, limit);
        served.assert_unharmed().await;
        let log = service.log.take();
        for what in ["count endless sleep 2", "chat", "gather"] {
            assert!(log.contains(&format!("dropped {what}")), "{log:?}");
        }
    });
}

fn an_endless_stream_ends_at_its_timeout(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        let since = Instant::now();
        let mut answers = client.count(within(SECOND, words("endless tick"))).await.unwrap().into_inner();
        let status = loop {
            match answers.message().await {
                Ok(_) => settle().await,
                Err(status) => break status,
            }
        };
        assert_timed_out(&status, SECOND);
        assert_elapsed(since, SECOND);
    });
}

/// An endless request stream.
fn endless(pause: Duration) -> Streaming<Words> {
    Streaming::new(futures_util::stream::unfold((), move |()| async move {
        tokio::time::sleep(pause).await;
        Some((Ok(words("hi")), ()))
    }))
}

fn an_unused_timeout_does_not_affect_later_calls(transport: Transport) {
    in_virtual_time(async {
        let (_service, _served, client) = transport.serve_and_connect().await;
        for _ in 0..5 {
            client.say(within(SECOND, words("hi"))).await.unwrap();
            tokio::time::sleep(SECOND / 2).await;
        }
        let since = Instant::now();
        assert_eq!(ask(&client, "sleep 20").await.unwrap(), "sleep 20");
        assert_elapsed(since, 20 * SECOND);
    });
}

#[test]
fn no_task_outlives_the_connection() {
    in_virtual_time(async {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let service = TestService::default();
        let server = serve(&service);
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        ask(&client, "hi").await.unwrap();
        let waiting = asking(&client, "wait");
        let mut answers = client.count(words("one, wait, two")).await.unwrap().into_inner();
        next(&mut answers).await;
        let (_sender, requests) = Streaming::channel(1);
        let mut chat = client.chat(requests).await.unwrap().into_inner();
        settle().await;
        drop(server);
        waiting.await.unwrap().unwrap_err();
        answers.message().await.unwrap_err();
        chat.message().await.unwrap_err();
        drop((client, answers, chat));
        settle().await;
        assert_eq!(tasks(), before);
    });
}

#[test]
fn a_connection_closes_with_its_last_channel_and_call() {
    in_virtual_time(async {
        let (_service, server, client) = serve_and_connect().await;
        let connection = only_connection(&server).await;
        let mut answers = client.count(words("one, two")).await.unwrap().into_inner();
        drop(client);
        settle().await;
        assert!(connection.close_reason().is_none(), "a call is under way");
        assert_eq!(next(&mut answers).await, "one");
        assert_eq!(next(&mut answers).await, "two");
        assert_eq!(answers.message().await.unwrap(), None);
        drop(answers);
        settle().await;
        assert!(connection.close_reason().is_some());
    });
}

/// Returns a runtime in real time.
fn real() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Asserts that an unanswered call from a separate runtime ends at its timeout.
fn assert_ends_in_time(channel: Channel) {
    let here = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    here.block_on(async {
        let client = TestClient::new(channel);
        let call = timeout(60 * SECOND, client.say(within(10 * MILLI, words("wait"))));
        assert_timed_out(&call.await.expect("the call ends").unwrap_err(), 10 * MILLI);
    });
}

#[test]
fn calls_time_out_after_the_connecting_runtime_ended() {
    let (home, passing) = (real(), real());
    let server = home.block_on(async {
        Server::builder().add_service(TestServer::new(TestService::default())).bind(&unused_address()).await.unwrap()
    });
    let connecting = Channel::builder().engine(Engine::PerCore).connect(server.local_addr().clone());
    let channel = passing.block_on(connecting).unwrap();
    drop(passing);
    assert_ends_in_time(channel);
    drop((server, home));
}

#[test]
fn calls_over_a_connection_time_out_without_its_runtime() {
    let (home, passing) = (real(), real());
    let (connection, _server) = home.block_on(async {
        let server = Server::builder().add_service(TestServer::new(TestService::default())).without_listener().unwrap();
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let client = ::frisbee::Client::new(Services::new()).config(Config::default());
        let connection = client.attach(ours).await.unwrap();
        connection.send(own_packet(1, "hello")).await.unwrap();
        connection.flush().await.unwrap();
        (connection, server)
    });
    let channel = passing.block_on(async { Channel::over(&connection) }).unwrap();
    drop(passing);
    assert_ends_in_time(channel);
    drop(home);
}
