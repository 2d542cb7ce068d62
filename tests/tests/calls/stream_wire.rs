//! Calls with streams, frame by frame: what each side says, and when it closes the stream.
//!
//! The frames are those of frisbee.

use frpc::{Code, Config, Request, Server, Status, Streaming};
use tokio::{
    io::duplex,
    time::{Instant, timeout},
};

use crate::support::{
    CHAT, COUNT, Clerk, GATHER, Peer, SAY, SECOND, all, ask, asking, connected, end, error, next, only_connection,
    open, packet, quiet, quietly, said, schema::desk_client::DeskClient, serving, settled, speech, stream, virtually,
    words,
};

/// A clerk, its server, and a peer of it.
fn scene() -> (Clerk, Server, Peer) {
    let clerk = Clerk::default();
    let server = serving(&clerk);
    let peer = Peer::of(&server);
    (clerk, server, peer)
}

#[test]
fn a_server_lets_go_of_a_stream_of_answers_with_its_end() {
    virtually(async {
        let (_clerk, server, mut peer) = scene();
        let heard = peer.asks([open(1, COUNT), stream(1, said("one, two"))].concat()).await;
        assert_eq!(heard, ["stream 1: one", "stream 1: two", "stream 1: end"], "nothing comes behind the end");
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
        // An end marker of the caller, which this kind of call does not need, is no call of its own.
        assert!(peer.asks(stream(1, end())).await.is_empty());
        let heard = peer.asks([open(1, COUNT), stream(1, said("again"))].concat()).await;
        assert_eq!(heard, ["stream 1: again", "stream 1: end"], "the id is free again, and its new call not closed");
    });
}

