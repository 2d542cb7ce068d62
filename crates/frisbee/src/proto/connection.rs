//! One side of a connection: what to make of input, what to write, when to give up.

use std::{
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::{
    budget::Budget,
    decoder::{Decoder, Frame},
    header::{Header, HeaderFormat, Kind},
    heartbeat::{Beat, Heartbeat},
    outbox::{Cause, Outbox, Transmit},
    streams::{OpenError, Received, StreamEnd, StreamKey, Streams},
};
use crate::{CloseReason, Config, Operation, Packet, ProtocolError, SendError};

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// One side of a frisbee connection: bytes and time go in, events and bytes come out.
///
/// After any `handle_*` and any wish of the user, call [`poll_transmit`](Self::poll_transmit) until it has nothing more
/// and write what it gave; then wait for input, for the user, or for [`poll_timeout`](Self::poll_timeout).
///
/// ```
/// use std::{sync::Arc, time::Instant};
///
/// use bytes::{Buf, BytesMut};
/// use frisbee::{Config, Operation, Packet, proto::{Connection, Event, Role, Transmit}};
///
/// let (now, config) = (Instant::now(), Arc::new(Config::default()));
/// let mut client = Connection::new(Role::Client, config.clone(), now);
/// let mut server = Connection::new(Role::Server, config, now);
/// let packet = Packet::new(7, Operation::new(20).unwrap(), "hello");
/// client.send(packet.clone())?;
///
/// let (mut wire, mut batch) = (BytesMut::new(), Transmit::default());
/// while client.poll_transmit(now, &mut batch) {
///     wire.extend_from_slice(batch.chunk());
///     client.handle_written(now, batch.chunk().len(), &mut batch);
/// }
/// assert_eq!(server.handle_input(now, &mut wire)?, Some(Event::Packet(packet)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    state: State,
    decoder: Decoder,
    outbox: Outbox,
    heartbeat: Heartbeat,
    streams: Streams,
    /// Streams that ended because they stalled, to be told of.
    overflowed: Vec<StreamKey>,
    budget: Budget,
    /// Since when a batch has been handed out without any of it being written.
    stalled: Option<Instant>,
    written: u64,
    /// How many of the packets ever queued were handed out for writing.
    attempted: u64,
    /// The content that is being discarded because it is too large, and when that has taken too long.
    discarding: Option<Discarding>,
    /// Since when this side does not read.
    paused: Option<Instant>,
    /// When contents that wait in streams are copied out of the read buffers they pin.
    detach_due: Option<Instant>,
    /// How many packets of streams were sent for which the peer has not sent a close. Each may cause one.
    closes_expected: u64,
    counters: Counters,
}

/// ```text
///   Open ──drain()──▶ Draining ──finish()──▶ Finishing ──all written──▶ Closed
///     ├──────────────finish()──────────────────▲                         ▲
///     └──any──fail()─────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
enum State {
    Open,
    /// Handlers under way may still send; the peer gets no new handler.
    Draining,
    /// What was sent is being written, nothing is read or taken for sending.
    Finishing(CloseReason),
    Closed(CloseReason),
}

#[derive(Debug)]
struct Discarding {
    announced: u32,
    due: Option<Instant>,
}

/// What input meant, for those above the protocol.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet for a handler.
    Packet(Packet),
    /// A packet with a content larger than [`Config::content_len_max`], which is discarded as it arrives.
    TooLarge {
        /// The id of the packet.
        id: u16,
        /// What it asks for.
        operation: Operation,
        /// Bytes of content.
        announced: u32,
    },
    /// The peer opened a stream; its first data can be read.
    StreamOpened(StreamKey),
    /// The stream has something to read, or ended.
    StreamReadable(StreamKey),
}

