//! Frames for many connections, what happens in full outboxes, and the hooks around them.

use std::sync::Mutex;

use frisbee::{
    CloseReason, Config, Connection, FrameBuffer, Frames, HandlerTable, HeaderFormat, OutboxLimit, Outcome, Packet,
    Router, SendError, TrySendError, WhenFull,
};
use support::{EventLog, Peer, SECOND, in_virtual_time, settle};

use crate::scripts::{
    OPERATION, client, only_connection, packet, packet_frame, peer_of, peer_of_client_with_buffer, peer_with_buffer,
    quiet, server, zeros,
};

/// Gathers what comes, and sends it to everybody at the end of a read.
#[derive(Default)]
struct Room {
    log: EventLog,
    people: Mutex<Vec<Connection>>,
    said: Mutex<FrameBuffer>,
}

impl Router for Room {
    fn intercept(&self, packets: &mut frisbee::Arrivals<'_>, _: &Connection) {
        while let Some(packet) = packets.next_if(|packet| packet.content != "route") {
            self.said.lock().unwrap().push_content(packet.name(), b"", &packet.content);
        }
    }

    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if packet.id == 77 {
            tokio::time::sleep(SECOND).await;
        }
        self.said.lock().unwrap().push(packet.name(), &[b"routed"]);
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Received => {
                let frames = self.said.lock().unwrap().take();
                if frames.is_empty() {
                    return;
                }
                self.log.add(format!("{} together", frames.count()));
                for person in &*self.people.lock().unwrap() {
                    person.try_send_frames(&frames).unwrap();
                }
            }
            frisbee::Event::Opened => self.people.lock().unwrap().push(connection.clone()),
            _ => {}
        }
    }
}

/// Logs what its outbox does.
struct Watcher(EventLog);

impl Router for Watcher {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
        match event {
            frisbee::Event::Writable => self.0.add(format!("writable with {}", connection.metrics().outbox_len)),
            frisbee::Event::Closed(reason) => self.0.add(format!("closed: {reason:?}")),
            _ => {}
        }
    }
}

/// A client whose outbox takes 1000 bytes and has no room left, since its peer does not read.
async fn full(when_full: WhenFull, log: &EventLog) -> (Connection, Peer) {
    let config = Config { write_stall_max: 3600 * SECOND, ..quiet() };
    let client = client(HandlerTable::over(Watcher(log.clone()))).config(config);
    let (connection, peer) = peer_of_client_with_buffer(&client, 64).await;
    connection.set_outbox(OutboxLimit { len_max: 1000, when_full });
    connection.try_send(packet(1, zeros(54))).unwrap();
    settle().await;
    while connection.metrics().outbox_len < 1000 {
        connection.try_send(packet(1, zeros(90))).unwrap();
        settle().await;
    }
    (connection, peer)
}

fn two() -> Frames {
    let mut buffer = FrameBuffer::new();
    buffer.push(packet(2, "").name(), &[b"two"]);
    buffer.push(packet(3, "").name(), &[b"three"]);
    buffer.take()
}

#[test]
fn packets_of_one_read_are_broadcast_together() {
    in_virtual_time(async {
        let room = std::sync::Arc::new(Room::default());
        let config = Config { header: Some(HeaderFormat::Magic10), ..quiet() };
        let server = server(HandlerTable::over(room.clone())).config(config).without_listener();
        let (mut speaker, mut listener) = (peer_of(&server), peer_of(&server));
        listener.say(packet_frame(1, "I am here")).await;
        for peer in [&mut listener, &mut speaker] {
            assert_eq!(peer.hear().await, "packet 1: I am here");
        }
        speaker.say_all([packet_frame(2, "one"), packet_frame(3, "route"), packet_frame(4, "three")]).await;
        for peer in [&mut listener, &mut speaker] {
            assert_eq!(peer.hear_times(3).await, ["packet 2: one", "packet 3: routed", "packet 4: three"]);
        }
        assert_eq!(room.log.take(), ["1 together", "3 together"]);
        speaker.say_all([packet_frame(77, "route"), packet_frame(5, "first")]).await;
        assert_eq!(listener.hear_times(2).await, ["packet 5: first", "packet 77: routed"], "when its handler is done");
        assert_eq!(room.log.take(), ["1 together", "1 together"]);
    });
}

