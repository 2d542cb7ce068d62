//! Streams beside the packets: who opens, who may, how they end, and that one never holds up the rest.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use bytes::Bytes;

use frisbee::{
    Client, Config, Connection, Dispatch, OpenError, Server, Stream, StreamEnd, StreamSendError, TrySendError,
};
use support::{
    SECOND,
    frames::{frame, ping, stream_frame},
    in_virtual_time, settle,
};
use tokio::{task::yield_now, time::timeout};

use crate::scripts::{
    Script, client, connected, only_connection, packet_frame, peer_of, peer_of_client, peer_of_client_with_buffer,
    quiet, server, zeros,
};

/// Accepts up to `backlog` streams by handle.
fn accepting(backlog: usize) -> Client<()> {
    client(()).config(Config { accept_backlog: backlog, ..quiet() })
}

/// A server whose connections hand streams to their handles, and both ends of a connection to it.
async fn both_ends(backlog: usize) -> (Server, Connection, Connection) {
    let config = Config { accept_backlog: backlog, ..quiet() };
    let server = server(()).config(config).without_listener();
    let connection = connected(accepting(backlog), &server).await;
    let other = only_connection(&server).await;
    (server, connection, other)
}

/// Both ends of one stream.
async fn stream_pair() -> (Server, Stream, Stream) {
    let (server, connection, other) = both_ends(1).await;
    let stream = connection.open_stream().unwrap();
    stream.send("hello").await.unwrap();
    let mut accepted = other.accept_stream().await.unwrap();
    assert_eq!(accepted.read().await.unwrap(), "hello");
    (server, stream, accepted)
}

#[test]
fn either_side_opens_streams_and_both_send() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends(1).await;
        for (opener, accepter) in [(&connection, &other), (&other, &connection)] {
            let mut opened = opener.open_stream().unwrap();
            opened.send("ping").await.unwrap();
            let mut accepted = accepter.accept_stream().await.unwrap();
            assert_eq!(accepted.id(), opened.id());
            assert_eq!(accepted.read().await.unwrap(), "ping");
            accepted.send("pong").await.unwrap();
            assert_eq!(opened.read().await.unwrap(), "pong");
        }
    });
}

#[test]
fn the_router_serves_streams_opened_by_the_peer() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([stream_frame(7, "one"), stream_frame(8, "two"), stream_frame(7, "three")]).await;
        let mut heard = peer.hear_times(3).await;
        heard.sort();
        assert_eq!(heard, ["stream 7: one", "stream 7: three", "stream 8: two"]);
        peer.say(stream_frame(7, "")).await;
        assert!(peer.hears_nothing().await, "a close is not answered");
        assert_eq!(script.log.take(), ["opened", "stream 7", "stream 8", "stream 7: ClosedByPeer"]);
    });
}

#[test]
fn unaccepted_streams_are_limited_by_the_backlog() {
    for backlog in 0..=2 {
        in_virtual_time(async {
            let (_server, connection, other) = both_ends(backlog).await;
            let mut opened: Vec<Stream> = (0..3).map(|_| connection.open_stream().unwrap()).collect();
            for stream in &opened {
                stream.send("hello").await.unwrap();
            }
            settle().await;
            for refused in &mut opened[backlog..] {
                assert_eq!(refused.read().await, Err(StreamEnd::ClosedByPeer));
            }
            for waiting in &opened[..backlog] {
                assert_eq!(other.accept_stream().await.unwrap().id(), waiting.id());
            }
            assert!(timeout(SECOND, other.accept_stream()).await.is_err());
        });
    }
}

#[test]
fn accept_stream_returns_when_the_connection_closes() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends(1).await;
        let accepting = tokio::spawn(async move { other.accept_stream().await.is_none() });
        settle().await;
        connection.close();
        assert!(accepting.await.unwrap());
    });
}

