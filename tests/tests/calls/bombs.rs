//! Peers that lie about compressed messages, compress too much or send too much metadata. Their calls end with a
//! status, and nothing else is affected.

use std::time::Duration;

use bytes::Bytes;
use frpc::{
    Code, CompressionSettings, Config, Connection, MessageSettings, Operation, Outcome, Packet, Router, Server, codec,
};
use support::{
    MILLI, SECOND, assert_elapsed,
    calls::{
        COUNT, GATHER, SAY, TestClient, TestServer, TestService, Words, ask, asking, connect, encoded, of_kind, quiet,
        quiet_channel,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::duplex,
    sync::mpsc,
    time::{Instant, timeout},
};

/// One side of a connection with hand-written packets.
struct ByHand {
    connection: Connection,
    packets: mpsc::UnboundedReceiver<Packet>,
}

/// Announces the test service and answers with prepared content.
#[derive(Clone)]
struct Script {
    packets: mpsc::UnboundedSender<Packet>,
    /// Content of every answer to a packet.
    answer: Bytes,
    /// Data of the answers to calls on streams.
    data: Vec<Bytes>,
}

impl Router for Script {
    fn describe(&self) -> Result<frisbee::RouterInfo, Box<dyn std::error::Error + Send + Sync>> {
        Ok(frisbee::RouterInfo::default().with_part("frpc", hello()))
    }

    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        if self.answer.is_empty() {
            self.packets.send(packet).unwrap();
            return Outcome::Nothing;
        }
        Outcome::Reply(Packet::new(packet.id, Operation::EXTENDED, self.answer.clone()))
    }

    async fn stream(&self, mut stream: frpc::frisbee::Stream, _: Option<frisbee::RefusalReason>, _: &Connection) {
        stream.read().await.unwrap();
        for data in &self.data {
            // The other side may have closed the stream already.
            let _ = stream.send(data.clone()).await;
        }
        // Wait until the other side closes the stream.
        while stream.read().await.is_ok() {}
    }
}

impl ByHand {
    /// Connects to a server.
    async fn connect(server: &Server) -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let (packets, inbox) = mpsc::unbounded_channel();
        let script = Script { packets, answer: Bytes::new(), data: Vec::new() };
        let connection = frisbee::Client::new(script).config(quiet()).attach(ours).await.unwrap();
        connection.recognized().await.unwrap();
        Self { connection, packets: inbox }
    }

    async fn send(&self, id: u16, content: Vec<u8>) {
        self.connection.send(Packet::new(id, Operation::EXTENDED, content)).await.unwrap();
    }

    /// Returns the id of the next answer, with its message or the code of its failure.
    async fn answer(&mut self) -> (u16, Result<String, Code>) {
        let packet = self.packets.recv().await.expect("the connection is there");
        (packet.id, read(&packet.content))
    }

    async fn ask(&mut self, content: Vec<u8>) -> Result<String, Code> {
        self.send(1, content).await;
        self.answer().await.1
    }

    /// Makes a call on a stream. Returns the end of its answers.
    async fn stream(&mut self, operation: u8, data: &[Vec<u8>]) -> Result<String, Code> {
        let mut stream = self.connection.open_stream().unwrap();
        stream.send(vec![0x10, 0, operation, 0, 0, 0, 0, 0]).await.unwrap();
        for data in data {
            stream.send(data.clone()).await.unwrap();
        }
        let mut last = Ok(String::new());
        while let Ok(content) = timeout(SECOND, stream.read()).await.expect("it ends") {
            match content[0] {
                0x11 => last = Ok(message(&content[5..])),
                0x13 => break,
                _ => {
                    last = read(&content);
                    break;
                }
            }
        }
        last
    }
}

/// Returns the message of an uncompressed answer, or the code of a failure.
fn read(content: &Bytes) -> Result<String, Code> {
    let head = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().unwrap()) as usize;
    match content[0] {
        2 => Ok(message(&content[5 + head(1)..])),
        // The code is the first field.
        3 => Err(Code::from_number(content[10].into())),
        other => panic!("an answer of kind {other}"),
    }
}

fn message(content: &[u8]) -> String {
    match codec::decode::<Words>(&Bytes::copy_from_slice(content)).unwrap() {
        codec::DecodedContent::Message(words) => words.text,
        other => panic!("{other:?}"),
    }
}

