//! The state machine of one side of a connection.

mod input;
mod sending;

use std::{ops::RangeInclusive, sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    budget::Budget,
    control::{Control, GoAway},
    counters::Counters,
    decoder::{Decoder, Reach},
    flight::Flight,
    frames::Frames,
    header::HeaderFormat,
    heartbeat::{Beat, Heartbeat, sooner},
    hello::{Features, Hello, Peer},
    outbox::Outbox,
    pieces::Assembly,
    share::Cause,
    streams::{StreamKey, Streams},
    transmit::Transmit,
};
use crate::{CloseReason, Config, Operation, Packet, PacketName, ProtocolError};

/// The role of a side in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// One side of a frisbee connection, as a state machine without I/O.
///
/// After any `handle_*` method and any request, call [`poll_transmit`](Self::poll_transmit) and write its batches
/// until it returns `false`. Then wait for input, a request, or the time of [`poll_timeout`](Self::poll_timeout).
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
/// while batch.has_remaining() || client.poll_transmit(now, &mut batch) {
///     wire.extend_from_slice(batch.chunk());
///     client.handle_written(now, batch.chunk().len(), &mut batch);
/// }
/// assert_eq!(server.handle_input(now, &mut wire)?, Some(Event::Recognized));
/// assert_eq!(server.handle_input(now, &mut wire)?, Some(Event::Packet(packet)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    role: Role,
    state: State,
    /// The HELLO of this side, until it is sent.
    own_hello: Option<Hello>,
    peer: Peer,
    decoder: Decoder,
    /// The current content in pieces, and the buffer of the previous one.
    assembly: Option<Box<Assembly>>,
    outbox: Outbox,
    /// The length of a full outbox for packets, in bytes.
    outbox_len_max: usize,
    /// `true` if packets of this side may overtake contents in pieces.
    interleaves: bool,
    heartbeat: Heartbeat,
    streams: Streams,
    /// Streams ended by a stall and not yet returned by `poll_overflowed`.
    overflowed: Vec<StreamKey>,
    budget: Budget,
    /// The allowances for CANCEL frames of the peer and of this side.
    cancels_in: Budget,
    cancels_out: Budget,
    /// CANCEL frames of this side without an answer. Each may get one.
    cancelled_expected: u64,
    /// `true` once a GOAWAY was sent.
    is_going_away: bool,
    /// `true` once the peer sent a GOAWAY.
    is_asked_to_leave: bool,
    /// The argument of [`retire`](Self::retire), kept until the peer is recognized.
    retiring: Option<GoAway>,
    /// The time of the last write progress, while a batch is being written.
    stalled: Option<Instant>,
    written: u64,
    /// The number of packets handed out for writing, at least in part.
    attempted: u64,
    /// The oversized content being discarded, and its deadline.
    discarding: Option<Discarding>,
    /// The time at which this side stopped reading.
    paused: Option<Instant>,
    /// The time for copying unread stream contents out of the read buffers they pin.
    detach_due: Option<Instant>,
    /// Stream packets sent and not yet answered by a close. Each may cause one.
    closes_expected: u64,
    /// Stream packets sent and not yet answered by credit. Each may cause one CREDIT frame.
    credits_expected: u64,
    counters: Counters,
}

/// ```text
///   Open ──drain()──▶ Draining ──finish()──▶ Finishing ──all written──▶ Closed
///     ├───retire()──────▲                      ▲                         ▲
///     ├──────────────finish()──────────────────┤                         │
///     └──any──fail()─────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
enum State {
    Open,
    /// Running handlers may still send, but the peer gets no new handler. Contains the reason for the later close.
    Draining(CloseReason),
    /// Queued packets are being written. Nothing is read, and no new packets are accepted.
    Finishing(CloseReason),
    Closed(CloseReason),
}

#[derive(Debug)]
struct Discarding {
    announced: u32,
    due: Option<Instant>,
}

