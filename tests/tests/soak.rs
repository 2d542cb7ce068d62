//! Load, restarts and hostile clients on all wires and engines, without leaks of memory, descriptors or threads.
//!
//! `SOAK_SECONDS` sets the time for all engines together, and `SOAK_ACTS_PER_SECOND` a limit for the users of each.
//! `frpc-campaign` runs it for hours. The test counts the resources of its process, so it has one of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    env, fs,
    future::poll_fn,
    net::SocketAddr,
    path::PathBuf,
    pin::{Pin, pin},
    sync::LazyLock,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use frisbee::{Client, Config, Connection, Engine, Operation, Outcome, Packet, Router};
use frisbee_pubsub::{Broker, Policy};
use frpc::{Channel, Server, Streaming};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use futures_util::future::join_all;
use socket2::SockRef;
use support::{
    http2::{PREFACE, frame},
    interop::{
        Service,
        schema::{
            Blob, Delay, Number, Series, Summary, Text, interop_client::InteropClient, interop_server::InteropServer,
            second_client::SecondClient, second_server::SecondServer,
        },
    },
    rings,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, split},
    net::TcpStream,
    runtime,
    sync::mpsc,
    task::yield_now,
    time::{interval, timeout},
};

#[test]
fn no_resources_leak_under_load() {
    let engines: Vec<_> = [Engine::Tokio].into_iter().chain(rings()).collect();
    let seconds = env::var("SOAK_SECONDS").map_or(6.0 * engines.len() as f64, |seconds| seconds.parse().unwrap());
    // A sixth of the time fills pools and caches.
    let warm_up = Duration::from_secs_f64(seconds / engines.len() as f64 / 6.0);
    for engine in engines {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            soak(engine, warm_up).await;
            let (held, resident_before) = (Held::settled().await, resident_len());
            println!("{engine}: {held:?}, {} KiB resident", resident_before / 1024);
            let counts = soak(engine, warm_up * 5).await;
            for ((name, _), count) in ACTS.iter().zip(counts) {
                println!("{count:8} {name}");
            }
            assert_eq!(Held::settled().await, held);
            let resident = resident_len();
            let [before, after] = [resident_before, resident].map(|len| len / 1024);
            println!(
                "{engine}: {} acts, {before} KiB resident before, {after} KiB after",
                counts.iter().sum::<usize>()
            );
            assert!(resident <= resident_before + GROWTH_MAX, "{resident_before} bytes have become {resident}");
        });
    }
}

/// Tolerance for the memory of the process.
const GROWTH_MAX: usize = 32 << 20;

/// Resource counts that must return to their initial values.
#[derive(Debug, PartialEq)]
struct Held {
    descriptors: usize,
    /// Threads of servers, and threads shared by clients.
    threads: usize,
}

impl Held {
    /// Waits until the counts have not changed for longer than connections take to end.
    async fn settled() -> Self {
        loop {
            let now = Self::now();
            let is_different = async || {
                while Self::now() == now {
                    yield_now().await;
                }
            };
            if timeout(Config::default().linger_max * 2, is_different()).await.is_err() {
                return now;
            }
        }
    }

    fn now() -> Self {
        let names = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
        // The thread may have ended since the directory was read.
        let is_ours = |name: &PathBuf| fs::read_to_string(name).is_ok_and(|name| name.starts_with("frisbee-"));
        Self { descriptors: fs::read_dir("/proc/self/fd").unwrap().count(), threads: names.filter(is_ours).count() }
    }
}

/// Returns the resident memory of this process.
fn resident_len() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim_end_matches(" kB").trim().parse::<usize>().unwrap()
}

/// Time limit for hanging acts, longer than any act takes.
const LIMIT: Duration = Duration::from_secs(120);

