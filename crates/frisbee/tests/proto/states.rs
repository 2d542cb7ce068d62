//! Every state with every call and every event, how a connection begins and ends, and how streams do.

use std::mem;

use bytes::Buf;
use frisbee::{
    CloseReason, Config, Content, ProtocolError, StreamSendError,
    proto::{Connection, HeaderFormat, InputEvent, OpenError, Role, StreamEnd, StreamKey, Transmit},
};

use crate::pair::{FORMATS, Pair, SECOND, Side, frame, head, packet, packet_bytes, ping, quiet, stream, zeros};

// The table

#[test]
fn every_state_handles_every_call_and_event() {
    let mut table = row("", &STATES.map(str::to_owned));
    for (call, act) in CALLS {
        table += &row(call, &STATES.map(|state| outcome(state, *act)));
    }
    assert!(table == TABLE.trim_start_matches('\n'), "the table is now:\n{table}");
}

/// The answers, the words said because of them, and where the connection stands then if not where it stood.
const TABLE: &str = r"
                    open                       draining                   finishing           closed
send                ok, “packet 1: hi”         ok, “packet 1: hi”         Closed              Closed
send_on             ok, “stream 7: hi”         ok, “stream 7: hi”         ConnectionClosed    ConnectionClosed
open_stream         ok                         ok                         ConnectionClosed    ConnectionClosed
open with a free id ok                         ok                         ConnectionClosed    ConnectionClosed
open with a used id IdInUse                    IdInUse                    ConnectionClosed    ConnectionClosed
read_from           1, ok                      1, ok                      1, ConnectionClosed 1, ConnectionClosed
close_stream        Closed, “stream 7 closed”  Closed, “stream 7 closed”  ConnectionClosed    ConnectionClosed
release_stream      0 held, “stream 7 closed”  0 held, “stream 7 closed”  0 held              0 held
drain               → draining                 -                          -                   -
finish              → Shutdown                 → Shutdown                 -                   -
fail                → Shutdown                 → Shutdown                 → Shutdown          -
packet              packet 1                   packet 1                   not taken           not taken
new stream          8 opened                   8 opened                   not taken           not taken
data of a stream    7 readable                 7 readable                 not taken           not taken
close of a stream   7 readable                 7 readable                 not taken           not taken
close of no stream  taken                      taken                      not taken           not taken
PING                taken, “PONG”              taken, “PONG”              not taken           not taken
PONG                taken                      taken                      not taken           not taken
reserved            dropped                    dropped                    not taken           not taken
nonsense            not taken, → Protocol      not taken, → Protocol      not taken           not taken
tick                “PING”                     “PING”                     -                   -
silence             → Silent                   → Silent                   -                   -
";

type Act = fn(&mut Side, StreamKey) -> String;

const CALLS: &[(&str, Act)] = &[
    ("send", |side, _| done(side.send(packet(1, "hi")))),
    ("send_on", |side, key| done(side.send_on(key, "hi".into()))),
    ("open_stream", |side, _| done(side.open_stream())),
    ("open with a free id", |side, _| done(side.open_stream_with_id(8))),
    ("open with a used id", |side, _| done(side.open_stream_with_id(7))),
    ("read_from", |side, key| format!("{}, {}", side.read_all(key).0.len(), done(side.read_from(key)))),
    ("close_stream", |side, key| {
        side.close_stream(key);
        side.stream_ended(key).map_or("open".into(), |end| format!("{end:?}"))
    }),
    ("release_stream", |side, key| {
        side.release_stream(key);
        format!("{} held", side.streams_len())
    }),
    ("drain", |side, _| {
        side.drain(CloseReason::Shutdown);
        String::new()
    }),
    ("finish", |side, _| {
        side.finish(CloseReason::Shutdown);
        String::new()
    }),
    ("fail", |side, _| {
        side.fail(CloseReason::Shutdown);
        String::new()
    }),
    ("packet", |side, _| hear(side, &packet_bytes(1, "hi"))),
    ("new stream", |side, _| hear(side, &stream(8, "hi"))),
    ("data of a stream", |side, _| hear(side, &stream(7, "hi"))),
    ("close of a stream", |side, _| hear(side, &stream(7, ""))),
    ("close of no stream", |side, _| hear(side, &stream(8, ""))),
    ("PING", |side, _| hear(side, &ping())),
    ("PONG", |side, _| hear(side, &frame(0, 1, b""))),
    ("reserved", |side, _| hear(side, &frame(0, 5, b"x"))),
    ("nonsense", |side, _| hear(side, b"GET")),
    ("tick", |side, _| wait(side, 1)),
    ("silence", |side, _| wait(side, 5)),
];

