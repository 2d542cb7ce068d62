//! Calls with a lost connection, and channels that reconnect.
//!
//! Only for frisbee, because in-process calls have no connection.

use std::time::Duration;

use frpc::{
    Address, CallError, Channel, ChannelBuilder, CloseReason, Code, Config, ConnectError, ConnectRetry, Connection,
    HandlerTable, Operation, Outcome, Packet, Router, Server, Status, Streaming,
};
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        SAY, TestClient, TestServer, TestService, ask, asking, connect, connect_plainly, each_kind, encoded,
        may_have_executed, next, of_kind, only_connection, peer, peer_of_channel, peer_with_buffer, quiet,
        quiet_channel, serve, serve_and_connect, unused_address, words,
    },
    frames::frame,
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    runtime,
    sync::mpsc,
    task::yield_now,
    time::{Instant, timeout},
};

async fn serving_at(address: &Address, service: &TestService, config: Config) -> Server {
    let server = Server::builder().config(config).add_service(TestServer::new(service.clone()));
    server.bind(address).await.unwrap()
}

async fn connected_to(address: &Address, builder: ChannelBuilder) -> TestClient {
    TestClient::new(builder.config(quiet()).connect(address).await.unwrap())
}

#[test]
fn a_sent_call_may_have_executed() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let calls = [asking(&client, "a"), asking(&client, "b")];
        assert_eq!(peer.heard().await.len(), 2);
        drop(peer);
        let since = Instant::now();
        for call in calls {
            assert!(may_have_executed(&call.await.unwrap().unwrap_err()));
        }
        assert_elapsed(since, Duration::ZERO);
        let status = ask(&client, "late").await.unwrap_err();
        assert!(!may_have_executed(&status), "the channel cannot connect again");
        assert!(status.call_error().unwrap().is_safe_to_repeat());
    });
}

/// Returns a configuration without an opening, so that the first byte belongs to a call.
fn plain() -> Config {
    Config { extended: false, ..quiet() }
}

#[test]
fn calls_queued_for_a_stalled_peer_were_not_executed() {
    in_virtual_time(async {
        let (theirs, peer) = peer_with_buffer(64);
        let client = TestClient::new(quiet_channel().config(plain()).attach(theirs).await.unwrap());
        let stuck = asking(&client, &"x".repeat(1000));
        settle().await;
        let waiting = [asking(&client, "a"), asking(&client, "b")];
        settle().await;
        drop(peer);
        assert!(may_have_executed(&stuck.await.unwrap().unwrap_err()), "a part of it is through");
        for call in waiting {
            assert!(!may_have_executed(&call.await.unwrap().unwrap_err()));
        }
    });
}

#[test]
fn calls_waiting_for_the_outbox_were_not_executed() {
    in_virtual_time(async {
        let (theirs, peer) = peer_with_buffer(64);
        let config = Config { outbox_len_max: 100, ..plain() };
        let client = TestClient::new(quiet_channel().config(config).attach(theirs).await.unwrap());
        let stuck = asking(&client, &"x".repeat(1000));
        settle().await;
        let waiting = asking(&client, "a");
        settle().await;
        drop(peer);
        assert!(may_have_executed(&stuck.await.unwrap().unwrap_err()));
        assert!(!may_have_executed(&waiting.await.unwrap().unwrap_err()));
    });
}

#[test]
fn streaming_calls_queued_in_the_outbox_were_not_executed() {
    in_virtual_time(async {
        for kind in 1..4 {
            let (theirs, peer) = peer_with_buffer(64);
            let client = TestClient::new(quiet_channel().config(plain()).attach(theirs).await.unwrap());
            let stuck = asking(&client, &"x".repeat(1000));
            settle().await;
            let waiting = tokio::spawn({
                let client = client.clone();
                async move { of_kind(&client, kind, "hi").await }
            });
            settle().await;
            drop(peer);
            assert!(may_have_executed(&stuck.await.unwrap().unwrap_err()));
            assert!(!may_have_executed(&waiting.await.unwrap().unwrap_err()), "kind {kind}");
        }
    });
}

#[test]
fn a_peer_with_another_protocol_has_executed_nothing() {
    in_virtual_time(async {
        for kind in 0..4 {
            for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail.example.org ESMTP\r\n"] {
                let (theirs, mut peer) = peer();
                let client = TestClient::new(quiet_channel().attach(theirs).await.unwrap());
                let call = tokio::spawn(async move { of_kind(&client, kind, "hi").await });
                peer.heard().await;
                peer.say(answer).await;
                let status = call.await.unwrap().unwrap_err();
                assert!(!may_have_executed(&status), "{status}");
            }
        }
        // If the peer has spoken frisbee before, it may have executed the calls.
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let calls = [asking(&client, "a"), asking(&client, "b")];
        peer.heard().await;
        peer.say(frame(1, SAY, encoded("A"))).await;
        peer.say("220 mail.example.org ESMTP\r\n").await;
        let [first, second] = calls;
        assert_eq!(first.await.unwrap().unwrap(), "A");
        assert!(may_have_executed(&second.await.unwrap().unwrap_err()));
    });
}

