//! Large contents in pieces, with other frames in between.

use bytes::Bytes;
use frisbee::{
    CloseReason, Config, Operation, Packet, PacketName,
    proto::{InputEvent, Role, StreamEnd},
};

use crate::pair::{FORMATS, MILLI, OPERATION, Pair, SECOND, Side, frame, head, packet, packet_bytes, quiet, zeros};

fn extended() -> Config {
    Config { extended: true, outbox_len_max: usize::MAX, ..quiet() }
}

/// Two sides that know each other. What the client sends may be overtaken.
fn interleaving() -> Pair {
    let mut pair = Pair::with(extended(), extended());
    pair.client.interleave();
    pair.exchange();
    pair.client.events();
    pair.server.events();
    pair
}

/// A server that knows its peer, which takes pieces.
fn receiver(config: Config) -> Side {
    let mut server = Side::new(Role::Server, config);
    server.hear(&frame(0, 3, &[1, 1, 1, 0, 0, 0, 4, 0, 0, 0, 8]));
    server.events();
    server.say();
    server
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| at.to_be_bytes()[7] ^ at.to_be_bytes()[6]).collect()
}

/// The first piece of a content, in the ten byte layout.
fn first(id: u16, operation: u16, total: u32, bytes: &[u8]) -> Vec<u8> {
    frame(id, 5, &[&operation.to_be_bytes()[..], &total.to_be_bytes(), bytes].concat())
}

fn next(id: u16, bytes: &[u8]) -> Vec<u8> {
    frame(id, 5, bytes)
}

