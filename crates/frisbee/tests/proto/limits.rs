//! Every limit of [`Config`] that the protocol enforces, at the limit and one past it.

use std::time::Duration;

use frisbee::{
    CloseReason, Config, ProtocolError, SendError, StreamSendError,
    proto::{InputEvent, OpenError, StreamEnd},
};

use crate::pair::{
    MILLI, OPERATION, Pair, SECOND, Side, frame, head, packet, packet_bytes, ping, quiet, stream, zeros,
};

// content_len_max

#[test]
fn content_above_the_limit_ends_the_connection_early() {
    for operation in [2, 3, 9, 10, 20, u16::MAX] {
        for (limit, discard_len_max) in [(0, 0), (1, 0), (1, 1), (100, 0), (100, 100), (100, 200)] {
            let config = || Config { content_len_max: limit, discard_len_max, ..quiet() };
            let mut side = Side::server(config());
            side.hear(&frame(1, operation, &zeros(limit as usize)));
            assert_eq!((side.state().as_str(), side.counters().too_large), ("open", 0), "{operation}, {limit}");

            let mut side = Side::server(config());
            let announced = limit.max(discard_len_max) + 1;
            side.hear(&head(1, operation, announced));
            let error = ProtocolError::ContentTooLarge { announced, limit };
            assert_eq!(side.state(), format!("closed: {}", CloseReason::Protocol(error)));
            assert_eq!(side.inbox, head(1, operation, announced), "the offending bytes stay");
        }
    }
}

// discard_len_max, discard_time_max

/// Takes at most 100 bytes, and reads past 1000.
fn discarding() -> Config {
    Config { content_len_max: 100, discard_len_max: 1000, discard_time_max: 10 * SECOND, ..quiet() }
}

#[test]
fn oversized_content_is_reported_by_header_and_discarded() {
    for announced in [101, 1000] {
        let mut side = Side::server(discarding());
        side.hear(&head(7, 20, announced));
        assert_eq!(side.events(), [InputEvent::TooLarge { id: 7, operation: OPERATION, announced }]);
        for left in (0..announced as usize).rev() {
            side.hear(b"x");
            assert_eq!((side.inbox.len(), side.content_len(), side.discard_len()), (0, 0, left));
        }
        side.hear(&packet_bytes(8, "next"));
        assert_eq!(side.events(), [InputEvent::Packet(packet(8, "next"))]);
        assert_eq!((side.state(), side.counters().too_large, side.counters().packets_in), ("open".into(), 1, 2));
    }
}

#[test]
fn discarded_content_may_be_split_anywhere() {
    let input = [
        stream(5, "first"),
        frame(1, 20, &zeros(101)),
        packet_bytes(2, "between"),
        frame(3, 20, &zeros(102)),
        frame(9, 3, &zeros(103)),
        frame(5, 2, &zeros(104)),
        ping(),
        frame(6, 2, &zeros(105)),
        stream(5, "unheard"),
        packet_bytes(4, "last"),
    ]
    .concat();
    for piece in 1..=input.len() {
        let mut side = Side::server(discarding());
        for bytes in input.chunks(piece) {
            side.hear(bytes);
            assert!(side.inbox.len() < 120, "no more is kept than an unfinished packet");
        }
        let mut events = side.events();
        let InputEvent::StreamOpened(key) = events.remove(0) else { panic!("{events:?}") };
        let expected = [
            InputEvent::TooLarge { id: 1, operation: OPERATION, announced: 101 },
            InputEvent::Packet(packet(2, "between")),
            InputEvent::TooLarge { id: 3, operation: OPERATION, announced: 102 },
            InputEvent::StreamReadable(key),
            InputEvent::Packet(packet(4, "last")),
        ];
        assert_eq!(events, expected, "pieces of {piece} bytes");
        let end = StreamEnd::TooLarge { announced: 104, limit: 100 };
        assert_eq!(side.read_all(key), (vec!["first".into()], Some(end)));
        assert_eq!(side.stream_ended(key), None, "a last word can still be sent on it");
        side.send_on(key, "last word".into()).unwrap();
        side.release_stream(key);
        assert_eq!(side.say(), ["PONG", "stream 6 closed", "stream 5: last word", "stream 5 closed"]);
        assert_eq!((side.counters().too_large, side.counters().streams_refused), (5, 1));
    }
}