#[test]
fn a_drain_and_a_crash_have_different_reasons() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service);
        let client = connect_plainly(&server).await;
        let under_way = asking(&client, "wait");
        settle().await;
        let draining = tokio::spawn(async move { server.shutdown(100 * SECOND).await });
        settle().await;
        let late = ask(&client, "late").await.unwrap_err();
        assert_eq!(late.code(), Code::Unavailable, "{late}");
        assert!(late.call_error().is_none(), "a plain peer gets the code and the text only: {late:?}");
        service.gate.open(1);
        assert_eq!(under_way.await.unwrap().unwrap(), "wait", "a drain loses no call");
        let connection = client.channel().connection().unwrap();
        assert!(matches!(connection.closed().await, CloseReason::Peer));
        draining.await.unwrap();
        let after = ask(&client, "after").await.unwrap_err();
        assert!(!may_have_executed(&after));
        assert!(after.message().contains("closed by the peer"), "{after}");

        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let call = asking(&client, "hi");
        peer.heard().await;
        let answer = frame(1, SAY, encoded("hi"));
        peer.say(&answer[..answer.len() - 1]).await;
        drop(peer);
        let status = call.await.unwrap().unwrap_err();
        assert!(may_have_executed(&status));
        let Some(CallError::ConnectionLost { reason, .. }) = status.call_error() else { panic!("{status}") };
        assert!(matches!(reason, CloseReason::Truncated), "{reason:?}");
    });
}

#[test]
fn streaming_calls_end_with_their_connection() {
    in_virtual_time(async {
        let (service, server, client) = serve_and_connect().await;
        let mut count = client.count(words("one, wait")).await.unwrap().into_inner();
        let (_talk, requests) = Streaming::channel(1);
        let mut chat = client.chat(requests).await.unwrap().into_inner();
        let (_more, requests) = Streaming::channel(1);
        let gather = tokio::spawn({
            let client = client.clone();
            async move { client.gather(requests).await }
        });
        assert_eq!(next(&mut count).await, "one");
        settle().await;
        drop(server);
        let since = Instant::now();
        for status in
            [count.message().await.unwrap_err(), chat.message().await.unwrap_err(), gather.await.unwrap().unwrap_err()]
        {
            assert!(may_have_executed(&status));
        }
        assert_elapsed(since, Duration::ZERO);
        settle().await;
        let mut log = service.log.take();
        log.sort();
        assert_eq!(
            log,
            ["chat", "count one, wait", "dropped chat", "dropped count one, wait", "dropped gather", "gather"]
        );
    });
}

#[test]
fn responses_before_the_end_of_the_connection_count() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let calls = [asking(&client, "a"), asking(&client, "b")];
        peer.heard().await;
        peer.say(frame(1, SAY, encoded("A"))).await;
        drop(peer);
        let [first, second] = calls;
        assert_eq!(first.await.unwrap().unwrap(), "A");
        assert!(may_have_executed(&second.await.unwrap().unwrap_err()));
    });
}

#[test]
fn a_channel_reconnects_when_the_server_returns() {
    in_virtual_time(async {
        let (service, address) = (TestService::default(), unused_address());
        let mut server = serving_at(&address, &service, quiet()).await;
        let client = connected_to(&address, Channel::builder()).await;
        for kind in 0..8 {
            drop(server);
            settle().await;
            server = serving_at(&address, &service, quiet()).await;
            assert!(of_kind(&client, kind % 4, "hi").await.unwrap().contains("hi"));
        }
    });
}