/// Returns the hello of a peer with the test service and support for all compression algorithms.
fn hello() -> Bytes {
    let mut part = vec![1, 0, 0, 0, 4, 0, 0, 32, 0, 4, 0, 0, 0, 2, 1, 2];
    for (operation, kind, name) in [(10, 0, "Say"), (11, 1, "Count"), (12, 2, "Gather"), (13, 3, "Chat")] {
        let path = format!("calls.Test/{name}");
        part.push(16);
        part.extend(u32::try_from(35 + path.len()).unwrap().to_be_bytes());
        part.extend([0, operation, kind]);
        part.extend([0; 32]);
        part.extend(path.bytes());
    }
    part.into()
}

const LZ4: u8 = 1;

/// Returns the prefix of compressed bytes with this announced length.
fn compressed(algorithm: u8, len: usize) -> [u8; 5] {
    let [a, b, c, d] = u32::try_from(len).unwrap().to_be_bytes();
    [algorithm, a, b, c, d]
}

/// Returns a compressed request to say something.
fn request(announced: [u8; 5], bytes: &[u8]) -> Vec<u8> {
    [&[1, 0, u8::try_from(SAY).unwrap(), 0, 0, 0, 0, 10, 7, 0, 0, 0, 5][..], &announced, bytes].concat()
}

/// Returns a compressed answer.
fn answer(announced: [u8; 5], bytes: &[u8]) -> Bytes {
    [&[2, 0, 0, 0, 10, 7, 0, 0, 0, 5][..], &announced, bytes].concat().into()
}

/// Returns compressed stream data.
fn data(announced: [u8; 5], bytes: &[u8]) -> Vec<u8> {
    [&[0x14][..], &announced, bytes].concat()
}

/// Returns a message after its length, as in streams.
fn packed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// Returns the length of a message and its compressed bytes.
fn message_of(text: &str) -> (usize, Vec<u8>) {
    let message = encoded(text);
    (message.len(), deflated(&message))
}

/// Compresses bytes, with independent parts.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in bytes.chunks(256 * 1024) {
        let block = block(part);
        out.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        out.extend(block);
    }
    out
}

/// Returns an LZ4 block for bytes with a repeated last byte: the other bytes, the repetition, and five more bytes.
fn block(bytes: &[u8]) -> Vec<u8> {
    let last = bytes[bytes.len() - 1];
    let run = bytes.iter().rev().take_while(|byte| **byte == last).count();
    let literals = bytes.len() - run + 1;
    let mut out = Vec::new();
    if run < 30 {
        sequence(&mut out, bytes, None);
        return out;
    }
    sequence(&mut out, &bytes[..literals], Some(run - 6));
    sequence(&mut out, &[last; 5], None);
    out
}

/// Appends literals and a repetition of the last one.
fn sequence(out: &mut Vec<u8>, literals: &[u8], repetition: Option<usize>) {
    let lens = [literals.len(), repetition.map_or(0, |len| len - 4)];
    let [high, low] = lens.map(|len| u8::try_from(len.min(15)).unwrap());
    out.push(high << 4 | low);
    let more = |out: &mut Vec<u8>, len: usize| {
        if len >= 15 {
            out.extend(std::iter::repeat_n(255, (len - 15) / 255));
            out.push(u8::try_from((len - 15) % 255).unwrap());
        }
    };
    more(out, lens[0]);
    out.extend(literals);
    if repetition.is_some() {
        out.extend([1, 0]);
        more(out, lens[1]);
    }
}

fn serve(limit: u32, inflated_len_max: usize) -> (TestService, Server) {
    let service = TestService::default();
    let server = Server::builder()
        .config(Config { content_len_max: limit, ..quiet() })
        .compression(CompressionSettings { inflated_len_max, ..CompressionSettings::default() })
        .add_service(TestServer::new(service.clone()));
    (service, server.without_listener().unwrap())
}

