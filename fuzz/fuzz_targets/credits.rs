//! Runs any sequence of operations on the streams of two sides with credits. One side sends large contents in pieces.
//! No sender starves, all data is sent, and no limit is exceeded.
#![no_main]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arbitrary::Arbitrary;
use bytes::{Buf, BytesMut};
use frisbee::{
    CloseReason, Config,
    proto::{Connection, InputEvent, Role, StreamKey, Transmit},
};
use frisbee_fuzz::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    streams_max: u8,
    checksums: [bool; 2],
    streams_len_max: [u16; 2],
    stream_queue_len_max: [u16; 2],
    steps: Vec<Step<'a>>,
}

/// An operation, on the client or on the server.
#[derive(Arbitrary, Debug)]
struct Step<'a> {
    client: bool,
    act: Act<'a>,
}

#[derive(Arbitrary, Debug)]
enum Act<'a> {
    Open {
        id: Option<u8>,
    },
    /// Sends data of this many words if the stream has credit.
    SendOn {
        stream: u8,
        words: u16,
    },
    Read {
        stream: u8,
    },
    Peek {
        stream: u8,
    },
    Ignore {
        stream: u8,
    },
    DeferClose {
        stream: u8,
    },
    Close {
        stream: u8,
    },
    Release {
        stream: u8,
    },
    /// Writes up to `len` bytes to the socket.
    Write {
        len: u16,
    },
    /// Receives up to `len` bytes written by the peer.
    Deliver {
        len: u16,
    },
    Advance {
        millis: u8,
    },
    /// Receives a frame not sent by the peer. Afterwards, the side only has to survive.
    Inject {
        id: u8,
        content: &'a [u8],
    },
}

fuzz_target!(|input: Input| {
    let mut now = Instant::now();
    let config = |at: usize| Config {
        streams_max: usize::from(input.streams_max) + 1,
        streams_len_max: input.streams_len_max[at].into(),
        stream_queue_len_max: input.stream_queue_len_max[at].into(),
        control_burst: u32::MAX,
        checksums: input.checksums[at],
        ping_interval: None,
        silence_max: None,
        ..Config::default()
    };
    let mut client = Side::new(Role::Client, config(0), now);
    client.connection.interleave();
    let mut server = Side::new(Role::Server, config(1), now);
    let mut is_confused = false;
    for Step { client: is_client, act } in &input.steps {
        if let Act::Advance { millis } = act {
            now += Duration::from_millis((*millis).into());
        }
        is_confused |= matches!(act, Act::Inject { .. });
        (client.now, server.now) = (now, now);
        let (side, peer) = if *is_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
        side.act(act, peer);
    }
    settle(&mut client, &mut server);
    if is_confused || [&client, &server].iter().any(|side| side.connection.closed().is_some()) {
        return;
    }
    for _ in 0..3 {
        client.fill();
        server.fill();
        settle(&mut client, &mut server);
        for side in [&client, &server] {
            assert_eq!(side.connection.queued_len(), 0, "everything is sent");
            assert!(!side.connection.has_pieces(), "and everything has come");
        }
    }
});

/// Delivers and reads everything.
fn settle(client: &mut Side, server: &mut Side) {
    loop {
        let mut is_quiet = true;
        for turn in 0..2 {
            let (side, peer) = if turn == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
            side.write(usize::MAX);
            is_quiet &= side.wire.is_empty();
            peer.deliver(side, usize::MAX);
            is_quiet &= !peer.read_all();
            is_quiet &= !peer.connection.owes_credit();
        }
        if is_quiet {
            return;
        }
    }
}

