//! Attacks on HTTP/2 at the port of a server and on a channel. Each takes bounded memory, work and answers, and most end
//! the connection.

use std::{io, time::Duration};

use frpc::{Channel, Server, frisbee::keep_freed_memory};
use frpc_http::{Client, Http, HttpSettings};
use rustix::time::{ClockId, clock_gettime};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, asking, quiet, words},
    http2::{
        ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
        FRAME_SIZE_ERROR, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, RST_STREAM, SETTINGS,
        WINDOW_UPDATE, call, frame, header,
    },
    in_virtual_time, settle,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::yield_now,
    time::sleep,
};

use crate::{LIVE, PEAK};

const MAX: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// Frames that repeat until the connection ends, the reason of the victim, and the memory that it may take, in KiB.
type Attack = (&'static str, fn(u32) -> Vec<u8>, u32, usize);

const ON_SERVERS: [Attack; 32] = [
    ("rapid resets", |index| rapid_resets(index), ENHANCE_YOUR_CALM, 1024),
    ("made you reset, by an increment of zero", |index| provoke(index, WINDOW_UPDATE, &[0; 4]), ENHANCE_YOUR_CALM, 64),
    ("made you reset, by an overflow", |index| provoke(index, WINDOW_UPDATE, &MAX), ENHANCE_YOUR_CALM, 64),
    ("made you reset, by a short PRIORITY", |index| provoke(index, PRIORITY, &[0; 4]), ENHANCE_YOUR_CALM, 64),
    ("made you reset, by a dependency", |index| provoke(index, HEADERS, b""), ENHANCE_YOUR_CALM, 64),
    ("made you reset, by data after the end", |index| after_the_end(index), ENHANCE_YOUR_CALM, 64),
    ("malformed requests", |index| frame(HEADERS, END_HEADERS, index * 2 + 1, &[0x82]), ENHANCE_YOUR_CALM, 64),
    ("tunnels", |index| frame(HEADERS, END_HEADERS, index * 2 + 1, &tunnel()), ENHANCE_YOUR_CALM, 64),
    ("header bombs", |index| bomb(index), ENHANCE_YOUR_CALM, 512),
    ("huge header lists", |index| huge_list(index), ENHANCE_YOUR_CALM, 1024),
    ("CONTINUATION", |index| continuations(index, &header("x", "y").repeat(20)), ENHANCE_YOUR_CALM, 512),
    ("CONTINUATION of single bytes", |index| continuations(index, &[0x82]), ENHANCE_YOUR_CALM, 512),
    ("empty CONTINUATION", |index| continuations(index, &[]), ENHANCE_YOUR_CALM, 64),
    ("empty DATA", |index| unfinished(index, &frame(DATA, 0, 1, b"")), ENHANCE_YOUR_CALM, 64),
    ("padding", |index| unfinished(index, &frame(DATA, 8, 1, &[3, 0, 0, 0])), ENHANCE_YOUR_CALM, 64),
    ("PING", |_| frame(PING, 0, 0, &[7; 8]).repeat(1000), ENHANCE_YOUR_CALM, 256),
    ("PONG", |_| frame(PING, ACK, 0, &[7; 8]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]).repeat(1000), ENHANCE_YOUR_CALM, 256),
    ("SETTINGS of many values", |index| many_windows(index), ENHANCE_YOUR_CALM, 4 << 10),
    ("acknowledgements", |_| frame(SETTINGS, ACK, 0, b"").repeat(1000), ENHANCE_YOUR_CALM, 64),
    (
        "changes of the table",
        |_| frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 9, 0, 1, 0, 0, 1, 0]).repeat(1000),
        ENHANCE_YOUR_CALM,
        256,
    ),
    ("PRIORITY", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("unknown frames", |_| frame(0xee, 0, 1, &[7; 20]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("resets of a closed stream", |index| unfinished(index, &late_reset()), ENHANCE_YOUR_CALM, 64),
    ("a window of the connection that overflows", |_| frame(WINDOW_UPDATE, 0, 0, &MAX), FLOW_CONTROL_ERROR, 64),
    ("windows of streams that overflow", |_| overflow(), FLOW_CONTROL_ERROR, 64),
    ("a table above its maximum", |_| frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f, 0x82]), COMPRESSION_ERROR, 64),
    ("an index that does not exist", |_| frame(HEADERS, END_HEADERS, 1, &[0xff, 0]), COMPRESSION_ERROR, 64),
    ("a SETTINGS of seven bytes", |_| frame(SETTINGS, 0, 0, &[0; 7]), FRAME_SIZE_ERROR, 64),
    ("a long frame", |_| frame(0xee, 0, 0, &[0; 16_385]), FRAME_SIZE_ERROR, 64),
    ("PUSH_PROMISE", |_| frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), PROTOCOL_ERROR, 64),
    ("data above the windows", |index| endless_upload(index), FLOW_CONTROL_ERROR, 10 << 10),
];

