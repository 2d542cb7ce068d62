//! Known attacks on HTTP/2. Each ends in an error or in bounded memory; the driver of [`Victim`] checks the memory.

use frpc_http2::{ErrorCode, Settings};

use crate::victim::*;

const CALM: ErrorCode = ErrorCode::ENHANCE_YOUR_CALM;

#[test]
fn rapid_reset_is_limited_by_completed_streams() {
    let mut victim = Victim::server(Settings::default());
    let reset = |_: &mut Victim, round: u32| {
        let stream = round * 2 + 1;
        [request(stream), number(RST_STREAM, stream, 8)].concat()
    };
    assert_eq!(rounds_until_failure(&mut victim, reset), (CALM, 1000));

    // A client that completes as many streams as it resets is not limited.
    let mut victim = Victim::server(Settings { resets_max: 2, ..Default::default() });
    for round in 0..100 {
        victim.response = None;
        let stream = round * 4 + 1;
        victim.feed(&[request(stream), number(RST_STREAM, stream, 8)].concat()).unwrap();
        victim.response = Some(0);
        victim.feed(&request(stream + 2)).unwrap();
    }
}

#[test]
fn made_you_reset_is_limited_too() {
    // Each of these makes the server reset the stream of a valid request.
    let provocations: [fn(u32) -> Vec<u8>; 4] = [
        |stream| number(WINDOW_UPDATE, stream, 0),
        |stream| [number(WINDOW_UPDATE, stream, 0x7fff_ffff)].concat(),
        |stream| frame(DATA, 0, stream, b"after the end"),
        |stream| frame(PRIORITY, 0, stream, &[0; 4]),
    ];
    for provocation in provocations {
        let mut victim = Victim::server(Settings { control_frames_max: 5000, ..Default::default() });
        let attack = |_: &mut Victim, round: u32| [request(round * 2 + 1), provocation(round * 2 + 1)].concat();
        assert_eq!(rounds_until_failure(&mut victim, attack), (CALM, 1000));
    }
}

#[test]
fn malformed_and_refused_requests_are_limited() {
    let mut victim = Victim::server(Settings::default());
    let malformed = |_: &mut Victim, round: u32| frame(HEADERS, END_HEADERS | END_STREAM, round * 2 + 1, &GET[..2]);
    assert_eq!(rounds_until_failure(&mut victim, malformed), (CALM, 1000));
    let mut victim = Victim::server(Settings { streams_max: 0, ..Default::default() });
    assert_eq!(rounds_until_failure(&mut victim, |_, round| request(round * 2 + 1)), (CALM, 1000));
}

#[test]
fn a_flood_of_continuations_ends_at_the_length_of_a_block() {
    let mut victim = Victim::server(Settings::default());
    let flood = |_: &mut Victim, round| match round {
        0 => frame(HEADERS, 0, 1, &GET),
        _ => frame(CONTINUATION, 0, 1, &[0x82; 1024]),
    };
    assert_eq!(rounds_until_failure(&mut victim, flood), (CALM, 32));
    let mut victim = Victim::server(Settings::default());
    let flood = |_: &mut Victim, round| match round {
        0 => frame(HEADERS, 0, 1, &GET),
        _ => frame(CONTINUATION, 0, 1, &[]),
    };
    assert_eq!(rounds_until_failure(&mut victim, flood), (CALM, 1001));
}

#[test]
fn a_header_block_without_end_ends_in_time() {
    let mut victim = Victim::server(Settings::default());
    victim.feed(&frame(HEADERS, 0, 1, &GET)).unwrap();
    for _ in 0..9 {
        victim.pass(1).unwrap();
        victim.feed(&frame(CONTINUATION, 0, 1, &[0x20])).unwrap();
    }
    assert_eq!(victim.pass(1).unwrap_err().code, CALM);
}

#[test]
fn floods_of_control_frames_are_limited_per_second() {
    let floods: [fn() -> Vec<u8>; 6] = [
        || frame(SETTINGS, 0, 0, &[]),
        || frame(SETTINGS, ACK, 0, &[]),
        || frame(PING, 0, 0, &[7; 8]),
        || frame(PING, ACK, 0, &[7; 8]),
        || frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]),
        || frame(0xee, 0, 1, &[7; 100]),
    ];
    for flood in floods {
        // Two of the budget went to the SETTINGS of the handshake.
        let mut victim = Victim::server(Settings::default());
        assert_eq!(rounds_until_failure(&mut victim, |_, _| flood()), (CALM, 998));
        let mut victim = Victim::server(Settings::default());
        for _ in 0..10 {
            (0..998).for_each(|_| assert!(victim.feed(&flood()).is_ok()));
            victim.output();
            victim.pass(1).unwrap();
        }
    }
}

