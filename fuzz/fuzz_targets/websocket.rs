//! Runs WebSockets on any input. Frames are read as a slow model reads them, regardless of chunk boundaries. Contents
//! arrive unchanged, and servers and clients end without a panic.
#![no_main]

use std::{future::ready, io, sync::Mutex, time::Duration};

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc::{Channel, Config, ConnectRetry, Server};
use frpc_http::{Cors, Http};
use frpc_websocket::{Client, MessageKind, Role, WebSocket, WebSocketError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::yield_now,
    time::timeout,
};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Frames { frames: Vec<Frame<'a>>, cuts: Vec<u8>, len_max: u8 },
    Any { bytes: &'a [u8], cuts: Vec<u8>, is_client: bool },
    Stream { contents: Vec<&'a [u8]>, is_client: bool },
    Handshake { line: &'a str, bytes: &'a [u8] },
    Answer { line: &'a str, bytes: &'a [u8] },
}

/// A mostly valid frame of a client.
#[derive(Arbitrary, Debug)]
struct Frame<'a> {
    is_last: bool,
    opcode: u8,
    mask: [u8; 4],
    content: &'a [u8],
}

const OPCODES: [u8; 16] = [0, 0, 0, 1, 1, 1, 2, 2, 8, 9, 9, 10, 1, 0, 2, 3];

impl Frame<'_> {
    fn opcode(&self) -> u8 {
        OPCODES[usize::from(self.opcode) % OPCODES.len()]
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_last) << 7 | self.opcode()];
        match u8::try_from(self.content.len()) {
            Ok(len @ 0..=125) => bytes.push(0x80 | len),
            _ => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(self.content.len()).expect("it is short").to_be_bytes());
            }
        }
        bytes.extend(self.mask);
        bytes.extend(self.content.iter().zip(self.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }
}

/// The messages of a peer, and the end of the connection.
type Read = (Vec<(MessageKind, Vec<u8>)>, End);

#[derive(Debug, PartialEq)]
enum End {
    Closed,
    Refused,
    Lost,
}

/// Reads whole frames one by one.
fn model(frames: &[Frame<'_>], len_max: usize) -> Read {
    let (mut messages, mut begun): (_, Option<(MessageKind, Vec<u8>)>) = (Vec::new(), None);
    for frame in frames {
        let (opcode, content) = (frame.opcode(), frame.content);
        if opcode >= 8 {
            if !frame.is_last || content.len() > 125 {
                return (messages, End::Refused);
            }
            if opcode == 8 {
                let is_fine = match content {
                    [] => true,
                    [first, second, reason @ ..] => {
                        let code = u16::from_be_bytes([*first, *second]);
                        let is_fine = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
                        is_fine && str::from_utf8(reason).is_ok()
                    }
                    [_] => false,
                };
                return (messages, if is_fine { End::Closed } else { End::Refused });
            }
            continue;
        }
        let (kind, mut whole) = match (opcode, begun.take()) {
            (0, Some(begun)) => begun,
            (1, None) => (MessageKind::Text, Vec::new()),
            (2, None) => (MessageKind::Binary, Vec::new()),
            _ => return (messages, End::Refused),
        };
        whole.extend_from_slice(content);
        let text = str::from_utf8(&whole).map_err(|error| error.error_len().is_some() || frame.is_last);
        if whole.len() > len_max || (kind == MessageKind::Text && text == Err(true)) {
            return (messages, End::Refused);
        }
        if frame.is_last {
            messages.push((kind, whole));
        } else {
            begun = Some((kind, whole));
        }
    }
    (messages, End::Lost)
}

fn in_virtual_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("it can be made").block_on(async {
        timeout(Duration::from_secs(3600), test).await.expect("a connection whose peer has said all ends");
    });
}

