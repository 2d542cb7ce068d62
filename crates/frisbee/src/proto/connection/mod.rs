//! One side of a connection: the meaning of input, the bytes to write, the time to give up.

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

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// One side of a frisbee connection: bytes and time go in, events and bytes come out.
///
/// After any `handle_*` and any request of the user, call [`poll_transmit`](Self::poll_transmit) until it has nothing
/// more and write what it gave; then wait for input, for the user, or for [`poll_timeout`](Self::poll_timeout).
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
    /// The hello of this side, until it is said.
    own_hello: Option<Hello>,
    peer: Peer,
    decoder: Decoder,
    /// The content that comes in pieces, and the buffer of the last.
    assembly: Option<Box<Assembly>>,
    outbox: Outbox,
    /// Bytes queued for writing at which the outbox is full for packets.
    outbox_len_max: usize,
    /// True if contents in pieces may be overtaken on this side.
    interleaves: bool,
    heartbeat: Heartbeat,
    streams: Streams,
    /// Streams that ended because they stalled, to be told of.
    overflowed: Vec<StreamKey>,
    budget: Budget,
    /// The allowance of CANCEL frames that the peer sends, and of those that this side sends.
    cancels_in: Budget,
    cancels_out: Budget,
    /// The number of CANCEL frames that were not answered. Each may be.
    cancelled_expected: u64,
    /// True once a GOAWAY was sent.
    is_going_away: bool,
    /// True once the peer sent a GOAWAY.
    is_asked_to_leave: bool,
    /// The reason of [`retire`](Self::retire), for a peer that has not said yet what it speaks.
    retiring: Option<GoAway>,
    /// The time since which a batch has been handed out without any of it being written.
    stalled: Option<Instant>,
    written: u64,
    /// The number of the packets ever queued that were handed out for writing.
    attempted: u64,
    /// The content that is being discarded because it is too large, and when that has taken too long.
    discarding: Option<Discarding>,
    /// The time since which this side does not read.
    paused: Option<Instant>,
    /// The time at which contents that wait in streams are copied out of the read buffers they pin.
    detach_due: Option<Instant>,
    /// The number of packets of streams for which the peer has not sent a close. Each may cause one.
    closes_expected: u64,
    /// The number of packets of streams for which the peer has not sent credit. Each may cause some.
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
    /// Handlers under way may still send; the peer gets no new handler. With the reason for which the connection is to end.
    Draining(CloseReason),
    /// Packets sent before are being written, nothing is read or taken for sending.
    Finishing(CloseReason),
    Closed(CloseReason),
}

#[derive(Debug)]
struct Discarding {
    announced: u32,
    due: Option<Instant>,
}

/// The meaning of input, for those above the protocol.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A packet for a handler.
    Packet(Packet),
    /// A packet with a content larger than [`Config::content_len_max`], which is discarded as it arrives.
    TooLarge {
        /// The id of the packet.
        id: u16,
        /// The number that says what it asks for.
        operation: Operation,
        /// Bytes of content.
        announced: u32,
    },
    /// The peer opened a stream; its first data can be read.
    StreamOpened(StreamKey),
    /// The stream has something to read, or ended.
    StreamReadable(StreamKey),
    /// The stream had no credit left and got some: the peer takes more data.
    StreamWritable(StreamKey),
    /// It turned out what the peer speaks; see [`Connection::peer`].
    Recognized,
    /// The peer does not want the answer to this packet. A driver that drops its handler calls
    /// [`cancelled`](Connection::cancelled).
    Cancel(PacketName),
    /// The peer will not answer this packet, because it was [withdrawn](Connection::cancel).
    Cancelled(PacketName),
    /// The peer wants no new packets and streams.
    GoingAway(GoAway),
}

impl Connection {
    /// Makes one side of a connection that was just established.
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
                // Goes out behind the HELLO. A peer that answers it has seen that.
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

    /// Moves the next batch of bytes to write into `batch`, which must be empty. `false` if there is nothing.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit) -> bool {
        if self.own_hello.is_some() && self.role == Role::Client {
            self.say_hello();
        }
        if self.streams.owes_credit() {
            self.give_credit(now);
        }
        // As it is behind every batch that was the last.
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

    /// Returns when [`handle_timeout`](Self::handle_timeout) wants to be called at the latest.
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

    /// Takes the next stream that [`handle_timeout`](Self::handle_timeout) ended.
    pub fn poll_overflowed(&mut self) -> Option<StreamKey> {
        self.overflowed.pop()
    }