#[test]
fn a_server_lets_go_of_a_stream_of_requests_after_both_ends() {
    virtually(async {
        let (_clerk, server, mut peer) = scene();
        let frames = [open(1, GATHER), stream(1, said("a")), stream(1, said("b")), stream(1, end())];
        assert_eq!(peer.asks(frames.concat()).await, ["stream 1: a b", "stream 1: end"]);
        // The handler is done before its caller is.
        let frames = [open(2, GATHER), stream(2, said("a")), stream(2, said("now"))];
        assert_eq!(peer.asks(frames.concat()).await, ["stream 1 closed", "stream 2: a now", "stream 2: end"]);
        assert!(peer.asks([stream(2, said("late")), stream(2, [0xff])].concat()).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 1);
        assert!(peer.asks(stream(2, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

#[test]
fn a_server_lets_go_of_a_conversation_after_both_ends() {
    virtually(async {
        let (_clerk, server, mut peer) = scene();
        assert_eq!(peer.asks([open(1, CHAT), stream(1, said("a"))].concat()).await, ["stream 1: re: a"]);
        assert_eq!(peer.asks(stream(1, end())).await, ["stream 1: end"]);
        let heard = peer.asks([open(2, CHAT), stream(2, said("stop"))].concat()).await;
        assert_eq!(heard, ["stream 1 closed", "stream 2: end"]);
        assert!(peer.asks(stream(2, said("late"))).await.is_empty());
        assert!(peer.asks(stream(2, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

/// frisbee-go hangs for ever if it reads anything about a stream while it closes the connection, as a caller may once it
/// has what it waited for. What comes ahead of that is safe.
#[test]
fn a_server_closes_a_stream_only_ahead_of_data_that_somebody_waits_for() {
    virtually(async {
        let (clerk, server, mut peer) = scene();
        assert!(peer.asks([open(1, CHAT), stream(1, said("wait"))].concat()).await.is_empty());
        for id in 2..10 {
            let heard = peer.asks([open(id, COUNT), stream(id, said("one"))].concat()).await;
            let closed = (id > 2).then(|| format!("stream {} closed", id - 1));
            let answer = [format!("stream {id}: one"), format!("stream {id}: end")];
            assert_eq!(heard, closed.into_iter().chain(answer).collect::<Vec<_>>());
        }
        assert_eq!(peer.asks(packet(7, SAY, said("hi"))).await, ["10 7: hi"], "a packet announces nothing");
        // Rust callers close their streams themselves, and are not told what they know.
        assert!(peer.asks(stream(9, "")).await.is_empty());
        clerk.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: re: wait"]);
        assert_eq!(only_connection(&server).await.metrics().streams, 1);
    });
}

#[test]
fn a_caller_that_closes_no_stream_leaves_none_and_may_use_its_ids_again() {
    virtually(async {
        let (_clerk, server, mut peer) = scene();
        let mut last = None;
        for id in (1..1500).chain(1..1500) {
            peer.say([open(id, COUNT), stream(id, said("one"))].concat()).await;
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
fn a_server_ignores_what_follows_an_end_marker() {
    virtually(async {
        let (_clerk, _server, mut peer) = scene();
        let frames = [open(1, GATHER), stream(1, said("a")), stream(1, said("wait")), stream(1, end())];
        assert!(peer.asks(frames.concat()).await.is_empty());
        let (clerk, _server, mut peer) = scene();
        peer.say([open(1, GATHER), stream(1, said("wait")), stream(1, end()), stream(1, end())].concat()).await;
        peer.say([stream(1, said("late")), stream(1, end())].concat()).await;
        settled().await;
        clerk.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: end"]);
    });
}

#[test]
fn a_status_of_a_stream_is_an_error_and_an_end() {
    virtually(async {
        let (_clerk, _server, mut peer) = scene();
        let heard = peer.asks([open(1, COUNT), stream(1, said("one, fail 5 gone"))].concat()).await;
        assert_eq!(heard, ["stream 1: one", "stream 1: error 5 gone", "stream 1: end"]);
        for (id, operation) in [(2, GATHER), (3, CHAT)] {
            let heard = peer.asks([open(id, operation), stream(id, said("fail 5 gone"))].concat()).await;
            let [closed, error, end_marker] = [
                format!("stream {} closed", id - 1),
                format!("stream {id}: error 5 gone"),
                format!("stream {id}: end"),
            ];
            assert_eq!(heard, [closed, error, end_marker]);
            assert!(peer.asks(stream(id, end())).await.is_empty());
        }
    });
}

#[test]
fn a_call_on_a_stream_that_is_open_already_is_no_message() {
    virtually(async {
        let (clerk, _server, mut peer) = scene();
        // What two services of a Go client do that count their streams each by itself.
        let heard = peer.asks([open(1, CHAT), stream(1, said("a")), open(1, GATHER)].concat()).await;
        assert_eq!(heard[0], "stream 1: re: a");
        assert!(heard[1].starts_with("stream 1: error 3 "), "{heard:?}");
        assert_eq!(clerk.log.take(), ["chat", "dropped chat"]);
    });
}

#[test]
fn an_error_in_a_stream_of_requests_fails_the_call() {
    virtually(async {
        let (_clerk, _server, mut peer) = scene();
        for (id, operation) in [(1, GATHER), (2, CHAT)] {
            let heard = peer.asks([open(id, operation), stream(id, error("not quite EOF"))].concat()).await;
            assert_eq!(heard, [format!("stream {id}: error 3 not quite EOF"), format!("stream {id}: end")]);
        }
    });
}

#[test]
fn a_call_ends_at_once_when_its_caller_closes_the_stream() {
    virtually(async {
        let (clerk, server, mut peer) = scene();
        for (operation, text, what) in
            [(COUNT, "wait", "count wait"), (GATHER, "a", "gather"), (GATHER, "wait", "gather"), (CHAT, "wait", "chat")]
        {
            assert!(peer.asks([open(1, operation), stream(1, said(text))].concat()).await.is_empty());
            assert_eq!(clerk.log.take(), [what]);
            assert!(peer.asks(stream(1, "")).await.is_empty(), "a close is not answered");
            assert_eq!(clerk.log.take(), [format!("dropped {what}")]);
            assert_eq!(only_connection(&server).await.metrics().streams, 0);
        }
        assert!(peer.asks([open(1, COUNT), stream(1, "")].concat()).await.is_empty());
        assert!(clerk.log.take().is_empty(), "without a request there is no call");
    });
}

#[test]
fn requests_that_a_handler_does_not_want_are_discarded() {
    virtually(async {
        let (clerk, server, mut peer) = scene();
        let heard = peer.asks([open(1, CHAT), stream(1, said("alone one, wait, two"))].concat()).await;
        assert_eq!(heard, ["stream 1: one"]);
        let letter = said(&"x".repeat(10_000));
        for _ in 0..1000 {
            peer.say(stream(1, &letter)).await;
        }
        assert!(peer.heard().await.is_empty());
        clerk.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: two", "stream 1: end"]);
        assert!(peer.asks(stream(1, end())).await.is_empty());
        assert_eq!(only_connection(&server).await.metrics().streams, 0);
    });
}

#[test]
fn what_follows_the_one_request_is_discarded() {
    virtually(async {
        let (clerk, _server, mut peer) = scene();
        assert!(peer.asks([open(1, COUNT), stream(1, said("wait, one"))].concat()).await.is_empty());
        for _ in 0..200 {
            peer.say(stream(1, said(&"x".repeat(10_000)))).await;
        }
        clerk.gate.open(1);
        assert_eq!(peer.heard().await, ["stream 1: wait", "stream 1: one", "stream 1: end"]);
    });
}

#[test]
fn requests_that_are_not_read_in_time_cost_their_call_only() {
    virtually(async {
        let (clerk, _server, mut peer) = scene();
        assert!(peer.asks([open(1, CHAT), stream(1, said("wait"))].concat()).await.is_empty());
        let (letter, since) = (said(&"x".repeat(10_000)), Instant::now());
        for _ in 0..200 {
            peer.say([stream(1, &letter), packet(7, SAY, said("hi"))].concat()).await;
            while peer.hear().await != "10 7: hi" {}
        }
        assert!(since.elapsed() < SECOND);
        let log = clerk.log.take();
        assert!(log.contains(&"dropped chat".into()), "{log:?}");
    });
}

#[test]
fn a_server_waits_while_its_peer_does_not_read() {
    virtually(async {
        let (clerk, _server, mut peer) = scene();
        peer.say([open(1, COUNT), stream(1, said("endless tick"))].concat()).await;
        settled().await;
        let made = clerk.made();
        // The outbox holds 1 MiB, and each answer is 21 bytes.
        assert!(made < 80_000, "{made}");
        settled().await;
        assert_eq!(clerk.made(), made);
        for _ in 0..=made {
            assert_eq!(peer.hear().await, "stream 1: tick");
        }
        assert!(clerk.made() > made);
        peer.say(stream(1, "")).await;
        settled().await;
        assert_eq!(clerk.log.take(), ["count endless tick", "dropped count endless tick"]);
    });
}

#[test]
fn a_client_closes_a_stream_of_answers_when_it_has_the_end() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let mut answers = desk.count(words("hi")).await.unwrap().into_inner();
        assert_eq!(peer.heard().await, ["stream 1: open 11", "stream 1: hi"]);
        peer.say([stream(1, said("one")), stream(1, end()), stream(1, end()), stream(1, said("late"))].concat()).await;
        assert_eq!(next(&mut answers).await, "one");
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 1 closed"]);
        // A second end marker was still under way: it opens nothing, and disturbs nobody.
        assert!(peer.asks(stream(1, end())).await.is_empty());
        let call = asking(&desk, "hi");
        assert_eq!(peer.heard().await, ["10 1: hi"]);
        peer.say(packet(1, SAY, said("fine"))).await;
        call.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_closes_a_conversation_after_both_ends() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let mut answers = desk.chat(speech("a b")).await.unwrap().into_inner();
        let read = tokio::spawn(async move { (answers.message().await, answers.message().await, answers) });
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1: b", "stream 1: end"]);
        assert!(peer.asks(stream(1, said("c"))).await.is_empty());
        assert_eq!(peer.asks(stream(1, end())).await, ["stream 1 closed"]);
        let (first, last, _answers) = read.await.unwrap();
        assert_eq!((first.unwrap(), last.unwrap()), (Some(words("c")), None));
        // The server is the first to end.
        let (sender, requests) = Streaming::channel(1);
        let mut answers = desk.chat(requests).await.unwrap().into_inner();
        assert_eq!(peer.heard().await, ["stream 2: open 13"]);
        peer.say(stream(2, end())).await;
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 2: end", "stream 2 closed"]);
        // The caller's own stream learns of it with its next message, or the one after.
        let _ = sender.send(words("late")).await;
        settled().await;
        sender.send(words("later")).await.unwrap_err();
    });
}

#[test]
fn a_client_takes_an_answer_before_it_has_said_everything() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let (_sender, requests) = Streaming::channel(1);
        let call = tokio::spawn(async move { desk.gather(requests).await });
        assert_eq!(peer.heard().await, ["stream 1: open 12"]);
        let heard = peer.asks([stream(1, said("enough")), stream(1, end()), stream(1, end())].concat()).await;
        assert_eq!(heard[..2], ["stream 1: end", "stream 1 closed"]);
        assert_eq!(call.await.unwrap().unwrap().into_inner(), words("enough"));
    });
}

#[test]
fn an_end_without_an_answer_fails_the_call() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let call = tokio::spawn(async move { desk.gather(speech("a")).await });
        peer.heard().await;
        peer.say(stream(1, end())).await;
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Internal);
    });
}

#[test]
fn an_error_of_a_go_server_is_unknown() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let mut answers = desk.count(words("hi")).await.unwrap().into_inner();
        peer.say([stream(1, error("no")), stream(1, end())].concat()).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "no"));
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

#[test]
fn a_client_that_drops_its_answers_closes_the_stream() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let answers = desk.count(words("hi")).await.unwrap();
        assert_eq!(peer.heard().await, ["stream 1: open 11", "stream 1: hi"]);
        drop(answers);
        assert_eq!(peer.heard().await, ["stream 1 closed"]);
        let (sender, requests) = Streaming::channel(1);
        let answers = desk.chat(requests).await.unwrap();
        sender.send(words("a")).await.unwrap();
        assert_eq!(peer.heard().await, ["stream 2: open 13", "stream 2: a"]);
        drop(answers);
        assert_eq!(peer.heard().await, ["stream 2 closed"], "no end: not everything was said");
        sender.send(words("b")).await.unwrap_err();
        let (_sender, requests) = Streaming::channel(1);
        assert!(timeout(SECOND, desk.gather(requests)).await.is_err());
        assert_eq!(peer.heard().await, ["stream 3: open 12", "stream 3 closed"]);
        assert_eq!(desk.channel().connection().unwrap().metrics().streams, 0);
    });
}

#[test]
fn a_client_that_drops_its_sender_ends_its_half_only() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let (sender, requests) = Streaming::channel(1);
        let mut answers = desk.chat(requests).await.unwrap().into_inner();
        sender.send(words("a")).await.unwrap();
        drop(sender);
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1: end"]);
        for text in ["b", "c"] {
            peer.say(stream(1, said(text))).await;
            assert_eq!(next(&mut answers).await, text);
        }
        assert!(peer.heard().await.is_empty());
    });
}

