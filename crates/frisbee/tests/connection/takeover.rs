//! Taking the raw bytes back: nothing lost, nothing of frisbee behind it.

use bytes::{Bytes, BytesMut};
use frisbee::{
    CloseReason, Config, Connection, Dispatch, HeaderFormat, Outcome, Packet, Raw, Router, SendError, TrySendError,
    proto::Header,
};
use support::{
    Peer, SECOND, assert_elapsed,
    frames::{header, ping, pong, stream_frame},
    in_virtual_time, settle,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::{self, UnboundedReceiver},
    time::Instant,
};

use crate::scripts::{
    Script, client, limited, only_connection, packet, packet_frame, peer_of, peer_of_client,
    peer_of_client_with_buffer, quiet, server,
};

/// Reads so many raw bytes as text.
async fn read(io: &mut (impl AsyncReadExt + Unpin), len: usize) -> String {
    let mut bytes = vec![0; len];
    io.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Checks that bytes go both ways and nothing else is under way.
async fn check_raw(raw: &mut Raw, peer: &mut Peer) {
    raw.write_all(b"over to you").await.unwrap();
    assert_eq!(read(&mut peer.io, 11).await, "over to you");
    peer.say("and back").await;
    assert_eq!(read(raw, 8).await, "and back");
}

async fn taken(raws: &mut UnboundedReceiver<Result<Raw, CloseReason>>) -> Raw {
    raws.recv().await.unwrap().unwrap()
}

#[test]
fn takeover_from_outside_is_immediate_with_a_silent_peer() {
    for config in [quiet(), Config { extended: false, ..Config::default() }] {
        in_virtual_time(async {
            let (connection, mut peer) = peer_of_client(&client(()).config(config.clone())).await;
            settle().await;
            let since = Instant::now();
            let mut raw = connection.takeover().await.unwrap();
            assert_eq!(since.elapsed(), std::time::Duration::ZERO);
            assert!(raw.unread().is_empty());
            assert!(matches!(connection.closed().await, CloseReason::TakenOver));
            assert_eq!(raw.peer_addr(), connection.peer_addr());
            check_raw(&mut raw, &mut peer).await;
            tokio::time::sleep(60 * SECOND).await;
            check_raw(&mut raw, &mut peer).await;
            drop(raw);
            assert_eq!(peer.hear_any().await, "end");
        });
    }
}

#[test]
fn a_handler_takes_over_with_the_bytes_after_its_packet() {
    for dispatch in [Dispatch::InPlace, Dispatch::Ordered] {
        for behind in [&b"raw bytes"[..], &packet_frame(2, "looks like a packet"), &stream_frame(3, "hi"), &ping()] {
            in_virtual_time(async {
                let (script, mut raws) = Script::with_raws();
                let server = server(script.clone()).dispatch(dispatch).without_listener();
                let mut peer = peer_of(&server);
                peer.say([packet_frame(1, "take"), behind.to_vec()].concat()).await;
                let mut raw = taken(&mut raws).await;
                assert_eq!(raw.unread(), behind);
                let mut bytes = vec![0; behind.len()];
                raw.read_exact(&mut bytes).await.unwrap();
                assert_eq!(bytes, behind);
                // Again, the last first.
                let (first, last) = bytes.split_at(2);
                raw.put_back(last.to_vec());
                raw.put_back(first.to_vec());
                assert_eq!(raw.unread(), behind);
                raw.read_exact(&mut bytes).await.unwrap();
                assert_eq!(bytes, behind);
                check_raw(&mut raw, &mut peer).await;
                assert_eq!(script.log.take(), ["opened", "packet 1", "closed: TakenOver"]);
            });
        }
    }
}

#[test]
fn a_waiting_handler_takes_over_with_the_bytes_after_it() {
    let frames = [packet_frame(2, "hi"), packet_frame(3, "hi")].concat();
    let behinds =
        [b"no frame at all".to_vec(), frames.clone(), [&frames[..], b"raw"].concat(), header(2, 20, u32::MAX), vec![]];
    for behind in behinds {
        in_virtual_time(async {
            let (script, mut raws) = Script::with_raws();
            let server = server(script.clone()).dispatch(Dispatch::Ordered).without_listener();
            let mut peer = peer_of(&server);
            peer.say([packet_frame(1, "wait take"), behind.clone()].concat()).await;
            settle().await;
            script.gate.open(1);
            let mut raw = taken(&mut raws).await;
            assert_eq!(raw.unread(), &behind);
            raw.read_exact(&mut vec![0; behind.len()]).await.unwrap();
            check_raw(&mut raw, &mut peer).await;
            assert_eq!(script.log.take(), ["opened", "packet 1", "done 1", "closed: TakenOver"]);
        });
    }
}

/// Takes over, or closes, as soon as a packet that says so is there.
struct Eager(Script, mpsc::UnboundedSender<Result<Raw, CloseReason>>);

impl Router for Eager {
    fn intercept(&self, packets: &mut frisbee::Arrivals<'_>, connection: &Connection) {
        while let Some(packet) = packets.next_if(|packet| matches!(&packet.content[..], b"take" | b"close")) {
            if packet.content == "take" {
                let (raws, taking) = (self.1.clone(), connection.takeover());
                tokio::spawn(async move { raws.send(taking.await) });
            } else {
                connection.close();
            }
        }
    }

    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.0.route(packet, connection)
    }
}

