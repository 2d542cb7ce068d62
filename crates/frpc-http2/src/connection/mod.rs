//! The state machine of one side of a connection.

mod budget;
mod control;
mod head_cache;
mod headers;
mod input;
mod keepalive;
mod message;
mod output;
mod partial;
mod prepared;
mod recent_resets;
mod scheduler;
mod sending;
mod streams;
#[cfg(test)]
mod tests;
mod timers;

use std::{collections::VecDeque, io::IoSlice, sync::Arc, time::Instant};

pub use self::prepared::{Header, PreparedBlock};
use self::{
    budget::{RateBudget, WorkBudget},
    head_cache::HeadDecoder,
    keepalive::KeepAlive,
    output::OutputBuffer,
    partial::PartialInput,
    prepared::HeadEncoder,
    recent_resets::RecentResets,
    streams::StreamTable,
};
use crate::{
    ConnectionError, ErrorCode, Field, Head, Settings, StreamError,
    frame::{
        ConnectionFlow, FrameCounters, PREFACE, PREFACE_LEN, put_goaway, put_settings, put_window_update, setting,
    },
    settings::{FRAME_LEN_MIN, INITIAL_WINDOW},
};

/// The role of a side in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected and opens streams.
    Client,
    /// The side that accepted.
    Server,
}

/// The id of a stream, unique in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// Returns the id with this number on the wire. Zero is no stream.
    pub fn new(id: u32) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// Returns the number on the wire.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// An input event for the driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The head of a request on a server, or of a final response on a client.
    Head {
        /// The stream, which is new on a server.
        stream: StreamId,
        /// The fields.
        head: Arc<Head>,
        /// `true` if neither data nor trailers follow.
        end: bool,
    },
    /// An informational response, with a status from 100 to 199. The final one follows.
    Informational {
        /// The stream.
        stream: StreamId,
        /// The fields.
        head: Arc<Head>,
    },
    /// Data. [`Connection::release`] returns its length to the peer as credit.
    Data {
        /// The stream.
        stream: StreamId,
        /// The data, a part of the input.
        data: &'a [u8],
        /// `true` if the stream ends with it.
        end: bool,
    },
    /// Trailers, at the end of the stream.
    Trailers {
        /// The stream.
        stream: StreamId,
        /// The fields.
        trailers: Arc<Head>,
    },
    /// The stream ended early, and the connection has forgotten it. Unread data of it needs no release.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The code, and the side that caused the end.
        error: StreamError,
    },
    /// A full stream has room again.
    Writable(StreamId),
    /// The peer allows another stream, after [`OpenError::NoCapacity`](crate::OpenError::NoCapacity).
    Capacity,
    /// The peer shuts the connection down. Requests after `last` were reset and may be retried elsewhere.
    GoAway {
        /// The last stream the peer handles.
        last: StreamId,
        /// The reason.
        code: ErrorCode,
    },
    /// The answer to [`Connection::ping`].
    Pong([u8; 8]),
    /// The SETTINGS of the peer apply from now on.
    SettingsApplied,
}

/// The result of [`Connection::receive`].
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes of the input that are handled and can be dropped.
    pub consumed: usize,
    /// An event. The driver handles it and calls `receive` with the rest of the input.
    pub event: Option<Event<'a>>,
}

/// A request or response of one short message. The result of [`Connection::receive_message`].
#[derive(Clone, Debug)]
pub struct ReceivedMessage<'a> {
    /// Bytes of the input that are handled and can be dropped.
    pub consumed: usize,
    /// The stream, which is new on a server and closed on a client.
    pub stream: StreamId,
    /// The head.
    pub head: Arc<Head>,
    /// All data. Its credit has returned to the peer, so it needs no [`release`](Connection::release).
    pub data: &'a [u8],
    /// The trailers of a response.
    pub trailers: Option<Arc<Head>>,
}

/// The result of a frame.
type FrameResult<'a> = Result<Option<Event<'a>>, ConnectionError>;

