//! A connection under attack, and the frames of an attacker.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use frpc_http2::{Connection, ConnectionError, ErrorCode, Event, Field, Header, ReceivedMessage, Settings, StreamId};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// `:method: GET`, `:scheme: http`, `:path: /`.
pub(crate) const GET: [u8; 3] = [0x82, 0x86, 0x84];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) fn number(kind: u8, stream: u32, value: u32) -> Vec<u8> {
    frame(kind, 0, stream, &value.to_be_bytes())
}

pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

pub(crate) fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &GET)
}

/// An event without borrowed data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Head(u32, bool),
    Data(u32, usize, bool),
    Trailers(u32),
    Reset(u32, ErrorCode),
    Writable(u32),
    Capacity,
    GoAway(u32),
    Pong,
    Other,
}

impl Seen {
    fn new(event: &Event<'_>) -> Self {
        match event {
            Event::Head { stream, end, .. } => Self::Head(stream.get(), *end),
            Event::Data { stream, data, end } => Self::Data(stream.get(), data.len(), *end),
            Event::Trailers { stream, .. } => Self::Trailers(stream.get()),
            Event::Reset { stream, error } => Self::Reset(stream.get(), error.code),
            Event::Writable(stream) => Self::Writable(stream.get()),
            Event::Capacity => Self::Capacity,
            Event::GoAway { last, .. } => Self::GoAway(last.get()),
            Event::Pong(_) => Self::Pong,
            _ => Self::Other,
        }
    }
}

/// A side with a driver that does nothing by itself, except to watch memory.
pub(crate) struct Victim {
    pub(crate) side: Connection,
    pub(crate) now: Instant,
    pub(crate) memory_max: usize,
    /// Data of requests is released as it arrives.
    pub(crate) releases: bool,
    /// Whole short messages are received in one step. Their credit has returned then.
    pub(crate) takes_messages: bool,
    /// The length and end of the response to each complete request.
    pub(crate) response: Option<usize>,
    ids: HashMap<u32, StreamId>,
}

/// The bound of all attacks, in bytes, for the default settings: far below the sum of the windows.
pub(crate) const MEMORY_MAX: usize = 1 << 20;

impl Victim {
    /// Creates a server that has received the preface and SETTINGS.
    pub(crate) fn server(settings: Settings) -> Self {
        let now = Instant::now();
        let mut victim = Self::new(Connection::server(settings, now), now);
        let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])].concat();
        assert_eq!(victim.feed(&greeting), Ok(vec![Seen::Other]));
        victim.output();
        victim
    }

    /// Creates a client that has received SETTINGS.
    pub(crate) fn client(settings: Settings) -> Self {
        let now = Instant::now();
        let mut victim = Self::new(Connection::client(settings, now), now);
        let greeting = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat();
        assert_eq!(victim.feed(&greeting), Ok(vec![Seen::Other]));
        victim.output();
        victim
    }

    fn new(side: Connection, now: Instant) -> Self {
        Self {
            side,
            now,
            memory_max: MEMORY_MAX,
            releases: true,
            takes_messages: false,
            response: None,
            ids: HashMap::new(),
        }
    }

    /// Passes input until all of it is handled, the connection pauses, or it fails.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        self.feed_from(input, &mut 0)
    }

    /// Passes input from a position on, which moves to the unhandled rest.
    pub(crate) fn feed_from(&mut self, all: &[u8], start: &mut usize) -> Result<Vec<Seen>, ConnectionError> {
        let (mut events, mut input) = (Vec::new(), &all[*start..]);
        loop {
            if self.takes_messages
                && let Some(message) = self.side.receive_message(input, self.now)
            {
                input = &input[message.consumed..];
                *start = all.len() - input.len();
                events.extend(self.note_message(&message));
                continue;
            }
            let received = self.side.receive(input, self.now)?;
            input = &input[received.consumed..];
            *start = all.len() - input.len();
            let event = received.event.as_ref().map(Seen::new);
            if let Some(Event::Head { stream, .. }) = received.event {
                self.ids.insert(stream.get(), stream);
            }
            if let Some(Event::Data { stream, data, .. }) = received.event
                && self.releases
            {
                self.side.release(stream, data.len());
            }
            while let Some(event) = self.side.poll_event() {
                events.push(Seen::new(&event));
            }
            assert!(self.side.memory() <= self.memory_max, "{} bytes are held", self.side.memory());
            let Some(event) = event else { return Ok(events) };
            if let Seen::Head(stream, true) | Seen::Data(stream, _, true) = event
                && let Some(len) = self.response
            {
                self.respond(stream, len);
            }
            events.push(event);
        }
    }

    /// Returns the events that the frames of a message cause otherwise.
    fn note_message(&mut self, message: &ReceivedMessage<'_>) -> Vec<Seen> {
        let (id, end) = (message.stream.get(), message.trailers.is_none());
        self.ids.insert(id, message.stream);
        if let Some(len) = self.response.filter(|_| end) {
            self.respond(id, len);
        }
        let trailers = message.trailers.as_ref().map(|_| Seen::Trailers(id));
        [Seen::Head(id, false), Seen::Data(id, message.data.len(), end)].into_iter().chain(trailers).collect()
    }

    pub(crate) fn respond(&mut self, stream: u32, len: usize) {
        let stream = self.id(stream);
        self.side.send_head(stream, Header::fields(&[Field::new(":status", "200")]), len == 0).unwrap();
        if len > 0 {
            self.side.send_data(stream, Bytes::from(vec![b'x'; len]), true).unwrap();
        }
    }

    /// Returns the id of a stream whose head has arrived.
    pub(crate) fn id(&self, stream: u32) -> StreamId {
        self.ids[&stream]
    }

    /// Takes all output as frames: kind, flags, stream and payload.
    pub(crate) fn output(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let (mut bytes, mut batch) = (Vec::new(), Vec::new());
        while self.side.take_output(&mut batch) {
            bytes.append(&mut batch);
        }
        let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let [a, b, c, kind, flags, d, e, f, g, after @ ..] = rest {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let stream = u32::from_be_bytes([*d, *e, *f, *g]);
            frames.push((*kind, *flags, stream, after[..len].to_vec()));
            rest = &after[len..];
        }
        assert!(rest.is_empty(), "output has whole frames");
        frames
    }

    pub(crate) fn kinds(&mut self) -> Vec<(u8, u32)> {
        self.output().into_iter().map(|(kind, _, stream, _)| (kind, stream)).collect()
    }

    pub(crate) fn pass(&mut self, seconds: u64) -> Result<(), ConnectionError> {
        self.now += Duration::from_secs(seconds);
        self.side.handle_timeout(self.now)
    }
}

/// Returns the code of the error that `attack` leads to, and the number of rounds until then.
pub(crate) fn rounds_until_failure(
    victim: &mut Victim,
    mut attack: impl FnMut(&mut Victim, u32) -> Vec<u8>,
) -> (ErrorCode, u32) {
    for round in 0..100_000 {
        let input = attack(victim, round);
        if let Err(error) = victim.feed(&input) {
            let goaway = victim.output().pop().expect("a GOAWAY was sent");
            assert_eq!((goaway.0, &goaway.3[4..]), (GOAWAY, &error.code.0.to_be_bytes()[..]));
            assert_eq!(victim.feed(&request(0x7fff_ffff)), Err(error), "the connection stays failed");
            return (error.code, round);
        }
        victim.output();
    }
    panic!("the attack goes on");
}
