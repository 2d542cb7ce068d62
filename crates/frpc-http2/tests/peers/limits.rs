//! Each limit at its value and past it, unless `attacks` has it.

use std::time::Duration;

use bytes::Bytes;
use frpc_http2::{ErrorCode, Field, Header, OpenError, SendError, Settings};

use crate::victim::*;

const REQUEST: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/")];

fn fields() -> Vec<Field<'static>> {
    REQUEST.iter().map(|(name, value)| Field::new(name, *value)).collect()
}

#[test]
fn a_client_opens_as_many_streams_as_the_peer_allows() {
    let mut victim = Victim::client(Settings::default());
    victim.feed(&setting(3, 2)).unwrap();
    let first = victim.side.open(Header::fields(&fields()), true).unwrap();
    victim.side.open(Header::fields(&fields()), true).unwrap();
    assert_eq!(victim.side.open(Header::fields(&fields()), true), Err(OpenError::NoCapacity));
    victim.side.reset(first, ErrorCode::CANCEL);
    assert_eq!(victim.feed(&[]), Ok(vec![Seen::Capacity]));
    victim.side.open(Header::fields(&fields()), true).unwrap();
    assert_eq!(victim.side.open(Header::fields(&fields()), true), Err(OpenError::NoCapacity));
    assert_eq!(victim.feed(&setting(3, 3)), Ok(vec![Seen::Capacity, Seen::Other]));
}