#[test]
fn unsent_calls_are_retried_on_a_new_connection() {
    in_virtual_time(async {
        let (service, address) = (TestService::default(), unused_address());
        // The server stops reading after its first request.
        let config = Config { handlers_max: 1, backlog_max: 1, ..quiet() };
        let server = serving_at(&address, &service, config).await;
        let client = connected_to(&address, Channel::builder()).await;
        let letter = "x".repeat(50_000);
        let mut calls = vec![asking(&client, "wait")];
        settle().await;
        for number in 0..10 {
            calls.push(asking(&client, &format!("{number} {letter}")));
            settle().await;
        }
        let heard_before = service.log.take().len();
        assert_eq!(heard_before, 1);
        drop(server);
        settle().await;
        let _server = serving_at(&address, &service, quiet()).await;
        let (mut answered, mut lost) = (0, 0);
        for call in calls {
            match call.await.unwrap() {
                Ok(_) => answered += 1,
                Err(status) => {
                    assert!(may_have_executed(&status));
                    assert_eq!(answered, 0, "what was lost was sent first");
                    lost += 1;
                }
            }
        }
        assert!(lost > 1 && answered > 1, "{lost} lost, {answered} answered");
        let log = service.log.take();
        assert_eq!(log.iter().filter(|line| line.starts_with("say")).count(), answered, "each once");
    });
}

#[test]
fn calls_share_attempts_to_reach_an_unreachable_server() {
    in_virtual_time(async {
        let (service, address) = (TestService::default(), unused_address());
        let server = serving_at(&address, &service, quiet()).await;
        let client = connected_to(&address, Channel::builder()).await;
        ask(&client, "hi").await.unwrap();
        drop(server);
        client.channel().connection().unwrap().closed().await;
        for _ in 0..2 {
            let since = Instant::now();
            let mut calls: Vec<_> = (0..50).map(|_| asking(&client, "hi")).collect();
            calls.extend((0..50).map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.count(words("hi")).await.map(|_| String::new()) })
            }));
            for call in calls {
                let status = call.await.unwrap().unwrap_err();
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("attempts: 10"), "{status}");
                assert!(matches!(status.call_error(), Some(CallError::Unreachable(_))), "{status}");
            }
            // Ten attempts with nine pauses. The first is 10 ms, each is twice the previous one, and jitter shortens
            // them by up to half.
            let elapsed = since.elapsed();
            assert!((MILLI * 2555..MILLI * 5200).contains(&elapsed), "{elapsed:?}");
        }
        let _server = serving_at(&address, &service, quiet()).await;
        assert_eq!(ask(&client, "back").await.unwrap(), "back");
    });
}

#[test]
fn concurrent_callers_share_one_reconnection() {
    in_virtual_time(async {
        let (service, address) = (TestService::default(), unused_address());
        let server = serving_at(&address, &service, quiet()).await;
        let client = connected_to(&address, Channel::builder()).await;
        drop(server);
        client.channel().connection().unwrap().closed().await;
        let server = serving_at(&address, &service, quiet()).await;
        let calls: Vec<_> = (0..100).map(|_| asking(&client, "hi")).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(server.metrics().accepted, 1);
    });
}

#[track_caller]
fn assert_not_sent(status: &Status, expected: Duration) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let error = status.call_error().unwrap();
    assert!(matches!(error, CallError::NotSent { limit } if *limit == expected), "{error:?}");
    assert!(error.is_safe_to_repeat());
}

#[test]
fn calls_wait_for_a_connection_within_their_timeout() {
    in_virtual_time(async {
        let (service, address) = (TestService::default(), unused_address());
        let server = serving_at(&address, &service, quiet()).await;
        let client = connected_to(
            &address,
            Channel::builder().retry(ConnectRetry { pause: 5 * SECOND, ..ConnectRetry::default() }).timeout(SECOND),
        )
        .await;
        ask(&client, "hi").await.unwrap();
        drop(server);
        client.channel().connection().unwrap().closed().await;
        let since = Instant::now();
        for kind in [0, 3] {
            assert_not_sent(&of_kind(&client, kind, "hi").await.unwrap_err(), SECOND);
        }
        let server = serving_at(&address, &service, quiet()).await;
        while let Err(status) = ask(&client, "hi").await {
            assert_not_sent(&status, SECOND);
        }
        assert!(since.elapsed() <= 6 * SECOND, "that was the second attempt");
        assert_eq!(server.metrics().accepted, 1);
    });
}

#[test]
fn a_call_timed_out_before_sending_was_not_executed() {
    in_virtual_time(async {
        // The peer reads nothing: the first call enters the outbox, the others do not.
        let (theirs, _peer) = peer_with_buffer(128);
        let config = Config { outbox_len_max: 100, write_stall_max: 1000 * SECOND, ..quiet() };
        let client = TestClient::new(quiet_channel().config(config).timeout(SECOND).attach(theirs).await.unwrap());
        let stuck = ask(&client, &"x".repeat(1000)).await.unwrap_err();
        assert!(!stuck.call_error().unwrap().is_safe_to_repeat(), "{stuck}");
        for result in each_kind(&client, "hi").await {
            assert_not_sent(&result.unwrap_err(), SECOND);
        }
    });
}