/// What went through a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets received, of every kind.
    pub packets_in: u64,
    /// Packets taken for sending, heartbeats not counted.
    pub packets_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Reads that brought something.
    pub batches_in: u64,
    /// Batches handed to the socket.
    pub batches_out: u64,
    /// Packets dropped because their operation is reserved.
    pub dropped: u64,
    /// Packets that no handler got because a limit was reached or the connection was draining.
    pub refused: u64,
    /// Packets and data of streams discarded because they were larger than
    /// [`Config::content_len_max`](crate::Config::content_len_max).
    pub too_large: u64,
    /// Streams refused or closed because a limit was reached.
    pub streams_refused: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.batches_in += other.batches_in;
        self.batches_out += other.batches_out;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.too_large += other.too_large;
        self.streams_refused += other.streams_refused;
    }
}

impl Connection {
    /// A connection that was just established.
    pub fn new(role: Role, config: Arc<Config>, now: Instant) -> Self {
        let (format, stream_ids) = match role {
            Role::Client => (Some(config.header.unwrap_or(HeaderFormat::Magic10)), STREAMS_OF_CLIENT),
            Role::Server => (config.header, STREAMS_OF_SERVER),
        };
        Self {
            state: State::Open,
            decoder: Decoder::new(format, config.content_len_max).skipping(config.discard_len_max),
            outbox: Outbox::new(format),
            heartbeat: Heartbeat::new(now, config.ping_interval, config.silence_max),
            streams: Streams::new(stream_ids, &config),
            overflowed: Vec::new(),
            budget: Budget::new(now, config.control_burst),
            stalled: None,
            written: 0,
            attempted: 0,
            discarding: None,
            paused: None,
            detach_due: None,
            closes_expected: 0,
            counters: Counters::default(),
            config,
        }
    }

    // What happened.

    /// Reports that the socket brought `len` bytes.
    pub fn handle_received(&mut self, now: Instant, len: usize) {
        self.heartbeat.handle_received(now);
        self.counters.bytes_in += len as u64;
        self.counters.batches_in += 1;
    }

    /// Takes whole frames off the front of `inbox` until one is an event: `None` if more bytes are needed, or if a stream
    /// [stalls](Self::is_stalled). A header
    /// that breaks a rule stays in `inbox`. After an error the connection goes on until [`fail`](Self::fail) ends it.
    pub fn handle_input(&mut self, now: Instant, inbox: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        while matches!(self.state, State::Open | State::Draining) && !self.is_stalled() {
            let frame = self.decoder.decode(inbox)?;
            if let (false, Some(format)) = (self.outbox.has_format(), self.decoder.format()) {
                self.outbox.set_format(format);
            }
            let Some(frame) = frame else {
                if self.decoder.skip_len() == 0 {
                    self.discarding = None;
                }
                break;
            };
            if let Some(event) = self.handle_frame(now, frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Reports that no handler gets a packet, because there are too many or the connection is
    /// [draining](Self::is_draining).
    pub fn handle_refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Reports that the driver stopped reading, or goes on: silence counts only while it reads.
    pub fn set_reading(&mut self, now: Instant, reading: bool) {
        self.heartbeat.set_reading(now, reading);
        if !reading {
            self.paused.get_or_insert(now);
        } else if let Some(since) = self.paused.take()
            && let Some(Discarding { due: Some(due), .. }) = &mut self.discarding
        {
            *due += now.saturating_duration_since(since);
        }
    }

    /// Reports that `len` bytes of `batch` were written. A batch that is written whole ends a stall.
    pub fn handle_written(&mut self, now: Instant, len: usize, batch: &mut Transmit) {
        use bytes::Buf as _;
        batch.advance(len);
        if self.closed().is_some() {
            return;
        }
        self.outbox.handle_written(len);
        self.counters.bytes_out += len as u64;
        if batch.has_remaining() {
            self.stalled = Some(now);
            return;
        }
        self.stalled = None;
        self.written = self.written.max(batch.packets());
        if let State::Finishing(reason) = &self.state
            && self.outbox.is_empty()
        {
            self.state = State::Closed(reason.clone());
        }
    }

    /// Reports the time, when [`poll_timeout`](Self::poll_timeout) asked for it or earlier.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(since) = self.stalled
            && now.saturating_duration_since(since) >= self.config.write_stall_max
        {
            return self.fail(CloseReason::WriteStalled { limit: self.config.write_stall_max });
        }
        if let Some(discarding) = &self.discarding
            && self.discard_due().is_some_and(|due| due <= now)
        {
            let (announced, limit) = (discarding.announced, self.config.content_len_max);
            return self.fail(CloseReason::Protocol(ProtocolError::ContentTooLarge { announced, limit }));
        }
        if self.detach_due.is_some_and(|due| due <= now) {
            self.detach_due = None;
            self.streams.detach();
        }
        while let Some(key) = self.streams.end_stalled(now) {
            self.counters.streams_refused += 1;
            self.push_stream_close(self.streams.id(key), Cause::Forced);
            self.overflowed.push(key);
        }
        if !self.is_open() {
            return;
        }
        match self.heartbeat.handle_timeout(now) {
            Beat::Rest => {}
            Beat::Silent(limit) => self.fail(CloseReason::Silent { limit }),
            Beat::Ping => self.outbox.push_ping(),
        }
    }

    // What to do next.

    /// Moves the next batch of bytes to write into `batch`, which must be empty. `false` if there is nothing.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit) -> bool {
        let due = self.outbox.poll_transmit(batch);
        if due {
            self.stalled = Some(now);
            self.attempted = self.attempted.max(batch.packets());
            self.counters.batches_out += 1;
        }
        due
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stall = self.stalled.and_then(|since| since.checked_add(self.config.write_stall_max));
        let beat = match self.state {
            State::Open | State::Draining => self.heartbeat.poll_timeout(),
            State::Finishing(_) | State::Closed(_) => None,
        };
        [stall, beat, self.discard_due(), self.detach_due, self.streams.poll_timeout()].into_iter().flatten().min()
    }

    /// The next stream that [`handle_timeout`](Self::handle_timeout) ended.
    pub fn poll_overflowed(&mut self) -> Option<StreamKey> {
        self.overflowed.pop()
    }

    /// Why the connection is closed, once it is.
    pub fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Why the connection is closed or on its way there, once [`finish`](Self::finish) or [`fail`](Self::fail) was called.
    pub fn finishing(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Open | State::Draining => None,
            State::Finishing(reason) | State::Closed(reason) => Some(reason),
        }
    }