#[test]
fn oversized_data_for_a_dropped_reader_is_discarded() {
    let mut side = Side::server(discarding());
    side.hear(&stream(5, "first"));
    let key = side.opened();
    side.ignore_stream(key);
    side.hear(&[frame(5, 2, &zeros(101)), stream(5, "more")].concat());
    assert_eq!((side.events(), side.read_from(key)), (vec![], Ok(None)));
    side.hear(&stream(5, ""));
    assert_eq!(side.stream_ended(key), Some(StreamEnd::ClosedByPeer));
}

#[test]
fn discarding_has_a_time_limit_while_reading() {
    let mut side = Side::server(discarding());
    side.hear(&head(1, 20, 500));
    side.advance(4 * SECOND);
    side.hear(&zeros(499));
    let now = side.now;
    side.set_reading(now, false);
    side.advance(100 * SECOND);
    let now = side.now;
    side.set_reading(now, true);
    side.advance(6 * SECOND - MILLI);
    assert_eq!(side.state(), "open");
    side.advance(MILLI);
    let error = ProtocolError::ContentTooLarge { announced: 500, limit: 100 };
    assert_eq!(side.state(), format!("closed: {}", CloseReason::Protocol(error)));
}

#[test]
fn each_discarded_content_has_its_own_time_limit() {
    let mut side = Side::server(discarding());
    for _ in 0..5 {
        side.hear(&head(1, 20, 500));
        side.advance(9 * SECOND);
        side.hear(&zeros(500));
    }
    assert_eq!(side.poll_timeout(), None);
    side.hear(&head(1, 20, 500));
    side.hear(&[zeros(500).to_vec(), head(2, 20, 100)].concat());
    assert_eq!(side.poll_timeout(), None);
    side.advance(100 * SECOND);
    assert_eq!(side.state(), "open");
}

#[test]
fn discarded_content_counts_as_traffic() {
    let config = Config { ping_interval: Some(SECOND), silence_max: Some(2 * SECOND), ..discarding() };
    let mut side = Side::server(config);
    side.hear(&head(1, 20, 500));
    for _ in 0..9 {
        side.advance(SECOND);
        assert_eq!(side.say(), ["PING"]);
        side.hear(b"x");
    }
    assert_eq!(side.state(), "open");
}

#[test]
fn discarded_content_does_not_restore_the_allowance() {
    let mut side = Side::server(Config { control_burst: 5, ..discarding() });
    for _ in 0..5 {
        side.hear(&[frame(1, 20, &zeros(101)), frame(5, 2, &zeros(101)), ping()].concat());
    }
    assert_eq!(side.state(), "open", "and costs none");
    side.hear(&ping());
    assert_eq!(side.state(), format!("closed: {}", CloseReason::Protocol(ProtocolError::ControlFlood { burst: 5 })));
}

#[test]
fn reading_pauses_when_stream_closes_pile_up() {
    let mut side = Side::server(Config { outbox_len_max: 1000, ..discarding() });
    side.room = 0;
    for id in 0..100 {
        assert!(!side.is_overrun());
        side.hear(&frame(id, 2, &zeros(101)));
    }
    assert!(side.is_overrun(), "a hundred closes of ten bytes wait");
}

#[test]
fn content_above_the_limit_is_rejected_by_the_sender() {
    let mut side = Side::client(Config { content_len_max: 100, ..quiet() });
    let key = side.open_stream().unwrap();
    let error = SendError::ContentTooLarge { len: 101, limit: 100 };
    assert_eq!(side.send(packet(1, zeros(101))), Err(error.clone()));
    let error = StreamSendError::ContentTooLarge { len: 101, limit: 100 };
    assert_eq!(side.send_on(key, zeros(101).into()), Err(error));
    assert!(!side.has_output());
    assert_eq!(side.send(packet(1, zeros(100))), Ok(()));
    assert_eq!(side.send_on(key, zeros(100).into()), Ok(()));
    assert_eq!(side.say(), ["packet 1: 100 bytes", "stream 1: 100 bytes"]);
}

// outbox_len_max