fn stream(index: u32) -> u32 {
    index * 2 + 1
}

fn rapid_resets(index: u32) -> Vec<u8> {
    let reset = frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8]);
    [frame(HEADERS, END_HEADERS, stream(index), &call("Gather")), reset].concat()
}

/// Begins a call, and makes the server reset it.
fn provoke(index: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let stream = stream(index);
    [frame(HEADERS, END_HEADERS, stream, &call("Gather")), frame(kind, END_HEADERS, stream, payload)].concat()
}

fn after_the_end(index: u32) -> Vec<u8> {
    let stream = stream(index);
    [frame(HEADERS, END_HEADERS | END_STREAM, stream, &call("Gather")), frame(DATA, 0, stream, b"more")].concat()
}

fn tunnel() -> Vec<u8> {
    [header(":method", "CONNECT"), header(":authority", "a:1")].concat()
}

/// Adds an entry of 3,000 bytes to the table, and refers to it 10,000 times.
fn bomb(index: u32) -> Vec<u8> {
    let entry = [&[0x40, 1, b'a', 0x7f, 0x80 | 57, 22][..], &[b'v'; 3000]].concat();
    let entry = if index == 0 { entry } else { Vec::new() };
    let block = [&call("Gather")[..], &entry, &[0xbe; 10_000]].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream(index), &block)
}

/// Sends a header list just above the limit.
fn huge_list(index: u32) -> Vec<u8> {
    let stream = stream(index);
    let (first, field) = (frame(HEADERS, END_STREAM, stream, &call("Say")), header("x", &"v".repeat(14_540)));
    let (middle, last) = (frame(CONTINUATION, 0, stream, &field), frame(CONTINUATION, END_HEADERS, stream, b""));
    [first, middle.repeat(9), last].concat()
}

fn continuations(index: u32, content: &[u8]) -> Vec<u8> {
    let kind = if index == 0 { HEADERS } else { CONTINUATION };
    let first = if index == 0 { call("Gather") } else { content.to_vec() };
    [frame(kind, 0, 1, &first), frame(CONTINUATION, 0, 1, content).repeat(500)].concat()
}

/// Begins a call, and repeats a frame.
fn unfinished(index: u32, more: &[u8]) -> Vec<u8> {
    let first = if index == 0 { frame(HEADERS, END_HEADERS, 1, &call("Gather")) } else { Vec::new() };
    [first, more.repeat(1000)].concat()
}

/// Begins as many calls as possible, and moves their windows.
fn many_windows(index: u32) -> Vec<u8> {
    match index {
        0 => open_streams(),
        _ => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1, 0, 4, 0, 0, 0, 9].repeat(1000)),
    }
}

fn open_streams() -> Vec<u8> {
    (0..256).flat_map(|index| frame(HEADERS, END_HEADERS, stream(index), &call("Gather"))).collect()
}

fn late_reset() -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])
}

