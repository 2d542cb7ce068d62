//! Frames with checksums, between two sides that are configured so.

use bytes::{Bytes, BytesMut};
use frisbee::{
    CloseReason, Config, HeaderFormat, Packet, PacketName, ProtocolError,
    proto::{Features, FrameBuffer, InputEvent, LeftoverFrames},
};

use crate::pair::{FORMATS, OPERATION, Pair, packet, quiet, zeros};

fn checked() -> Config {
    Config { extended: true, checksums: true, ..quiet() }
}

/// Two sides that know each other and add checksums.
fn known(config: &Config) -> Pair {
    let mut pair = Pair::new(config.clone());
    pair.exchange();
    assert_eq!(
        (pair.client.events(), pair.server.events()),
        (vec![InputEvent::Recognized], vec![InputEvent::Recognized])
    );
    assert!(pair.client.has_checksums());
    // The frame CHECKSUMS goes in front of the next one.
    pair.client.ping();
    pair.exchange();
    assert!(pair.server.has_checksums());
    pair
}

/// Has the client send frames of every kind, and returns their bytes.
fn conversation(pair: &mut Pair) -> BytesMut {
    pair.client.ping();
    pair.client.send(packet(1, "first")).expect("the connection is open");
    pair.client.send(packet(2, "")).expect("the connection is open");
    let stream = pair.client.open_stream_with_id(5).expect("the connection is open");
    pair.client.send_on(stream, "data".into()).expect("the connection is open");
    pair.client.close_stream(stream);
    let mut frames = FrameBuffer::default();
    frames.push(PacketName { id: 3, operation: OPERATION }, &[b"shared"]);
    pair.client.send_frames(&frames.take()).expect("the connection is open");
    pair.client.write();
    pair.client.wire.split()
}

#[test]
fn frames_decode_for_any_split_of_their_bytes() {
    for format in FORMATS {
        for piece in [1, 7, usize::MAX] {
            let mut pair = known(&Config { header: Some(format), ..checked() });
            pair.client.interleave();
            pair.client.send(packet(1, "small")).unwrap();
            pair.client.write();
            pair.piece = piece;
            let large = Bytes::from(vec![7; 200_000]);
            pair.client.send(packet(2, large.clone())).unwrap();
            pair.client.send(packet(3, Bytes::from(vec![8; 5_000]))).unwrap();
            pair.server.send(packet(4, "back")).unwrap();
            pair.exchange();
            let of_server: Vec<_> = pair.server.events();
            for expected in [packet(1, "small"), packet(2, large), packet(3, vec![8; 5_000])] {
                assert!(of_server.contains(&InputEvent::Packet(expected)), "{format:?}, pieces of {piece}");
            }
            assert_eq!(pair.client.events(), [InputEvent::Packet(packet(4, "back"))]);
            assert_eq!((pair.client.queued_len(), pair.server.queued_len()), (0, 0));
        }
    }
}

#[test]
fn flipped_bits_never_become_events() {
    for format in FORMATS {
        let config = Config { header: Some(format), accept_backlog: 1, ..checked() };
        let mut pair = known(&config);
        let bytes = conversation(&mut pair);
        pair.server.hear(&bytes);
        let whole = pair.server.events();
        assert_eq!(whole.len(), 5, "{whole:?}");
        for bit in 0..8 * bytes.len() {
            let mut pair = known(&config);
            let mut bytes = conversation(&mut pair);
            bytes[bit / 8] ^= 1 << (bit % 8);
            pair.server.hear(&bytes);
            let events = pair.server.events();
            assert!(whole.starts_with(&events), "bit {bit} of {format:?}: {events:?}");
            assert!(events.len() < whole.len(), "bit {bit} of {format:?} was not noticed");
        }
    }
}

#[test]
fn a_corrupt_frame_closes_the_connection_with_the_reason() {
    let mut pair = known(&checked());
    pair.client.send(packet(1, "money")).unwrap();
    pair.client.write();
    let mut bytes = pair.client.wire.split();
    bytes[20] ^= 1;
    pair.server.hear(&bytes);
    let Some(CloseReason::Protocol(error)) = pair.server.closed() else { panic!("it goes on") };
    assert_eq!(*error, ProtocolError::BadChecksum);
}

#[test]
fn checksums_require_both_sides() {
    let plain = Config { checksums: false, ..checked() };
    for (client, server) in [(checked(), plain.clone()), (plain, checked())] {
        let mut pair = Pair::with(client, server);
        pair.exchange();
        pair.client.send(packet(1, "question")).unwrap();
        pair.server.send(packet(2, "answer")).unwrap();
        pair.exchange();
        assert!(pair.server.events().contains(&InputEvent::Packet(packet(1, "question"))));
        assert!(pair.client.events().contains(&InputEvent::Packet(packet(2, "answer"))));
        assert!(!pair.client.has_checksums() && !pair.server.has_checksums());
        assert_ne!(pair.client.uses(Features::CHECKSUMS), pair.server.uses(Features::CHECKSUMS));
    }
}

#[test]
fn checksums_of_discarded_content_are_skipped() {
    let sender = Config { content_len_max: 10_000, ..checked() };
    let receiver = Config { content_len_max: 100, ..checked() };
    // As a peer that did not hear of the limit.
    let (mut client, mut server) = (known(&sender), known(&receiver));
    client.client.send(packet(1, zeros(1000))).unwrap();
    client.client.send(packet(2, "next")).unwrap();
    client.client.write();
    client.client.wire.split().chunks(7).for_each(|piece| server.server.hear(piece));
    assert!(server.server.events().contains(&InputEvent::Packet(packet(2, "next"))));
}

#[test]
fn undone_packets_restore_the_input_bytes() {
    let mut pair = known(&checked());
    pair.client.send(packet(1, "first")).unwrap();
    pair.client.send(packet(2, "second")).unwrap();
    pair.client.write();
    let bytes = pair.client.wire.split();
    let mut inbox = bytes.clone();
    let first: Packet = pair.server.handle_packet(&mut inbox).unwrap();
    let second = pair.server.handle_packet(&mut inbox).unwrap();
    pair.server.undo_input([first, second], &mut inbox);
    assert_eq!(inbox, bytes);
}

#[test]
fn heartbeats_with_checksums_before_raw_bytes_are_measured() {
    for format in FORMATS {
        let mut pair = known(&Config { header: Some(format), ..checked() });
        pair.client.ping();
        pair.client.write();
        let mut bytes = pair.client.wire.split();
        let len = bytes.len();
        assert_eq!(len, format.header_len() + 4);
        for cut in 0..len {
            assert_eq!(LeftoverFrames::measure(format, true, &bytes[..cut]), LeftoverFrames::Undecided { len: 0 });
        }
        bytes.extend_from_slice(b"R");
        assert_eq!(LeftoverFrames::measure(format, true, &bytes), LeftoverFrames::Before { len });
    }
    assert_eq!(LeftoverFrames::measure(HeaderFormat::Magic10, true, b"R"), LeftoverFrames::Before { len: 0 });
}
