//! Frames that are encoded once for several connections.

use bytes::Bytes;
use frisbee::{
    Config, FrameBuffer, Frames, HeaderFormat, Operation, Packet, PacketName, SendError,
    proto::{COPY_LEN_MAX, InputEvent, Role},
};

use crate::pair::{FORMATS, OPERATION, Pair, Side, packet, ping, quiet, zeros};

const LENGTHS: [usize; 9] = [0, 1, 100, COPY_LEN_MAX - 1, COPY_LEN_MAX, COPY_LEN_MAX + 1, 20_000, 70_000, 300_000];

/// Packets of many lengths, so that short runs and long ones come, with large contents in between.
fn packets() -> Vec<Packet> {
    let mut packets = Vec::new();
    for (round, len) in (0..10).flat_map(|round| LENGTHS.map(|len| (round, len))) {
        let len = if round % 3 == 0 { len % COPY_LEN_MAX } else { len };
        let id = u16::try_from(packets.len()).expect("there are few");
        packets.push(packet(id, vec![id.to_be_bytes()[1]; len]));
    }
    packets
}

/// Packets with contents at the end of which large parts are not copied.
fn gathered(packets: &[Packet]) -> Frames {
    let mut buffer = FrameBuffer::new();
    for packet in packets {
        let head = packet.content.len().min(usize::from(packet.id % 7));
        buffer.push_content(packet.name(), &packet.content[..head], &packet.content.slice(head..));
    }
    assert_eq!((buffer.count(), buffer.is_empty()), (packets.len(), packets.is_empty()));
    buffer.take()
}

/// Packets with contents that are copied, in parts.
fn copied(packets: &[Packet]) -> Frames {
    let mut buffer = FrameBuffer::default();
    for packet in packets {
        let (head, tail) = packet.content.split_at(packet.content.len() / 3);
        buffer.push(packet.name(), &[head, b"", tail]);
    }
    buffer.take()
}

/// An accepting side whose peer writes this layout.
fn side(format: HeaderFormat, config: Config) -> Side {
    Side::new(Role::Server, Config { header: Some(format), outbox_len_max: usize::MAX, ..config })
}

/// The bytes that a side writes.
fn written(side: &mut Side) -> Vec<u8> {
    side.write();
    side.wire.split().to_vec()
}

#[test]
fn frames_encode_like_single_sends() {
    let packets = packets();
    for (format, frames) in
        FORMATS.into_iter().flat_map(|format| [(format, gathered(&packets)), (format, copied(&packets))])
    {
        let (mut one, mut other) = (side(format, quiet()), side(format, quiet()));
        // Ahead of them and behind them, so that they do not begin at the start of a buffer.
        let lone = packet(999, "lone");
        one.send(lone.clone()).unwrap();
        packets.iter().for_each(|packet| one.send(packet.clone()).unwrap());
        one.send(lone.clone()).unwrap();
        other.send(lone.clone()).unwrap();
        other.send_frames(&frames).unwrap();
        other.send(lone).unwrap();
        assert_eq!((one.queued_len(), one.progress()), (other.queued_len(), other.progress()));
        assert!(written(&mut one) == written(&mut other), "in {format:?}");
        let all = packets.len() as u64 + 2;
        assert_eq!((other.queued_len(), other.progress()), (0, (all, all)));
    }
}

#[test]
fn frames_can_be_sent_repeatedly_in_both_layouts() {
    let frames = gathered(&packets());
    let sent = |format| {
        let mut side = side(format, quiet());
        side.send_frames(&frames).unwrap();
        written(&mut side)
    };
    for format in FORMATS.into_iter().chain(FORMATS) {
        let len = frames.len() - frames.count() * (10 - format.header_len());
        assert_eq!(sent(format).len(), len);
        assert!(sent(format) == sent(format));
    }
}

#[test]
fn frames_decode_to_their_packets() {
    let packets = packets();
    for frames in [gathered(&packets), copied(&packets)] {
        let content: usize = packets.iter().map(|packet| 10 + packet.content.len()).sum();
        assert_eq!((frames.count(), frames.len(), frames.is_empty()), (packets.len(), content, false));
        assert!(frames.iter().eq(packets.iter().cloned()));
    }
    let none = FrameBuffer::new().take();
    assert_eq!((none.count(), none.len(), none.is_empty(), none.iter().count()), (0, 0, true, 0));
}