/// Asks for an endless response, and takes it byte by byte.
fn single_bytes(index: u32) -> Vec<u8> {
    match index {
        0 => [frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]), endless(1)].concat(),
        _ => frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
    }
}

/// Asks for an endless response.
fn endless(stream: u32) -> Vec<u8> {
    let request = message("endless some text");
    [frame(HEADERS, END_HEADERS, stream, &call("Count")), frame(DATA, END_STREAM, stream, &request)].concat()
}

fn message(text: &str) -> Vec<u8> {
    let content = frpc::prost::Message::encode_to_vec(&words(text));
    [&[0][..], &u32::try_from(content.len()).unwrap().to_be_bytes(), &content].concat()
}

fn overflow() -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
    let widened = frame(WINDOW_UPDATE, 0, 1, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
    [frame(HEADERS, END_HEADERS, 1, &call("Gather")), widened, settings].concat()
}

/// Fills the windows of streams whose handlers read no more, and goes on.
fn endless_upload(index: u32) -> Vec<u8> {
    let (stream, turn) = (stream(index / 64), index % 64);
    let first = [frame(HEADERS, END_HEADERS, stream, &call("Gather")), frame(DATA, 0, stream, &message("wait"))];
    let first = if turn == 0 { first.concat() } else { Vec::new() };
    [first, frame(DATA, 0, stream, &[0; 16_000])].concat()
}

/// The cost of frames to a victim.
#[derive(Debug)]
struct Cost {
    sent: usize,
    answered: usize,
    /// The maximum of the memory in addition to that before, in bytes.
    peak: usize,
    cpu: Duration,
    /// The code of the GOAWAY at the end.
    reason: Option<u32>,
    is_over: bool,
}

impl Cost {
    /// Writes frames until the victim closes the connection, and reads everything.
    async fn of(socket: DuplexStream, rounds: &[Vec<u8>]) -> Self {
        let (mut reader, mut writer) = tokio::io::split(socket);
        let (mut sent, mut answered, mut last) = (0, 0, [0; 4]);
        let (live, began) = (LIVE.get(), thread_time());
        PEAK.set(live);
        let writing = async {
            for round in rounds {
                if writer.write_all(round).await.is_err() {
                    return true;
                }
                sent += round.len();
                // Lets the victim run.
                yield_now().await;
            }
            let _ = writer.shutdown().await;
            false
        };
        let reading = async {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut buffer).await {
                answered += len;
                if let Some(code) = buffer[..len].last_chunk() {
                    last = *code;
                }
            }
        };
        let (is_over, ()) = tokio::join!(writing, reading);
        settle().await;
        let peak = usize::try_from(PEAK.get() - live).unwrap();
        let reason = Some(u32::from_be_bytes(last));
        Self { sent, answered, peak, cpu: thread_time() - began, reason, is_over }
    }

    /// Checks the bounds of an attack, next to the cost of usual calls.
    fn check(&self, name: &str, expected: u32, kib_max: usize, usual: &Self) {
        println!("{name}: {self:?}");
        assert!(self.is_over && self.reason == Some(expected), "{name}: {self:?}");
        assert!(self.peak <= kib_max << 10, "{name}: {} KiB are held", self.peak >> 10);
        assert!(self.answered <= 2 * self.sent + 2000, "{name}: {self:?}");
        // Responses that wait count like requests.
        usual.check_work(name, self.sent + self.peak, self.cpu);
    }

    /// Checks the work for this number of bytes, next to these usual calls.
    fn check_work(&self, name: &str, len: usize, cpu: Duration) {
        // The start and the end of the connection count like 100 KiB.
        let work = self.cpu.as_secs_f64() / self.sent as f64 * (len + (100 << 10)) as f64;
        assert!(cpu.as_secs_f64() <= WORK_MAX * work, "{name}: {cpu:?} for {len} bytes, not {WORK_MAX} times {work} s");
    }
}

/// Bytes of an attack take at most this many times the work of bytes of usual calls.
const WORK_MAX: f64 = 4.0;