#[test]
fn values_in_settings_are_limited_like_frames() {
    let mut victim = Victim::server(Settings::default());
    let windows = |count: usize| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1].repeat(count));
    victim.feed(&windows(900)).unwrap();
    assert_eq!(victim.feed(&windows(100)).unwrap_err().code, CALM);
}

#[test]
fn a_frame_in_small_parts_is_not_handled_before_its_end() {
    for step in [1, 7, 100, 3000] {
        let padded = [&[9][..], &[b'x'; 5000], &[0; 9]].concat();
        let bytes = [
            frame(HEADERS, END_HEADERS, 1, &GET),
            frame(0xee, 0, 1, &[7; 10_000]),
            frame(DATA, 0, 1, &[b'x'; 16_384]),
            frame(DATA, 8, 1, &padded),
            frame(DATA, 0, 1, &[b'x'; 20_000]),
            frame(DATA, END_STREAM, 1, b"end"),
        ]
        .concat();
        let mut victim = Victim::server(Settings { frame_len_max: 64 << 10, ..Default::default() });
        let (mut kept, mut seen, mut calls, mut is_over) = (Vec::new(), 0, 0, false);
        for part in bytes.chunks(step) {
            if victim.side.awaits_more(&kept, part.len(), victim.now) {
                kept.extend_from_slice(part);
                let received = victim.side.receive(&kept, victim.now).unwrap();
                assert!(received.consumed == 0 && received.event.is_none(), "{step}: it would have been handled");
                continue;
            }
            calls += 1;
            kept.extend_from_slice(part);
            loop {
                let received = victim.side.receive(&kept, victim.now).unwrap();
                let consumed = received.consumed;
                let is_last = received.event.is_none();
                if let Some(frpc_http2::Event::Data { data, end, .. }) = received.event {
                    (seen, is_over) = (seen + data.len(), end);
                }
                kept.drain(..consumed);
                if is_last {
                    break;
                }
            }
            assert!(kept.len() <= 16_384, "{step}");
        }
        assert_eq!((seen, is_over), (16_384 + 5000 + 20_000 + 3, true), "{step}");
        // Frame headers, and parts of data from 4 KiB on.
        assert!(calls <= 6 * 9 + 16 || step > 1, "{step}: {calls} calls");
    }
}

#[test]
fn unread_output_pauses_the_input() {
    let mut victim = Victim::server(Settings { control_frames_max: u32::MAX, ..Default::default() });
    // A vector has up to twice the memory of its content.
    victim.memory_max = 2 << 20;
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let mut rounds = 0;
    while victim.side.wants_input() {
        victim.feed(&pings).unwrap();
        rounds += 1;
    }
    assert!(rounds < 60, "17 bytes each, up to 768 KiB");
    let memory = victim.side.memory();
    for _ in 0..100 {
        assert_eq!(victim.side.receive(&pings, victim.now).unwrap().consumed, 0);
    }
    assert_eq!(victim.side.memory(), memory);
    victim.output();
    assert!(victim.side.wants_input());
}

#[test]
fn floods_of_empty_data_are_limited_by_data() {
    let mut victim = Victim::server(Settings::default());
    victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
    assert_eq!(rounds_until_failure(&mut victim, |_, _| frame(DATA, 0, 1, &[])), (CALM, 1000));
    // Padding alone is empty as well.
    let mut victim = Victim::server(Settings::default());
    victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
    assert_eq!(rounds_until_failure(&mut victim, |_, _| frame(DATA, 8, 1, &[3, 0, 0, 0])), (CALM, 1000));
}

