//! Packets that no handler may start on, while this side waits for its peer and while it does not.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frisbee::{Config, Connection, Dispatch, Operation, Outcome, Packet, RefusedPacket, Router, Server};
use support::{
    MILLI, Peer, SECOND, assert_elapsed,
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};

use crate::scripts::{
    OPERATION, Script, dispatches, limited, only_connection, packet_frame, peer_of, peer_with_buffer, quiet, server,
};

/// Asks the peer in each handler, and replies with its answer.
#[derive(Clone, Default)]
struct Asking(Arc<Inner>);

#[derive(Default)]
struct Inner {
    awaited: AtomicUsize,
    answered: Answered,
    begun: AtomicUsize,
}

/// Answers that came.
struct Answered(Semaphore);

impl Default for Answered {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

const QUESTION: Operation = Operation::new(30).expect("not reserved");

impl Router for Asking {
    fn intercept(&self, packets: &mut frisbee::Arrivals<'_>, _: &Connection) {
        while packets.next_if(|packet| packet.operation == QUESTION).is_some() {
            self.0.awaited.fetch_sub(1, Ordering::Relaxed);
            self.0.answered.0.add_permits(1);
        }
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.awaited.fetch_add(1, Ordering::Relaxed);
        connection.send(Packet::new(packet.id, QUESTION, "?")).await.unwrap();
        self.0.answered.0.acquire().await.unwrap().forget();
        Outcome::Reply(packet)
    }

    fn refuse(&self, refused: RefusedPacket, _: &Connection) -> Outcome {
        if refused.id == UNKNOWN {
            return Outcome::Nothing;
        }
        Outcome::Reply(Packet::new(refused.id, refused.operation, format!("{:?}", refused.why)))
    }

    fn awaited(&self, _: &Connection) -> usize {
        self.0.awaited.load(Ordering::Relaxed)
    }
}

/// The id of packets that this router refuses without a word.
const UNKNOWN: u16 = 9999;

fn answer() -> Vec<u8> {
    frame(0, QUESTION.number(), b"!")
}

fn requests(count: u16) -> Vec<Vec<u8>> {
    (1..=count).map(|id| packet_frame(id, "hi")).collect()
}

#[test]
fn answers_are_read_past_packets_waiting_for_them() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let router = Asking::default();
            let config = Config { handlers_max: 2, backlog_max: 3, backlog_len_max: 1000, ..quiet() };
            let server = server(router.clone()).config(config).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all(requests(500)).await;
            peer.say(answer().repeat(500)).await;
            let heard = peer.hear_times(1000).await;
            let replies = heard.iter().filter(|frame| frame.ends_with(": hi")).count();
            assert_eq!(replies, 500, "{dispatch:?}");
        });
    }
}

#[test]
fn reading_resumes_when_a_handler_waits_for_the_peer() {
    /// Calls the peer when it is told to.
    struct Late(Asking, Arc<Semaphore>);
    impl Router for Late {
        fn fallback(&self) -> &impl Router {
            &self.0
        }

        async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
            self.1.acquire().await.unwrap().forget();
            self.0.route(packet, connection).await
        }
    }
    for outbox_len_max in [1, 1000] {
        in_virtual_time(async {
            let go = Arc::new(Semaphore::new(0));
            // The outbox is full with a packet that the peer does not read: the handler waits for room to call.
            let config = Config { backlog_max: 3, outbox_len_max, write_stall_max: 60 * SECOND, ..quiet() };
            let server = server(Late(Asking::default(), go.clone())).config(config).dispatch(Dispatch::Ordered);
            let server = server.without_listener();
            let mut peer = peer_with_buffer(&server, 100);
            peer.say(packet_frame(0, "hi")).await;
            let connection = only_connection(&server).await;
            if outbox_len_max == 1 {
                connection.send(crate::scripts::packet(1, "x".repeat(200))).await.unwrap();
            }
            let saying = tokio::spawn(async move {
                peer.say(packet_frame(1, "hi").repeat(100)).await;
                peer
            });
            settle().await;
            assert!(!saying.is_finished(), "reading pauses");
            go.add_permits(1);
            settle().await;
            assert!(saying.is_finished(), "reading goes on");
        });
    }
}

#[test]
fn packets_are_refused_only_while_waiting_for_the_peer() {
    in_virtual_time(async {
        let router = Asking::default();
        let config = Config { backlog_max: 1, handlers_len_max: 10 * 66, handlers_stall_max: 60 * SECOND, ..quiet() };
        let server = server(router.clone()).config(config).dispatch(Dispatch::Ordered).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all(requests(15)).await;
        assert_eq!(peer.hear().await, "packet 1: ?");
        let refused: Vec<_> = (11..=15).map(|id| format!("packet {id}: Busy")).collect();
        assert_eq!(peer.hear_times(5).await, refused, "one is under way and nine wait");
        assert_eq!(server.metrics().counters.refused, 5);
        peer.say(answer().repeat(10)).await;
        assert_eq!(peer.hear_times(19).await.len(), 19);
        settle().await;
        assert_eq!(router.0.begun.load(Ordering::Relaxed), 10);
    });
}

