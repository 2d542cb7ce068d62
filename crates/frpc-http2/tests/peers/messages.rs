//! Whole messages received in one step, against the same frames received one by one.

use std::time::Instant;

use frpc_http2::{Field, Header, Settings};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::victim::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, Victim,
    WINDOW_UPDATE, frame, number, setting,
};

/// A step of the peer. Streams count from the newest one.
#[derive(Clone, Debug)]
enum Step {
    Message {
        head: usize,
        data: usize,
        trailers: usize,
    },
    /// A frame on a recent stream, or on the next one.
    Frame {
        kind: u8,
        flags: u8,
        back: u32,
        block: usize,
        len: usize,
    },
    Reset {
        back: u32,
    },
    Ping,
    Window(u32),
    /// SETTINGS of the peer: its window, and the size of its table.
    Settings(u16, u32),
}

/// Blocks of requests and responses, some of which change the table or are invalid.
const BLOCKS: [&[u8]; 16] = [
    &GET,
    b"\x83\x86\x84",
    // With `content-length: 5`, `te: trailers`, and an incremental `a: 1`.
    b"\x83\x86\x84\x0f\x0d\x015",
    b"\x83\x86\x84\x00\x02te\x08trailers",
    b"\x83\x86\x84\x40\x01a\x011",
    // Both: it may not fit to the data, and still changes the table once.
    b"\x83\x86\x84\x0f\x0d\x015\x40\x01a\x011",
    // The newest entry of the table, and the one before.
    b"\x83\x86\x84\xbe",
    b"\x83\x86\x84\xbf",
    b"\xbe",
    // CONNECT.
    b"\x02\x07CONNECT\x01\x01a",
    // 200, 204, 304, 103, 200 with `content-length: 5`, `grpc-status: 0`.
    b"\x88",
    b"\x89",
    b"\x8b",
    b"\x08\x03103",
    b"\x88\x0f\x0d\x015",
    b"\x00\x0bgrpc-status\x010",
];

const LENS: [usize; 7] = [0, 1, 5, 5, 300, 4096, 4097];

fn step() -> impl Strategy<Value = Step> {
    let block = || prop_oneof![3 => select(vec![1, 8, 13]), 1 => 0..BLOCKS.len()];
    let len = || select(LENS.to_vec());
    prop_oneof![
        6 => (block(), len(), block()).prop_map(|(head, data, trailers)| Step::Message { head, data, trailers }),
        3 => (select(vec![DATA, HEADERS, CONTINUATION]), select(vec![0, 1, 4, 5, 8, 0x2d]), 0u32..4, block(), len())
            .prop_map(|(kind, flags, back, block, len)| Step::Frame { kind, flags, back, block, len }),
        1 => (0u32..4).prop_map(|back| Step::Reset { back }),
        1 => Just(Step::Ping),
        1 => (1u32..70_000).prop_map(Step::Window),
        1 => (select(vec![1, 4]), 0u32..70_000).prop_map(|(id, value)| Step::Settings(id, value)),
    ]
}

/// Writes the frames of a step. `next` is the next stream.
fn wire(step: &Step, is_server: bool, next: &mut u32) -> Vec<u8> {
    let stream = |next: u32, back: u32| next.saturating_sub(2 * back).max(1);
    match *step {
        Step::Message { head, data, trailers } => {
            let id = std::mem::replace(next, *next + 2);
            let data_flags = if is_server { END_STREAM } else { 0 };
            let mut frames = frame(HEADERS, END_HEADERS, id, BLOCKS[head]);
            frames.extend(frame(DATA, data_flags, id, &vec![7; data]));
            if !is_server {
                frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, BLOCKS[trailers]));
            }
            frames
        }
        Step::Frame { kind, flags, back, block, len } => {
            let id = stream(*next, back);
            if back == 0 && kind == HEADERS {
                *next += 2;
            }
            frame(kind, flags, id, &if kind == DATA { vec![0; len] } else { BLOCKS[block].to_vec() })
        }
        Step::Reset { back } => number(RST_STREAM, stream(*next, back), 8),
        Step::Ping => frame(PING, 0, 0, &[0; 8]),
        Step::Window(len) => number(WINDOW_UPDATE, 0, len),
        Step::Settings(id, value) => setting(id, value),
    }
}