/// Returns all defects of a compressed message under a limit of 1 MiB, with the expected codes.
fn lies(message: &[u8], of_server: bool) -> Vec<([u8; 5], Vec<u8>, Code)> {
    let malformed = if of_server { Code::Internal } else { Code::InvalidArgument };
    let (len, bytes) = (message.len(), deflated(message));
    let cut = |at: usize| bytes[..at].to_vec();
    let bomb = deflated(&vec![b'x'; 2 << 20]);
    vec![
        (compressed(LZ4, (1 << 20) + 1), deflated(&vec![b'x'; (1 << 20) + 1]), Code::ResourceExhausted),
        (compressed(LZ4, u32::MAX as usize), bytes.clone(), Code::ResourceExhausted),
        (compressed(LZ4, 1 << 20), bomb, malformed),
        (compressed(LZ4, 1 << 20), bytes.clone(), malformed),
        (compressed(LZ4, len - 1), bytes.clone(), malformed),
        (compressed(LZ4, len + 1), bytes.clone(), malformed),
        (compressed(LZ4, len), cut(bytes.len() - 1), malformed),
        (compressed(LZ4, len), cut(3), malformed),
        (compressed(LZ4, len), Vec::new(), malformed),
        (compressed(LZ4, len), [&bytes[..], &[0]].concat(), malformed),
        (compressed(LZ4, len), vec![255; 100], malformed),
        (compressed(2, len), bytes.clone(), malformed),
        (compressed(0, len), bytes.clone(), Code::Unimplemented),
        (compressed(77, len), bytes, Code::Unimplemented),
    ]
}

#[test]
fn invalid_compressed_requests_are_answered_with_a_status() {
    in_virtual_time(async {
        let (service, server) = serve(1 << 20, 32 << 20);
        let sibling = asking(&connect(&server).await, "wait");
        let mut peer = ByHand::connect(&server).await;
        let long = "x".repeat(1000);
        let (len, bytes) = message_of(&long);
        assert_eq!(peer.ask(request(compressed(LZ4, len), &bytes)).await, Ok(long.clone()));
        for (number, (announced, bytes, code)) in lies(&encoded(&long), false).into_iter().enumerate() {
            assert_eq!(peer.ask(request(announced, &bytes)).await, Err(code), "{number}");
        }
        let packed = packed(&encoded(&long));
        let len = packed.len();
        for operation in [COUNT, GATHER] {
            let right = [data(compressed(LZ4, len), &deflated(&packed)), vec![0x13, 0, 0, 0, 0]];
            assert_eq!(peer.stream(operation, &right).await, Ok(long.clone()));
            for (number, (announced, bytes, code)) in lies(&packed, false).into_iter().enumerate() {
                let wrong = data(announced, &bytes);
                assert_eq!(peer.stream(operation, &[wrong]).await, Err(code), "{operation} {number}");
            }
        }
        for cut in [&[0x14][..], &[0x14, 1, 0, 0, 0]] {
            assert_eq!(peer.stream(GATHER, &[cut.to_vec()]).await, Err(Code::InvalidArgument));
        }
        let short_field = vec![1, 0, 10, 0, 0, 0, 0, 7, 7, 0, 0, 0, 2, 1, 0];
        assert_eq!(peer.ask(short_field).await, Err(Code::InvalidArgument));
        service.gate.open(1);
        assert_eq!(sibling.await.unwrap().unwrap(), "wait");
        assert!(peer.connection.close_reason().is_none());
        assert_eq!(server.metrics().handlers, 0);
    });
}

#[test]
fn invalid_compressed_responses_fail_only_their_call() {
    let long = "x".repeat(1000);
    let (message, packed) = (encoded(&long), packed(&encoded(&long)));
    let end = Bytes::from_static(&[0x13, 0, 0, 0, 0]);
    let lying = lies(&message, true).into_iter().zip(lies(&packed, true));
    let right = (
        (compressed(LZ4, message.len()), deflated(&message), Code::Ok),
        (compressed(LZ4, packed.len()), deflated(&packed), Code::Ok),
    );
    for (number, (of_packet, of_stream)) in lying.chain([right]).enumerate() {
        in_virtual_time(async {
            let (packets, _inbox) = mpsc::unbounded_channel();
            let data = vec![data(of_stream.0, &of_stream.1).into(), end.clone()];
            let script = Script { packets, answer: answer(of_packet.0, &of_packet.1), data };
            let server = frisbee::Server::builder(script).config(quiet()).without_listener();
            let (ours, theirs) = duplex(64 * 1024);
            server.attach(theirs);
            let config = Config { content_len_max: 1 << 20, ..quiet() };
            let client = TestClient::new(quiet_channel().config(config).attach(ours).await.unwrap());
            for kind in 0..4 {
                let expected = if kind == 0 { of_packet.2 } else { of_stream.2 };
                match of_kind(&client, kind, "hi").await {
                    Ok(text) => assert_eq!((text, Code::Ok), (long.clone(), expected), "{number} {kind}"),
                    Err(status) => assert_eq!(status.code(), expected, "{number} {kind}: {status}"),
                }
            }
            settle().await;
            assert_eq!(server.metrics().accepted, 1);
            let connections = server.connections();
            assert!(connections[0].close_reason().is_none());
            assert_eq!(connections[0].metrics().streams, 0);
        });
    }
}

