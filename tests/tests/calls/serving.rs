//! Handlers of a connection, and the end of a server. Only for frisbee servers, because in-process calls have neither
//! dispatch nor shutdown.

use std::num::NonZeroUsize;

use frpc::{CallSettings, ChannelCallSettings, Code, ConnectRetry, Dispatch, Server, Streaming};
use support::{
    SECOND, assert_elapsed,
    calls::{
        CHAT, CallbackServer, SAY, TestClient, TestServer, TestService, ask, asking, connect, connect_plainly,
        each_kind, encoded, end, error, may_have_executed, next, of_kind, open_frame, peer_of, quiet, quiet_channel,
        serve, serve_and_connect, stream_of, words,
    },
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    sync::oneshot,
    time::{Instant, timeout},
};

fn limited(limit: usize) -> Dispatch {
    Dispatch::Limited(NonZeroUsize::new(limit).unwrap())
}

async fn dispatching(dispatch: Dispatch) -> (TestService, Server, TestClient) {
    let service = TestService::default();
    let server = Server::builder()
        .config(quiet())
        .calls(CallSettings { dispatch, ..CallSettings::default() })
        .add_service(TestServer::new(service.clone()));
    let server = server.without_listener().unwrap();
    let client = connect(&server).await;
    (service, server, client)
}

#[test]
fn calls_are_answered_in_every_dispatch_mode() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1), limited(3)] {
        in_virtual_time(async {
            let (_service, _server, client) = dispatching(dispatch).await;
            let calls: Vec<_> = (0..50).map(|number| asking(&client, &number.to_string())).collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), number.to_string());
            }
            for result in each_kind(&client, "hi").await {
                result.unwrap();
            }
            for result in each_kind(&client, "panic").await {
                assert_eq!(result.unwrap_err().code(), Code::Internal);
            }
            assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        });
    }
}

#[test]
fn concurrent_handlers_are_limited_by_the_dispatch_mode() {
    for (dispatch, expected) in
        [(Dispatch::InPlace, 10), (Dispatch::Ordered, 1), (Dispatch::Spawned, 10), (limited(1), 1), (limited(3), 3)]
    {
        in_virtual_time(async {
            let (service, _server, client) = dispatching(dispatch).await;
            let calls: Vec<_> = (0..10).map(|_| asking(&client, "wait")).collect();
            settle().await;
            assert_eq!(service.log.take().len(), expected, "{dispatch:?}");
            // Calls with streams run in their own tasks.
            for kind in 1..4 {
                timeout(SECOND, of_kind(&client, kind, "hi")).await.expect("it does not wait").unwrap();
            }
            service.gate.open(10);
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
fn a_handler_may_call_back_with_sequential_dispatch() {
    for dispatch in [Dispatch::Ordered, limited(1)] {
        check_that_a_handler_may_call_back(dispatch);
    }
}

fn check_that_a_handler_may_call_back(dispatch: Dispatch) {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).calls(CallSettings { dispatch, ..CallSettings::default() });
        let server = server.add_service(TestServer::new(TestService::default())).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = quiet_channel()
            .calls(ChannelCallSettings { dispatch, ..ChannelCallSettings::default() })
            .add_service(CallbackServer::new(TestService::default()));
        let client = TestClient::new(client.attach(ours).await.unwrap());
        let called = timeout(SECOND, ask(&client, "back say hi")).await;
        assert_eq!(called.unwrap_or_else(|_| panic!("{dispatch:?} does not end")).unwrap(), "hi");
    });
}

#[test]
fn shutdown_waits_for_calls_in_flight() {
    in_virtual_time(async {
        let (service, server, client) = serve_and_connect().await;
        let say = asking(&client, "wait");
        let mut count = client.count(words("one, wait, two")).await.unwrap().into_inner();
        let (sender, requests) = Streaming::channel(1);
        let mut chat = client.chat(requests).await.unwrap().into_inner();
        let gather = tokio::spawn({
            let client = client.clone();
            async move { client.gather(stream_of("a wait b")).await }
        });
        assert_eq!(next(&mut count).await, "one");
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        sender.send(words("still there")).await.unwrap();
        assert_eq!(next(&mut chat).await, "re: still there");
        drop(sender);
        assert_eq!(chat.message().await.unwrap(), None);
        assert!(!shutdown.is_finished());
        service.gate.open(3);
        assert_eq!(say.await.unwrap().unwrap(), "wait");
        assert_eq!(next(&mut count).await, "wait");
        assert_eq!(next(&mut count).await, "two");
        assert_eq!(count.message().await.unwrap(), None);
        assert_eq!(gather.await.unwrap().unwrap().into_inner(), words("a wait b"));
        let since = Instant::now();
        assert_eq!(shutdown.await.unwrap(), 0);
        assert!(since.elapsed() < 2 * SECOND);
        assert_eq!(ask(&client, "late").await.unwrap_err().code(), Code::Unavailable);
    });
}

#[test]
fn calls_that_arrive_during_a_shutdown_are_refused() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(2)] {
        in_virtual_time(async {
            let (service, server, _) = dispatching(dispatch).await;
            let client = connect_plainly(&server).await;
            let under_way = asking(&client, "wait");
            settle().await;
            let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
            settle().await;
            for result in each_kind(&client, "late").await {
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("was not executed"), "{status}");
                assert!(status.call_error().is_none(), "a plain peer gets the code and the text only: {status:?}");
            }
            service.gate.open(1);
            assert_eq!(under_way.await.unwrap().unwrap(), "wait");
            assert_eq!(shutdown.await.unwrap(), 0);
            assert_eq!(service.log.take(), ["say wait"], "{dispatch:?}");
        });
    }
}

