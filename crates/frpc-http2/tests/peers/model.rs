//! A client and a server joined by a wire, with random schedules, cuts, windows, resets and shutdowns.
//!
//! Tests and the fuzz target `http2_cores` share this model. Every message arrives once and in order, or its stream
//! ends with a typed error. In the end both sides have forgotten all streams and returned all credit.

use std::{collections::BTreeMap, sync::LazyLock, time::Instant};

use bytes::Bytes;
use frpc_http2::{
    Connection, ErrorCode, Event, Field, FrameCount, Head, Header, OpenError, PreparedBlock, Settings, StreamId,
};

/// The source of decisions.
pub(crate) trait Choices {
    /// Returns a number below `max`.
    fn below(&mut self, max: usize) -> usize;

    /// Returns `true` once there are no more decisions.
    fn is_over(&self) -> bool;
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The window of each stream.
    pub(crate) window: u32,
    /// The tables of compressed fields.
    pub(crate) table: u32,
    /// The maximum number of streams.
    pub(crate) streams_max: usize,
    /// The maximum data of a request or response.
    pub(crate) len_max: usize,
}

impl Extent {
    /// Returns the size for tests.
    #[allow(dead_code, reason = "the fuzz target has smaller runs")]
    pub(crate) fn full(window: u32, table: u32) -> Self {
        Self { window, table, streams_max: 40, len_max: LEN_MAX }
    }
}

/// The longest data of a stream.
const LEN_MAX: usize = 100_000;

/// One side of a stream.
#[derive(Debug, Default)]
struct Flow {
    /// The length of the data to be sent, and the part the connection has accepted.
    len: usize,
    sent: usize,
    has_head: bool,
    is_ended: bool,
    received: usize,
    has_received_head: bool,
    has_received_end: bool,
    /// `true` once this side has reset the stream.
    is_cancelled: bool,
    /// The code of a reset by the peer.
    reset: Option<ErrorCode>,
}

impl Flow {
    fn is_sending(&self) -> bool {
        !self.is_ended && !self.is_cancelled && self.reset.is_none()
    }
}

/// A side with the bytes on their way to it.
struct Side {
    core: Connection,
    is_client: bool,
    extent: Extent,
    wire: Vec<u8>,
    /// Bytes of `wire` that have arrived. Each turn adds to them, like a socket: a long frame is whole after some turns.
    arrived: usize,
    /// All bytes handled so far.
    handled: Vec<u8>,
    /// SETTINGS from this side that its connection does not know of.
    foreign_settings: u64,
    /// `true` once the SETTINGS of the peer apply.
    is_greeted: bool,
    flows: BTreeMap<StreamId, Flow>,
    /// Data received and not yet released.
    unreleased: Vec<(StreamId, usize)>,
    block: PreparedBlock,
    trailers: PreparedBlock,
    now: Instant,
}

impl Side {
    fn new(is_client: bool, extent: Extent, settings: Settings, now: Instant) -> Self {
        let mut core = if is_client { Connection::client(settings, now) } else { Connection::server(settings, now) };
        let block = match is_client {
            true => core.prepare(&[
                Field::new(":method", "POST"),
                Field::new(":scheme", "http"),
                Field::repeated(":path", "/package.Service/Method"),
                Field::repeated("te", "trailers"),
            ]),
            false => core.prepare(&[Field::new(":status", "200"), Field::repeated("content-type", "application/grpc")]),
        };
        let trailers = core.prepare(&[Field::repeated("grpc-status", "0")]);
        let (flows, wire, handled, unreleased) = Default::default();
        Self {
            core,
            is_client,
            extent,
            wire,
            arrived: 0,
            handled,
            foreign_settings: 0,
            is_greeted: false,
            flows,
            unreleased,
            block,
            trailers,
            now,
        }
    }

