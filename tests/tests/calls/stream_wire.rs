//! Calls with streams, frame by frame: the frames of each side, and when it closes the stream.
//!
//! The frames are specific to frisbee.

use std::time::Duration;

use frpc::{Code, Config, Request, Server, Status, Streaming};
use futures_util::{StreamExt, stream};
use support::{
    Peer, SECOND, assert_elapsed,
    calls::{
        CHAT, COUNT, GATHER, SAY, TestClient, TestService, all, ask, asking, attach_to_peer, connect, encoded, end,
        error, next, of_kind, only_connection, open_frame, peer_of, peer_of_channel, peer_with_buffer, quiet,
        quiet_channel, serve, stream_of, words,
    },
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    time::{Instant, timeout},
};

/// Returns a service, its server, and a peer of the server.
fn server_and_peer() -> (TestService, Server, Peer) {
    let service = TestService::default();
    let server = serve(&service);
    let peer = peer_of(&server);
    (service, server, peer)
}

#[test]
fn a_server_releases_a_response_stream_at_its_end() {
    in_virtual_time(async {
        let (_service, server, mut peer) = server_and_peer();
        let heard = peer.asks([open_frame(1, COUNT), stream_frame(1, encoded("one, two"))].concat()).await;
        assert_eq!(heard, ["stream 1: one", "stream 1: two", "stream 1: end"], "nothing comes behind the end");
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
        // The caller's end marker is optional for this kind of call. It must not start a new call.
        assert!(peer.asks(stream_frame(1, end())).await.is_empty());
        let heard = peer.asks([open_frame(1, COUNT), stream_frame(1, encoded("again"))].concat()).await;
        assert_eq!(heard, ["stream 1: again", "stream 1: end"], "the id is free again, and its new call not closed");
    });
}