/// An input event for the layer above the protocol.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A packet for a handler.
    Packet(Packet),
    /// A packet with content above [`Config::content_len_max`]. The content is discarded on arrival.
    TooLarge {
        /// The id of the packet.
        id: u16,
        /// The operation of the packet.
        operation: Operation,
        /// Bytes of content announced.
        announced: u32,
    },
    /// The peer opened a stream. Its first data is readable.
    StreamOpened(StreamKey),
    /// The stream has new data, or ended.
    StreamReadable(StreamKey),
    /// The stream was out of credit and got some: the peer accepts more data.
    StreamWritable(StreamKey),
    /// The protocol of the peer is now known; see [`Connection::peer`].
    Recognized,
    /// The peer no longer needs the answer to this packet. A driver that drops its handler calls
    /// [`cancelled`](Connection::cancelled).
    Cancel(PacketName),
    /// The peer will not answer this packet, because it was [withdrawn](Connection::cancel).
    Cancelled(PacketName),
    /// The peer asks for no new packets or streams.
    GoingAway(GoAway),
}

impl Connection {
    /// Creates one side of a new connection.
    pub fn new(role: Role, config: Arc<Config>, now: Instant) -> Self {
        let (format, stream_ids) = match role {
            Role::Client => (Some(config.header.unwrap_or(HeaderFormat::FALLBACK)), STREAMS_OF_CLIENT),
            Role::Server => (config.header, STREAMS_OF_SERVER),
        };
        let mut decoder = Decoder::new(format, config.content_len_max).skipping(config.discard_len_max);
        let mut outbox = Outbox::new(format);
        let (own_hello, peer) = match config.extended {
            true => (Some(Hello::new(&config)), Peer::Unknown),
            false => (None, Peer::Plain),
        };
        if peer == Peer::Unknown {
            decoder.set_reach(Reach::Control);
            if role == Role::Client {
                // Sent after the HELLO: a peer that answers the PING has seen the HELLO.
                outbox.push_ping();
            }
        }
        Self {
            role,
            state: State::Open,
            decoder,
            assembly: None,
            outbox,
            outbox_len_max: config.outbox_len_max,
            interleaves: false,
            own_hello,
            peer,
            heartbeat: Heartbeat::new(now, config.ping_interval, config.silence_max),
            streams: Streams::new(stream_ids, &config),
            overflowed: Vec::new(),
            budget: Budget::new(now, config.control_burst),
            cancels_in: Budget::new(now, config.cancel_burst),
            cancels_out: Budget::new(now, 0),
            cancelled_expected: 0,
            is_going_away: false,
            is_asked_to_leave: false,
            retiring: None,
            stalled: None,
            written: 0,
            attempted: 0,
            discarding: None,
            paused: None,
            detach_due: None,
            closes_expected: 0,
            credits_expected: 0,
            counters: Counters::default(),
            config,
        }
    }

    // Events.

    /// Reports that `len` bytes of `batch` were written.
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

