//! Handlers in each mode, and their bounds.

use frisbee::{CloseReason, Config, Dispatch, ServerLimits};
use support::{
    Peer, SECOND,
    frames::{ping, stream_frame},
    in_virtual_time, settle,
};

use crate::scripts::{
    Script, client, dispatches, limited, only_connection, packet, packet_frame, peer_of, peer_of_client, quiet, server,
};

#[test]
fn ready_replies_are_batched_in_order() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered] {
        in_virtual_time(async {
            let server = server(Script::new()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all((1..=5).map(|id| packet_frame(id, "hi"))).await;
            let replies = ["packet 1: hi", "packet 2: hi", "packet 3: hi", "packet 4: hi", "packet 5: hi"];
            assert_eq!(peer.hear_times(5).await, replies);
            let counters = server.metrics().counters;
            assert_eq!((counters.batches_in, counters.batches_out), (1, 1));
        });
    }
}

#[test]
fn waiting_handlers_in_place_block_no_others() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([packet_frame(1, "wait"), packet_frame(2, "hi"), packet_frame(3, "hi")]).await;
        assert_eq!(peer.hear_times(2).await, ["packet 2: hi", "packet 3: hi"]);
        assert_eq!(server.metrics().handlers, 1);
        script.gate.open(1);
        assert_eq!(peer.hear().await, "packet 1: wait");
        assert_eq!(script.log.take(), ["opened", "packet 1", "packet 2", "packet 3", "done 1"]);
        settle().await;
        assert_eq!(server.metrics().handlers, 0);
    });
}

#[test]
fn ordered_handlers_run_in_sequence_with_streams_and_pings() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).dispatch(Dispatch::Ordered).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([packet_frame(1, "wait"), packet_frame(2, "hi"), packet_frame(3, "wait")]).await;
        assert!(peer.hears_nothing().await);
        assert_eq!(script.log.take(), ["opened", "packet 1"]);
        peer.say_all([ping(), stream_frame(7, "data")]).await;
        assert_eq!(peer.hear_any().await, "PONG");
        assert_eq!(peer.hear_any().await, "stream 7: data");
        script.gate.open(1);
        assert_eq!(peer.hear_times(2).await, ["packet 1: wait", "packet 2: hi"]);
        assert!(peer.hears_nothing().await);
        script.gate.open(1);
        assert_eq!(peer.hear().await, "packet 3: wait");
        assert_eq!(script.log.take(), ["stream 7", "done 1", "packet 2", "packet 3", "done 3"]);
    });
}

#[test]
fn only_spawned_handlers_outlive_the_connection() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say(packet_frame(1, "wait")).await;
            let connection = only_connection(&server).await;
            connection.close();
            assert_eq!(peer.hear().await, "end");
            drop(peer);
            connection.closed().await;
            script.gate.open(1);
            settle().await;
            let is_task = !matches!(dispatch, Dispatch::InPlace | Dispatch::Ordered);
            let end: &[&str] = if is_task { &["done 1"] } else { &[] };
            let expected = [&["opened", "packet 1", "closed: Local"], end].concat();
            assert_eq!(script.log.take(), expected, "{dispatch:?}");
            assert_eq!(server.metrics().connections, 0, "{dispatch:?}");
        });
    }
}

#[test]
fn limited_handlers_share_the_limit_fairly() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).dispatch(limited(2)).without_listener();
        let mut peers: Vec<Peer> = (0..3).map(|_| peer_of(&server)).collect();
        for peer in &mut peers {
            peer.say_all((1..=4).map(|id| packet_frame(id, "wait"))).await;
        }
        for _ in 0..12 {
            settle().await;
            assert!((1..=2).contains(&script.running()));
            script.gate.open(1);
        }
        for peer in &mut peers {
            assert_eq!(peer.hear_times(4).await.len(), 4);
        }
        assert_eq!(script.running_max(), 2);
    });
}

#[test]
fn handlers_of_a_connection_are_limited() {
    for dispatch in [Dispatch::InPlace, Dispatch::Spawned, limited(5)] {
        in_virtual_time(async {
            let script = Script::new();
            let config = Config { handlers_max: 2, ..quiet() };
            let server = server(script.clone()).config(config).dispatch(dispatch).without_listener();
            let mut peers = [peer_of(&server), peer_of(&server)];
            peers[0].say_all((1..=2).map(|id| packet_frame(id, "wait"))).await;
            settle().await;
            assert_eq!(script.running(), 2, "at the limit, {dispatch:?}");
            peers[0].say_all((3..=5).map(|id| packet_frame(id, "wait"))).await;
            settle().await;
            assert_eq!(script.running(), 2, "past the limit, {dispatch:?}");
            peers[1].say(packet_frame(6, "hi")).await;
            assert_eq!(peers[1].hear().await, "packet 6: hi", "others have a limit of their own, {dispatch:?}");
            for _ in 0..5 {
                script.gate.open(1);
                settle().await;
                assert!(script.running() <= 2, "{dispatch:?}");
            }
            let mut replies = peers[0].hear_times(5).await;
            replies.sort();
            assert_eq!(replies, [1, 2, 3, 4, 5].map(|id| format!("packet {id}: wait")), "{dispatch:?}");
        });
    }
}