#[test]
fn a_burst_of_packets_never_exceeds_the_backlog() {
    for (config, waiting) in [
        (Config { backlog_max: 3, ..quiet() }, 3),
        // Each counts 66 bytes.
        (Config { backlog_len_max: 100, ..quiet() }, 2),
    ] {
        for dispatch in dispatches() {
            in_virtual_time(async {
                let (script, config) = (Script::new(), Config { handlers_max: 1, ..config.clone() });
                let server = server(script.clone()).config(config).dispatch(dispatch).without_listener();
                let mut peer = peer_of(&server);
                peer.say_all((1..=500).map(|id| packet_frame(id, if id == 1 { "wait" } else { "hi" }))).await;
                let connection = only_connection(&server).await;
                assert_eq!(connection.metrics().counters.packets_in, 1 + waiting, "{dispatch:?}");
                script.gate.open(1);
                assert_eq!(peer.hear_times(500).await.len(), 500);
            });
        }
    }
}

#[test]
fn unrefusable_packets_pause_reading_instead_of_being_lost() {
    in_virtual_time(async {
        let router = Asking::default();
        let config = Config { backlog_max: 1, handlers_len_max: 5 * 66, ..quiet() };
        let server = server(router.clone()).config(config).dispatch(Dispatch::Ordered).without_listener();
        let mut peer = peer_with_buffer(&server, 100);
        let (said, saying) = (packet_frame(UNKNOWN, "hi").repeat(100), Instant::now());
        assert!(timeout(10 * SECOND, peer.say(&said)).await.is_err(), "reading pauses");
        assert!(saying.elapsed() >= 10 * SECOND);
        assert_eq!(peer.hear().await, format!("packet {UNKNOWN}: ?"));
        assert_eq!(server.metrics().counters.refused, 0);
        assert_eq!(only_connection(&server).await.metrics().handlers, 1);
    });
}

#[test]
fn queued_requests_are_refused_after_a_deadlock() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1)] {
        in_virtual_time(async {
            let config = Config { handlers_max: 1, handlers_stall_max: 3 * SECOND, ..quiet() };
            let server = server(Asking::default()).config(config).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            let since = Instant::now();
            peer.say_all(requests(3)).await;
            assert_eq!(peer.hear().await, "packet 1: ?");
            assert_eq!(peer.hear_times(2).await, ["packet 2: Busy", "packet 3: Busy"], "{dispatch:?}");
            assert_elapsed(since, 3 * SECOND);
            peer.say(packet_frame(4, "hi")).await;
            assert_eq!(peer.heard().await, ["packet 4: Busy"], "at once, as long as nothing has changed");
            peer.say(answer()).await;
            assert_eq!(peer.hear().await, "packet 1: hi");
            peer.say_all([packet_frame(5, "hi"), packet_frame(6, "hi")]).await;
            assert_eq!(peer.heard().await, ["packet 5: ?"]);
        });
    }
}

#[test]
fn packets_wait_indefinitely_for_independent_handlers() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let config = Config { handlers_max: 1, ..quiet() };
            let server = server(script.clone()).config(config).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all((1..=3).map(|id| packet_frame(id, "wait"))).await;
            tokio::time::sleep(60 * SECOND).await;
            script.gate.open(3);
            assert_eq!(peer.hear_times(3).await.len(), 3);
            assert_eq!(server.metrics().counters.refused, 0);
        });
    }
}