#[test]
fn a_stream_of_requests_that_fails_cuts_the_call_off() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let (sender, requests) = Streaming::channel(1);
        let mut answers = desk.chat(requests).await.unwrap().into_inner();
        sender.send(words("a")).await.unwrap();
        sender.fail(Status::data_loss("torn")).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "torn"));
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1: a", "stream 1 closed"]);
        let (sender, requests) = Streaming::channel(1);
        sender.fail(Status::data_loss("torn")).await;
        assert_eq!(desk.gather(requests).await.unwrap_err().code(), Code::DataLoss);
        assert_eq!(peer.heard().await, ["stream 2: open 12", "stream 2 closed"]);
    });
}

#[test]
fn a_timeout_is_no_end_of_the_requests() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let (_sender, requests) = Streaming::channel(1);
        let mut request = Request::new(requests);
        request.set_timeout(SECOND);
        let mut answers = desk.chat(request).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(answers.message().await.unwrap(), None);
        assert_eq!(peer.heard().await, ["stream 1: open 13", "stream 1 closed"]);
    });
}

#[test]
fn a_stream_that_the_server_closes_early_is_cancelled() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        let mut count = desk.count(words("hi")).await.unwrap().into_inner();
        let (_sender, requests) = Streaming::channel(1);
        let mut chat = desk.chat(requests).await.unwrap().into_inner();
        let gather = tokio::spawn(async move { desk.gather(speech("a")).await });
        settled().await;
        peer.say([stream(1, said("one")), stream(1, ""), stream(2, ""), stream(3, "")].concat()).await;
        assert_eq!(next(&mut count).await, "one", "what came before is read first");
        for status in
            [count.message().await.unwrap_err(), chat.message().await.unwrap_err(), gather.await.unwrap().unwrap_err()]
        {
            assert_eq!(status.code(), Code::Cancelled, "{status}");
        }
    });
}