#[test]
fn connections_closed_immediately_are_retried_with_backoff() {
    in_virtual_time(async {
        let address = unused_address();
        let rude = HandlerTable::new().on(Operation::new(SAY).unwrap(), async |_: Packet| Outcome::Close);
        let server = frisbee::Server::builder(rude).config(quiet()).bind(&address).await.unwrap();
        let client = connected_to(&address, Channel::builder()).await;
        let (since, mut calls) = (Instant::now(), 0);
        while since.elapsed() < 60 * SECOND {
            ask(&client, "hi").await.unwrap_err();
            calls += 1;
        }
        let accepted = server.metrics().accepted;
        assert!((12..40).contains(&accepted), "{accepted} connections for {calls} calls");
    });
}

#[test]
fn dialing_continues_after_the_dialing_runtime_ends() {
    let runtime = || runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (home, passing, address) = (runtime(), runtime(), unused_address());
    let service = TestService::default();
    let (client, server) = home.block_on(async {
        let server = serving_at(&address, &service, quiet()).await;
        let client =
            connected_to(&address, Channel::builder().retry(ConnectRetry { pause: SECOND, ..ConnectRetry::default() }))
                .await;
        ask(&client, "hi").await.unwrap();
        (client, server)
    });
    home.block_on(async {
        // After its loss, the channel may have no connection.
        let connection = client.channel().connection().unwrap();
        drop(server);
        connection.closed().await;
    });
    let waiting = client.clone();
    passing.block_on(async { timeout(10 * MILLI, ask(&waiting, "given up")).await.unwrap_err() });
    let asked = home.spawn(async move { ask(&client, "hi").await });
    let _server = home.block_on(serving_at(&address, &service, quiet()));
    drop(passing);
    let answered = home.block_on(async { timeout(60 * SECOND, asked).await.expect("dialing begins anew").unwrap() });
    assert_eq!(answered.unwrap(), "hi");
}

#[test]
fn connecting_to_a_closed_port_fails() {
    in_virtual_time(async {
        let error = Channel::builder()
            .retry(ConnectRetry { attempts: 2, ..ConnectRetry::default() })
            .connect(unused_address())
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Connect(_)), "{error}");
        let error = Channel::connect("nonsense:://").await.unwrap_err();
        assert!(matches!(error, ConnectError::Address(_)), "{error}");
    });
}

#[test]
fn a_channel_over_a_custom_stream_stays_lost() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let client = connect(&server).await;
        only_connection(&server).await.close();
        client.channel().connection().unwrap().closed().await;
        for result in each_kind(&client, "hi").await {
            assert!(!may_have_executed(&result.unwrap_err()));
        }
    });
}

/// Calls the server immediately after the connection is established. Panics then if told to.
struct Eager {
    panics: bool,
    answers: mpsc::UnboundedSender<Result<String, Status>>,
}

impl Router for Eager {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Opened = event else { return };
        let client = TestClient::new(Channel::over(connection).unwrap());
        let answers = self.answers.clone();
        tokio::spawn(async move { answers.send(ask(&client, "hi").await) });
        assert!(!self.panics, "on purpose");
    }
}

#[test]
fn the_opened_hook_may_start_calls_and_may_panic() {
    for panics in [false, true] {
        in_virtual_time(async move {
            let (answers, mut answered) = mpsc::unbounded_channel();
            let server = serve(&TestService::default());
            let (ours, theirs) = duplex(1000);
            server.attach(theirs);
            let client = TestClient::new(quiet_channel().router(Eager { panics, answers }).attach(ours).await.unwrap());
            let start = Instant::now();
            let results = [ask(&client, "hi").await, answered.recv().await.unwrap()];
            for result in results {
                match panics {
                    false => assert_eq!(result.unwrap(), "hi"),
                    true => assert_eq!(result.unwrap_err().code(), Code::Unavailable),
                }
            }
            assert!(start.elapsed() < 5 * SECOND, "nobody waits for a timeout");
        });
    }
}

#[test]
fn calls_end_with_the_runtime_of_their_connection() {
    let home = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let here = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    here.block_on(async {
        let service = TestService::default();
        let server = serve(&service);
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let client = home.spawn(async { TestClient::new(quiet_channel().attach(ours).await.unwrap()) }).await.unwrap();
        let waiting = asking(&client, "wait");
        let (_sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        while !service.log.take().contains(&"say wait".to_owned()) {
            yield_now().await;
        }
        home.shutdown_background();
        assert!(may_have_executed(&waiting.await.unwrap().unwrap_err()));
        assert!(may_have_executed(&answers.message().await.unwrap_err()));
    });
}
