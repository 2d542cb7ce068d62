//! How the handlers of a connection run, and how a server stops. This is about servers of frisbee: in process there are
//! neither dispatch nor shutdown.

use std::num::NonZeroUsize;

use frpc::{CallError, Code, Dispatch, Refusal, Server, Streaming};
use tokio::{
    io::duplex,
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::support::{
    CHAT, Clerk, Peer, SAY, SECOND, ask, asking, assert_elapsed, connected, desk, each_kind, end, error,
    may_have_executed, next, of_kind, open, packet, quiet, quietly, said,
    schema::{desk_client::DeskClient, desk_server::DeskServer, phone_server::PhoneServer},
    serving, settled, speech, stream, virtually, words,
};

fn limited(limit: usize) -> Dispatch {
    Dispatch::Limited(NonZeroUsize::new(limit).unwrap())
}

async fn dispatching(dispatch: Dispatch) -> (Clerk, Server, DeskClient) {
    let clerk = Clerk::default();
    let server = Server::builder().config(quiet()).dispatch(dispatch).add_service(DeskServer::new(clerk.clone()));
    let server = server.without_listener().unwrap();
    let desk = connected(&server).await;
    (clerk, server, desk)
}

#[test]
fn calls_are_answered_in_every_mode() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1), limited(3)] {
        virtually(async {
            let (_clerk, _server, desk) = dispatching(dispatch).await;
            let calls: Vec<_> = (0..50).map(|number| asking(&desk, &number.to_string())).collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), number.to_string());
            }
            for result in each_kind(&desk, "hi").await {
                result.unwrap();
            }
            for result in each_kind(&desk, "panic").await {
                assert_eq!(result.unwrap_err().code(), Code::Internal);
            }
            assert_eq!(ask(&desk, "hi").await.unwrap(), "hi");
        });
    }
}

