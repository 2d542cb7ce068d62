//! Random stops of both processes under load, on every engine. No call outlives its deadline, and publish and subscribe
//! continue.
//!
//! `STOPS_SECONDS` sets the duration per engine. `STOPS_SEED` repeats the stops of an earlier run. `STOPS_LATE_MS` sets
//! how long a call may outlive its deadline; 50 is enough on an idle machine. Only the run time of the client's process
//! counts.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use frisbee::Engine;
use frisbee_pubsub::{Broker, Client, Policy};
use frpc::{Channel, Code, Request, Response, Server, Status, Unimplemented};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    MILLI, SECOND,
    echo::{
        Text,
        echo_client::EchoClient,
        echo_server::{Echo, EchoServer},
    },
    engines, in_real_time_within,
};
use tokio::{
    io::{AsyncReadExt, BufReader},
    process::{Child, ChildStdout},
    runtime,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::processes::{line_after, run_test};

const NAME: &str = "stops::calls_end_at_their_deadline_when_processes_are_stopped";
/// Variables for child processes of this program: their role and its parameters.
const ROLE: &str = "FRISBEE_STOPS_ROLE";
const ENGINE: &str = "FRISBEE_STOPS_ENGINE";
const ADDRESS: &str = "FRISBEE_STOPS_ADDRESS";

#[test]
fn calls_end_at_their_deadline_when_processes_are_stopped() {
    match env::var(ROLE).as_deref() {
        Ok("server") => return threads().block_on(serve()),
        Ok(_) => return threads().block_on(load()),
        Err(_) => {}
    }
    let duration = Duration::from_secs(number("STOPS_SECONDS", 2));
    let seed = number("STOPS_SEED", RandomState::new().hash_one(()));
    for engine in engines() {
        in_real_time_within(duration + 60 * SECOND, async {
            println!("{engine}: STOPS_SEED={seed}");
            let (mut server, mut said) = start("server", engine, "");
            let address = line_after(&mut said, "listening on ").await.expect("the server listens");
            let (mut client, mut told) = start("client", engine, &address);
            line_after(&mut told, "begun").await.expect("the client begins");
            stop_and_continue(&[&server, &client], duration, &mut Random(seed)).await;
            drop(client.stdin.take());
            let mut rest = String::new();
            told.read_to_string(&mut rest).await.unwrap();
            println!("{rest}");
            assert!(client.wait().await.unwrap().success(), "{engine}: STOPS_SEED={seed}");
            drop(server.stdin.take());
            assert!(server.wait().await.unwrap().success(), "{engine}: the server ends");
        });
    }
}

fn number(name: &str, unless_set: u64) -> u64 {
    env::var(name).map_or(unless_set, |number| number.parse().unwrap())
}

fn threads() -> runtime::Runtime {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Starts another process of this program. It exits when its input is closed.
fn start(role: &str, engine: Engine, address: &str) -> (Child, BufReader<ChildStdout>) {
    run_test(NAME, &[(ROLE, role), (ENGINE, &engine.to_string()), (ADDRESS, address)])
}

/// Repeatedly stops one process, the other, or both.
async fn stop_and_continue(processes: &[&Child; 2], duration: Duration, random: &mut Random) {
    let end = Instant::now() + duration;
    let signal = |which: u64, signal| {
        for (bit, process) in processes.iter().enumerate() {
            if which >> bit & 1 == 1 {
                let id = process.id().expect("it runs").try_into().unwrap();
                kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
            }
        }
    };
    while Instant::now() < end {
        let which = 1 + random.below(3);
        signal(which, Signal::STOP);
        sleep(MILLI * u32::try_from(1 + random.below(150)).unwrap()).await;
        signal(which, Signal::CONT);
        sleep(MILLI * u32::try_from(1 + random.below(100)).unwrap()).await;
    }
}

/// Deterministic pseudo-random numbers for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // The generator is splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

// The server

/// Answers immediately, or after the number of milliseconds in the text.
struct Slow;

impl Echo for Slow {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let text = request.into_inner();
        if let Ok(millis @ 1..) = text.text.parse::<u32>() {
            sleep(MILLI * millis).await;
        }
        Ok(text.into())
    }
}

async fn serve() {
    let broker = Broker::new();
    let engine: Engine = env::var(ENGINE).unwrap().parse().unwrap();
    let server = Server::builder().engine(engine).add_service(EchoServer::new(Slow));
    let server = server.router(broker.over(Unimplemented)).bind("tcp://127.0.0.1:0").await.unwrap();
    println!("listening on {}", server.local_addr());
    until_end_of_input().await;
    server.shutdown(SECOND).await;
}

async fn until_end_of_input() {
    let reading = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    reading.await.unwrap().unwrap();
}

// The client

/// Time this process did not run, in nanoseconds, as measured by a dedicated thread.
static NOT_RUN: LazyLock<Arc<AtomicU64>> = LazyLock::new(|| {
    let not_run = Arc::<AtomicU64>::default();
    let counting = not_run.clone();
    thread::spawn(move || {
        let mut before = Instant::now();
        loop {
            thread::sleep(TICK);
            let now = Instant::now();
            let more = (now - before).saturating_sub(TICK);
            before = now;
            // Shorter gaps are normal scheduling delays.
            if more > TICK {
                counting.fetch_add(more.as_nanos().try_into().unwrap(), Ordering::Relaxed);
            }
        }
    });
    not_run
});

const TICK: Duration = Duration::from_millis(5);

/// A starting time, for measuring the run time of the process without its stops.
#[derive(Clone, Copy)]
struct Since {
    at: Instant,
    not_run: u64,
}

impl Since {
    fn now() -> Self {
        Self { at: Instant::now(), not_run: NOT_RUN.load(Ordering::Relaxed) }
    }

    /// Returns the run time since then.
    async fn run_time(self) -> Duration {
        let elapsed = self.at.elapsed();
        // The measuring thread may notice a stop late.
        sleep(4 * TICK).await;
        elapsed.saturating_sub(Duration::from_nanos(NOT_RUN.load(Ordering::Relaxed) - self.not_run))
    }
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    worst_nanos: AtomicU64,
    messages: AtomicU64,
}

async fn load() {
    LazyLock::force(&NOT_RUN);
    let late_by = Duration::from_millis(number("STOPS_LATE_MS", 5000));
    let (is_over, counts) = (Arc::<AtomicBool>::default(), Arc::<Counts>::default());
    let (engine, address) = (env::var(ENGINE).unwrap().parse::<Engine>().unwrap(), env::var(ADDRESS).unwrap());
    let mut callers = JoinSet::new();
    for connection in 0..2 {
        let channel = Channel::builder().engine(engine).connect(&*address).await.unwrap();
        for caller in 0..8 {
            let (client, is_over, counts) = (EchoClient::new(channel.clone()), is_over.clone(), counts.clone());
            let random = Random(1000 * connection + caller);
            callers.spawn(call(client, random, is_over, counts));
        }
    }
    let publisher = Client::connect(&*address).await.unwrap();
    let mut subscription =
        Client::connect(&*address).await.unwrap().subscribe("n").policy(Policy::Block).await.unwrap();
    let (publishing, over) = (counts.clone(), is_over.clone());
    let mut messaging = JoinSet::new();
    messaging.spawn(async move {
        while !over.load(Ordering::Relaxed) {
            // A lost connection may lose messages, and returns an error.
            let _ = publisher.publish("n", "x".repeat(200)).await;
        }
        // Wake up the subscriber for the last time.
        let _ = publisher.publish_acknowledged("n", "last").await;
    });
    let over = is_over.clone();
    messaging.spawn(async move {
        while !over.load(Ordering::Relaxed) {
            if subscription.next().await.is_none() {
                return;
            }
            publishing.messages.fetch_add(1, Ordering::Relaxed);
        }
    });
    println!("begun");
    std::io::stdout().flush().unwrap();
    until_end_of_input().await;
    is_over.store(true, Ordering::Relaxed);
    let ended = timeout(20 * SECOND, async {
        while callers.join_next().await.transpose().unwrap().is_some() {}
        while messaging.join_next().await.transpose().unwrap().is_some() {}
    });
    let hangs = ended.await.is_err();
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let worst = Duration::from_nanos(read(&counts.worst_nanos));
    println!(
        "{} calls answered, {} failed, {} outlived their deadline by 50 ms, at worst by {worst:?}; {} messages",
        read(&counts.answered),
        read(&counts.failed),
        read(&counts.late),
        read(&counts.messages)
    );
    assert!(!hangs, "{} calls and {} tasks of publish and subscribe hang", callers.len(), messaging.len());
    assert!(worst <= late_by, "a call outlived its deadline by {worst:?}");
    assert!(read(&counts.answered) > 0 && read(&counts.messages) > 0, "something came through");
}

/// Makes calls with deadlines, one after another.
async fn call(client: EchoClient, mut random: Random, is_over: Arc<AtomicBool>, counts: Arc<Counts>) {
    while !is_over.load(Ordering::Relaxed) {
        let limit = MILLI * u32::try_from(20 + random.below(180)).unwrap();
        // Sometimes the handler takes about as long as the deadline.
        let text = if random.below(20) == 0 { limit.as_millis().to_string() } else { "0".to_owned() };
        let mut request = Request::new(Text { text });
        request.set_timeout(limit);
        let since = Since::now();
        let answer = client.echo(request).await;
        match answer {
            Ok(_) => counts.answered.fetch_add(1, Ordering::Relaxed),
            Err(status) => {
                let codes = [Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted];
                assert!(codes.contains(&status.code()), "{status}");
                counts.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        if since.at.elapsed() > limit + 50 * MILLI {
            let over = since.run_time().await.saturating_sub(limit);
            if over > 50 * MILLI {
                counts.late.fetch_add(1, Ordering::Relaxed);
                counts.worst_nanos.fetch_max(over.as_nanos().try_into().unwrap(), Ordering::Relaxed);
            }
        }
    }
}
