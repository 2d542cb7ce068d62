//! The vocabulary of these tests: a [`Side`] hears bytes and says frames, a [`Pair`] is two of them on one wire, and the
//! clock jumps from deadline to deadline.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use frisbee::{
    CloseReason, Config, Content, Operation, Packet,
    proto::{
        Connection, Decoder, Frame, FrameKind, Header, HeaderFormat, InputEvent, Role, StreamEnd, StreamKey, Transmit,
    },
};

/// One connection and its end of the wire.
pub(crate) struct Side {
    connection: Connection,
    pub(crate) now: Instant,
    pub(crate) inbox: BytesMut,
    batch: Transmit,
    /// The number of bytes that the socket takes before it is full.
    pub(crate) room: usize,
    /// The bytes that the socket took and nobody looked at yet.
    pub(crate) wire: BytesMut,
    listener: Decoder,
    events: Vec<InputEvent>,
}

impl Side {
    pub(crate) fn new(role: Role, config: Config) -> Self {
        Self::born(Instant::now(), role, config)
    }

    fn born(now: Instant, role: Role, config: Config) -> Self {
        Self {
            connection: Connection::new(role, Arc::new(config), now),
            now,
            inbox: BytesMut::new(),
            batch: Transmit::default(),
            room: usize::MAX,
            wire: BytesMut::new(),
            listener: Decoder::new(None, u32::MAX),
            events: Vec::new(),
        }
    }

    pub(crate) fn client(config: Config) -> Self {
        Self::new(Role::Client, config)
    }

    /// An accepting side that knows its peer to be [`HeaderFormat::Magic10`].
    pub(crate) fn server(config: Config) -> Self {
        Self::new(Role::Server, Config { header: Some(HeaderFormat::Magic10), ..config })
    }

    /// The socket brings bytes; each event goes to `handler` before the next frame is looked at.
    pub(crate) fn hear_with(&mut self, bytes: &[u8], mut handler: impl FnMut(&mut Self, InputEvent)) {
        self.inbox.extend_from_slice(bytes);
        self.connection.handle_received(self.now, bytes.len());
        loop {
            match self.connection.handle_input(self.now, &mut self.inbox) {
                Ok(Some(event)) => handler(self, event),
                Ok(None) => return,
                Err(error) => return self.connection.fail(CloseReason::Protocol(error)),
            }
        }
    }

    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        self.hear_with(bytes, |side, event| side.events.push(event));
    }

    /// Writes as much as the socket has room for.
    pub(crate) fn write(&mut self) {
        while self.batch.has_remaining() || self.connection.poll_transmit(self.now, &mut self.batch) {
            let len = self.batch.chunk().len().min(self.room);
            if len == 0 {
                return;
            }
            self.room -= len;
            self.wire.extend_from_slice(&self.batch.chunk()[..len]);
            self.connection.handle_written(self.now, len, &mut self.batch);
        }
    }

    /// Writes, and names the whole frames that came out since the last time.
    pub(crate) fn say(&mut self) -> Vec<String> {
        self.write();
        let next = || self.listener.decode(&mut self.wire).expect("only whole frames are written");
        std::iter::from_fn(next).map(|frame| name(&frame)).collect()
    }

    /// The clock jumps from deadline to deadline until `duration` is over.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.write();
        while let Some(due) = self.poll_timeout().filter(|due| *due <= end) {
            self.meet(due);
            self.write();
        }
        self.now = end;
    }

    fn meet(&mut self, due: Instant) {
        self.now = due;
        self.connection.handle_timeout(due);
        assert!(self.poll_timeout().is_none_or(|next| due < next), "a deadline that was met does not come again");
    }

    /// The events since the last time.
    pub(crate) fn events(&mut self) -> Vec<InputEvent> {
        std::mem::take(&mut self.events)
    }

    /// The one stream that the peer opened since the last time.
    pub(crate) fn opened(&mut self) -> StreamKey {
        let opened = |event| if let InputEvent::StreamOpened(key) = event { Some(key) } else { None };
        let keys: Vec<StreamKey> = self.events().into_iter().filter_map(opened).collect();
        assert_eq!(keys.len(), 1, "one stream was opened");
        keys[0]
    }

    /// All that a stream has to read, and how it ends.
    pub(crate) fn read_all(&mut self, key: StreamKey) -> (Vec<Bytes>, Option<StreamEnd>) {
        let mut contents = Vec::new();
        loop {
            match self.read_from(key) {
                Ok(Some(content)) => contents.push(content),
                Ok(None) => return (contents, None),
                Err(end) => return (contents, Some(end)),
            }
        }
    }

    /// Where the connection stands, with the reason once it is closed.
    pub(crate) fn state(&self) -> String {
        match self.closed() {
            Some(reason) => format!("closed: {reason}"),
            None if self.is_draining() => "draining".into(),
            None if self.is_finishing() => "finishing".into(),
            None => "open".into(),
        }
    }
}

