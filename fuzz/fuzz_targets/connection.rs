//! Runs any sequence of operations on two connected sides, and compares the output with the rules of the protocol.
#![no_main]

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use arbitrary::Arbitrary;
use bytes::{Buf, Bytes, BytesMut};
use frisbee::{
    CloseReason, Config, FrameBuffer, Operation, Packet, ProtocolError, SendError, StreamSendError,
    proto::{Connection, Decoder, FrameKind, HeaderFormat, InputEvent, Role, StreamEnd, StreamKey, Transmit},
};
use frisbee_fuzz::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    plain8: bool,
    detect: bool,
    limits: [Limits; 2],
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
struct Limits {
    content_len_max: u16,
    outbox_len_max: u16,
    streams_max: u8,
    stream_queue_len_max: u16,
    control_burst: u8,
    ping_interval: Option<u8>,
    silence_max: Option<u16>,
    write_stall_max: u16,
}

/// An operation, on the client or on the server.
#[derive(Arbitrary, Debug)]
struct Step<'a> {
    client: bool,
    act: Act<'a>,
}

#[derive(Arbitrary, Debug)]
enum Act<'a> {
    Send {
        id: u16,
        operation: u16,
        len: u16,
    },
    Open {
        id: Option<u8>,
    },
    SendOn {
        stream: u8,
        len: u16,
    },
    Read {
        stream: u8,
    },
    Close {
        stream: u8,
    },
    Release {
        stream: u8,
    },
    Drain,
    Finish,
    Fail,
    /// Receives up to `len` bytes written by the peer.
    Deliver {
        len: u16,
    },
    /// Receives bytes not written by the peer.
    Inject {
        bytes: &'a [u8],
    },
    SetReading {
        reading: bool,
    },
    /// Writes up to `len` bytes to the socket.
    Write {
        len: u16,
    },
    Advance {
        millis: u16,
    },
    /// Encodes several packets into a frame buffer, and sends it without the first `skipped` of them.
    SendFrames {
        operation: u16,
        lens: [u16; 4],
        skipped: u8,
    },
}

fuzz_target!(|input: Input| {
    let mut now = Instant::now();
    let format = if input.plain8 { HeaderFormat::Plain8 } else { HeaderFormat::Magic10 };
    let [client, server] = &input.limits;
    let mut client = Side::new(Role::Client, client.config(Some(format)), now);
    let mut server = Side::new(Role::Server, server.config((!input.detect).then_some(format)), now);
    for step in input.steps.iter().take(STEPS_MAX) {
        if let Act::Advance { millis } = step.act {
            now += Duration::from_millis(millis.into());
        }
        let (side, peer) = if step.client { (&mut client, &mut server) } else { (&mut server, &mut client) };
        side.now = now;
        peer.now = now;
        side.act(&step.act, peer);
        side.check();
        peer.check();
    }
    client.catch_up();
    server.catch_up();
    loop {
        client.write(usize::MAX);
        server.write(usize::MAX);
        if client.wire.is_empty() && server.wire.is_empty() {
            break;
        }
        client.deliver(&mut server, usize::MAX);
        client.catch_up();
        server.deliver(&mut client, usize::MAX);
        server.catch_up();
    }
    client.check_end(&server);
    server.check_end(&client);
});

/// A connection, and its expected state.
struct Side {
    connection: Connection,
    now: Instant,
    inbox: BytesMut,
    batch: Transmit,
    wire: BytesMut,
    streams: Vec<Stream>,
    /// Decodes the bytes written by this side.
    listener: Option<Decoder>,
    written: BytesMut,
    /// Frames expected in the output, in order.
    promised: VecDeque<Promise>,
    packets_out: u64,
    progress: u64,
    sent: Vec<Packet>,
    received: Vec<Packet>,
    /// Received packets above the length limit, by id and length.
    discarded: Vec<(u16, usize)>,
    /// `true` if the side missed bytes of its peer or received injected ones.
    confused: bool,
    drained: bool,
    closed: Option<String>,
    sequence: u32,
    /// Bytes that large contents may still have.
    large_left: usize,
}