/// The state of a connection.
///
/// ```text
///   Open ──shut_down()──▶ Announced ──PONG or timeout──▶ Closing ──last stream──▶ done
///     │   (server)            │                             │
///     ├───shut_down() of a client, error of the peer, or timeout──▶ Failed
/// ```
///
/// A client has no requests to wait for, so it goes from `Open` to `Closing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    /// A GOAWAY without a last stream is sent, so requests in flight are still accepted.
    Announced {
        /// The time at which the second GOAWAY is sent, even without a PONG.
        due: Instant,
    },
    /// New streams above `last` are refused.
    Closing {
        last: u32,
    },
    Failed(ConnectionError),
}

/// Values of the peer's SETTINGS.
#[derive(Debug)]
struct PeerSettings {
    window: i64,
    frame_len: usize,
    streams_max: usize,
    list_max: usize,
}

/// One side of an HTTP/2 connection, as a state machine without I/O.
///
/// A driver repeats four steps:
///
/// 1. It passes input to [`receive`](Self::receive) until it returns no event, and keeps the rest of the input. If it
///    tries [`receive_message`](Self::receive_message) before each call, short messages cost less.
/// 2. It takes the events of [`poll_event`](Self::poll_event).
/// 3. It writes the output of [`poll_output`](Self::poll_output) or [`take_output`](Self::take_output).
/// 4. It waits for input, a request, room in its socket, or the time of [`poll_timeout`](Self::poll_timeout).
///
/// After an error, and once [`is_done`](Self::is_done), it writes the remaining output and closes the socket.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    settings: Settings,
    state: ConnectionState,
    /// The last time passed by the driver.
    now: Instant,
    /// Bytes of the client's preface still expected.
    preface_left: u8,
    /// The time for the peer's preface and SETTINGS, until these have arrived.
    handshake_due: Option<Instant>,
    /// The initial window of new streams: that of the protocol counts until the peer has acknowledged ours.
    own_window: i64,
    peer: PeerSettings,
    decoder: HeadDecoder,
    encoder: HeadEncoder,
    partial: PartialInput,
    /// The longest frame that the peer may send so far.
    frame_len_max: u32,
    block: Vec<u8>,
    streams: StreamTable,
    /// Open and half-closed streams.
    active: usize,
    /// The highest stream of the peer.
    last_peer_id: u32,
    next_id: u32,
    /// The highest own stream the peer handles, once it shuts down.
    peer_last: Option<u32>,
    /// Bytes of data the peer may still send on all streams.
    receive_window: i64,
    /// Bytes released and not yet announced to the peer.
    due: usize,
    send_window: i64,
    output: OutputBuffer,
    /// Streams with queued data and an open window, in the order of their turns.
    ready: VecDeque<u32>,
    /// Bytes of queued data of all streams.
    queued: usize,
    /// The time since which the window of the connection holds back data.
    stalled: Option<Instant>,
    /// The time of the next search for streams with a closed window.
    stall_check: Option<Instant>,
    /// Streams that get an event once there is room.
    waiting: Vec<u32>,
    wants_capacity: bool,
    events: VecDeque<Event<'static>>,
    keepalive: KeepAlive,
    recent_resets: RecentResets,
    resets: WorkBudget,
    empty_frames: WorkBudget,
    small_frames: WorkBudget,
    control_frames: RateBudget,
}

impl Connection {
    /// Creates the side that opens streams. Its preface and SETTINGS are queued.
    pub fn client(settings: Settings, now: Instant) -> Self {
        Self::new(Role::Client, settings, now)
    }

    /// Creates the side that accepts streams. Its SETTINGS are queued.
    pub fn server(settings: Settings, now: Instant) -> Self {
        Self::new(Role::Server, settings, now)
    }