    /// Reports the time. Call it at the time of [`poll_timeout`](Self::poll_timeout) at the latest.
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
        if let Some(flight) = self.outbox.flight_mut() {
            flight.handle_timeout(now);
        }
        if let Some(assembly) = &mut self.assembly {
            assembly.release();
        }
        if self.detach_due.is_some_and(|due| due <= now) {
            self.detach_due = None;
            self.streams.detach();
        }
        while let Some(key) = self.streams.end_stalled(now) {
            self.counters.streams_refused += 1;
            self.push_stream_close(self.streams.id(key), Cause::PeerInduced);
            self.overflowed.push(key);
        }
        if !self.is_open() {
            return;
        }
        match self.heartbeat.handle_timeout(now) {
            Beat::Idle => {}
            Beat::Silent(limit) => self.fail(CloseReason::Silent { limit }),
            Beat::Ping => self.outbox.push_ping(),
        }
    }

    // Next steps.

    /// Moves the next batch for writing into the empty `batch`. Returns `false` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit) -> bool {
        // Sent no earlier than the first batch, so parts can be added until then.
        if self.own_hello.is_some() && self.role == Role::Client {
            self.say_hello();
        }
        if self.streams.owes_credit() {
            self.give_credit(now);
        }
        // The common case: the previous batch took everything.
        if self.outbox.is_empty() {
            return false;
        }
        let pings = self.outbox.pings();
        let due = self.outbox.poll_transmit(now, batch);
        if due {
            for _ in pings..self.outbox.pings() {
                self.heartbeat.handle_ping_sent(now);
            }
            self.stalled = Some(now);
            self.attempted = self.attempted.max(batch.attempted());
            self.counters.batches_out += 1;
        }
        due
    }

    #[cold]
    fn say_hello(&mut self) {
        if self.is_open()
            && let Some(hello) = self.own_hello.take()
        {
            self.outbox.push_control(&Control::Hello(hello));
        }
    }

    #[inline(never)]
    fn give_credit(&mut self, now: Instant) {
        while let Some((id, len)) = self.streams.poll_credit(now, self.heartbeat.round_trip()) {
            self.outbox.push_control(&Control::Credit { id, len });
        }
    }

    /// Returns the latest time for the next call of [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stall = self.stalled.and_then(|since| since.checked_add(self.config.write_stall_max));
        let beat = match self.state {
            State::Open | State::Draining(_) => self.heartbeat.poll_timeout(),
            State::Finishing(_) | State::Closed(_) => None,
        };
        let pong = self.outbox.flight().and_then(Flight::poll_timeout);
        let input = sooner(self.discard_due(), self.detach_due);
        sooner(sooner(sooner(beat, stall), pong), sooner(input, self.streams.poll_timeout()))
    }

    /// Returns the next stream ended by [`handle_timeout`](Self::handle_timeout).
    pub fn poll_overflowed(&mut self) -> Option<StreamKey> {
        self.overflowed.pop()
    }

    /// Returns the close reason of a closed connection.
    pub fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the close reason of a closed or closing connection, after [`finish`](Self::finish) or
    /// [`fail`](Self::fail).
    pub fn finishing(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Open | State::Draining(_) => None,
            State::Finishing(reason) | State::Closed(reason) => Some(reason),
        }
    }

    /// Returns `true` if the connection accepts packets for sending.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Draining(_))
    }

    /// Returns `true` after [`finish`](Self::finish) or [`fail`](Self::fail). Input is then ignored.
    pub fn is_finishing(&self) -> bool {
        !self.is_open()
    }

    /// Returns `true` after [`drain`](Self::drain), until [`finish`](Self::finish) or [`fail`](Self::fail).
    pub fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    /// Returns the close reason of a connection to be [finished](Self::finish) once it is idle.
    ///
    /// Such a connection is draining, or is retiring with a peer that has not been recognized.
    pub fn closes_when_idle(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Draining(reason) => Some(reason),
            State::Open if self.retiring.is_some() => Some(&CloseReason::Shutdown),
            _ => None,
        }
    }

    /// Returns `true` if the outbox has no room for a packet. Contents [in pieces](Self::interleave) are not
    /// counted.
    pub fn is_full(&self) -> bool {
        self.outbox.len() - self.outbox.bulk_len() >= self.outbox_len_max
    }

    /// Returns `true` if the outbox has no room for a content of `len` bytes.
    ///
    /// Contents [in pieces](Self::interleave) have a separate limit, so nothing else waits for them.
    pub fn is_full_for(&self, len: usize) -> bool {
        match self.outbox.interleaves(len) {
            true => self.outbox.bulk_len() >= self.outbox_len_max,
            false => self.is_full(),
        }
    }

    /// Returns `true` if the outbox has no room for these frames.
    pub fn is_full_for_frames(&self, frames: &Frames) -> bool {
        self.is_full() || self.is_full_for(frames.content_len_max())
    }

    /// Returns the length of a [full](Self::is_full) outbox, in bytes.
    pub fn outbox_len_max(&self) -> usize {
        self.outbox_len_max
    }

    /// Sets the length of a [full](Self::is_full) outbox, in bytes.
    ///
    /// Replies of handlers and frames caused by input keep the limit [`Config::outbox_len_max`].
    pub fn set_outbox_len_max(&mut self, len_max: usize) {
        self.outbox_len_max = len_max.max(1);
    }

    /// Returns `true` if the outbox holds too many bytes of replies, so no handler should produce more.
    ///
    /// Contents in pieces have a separate limit: the same number of bytes, plus one content of the largest size.
    #[inline]
    pub fn owes_replies(&self) -> bool {
        let max = self.config.outbox_len_max;
        let bulk = self.outbox.bulk_replies_len();
        self.outbox.replies_len() >= max || bulk >= max && bulk - max >= self.config.content_len_max as usize
    }

    /// Returns `true` if the outbox holds too many bytes caused by input alone.
    ///
    /// These are PONGs, answers to refused packets, and closes of refused streams. If the driver kept reading, a
    /// peer that never reads could exhaust memory.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.outbox.peer_induced_len() >= self.config.outbox_len_max
    }

    /// Returns `true` if the outbox holds too many bytes caused by input alone to go on reading for awaited
    /// answers.
    ///
    /// The limit is that of [`is_overrun`](Self::is_overrun), or [`PEER_INDUCED_LEN_MAX`] if greater.
    pub fn is_flooded(&self) -> bool {
        self.outbox.peer_induced_len() >= self.config.outbox_len_max.max(PEER_INDUCED_LEN_MAX)
    }

    /// Returns `true` if streams hold too much. Input pauses until data is read or a stream is ended for it.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.streams.stall()
    }

    /// Returns `true` if there is something to write.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.outbox.has_output() || self.streams.owes_credit()
    }

    /// Returns `true` if any byte was received.
    pub fn has_received(&self) -> bool {
        self.counters.bytes_in > 0
    }

    /// Returns the number of bytes queued for writing.
    pub fn queued_len(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the number of packets accepted for sending, and of those completely written.
    pub fn progress(&self) -> (u64, u64) {
        (self.outbox.packets(), self.written)
    }

    /// Returns the number of packets handed out for writing. The peer may have received them.
    pub fn attempted(&self) -> u64 {
        self.attempted
    }

    /// Returns the configuration of the connection.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the header format, once known.
    pub fn format(&self) -> Option<HeaderFormat> {
        self.decoder.format()
    }

    /// Returns the header format, or the [fallback](HeaderFormat::FALLBACK) while it is unknown.
    pub fn format_or_fallback(&self) -> HeaderFormat {
        self.format().unwrap_or(HeaderFormat::FALLBACK)
    }

    /// Returns `true` if the peer's frames have checksums.
    pub fn has_checksums(&self) -> bool {
        self.decoder.has_checksums()
    }

    /// Returns the protocol of the peer, as far as known.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the largest content allowed by this side and, if known, by the peer.
    pub fn content_len_max(&self) -> u32 {
        let own = self.config.content_len_max;
        self.peer.hello().map_or(own, |hello| own.min(hello.content_len_max))
    }

    /// Returns `true` if both sides support a feature.
    pub fn uses(&self, feature: Features) -> bool {
        self.peer.hello().is_some_and(|hello| hello.features.contains(feature))
    }

    /// Returns the counters of the connection.
    pub fn counters(&self) -> Counters {
        Counters { packets_out: self.outbox.packets(), ..self.counters }
    }

    // Requests.

    /// Adds the part of an application to this side's HELLO. Must be called before the HELLO is sent.
    pub fn add_part(&mut self, name: &'static str, part: Bytes) {
        debug_assert!(!matches!(self.peer, Peer::Extended(_)), "the peer has heard everything already");
        self.own_hello = self.own_hello.take().map(|hello| hello.with_part(name, part));
    }

    /// Asks the peer to start nothing new on this connection. Returns `false` if it does not support GOAWAY.
    pub fn go_away(&mut self, goaway: GoAway) -> bool {
        if !self.is_open() || !self.uses(Features::GOAWAY) {
            return false;
        }
        if !std::mem::replace(&mut self.is_going_away, true) {
            self.outbox.push_control(&Control::GoAway(goaway));
        }
        true
    }

    /// Starts a gentle shutdown.
    ///
    /// A peer that [leaves](Features::LEAVES) is asked to do so, and its packets are handled until then. For any
    /// other peer, the connection [drains](Self::drain) immediately, after a GOAWAY if supported. An unknown peer
    /// is asked once it is recognized.
    pub fn retire(&mut self, goaway: GoAway) {
        match self.peer {
            Peer::Unknown if matches!(self.state, State::Open) => self.retiring = Some(goaway),
            _ => {
                self.go_away(goaway);
                if !self.leaves() {
                    self.drain(CloseReason::Shutdown);
                }
            }
        }
    }

    /// Returns `true` if the peer closes the connection after a GOAWAY.
    fn leaves(&self) -> bool {
        self.uses(Features::GOAWAY) && self.peer.hello().is_some_and(|hello| hello.features.contains(Features::LEAVES))
    }

    /// Returns `true` if the peer asked this side to start nothing new.
    pub fn is_asked_to_leave(&self) -> bool {
        self.is_asked_to_leave
    }

    /// Announces in the HELLO that this side [leaves](Features::LEAVES). No effect once the HELLO is sent.
    pub fn promise_to_leave(&mut self) {
        if let Some(hello) = &mut self.own_hello {
            hello.features = hello.features.with(Features::LEAVES);
        }
    }

    /// Sends large contents in pieces, with other frames in between, if the peer supports it.
    ///
    /// Frames with a common id stay in order. All others may overtake large contents.
    pub fn interleave(&mut self) {
        self.interleaves = true;
        self.use_pieces();
    }

    fn use_pieces(&mut self) {
        if self.interleaves && self.uses(Features::PIECES) {
            self.outbox.use_pieces();
        }
    }

    /// Stops waiting for PONGs, which will not be read.
    fn send_without_pongs(&mut self) {
        if let Some(flight) = self.outbox.flight_mut() {
            flight.give_up();
        }
    }

    /// Returns `true` while a content from the peer is arriving in pieces.
    pub fn has_pieces(&self) -> bool {
        self.assembly.as_ref().is_some_and(|assembly| assembly.is_under_way())
    }

    /// Queues a PING before all queued packets. Every peer answers it.
    pub fn ping(&mut self) {
        if self.is_open() {
            self.outbox.push_ping();
        }
    }

    /// Starts a shutdown: new packets and streams of the peer still arrive, but must not reach a handler.
    ///
    /// Sending goes on. `reason` is for the later [`finish`](Self::finish), once the connection is idle.
    pub fn drain(&mut self, reason: CloseReason) {
        self.retiring = None;
        if matches!(self.state, State::Open) {
            self.state = State::Draining(reason);
        }
    }

    /// Stops reading and accepting packets, and closes after writing all queued packets.
    pub fn finish(&mut self, reason: CloseReason) {
        if !self.is_open() {
            return;
        }
        self.streams.end_all();
        self.outbox.drop_ping();
        self.send_without_pongs();
        self.own_hello = None;
        // A silent peer has not shown its format, but must still get the queued packets.
        self.outbox.set_format(self.format_or_fallback());
        self.state = if self.outbox.is_empty() { State::Closed(reason) } else { State::Finishing(reason) };
    }

    /// Closes immediately. Queued packets are lost. A closed connection keeps its first reason.
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
}

/// The limit on queued bytes caused by input alone, while this side awaits answers from the peer.
///
/// It is enough to refuse one call per id. A peer that reads none of these answers is stuck itself.
pub const PEER_INDUCED_LEN_MAX: usize = 8 * 1024 * 1024;
/// Both sides share one id space. Each uses its own half, because streams opened by both with one id would be a
/// single stream.
const STREAMS_OF_CLIENT: RangeInclusive<u16> = 1..=0x7fff;
const STREAMS_OF_SERVER: RangeInclusive<u16> = 0x8000..=0xffff;
