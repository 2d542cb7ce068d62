//! Which answer belongs to which call, and how many calls there may be.

use frpc::{CallError, Code, Server, WhenFull};
use tokio::time::{Instant, timeout};

use crate::support::{
    Clerk, MILLI, Peer, SAY, SECOND, ask, asking, assert_elapsed, connected, desk, error, may_have_executed, packet,
    quietly, said,
    schema::{desk_client::DeskClient, desk_server::DeskServer},
    serving, settled, virtually,
};

#[test]
fn answers_may_come_in_any_order() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let calls: Vec<_> = ["a", "b", "c"].into_iter().map(|text| asking(&desk, text)).collect();
        assert_eq!(peer.heard().await, ["10 1: a", "10 2: b", "10 3: c"]);
        peer.say([packet(2, SAY, said("B")), packet(3, SAY, error("C")), packet(1, SAY, said("A"))].concat()).await;
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap().map_err(|status| (status.code(), status.message().to_owned())));
        }
        assert_eq!(answers, [Ok("A".into()), Ok("B".into()), Err((Code::Unknown, "C".into()))]);
    });
}

#[test]
fn a_thousand_calls_at_once_get_each_its_own_answer() {
    virtually(async {
        let (clerk, _server, desk) = desk().await;
        let calls: Vec<_> = (0..1000).map(|number| asking(&desk, &format!("wait {number}"))).collect();
        settled().await;
        clerk.gate.open(1000);
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), format!("wait {number}"));
        }
    });
}

#[test]
fn the_answer_to_a_call_that_was_dropped_reaches_no_other() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        assert!(timeout(SECOND, ask(&desk, "dropped")).await.is_err());
        let second = asking(&desk, "second");
        assert_eq!(peer.heard().await, ["10 1: dropped", "10 2: second"]);
        assert!(peer.asks(packet(1, SAY, said("late"))).await.is_empty());
        assert!(!second.is_finished());
        peer.say(packet(2, SAY, said("mine"))).await;
        assert_eq!(second.await.unwrap().unwrap(), "mine");
    });
}

#[test]
fn answers_that_nobody_waits_for_are_discarded() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let call = asking(&desk, "hi");
        assert_eq!(peer.heard().await, ["10 1: hi"]);
        // Another id, another operation, both; and the first of two answers counts.
        let strays = [packet(2, SAY, said("no")), packet(1, 14, said("no")), packet(7, 99, error("no"))];
        assert!(peer.asks(strays.concat()).await.is_empty());
        assert!(!call.is_finished());
        peer.say([packet(1, SAY, said("yes")), packet(1, SAY, said("too late"))].concat()).await;
        assert_eq!(call.await.unwrap().unwrap(), "yes");
        let next = asking(&desk, "next");
        assert_eq!(peer.heard().await, ["10 2: next"]);
        peer.say(packet(2, SAY, said("done"))).await;
        assert_eq!(next.await.unwrap().unwrap(), "done");
    });
}

#[test]
fn an_answer_that_cannot_be_read_fails_its_call_and_no_other() {
    virtually(async {
        for content in [&[8, 0, 5][..], &[0xff; 3], &[]] {
            let (desk, mut peer) = Peer::of_channel(quietly()).await;
            let call = asking(&desk, "hi");
            peer.heard().await;
            peer.say(packet(1, SAY, content)).await;
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{status}");
            let next = asking(&desk, "next");
            peer.heard().await;
            peer.say(packet(2, SAY, said("fine"))).await;
            assert_eq!(next.await.unwrap().unwrap(), "fine");
        }
    });
}

/// A client that may have so many calls under way, of a clerk whose gate is closed.
async fn limited(calls_max: usize, when_full: WhenFull) -> (Clerk, Server, DeskClient) {
    let clerk = Clerk::default();
    let server = serving(&clerk);
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    server.attach(theirs);
    let channel = quietly().calls_max(calls_max).when_full(when_full).attach(ours).await.unwrap();
    (clerk, server, DeskClient::new(channel))
}