#[test]
fn bytes_held_by_handlers_are_limited() {
    /// Holds each content until it may let go.
    #[derive(Clone)]
    struct Holder {
        held: Arc<AtomicUsize>,
        held_max: Arc<AtomicUsize>,
        gate: Arc<Semaphore>,
        done: mpsc::UnboundedSender<Bytes>,
    }
    impl Router for Holder {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            let len = packet.content.len();
            let held = self.held.fetch_add(len, Ordering::Relaxed) + len;
            self.held_max.fetch_max(held, Ordering::Relaxed);
            self.gate.acquire().await.unwrap().forget();
            self.held.fetch_sub(len, Ordering::Relaxed);
            self.done.send(packet.content.into_bytes()).unwrap();
            Outcome::Nothing
        }
    }
    const LEN: usize = 100_000;
    for (dispatch, handlers_len_max, expected) in [
        (Dispatch::InPlace, 5 * (LEN + 64), 5 * LEN),
        (Dispatch::Spawned, 5 * (LEN + 64), 5 * LEN),
        (limited(50), 5 * (LEN + 64) - 1, 4 * LEN),
        (Dispatch::InPlace, 0, LEN),
        (Dispatch::Ordered, 0, LEN),
    ] {
        in_virtual_time(async {
            let (done, mut finished) = mpsc::unbounded_channel();
            let gate = Arc::new(Semaphore::new(0));
            let router = Holder { held: Arc::default(), held_max: Arc::default(), gate: gate.clone(), done };
            let config = Config { handlers_len_max, backlog_len_max: 2 * LEN, ..quiet() };
            let server = server(router.clone()).config(config).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            let frame = frame(1, OPERATION.number(), vec![7; LEN]);
            let hostile = tokio::spawn(async move {
                peer.say(frame.repeat(40)).await;
                peer
            });
            for _ in 0..40 {
                settle().await;
                gate.add_permits(1);
                assert_eq!(finished.recv().await.unwrap().len(), LEN);
            }
            assert_eq!(router.held_max.load(Ordering::Relaxed), expected, "{dispatch:?}");
            drop(hostile.await.unwrap());
        });
    }
}

#[test]
fn few_replies_are_made_for_a_peer_with_stalled_reads() {
    /// Replies with much to little, when it may.
    struct Amplifier(Arc<Semaphore>);
    impl Router for Amplifier {
        async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
            self.0.acquire().await.unwrap().forget();
            Outcome::Reply(Packet { content: vec![7; 100_000].into(), ..packet })
        }
    }
    in_virtual_time(async {
        let gate = Arc::new(Semaphore::new(0));
        let config = Config { outbox_len_max: 250_000, ..quiet() };
        let server = server(Amplifier(gate.clone())).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 1000);
        peer.say_all(requests(80)).await;
        settle().await;
        gate.add_permits(80);
        settle().await;
        let metrics = only_connection(&server).await.metrics();
        assert!((250_000..=350_000).contains(&metrics.outbox_len), "{metrics:?}");
        assert_eq!(metrics.handlers, 77);
        let expected: Vec<_> = (1..=80).map(|id| format!("packet {id}: 100000 bytes")).collect();
        assert_eq!(peer.hear_times(80).await, expected);
    });
}

#[test]
fn many_streams_cannot_exhaust_memory() {
    in_virtual_time(async {
        let script = Script::new();
        let config = Config { streams_len_max: 1_000_000, stream_stall_max: 10 * MILLI, ..quiet() };
        let server = server(script.clone()).config(config).without_listener();
        let mut peer = peer_of(&server);
        // Each handler holds the first data, and nobody reads what comes then.
        for id in 1..=200 {
            peer.say(stream_frame(id, "wait")).await;
            peer.say(frame(id, 2, vec![7; 100_000])).await;
        }
        tokio::time::sleep(SECOND).await;
        let overflowed = script.log.take().iter().filter(|line| line.ends_with("Overflow")).count();
        assert_eq!(overflowed, 0, "those handlers are at the gate");
        assert_eq!(server.metrics().counters.streams_refused, 191);
        script.gate.open(200);
        settle().await;
        let log = script.log.take();
        assert_eq!(log.iter().filter(|line| line.ends_with("Overflow")).count(), 191);
        let echoed = peer.heard().await.iter().filter(|frame| frame.ends_with(": 100000 bytes")).count();
        assert_eq!(echoed, 9);
    });
}

// Packets whose senders wait for a limited time

/// Works on each packet for some time, for peers that wait for another.
#[derive(Clone)]
struct Timed {
    work: Duration,
    timeout: Duration,
    /// The packets whose handlers began, and when each arrived.
    begun: Arc<Mutex<Vec<(u16, std::time::Instant)>>>,
}

impl Timed {
    fn new(work: Duration, timeout: Duration) -> Self {
        Self { work, timeout, begun: Arc::default() }
    }

    fn begun(&self) -> Vec<u16> {
        self.begun.lock().unwrap().iter().map(|(id, _)| *id).collect()
    }
}

impl Router for Timed {
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.begun.lock().unwrap().push((packet.id, connection.turn()));
        let work = self.work;
        async move {
            sleep(work).await;
            Outcome::Reply(packet)
        }
    }

    fn refuse(&self, refused: RefusedPacket, _: &Connection) -> Outcome {
        Outcome::Reply(Packet::new(refused.id, refused.operation, format!("{:?}", refused.why)))
    }

    fn packet_timeout(&self, _: &Packet, _: &Connection) -> Option<Duration> {
        Some(self.timeout)
    }
}

/// Serves one handler at a time.
fn serve_one(router: &Timed, dispatch: Dispatch, backlog_max: usize) -> (Server, Peer) {
    let config = Config { handlers_max: 1, backlog_max, ..quiet() };
    let server = server(router.clone()).config(config).dispatch(dispatch).without_listener();
    let peer = peer_of(&server);
    (server, peer)
}

