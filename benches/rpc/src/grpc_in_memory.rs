//! The same sides of a connection with gRPC. The peer reads and writes frames of HTTP/2, with header blocks encoded in
//! advance.

use std::{future::ready, io, sync::Mutex};

use frpc::{CallSettings, Channel, ChannelCallSettings, Server};
use frpc_http::{Client, Http};
use frpc_http2::{BlockEncoder, Field};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Runtime,
};

use crate::{
    Service,
    in_memory::{Calling, LARGE_PIPE_LEN, MESSAGE_LEN, PIPE_LEN, WARM_UP_CALLS, current_thread, quiet},
    schema::{echo_client::EchoClient, echo_server::EchoServer},
    text,
};

/// A gRPC server, and the peer end of its connection.
pub struct GrpcServing {
    runtime: Runtime,
    _server: Server,
    peer: Peer,
    /// The frames of one batch of concurrent calls. Each batch gets new stream ids.
    requests: Vec<u8>,
    calls: usize,
    /// The id of the next stream.
    next: u32,
}

impl GrpcServing {
    /// Starts a server and warms it up, with `calls` calls in flight.
    pub fn start(calls: usize) -> Self {
        Self::start_measured(calls, true)
    }

    /// Starts a gRPC server with metrics or without, and warms it up.
    pub fn start_measured(calls: usize, metrics: bool) -> Self {
        let runtime = current_thread();
        let (wire, peer) = duplex(PIPE_LEN);
        let settings = CallSettings { metrics, ..CallSettings::default() };
        let server = Server::builder().config(quiet()).calls(settings).wire(Http::new());
        let server = server.add_service(EchoServer::new(Service));
        let server = server.without_listener().expect("it has one service");
        let entered = runtime.enter();
        server.attach(wire);
        drop(entered);
        let mut blocks = BlockEncoder::new(TABLE_MAX);
        let mut peer = Peer::new(peer);
        peer.output.extend_from_slice(PREFACE);
        peer.start();
        let mut serving = Self { runtime, _server: server, peer, requests: request(&mut blocks), calls: 1, next: 1 };
        // The first request fills the table of header fields.
        serving.serve(1);
        (serving.requests, serving.calls) = (request(&mut blocks).repeat(calls), calls);
        serving.serve(WARM_UP_CALLS);
        serving
    }

    /// Makes the server answer `calls` calls.
    pub fn serve(&mut self, calls: usize) {
        let Self { runtime, peer, requests, .. } = self;
        runtime.block_on(async {
            for _ in 0..calls / self.calls {
                let len = requests.len() / self.calls;
                for request in requests.chunks_exact_mut(len) {
                    request[STREAM].copy_from_slice(&self.next.to_be_bytes());
                    request[len - DATA_LEN..][STREAM].copy_from_slice(&self.next.to_be_bytes());
                    self.next += 2;
                }
                peer.output.extend_from_slice(requests);
                let mut answered = 0;
                while answered < self.calls {
                    peer.turn(|frame, _| {
                        assert!(frame.kind != RST_STREAM && frame.kind != GOAWAY, "the server refuses a call");
                        answered += usize::from(frame.kind == HEADERS && frame.flags & END_STREAM != 0);
                    })
                    .await
                    .expect("the server answers");
                }
            }
        });
    }
}

impl Calling {
    /// Starts a gRPC client whose peer echoes all messages, and warms it up with `callers` concurrent callers.
    pub fn start_grpc(callers: usize) -> Self {
        Self::start_measured_grpc(callers, true)
    }

    /// Starts such a client with metrics or without, and warms it up.
    pub fn start_measured_grpc(callers: usize, metrics: bool) -> Self {
        let calls = ChannelCallSettings { metrics, ..ChannelCallSettings::default() };
        let runtime = current_thread();
        let client = Client::new().connector(|| async {
            let (wire, peer) = duplex(PIPE_LEN);
            tokio::spawn(echo(peer));
            Ok(wire)
        });
        let connecting = Channel::builder().config(quiet()).calls(calls).transport(client).connect("grpc://memory");
        let channel = runtime.block_on(connecting).expect("the peer is in this process");
        Self::warmed_up(runtime, EchoClient::new(channel), callers)
    }
}

/// Returns a server, and a client that is connected to it over gRPC.
pub fn connected_by_grpc(runtime: &Runtime) -> (Server, EchoClient) {
    let server = Server::builder().config(quiet()).wire(Http::new()).add_service(EchoServer::new(Service));
    let server = server.without_listener().expect("it has one service");
    let (wire, peer) = duplex(LARGE_PIPE_LEN);
    let peer = Mutex::new(Some(peer));
    let client = Client::new().connector(move || {
        let peer = peer.lock().expect("no thread panics").take();
        ready(peer.ok_or(io::ErrorKind::ConnectionRefused.into()))
    });
    let channel = runtime.block_on(async {
        server.attach(wire);
        Channel::builder().config(quiet()).transport(client).connect("grpc://memory").await
    });
    (server, EchoClient::new(channel.expect("the server is in this process")))
}