#[test]
fn closed_windows_hold_back_bounded_data_for_a_bounded_time() {
    // A window of a few bytes is as good as closed, also for streams that find the queue full.
    for window in [0, 100] {
        let mut victim = Victim::server(Settings::default());
        victim.memory_max = 6 << 20;
        victim.feed(&setting(4, window)).unwrap();
        for stream in 0..250 {
            let stream = stream * 2 + 1;
            victim.feed(&request(stream)).unwrap();
            let id = victim.id(stream);
            let head = [frpc_http2::Field::new(":status", "200")];
            victim.side.send_head(id, frpc_http2::Header::fields(&head), false).unwrap();
            while victim.side.send_data(id, bytes::Bytes::from_static(&[0; 16_384]), false).is_ok() {}
        }
        assert!(victim.side.memory() <= (4 << 20) + (256 << 10), "{}", victim.side.memory());
        let sent = victim.output().iter().filter(|frame| frame.0 == DATA).count();
        assert_eq!(sent, if window == 0 { 0 } else { 16 });
        victim.pass(299).unwrap();
        assert_eq!(victim.side.active_streams(), 250);
        victim.pass(1).unwrap();
        // 16 streams have queues of 256 KiB, up to 4 MiB. The others were full from the start.
        let events = victim.feed(&[]).unwrap();
        let resets = events.iter().filter(|event| matches!(event, Seen::Reset(_, ErrorCode::CANCEL))).count();
        assert_eq!(resets, 250, "a window of {window}");
    }
}

#[test]
fn a_stalled_stream_needs_progress_and_not_single_bytes() {
    for (window, is_reset) in [(100, true), (40_000, false)] {
        let mut victim = Victim::server(Settings::default());
        victim.response = Some(1_000_000);
        victim.feed(&[setting(4, 0), request(1)].concat()).unwrap();
        victim.output();
        victim.pass(200).unwrap();
        victim.feed(&frame(WINDOW_UPDATE, 0, 1, &u32::to_be_bytes(window))).unwrap();
        victim.output();
        victim.pass(150).unwrap();
        let events = victim.feed(&[]).unwrap();
        assert_eq!(events.contains(&Seen::Reset(1, ErrorCode::CANCEL)), is_reset, "a window of {window}");
    }
}

#[test]
fn a_closed_window_of_the_connection_ends_in_time() {
    let mut victim = Victim::server(Settings::default());
    victim.response = Some(100_000);
    victim.feed(&[setting(4, 1 << 20), request(1)].concat()).unwrap();
    victim.output();
    victim.pass(299).unwrap();
    assert_eq!(victim.pass(1).unwrap_err().code, CALM);
}

#[test]
fn windows_of_one_byte_are_limited() {
    let mut victim = Victim::server(Settings::default());
    victim.response = Some(100_000);
    victim.feed(&[setting(4, 0), request(1)].concat()).unwrap();
    for round in 0..=1001 {
        victim.output();
        let result = victim.feed(&number(WINDOW_UPDATE, 1, 1));
        assert_eq!(result.is_err(), round > 1000, "{round}");
    }
}

#[test]
fn windows_do_not_overflow() {
    let connection = ErrorCode::FLOW_CONTROL_ERROR;
    let mut victim = Victim::server(Settings::default());
    assert!(victim.feed(&number(WINDOW_UPDATE, 0, 0x7fff_ffff - 65_535)).is_ok());
    assert_eq!(victim.feed(&number(WINDOW_UPDATE, 0, 1)).unwrap_err().code, connection);

    let mut victim = Victim::server(Settings::default());
    victim.feed(&[request(1), number(WINDOW_UPDATE, 1, 0x7fff_ffff - 65_535)].concat()).unwrap();
    assert_eq!(victim.feed(&setting(4, 65_536)).unwrap_err().code, connection);

    let mut victim = Victim::server(Settings::default());
    let rows = [request(1), number(WINDOW_UPDATE, 1, 0x7fff_ffff - 65_534)].concat();
    assert_eq!(victim.feed(&rows), Ok(vec![Seen::Head(1, true), Seen::Reset(1, connection)]));
}

#[test]
fn a_bomb_of_indexed_fields_is_not_copied() {
    let mut victim = Victim::server(Settings::default());
    // An entry of 4,000 bytes, and then 16,000 references to it: 64 MB when decoded.
    let mut entry = vec![0x40, 1, b'a', 0x7f];
    // 127 + 33 + 30 * 128 = 4000.
    entry.extend([0x80 | 33, 30]);
    entry.extend([b'v'; 4000]);
    let block = [&GET[..], &entry].concat();
    victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).unwrap();
    let bomb = [&GET[..], &[0xbe; 16_000]].concat();
    for stream in 1..100 {
        let events = victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, stream * 2 + 1, &bomb));
        assert_eq!(events, Ok(vec![]));
        assert_eq!(victim.kinds(), [(HEADERS, stream * 2 + 1)], "status 431");
    }
}

