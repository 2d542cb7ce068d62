//! Connections whose peers are asked to leave: when a server shuts down, and when they are old.

use std::time::Duration;

use frisbee::{
    CloseReason, Config, Connection, GoAway, HandlerTable, Hello, Outcome, Packet, Router, Server, ServerBuilder,
    ServerLimits, Stream, proto::Features,
};
use support::{EventLog, MILLI, SECOND, assert_elapsed, frames::frame, in_virtual_time, settle};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::scripts::{Script, client, connected, only_connection, packet, packet_frame, peer_of, quiet, server};

/// A client that is told to leave, and says whether it will.
#[derive(Clone, Default)]
struct Guest {
    leaves: bool,
    log: EventLog,
}

impl Router for Guest {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.log.add(String::from_utf8_lossy(&packet.content.into_bytes()));
        Outcome::Nothing
    }

    fn describe(&self) -> Result<frisbee::RouterInfo, Box<dyn std::error::Error + Send + Sync>> {
        Ok(frisbee::RouterInfo { leaves: self.leaves, ..Default::default() })
    }

    fn event(&self, _: &Connection, event: frisbee::Event<'_>) {
        let frisbee::Event::GoingAway(why) = event else { return };
        self.log.add(format!("asked to leave: {}", why.code));
    }
}

fn extended() -> Config {
    Config { extended: true, ..quiet() }
}

fn serving(script: &Script) -> ServerBuilder<Script> {
    server(script.clone()).config(extended())
}

/// A client that the server knows by now, and what it hears.
async fn guest_of(server: &Server, leaves: bool) -> (Connection, EventLog) {
    let guest = Guest { leaves, log: EventLog::default() };
    let log = guest.log.clone();
    let connection = connected(client(guest).config(extended()), server).await;
    connection.recognized().await.unwrap();
    settle().await;
    (connection, log)
}

fn shutting_down(server: Server, limit: Duration) -> JoinHandle<usize> {
    tokio::spawn(server.shutdown(limit))
}

// Shutdowns

#[test]
fn a_table_inherits_whether_its_router_leaves() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        let log = EventLog::default();
        let table = HandlerTable::over(Guest { leaves: true, log: log.clone() });
        let guest = connected(client(table).config(extended()), &server).await;
        guest.recognized().await.unwrap();
        settle().await;
        let shutdown = shutting_down(server, 60 * SECOND);
        settle().await;
        assert_eq!(log.take(), ["asked to leave: 1"]);
        guest.send(packet(2, "late")).await.unwrap();
        settle().await;
        assert_eq!(log.take(), ["late"], "a server that is not told would refuse it");
        drop(guest);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn shutdown_serves_leaving_peers_until_they_left() {
    in_virtual_time(async {
        let script = Script::new();
        let server = serving(&script).without_listener();
        let (guest, log) = guest_of(&server, true).await;
        guest.send(packet(1, "wait")).await.unwrap();
        settle().await;
        let since = Instant::now();
        let shutdown = shutting_down(server, 60 * SECOND);
        settle().await;
        assert_eq!(log.take(), ["asked to leave: 1"]);
        sleep(4 * SECOND).await;
        guest.send(packet(2, "late")).await.unwrap();
        settle().await;
        assert_eq!(log.take(), ["late"]);
        script.gate.open(1);
        settle().await;
        assert_eq!(log.take(), ["wait"]);
        assert!(!shutdown.is_finished() && guest.close_reason().is_none(), "it may have something under way");
        guest.close();
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_elapsed(since, 4 * SECOND);
        assert_eq!(script.log.take().last().unwrap(), "closed: Peer");
    });
}

#[test]
fn peers_still_present_after_the_lame_duck_are_refused() {
    for (limit, lame_duck) in [(60 * SECOND, 5 * SECOND), (4 * SECOND, 2 * SECOND)] {
        in_virtual_time(async {
            let script = Script::new();
            let server = serving(&script).without_listener();
            let (guest, log) = guest_of(&server, true).await;
            let (idle, _) = guest_of(&server, true).await;
            guest.send(packet(1, "wait")).await.unwrap();
            settle().await;
            let since = Instant::now();
            let shutdown = shutting_down(server, limit);
            assert!(matches!(idle.closed().await, CloseReason::Peer));
            assert_elapsed(since, lame_duck);
            guest.send(packet(2, "late")).await.unwrap();
            settle().await;
            assert_eq!(log.take(), ["asked to leave: 1", "Draining"]);
            script.gate.open(1);
            assert_eq!(shutdown.await.unwrap(), 0);
            assert_eq!(log.take(), ["wait"]);
            assert_elapsed(since, lame_duck);
        });
    }
}

