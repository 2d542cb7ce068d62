//! The state machine of one side of a connection.

mod allowances;
mod closing;
mod input;
mod lifecycle;
mod negotiation;
mod reading;
mod sending;
mod writing;

use std::{ops::RangeInclusive, sync::Arc};

use bytes::Bytes;

pub use self::negotiation::Role;
use self::{
    allowances::Allowances, lifecycle::Lifecycle, negotiation::Negotiation, reading::ReadHalf, writing::WriteHalf,
};
use super::{
    control::GoAway,
    counters::Counters,
    decoder::{Decoder, FrameFilter},
    header::HeaderFormat,
    heartbeat::{Heartbeat, HeartbeatAction, sooner},
    hello::{Features, PeerProtocol},
    outbox::Outbox,
    share::FrameCause,
    streams::{StreamKey, Streams},
};
use crate::{CloseReason, Config, Operation, Packet, PacketName, ProtocolError, clock::Instant};

/// One side of a frisbee connection, as a state machine without I/O.
///
/// After any `handle_*` method and any request, call [`poll_transmit`](Self::poll_transmit) and write its batches
/// until it returns `false`. Then wait for input, a request, or the time of [`poll_timeout`](Self::poll_timeout).
///
/// ```
/// use std::{sync::Arc, time::Instant};
///
/// use bytes::{Buf, BytesMut};
/// use frisbee::{Config, Operation, Packet, proto::{Connection, InputEvent, Role, Transmit}};
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
/// assert_eq!(server.handle_input(now, &mut wire)?, Some(InputEvent::Recognized));
/// assert_eq!(server.handle_input(now, &mut wire)?, Some(InputEvent::Packet(packet)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    lifecycle: Lifecycle,
    negotiation: Negotiation,
    allowances: Allowances,
    reading: ReadHalf,
    writing: WriteHalf,
    streams: Streams,
    heartbeat: Heartbeat,
    counters: Counters,
    /// The number of handlers in progress in the last PONG of the peer.
    peer_load: Option<u16>,
}

/// An input event for the layer above the protocol.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputEvent {
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
        if config.extended {
            decoder.set_reach(FrameFilter::Control);
            if role == Role::Client {
                // Sent after the HELLO: a peer that answers the PING has seen the HELLO.
                outbox.push_ping();
            }
        }
        Self {
            lifecycle: Lifecycle::new(),
            negotiation: Negotiation::new(role, &config),
            allowances: Allowances::new(now, &config),
            reading: ReadHalf::new(decoder),
            writing: WriteHalf::new(outbox, config.outbox_len_max),
            streams: Streams::new(stream_ids, &config),
            heartbeat: Heartbeat::new(now, config.ping_interval, config.silence_max),
            counters: Counters::default(),
            peer_load: None,
            config,
        }
    }

    /// Sets the number of handlers in progress, for the next PONG to a peer with [`Features::LOAD`].
    #[inline]
    pub fn set_load(&mut self, handlers: usize) {
        if self.negotiation.uses(Features::LOAD) {
            self.writing.outbox.pong_id = u16::try_from(handlers).unwrap_or(u16::MAX).saturating_add(1);
        }
    }

    /// Returns the time since the last input, if the peer owes a PONG. `None` while this side does not read.
    pub fn silence(&self, now: Instant) -> Option<std::time::Duration> {
        self.heartbeat.silence(now)
    }

    /// Returns the number of handlers in progress in the last PONG of the peer, if it tells.
    pub fn peer_load(&self) -> Option<u16> {
        self.peer_load
    }

    /// Reports the time. Call it at the time of [`poll_timeout`](Self::poll_timeout) at the latest.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let limit = self.config.write_stall_max;
        if is_over(self.writing.stall_due(limit)) {
            return self.fail(CloseReason::WriteStalled { limit });
        }
        if let Some(announced) = self.reading.overdue(now) {
            let limit = self.config.content_len_max;
            return self.fail(CloseReason::Protocol(ProtocolError::ContentTooLarge { announced, limit }));
        }
        if let Some(flight) = self.writing.outbox.flight_mut() {
            flight.handle_timeout(now);
        }
        if self.reading.handle_timeout(now) {
            self.streams.detach();
        }
        while let Some(key) = self.streams.end_stalled(now) {
            self.counters.streams_refused += 1;
            self.push_stream_close(self.streams.id(key), FrameCause::PeerInduced);
        }
        if !self.is_open() {
            return;
        }
        match self.heartbeat.handle_timeout(now) {
            HeartbeatAction::Idle => {}
            HeartbeatAction::Silent(limit) => self.fail(CloseReason::Silent { limit }),
            HeartbeatAction::Ping => self.writing.outbox.push_ping(),
        }
    }

    /// Returns the latest time for the next call of [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let beat = if self.is_open() { self.heartbeat.poll_timeout() } else { None };
        let write = sooner(self.writing.stall_due(self.config.write_stall_max), self.writing.flight_due());
        sooner(sooner(beat, write), sooner(self.reading.poll_timeout(), self.streams.poll_timeout()))
    }

    /// Returns the next stream ended by [`handle_timeout`](Self::handle_timeout).
    pub fn poll_overflowed(&mut self) -> Option<StreamKey> {
        self.streams.overflowed.pop()
    }

    /// Returns the configuration of the connection.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the protocol of the peer, as far as known.
    pub fn peer(&self) -> &PeerProtocol {
        &self.negotiation.peer
    }

    /// Returns the largest content allowed by this side and, if known, by the peer.
    pub fn content_len_max(&self) -> u32 {
        let own = self.config.content_len_max;
        self.peer().hello().map_or(own, |hello| own.min(hello.content_len_max))
    }

    /// Returns `true` if both sides support a feature.
    pub fn uses(&self, feature: Features) -> bool {
        self.negotiation.uses(feature)
    }

    /// Returns the counters of the connection.
    pub fn counters(&self) -> Counters {
        Counters { packets_out: self.writing.outbox.packets(), ..self.counters }
    }

    /// Adds the part of an application to this side's HELLO. Must be called before the HELLO is sent.
    pub fn add_part(&mut self, name: &'static str, part: Bytes) {
        self.negotiation.add_part(name, part);
    }

    /// Announces in the HELLO that this side [leaves](Features::LEAVES). No effect once the HELLO is sent.
    pub fn promise_to_leave(&mut self) {
        self.negotiation.promise_to_leave();
    }

    /// Sends large contents in pieces, with other frames in between, if the peer supports it.
    ///
    /// Frames with a common id stay in order. All others may overtake large contents.
    pub fn interleave(&mut self) {
        self.negotiation.interleaves = true;
        self.use_pieces();
    }

    fn use_pieces(&mut self) {
        if self.negotiation.uses_pieces() {
            self.writing.outbox.use_pieces();
        }
    }

    /// Queues a PING before all queued packets. Every peer answers it.
    pub fn ping(&mut self) {
        if self.is_open() {
            self.writing.outbox.push_ping();
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
