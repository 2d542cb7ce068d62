//! Connections that stay open and connections that end: drops, half-closes, shutdowns and connecting anew.

use frisbee::{
    Client, CloseReason, Config, ConnectRetry, Connection, Dispatch, Outcome, Packet, Router, Server, ServerLimits,
};
use support::{MILLI, Peer, SECOND, assert_elapsed, frames::stream_frame, in_virtual_time, settle};
use tokio::{
    io::BufStream,
    runtime::{Builder, Runtime},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::scripts::{
    Script, client, describe, dispatches, limited, only_connection, packet, packet_frame, peer_of, peer_of_client,
    peer_of_client_with_buffer, peer_with_buffer, quiet, server, zeros,
};

// Runtimes

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn connections_end_with_their_runtime() {
    for turns in [0, 1] {
        let home = runtime();
        // Without a turn, the runtime has never polled the driver.
        let (connection, _peer) = home.block_on(async {
            let connected = peer_of_client(&client(())).await;
            for _ in 0..turns {
                settle().await;
            }
            connected
        });
        drop(home);
        let reason = runtime().block_on(async { timeout(SECOND, connection.closed()).await.unwrap() });
        assert!(reason.to_string().contains("runtime"), "{reason}");
        assert!(connection.try_send(packet(1, "late")).is_err());
    }
}

// Drops

#[test]
fn dropping_the_last_client_handle_flushes_and_closes() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()), 100).await;
        let another = connection.clone();
        drop(connection);
        settle().await;
        for id in 1..=100 {
            another.send(packet(id, "hi")).await.unwrap();
        }
        drop(another);
        let expected: Vec<String> = (1..=100).map(|id| format!("packet {id}: hi")).collect();
        assert_eq!(peer.hear_out().await, expected);
    });
}

#[test]
fn streams_keep_their_connection_open() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let stream = connection.open_stream().unwrap();
        drop(connection);
        settle().await;
        stream.send("hi").await.unwrap();
        drop(stream);
        assert_eq!(peer.hear_out().await, ["stream 1: hi", "stream 1 closed"]);
    });
}

#[test]
fn router_handles_do_not_keep_the_connection_open() {
    struct Keeper(mpsc::UnboundedSender<Connection>);
    impl Router for Keeper {
        async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
            self.0.send(connection.clone()).unwrap();
            Outcome::Reply(packet)
        }

        fn event(&self, connection: &Connection, event: frisbee::Event<'_>) {
            let frisbee::Event::Opened = event else { return };
            self.0.send(connection.clone()).unwrap();
        }
    }
    in_virtual_time(async {
        let (keep, mut kept) = mpsc::unbounded_channel();
        let (connection, mut peer) = peer_of_client(&client(Keeper(keep))).await;
        peer.say(packet_frame(1, "hi")).await;
        assert_eq!(peer.hear().await, "packet 1: hi");
        drop(connection);
        assert_eq!(peer.hear().await, "end");
        drop(peer);
        let (first, second) = (kept.recv().await.unwrap(), kept.recv().await.unwrap());
        assert_eq!(first, second);
        assert!(matches!(first.closed().await, CloseReason::Local));
    });
}

#[test]
fn dropping_a_server_aborts_its_connections() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let mut peers: Vec<Peer> = (0..3).map(|_| peer_with_buffer(&server, 64)).collect();
            settle().await;
            let connections = server.connections();
            peers[0].say(packet_frame(1, "wait")).await;
            connections[1].send(packet(2, zeros(10_000))).await.unwrap();
            settle().await;
            script.log.take();
            let since = Instant::now();
            drop(server);
            for connection in connections {
                assert!(matches!(connection.closed().await, CloseReason::Shutdown));
            }
            assert_eq!(since.elapsed(), std::time::Duration::ZERO);
            settle().await;
            assert_eq!(script.running(), 0, "its handlers are dropped");
            script.gate.open(1);
            settle().await;
            assert_eq!(script.log.take(), ["closed: Shutdown"; 3]);
        });
    }
}

// Half-closes

#[test]
fn a_half_closed_peer_still_gets_its_replies() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([packet_frame(1, "hi"), packet_frame(2, "wait"), packet_frame(3, "wait")]).await;
            peer.fall_silent().await;
            tokio::time::sleep(100 * SECOND).await;
            script.gate.open(2);
            let mut heard = peer.hear_out().await;
            heard.sort();
            assert_eq!(heard, ["packet 1: hi", "packet 2: wait", "packet 3: wait"], "{dispatch:?}");
            assert_eq!(script.log.take().last().unwrap(), "closed: Peer");
        });
    }
}