#[test]
fn calls_past_the_limit_wait_and_all_get_their_turn() {
    for calls_max in [1, 2, 3, 10] {
        virtually(async {
            let (clerk, _server, desk) = limited(calls_max, WhenFull::Wait).await;
            let calls: Vec<_> = (0..20).map(|number| asking(&desk, &format!("wait {number}"))).collect();
            settled().await;
            assert_eq!(clerk.log.take().len(), calls_max);
            clerk.gate.open(1);
            settled().await;
            assert_eq!(clerk.log.take().len(), 1, "each that ends makes room for one");
            clerk.gate.open(100);
            let since = Instant::now();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), format!("wait {number}"));
            }
            assert!(since.elapsed() < SECOND);
        });
    }
}

#[test]
fn a_call_waits_for_room_within_its_timeout() {
    virtually(async {
        let (_clerk, _server, desk) = limited(1, WhenFull::Wait).await;
        let first = asking(&desk, "wait");
        settled().await;
        let hasty = DeskClient::new(desk.channel().clone().with_timeout(2 * SECOND));
        let since = Instant::now();
        let status = ask(&hasty, "hi").await.unwrap_err();
        assert_elapsed(since, 2 * SECOND);
        assert!(matches!(status.call_error(), Some(CallError::TimedOut { .. })));
        assert!(!first.is_finished());
    });
}

#[test]
fn who_gives_up_waiting_for_room_takes_no_turn_of_another() {
    virtually(async {
        let (clerk, _server, desk) = limited(1, WhenFull::Wait).await;
        let first = asking(&desk, "wait first");
        settled().await;
        let given_up = asking(&desk, "given up");
        settled().await;
        let last = asking(&desk, "last");
        settled().await;
        // At once: the end of the first call, which gives its room to the next, and the end of the next.
        clerk.gate.open(1);
        given_up.abort();
        assert!(timeout(SECOND, last).await.expect("there is room").unwrap().is_ok());
        first.await.unwrap().unwrap();
    });
}

#[test]
fn calls_past_the_limit_fail_if_they_are_to() {
    virtually(async {
        let (clerk, _server, desk) = limited(2, WhenFull::Fail).await;
        let calls = [asking(&desk, "wait a"), asking(&desk, "wait b")];
        settled().await;
        let status = ask(&desk, "one more").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(matches!(status.call_error(), Some(CallError::TooManyCalls { limit: 2 })));
        assert!(status.call_error().unwrap().is_safe_to_repeat());
        clerk.gate.open(2);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(ask(&desk, "again").await.unwrap(), "again");
    });
}

#[test]
fn who_waits_for_room_learns_that_the_connection_is_lost() {
    virtually(async {
        let (_clerk, server, desk) = limited(1, WhenFull::Wait).await;
        let first = asking(&desk, "wait");
        settled().await;
        let waiting = asking(&desk, "hi");
        settled().await;
        drop(server);
        assert!(may_have_executed(&first.await.unwrap().unwrap_err()));
        let since = Instant::now();
        assert!(!may_have_executed(&waiting.await.unwrap().unwrap_err()));
        assert!(since.elapsed() < 10 * MILLI);
    });
}

#[test]
fn clients_of_one_channel_share_its_ids() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let other = DeskClient::new(desk.channel().clone());
        let calls = [asking(&desk, "a"), asking(&other, "b"), asking(&desk, "c")];
        assert_eq!(peer.heard().await, ["10 1: a", "10 2: b", "10 3: c"]);
        drop(calls);
    });
}

#[test]
fn a_handler_is_dropped_when_its_caller_is_gone() {
    virtually(async {
        let clerk = Clerk::default();
        let server = Server::builder().add_service(DeskServer::new(clerk.clone())).without_listener().unwrap();
        let desk = connected(&server).await;
        let call = asking(&desk, "wait");
        settled().await;
        call.abort();
        drop(desk);
        // The client lets the answer come for a second. After that, the next ping fails.
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(clerk.log.take(), ["say wait", "dropped say wait"]);
    });
}
