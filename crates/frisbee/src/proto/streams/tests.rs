//! Tests of the streams of one side.

use super::{
    walk::{Manners, walk},
    *,
};

const STALL: Duration = Duration::from_secs(1);
const IDS: RangeInclusive<u16> = 1..=9;

fn streams() -> Streams {
    limited(IDS, 2, 200)
}

fn limited(ids: RangeInclusive<u16>, streams_max: usize, stream_queue_len_max: usize) -> Streams {
    let config = Config { streams_max, stream_queue_len_max, stream_stall_max: STALL, ..Config::default() };
    Streams::new(ids, &config)
}

fn data(streams: &mut Streams, id: u16, text: &'static str) -> DataOutcome {
    streams.handle_data(*NOW, id, Bytes::from_static(text.as_bytes()))
}

/// Contents in these tests have one byte.
const COST: usize = PACKET_COST + 1;

fn with_budget(contents: usize) -> Streams {
    let config = Config { streams_len_max: contents * COST, stream_stall_max: STALL, ..Config::default() };
    Streams::new(IDS, &config)
}

fn opened(streams: &mut Streams, id: u16) -> StreamKey {
    match data(streams, id, "a") {
        DataOutcome::Opened(key) => key,
        received => panic!("{received:?}"),
    }
}

#[test]
fn streams_over_the_shared_limit_stall_until_read() {
    let mut streams = with_budget(2);
    let [first, second] = [1, 2].map(|id| opened(&mut streams, id));
    assert!(!streams.stall());
    assert_eq!(data(&mut streams, 2, "b"), DataOutcome::Queued(second));
    assert_eq!((streams.stall(), streams.poll_timeout()), (true, Some(*NOW + STALL)));
    assert_eq!(streams.end_stalled(*NOW + STALL / 2), None);
    assert_eq!(streams.read(first), Ok(Some("a".into())));
    assert!(streams.stall(), "whoever took it may still hold it");
    assert_eq!(streams.read(first), Ok(None));
    assert!(!streams.stall());
    assert_eq!(streams.end_stalled(*NOW + STALL), None);
    assert_eq!(streams.len, 2 * COST);
}

#[test]
fn the_largest_stream_ends_after_a_shared_stall() {
    let mut streams = with_budget(2);
    let [first, second] = [1, 2].map(|id| opened(&mut streams, id));
    data(&mut streams, 2, "b");
    assert_eq!(streams.end_stalled(*NOW + STALL), Some(second));
    assert_eq!(streams.end_stalled(*NOW + STALL), None);
    assert!(!streams.stall());
    assert_eq!(streams.read(second), Err(StreamEnd::Overflow), "what it held is gone");
    assert_eq!(streams.read(first), Ok(Some("a".into())));
    assert_eq!(streams.ended(first), None);
}

#[test]
fn data_of_ended_streams_counts_until_released() {
    let mut streams = with_budget(1);
    let first = opened(&mut streams, 1);
    assert_eq!(streams.handle_close(1), Some(first));
    let second = opened(&mut streams, 2);
    assert!(streams.stall());
    assert!(streams.close(second));
    streams.remove(second);
    assert!(!streams.stall());
    opened(&mut streams, 2);
    assert_eq!(streams.end_stalled(*NOW + STALL).map(|key| streams.id(key)), Some(2));
    assert_eq!(streams.read(first), Ok(Some("a".into())));
    streams.remove(first);
    assert_eq!(streams.len, 0);
}

#[test]
fn a_single_content_never_exceeds_the_limit() {
    let mut streams = with_budget(0);
    for _ in 0..3 {
        let key = opened(&mut streams, 1);
        assert!(!streams.stall());
        assert_eq!(streams.read(key), Ok(Some("a".into())));
        assert!(streams.close(key));
        streams.remove(key);
    }
}

#[test]
fn an_ignored_stream_holds_nothing_and_never_overflows() {
    let mut streams = limited(IDS, 2, PACKET_COST + 1);
    let DataOutcome::Opened(key) = data(&mut streams, 7, "a") else { panic!("not opened") };
    assert_eq!(streams.peek(key), Ok(Some("a".into())));
    streams.ignore(key);
    assert_eq!(data(&mut streams, 7, "b"), DataOutcome::Ignored);
    assert_eq!(data(&mut streams, 7, "c"), DataOutcome::Ignored);
    assert_eq!(streams.read(key), Ok(None));
    assert_eq!(streams.handle_close(7), Some(key));
    assert_eq!(streams.peek(key), Err(StreamEnd::ClosedByPeer));
}

