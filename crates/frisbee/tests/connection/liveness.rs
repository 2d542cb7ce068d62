//! Heartbeats, silence and stalls, to the millisecond of virtual time.

use frisbee::{CloseReason, Config};
use support::{
    MILLI, SECOND, assert_elapsed,
    frames::{header, ping, pong},
    in_virtual_time, settle,
};
use tokio::time::{Instant, advance, sleep};

use crate::scripts::{
    Script, client, only_connection, packet, packet_frame, peer_of, peer_of_client, peer_of_client_with_buffer,
    peer_with_buffer, quiet, server, zeros,
};

fn silent(limit: u32) -> Config {
    Config { silence_max: Some(limit * SECOND), ..quiet() }
}

#[test]
fn pings_are_sent_every_interval_regardless_of_traffic() {
    in_virtual_time(async {
        let config = Config { ping_interval: Some(700 * MILLI), ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        let since = Instant::now();
        for tick in 1..=20 {
            if tick % 2 == 0 {
                connection.send(packet(1, "hi")).await.unwrap();
                assert_eq!(peer.hear_any().await, "packet 1: hi");
            }
            assert_eq!(peer.hear_any().await, "PING");
            assert_elapsed(since, tick * 700 * MILLI);
        }
    });
}

#[test]
fn no_ping_is_sent_without_an_interval() {
    in_virtual_time(async {
        let (_connection, mut peer) = peer_of_client(&client(()).config(silent(3600))).await;
        sleep(3000 * SECOND).await;
        assert!(peer.hears_nothing().await);
    });
}

#[test]
fn a_ping_is_answered_once_and_a_pong_never() {
    in_virtual_time(async {
        let server = server(Script::new()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([ping(), pong(), ping(), pong()]).await;
        assert_eq!(peer.heard().await, ["PONG", "PONG"]);
    });
}

#[test]
fn idle_peers_stay_connected() {
    in_virtual_time(async {
        let server = server(Script::new()).config(Config::default()).without_listener();
        let connection = crate::scripts::connected(client(()).config(Config::default()), &server).await;
        sleep(3600 * SECOND).await;
        assert!(connection.close_reason().is_none());
        assert_eq!(server.metrics().connections, 1);
    });
}

#[test]
fn a_silent_peer_is_closed_after_exactly_the_limit() {
    for ping_interval in [None, Some(500 * MILLI), Some(2900 * MILLI)] {
        in_virtual_time(async {
            let config = Config { ping_interval, ..silent(3) };
            let server = server(Script::new()).config(config.clone()).without_listener();
            let _never_spoke = peer_of(&server);
            let (connection, _mute) = peer_of_client(&client(()).config(config)).await;
            let since = Instant::now();
            let other = only_connection(&server).await;
            assert!(matches!(other.closed().await, CloseReason::Silent { limit } if limit == 3 * SECOND));
            assert_elapsed(since, 3 * SECOND);
            assert!(matches!(connection.closed().await, CloseReason::Silent { limit } if limit == 3 * SECOND));
            assert_elapsed(since, 3 * SECOND);
        });
    }
}

#[test]
fn silence_counts_from_the_last_byte() {
    in_virtual_time(async {
        let server = server(Script::new()).config(silent(5)).without_listener();
        let mut peer = peer_of(&server);
        let connection = only_connection(&server).await;
        for byte in packet_frame(1, "slow") {
            peer.say([byte]).await;
            sleep(3 * SECOND).await;
            assert!(connection.close_reason().is_none());
        }
        assert_eq!(peer.hear().await, "packet 1: slow");
        let since = Instant::now();
        assert!(matches!(connection.closed().await, CloseReason::Silent { .. }));
        assert_elapsed(since, 2 * SECOND);
    });
}

#[test]
fn a_large_packet_may_take_long_while_bytes_arrive() {
    in_virtual_time(async {
        let server = server(Script::new()).config(silent(5)).without_listener();
        let mut peer = peer_of(&server);
        peer.say(header(1, 20, 100_000)).await;
        for _ in 0..20 {
            sleep(4 * SECOND).await;
            peer.say(zeros(5000)).await;
        }
        assert_eq!(peer.hear().await, "packet 1: 100000 bytes");
    });
}

#[test]
fn a_peer_with_stalled_reads_is_closed_at_the_limit() {
    for ping_interval in [None, Some(500 * MILLI), Some(60 * SECOND)] {
        in_virtual_time(async {
            let config = Config { write_stall_max: 3 * SECOND, ping_interval, ..quiet() };
            let (connection, _peer) = peer_of_client_with_buffer(&client(()).config(config), 64).await;
            sleep(10 * SECOND / 4).await;
            let since = Instant::now();
            connection.send(packet(1, zeros(1000))).await.unwrap();
            assert!(matches!(connection.closed().await, CloseReason::WriteStalled { limit } if limit == 3 * SECOND));
            assert_elapsed(since, 3 * SECOND);
        });
    }
}

#[test]
fn a_peer_with_stalled_reads_cannot_delay_the_close() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client_with_buffer(&client(()), 64).await;
        connection.send(packet(1, zeros(1000))).await.unwrap();
        let since = Instant::now();
        connection.close();
        assert!(matches!(connection.closed().await, CloseReason::WriteStalled { .. }));
        assert_elapsed(since, 5 * SECOND);
    });
}