#[test]
fn packets_received_with_a_takeover_are_returned() {
    let frames = [packet_frame(4, "hi"), packet_frame(5, ""), packet_frame(6, "take")].concat();
    let behinds = [frames.clone(), [&frames[..], &stream_frame(7, "hi")].concat(), [&frames[..], b"raw"].concat()];
    for behind in behinds {
        in_virtual_time(async {
            let (raws, mut taken_over) = mpsc::unbounded_channel();
            let script = Script::new();
            let server = server(Eager(script.clone(), raws)).without_listener();
            let mut peer = peer_of(&server);
            peer.say_all([packet_frame(1, "hi"), packet_frame(2, "wait"), packet_frame(3, "take"), behind.clone()])
                .await;
            assert_eq!(peer.hear().await, "packet 1: hi");
            let raw = taken(&mut taken_over).await;
            assert_eq!(raw.unread(), &behind);
            assert_eq!(script.log.take(), ["packet 1", "packet 2"]);
        });
    }
}

#[test]
fn packets_received_with_a_close_are_dropped() {
    in_virtual_time(async {
        let script = Script::new();
        let server = server(Eager(script.clone(), mpsc::unbounded_channel().0)).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all(["hi", "close", "hi", "hi"].map(|words| packet_frame(1, words))).await;
        assert_eq!(peer.hear_out().await, ["packet 1: hi"]);
        assert_eq!(script.log.take(), ["packet 1"]);
    });
}

#[test]
fn packets_sent_before_arrive_and_sending_fails_after() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client_with_buffer(&client(()).config(Config::default()), 64).await;
        for id in 1..=50 {
            connection.send(packet(id, "hi")).await.unwrap();
        }
        let taking = tokio::spawn(connection.takeover());
        assert_eq!(connection.try_send(packet(99, "late")), Err(TrySendError::Failed(SendError::Closed)));
        for id in 1..=50 {
            assert_eq!(peer.hear().await, format!("packet {id}: hi"));
        }
        let mut raw = taking.await.unwrap().unwrap();
        check_raw(&mut raw, &mut peer).await;
    });
}

#[test]
fn replies_before_arrive_and_replies_after_are_dropped() {
    in_virtual_time(async {
        let (script, mut raws) = Script::with_raws();
        let server = server(script.clone()).without_listener();
        let mut peer = peer_of(&server);
        peer.say_all([packet_frame(1, "hi"), packet_frame(2, "wait"), packet_frame(3, "take")]).await;
        assert_eq!(peer.hear().await, "packet 1: hi");
        let mut raw = taken(&mut raws).await;
        script.gate.open(1);
        settle().await;
        check_raw(&mut raw, &mut peer).await;
        let log = ["opened", "packet 1", "packet 2", "packet 3", "closed: TakenOver", "done 2"];
        assert_eq!(script.log.take(), log, "handlers under way go on");
    });
}