/// Returns a head with one metadata value of this length, after a code if there is one.
fn head(code: Option<u8>, tag: u8, value_len: usize) -> Vec<u8> {
    let entry = [&[0, 1, b'a'][..], &vec![b'x'; value_len]].concat();
    let mut fields = code.map_or_else(Vec::new, |code| vec![4, 0, 0, 0, 1, code]);
    fields.extend([&[tag][..], &packed(&entry)].concat());
    packed(&fields)
}

#[test]
fn responses_with_excessive_metadata_fail_only_their_call() {
    const LIMIT: usize = 100;
    // The size of an entry is the length of its value and its name, plus 34.
    const ROOM: usize = LIMIT - 1 - 34;
    let (message, messages) = (encoded("hi"), [&[0x11][..], &packed(&encoded("hi"))].concat());
    let empty = packed(&[]);
    for (value_len, too_much) in [(ROOM, false), (ROOM + 1, true), (60_000, true)] {
        let in_front = head(None, 2, value_len);
        let behind = head(None, 3, value_len);
        let failure = [&[3][..], &head(Some(5), 2, value_len)].concat();
        let answers = [
            (
                [&[2][..], &in_front, &message].concat(),
                vec![[&[0x12][..], &in_front].concat(), messages.clone(), [&[0x13][..], &empty].concat()],
                Code::Ok,
            ),
            ([&[2][..], &behind, &message].concat(), vec![messages.clone(), [&[0x13][..], &behind].concat()], Code::Ok),
            (failure.clone(), vec![failure], Code::NotFound),
        ];
        for (answer, data, code) in answers {
            in_virtual_time(async {
                let (packets, _inbox) = mpsc::unbounded_channel();
                let data = data.into_iter().map(Bytes::from).collect();
                let server = frisbee::Server::builder(Script { packets, answer: answer.into(), data });
                let server = server.config(quiet()).without_listener();
                let (ours, theirs) = duplex(256 * 1024);
                server.attach(theirs);
                let channel = quiet_channel()
                    .messages(MessageSettings { metadata_len_max: LIMIT, ..MessageSettings::default() })
                    .attach(ours)
                    .await
                    .unwrap();
                let client = TestClient::new(channel);
                let expected = if too_much { Code::ResourceExhausted } else { code };
                for kind in 0..4 {
                    let said = of_kind(&client, kind, "hi").await;
                    let said = said.map_or_else(|status| status.code(), |_| Code::Ok);
                    assert_eq!(said, expected, "{value_len} {kind}");
                }
                settle().await;
                let connections = server.connections();
                assert!(connections[0].close_reason().is_none());
                assert_eq!(connections[0].metrics().streams, 0);
            });
        }
    }
}

#[test]
fn inflated_messages_are_accepted_up_to_the_limit() {
    in_virtual_time(async {
        const LIMIT: usize = 300_000;
        let (_service, server) = serve(u32::try_from(LIMIT).unwrap(), 0x1000);
        let mut peer = ByHand::connect(&server).await;
        // The handler always fails, which proves that it was called.
        let text = |len: usize| format!("fail 5 {}", "x".repeat(len - 7));
        let overhead = encoded(&text(LIMIT)).len() - LIMIT;
        for (len, code) in [(LIMIT, Code::NotFound), (LIMIT + 1, Code::ResourceExhausted)] {
            let message = encoded(&text(len - overhead));
            assert_eq!(message.len(), len);
            assert_eq!(peer.ask(request(compressed(LZ4, len), &deflated(&message))).await, Err(code));
            let packed = packed(&encoded(&text(len - overhead - 4)));
            assert_eq!(packed.len(), len);
            assert_eq!(peer.stream(GATHER, &[data(compressed(LZ4, len), &deflated(&packed))]).await, Err(code));
        }
    });
}

