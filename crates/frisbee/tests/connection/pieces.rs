//! Large contents beside small ones: between extended peers whose packets may overtake each other, and others.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use frisbee::{
    CloseReason, Config, Connection, Outcome, Packet, Router, SendOrder, Server, Stream, StreamReader, StreamSender,
    TrySendError,
};
use support::{EventLog, in_virtual_time, settle};
use tokio::io::{AsyncWriteExt, duplex};

use crate::scripts::{OPERATION, client, packet, quiet, server, zeros};

/// Sends every packet back on the accepting side, and notes those that come on the connecting side.
#[derive(Clone)]
struct Beside {
    echoes: bool,
    interleaves: bool,
    log: EventLog,
    closed: Arc<Mutex<Option<CloseReason>>>,
}

impl Router for Beside {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.log.add(format!("{}: {}", packet.id, packet.content.len()));
        if self.echoes { Outcome::Reply(packet) } else { Outcome::Nothing }
    }

    async fn stream(&self, mut stream: Stream, _: Option<frisbee::RefusalReason>, _: &Connection) {
        while let Ok(content) = stream.read().await {
            self.log.add(format!("stream: {}", content.len()));
        }
    }

    fn describe(&self) -> Result<frisbee::RouterInfo, Box<dyn std::error::Error + Send + Sync>> {
        let send_order = if self.interleaves { SendOrder::Relaxed } else { SendOrder::Kept };
        Ok(frisbee::RouterInfo { send_order, ..Default::default() })
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::Closed(reason) = event else { return };
        *self.closed.lock().unwrap() = Some(reason.clone());
    }
}

fn beside(echoes: bool, interleaves: bool) -> Beside {
    Beside { echoes, interleaves, log: EventLog::default(), closed: Arc::default() }
}

fn extended() -> Config {
    Config { extended: true, ..quiet() }
}

/// Both ends of a connection over a wire that holds little, and what arrives at each.
async fn both_ends(interleaves: bool, config: Config) -> (Server, Connection, Beside, Beside) {
    let (here, there) = (beside(false, interleaves), beside(true, interleaves));
    let server = server(there.clone()).config(config.clone()).without_listener();
    let (ours, theirs) = duplex(8 * 1024);
    server.attach(theirs);
    let connection = client(here.clone()).config(config).attach(ours).await.unwrap();
    connection.recognized().await.unwrap();
    (server, connection, here, there)
}

/// Lets time stand still until something is in the log.
async fn until_heard(log: &EventLog, what: &str) {
    for _ in 0..100_000 {
        if log.take().iter().any(|heard| heard == what) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing was heard of {what}");
}

/// The data of a stream of the client.
fn opened(connection: &Connection) -> (StreamSender, StreamReader) {
    connection.open_stream().unwrap().split()
}

#[test]
fn a_small_call_overtakes_a_large_one_in_both_directions() {
    for (interleaves, order) in [(true, ["0: 5", "2: 5", "1: 1048576"]), (false, ["0: 5", "1: 1048576", "2: 5"])] {
        in_virtual_time(async {
            let (_server, connection, here, there) = both_ends(interleaves, extended()).await;
            connection.send(packet(0, "small")).await.unwrap();
            connection.send(packet(1, zeros(1 << 20))).await.unwrap();
            connection.send(packet(2, "small")).await.unwrap();
            settle().await;
            assert_eq!(there.log.take(), order);
            assert_eq!(here.log.take(), order);
        });
    }
}

#[test]
fn a_small_answer_overtakes_a_large_one_in_flight() {
    in_virtual_time(async {
        let (_server, connection, here, there) = both_ends(true, extended()).await;
        connection.send(packet(0, "small")).await.unwrap();
        connection.send(packet(1, zeros(5 << 20))).await.unwrap();
        until_heard(&there.log, "1: 5242880").await;
        assert_eq!(here.log.take(), ["0: 5"]);
        let pieces = connection.metrics().counters.pieces_in;
        connection.send(packet(2, "small")).await.unwrap();
        until_heard(&here.log, "2: 5").await;
        let passed = connection.metrics().counters.pieces_in - pieces;
        assert!((1..10).contains(&passed), "it waited for a window, not for {passed} of 160");
        settle().await;
        assert_eq!(here.log.take(), ["1: 5242880"]);
    });
}

#[test]
fn large_contents_on_one_stream_do_not_block_another() {
    in_virtual_time(async {
        let (_server, connection, _here, there) = both_ends(true, extended()).await;
        let ((large, _), (small, _)) = (opened(&connection), opened(&connection));
        small.send("first").await.unwrap();
        large.send(zeros(1 << 20)).await.unwrap();
        small.send_many(&mut VecDeque::from(["small", "small"])).await.unwrap();
        settle().await;
        assert_eq!(there.log.take(), ["stream: 5", "stream: 5", "stream: 5", "stream: 1048576"]);
    });
}

#[test]
fn an_outbox_full_of_large_contents_accepts_small_ones() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 100_000, ..extended() };
        let (_server, connection, ..) = both_ends(true, config).await;
        connection.try_send(packet(1, zeros(100_000))).unwrap();
        let full = connection.try_send(packet(2, zeros(100_000)));
        assert!(matches!(full, Err(TrySendError::Full(_))), "{full:?}");
        connection.try_send(packet(3, zeros(60_000))).unwrap();
        connection.try_send(packet(4, zeros(60_000))).unwrap();
        assert!(
            matches!(connection.try_send(packet(5, "small")), Err(TrySendError::Full(_))),
            "they have a limit, too"
        );
        connection.flush().await.unwrap();
        connection.try_send(packet(6, zeros(100_000))).unwrap();
    });
}

#[test]
fn shutdown_waits_for_interleaved_content_and_answers_it() {
    in_virtual_time(async {
        let (server, connection, here, there) = both_ends(true, extended()).await;
        connection.send(packet(0, "small")).await.unwrap();
        connection.send(packet(1, zeros(1 << 20))).await.unwrap();
        while server.connections()[0].metrics().counters.pieces_in == 0 {
            tokio::task::yield_now().await;
        }
        there.log.take();
        server.shutdown(support::SECOND).await;
        assert_eq!(there.log.take(), [""; 0], "nothing is executed any more");
        connection.closed().await;
        assert_eq!(here.log.take(), ["0: 5"]);
        assert!(matches!(*there.closed.lock().unwrap(), Some(CloseReason::Shutdown)), "{:?}", there.closed);
    });
}

#[test]
fn a_peer_closing_amid_pieces_aborts_the_connection() {
    in_virtual_time(async {
        let there = beside(true, true);
        let server = server(there.clone()).config(extended()).without_listener();
        let (mut ours, theirs) = duplex(8 * 1024);
        server.attach(theirs);
        let hello = support::frames::frame(0, 3, [1, 1, 1, 0, 0, 0, 4, 0, 0, 0, 8]);
        let first = [&OPERATION.number().to_be_bytes()[..], &[0, 0, 0, 5], b"hel"].concat();
        ours.write_all(&[hello, support::frames::frame(7, 5, first)].concat()).await.unwrap();
        ours.shutdown().await.unwrap();
        settle().await;
        assert!(matches!(*there.closed.lock().unwrap(), Some(CloseReason::Truncated)), "{:?}", there.closed);
    });
}