#[test]
fn a_full_outbox_counts_unwritten_bytes() {
    let mut side = Side::client(Config { outbox_len_max: 2 * (10 + 90), ..quiet() });
    side.send(packet(1, zeros(90))).unwrap();
    side.send(packet(2, zeros(89))).unwrap();
    assert_eq!((side.queued_len(), side.is_full()), (199, false));
    side.send(packet(3, "")).unwrap();
    assert_eq!((side.queued_len(), side.is_full()), (209, true));
    side.room = 9;
    side.write();
    assert_eq!((side.queued_len(), side.is_full()), (200, true), "what was handed out but not written counts");
    side.room = 1;
    side.write();
    assert_eq!((side.queued_len(), side.is_full()), (199, false));
    side.room = usize::MAX;
    assert_eq!(side.say().len(), 3);
    assert_eq!((side.queued_len(), side.has_output()), (0, false));
    assert_eq!(side.progress(), (3, 3));
}

#[test]
fn pongs_to_a_peer_with_stalled_reads_fill_the_outbox() {
    let mut side = Side::server(Config { outbox_len_max: 1000, ..quiet() });
    side.room = 0;
    for _ in 0..100 {
        assert!(!side.is_full());
        side.hear(&[ping(), packet_bytes(1, "earns the allowance back")].concat());
    }
    assert!(side.is_full(), "a hundred PONGs of ten bytes wait, {} bytes are counted", side.queued_len());
}

#[test]
fn packets_waiting_for_the_header_format_fill_the_outbox() {
    let mut side = Side::new(frisbee::proto::Role::Server, Config { outbox_len_max: 1000, ..quiet() });
    for id in 0..125 {
        side.send(packet(id, "")).unwrap();
    }
    assert!(side.is_full(), "125 headers of at least eight bytes wait, {} bytes are counted", side.queued_len());
}

// streams_max

#[test]
fn streams_are_opened_by_this_side_up_to_the_limit() {
    let mut side = Side::client(Config { streams_max: 2, ..quiet() });
    let first = side.open_stream().unwrap();
    side.open_stream_with_id(9).unwrap();
    let error = OpenError::TooManyStreams { limit: 2 };
    assert_eq!(side.open_stream(), Err(error));
    assert_eq!(side.open_stream_with_id(10), Err(error));
    side.close_stream(first);
    assert_eq!(side.open_stream(), Err(error), "an ended stream that is held counts");
    side.release_stream(first);
    assert_eq!(side.streams_len(), 1);
    assert!(side.open_stream().is_ok());
}

#[test]
fn streams_of_the_peer_past_the_limit_are_closed() {
    for limit in [0, 1, 2] {
        let mut side = Side::server(Config { streams_max: limit, ..quiet() });
        for id in 0..3 {
            side.hear(&stream(id, "hi"));
        }
        assert_eq!(side.streams_len(), limit);
        let refused: Vec<String> = (limit..3).map(|id| format!("stream {id} closed")).collect();
        assert_eq!(side.say(), refused);
        assert_eq!((side.events().len(), side.counters().streams_refused), (limit, 3 - limit as u64));
        side.hear(&stream(0, "more"));
        assert_eq!(side.events().len(), limit.min(1), "open streams go on at the limit");
    }
}

#[test]
fn deferred_closes_are_limited_by_the_stream_limit() {
    let mut side = Side::server(Config { streams_max: 2, ..quiet() });
    for id in 1..=3 {
        side.hear(&stream(id, "hi"));
        let key = side.opened();
        side.defer_stream_close(key);
        side.release_stream(key);
    }
    assert_eq!(side.say(), ["stream 3 closed"]);
    side.finish(CloseReason::Local);
    assert_eq!(side.say(), [""; 0], "a connection that ends needs none");
}

// stream_queue_len_max