fn victim(is_server: bool, settings: &Settings, requests: usize, is_head: bool) -> Victim {
    let mut victim = if is_server { Victim::server(settings.clone()) } else { Victim::client(settings.clone()) };
    victim.response = is_server.then_some(3);
    for _ in 0..if is_server { 0 } else { requests } {
        let method = if is_head { "HEAD" } else { "POST" };
        let head = [Field::new(":method", method), Field::new(":scheme", "http"), Field::new(":path", "/")];
        // Some requests stay incomplete.
        let end = victim.side.active_streams() % 4 != 3;
        victim.side.open(Header::fields(&head), end).unwrap();
    }
    victim
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_message_in_one_step_is_the_same_as_its_frames(
        is_server: bool,
        is_head in prop::bool::weighted(0.1),
        steps in vec(step(), 1..30),
        requests in 0usize..30,
        streams_max in 1u32..20,
        connection_window in select(vec![65_535, 100_000]),
        cut in 1usize..9000,
    ) {
        let settings = Settings { streams_max, connection_window, ..Settings::default() };
        let mut victims = [(); 2].map(|()| victim(is_server, &settings, requests, is_head));
        victims[1].takes_messages = true;
        victims[1].now = victims[0].now;
        let mut next = 1;
        let wire: Vec<u8> = steps.iter().flat_map(|step| wire(step, is_server, &mut next)).collect();
        // The rest of each input arrives again with the next one.
        let mut starts = [0; 2];
        for end in (cut..wire.len() + cut).step_by(cut).map(|end| end.min(wire.len())) {
            let mut results = Vec::new();
            for (victim, start) in victims.iter_mut().zip(&mut starts) {
                let result = victim.feed_from(&wire[..end], start);
                results.push((result, victim.side.unreleased(), victim.side.active_streams(), *start));
            }
            prop_assert_eq!(&results[0], &results[1]);
            let [one, other] = &mut victims;
            prop_assert_eq!(one.output(), other.output());
            prop_assert!(one.side.frames().counts().eq(other.side.frames().counts()));
        }
    }
}

#[test]
fn a_request_is_received_in_one_step_once_it_is_whole() {
    let mut server = Victim::server(Settings::default());
    for (stream, block) in [(1, BLOCKS[1]), (3, BLOCKS[1]), (5, BLOCKS[3])] {
        let message = [frame(HEADERS, END_HEADERS, stream, block), frame(DATA, END_STREAM, stream, b"abc")].concat();
        for len in 0..message.len() {
            assert!(server.side.receive_message(&message[..len], server.now).is_none(), "{len} bytes are not all");
        }
        let received = server.side.receive_message(&message, server.now).unwrap();
        assert_eq!((received.consumed, received.stream.get(), received.data), (message.len(), stream, &b"abc"[..]));
        assert!(server.side.receive_message(&message, server.now).is_none(), "a stream begins once");
    }
}

#[test]
fn no_message_comes_before_the_settings() {
    let mut server = frpc_http2::Connection::server(Settings::default(), Instant::now());
    let message = [frame(HEADERS, END_HEADERS, 1, &GET), frame(DATA, END_STREAM, 1, b"abc")].concat();
    assert!(server.receive_message(PREFACE, Instant::now()).is_none());
    assert_eq!(server.receive(PREFACE, Instant::now()).unwrap().consumed, PREFACE.len());
    assert!(server.receive_message(&message, Instant::now()).is_none());
    assert_eq!(server.receive(&frame(SETTINGS, 0, 0, &[]), Instant::now()).unwrap().consumed, 9);
    assert!(server.receive_message(&message, Instant::now()).is_some());
}
