//! Sending by handle: waiting, refusing, flushing, and what a handle knows besides.

use std::{
    collections::HashSet,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use frisbee::{
    CloseReason, Config, Connection, Content, HeaderFormat, OpenError, Outcome, Packet, Router, SendError,
    StreamSendError, TrySendError,
};
use futures_util::FutureExt;
use support::{Peer, SECOND, in_virtual_time, settle};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use crate::scripts::{
    Script, client, connected, only_connection, packet, packet_frame, peer_of, peer_of_client,
    peer_of_client_with_buffer, quiet, server, zeros,
};

/// A client whose outbox holds 1000 bytes and has no room left, since its peer does not read.
async fn full() -> (Connection, Peer) {
    let config = Config { outbox_len_max: 1000, write_stall_max: 3600 * SECOND, ..quiet() };
    let (connection, peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
    settle().await;
    while connection.try_send(packet(1, zeros(90))).is_ok() {
        settle().await;
    }
    (connection, peer)
}

/// Hears what comes and says nothing.
struct Quiet(Script);

impl Router for Quiet {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.0.log.add(format!("packet {}", packet.id));
        Outcome::Nothing
    }
}

#[test]
fn sending_waits_for_room_in_the_outbox() {
    in_virtual_time(async {
        let (connection, mut peer) = full().await;
        assert_eq!(connection.try_send(packet(2, "hi")), Err(TrySendError::Full(packet(2, "hi"))));
        assert!((1000..1100).contains(&connection.metrics().outbox_len));
        let sending = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send(packet(2, "hi")).await }
        });
        settle().await;
        assert!(!sending.is_finished());
        while peer.hear().await == "packet 1: 90 bytes" {}
        sending.await.unwrap().unwrap();
        assert!(connection.try_send(packet(3, "hi")).is_ok());
        assert_eq!(peer.hear().await, "packet 3: hi");
    });
}

#[test]
fn all_waiting_senders_get_their_turn() {
    in_virtual_time(async {
        let (connection, mut peer) = full().await;
        let senders: Vec<_> = (100..150)
            .map(|id| {
                let connection = connection.clone();
                tokio::spawn(async move { connection.send(packet(id, zeros(90))).await.unwrap() })
            })
            .collect();
        let mut heard = HashSet::new();
        while heard.len() < 50 {
            let frame = peer.hear().await;
            if frame != "packet 1: 90 bytes" {
                assert!(heard.insert(frame));
            }
        }
        for sender in senders {
            sender.await.unwrap();
        }
    });
}

#[test]
fn a_write_wakes_few_of_many_waiting_senders() {
    const SENDERS: u16 = 500;
    in_virtual_time(async {
        let (connection, mut peer) = full().await;
        let polls = Arc::new(AtomicUsize::new(0));
        for id in 0..SENDERS {
            let (connection, polls) = (connection.clone(), polls.clone());
            // Longer than those queued before, shorter, and much shorter.
            let len = [300, 60, 2][usize::from(id % 3)];
            let mut sending = Box::pin(async move { connection.send(packet(100 + id, zeros(len))).await });
            tokio::spawn(poll_fn(move |cx| {
                polls.fetch_add(1, Relaxed);
                sending.poll_unpin(cx)
            }));
        }
        let mut heard = 0;
        while heard < SENDERS {
            heard += u16::from(peer.hear().await != "packet 1: 90 bytes");
        }
        // One poll to start, one to send, and some without success.
        let polls = polls.load(Relaxed);
        assert!(polls < 6 * usize::from(SENDERS), "{polls} polls of {SENDERS} senders");
    });
}