/// The rounds of an attack that no victim endures.
const ROUNDS: u32 = 300;

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn server(service: &TestService) -> Server {
    let settings = HttpSettings { keepalive_interval: None, ..HttpSettings::default() };
    let services = Server::builder().config(quiet()).wire(Http::new().settings(settings));
    services.add_service(TestServer::new(service.clone())).without_listener().unwrap()
}

/// Connects to a server, with SETTINGS.
async fn connect(server: &Server) -> DuplexStream {
    let (mut ours, theirs) = duplex(64 << 10);
    server.attach(theirs);
    ours.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).await.unwrap();
    settle().await;
    ours
}

/// Returns the cost of usual calls.
async fn usual_calls(server: &Server) -> Cost {
    let request = message("thirty-two bytes of a plain text");
    let call = |stream| {
        [frame(HEADERS, END_HEADERS, stream, &call("Say")), frame(DATA, END_STREAM, stream, &request)].concat()
    };
    let credit = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 8, 0]);
    let ten = |round: u32| (0..10).flat_map(|index| call(stream(10 * round + index))).chain(credit.clone()).collect();
    let rounds: Vec<Vec<u8>> = (0..ROUNDS).map(ten).collect();
    // The first calls fill caches and buffers of the thread, and the first long stream touches memory.
    keep_freed_memory();
    Cost::of(connect(server).await, &rounds).await;
    let cost = Cost::of(connect(server).await, &rounds).await;
    assert!(!cost.is_over, "{cost:?}");
    println!("usual calls: {cost:?}");
    cost
}

#[test]
fn floods_of_a_client_take_little_memory_and_work_of_a_server() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service);
        let usual = usual_calls(&server).await;
        assert_eq!(service.log.take().len(), 2 * 10 * usize::try_from(ROUNDS).unwrap());
        // The server answers each window with a frame.
        let one_by_one = ("windows of single bytes", single_bytes as fn(u32) -> Vec<u8>, ENHANCE_YOUR_CALM, 1024);
        let attacks = ON_SERVERS.into_iter().map(|attack| (attack, ROUNDS)).chain([(one_by_one, 1100)]);
        for ((name, said, expected, kib_max), rounds) in attacks {
            let rounds: Vec<_> = (0..rounds).map(said).collect();
            Cost::of(connect(&server).await, &rounds).await.check(name, expected, kib_max, &usual);
            assert_eq!(server.metrics().connections, 0, "{name}");
            let log = service.log.take();
            let begun = log.iter().filter(|line| !line.starts_with("dropped")).count();
            assert!(begun <= 257 && begun * 2 == log.len(), "{name}: every handler that began was dropped: {begun}");
        }
    });
}

/// Writes frames to a server and reads nothing. Returns the memory in use afterwards, at most and now.
async fn hold(server: &Server, said: &[u8]) -> (DuplexStream, usize, usize) {
    let mut socket = connect(server).await;
    let live = LIVE.get();
    PEAK.set(live);
    // Until the server reads no more.
    let _ = tokio::time::timeout(SECOND, socket.write_all(said)).await;
    settle().await;
    let held = |live_now: isize| usize::try_from(live_now - live).unwrap_or(0);
    (socket, held(PEAK.get()), held(LIVE.get()))
}

