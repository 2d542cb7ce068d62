//! The matching of answers to calls, and limits on the number of calls.
//!
//! Ids are specific to the wire of frisbee.

use std::sync::{Arc, Mutex};

use frpc::{
    CallError, CallLimitPolicy, CallSettings, Channel, ChannelCallSettings, Code, Connection, Outcome, Packet, Router,
    Server, Services, Status,
};
use futures_util::future::join_all;
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        SAY, TestClient, TestServer, TestService, ask, asking, connect, connect_plainly, encoded, error,
        may_have_executed, only_connection, own_packet, peer_of, peer_of_channel, peer_with_buffer, quiet,
        quiet_channel, serve, serve_and_connect, unused_address,
    },
    frames::frame,
    in_virtual_time, settle,
};
use tokio::time::{Instant, timeout};

#[test]
fn responses_may_arrive_in_any_order() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let calls: Vec<_> = ["a", "b", "c"].into_iter().map(|text| asking(&client, text)).collect();
        assert_eq!(peer.heard().await, ["10 1: a", "10 2: b", "10 3: c"]);
        peer.say([frame(2, SAY, encoded("B")), frame(3, SAY, error("C")), frame(1, SAY, encoded("A"))].concat()).await;
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap().map_err(|status| (status.code(), status.message().to_owned())));
        }
        assert_eq!(answers, [Ok("A".into()), Ok("B".into()), Err((Code::Unknown, "C".into()))]);
    });
}

#[test]
fn a_thousand_concurrent_calls_get_their_own_answers() {
    in_virtual_time(async {
        let (service, _server, client) = serve_and_connect().await;
        let calls: Vec<_> = (0..1000).map(|number| asking(&client, &format!("wait {number}"))).collect();
        settle().await;
        service.gate.open(1000);
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), format!("wait {number}"));
        }
    });
}

#[test]
fn the_answer_to_a_dropped_call_reaches_no_other() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        assert!(timeout(SECOND, ask(&client, "dropped")).await.is_err());
        let second = asking(&client, "second");
        assert_eq!(peer.heard().await, ["10 1: dropped", "10 2: second"]);
        assert!(peer.asks(frame(1, SAY, encoded("late"))).await.is_empty());
        assert!(!second.is_finished());
        peer.say(frame(2, SAY, encoded("mine"))).await;
        assert_eq!(second.await.unwrap().unwrap(), "mine");
    });
}

#[test]
fn unexpected_answers_are_discarded() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, ["10 1: hi"]);
        // Answers with another id, another operation, or both are ignored. Of two answers the first counts.
        let strays = [frame(2, SAY, encoded("no")), frame(1, 14, encoded("no")), frame(7, 99, error("no"))];
        assert!(peer.asks(strays.concat()).await.is_empty());
        assert!(!call.is_finished());
        peer.say([frame(1, SAY, encoded("yes")), frame(1, SAY, encoded("too late"))].concat()).await;
        assert_eq!(call.await.unwrap().unwrap(), "yes");
        let next = asking(&client, "next");
        assert_eq!(peer.heard().await, ["10 2: next"]);
        peer.say(frame(2, SAY, encoded("done"))).await;
        assert_eq!(next.await.unwrap().unwrap(), "done");
    });
}

#[test]
fn an_unreadable_answer_fails_only_its_call() {
    in_virtual_time(async {
        for content in [&[8, 0, 5][..], &[0xff; 3], &[]] {
            let (client, mut peer) = peer_of_channel(quiet_channel()).await;
            let call = asking(&client, "hi");
            peer.heard().await;
            peer.say(frame(1, SAY, content)).await;
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{status}");
            let next = asking(&client, "next");
            peer.heard().await;
            peer.say(frame(2, SAY, encoded("fine"))).await;
            assert_eq!(next.await.unwrap().unwrap(), "fine");
        }
    });
}