#[test]
fn a_slow_half_closed_peer_gets_everything() {
    in_virtual_time(async {
        let server = server(Script::new()).without_listener();
        let mut peer = peer_with_buffer(&server, 100);
        let saying = (1..=20).map(|id| packet_frame(id, &"x".repeat(50)));
        for bytes in saying {
            peer.say(bytes).await;
            assert_eq!(peer.hear().await.split(':').count(), 2);
        }
        peer.say(packet_frame(21, "last")).await;
        peer.fall_silent().await;
        tokio::time::sleep(4 * SECOND).await;
        assert_eq!(peer.hear_out().await, ["packet 21: last"]);
    });
}

#[test]
fn buffered_stream_output_is_flushed_before_the_end() {
    for words in ["half-close", "bye", "close by handle", "shutdown"] {
        in_virtual_time(async {
            let server = server(Script::new()).without_listener();
            let (ours, theirs) = tokio::io::duplex(64);
            server.attach(BufStream::with_capacity(1000, 100_000, theirs));
            let mut peer = Peer::over(ours, describe);
            let large = words.repeat(1000);
            let connection = only_connection(&server).await;
            match words {
                "bye" => {
                    peer.say(packet_frame(1, "hi")).await;
                    connection.send(packet(1, large.clone())).await.unwrap();
                    peer.say(packet_frame(1, "bye")).await;
                }
                _ => {
                    for chunk in packet_frame(1, &large).chunks(50) {
                        peer.say(chunk).await;
                    }
                }
            }
            settle().await;
            let mut shutdown = None;
            match words {
                "half-close" => peer.fall_silent().await,
                "close by handle" => connection.close(),
                "shutdown" => shutdown = Some(tokio::spawn(server.shutdown(60 * SECOND))),
                _ => {}
            }
            tokio::time::sleep(3 * SECOND).await;
            assert!(peer.hear_out().await.contains(&format!("packet 1: {} bytes", large.len())), "{words}");
            drop(peer);
            connection.closed().await;
            drop(shutdown);
        });
    }
}

#[test]
fn packets_of_a_disconnected_peer_are_still_handled() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all((1..=3).map(|id| packet_frame(id, "nothing"))).await;
        drop(peer);
        settle().await;
        assert_eq!(script.log.take(), ["opened", "packet 1", "packet 2", "packet 3", "closed: Peer"]);
    });
}

// Shutdowns

#[test]
fn shutdown_waits_for_handlers_and_sends_their_replies() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let mut peers = [peer_of(&server), peer_of(&server)];
            peers[0].say_all([packet_frame(1, "hi"), packet_frame(2, "wait"), packet_frame(3, "wait")]).await;
            settle().await;
            let since = Instant::now();
            let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
            assert_eq!(peers[1].hear_out().await, [""; 0], "an idle connection closes at once");
            assert_eq!(peers[0].hear().await, "packet 1: hi");
            peers[0].say_all([packet_frame(4, "too late"), stream_frame(7, "hi")]).await;
            let refused = ["packet 4: Draining", "stream 7: refused", "stream 7 closed"];
            assert_eq!(peers[0].hear_times(3).await, refused, "{dispatch:?}");
            tokio::time::sleep(10 * SECOND).await;
            script.gate.open(2);
            let mut heard = peers[0].hear_out().await;
            heard.sort();
            assert_eq!(heard, ["packet 2: wait", "packet 3: wait"], "{dispatch:?}");
            drop(peers);
            assert_eq!(shutdown.await.unwrap(), 0);
            assert!(since.elapsed() < 12 * SECOND);
            let log = script.log.take();
            assert!(!log.contains(&"packet 4".into()), "{dispatch:?} {log:?}");
            assert_eq!(log.iter().filter(|line| *line == "closed: Shutdown").count(), 2);
        });
    }
}

#[test]
fn shutdown_answers_packets_received_even_in_part() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let server = server(Script::new()).dispatch(dispatch).without_listener();
            let (mut whole, mut part) = (peer_of(&server), peer_of(&server));
            settle().await;
            whole.say(packet_frame(1, "hi")).await;
            let bytes = packet_frame(2, "hi");
            let (first, rest) = bytes.split_at(bytes.len() - 1);
            part.say(first).await;
            let peers = async {
                assert_eq!(whole.hear_out().await, ["packet 1: Draining"], "{dispatch:?}");
                drop(whole);
                part.say(rest).await;
                assert_eq!(part.hear_out().await, ["packet 2: Draining"], "{dispatch:?}");
                drop(part);
            };
            assert_eq!(tokio::join!(server.shutdown(60 * SECOND), peers).0, 0);
        });
    }
}

