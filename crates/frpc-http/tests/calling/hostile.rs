//! Malicious servers: they cause bounded work, and every call ends.

use frpc::{CallError, Code, Request};
use frpc_http::{Client, ClientSettings};
use support::{
    SECOND,
    calls::{TestClient, ask, asking, may_have_executed, words},
    http2::{
        ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
        FRAME_SIZE_ERROR, GOAWAY, HEADERS, PING, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, SETTINGS, WINDOW_UPDATE,
        frame, header,
    },
    in_virtual_time, settle,
};

use crate::{
    frames::{Heard, RawServer},
    losses::with_raw,
    network::Network,
};

/// `:status: 200`.
const OK: u8 = 0x88;

/// Frames for a client with a unary call on stream 1, which repeat, and the reason of the client at the end.
type Attack = (&'static str, fn(u32) -> Vec<u8>, u32);

const FLOODS: [Attack; 10] = [
    ("informational responses", |_| frame(HEADERS, END_HEADERS, 1, &header(":status", "103")), ENHANCE_YOUR_CALM),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[]), ENHANCE_YOUR_CALM),
    ("acknowledgements", |_| frame(SETTINGS, ACK, 0, &[]), ENHANCE_YOUR_CALM),
    ("PING", |_| frame(PING, 0, 0, &[7; 8]), ENHANCE_YOUR_CALM),
    ("PONG", |_| frame(PING, ACK, 0, &[7; 8]), ENHANCE_YOUR_CALM),
    ("PRIORITY", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]), ENHANCE_YOUR_CALM),
    ("unknown frames", |_| frame(0xee, 0, 1, &[7; 20]), ENHANCE_YOUR_CALM),
    ("GOAWAY", |_| frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]), ENHANCE_YOUR_CALM),
    ("empty CONTINUATION", |index| continuations(index, &[]), ENHANCE_YOUR_CALM),
    ("CONTINUATION", |index| continuations(index, &header("x", "y").repeat(20)), ENHANCE_YOUR_CALM),
];

const VIOLATIONS: [Attack; 12] = [
    ("PUSH_PROMISE", |_| frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, OK]), PROTOCOL_ERROR),
    ("an increment of zero", |_| frame(WINDOW_UPDATE, 0, 0, &[0; 4]), PROTOCOL_ERROR),
    ("a window that overflows", |_| frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), FLOW_CONTROL_ERROR),
    ("SETTINGS with a window above the maximum", |_| frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), FLOW_CONTROL_ERROR),
    ("a frame that is too long", |_| frame(DATA, 0, 1, &[0; 65_537]), FRAME_SIZE_ERROR),
    ("a response to no request", |_| frame(HEADERS, END_HEADERS, 3, &[OK]), PROTOCOL_ERROR),
    ("a stream of the server", |_| frame(HEADERS, END_HEADERS, 2, &[OK]), PROTOCOL_ERROR),
    ("data for no request", |_| frame(DATA, 0, 3, b"x"), PROTOCOL_ERROR),
    ("padding longer than its frame", |_| frame(DATA, 8, 1, &[9, 0]), PROTOCOL_ERROR),
    ("an index that does not exist", |_| frame(HEADERS, END_HEADERS, 1, &[0xff, 0]), COMPRESSION_ERROR),
    ("a table above its maximum", |_| frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f, OK]), COMPRESSION_ERROR),
    (
        "a frame inside a header block",
        |_| [frame(HEADERS, 0, 1, &[OK]), frame(DATA, 0, 1, b"x")].concat(),
        PROTOCOL_ERROR,
    ),
];

fn continuations(index: u32, content: &[u8]) -> Vec<u8> {
    let kind = if index == 0 { HEADERS } else { CONTINUATION };
    [frame(kind, 0, 1, content), frame(CONTINUATION, 0, 1, content).repeat(99)].concat()
}