#[test]
fn frames_can_be_split_anywhere() {
    let packets = packets();
    for (frames, at) in
        [gathered(&packets), copied(&packets)].iter().flat_map(|frames| (0..95).map(move |at| (frames, at)))
    {
        let mut rest = frames.clone();
        let first = rest.split_to(at);
        let at = at.min(packets.len());
        assert_eq!((first.count(), rest.count()), (at, packets.len() - at));
        assert_eq!(first.len() + rest.len(), frames.len());
        assert!(first.iter().eq(packets[..at].iter().cloned()), "at {at}");
        assert!(rest.iter().eq(packets[at..].iter().cloned()), "at {at}");
        let mut both = side(HeaderFormat::Plain8, quiet());
        both.send_frames(&first).unwrap();
        both.send_frames(&rest).unwrap();
        let mut whole = side(HeaderFormat::Plain8, quiet());
        whole.send_frames(frames).unwrap();
        assert!(written(&mut both) == written(&mut whole), "at {at}");
        assert_eq!(both.progress(), whole.progress());
    }
}

#[test]
fn a_split_keeps_only_the_large_contents_of_its_part() {
    let config = Config { content_len_max: 100, ..quiet() };
    let mut frames = gathered(&[packet(1, zeros(101)), packet(2, zeros(100))]);
    let first = frames.split_to(1);
    let mut side = side(HeaderFormat::Magic10, config);
    assert_eq!(side.send_frames(&first), Err(SendError::ContentTooLarge { len: 101, limit: 100 }));
    assert_eq!(side.send_frames(&frames), Ok(()));
}

#[test]
fn frames_are_sent_together_or_not_at_all() {
    let frames = gathered(&[packet(1, "hi"), packet(2, zeros(101))]);
    let mut small = side(HeaderFormat::Magic10, Config { content_len_max: 100, ..quiet() });
    assert_eq!(small.send_frames(&frames), Err(SendError::ContentTooLarge { len: 101, limit: 100 }));
    assert_eq!((small.queued_len(), small.progress()), (0, (0, 0)));

    let config = Config { extended: true, ..quiet() };
    let mut pair = Pair::with(config.clone(), Config { content_len_max: 100, ..config });
    pair.exchange();
    assert_eq!(pair.client.send_frames(&frames), Err(SendError::TooLargeForPeer { len: 101, limit: 100 }));

    let mut buffer = FrameBuffer::new();
    buffer.push(PacketName { id: 1, operation: Operation::EXTENDED }, &[b"for extended peers"]);
    assert_eq!(small.send_frames(&buffer.take()), Err(SendError::PlainPeer));
    small.finish(frisbee::CloseReason::Local);
    assert_eq!(small.send_frames(&frames), Err(SendError::Closed));
}

#[test]
fn frames_are_held_until_the_layout_is_known() {
    for format in FORMATS {
        let mut side = Side::new(Role::Server, quiet());
        let packets = [packet(1, "one"), packet(2, zeros(COPY_LEN_MAX)), packet(3, "three")];
        side.send_frames(&gathered(&packets)).unwrap();
        assert!(side.say().is_empty());
        let mut hi = ping();
        if format == HeaderFormat::Plain8 {
            hi.drain(..2);
        }
        side.hear(&hi);
        assert_eq!(side.say(), ["PONG", "packet 1: one", "packet 2: 4096 bytes", "packet 3: three"]);
        assert_eq!(side.progress(), (3, 3));
    }
}

#[test]
fn large_contents_and_long_runs_are_not_copied() {
    let large = Bytes::from(vec![7; COPY_LEN_MAX]);
    let mut buffer = FrameBuffer::new();
    buffer.push_content(PacketName { id: 1, operation: OPERATION }, b"head", &large);
    (0..1000).for_each(|id| buffer.push(PacketName { id, operation: OPERATION }, &[b"small"]));
    let frames = buffer.take();
    let mut sides = [side(HeaderFormat::Magic10, quiet()), side(HeaderFormat::Magic10, quiet())];
    let addresses = sides.each_mut().map(|side| {
        side.send_frames(&frames).unwrap();
        let mut batch = frisbee::proto::Transmit::default();
        let now = side.now;
        assert!(side.poll_transmit(now, &mut batch));
        let mut slices = [std::io::IoSlice::new(&[]); 8];
        assert_eq!(bytes::Buf::chunks_vectored(&batch, &mut slices), 3);
        [slices[1].as_ptr(), slices[2].as_ptr()]
    });
    assert_eq!(addresses[0], addresses[1]);
    assert_eq!(addresses[0][0], large.as_ptr());
}

/// Writes batch by batch, and returns how many packets were known to be written behind each.
fn progress_by_batch(side: &mut Side) -> Vec<u64> {
    let (mut batch, mut progress) = (frisbee::proto::Transmit::default(), Vec::new());
    let now = side.now;
    while side.poll_transmit(now, &mut batch) {
        let len = bytes::Buf::remaining(&batch);
        side.handle_written(now, len, &mut batch);
        progress.push(side.progress().1);
    }
    progress
}