/// Serves users on an engine for a duration. Returns the number of times each of [`ACTS`] was performed.
async fn soak(engine: Engine, duration: Duration) -> [usize; ACTS.len()] {
    let json_rpc = JsonRpc::new();
    let server = Server::builder().engine(engine).router(Broker::new().over(Raws));
    let server = server.wire(Http::new().mount("/rpc", json_rpc.clone())).wire(json_rpc);
    let server = server.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
    let server = server.bind("127.0.0.1:0").await.unwrap();
    let addr = server.local_addr().socket_addr().unwrap();
    let end = Instant::now() + duration;
    let users: Vec<_> = (0..USERS).map(|user| tokio::spawn(act(addr, engine, user, end))).collect();
    let mut counts = [0; ACTS.len()];
    for user in users {
        for (sum, count) in counts.iter_mut().zip(user.await.unwrap()) {
            *sum += count;
        }
    }
    let is_empty = async {
        while server.metrics().connections > 0 {
            yield_now().await;
        }
    };
    assert!(timeout(LIMIT, is_empty).await.is_ok(), "{:?} after the last user has left", server.metrics());
    assert_eq!(server.shutdown(LIMIT).await, 0);
    counts
}

const USERS: usize = 16;

/// Performs all acts in turn.
async fn act(addr: SocketAddr, rings: Engine, user: usize, end: Instant) -> [usize; ACTS.len()] {
    let mut counts = [0; ACTS.len()];
    let rate = env::var("SOAK_ACTS_PER_SECOND").map(|rate| rate.parse::<f64>().unwrap());
    let mut pace = rate.ok().map(|rate| interval(Duration::from_secs_f64(USERS as f64 / rate)));
    for turn in user.. {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        if Instant::now() > end {
            break;
        }
        let (name, act) = ACTS[turn % ACTS.len()];
        let round = user + turn / ACTS.len();
        let engine = if round % 4 == 3 { Engine::Tokio } else { rings };
        let done = timeout(LIMIT, act(Visit { addr, engine, user, round })).await;
        assert!(done.is_ok(), "{name} takes longer than {LIMIT:?}");
        counts[turn % ACTS.len()] += 1;
    }
    counts
}

/// One act of a user.
#[derive(Clone, Copy)]
struct Visit {
    addr: SocketAddr,
    engine: Engine,
    user: usize,
    /// Varies the act from one time to the next.
    round: usize,
}

type Act = fn(Visit) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! acts {
    ($($act:ident,)*) => {
        [$((stringify!($act), |visit| Box::pin($act(visit)))),*]
    };
}

const ACTS: [(&str, Act); 20] = acts![
    unary_calls,
    calls_with_streams,
    cancelled_calls,
    takeovers,
    connections_dropped_with_a_full_outbox,
    resets_with_replies_in_flight,
    unread_replies,
    truncated_packets,
    garbage,
    calls_over_grpc,
    calls_over_connect,
    calls_over_grpc_web,
    calls_over_twirp,
    calls_over_websocket,
    calls_over_json_rpc,
    calls_over_json_rpc_posts,
    messages_through_the_broker,
    restarts,
    truncated_http,
    http2_frames_of_garbage,
];

async fn unary_calls(visit: Visit) {
    let channel = visit.connect().await;
    join_all((0..20).map(|number| {
        let (interop, second) = (InteropClient::new(channel.clone()), SecondClient::new(channel.clone()));
        async move {
            let blob = Blob { data: pattern(visit.round * 7919 * number % 100_000).to_vec() };
            assert!(interop.payload(blob.clone()).await.unwrap().into_inner() == blob);
            assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
            assert_eq!(interop.fail(text("as asked")).await.unwrap_err().message(), "as asked");
        }
    }))
    .await;
}

async fn calls_with_streams(visit: Visit) {
    let interop = InteropClient::new(visit.connect().await);
    let series = Series { start: 7, count: 300, fail_with: String::new() };
    let mut numbers = interop.numbers(series).await.unwrap().into_inner();
    for value in 7..307 {
        assert_eq!(numbers.message().await.unwrap(), Some(Number { value }));
    }
    assert_eq!(numbers.message().await.unwrap(), None);
    let numbers = Streaming::from_iter((0..300).map(|value| Number { value }));
    assert_eq!(interop.total(numbers).await.unwrap().into_inner(), Summary { sum: 299 * 150, count: 300 });
    let (sender, requests) = Streaming::channel(1);
    let mut answers = interop.talk(requests).await.unwrap().into_inner();
    for turn in 0..20 {
        sender.send(text(&turn.to_string())).await.unwrap();
        assert_eq!(answers.message().await.unwrap(), Some(text(&format!("re: {turn}"))));
    }
}