#[test]
fn a_frame_has_at_most_its_length() {
    for frame_len_max in [16_384, 20_000] {
        let settings = || Settings { frame_len_max, ..Default::default() };
        let mut victim = Victim::server(settings());
        let len = usize::try_from(frame_len_max).unwrap();
        // Longer frames are allowed from the first full DATA frame on.
        victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
        let refused = victim.feed(&frame(0xee, 0, 0, &[0; 16_385])[..9]);
        assert_eq!(refused.unwrap_err().code, ErrorCode::FRAME_SIZE_ERROR);
        let mut victim = Victim::server(settings());
        victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
        victim.kinds();
        victim.feed(&frame(DATA, 0, 1, &[0; 16_384])).unwrap();
        assert_eq!(victim.kinds().contains(&(SETTINGS, 0)), len > 16_384);
        victim.feed(&frame(0xee, 0, 0, &vec![0; len])).unwrap();
        // The header alone is enough to refuse, so that the frame is never held.
        let error = victim.feed(&frame(0xee, 0, 0, &vec![0; len + 1])[..9]).unwrap_err();
        assert_eq!(error.code, ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn a_header_block_has_at_most_its_length() {
    for (len, is_fine) in [(100, true), (101, false)] {
        let mut victim = Victim::server(Settings { header_block_max: 100, ..Default::default() });
        let block = [&GET[..], &vec![0x83; len - 3]].concat();
        // `:method` repeats, so that the request is malformed in each case.
        let result = victim.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        assert_eq!(result.is_ok(), is_fine);
        assert_eq!(victim.kinds(), [(if is_fine { RST_STREAM } else { GOAWAY }, u32::from(is_fine))]);
    }
}

#[test]
fn the_header_list_of_the_peer_is_respected() {
    let mut victim = Victim::client(Settings::default());
    // 32 + 11, 32 + 11, 32 + 6.
    victim.feed(&setting(6, 124)).unwrap();
    assert!(victim.side.open(Header::fields(&fields()), true).is_ok());
    victim.feed(&setting(6, 123)).unwrap();
    assert_eq!(victim.side.open(Header::fields(&fields()), true), Err(OpenError::HeadTooLarge));
}

#[test]
fn queues_accept_data_up_to_their_limits_and_report_room() {
    let settings = Settings { stream_queue_max: 1000, connection_queue_max: 1500, ..Default::default() };
    let mut victim = Victim::client(settings);
    victim.feed(&setting(4, 0)).unwrap();
    let first = victim.side.open(Header::fields(&fields()), false).unwrap();
    let second = victim.side.open(Header::fields(&fields()), false).unwrap();
    let data = |len: usize| Bytes::from(vec![7; len]);
    assert_eq!(victim.side.send_data(first, data(600), false), Ok(()));
    assert_eq!(victim.side.capacity(first), 400);
    assert_eq!(victim.side.send_data(first, data(401), false), Err(SendError::Full));
    assert_eq!(victim.side.send_data(first, data(400), false), Ok(()));
    assert_eq!(victim.side.send_data(second, data(501), false), Err(SendError::Full));
    assert_eq!(victim.side.send_data(second, data(500), true), Ok(()), "an end with data counts as data");
    victim.output();
    assert_eq!(victim.feed(&number(WINDOW_UPDATE, first.get(), 499)), Ok(vec![]));
    victim.output();
    assert_eq!(victim.side.poll_event().map(|_| ()), None, "more than half is left");
    victim.feed(&number(WINDOW_UPDATE, second.get(), 500)).unwrap();
    victim.feed(&number(WINDOW_UPDATE, first.get(), 1)).unwrap();
    victim.output();
    let events = victim.feed(&[]).unwrap();
    assert!(events.contains(&Seen::Writable(first.get())), "{events:?}");
}

#[test]
fn credit_follows_consumption() {
    let settings = Settings { stream_window: 1000, connection_window: 65_535, ..Default::default() };
    let mut victim = Victim::server(settings);
    victim.releases = false;
    victim.feed(&[frame(HEADERS, END_HEADERS, 1, &GET), frame(DATA, 0, 1, &[0; 1000])].concat()).unwrap();
    let id = victim.id(1);
    victim.side.release(id, 499);
    assert_eq!(victim.kinds(), []);
    victim.side.release(id, 1);
    assert_eq!(victim.output(), [(WINDOW_UPDATE, 0, 1, 500u32.to_be_bytes().to_vec())]);
    assert_eq!(victim.feed(&frame(DATA, 0, 1, &[0; 500])), Ok(vec![Seen::Data(1, 500, false)]));
    let events = victim.feed(&frame(DATA, 0, 1, &[0; 1]));
    assert_eq!(events, Ok(vec![Seen::Reset(1, ErrorCode::FLOW_CONTROL_ERROR)]));
}

#[test]
fn padding_returns_as_credit_without_the_application() {
    let mut victim = Victim::server(Settings { stream_window: 256, ..Default::default() });
    victim.releases = false;
    victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
    let padded = [&[199][..], b"x", &[0; 199]].concat();
    assert_eq!(victim.feed(&frame(DATA, 8, 1, &padded)), Ok(vec![Seen::Data(1, 1, false)]));
    assert_eq!(victim.output(), [(WINDOW_UPDATE, 0, 1, 200u32.to_be_bytes().to_vec())]);
}

#[test]
fn recently_reset_streams_forgive_late_frames() {
    for (recent_resets_max, spent) in [(1, 0), (0, 1)] {
        let settings = Settings { recent_resets_max, resets_max: 10, ..Default::default() };
        let mut victim = Victim::server(settings);
        victim.feed(&frame(HEADERS, END_HEADERS, 1, &GET)).unwrap();
        let id = victim.id(1);
        victim.side.reset(id, ErrorCode::CANCEL);
        assert_eq!(victim.kinds(), [(RST_STREAM, 1)]);
        let late = frame(DATA, 0, 1, b"late");
        // Without memory of the reset, late frames are a part of the budget for resets.
        let failed = (0..11).position(|_| victim.feed(&late).is_err());
        assert_eq!(failed, (spent > 0).then_some(10));
    }
}

#[test]
fn a_silent_peer_is_found_by_a_ping() {
    let keepalive_interval = Some(Duration::from_secs(30));
    let mut victim = Victim::server(Settings { keepalive_interval, ..Default::default() });
    victim.pass(30).unwrap();
    assert_eq!(victim.kinds(), [(PING, 0)]);
    victim.pass(19).unwrap();
    assert_eq!(victim.feed(&frame(PING, ACK, 0, b"keepaliv")), Ok(vec![]));
    victim.pass(30).unwrap();
    assert_eq!(victim.kinds(), [(PING, 0)]);
    assert!(victim.pass(20).is_err());
    assert_eq!(victim.side.poll_timeout(), None);
}