#[test]
fn senders_that_give_up_pass_their_turn_on() {
    in_virtual_time(async {
        let (connection, mut peer) = full().await;
        let wait = |id, len| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.send(packet(id, zeros(len))).await })
        };
        let too_large = connection.config().content_len_max as usize + 1;
        let (mut dropped, mut refused, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for id in 100..130 {
            dropped.push(wait(1000, 90));
            refused.push(wait(1000, too_large));
            waiting.push(wait(id, 90));
        }
        settle().await;
        let (mut heard, mut dropped) = (HashSet::new(), dropped.into_iter());
        while heard.len() < waiting.len() {
            let frame = peer.hear().await;
            if !frame.starts_with("packet 1: ") && !frame.starts_with("packet 1000: ") {
                heard.insert(frame);
            }
            // A write may have woken it just now.
            dropped.next().inspect(JoinHandle::abort);
        }
        for sending in refused {
            assert!(matches!(sending.await.unwrap(), Err(SendError::ContentTooLarge { .. })));
        }
    });
}

#[test]
fn waiting_senders_learn_that_the_connection_closed() {
    in_virtual_time(async {
        let (connection, peer) = full().await;
        let sending = tokio::spawn({
            let connection = connection.clone();
            async move { (connection.send(packet(2, "hi")).await, connection.flush().await) }
        });
        settle().await;
        drop(peer);
        let (sent, flushed) = sending.await.unwrap();
        assert_eq!(sent, Err(SendError::Closed));
        assert!(matches!(flushed, Err(CloseReason::Peer | CloseReason::Io(_))), "{flushed:?}");
    });
}

#[test]
fn a_cancelled_send_has_sent_nothing() {
    in_virtual_time(async {
        let (connection, mut peer) = full().await;
        assert!(timeout(SECOND, connection.send(packet(2, "given up"))).await.is_err());
        connection.try_send(packet(2, "still full")).unwrap_err();
        let sending = tokio::spawn(async move { connection.send(packet(3, "last")).await });
        loop {
            match peer.hear().await.as_str() {
                "packet 1: 90 bytes" => {}
                last => break assert_eq!(last, "packet 3: last"),
            }
        }
        sending.await.unwrap().unwrap();
        assert_eq!(peer.hear().await, "end");
    });
}

#[test]
fn packets_of_one_task_arrive_in_order() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 100, ..quiet() };
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
        let sending = tokio::spawn(async move {
            for id in 0..1000 {
                connection.send(packet(id, "hi")).await.unwrap();
            }
        });
        for id in 0..1000 {
            assert_eq!(peer.hear().await, format!("packet {id}: hi"));
        }
        sending.await.unwrap();
    });
}

#[test]
fn oversized_content_is_rejected_and_the_connection_lives() {
    in_virtual_time(async {
        let config = Config { content_len_max: 10, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        let refused = SendError::ContentTooLarge { len: 11, limit: 10 };
        assert_eq!(connection.send(packet(1, zeros(11))).await.unwrap_err(), refused);
        assert_eq!(connection.try_send(packet(1, zeros(11))), Err(TrySendError::Failed(refused.clone())));
        let pieces = vec![zeros(6), zeros(5)];
        assert_eq!(connection.send(packet(1, pieces)).await.unwrap_err(), refused);
        let refused = StreamSendError::ContentTooLarge { len: 11, limit: 10 };
        assert_eq!(connection.open_stream().unwrap().send(zeros(11)).await.unwrap_err(), refused);
        connection.send(packet(2, "0123456789")).await.unwrap();
        assert_eq!(peer.hear_times(2).await, ["stream 1 closed", "packet 2: 0123456789"]);
    });
}

#[test]
fn content_of_several_pieces_arrives_as_one() {
    struct Farewell;
    impl Router for Farewell {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            Outcome::ReplyAndClose(Packet { content: pieces(), ..packet })
        }
    }
    fn pieces() -> Content {
        ["one", "", "two"].map(Bytes::from).to_vec().into()
    }
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        connection.send(packet(1, pieces())).await.unwrap();
        connection.try_send(packet(2, pieces())).unwrap();
        connection.open_stream().unwrap().send(pieces()).await.unwrap();
        let expected = ["packet 1: onetwo", "packet 2: onetwo", "stream 1: onetwo", "stream 1 closed"];
        assert_eq!(peer.hear_times(4).await, expected);

        let server = server(Farewell).without_listener();
        let mut peer = peer_of(&server);
        peer.say(packet_frame(3, "bye")).await;
        assert_eq!(peer.hear_out().await, ["packet 3: onetwo"]);
    });
}

