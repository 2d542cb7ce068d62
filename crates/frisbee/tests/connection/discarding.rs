//! Contents that are larger than a side accepts: read past, and never the end of anything else.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use frisbee::{
    CloseReason, Config, Connection, Outcome, Packet, ProtocolError, RefusalReason, RefusedPacket, Router, StreamEnd,
};
use support::{
    SECOND,
    frames::{frame, header, ping, stream_frame},
    in_virtual_time, settle,
};
use tokio::io::{AsyncRead, ReadBuf, join, sink};

use crate::scripts::{
    OPERATION, Script, client, connected, dispatches, only_connection, packet, packet_frame, peer_of, peer_of_client,
    peer_with_buffer, quiet, server,
};

/// Takes at most 100 bytes.
fn small() -> Config {
    Config { content_len_max: 100, ..quiet() }
}

fn too_large(id: u16, len: usize) -> Vec<u8> {
    frame(id, OPERATION.number(), vec![b'x'; len])
}

/// Has nothing to say about what it does not get.
struct Unhooked(Script);

impl Router for Unhooked {
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.0.route(packet, connection)
    }
}

#[test]
fn discarded_packets_are_counted_and_others_arrive() {
    for dispatch in dispatches() {
        for (buffer_len, len) in [(7, 101), (1 << 16, 101), (1 << 16, 200_000), (1 << 22, 1_000_000)] {
            in_virtual_time(async {
                let script = Script::new();
                let server = server(Unhooked(script.clone()));
                let server = server.dispatch(dispatch).config(small()).without_listener();
                let mut peer = peer_with_buffer(&server, buffer_len);
                peer.say(packet_frame(1, "wait")).await;
                peer.say([too_large(2, len), packet_frame(3, "nothing"), ping()].concat()).await;
                assert_eq!(peer.hear_any().await, "PONG");
                script.gate.open(1);
                assert_eq!(peer.hear().await, "packet 1: wait", "what was under way goes on");
                let counters = only_connection(&server).await.metrics().counters;
                assert_eq!((counters.too_large, counters.packets_in), (1, 4));
                let mut log = script.log.take();
                log.sort();
                assert_eq!(log, ["done 1", "packet 1", "packet 3"], "{dispatch:?}");
            });
        }
    }
}

/// Answers what it refuses.
#[derive(Clone, Default)]
struct Picky(Arc<Mutex<Vec<RefusedPacket>>>);

impl Router for Picky {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        Outcome::Reply(packet)
    }

    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        connection.metrics();
        self.0.lock().unwrap().push(refused);
        match refused.id {
            66 => panic!("as told"),
            77 => Outcome::Close,
            id => Outcome::Reply(packet(id, refused.why.to_string())),
        }
    }
}

#[test]
fn the_router_is_told_the_header_and_may_reply() {
    in_virtual_time(async {
        let picky = Picky::default();
        let server = server(picky.clone()).config(Config { content_len_max: 90, ..quiet() }).without_listener();
        let mut peer = peer_of(&server);
        peer.say(header(7, 20, 3000)).await;
        let text = "the server accepts at most 90 bytes (content_len_max), the request has 3000";
        assert_eq!(peer.hear().await, format!("packet 7: {} bytes", text.len()));
        let refused = std::mem::take(&mut *picky.0.lock().unwrap());
        let [RefusedPacket { id: 7, operation: OPERATION, why, .. }] = refused[..] else { panic!("{refused:?}") };
        assert_eq!(why, RefusalReason::TooLarge { announced: 3000, limit: 90 });
        assert_eq!(why.to_string(), text);
        peer.say([&vec![b'x'; 3000][..], &packet_frame(8, "hi")].concat()).await;
        assert_eq!(peer.hear().await, "packet 8: hi");
    });
}

#[test]
fn the_outcome_of_a_refusal_is_applied() {
    for (id, reason) in [(66, "HandlerPanicked(\"as told\")"), (77, "Local")] {
        in_virtual_time(async {
            let server = server(Picky::default()).config(small()).without_listener();
            let mut peer = peer_of(&server);
            let connection = only_connection(&server).await;
            peer.say(too_large(id, 101)).await;
            assert_eq!(peer.hear().await, "end");
            drop(peer);
            assert_eq!(format!("{:?}", connection.closed().await), reason);
        });
    }
}