#[test]
fn a_hello_in_two_parts_during_a_shutdown_leaves_no_old_deadline() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        let mut peer = peer_of(&server);
        let mut hello = Hello::new(&extended());
        hello.features = hello.features.with(Features::LEAVES);
        let mut content = vec![1];
        hello.encode(&mut content);
        let bytes = frame(0, 3, content);
        let (first, rest) = bytes.split_at(bytes.len() - 1);
        peer.say(first).await;
        let connection = only_connection(&server).await;
        let shutdown = shutting_down(server, 60 * SECOND);
        settle().await;
        assert_eq!(connection.peer(), frisbee::PeerProtocol::Unknown);
        // The packet after it is not whole either.
        let packet = packet_frame(1, "hi");
        peer.say([rest, &packet[..5]].concat()).await;
        // The deadline for the rest of the HELLO is over by then.
        sleep(2 * SECOND).await;
        assert!(matches!(connection.peer(), frisbee::PeerProtocol::Extended(_)) && connection.close_reason().is_none());
        let turn = connection.turn();
        sleep(2 * SECOND).await;
        assert_eq!(connection.turn(), turn, "a connection without work does not wake up");
        peer.say(&packet[5..]).await;
        assert!(peer.heard().await.contains(&"packet 1: hi".into()));
        drop(peer);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn shutdown_never_exceeds_its_limit() {
    in_virtual_time(async {
        let server = serving(&Script::new())
            .limits(ServerLimits { lame_duck: Duration::MAX, ..ServerLimits::default() })
            .without_listener();
        let (guest, _) = guest_of(&server, true).await;
        guest.send(packet(1, "wait")).await.unwrap();
        settle().await;
        let since = Instant::now();
        assert_eq!(server.shutdown(3 * SECOND).await, 1);
        assert_elapsed(since, 3 * SECOND);
    });
}

#[test]
fn without_a_lame_duck_late_packets_are_refused() {
    in_virtual_time(async {
        let script = Script::new();
        let server = serving(&script)
            .limits(ServerLimits { lame_duck: Duration::ZERO, ..ServerLimits::default() })
            .without_listener();
        let (guest, log) = guest_of(&server, true).await;
        guest.send(packet(1, "wait")).await.unwrap();
        settle().await;
        let shutdown = shutting_down(server, 60 * SECOND);
        settle().await;
        guest.send(packet(2, "late")).await.unwrap();
        settle().await;
        assert_eq!(log.take(), ["asked to leave: 1", "Draining"], "it may still leave");
        script.gate.open(1);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn staying_peers_are_refused_and_do_not_delay_shutdown() {
    in_virtual_time(async {
        let script = Script::new();
        let server = serving(&script).without_listener();
        let (staying, log) = guest_of(&server, false).await;
        let (mut plain, mut mute) = (peer_of(&server), peer_of(&server));
        assert_eq!(plain.asks(packet_frame(1, "hi")).await, ["packet 1: hi"]);
        plain.say(packet_frame(2, "wait")).await;
        settle().await;
        let since = Instant::now();
        let shutdown = shutting_down(server, 60 * SECOND);
        assert!(matches!(staying.closed().await, CloseReason::Peer));
        assert_eq!(log.take(), ["asked to leave: 1"]);
        assert_eq!(mute.hear().await, "end");
        drop(mute);
        assert_eq!(plain.asks(packet_frame(3, "late")).await, ["packet 3: Draining"]);
        script.gate.open(1);
        assert_eq!(plain.hear_times(2).await, ["packet 2: wait", "end"]);
        drop(plain);
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_elapsed(since, Duration::ZERO);
    });
}

#[test]
fn streams_are_served_only_during_the_lame_duck() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        let (guest, _) = guest_of(&server, true).await;
        let mut before = guest.open_stream().unwrap();
        before.send("before").await.unwrap();
        assert_eq!(before.read().await.unwrap(), "before");
        let shutdown = shutting_down(server, 60 * SECOND);
        settle().await;
        let hears = async |mut stream: Stream| {
            stream.send("hi").await.unwrap();
            stream.read().await.unwrap()
        };
        assert_eq!(hears(guest.open_stream().unwrap()).await, "hi");
        sleep(6 * SECOND).await;
        assert_eq!(hears(guest.open_stream().unwrap()).await, "refused");
        before.send("goes on").await.unwrap();
        assert_eq!(before.read().await.unwrap(), "goes on");
        drop(before);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn a_peer_asked_to_leave_finishes_its_handlers_first() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        for is_asked in [true, false] {
            let script = Script::new();
            let guest = connected(client(script.clone()).config(extended()), &server).await;
            guest.recognized().await.unwrap();
            settle().await;
            let host = server.connections().pop().unwrap();
            host.send(packet(1, "wait nothing")).await.unwrap();
            settle().await;
            if is_asked {
                assert!(host.go_away(GoAway { code: 0, text: "for tests".into() }));
                settle().await;
            }
            drop(guest);
            settle().await;
            assert_eq!(host.close_reason().is_none(), is_asked);
            script.gate.open(1);
            host.closed().await;
            let is_done = script.log.take().contains(&"done 1".to_owned());
            assert_eq!(is_done, is_asked);
        }
    });
}