/// Writes `bytes` in pieces, and reads until the end.
async fn talk(stream: DuplexStream, mut bytes: &[u8], cuts: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let talking = async {
        for cut in cuts.iter().chain([&u8::MAX].into_iter().cycle()) {
            if bytes.is_empty() {
                break;
            }
            let (piece, rest) = bytes.split_at(usize::from(*cut).min(bytes.len()));
            // The peer may close the connection early.
            let _ = writer.write_all(piece).await;
            yield_now().await;
            bytes = rest;
        }
        let _ = writer.shutdown().await;
    };
    let mut heard = Vec::new();
    let (_ended_or_cut, ()) = tokio::join!(reader.read_to_end(&mut heard), talking);
}

async fn read(stream: DuplexStream, role: Role, len_max: usize) -> Read {
    let mut socket = WebSocket::new(stream, role).message_len_max(len_max);
    let mut messages = Vec::new();
    let end = loop {
        match socket.next().await {
            Some(Ok(message)) => {
                assert!(message.data.len() <= len_max);
                assert!(message.kind == MessageKind::Binary || str::from_utf8(&message.data).is_ok());
                messages.push((message.kind, message.data.to_vec()));
            }
            Some(Err(WebSocketError::Refused(_))) => break End::Refused,
            Some(Err(_)) => break End::Lost,
            None => break End::Closed,
        }
    };
    assert!(socket.next().await.is_none());
    (messages, end)
}

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: frpc\r\n";

fuzz_target!(|input: Input<'_>| in_virtual_time(async {
    let (ours, theirs) = duplex(1024);
    match input {
        Input::Frames { frames, cuts, len_max } => {
            let bytes = frames.iter().flat_map(Frame::bytes).collect::<Vec<_>>();
            let (read, ()) = tokio::join!(read(ours, Role::Server, len_max.into()), talk(theirs, &bytes, &cuts));
            assert_eq!(read, model(&frames, len_max.into()));
        }
        Input::Any { bytes, cuts, is_client } => {
            let role = if is_client { Role::Client } else { Role::Server };
            tokio::join!(read(ours, role, 300), talk(theirs, bytes, &cuts));
        }
        Input::Stream { contents, is_client } => {
            let (one, other) = if is_client { (Role::Client, Role::Server) } else { (Role::Server, Role::Client) };
            let mut writer = WebSocket::new(ours, one).into_stream();
            let mut reader = WebSocket::new(theirs, other).into_stream();
            let writing = async {
                for content in &contents {
                    writer.write_all(content).await.expect("the reader is there");
                }
                writer.shutdown().await.expect("the reader is there");
            };
            let mut heard = Vec::new();
            let (read, ()) = tokio::join!(reader.read_to_end(&mut heard), writing);
            assert_eq!(read.expect("it was closed"), heard.len());
            assert_eq!(heard, contents.concat());
        }
        Input::Handshake { line, bytes } => {
            let http = Http::new().cors(Cors::origins(["http://b"]));
            let server = Server::builder().config(Config::default()).wire(http);
            let server = server.without_listener().expect("nothing is wrong with it");
            server.attach(ours);
            let bytes = [HANDSHAKE.as_bytes(), line.as_bytes(), b"\r\n\r\n", bytes].concat();
            talk(theirs, &bytes, &[]).await;
            assert_eq!(server.shutdown(Duration::from_secs(60)).await, 0);
        }
        Input::Answer { line, bytes } => {
            let ours = Mutex::new(Some(ours));
            let client = Client::new().connector(move || {
                let stream = ours.lock().expect("nobody panics").take();
                ready(stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
            });
            let bytes = [b"HTTP/1.1 ", line.as_bytes(), b"\r\n", bytes].concat();
            let connecting = Channel::builder()
                .transport(client)
                .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
                .connect("ws://a");
            let (connected, ()) = tokio::join!(connecting, talk(theirs, &bytes, &[]));
            assert!(connected.is_err(), "nobody can prove that a random key was read");
        }
    }
}));