#[test]
fn a_server_releases_a_request_stream_after_both_ends() {
    in_virtual_time(async {
        let (_service, server, mut peer) = server_and_peer();
        let frames = [
            open_frame(1, GATHER),
            stream_frame(1, encoded("a")),
            stream_frame(1, encoded("b")),
            stream_frame(1, end()),
        ];
        assert_eq!(peer.asks(frames.concat()).await, ["stream 1: a b", "stream 1: end"]);
        // The handler finishes before its caller.
        let frames = [open_frame(2, GATHER), stream_frame(2, encoded("a")), stream_frame(2, encoded("now"))];
        assert_eq!(peer.asks(frames.concat()).await, ["stream 1 closed", "stream 2: a now", "stream 2: end"]);
        assert!(peer.asks([stream_frame(2, encoded("late")), stream_frame(2, [0xff])].concat()).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 1);
        assert!(peer.asks(stream_frame(2, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

#[test]
fn a_server_releases_a_bidirectional_stream_after_both_ends() {
    in_virtual_time(async {
        let (_service, server, mut peer) = server_and_peer();
        assert_eq!(peer.asks([open_frame(1, CHAT), stream_frame(1, encoded("a"))].concat()).await, ["stream 1: re: a"]);
        assert_eq!(peer.asks(stream_frame(1, end())).await, ["stream 1: end"]);
        let heard = peer.asks([open_frame(2, CHAT), stream_frame(2, encoded("stop"))].concat()).await;
        assert_eq!(heard, ["stream 1 closed", "stream 2: end"]);
        assert!(peer.asks(stream_frame(2, encoded("late"))).await.is_empty());
        assert!(peer.asks(stream_frame(2, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

/// frisbee-go hangs forever if it receives a stream frame while it closes the connection, and a caller may close as
/// soon as it has its answer. A frame before the answer is safe.
#[test]
fn a_server_closes_streams_only_before_other_data() {
    in_virtual_time(async {
        let (service, server, mut peer) = server_and_peer();
        assert!(peer.asks([open_frame(1, CHAT), stream_frame(1, encoded("wait"))].concat()).await.is_empty());
        for id in 2..10 {
            let heard = peer.asks([open_frame(id, COUNT), stream_frame(id, encoded("one"))].concat()).await;
            let closed = (id > 2).then(|| format!("stream {} closed", id - 1));
            let answer = [format!("stream {id}: one"), format!("stream {id}: end")];
            assert_eq!(heard, closed.into_iter().chain(answer).collect::<Vec<_>>());
        }
        assert_eq!(peer.asks(frame(7, SAY, encoded("hi"))).await, ["10 7: hi"], "a packet announces nothing");
        // Rust callers close their streams themselves, so they need no such frame.
        assert!(peer.asks(stream_frame(9, "")).await.is_empty());
        service.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: re: wait"]);
        assert_eq!(only_connection(&server).await.metrics().streams, 1);
    });
}

#[test]
fn stream_ids_are_reusable_without_closes() {
    in_virtual_time(async {
        let (_service, server, mut peer) = server_and_peer();
        let mut last = None;
        for id in (1..1500).chain(1..1500) {
            peer.say([open_frame(id, COUNT), stream_frame(id, encoded("one"))].concat()).await;
            if let Some(last) = last.replace(id) {
                assert_eq!(peer.hear().await, format!("stream {last} closed"));
            }
            assert_eq!(peer.hear().await, format!("stream {id}: one"));
            assert_eq!(peer.hear().await, format!("stream {id}: end"));
        }
        let metrics = only_connection(&server).await.metrics();
        assert_eq!((metrics.streams, metrics.counters.streams_refused), (0, 0));
    });
}

#[test]
fn data_after_an_end_marker_is_ignored() {
    in_virtual_time(async {
        let (_service, _server, mut peer) = server_and_peer();
        let frames = [
            open_frame(1, GATHER),
            stream_frame(1, encoded("a")),
            stream_frame(1, encoded("wait")),
            stream_frame(1, end()),
        ];
        assert!(peer.asks(frames.concat()).await.is_empty());
        let (service, _server, mut peer) = server_and_peer();
        peer.say(
            [open_frame(1, GATHER), stream_frame(1, encoded("wait")), stream_frame(1, end()), stream_frame(1, end())]
                .concat(),
        )
        .await;
        peer.say([stream_frame(1, encoded("late")), stream_frame(1, end())].concat()).await;
        settle().await;
        service.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: end"]);
    });
}

#[test]
fn a_stream_status_is_an_error_and_an_end() {
    in_virtual_time(async {
        let (_service, _server, mut peer) = server_and_peer();
        let heard = peer.asks([open_frame(1, COUNT), stream_frame(1, encoded("one, fail 5 gone"))].concat()).await;
        assert_eq!(heard, ["stream 1: one", "stream 1: error 5 gone", "stream 1: end"]);
        for (id, operation) in [(2, GATHER), (3, CHAT)] {
            let heard = peer.asks([open_frame(id, operation), stream_frame(id, encoded("fail 5 gone"))].concat()).await;
            let [closed, error, end_marker] = [
                format!("stream {} closed", id - 1),
                format!("stream {id}: error 5 gone"),
                format!("stream {id}: end"),
            ];
            assert_eq!(heard, [closed, error, end_marker]);
            assert!(peer.asks(stream_frame(id, end())).await.is_empty());
        }
    });
}

#[test]
fn opening_an_open_stream_is_an_error() {
    in_virtual_time(async {
        let (service, _server, mut peer) = server_and_peer();
        // A Go client numbers the streams of each service separately, so ids may collide.
        let heard =
            peer.asks([open_frame(1, CHAT), stream_frame(1, encoded("a")), open_frame(1, GATHER)].concat()).await;
        assert_eq!(heard[0], "stream 1: re: a");
        assert!(heard[1].starts_with("stream 1: error 3 "), "{heard:?}");
        assert_eq!(service.log.take(), ["chat", "dropped chat"]);
    });
}

#[test]
fn an_error_in_a_request_stream_fails_the_call() {
    in_virtual_time(async {
        let (_service, _server, mut peer) = server_and_peer();
        for (id, operation) in [(1, GATHER), (2, CHAT)] {
            let heard = peer.asks([open_frame(id, operation), stream_frame(id, error("not quite EOF"))].concat()).await;
            assert_eq!(heard, [format!("stream {id}: error 3 not quite EOF"), format!("stream {id}: end")]);
        }
    });
}

#[test]
fn closing_the_stream_ends_the_call_immediately() {
    in_virtual_time(async {
        let (service, server, mut peer) = server_and_peer();
        for (operation, text, what) in
            [(COUNT, "wait", "count wait"), (GATHER, "a", "gather"), (GATHER, "wait", "gather"), (CHAT, "wait", "chat")]
        {
            assert!(peer.asks([open_frame(1, operation), stream_frame(1, encoded(text))].concat()).await.is_empty());
            assert_eq!(service.log.take(), [what]);
            assert!(peer.asks(stream_frame(1, "")).await.is_empty(), "a close is not answered");
            assert_eq!(service.log.take(), [format!("dropped {what}")]);
            assert_eq!(only_connection(&server).await.metrics().streams, 0);
        }
        assert!(peer.asks([open_frame(1, COUNT), stream_frame(1, "")].concat()).await.is_empty());
        assert!(service.log.take().is_empty(), "without a request there is no call");
    });
}

#[test]
fn unread_requests_are_discarded() {
    in_virtual_time(async {
        let (service, server, mut peer) = server_and_peer();
        let heard = peer.asks([open_frame(1, CHAT), stream_frame(1, encoded("alone one, wait, two"))].concat()).await;
        assert_eq!(heard, ["stream 1: one"]);
        let letter = encoded(&"x".repeat(10_000));
        for _ in 0..1000 {
            peer.say(stream_frame(1, &letter)).await;
        }
        assert!(peer.heard().await.is_empty());
        service.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: two", "stream 1: end"]);
        assert!(peer.asks(stream_frame(1, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

#[test]
fn data_after_a_unary_request_is_discarded() {
    in_virtual_time(async {
        let (service, _server, mut peer) = server_and_peer();
        assert!(peer.asks([open_frame(1, COUNT), stream_frame(1, encoded("wait, one"))].concat()).await.is_empty());
        for _ in 0..200 {
            peer.say(stream_frame(1, encoded(&"x".repeat(10_000)))).await;
        }
        service.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: one", "stream 1: end"]);
    });
}

#[test]
fn stalled_request_streams_fail_only_their_call() {
    in_virtual_time(async {
        let (service, _server, mut peer) = server_and_peer();
        assert!(peer.asks([open_frame(1, CHAT), stream_frame(1, encoded("wait"))].concat()).await.is_empty());
        let (letter, since) = (encoded(&"x".repeat(10_000)), Instant::now());
        for _ in 0..200 {
            peer.say([stream_frame(1, &letter), frame(7, SAY, encoded("hi"))].concat()).await;
            while peer.hear().await != "10 7: hi" {}
        }
        assert!(since.elapsed() < SECOND);
        let log = service.log.take();
        assert!(log.contains(&"dropped chat".into()), "{log:?}");
    });
}

#[test]
fn a_server_waits_for_a_peer_with_stalled_reads() {
    in_virtual_time(async {
        let (service, _server, mut peer) = server_and_peer();
        peer.say([open_frame(1, COUNT), stream_frame(1, encoded("endless tick"))].concat()).await;
        settle().await;
        let made = service.made();
        // The outbox holds 1 MiB, and each answer has 21 bytes.
        assert!(made < 80_000, "{made}");
        settle().await;
        assert_eq!(service.made(), made);
        for _ in 0..=made {
            assert_eq!(peer.hear().await, "stream 1: tick");
        }
        assert!(service.made() > made);
        peer.say(stream_frame(1, "")).await;
        settle().await;
        assert_eq!(service.log.take(), ["count endless tick", "dropped count endless tick"]);
    });
}

#[test]
fn a_client_closes_a_response_stream_at_its_end() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let mut answers = client.count(words("hi")).await.unwrap().into_inner();
        assert_eq!(peer.heard().await, ["stream 1: open 11", "stream 1: hi"]);
        peer.say(
            [
                stream_frame(1, encoded("one")),
                stream_frame(1, end()),
                stream_frame(1, end()),
                stream_frame(1, encoded("late")),
            ]
            .concat(),
        )
        .await;
        assert_eq!(next(&mut answers).await, "one");
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 1 closed"]);
        // A second end marker was still in flight. It must neither open a stream nor affect other calls.
        assert!(peer.asks(stream_frame(1, end())).await.is_empty());
        let call = asking(&client, "hi");
        assert_eq!(peer.heard().await, ["10 1: hi"]);
        peer.say(frame(1, SAY, encoded("fine"))).await;
        call.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_closes_a_bidirectional_stream_after_both_ends() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let mut answers = client.chat(stream_of("a b")).await.unwrap().into_inner();
        let read = tokio::spawn(async move { (answers.message().await, answers.message().await, answers) });
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1: b", "stream 1: end"]);
        assert!(peer.asks(stream_frame(1, encoded("c"))).await.is_empty());
        assert_eq!(peer.asks(stream_frame(1, end())).await, ["stream 1 closed"]);
        let (first, last, _answers) = read.await.unwrap();
        assert_eq!((first.unwrap(), last.unwrap()), (Some(words("c")), None));
        // The server ends first.
        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        assert_eq!(peer.heard().await, ["stream 2: open 13"]);
        peer.say(stream_frame(2, end())).await;
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 2: end", "stream 2 closed"]);
        // The caller's sender notices it with its next message or the one after.
        let _ = sender.send(words("late")).await;
        settle().await;
        sender.send(words("later")).await.unwrap_err();
    });
}

#[test]
fn a_response_is_accepted_before_the_requests_end() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let (_sender, requests) = Streaming::channel(1);
        let call = tokio::spawn(async move { client.gather(requests).await });
        assert_eq!(peer.heard().await, ["stream 1: open 12"]);
        let heard = peer
            .asks([stream_frame(1, encoded("enough")), stream_frame(1, end()), stream_frame(1, end())].concat())
            .await;
        assert_eq!(heard[..2], ["stream 1: end", "stream 1 closed"]);
        assert_eq!(call.await.unwrap().unwrap().into_inner(), words("enough"));
    });
}

#[test]
fn an_end_without_an_answer_fails_the_call() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let call = tokio::spawn(async move { client.gather(stream_of("a")).await });
        peer.heard().await;
        peer.say(stream_frame(1, end())).await;
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Internal);
    });
}

#[test]
fn an_error_of_a_go_server_is_unknown() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let mut answers = client.count(words("hi")).await.unwrap().into_inner();
        peer.say([stream_frame(1, error("no")), stream_frame(1, end())].concat()).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "no"));
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

#[test]
fn dropping_the_responses_closes_the_stream() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let answers = client.count(words("hi")).await.unwrap();
        assert_eq!(peer.heard().await, ["stream 1: open 11", "stream 1: hi"]);
        drop(answers);
        assert_eq!(peer.heard().await, ["stream 1 closed"]);
        let (sender, requests) = Streaming::channel(1);
        let answers = client.chat(requests).await.unwrap();
        sender.send(words("a")).await.unwrap();
        assert_eq!(peer.heard().await, ["stream 2: open 13", "stream 2: a"]);
        drop(answers);
        assert_eq!(peer.heard().await, ["stream 2 closed"], "no end: not everything was said");
        sender.send(words("b")).await.unwrap_err();
        let (_sender, requests) = Streaming::channel(1);
        assert!(timeout(SECOND, client.gather(requests)).await.is_err());
        assert_eq!(peer.heard().await, ["stream 3: open 12", "stream 3 closed"]);
        assert_eq!(client.channel().connection().unwrap().metrics().streams, 0);
    });
}

#[test]
fn dropping_the_sender_ends_only_its_half() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        sender.send(words("a")).await.unwrap();
        drop(sender);
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1: end"]);
        for text in ["b", "c"] {
            peer.say(stream_frame(1, encoded(text))).await;
            assert_eq!(next(&mut answers).await, text);
        }
        assert!(peer.heard().await.is_empty());
    });
}