#[test]
fn waiting_for_the_close_of_the_peer_is_limited() {
    in_virtual_time(async {
        let config = Config { linger_max: 2 * SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        connection.send(packet(1, "last")).await.unwrap();
        let since = Instant::now();
        connection.close();
        assert!(matches!(connection.closed().await, CloseReason::Local));
        assert_elapsed(since, 2 * SECOND);
        assert_eq!(peer.hear_out().await, ["packet 1: last"]);
    });
}

#[test]
fn a_slow_peer_is_kept_while_it_makes_progress() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        connection.send(packet(1, zeros(1_000_000))).await.unwrap();
        connection.close();
        let since = Instant::now();
        let mut taken = 0;
        while taken < 1_000_010 {
            sleep(4 * SECOND).await;
            let mut bytes = vec![0; 40_000.min(1_000_010 - taken)];
            tokio::io::AsyncReadExt::read_exact(&mut peer.io, &mut bytes).await.unwrap();
            taken += bytes.len();
        }
        assert!(60 * SECOND < since.elapsed());
        assert_eq!(peer.hear_any().await, "end");
        drop(peer);
        assert!(matches!(connection.closed().await, CloseReason::Local));
    });
}

#[test]
fn a_peer_resuming_reads_within_the_limit_is_kept() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 10_000, backlog_max: 10, ..Config::default() };
        let server = server(Script::new()).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 1000);
        let connection = only_connection(&server).await;
        let mut said = 0;
        while tokio::time::timeout(MILLI, peer.say(packet_frame(1, &"x".repeat(100)))).await.is_ok() {
            said += 1;
            assert!(said < 200, "a server that is not read from stops reading");
        }
        sleep(4 * SECOND).await;
        assert!(connection.close_reason().is_none());
        assert_eq!(peer.hear().await, "packet 1: 100 bytes");
        sleep(4 * SECOND).await;
        assert!(connection.close_reason().is_none(), "it took something");
        assert!(matches!(connection.closed().await, CloseReason::WriteStalled { .. }));
    });
}

#[test]
fn a_starved_driver_reads_before_reporting_silence() {
    in_virtual_time(async {
        let server = server(Script::new()).config(silent(3)).without_listener();
        let mut peer = peer_of(&server);
        let connection = only_connection(&server).await;
        for _ in 0..3 {
            // Nothing here lets the driver run before the time is up.
            peer.say(packet_frame(1, "still here")).await;
            advance(4 * SECOND).await;
            assert_eq!(peer.hear().await, "packet 1: still here");
        }
        let since = Instant::now();
        assert!(matches!(connection.closed().await, CloseReason::Silent { .. }));
        assert_elapsed(since, 3 * SECOND);
    });
}

#[test]
fn a_starved_driver_writes_before_reporting_a_stall() {
    in_virtual_time(async {
        let config = Config { write_stall_max: 3 * SECOND, ..quiet() };
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()).config(config), 1000).await;
        connection.send(packet(1, zeros(5000))).await.unwrap();
        settle().await;
        for _ in 0..5 {
            let mut taken = vec![0; 1000];
            tokio::io::AsyncReadExt::read_exact(&mut peer.io, &mut taken).await.unwrap();
            advance(4 * SECOND).await;
        }
        assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());
    });
}
