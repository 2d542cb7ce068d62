//! The load on one broker: counting subscribers, and a publisher limited by the slowest of them.

use std::{
    cell::RefCell,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use load::process;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedWriteHalf},
    sync::Notify,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    broker::Broker,
    wire::{Slow, Wire},
};

/// The subjects of a load and their subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) subjects: usize,
    /// Subscribers of each subject, each with its own connection.
    pub(crate) subscribers: usize,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// Subscriptions without matching messages, on one connection.
    pub(crate) idle: usize,
}

/// The results of one run at full speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    /// Millions of deliveries per second.
    pub(crate) rate: f64,
    /// CPU seconds of the broker per million deliveries.
    pub(crate) cpu: f64,
    /// Peak memory of the broker in MiB.
    pub(crate) memory: f64,
}

/// A load of messages at a steady pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) shape: Shape,
    pub(crate) pause: Duration,
    /// Messages after each pause.
    pub(crate) burst: usize,
    /// Additional subscribers that never read.
    pub(crate) stopped: usize,
}

/// The results of a run at a steady pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced {
    /// Thousands of deliveries per second.
    pub(crate) rate: f64,
    /// Microseconds from the publisher to a subscriber.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Peak memory of the broker in MiB.
    pub(crate) memory: f64,
}

/// Publishes as fast as the slowest subscriber reads, and counts the deliveries.
pub(crate) async fn flood(broker: &Broker, shape: Shape, seconds: Duration) -> io::Result<Flood> {
    let running = broker.start()?;
    let (wire, pid) = (broker.wire, running.pid());
    let _idle = subscribe_idle(wire, running.addr, shape.idle).await?;
    let counts = Arc::new(Counts::new(shape));
    let mut tasks = JoinSet::new();
    for (place, Subscriber { socket, number }) in
        subscribe(wire, running.addr, shape, Slow::SetThePace).await?.into_iter().enumerate()
    {
        let expected = wire.delivery(number, &subject(place % shape.subjects), &payload(shape));
        tasks.spawn(count(socket, wire, expected, counts.clone(), place));
    }
    let publisher = connect_publisher(wire, running.addr, &mut tasks).await?;
    tasks.spawn(publish_flood(publisher, wire, shape, counts.clone()));

    let measured = async {
        sleep(WARMUP).await;
        let (before, cpu, start) = (counts.deliveries(), process::cpu_time(pid)?, Instant::now());
        sleep(seconds).await;
        let (after, elapsed) = (counts.deliveries(), start.elapsed());
        let millions = (after - before) as f64 / 1e6;
        let cpu = (process::cpu_time(pid)? - cpu).as_secs_f64();
        let memory = process::memory_kib(pid, "VmHWM")? as f64 / 1024.0;
        Ok(Flood { rate: millions / elapsed.as_secs_f64(), cpu: cpu / millions.max(f64::MIN_POSITIVE), memory })
    };
    until_failure(measured, tasks).await
}

/// Publishes at a steady pace, and measures the latency of each delivery.
pub(crate) async fn pace(broker: &Broker, pace: Pace, seconds: Duration) -> io::Result<Paced> {
    let running = broker.start()?;
    let (wire, shape) = (broker.wire, pace.shape);
    let (base, latencies) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = JoinSet::new();
    for Subscriber { socket, number } in subscribe(wire, running.addr, shape, Slow::SetThePace).await? {
        let len = wire.delivery(number, &subject(0), &payload(shape)).len();
        let payload_at = len - wire.trailer_len() - shape.payload;
        tasks.spawn(time_deliveries(socket, wire, len, payload_at, base, latencies.clone()));
    }
    let stopped = Shape { subscribers: pace.stopped, ..shape };
    let _stopped = subscribe(wire, running.addr, stopped, Slow::Miss).await?;
    let publisher = connect_publisher(wire, running.addr, &mut tasks).await?;
    tasks.spawn(publish_paced(publisher, wire, pace, base));
    let measured = async {
        sleep(WARMUP).await;
        let (_, start) = (std::mem::take(&mut *lock(&latencies)), Instant::now());
        sleep(seconds).await;
        let (mut latencies, elapsed) = (std::mem::take(&mut *lock(&latencies)), start.elapsed());
        latencies.sort_unstable();
        let at = |percent| match latencies.get(latencies.len() * percent / 100) {
            Some(nanos) => Ok(*nanos as f64 / 1e3),
            None => Err(io::Error::other("nothing was delivered")),
        };
        let rate = latencies.len() as f64 / elapsed.as_secs_f64() / 1e3;
        let memory = process::memory_kib(running.pid(), "VmHWM")? as f64 / 1024.0;
        Ok(Paced { rate, p50: at(50)?, p99: at(99)?, memory })
    };
    until_failure(measured, tasks).await
}

/// Deliveries so far, by subscriber.
struct Counts {
    deliveries: Vec<AtomicU64>,
    /// Notified when a subscriber has received deliveries.
    progress: Notify,
}

impl Counts {
    fn new(shape: Shape) -> Self {
        let deliveries = (0..shape.subjects * shape.subscribers).map(|_| AtomicU64::new(0)).collect();
        Self { deliveries, progress: Notify::new() }
    }