#[test]
fn sending_fails_after_a_close() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        connection.send(packet(1, "last")).await.unwrap();
        connection.close();
        assert!(connection.close_reason().is_some());
        for _ in 0..2 {
            assert_eq!(connection.send(packet(2, "late")).await, Err(SendError::Closed));
            assert_eq!(connection.try_send(packet(2, "late")), Err(TrySendError::Failed(SendError::Closed)));
            assert_eq!(connection.open_stream().unwrap_err(), OpenError::ConnectionClosed);
            assert_eq!(connection.open_stream_with_id(7).unwrap_err(), OpenError::ConnectionClosed);
            connection.close();
            settle().await;
        }
        assert!(connection.closed().now_or_never().is_none(), "its peer has not closed yet");
        assert_eq!(peer.hear_out().await, ["packet 1: last"]);
        drop(peer);
        assert!(matches!(connection.closed().await, CloseReason::Local));
        assert!(connection.accept_stream().await.is_none());
    });
}

#[test]
fn flush_waits_until_everything_sent_before_is_written() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()), 64).await;
        assert!(connection.flush().await.is_ok(), "there is nothing to wait for");
        connection.send(packet(1, zeros(100))).await.unwrap();
        let flushing = tokio::spawn({
            let connection = connection.clone();
            async move { connection.flush().await }
        });
        settle().await;
        assert!(!flushing.is_finished());
        assert_eq!(peer.hear().await, "packet 1: 100 bytes");
        assert!(flushing.await.unwrap().is_ok());
        connection.close();
        assert!(connection.flush().await.is_ok(), "everything was written before the close");
    });
}

#[test]
fn flush_ignores_packets_sent_later() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let sender = tokio::spawn({
            let connection = connection.clone();
            async move { while connection.send(packet(1, zeros(100_000))).await.is_ok() {} }
        });
        settle().await;
        let flushing = tokio::spawn({
            let connection = connection.clone();
            async move { connection.flush().await }
        });
        settle().await;
        let mut heard = 0;
        while !flushing.is_finished() {
            peer.hear().await;
            heard += 1;
            assert!(heard < 100, "the outbox never held more than twelve packets");
        }
        sender.abort();
    });
}

#[test]
fn requests_filling_the_outbox_do_not_block_their_replies() {
    in_virtual_time(async {
        let server = server(Script::new()).without_listener();
        let replies = Script::new();
        let connection = connected(client(Quiet(replies.clone())), &server).await;
        for _ in 0..4 {
            connection.send(packet(1, zeros(5_000_000))).await.unwrap();
        }
        settle().await;
        assert_eq!(replies.log.take(), ["packet 1"; 4]);
    });
}

#[test]
fn peers_exchange_contents_larger_than_the_outbox() {
    /// Answers each question once.
    struct Answering(Script);
    impl Router for Answering {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            if packet.id == ANSWER {
                self.0.log.add("answer");
                return Outcome::Nothing;
            }
            Outcome::Reply(Packet { id: ANSWER, ..packet })
        }
    }
    const ANSWER: u16 = 1000;
    in_virtual_time(async {
        let script = Script::new();
        let server = server(Answering(script.clone())).without_listener();
        let connection = connected(client(Answering(script.clone())), &server).await;
        let other = only_connection(&server).await;
        let asking = [connection, other].map(|connection| {
            tokio::spawn(async move {
                for id in 0..3 {
                    connection.send(packet(id, zeros(5_000_000))).await.unwrap();
                }
                connection
            })
        });
        settle().await;
        assert_eq!(script.log.take(), ["answer"; 6]);
        drop(asking);
    });
}

#[test]
fn written_replies_free_the_outbox_in_both_header_formats() {
    for header in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
        in_virtual_time(async {
            let config = Config { header: Some(header), outbox_len_max: 50, ..quiet() };
            let server = server(Script::new()).config(config.clone()).without_listener();
            let replies = Script::new();
            let connection = connected(client(Quiet(replies.clone())).config(config), &server).await;
            for _ in 0..1000 {
                connection.send(packet(1, "hi")).await.unwrap();
            }
            settle().await;
            assert_eq!(replies.log.take().len(), 1000);
        });
    }
}