#[test]
fn data_from_before_a_close_is_read_first() {
    in_virtual_time(async {
        let (_server, stream, mut accepted) = stream_pair().await;
        stream.send("last").await.unwrap();
        stream.close();
        stream.close();
        assert_eq!(stream.send("late").await, Err(StreamSendError::Ended(StreamEnd::Closed)));
        settle().await;
        assert_eq!(accepted.send("late").await, Err(StreamSendError::Ended(StreamEnd::ClosedByPeer)));
        assert_eq!(accepted.read().await.unwrap(), "last");
        for _ in 0..2 {
            assert_eq!(accepted.read().await, Err(StreamEnd::ClosedByPeer));
        }
    });
}

#[test]
fn data_received_before_a_local_close_can_be_read() {
    in_virtual_time(async {
        let (_server, stream, mut accepted) = stream_pair().await;
        stream.send("last").await.unwrap();
        settle().await;
        accepted.close();
        assert_eq!(accepted.read().await.unwrap(), "last");
        assert_eq!(accepted.read().await, Err(StreamEnd::Closed));
    });
}

#[test]
fn dropping_a_stream_closes_it() {
    in_virtual_time(async {
        let (_server, mut stream, accepted) = stream_pair().await;
        drop(accepted);
        assert_eq!(stream.read().await, Err(StreamEnd::ClosedByPeer));
    });
}

#[test]
fn a_split_stream_closes_with_its_last_half() {
    for sender_first in [true, false] {
        in_virtual_time(async {
            let (_server, mut stream, accepted) = stream_pair().await;
            let (sender, mut reader) = accepted.split();
            assert_eq!(sender.id(), reader.id());
            let another = sender.clone();
            drop(sender);
            if sender_first {
                another.send("still here").await.unwrap();
                drop(another);
                stream.send("me too").await.unwrap();
                assert_eq!(reader.read().await.unwrap(), "me too");
                drop(reader);
            } else {
                drop(reader);
                another.send("still here").await.unwrap();
                drop(another);
            }
            assert_eq!(stream.read().await.unwrap(), "still here");
            assert_eq!(stream.read().await, Err(StreamEnd::ClosedByPeer));
        });
    }
}

#[test]
fn readers_learn_that_the_other_half_closed_the_stream() {
    in_virtual_time(async {
        let (_server, _stream, accepted) = stream_pair().await;
        let (sender, mut reader) = accepted.split();
        let reading = tokio::spawn(async move { reader.read().await });
        settle().await;
        sender.close();
        assert_eq!(timeout(SECOND, reading).await.expect("the reader is woken").unwrap(), Err(StreamEnd::Closed));
    });
}

#[test]
fn a_cancelled_read_has_taken_nothing() {
    in_virtual_time(async {
        let (_server, stream, mut accepted) = stream_pair().await;
        assert!(timeout(SECOND, accepted.read()).await.is_err());
        stream.send("data").await.unwrap();
        assert_eq!(accepted.read().await.unwrap(), "data");
    });
}

#[test]
fn an_unread_stream_overflows_without_blocking_others() {
    in_virtual_time(async {
        let config = Config { accept_backlog: 1, stream_queue_len_max: 300, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(Script::new()).config(config)).await;
        let mut unread = connection.open_stream().unwrap();
        let mut read = connection.open_stream().unwrap();
        assert_eq!((unread.id(), read.id()), (1, 2));
        peer.say_all((0..4).map(|_| stream_frame(1, "data"))).await;
        assert!(peer.hears_nothing().await);
        peer.say_all([stream_frame(1, "too much"), stream_frame(2, "hi"), packet_frame(3, "hi"), ping()]).await;
        assert_eq!(read.read().await.unwrap(), "hi");
        assert_eq!(peer.heard().await, ["PONG", "stream 1 closed", "packet 3: hi"]);
        for _ in 0..4 {
            assert_eq!(unread.read().await.unwrap(), "data");
        }
        assert_eq!(unread.read().await.unwrap(), "too much");
        assert_eq!(unread.read().await, Err(StreamEnd::Overflow));
        assert_eq!(connection.metrics().counters.streams_refused, 1);
    });
}