#[test]
fn changes_of_the_table_size_are_valid_up_to_the_limit() {
    let mut victim = Victim::server(Settings::default());
    let changes = [&[0x3f, 0xe1, 0x1f, 0x20].repeat(2000)[..], &GET].concat();
    victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &changes)).unwrap();
    let above = [&[0x3f, 0xe2, 0x1f][..], &GET].concat();
    let error = victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &above)).unwrap_err();
    assert_eq!(error.code, ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn a_peer_that_shrinks_and_grows_our_table_costs_no_memory() {
    let mut victim = Victim::server(Settings::default());
    for stream in 0..400 {
        victim.response = Some(0);
        let sizes = [setting(1, stream % 3 * 4096), request(stream * 2 + 1)].concat();
        victim.feed(&sizes).unwrap();
        victim.output();
    }
    let huge = setting(1, u32::MAX);
    victim.feed(&huge).unwrap();
}

#[test]
fn huge_header_lists_are_answered_with_431_and_limited() {
    let mut victim = Victim::server(Settings::default());
    let long = [&GET[..], &[0, 1, b'a', 0x7f, 0x80, 0x7f], &[b'v'; 16_383]].concat();
    let attack = |_: &mut Victim, round: u32| {
        let stream = round * 2 + 1;
        let (first, second) = long.split_at(10_000);
        [frame(HEADERS, END_STREAM, stream, first), frame(CONTINUATION, END_HEADERS, stream, second)].concat()
    };
    assert_eq!(rounds_until_failure(&mut victim, attack), (CALM, 1000));
}

#[test]
fn a_slow_preface_ends_in_time() {
    for sent in [0, 1, 23, 24] {
        let now = std::time::Instant::now();
        let mut side = frpc_http2::Connection::server(Settings::default(), now);
        side.receive(&PREFACE[..sent], now).unwrap();
        let due = side.poll_timeout().unwrap();
        side.handle_timeout(due - std::time::Duration::from_millis(1)).unwrap();
        assert_eq!(side.handle_timeout(due).unwrap_err().code, ErrorCode::SETTINGS_TIMEOUT);
    }
}

#[test]
fn another_protocol_is_refused_at_its_first_byte() {
    let now = std::time::Instant::now();
    let mut side = frpc_http2::Connection::server(Settings::default(), now);
    assert!(side.receive(b"G", now).is_err());
}

#[test]
fn streams_without_end_are_limited_in_number_and_data() {
    let mut victim = Victim::server(Settings::default());
    (victim.releases, victim.memory_max) = (false, 5 << 20);
    for stream in 0..300 {
        let id = stream * 2 + 1;
        victim.feed(&frame(HEADERS, END_HEADERS, id, &GET)).unwrap();
        let refused = victim.kinds().contains(&(RST_STREAM, id));
        assert_eq!(refused, stream >= 250);
    }
    let data = frame(DATA, 0, 1, &[0; 16_384]);
    for _ in 0..64 {
        victim.feed(&data).unwrap();
    }
    assert_eq!(victim.kinds(), [], "no credit without consumption");
    let events = victim.feed(&data).unwrap();
    assert_eq!(events, [Seen::Reset(1, ErrorCode::FLOW_CONTROL_ERROR)]);
    // The credit of the reset stream returns; the window of the connection bounds the others.
    let mut total = 0;
    let error = (1..250).find_map(|stream| {
        (0..64).find_map(|_| {
            total += 16_384;
            victim.feed(&frame(DATA, 0, stream * 2 + 1, &[0; 16_384])).err()
        })
    });
    assert_eq!(error.unwrap().code, ErrorCode::FLOW_CONTROL_ERROR);
    assert!(total <= (4 << 20) + 16_384);
}

#[test]
fn noise_in_valid_input_never_panics() {
    let mut seed = 9u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).unwrap() % below
    };
    for _ in 0..3000 {
        let mut bytes = [request(1), frame(HEADERS, END_HEADERS, 3, &GET), frame(DATA, 8, 3, b"\x02abcd")].concat();
        bytes.extend([setting(4, 10), number(WINDOW_UPDATE, 3, 9), number(RST_STREAM, 3, 8)].concat());
        for _ in 0..=next(6) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes[at] ^= 1 << next(8),
                _ => bytes.insert(at, next(256) as u8),
            }
        }
        let mut victim = Victim::server(Settings::default());
        let _ = victim.feed(&bytes);
        victim.output();
    }
}
