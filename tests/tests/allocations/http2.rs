//! HTTP/2 without I/O: exchanges on a warm connection allocate nothing, and an idle connection holds little memory.

use std::time::Instant;

use frpc_http2::{Connection, Event, Field, Header, PreparedBlock, Settings};

use crate::{COUNT, LIVE};

#[test]
fn a_warm_http2_exchange_allocates_nothing() {
    for concurrent in [1, 10] {
        let mut sides = Sides::new();
        sides.exchange(WARM_UP, concurrent);
        sides.allocations = [0, 0];
        sides.exchange(EXCHANGES, concurrent);
        assert_eq!(sides.allocations, [0, 0], "of the client and the server, {concurrent} at a time");
    }
}

#[test]
fn an_idle_http2_server_holds_little_memory() {
    let mut sides = Sides::new();
    let greeted = sides.server_memory();
    sides.exchange(3, 1);
    sides.server.step(&mut 0, |connection, _| connection.shrink());
    let used = sides.server_memory();
    println!("a new connection holds {greeted} bytes, and an idle one {used} bytes");
    assert!(greeted <= IDLE_LEN_MAX, "{greeted} bytes after the handshake");
    assert!(used <= IDLE_LEN_MAX, "{used} bytes after exchanges");
    // The tables of both sides still agree.
    sides.exchange(3, 10);
}

const WARM_UP: usize = 100;
const EXCHANGES: usize = 1000;
const IDLE_LEN_MAX: usize = 2064;
const MESSAGE: &[u8; 37] = b"\0\0\0\0\x20thirty-two bytes of a plain text";

/// A client and a server, with the buffers of their drivers.
struct Sides {
    client: Side,
    server: Side,
    request: PreparedBlock,
    response: PreparedBlock,
    trailers: PreparedBlock,
    allocations: [usize; 2],
    now: Instant,
}

struct Side {
    connection: Connection,
    wire: Vec<u8>,
    /// Bytes that the connection holds, without the value itself.
    held: isize,
}

impl Side {
    /// Runs a step of this side, and counts its memory apart from the memory of the other one.
    fn step<T>(&mut self, allocations: &mut usize, step: impl FnOnce(&mut Connection, &mut Vec<u8>) -> T) -> T {
        // The buffer belongs to the driver. The connection may exchange it for its own.
        let wire = isize::try_from(self.wire.capacity()).unwrap();
        let (live, count) = (LIVE.get(), COUNT.get());
        let result = step(&mut self.connection, &mut self.wire);
        *allocations += COUNT.get() - count;
        self.held += LIVE.get() - live - (isize::try_from(self.wire.capacity()).unwrap() - wire);
        result
    }
}

impl Sides {
    fn new() -> Self {
        let now = Instant::now();
        let new = |connection: fn(Settings, Instant) -> Connection| {
            let live = LIVE.get();
            let connection = connection(Settings::default(), now);
            Side { connection, wire: Vec::new(), held: LIVE.get() - live }
        };
        let (mut client, mut server) = (new(Connection::client), new(Connection::server));
        let content_type = Field::repeated("content-type", "application/grpc");
        let request = client.step(&mut 0, |connection, _| {
            connection.prepare(&[
                Field::new(":method", "POST"),
                Field::new(":scheme", "http"),
                Field::repeated(":path", "/package.Service/Method"),
                Field::repeated(":authority", "localhost:7300"),
                Field::repeated("te", "trailers"),
                content_type,
            ])
        });
        let prepare = |fields: &[Field<'_>]| server.step(&mut 0, |connection, _| connection.prepare(fields));
        let [response, trailers] =
            [&[Field::new(":status", "200"), content_type][..], &[Field::repeated("grpc-status", "0")]].map(prepare);
        let mut sides = Self { client, server, request, response, trailers, allocations: [0, 0], now };
        sides.turn(0);
        sides
    }

    fn server_memory(&self) -> usize {
        size_of::<Connection>() + usize::try_from(self.server.held).unwrap()
    }

    /// Makes exchanges, `concurrent` in each turn of the drivers.
    fn exchange(&mut self, turns: usize, concurrent: usize) {
        (0..turns).for_each(|_| self.turn(concurrent));
    }

    fn turn(&mut self, requests: usize) {
        let Self { client, server, request, response, trailers, allocations: [on_client, on_server], now } = self;
        client.step(on_client, |connection, wire| {
            for _ in 0..requests {
                let stream = connection.open(Header::prepared(*request), false).unwrap();
                connection.send_slice(stream, MESSAGE, true).unwrap();
            }
            connection.take_output(wire);
        });
        server.step(on_server, |connection, wire| {
            receive(connection, &client.wire, *now, |connection, event| {
                let Event::Data { stream, data, end: true } = event else { return };
                connection.release(stream, data.len());
                connection.send_head(stream, Header::prepared(*response), false).unwrap();
                connection.send_slice(stream, data, false).unwrap();
                connection.send_trailers(stream, Header::prepared(*trailers)).unwrap();
            });
            connection.take_output(wire);
        });
        client.wire.clear();
        let mut complete = 0;
        client.step(on_client, |connection, _| {
            receive(connection, &server.wire, *now, |connection, event| match event {
                Event::Data { stream, data, .. } => connection.release(stream, data.len()),
                Event::Trailers { .. } => complete += 1,
                _ => {}
            });
        });
        server.wire.clear();
        assert_eq!(complete, requests);
    }
}

fn receive(
    connection: &mut Connection,
    mut input: &[u8],
    now: Instant,
    mut handle: impl FnMut(&mut Connection, Event<'_>),
) {
    loop {
        let received = connection.receive(input, now).unwrap();
        input = &input[received.consumed..];
        let Some(event) = received.event else { break };
        handle(connection, event);
    }
    assert_eq!(input, b"", "frames arrive as a whole");
}