    fn deliveries(&self) -> u64 {
        self.deliveries.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn slowest(&self) -> u64 {
        self.deliveries.iter().map(|count| count.load(Ordering::Relaxed)).min().unwrap_or(0)
    }
}

/// Awaits `measured`, unless one of the tasks fails first.
async fn until_failure<T>(
    measured: impl Future<Output = io::Result<T>>,
    mut tasks: JoinSet<io::Result<()>>,
) -> io::Result<T> {
    tokio::select! {
        result = measured => result,
        Some(ended) = tasks.join_next() => {
            let error = ended.map_err(io::Error::other)?.err();
            Err(error.unwrap_or_else(|| io::Error::other("the broker closed a connection")))
        }
    }
}

struct Subscriber {
    socket: TcpStream,
    /// The subscription number in its deliveries.
    number: u32,
}

async fn subscribe(wire: Wire, addr: SocketAddr, shape: Shape, slow: Slow) -> io::Result<Vec<Subscriber>> {
    let mut subscribers = Vec::new();
    for place in 0..shape.subjects * shape.subscribers {
        let mut socket = connect(wire, addr).await?;
        let subject = subject(place % shape.subjects);
        let number = timeout(PATIENCE, wire.subscribe(&mut socket, &subject, 1, slow)).await??;
        subscribers.push(Subscriber { socket, number });
    }
    Ok(subscribers)
}

/// Creates subscriptions without matching messages, and returns their connection.
async fn subscribe_idle(wire: Wire, addr: SocketAddr, count: usize) -> io::Result<Option<TcpStream>> {
    // The floor does not support patterns.
    if count == 0 || wire == Wire::Floor {
        return Ok(None);
    }
    let mut socket = connect(wire, addr).await?;
    for number in 1..=count {
        timeout(PATIENCE, wire.subscribe(&mut socket, &wire.idle_pattern(number), number, Slow::Miss)).await??;
    }
    Ok(Some(socket))
}

async fn connect(wire: Wire, addr: SocketAddr) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    timeout(PATIENCE, wire.greet(&mut socket)).await??;
    Ok(socket)
}

async fn connect_publisher(
    wire: Wire,
    addr: SocketAddr,
    tasks: &mut JoinSet<io::Result<()>>,
) -> io::Result<OwnedWriteHalf> {
    let (mut reader, writer) = connect(wire, addr).await?.into_split();
    tasks.spawn(async move {
        let mut said = vec![0; 16 * 1024];
        while reader.read(&mut said).await? > 0 {}
        Ok(())
    });
    Ok(writer)
}

/// Counts deliveries by their bytes. The first delivery must match `expected`.
async fn count(
    mut socket: TcpStream,
    wire: Wire,
    expected: Vec<u8>,
    counts: Arc<Counts>,
    place: usize,
) -> io::Result<()> {
    let mut first = vec![0; expected.len()];
    wire.read_delivery(&mut socket, &mut first).await?;
    if first != expected {
        return Err(io::Error::other(format!("the first delivery is {:?}", String::from_utf8_lossy(&first))));
    }
    let (len, mut bytes) = (expected.len() as u64, expected.len() as u64);
    loop {
        counts.deliveries[place].store(bytes / len, Ordering::Relaxed);
        counts.progress.notify_one();
        socket.readable().await?;
        match BUFFER.with_borrow_mut(|buffer| socket.try_read(buffer)) {
            Ok(0) => return Ok(()),
            Ok(read) => bytes += read as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn publish_flood(mut socket: OwnedWriteHalf, wire: Wire, shape: Shape, counts: Arc<Counts>) -> io::Result<()> {
    let publications: Vec<_> =
        (0..shape.subjects).map(|number| wire.publication(&subject(number), &payload(shape))).collect();
    let round: Vec<u8> = publications.concat();
    let rounds = (BATCH_LEN / round.len()).max(1);
    let (batch, step) = (round.repeat(rounds), (rounds * shape.subjects) as u64);
    let window = (window(publications[0].len(), shape) as u64).max(2 * step);
    let mut sent = 0;
    loop {
        while sent + step > counts.slowest() * shape.subjects as u64 + window {
            counts.progress.notified().await;
        }
        socket.write_all(&batch).await?;
        sent += step;
    }
}

/// Returns the maximum number of messages in flight.
fn window(len: usize, shape: Shape) -> usize {
    let one = WINDOW_LEN / len;
    // A broker buffers this many messages for each subscriber.
    one.min(WINDOWS_LEN / len / shape.subscribers).max(1)
}

async fn publish_paced(mut socket: OwnedWriteHalf, wire: Wire, pace: Pace, base: Instant) -> io::Result<()> {
    let mut ticks = interval(pace.pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut payload = payload(pace.shape);
    loop {
        ticks.tick().await;
        payload[..8].copy_from_slice(&nanos_since(base).to_be_bytes());
        socket.write_all(&wire.publication(&subject(0), &payload).repeat(pace.burst)).await?;
    }
}

/// Reads deliveries and records their latencies. Each payload starts with its send time.
async fn time_deliveries(
    mut socket: TcpStream,
    wire: Wire,
    len: usize,
    payload_at: usize,
    base: Instant,
    latencies: Arc<Mutex<Vec<u64>>>,
) -> io::Result<()> {
    let mut delivery = vec![0; len];
    loop {
        wire.read_delivery(&mut socket, &mut delivery).await?;
        let now = nanos_since(base);
        let sent = delivery[payload_at..].first_chunk().map_or(now, |bytes| u64::from_be_bytes(*bytes));
        lock(&latencies).push(now.saturating_sub(sent));
    }
}

fn lock(latencies: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    latencies.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos_since(base: Instant) -> u64 {
    u64::try_from(base.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn subject(number: usize) -> String {
    format!("bench.subject.{number:02}")
}

fn payload(shape: Shape) -> Vec<u8> {
    vec![b'x'; shape.payload]
}

thread_local! {
    /// The counted bytes are never read, so all connections of a thread share one buffer.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

const WARMUP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);
const BATCH_LEN: usize = 16 * 1024;
/// The maximum bytes of publications in flight.
const WINDOW_LEN: usize = 512 * 1024;
/// The maximum bytes of deliveries in flight, to all subscribers of a subject together.
const WINDOWS_LEN: usize = 64 * 1024 * 1024;