#[test]
fn floods_and_violations_end_the_connection_and_its_call() {
    in_virtual_time(async {
        for (name, said, expected) in FLOODS.into_iter().chain(VIOLATIONS) {
            let (client, mut peer, mut connections, _) = with_raw(Client::new()).await;
            let call = asking(&client, "hi");
            assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
            let repeats = if expected == ENHANCE_YOUR_CALM && !name.contains("CONTINUATION") { 1000 } else { 1 };
            let (reason, _) = peer.insist(10_000, |index| said(index).repeat(repeats)).await;
            assert_eq!(reason, Some(expected), "{name}");
            let status = call.await.unwrap().unwrap_err();
            assert!(matches!(status.call_error(), Some(CallError::ConnectionLost { .. })), "{name}: {status:?}");
            // The next call has another connection.
            let next = asking(&client, "hi");
            let mut other = RawServer::begin(connections.recv().await.unwrap()).await;
            assert_eq!(other.heard().await, Heard::Request { stream: 1 });
            other.answer(1, "next").await;
            assert_eq!(next.await.unwrap().unwrap(), "next");
        }
    });
}

#[test]
fn a_call_sent_with_the_end_of_its_connection_is_not_made_again() {
    in_virtual_time(async {
        let (client, mut peer, _connections, network) = with_raw(Client::new()).await;
        let first = asking(&client, "a");
        assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
        // The connection opens the second call and reads an invalid frame in the same turn.
        let second = asking(&client, "b");
        peer.write(DATA, 0, 9, b"x").await;
        assert_eq!(peer.heard().await, Heard::Request { stream: 3 });
        for call in [first, second] {
            assert!(may_have_executed(&call.await.unwrap().unwrap_err()));
        }
        assert_eq!(network.attempts(), 1);
    });
}

#[test]
fn violations_of_a_response_fail_only_its_call() {
    let ok = frame(HEADERS, END_HEADERS, 1, &[&[OK][..], &header("content-type", "application/grpc")].concat());
    let after_head = |frames: Vec<u8>| [&ok[..], &frames].concat();
    // An entry of 3,000 bytes, and 10,000 references to it.
    let mut bomb = [&[OK, 0x40, 1, b'a', 0x7f, 0x80 | 57, 22][..], &[b'v'; 3000], &[0xbe; 10_000]].concat();
    bomb.truncate(16_384);
    let rows = [
        ("an increment of zero", frame(WINDOW_UPDATE, 0, 1, &[0; 4])),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])),
        (
            "an informational response at the end",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &header(":status", "103")),
        ),
        ("a status of another version", frame(HEADERS, END_HEADERS, 1, &header(":status", "101"))),
        ("two statuses", frame(HEADERS, END_HEADERS, 1, &[OK, OK])),
        ("a status after a field", frame(HEADERS, END_HEADERS, 1, &[&header("a", "b")[..], &[OK]].concat())),
        ("a head of a request", frame(HEADERS, END_HEADERS, 1, &[0x82, 0x86, 0x84])),
        ("a header of a connection", frame(HEADERS, END_HEADERS, 1, &[&[OK][..], &header("upgrade", "x")].concat())),
        ("data before the head", frame(DATA, 0, 1, b"x")),
        ("a header bomb", frame(HEADERS, END_HEADERS, 1, &bomb)),
        ("trailers that do not end", after_head(frame(HEADERS, END_HEADERS, 1, &header("grpc-status", "0")))),
        ("a status in trailers", after_head(frame(HEADERS, END_HEADERS | END_STREAM, 1, &[OK]))),
        ("less data than announced", after_length(3, b"ab")),
        ("more data than announced", after_length(1, b"ab")),
        (
            "data for a status without any",
            [frame(HEADERS, END_HEADERS, 1, &header(":status", "204")), frame(DATA, END_STREAM, 1, b"x")].concat(),
        ),
        ("data for ever", after_head(frame(DATA, 0, 1, &[&[0, 0, 0, 0, 9][..], &[0; 16_000]].concat()))),
    ];
    in_virtual_time(async {
        for (name, said) in rows {
            let (client, mut peer, _connections, network) = with_raw(Client::new()).await;
            let call = asking(&client, "hi");
            assert_eq!(peer.heard().await, Heard::Request { stream: 1 });
            peer.write_all(&said).await;
            assert!(matches!(peer.heard().await, Heard::Reset { stream: 1, .. }), "{name}");
            let status = call.await.unwrap().unwrap_err();
            // Some of these heads are those of a proxy, and some of the data is a second message.
            let is_expected = matches!(status.code(), Code::Internal | Code::Unknown | Code::Unimplemented);
            assert!(is_expected, "{name}: {status:?}");
            // Late frames of the stream do no harm.
            peer.write(DATA, END_STREAM, 1, b"late").await;
            let next = asking(&client, "hi");
            assert_eq!(peer.heard().await, Heard::Request { stream: 3 }, "{name}");
            peer.answer(3, "next").await;
            assert_eq!((next.await.unwrap().unwrap(), network.attempts()), ("next".to_owned(), 1));
        }
    });
}