/// The frames that a side says, contents left out.
fn said(side: &mut Side) -> Vec<String> {
    side.say().into_iter().map(|said| said.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// Has a client send a small packet, a large one, and look at what is written behind the small one.
fn busy() -> Pair {
    let mut pair = interleaving();
    for packet in [packet(1, "small"), packet(2, pattern(MEGABYTE))] {
        pair.client.send(packet).expect("it is within every limit");
    }
    pair
}

#[test]
fn interleaved_content_arrives_for_any_split_of_its_bytes() {
    for format in FORMATS {
        for piece in [1000, 4096, usize::MAX] {
            let config = Config { header: Some(format), ..extended() };
            let mut pair = Pair::with(config.clone(), config);
            pair.piece = piece;
            pair.client.interleave();
            pair.exchange();
            pair.client.send(packet(1, "small")).unwrap();
            pair.client.send(packet(2, pattern(MEGABYTE))).unwrap();
            pair.exchange();
            let whole = [InputEvent::Packet(packet(1, "small")), InputEvent::Packet(packet(2, pattern(MEGABYTE)))];
            assert_eq!(pair.server.events()[1..], whole);
            assert_eq!(pair.server.counters().packets_in, 2 + 1 + 1 + MARKS, "HELLO, PING, two packets, and PINGs");
            assert_eq!(pair.server.counters().pieces_in, 33);
            assert_eq!((pair.client.queued_len(), pair.client.has_output()), (0, false));
            assert_eq!(pair.client.progress(), (2, 2));
        }
    }
}

#[test]
fn a_small_packet_overtakes_a_large_one_in_flight() {
    let mut pair = busy();
    let before = said(&mut pair.client);
    assert_eq!(before, ["packet 1", "reserved 2", "PING", "reserved 2", "PING"], "two pieces, to a plain ear");
    pair.client.send(packet(3, "urgent")).unwrap();
    assert_eq!(said(&mut pair.client), ["packet 3"], "the window is full of pieces");
    assert_eq!(pair.client.progress(), (3, 1), "the second packet is not written");
    assert_eq!(pair.client.attempted(), 3);
}

#[test]
fn a_large_content_is_sent_whole_without_other_traffic() {
    let mut pair = interleaving();
    pair.client.send(packet(1, zeros(MEGABYTE))).unwrap();
    pair.client.send(packet(2, zeros(MEGABYTE))).unwrap();
    assert_eq!(said(&mut pair.client), ["packet 1", "packet 2"]);
    pair.client.send(packet(3, "small")).unwrap();
    assert_eq!(said(&mut pair.client), ["packet 3"]);
    pair.client.now += SECOND - MILLI;
    pair.client.send(packet(4, zeros(MEGABYTE))).unwrap();
    assert_eq!(said(&mut pair.client)[0], "reserved 4", "it was sent lately");
    pair = interleaving();
    pair.client.send(packet(3, "small")).unwrap();
    said(&mut pair.client);
    pair.client.now += SECOND;
    pair.client.send(packet(4, zeros(MEGABYTE))).unwrap();
    assert_eq!(said(&mut pair.client), ["packet 4"]);
}

#[test]
fn small_packets_overtake_queued_large_ones_in_order() {
    let mut pair = interleaving();
    for id in [1, 2] {
        pair.client.send(packet(id, zeros(MEGABYTE))).unwrap();
    }
    pair.client.send(packet(3, "small")).unwrap();
    pair.exchange();
    let ids = |event| if let InputEvent::Packet(packet) = event { packet.id } else { panic!("{event:?}") };
    assert_eq!(pair.server.events().into_iter().map(ids).collect::<Vec<_>>(), [3, 1, 2]);
}

#[test]
fn packets_of_the_same_id_follow_the_interleaved_content() {
    let mut pair = busy();
    let name = PacketName { id: 2, operation: OPERATION };
    let now = pair.client.now;
    assert!(pair.client.cancel(now, name));
    pair.client.send(packet(2, "again")).unwrap();
    pair.client.send(packet(3, "other")).unwrap();
    pair.exchange();
    let expected = [
        InputEvent::Packet(packet(1, "small")),
        InputEvent::Packet(packet(3, "other")),
        InputEvent::Packet(packet(2, pattern(MEGABYTE))),
        InputEvent::Cancel(name),
        InputEvent::Packet(packet(2, "again")),
    ];
    assert_eq!(pair.server.events(), expected);
}

#[test]
fn stream_data_stays_in_order_and_precedes_the_close() {
    let mut pair = interleaving();
    let (large, small) = (pair.client.open_stream().unwrap(), pair.client.open_stream().unwrap());
    pair.client.send_on(small, "early".into()).unwrap();
    pair.client.send_on(large, pattern(100_000).into()).unwrap();
    pair.client.send_on(large, "behind".into()).unwrap();
    pair.client.close_stream(large);
    pair.client.send_on(small, "late".into()).unwrap();
    pair.exchange();
    let events = pair.server.events();
    let [InputEvent::StreamOpened(first), InputEvent::StreamReadable(_), InputEvent::StreamOpened(second), ..] =
        events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(pair.server.read_all(first), (vec!["early".into(), "late".into()], None));
    let contents = vec![pattern(100_000), "behind".into()];
    assert_eq!(pair.server.read_all(second), (contents, Some(StreamEnd::ClosedByPeer)));
}

#[test]
fn interleaved_data_costs_the_credit_of_one_frame() {
    let config = Config { streams_max: 1, streams_len_max: 400_000, ..extended() };
    let mut pair = Pair::with(config.clone(), config);
    pair.client.interleave();
    pair.exchange();
    let key = pair.client.open_stream().unwrap();
    pair.client.send(packet(1, "small")).unwrap();
    pair.client.send_on(key, zeros(200_000 - 64 - 1).into()).unwrap();
    assert!(pair.client.has_credit(key), "one byte is left of half of 400000");
    pair.exchange();
    let events = pair.server.events();
    let Some(InputEvent::StreamOpened(opened)) = events.last() else { panic!("{events:?}") };
    assert_eq!(pair.server.counters().pieces_in, 7);
    pair.server.read_all(*opened);
    pair.exchange();
    for _ in 0..2 {
        assert!(pair.client.has_credit(key), "all of it came back");
        pair.client.send_on(key, zeros(200_000 - 64).into()).unwrap();
        pair.exchange();
        pair.server.read_all(*opened);
        pair.exchange();
    }
}

#[test]
fn an_unanswered_ping_blocks_the_window_for_one_second() {
    let mut pair = busy();
    assert_eq!(said(&mut pair.client).len(), 1 + PER_WINDOW);
    assert!(!pair.client.has_output());
    for _ in 0..3 {
        pair.client.advance(SECOND / 2);
        pair.client.send(packet(1, "small")).unwrap();
        assert_eq!(said(&mut pair.client), ["packet 1"]);
        pair.client.advance(SECOND / 2);
        assert_eq!(said(&mut pair.client).len(), PER_WINDOW);
        assert_eq!(pair.client.state(), "open");
    }
}

#[test]
fn a_finishing_connection_writes_the_rest_without_waiting() {
    for ends in [false, true] {
        let mut pair = busy();
        pair.client.write();
        let now = pair.client.now;
        if ends {
            pair.client.handle_end(now);
        }
        pair.client.finish(CloseReason::Local);
        pair.client.write();
        assert_eq!(pair.client.state(), "closed: closed by this side");
        let wire = pair.client.wire.split();
        pair.server.hear(&wire);
        assert_eq!(pair.server.events()[1], InputEvent::Packet(packet(2, pattern(MEGABYTE))));
    }
}

#[test]
fn pongs_are_not_awaited_while_reading_is_paused() {
    let mut pair = busy();
    pair.client.write();
    assert!(!pair.client.has_output());
    let now = pair.client.now;
    pair.client.set_reading(now, false);
    assert!(pair.client.has_output());
    pair.client.write();
    assert_eq!(pair.client.queued_len(), 0);
}

#[test]
fn fast_pongs_widen_the_window() {
    let mut pair = interleaving();
    pair.client.send(packet(1, "small")).unwrap();
    for id in 2..6 {
        pair.client.send(packet(id, zeros(4 * MEGABYTE))).unwrap();
    }
    let mut flights = Vec::new();
    for _ in 0..6 {
        pair.client.write();
        let wire = pair.client.wire.split();
        flights.push(wire.len());
        pair.server.hear(&wire);
        // Each way takes a while.
        pair.client.now += MILLI * 50;
        pair.server.write();
        let back = pair.server.wire.split();
        pair.client.hear(&back);
    }
    assert!(flights[0] < 150_000, "{flights:?}");
    assert!(flights.windows(2).all(|pair| pair[0] * 3 / 2 < pair[1]), "{flights:?}");
}

#[test]
fn interleaving_requires_both_sides() {
    let plain = Config { extended: false, ..extended() };
    for (server, interleaves) in [(extended(), false), (plain, true)] {
        let mut pair = Pair::with(extended(), server);
        if interleaves {
            pair.client.interleave();
        }
        pair.exchange();
        pair.client.send(packet(2, zeros(MEGABYTE))).unwrap();
        pair.client.send(packet(1, "small")).unwrap();
        assert_eq!(said(&mut pair.client), ["packet 2", "packet 1"]);
    }
    let mut client = Side::client(extended());
    client.interleave();
    said(&mut client);
    client.hear(&frame(0, 3, &[1, 1, 1, 0, 0, 0, 4, 0, 0, 0, 7]));
    client.send(packet(2, zeros(MEGABYTE))).unwrap();
    client.send(packet(1, "small")).unwrap();
    assert_eq!(said(&mut client), ["packet 2", "packet 1"], "all features but this");
}

#[test]
fn frames_between_pieces_are_handled_before_the_content() {
    let mut server = receiver(extended());
    server.hear(&[first(7, 20, 5, b"hel"), packet_bytes(8, "small"), frame(3, 2, b"data")].concat());
    assert!(matches!(server.events()[..], [InputEvent::Packet(_), InputEvent::StreamOpened(_)]));
    assert!(server.has_pieces());
    server.hear(&next(7, b"lo"));
    assert_eq!(server.events(), [InputEvent::Packet(packet(7, "hello"))]);
    assert!(!server.has_pieces());
    server.hear(&[first(7, 4, 1, b"x"), first(9, 2, 2, b"d"), next(9, b"e")].concat());
    let events = server.events();
    assert_eq!(events[0], InputEvent::Packet(Packet::new(7, Operation::EXTENDED, "x")));
    assert!(matches!(events[1..], [InputEvent::StreamOpened(_)]));
}

#[test]
fn invalid_pieces_close_the_connection() {
    let cases = [
        (first(7, 20, 5, b""), "a PIECE frame has nothing in it"),
        (frame(7, 5, &[0, 20, 0, 0, 0]), "a PIECE frame is too short"),
        (frame(7, 5, b""), "a PIECE frame is too short"),
        (first(7, 20, 0, b"x"), "a PIECE frame goes beyond its content"),
        (first(7, 20, 2, b"xyz"), "a PIECE frame goes beyond its content"),
        (first(7, 3, 2, b"xy"), "a PIECE frame has an operation of the protocol itself"),
        (first(7, 5, 2, b"xy"), "a PIECE frame has an operation of the protocol itself"),
        ([first(7, 20, 3, b"x"), next(7, b"")].concat(), "a PIECE frame has nothing in it"),
        ([first(7, 20, 3, b"x"), next(7, b"xyz")].concat(), "a PIECE frame goes beyond its content"),
        ([first(7, 20, 3, b"x"), next(8, b"x")].concat(), "a PIECE frame has another id than the content under way"),
        (
            [first(7, 20, 3, b"x"), first(8, 20, 3, b"x")].concat(),
            "a PIECE frame has another id than the content under way",
        ),
        (first(7, 20, 2001, b"x"), "announces 2001 bytes of content, the limit is 1000"),
        ([head(7, 5, 1001), vec![0; 1001]].concat(), "a PIECE frame is too short"),
    ];
    for (bytes, why) in cases {
        let mut server = receiver(Config { content_len_max: 1000, discard_len_max: 2000, ..extended() });
        server.hear(&bytes);
        assert!(server.state().contains(why), "{} for {bytes:?}", server.state());
    }
}

#[test]
fn pieces_of_oversized_content_are_skipped() {
    let mut server = receiver(Config { content_len_max: 1000, discard_len_max: 2000, ..extended() });
    server.hear(&[first(7, 20, 1001, &[0; 501]), packet_bytes(8, "small"), next(7, &[0; 500])].concat());
    let too_large = InputEvent::TooLarge { id: 7, operation: OPERATION, announced: 1001 };
    assert_eq!(server.events(), [too_large, InputEvent::Packet(packet(8, "small"))]);
    server.hear(&[first(7, 20, 1000, &[0; 500]), next(7, &[0; 500])].concat());
    assert_eq!(server.events(), [InputEvent::Packet(packet(7, zeros(1000)))]);
    assert_eq!((server.counters().too_large, server.state()), (1, "open".into()));
    server.now += SECOND * 3600;
    let now = server.now;
    server.handle_timeout(now);
    assert_eq!(server.state(), "open", "what is read past holds up nothing");
}

#[test]
fn pieces_are_dropped_without_the_feature() {
    let mut server = Side::new(Role::Server, extended());
    server.hear(&[frame(0, 3, &[1, 1]), first(7, 20, 5, b"hello"), packet_bytes(8, "small")].concat());
    assert_eq!(server.events(), [InputEvent::Recognized, InputEvent::Packet(packet(8, "small"))]);
    assert_eq!((server.counters().dropped, server.state()), (1, "open".into()));
}

const MEGABYTE: usize = 1024 * 1024;
/// Pieces that are under way at once, and the PINGs behind them.
const PER_WINDOW: usize = 2 + 2;
/// The PINGs behind the pieces of a megabyte.
const MARKS: u64 = 33;