/// Returns a service with a closed gate, its server, and a client with this limit on calls in flight.
async fn limited(calls_max: usize, when_full: CallLimitPolicy) -> (TestService, Server, TestClient) {
    let service = TestService::default();
    let server = serve(&service);
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    server.attach(theirs);
    let channel = quiet_channel()
        .calls(ChannelCallSettings { calls_max, when_full, ..ChannelCallSettings::default() })
        .attach(ours)
        .await
        .unwrap();
    (service, server, TestClient::new(channel))
}

#[test]
fn calls_past_the_limit_wait_and_all_get_their_turn() {
    for calls_max in [1, 2, 3, 10] {
        in_virtual_time(async {
            let (service, _server, client) = limited(calls_max, CallLimitPolicy::Wait).await;
            let calls: Vec<_> = (0..20).map(|number| asking(&client, &format!("wait {number}"))).collect();
            settle().await;
            assert_eq!(service.log.take().len(), calls_max);
            service.gate.open(1);
            settle().await;
            assert_eq!(service.log.take().len(), 1, "each that ends makes room for one");
            service.gate.open(100);
            let since = Instant::now();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), format!("wait {number}"));
            }
            assert!(since.elapsed() < SECOND);
        });
    }
}

#[test]
fn a_call_waits_for_the_limit_within_its_timeout() {
    in_virtual_time(async {
        let (_service, _server, client) = limited(1, CallLimitPolicy::Wait).await;
        let first = asking(&client, "wait");
        settle().await;
        let hasty = TestClient::new(client.channel().clone().with_timeout(2 * SECOND));
        let since = Instant::now();
        let status = ask(&hasty, "hi").await.unwrap_err();
        assert_elapsed(since, 2 * SECOND);
        assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })));
        assert!(status.call_error().unwrap().is_safe_to_repeat());
        assert!(!first.is_finished());
    });
}

#[test]
fn a_cancelled_waiting_call_takes_no_slot() {
    in_virtual_time(async {
        let (service, _server, client) = limited(1, CallLimitPolicy::Wait).await;
        let first = asking(&client, "wait first");
        settle().await;
        let given_up = asking(&client, "given up");
        settle().await;
        let last = asking(&client, "last");
        settle().await;
        // The first call ends and passes its room to the next one, which is aborted at the same time.
        service.gate.open(1);
        given_up.abort();
        assert!(timeout(SECOND, last).await.expect("there is room").unwrap().is_ok());
        first.await.unwrap().unwrap();
    });
}

#[test]
fn calls_past_the_limit_fail_if_configured() {
    in_virtual_time(async {
        let (service, _server, client) = limited(2, CallLimitPolicy::Fail).await;
        let calls = [asking(&client, "wait a"), asking(&client, "wait b")];
        settle().await;
        let status = ask(&client, "one more").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(matches!(status.call_error(), Some(CallError::TooManyCalls { limit: 2 })));
        assert!(status.call_error().unwrap().is_safe_to_repeat());
        service.gate.open(2);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(ask(&client, "again").await.unwrap(), "again");
    });
}

/// Returns a service with a closed gate, and its server with this limit on calls per connection.
fn limiting(calls_max: u32) -> (TestService, Server) {
    let service = TestService::default();
    let server =
        Server::builder().config(quiet()).calls(CallSettings { calls_max: Some(calls_max), ..CallSettings::default() });
    let server = server.add_service(TestServer::new(service.clone())).without_listener().unwrap();
    (service, server)
}

#[track_caller]
fn assert_too_many_for_peer(status: &Status, calls_max: u32) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let error = status.call_error().unwrap();
    assert!(matches!(error, CallError::TooManyForPeer { limit } if *limit == calls_max), "{error:?}");
    assert!(error.is_safe_to_repeat());
    assert!(status.message().contains(&format!("the peer takes at most {calls_max} calls at once (calls_max)")));
}