// Age

/// The time after which a connection hears that it is old.
async fn age_of(log: &EventLog, since: Instant) -> Duration {
    loop {
        match log.take().pop() {
            Some(heard) => {
                assert_eq!(heard, "asked to leave: 2");
                return since.elapsed();
            }
            None => sleep(100 * MILLI).await,
        }
    }
}

#[test]
fn old_connections_are_asked_to_leave_with_a_grace_period() {
    in_virtual_time(async {
        let script = Script::new();
        let aging = serving(&script).limits(ServerLimits {
            connection_age_max: Some(100 * SECOND),
            connection_age_grace: 10 * SECOND,
            ..ServerLimits::default()
        });
        let server = aging.without_listener();
        for leaves in [true, false] {
            let since = Instant::now();
            let (guest, log) = guest_of(&server, leaves).await;
            guest.send(packet(1, "wait")).await.unwrap();
            let age = age_of(&log, since).await;
            assert!((90 * SECOND..=111 * SECOND).contains(&age), "{age:?}");
            sleep(9 * SECOND).await;
            guest.send(packet(2, "late")).await.unwrap();
            sleep(2 * SECOND).await;
            guest.send(packet(3, "too late")).await.unwrap();
            settle().await;
            assert_eq!(log.take(), ["late", "Draining"]);
            assert!(guest.close_reason().is_none(), "a handler is under way");
            script.gate.open(1);
            assert!(matches!(guest.closed().await, CloseReason::Peer));
            assert_eq!(log.take(), ["wait"]);
            assert_eq!(script.log.take().last().unwrap(), "closed: TooOld");
        }
    });
}

#[test]
fn connections_of_equal_age_leave_at_different_times() {
    in_virtual_time(async {
        let server = serving(&Script::new())
            .limits(ServerLimits { connection_age_max: Some(100 * SECOND), ..ServerLimits::default() })
            .without_listener();
        let since = Instant::now();
        let mut ages = Vec::new();
        let mut guests = Vec::new();
        for _ in 0..20 {
            guests.push(guest_of(&server, true).await);
        }
        for (_, log) in &guests {
            let log = log.clone();
            ages.push(tokio::spawn(async move { age_of(&log, since).await }));
        }
        let mut heard = Vec::new();
        for age in ages {
            heard.push(age.await.unwrap());
        }
        let spread = *heard.iter().max().unwrap() - *heard.iter().min().unwrap();
        assert!(spread > SECOND && spread < 21 * SECOND, "{spread:?}");
    });
}

#[test]
fn plain_and_silent_peers_have_no_age_limit() {
    in_virtual_time(async {
        let script = Script::new();
        let aging = serving(&script).limits(ServerLimits {
            connection_age_max: Some(SECOND),
            connection_age_grace: SECOND,
            ..ServerLimits::default()
        });
        let server = aging.without_listener();
        let (mut plain, mut mute) = (peer_of(&server), peer_of(&server));
        assert_eq!(plain.asks(packet_frame(1, "hi")).await, ["packet 1: hi"]);
        sleep(1000 * SECOND).await;
        assert_eq!(plain.asks(packet_frame(2, "hi")).await, ["packet 2: hi"]);
        assert_eq!(mute.asks(packet_frame(1, "hi")).await, ["packet 1: hi"]);
    });
}

#[test]
fn connections_have_no_age_limit_by_default() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        let (guest, log) = guest_of(&server, true).await;
        assert!(timeout(80_000 * SECOND, guest.closed()).await.is_err());
        assert!(log.take().is_empty());
    });
}

#[test]
fn a_weak_handle_does_not_keep_the_connection_open() {
    in_virtual_time(async {
        let server = serving(&Script::new()).without_listener();
        let (guest, _) = guest_of(&server, true).await;
        let look = guest.without_keeping_open();
        assert_eq!(look, guest);
        drop(guest);
        assert!(matches!(look.closed().await, CloseReason::Local));
    });
}

#[test]
fn an_age_of_zero_is_refused_by_name() {
    let error = Server::builder(())
        .limits(ServerLimits { connection_age_max: Some(Duration::ZERO), ..ServerLimits::default() })
        .check()
        .unwrap_err();
    assert_eq!(error.name(), "connection_age_max");
}
