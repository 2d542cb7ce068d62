//! Direct calls to a server found in NATS, calls through NATS, and plain requests of the NATS client, in one run.
//!
//! `cargo bench -p frisbee-rpc-nats` prints calls per second, and the CPU time per call of all processes: this one,
//! with clients and servers, and nats-server. Needs Linux, and nats-server from `tests/nats/build.sh`.
//!
//! | argument | default |
//! |---|---|
//! | `--seconds N`: the length of each of three rounds | 2 |
//! | `--callers N`: the calls in flight on each path | 64 |
//! | `--per-core`: the server of direct calls has one thread per core | the runtime of the callers |

use std::{
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use frpc::{Channel, Engine, Request, Response, Server, Status};
use frpc_nats::{Announcement, NatsCluster, NatsServer};
use futures_util::StreamExt;
use support::{
    NatsProgram,
    echo::{
        Text,
        echo_client::EchoClient,
        echo_server::{Echo, EchoServer},
    },
};

const ROUNDS: usize = 3;
/// A text of 32 bytes.
const TEXT: &str = "a message of thirty-two bytes...";

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
    let place = |name: &str| arguments.iter().position(|argument| argument == name);
    let value = |name: &str| place(name).and_then(|at| arguments.get(at + 1));
    let length = Duration::from_secs_f64(value("--seconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(2.0));
    let callers = value("--callers").and_then(|callers| callers.parse().ok()).unwrap_or(64_usize);
    let engine = if place("--per-core").is_some() { Engine::PerCore } else { Engine::Tokio };
    let nats = program.start("one", "").await;
    let cluster = NatsCluster::new(nats.url());

    let server = Server::builder().engine(engine).add_service(EchoServer::new(Unchanged));
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
    let pid = nats.id().expect("it runs");
    let mut samples = [const { Vec::new() }; 3];
    // Interleaved, so that a busy machine slows all of them.
    let (direct, through) = (EchoClient::new(direct), EchoClient::new(through));
    for _ in 0..ROUNDS {
        samples[0].push(measure(&direct, callers, pid, length).await);
        samples[1].push(measure(&through, callers, pid, length).await);
        samples[2].push(measure(&requester, callers, pid, length).await);
    }
    let medians = samples.map(median);
    println!("{:<24} {:>12} {:>14} {:>8} {:>8}", "path", "calls/s", "CPU per call", "calls", "CPU");
    let paths = ["direct, found in NATS", "through NATS", "request of async-nats"];
    for (name, Sample { per_second, cpu }) in paths.iter().zip(medians) {
        let base = medians[2];
        let (calls, cost) = (per_second / base.per_second, base.cpu.as_secs_f64() / cpu.as_secs_f64());
        println!("{name:<24} {per_second:>12.0} {:>11.2} us {calls:>7.1}x {cost:>6.1}:1", cpu.as_secs_f64() * 1e6);
    }
}

/// Answers calls with their message.
struct Unchanged;

impl Echo for Unchanged {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Ok(Response::new(request.into_inner()))
    }
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

/// A way to make a call. Not a closure: the callers are tasks, and each call must not allocate a future.
trait Path: Clone + Send + 'static {
    fn call(&self) -> impl Future<Output = ()> + Send;
}

impl Path for EchoClient {
    async fn call(&self) {
        let answer = self.echo(Text { text: TEXT.to_owned() }).await.expect("the server answers");
        assert_eq!(answer.into_inner().text, TEXT);
    }
}

impl Path for async_nats::Client {
    async fn call(&self) {
        let answer = self.request("plain", TEXT.into()).await.expect("there is a responder");
        assert_eq!(answer.payload, TEXT);
    }
}

/// Makes calls for a while.
async fn measure(path: &impl Path, callers: usize, nats: u32, length: Duration) -> Sample {
    let is_over = Arc::new(AtomicBool::new(false));
    let made: Vec<_> = (0..callers).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let tasks: Vec<_> = made
        .iter()
        .map(|made| {
            let (path, is_over, made) = (path.clone(), is_over.clone(), made.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    path.call().await;
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let sum = || made.iter().map(|made| made.load(Ordering::Relaxed)).sum::<u64>();
    // The first calls warm up.
    tokio::time::sleep(length / 10).await;
    let (start, cpu, before) = (Instant::now(), cpu_time(nats), sum());
    tokio::time::sleep(length).await;
    let (time, used) = (start.elapsed(), cpu_time(nats) - cpu);
    let calls = (sum() - before).max(1);
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call fails");
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
