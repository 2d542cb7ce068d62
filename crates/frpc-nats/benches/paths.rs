//! Direct calls to a server found in NATS, calls through NATS, and plain requests of the NATS client, in one run.
//!
//! `cargo bench -p frpc-nats` prints calls per second, and the CPU time per call of all processes: this one, with clients
//! and servers, and nats-server. Needs Linux, and nats-server from `tests/nats/build.sh`. The argument `--seconds N` sets
//! the length of each of three rounds.

use std::{
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use frpc::{Channel, Server};
use frpc_nats::{Announcement, NatsCluster, NatsServer};
use futures_util::{StreamExt, future::BoxFuture};
use support::{
    NatsProgram,
    calls::{TestClient, TestServer, TestService, ask},
};

/// The calls in flight.
const CALLERS: usize = 64;
const ROUNDS: usize = 3;
/// A text of 32 bytes.
const TEXT: &str = "a message of thirty-two bytes...";

type MakeCall = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The figures of a round.
#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    cpu: Duration,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Some(program) = NatsProgram::find() else { return };
    let arguments: Vec<String> = env::args().collect();
    let seconds = arguments.iter().position(|argument| argument == "--seconds");
    let seconds = seconds.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(2.0);
    let nats = program.start("one", "").await;
    let cluster = NatsCluster::new(nats.url());

    let server = Server::builder().add_service(TestServer::new(TestService::default()));
    let server = server.bind("tcp://127.0.0.1:0").await.expect("a port is free");
    let announced = Announcement::builder("test", server.local_addr()).expect("the address is valid");
    let _announced = announced.start(&cluster).await.expect("NATS runs");
    let _through = NatsServer::builder("test").serve(&cluster, server.endpoint()).await.expect("NATS runs");
    let plain = async_nats::connect(nats.url()).await.expect("NATS runs");
    answer_plainly(plain.clone()).await;

    let transport = frpc_nats::transport();
    let channel = Channel::builder().transport(transport.clone()).resolver(transport);
    let direct = channel.connect(format!("nats+direct://{}/test", nats.addr)).await.expect("it is announced");
    let transport = frpc_nats::transport();
    let through = Channel::builder().transport(transport).connect(format!("nats://{}/test", nats.addr));
    let through = through.await.expect("NATS runs");
    let requester = async_nats::connect(nats.url()).await.expect("NATS runs");
    let paths: [(&str, MakeCall); 3] = [
        ("direct, found in NATS", calls_of(direct)),
        ("through NATS", calls_of(through)),
        (
            "request of async-nats",
            Arc::new(move || {
                let client = requester.clone();
                Box::pin(async move {
                    let answer = client.request("plain", TEXT.into()).await.expect("there is a responder");
                    assert_eq!(answer.payload, TEXT);
                })
            }),
        ),
    ];
    let pid = nats.id().expect("it runs");
    let mut samples = [const { Vec::new() }; 3];
    // Interleaved, so that a busy machine slows all of them.
    for _ in 0..ROUNDS {
        for ((_, make), samples) in paths.iter().zip(&mut samples) {
            samples.push(measure(make, pid, Duration::from_secs_f64(seconds)).await);
        }
    }
    let medians = samples.map(median);
    println!("{:<24} {:>12} {:>14} {:>8} {:>8}", "path", "calls/s", "CPU per call", "calls", "CPU");
    for ((name, _), Sample { per_second, cpu }) in paths.iter().zip(medians) {
        let base = medians[2];
        let (calls, cost) = (per_second / base.per_second, base.cpu.as_secs_f64() / cpu.as_secs_f64());
        println!("{name:<24} {per_second:>12.0} {:>11.2} us {calls:>7.1}x {cost:>6.1}:1", cpu.as_secs_f64() * 1e6);
    }
}

fn calls_of(channel: Channel) -> MakeCall {
    let client = TestClient::new(channel);
    Arc::new(move || {
        let client = client.clone();
        Box::pin(async move { assert_eq!(ask(&client, TEXT).await.expect("the server answers"), TEXT) })
    })
}

/// Answers requests with their payload.
async fn answer_plainly(client: async_nats::Client) {
    let mut requests = client.queue_subscribe("plain", "plain".to_owned()).await.expect("NATS runs");
    let answering = client.clone();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            if let Some(reply) = request.reply {
                answering.publish(reply, request.payload).await.expect("NATS runs");
            }
        }
    });
    // Until NATS knows the subscription, there is no responder.
    while client.request("plain", TEXT.into()).await.is_err() {}
}

/// Makes calls for a while.
async fn measure(make: &MakeCall, nats: u32, length: Duration) -> Sample {
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (make, is_over, made) = (make.clone(), is_over.clone(), made.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    make().await;
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // The first calls warm up.
    tokio::time::sleep(length / 10).await;
    let (start, cpu, before) = (Instant::now(), cpu_time(nats), made.load(Ordering::Relaxed));
    tokio::time::sleep(length).await;
    let (time, used) = (start.elapsed(), cpu_time(nats) - cpu);
    let calls = (made.load(Ordering::Relaxed) - before).max(1);
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no call fails");
    }
    Sample { per_second: calls as f64 / time.as_secs_f64(), cpu: used.div_f64(calls as f64) }
}

/// Returns the CPU time of this process and nats-server.
fn cpu_time(nats: u32) -> Duration {
    let of = |process: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("this is Linux");
        // The name of the program may contain blanks and ends with a parenthesis.
        let fields: Vec<&str> = text.rsplit_once(')').expect("it has a name").1.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("it is a number");
        ticks(11) + ticks(12)
    };
    // A tick is 10 ms on every Linux.
    Duration::from_millis((of("self") + of(&nats.to_string())) * 10)
}

fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let per_second = samples[samples.len() / 2].per_second;
    samples.sort_by_key(|sample| sample.cpu);
    Sample { per_second, cpu: samples[samples.len() / 2].cpu }
}