#[test]
fn frames_are_queued_together_or_not_at_all() {
    in_virtual_time(async {
        let log = EventLog::default();
        let (connection, mut peer) = full(WhenFull::Refuse, &log).await;
        assert_eq!(connection.try_send_frames(&two()), Err(TrySendError::Full(())));
        let sending = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send_frames(&two()).await }
        });
        settle().await;
        assert!(!sending.is_finished());
        assert_eq!(log.take(), Vec::<String>::new());
        while peer.hear().await != "packet 2: two" {}
        assert_eq!(peer.hear().await, "packet 3: three");
        let sent = sending.await.unwrap().unwrap();
        assert!(connection.may_have_left(sent));
    });
}

#[test]
fn the_router_is_notified_once_of_free_space() {
    in_virtual_time(async {
        let log = EventLog::default();
        let (connection, mut peer) = full(WhenFull::Refuse, &log).await;
        for _ in 0..3 {
            connection.try_send(packet(2, "hi")).unwrap_err();
            connection.try_send_frames(&two()).unwrap_err();
            assert_eq!(connection.try_send_all(&[packet(2, "hi")]), Ok(0));
        }
        settle().await;
        assert_eq!(log.take(), Vec::<String>::new());
        for _ in 0..5 {
            peer.hear().await;
        }
        settle().await;
        let heard = log.take();
        assert_eq!(heard.len(), 1, "{heard:?}");
        let len: usize = heard[0].strip_prefix("writable with ").unwrap().parse().unwrap();
        assert!(len < 1000);
        while connection.metrics().outbox_len > 0 {
            peer.hear().await;
        }
        settle().await;
        assert_eq!(log.take(), Vec::<String>::new());
    });
}

#[test]
fn notifications_wait_until_the_outbox_has_space() {
    in_virtual_time(async {
        let log = EventLog::default();
        let (connection, mut peer) =
            peer_of_client_with_buffer(&client(Watcher(log.clone())).config(quiet()), 64).await;
        connection.set_outbox(OutboxLimit { len_max: 1000, when_full: WhenFull::Refuse });
        let mut buffer = FrameBuffer::new();
        // Each fills a batch.
        (0..3).for_each(|id| buffer.push_content(packet(id, "").name(), b"", &zeros(300_000)));
        connection.try_send_frames(&buffer.take()).unwrap();
        connection.try_send(packet(3, "hi")).unwrap_err();
        assert_eq!(peer.hear_times(2).await.len(), 2);
        assert_eq!(log.take(), Vec::<String>::new());
        peer.hear().await;
        settle().await;
        assert_eq!(log.take(), ["writable with 0"]);
    });
}

#[test]
fn try_send_all_queues_as_many_packets_as_fit() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()), 64 * 1024).await;
        connection.set_outbox(OutboxLimit { len_max: 300, when_full: WhenFull::Refuse });
        let packets: Vec<_> = (0..5).map(|id| packet(id, zeros(90))).collect();
        assert_eq!(connection.try_send_all(&packets), Ok(3));
        assert_eq!(peer.hear_times(3).await, [0, 1, 2].map(|id| format!("packet {id}: 90 bytes")));
        settle().await;
        assert_eq!(connection.try_send_all(&packets[3..]), Ok(2));
        assert_eq!(peer.hear_times(2).await, ["packet 3: 90 bytes", "packet 4: 90 bytes"]);

        let too_large = packet(7, zeros(6 << 20));
        settle().await;
        assert_eq!(connection.try_send_all(&[packet(6, "hi"), too_large.clone(), packet(8, "hi")]), Ok(1));
        assert_eq!(peer.hear().await, "packet 6: hi");
        let refused = SendError::ContentTooLarge { len: 6 << 20, limit: 5 << 20 };
        assert_eq!(connection.try_send_all(&[too_large]), Err(refused));
        assert_eq!(connection.try_send_all(&[]), Ok(0));
        connection.close();
        assert_eq!(connection.try_send_all(&packets), Err(SendError::Closed));
    });
}

