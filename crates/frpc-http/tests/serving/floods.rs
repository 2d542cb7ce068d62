//! Floods and violations of HTTP/2 at the port. The tests of `frpc-http2` measure the memory of the same attacks.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use frpc_http::{Http, HttpSettings};
use support::{SECOND, calls::TestService, in_virtual_time, settle};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use crate::{
    h2_caller::{H2Caller, messages, server},
    hostile2::{
        DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frames, HEADERS, PING, RST_STREAM, SETTINGS, call, frame,
        header,
    },
};

const PRIORITY: u8 = 2;
const WINDOW_UPDATE: u8 = 8;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

const MAX: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// Frames for a server, which repeat, and the reason of the server at the end.
type Attack = (&'static str, fn(u32) -> Vec<u8>, u32);

const ATTACKS: [Attack; 19] = [
    ("made you reset, by an increment of zero", |index| provoke(index, WINDOW_UPDATE, &[0; 4]), ENHANCE_YOUR_CALM),
    ("made you reset, by an overflow", |index| provoke(index, WINDOW_UPDATE, &MAX), ENHANCE_YOUR_CALM),
    ("made you reset, by a short PRIORITY", |index| provoke(index, PRIORITY, &[0; 4]), ENHANCE_YOUR_CALM),
    ("made you reset, by a dependency", |index| provoke(index, HEADERS, b""), ENHANCE_YOUR_CALM),
    ("malformed requests", |index| frame(HEADERS, END_HEADERS, index * 2 + 1, &[0x82]), ENHANCE_YOUR_CALM),
    ("tunnels", |index| frame(HEADERS, END_HEADERS, index * 2 + 1, &tunnel()), ENHANCE_YOUR_CALM),
    ("header bombs", |index| bomb(index), ENHANCE_YOUR_CALM),
    ("PING", |_| frame(PING, 0, 0, &[7; 8]).repeat(1000), ENHANCE_YOUR_CALM),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]).repeat(1000), ENHANCE_YOUR_CALM),
    (
        "changes of the table",
        |_| frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 9, 0, 1, 0, 0, 1, 0]).repeat(1000),
        ENHANCE_YOUR_CALM,
    ),
    ("PRIORITY", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]).repeat(1000), ENHANCE_YOUR_CALM),
    ("unknown frames", |_| frame(0xee, 0, 1, &[7; 20]).repeat(1000), ENHANCE_YOUR_CALM),
    ("resets of a closed stream", |index| late_resets(index), ENHANCE_YOUR_CALM),
    ("a window of the connection that overflows", |_| frame(WINDOW_UPDATE, 0, 0, &MAX), FLOW_CONTROL_ERROR),
    ("windows of streams that overflow", |_| overflow(), FLOW_CONTROL_ERROR),
    ("a table above its maximum", |_| frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f, 0x82]), COMPRESSION_ERROR),
    ("an index that does not exist", |_| frame(HEADERS, END_HEADERS, 1, &[0xff, 0]), COMPRESSION_ERROR),
    ("a long SETTINGS", |_| frame(SETTINGS, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
    ("PUSH_PROMISE", |_| frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), PROTOCOL_ERROR),
];

/// Begins a call, and makes the server reset it.
fn provoke(index: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let stream = index * 2 + 1;
    [frame(HEADERS, END_HEADERS, stream, &call("Gather")), frame(kind, END_HEADERS, stream, payload)].concat()
}

fn tunnel() -> Vec<u8> {
    [header(":method", "CONNECT"), header(":authority", "a:1")].concat()
}

/// Adds an entry of 3,000 bytes to the table, and refers to it 10,000 times.
fn bomb(index: u32) -> Vec<u8> {
    let entry = [&[0x40, 1, b'a', 0x7f, 0x80 | 57, 22][..], &[b'v'; 3000]].concat();
    let entry = if index == 0 { entry } else { Vec::new() };
    let block = [&call("Gather")[..], &entry, &[0xbe; 10_000]].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, index * 2 + 1, &block)
}

