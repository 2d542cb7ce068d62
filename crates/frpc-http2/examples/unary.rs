//! Unary gRPC exchanges between a client and a server in one process, as small drivers would make them.
//!
//! Callgrind counts the instructions of one side. Two runs with different numbers of exchanges give the cost of one:
//!
//! ```text
//! cargo build --release -p frisbee-rpc-http2 --example unary
//! valgrind --tool=callgrind --toggle-collect='*answer_requests*' target/release/examples/unary 1000 1
//! valgrind --tool=callgrind --toggle-collect='*send_requests*' --toggle-collect='*read_responses*' target/release/examples/unary 1000 1
//! ```
//!
//! The arguments are the number of batches, and of concurrent exchanges in each.

use std::{env, time::Instant};

use frpc_http2::{Connection, ConnectionError, Event, Field, Header, PreparedBlock, Settings};

/// A message of 32 bytes after the five bytes of its gRPC frame.
const MESSAGE: &[u8; 37] = b"\0\0\0\0\x20thirty-two bytes of a plain text";

fn main() {
    let mut arguments = env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (batches, exchanges) = (arguments.next().unwrap_or(1000), arguments.next().unwrap_or(1));
    let (mut client, mut server) = (Client::new(), Server::new());
    let (mut requests, mut responses) = (Vec::new(), Vec::new());
    let mut answered = 0;
    for _ in 0..batches {
        client.send_requests(exchanges, &mut requests);
        server.answer_requests(&requests, &mut responses).expect("the client keeps to the protocol");
        requests.clear();
        answered += client.read_responses(&responses).expect("the server keeps to the protocol");
        responses.clear();
    }
    println!("{answered} exchanges");
}

struct Client {
    connection: Connection,
    head: PreparedBlock,
    now: Instant,
}

impl Client {
    fn new() -> Self {
        let now = Instant::now();
        let mut connection = Connection::client(Settings::default(), now);
        let head = connection.prepare(&[
            Field::new(":method", "POST"),
            Field::new(":scheme", "http"),
            Field::repeated(":path", "/package.Service/Method"),
            Field::repeated(":authority", "localhost:7300"),
            Field::repeated("te", "trailers"),
            Field::repeated("content-type", "application/grpc"),
            Field::repeated("user-agent", "frpc"),
        ]);
        Self { connection, head, now }
    }

    #[inline(never)]
    fn send_requests(&mut self, count: usize, out: &mut Vec<u8>) {
        for _ in 0..count {
            let stream = self.connection.open(Header::prepared(self.head), false).expect("few streams are open");
            self.connection.send_slice(stream, MESSAGE, true).expect("the message fits into the window");
        }
        self.connection.take_output(out);
    }

    /// Returns the number of complete responses.
    #[inline(never)]
    fn read_responses(&mut self, mut input: &[u8]) -> Result<usize, ConnectionError> {
        let mut complete = 0;
        loop {
            let received = self.connection.receive(input, self.now)?;
            input = &input[received.consumed..];
            match received.event {
                None => return Ok(complete),
                Some(Event::Data { stream, data, .. }) => {
                    assert_eq!(data, MESSAGE);
                    self.connection.release(stream, data.len());
                }
                Some(Event::Trailers { trailers, .. }) => {
                    assert_eq!(trailers.get("grpc-status"), Some(&b"0"[..]));
                    complete += 1;
                }
                Some(_) => {}
            }
        }
    }
}

struct Server {
    connection: Connection,
    head: PreparedBlock,
    trailers: PreparedBlock,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        let now = Instant::now();
        let mut connection = Connection::server(Settings::default(), now);
        let content_type = Field::repeated("content-type", "application/grpc");
        let head = connection.prepare(&[Field::new(":status", "200"), content_type]);
        let trailers = connection.prepare(&[Field::repeated("grpc-status", "0")]);
        Self { connection, head, trailers, now }
    }

    #[inline(never)]
    fn answer_requests(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        loop {
            let received = self.connection.receive(input, self.now)?;
            input = &input[received.consumed..];
            match received.event {
                None => break,
                Some(Event::Head { head, .. }) => assert_eq!(head.path(), Some("/package.Service/Method")),
                Some(Event::Data { stream, data, end: true }) => {
                    let connection = &mut self.connection;
                    connection.release(stream, data.len());
                    connection.send_head(stream, Header::prepared(self.head), false).expect("the stream is open");
                    connection.send_slice(stream, data, false).expect("the answer fits into the window");
                    connection.send_trailers(stream, Header::prepared(self.trailers)).expect("the stream is open");
                }
                Some(_) => {}
            }
        }
        self.connection.take_output(out);
        Ok(())
    }
}