    fn open(&mut self, choices: &mut impl Choices) {
        // The id that the stream will have, as a field to be compared by the server.
        let id = self.flows.keys().last().map_or(1, |id| id.get() + 2).to_string();
        let extra = "x".repeat(choices.below(40));
        let fields = [Field::repeated("x-extra", &extra), Field::new("x-stream", &id)];
        let len = length(choices, self.extent.len_max);
        match self.core.open(Header::prepared(self.block).with_fields(&fields), len == 0) {
            Ok(stream) => {
                let flow = Flow { len, has_head: true, is_ended: len == 0, ..Flow::default() };
                self.flows.insert(stream, flow);
            }
            Err(OpenError::NoCapacity | OpenError::GoingAway) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends the head of a response, or a piece of data, or the end of a stream.
    fn send(&mut self, stream: StreamId, choices: &mut impl Choices) {
        let Some(flow) = self.flows.get_mut(&stream).filter(|flow| flow.is_sending()) else { return };
        let id = stream.get().to_string();
        if !flow.has_head {
            if choices.below(5) == 0 {
                let fields = [Field::new(":status", "103")];
                self.core.send_informational(stream, Header::fields(&fields)).expect("the stream is open");
            }
            flow.has_head = true;
            let fields = [Field::new("x-stream", &id)];
            let header = Header::prepared(self.block).with_fields(&fields);
            return self.core.send_head(stream, header, false).expect("the stream is open");
        }
        let len = (flow.len - flow.sent).min(1 + choices.below(30_000));
        let piece = content(stream, self.is_client, flow.sent, len);
        let is_end = flow.sent + len == flow.len;
        let with_trailers = is_end && choices.below(2) == 0;
        let end = is_end && !with_trailers;
        let sent = match choices.below(2) {
            0 => self.core.send_data(stream, piece, end),
            _ => self.core.send_slice(stream, &piece, end),
        };
        if sent.is_err() {
            return;
        }
        flow.sent += len;
        flow.is_ended = is_end;
        if with_trailers {
            let fields = [Field::new("x-stream", &id)];
            let trailers = Header::prepared(self.trailers).with_fields(&fields);
            self.core.send_trailers(stream, trailers).expect("the stream is open");
        }
    }

    fn cancel(&mut self, stream: StreamId) {
        let Some(flow) = self.flows.get_mut(&stream) else { return };
        flow.is_cancelled = true;
        self.core.reset(stream, ErrorCode::CANCEL);
        assert!(!self.core.is_open(stream));
    }

    /// Receives some of the bytes that are on their way, after the ones that have arrived.
    fn receive(&mut self, len: usize, choices: &mut impl Choices) {
        self.arrived += len.min(self.wire.len() - self.arrived);
        let mut consumed = 0;
        loop {
            let received = self.core.receive(&self.wire[consumed..self.arrived], self.now);
            let received = received.expect("the peer is honest");
            consumed += received.consumed;
            let Some(event) = received.event else { break };
            note(
                &mut self.flows,
                &mut self.unreleased,
                &mut self.is_greeted,
                self.is_client,
                self.extent.len_max,
                event,
                choices,
            );
        }
        // The rest arrives again together with later bytes.
        self.handled.extend(self.wire.drain(..consumed));
        self.arrived -= consumed;
        while let Some(event) = self.core.poll_event() {
            note(
                &mut self.flows,
                &mut self.unreleased,
                &mut self.is_greeted,
                self.is_client,
                self.extent.len_max,
                event,
                choices,
            );
        }
    }

    fn release(&mut self, at: usize) {
        let (stream, len) = self.unreleased.swap_remove(at);
        self.core.release(stream, len);
    }

    /// Writes some bytes of the output.
    fn write(&mut self, peer: &mut Self, choices: &mut impl Choices) {
        if !self.core.poll_output() {
            return;
        }
        let chunks: Vec<u8> = self.core.output_chunks().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(chunks.len(), self.core.output_len());
        let len = 1 + choices.below(chunks.len());
        peer.wire.extend_from_slice(&chunks[..len]);
        self.core.advance_output(len);
    }

    /// Writes all output, and after it SETTINGS that this side does not know of. They never allow more than its own.
    fn constrain(&mut self, peer: &mut Self, settings: &[(u16, u32)]) {
        self.core.take_output(&mut peer.wire);
        if self.core.output_len() > 0 || !self.is_greeted || !peer.is_greeted {
            return;
        }
        let len = u8::try_from(settings.len() * 6).expect("a few settings");
        self.foreign_settings += 1;
        peer.wire.extend([0, 0, len, 4, 0, 0, 0, 0, 0]);
        for (id, value) in settings {
            peer.wire.extend(id.to_be_bytes());
            peer.wire.extend(value.to_be_bytes());
        }
    }

    fn constrain_randomly(&mut self, peer: &mut Self, streams_max: u32, choices: &mut impl Choices) {
        let mut below = |max: u32| u32::try_from(choices.below(max as usize + 1)).expect("it is below a `u32`");
        let (window, table) = (below(self.extent.window), below(self.extent.table));
        match peer.is_client {
            true => self.constrain(peer, &[(4, window), (1, table), (3, below(streams_max))]),
            false => self.constrain(peer, &[(4, window), (1, table)]),
        }
    }
}

/// Checks an event, and takes note of it.
fn note(
    flows: &mut BTreeMap<StreamId, Flow>,
    unreleased: &mut Vec<(StreamId, usize)>,
    is_greeted: &mut bool,
    is_client: bool,
    len_max: usize,
    event: Event<'_>,
    choices: &mut impl Choices,
) {
    let check_field = |stream: StreamId, head: &Head| {
        assert_eq!(
            head.get("x-stream"),
            Some(stream.get().to_string().as_bytes()),
            "the fields are those of {stream:?}"
        );
    };
    let live = |flow: &Flow| {
        assert!(!flow.is_cancelled && flow.reset.is_none() && !flow.has_received_end, "no event follows the last one");
    };
    match event {
        Event::Head { stream, head, end } => {
            check_field(stream, &head);
            if !is_client {
                let flow = Flow { len: length(choices, len_max), ..Flow::default() };
                assert!(flows.insert(stream, flow).is_none(), "a request begins once");
            }
            let flow = flows.get_mut(&stream).expect("a response has a request");
            live(flow);
            assert!(!std::mem::replace(&mut flow.has_received_head, true));
            flow.has_received_end = end;
        }
        Event::Informational { stream, .. } => {
            assert!(is_client && !flows[&stream].has_received_head);
            live(&flows[&stream]);
        }
        Event::Data { stream, data, end } => {
            let flow = flows.get_mut(&stream).expect("data follows a head");
            live(flow);
            assert!(flow.has_received_head);
            let expected = content(stream, !is_client, flow.received, data.len());
            assert!(expected == data, "the data of {stream:?} after {} bytes", flow.received);
            flow.received += data.len();
            flow.has_received_end = end;
            unreleased.push((stream, data.len()));
        }
        Event::Trailers { stream, trailers } => {
            check_field(stream, &trailers);
            let flow = flows.get_mut(&stream).expect("trailers follow a head");
            live(flow);
            flow.has_received_end = true;
        }
        Event::Reset { stream, error } => {
            let flow = flows.get_mut(&stream).expect("resets have a stream");
            assert!(!flow.is_cancelled && flow.reset.is_none(), "a stream ends once");
            assert!(error.is_remote, "no side breaks the protocol: {error:?}");
            flow.reset = Some(error.code);
        }
        Event::SettingsApplied => *is_greeted = true,
        _ => {}
    }
}

/// Returns a part of the data of a stream, different in each stream and direction.
fn content(stream: StreamId, is_of_client: bool, at: usize, len: usize) -> Bytes {
    static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
        let byte = |at: usize| u8::try_from((at * 7 + at / 256) % 251).unwrap_or(0);
        (0..LEN_MAX + 2000).map(byte).collect()
    });
    let start = at + stream.get() as usize * 13 + usize::from(is_of_client);
    BYTES.slice(start..start + len)
}