/// Every dispatch with which the order is open.
fn unordered() -> impl Iterator<Item = Dispatch> {
    dispatches().into_iter().filter(|dispatch| *dispatch != Dispatch::Ordered)
}

#[test]
fn expired_packets_are_refused_and_never_started() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let router = Timed::new(6 * SECOND, 5 * SECOND);
            let (server, mut peer) = serve_one(&router, dispatch, 100);
            peer.say_all(requests(3)).await;
            let heard = peer.hear_times(3).await;
            assert_eq!(heard, ["packet 1: hi", "packet 2: Expired", "packet 3: Expired"], "{dispatch:?}");
            assert_eq!(router.begun(), [1], "{dispatch:?}");
            assert_eq!(server.metrics().counters.refused, 2);
            peer.say(packet_frame(4, "hi")).await;
            assert_eq!(peer.hear().await, "packet 4: hi");
        });
    }
}

#[test]
fn handlers_know_the_arrival_time_of_queued_packets() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let router = Timed::new(SECOND, 60 * SECOND);
            let (_server, mut peer) = serve_one(&router, dispatch, 100);
            let since = Instant::now();
            peer.say_all(requests(3)).await;
            peer.hear_times(3).await;
            assert_elapsed(since, 3 * SECOND);
            for (id, arrived) in &*router.begun.lock().unwrap() {
                let after = arrived.saturating_duration_since(since.into_std());
                assert!(after < 100 * MILLI, "{dispatch:?}: packet {id} arrived after {after:?}");
            }
        });
    }
}

#[test]
fn newest_first_after_half_of_the_oldest_timeout() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let router = Timed::new(6 * SECOND, 10 * SECOND);
            let (_server, mut peer) = serve_one(&router, dispatch, 100);
            peer.say_all(requests(3)).await;
            sleep(5 * SECOND).await;
            peer.say(packet_frame(4, "hi")).await;
            let heard = peer.hear_times(4).await;
            if dispatch == Dispatch::Ordered {
                assert_eq!(router.begun(), [1, 2, 4], "the order stays");
                assert_eq!(heard, ["packet 1: hi", "packet 2: hi", "packet 3: Expired", "packet 4: hi"]);
            } else {
                assert_eq!(router.begun(), [1, 4], "{dispatch:?}");
                assert_eq!(heard[0], "packet 1: hi");
                assert!(heard.contains(&"packet 4: hi".to_owned()), "{heard:?}");
            }
        });
    }
}

#[test]
fn oldest_first_without_overload() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let router = Timed::new(SECOND, 60 * SECOND);
            let (_server, mut peer) = serve_one(&router, dispatch, 100);
            peer.say_all(requests(20)).await;
            peer.hear_times(20).await;
            assert_eq!(router.begun(), (1..=20).collect::<Vec<_>>(), "{dispatch:?}");
        });
    }
}

#[test]
fn an_overloaded_side_reads_on_and_refuses_the_oldest() {
    for dispatch in unordered() {
        in_virtual_time(async {
            let router = Timed::new(6 * SECOND, 10 * SECOND);
            let (server, mut peer) = serve_one(&router, dispatch, 3);
            peer.say_all(requests(50)).await;
            settle().await;
            assert_eq!(server.metrics().counters.packets_in, 4, "as long as it may keep up, it does not read on");
            sleep(7 * SECOND).await;
            assert_eq!(server.metrics().counters.packets_in, 50, "{dispatch:?}");
            let heard = peer.heard().await;
            let busy = heard.iter().filter(|frame| frame.ends_with(": Busy")).count();
            // One is done, one under way, and three wait.
            assert_eq!((busy, heard.len()), (45, 46), "{dispatch:?}: {heard:?}");
            sleep(60 * SECOND).await;
            let begun = router.begun();
            assert!(begun.len() >= 3 && begun[2..] == [50], "{dispatch:?}: {begun:?}");
        });
    }
}

#[test]
fn an_overloaded_side_pauses_when_refusals_are_not_read() {
    in_virtual_time(async {
        let router = Timed::new(SECOND, 4 * SECOND);
        let config =
            Config { handlers_max: 1, backlog_max: 3, outbox_len_max: 10, write_stall_max: 3600 * SECOND, ..quiet() };
        let server = server(router.clone()).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 30);
        let saying = tokio::spawn(async move {
            peer.say(packet_frame(1, "hi").repeat(1000)).await;
        });
        sleep(100 * SECOND).await;
        assert!(!saying.is_finished(), "what it is not told is not read either");
        assert!(server.metrics().counters.packets_in < 100, "{:?}", server.metrics().counters);
    });
}