#[test]
fn a_dropping_outbox_counts_packets_and_never_blocks() {
    in_virtual_time(async {
        let log = EventLog::default();
        let (connection, mut peer) = full(WhenFull::Drop, &log).await;
        assert_eq!(connection.try_send(packet(2, "hi")), Err(TrySendError::Failed(SendError::OutboxFull)));
        assert_eq!(connection.send(packet(2, "hi")).await, Err(SendError::OutboxFull));
        assert_eq!(connection.send_frames(&two()).await, Err(SendError::OutboxFull));
        assert_eq!(connection.try_send_all(&[packet(2, "hi"), packet(2, "hi")]), Ok(0));
        assert_eq!(connection.metrics().counters.unsent, 6);
        // Data of streams is not let go.
        let stream = connection.open_stream().unwrap();
        let sending = tokio::spawn(async move { stream.send("data").await });
        while peer.hear().await != "stream 1: data" {}
        sending.await.unwrap().unwrap();
        assert_eq!(connection.metrics().counters.unsent, 6);
        assert_eq!(log.take().len(), 1, "the router can tell the peer what it missed");
        connection.try_send(packet(9, "hi")).unwrap();
    });
}

#[test]
fn a_full_outbox_can_close_its_connection() {
    in_virtual_time(async {
        let log = EventLog::default();
        let (connection, _peer) = full(WhenFull::Close, &log).await;
        assert_eq!(connection.close_reason().map(|reason| reason.to_string()), None);
        assert_eq!(connection.try_send_frames(&two()), Err(TrySendError::Failed(SendError::Closed)));
        let reason = connection.closed().await;
        assert!(matches!(reason, CloseReason::OutboxFull { limit: 1000 }), "{reason:?}");
        assert_eq!(connection.metrics().outbox_len, 0);
        settle().await;
        assert_eq!(log.take(), ["closed: OutboxFull { limit: 1000 }"]);
    });
}

#[test]
fn enlarging_the_outbox_unblocks_senders() {
    in_virtual_time(async {
        let (connection, _peer) = full(WhenFull::Refuse, &EventLog::default()).await;
        let sending = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send(packet(2, "hi")).await }
        });
        settle().await;
        assert!(!sending.is_finished());
        connection.set_outbox(OutboxLimit { len_max: 10_000, when_full: WhenFull::Refuse });
        sending.await.unwrap().unwrap();
    });
}

#[test]
fn panicking_hooks_end_their_connection() {
    struct Panics;
    impl Router for Panics {
        async fn route(&self, _: Packet, _: &Connection) -> Outcome {
            Outcome::Nothing
        }

        fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
            match event {
                frisbee::Event::Received => panic!("received"),
                frisbee::Event::Writable => panic!("writable"),
                _ => {}
            }
        }
    }
    in_virtual_time(async {
        let server = server(Panics).without_listener();
        let mut peer = peer_with_buffer(&server, 64);
        let connection = only_connection(&server).await;
        peer.say(packet_frame(1, "hi")).await;
        let reason = connection.closed().await;
        assert!(matches!(&reason, CloseReason::HandlerPanicked(text) if **text == *"received"), "{reason:?}");

        // Nothing is received here.
        let (connection, mut peer) = peer_of_client_with_buffer(&client(Panics), 64).await;
        connection.set_outbox(OutboxLimit { len_max: 100, when_full: WhenFull::Refuse });
        connection.try_send(packet(1, zeros(190))).unwrap();
        connection.try_send(Packet::new(2, OPERATION, "hi")).unwrap_err();
        assert_eq!(peer.hear().await, "packet 1: 190 bytes");
        let reason = connection.closed().await;
        assert!(matches!(&reason, CloseReason::HandlerPanicked(text) if **text == *"writable"), "{reason:?}");
    });
}