#[test]
fn oversized_data_is_reported_last_and_keeps_the_stream() {
    let mut streams = streams();
    let end = StreamEnd::TooLarge { announced: 9, limit: 5 };
    assert_eq!(streams.handle_too_large(*NOW, 7, 9, 5), DataOutcome::Refused, "it opens no stream");
    let DataOutcome::Opened(key) = data(&mut streams, 7, "a") else { panic!("not opened") };
    assert_eq!(streams.handle_too_large(*NOW, 7, 9, 5), DataOutcome::Queued(key));
    assert_eq!(data(&mut streams, 7, "b"), DataOutcome::Ignored);
    assert_eq!(streams.handle_too_large(*NOW, 7, 9, 5), DataOutcome::Ignored);
    assert_eq!(streams.ended(key), None);
    assert_eq!(streams.handle_close(7), Some(key));
    assert_eq!(streams.read(key), Ok(Some("a".into())));
    assert_eq!((streams.peek(key), streams.read(key)), (Err(end), Err(end)));
    assert_eq!(streams.ended(key), Some(StreamEnd::ClosedByPeer));
}

#[test]
fn unsent_credit_never_blocks_a_later_sender() {
    let config = Config { streams_max: 50, streams_len_max: 100 * 1000, ..Config::default() };
    let mut streams = Streams::new(IDS, &config);
    streams.use_credit(Some(1000));
    // Late data of an ended stream opens a stream here. Its window widens, and the peer does not know the
    // stream.
    let mut credit = SendCredit::new(1000);
    let mut key = None;
    let mut send = |streams: &mut Streams, credit: &mut SendCredit| {
        credit.spend(100 + PACKET_COST);
        match streams.handle_data(*NOW, 1, vec![0; 100].into()) {
            DataOutcome::Opened(opened) => key = Some(opened),
            received => assert_eq!(received, DataOutcome::Queued(key.unwrap())),
        }
        while let Ok(Some(_)) = streams.read(key.unwrap()) {}
        key.unwrap()
    };
    for _ in 0..200 {
        send(&mut streams, &mut credit);
        while streams.poll_credit(*NOW, None).is_some() {}
    }
    // This side sends on it. The peer opens it with the credit of a new stream.
    let mut credit = SendCredit::new(1000);
    for _ in 0..100 {
        assert!(credit.may_send());
        let key = send(&mut streams, &mut credit);
        assert!(streams.entries[key.0].window.len() > 4000);
        while let Some((1, len)) = streams.poll_credit(*NOW, None) {
            credit.grant(len).unwrap();
        }
    }
}

#[test]
fn ids_skip_open_streams_and_wrap_within_their_range() {
    for (ids, taken, expected) in [(1..=4, 2, [1, 3, 4]), (u16::MAX - 3..=u16::MAX, 0xfffd, [0xfffc, 0xfffe, 0xffff])] {
        let limit = ids.len();
        let mut streams = limited(ids, 10, 100);
        streams.open(taken).unwrap();
        let keys = [(); 3].map(|()| streams.open_next().unwrap());
        assert_eq!(keys.map(|key| streams.id(key)), expected);
        assert_eq!(streams.open_next(), Err(OpenError::TooManyStreams { limit }), "the others are not its own");
        assert!(streams.close(keys[1]));
        let again = streams.open_next().unwrap();
        assert_eq!(streams.id(again), expected[1]);
    }
}

#[test]
fn small_contents_do_not_pin_read_buffers() {
    let mut streams = streams();
    let buffer = Bytes::from(vec![b'x'; 1 << 16]);
    let DataOutcome::Opened(key) = streams.handle_data(*NOW, 1, buffer.slice(5..8)) else { panic!("not opened") };
    streams.detach();
    assert!(buffer.is_unique());
    assert_eq!(streams.read(key), Ok(Some("xxx".into())));
}

#[test]
fn random_schedules_lose_no_credit_and_never_block() {
    let done = walk(*NOW, Manners::Usual, 500_000);
    assert!(done.data > 50_000 && done.waits > 1000 && done.widened > 1000 && done.balanced > 50_000, "{done:?}");
}

#[test]
fn reused_ids_never_block_streams() {
    let done = walk(*NOW, Manners::Wild, 500_000);
    assert!(done.data > 50_000 && done.waits > 1000 && done.mixed > 50_000 && done.balanced > 50_000, "{done:?}");
}