    fn new(role: Role, settings: Settings, now: Instant) -> Self {
        let settings = settings.in_range();
        let initial = i64::from(INITIAL_WINDOW);
        let peer = PeerSettings {
            window: initial,
            frame_len: FRAME_LEN_MIN as usize,
            // The protocol sets no limit before SETTINGS. RFC 9113 recommends that servers allow 100 or more.
            streams_max: 100,
            list_max: usize::MAX,
        };
        let mut connection = Self {
            role,
            state: ConnectionState::Open,
            now,
            preface_left: if role == Role::Server { PREFACE_LEN } else { 0 },
            handshake_due: Some(now + settings.handshake_timeout),
            own_window: initial.max(settings.stream_window.into()),
            peer,
            decoder: HeadDecoder::new(&settings),
            encoder: HeadEncoder::new(settings.encoder_table_max),
            partial: PartialInput::None,
            frame_len_max: FRAME_LEN_MIN,
            block: Vec::new(),
            streams: StreamTable::new(),
            active: 0,
            last_peer_id: 0,
            next_id: 1,
            peer_last: None,
            receive_window: settings.connection_window.into(),
            due: 0,
            send_window: initial,
            output: OutputBuffer::default(),
            ready: VecDeque::new(),
            queued: 0,
            stalled: None,
            stall_check: None,
            waiting: Vec::new(),
            wants_capacity: false,
            events: VecDeque::new(),
            keepalive: KeepAlive::new(settings.keepalive_interval, settings.keepalive_timeout, now),
            recent_resets: RecentResets::new(settings.recent_resets_max),
            resets: WorkBudget::new(settings.resets_max),
            empty_frames: WorkBudget::new(settings.empty_frames_max),
            small_frames: WorkBudget::new(settings.small_frames_max),
            control_frames: RateBudget::new(settings.control_frames_max, now),
            settings,
        };
        connection.greet();
        connection
    }

    fn greet(&mut self) {
        let out = self.output.frames();
        let settings = &self.settings;
        // Servers open no streams to clients, and push is not supported.
        let first = match self.role {
            Role::Client => (setting::ENABLE_PUSH, 0),
            Role::Server => (setting::MAX_CONCURRENT_STREAMS, settings.streams_max),
        };
        if self.role == Role::Client {
            out.extend_from_slice(PREFACE);
        }
        put_settings(
            out,
            &[
                first,
                (setting::HEADER_TABLE_SIZE, settings.header_table_max),
                (setting::INITIAL_WINDOW_SIZE, settings.stream_window),
                (setting::MAX_HEADER_LIST_SIZE, settings.header_list_max),
            ],
        );
        // SETTINGS do not cover the window of the connection.
        if settings.connection_window > INITIAL_WINDOW {
            put_window_update(out, 0, settings.connection_window - INITIAL_WINDOW);
        }
    }

    /// Returns the role of this side.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Prepares a header block that repeats on this connection. It is encoded once and then copied.
    ///
    /// Prepared blocks live as long as their connection.
    pub fn prepare(&mut self, fields: &[Field<'_>]) -> PreparedBlock {
        self.encoder.prepare(fields)
    }

    /// Returns the next event that no single frame has caused.
    pub fn poll_event(&mut self) -> Option<Event<'static>> {
        self.events.pop_front()
    }

    /// Fills a batch of output from the queues of the streams. Returns `true` if there is something to write.
    #[inline]
    pub fn poll_output(&mut self) -> bool {
        if !self.ready.is_empty() || !self.waiting.is_empty() {
            self.pump();
        }
        self.output.len() > 0
    }

    /// Returns the current batch of output for a vectored write. Large data is not copied into it.
    pub fn output_chunks(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.output.chunks().map(IoSlice::new)
    }

    /// Returns the length of the current batch of output.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Removes `len` written bytes from the output.
    ///
    /// # Panics
    ///
    /// If `len` exceeds [`output_len`](Self::output_len).
    pub fn advance_output(&mut self, len: usize) {
        self.output.advance(len);
    }

    /// Moves the next batch of output to the end of `out`. Returns `true` if `out` has bytes.
    pub fn take_output(&mut self, out: &mut Vec<u8>) -> bool {
        if self.poll_output() {
            self.output.take(out);
        }
        !out.is_empty()
    }