#[derive(Debug)]
enum Promise {
    Frame {
        id: u16,
        kind: FrameKind,
        content: Bytes,
    },
    /// The close of a stream rejected because of a limit.
    Refusal,
}

struct Stream {
    key: StreamKey,
    last_read: Option<u32>,
}

impl Side {
    fn new(role: Role, config: Config, now: Instant) -> Self {
        Self {
            connection: Connection::new(role, Arc::new(config), now),
            now,
            inbox: BytesMut::new(),
            batch: Transmit::default(),
            wire: BytesMut::new(),
            streams: Vec::new(),
            listener: None,
            written: BytesMut::new(),
            promised: VecDeque::new(),
            packets_out: 0,
            progress: 0,
            sent: Vec::new(),
            received: Vec::new(),
            discarded: Vec::new(),
            confused: false,
            drained: false,
            closed: None,
            sequence: 0,
            large_left: LARGE_MAX,
        }
    }

    fn act(&mut self, act: &Act, peer: &mut Self) {
        match *act {
            Act::Send { id, operation, len } => self.send(id, operation, len),
            Act::SendFrames { operation, lens, skipped } => self.send_frames(operation, lens, skipped % 5),
            Act::Open { id } => {
                let opened = match id {
                    Some(id) => self.connection.open_stream_with_id(id.into()),
                    None => self.connection.open_stream(),
                };
                assert!(opened.is_err() || self.connection.is_open());
                self.streams.extend(opened.map(Stream::new));
            }
            Act::SendOn { stream, len } => self.send_on(stream, len),
            Act::Read { stream } => self.read(stream),
            Act::Close { stream } => {
                let Some(at) = self.stream(stream) else { return };
                self.close(self.streams[at].key);
            }
            Act::Release { stream } => {
                let Some(at) = self.stream(stream) else { return };
                let Stream { key, .. } = self.streams.swap_remove(at);
                self.promise_close(key);
                self.connection.release_stream(key);
            }
            Act::Drain => {
                self.drained = true;
                self.connection.drain(CloseReason::Shutdown);
            }
            Act::Finish => self.connection.finish(CloseReason::Local),
            Act::Fail => self.connection.fail(CloseReason::Shutdown),
            Act::Deliver { len } => self.deliver(peer, len.into()),
            Act::Inject { bytes } => {
                self.confused = true;
                self.hear(bytes);
            }
            Act::SetReading { reading } => self.connection.set_reading(self.now, reading),
            Act::Write { len } => self.write(len.into()),
            Act::Advance { .. } => {
                for side in [self, peer] {
                    side.tick();
                    // After a silence timeout, a PING due at the same time follows in the next call.
                    side.tick();
                    assert!(side.connection.poll_timeout().is_none_or(|due| side.now < due), "a deadline moves on");
                }
            }
        }
    }

    fn tick(&mut self) {
        let before = self.connection.counters().streams_refused;
        self.connection.handle_timeout(self.now);
        for _ in before..self.connection.counters().streams_refused {
            self.promise(Promise::Refusal);
        }
        while let Some(key) = self.connection.poll_overflowed() {
            assert_eq!(self.connection.stream_ended(key), Some(StreamEnd::Overflow));
        }
    }

    /// Reads from all streams until none blocks the connection, and processes the remaining input.
    fn catch_up(&mut self) {
        while self.connection.is_stalled() {
            for stream in 0..=u8::MAX {
                self.read(stream);
            }
            self.hear(&[]);
        }
    }

    fn send(&mut self, id: u16, operation: u16, len: u16) {
        let Some(operation) = Operation::new(operation) else { return };
        let packet = Packet::new(id, operation, self.content(len));
        let expected = self.sendable(packet.content.len());
        assert_eq!(self.connection.send(packet.clone()), expected);
        if expected.is_ok() {
            let content = packet.content.clone().into_bytes();
            self.promise(Promise::Frame { id, kind: FrameKind::Application(operation), content });
            self.sent.push(packet);
        }
    }

