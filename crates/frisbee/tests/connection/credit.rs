//! Streams between extended peers: a slow reader holds up its own sender, and nothing else.

use std::collections::VecDeque;

use bytes::Bytes;
use frisbee::{
    Config, Connection, Dispatch, Outcome, Packet, Router, Server, Stream, StreamEnd, StreamReader, StreamSendError,
    StreamSender, TrySendError,
};
use support::{
    Gate, SECOND,
    frames::{frame, pong},
    in_virtual_time, settle,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::scripts::{
    Script, client, connected, limited, only_connection, packet, packet_frame, peer_of, peer_of_client, quiet, server,
    zeros,
};

/// Windows of 4000 for each of a hundred streams.
fn extended() -> Config {
    Config { extended: true, accept_backlog: 100, streams_max: 100, streams_len_max: 800_000, ..quiet() }
}

/// Both ends of a connection, and its server.
async fn both_ends() -> (Server, Connection, Connection) {
    let server = server(Script::new()).config(extended()).without_listener();
    let connection = connected(client(()).config(extended()), &server).await;
    let other = only_connection(&server).await;
    connection.recognized().await.unwrap();
    (server, connection, other)
}

/// A stream of the second side, and its other end.
async fn stream_pair(opener: &Connection, accepter: &Connection) -> ((StreamSender, StreamReader), Stream) {
    let stream = opener.open_stream().unwrap();
    stream.send("hello").await.unwrap();
    let mut accepted = accepter.accept_stream().await.unwrap();
    assert_eq!(accepted.read().await.unwrap(), "hello");
    (stream.split(), accepted)
}

/// Sends numbered contents of a thousand bytes, as many as may be sent at once, and returns how many those are.
fn fill(sender: &StreamSender) -> u8 {
    (0..100).take_while(|number| sender.try_send(numbered(*number)).is_ok()).count().try_into().unwrap()
}

fn numbered(number: u8) -> Bytes {
    vec![number; 1000].into()
}

/// A task that sends one more.
fn sending(sender: &StreamSender) -> JoinHandle<Result<(), StreamSendError>> {
    let sender = sender.clone();
    tokio::spawn(async move { sender.send(numbered(99)).await })
}

#[test]
fn senders_wait_for_readers_and_data_arrives_in_order() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((sender, _reader), mut accepted) = stream_pair(&other, &connection).await;
        let sent = fill(&sender);
        assert!((3..5).contains(&sent), "{sent} of 1000 bytes are a window of 4000");
        assert!(matches!(sender.try_send("more"), Err(TrySendError::Full(content)) if content.len() == 4));
        let waiting = sending(&sender);
        settle().await;
        assert!(!waiting.is_finished());
        for number in 0..sent {
            assert_eq!(accepted.read().await.unwrap(), numbered(number));
        }
        assert_eq!(accepted.read().await.unwrap(), numbered(99));
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn many_contents_are_sent_as_they_are_read() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((sender, _reader), mut accepted) = stream_pair(&other, &connection).await;
        let mut contents: VecDeque<Bytes> = (0..100).map(numbered).collect();
        let sending = tokio::spawn(async move { sender.send_many(&mut contents).await });
        settle().await;
        for number in 0..100 {
            assert!(number > 40 || !sending.is_finished());
            assert_eq!(accepted.read().await.unwrap(), numbered(number));
            settle().await;
        }
        sending.await.unwrap().unwrap();
    });
}

#[test]
fn one_stalled_stream_delays_no_other() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((slow, _reader), _unread) = stream_pair(&other, &connection).await;
        let stalled = tokio::spawn(async move { while slow.send(numbered(0)).await.is_ok() {} });
        let mut others = Vec::new();
        for _ in 1..100 {
            others.push(stream_pair(&other, &connection).await);
        }
        settle().await;
        let start = Instant::now();
        for round in 0..20 {
            for ((sender, reader), accepted) in &mut others {
                sender.send(numbered(round)).await.unwrap();
                assert_eq!(accepted.read().await.unwrap(), numbered(round));
                accepted.send("echo").await.unwrap();
                assert_eq!(reader.read().await.unwrap(), "echo");
            }
            connection.send(packet(1, "nothing")).await.unwrap();
            connection.flush().await.unwrap();
        }
        assert_eq!(start.elapsed().as_nanos(), 0, "nothing waited for a timer");
        assert!(!stalled.is_finished());
    });
}

#[test]
fn waiting_senders_learn_of_every_end_of_their_stream() {
    for way in 0..4 {
        in_virtual_time(async move {
            let (_server, connection, other) = both_ends().await;
            let ((sender, _reader), accepted) = stream_pair(&other, &connection).await;
            fill(&sender);
            let waiting = [sending(&sender), sending(&sender)];
            settle().await;
            let end = match way {
                0 => {
                    drop(accepted);
                    StreamEnd::ClosedByPeer
                }
                1 => {
                    sender.close();
                    StreamEnd::Closed
                }
                2 => {
                    connection.close();
                    StreamEnd::ConnectionClosed
                }
                _ => {
                    other.close();
                    StreamEnd::ConnectionClosed
                }
            };
            for waiting in waiting {
                assert_eq!(waiting.await.unwrap(), Err(StreamSendError::Ended(end)), "way {way}");
            }
        });
    }
}

#[test]
fn dropping_the_reader_unblocks_the_sender() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((sender, mut reader), accepted) = stream_pair(&other, &connection).await;
        fill(&sender);
        let waiting = sending(&sender);
        settle().await;
        let (answering, reading) = accepted.split();
        drop(reading);
        waiting.await.unwrap().unwrap();
        for _ in 0..100 {
            sender.send(numbered(0)).await.unwrap();
        }
        answering.send("still there").await.unwrap();
        assert_eq!(reader.read().await.unwrap(), "still there");
    });
}