#[test]
fn shutdown_answers_only_requests() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve(&service);
        let mut peer = peer_of(&server);
        peer.say(frame(1, SAY, encoded("wait"))).await;
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        let late = [
            frame(2, SAY, encoded("late")),
            frame(3, 999, encoded("a packet of somebody's own")),
            frame(4, 999, error("an answer")),
            stream_frame(5, "nobody's"),
            open_frame(6, CHAT),
            stream_frame(6, encoded("late")),
        ];
        let refusal = "error 14 the peer is shutting down: the call was not executed";
        let expected = [
            format!("10 2: {refusal}"),
            "stream 5 closed".into(),
            format!("stream 6: {refusal}"),
            "stream 6: end".into(),
        ];
        assert_eq!(peer.asks(late.concat()).await, expected);
        assert!(peer.asks(stream_frame(6, end())).await.is_empty());
        service.gate.open(1);
        assert_eq!(peer.hear().await, "10 1: wait");
        assert_eq!(peer.hear().await, "end");
        drop(peer);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn shutdown_aborts_slow_calls() {
    in_virtual_time(async {
        let (service, server, client) = serve_and_connect().await;
        let say = asking(&client, "wait");
        let mut count = client.count(words("one, wait")).await.unwrap().into_inner();
        assert_eq!(next(&mut count).await, "one");
        settle().await;
        let since = Instant::now();
        assert_eq!(server.shutdown(5 * SECOND).await, 1);
        assert_elapsed(since, 5 * SECOND);
        assert!(may_have_executed(&say.await.unwrap().unwrap_err()));
        let status = count.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("the server shut down before"), "a stream is told, not cut: {status}");
        settle().await;
        let mut log = service.log.take();
        log.sort();
        assert_eq!(log, ["count one, wait", "dropped count one, wait", "dropped say wait", "say wait"]);
    });
}

#[test]
fn shutdown_waits_for_handlers_with_callbacks() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let callback = TestService::default();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = quiet_channel().add_service(CallbackServer::new(callback.clone())).attach(ours).await.unwrap();
        let client = TestClient::new(channel);
        let call = asking(&client, "back say wait");
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
        settle().await;
        callback.gate.open(1);
        assert_eq!(call.await.unwrap().unwrap(), "wait");
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn serve_with_shutdown_runs_until_signalled() {
    in_virtual_time(async {
        let service = TestService::default();
        let builder = Server::builder().config(quiet()).drain_max(3 * SECOND);
        let builder = builder.add_service(TestServer::new(service.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let address = "mem:calls-serve-with-shutdown";
        let running = tokio::spawn(builder.serve_with_shutdown(address, async { drop(stopped.await) }));
        settle().await;
        let client = TestClient::new(quiet_channel().connect(address).await.unwrap());
        let (short, long) = (asking(&client, "sleep 2"), asking(&client, "sleep 20"));
        settle().await;
        assert!(!running.is_finished());
        let since = Instant::now();
        stop.send(()).unwrap();
        assert_eq!(short.await.unwrap().unwrap(), "sleep 2");
        assert_eq!(long.await.unwrap().unwrap_err().code(), Code::Unavailable);
        running.await.unwrap().unwrap();
        assert_elapsed(since, 3 * SECOND);
        assert!(
            quiet_channel()
                .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
                .connect(address)
                .await
                .is_err()
        );
    });
}