#[test]
fn a_full_stream_stalls_the_connection_for_a_limited_time() {
    const COST: usize = 64;
    let config = Config { stream_queue_len_max: 2 * (COST + 5), stream_stall_max: SECOND, ..quiet() };
    let mut side = Side::server(config);
    side.hear(&[stream(1, "12345"), stream(1, "12345")].concat());
    let key = side.opened();
    assert_eq!(side.say(), [""; 0]);
    assert_eq!(side.read_from(key), Ok(Some("12345".into())), "reading makes room");
    side.hear(&stream(1, "54321"));
    assert_eq!(side.stream_ended(key), None);
    assert_eq!(side.read_all(key), (vec!["12345".into(), "54321".into()], None));

    side.hear(&[stream(1, "12345"), stream(1, "123456"), stream(2, "behind")].concat());
    assert!(side.is_stalled());
    assert_eq!(side.read_from(key), Ok(Some("12345".into())));
    assert!(!side.is_stalled(), "reading half of it is enough");
    side.hear(&[]);
    let behind = side.opened();
    assert_eq!(side.read_all(behind).0, ["behind"]);
    assert_eq!(side.read_all(key), (vec!["123456".into()], None));

    side.hear(&[stream(1, "12345"), stream(1, "123456"), stream(2, "behind")].concat());
    side.advance(999 * MILLI);
    assert_eq!((side.stream_ended(key), side.say()), (None, vec![]));
    side.advance(MILLI);
    assert_eq!(side.poll_overflowed(), Some(key));
    assert_eq!(side.say(), ["stream 1 closed"]);
    assert_eq!(side.send_on(key, "x".into()), Err(StreamSendError::Ended(StreamEnd::Overflow)));
    assert_eq!(side.read_all(key), (vec!["12345".into(), "123456".into()], Some(StreamEnd::Overflow)));
    side.hear(&[]);
    assert_eq!(side.read_all(behind).0, ["behind"]);
    assert_eq!((side.state().as_str(), side.counters().streams_refused), ("open", 1));
}

#[test]
fn a_single_packet_fits_any_stream() {
    let mut side = Side::server(Config { stream_queue_len_max: 0, ..quiet() });
    side.hear(&stream(1, "larger than nothing"));
    let key = side.opened();
    assert_eq!(side.read_all(key), (vec!["larger than nothing".into()], None));
    side.hear(&stream(1, "x"));
    assert_eq!(side.stream_ended(key), None);
}

// control_burst

#[test]
fn control_packets_beyond_the_burst_are_a_flood() {
    for (operation, content) in [(0, ""), (1, ""), (2, ""), (3, ""), (9, "skipped")] {
        let control = frame(1, operation, content.as_bytes());
        for burst in [0, 1, 5] {
            let mut side = flooded(burst, &control);
            side.hear(&control);
            let reason = CloseReason::Protocol(ProtocolError::ControlFlood { burst });
            assert_eq!(side.state(), format!("closed: {reason}"), "operation {operation}");
        }
    }
}

#[test]
fn each_packet_with_content_restores_the_allowance_by_one() {
    for earner in [packet_bytes(1, "x"), stream(1, "x")] {
        let mut side = flooded(5, &ping());
        for _ in 0..20 {
            side.hear(&[earner.clone(), ping()].concat());
        }
        assert_eq!(side.state(), "open");
        side.hear(&[ping(), ping()].concat());
        assert!(side.closed().is_some(), "no more is earned than was spent");
    }
}

#[test]
fn the_allowance_never_exceeds_the_burst() {
    for wait in [0, 1000] {
        let mut side = Side::server(Config { control_burst: 5, ..quiet() });
        for id in 0..50 {
            side.hear(&packet_bytes(id, "x"));
        }
        side.advance(wait * SECOND);
        side.hear(&ping().repeat(5));
        assert_eq!(side.state(), "open");
        side.hear(&ping());
        assert!(side.closed().is_some(), "after {wait} s");
    }
}

#[test]
fn packets_without_content_do_not_restore_the_allowance() {
    let mut side = flooded(5, &ping());
    side.hear(&[packet_bytes(1, ""), ping()].concat());
    assert!(side.closed().is_some());
}

#[test]
fn a_tenth_of_the_allowance_returns_each_second() {
    for (seconds, allowed) in [(1, 2), (3, 6), (10, 20), (100, 20)] {
        let mut side = flooded(20, &ping());
        side.advance(seconds * SECOND);
        side.hear(&ping().repeat(allowed));
        assert_eq!(side.state(), "open", "{allowed} after {seconds} s");
        side.hear(&ping());
        assert!(side.closed().is_some(), "not {allowed} + 1 after {seconds} s");
    }
}

#[test]
fn refused_streams_of_an_honest_peer_are_no_flood() {
    let client = Config { control_burst: 10, ..quiet() };
    let mut pair = Pair::with(client, Config { streams_max: 0, ..quiet() });
    let key = pair.client.open_stream().unwrap();
    for _ in 0..11 {
        pair.client.send_on(key, "sent before the close could be known".into()).unwrap();
    }
    pair.exchange();
    assert_eq!(pair.client.stream_ended(key), Some(StreamEnd::ClosedByPeer));
    assert_eq!(pair.client.state(), "open");
}

