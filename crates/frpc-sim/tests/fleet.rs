//! A channel to 100 servers with all faults together: the promises of docs/fleet.md. A seed decides each simulation.
//!
//! `FLEET_SEEDS` sets the number of simulations with hedging. Simulations without it are an eighth.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::{BTreeMap, HashMap},
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{
    Answer, Call, CallError, Channel, Layer, Method, Next, Request, Response, Server, Status,
    fleet::{FleetSettings, HedgingPolicy, RetrySettings},
    testing::FaultRates,
};
use frpc_sim::{NetworkFaults, SimNetwork, SimServer};
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

/// The service of all servers.
#[derive(Clone, Default)]
struct Work {
    /// The executions of each call.
    executions: Arc<Mutex<HashMap<String, u32>>>,
    /// All executions, in order.
    log: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Echo for Work {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let id = &request.get_ref().text;
        *self.executions.lock().unwrap().entry(id.clone()).or_default() += 1;
        self.log.lock().unwrap().push((Instant::now(), id.clone()));
        sleep(WORK).await;
        Ok(request.into_inner().into())
    }
}

/// Counts the attempts at all servers, before their faults.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<usize>>);

impl Layer for Arrivals {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        *self.0.lock().unwrap() += 1;
        next.run(call).await
    }
}

#[derive(Debug)]
struct Outcome {
    id: String,
    is_idempotent: bool,
    begun: Duration,
    latency: Duration,
    /// The latency for a caller that knows the state of all servers.
    oracle: Duration,
    result: Result<(), Status>,
}