/// Returns the length of a request or response.
fn length(choices: &mut impl Choices, max: usize) -> usize {
    let len = match choices.below(6) {
        0 => 0,
        1 => 5,
        2 => 300,
        3 => 20_000,
        4 => LEN_MAX,
        _ => choices.below(70_000),
    };
    if len < 1000 { len } else { len * max / LEN_MAX }
}

fn settings(extent: Extent, streams_max: u32, choices: &mut impl Choices) -> Settings {
    Settings {
        stream_window: extent.window,
        connection_window: 65_535,
        header_table_max: extent.table,
        encoder_table_max: [4096, 200][choices.below(2)],
        streams_max,
        stream_queue_max: [40_000, 1000][choices.below(2)],
        connection_queue_max: [200_000, 50_000][choices.below(2)],
        batch_max: [64 << 10, 100][choices.below(2)],
        recent_resets_max: [128, 1][choices.below(2)],
        // The peer is honest, but the schedule is not.
        small_frames_max: u32::MAX,
        empty_frames_max: u32::MAX,
        control_frames_max: u32::MAX,
        resets_max: u32::MAX,
        ..Settings::default()
    }
}

/// Runs both sides until the decisions are over, and then until nothing moves any more.
pub(crate) fn run(choices: &mut impl Choices, extent: Extent) {
    let now = Instant::now();
    let streams_max = 1 + u32::try_from(choices.below(8)).expect("a small number");
    let mut client = Side::new(true, extent, settings(extent, streams_max, choices), now);
    let mut server = Side::new(false, extent, settings(extent, streams_max, choices), now);
    let mut has_shut_down = false;
    while !choices.is_over() {
        let action = choices.below(64);
        // Before SETTINGS, a client does not know the limit of the server, which refuses further streams.
        let known_max = if client.is_greeted { extent.streams_max } else { streams_max as usize };
        if action < 8 && client.flows.len() < known_max {
            client.open(choices);
            continue;
        }
        let (side, peer) =
            if action.is_multiple_of(2) { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let stream = match side.flows.len() {
            0 => None,
            count => side.flows.keys().nth(count - 1 - choices.below(count.min(8))).copied(),
        };
        match (action / 2, stream) {
            (4..=11, Some(stream)) => side.send(stream, choices),
            (12..=17, _) => side.write(peer, choices),
            (18..=23, _) => {
                let len = choices.below(side.wire.len() - side.arrived + 1);
                side.receive(len, choices);
            }
            (24..=27, _) if !side.unreleased.is_empty() => side.release(choices.below(side.unreleased.len())),
            (28, Some(stream)) if choices.below(4) == 0 => side.cancel(stream),
            (29, _) => side.constrain_randomly(peer, streams_max, choices),
            (30, _) => side.core.ping([7; 8]),
            (31, _) if choices.below(16) == 0 => {
                side.core.shut_down();
                has_shut_down = true;
            }
            _ => {}
        }
    }
    server.constrain(&mut client, &[(4, extent.window), (3, streams_max)]);
    client.constrain(&mut server, &[(4, extent.window)]);
    finish(&mut client, &mut server);
    check(&mut client, &mut server, has_shut_down);
}

/// Exchanges everything, without further choices.
fn finish(client: &mut Side, server: &mut Side) {
    let mut idle_turns = 0;
    for _ in 0..100_000 {
        let before = progress(client, server);
        pass_all(client, server);
        pass_all(server, client);
        idle_turns = if progress(client, server) == before { idle_turns + 1 } else { 0 };
        if idle_turns == 3 {
            return;
        }
    }
    panic!("the exchange never ends: {:?} {:?}", client.core, server.core);
}

fn pass_all(side: &mut Side, peer: &mut Side) {
    let streams: Vec<_> = side.flows.keys().copied().collect();
    streams.into_iter().for_each(|stream| side.send(stream, &mut Last));
    side.core.take_output(&mut peer.wire);
    peer.receive(usize::MAX, &mut Last);
    while !peer.unreleased.is_empty() {
        peer.release(0);
    }
}

/// The last decisions: the largest pieces, without trailers.
struct Last;

impl Choices for Last {
    fn below(&mut self, max: usize) -> usize {
        max - 1
    }

    fn is_over(&self) -> bool {
        true
    }
}

fn progress(client: &Side, server: &Side) -> [usize; 6] {
    let of = |side: &Side| {
        let flows = side.flows.values();
        let moved =
            flows.map(|flow| flow.sent + flow.received + usize::from(flow.has_head) + usize::from(flow.is_ended));
        [moved.sum(), side.wire.len(), side.core.output_len()]
    };
    let ([a, b, c], [d, e, f]) = (of(client), of(server));
    [a, b, c, d, e, f]
}

/// Checks both sides after the end.
fn check(client: &mut Side, server: &mut Side, has_shut_down: bool) {
    for (stream, ours) in &client.flows {
        let theirs = server.flows.get(stream);
        let is_cancelled = ours.is_cancelled || theirs.is_some_and(|theirs| theirs.is_cancelled);
        let Some(theirs) = theirs else {
            let is_refused = ours.reset == Some(ErrorCode::REFUSED_STREAM);
            // A request may also be cancelled before all of its head has gone out.
            assert!(is_cancelled || is_refused, "a request was lost: {stream:?} {ours:?}");
            continue;
        };
        assert!(ours.received <= theirs.sent && theirs.received <= ours.sent, "{stream:?} {ours:?} {theirs:?}");
        if is_cancelled {
            continue;
        }
        assert!(ours.has_received_end && ours.received == theirs.len, "the response: {stream:?} {ours:?} {theirs:?}");
        // A server may answer before the end of the request, and stops it without an error.
        assert_eq!(ours.reset.unwrap_or(ErrorCode::NO_ERROR), ErrorCode::NO_ERROR, "{stream:?} {ours:?}");
        assert_eq!(theirs.reset, None, "{stream:?} {theirs:?}");
        assert!(!theirs.has_received_end || theirs.received == ours.len, "the request: {stream:?} {ours:?} {theirs:?}");
        assert!(theirs.has_received_end || theirs.is_ended, "{stream:?} {theirs:?}");
    }
    for (side, peer) in [(&*client, &*server), (&*server, &*client)] {
        let mut passed = frames_in(&side.handled);
        assert_eq!(counts(&side.core, |count| count.received), passed, "received");
        passed[usize::from(SETTINGS)] -= peer.foreign_settings;
        assert_eq!(counts(&peer.core, |count| count.sent), passed, "sent");
    }
    for side in [client, server] {
        assert_eq!((side.core.active_streams(), side.core.unreleased()), (0, 0), "{:?}", side.core);
        assert_eq!(side.core.is_done(), has_shut_down, "{:?}", side.core);
        assert!(side.core.memory() < 500_000, "{}", side.core.memory());
        side.core.shrink();
        assert!(side.core.memory() < 16_000, "{}", side.core.memory());
        assert_eq!(side.core.error(), None);
    }
}

fn counts(core: &Connection, count: fn(FrameCount) -> u64) -> Vec<u64> {
    core.frames().counts().map(count).collect()
}

/// Returns the number of frames of each type in these bytes.
fn frames_in(bytes: &[u8]) -> Vec<u64> {
    let mut frames = vec![0; usize::from(CONTINUATION) + 2];
    let mut rest = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(bytes);
    while let [a, b, c, kind, ..] = *rest {
        frames[usize::from(kind)] += 1;
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    assert!(rest.is_empty(), "whole frames");
    frames
}

const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