impl Deref for Side {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Two sides and the wire between them.
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    /// Sets the number of bytes that arrive at once.
    pub(crate) piece: usize,
    cut: bool,
}

impl Pair {
    pub(crate) fn new(config: Config) -> Self {
        Self::with(config.clone(), config)
    }

    pub(crate) fn with(client: Config, server: Config) -> Self {
        let now = Instant::now();
        let (client, server) = (Side::born(now, Role::Client, client), Side::born(now, Role::Server, server));
        Self { client, server, piece: usize::MAX, cut: false }
    }

    /// Loses all that is written from now on.
    pub(crate) fn cut_wire(&mut self) {
        self.cut = true;
    }

    /// Carries bytes both ways until neither side has more to say.
    pub(crate) fn exchange(&mut self) {
        loop {
            self.client.write();
            self.server.write();
            let (there, back) = (self.client.wire.split(), self.server.wire.split());
            if there.is_empty() && back.is_empty() {
                return;
            }
            if !self.cut {
                there.chunks(self.piece).for_each(|piece| self.server.hear(piece));
                back.chunks(self.piece).for_each(|piece| self.client.hear(piece));
            }
        }
    }

    /// The clock jumps from deadline to deadline until `duration` is over.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let end = self.client.now + duration;
        self.exchange();
        while let Some(due) = [&self.client, &self.server].iter().filter_map(|side| side.poll_timeout()).min()
            && due <= end
        {
            self.client.meet(due);
            self.server.meet(due);
            self.exchange();
        }
        (self.client.now, self.server.now) = (end, end);
    }
}

/// A frame in words.
fn name(frame: &Frame) -> String {
    let content = match frame.content.len() {
        len @ 0..=20 => String::from_utf8_lossy(&frame.content[..len]).into_owned(),
        len => format!("{len} bytes"),
    };
    match frame.kind {
        FrameKind::Ping => "PING".into(),
        FrameKind::Pong => "PONG".into(),
        FrameKind::Stream if content.is_empty() => format!("stream {} closed", frame.id),
        FrameKind::Stream => format!("stream {}: {content}", frame.id),
        FrameKind::Reserved => format!("reserved {}", frame.id),
        FrameKind::Control => format!("control {}: {:?}", frame.id, &*frame.content),
        FrameKind::Piece => format!("piece {}: {content}", frame.id),
        FrameKind::Extended | FrameKind::Application(_) => format!("packet {}: {content}", frame.id),
    }
}

/// A header in the ten byte layout.
pub(crate) fn head(id: u16, operation: u16, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { id, operation, len }.encode(HeaderFormat::Magic10, &mut bytes);
    bytes
}

/// A whole frame in the ten byte layout.
pub(crate) fn frame(id: u16, operation: u16, content: &[u8]) -> Vec<u8> {
    [head(id, operation, len(content)), content.to_vec()].concat()
}

pub(crate) fn ping() -> Vec<u8> {
    frame(0, 0, b"")
}

/// Data of a stream, or its close if there is none.
pub(crate) fn stream(id: u16, content: &str) -> Vec<u8> {
    frame(id, 2, content.as_bytes())
}

/// A packet of the one operation these tests use.
pub(crate) fn packet(id: u16, content: impl Into<Content>) -> Packet {
    Packet::new(id, OPERATION, content)
}

/// The bytes of that packet.
pub(crate) fn packet_bytes(id: u16, content: &str) -> Vec<u8> {
    frame(id, OPERATION.number(), content.as_bytes())
}

pub(crate) fn zeros(len: usize) -> Bytes {
    Bytes::from(vec![0; len])
}

fn len(content: &[u8]) -> u32 {
    u32::try_from(content.len()).expect("test contents are small")
}

/// A configuration without timers.
pub(crate) fn quiet() -> Config {
    Config { ping_interval: None, silence_max: None, extended: false, ..Config::default() }
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const OPERATION: Operation = Operation::new(20).expect("not reserved");
pub(crate) const FORMATS: [HeaderFormat; 2] = [HeaderFormat::Magic10, HeaderFormat::Plain8];
