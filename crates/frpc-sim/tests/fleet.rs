//! A channel to 100 servers with all faults together: the promises of docs/fleet.md.
//!
//! `FRPC_SIM_SEEDS` sets the number of simulations.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{
    CallError, Channel, Method, Request, Response, Server, Status,
    fleet::{FleetSettings, HedgingPolicy, RetrySettings},
};
use frpc_sim::{SimNetwork, SimServer};
use support::echo::{
    Text, echo_methods,
    echo_server::{Echo, EchoServer},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

static IDEMPOTENT: Method = echo_methods::ECHO.idempotent();
static PLAIN: Method = echo_methods::ECHO;

/// The executions of each call.
type Executions = Arc<Mutex<HashMap<String, u32>>>;

#[derive(Clone, Default)]
struct Counting(Executions);

impl Echo for Counting {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        *self.0.lock().unwrap().entry(request.get_ref().text.clone()).or_default() += 1;
        sleep(WORK).await;
        Ok(request.into_inner().into())
    }
}

struct Outcome {
    id: String,
    is_idempotent: bool,
    begun: Duration,
    latency: Duration,
    result: Result<(), Status>,
}

/// Makes calls at a steady rate for some time.
async fn load(channel: Channel, length: Duration) -> Vec<Outcome> {
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0.. {
        let begun = Instant::now();
        if begun - start >= length {
            break;
        }
        let (channel, is_idempotent) = (channel.clone(), number % 4 != 0);
        calls.spawn(async move {
            let (id, method) = (number.to_string(), if is_idempotent { &IDEMPOTENT } else { &PLAIN });
            let answer = channel.unary::<_, Text>(method, Text { text: id.clone() }).await;
            let result = answer.map(|answer| assert_eq!(answer.get_ref().text, id));
            Outcome { id, is_idempotent, begun: begun - start, latency: begun.elapsed(), result }
        });
        sleep(BETWEEN_CALLS).await;
    }
    let mut outcomes = calls.join_all().await;
    outcomes.sort_unstable_by_key(|outcome| outcome.begun);
    outcomes
}

/// Restarts all servers one after another, gracefully or not.
async fn restart_all(servers: Vec<SimServer>, pause: Duration) {
    for server in servers {
        match fastrand::bool() {
            true => server.shut_down(Duration::from_secs(1)).await,
            false => server.kill(),
        }
        sleep(pause / 2).await;
        server.start();
        sleep(pause / 2).await;
    }
}

/// Changes the answers of the resolver: a random half, or all.
async fn flap(network: SimNetwork, servers: Vec<SimServer>) {
    loop {
        sleep(Duration::from_millis(fastrand::u64(500..3_000))).await;
        let share = if fastrand::bool() { 0.5 } else { 1.0 };
        let found: Vec<_> = servers.iter().filter(|_| fastrand::f64() < share).collect();
        network.publish(found);
    }
}

fn settings(hedging: Option<HedgingPolicy>) -> FleetSettings {
    let retry = RetrySettings { hedging, ..RetrySettings::default() };
    FleetSettings { retry, ..FleetSettings::default() }
}

/// Returns the latency of idempotent calls below which this percentage is.
fn percentile(outcomes: &[Outcome], share: usize) -> Duration {
    let mut latencies: Vec<_> =
        outcomes.iter().filter(|outcome| outcome.is_idempotent).map(|outcome| outcome.latency).collect();
    latencies.sort_unstable();
    latencies[latencies.len() * share / 100]
}

#[test]
fn no_idempotent_call_fails_under_all_faults_together() {
    frpc_sim::run(10, async || {
        let (service, network) = (Counting::default(), SimNetwork::new());
        let counting = service.clone();
        let servers = network.servers(SERVERS, move |faults| {
            Server::builder().layer(faults).add_service(EchoServer::new(counting.clone())).without_listener()
        });
        let channel = Channel::builder().transport(network.transport()).fleet(settings(Some(HedgingPolicy::default())));
        let channel = channel.connect(network.target()).await.unwrap();
        servers[0].set_faults(|faults| faults.delay = WORK * 9);
        servers[1].set_faults(|faults| faults.failing = 0.5);
        let (length, black_hole) = (Duration::from_secs(20), servers[2].clone());
        let faults = tokio::spawn({
            let (network, servers) = (network.clone(), servers.clone());
            async move {
                sleep(Duration::from_secs(1)).await;
                black_hole.set_faults(|faults| faults.is_black_hole = true);
                let restarting = servers[3..].to_vec();
                tokio::join!(restart_all(restarting, Duration::from_millis(150)), flap(network, servers));
            }
        });
        let outcomes = load(channel, length).await;
        faults.abort();
        let executions = service.0.lock().unwrap();
        for Outcome { id, is_idempotent, begun, result, .. } in &outcomes {
            match result {
                Ok(()) => {}
                Err(status) if *is_idempotent => panic!("call {id} after {begun:?}: {status:?}"),
                Err(status) => {
                    let is_lost = |error: &CallError| !error.is_safe_to_repeat();
                    let is_fault = status.call_error().map_or(status.message() == "a simulated failure", is_lost);
                    assert!(is_fault, "call {id} after {begun:?}: {status:?}");
                }
            }
            let count = executions.get(id).copied().unwrap_or_default();
            assert!(*is_idempotent || count <= 1, "call {id} was executed {count} times");
        }
        // A caller that knows all faults needs as long as the work takes.
        assert!(percentile(&outcomes, 95) <= WORK * 6 / 5, "{:?}", percentile(&outcomes, 95));
        assert!(percentile(&outcomes, 99) <= WORK * 3, "{:?}", percentile(&outcomes, 99));
        let attempts: u32 = executions.values().sum();
        let allowed = outcomes.len() as f64 * 1.2 + length.as_secs_f64() * 10.0;
        assert!(f64::from(attempts) <= allowed, "{attempts} executions of {} calls", outcomes.len());
    });
}

const SERVERS: usize = 100;
const WORK: Duration = Duration::from_millis(5);
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