#[test]
fn closes_without_matching_data_are_a_flood() {
    let mut side = Side::server(Config { control_burst: 5, ..quiet() });
    let key = side.open_stream().unwrap();
    for _ in 0..3 {
        side.send_on(key, "x".into()).unwrap();
    }
    side.hear(&stream(1, "").repeat(3 + 5));
    assert_eq!(side.state(), "open");
    side.hear(&stream(1, ""));
    assert!(side.closed().is_some());
}

// silence_max

#[test]
fn a_silent_peer_is_dropped_exactly_at_the_limit() {
    let mut pair = Pair::new(Config { silence_max: Some(5 * SECOND), ..Config::default() });
    pair.advance(600 * SECOND);
    assert_eq!([pair.client.state(), pair.server.state()], ["open", "open"], "PINGs alone keep a connection alive");
    pair.cut_wire();
    pair.advance(5 * SECOND - MILLI);
    assert_eq!([pair.client.state(), pair.server.state()], ["open", "open"]);
    pair.advance(MILLI);
    assert!(matches!(pair.client.closed(), Some(CloseReason::Silent { limit }) if *limit == 5 * SECOND));
    assert!(matches!(pair.server.closed(), Some(CloseReason::Silent { .. })));
}

#[test]
fn any_byte_breaks_the_silence() {
    let mut side = Side::server(Config { silence_max: Some(SECOND), ..quiet() });
    for byte in packet_bytes(1, "slow") {
        side.advance(SECOND - MILLI);
        side.hear(&[byte]);
    }
    assert_eq!((side.state().as_str(), side.events().len()), ("open", 1));
    side.advance(SECOND);
    assert!(matches!(side.closed(), Some(CloseReason::Silent { .. })));
}

#[test]
fn without_a_limit_silence_is_allowed() {
    let mut side = Side::server(quiet());
    assert_eq!(side.poll_timeout(), None);
    side.advance(1_000_000 * SECOND);
    assert_eq!(side.state(), "open");
}

#[test]
fn silence_does_not_count_while_reading_is_paused() {
    let mut side = Side::server(Config { silence_max: Some(5 * SECOND), ..quiet() });
    side.advance(4 * SECOND);
    let now = side.now;
    side.set_reading(now, false);
    assert_eq!(side.poll_timeout(), None);
    side.advance(60 * SECOND);
    let now = side.now;
    side.set_reading(now, true);
    side.set_reading(now, true);
    side.advance(5 * SECOND - MILLI);
    assert_eq!(side.state(), "open");
    side.advance(MILLI);
    assert!(matches!(side.closed(), Some(CloseReason::Silent { .. })));
}

#[test]
fn bytes_read_during_a_pause_do_not_restart_the_timer() {
    let mut side = Side::server(Config { silence_max: Some(5 * SECOND), ..quiet() });
    let now = side.now;
    side.set_reading(now, false);
    side.hear(&packet_bytes(1, "was on its way"));
    side.advance(60 * SECOND);
    assert_eq!(side.state(), "open");
}

// streams_len_max

#[test]
fn data_on_many_streams_is_limited_in_total() {
    const LIMIT: usize = 1_000_000;
    let config = Config { streams_len_max: LIMIT, stream_stall_max: 10 * MILLI, ..quiet() };
    let mut side = Side::server(config);
    let content = "x".repeat(100_000);
    let mut keys = Vec::new();
    for id in 0..1024 {
        side.hear(&stream(id, &content));
        keys.push(side.opened());
        side.advance(10 * MILLI);
        assert!(!side.is_stalled());
    }
    let contents = keys.iter().map(|key| side.read_all(*key));
    let (held, ended): (Vec<_>, Vec<_>) = contents.partition(|(_, end)| end.is_none());
    let held: usize = held.iter().flat_map(|(contents, _)| contents).map(|content| content.len()).sum();
    assert!((LIMIT - content.len()..=LIMIT).contains(&held), "{held}");
    assert!(ended.iter().all(|(contents, end)| contents.is_empty() && *end == Some(StreamEnd::Overflow)));
    assert_eq!(side.counters().streams_refused, ended.len() as u64);
}

// write_stall_max