struct Side {
    connection: Connection,
    now: Instant,
    inbox: BytesMut,
    batch: Transmit,
    wire: BytesMut,
    streams: Vec<StreamKey>,
    ignored: Vec<StreamKey>,
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
            ignored: Vec::new(),
        }
    }

    fn act(&mut self, act: &Act, peer: &mut Self) {
        match *act {
            Act::Open { id } => {
                let opened = match id {
                    Some(id) => self.connection.open_stream_with_id(id.into()),
                    None => self.connection.open_stream(),
                };
                self.streams.extend(opened);
            }
            Act::SendOn { stream, words } => {
                if let Some(key) = self.stream(stream)
                    && self.connection.has_credit(key)
                {
                    let _ = self.connection.send_on(key, vec![0; usize::from(words) * 4].into());
                }
            }
            Act::Read { stream } => {
                let _ = self.heard_stream(stream).map(|key| self.connection.read_from(key));
            }
            Act::Peek { stream } => {
                let _ = self.heard_stream(stream).map(|key| self.connection.peek_at(key));
            }
            Act::Ignore { stream } => {
                if let Some(key) = self.stream(stream) {
                    self.connection.ignore_stream(key);
                    self.ignored.push(key);
                }
            }
            Act::DeferClose { stream } => {
                self.stream(stream).into_iter().for_each(|key| self.connection.defer_stream_close(key));
            }
            Act::Close { stream } => {
                self.stream(stream).into_iter().for_each(|key| self.connection.close_stream(key));
            }
            Act::Release { stream } => {
                if let Some(key) = self.stream(stream) {
                    self.connection.release_stream(key);
                    self.streams.retain(|other| *other != key);
                    self.ignored.retain(|other| *other != key);
                }
            }
            Act::Write { len } => self.write(len.into()),
            Act::Deliver { len } => self.deliver(peer, len.into()),
            Act::Advance { .. } => {
                for side in [self, peer] {
                    side.connection.handle_timeout(side.now);
                    while side.connection.poll_overflowed().is_some() {}
                }
            }
            Act::Inject { id, content } => {
                let len = u32::try_from(content.len()).expect("inputs are small");
                let head = [&[0, 15, 0, id, 0, 3][..], &len.to_be_bytes()].concat();
                if self.inbox.is_empty() && self.connection.content_len() == 0 {
                    self.hear(&[&head, content].concat());
                }
            }
        }
    }

    fn stream(&self, at: u8) -> Option<StreamKey> {
        (!self.streams.is_empty()).then(|| self.streams[usize::from(at) % self.streams.len()])
    }

    /// Returns a stream, unless its data is never read.
    fn heard_stream(&self, at: u8) -> Option<StreamKey> {
        self.stream(at).filter(|key| !self.ignored.contains(key))
    }

    fn write(&mut self, mut room: usize) {
        while room > 0 && (self.batch.has_remaining() || self.connection.poll_transmit(self.now, &mut self.batch)) {
            let len = self.batch.chunk().len().min(room);
            room -= len;
            self.wire.extend_from_slice(&self.batch.chunk()[..len]);
            self.connection.handle_written(self.now, len, &mut self.batch);
        }
    }

    fn deliver(&mut self, peer: &mut Self, len: usize) {
        let bytes = peer.wire.split_to(len.min(peer.wire.len()));
        self.hear(&bytes);
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.connection.handle_received(self.now, bytes.len());
        loop {
            match self.connection.handle_input(self.now, &mut self.inbox) {
                Ok(Some(InputEvent::StreamOpened(key))) => self.streams.push(key),
                Ok(Some(InputEvent::StreamWritable(key))) => assert!(self.connection.has_credit(key)),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => return self.connection.fail(CloseReason::Protocol(error)),
            }
        }
    }

    /// Reads all available data. Returns `true` if there was any.
    fn read_all(&mut self) -> bool {
        let mut has_read = false;
        for key in self.streams.iter().filter(|key| !self.ignored.contains(key)) {
            while let Ok(Some(_)) = self.connection.read_from(*key) {
                has_read = true;
            }
        }
        // Processes input deferred by a stalled stream.
        self.hear(&[]);
        has_read
    }

    /// Sends as much as possible on every open stream. Fails if a stream has no credit at all.
    fn fill(&mut self) {
        for key in self.streams.iter().copied() {
            if self.connection.stream_ended(key).is_some() {
                continue;
            }
            assert!(self.connection.has_credit(key), "a sender waits for ever");
            for _ in 0..100 {
                if !self.connection.has_credit(key) {
                    break;
                }
                self.connection.send_on(key, vec![0; 1000].into()).expect("the stream is open");
            }
        }
    }
}