#[test]
fn content_sent_to_many_is_not_copied() {
    in_virtual_time(async {
        let (mut connections, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let (connection, peer) = peer_of_client_with_buffer(&client(()), 64).await;
            connections.push(connection);
            peers.push(peer);
        }
        let news = Bytes::from(vec![b'x'; 100_000]);
        for connection in &connections {
            connection.send(packet(1, news.clone())).await.unwrap();
        }
        settle().await;
        assert!(!news.is_unique(), "outboxes hold the content itself");
        for peer in &mut peers {
            assert_eq!(peer.hear().await, "packet 1: 100000 bytes");
        }
        settle().await;
        assert!(news.is_unique(), "and let go of it when it is written");
    });
}

#[test]
fn received_contents_are_slices_of_one_read() {
    struct Collector(mpsc::UnboundedSender<Bytes>);
    impl Router for Collector {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            self.0.send(packet.content.into_bytes()).unwrap();
            Outcome::Nothing
        }
    }
    in_virtual_time(async {
        let (contents, mut received) = mpsc::unbounded_channel();
        let server = server(Collector(contents)).without_listener();
        peer_of(&server).say_all([packet_frame(1, "one"), packet_frame(2, "two")]).await;
        let (one, two) = (received.recv().await.unwrap(), received.recv().await.unwrap());
        assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
        assert_eq!(two.as_ptr() as usize - one.as_ptr() as usize, one.len() + 10);
    });
}

#[test]
fn a_connection_stores_one_user_value_per_type() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&client(())).await;
        assert_eq!(connection.state::<u32>(), None);
        assert_eq!(connection.set_state(1_u32), Ok(&1));
        assert_eq!(connection.set_state("name"), Ok(&"name"));
        assert_eq!(connection.clone().set_state(2_u32), Err(2), "there is one");
        assert_eq!(connection.state::<u32>(), Some(&1));
        assert_eq!(connection.state::<&str>(), Some(&"name"));
        connection.close();
        assert_eq!(connection.state::<u32>(), Some(&1));
    });
}

#[test]
fn handles_of_the_same_connection_are_equal() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let (_first, _second) = (peer_of(&server), peer_of(&server));
        settle().await;
        let connections = server.connections();
        assert_eq!(connections, server.connections());
        assert_ne!(connections[0], connections[1]);
        #[allow(clippy::mutable_key_type, reason = "equality and hash are those of its address")]
        let set: HashSet<Connection> = server.connections().into_iter().chain(connections).collect();
        assert_eq!(set.len(), 2);
    });
}

#[test]
fn client_handlers_get_the_handle_returned_by_connect() {
    struct Keeper(mpsc::UnboundedSender<Connection>);
    impl Router for Keeper {
        async fn route(&self, _: Packet, connection: &Connection) -> Outcome {
            self.0.send(connection.clone()).unwrap();
            Outcome::Nothing
        }
    }
    in_virtual_time(async {
        let (seen, mut handles) = mpsc::unbounded_channel();
        let (connection, mut peer) = peer_of_client(&client(Keeper(seen))).await;
        peer.say(packet_frame(1, "hi")).await;
        assert_eq!(handles.recv().await.unwrap(), connection);
    });
}

#[test]
fn metrics_report_traffic_and_held_bytes() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        let connection = only_connection(&server).await;
        peer.say_all([packet_frame(1, "wait"), packet_frame(2, "hi")]).await;
        assert_eq!(peer.hear().await, "packet 2: hi");
        settle().await;
        let metrics = connection.metrics();
        assert_eq!((metrics.handlers, metrics.streams, metrics.outbox_len), (1, 0, 0));
        let counters = metrics.counters;
        assert_eq!((counters.packets_in, counters.packets_out), (2, 1));
        assert_eq!((counters.bytes_in, counters.bytes_out), (26, 12));
        connection.close();
        drop(peer);
        connection.closed().await;
        assert_eq!(connection.metrics().handlers, 0, "its handlers are gone");
        settle().await;
        let metrics = server.metrics();
        assert_eq!((metrics.connections, metrics.accepted, metrics.handlers), (0, 1, 0));
        assert_eq!(metrics.counters, counters, "the server remembers past connections");
    });
}