#[test]
fn reading_pauses_when_the_peer_reads_no_replies() {
    in_virtual_time(async {
        let picky = Picky::default();
        let config = Config { outbox_len_max: 10_000, write_stall_max: 3600 * SECOND, ..small() };
        let server = server(picky.clone()).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 64);
        let flood: Vec<u8> = (0..10_000).flat_map(|id| too_large(id, 101)).collect();
        tokio::time::timeout(SECOND, peer.say(flood)).await.expect_err("reading has stopped");
        assert!(picky.0.lock().unwrap().len() < 200);
        assert!(only_connection(&server).await.metrics().outbox_len < 11_000);
    });
}

#[test]
fn both_sides_learn_of_oversized_stream_data() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).config(small()).without_listener();
        let connection = connected(client(()), &server).await;
        let (mut stream, mut other) = (connection.open_stream().unwrap(), connection.open_stream().unwrap());
        stream.send("fits").await.unwrap();
        assert_eq!(stream.read().await.unwrap(), "fits");
        stream.send(vec![b'x'; 101]).await.unwrap();
        stream.send("unheard").await.unwrap();
        other.send("fits").await.unwrap();
        assert_eq!(other.read().await.unwrap(), "fits");
        assert_eq!(stream.read().await, Err(StreamEnd::ClosedByPeer));
        let mut log = script.log.take();
        log.retain(|line| line.starts_with("stream 1:"));
        assert_eq!(log, ["stream 1: TooLarge { announced: 101, limit: 100 }"]);
        other.send("fits").await.unwrap();
        assert_eq!(other.read().await.unwrap(), "fits");
    });
}

#[test]
fn a_final_message_can_be_sent_on_the_stream() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(()).config(small())).await;
        let (sender, mut reader) = connection.open_stream_with_id(7).unwrap().split();
        let watching = tokio::spawn({
            let sender = sender.clone();
            async move { sender.closed().await }
        });
        peer.say([stream_frame(7, "hi"), frame(7, 2, [b'x'; 101]), stream_frame(7, "more")].concat()).await;
        assert_eq!(reader.read().await.unwrap(), "hi");
        let end = StreamEnd::TooLarge { announced: 101, limit: 100 };
        assert_eq!((reader.read().await, reader.read().await), (Err(end), Err(end)));
        assert!(end.to_string().contains("at most 100 bytes (content_len_max)"), "{end}");
        sender.send("last word").await.unwrap();
        settle().await;
        assert!(!watching.is_finished());
        drop((sender, reader));
        assert_eq!(peer.hear_times(1).await, ["stream 7: last word"]);
        peer.say(stream_frame(7, "")).await;
        assert_eq!(watching.await.unwrap(), StreamEnd::ClosedByPeer);
    });
}

#[test]
fn discarding_needs_no_more_memory_than_reading() {
    /// Gives a packet that goes on for ever.
    struct Endless {
        front: Vec<u8>,
        read: Arc<AtomicUsize>,
        room_max: Arc<AtomicUsize>,
    }
    impl AsyncRead for Endless {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let room = buf.remaining();
            self.room_max.fetch_max(room, Ordering::Relaxed);
            if self.read.load(Ordering::Relaxed) > 10_000_000 {
                return Poll::Pending;
            }
            if self.front.is_empty() {
                buf.put_slice(&vec![0; room]);
            } else {
                buf.put_slice(&std::mem::take(&mut self.front));
            }
            self.read.fetch_add(room, Ordering::Relaxed);
            Poll::Ready(Ok(()))
        }
    }
    in_virtual_time(async {
        let server = server(()).config(Config { content_len_max: 100_000, ..quiet() }).without_listener();
        let (read, room_max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let front = header(2, 20, 60_000_000);
        server.attach(join(Endless { front, read: read.clone(), room_max: room_max.clone() }, sink()));
        settle().await;
        assert!(read.load(Ordering::Relaxed) > 10_000_000);
        assert!(room_max.load(Ordering::Relaxed) <= 64 * 1024, "{room_max:?}");
    });
}

#[test]
fn content_discarded_for_too_long_ends_the_connection() {
    in_virtual_time(async {
        let config = Config { discard_time_max: 10 * SECOND, ..small() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        peer.say(header(1, 20, 101)).await;
        for _ in 0..9 {
            tokio::time::sleep(SECOND).await;
            peer.say("x").await;
        }
        assert!(connection.close_reason().is_none());
        tokio::time::sleep(2 * SECOND).await;
        assert!(connection.close_reason().is_some());
        drop(peer);
        let reason = connection.closed().await;
        let error = ProtocolError::ContentTooLarge { announced: 101, limit: 100 };
        assert!(matches!(&reason, CloseReason::Protocol(found) if *found == error), "{reason}");
    });
}