async fn cancelled_calls(visit: Visit) {
    let channel = visit.connect().await;
    let interop = InteropClient::new(channel.clone());
    for milliseconds in 0..10 {
        begin(interop.slow(Delay { milliseconds, text: "late".into() })).await;
        let (_sender, numbers) = Streaming::<Number>::channel(1);
        begin(interop.total(numbers)).await;
    }
    let series = Series { start: 0, count: 5000, fail_with: String::new() };
    let mut numbers = interop.numbers(series).await.unwrap().into_inner();
    assert_eq!(numbers.message().await.unwrap(), Some(Number { value: 0 }));
    drop(numbers);
    let (sender, requests) = Streaming::channel(1);
    let answers = interop.talk(requests).await.unwrap().into_inner();
    sender.send(text("unheard")).await.unwrap();
    drop(answers);
    if visit.round.is_multiple_of(2) {
        assert_eq!(SecondClient::new(channel).greet(text("you")).await.unwrap().into_inner(), text("hello you"));
    }
}

async fn takeovers(visit: Visit) {
    let (sender, mut replies) = mpsc::unbounded_channel();
    let client = Client::new(Forward(sender)).engine(visit.engine);
    let connection = client.connect(visit.addr).await.unwrap();
    connection.send(Packet::new(1, TAKE, "")).await.unwrap();
    replies.recv().await.unwrap();
    let mut raw = connection.takeover().await.unwrap();
    raw.skip_heartbeats();
    let said = pattern(visit.round * 104_729 % 299_999 + 1);
    let (mut reader, mut writer) = split(raw);
    let mut heard = vec![0; said.len()];
    let (written, read) = tokio::join!(writer.write_all(&said), reader.read_exact(&mut heard));
    written.unwrap();
    read.unwrap();
    assert!(heard == said);
    match visit.round % 3 {
        0 => {
            writer.shutdown().await.unwrap();
            assert_eq!(reader.read(&mut heard).await.unwrap(), 0);
        }
        1 => reset(&reader.unsplit(writer).into_tcp().unwrap().0),
        _ => {}
    }
}

async fn connections_dropped_with_a_full_outbox(visit: Visit) {
    let connection = Client::new(()).engine(visit.engine).connect(visit.addr).await.unwrap();
    for _ in 0..100 {
        if connection.try_send(Packet::new(1, ECHO, pattern(30_000))).is_err() {
            break;
        }
        if visit.round.is_multiple_of(2) {
            yield_now().await;
        }
    }
}

async fn resets_with_replies_in_flight(visit: Visit) {
    let mut socket = TcpStream::connect(visit.addr).await.unwrap();
    for len in [0, 10, 1000, 100_000] {
        // The server may be slow to read.
        socket.write_all(&packet(ECHO, len)).await.unwrap();
    }
    if visit.round.is_multiple_of(2) {
        socket.read_exact(&mut [0; 10]).await.unwrap();
    }
    reset(&socket);
}

async fn unread_replies(visit: Visit) {
    let socket = TcpStream::connect(visit.addr).await.unwrap();
    let packets = packet(ECHO, 50_000).repeat(100);
    let (mut written, mut refusals) = (0, 0);
    while written < packets.len() && refusals < 1000 {
        match socket.try_write(&packets[written..]) {
            Ok(len) => written += len,
            Err(_) => refusals += 1,
        }
        yield_now().await;
    }
    if visit.round.is_multiple_of(2) {
        reset(&socket);
    }
}

async fn truncated_packets(visit: Visit) {
    let mut socket = TcpStream::connect(visit.addr).await.unwrap();
    let packet = packet(ECHO, 100_000);
    socket.write_all(&packet).await.unwrap();
    socket.write_all(&packet[..visit.round * 7919 % packet.len()]).await.unwrap();
    match visit.round % 3 {
        0 => reset(&socket),
        1 => {
            socket.shutdown().await.unwrap();
            socket.read_to_end(&mut Vec::new()).await.unwrap();
        }
        _ => {}
    }
}