fn after_length(len: usize, data: &[u8]) -> Vec<u8> {
    let head = [&[OK][..], &header("content-length", &len.to_string())].concat();
    [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, data)].concat()
}

#[test]
fn data_above_the_windows_ends_the_connection() {
    in_virtual_time(async {
        let settings =
            ClientSettings { stream_window: 100_000, connection_window: 300_000, ..ClientSettings::default() };
        let (client, mut peer, _connections, _) = with_raw(Client::new().settings(settings)).await;
        let mut unread = Vec::new();
        for stream in [1, 3, 5, 7] {
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.count(words("hi")).await }
            });
            assert_eq!(peer.heard().await, Heard::Request { stream });
            peer.begin_answer(stream).await;
            unread.push(call.await.unwrap().unwrap().into_inner());
        }
        let (reason, times) = peer.insist(1000, |index| frame(DATA, 0, index % 4 * 2 + 1, &[0; 10_000])).await;
        assert_eq!(reason, Some(FLOW_CONTROL_ERROR));
        assert!((30..40).contains(&times), "{times}");
        for mut answers in unread {
            let end = loop {
                match answers.message().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            assert!(end.is_err(), "after the messages that have arrived");
        }
    });
}

#[test]
fn a_server_that_sends_everyone_away_gets_a_bounded_number_of_attempts() {
    in_virtual_time(async {
        let network = Network::default();
        let mut connections = network.listen();
        tokio::spawn(async move {
            while let Some(connection) = connections.recv().await {
                tokio::spawn(async move {
                    let mut peer = RawServer::begin(connection).await;
                    while let Heard::Request { .. } = peer.heard().await {
                        peer.go_away(0).await;
                    }
                });
            }
        });
        let client = TestClient::new(network.channel(Client::new()).connect("grpc://test").await.unwrap());
        let status = ask(&client, "hi").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(network.attempts() <= 6, "{}", network.attempts());
    });
}

#[test]
fn a_server_without_streams_holds_back_calls_until_their_deadline() {
    const NO_STREAMS: [u8; 6] = [0, 3, 0, 0, 0, 0];
    in_virtual_time(async {
        let network = Network::default();
        let mut connections = network.listen();
        tokio::spawn(async move {
            let mut peers = Vec::new();
            while let Some(connection) = connections.recv().await {
                let mut peer = RawServer::begin(connection).await;
                peer.write(SETTINGS, 0, 0, &NO_STREAMS).await;
                peers.push(tokio::spawn(async move { while peer.heard().await != Heard::Closed {} }));
            }
        });
        let settings = ClientSettings { connections_max: 5, ..ClientSettings::default() };
        let channel = network.channel(Client::new().settings(settings)).connect("grpc://test").await.unwrap();
        let client = TestClient::new(channel);
        settle().await;
        for _ in 0..3 {
            let mut request = Request::new(words("hi"));
            request.set_timeout(SECOND);
            let status = client.say(request).await.unwrap_err();
            assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{status:?}");
        }
        assert!(network.attempts() <= 5, "{}", network.attempts());
    });
}