#[test]
fn peers_that_hold_streams_open_take_little_memory_and_work_for_a_bounded_time() {
    let windows = |value: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &value.to_be_bytes()].concat());
    let responses = |window| [windows(window), (0..256).flat_map(|index| endless(stream(index))).collect()].concat();
    let widened = [frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]), responses(0x7fff_ffff)].concat();
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(60_000);
    let block = frame(HEADERS, 0, 1, &call("Gather"));
    let rows = [
        ("windows of zero", responses(0), 20 << 10, 61),
        ("tiny windows", responses(100), 20 << 10, 61),
        ("open windows, unread", widened, 20 << 10, 61),
        ("unread PONGs", pings, 2 << 10, 61),
        ("a header block without end", block, 32, 31),
        ("streams without end", open_streams(), 4 << 10, 0),
    ];
    in_virtual_time(async {
        let service = TestService::default();
        let server = server(&service);
        let usual = usual_calls(&server).await;
        service.log.take();
        for (name, said, kib_max, seconds) in rows {
            let (before, began) = (LIVE.get(), thread_time());
            let (socket, peak, held) = hold(&server, &said).await;
            println!("{name}: {} KiB at most, then {} KiB", peak >> 10, held >> 10);
            assert!(peak <= kib_max << 10, "{name}: {peak} bytes");
            let begun = service.log.take().len();
            assert!(begun <= 256, "{name}");
            if seconds > 0 {
                sleep(seconds * SECOND).await;
            } else {
                drop(socket);
                settle().await;
            }
            usual.check_work(name, said.len() + peak, thread_time() - began);
            let dropped = service.log.take();
            assert_eq!(dropped.len(), begun, "{name}: {dropped:?}");
            let left = LIVE.get() - before;
            assert!(left <= 300 << 10, "{name}: {left} bytes are left");
        }
    });
}

#[test]
fn a_slow_preface_takes_little_memory_and_work_for_a_bounded_time() {
    in_virtual_time(async {
        let server = server(&TestService::default());
        let usual = usual_calls(&server).await;
        let (mut ours, theirs) = duplex(1024);
        let (live, began) = (LIVE.get(), thread_time());
        PEAK.set(live);
        server.attach(theirs);
        let mut sent = 0;
        // The settings begin after the preface and are long.
        let settings = frame(SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 0].repeat(2000));
        for byte in PREFACE.iter().chain(&settings) {
            if ours.write_all(&[*byte]).await.is_err() {
                break;
            }
            sent += 1;
            sleep(SECOND).await;
        }
        assert!((10..=61).contains(&sent), "{sent} seconds");
        let peak = PEAK.get() - live;
        println!("a slow preface: {peak} bytes");
        assert!(peak < 32 << 10, "{peak} bytes");
        usual.check_work("a slow preface", sent, thread_time() - began);
    });
}