#[test]
fn handlers_of_a_server_are_limited() {
    for dispatch in [Dispatch::Spawned, limited(9)] {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone())
                .dispatch(dispatch)
                .limits(ServerLimits { handlers_max: 3, ..ServerLimits::default() })
                .without_listener();
            let mut peers = [peer_of(&server), peer_of(&server)];
            for peer in &mut peers {
                peer.say_all((1..=4).map(|id| packet_frame(id, "wait"))).await;
            }
            settle().await;
            assert_eq!(script.running(), 3, "{dispatch:?}");
            script.gate.open(8);
            for peer in &mut peers {
                assert_eq!(peer.hear_times(4).await.len(), 4);
            }
            assert_eq!(script.running_max(), 3, "{dispatch:?}");
        });
    }
}

#[test]
fn in_place_handlers_may_exceed_the_server_limit_by_one() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone())
            .limits(ServerLimits { handlers_max: 2, ..ServerLimits::default() })
            .without_listener();
        let mut peers = [peer_of(&server), peer_of(&server)];
        for peer in &mut peers {
            peer.say_all((1..=4).map(|id| packet_frame(id, "wait"))).await;
            settle().await;
        }
        assert_eq!(script.running(), 4);
        script.gate.open(8);
        for peer in &mut peers {
            assert_eq!(peer.hear_times(4).await.len(), 4);
        }
        assert_eq!(script.running_max(), 4);
    });
}

#[test]
fn idle_in_place_connections_release_the_server_limit() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone())
            .limits(ServerLimits { handlers_max: 1, ..ServerLimits::default() })
            .without_listener();
        let mut peers = [peer_of(&server), peer_of(&server)];
        for peer in &mut peers {
            peer.say_all((1..=2).map(|id| packet_frame(id, "wait"))).await;
            settle().await;
            assert_eq!(script.running(), 2, "one ahead of the limit");
            script.gate.open(2);
            assert_eq!(peer.hear_times(2).await.len(), 2);
        }
    });
}

#[test]
fn handlers_of_a_client_are_limited() {
    in_virtual_time(async {
        let script = Script::new();
        let client = client(script.clone()).dispatch(limited(2));
        let (_connection, mut peer) = peer_of_client(&client).await;
        let (_another, mut other) = peer_of_client(&client).await;
        for peer in [&mut peer, &mut other] {
            peer.say_all((1..=4).map(|id| packet_frame(id, "wait"))).await;
        }
        settle().await;
        assert_eq!(script.running(), 4, "the limit counts for each connection by itself");
        script.gate.open(8);
        assert_eq!(peer.hear_times(4).await.len(), 4);
    });
}

#[test]
fn reading_pauses_at_the_packet_limit_of_the_backlog() {
    paused_reading(Config { backlog_max: 3, ..quiet() }, "hi");
}

#[test]
fn reading_pauses_at_the_byte_limit_of_the_backlog() {
    paused_reading(Config { backlog_len_max: 200, ..quiet() }, "twenty bytes long...");
}

/// With one handler at the gate, three packets of `content` are taken and more are not.
fn paused_reading(config: Config, content: &'static str) {
    for dispatch in [Dispatch::Ordered, limited(1)] {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).config(config.clone()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([packet_frame(1, "wait")].into_iter().chain((2..=30).map(|id| packet_frame(id, content))))
                .await;
            settle().await;
            assert_eq!(server.metrics().counters.packets_in, 4);
            peer.say(ping()).await;
            assert!(peer.hears_nothing().await, "a peer that is not read from is not answered");
            script.gate.open(1);
            let heard = peer.heard().await;
            assert_eq!(heard.last().unwrap(), &format!("packet 30: {content}"));
            assert_eq!(heard.iter().filter(|frame| *frame == "PONG").count(), 1);
            assert_eq!(heard.len(), 31);
        });
    }
}

#[test]
fn a_paused_reader_does_not_time_out_either_side() {
    in_virtual_time(async {
        let script = Script::new();
        let config = Config { backlog_max: 3, ..Config::default() };
        let server = server(script.clone()).config(config).dispatch(Dispatch::Ordered).without_listener();
        let (ours, theirs) = tokio::io::duplex(256);
        server.attach(theirs);
        let replies = Script::new();
        let generous = Config { write_stall_max: 3600 * SECOND, ..Config::default() };
        let connection = client(replies.clone()).config(generous).attach(ours).await.unwrap();
        connection.send(packet(1, "wait")).await.unwrap();
        for id in 2..=100 {
            connection.send(packet(id, "nothing")).await.unwrap();
        }
        tokio::time::sleep(60 * SECOND).await;
        assert!(connection.close_reason().is_none() && server.connections()[0].close_reason().is_none());
        assert_eq!(script.log.take(), ["opened", "packet 1"]);
        script.gate.open(1);
        settle().await;
        assert_eq!(script.log.take().last().unwrap(), "packet 100");
    });
}

#[test]
fn a_peer_silent_after_a_pause_is_detected() {
    for ping_interval in [None, Some(SECOND * 49 / 10)] {
        in_virtual_time(async {
            let script = Script::new();
            let config = Config { backlog_max: 1, ping_interval, ..Config::default() };
            let server = server(script.clone()).config(config).dispatch(Dispatch::Ordered).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([packet_frame(1, "wait"), packet_frame(2, "hi"), packet_frame(3, "hi")]).await;
            let connection = only_connection(&server).await;
            tokio::time::sleep(60 * SECOND).await;
            assert!(connection.close_reason().is_none());
            script.gate.open(1);
            assert_eq!(peer.hear_times(3).await.len(), 3);
            let since = tokio::time::Instant::now();
            assert!(matches!(connection.closed().await, CloseReason::Silent { .. }));
            support::assert_elapsed(since, 5 * SECOND);
        });
    }
}