#[test]
fn may_have_left_reports_written_packets() {
    in_virtual_time(async {
        let config = Config { write_stall_max: 3600 * SECOND, ..quiet() };
        let (connection, peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
        let written = connection.send(packet(1, "hi")).await.unwrap();
        assert!(!connection.may_have_left(written), "the driver has not seen it yet");
        settle().await;
        assert!(connection.may_have_left(written));
        let begun = connection.try_send(packet(2, zeros(1000))).unwrap();
        settle().await;
        let waiting = [connection.try_send(packet(3, "hi")).unwrap(), connection.send(packet(4, "hi")).await.unwrap()];
        let check = || {
            assert!(connection.may_have_left(written) && connection.may_have_left(begun));
            assert!(waiting.iter().all(|waiting| !connection.may_have_left(*waiting)));
        };
        settle().await;
        check();
        drop(peer);
        connection.closed().await;
        check();
    });
}

#[test]
fn may_have_left_is_true_for_received_packets() {
    in_virtual_time(async {
        let config = Config { write_stall_max: 3600 * SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
        let mut sent = Vec::new();
        for id in 0..10 {
            sent.push(connection.try_send(packet(id, zeros(100_000))).unwrap());
        }
        for id in 0..10_u16 {
            assert_eq!(peer.hear().await, format!("packet {id}: 100000 bytes"));
            for heard in &sent[..=usize::from(id)] {
                assert!(connection.may_have_left(*heard));
            }
        }
    });
}

#[test]
fn a_peer_lost_before_its_hello_leaves_no_connection() {
    for config in [quiet(), Config::default()] {
        in_virtual_time(async {
            let server = server(()).config(config.clone()).without_listener();
            let peer = peer_of(&server);
            let connection = only_connection(&server).await;
            let sent = connection.send(packet(1, "held back")).await.unwrap();
            settle().await;
            assert!(!connection.may_have_left(sent), "its header is not known");
            drop(peer);
            timeout(SECOND, connection.closed()).await.expect("what cannot be written does not keep it open");
            settle().await;
            assert_eq!(server.metrics().connections, 0);
        });
    }
}

#[test]
fn state_is_initialized_once() {
    in_virtual_time(async {
        let server = server(()).without_listener();
        let connection = connected(client(()), &server).await;
        assert_eq!(*connection.state_or_insert_with(|| 1_u32), 1);
        assert_eq!(*connection.clone().state_or_insert_with::<u32>(|| unreachable!("it is there")), 1);
        assert_eq!(*connection.state_or_insert_with(|| "one"), "one");
        assert_eq!(*connection.state::<u32>().unwrap(), 1);
    });
}

#[test]
fn settings_survive_a_change_of_router() {
    in_virtual_time(async {
        let (before, after) = (Script::new(), Script::new());
        let config = Config { content_len_max: 7, ..quiet() };
        let server = server(before.clone()).config(config.clone()).router(after.clone()).without_listener();
        let first = Script::new();
        let client = client(first.clone()).config(config);
        let other = client.with_router(());
        let (connection, another) = (connected(client, &server).await, connected(other, &server).await);
        for connection in [&connection, &another] {
            assert_eq!(connection.config().content_len_max, 7);
            connection.send(packet(1, "nothing")).await.unwrap();
        }
        settle().await;
        assert!(before.log.take().is_empty());
        assert_eq!(after.log.take(), ["opened", "opened", "packet 1", "packet 1"]);
        assert_eq!(first.log.take(), ["opened"], "only the connection of its own");
        assert!(server.connections().iter().all(|connection| connection.config().content_len_max == 7));
    });
}