    fn send_frames(&mut self, operation: u16, lens: [u16; 4], skipped: u8) {
        let Some(operation) = Operation::new(operation) else { return };
        let packets = lens.map(|len| Packet::new(len, operation, self.content(len)));
        let mut buffer = FrameBuffer::new();
        for packet in &packets {
            let head = packet.content.len().min(usize::from(packet.id % 7));
            buffer.push_content(packet.name(), &packet.content[..head], &packet.content.slice(head..));
        }
        let mut frames = buffer.take();
        frames.split_to(skipped.into());
        let packets = &packets[skipped.into()..];
        assert!(frames.iter().eq(packets.iter().cloned()));
        let longest = packets.iter().map(|packet| packet.content.len()).max().unwrap_or_default();
        let expected = self.sendable(longest);
        assert_eq!(self.connection.send_frames(&frames), expected);
        if expected.is_ok() {
            for packet in packets {
                let content = packet.content.clone().into_bytes();
                self.promise(Promise::Frame { id: packet.id, kind: FrameKind::Application(operation), content });
                self.sent.push(packet.clone());
            }
        }
    }

    fn send_on(&mut self, stream: u8, len: u16) {
        let Some(at) = self.stream(stream) else { return };
        let (key, content) = (self.streams[at].key, self.content(len));
        let len = content.len();
        let expected = match (self.connection.stream_ended(key), self.sendable(len)) {
            (Some(end), _) => Err(StreamSendError::Ended(end)),
            (None, Ok(())) if len == 0 => Err(StreamSendError::Empty),
            (None, Err(SendError::ContentTooLarge { len, limit })) => {
                Err(StreamSendError::ContentTooLarge { len, limit })
            }
            (None, sendable) => Ok(sendable.expect("streams end with their connection")),
        };
        assert_eq!(self.connection.send_on(key, content.clone().into()), expected);
        if expected.is_ok() {
            self.promise(Promise::Frame { id: self.connection.stream_id(key), kind: FrameKind::Stream, content });
        }
    }

    fn sendable(&self, len: usize) -> Result<(), SendError> {
        let limit = self.connection.config().content_len_max;
        match len {
            _ if !self.connection.is_open() => Err(SendError::Closed),
            _ if len > limit as usize => Err(SendError::ContentTooLarge { len, limit }),
            _ => Ok(()),
        }
    }

    fn read(&mut self, stream: u8) {
        let Some(at) = self.stream(stream) else { return };
        match self.connection.read_from(self.streams[at].key) {
            Ok(Some(content)) if !self.confused && content.len() >= 4 => {
                let sequence = content.first_chunk().map(|first| u32::from_be_bytes(*first));
                assert!(self.streams[at].last_read < sequence, "data of a stream keeps its order");
                self.streams[at].last_read = sequence;
            }
            Ok(_) => {}
            Err(StreamEnd::TooLarge { announced, limit }) => assert!(announced > limit),
            Err(end) => assert_eq!(self.connection.stream_ended(self.streams[at].key), Some(end)),
        }
    }

    fn close(&mut self, key: StreamKey) {
        self.promise_close(key);
        self.connection.close_stream(key);
        assert!(self.connection.stream_ended(key).is_some());
    }

    fn promise_close(&mut self, key: StreamKey) {
        if self.connection.stream_ended(key).is_none() {
            self.promise(Promise::Frame {
                id: self.connection.stream_id(key),
                kind: FrameKind::Stream,
                content: Bytes::new(),
            });
        }
    }

    fn promise(&mut self, promise: Promise) {
        self.packets_out += 1;
        self.promised.push_back(promise);
    }