const STATES: [&str; 4] = ["open", "draining", "finishing", "closed"];

/// A side in this state, with stream 7 open until then and one content in it. Finishing has a packet left to write.
fn in_state(state: &str) -> (Side, StreamKey) {
    let mut side = Side::server(Config { ping_interval: Some(SECOND), ..Config::default() });
    side.hear(&stream(7, "queued"));
    let key = side.opened();
    match state {
        "draining" => side.drain(CloseReason::Shutdown),
        "finishing" => {
            side.send(packet(99, "left")).expect("open");
            side.finish(CloseReason::Local);
        }
        "closed" => side.finish(CloseReason::Local),
        _ => {}
    }
    (side, key)
}

fn outcome(state: &str, act: Act) -> String {
    let (mut side, key) = in_state(state);
    let before = side.state();
    let mut parts = vec![act(&mut side, key)];
    let after = side.state();
    let said = side.say().into_iter().filter(|said| said != "packet 99: left");
    parts.extend(said.map(|said| format!("“{said}”")));
    if let Some(reason) = side.closed().filter(|_| after != before) {
        let reason = format!("{reason:?}");
        parts.push(format!("→ {}", reason.split(['(', ' ']).next().unwrap_or_default()));
    } else if after != before {
        parts.push(format!("→ {after}"));
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

fn row(call: &str, outcomes: &[String; 4]) -> String {
    let [open, draining, finishing, closed] = outcomes;
    format!("{call:<20}{open:<27}{draining:<27}{finishing:<20}{closed}").trim_end().to_owned() + "\n"
}

fn done<T, E: std::fmt::Debug>(result: Result<T, E>) -> String {
    let innermost = |error| format!("{error:?}").rsplit('(').next().map(|name| name.trim_end_matches(')').to_owned());
    result.map_or_else(|error| innermost(error).unwrap_or_default(), |_| "ok".into())
}

fn hear(side: &mut Side, bytes: &[u8]) -> String {
    let before = side.counters();
    side.hear(bytes);
    let after = side.counters();
    match side.events().as_slice() {
        [InputEvent::Packet(packet)] => format!("packet {}", packet.id),
        [InputEvent::StreamOpened(key)] => format!("{} opened", side.stream_id(*key)),
        [InputEvent::StreamReadable(key)] => format!("{} readable", side.stream_id(*key)),
        _ if after.dropped > before.dropped => "dropped".into(),
        _ if after.streams_refused > before.streams_refused => "refused".into(),
        _ if after.packets_in == before.packets_in && side.inbox == bytes => "not taken".into(),
        _ => "taken".into(),
    }
}

fn wait(side: &mut Side, seconds: u32) -> String {
    let now = side.now + seconds * SECOND;
    side.handle_timeout(now);
    String::new()
}

// The end

#[test]
fn the_first_close_reason_stays_unless_finishing_fails() {
    let check = |queued: bool, ends: [fn(&mut Connection); 2], expected: &str| {
        let mut side = Side::client(quiet());
        if queued {
            side.send(packet(1, "hi")).unwrap();
        }
        ends.iter().for_each(|end| end(&mut side));
        side.write();
        assert_eq!(side.closed().map(ToString::to_string).as_deref(), Some(expected));
    };
    let finish_local: fn(&mut Connection) = |connection| connection.finish(CloseReason::Local);
    let finish_peer: fn(&mut Connection) = |connection| connection.finish(CloseReason::Peer);
    let fail_peer: fn(&mut Connection) = |connection| connection.fail(CloseReason::Peer);
    let fail_local: fn(&mut Connection) = |connection| connection.fail(CloseReason::Local);
    for queued in [false, true] {
        check(queued, [finish_local, finish_peer], "closed by this side");
        check(queued, [fail_local, finish_peer], "closed by this side");
        check(queued, [fail_local, fail_peer], "closed by this side");
    }
    check(false, [finish_local, fail_peer], "closed by this side");
    check(true, [finish_local, fail_peer], "closed by the peer");
}

#[test]
fn packets_sent_before_finish_arrive_in_order() {
    let lens = [0, 1, 4095, 4096, 70_000, 300_000, 0, 5];
    for (room, piece) in [(usize::MAX, usize::MAX), (1000, 1), (7777, 4096)] {
        let mut pair = Pair::new(quiet());
        pair.piece = piece;
        for (id, len) in (0..).zip(lens) {
            pair.client.send(packet(id, zeros(len))).unwrap();
        }
        pair.client.finish(CloseReason::Local);
        assert_eq!(pair.client.state(), "finishing");
        while pair.client.closed().is_none() {
            pair.client.room = room;
            pair.exchange();
        }
        let expected: Vec<InputEvent> =
            (0..).zip(lens).map(|(id, len)| InputEvent::Packet(packet(id, zeros(len)))).collect();
        assert!(pair.server.events() == expected, "room {room}, piece {piece}");
        assert_eq!((pair.client.state().as_str(), pair.client.queued_len()), ("closed: closed by this side", 0));
        assert_eq!(pair.client.progress(), (8, 8));
    }
}

#[test]
fn a_failed_connection_has_no_output_and_no_deadline() {
    for fail in [|side: &mut Side| side.fail(CloseReason::Local), |side: &mut Side| side.hear(b"GET")] {
        let mut side = Side::server(Config::default());
        side.send(packet(1, "lost")).unwrap();
        side.hear(&ping());
        fail(&mut side);
        let now = side.now;
        assert!(!side.poll_transmit(now, &mut Transmit::default()));
        assert_eq!((side.has_output(), side.poll_timeout()), (false, None));
    }
}

#[test]
fn a_finished_connection_with_unread_stream_data_has_no_deadline() {
    let mut side = Side::server(quiet());
    side.hear(&stream(9, "unread"));
    side.opened();
    assert!(side.poll_timeout().is_some(), "unread data must not pin the read buffer for long");
    side.finish(CloseReason::Local);
    assert_eq!((side.state().as_str(), side.poll_timeout()), ("closed: closed by this side", None));
}

#[test]
fn failure_during_a_write_clears_its_deadline() {
    let mut side = Side::client(Config::default());
    side.send(packet(1, "cut short")).unwrap();
    side.room = 3;
    side.write();
    side.fail(CloseReason::Local);
    side.room = 3;
    side.write();
    assert_eq!(side.poll_timeout(), None);
}

#[test]
fn progress_never_decreases() {
    let mut side = Side::client(quiet());
    for id in 0..8 {
        side.send(packet(id, zeros(300_000))).unwrap();
        if id == 3 {
            side.write();
        }
    }
    assert_eq!(side.progress(), (8, 4));
    let (now, mut batch) = (side.now, Transmit::default());
    assert!(side.poll_transmit(now, &mut batch));
    let len = batch.remaining();
    side.handle_written(now, len, &mut batch);
    assert!(side.progress().1 >= 4, "{} packets were written before", side.progress().1);
}

// Heartbeats

#[test]
fn pongs_precede_queued_data_and_never_split_a_frame() {
    for (first, queued) in [(500, 500), (5000, 500), (500, 5000), (5000, 5000)] {
        let mut side = Side::server(quiet());
        side.send(packet(1, zeros(first))).unwrap();
        for room in [1, first] {
            side.room = room;
            side.write();
            side.send(packet(2, zeros(queued))).unwrap();
            side.hear(&ping());
        }
        side.room = usize::MAX;
        let [first, queued] = [format!("packet 1: {first} bytes"), format!("packet 2: {queued} bytes")];
        assert_eq!(side.say(), [&first, "PONG", "PONG", &queued, &queued]);
    }
}

#[test]
fn a_batch_filled_by_a_header_still_holds_its_content() {
    let mut side = Side::server(quiet());
    for (id, len) in [(1, 262_000), (2, 500), (3, 5000)] {
        side.send(packet(id, zeros(len))).unwrap();
    }
    side.room = 1;
    side.write();
    side.hear(&ping());
    side.room = usize::MAX;
    assert_eq!(side.say(), ["packet 1: 262000 bytes", "packet 2: 500 bytes", "packet 3: 5000 bytes", "PONG"]);
}

#[test]
fn a_heartbeat_with_content_is_fatal_and_unanswered() {
    for operation in [0, 1] {
        let mut side = Side::server(quiet());
        side.hear(&head(0, operation, 1));
        let reason = CloseReason::Protocol(ProtocolError::HeartbeatWithContent { announced: 1 });
        assert_eq!(side.state(), format!("closed: {reason}"));
        assert_eq!(side.say(), [""; 0]);
    }
}

// The format

#[test]
fn an_accepting_side_is_silent_before_two_bytes() {
    for format in FORMATS {
        let mut side = Side::new(Role::Server, Config { ping_interval: Some(SECOND), ..Config::default() });
        let key = side.open_stream().unwrap();
        side.send(packet(1, "hello")).unwrap();
        side.send_on(key, "there".into()).unwrap();
        side.advance(2 * SECOND);
        assert_eq!((side.say(), side.format(), side.has_output()), (vec![], None, true));
        let bytes = encoded(format, &packet_bytes(1, "hi"));
        side.hear(&bytes[..1]);
        assert_eq!((side.say(), side.format()), (vec![], None));
        side.hear(&bytes[1..]);
        assert_eq!(side.format(), Some(format));
        assert_eq!(side.say(), ["PING", "packet 1: hello", "stream 32768: there"]);
        assert_eq!((side.queued_len(), side.progress()), (0, (2, 2)));
    }
}

#[test]
fn an_accepting_side_speaks_after_two_bytes() {
    for format in FORMATS {
        let mut side = Side::new(Role::Server, quiet());
        side.send(packet(1, "hello")).unwrap();
        side.hear(&encoded(format, &packet_bytes(1, "a long upload begins"))[..2]);
        assert_eq!(side.format(), Some(format));
        assert_eq!(side.say(), ["packet 1: hello"], "{format:?}");
    }
}

#[test]
fn both_formats_work_detected_and_configured() {
    for format in FORMATS {
        for header in [None, Some(format)] {
            let plain = Config { extended: false, ..Config::default() };
            let client = Config { header: Some(format), ..plain.clone() };
            let mut pair = Pair::with(client, Config { header, ..plain });
            pair.piece = 1;
            pair.client.send(packet(1, "question")).unwrap();
            pair.server.send(packet(2, "news")).unwrap();
            pair.exchange();
            assert_eq!(pair.server.events(), [InputEvent::Packet(packet(1, "question"))]);
            assert_eq!(pair.client.events(), [InputEvent::Packet(packet(2, "news"))]);
            pair.advance(60 * SECOND);
            assert_eq!([pair.client.state(), pair.server.state()], ["open", "open"]);
        }
    }
}

#[test]
fn a_configured_side_speaks_first_in_its_own_format() {
    let mut side = Side::new(Role::Server, Config { header: Some(HeaderFormat::Plain8), ..quiet() });
    side.send(packet(1, "hi")).unwrap();
    assert_eq!(side.say(), ["packet 1: hi"]);
    let mut side = Side::server(quiet());
    side.hear(&encoded(HeaderFormat::Plain8, &packet_bytes(1, "hi")));
    assert_eq!(
        side.state().split(" instead").next(),
        Some("closed: the peer broke the protocol: packet starts with 0x0001")
    );
}

#[test]
fn packets_to_a_silent_peer_are_written_at_the_end() {
    for heard in [&[][..], &[0]] {
        let mut side = Side::new(Role::Server, quiet());
        side.send(packet(1, "bye")).unwrap();
        side.hear(heard);
        side.finish(CloseReason::Local);
        assert_eq!(side.state(), "finishing");
        side.write();
        assert_eq!(side.wire, packet_bytes(1, "bye"));
        assert_eq!(side.state(), "closed: closed by this side");
    }
    let mut side = Side::new(Role::Server, quiet());
    side.finish(CloseReason::Local);
    assert_eq!(side.state(), "closed: closed by this side", "with nothing to write there is nothing to wait for");
}

#[test]
fn final_packets_use_the_format_of_the_peer() {
    for format in FORMATS {
        let mut side = Side::new(Role::Server, quiet());
        side.send(packet(1, "bye")).unwrap();
        side.hear(&encoded(format, &ping()));
        side.finish(CloseReason::Local);
        side.write();
        let pong = frame(0, 1, b"");
        assert_eq!(side.wire, [encoded(format, &pong), encoded(format, &packet_bytes(1, "bye"))].concat());
    }
}

// Taking the bytes back

#[test]
fn undo_restores_the_bytes_of_an_unfinished_packet() {
    for format in FORMATS {
        let frames = [packet_bytes(1, "one"), stream(3, "data"), packet_bytes(2, ""), ping(), packet_bytes(4, "four")];
        let frames = frames.map(|bytes| encoded(format, &bytes));
        let input = frames.concat();
        for cut in 0..=input.len() {
            let mut side = Side::new(Role::Server, quiet());
            side.hear(&input[..cut]);
            let taken = (0..=frames.len()).map(|count| frames[..count].concat().len()).filter(|end| *end <= cut);
            let taken = taken.max().unwrap_or(0);
            let header_is_taken = cut - taken >= format.header_len();
            assert_eq!(side.content_len() > 0, header_is_taken, "{format:?} cut at {cut}");
            for _ in 0..2 {
                let mut inbox = mem::take(&mut side.inbox);
                side.undo_input([], &mut inbox);
                assert_eq!(inbox, input[taken..cut], "{format:?} cut at {cut}");
                side.inbox = inbox;
            }
            side.hear(&input[cut..]);
            assert_eq!((side.events().len(), side.say().len()), (4, 1), "nothing is lost");
        }
    }
}

#[test]
fn undo_restores_packets_without_a_handler() {
    for format in FORMATS {
        let frames = [packet_bytes(1, "one"), ping(), packet_bytes(2, ""), packet_bytes(4, "four")];
        let [one, ping, two, four] = frames.map(|bytes| encoded(format, &bytes));
        let mut side = Side::new(Role::Server, quiet());
        side.hear(&[&one[..], &ping, &two, &four[..format.header_len() + 1]].concat());
        let events = side.events().into_iter();
        let packets =
            events.map(|event| if let InputEvent::Packet(packet) = event { packet } else { panic!("{event:?}") });
        let mut inbox = mem::take(&mut side.inbox);
        side.undo_input(packets, &mut inbox);
        assert_eq!(inbox, [&one[..], &two, &four[..format.header_len() + 1]].concat());
    }
}

// Streams

#[test]
fn either_side_opens_streams_and_closes_both_directions() {
    for client_closes in [true, false] {
        let mut pair = Pair::new(quiet());
        let near = pair.client.open_stream().unwrap();
        pair.exchange();
        assert_eq!(pair.server.streams_len(), 0, "opening says nothing");
        pair.client.send_on(near, "a".into()).unwrap();
        pair.exchange();
        let far = pair.server.opened();
        pair.server.send_on(far, "b".into()).unwrap();
        pair.exchange();
        assert_eq!(pair.client.events(), [InputEvent::StreamReadable(near)]);
        let ((closer, closed), (other, ended)) = match client_closes {
            true => ((&mut pair.client, near), (&mut pair.server, far)),
            false => ((&mut pair.server, far), (&mut pair.client, near)),
        };
        closer.close_stream(closed);
        closer.close_stream(closed);
        assert_eq!(closer.say(), ["stream 1 closed"], "the peer is told once");
        other.hear(&stream(1, ""));
        assert_eq!(other.events(), [InputEvent::StreamReadable(ended)]);
        for (side, key, end) in [(closer, closed, StreamEnd::Closed), (other, ended, StreamEnd::ClosedByPeer)] {
            assert_eq!(side.send_on(key, "late".into()), Err(StreamSendError::Ended(end)));
            assert_eq!(side.read_all(key).0.len(), 1, "what came before stays readable");
            assert_eq!(side.read_from(key), Err(end));
            side.close_stream(key);
            side.release_stream(key);
            assert_eq!((side.say(), side.streams_len()), (vec![], 0), "a close is not answered");
        }
    }
}

#[test]
fn each_side_uses_its_half_of_the_ids() {
    let mut pair = Pair::new(quiet());
    let id = |side: &mut Side| side.open_stream().map(|key| side.stream_id(key));
    assert_eq!((id(&mut pair.client), id(&mut pair.client)), (Ok(1), Ok(2)));
    assert_eq!((id(&mut pair.server), id(&mut pair.server)), (Ok(0x8000), Ok(0x8001)));
}

#[test]
fn ids_wrap_within_their_half() {
    let mut pair = Pair::new(quiet());
    for (side, half) in [(&mut pair.client, 1..=0x7fff), (&mut pair.server, 0x8000..=0xffff)] {
        for expected in half.clone().chain(half) {
            let key = side.open_stream().unwrap();
            assert_eq!(side.stream_id(key), expected);
            side.release_stream(key);
            side.write();
            side.wire.clear();
        }
    }
}

#[test]
fn an_id_opened_by_both_sides_is_one_stream() {
    let mut pair = Pair::new(quiet());
    let near = pair.client.open_stream_with_id(5).unwrap();
    let far = pair.server.open_stream_with_id(5).unwrap();
    pair.client.send_on(near, "a".into()).unwrap();
    pair.server.send_on(far, "b".into()).unwrap();
    pair.exchange();
    assert_eq!(pair.client.events(), [InputEvent::StreamReadable(near)]);
    assert_eq!(pair.server.events(), [InputEvent::StreamReadable(far)]);
    pair.client.close_stream(near);
    pair.server.close_stream(far);
    pair.exchange();
    assert_eq!(pair.client.stream_ended(near), Some(StreamEnd::Closed), "closes may cross");
    assert_eq!(pair.server.stream_ended(far), Some(StreamEnd::Closed));
    assert_eq!((pair.client.events(), pair.server.events()), (vec![], vec![]));
}

#[test]
fn an_id_can_be_reused_after_its_stream_ended() {
    let mut side = Side::client(quiet());
    let first = side.open_stream_with_id(7).unwrap();
    assert_eq!(side.open_stream_with_id(7), Err(OpenError::IdInUse));
    side.close_stream(first);
    let second = side.open_stream_with_id(7).unwrap();
    side.send_on(second, "again".into()).unwrap();
    assert_eq!(side.say(), ["stream 7 closed", "stream 7: again"]);
    side.hear(&stream(7, ""));
    assert_eq!(
        (side.stream_ended(first), side.stream_ended(second)),
        (Some(StreamEnd::Closed), Some(StreamEnd::ClosedByPeer))
    );
}

#[test]
fn data_after_a_close_opens_a_new_stream() {
    let mut side = Side::server(quiet());
    side.hear(&stream(7, "first"));
    let first = side.opened();
    side.close_stream(first);
    side.hear(&stream(7, "was under way"));
    let late = side.opened();
    assert_ne!(first, late);
    assert_eq!(side.read_all(first), (vec!["first".into()], Some(StreamEnd::Closed)));
    assert_eq!(side.read_all(late), (vec!["was under way".into()], None));
    side.release_stream(first);
    assert_eq!(side.stream_ended(late), None, "letting go of the old one does not touch the new one");
    side.release_stream(late);
    assert_eq!(side.say(), ["stream 7 closed", "stream 7 closed"]);
    assert_eq!(side.streams_len(), 0);
}

#[test]
fn deferred_closes_precede_the_next_stream_data() {
    let mut side = Side::server(quiet());
    let [first, second, third] = [3, 1, 2].map(|id| side.open_stream_with_id(id).unwrap());
    for key in [first, second] {
        side.defer_stream_close(key);
        side.send_on(key, "last".into()).unwrap();
    }
    side.close_stream(first);
    side.release_stream(second);
    assert_eq!(side.stream_ended(first), Some(StreamEnd::Closed));
    assert_eq!(side.say(), ["stream 3: last", "stream 1: last"]);
    side.send(packet(1, "hi")).unwrap();
    side.hear(&[ping(), stream(9, "new")].concat());
    assert_eq!(side.say(), ["PONG", "packet 1: hi"], "nothing but data of streams announces it");
    assert_eq!(side.send_on(first, "late".into()), Err(StreamSendError::Ended(StreamEnd::Closed)));
    assert_eq!(side.send_on(third, Content::default()), Err(StreamSendError::Empty));
    side.send_on(third, "data".into()).unwrap();
    side.send_on(third, "more".into()).unwrap();
    assert_eq!(side.say(), ["stream 1 closed", "stream 3 closed", "stream 2: data", "stream 2: more"]);
}

#[test]
fn without_closes_all_stream_ids_are_used_in_turn() {
    let mut side = Side::server(quiet());
    let mut last = None;
    for id in (0..=u16::MAX).chain(0..10) {
        side.hear(&stream(id, "question"));
        let key = side.opened();
        side.defer_stream_close(key);
        side.send_on(key, "answer".into()).unwrap();
        side.release_stream(key);
        let closed = last.replace(id).map(|last| format!("stream {last} closed"));
        assert_eq!(side.say(), closed.into_iter().chain([format!("stream {id}: answer")]).collect::<Vec<_>>());
    }
    assert_eq!((side.streams_len(), side.counters().streams_refused), (0, 0));
}

#[test]
fn deferred_closes_are_dropped_when_obsolete() {
    let mut side = Side::server(quiet());
    for id in [1, 2] {
        side.hear(&stream(id, "hi"));
        let key = side.opened();
        side.defer_stream_close(key);
        side.release_stream(key);
    }
    side.hear(&[stream(1, ""), stream(2, "again")].concat());
    let again = side.opened();
    side.send_on(again, "answer".into()).unwrap();
    assert_eq!(side.say(), ["stream 2: answer"]);
    assert_eq!((side.streams_len(), side.stream_ended(again)), (1, None));
    // One that this side opens itself is another stream to the peer, too.
    side.defer_stream_close(again);
    side.close_stream(again);
    let own = side.open_stream_with_id(2).unwrap();
    side.send_on(own, "own".into()).unwrap();
    assert_eq!(side.say(), ["stream 2 closed", "stream 2: own"]);
}

#[test]
fn a_stream_ends_once_with_one_reason() {
    type End = (StreamEnd, fn(&mut Side, StreamKey));
    let ends: [End; 3] = [
        (StreamEnd::Closed, |side, key| side.close_stream(key)),
        (StreamEnd::ClosedByPeer, |side, _| side.hear(&stream(7, ""))),
        (StreamEnd::ConnectionClosed, |side, _| side.finish(CloseReason::Local)),
    ];
    for (end, first) in ends {
        let mut side = Side::server(quiet());
        let key = side.open_stream_with_id(7).unwrap();
        first(&mut side, key);
        for (_, later) in ends {
            later(&mut side, key);
            assert_eq!(side.stream_ended(key), Some(end));
        }
    }
}

#[test]
fn empty_data_is_rejected() {
    let mut side = Side::client(quiet());
    let key = side.open_stream().unwrap();
    assert_eq!(side.send_on(key, Content::default()), Err(StreamSendError::Empty));
    assert_eq!((side.has_output(), side.stream_ended(key)), (false, None));
}

/// The same frame in this format.
fn encoded(format: HeaderFormat, magic10: &[u8]) -> Vec<u8> {
    magic10[HeaderFormat::Magic10.header_len() - format.header_len()..].to_vec()
}