#[test]
fn a_stalled_peer_is_dropped_exactly_at_the_limit() {
    let mut side = Side::client(Config { write_stall_max: 3 * SECOND, ..quiet() });
    side.advance(10 * SECOND);
    assert_eq!(side.poll_timeout(), None, "with nothing to write, nothing stalls");
    side.room = 0;
    side.send(packet(1, "hello")).unwrap();
    side.write();
    side.advance(3 * SECOND - MILLI);
    assert_eq!(side.state(), "open");
    side.advance(MILLI);
    assert!(matches!(side.closed(), Some(CloseReason::WriteStalled { limit }) if *limit == 3 * SECOND));
    assert_eq!(side.poll_timeout(), None);
}

#[test]
fn every_written_byte_ends_a_stall() {
    let mut side = Side::client(Config { write_stall_max: SECOND, ..quiet() });
    side.room = 0;
    side.send(packet(1, "hello")).unwrap();
    side.write();
    for _ in 0..15 {
        side.advance(SECOND - MILLI);
        side.room = 1;
        side.write();
    }
    side.advance(100 * SECOND);
    assert_eq!((side.state().as_str(), side.progress()), ("open", (1, 1)));
    assert_eq!(side.say(), ["packet 1: hello"]);
}

#[test]
fn a_stall_ends_a_finishing_connection() {
    let mut side = Side::client(Config { write_stall_max: SECOND, ..quiet() });
    side.send(packet(1, "hello")).unwrap();
    side.room = 14;
    side.finish(CloseReason::Local);
    side.write();
    side.advance(SECOND - MILLI);
    assert_eq!(side.state(), "finishing");
    side.advance(MILLI);
    assert!(matches!(side.closed(), Some(CloseReason::WriteStalled { .. })));
}

// ping_interval

#[test]
fn pings_are_sent_on_the_tick_regardless_of_traffic() {
    let mut side = Side::server(Config { ping_interval: Some(SECOND), silence_max: None, ..Config::default() });
    side.advance(SECOND - MILLI);
    assert_eq!(side.say(), [""; 0]);
    side.advance(MILLI);
    assert_eq!(side.say(), ["PING"]);
    side.send(packet(1, "hi")).unwrap();
    side.advance(SECOND);
    assert_eq!(side.say(), ["packet 1: hi", "PING"]);
    side.advance(3 * SECOND);
    assert_eq!(side.say(), ["PING", "PING", "PING"]);
    side.drain(CloseReason::Shutdown);
    side.advance(SECOND);
    assert_eq!(side.say(), ["PING"], "a draining side stays alive");
    side.send(packet(2, "bye")).unwrap();
    side.room = 0;
    side.finish(CloseReason::Local);
    side.advance(3 * SECOND);
    side.room = usize::MAX;
    assert_eq!(side.say(), ["packet 2: bye"], "a finishing side does not ping");
}

#[test]
fn a_late_tick_does_not_make_up_for_missed_pings() {
    let mut side = Side::server(Config { ping_interval: Some(SECOND), silence_max: None, ..Config::default() });
    let late = side.now + 10 * SECOND + MILLI;
    side.handle_timeout(late);
    assert_eq!(side.say(), ["PING"]);
    assert!(side.poll_timeout().is_some_and(|next| late < next && next <= late + SECOND));
}

#[test]
fn without_an_interval_no_ping_is_sent() {
    let mut side = Side::server(Config { silence_max: Some(60 * SECOND), ..quiet() });
    assert_eq!(side.poll_timeout(), Some(side.now + 60 * SECOND));
    side.advance(59 * SECOND);
    assert_eq!(side.say(), [""; 0]);
}

#[test]
fn the_longest_durations_last_forever() {
    let forever = Some(Duration::MAX);
    let limits = [
        Config { ping_interval: forever, ..quiet() },
        Config { silence_max: forever, ..quiet() },
        Config { write_stall_max: Duration::MAX, ..quiet() },
    ];
    for config in limits {
        let mut side = Side::client(config);
        side.room = 0;
        side.send(packet(1, "hi")).unwrap();
        side.advance(SECOND);
        assert_eq!(side.state(), "open");
    }
}

/// A side that has just heard as many control packets as it allows.
fn flooded(burst: u32, control: &[u8]) -> Side {
    let mut side = Side::server(Config { control_burst: burst, ..quiet() });
    side.hear(&control.repeat(burst as usize));
    assert_eq!(side.state(), "open");
    side
}