async fn garbage(visit: Visit) {
    let mut socket = TcpStream::connect(visit.addr).await.unwrap();
    let noise = (0..visit.round * 31 % 2000).map(|place| ((place * place * visit.round) >> 3).to_le_bytes()[0]);
    let noise: Vec<_> = noise.collect();
    // The server may close the connection at any point.
    if socket.write_all(&noise).await.is_ok() && socket.shutdown().await.is_ok() {
        let _ = socket.read_to_end(&mut Vec::new()).await;
    }
}

async fn calls_over_grpc(visit: Visit) {
    visit.calls_over("grpc://ADDRESS", true).await;
}

async fn calls_over_connect(visit: Visit) {
    visit.calls_over("http://ADDRESS", true).await;
}

async fn calls_over_grpc_web(visit: Visit) {
    visit.calls_over("grpc-web+http://ADDRESS", true).await;
}

async fn calls_over_twirp(visit: Visit) {
    visit.calls_over("twirp+http://ADDRESS", false).await;
}

async fn calls_over_websocket(visit: Visit) {
    visit.calls_over("ws://ADDRESS/", true).await;
}

async fn calls_over_json_rpc(visit: Visit) {
    visit.calls_over("jsonrpc+tcp://ADDRESS", true).await;
}

async fn calls_over_json_rpc_posts(visit: Visit) {
    visit.calls_over("jsonrpc+http://ADDRESS/rpc", false).await;
}

async fn messages_through_the_broker(visit: Visit) {
    let settings = || frisbee_pubsub::Client::builder().frisbee(Client::new(()).engine(visit.engine));
    let (publisher, reader) =
        (settings().connect(visit.addr).await.unwrap(), settings().connect(visit.addr).await.unwrap());
    let subject = format!("soak.{}.{}", visit.user, visit.round);
    let mut messages = reader.subscribe(&subject).policy(Policy::Block).await.unwrap();
    let publishing = async {
        for number in 0..200_u32 {
            publisher.publish(&subject, number.to_string()).await.unwrap();
        }
        publisher.flush().await.unwrap();
    };
    let reading = async {
        for number in 0..200_u32 {
            assert_eq!(messages.next_message().await.unwrap().payload, number.to_string());
        }
    };
    tokio::join!(publishing, reading);
}

/// A channel goes on after its server has stopped in each way, and started again at the same address.
async fn restarts(visit: Visit) {
    let serve = async |address: String| {
        let server = Server::builder().engine(visit.engine).wire(Http::new());
        server.add_service(SecondServer::new(Service)).bind(&*address).await.unwrap()
    };
    let mut server = serve("127.0.0.1:0".to_owned()).await;
    let address = server.local_addr().clone();
    let channels = [
        Channel::builder().engine(visit.engine).connect(&address).await.unwrap(),
        Channel::builder()
            .transport(frpc_http::transport())
            .connect(format!("grpc://{}", address.socket_addr().unwrap()))
            .await
            .unwrap(),
    ];
    let mut limit = LIMIT;
    for turn in 0..2 {
        for channel in &channels {
            let second = SecondClient::new(channel.clone());
            let mut greeted = second.greet(text("you")).await;
            // The first call may have been sent before the channel noticed a sudden end.
            if limit.is_zero() && greeted.as_ref().is_err_and(|status| status.call_error().is_some()) {
                greeted = second.greet(text("you")).await;
            }
            assert_eq!(greeted.unwrap().into_inner(), text("hello you"));
        }
        limit = if (turn + visit.round).is_multiple_of(2) { LIMIT } else { Duration::ZERO };
        server.shutdown(limit).await;
        server = serve(address.to_string()).await;
    }
    server.shutdown(LIMIT).await;
}

async fn truncated_http(visit: Visit) {
    let request = b"POST /interop.Interop/Payload HTTP/1.1\r\nhost: a\r\ncontent-type: application/proto\r\n\
        content-length: 9000\r\n\r\nabc";
    let mut socket = TcpStream::connect(visit.addr).await.unwrap();
    socket.write_all(&request[..1 + visit.round * 7919 % (request.len() - 1)]).await.unwrap();
    match visit.round % 2 {
        0 => reset(&socket),
        _ => socket.shutdown().await.unwrap(),
    }
}