#[test]
fn an_incomplete_packet_is_returned_whole() {
    let frame = packet_frame(1, "0123456789");
    for len in 0..frame.len() {
        in_virtual_time(async {
            let (connection, mut peer) = peer_of_client(&client(Script::new())).await;
            peer.say(&frame[..len]).await;
            settle().await;
            let mut raw = connection.takeover().await.unwrap();
            peer.say(&frame[len..]).await;
            assert_eq!(raw.unread(), &frame[..len]);
            let mut bytes = vec![0; frame.len()];
            raw.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, frame);
            check_raw(&mut raw, &mut peer).await;
        });
    }
}

#[test]
fn a_large_incomplete_packet_is_returned_whole() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(Script::new())).await;
        let part = [header(1, 20, 1_000_000), vec![b'x'; 300_000]].concat();
        peer.say(&part).await;
        settle().await;
        assert_eq!(connection.takeover().await.unwrap().unread(), &part);
    });
}

#[test]
fn raw_bytes_begin_after_a_discarded_packet() {
    const LEN: u32 = 20_000;
    let config = Config { content_len_max: 100, discard_time_max: SECOND, ..quiet() };
    for before in [0, 1, 5_000, 19_999, 20_000] {
        in_virtual_time(async {
            let (connection, mut peer) = peer_of_client(&client(()).config(config.clone())).await;
            peer.say([header(1, 20, LEN), vec![b'x'; before]].concat()).await;
            settle().await;
            let taking = tokio::spawn(connection.takeover());
            settle().await;
            peer.say([&vec![b'x'; LEN as usize - before], &b"raw"[..]].concat()).await;
            let mut raw = taking.await.unwrap().unwrap();
            assert_eq!(read(&mut raw, 3).await, "raw");
            check_raw(&mut raw, &mut peer).await;
        });
    }
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(()).config(config)).await;
        peer.say(header(1, 20, LEN)).await;
        settle().await;
        let since = Instant::now();
        assert!(matches!(connection.takeover().await, Err(CloseReason::Io(_))));
        assert_elapsed(since, SECOND);
    });
}

#[test]
fn packets_without_a_handler_are_returned() {
    for format in [HeaderFormat::Magic10, HeaderFormat::Plain8] {
        in_virtual_time(async {
            let script = Script::new();
            let server = server(script.clone()).dispatch(Dispatch::Ordered).without_listener();
            let mut peer = peer_of(&server);
            let mut bytes = BytesMut::new();
            for (id, content) in [(1, "wait"), (2, "hi"), (3, "")] {
                Header { id, operation: 20, len: u32::try_from(content.len()).unwrap() }.encode(format, &mut bytes);
                bytes.extend_from_slice(content.as_bytes());
            }
            peer.say(&bytes).await;
            settle().await;
            let raw = only_connection(&server).await.takeover().await.unwrap();
            let first_len = format.header_len() + 4;
            assert_eq!(raw.unread(), &bytes[first_len..], "{format:?}");
        });
    }
}

#[test]
fn leading_heartbeats_are_skipped_for_any_split() {
    let front = [ping(), pong(), ping()].concat();
    let whole = [&front[..], b"raw"].concat();
    for cut in 0..=whole.len() {
        in_virtual_time(async {
            let (connection, mut peer) = peer_of_client(&client(())).await;
            let mut raw = connection.takeover().await.unwrap();
            raw.skip_heartbeats();
            peer.say(&whole[..cut]).await;
            let reading = tokio::spawn(async move { (read(&mut raw, 3).await, raw) });
            settle().await;
            peer.say(&whole[cut..]).await;
            let (text, mut raw) = reading.await.unwrap();
            assert_eq!(text, "raw", "cut at {cut}");
            peer.say(ping()).await;
            let mut bytes = vec![0; 10];
            raw.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, ping(), "only the front is skipped");
        });
    }
}

