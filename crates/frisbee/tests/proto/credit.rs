//! Credits of streams between extended sides: who waits for whom, and that nobody else does.

use frisbee::{
    CloseReason, Config, ProtocolError,
    proto::{Connection, Features, InputEvent, PACKET_COST, StreamEnd, StreamKey},
};

use crate::pair::{MILLI, Pair, SECOND, Side, frame, packet, packet_bytes, quiet, stream, zeros};

/// Windows of 2000 for each of two streams, and as much to lend.
fn narrow() -> Config {
    Config { extended: true, streams_max: 2, streams_len_max: 8000, ..quiet() }
}

const WINDOW: usize = 2000;

/// Two sides that know each other.
fn known(config: Config) -> Pair {
    let mut pair = Pair::with(config.clone(), config);
    pair.exchange();
    assert!(pair.client.uses(Features::CREDIT) && pair.server.uses(Features::CREDIT));
    drop((pair.client.events(), pair.server.events()));
    pair
}

/// Sends data of this length for as long as there is credit, and returns how often.
fn fill(side: &mut Connection, key: StreamKey, len: usize) -> usize {
    (0..).take_while(|_| side.has_credit(key) && side.send_on(key, zeros(len).into()).is_ok()).count()
}

/// A stream of the client, with this much data sent, and its other end.
fn opened(pair: &mut Pair, len: usize) -> (StreamKey, StreamKey) {
    let key = pair.client.open_stream().expect("there are few");
    pair.client.send_on(key, zeros(len).into()).expect("it is open");
    pair.exchange();
    (key, pair.server.opened())
}

/// The first stream that the peer opened, among other events.
fn opened_of(side: &mut Side) -> StreamKey {
    let opened = |event| if let InputEvent::StreamOpened(key) = event { Some(key) } else { None };
    side.events().into_iter().find_map(opened).expect("a stream was opened")
}

/// The HELLO of a peer that gives credits and opens streams with this window.
fn hello(window: Option<u32>) -> Vec<u8> {
    let field = |tag: u8, value: u32| [&[tag, 0, 0, 0, 4][..], &value.to_be_bytes()].concat();
    let mut content = [vec![1, 1], field(1, 1)].concat();
    content.extend(window.into_iter().flat_map(|window| field(4, window)));
    frame(0, 3, &content)
}

fn credit(id: u16, len: u32) -> Vec<u8> {
    frame(id, 3, &[&[2][..], &len.to_be_bytes()].concat())
}

/// A client with a stream, whose peer gives credits.
fn with_peer(config: Config, window: u32) -> (Side, StreamKey) {
    let mut client = Side::client(config);
    client.hear(&hello(Some(window)));
    client.say();
    assert_eq!(client.events(), [InputEvent::Recognized]);
    let key = client.open_stream().expect("there are none");
    (client, key)
}

#[test]
fn senders_wait_for_half_of_a_full_window() {
    let mut pair = known(narrow());
    let (sending, receiving) = opened(&mut pair, 1000 - PACKET_COST);
    assert_eq!(fill(&mut pair.client, sending, 1000 - PACKET_COST), 1);
    pair.exchange();
    assert!(pair.server.read_from(receiving).unwrap().is_some());
    pair.exchange();
    assert!(!pair.client.has_credit(sending), "the reader still has the first");
    assert!(pair.server.read_from(receiving).unwrap().is_some());
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::StreamWritable(sending)]);
    assert_eq!(fill(&mut pair.client, sending, 1000 - PACKET_COST), 1);
    pair.exchange();
    assert_eq!(pair.client.events(), []);
}

#[test]
fn a_frame_may_exceed_the_credit_and_the_window() {
    let mut pair = known(narrow());
    let (sending, receiving) = opened(&mut pair, 3 * WINDOW);
    assert!(!pair.client.has_credit(sending));
    assert_eq!(pair.server.read_all(receiving).0.len(), 1);
    pair.exchange();
    assert!(pair.client.has_credit(sending) && !pair.server.is_stalled());
}

#[test]
fn plain_peers_neither_wait_for_nor_receive_credit() {
    for (client, server) in [(true, false), (false, true)] {
        let of = |extended| Config { extended, stream_queue_len_max: usize::MAX, ..narrow() };
        let mut pair = Pair::with(of(client), Config { streams_len_max: 1 << 20, ..of(server) });
        let key = pair.client.open_stream().unwrap();
        for _ in 0..100 {
            assert!(pair.client.has_credit(key));
            pair.client.send_on(key, zeros(500).into()).unwrap();
        }
        pair.exchange();
        let receiving = opened_of(&mut pair.server);
        assert_eq!(pair.server.read_all(receiving).0.len(), 100);
        assert!(!pair.server.owes_credit());
        assert_eq!(pair.server.say(), [""; 0]);
    }
}