    fn deliver(&mut self, peer: &mut Self, len: usize) {
        let bytes = peer.wire.split_to(len.min(peer.wire.len()));
        let format = peer.connection.format().unwrap_or(HeaderFormat::Magic10);
        self.confused |= self.connection.format().is_some_and(|expected| expected != format);
        // A header of eight bytes with id 15 is the only ambiguous first packet.
        let begins = self.connection.format().is_none() && self.inbox.len() + bytes.len() >= 2;
        let first = self.inbox.iter().chain(&bytes).take(2);
        self.confused |= begins && format == HeaderFormat::Plain8 && first.eq(&[0, 15]);
        self.hear(&bytes);
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.connection.handle_received(self.now, bytes.len());
        loop {
            let (before, was_open) = (self.connection.counters().streams_refused, self.connection.is_open());
            let inbox_len = self.inbox.len();
            let result = self.connection.handle_input(self.now, &mut self.inbox);
            for _ in before..self.connection.counters().streams_refused {
                self.promise(Promise::Refusal);
            }
            match result {
                Ok(Some(event)) => {
                    assert!(was_open, "no event after the end");
                    let takes_more = matches!(&event, InputEvent::Packet(packet) if packet.id % 2 == 0);
                    self.handle(event);
                    if takes_more {
                        self.hear_packets();
                    }
                }
                Ok(None) => {
                    assert!(was_open || self.inbox.len() == inbox_len, "nothing is read after the end");
                    return;
                }
                Err(error) => {
                    let of_limits =
                        matches!(error, ProtocolError::ContentTooLarge { .. } | ProtocolError::ControlFlood { .. });
                    assert!(of_limits || self.confused, "a peer that keeps the rules meets only limits: {error}");
                    return self.connection.fail(CloseReason::Protocol(error));
                }
            }
        }
    }

    /// Takes the next packets. Also checks that each can be put back without a trace.
    fn hear_packets(&mut self) {
        loop {
            let before = self.inbox.clone();
            let Some(packet) = self.connection.handle_packet(&mut self.inbox) else {
                assert_eq!(self.inbox, before, "what is no packet stays");
                return;
            };
            let mut undone = self.inbox.clone();
            self.connection.undo_input([packet.clone()], &mut undone);
            assert_eq!(undone, before);
            self.handle(InputEvent::Packet(packet));
        }
    }

    fn handle(&mut self, event: InputEvent) {
        match event {
            InputEvent::Packet(packet) => {
                if self.connection.is_draining() {
                    self.connection.handle_refused();
                } else {
                    self.received.push(packet);
                }
            }
            InputEvent::TooLarge { id, announced, .. } => {
                let config = self.connection.config();
                assert!(config.content_len_max < announced && announced <= config.discard_len_max);
                self.discarded.push((id, announced as usize));
            }
            InputEvent::StreamOpened(key) => self.streams.push(Stream::new(key)),
            InputEvent::StreamReadable(key) => assert!(self.streams.iter().any(|stream| stream.key == key)),
            _ => unreachable!("an event that this target does not know"),
        }
    }

    fn write(&mut self, mut room: usize) {
        while self.connection.closed().is_none()
            && room > 0
            && (self.batch.has_remaining() || self.connection.poll_transmit(self.now, &mut self.batch))
        {
            let len = self.batch.chunk().len().min(room);
            room -= len;
            let chunk = self.batch.chunk()[..len].to_vec();
            self.wire.extend_from_slice(&chunk);
            self.written.extend_from_slice(&chunk);
            self.connection.handle_written(self.now, len, &mut self.batch);
        }
        self.compare_with_promises();
    }

    fn compare_with_promises(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let format = self.connection.format().unwrap_or(HeaderFormat::Magic10);
        let listener = self.listener.get_or_insert_with(|| Decoder::new(Some(format), u32::MAX));
        while let Some(frame) = listener.decode(&mut self.written).expect("only whole frames are written") {
            if let FrameKind::Ping | FrameKind::Pong = frame.kind {
                continue;
            }
            match self.promised.pop_front().expect("nothing is written that was not sent") {
                Promise::Refusal => assert!(frame.kind == FrameKind::Stream && frame.content.is_empty()),
                Promise::Frame { id, kind, content } => {
                    assert!(
                        (frame.id, frame.kind) == (id, kind) && frame.content == content,
                        "packets keep their order"
                    );
                }
            }
        }
    }