#[test]
fn send_many_sends_up_to_the_first_failure() {
    in_virtual_time(async {
        let config = Config { content_len_max: 10, outbox_len_max: 1, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        let (sender, _reader) = connection.open_stream().unwrap().split();
        let mut contents = VecDeque::from([Bytes::from("a"), Bytes::from("b")]);
        sender.send_many(&mut contents).await.unwrap();
        assert!(contents.is_empty());
        assert_eq!(peer.hear_times(2).await, ["stream 1: a", "stream 1: b"]);
        contents.extend([Bytes::from("c"), zeros(11), Bytes::from("d")]);
        let refused = StreamSendError::ContentTooLarge { len: 11, limit: 10 };
        assert_eq!(sender.send_many(&mut contents).await, Err(refused));
        assert_eq!(contents, [Bytes::from("d")]);
        assert_eq!(peer.hear().await, "stream 1: c");
    });
}

#[test]
fn send_many_ends_on_a_closing_connection_with_a_full_outbox() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 100, ..quiet() };
        let (connection, _peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
        let (sender, _reader) = connection.open_stream().unwrap().split();
        // A batch leaves the outbox before the socket blocks.
        for _ in 0..3 {
            while sender.try_send(zeros(50)).is_ok() {}
            settle().await;
        }
        connection.close();
        let sending = tokio::spawn(async move { sender.send_many(&mut VecDeque::from([zeros(50)])).await });
        // A task that is never idle would stop virtual time.
        for _ in 0..1000 {
            yield_now().await;
        }
        assert!(sending.is_finished());
        assert_eq!(sending.await.unwrap(), Err(StreamSendError::Ended(StreamEnd::ConnectionClosed)));
    });
}

#[test]
fn slow_readers_lose_nothing_once_they_catch_up() {
    in_virtual_time(async {
        let config = Config { stream_queue_len_max: 300, stream_stall_max: 60 * SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(Script::new()).config(config)).await;
        let mut stream = connection.open_stream().unwrap();
        peer.say_all((0..100).map(|number| stream_frame(1, number.to_string()))).await;
        peer.say(ping()).await;
        assert!(peer.hears_nothing().await, "what is behind the stream waits");
        for number in 0..100 {
            assert_eq!(stream.read().await.unwrap(), number.to_string());
        }
        assert_eq!(peer.hear_any().await, "PONG");
    });
}

#[test]
fn streams_end_with_their_connection() {
    in_virtual_time(async {
        let (server, mut stream, accepted) = stream_pair().await;
        let (sender, mut reader) = accepted.split();
        let reading = tokio::spawn(async move { reader.read().await });
        settle().await;
        drop(server);
        assert_eq!(reading.await.unwrap(), Err(StreamEnd::ConnectionClosed));
        assert_eq!(sender.send("late").await, Err(StreamSendError::Ended(StreamEnd::ConnectionClosed)));
        assert_eq!(stream.read().await, Err(StreamEnd::ConnectionClosed));
    });
}

#[test]
fn stream_data_can_be_read_after_the_connection_ended() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&accepting(1)).await;
        peer.say_all([stream_frame(7, "one"), stream_frame(7, "two")]).await;
        let mut stream = connection.accept_stream().await.unwrap();
        settle().await;
        drop(peer);
        connection.closed().await;
        assert_eq!(stream.read().await.unwrap(), "one");
        assert_eq!(stream.read().await.unwrap(), "two");
        assert_eq!(stream.read().await, Err(StreamEnd::ConnectionClosed));
    });
}

#[test]
fn stream_handlers_do_not_delay_the_end_of_the_connection() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned] {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say(stream_frame(7, "hi")).await;
            assert_eq!(peer.hear().await, "stream 7: hi");
            let connection = only_connection(&server).await;
            peer.fall_silent().await;
            let closed = timeout(SECOND, connection.closed()).await.expect("the peer closed, so it ends");
            assert_eq!(format!("{closed:?}"), "Peer");
            settle().await;
            assert_eq!(script.log.take()[1..], ["stream 7", "closed: Peer", "stream 7: ConnectionClosed"]);
        });
    }
}