fn late_resets(index: u32) -> Vec<u8> {
    let first = if index == 0 { frame(HEADERS, END_HEADERS, 1, &call("Gather")) } else { Vec::new() };
    [first, frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]).repeat(1000)].concat()
}

fn overflow() -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
    let widened = frame(WINDOW_UPDATE, 0, 1, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
    [frame(HEADERS, END_HEADERS, 1, &call("Gather")), widened, settings].concat()
}

#[test]
fn floods_and_violations_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).without_listener().unwrap();
        for (name, said, expected) in ATTACKS {
            let mut frames = Frames::connect(&server).await;
            // The output is read, or the server would stop reading.
            let (mut reader, ours) = tokio::io::split(std::mem::replace(&mut frames.0, duplex(1).0));
            let mut ours = ours;
            let (mut times, mut heard) = (0, Vec::new());
            let writing = async {
                while times < 10_000 && ours.write_all(&said(times)).await.is_ok() {
                    times += 1;
                    tokio::task::yield_now().await;
                }
                ours
            };
            let reading = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut heard);
            let (_, read) = tokio::join!(writing, reading);
            assert!(times < 10_000 && read.is_ok(), "{name}");
            let reason = heard.last_chunk().map(|code| u32::from_be_bytes(*code));
            assert_eq!(reason, Some(expected), "{name}: the last frame is a GOAWAY");
            settle().await;
            assert_eq!(server.metrics().connections, 0, "{name}");
            let log = service.log.take();
            let begun = log.iter().filter(|line| *line == "gather").count();
            assert!(begun * 2 == log.len() && begun <= 257, "{name}: every handler that began was dropped: {begun}");
        }
    });
}

#[test]
fn windows_of_single_bytes_end_the_connection() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service, Http::new()).without_listener().unwrap();
        let mut frames = Frames::connect(&server).await;
        frames.say(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
        frames.say(&frame(HEADERS, END_HEADERS, 1, &call("Count"))).await;
        frames.say(&frame(DATA, END_STREAM, 1, &messages(&["endless some text"]))).await;
        settle().await;
        let made = service.made();
        let (reason, times) = frames.insist(10_000, |_| frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).await;
        assert_eq!(reason, Some(ENHANCE_YOUR_CALM));
        assert!(times < 1100 && service.made() - made < 1000, "{times}");
    });
}

#[test]
fn callers_that_have_not_seen_an_early_answer_may_still_send() {
    in_virtual_time(async {
        let server = server(&TestService::default(), Http::new()).without_listener().unwrap();
        let mut frames = Frames::connect(&server).await;
        // As many as may be in flight. The server refuses each by its head.
        let streams = || (0..256).map(|index| index * 2 + 1);
        for stream in streams() {
            assert!(frames.say(&frame(HEADERS, END_HEADERS, stream, &call("None"))).await);
        }
        settle().await;
        for _ in 0..4 {
            for stream in streams() {
                assert!(frames.say(&frame(DATA, 0, stream, b"late")).await);
            }
        }
        settle().await;
        assert_eq!(server.metrics().connections, 1, "the caller has done nothing wrong");
    });
}

/// A socket whose end takes for ever, like that of TLS to a peer that reads nothing.
struct EndlessSocket(DuplexStream);

impl AsyncRead for EndlessSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for EndlessSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn handlers_end_before_the_socket() {
    in_virtual_time(async {
        let service = TestService::default();
        let http = Http::new().settings(HttpSettings { write_stall_max: 20 * SECOND, ..HttpSettings::default() });
        let server = server(&service, http).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(EndlessSocket(theirs));
        let (sender, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = tokio::spawn(connection);
        let open = H2Caller(sender).open(crate::h2_caller::grpc_request("Gather", &[])).await;
        settle().await;
        connection.abort();
        drop(open);
        settle().await;
        assert_eq!(service.log.take(), ["gather", "dropped gather"]);
        assert_eq!(server.metrics().connections, 1);
        tokio::time::sleep(21 * SECOND).await;
        assert_eq!(server.metrics().connections, 0);
    });
}