const ON_CLIENTS: [Attack; 19] = [
    ("informational responses", |_| header_frame(&header(":status", "103")).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[]).repeat(1000), ENHANCE_YOUR_CALM, 256),
    ("SETTINGS of many values", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1].repeat(2000)), ENHANCE_YOUR_CALM, 64),
    ("acknowledgements", |_| frame(SETTINGS, ACK, 0, &[]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("PING", |_| frame(PING, 0, 0, &[7; 8]).repeat(1000), ENHANCE_YOUR_CALM, 256),
    ("PONG", |_| frame(PING, ACK, 0, &[7; 8]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("PRIORITY", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("unknown frames", |_| frame(0xee, 0, 1, &[7; 20]).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("GOAWAY", |_| frame(GOAWAY, 0, 0, &[&MAX[..], &[0; 4]].concat()).repeat(1000), ENHANCE_YOUR_CALM, 64),
    ("empty CONTINUATION", |index| response_block(index, &[]), ENHANCE_YOUR_CALM, 64),
    ("CONTINUATION", |index| response_block(index, &header("x", "y").repeat(20)), ENHANCE_YOUR_CALM, 1024),
    ("empty DATA", |index| response(index, &frame(DATA, 0, 1, b"")), ENHANCE_YOUR_CALM, 64),
    ("padding", |index| response(index, &frame(DATA, 8, 1, &[3, 0, 0, 0])), ENHANCE_YOUR_CALM, 64),
    ("an increment of zero", |_| frame(WINDOW_UPDATE, 0, 0, &[0; 4]), PROTOCOL_ERROR, 64),
    ("a window that overflows", |_| frame(WINDOW_UPDATE, 0, 0, &MAX), FLOW_CONTROL_ERROR, 64),
    ("a long frame", |_| frame(0xee, 0, 0, &[0; 16_385]), FRAME_SIZE_ERROR, 64),
    ("an index that does not exist", |_| header_frame(&[0xff, 0]), COMPRESSION_ERROR, 64),
    ("a table above its maximum", |_| header_frame(&[0x3f, 0xe2, 0x1f, 0x88]), COMPRESSION_ERROR, 64),
    ("PUSH_PROMISE", |_| frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x88]), PROTOCOL_ERROR, 64),
];

fn header_frame(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, block)
}

fn response_block(index: u32, content: &[u8]) -> Vec<u8> {
    let first = if index == 0 { frame(HEADERS, 0, 1, &header(":status", "200")) } else { Vec::new() };
    [first, frame(CONTINUATION, 0, 1, content).repeat(500)].concat()
}

fn response(index: u32, more: &[u8]) -> Vec<u8> {
    let head = [header(":status", "200"), header("content-type", "application/grpc")].concat();
    let first = if index == 0 { header_frame(&head) } else { Vec::new() };
    [first, more.repeat(1000)].concat()
}

/// A channel, and the connections of it to a server in memory.
async fn channel() -> (TestClient, DuplexStream, mpsc::UnboundedReceiver<DuplexStream>) {
    let (dialed, mut connections) = mpsc::unbounded_channel();
    let connect = move || {
        let (ours, theirs) = duplex(64 << 10);
        let is_sent = dialed.send(theirs).is_ok();
        async move { if is_sent { Ok(ours) } else { Err(io::ErrorKind::ConnectionRefused.into()) } }
    };
    let connecting = Channel::builder().transport(Client::new().connector(connect)).connect("grpc://test");
    let greeting = async {
        let mut socket = connections.recv().await.unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, b"")).await.unwrap();
        socket
    };
    let (channel, socket) = tokio::join!(connecting, greeting);
    (TestClient::new(channel.unwrap()), socket, connections)
}

#[test]
fn floods_of_a_server_take_little_memory_and_work_of_a_channel() {
    in_virtual_time(async {
        let service = TestService::default();
        let usual = usual_calls(&server(&service)).await;
        for (name, said, expected, kib_max) in ON_CLIENTS {
            let rounds: Vec<_> = (0..ROUNDS).map(said).collect();
            let (client, socket, connections) = channel().await;
            let call = asking(&client, "hi");
            settle().await;
            Cost::of(socket, &rounds).await.check(name, expected, kib_max, &usual);
            drop(connections);
            assert!(call.await.unwrap().is_err(), "{name}");
        }
    });
}

#[test]
fn responses_that_a_caller_does_not_read_fill_the_windows_of_a_channel() {
    in_virtual_time(async {
        usual_calls(&server(&TestService::default())).await;
        let (client, mut socket, _connections) = channel().await;
        let live = LIVE.get();
        PEAK.set(live);
        let mut unread = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        for index in 0..8 {
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.count(words("hi")).await }
            });
            settle().await;
            let _ = socket.read(&mut buffer).await.unwrap();
            let head = [header(":status", "200"), header("content-type", "application/grpc")].concat();
            socket.write_all(&frame(HEADERS, END_HEADERS, stream(index), &head)).await.unwrap();
            unread.push(call.await.unwrap().unwrap().into_inner());
        }
        let (mut sent, mut is_over) = (0_usize, false);
        while !is_over {
            let index = u32::try_from(sent / 16_000).unwrap() % 8;
            let data = frame(DATA, 0, stream(index), &[0; 16_000]);
            is_over = socket.write_all(&data).await.is_err();
            sent += 16_000;
            yield_now().await;
        }
        let peak = usize::try_from(PEAK.get() - live).unwrap();
        println!("unread responses: {peak} bytes for {sent}");
        assert!(sent < 64 << 20 && peak <= 2 * sent + (1 << 20), "{peak} bytes for {sent}");
    });
}