#[test]
fn a_stream_handler_may_outlive_its_connection() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say(stream_frame(7, "wait")).await;
        let connection = only_connection(&server).await;
        connection.close();
        drop(peer);
        connection.closed().await;
        script.gate.open(1);
        settle().await;
        assert_eq!(script.log.take(), ["opened", "stream 7", "closed: Local", "stream 7: ConnectionClosed"]);
    });
}

#[test]
fn an_id_can_be_reused_after_its_stream() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(Script::new())).await;
        let first = connection.open_stream_with_id(7).unwrap();
        assert_eq!(connection.open_stream_with_id(7).unwrap_err(), OpenError::IdInUse);
        first.close();
        let mut second = connection.open_stream_with_id(7).unwrap();
        second.send("again").await.unwrap();
        assert_eq!(peer.hear_times(2).await, ["stream 7 closed", "stream 7: again"]);
        peer.say(stream_frame(7, "for the second")).await;
        assert_eq!(second.read().await.unwrap(), "for the second");
        drop(first);
        second.send("not disturbed").await.unwrap();
        assert_eq!(peer.hear().await, "stream 7: not disturbed");
    });
}

#[test]
fn late_data_of_an_ended_stream_opens_a_new_one() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([stream_frame(7, "one"), stream_frame(7, ""), stream_frame(7, "late"), stream_frame(7, "")]).await;
        settle().await;
        assert_eq!(script.log.take().iter().filter(|line| *line == "stream 7").count(), 2);
        assert_eq!(server.metrics().counters.streams_refused, 0);
    });
}

#[test]
fn a_peer_opens_no_more_streams_than_the_limit() {
    in_virtual_time(async {
        let script = Script::new();
        let config = Config { streams_max: 2, ..quiet() };
        let server = server(script.clone()).config(config).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([7, 8, 9].map(|id| stream_frame(id, "hi"))).await;
        let mut heard = peer.hear_times(3).await;
        heard.sort();
        assert_eq!(heard, ["stream 7: hi", "stream 8: hi", "stream 9 closed"]);
        let connection = only_connection(&server).await;
        assert_eq!(connection.metrics().streams, 2);
        assert_eq!(connection.open_stream().unwrap_err(), OpenError::TooManyStreams { limit: 2 });
        peer.say(stream_frame(7, "")).await;
        settle().await;
        assert!(connection.open_stream().is_ok());
    });
}

#[test]
fn empty_data_is_refused_and_the_stream_lives() {
    in_virtual_time(async {
        let (_server, stream, mut accepted) = stream_pair().await;
        assert_eq!(stream.send("").await, Err(StreamSendError::Empty));
        stream.send("data").await.unwrap();
        assert_eq!(accepted.read().await.unwrap(), "data");
    });
}

#[test]
fn data_may_be_as_large_as_a_packet() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&accepting(1)).await;
        peer.say(frame(7, 2, vec![b'x'; 60_000])).await;
        let mut stream = connection.accept_stream().await.unwrap();
        assert_eq!(stream.read().await.unwrap().len(), 60_000);
        stream.send(vec![b'x'; 60_000]).await.unwrap();
        assert_eq!(peer.hear().await, "stream 7: 60000 bytes");
    });
}

#[test]
fn peeked_data_is_read_next() {
    in_virtual_time(async {
        let (_server, stream, mut accepted) = stream_pair().await;
        assert!(timeout(SECOND, accepted.peek()).await.is_err(), "there is nothing yet");
        stream.send("one").await.unwrap();
        stream.send("two").await.unwrap();
        for _ in 0..2 {
            assert_eq!(accepted.peek().await.unwrap(), "one");
        }
        assert_eq!(accepted.read().await.unwrap(), "one");
        assert_eq!(accepted.peek().await.unwrap(), "two");
        stream.close();
        settle().await;
        assert_eq!(accepted.peek().await.unwrap(), "two", "data before the end comes first");
        assert_eq!(accepted.read().await.unwrap(), "two");
        assert_eq!(accepted.peek().await, Err(StreamEnd::ClosedByPeer));
    });
}