#[test]
fn concurrently_inflated_bytes_are_limited_and_calls_wait() {
    in_virtual_time(async {
        let (service, server) = serve(100_000, 250_000);
        let mut peer = ByHand::connect(&server).await;
        let (len, bytes) = message_of(&format!("wait {}", "x".repeat(99_000)));
        let waiting = request(compressed(LZ4, len), &bytes);
        for id in 1..=3 {
            peer.send(id, waiting.clone()).await;
        }
        settle().await;
        assert_eq!(service.log.take().len(), 2, "there is no room for the third");

        // Without compression, only the limits of handlers apply.
        let sibling = connect(&server).await;
        assert_eq!(ask(&sibling, "hi").await.unwrap(), "hi");
        let mut other = ByHand::connect(&server).await;
        let (short_len, short) = message_of(&"y".repeat(1000));
        assert_eq!(other.ask(request(compressed(LZ4, short_len), &short)).await.unwrap().len(), 1000);
        service.log.take();

        service.gate.open(1);
        assert_eq!(peer.answer().await.1.unwrap().len(), 99_005);
        settle().await;
        assert_eq!(service.log.take().len(), 1, "now there is");

        let start = Instant::now();
        peer.send(4, waiting).await;
        assert_eq!(peer.answer().await, (4, Err(Code::ResourceExhausted)), "nothing ended meanwhile");
        assert_elapsed(start, Duration::from_millis(500));

        // A stream that has started does not wait.
        let packed = packed(&encoded(&"x".repeat(60_000)));
        let said = peer.stream(GATHER, &[data(compressed(LZ4, packed.len()), &deflated(&packed))]).await;
        assert_eq!(said, Err(Code::ResourceExhausted));

        service.gate.open(2);
        for _ in 0..2 {
            assert_eq!(peer.answer().await.1.unwrap().len(), 99_005);
        }
        assert_eq!(peer.ask(request(compressed(LZ4, short_len), &short)).await.unwrap().len(), 1000);
    });
}

#[test]
fn streams_waiting_for_messages_hold_no_inflated_bytes() {
    in_virtual_time(async {
        let (_service, server) = serve(150_000, 0x1000);
        let peer = ByHand::connect(&server).await;
        let packed = packed(&encoded(&"x".repeat(90_000)));
        let mut streams = Vec::new();
        for _ in 0..3 {
            let stream = peer.connection.open_stream().unwrap();
            stream.send(vec![0x10, 0, GATHER, 0, 0, 0, 0, 0]).await.unwrap();
            stream.send(data(compressed(LZ4, packed.len()), &deflated(&packed))).await.unwrap();
            settle().await;
            streams.push(stream);
        }
        for mut stream in streams {
            stream.send(vec![0x13, 0, 0, 0, 0]).await.unwrap();
            let answer = stream.read().await.unwrap();
            assert_eq!((answer[0], message(&answer[5..]).len()), (0x11, 90_000));
        }
    });
}

#[test]
fn cancelled_calls_release_their_inflated_bytes() {
    in_virtual_time(async {
        let (service, server) = serve(100_000, 0x1000);
        let mut peer = ByHand::connect(&server).await;
        let (len, bytes) = message_of(&format!("wait {}", "x".repeat(60_000)));
        for id in 1..=10 {
            peer.send(id, request(compressed(LZ4, len), &bytes)).await;
            settle().await;
            assert_eq!(service.log.take().len(), 1, "it has room");
            // A CANCEL of this packet.
            peer.connection.withdraw(frisbee::PacketName { id, operation: Operation::EXTENDED });
            tokio::time::sleep(MILLI).await;
            assert!(service.log.take()[0].starts_with("dropped"));
        }
        let (len, bytes) = message_of(&"y".repeat(1000));
        assert!(peer.ask(request(compressed(LZ4, len), &bytes)).await.is_ok());
    });
}

#[test]
fn compressed_messages_without_support_are_unimplemented() {
    in_virtual_time(async {
        let (_service, server) = serve(1 << 20, 0);
        let mut peer = ByHand::connect(&server).await;
        let (len, bytes) = message_of(&"x".repeat(1000));
        assert_eq!(peer.ask(request(compressed(LZ4, len), &bytes)).await, Err(Code::Unimplemented));
        let packed = packed(&encoded("hi"));
        let said = peer.stream(GATHER, &[data(compressed(LZ4, packed.len()), &deflated(&packed))]).await;
        assert_eq!(said, Err(Code::Unimplemented));
    });
}