#[test]
fn a_failed_request_stream_aborts_the_call() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let (sender, requests) = Streaming::channel(1);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        sender.send(words("a")).await.unwrap();
        sender.fail(Status::data_loss("torn")).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "torn"));
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1 closed"]);
        let (sender, requests) = Streaming::channel(1);
        sender.fail(Status::data_loss("torn")).await;
        assert_eq!(client.gather(requests).await.unwrap_err().code(), Code::DataLoss);
        assert_eq!(peer.heard().await, ["stream 2: open 12", "stream 2 closed"]);
    });
}

#[test]
fn a_timeout_aborts_instead_of_ending_the_requests() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let (_sender, requests) = Streaming::channel(1);
        let mut request = Request::new(requests);
        request.set_timeout(SECOND);
        let mut answers = client.chat(request).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1 closed"]);
    });
}

#[test]
fn a_stream_closed_early_by_the_server_is_cancelled() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        let mut count = client.count(words("hi")).await.unwrap().into_inner();
        let (_sender, requests) = Streaming::channel(1);
        let mut chat = client.chat(requests).await.unwrap().into_inner();
        let gather = tokio::spawn(async move { client.gather(stream_of("a")).await });
        settle().await;
        peer.say(
            [stream_frame(1, encoded("one")), stream_frame(1, ""), stream_frame(2, ""), stream_frame(3, "")].concat(),
        )
        .await;
        assert_eq!(next(&mut count).await, "one", "what came before is read first");
        for status in
            [count.message().await.unwrap_err(), chat.message().await.unwrap_err(), gather.await.unwrap().unwrap_err()]
        {
            assert_eq!(status.code(), Code::Cancelled, "{status}");
        }
    });
}