#[test]
fn shutdown_does_not_wait_for_stalled_partial_packets() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let (mut part, mut busy) = (peer_of(&server), peer_of(&server));
        let bytes = packet_frame(2, "hi");
        let first = &bytes[..bytes.len() - 1];
        part.say(first).await;
        // One whose handler runs keeps its connection until that is done.
        busy.say([&packet_frame(1, "wait")[..], first].concat()).await;
        settle().await;
        let since = Instant::now();
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        assert!(part.hear_out().await.is_empty());
        assert_elapsed(since, SECOND);
        drop(part);
        sleep(4 * SECOND).await;
        assert!(!shutdown.is_finished());
        script.gate.open(1);
        assert_eq!(busy.hear_out().await, ["packet 1: wait"]);
        drop(busy);
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_elapsed(since, 6 * SECOND);
    });
}

#[test]
fn reading_pauses_when_refusals_are_not_read() {
    in_virtual_time(async {
        let config = Config { outbox_len_max: 1000, write_stall_max: 60 * SECOND, ..quiet() };
        let server = Server::builder(Script::new()).config(config).without_listener();
        let mut peer = peer_with_buffer(&server, 100);
        peer.say(packet_frame(0, "wait")).await;
        settle().await;
        let connection = server.connections()[0].clone();
        let shutdown = tokio::spawn(server.shutdown(10 * SECOND));
        settle().await;
        let flood = packet_frame(1, "hi").repeat(10_000);
        assert!(timeout(SECOND, peer.say(flood)).await.is_err());
        assert!(connection.metrics().outbox_len < 2000, "{:?}", connection.metrics());
        assert_eq!(shutdown.await.unwrap(), 1);
    });
}

#[test]
fn shutdown_aborts_handlers_at_its_deadline_and_counts_them() {
    for dispatch in dispatches() {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(dispatch).without_listener();
            let (mut hanging, mut deaf) = (peer_of(&server), peer_with_buffer(&server, 64));
            let (mut idle, mut streaming) = (peer_of(&server), peer_of(&server));
            settle().await;
            hanging.say(packet_frame(1, "wait")).await;
            let connections = server.connections();
            connections[1].try_send(packet(2, zeros(1000))).unwrap();
            deaf.say(packet_frame(3, "hi")).await;
            streaming.say(stream_frame(7, "wait")).await;
            settle().await;
            let since = Instant::now();
            let shutdown = tokio::spawn(server.shutdown(2 * SECOND));
            assert_eq!(idle.hear().await, "end");
            drop(idle);
            assert_eq!(shutdown.await.unwrap(), 3, "{dispatch:?}");
            assert_elapsed(since, 2 * SECOND);
            assert_eq!(hanging.hear().await, "end");
            for connection in connections {
                assert!(matches!(connection.closed().await, CloseReason::Shutdown));
            }
            assert_eq!(script.running(), 0);
        });
    }
}

#[test]
fn shutdown_rejects_new_connections() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).bind("mem:shutdown-refuses").await.unwrap();
        let connection = client(()).connect(server.local_addr()).await.unwrap();
        connection.send(packet(1, "wait")).await.unwrap();
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(60 * SECOND));
        settle().await;
        let late = client(())
            .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
            .connect("mem:shutdown-refuses")
            .await
            .unwrap_err();
        assert_eq!(late.kind(), std::io::ErrorKind::ConnectionRefused);
        script.gate.open(1);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}

#[test]
fn an_address_is_free_when_shutdown_returns() {
    in_virtual_time(async {
        for _ in 0..3 {
            let server = server(()).bind("mem:free-again").await.unwrap();
            assert_eq!(server.shutdown(SECOND).await, 0);
        }
        for _ in 0..3 {
            let server = server(()).bind("mem:free-again").await.unwrap();
            drop(server);
            settle().await;
        }
    });
}

#[test]
fn an_address_in_use_is_named() {
    in_virtual_time(async {
        let _server = server(()).bind("mem:in-use").await.unwrap();
        let error = server(()).bind("mem:in-use").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("mem:in-use"), "{error}");
    });
}

#[test]
fn connections_past_the_limit_are_closed_immediately() {
    in_virtual_time(async {
        let server = server(Script::new())
            .limits(ServerLimits { connections_max: 2, ..ServerLimits::default() })
            .without_listener();
        let (mut first, mut second, mut third) = (peer_of(&server), peer_of(&server), peer_of(&server));
        assert_eq!(third.hear().await, "end");
        for peer in [&mut first, &mut second] {
            peer.say(packet_frame(1, "hi")).await;
            assert_eq!(peer.hear().await, "packet 1: hi");
        }
        let metrics = server.metrics();
        assert_eq!((metrics.connections, metrics.accepted, metrics.refused), (2, 3, 1));
        drop(first);
        settle().await;
        let mut fourth = peer_of(&server);
        fourth.say(packet_frame(1, "hi")).await;
        assert_eq!(fourth.hear().await, "packet 1: hi");
    });
}