#[test]
fn as_many_handlers_run_as_the_mode_allows() {
    for (dispatch, expected) in
        [(Dispatch::InPlace, 10), (Dispatch::Ordered, 1), (Dispatch::Spawned, 10), (limited(1), 1), (limited(3), 3)]
    {
        virtually(async {
            let (clerk, _server, desk) = dispatching(dispatch).await;
            let calls: Vec<_> = (0..10).map(|_| asking(&desk, "wait")).collect();
            settled().await;
            assert_eq!(clerk.log.take().len(), expected, "{dispatch:?}");
            // Calls with streams are tasks of their own.
            for kind in 1..4 {
                timeout(SECOND, of_kind(&desk, kind, "hi")).await.expect("it does not wait").unwrap();
            }
            clerk.gate.open(10);
            for call in calls {
                call.await.unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_handler_may_call_back() {
    for dispatch in [Dispatch::InPlace, Dispatch::Spawned, limited(2)] {
        check_that_a_handler_may_call_back(dispatch);
    }
}

#[test]
fn a_handler_may_call_back_where_handlers_take_turns() {
    for dispatch in [Dispatch::Ordered, limited(1)] {
        check_that_a_handler_may_call_back(dispatch);
    }
}

fn check_that_a_handler_may_call_back(dispatch: Dispatch) {
    virtually(async {
        let server = Server::builder().config(quiet()).dispatch(dispatch);
        let server = server.add_service(DeskServer::new(Clerk::default())).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = quietly().dispatch(dispatch).add_service(PhoneServer::new(Clerk::default()));
        let desk = DeskClient::new(client.attach(ours).await.unwrap());
        let called = timeout(SECOND, ask(&desk, "back say hi")).await;
        assert_eq!(called.unwrap_or_else(|_| panic!("{dispatch:?} does not end")).unwrap(), "hi");
    });
}

#[test]
fn a_shutdown_waits_for_the_calls_under_way() {
    virtually(async {
        let (clerk, server, desk) = desk().await;
        let say = asking(&desk, "wait");
        let mut count = desk.count(words("one, wait, two")).await.unwrap().into_inner();
        let (sender, requests) = Streaming::channel(1);
        let mut chat = desk.chat(requests).await.unwrap().into_inner();
        let gather = tokio::spawn({
            let desk = desk.clone();
            async move { desk.gather(speech("a wait b")).await }
        });
        assert_eq!(next(&mut count).await, "one");
        settled().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settled().await;
        sender.send(words("still there")).await.unwrap();
        assert_eq!(next(&mut chat).await, "re: still there");
        drop(sender);
        assert_eq!(chat.message().await.unwrap(), None);
        assert!(!shutdown.is_finished());
        clerk.gate.open(3);
        assert_eq!(say.await.unwrap().unwrap(), "wait");
        assert_eq!(next(&mut count).await, "wait");
        assert_eq!(next(&mut count).await, "two");
        assert_eq!(count.message().await.unwrap(), None);
        assert_eq!(gather.await.unwrap().unwrap().into_inner(), words("a wait b"));
        let since = Instant::now();
        assert_eq!(shutdown.await.unwrap(), 0);
        assert!(since.elapsed() < 2 * SECOND);
        assert_eq!(ask(&desk, "late").await.unwrap_err().code(), Code::Unavailable);
    });
}

#[test]
fn calls_that_arrive_during_a_shutdown_are_known_not_to_have_been_executed() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(2)] {
        virtually(async {
            let (clerk, server, desk) = dispatching(dispatch).await;
            let under_way = asking(&desk, "wait");
            settled().await;
            let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
            settled().await;
            for result in each_kind(&desk, "late").await {
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("was not executed"), "{status}");
                let error = status.call_error().unwrap();
                assert!(matches!(error, CallError::Refused { why: Refusal::Draining }), "{error:?}");
                assert!(error.is_safe_to_repeat());
            }
            clerk.gate.open(1);
            assert_eq!(under_way.await.unwrap().unwrap(), "wait");
            assert_eq!(shutdown.await.unwrap(), 0);
            assert_eq!(clerk.log.take(), ["say wait"], "{dispatch:?}");
        });
    }
}

#[test]
fn a_shutdown_answers_requests_and_nothing_else() {
    virtually(async {
        let clerk = Clerk::default();
        let server = serving(&clerk);
        let mut peer = Peer::of(&server);
        peer.say(packet(1, SAY, said("wait"))).await;
        settled().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settled().await;
        let late = [
            packet(2, SAY, said("late")),
            packet(3, 999, said("a packet of somebody's own")),
            packet(4, 999, error("an answer")),
            stream(5, "nobody's"),
            open(6, CHAT),
            stream(6, said("late")),
        ];
        let refusal = "error 14 the peer is shutting down: the call was not executed";
        let expected = [
            format!("10 2: {refusal}"),
            "stream 5 closed".into(),
            format!("stream 6: {refusal}"),
            "stream 6: end".into(),
        ];
        assert_eq!(peer.asks(late.concat()).await, expected);
        assert!(peer.asks(stream(6, end())).await.is_empty());
        clerk.gate.open(1);
        assert_eq!(peer.hear().await, "10 1: wait");
        assert_eq!(peer.hear().await, "end");
        drop(peer);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn a_shutdown_cuts_what_takes_too_long() {
    virtually(async {
        let (clerk, server, desk) = desk().await;
        let say = asking(&desk, "wait");
        let mut count = desk.count(words("one, wait")).await.unwrap().into_inner();
        assert_eq!(next(&mut count).await, "one");
        settled().await;
        let since = Instant::now();
        assert_eq!(server.shutdown(5 * SECOND).await, 1);
        assert_elapsed(since, 5 * SECOND);
        assert!(may_have_executed(&say.await.unwrap().unwrap_err()));
        assert!(may_have_executed(&count.message().await.unwrap_err()));
        settled().await;
        let mut log = clerk.log.take();
        log.sort();
        assert_eq!(log, ["count one, wait", "dropped count one, wait", "dropped say wait", "say wait"]);
    });
}

#[test]
fn a_handler_that_calls_back_is_let_finish_too() {
    virtually(async {
        let server = serving(&Clerk::default());
        let phone = Clerk::default();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = quietly().add_service(PhoneServer::new(phone.clone())).attach(ours).await.unwrap();
        let desk = DeskClient::new(channel);
        let call = asking(&desk, "back say wait");
        settled().await;
        let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
        settled().await;
        phone.gate.open(1);
        assert_eq!(call.await.unwrap().unwrap(), "wait");
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn a_server_serves_until_it_is_told_to_stop() {
    virtually(async {
        let clerk = Clerk::default();
        let builder = Server::builder().config(quiet()).drain_max(3 * SECOND);
        let builder = builder.add_service(DeskServer::new(clerk.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let address = "mem:calls-serve-with-shutdown";
        let running = tokio::spawn(builder.serve_with_shutdown(address, async { drop(stopped.await) }));
        settled().await;
        let desk = DeskClient::new(quietly().connect(address).await.unwrap());
        let (short, long) = (asking(&desk, "sleep 2"), asking(&desk, "sleep 20"));
        settled().await;
        assert!(!running.is_finished());
        let since = Instant::now();
        stop.send(()).unwrap();
        assert_eq!(short.await.unwrap().unwrap(), "sleep 2");
        assert_eq!(long.await.unwrap().unwrap_err().code(), Code::Unavailable);
        running.await.unwrap().unwrap();
        assert_elapsed(since, 3 * SECOND);
        assert!(quietly().attempts(1).connect(address).await.is_err());
    });
}