#[test]
fn peeking_returns_credit_of_consumed_data() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((sender, _reader), mut accepted) = stream_pair(&other, &connection).await;
        sender.send(zeros(10_000)).await.unwrap();
        let waiting = sending(&sender);
        assert_eq!(accepted.read().await.unwrap().len(), 10_000);
        assert_eq!(accepted.peek().await.unwrap(), numbered(99));
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn a_cancelled_send_has_sent_nothing() {
    in_virtual_time(async {
        let (_server, connection, other) = both_ends().await;
        let ((sender, reader), mut accepted) = stream_pair(&other, &connection).await;
        let sent = fill(&sender);
        timeout(support::MILLI, sender.send("never")).await.unwrap_err();
        for number in 0..sent {
            assert_eq!(accepted.read().await.unwrap(), numbered(number));
        }
        assert!(timeout(support::MILLI, accepted.read()).await.is_err());
        sender.send("later").await.unwrap();
        assert_eq!(accepted.read().await.unwrap(), "later");
        fill(&sender);
        let waiting = sending(&sender);
        settle().await;
        waiting.abort();
        waiting.await.unwrap_err();
        drop((sender, reader));
        while accepted.read().await.is_ok() {}
        assert_eq!(connection.metrics().streams, 1);
        drop(accepted);
        settle().await;
        assert_eq!((connection.metrics().streams, other.metrics().streams), (0, 0));
    });
}

/// A router whose handler of packets waits at a gate, which opens when much was sent on a stream.
struct Busy(Gate);

impl Router for Busy {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        self.0.passed().await;
        Outcome::Nothing
    }

    async fn stream(&self, stream: Stream, _: Option<frisbee::RefusalReason>, _: &Connection) {
        for number in 0..50 {
            stream.send(numbered(number)).await.unwrap();
        }
        self.0.open(100);
    }
}

#[test]
fn credit_is_read_while_packets_are_queued() {
    in_virtual_time(async {
        let config = Config { handlers_max: 1, backlog_max: 1, ..extended() };
        let server = server(Busy(Gate::default())).config(config).without_listener();
        let connection = connected(client(()).config(extended()), &server).await;
        connection.recognized().await.unwrap();
        let mut stream = connection.open_stream().unwrap();
        stream.send("begin").await.unwrap();
        settle().await;
        for id in 0..3 {
            connection.send(packet(id, "wait")).await.unwrap();
        }
        settle().await;
        for number in 0..50 {
            assert_eq!(stream.read().await.unwrap(), numbered(number));
        }
    });
}

#[test]
fn slow_stream_readers_cause_no_refused_packets() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).config(extended()).dispatch(limited(1)).without_listener();
        let connection = connected(client(()).config(extended()), &server).await;
        let other = only_connection(&server).await;
        let stream = connection.open_stream().unwrap();
        let echoed = tokio::spawn(async move {
            for number in 0..20 {
                stream.send(numbered(number)).await.unwrap();
            }
        });
        connection.send(packet(1, "wait")).await.unwrap();
        connection.send(packet(2, "wait")).await.unwrap();
        sleep(10 * SECOND).await;
        assert!(!echoed.is_finished(), "the handler of the stream waits for its echo to be read");
        assert_eq!((script.running(), other.metrics().counters.refused), (1, 0));
        script.gate.open(2);
        settle().await;
        assert!(script.log.take().ends_with(&["done 1".into(), "packet 2".into(), "done 2".into()]));
    });
}

/// A router whose handler of packets opens a stream and sends much on it.
struct Talks;

impl Router for Talks {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        let stream = connection.open_stream().unwrap();
        for number in 0..50 {
            stream.send(numbered(number)).await.unwrap();
        }
        Outcome::Reply(packet)
    }
}

#[test]
fn a_silent_peer_does_not_block_on_credit() {
    // With the feature, and a window of a thousand.
    let hello = frame(0, 3, [1, 1, 1, 0, 0, 0, 4, 0, 0, 0, 1, 4, 0, 0, 0, 4, 0, 0, 3, 232]);
    for last in [Vec::new(), frame(0, 0, "a PING with content")] {
        in_virtual_time(async {
            let server = server(Talks).config(extended()).dispatch(Dispatch::InPlace).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([hello.clone(), packet_frame(1, "talk")]).await;
            assert_eq!(peer.heard().await.len(), 1, "one frame is as much as there is credit for");
            peer.say(last).await;
            peer.fall_silent().await;
            assert_eq!(peer.hear_times(49).await, ["stream 32768: 1000 bytes"; 49]);
            assert_eq!(peer.hear_out().await, ["stream 32768 closed", "packet 1: talk"]);
        });
    }
}

#[test]
fn plain_peers_do_not_block_on_credit() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(()).config(extended())).await;
        peer.say(pong()).await;
        connection.recognized().await.unwrap();
        let mut stream = connection.open_stream().unwrap();
        let sending = tokio::spawn(async move {
            for number in 0..100 {
                stream.send(numbered(number)).await.unwrap();
            }
            stream.read().await
        });
        for _ in 0..100 {
            assert_eq!(peer.hear().await, "stream 1: 1000 bytes");
        }
        for _ in 0..100 {
            peer.say(frame(1, 2, [7; 1000])).await;
        }
        assert_eq!(sending.await.unwrap().unwrap(), vec![7; 1000]);
        assert_eq!(peer.hear().await, "stream 1 closed");
        assert!(peer.hears_nothing().await, "no credit was given to it");
    });
}