#[test]
fn calls_past_the_server_limit_wait_and_get_their_turn() {
    for calls_max in [1, 3] {
        in_virtual_time(async {
            let (service, server) = limiting(calls_max);
            let client = connect(&server).await;
            let calls: Vec<_> = (0..10).map(|number| asking(&client, &format!("wait {number}"))).collect();
            settle().await;
            assert_eq!(service.log.take().len(), calls_max as usize);
            service.gate.open(1);
            settle().await;
            assert_eq!(service.log.take().len(), 1, "each that ends makes room for one");
            service.gate.open(100);
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), format!("wait {number}"));
            }
        });
    }
}

#[test]
fn calls_past_the_server_limit_fail_if_configured() {
    in_virtual_time(async {
        let (service, server) = limiting(2);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(
            quiet_channel()
                .calls(ChannelCallSettings { when_full: CallLimitPolicy::Fail, ..ChannelCallSettings::default() })
                .attach(ours)
                .await
                .unwrap(),
        );
        let calls = [asking(&client, "wait a"), asking(&client, "wait b")];
        settle().await;
        let before = server.metrics().counters.packets_in;
        assert_too_many_for_peer(&ask(&client, "one more").await.unwrap_err(), 2);
        settle().await;
        assert_eq!(server.metrics().counters.packets_in, before);
        service.gate.open(2);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(ask(&client, "again").await.unwrap(), "again");
    });
}

#[test]
fn excess_calls_are_refused_and_not_executed() {
    in_virtual_time(async {
        let (service, server) = limiting(2);
        let client = connect_plainly(&server).await;
        let calls = [asking(&client, "wait a"), asking(&client, "wait b")];
        settle().await;
        assert_eq!(service.log.take().len(), 2);
        let status = ask(&client, "one more").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("the peer takes at most 2 calls at once (calls_max)"), "{status}");
        assert!(status.call_error().is_none(), "a plain peer gets the code and the text only: {status:?}");
        assert!(service.log.take().is_empty());
        // Each connection has its own limit.
        let other = connect_plainly(&server).await;
        assert_eq!(ask(&other, "hi").await.unwrap(), "hi");
        service.gate.open(2);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(ask(&client, "again").await.unwrap(), "again");

        // The limit also covers packets of extended peers with more than a message.
        let mut peer = peer_of(&server);
        let hello = frame(0, 3, [1, 1]);
        let request = |id| frame(id, 4, [&[1, 0, 10, 0, 0, 0, 0, 0][..], &encoded("wait")].concat());
        assert!(peer.asks([hello, request(1), request(2)].concat()).await.is_empty());
        assert_eq!(peer.asks(request(3)).await, ["reserved 3"]);
        service.gate.open(2);
        assert_eq!(peer.heard().await.len(), 2);
    });
}

#[test]
fn a_cancelled_call_frees_its_slot() {
    in_virtual_time(async {
        let (service, server) = limiting(1);
        let client = connect(&server).await;
        for _ in 0..5 {
            let call = asking(&client, "wait");
            settle().await;
            assert_eq!(service.log.take(), ["say wait"]);
            let waiting = asking(&client, "hi");
            settle().await;
            call.abort();
            assert_eq!(timeout(SECOND, waiting).await.unwrap().unwrap().unwrap(), "hi");
            assert_eq!(service.log.take(), ["dropped say wait", "say hi"]);
        }
    });
}

#[test]
fn a_server_with_a_call_limit_of_zero_does_not_start() {
    in_virtual_time(async {
        let error = Server::builder()
            .calls(CallSettings { calls_max: Some(0), ..CallSettings::default() })
            .without_listener()
            .unwrap_err();
        assert!(error.to_string().contains("calls_max"), "{error}");
    });
}