#[test]
fn progress_within_frames_is_known_between_batches() {
    let mut large = side(HeaderFormat::Magic10, quiet());
    let packets: Vec<_> = (0..5).map(|id| packet(id, zeros(200_000))).collect();
    large.send_frames(&gathered(&packets)).unwrap();
    assert_eq!(progress_by_batch(&mut large), [2, 4, 5]);

    // The first batch ends right where the frames begin.
    let mut small = side(HeaderFormat::Magic10, quiet());
    small.send(packet(0, zeros(COPY_LEN_MAX))).unwrap();
    for id in 1..64 {
        small.send(packet(id, zeros(COPY_LEN_MAX - 1))).unwrap();
    }
    small.send_frames(&gathered(&packets_of(100, 100))).unwrap();
    assert_eq!(progress_by_batch(&mut small), [64, 164]);
}

fn packets_of(count: u16, len: usize) -> Vec<Packet> {
    (0..count).map(|id| packet(id, zeros(len))).collect()
}

#[test]
fn frames_follow_an_interleaved_content_of_the_same_id() {
    let extended = Config { extended: true, ..quiet() };
    let mut pair = Pair::with(extended.clone(), extended);
    pair.client.interleave();
    pair.exchange();
    pair.server.events();
    let large = packet(1, zeros(100_000));
    let small = [packet(1, "behind"), packet(2, "beside"), packet(3, zeros(70_000))];
    pair.client.send(large.clone()).unwrap();
    pair.client.send_frames(&gathered(&small)).unwrap();
    pair.exchange();
    let [behind, beside, also_large] = small;
    let order = [beside, large, behind, also_large].map(InputEvent::Packet);
    assert_eq!(pair.server.events(), order);
    assert_eq!(pair.client.progress(), (4, 4));
}

#[test]
fn packets_of_each_id_stay_in_order_when_interleaved() {
    for (format, seed) in FORMATS.into_iter().flat_map(|format| (0..40).map(move |seed| (format, seed))) {
        let mut random = Random(seed);
        let config = Config { extended: true, header: Some(format), outbox_len_max: usize::MAX, ..quiet() };
        let mut pair = Pair::with(config.clone(), config);
        pair.client.interleave();
        pair.exchange();
        pair.server.events();
        let mut sent = Vec::new();
        for _ in 0..30 {
            let mut packets = Vec::new();
            for _ in 0..random.below(6) {
                let len = [0, 10, 5000, 70_000, 150_000][random.below(5)];
                let id = u16::try_from(random.below(4)).expect("it is small");
                // Each is told from the others by its first bytes.
                let mut content = u64::try_from(sent.len() + packets.len()).expect("few").to_be_bytes().to_vec();
                content.resize(8 + len, 0);
                packets.push(packet(id, content));
            }
            match random.below(3) {
                0 => packets.iter().for_each(|packet| pair.client.send(packet.clone()).unwrap()),
                1 => pair.client.send_frames(&gathered(&packets)).unwrap(),
                _ => pair.client.send_frames(&copied(&packets)).unwrap(),
            }
            sent.extend(packets);
            pair.client.room = random.below(200_000);
            pair.client.write();
            pair.client.room = usize::MAX;
        }
        pair.exchange();
        let heard = pair.server.events().into_iter();
        let heard: Vec<_> = heard
            .filter_map(|event| if let InputEvent::Packet(packet) = event { Some(packet) } else { None })
            .collect();
        assert_eq!(heard.len(), sent.len());
        for id in 0..4 {
            let of_id =
                |packets: &[Packet]| packets.iter().filter(|packet| packet.id == id).cloned().collect::<Vec<_>>();
            assert!(of_id(&heard) == of_id(&sent), "id {id} of seed {seed} in {format:?}");
        }
        let all = sent.len() as u64;
        assert_eq!((pair.client.progress(), pair.client.queued_len()), ((all, all), 0));
    }
}

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

#[test]
fn a_buffer_reuses_its_memory() {
    let mut buffer = FrameBuffer::new();
    let mut fill = || {
        (0..100).for_each(|id| buffer.push(PacketName { id, operation: OPERATION }, &[b"small"]));
        let frames = buffer.take();
        assert_eq!((buffer.is_empty(), buffer.len()), (true, 0));
        frames
    };
    let first = fill().iter().map(|packet| packet.content.as_ptr()).next();
    let again = (0..100).filter(|_| fill().iter().map(|packet| packet.content.as_ptr()).next() == first).count();
    assert!(again > 0, "memory that nobody holds is used again");
}

#[test]
fn the_outbox_can_be_made_smaller_and_larger() {
    let mut side = Side::server(quiet());
    let frames = gathered(&[packet(1, zeros(90)), packet(2, zeros(90))]);
    for (len_max, is_full) in [(201, false), (200, true), (0, true)] {
        side.set_outbox_len_max(len_max);
        assert!(!side.is_full() && !side.is_full_for_frames(&frames), "of {len_max} bytes");
        side.send_frames(&frames).unwrap();
        assert_eq!((side.is_full(), side.is_full_for_frames(&frames)), (is_full, is_full), "of {len_max} bytes");
        written(&mut side);
    }
}