#[test]
fn stalled_response_streams_fail_only_their_call() {
    in_virtual_time(async {
        let config = Config { stream_queue_len_max: 1000, ..quiet() };
        let (client, mut peer) = peer_of_channel(quiet_channel().config(config)).await;
        let mut unread = client.count(words("unread")).await.unwrap().into_inner();
        let mut read = client.count(words("read")).await.unwrap().into_inner();
        assert_eq!(peer.heard().await.len(), 4);
        for number in 0..100 {
            peer.say([stream_frame(1, encoded("tick")), stream_frame(2, encoded(&number.to_string()))].concat()).await;
            assert_eq!(next(&mut read).await, number.to_string());
        }
        assert!(peer.heard().await.contains(&"stream 1 closed".into()));
        let status = loop {
            match unread.message().await {
                Ok(message) => assert_eq!(message, Some(words("tick"))),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        peer.say(stream_frame(2, end())).await;
        assert_eq!(read.message().await.unwrap(), None);
    });
}

#[test]
fn unread_responses_slow_down_only_their_handler() {
    in_virtual_time(async {
        let server = serve(&TestService::default());
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        let endless = Streaming::new(stream::iter(0..).map(|number: u32| Ok(words(number.to_string()))));
        let mut unread = client.chat(endless).await.unwrap().into_inner();
        settle().await;
        let since = Instant::now();
        for kind in (0..100).map(|round| round % 4) {
            of_kind(&client, kind, "hi").await.unwrap();
        }
        assert_elapsed(since, Duration::ZERO);
        for number in 0..50_000 {
            assert_eq!(next(&mut unread).await, format!("re: {number}"));
        }
    });
}

#[test]
fn responses_read_late_are_not_lost() {
    in_virtual_time(async {
        let config = Config { stream_queue_len_max: 10_000, ..quiet() };
        let server = serve(&TestService::default());
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().config(config).attach(ours).await.unwrap());
        let list = (0..1000).map(|number| number.to_string()).collect::<Vec<_>>();
        let mut answers = client.count(words(list.join(", "))).await.unwrap().into_inner();
        for text in list {
            settle().await;
            assert_eq!(next(&mut answers).await, text);
        }
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

#[test]
fn a_client_waits_for_a_peer_with_stalled_reads() {
    in_virtual_time(async {
        let (theirs, mut peer) = peer_with_buffer(64);
        let config = Config { outbox_len_max: 1000, write_stall_max: 3600 * SECOND, ..quiet() };
        let client = attach_to_peer(quiet_channel().config(config), theirs, &mut peer).await;
        let (sender, requests) = Streaming::channel(1);
        let _answers = client.chat(requests).await.unwrap();
        let mut sent = 0;
        while let Ok(sending) = timeout(SECOND, sender.send(words("a message"))).await {
            sending.unwrap();
            sent += 1;
        }
        assert!((10..60).contains(&sent), "{sent}");
        assert_eq!(peer.hear().await, "stream 1: open 13");
        for _ in 0..sent {
            assert_eq!(peer.hear().await, "stream 1: a message");
        }
        timeout(SECOND, sender.send(words("there is room"))).await.unwrap().unwrap();
    });
}

#[test]
fn streams_opened_by_a_server_are_refused() {
    in_virtual_time(async {
        let (client, mut peer) = peer_of_channel(quiet_channel()).await;
        assert_eq!(peer.asks(open_frame(0x8000, CHAT)).await, ["stream 32768 closed"]);
        let call = asking(&client, "hi");
        peer.heard().await;
        peer.say(frame(1, SAY, encoded("fine"))).await;
        assert!(call.await.unwrap().is_ok());
    });
}

#[test]
fn directions_of_a_bidirectional_stream_are_independent() {
    in_virtual_time(async {
        let (_service, server, _peer) = server_and_peer();
        let client = connect(&server).await;
        // First only the client sends, then only the server.
        let (sender, requests) = Streaming::channel(4);
        let mut answers = client.chat(requests).await.unwrap().into_inner();
        for _ in 0..100 {
            sender.send(words("hi")).await.unwrap();
        }
        sender.send(words("alone endless tick")).await.unwrap();
        drop(sender);
        for _ in 0..100 {
            assert_eq!(next(&mut answers).await, "re: hi");
        }
        for _ in 0..10_000 {
            assert_eq!(next(&mut answers).await, "tick");
        }
        drop(answers);
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        let long = Streaming::from_iter((0..1000).map(|number| words(number.to_string())));
        let answers = all(client.chat(long).await.unwrap()).await.unwrap();
        assert_eq!(answers, (0..1000).map(|number| format!("re: {number}")).collect::<Vec<_>>());
    });
}

#[test]
fn thousands_of_cancelled_calls_leave_the_channel_usable() {
    in_virtual_time(async {
        let (service, server, _peer) = server_and_peer();
        let client = connect(&server).await;
        for round in 0..2000 {
            let mut answers = client.count(words("tick, wait")).await.unwrap().into_inner();
            let (_sender, requests) = Streaming::channel(1);
            let chat = client.chat(requests).await.unwrap();
            if round % 2 == 0 {
                assert_eq!(next(&mut answers).await, "tick");
            }
            drop((answers, chat));
        }
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        settle().await;
        let connection = client.channel().connection().unwrap();
        assert!(connection.close_reason().is_none());
        assert_eq!(connection.metrics().streams, 0);
        assert!(server.connections().iter().all(|connection| connection.metrics().streams == 0));
        let log = service.log.take();
        let begun = log.iter().filter(|line| line.starts_with("count") || *line == "chat").count();
        let dropped = log.iter().filter(|line| line.starts_with("dropped")).count();
        assert_eq!(begun, dropped);
    });
}