#[test]
fn a_waiting_call_learns_of_a_lost_connection() {
    in_virtual_time(async {
        let (_service, server, client) = limited(1, CallLimitPolicy::Wait).await;
        let first = asking(&client, "wait");
        settle().await;
        let waiting = asking(&client, "hi");
        settle().await;
        drop(server);
        assert!(may_have_executed(&first.await.unwrap().unwrap_err()));
        let since = Instant::now();
        assert!(!may_have_executed(&waiting.await.unwrap().unwrap_err()));
        assert!(since.elapsed() < 10 * MILLI);
    });
}

#[test]
fn clients_of_one_channel_share_its_ids() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let other = TestClient::new(client.channel().clone());
        let calls = [asking(&client, "a"), asking(&other, "b"), asking(&client, "c")];
        assert_eq!(peer.heard().await, ["10 1: a", "10 2: b", "10 3: c"]);
        drop(calls);
    });
}

#[test]
fn a_handler_is_dropped_when_its_caller_disconnects() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = Server::builder().add_service(TestServer::new(service.clone())).without_listener().unwrap();
        let client = connect(&server).await;
        let call = asking(&client, "wait");
        settle().await;
        call.abort();
        drop(client);
        // The client accepts the answer for another second. After that, the next ping fails.
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(service.log.take(), ["say wait", "dropped say wait"]);
    });
}

/// A server that answers at the test's command. Each request is its own answer.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<Vec<(Connection, Packet)>>>);

impl Late {
    fn take(&self) -> Vec<(Connection, Packet)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns a server and a client of it.
    async fn serve_and_connect(&self) -> (frisbee::Server, TestClient) {
        let server = frisbee::Server::builder(self.clone()).config(quiet()).without_listener();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        (server, TestClient::new(quiet_channel().attach(ours).await.unwrap()))
    }

    async fn answer(requests: impl IntoIterator<Item = (Connection, Packet)>) {
        for (connection, request) in requests {
            // A closed connection needs no answers.
            let _ = connection.send(request).await;
        }
        settle().await;
    }
}

impl Router for Late {
    async fn route(&self, request: Packet, connection: &Connection) -> Outcome {
        self.0.lock().unwrap().push((connection.clone(), request));
        Outcome::Nothing
    }
}

/// Makes calls without timely answers, many of them concurrently.
async fn give_up(client: &TestClient, times: usize) {
    let hasty = TestClient::new(client.channel().clone().with_timeout(SECOND));
    for number in (0..times).step_by(8192) {
        let calls = (number..times.min(number + 8192)).map(|number| asking(&hasty, &format!("given up {number}")));
        for call in join_all(calls).await {
            assert_eq!(call.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        }
    }
}

#[track_caller]
fn assert_out_of_ids(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let error = status.call_error().unwrap();
    assert!(matches!(error, CallError::OutOfIds { owed } if *owed == HALF + 1), "{error:?}");
    assert!(error.is_safe_to_repeat());
}

/// Half of all ids.
const HALF: usize = 1 << 15;

#[test]
fn late_answers_of_cancelled_calls_reach_no_other_call() {
    in_virtual_time(async {
        let late = Late::default();
        let (_server, client) = late.serve_and_connect().await;
        let under_way = asking(&client, "under way");
        settle().await;
        let mut first = late.take();
        give_up(&client, HALF + 1).await;
        assert_out_of_ids(&ask(&client, "one more").await.unwrap_err());
        let given_up = late.take();
        assert_eq!(given_up.len(), HALF + 1);
        Late::answer(first.drain(..)).await;
        assert_eq!(under_way.await.unwrap().unwrap(), "under way");
        // Late and duplicate answers must not reach other calls.
        let (mut asked, mut given_up) = (0, given_up.into_iter());
        for _ in 0..100 {
            let some: Vec<_> = given_up.by_ref().take(100).collect();
            Late::answer(some.clone()).await;
            let calls: Vec<_> = (0..100).map(|number| asking(&client, &format!("new {}", asked + number))).collect();
            settle().await;
            Late::answer(some).await;
            Late::answer(late.take().into_iter().rev()).await;
            for (index, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), format!("new {}", asked + index));
            }
            asked += 100;
        }
    });
}