    /// Whether packets are taken for sending.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Draining)
    }

    /// Whether [`finish`](Self::finish) or [`fail`](Self::fail) was called: input is not looked at any more.
    pub fn is_finishing(&self) -> bool {
        !self.is_open()
    }

    /// Whether [`drain`](Self::drain) was called and nothing since.
    pub fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining)
    }

    /// Whether as much is queued for writing as the configuration allows.
    pub fn is_full(&self) -> bool {
        self.outbox.len() >= self.config.outbox_len_max
    }

    /// Whether as many bytes of replies are queued as the configuration allows: handlers are not to make more.
    pub fn owes_replies(&self) -> bool {
        self.outbox.replies_len() >= self.config.outbox_len_max
    }

    /// Whether as much is queued that input alone causes (PONGs, answers to refused packets, closes of refused streams) as
    /// the configuration allows. Who reads on then lets a peer that does not read fill the memory.
    pub fn is_overrun(&self) -> bool {
        self.outbox.forced_len() >= self.config.outbox_len_max
    }

    /// Whether so much is queued that input alone causes that no input is taken even where this side waits for answers:
    /// as much as [`is_overrun`](Self::is_overrun) says, or [`FORCED_LEN_MAX`] if that is more.
    pub fn is_flooded(&self) -> bool {
        self.outbox.forced_len() >= self.config.outbox_len_max.max(FORCED_LEN_MAX)
    }

    /// Whether more waits in a stream than may: no input is taken until some of it is read, or its time is up.
    pub fn is_stalled(&self) -> bool {
        self.streams.stall()
    }

    /// Whether there is anything to write.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether any byte has come.
    pub fn has_received(&self) -> bool {
        self.counters.bytes_in > 0
    }

    /// Bytes queued for writing.
    pub fn queued_len(&self) -> usize {
        self.outbox.len()
    }

    /// How many packets were taken for sending so far, and how many of them the socket has taken.
    pub fn progress(&self) -> (u64, u64) {
        (self.outbox.packets(), self.written)
    }

    /// How many of the packets taken for sending were handed out for writing: the peer may have got them.
    pub fn attempted(&self) -> u64 {
        self.attempted
    }

    /// The configuration the connection runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The header layout, once it is known.
    pub fn format(&self) -> Option<HeaderFormat> {
        self.decoder.format()
    }

    /// The length of the content under way, of which the inbox holds the first part. Zero between packets.
    pub fn content_len(&self) -> usize {
        self.decoder.content_len()
    }

    /// Bytes that follow of a content that is discarded.
    pub fn discard_len(&self) -> usize {
        self.decoder.skip_len()
    }

    /// The length of the packet at the front of `bytes`, header included, if it is the next, its header is whole and its
    /// content is not to be discarded for its length.
    pub fn announced_len(&self, bytes: &[u8]) -> Option<usize> {
        self.decoder.announced_len(bytes)
    }

    /// Puts back into `inbox` what was taken off it for `packets`, which no handler got, and for one that is not
    /// complete. What was [discarded](Self::discard_len) does not come back.
    pub fn undo_input(&mut self, packets: impl IntoIterator<Item = Packet>, inbox: &mut BytesMut) {
        self.decoder.undo(inbox);
        let Some(format) = self.decoder.format() else { return };
        let mut front = BytesMut::new();
        for Packet { id, operation, content } in packets {
            let len = u32::try_from(content.len()).expect("a received content is within its u32 limit");
            Header { id, operation: operation.number(), len }.encode(format, &mut front);
            front.extend_from_slice(&content);
        }
        if !front.is_empty() {
            front.extend_from_slice(inbox);
            *inbox = front;
        }
    }

    /// What went through so far.
    pub fn counters(&self) -> Counters {
        Counters { packets_out: self.outbox.packets(), ..self.counters }
    }

    // The user's wishes.

    /// Queues a packet, full or not: who can wait asks [`is_full`](Self::is_full) first.
    pub fn send(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Wish)
    }

    /// As [`send`](Self::send), for what a handler replies.
    pub fn reply(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Reply)
    }

    /// As [`send`](Self::send), with a content that goes on in `rest`.
    pub fn send_pieces(&mut self, packet: Packet, rest: Vec<Bytes>) -> Result<(), SendError> {
        self.push_pieces(packet, rest, Cause::Wish)
    }

    /// As [`reply`](Self::reply), with a content that goes on in `rest`.
    pub fn reply_pieces(&mut self, packet: Packet, rest: Vec<Bytes>) -> Result<(), SendError> {
        self.push_pieces(packet, rest, Cause::Reply)
    }

    /// As [`reply_pieces`](Self::reply_pieces), to a packet that no handler got: counts towards
    /// [`is_overrun`](Self::is_overrun).
    pub fn refuse(&mut self, packet: Packet, rest: Vec<Bytes>) -> Result<(), SendError> {
        self.push_pieces(packet, rest, Cause::Forced)
    }

    /// Drops what is queued, for a peer that will not see it.
    pub fn discard_output(&mut self) {
        self.outbox.clear();
        self.stalled = None;
    }

    /// Queues a PING, which every peer answers, ahead of everything else.
    pub fn ping(&mut self) {
        if self.is_open() {
            self.outbox.push_ping();
        }
    }

    /// Begins to shut down: packets and new streams of the peer still come, but are to reach no handler. Sending goes on.
    pub fn drain(&mut self) {
        if matches!(self.state, State::Open) {
            self.state = State::Draining;
        }
    }

    /// Stops reading and sending, and closes once everything sent is written.
    pub fn finish(&mut self, reason: CloseReason) {
        if !self.is_open() {
            return;
        }
        self.streams.end_all();
        self.outbox.drop_ping();
        // A peer that never said anything did not show its format, and is still owed what was sent to it.
        self.outbox.set_format(self.decoder.format().unwrap_or(HeaderFormat::Magic10));
        self.state = if self.outbox.is_empty() { State::Closed(reason) } else { State::Finishing(reason) };
    }

    /// Closes at once. What is queued is lost. Once closed, the reason stays.
    pub fn fail(&mut self, reason: CloseReason) {
        if !matches!(self.state, State::Closed(_)) {
            self.streams.end_all();
            self.detach_due = None;
            self.discarding = None;
            self.outbox.clear();
            self.stalled = None;
            self.state = State::Closed(reason);
        }
    }

    /// Opens a stream with an id of this side's choice. The peer learns of it by the first data.
    pub fn open_stream(&mut self) -> Result<StreamKey, OpenError> {
        if !self.is_open() {
            return Err(OpenError::ConnectionClosed);
        }
        self.streams.open_next()
    }

    /// Opens the stream with this id.
    pub fn open_stream_with_id(&mut self, id: u16) -> Result<StreamKey, OpenError> {
        if !self.is_open() {
            return Err(OpenError::ConnectionClosed);
        }
        self.streams.open(id)
    }

    /// Queues data of a stream, full or not.
    pub fn send_on(&mut self, key: StreamKey, content: Bytes) -> Result<(), SendError> {
        if let Some(end) = self.streams.ended(key) {
            return Err(SendError::StreamEnded(end));
        }
        let len = self.sendable_len(content.len())?;
        if len == 0 {
            return Err(SendError::EmptyStreamData);
        }
        for id in self.streams.take_unannounced() {
            self.push_stream_close(id, Cause::Wish);
        }
        self.outbox.push(Header::stream(self.streams.id(key), len), content, Cause::Wish);
        self.closes_expected += 1;
        Ok(())
    }

    /// The next data of a stream, `Ok(None)` if none has come, or why no more will.
    pub fn read_from(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.read(key)
    }

    /// What [`read_from`](Self::read_from) would give next, which stays where it is.
    pub fn peek_at(&self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.peek(key)
    }

    /// Drops what waits in a stream and what will come on it, for one whose reader is gone.
    pub fn ignore_stream(&mut self, key: StreamKey) {
        self.streams.ignore(key);
    }

    /// Whether this side opened the stream.
    pub fn is_own_stream(&self, key: StreamKey) -> bool {
        self.streams.is_own(key)
    }

    /// The id of a stream on the wire.
    pub fn stream_id(&self, key: StreamKey) -> u16 {
        self.streams.id(key)
    }

    /// Why the stream ended, if it did.
    pub fn stream_ended(&self, key: StreamKey) -> Option<StreamEnd> {
        self.streams.ended(key)
    }

    /// How many streams exist, ended ones that are still held included.
    pub fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// Closes both directions of a stream and tells the peer, once.
    pub fn close_stream(&mut self, key: StreamKey) {
        if self.streams.close(key) {
            self.push_stream_close(self.streams.id(key), Cause::Wish);
        }
    }

    /// Defers the close of a stream: once this side has closed it, the peer is told ahead of the next data sent on any
    /// stream, and not at all if it closes the stream itself or uses its id again before. Beyond
    /// [`Config::streams_max`] such streams, it is told at once.
    pub fn defer_stream_close(&mut self, key: StreamKey) {
        self.streams.defer_close(key);
    }

    /// Closes a stream if it is open and forgets it. The key must not be used again.
    pub fn release_stream(&mut self, key: StreamKey) {
        self.close_stream(key);
        self.streams.remove(key);
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<Option<Event>, ProtocolError> {
        self.counters.packets_in += 1;
        if frame.skipped > self.config.content_len_max {
            return self.handle_too_large(now, &frame);
        }
        self.discarding = None;
        match frame.kind {
            Kind::Application(operation) => {
                if !frame.content.is_empty() {
                    self.budget.earn();
                }
                Ok(Some(Event::Packet(Packet { id: frame.id, operation, content: frame.content })))
            }
            Kind::Stream if !frame.content.is_empty() => {
                self.budget.earn();
                self.detach_due.get_or_insert(now + DETACH_AFTER);
                let received = self.streams.handle_data(now, frame.id, frame.content);
                Ok(self.handle_stream_received(frame.id, received))
            }
            Kind::Stream => {
                match self.closes_expected.checked_sub(1) {
                    Some(left) => self.closes_expected = left,
                    None => self.spend(now)?,
                }
                Ok(self.streams.handle_close(frame.id).map(Event::StreamReadable))
            }
            Kind::Ping => {
                self.spend(now)?;
                self.outbox.push_pong();
                Ok(None)
            }
            Kind::Pong => self.spend(now).map(|()| None),
            Kind::Reserved => {
                self.counters.dropped += 1;
                self.spend(now).map(|()| None)
            }
        }
    }

    /// Begins to discard a content. It costs the peer more than this side, and so nothing of its allowance; but it earns
    /// nothing either.
    fn handle_too_large(&mut self, now: Instant, frame: &Frame) -> Result<Option<Event>, ProtocolError> {
        let (id, announced, limit) = (frame.id, frame.skipped, self.config.content_len_max);
        self.discarding = Some(Discarding { announced, due: now.checked_add(self.config.discard_time_max) });
        self.counters.too_large += 1;
        match frame.kind {
            Kind::Application(operation) => Ok(Some(Event::TooLarge { id, operation, announced })),
            Kind::Stream => {
                let received = self.streams.handle_too_large(id, StreamEnd::TooLarge { announced, limit });
                Ok(self.handle_stream_received(id, received))
            }
            Kind::Ping | Kind::Pong | Kind::Reserved => self.spend(now).map(|()| None),
        }
    }

    fn handle_stream_received(&mut self, id: u16, received: Received) -> Option<Event> {
        match received {
            Received::Opened(key) => Some(Event::StreamOpened(key)),
            Received::Queued(key) => Some(Event::StreamReadable(key)),
            Received::Ignored => None,
            Received::Refused => {
                self.counters.streams_refused += 1;
                self.push_stream_close(id, Cause::Forced);
                None
            }
        }
    }

    fn push(&mut self, packet: Packet, cause: Cause) -> Result<(), SendError> {
        let len = self.sendable_len(packet.content.len())?;
        let header = Header { id: packet.id, operation: packet.operation.number(), len };
        self.outbox.push(header, packet.content, cause);
        Ok(())
    }

    fn push_pieces(&mut self, packet: Packet, rest: Vec<Bytes>, cause: Cause) -> Result<(), SendError> {
        if rest.is_empty() {
            return self.push(packet, cause);
        }
        let rest_len: usize = rest.iter().map(Bytes::len).sum();
        let len = self.sendable_len(packet.content.len() + rest_len)?;
        let header = Header { id: packet.id, operation: packet.operation.number(), len };
        self.outbox.push_pieces(header, packet.content, rest, cause);
        Ok(())
    }

    fn push_stream_close(&mut self, id: u16, cause: Cause) {
        if self.is_open() {
            self.outbox.push(Header::stream(id, 0), Bytes::new(), cause);
        }
    }

    fn discard_due(&self) -> Option<Instant> {
        self.discarding.as_ref().filter(|_| self.is_open() && self.paused.is_none())?.due
    }

    fn spend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if self.budget.spend(now) {
            Ok(())
        } else {
            Err(ProtocolError::ControlFlood { burst: self.config.control_burst })
        }
    }

    fn sendable_len(&self, len: usize) -> Result<u32, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let limit = self.config.content_len_max;
        match u32::try_from(len) {
            Ok(len) if len <= limit => Ok(len),
            _ => Err(SendError::ContentTooLarge { len, limit }),
        }
    }
}

/// Bytes that a peer may cause to be queued without reading them while this side waits for its answers. Enough to refuse
/// a call for each id of the wire; a peer that reads none of that is stuck itself.
pub const FORCED_LEN_MAX: usize = 8 * 1024 * 1024;
/// How long a small content may pin the read buffer it is a slice of while nobody reads it.
const DETACH_AFTER: Duration = Duration::from_millis(500);
/// Both sides choose from one space of ids, so each stays in its own half: a stream that both opened would be one.
const STREAMS_OF_CLIENT: RangeInclusive<u16> = 1..=0x7fff;
const STREAMS_OF_SERVER: RangeInclusive<u16> = 0x8000..=0xffff;