#[test]
fn end_of_input_within_a_packet_is_an_error() {
    in_virtual_time(async {
        let whole = packet_frame(1, "hello");
        for len in 0..=2 * whole.len() {
            let (connection, mut peer) = peer_of_client(&client(())).await;
            peer.say(&[&whole[..], &whole[..]].concat()[..len]).await;
            drop(peer);
            match connection.closed().await {
                CloseReason::Peer => assert_eq!(len % whole.len(), 0),
                CloseReason::Truncated => assert_ne!(len % whole.len(), 0),
                reason => panic!("{reason:?} after {len} bytes"),
            }
        }
    });
}

// Connecting

#[test]
fn clients_retry_until_a_server_listens() {
    in_virtual_time(async {
        let connecting = tokio::spawn(async {
            client(()).retry(ConnectRetry { pause: SECOND, attempts: 4 }).connect("mem:comes-later").await.unwrap()
        });
        // The second attempt comes within a second, the third within three.
        tokio::time::sleep(SECOND + MILLI).await;
        let server = server(Script::new()).bind("mem:comes-later").await.unwrap();
        let connection = connecting.await.unwrap();
        assert_eq!(connection.peer_addr(), server.local_addr());
        assert_eq!(only_connection(&server).await.local_addr(), server.local_addr());
    });
}

#[test]
fn clients_give_up_after_the_last_attempt() {
    in_virtual_time(async {
        for (attempts, pauses) in [(0, 0), (1, 0), (2, 1), (4, 7)] {
            let since = Instant::now();
            let client = client(()).retry(ConnectRetry { pause: SECOND, attempts });
            let error = client.connect("mem:nobody-there").await.unwrap_err();
            // Up to half of each pause is left out at random.
            let elapsed = since.elapsed();
            assert!((pauses * SECOND / 2..=pauses * SECOND + 5 * MILLI).contains(&elapsed), "{elapsed:?}");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
            let text = error.to_string();
            assert!(text.contains(&format!("mem:nobody-there (attempts: {})", attempts.max(1))), "{text}");
        }
    });
}

#[test]
fn permanent_errors_are_not_retried() {
    in_virtual_time(async {
        for (address, attempts) in [
            ("no-such-host.invalid:80", 1),
            ("unix:/no/such/file.sock", 2),
            ("unix:/dev/null/file.sock", 2),
            ("mem:nobody-there", 2),
        ] {
            let error = client(())
                .retry(ConnectRetry { attempts: 2, ..ConnectRetry::default() })
                .connect(address)
                .await
                .unwrap_err();
            assert_eq!((error.attempts(), error.is_final()), (attempts, attempts == 1), "{error}");
        }
        let error = client(()).connect(format!("unix:/{}", "x".repeat(1000))).await.unwrap_err();
        assert!(error.is_final() && error.attempts() == 1, "{error}");
    });
}

#[test]
fn invalid_addresses_are_rejected_without_an_attempt() {
    in_virtual_time(async {
        let error = Client::new(()).connect("nonsense").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let error = Server::builder(()).bind("nonsense").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    });
}

#[test]
fn closing_inside_a_handler_flushes_sent_packets() {
    struct Closer;
    impl Router for Closer {
        async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
            connection.send(packet).await.unwrap();
            connection.close();
            Outcome::Nothing
        }
    }
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned, limited(1)] {
        in_virtual_time(async {
            let server = server(Closer).dispatch(dispatch).config(Config { linger_max: MILLI, ..quiet() });
            let server = server.without_listener();
            let mut peer = peer_of(&server);
            peer.say(packet_frame(1, "hi")).await;
            assert_eq!(peer.hear_out().await, ["packet 1: hi"]);
        });
    }
}

#[test]
fn simultaneous_closes_end_both_sides() {
    in_virtual_time(async {
        let server = server(()).without_listener();
        let connection = crate::scripts::connected(client(()), &server).await;
        let other = only_connection(&server).await;
        connection.close();
        other.close();
        for handle in [connection, other] {
            let reason = timeout(MILLI, handle.closed()).await.expect("nobody waits for the other");
            assert!(matches!(reason, CloseReason::Local), "{reason:?}");
        }
    });
}

#[test]
fn shutdown_accepts_an_unlimited_duration() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say(packet_frame(1, "wait")).await;
        only_connection(&server).await;
        settle().await;
        let shutdown = tokio::spawn(server.shutdown(std::time::Duration::MAX));
        settle().await;
        assert!(!shutdown.is_finished());
        script.gate.open(1);
        assert_eq!(peer.hear_out().await, ["packet 1: wait"]);
        drop(peer);
        assert_eq!(shutdown.await.unwrap(), 0);
    });
}