#[test]
fn a_channel_reconnects_when_too_many_ids_are_abandoned() {
    in_virtual_time(async {
        let (late, address) = (Late::default(), unused_address());
        let server = frisbee::Server::builder(late.clone()).config(quiet()).bind(&address).await.unwrap();
        let client = TestClient::new(Channel::builder().config(quiet()).connect(&address).await.unwrap());
        let under_way = asking(&client, "under way");
        settle().await;
        let first = late.take();
        give_up(&client, 1 << 16).await;
        assert_eq!(server.metrics().accepted, 2);
        let given_up = late.take();
        assert_eq!(given_up.len(), 1 << 16);
        let calls: Vec<_> = (0..1000).map(|number| asking(&client, &format!("new {number}"))).collect();
        settle().await;
        Late::answer(given_up).await;
        Late::answer(late.take()).await;
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), format!("new {number}"));
        }
        let old = first[0].0.clone();
        assert!(old.close_reason().is_none(), "a call is under way on it");
        Late::answer(first).await;
        assert_eq!(under_way.await.unwrap().unwrap(), "under way");
        settle().await;
        assert!(old.close_reason().is_some());
    });
}

#[test]
fn a_channel_over_a_connection_reports_exhausted_ids() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).without_listener().unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        server.attach(theirs);
        let late = Late::default();
        let services = Services::new().over(late.clone());
        let client = frisbee::Client::new(services).config(quiet()).attach(ours).await.unwrap();
        // The connecting side has to send first.
        client.try_send(own_packet(1, "hello")).unwrap();
        let client = TestClient::new(Channel::over(&only_connection(&server).await).unwrap());
        give_up(&client, HALF + 1).await;
        assert_out_of_ids(&ask(&client, "one more").await.unwrap_err());
        let mut given_up = late.take();
        Late::answer(given_up.drain(..2)).await;
        let again = asking(&client, "again");
        settle().await;
        Late::answer(late.take()).await;
        assert_eq!(again.await.unwrap().unwrap(), "again");
    });
}

#[test]
fn waiting_calls_learn_of_exhausted_ids() {
    in_virtual_time(async {
        let late = Late::default();
        let (_server, client) = late.serve_and_connect().await;
        give_up(&client, HALF).await;
        let hasty = TestClient::new(client.channel().clone().with_timeout(SECOND));
        let mut calls: Vec<_> = (0..HALF).map(|_| asking(&hasty, "one of very many")).collect();
        settle().await;
        calls.extend((0..10).map(|_| asking(&client, "waits for room")));
        let since = Instant::now();
        for status in join_all(calls).await.into_iter().skip(HALF) {
            assert!(matches!(status.unwrap().unwrap_err().call_error(), Some(CallError::OutOfIds { .. })));
        }
        assert_elapsed(since, SECOND - MILLI);
    });
}

#[test]
fn calls_cancelled_before_sending_use_no_id() {
    in_virtual_time(async {
        let (theirs, mut peer) = peer_with_buffer(64);
        let config = frpc::Config { outbox_len_max: 100, write_stall_max: 1000 * SECOND, ..quiet() };
        let client = TestClient::new(quiet_channel().config(config).attach(theirs).await.unwrap());
        let stuck = asking(&client, &"x".repeat(1000));
        settle().await;
        for _ in 0..5 {
            give_up(&client, 8192).await;
        }
        let heard = peer.heard().await;
        assert_eq!(heard, ["10 1: 1000 letters"], "{heard:?}");
        peer.say(frame(1, SAY, encoded("done"))).await;
        assert_eq!(stuck.await.unwrap().unwrap(), "done");
        let next = asking(&client, "next");
        assert!(peer.hear().await.ends_with(": next"));
        next.abort();
    });
}