    fn check(&mut self) {
        let connection = &mut self.connection;
        assert!(connection.streams_len() <= connection.config().streams_max);
        assert_eq!(connection.streams_len(), self.streams.len());
        assert_eq!(connection.is_full(), connection.queued_len() >= connection.config().outbox_len_max);
        assert_eq!(connection.counters().packets_out, self.packets_out);
        let (queued, written) = connection.progress();
        assert!(self.progress <= written && written <= queued);
        self.progress = written;
        if let Some(reason) = connection.closed() {
            let reason = reason.to_string();
            assert_eq!(*self.closed.get_or_insert_with(|| reason.clone()), reason, "the reason stays");
            assert!(!connection.poll_transmit(self.now, &mut Transmit::default()), "nothing is written after the end");
            assert_eq!(connection.poll_timeout(), None);
            assert!(self.streams.iter().all(|stream| connection.stream_ended(stream.key).is_some()));
            return;
        }
        assert!(connection.queued_len() >= self.batch.remaining());
        assert!(connection.queued_len() == 0 || connection.has_output());
        let pings = connection.config().ping_interval.is_some();
        assert!(connection.queued_len() > 0 || !connection.has_output() || pings, "only a PING is not counted yet");
    }

    /// Checks the final state, after all bytes were written and delivered.
    fn check_end(&mut self, peer: &Self) {
        let peer_heard = !peer.confused && !peer.drained && peer.connection.is_open();
        let limit = peer.connection.config().content_len_max as usize;
        let (fitting, too_large): (Vec<_>, Vec<_>) = self.sent.iter().partition(|packet| packet.content.len() <= limit);
        let too_large: Vec<_> = too_large.into_iter().map(|packet| (packet.id, packet.content.len())).collect();
        assert!(
            peer.confused || fitting.iter().copied().take(peer.received.len()).eq(&peer.received),
            "packets keep their order"
        );
        assert!(peer.confused || too_large.starts_with(&peer.discarded), "and so do those that are too large");
        if self.connection.closed().is_some_and(|reason| !matches!(reason, CloseReason::Local)) {
            return;
        }
        let silent = self.connection.format().is_none() && self.connection.is_open();
        assert!(silent || (self.promised.is_empty() && self.written.is_empty()), "all that was sent is written");
        assert!(silent || (self.connection.queued_len() == 0 && !self.connection.has_output()));
        assert_eq!(self.connection.is_open(), self.connection.closed().is_none(), "finishing came to its end");
        let all_arrived = (fitting.len(), too_large.len()) == (peer.received.len(), peer.discarded.len());
        assert!(silent || !peer_heard || all_arrived, "all that was sent arrives");
    }

    /// Returns a content that begins with its sequence number. Contents are short once the large ones are used up.
    fn content(&mut self, len: u16) -> Bytes {
        self.sequence += 1;
        let len = usize::from(len);
        let len = if len <= self.large_left { len } else { len % SHORT_LEN };
        self.large_left -= if len < SHORT_LEN { 0 } else { len };
        let sequence = self.sequence.to_be_bytes();
        let mut content = vec![sequence[3]; len];
        let head_len = len.min(sequence.len());
        content[..head_len].copy_from_slice(&sequence[..head_len]);
        content.into()
    }

    fn stream(&self, number: u8) -> Option<usize> {
        usize::from(number).checked_rem(self.streams.len())
    }
}

impl Stream {
    fn new(key: StreamKey) -> Self {
        Self { key, last_read: None }
    }
}

impl Limits {
    fn config(&self, header: Option<HeaderFormat>) -> Config {
        let millis = |millis: u16| Duration::from_millis(u64::from(millis) + 1);
        Config {
            header,
            content_len_max: self.content_len_max.into(),
            discard_len_max: u32::from(self.content_len_max) * u32::from(self.control_burst % 4),
            discard_time_max: millis(self.write_stall_max),
            outbox_len_max: self.outbox_len_max.into(),
            streams_max: usize::from(self.streams_max % 8),
            stream_queue_len_max: self.stream_queue_len_max.into(),
            control_burst: self.control_burst.into(),
            ping_interval: self.ping_interval.map(|interval| millis(interval.into())),
            silence_max: self.silence_max.map(millis),
            write_stall_max: millis(self.write_stall_max),
            // The model covers plain peers only.
            extended: false,
            ..Config::default()
        }
    }
}

/// Longer inputs are slow, and rarely reach anything that shorter ones do not.
const STEPS_MAX: usize = 100;
/// Bytes that the large contents of a side have together: enough to exceed each limit.
const LARGE_MAX: usize = 1 << 17;
const SHORT_LEN: usize = 64;
