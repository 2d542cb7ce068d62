//! A client and a server against each other, with random messages, cuts of the wire, windows and schedules.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use frpc_http2::{Connection, ErrorCode, Event, Field, Header, Settings, StreamId};
use proptest::prelude::*;

struct Random(u64);

impl Random {
    fn below(&mut self, max: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % max
    }
}

/// A side with the bytes on their way to it.
struct Side {
    connection: Connection,
    wire: Vec<u8>,
    /// Bytes of `wire` that have arrived. Each turn adds to them, like a socket: a long frame is whole after some turns.
    arrived: usize,
    /// `true` once the SETTINGS of the peer apply.
    is_greeted: bool,
    /// Data not yet sent, and data received, of each stream. The order of a map without hashes repeats with its seed.
    outgoing: BTreeMap<StreamId, Vec<u8>>,
    incoming: BTreeMap<StreamId, (Vec<u8>, bool)>,
    /// Data received and not yet released.
    unreleased: Vec<(StreamId, usize)>,
}

impl Side {
    fn new(connection: Connection) -> Self {
        let (outgoing, incoming) = (BTreeMap::new(), BTreeMap::new());
        Self { connection, wire: Vec::new(), arrived: 0, is_greeted: false, outgoing, incoming, unreleased: Vec::new() }
    }

    /// Sends pieces of outgoing data, and trailers at the end of each stream.
    fn send(&mut self, random: &mut Random) {
        let streams: Vec<_> = self.outgoing.keys().copied().collect();
        for stream in streams {
            let Some(rest) = self.outgoing.get_mut(&stream) else { continue };
            let len = rest.len().min(1 + random.below(30_000));
            let piece: Bytes = rest[..len].to_vec().into();
            let sent = match random.below(2) {
                0 => self.connection.send_data(stream, piece, false),
                _ => self.connection.send_slice(stream, &piece, false),
            };
            if sent.is_ok() {
                rest.drain(..len);
            }
            if rest.is_empty() {
                let trailers = [Field::repeated("grpc-status", "0"), Field::new("x-stream", "1")];
                self.connection.send_trailers(stream, Header::fields(&trailers)).unwrap();
                self.outgoing.remove(&stream);
            }
        }
    }

    /// Receives some of the bytes that are on their way, after the ones that have arrived.
    fn receive(&mut self, random: &mut Random, now: Instant) {
        let mut consumed = 0;
        self.arrived += random.below(self.wire.len() - self.arrived + 1);
        loop {
            let received =
                self.connection.receive(&self.wire[consumed..self.arrived], now).expect("the peer is honest");
            consumed += received.consumed;
            match received.event {
                None => break,
                Some(Event::Head { stream, end, .. }) => {
                    self.incoming.insert(stream, (Vec::new(), end));
                }
                Some(Event::Data { stream, data, end }) => {
                    let (bytes, is_ended) = self.incoming.get_mut(&stream).unwrap();
                    bytes.extend(data);
                    *is_ended |= end;
                    self.unreleased.push((stream, data.len()));
                }
                Some(Event::Trailers { stream, .. }) => self.incoming.get_mut(&stream).unwrap().1 = true,
                Some(Event::Reset { stream, error }) => assert_eq!((stream, error.code), (stream, ErrorCode::NO_ERROR)),
                Some(Event::SettingsApplied) => self.is_greeted = true,
                Some(_) => {}
            }
        }
        // The rest arrives again together with later bytes.
        self.wire.drain(..consumed);
        self.arrived -= consumed;
        while self.connection.poll_event().is_some() {}
    }

    fn release(&mut self, random: &mut Random) {
        while !self.unreleased.is_empty() && random.below(3) > 0 {
            let at = random.below(self.unreleased.len());
            let (stream, len) = self.unreleased.swap_remove(at);
            self.connection.release(stream, len);
        }
    }