    /// Returns why the connection is closed, once it is.
    pub fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns why the connection is closed or about to be, once [`finish`](Self::finish) or [`fail`](Self::fail) was
    /// called.
    pub fn finishing(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Open | State::Draining(_) => None,
            State::Finishing(reason) | State::Closed(reason) => Some(reason),
        }
    }

    /// Tells whether packets are taken for sending.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Draining(_))
    }

    /// Tells whether [`finish`](Self::finish) or [`fail`](Self::fail) was called: input is not looked at any more.
    pub fn is_finishing(&self) -> bool {
        !self.is_open()
    }

    /// Tells whether [`drain`](Self::drain) was called and nothing since.
    pub fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    /// Returns why the connection is to be [finished](Self::finish) as soon as nothing is under way on it, if it is:
    /// because it drains, or because it retires and nothing has come that tells what the peer speaks.
    pub fn closes_when_idle(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Draining(reason) => Some(reason),
            State::Open if self.retiring.is_some() => Some(&CloseReason::Shutdown),
            _ => None,
        }
    }

    /// Tells whether as much is queued for writing as the configuration allows, contents that [go in
    /// pieces](Self::interleave) not counted.
    pub fn is_full(&self) -> bool {
        self.outbox.len() - self.outbox.bulk_len() >= self.outbox_len_max
    }

    /// Tells whether as much is queued for writing as the configuration allows in front of a content of this length. Those that
    /// [go in pieces](Self::interleave) count by themselves, so nothing else waits for them.
    pub fn is_full_for(&self, len: usize) -> bool {
        match self.outbox.interleaves(len) {
            true => self.outbox.bulk_len() >= self.outbox_len_max,
            false => self.is_full(),
        }
    }

    /// Tells whether as much is queued for writing as the configuration allows in front of any of these frames.
    pub fn is_full_for_frames(&self, frames: &Frames) -> bool {
        self.is_full() || self.is_full_for(frames.content_len_max())
    }

    /// Returns the number of bytes queued for writing at which the outbox [is full](Self::is_full).
    pub fn outbox_len_max(&self) -> usize {
        self.outbox_len_max
    }

    /// Sets the number of bytes queued for writing at which the outbox [is full](Self::is_full), in place of
    /// [`Config::outbox_len_max`]. What handlers reply and what input causes have that limit as before.
    pub fn set_outbox_len_max(&mut self, len_max: usize) {
        self.outbox_len_max = len_max.max(1);
    }

    /// Tells whether as many bytes of replies are queued as the configuration allows: handlers are not to make more. Of contents
    /// that go in pieces, that is as much again and one of the largest.
    pub fn owes_replies(&self) -> bool {
        let max = self.config.outbox_len_max;
        let bulk = self.outbox.bulk_replies_len();
        self.outbox.replies_len() >= max || bulk >= max && bulk - max >= self.config.content_len_max as usize
    }

    /// Tells whether as much is queued that input alone causes (PONGs, answers to refused packets, closes of refused
    /// streams) as the configuration allows. If the driver kept reading here, a peer that never reads could exhaust
    /// memory.
    pub fn is_overrun(&self) -> bool {
        self.outbox.peer_induced_len() >= self.config.outbox_len_max
    }

    /// Tells whether too much is queued that input alone causes to take input even where this side waits for answers:
    /// as much as [`is_overrun`](Self::is_overrun) says, or [`PEER_INDUCED_LEN_MAX`] if that is more.
    pub fn is_flooded(&self) -> bool {
        self.outbox.peer_induced_len() >= self.config.outbox_len_max.max(PEER_INDUCED_LEN_MAX)
    }

    /// Tells whether more waits in a stream than may: no input is taken until some of it is read, or its time is up.
    pub fn is_stalled(&self) -> bool {
        self.streams.stall()
    }

    /// Tells whether anything waits to be written.
    pub fn has_output(&self) -> bool {
        self.outbox.has_output() || self.streams.owes_credit()
    }

    /// Tells whether any byte has come.
    pub fn has_received(&self) -> bool {
        self.counters.bytes_in > 0
    }

    /// Returns the number of bytes queued for writing.
    pub fn queued_len(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the number of packets taken for sending so far, and the number of those that the socket has taken.
    pub fn progress(&self) -> (u64, u64) {
        (self.outbox.packets(), self.written)
    }

    /// Returns the number of packets taken for sending that were handed out for writing: the peer may have got them.
    pub fn attempted(&self) -> u64 {
        self.attempted
    }

    /// Returns the configuration the connection runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the header layout, once it is known.
    pub fn format(&self) -> Option<HeaderFormat> {
        self.decoder.format()
    }

    /// Returns the header layout, or the [fallback](HeaderFormat::FALLBACK) as long as it is not known.
    pub fn format_or_fallback(&self) -> HeaderFormat {
        self.format().unwrap_or(HeaderFormat::FALLBACK)
    }

    /// Returns `true` if the frames of the peer end with a checksum.
    pub fn has_checksums(&self) -> bool {
        self.decoder.has_checksums()
    }

    /// Returns what is known of the peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the largest content that both sides carry, as far as the peer has said.
    pub fn content_len_max(&self) -> u32 {
        let own = self.config.content_len_max;
        self.peer.hello().map_or(own, |hello| own.min(hello.content_len_max))
    }

    /// Tells whether both sides know a feature.
    pub fn uses(&self, feature: Features) -> bool {
        self.peer.hello().is_some_and(|hello| hello.features.contains(feature))
    }

    /// Returns what went through so far.
    pub fn counters(&self) -> Counters {
        Counters { packets_out: self.outbox.packets(), ..self.counters }
    }

    // The user's wishes.

    /// Adds the part of an application to what this side says of itself, which it has not said yet.
    pub fn add_part(&mut self, name: &'static str, part: Bytes) {
        debug_assert!(!matches!(self.peer, Peer::Extended(_)), "the peer has heard everything already");
        self.own_hello = self.own_hello.take().map(|hello| hello.with_part(name, part));
    }

    /// Asks the peer to begin nothing new on this connection, if it understands that. Returns whether it does.
    pub fn go_away(&mut self, goaway: GoAway) -> bool {
        if !self.is_open() || !self.uses(Features::GOAWAY) {
            return false;
        }
        if !std::mem::replace(&mut self.is_going_away, true) {
            self.outbox.push_control(&Control::GoAway(goaway));
        }
        true
    }

    /// Begins to shut down gently: asks a peer that [leaves](Features::LEAVES) to do so, and goes on handling what it sends. A
    /// peer that would not leave by itself is told if it understands, and the connection [drains](Self::drain) at once. One that
    /// has said nothing yet is told as soon as it shows what it speaks.
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

    /// Tells whether the peer closes the connection by itself, once it was asked to go away.
    fn leaves(&self) -> bool {
        self.uses(Features::GOAWAY) && self.peer.hello().is_some_and(|hello| hello.features.contains(Features::LEAVES))
    }

    /// Tells whether the peer asked this side to begin nothing new.
    pub fn is_asked_to_leave(&self) -> bool {
        self.is_asked_to_leave
    }

    /// Has this side say that it [leaves](Features::LEAVES), if it has not said anything yet.
    pub fn promise_to_leave(&mut self) {
        if let Some(hello) = &mut self.own_hello {
            hello.features = hello.features.with(Features::LEAVES);
        }
    }

    /// Has large contents go beside everything else: in pieces, with other frames in between, if the peer takes that. What
    /// has the same id stays in order, all else may overtake them.
    pub fn interleave(&mut self) {
        self.interleaves = true;
        self.use_pieces();
    }

    fn use_pieces(&mut self) {
        if self.interleaves && self.uses(Features::PIECES) {
            self.outbox.use_pieces();
        }
    }

    /// Stops to wait for PONGs, which nobody will see.
    fn send_without_pongs(&mut self) {
        if let Some(flight) = self.outbox.flight_mut() {
            flight.give_up();
        }
    }

    /// Tells whether a content is under way in pieces from the peer.
    pub fn has_pieces(&self) -> bool {
        self.assembly.as_ref().is_some_and(|assembly| assembly.is_under_way())
    }

    /// Queues a PING, which every peer answers, ahead of everything else.
    pub fn ping(&mut self) {
        if self.is_open() {
            self.outbox.push_ping();
        }
    }

    /// Begins to shut down: packets and new streams of the peer still come, but are to reach no handler. Sending goes on. The
    /// reason is the one for which the connection is to be [finished](Self::finish) when nothing is under way on it.
    pub fn drain(&mut self, reason: CloseReason) {
        self.retiring = None;
        if matches!(self.state, State::Open) {
            self.state = State::Draining(reason);
        }
    }

    /// Stops reading and sending, and closes once everything sent is written.
    pub fn finish(&mut self, reason: CloseReason) {
        if !self.is_open() {
            return;
        }
        self.streams.end_all();
        self.outbox.drop_ping();
        self.send_without_pongs();
        self.own_hello = None;
        // A peer that never said anything did not show its format, and is still owed what was sent to it.
        self.outbox.set_format(self.format_or_fallback());
        self.state = if self.outbox.is_empty() { State::Closed(reason) } else { State::Finishing(reason) };
    }

    /// Closes at once. Queued packets are lost. Once closed, the reason stays.
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

/// Bytes that a peer may cause to be queued without reading them while this side waits for its answers. Enough to refuse
/// a call for each id of the wire; a peer that reads none of that is stuck itself.
pub const PEER_INDUCED_LEN_MAX: usize = 8 * 1024 * 1024;
/// Both sides choose from one space of ids, so each stays in its own half: a stream that both opened would be one.
const STREAMS_OF_CLIENT: RangeInclusive<u16> = 1..=0x7fff;
const STREAMS_OF_SERVER: RangeInclusive<u16> = 0x8000..=0xffff;