#[test]
fn data_sent_before_the_window_is_known_counts() {
    let mut pair = Pair::new(narrow());
    let key = pair.client.open_stream().unwrap();
    for _ in 0..3 {
        assert!(pair.client.has_credit(key));
        pair.client.send_on(key, zeros(1000 - PACKET_COST).into()).unwrap();
    }
    pair.exchange();
    assert!(!pair.client.has_credit(key));
    let receiving = opened_of(&mut pair.server);
    for left in [true, true, false] {
        pair.server.read_from(receiving).unwrap();
        pair.exchange();
        assert_eq!(pair.client.has_credit(key), !left, "above zero when 2 of 3 are given back");
    }
}

#[test]
fn credit_precedes_queued_packets() {
    let mut pair = known(narrow());
    let (_, receiving) = opened(&mut pair, 1000);
    pair.server.send(packet(1, "queued")).unwrap();
    pair.server.read_all(receiving);
    assert!(pair.server.has_output() && pair.server.owes_credit());
    assert_eq!(pair.server.say(), ["reserved 1", "packet 1: queued"]);
    assert!(!pair.server.has_output() && !pair.server.owes_credit());
}

#[test]
fn an_ignored_stream_blocks_nothing() {
    let mut pair = known(Config { streams_max: 100, streams_len_max: 200 * 10_000, ..narrow() });
    let slow = opened(&mut pair, 100).0;
    let others: Vec<_> = (0..20).map(|_| opened(&mut pair, 100)).collect();
    for round in 0..100 {
        fill(&mut pair.client, slow, 777);
        for &(sending, receiving) in &others {
            assert!(fill(&mut pair.client, sending, 777) > 0);
            pair.exchange();
            assert!(!pair.server.is_stalled(), "round {round}");
            pair.server.read_all(receiving);
        }
        pair.client.send(packet(1, "call")).unwrap();
        pair.exchange();
        assert!(pair.server.events().contains(&InputEvent::Packet(packet(1, "call"))));
    }
    assert!(!pair.client.has_credit(slow));
}

#[test]
fn windows_widen_for_fast_readers_only() {
    let widened = |pause| {
        let mut pair = known(narrow());
        let (sending, receiving) = opened(&mut pair, 100);
        for _ in 0..20 {
            fill(&mut pair.client, sending, 100);
            pair.advance(pause);
            pair.server.read_all(receiving);
            pair.exchange();
        }
        fill(&mut pair.client, sending, 100) * (100 + PACKET_COST)
    };
    assert!(widened(MILLI) > WINDOW);
    assert!(widened(SECOND) < WINDOW + 100 + PACKET_COST);
}

#[test]
fn readers_return_held_credit_on_peek_ignore_or_drop() {
    for way in 0..4 {
        let mut pair = known(narrow());
        let (sending, receiving) = opened(&mut pair, WINDOW);
        match way {
            0 => drop(pair.server.read_all(receiving)),
            1 => {
                pair.server.read_from(receiving).unwrap();
                pair.server.peek_at(receiving).unwrap();
            }
            2 => pair.server.ignore_stream(receiving),
            _ => {
                pair.server.read_from(receiving).unwrap();
                pair.server.ignore_stream(receiving);
            }
        }
        pair.exchange();
        assert_eq!(pair.client.events(), [InputEvent::StreamWritable(sending)], "way {way}");
    }
}

#[test]
fn credit_of_discarded_data_is_returned() {
    let mut pair = known(narrow());
    let (sending, receiving) = opened(&mut pair, 10);
    pair.server.ignore_stream(receiving);
    for _ in 0..50 {
        assert!(fill(&mut pair.client, sending, 900) > 0);
        pair.exchange();
    }
    assert_eq!(pair.server.read_from(receiving), Ok(None));
}

#[test]
fn credit_of_oversized_content_is_returned() {
    let mut server = Side::server(Config { content_len_max: 1500, ..narrow() });
    server.hear(&hello(Some(100)));
    server.hear(&stream(1, "first"));
    let key = opened_of(&mut server);
    server.hear(&frame(1, 2, &[0; 1600]));
    assert_eq!(server.say(), ["reserved 0", "reserved 1"], "a HELLO and a CREDIT");
    server.read_from(key).unwrap();
    assert_eq!(server.read_from(key), Err(StreamEnd::TooLarge { announced: 1600, limit: 1500 }));
}