    /// Writes some bytes of the output.
    fn write(&mut self, peer: &mut Self, random: &mut Random) {
        if !self.connection.poll_output() {
            return;
        }
        let chunks: Vec<u8> = self.connection.output_chunks().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(chunks.len(), self.connection.output_len());
        let len = 1 + random.below(chunks.len());
        peer.wire.extend_from_slice(&chunks[..len]);
        self.connection.advance_output(len);
    }
}

/// Concurrent streams of the server.
const STREAMS_MAX: u32 = 5;

/// Returns the data of a stream, different for each.
fn content(stream: StreamId, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + stream.get() as usize * 13) % 251) as u8).collect()
}

fn run(seed: u64, window: u32, table: u32, calls: usize) {
    let mut random = Random(seed | 1);
    let now = Instant::now();
    let settings = || Settings {
        stream_window: window,
        connection_window: 65_535,
        header_table_max: table,
        streams_max: STREAMS_MAX,
        stream_queue_max: 40_000,
        small_frames_max: u32::MAX,
        ..Default::default()
    };
    let mut client = Side::new(Connection::client(settings(), now));
    let mut server = Side::new(Connection::server(settings(), now));
    let request = client.connection.prepare(&[
        Field::new(":method", "POST"),
        Field::new(":scheme", "http"),
        Field::repeated(":path", "/package.Service/Method"),
        Field::repeated("te", "trailers"),
    ]);
    let response =
        server.connection.prepare(&[Field::new(":status", "200"), Field::repeated("content-type", "application/grpc")]);
    let mut lens = BTreeMap::new();
    let mut turns = 0;
    let is_complete = |side: &Side| side.incoming.len() == calls && side.incoming.values().all(|(_, ended)| *ended);
    while !is_complete(&client) || !is_complete(&server) {
        turns += 1;
        assert!(turns < 200_000, "stuck: {:?} {:?}", client.connection, server.connection);
        // Before SETTINGS, a client does not know the limit of the server, which refuses further streams.
        let calls_max = if client.is_greeted { calls } else { STREAMS_MAX as usize };
        if lens.len() < calls_max && random.below(3) == 0 {
            let extra = ["x".repeat(random.below(50)), "y".repeat(random.below(5))];
            let fields = [Field::repeated("x-a", &extra[0]), Field::new("x-b", &extra[1])];
            if let Ok(stream) = client.connection.open(Header::prepared(request).with_fields(&fields), false) {
                let len = [0, 5, 300, 20_000, 100_000][random.below(5)];
                lens.insert(stream, len);
                client.outgoing.insert(stream, content(stream, len));
            }
        }
        client.send(&mut random);
        server.send(&mut random);
        client.write(&mut server, &mut random);
        server.write(&mut client, &mut random);
        server.receive(&mut random, now);
        client.receive(&mut random, now);
        // The server answers whole requests with their content.
        let ended: Vec<_> = server.incoming.iter().filter(|(_, (_, ended))| *ended).map(|(id, _)| *id).collect();
        for stream in ended {
            if server.connection.send_head(stream, Header::prepared(response), false).is_ok() {
                let content = server.incoming[&stream].0.clone();
                server.outgoing.insert(stream, content);
            }
        }
        client.release(&mut random);
        server.release(&mut random);
    }
    for (stream, len) in &lens {
        assert!(client.incoming[stream].0 == content(*stream, *len), "the echo of {stream:?}");
    }
    for side in [&mut client, &mut server] {
        side.unreleased.drain(..).for_each(|(stream, len)| side.connection.release(stream, len));
        assert_eq!(side.connection.active_streams(), 0);
        assert!(side.connection.memory() < 300_000, "{}", side.connection.memory());
    }
    assert_eq!(client.connection.handle_timeout(now + Duration::from_secs(1)), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_message_arrives(seed: u64, window in 1u32..70_000, table in 0u32..6000) {
        run(seed, window.max(50), table, 12);
    }
}

#[test]
fn frames_arrive_over_many_reads() {
    // One frame of 14 KiB fills the window here, so that nothing else moves until all of it has arrived.
    run(958122478857403406, 14144, 271, 12);
}