#[test]
fn answers_that_are_not_read_in_time_cost_their_call_only() {
    virtually(async {
        let config = Config { stream_queue_len_max: 1000, ..quiet() };
        let (desk, mut peer) = Peer::of_channel(quietly().config(config)).await;
        let mut unread = desk.count(words("unread")).await.unwrap().into_inner();
        let mut read = desk.count(words("read")).await.unwrap().into_inner();
        assert_eq!(peer.heard().await.len(), 4);
        for number in 0..100 {
            peer.say([stream(1, said("tick")), stream(2, said(&number.to_string()))].concat()).await;
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
        peer.say(stream(2, end())).await;
        assert_eq!(read.message().await.unwrap(), None);
    });
}

#[test]
fn answers_that_are_read_late_are_not_lost() {
    virtually(async {
        let config = Config { stream_queue_len_max: 10_000, ..quiet() };
        let server = serving(&Clerk::default());
        let (ours, theirs) = duplex(1000);
        server.attach(theirs);
        let desk = DeskClient::new(quietly().config(config).attach(ours).await.unwrap());
        let list = (0..1000).map(|number| number.to_string()).collect::<Vec<_>>();
        let mut answers = desk.count(words(list.join(", "))).await.unwrap().into_inner();
        for text in list {
            settled().await;
            assert_eq!(next(&mut answers).await, text);
        }
        assert_eq!(answers.message().await.unwrap(), None);
    });
}

#[test]
fn a_client_waits_while_its_peer_does_not_read() {
    virtually(async {
        let (theirs, mut peer) = Peer::with_buffer(64);
        let config = Config { outbox_len_max: 1000, write_stall_max: 3600 * SECOND, ..quiet() };
        let channel = quietly().config(config).attach(theirs).await.unwrap();
        let desk = DeskClient::new(channel);
        let (sender, requests) = Streaming::channel(1);
        let _answers = desk.chat(requests).await.unwrap();
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
fn a_stream_that_a_server_opens_is_refused() {
    virtually(async {
        let (desk, mut peer) = Peer::of_channel(quietly()).await;
        assert_eq!(peer.asks(open(0x8000, CHAT)).await, ["stream 32768 closed"]);
        let call = asking(&desk, "hi");
        peer.heard().await;
        peer.say(packet(1, SAY, said("fine"))).await;
        assert!(call.await.unwrap().is_ok());
    });
}

#[test]
fn both_directions_of_a_conversation_are_independent() {
    virtually(async {
        let (_clerk, server, _peer) = scene();
        let desk = connected(&server).await;
        // Only the client speaks for a while, then only the server.
        let (sender, requests) = Streaming::channel(4);
        let mut answers = desk.chat(requests).await.unwrap().into_inner();
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
        assert_eq!(ask(&desk, "hi").await.unwrap(), "hi");
        let long = Streaming::from_iter((0..1000).map(|number| words(number.to_string())));
        let answers = all(desk.chat(long).await.unwrap()).await.unwrap();
        assert_eq!(answers, (0..1000).map(|number| format!("re: {number}")).collect::<Vec<_>>());
    });
}

#[test]
fn thousands_of_calls_that_are_given_up_do_no_harm() {
    virtually(async {
        let (clerk, server, _peer) = scene();
        let desk = connected(&server).await;
        for round in 0..2000 {
            let mut answers = desk.count(words("tick, wait")).await.unwrap().into_inner();
            let (_sender, requests) = Streaming::channel(1);
            let chat = desk.chat(requests).await.unwrap();
            if round % 2 == 0 {
                assert_eq!(next(&mut answers).await, "tick");
            }
            drop((answers, chat));
        }
        assert_eq!(ask(&desk, "hi").await.unwrap(), "hi");
        settled().await;
        let connection = desk.channel().connection().unwrap();
        assert!(connection.close_reason().is_none());
        assert_eq!(connection.metrics().streams, 0);
        assert!(server.connections().iter().all(|connection| connection.metrics().streams == 0));
        let log = clerk.log.take();
        let begun = log.iter().filter(|line| line.starts_with("count") || *line == "chat").count();
        let dropped = log.iter().filter(|line| line.starts_with("dropped")).count();
        assert_eq!(begun, dropped);
    });
}