#[test]
fn closes_are_not_deferred_with_flow_control() {
    let mut pair = known(narrow());
    let (sending, receiving) = opened(&mut pair, WINDOW);
    pair.server.defer_stream_close(receiving);
    pair.server.close_stream(receiving);
    assert_eq!(pair.server.say(), ["stream 1 closed"]);
    assert!(pair.client.stream_ended(sending).is_none(), "it has not heard of it");

    let mut pair = Pair::new(narrow());
    let early = pair.client.open_stream().unwrap();
    pair.client.send_on(early, zeros(10).into()).unwrap();
    pair.client.defer_stream_close(early);
    pair.client.close_stream(early);
    pair.exchange();
    let readable = |event: &InputEvent| matches!(event, InputEvent::StreamReadable(_));
    assert!(pair.server.events().iter().any(readable), "told as soon as it is known that credit is given");
}

#[test]
fn an_ended_stream_unblocks_its_sender() {
    let mut pair = known(narrow());
    let (sending, receiving) = opened(&mut pair, WINDOW);
    assert!(!pair.client.has_credit(sending));
    pair.server.close_stream(receiving);
    pair.exchange();
    assert!(pair.client.has_credit(sending), "there is nothing to wait for");
    assert!(pair.client.send_on(sending, zeros(1).into()).is_err());
}

#[test]
fn ignoring_credit_stalls_the_peer_and_ends_its_stream() {
    let mut server = Side::server(Config { stream_queue_len_max: 3000, ..narrow() });
    server.hear(&hello(Some(100)));
    server.say();
    let mut sent = 0;
    while !server.is_stalled() {
        server.hear(&frame(1, 2, &[0; 100]));
        sent += 100 + PACKET_COST;
    }
    assert!(sent > 3000 && sent < 3000 + 2 * (100 + PACKET_COST), "{sent}");
    server.hear(&packet_bytes(1, "behind"));
    let key = opened_of(&mut server);
    server.advance(100 * MILLI);
    assert_eq!(server.stream_ended(key), Some(StreamEnd::Overflow));
    server.hear(b"");
    assert_eq!(server.events(), [InputEvent::Packet(packet(1, "behind"))]);
}

#[test]
fn peers_without_a_window_are_sent_everything() {
    let mut client = Side::client(narrow());
    client.hear(&hello(None));
    let key = client.open_stream().unwrap();
    assert_eq!((0..1000).filter(|_| client.has_credit(key) && client.send_on(key, "x".into()).is_ok()).count(), 1000);
}

#[test]
fn one_credit_per_sent_data_is_free() {
    let (mut client, key) = with_peer(Config { control_burst: 3, ..narrow() }, 1 << 20);
    for _ in 0..100 {
        client.send_on(key, "x".into()).unwrap();
    }
    client.hear(&credit(1, 1).repeat(100 + 3));
    assert_eq!(client.state(), "open");
    client.hear(&credit(1, 1));
    let flood = ProtocolError::ControlFlood { burst: 3 };
    assert!(matches!(client.closed(), Some(CloseReason::Protocol(error)) if *error == flood));
}

#[test]
fn credit_for_unknown_streams_is_ignored_but_counted() {
    let (mut client, key) = with_peer(Config { control_burst: 3, ..narrow() }, 100);
    client.hear(&credit(77, u32::MAX).repeat(3));
    assert_eq!((client.state(), client.events()), ("open".into(), vec![]));
    assert_eq!(fill(&mut client, key, 1), 2);
    client.close_stream(key);
    client.hear(&credit(1, 1).repeat(2));
    assert_eq!(client.state(), "open");
    client.hear(&credit(77, 0));
    assert!(client.closed().is_some());
}

#[test]
fn credit_has_a_maximum() {
    let (mut client, key) = with_peer(narrow(), 100);
    assert_eq!(fill(&mut client, key, 36), 1);
    client.hear(&credit(1, i32::MAX as u32));
    assert_eq!((client.state(), client.events()), ("open".into(), vec![InputEvent::StreamWritable(key)]));
    client.hear(&credit(1, 1));
    assert_eq!(
        client.state(),
        "closed: the peer broke the protocol: a CREDIT frame makes a credit larger than 2147483647"
    );
}

#[test]
fn a_truncated_credit_closes_the_connection() {
    let (mut client, _) = with_peer(narrow(), 100);
    client.hear(&frame(1, 3, &[2, 0, 0, 1]));
    assert_eq!(client.state(), "closed: the peer broke the protocol: a CREDIT frame is too short");
}