#[test]
fn heartbeats_read_before_the_takeover_are_skipped() {
    let front = [ping(), pong()].concat();
    for cut in 0..=front.len() {
        in_virtual_time(async {
            let (script, mut raws) = Script::with_raws();
            let server = server(script.clone()).without_listener();
            let mut peer = peer_of(&server);
            peer.say([&packet_frame(1, "take")[..], &front[..cut]].concat()).await;
            let mut raw = taken(&mut raws).await;
            raw.skip_heartbeats();
            peer.say([&front[cut..], b"raw"].concat()).await;
            assert_eq!(read(&mut raw, 3).await, "raw", "cut at {cut}");
        });
    }
}

#[test]
fn heartbeats_are_raw_bytes_unless_skipped() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let mut raw = connection.takeover().await.unwrap();
        peer.say(ping()).await;
        let mut bytes = vec![0; 10];
        raw.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, ping());
    });
}

#[test]
fn a_partial_heartbeat_at_the_end_is_returned() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let mut raw = connection.takeover().await.unwrap();
        raw.skip_heartbeats();
        peer.say([&ping()[..], &ping()[..4]].concat()).await;
        peer.fall_silent().await;
        let mut bytes = Vec::new();
        raw.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, ping()[..4]);
    });
}

#[test]
fn the_second_takeover_fails() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client(&client(())).await;
        let (first, second) = (connection.takeover(), connection.takeover());
        assert!(matches!(second.await, Err(CloseReason::TakenOver)));
        assert!(first.await.is_ok());
        assert!(matches!(connection.takeover().await, Err(CloseReason::TakenOver)));
    });
}

#[test]
fn a_takeover_of_a_closed_connection_fails() {
    in_virtual_time(async {
        let (connection, peer) = peer_of_client(&client(())).await;
        connection.close();
        drop(peer);
        assert!(matches!(connection.takeover().await, Err(CloseReason::Local)));
        let (connection, peer) = peer_of_client(&client(())).await;
        drop(peer);
        connection.closed().await;
        assert!(matches!(connection.takeover().await, Err(CloseReason::Peer)));
    });
}

#[test]
fn a_takeover_with_unwritable_packets_fails() {
    in_virtual_time(async {
        let (connection, _peer) = peer_of_client_with_buffer(&client(()), 64).await;
        connection.send(packet(1, Bytes::from(vec![0; 1000]))).await.unwrap();
        assert!(matches!(connection.takeover().await, Err(CloseReason::WriteStalled { .. })));
    });
}

#[test]
fn a_cancelled_takeover_ends_the_connection() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        drop(connection.takeover());
        assert_eq!(peer.hear_any().await, "end");
    });
}

#[test]
fn streams_end_with_a_takeover() {
    in_virtual_time(async {
        let (connection, mut peer) = peer_of_client(&client(())).await;
        let mut stream = connection.open_stream().unwrap();
        stream.send("hi").await.unwrap();
        assert_eq!(peer.hear().await, "stream 1: hi");
        let mut raw = connection.takeover().await.unwrap();
        assert_eq!(stream.read().await, Err(frisbee::StreamEnd::ConnectionClosed));
        drop(stream);
        check_raw(&mut raw, &mut peer).await;
    });
}

#[test]
fn taken_over_connections_release_the_handler_limit() {
    in_virtual_time(async {
        let (script, mut raws) = Script::with_raws();
        let server = server(script.clone()).dispatch(limited(2)).without_listener();
        let mut taken_over = peer_of(&server);
        taken_over.say_all([packet_frame(1, "wait"), packet_frame(2, "wait take"), packet_frame(3, "wait")]).await;
        settle().await;
        let connection: Connection = only_connection(&server).await;
        let _raw = connection.takeover().await.unwrap();
        let mut other = peer_of(&server);
        other.say_all([packet_frame(4, "hi"), packet_frame(5, "hi")]).await;
        assert!(other.hears_nothing().await, "handlers under way go on and count");
        script.gate.open(1);
        assert_eq!(other.hear_times(2).await.len(), 2);
        drop(raws.try_recv());
    });
}