#[test]
fn the_last_poll_of_a_stream_is_woken() {
    in_virtual_time(async {
        let (_server, stream, accepted) = stream_pair().await;
        let (_sender, mut reader) = accepted.split();
        let mut first = Box::pin(poll_fn(|cx| reader.poll_read(cx)));
        assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
        drop(first);
        let last = tokio::spawn(async move { poll_fn(|cx| reader.poll_read(cx)).await });
        settle().await;
        stream.send("data").await.unwrap();
        assert_eq!(timeout(SECOND, last).await.expect("it is woken").unwrap().unwrap(), "data");
    });
}

#[test]
fn data_after_the_reader_is_dropped_is_discarded() {
    in_virtual_time(async {
        let config = Config { stream_queue_len_max: 300, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(Script::new()).config(config)).await;
        let (sender, reader) = connection.open_stream().unwrap().split();
        peer.say_all((0..4).map(|_| stream_frame(1, "unread"))).await;
        settle().await;
        drop(reader);
        peer.say_all((0..100).map(|_| stream_frame(1, "too late"))).await;
        peer.say(packet_frame(3, "hi")).await;
        assert_eq!(timeout(SECOND, peer.hear()).await.expect("nothing is held up"), "packet 3: hi");
        sender.send("still here").await.unwrap();
        assert_eq!(peer.hear().await, "stream 1: still here");
        peer.say(stream_frame(1, "")).await;
        assert_eq!(sender.closed().await, StreamEnd::ClosedByPeer);
        assert_eq!(connection.metrics().counters.streams_refused, 0);
    });
}

#[test]
fn all_watchers_of_a_stream_learn_its_end() {
    for expected in [StreamEnd::Closed, StreamEnd::ClosedByPeer, StreamEnd::Overflow, StreamEnd::ConnectionClosed] {
        in_virtual_time(async {
            let config = Config { stream_queue_len_max: 300, ..quiet() };
            let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
            let (sender, reader) = connection.open_stream().unwrap().split();
            let watching: Vec<_> = (0..3)
                .map(|_| {
                    let sender = sender.clone();
                    tokio::spawn(async move { sender.closed().await })
                })
                .collect();
            settle().await;
            assert!(watching.iter().all(|watcher| !watcher.is_finished()));
            match expected {
                StreamEnd::Closed => sender.close(),
                StreamEnd::ClosedByPeer => peer.say(stream_frame(1, "")).await,
                StreamEnd::Overflow => peer.say_all((0..20).map(|_| stream_frame(1, "data"))).await,
                StreamEnd::ConnectionClosed => drop(peer),
                other => panic!("{other:?} is not how a stream ends"),
            }
            for watcher in watching {
                assert_eq!(timeout(SECOND, watcher).await.expect("it is woken").unwrap(), expected);
            }
            assert_eq!(sender.closed().await, expected, "who asks later hears it at once");
            drop(reader);
        });
    }
}

#[test]
fn try_send_on_a_stream_never_waits() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 1000, write_stall_max: 3600 * SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
        let (sender, _reader) = connection.open_stream().unwrap().split();
        let mut sent = 0;
        while sender.try_send("some data").is_ok() {
            settle().await;
            sent += 1;
        }
        assert_eq!(sender.try_send("more"), Err(TrySendError::Full("more".into())));
        assert_eq!(sender.try_send(""), Err(TrySendError::Full("".into())), "room comes first");
        for _ in 0..sent {
            assert_eq!(peer.hear().await, "stream 1: some data");
        }
        sender.try_send("more").unwrap();
        assert_eq!(sender.try_send(""), Err(TrySendError::Failed(StreamSendError::Empty)));
        assert_eq!(peer.hear().await, "stream 1: more");
        sender.close();
        let ended = StreamSendError::Ended(StreamEnd::Closed);
        assert_eq!(sender.try_send("late"), Err(TrySendError::Failed(ended)));
    });
}