    /// Returns `true` if the driver may read. Otherwise it first writes output, which the peer does not take.
    pub fn wants_input(&self) -> bool {
        self.output.len() <= self.settings.output_max && !self.is_failed()
    }

    /// Returns the error at the end of the connection.
    pub fn error(&self) -> Option<ConnectionError> {
        match self.state {
            ConnectionState::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Returns `true` if the connection shuts down and no stream is left. The driver writes the output and closes.
    pub fn is_done(&self) -> bool {
        let is_closing = matches!(self.state, ConnectionState::Closing { .. }) || self.peer_last.is_some();
        self.is_failed() || (is_closing && self.active == 0)
    }

    /// Returns the number of open streams.
    pub fn active_streams(&self) -> usize {
        self.active
    }

    /// Returns the counters of frames. They can be read while the connection is in use.
    pub fn frames(&self) -> &Arc<FrameCounters> {
        self.output.counters()
    }

    /// Updates the streams and credit in the [counters](Self::frames). Drivers call it after each batch of output.
    #[inline]
    pub fn update_flow(&self) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // The protocol limits windows to 31 bits.
        let window = |window: i64| i32::try_from(window).unwrap_or(i32::MAX);
        self.output.counters().set_flow(ConnectionFlow {
            streams: count(self.active),
            queued: count(self.queued),
            send_window: window(self.send_window),
            receive_window: window(self.receive_window),
        });
    }

    /// Returns the limit of the peer for concurrent streams.
    pub fn streams_max(&self) -> usize {
        self.peer.streams_max
    }

    /// Returns `true` if less than half of the window of the connection is open. The peer may need released bytes soon.
    pub fn is_window_low(&self) -> bool {
        self.receive_window * 2 < i64::from(self.settings.connection_window)
    }

    /// Returns `true` until both sides have ended the stream, or one side has reset it.
    pub fn is_open(&mut self, stream: StreamId) -> bool {
        self.streams.get(stream.0).is_some_and(|stream| !stream.has(streams::is::CLOSED))
    }

    /// Skips the ids of streams below `id`, which is odd. For tests with few ids left.
    #[doc(hidden)]
    pub fn skip_ids(&mut self, id: u32) {
        self.next_id = self.next_id.max(id | 1);
    }

    /// Returns the data received and not yet released, in bytes.
    pub fn unreleased(&self) -> usize {
        let released = self.receive_window + i64::try_from(self.due).unwrap_or(i64::MAX);
        usize::try_from(i64::from(self.settings.connection_window) - released).unwrap_or(0)
    }

    /// Returns the memory that this connection and unreleased data hold, in bytes.
    pub fn memory(&self) -> usize {
        self.output.memory()
            + self.queued
            + self.unreleased()
            + self.decoder.memory()
            + self.encoder.memory()
            + self.block.capacity()
            + self.streams.memory()
            + self.events.capacity() * size_of::<Event<'_>>()
    }

    /// Frees the cache and spare capacity. Drivers call it on idle connections; the next exchange allocates again.
    ///
    /// A server without streams holds less than 2 KiB afterwards, with the fields of usual gRPC requests and responses.
    pub fn shrink(&mut self) {
        self.decoder.shrink();
        self.encoder.shrink();
        self.output.shrink();
        self.block.shrink_to_fit();
        self.streams.shrink();
        self.ready.shrink_to_fit();
        self.waiting.shrink_to_fit();
        self.events.shrink_to_fit();
    }

    fn is_failed(&self) -> bool {
        matches!(self.state, ConnectionState::Failed(_))
    }

    /// Ends the connection with a GOAWAY frame. Returns the error, which later calls return too.
    #[cold]
    fn fail(&mut self, error: ConnectionError) -> ConnectionError {
        if let ConnectionState::Failed(first) = self.state {
            return first;
        }
        put_goaway(self.output.frames(), self.last_peer_id, error.code);
        self.state = ConnectionState::Failed(error);
        // Nothing is sent on streams any more.
        self.ready.clear();
        self.waiting.clear();
        self.partial = PartialInput::None;
        error
    }
}