async fn http2_frames_of_garbage(visit: Visit) {
    let mut socket = TcpStream::connect(visit.addr).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    for number in 0..visit.round % 40 {
        let kind = u8::try_from((number * 7 + visit.round) % 11).unwrap();
        bytes.extend(frame(kind, kind, u32::try_from(number).unwrap(), &pattern(number * visit.round % 500)));
    }
    // The server may close the connection at any point.
    if socket.write_all(&bytes).await.is_ok() && socket.shutdown().await.is_ok() {
        let _ = socket.read_to_end(&mut Vec::new()).await;
    }
}

impl Visit {
    /// Makes calls over another wire.
    async fn calls_over(self, url: &str, has_streams: bool) {
        let builder = Channel::builder().transport(frpc_http::transport()).transport(frpc_websocket::transport());
        let url = url.replace("ADDRESS", &self.addr.to_string());
        let channel = builder.transport(frpc_jsonrpc::transport()).connect(url).await.unwrap();
        let (interop, second) = (InteropClient::new(channel.clone()), SecondClient::new(channel));
        for number in 0..10 {
            let blob = Blob { data: pattern(self.round * 7919 * number % 100_000).to_vec() };
            assert!(interop.payload(blob.clone()).await.unwrap().into_inner() == blob);
            assert_eq!(second.greet(text("you")).await.unwrap().into_inner(), text("hello you"));
            assert_eq!(interop.fail(text("as asked")).await.unwrap_err().message(), "as asked");
        }
        if has_streams {
            let series = Series { start: 7, count: 300, fail_with: String::new() };
            let mut numbers = interop.numbers(series.clone()).await.unwrap().into_inner();
            for value in 7..307 {
                assert_eq!(numbers.message().await.unwrap(), Some(Number { value }));
            }
            assert_eq!(numbers.message().await.unwrap(), None);
            // Dropped in the middle.
            let mut numbers = interop.numbers(series).await.unwrap().into_inner();
            assert_eq!(numbers.message().await.unwrap(), Some(Number { value: 7 }));
        }
    }

    async fn connect(self) -> Channel {
        Channel::builder().engine(self.engine).connect(self.addr).await.unwrap()
    }
}

/// Polls a future once and drops it.
async fn begin(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
}

/// Makes the socket end with a reset.
fn reset(socket: &TcpStream) {
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).unwrap();
}

fn text(text: &str) -> Text {
    Text { text: text.into() }
}

/// Encodes a packet with a content of this length.
fn packet(operation: Operation, len: usize) -> Vec<u8> {
    let mut packet = vec![0, 0x0f, 0, 1];
    packet.extend(operation.number().to_be_bytes());
    packet.extend(u32::try_from(len).unwrap().to_be_bytes());
    packet.extend(pattern(len));
    packet
}

/// Returns bytes with a position-dependent pattern. None of them looks like a heartbeat.
fn pattern(len: usize) -> Bytes {
    static PATTERN: LazyLock<Bytes> = LazyLock::new(|| (1..=251).cycle().take(300_000).collect());
    PATTERN.slice(..len)
}

/// Operations of the server outside of RPC.
struct Raws;

impl Router for Raws {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        if packet.operation != TAKE {
            return Outcome::Reply(packet);
        }
        if connection.send(packet).await.is_ok()
            && let Ok(mut raw) = connection.takeover().await
        {
            raw.skip_heartbeats();
            tokio::spawn(async move {
                let (mut reader, mut writer) = split(raw);
                // The client may have dropped or reset the connection.
                let _ = copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
        Outcome::Nothing
    }
}

struct Forward(mpsc::UnboundedSender<Packet>);

impl Router for Forward {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.0.send(packet).unwrap();
        Outcome::Nothing
    }
}

const ECHO: Operation = Operation::new(30).unwrap();
const TAKE: Operation = Operation::new(31).unwrap();