/// The servers, and the load on them.
struct Simulation {
    network: SimNetwork,
    servers: Vec<SimServer>,
    service: Work,
    arrivals: Arrivals,
    /// The time of the death of each dead or restarted server.
    deaths: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Simulation {
    fn start() -> Self {
        let (network, service, arrivals) = (SimNetwork::new(), Work::default(), Arrivals::default());
        let (serving, arriving) = (service.clone(), arrivals.clone());
        let servers = network.servers(SERVERS, move |faults| {
            let echo = EchoServer::new(serving.clone());
            Server::builder().layer(arriving.clone()).layer(faults).add_service(echo).without_listener()
        });
        Self { network, servers, service, arrivals, deaths: Arc::default() }
    }

    async fn connect(&self, hedging: Option<HedgingPolicy>) -> Channel {
        let retry = RetrySettings { hedging, ..RetrySettings::default() };
        let settings = FleetSettings { retry, ..FleetSettings::default() };
        let channel = Channel::builder().transport(self.network.transport()).fleet(settings);
        channel.connect(self.network.target()).await.unwrap()
    }

    /// Breaks servers, restarts all others one after another, and lets the answers of the resolver flap.
    async fn break_all(&self, length: Duration) {
        let [slow, failing, black_hole, dead, restarting @ ..] = &*self.servers else { unreachable!("100 servers") };
        slow.set_fault_rates(slowed());
        failing.set_fault_rates(FaultRates { failed: 0.5, ..FaultRates::default() });
        sleep(length / 20).await;
        self.note_death(black_hole);
        black_hole.set_faults(|faults| faults.is_black_hole = true);
        self.note_death(dead);
        dead.kill();
        let pause = length * 3 / 4 / u32::try_from(restarting.len()).unwrap();
        let restarts = async {
            for server in restarting {
                self.note_death(server);
                match fastrand::bool() {
                    true => server.shut_down(Duration::from_secs(1)).await,
                    false => server.kill(),
                }
                sleep(pause / 2).await;
                server.start();
                sleep(pause / 2).await;
            }
        };
        let flaps = async {
            loop {
                sleep(Duration::from_millis(fastrand::u64(500..3_000))).await;
                let share = if fastrand::bool() { 0.5 } else { 1.0 };
                self.network.publish(self.servers.iter().filter(|_| fastrand::f64() < share));
            }
        };
        tokio::join!(restarts, flaps);
    }

    fn note_death(&self, server: &SimServer) {
        self.deaths.lock().unwrap().insert(server.name().to_owned(), Instant::now());
    }

    /// Returns the latency of the best server now. A server works at any number of calls at the same time, so the load
    /// makes no difference.
    fn oracle(&self) -> Duration {
        let usable = |server: &SimServer| {
            let NetworkFaults { latency, is_black_hole, is_partitioned, .. } = server.faults();
            let is_usable = server.is_running() && !is_black_hole && !is_partitioned;
            is_usable.then_some(latency * 2 + WORK)
        };
        // The first two servers are slow or failing.
        self.servers[2..].iter().filter_map(usable).min().expect("a good server remains")
    }

    /// Makes calls at a steady rate.
    async fn load(&self, channel: Channel, length: Duration) -> Vec<Outcome> {
        let start = Instant::now();
        let mut calls = JoinSet::new();
        for number in 0.. {
            let begun = Instant::now();
            if begun - start >= length {
                break;
            }
            let (channel, is_idempotent, oracle) = (channel.clone(), number % 4 != 0, self.oracle());
            calls.spawn(async move {
                let (id, method) = (format!("{CALL_PREFIX}{number}"), if is_idempotent { &IDEMPOTENT } else { &PLAIN });
                let answer = channel.unary::<_, Text>(method, Text { text: id.clone() }).await;
                let result = answer.map(|answer| assert_eq!(answer.get_ref().text, id));
                Outcome { id, is_idempotent, begun: begun - start, latency: begun.elapsed(), oracle, result }
            });
            sleep(BETWEEN_CALLS).await;
        }
        let mut outcomes = calls.join_all().await;
        outcomes.sort_unstable_by_key(|outcome| outcome.begun);
        outcomes
    }

    /// Runs the load with all faults.
    async fn run(&self, hedging: Option<HedgingPolicy>, length: Duration) -> Vec<Outcome> {
        let channel = self.connect(hedging).await;
        tokio::select! {
            biased;
            outcomes = self.load(channel, length) => outcomes,
            () = self.break_all(length) => unreachable!("the answers of the resolver flap for ever"),
        }
    }

    /// No idempotent call fails, and no other call is executed twice.
    fn check_outcomes(&self, outcomes: &[Outcome]) {
        let executions = self.service.executions.lock().unwrap();
        for Outcome { id, is_idempotent, begun, result, .. } in outcomes {
            match result {
                Ok(()) => {}
                Err(status) if *is_idempotent => panic!("{id} after {begun:?}: {status:?}"),
                Err(status) => {
                    let is_lost = |error: &CallError| !error.is_safe_to_repeat();
                    let is_fault = status.call_error().map_or(status.message() == "an injected failure", is_lost);
                    assert!(is_fault, "{id} after {begun:?}: {status:?}");
                }
            }
            let count = executions.get(id).copied().unwrap_or_default();
            assert!(*is_idempotent || count <= 1, "{id} was executed {count} times");
        }
    }

    /// Returns all that servers, callers and the network have seen.
    fn log(&self, start: Instant, outcomes: &[Outcome]) -> Vec<String> {
        let executions = self.service.log.lock().unwrap();
        let executed = executions.iter().map(|(time, id)| format!("{:?}: {id} is executed", *time - start));
        let ended = outcomes.iter().map(|outcome| format!("{outcome:?}"));
        let lost = self.servers.iter().flat_map(|server| {
            let name = server.name();
            server.lost().into_iter().map(move |(time, bytes)| format!("{:?}: {name} lost {bytes:?}", time - start))
        });
        executed.chain(ended).chain(lost).collect()
    }

    /// Returns the times of calls to this server after its death, from then on.
    fn calls_after_death(&self, server: &SimServer) -> Vec<Duration> {
        let Some(death) = self.deaths.lock().unwrap().get(server.name()).copied() else { return Vec::new() };
        let mut times = Vec::new();
        for (time, bytes) in server.lost() {
            let calls = bytes.windows(CALL_PREFIX.len()).filter(|window| *window == CALL_PREFIX.as_bytes());
            times.extend(calls.map(|_| time - death));
        }
        times
    }

    /// A dead server gets three calls at most, or none after a second.
    fn check_dead_servers(&self) {
        for server in &self.servers {
            let calls = self.calls_after_death(server);
            let is_out = calls.len() <= 3 || calls.iter().all(|after| *after <= Duration::from_secs(1));
            assert!(is_out, "{} got calls after its death: {calls:?}", server.name());
        }
    }

    /// Retries and parallel attempts add 20 % to the load at most.
    fn check_load(&self, outcomes: &[Outcome]) {
        let lost: usize = self.servers.iter().map(|server| self.calls_after_death(server).len()).sum();
        let attempts = *self.arrivals.0.lock().unwrap() + lost;
        assert!(attempts * 5 <= outcomes.len() * 6, "{attempts} attempts of {} calls", outcomes.len());
    }
}

/// Returns the 99th percentile.
fn p99(latencies: impl Iterator<Item = Duration>) -> Duration {
    let mut latencies: Vec<_> = latencies.collect();
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// Makes a server ten times as slow.
fn slowed() -> FaultRates {
    FaultRates { delayed: 1.0, delay: WORK * 9..=WORK * 9, ..FaultRates::default() }
}

fn seeds() -> u64 {
    env::var("FLEET_SEEDS").map_or(200, |text| text.parse().expect("FLEET_SEEDS is a number"))
}

#[test]
fn a_channel_with_hedging_is_as_fast_as_an_oracle_under_all_faults_together() {
    let ratios = Mutex::new(Vec::new());
    frpc_sim::run(seeds(), async || {
        let simulation = Simulation::start();
        let outcomes = simulation.run(Some(HedgingPolicy::default()), LENGTH).await;
        simulation.check_outcomes(&outcomes);
        simulation.check_dead_servers();
        simulation.check_load(&outcomes);
        let idempotent = || outcomes.iter().filter(|outcome| outcome.is_idempotent);
        let (real, oracle) = (p99(idempotent().map(|call| call.latency)), p99(idempotent().map(|call| call.oracle)));
        assert!(real <= oracle * 2, "p99 is {real:?}, that of an oracle {oracle:?}");
        let missed = idempotent().filter(|call| call.latency > call.oracle * 6 / 5).count();
        ratios
            .lock()
            .unwrap()
            .push((real.as_secs_f64() / oracle.as_secs_f64(), missed as f64 / idempotent().count() as f64));
    });
    let ratios = ratios.into_inner().unwrap();
    // About one of a thousand worlds has one slow call too many.
    let slow = ratios.iter().filter(|(ratio, _)| *ratio > 1.2).count();
    assert!(slow * 100 <= ratios.len(), "p99 exceeds that of an oracle by 20 % in {slow} of {} worlds", ratios.len());
    let worst = ratios.iter().fold((0.0, 0.0), |worst: (f64, f64), one| (worst.0.max(one.0), worst.1.max(one.1)));
    let mean = ratios.iter().map(|one| one.1).sum::<f64>() / ratios.len() as f64;
    let (ratio, most) = worst;
    assert!(mean <= 0.003, "{:.2} % of all calls take longer than 1.2 times the time of an oracle", mean * 100.0);
    println!(
        "{} simulations: p99 at most {ratio:.2} times that of an oracle; {:.2} % of the calls take longer than 1.2 times, at most {:.2} %",
        ratios.len(),
        mean * 100.0,
        most * 100.0
    );
}

#[test]
fn a_channel_with_retries_loses_no_idempotent_call_under_all_faults_together() {
    frpc_sim::run(seeds().div_ceil(8), async || {
        let simulation = Simulation::start();
        let outcomes = simulation.run(None, LENGTH).await;
        simulation.check_outcomes(&outcomes);
        simulation.check_dead_servers();
        simulation.check_load(&outcomes);
    });
}

#[test]
fn a_seed_decides_each_event_and_its_time() {
    let logs = || {
        let logs = Mutex::new(BTreeMap::new());
        frpc_sim::run(seeds().div_ceil(50), async || {
            let (key, start, simulation) = (fastrand::u64(..), Instant::now(), Simulation::start());
            let hedging = fastrand::bool().then(HedgingPolicy::default);
            let outcomes = simulation.run(hedging, LENGTH).await;
            logs.lock().unwrap().insert(key, simulation.log(start, &outcomes));
        });
        logs.into_inner().unwrap()
    };
    let (first, second) = (logs(), logs());
    assert!(first.keys().eq(second.keys()), "the first number of a simulation differs");
    let differ = |(one, other): &(&Vec<String>, &Vec<String>)| one != other;
    let different: Vec<_> = first.values().zip(second.values()).filter(differ).collect();
    let lines: Vec<_> =
        different.iter().filter_map(|(one, other)| one.iter().zip(*other).find(|(one, other)| one != other)).collect();
    assert!(different.is_empty(), "{} of {} simulations differ, first here: {lines:#?}", different.len(), first.len());
}

#[test]
fn a_slow_server_stays_slow_when_it_returns_to_the_set() {
    frpc_sim::run(5, async || {
        let simulation = Simulation::start();
        let channel = simulation.connect(Some(HedgingPolicy::default())).await;
        let slow = &simulation.servers[0];
        slow.set_fault_rates(slowed());
        let flaps = async {
            loop {
                sleep(Duration::from_millis(500)).await;
                simulation.network.publish(&simulation.servers[1..]);
                sleep(Duration::from_millis(500)).await;
                simulation.network.publish(&simulation.servers);
            }
        };
        let outcomes = tokio::select! {
            biased;
            outcomes = simulation.load(channel, LENGTH) => outcomes,
            () = flaps => unreachable!("the answers of the resolver flap for ever"),
        };
        let slow = outcomes.iter().filter(|call| call.latency > call.oracle * 6 / 5).count();
        // It returns twenty times.
        assert!(slow < 10, "{slow} slow calls");
    });
}

const SERVERS: usize = 100;
const WORK: Duration = Duration::from_millis(5);
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
/// The time with calls.
const LENGTH: Duration = Duration::from_secs(10);
/// The start of each request, found again among lost bytes.
const CALL_PREFIX: &str = "call ";