/// Answers each request with its own message.
async fn echo(mut wire: DuplexStream) {
    let mut preface = [0; PREFACE.len()];
    wire.read_exact(&mut preface).await.expect("the client begins");
    let mut peer = Peer::new(wire);
    peer.start();
    let mut blocks = BlockEncoder::new(TABLE_MAX);
    let mut head = response_head(&mut blocks);
    let mut trailers = response_trailers(&mut blocks);
    let mut is_first = true;
    loop {
        let turn = peer.turn(|frame, output| {
            if frame.kind != DATA {
                return;
            }
            assert_eq!((frame.flags & END_STREAM, frame.payload.len()), (END_STREAM, MESSAGE_FRAME_LEN));
            put_frame(output, HEADERS, END_HEADERS, frame.stream, &head);
            put_frame(output, DATA, 0, frame.stream, frame.payload);
            put_frame(output, HEADERS, END_HEADERS | END_STREAM, frame.stream, &trailers);
            if is_first {
                (head, trailers) = (response_head(&mut blocks), response_trailers(&mut blocks));
                is_first = false;
            }
        });
        if turn.await.is_none() {
            return;
        }
    }
}

/// The other end of a connection.
struct Peer {
    wire: DuplexStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: [u8; 4],
    payload: &'a [u8],
}

impl Peer {
    fn new(wire: DuplexStream) -> Self {
        Self { wire, input: Vec::with_capacity(4 * PIPE_LEN), output: Vec::new() }
    }

    /// Queues the settings, and a window of the connection that lasts for all calls.
    fn start(&mut self) {
        put_frame(&mut self.output, SETTINGS, 0, CONNECTION, &[]);
        put_frame(&mut self.output, WINDOW_UPDATE, 0, CONNECTION, &WINDOW_GROWTH.to_be_bytes());
    }

    /// Writes the output, reads once, and passes all complete frames and the next output to `handle`. Returns `None`
    /// at the end of the connection.
    async fn turn(&mut self, mut handle: impl FnMut(&Frame<'_>, &mut Vec<u8>)) -> Option<()> {
        let Self { wire, input, output } = self;
        wire.write_all(output).await.ok()?;
        output.clear();
        wire.read_buf(input).await.ok().filter(|len| *len > 0)?;
        let mut rest = &input[..];
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD_LEN>() {
            let &[a, b, c, kind, flags, ref stream @ ..] = head;
            let Some((payload, after)) = after.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize) else {
                break;
            };
            if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
                let acknowledged = if kind == PING { payload } else { &[] };
                put_frame(output, kind, ACK, CONNECTION, acknowledged);
            }
            handle(&Frame { kind, flags, stream: *stream, payload }, output);
            rest = after;
        }
        let used = input.len() - rest.len();
        input.drain(..used);
        Some(())
    }
}

/// Returns the frames of a request.
fn request(blocks: &mut BlockEncoder) -> Vec<u8> {
    let fields = [
        Field::new(":method", "POST"),
        Field::new(":scheme", "http"),
        Field::repeated(":path", "/echo.Echo/Once"),
        Field::repeated(":authority", "memory"),
        Field::repeated("te", "trailers"),
        Field::repeated("content-type", "application/grpc"),
        Field::repeated("user-agent", "bench"),
    ];
    let block = encode(blocks, &fields);
    let len = u8::try_from(MESSAGE_LEN).expect("it is short");
    let content = [&[0, 0, 0, 0, len + 2, TEXT_TAG, len], text(MESSAGE_LEN).as_bytes()].concat();
    let mut frames = Vec::new();
    put_frame(&mut frames, HEADERS, END_HEADERS, CONNECTION, &block);
    put_frame(&mut frames, DATA, END_STREAM, CONNECTION, &content);
    frames
}

fn response_head(blocks: &mut BlockEncoder) -> Vec<u8> {
    encode(blocks, &[Field::new(":status", "200"), Field::repeated("content-type", "application/grpc")])
}

fn response_trailers(blocks: &mut BlockEncoder) -> Vec<u8> {
    encode(blocks, &[Field::repeated("grpc-status", "0")])
}

fn encode(blocks: &mut BlockEncoder, fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    blocks.begin(&mut block);
    fields.iter().for_each(|field| blocks.field(&mut block, *field));
    block
}

fn put_frame(output: &mut Vec<u8>, kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) {
    let [_, a, b, c] = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    output.extend_from_slice(&[a, b, c, kind, flags]);
    output.extend_from_slice(&stream);
    output.extend_from_slice(payload);
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD_LEN: usize = 9;
/// The stream id in the head of a frame.
const STREAM: std::ops::Range<usize> = 5..9;
const CONNECTION: [u8; 4] = [0; 4];
/// Protobuf field 1, a string.
const TEXT_TAG: u8 = 0x0a;
/// The text, two bytes of its field, and five bytes of gRPC.
const MESSAGE_FRAME_LEN: usize = MESSAGE_LEN + 7;
const DATA_LEN: usize = FRAME_HEAD_LEN + MESSAGE_FRAME_LEN;
/// The size of the header table that every peer has.
const TABLE_MAX: usize = 4096;
/// From the window at the start to the largest one.
const WINDOW_GROWTH: u32 = (1 << 31) - 1 - 65_535;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
