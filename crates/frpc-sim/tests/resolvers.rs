//! A channel whose resolver lies, lags and vanishes: calls go on while a good server is known.
//!
//! `FRPC_SIM_SEEDS` sets the number of simulations of each test.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{Channel, Method, Request, Response, Server, Status};
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

/// The service of one server. Counts its calls.
#[derive(Clone)]
struct Work {
    number: usize,
    calls: Arc<Mutex<HashMap<usize, usize>>>,
}

impl Echo for Work {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        *self.calls.lock().unwrap().entry(self.number).or_default() += 1;
        sleep(Duration::from_millis(2)).await;
        Ok(request.into_inner().into())
    }
}

/// Servers, the first half of which never stops.
struct Simulation {
    network: SimNetwork,
    servers: Vec<SimServer>,
    calls: Arc<Mutex<HashMap<usize, usize>>>,
}

impl Simulation {
    async fn start() -> (Self, Channel) {
        let (network, calls) = (SimNetwork::new(), Arc::<Mutex<HashMap<usize, usize>>>::default());
        let servers = (0..SERVERS).flat_map(|number| {
            let work = Work { number, calls: calls.clone() };
            network.servers(1, move |faults| {
                Server::builder().layer(faults).add_service(EchoServer::new(work.clone())).without_listener()
            })
        });
        let servers = servers.collect();
        let channel = Channel::builder().transport(network.transport()).connect(network.target()).await.unwrap();
        // All connections are there.
        sleep(SECOND).await;
        (Self { network, servers, calls }, channel)
    }

    fn stable(&self) -> &[SimServer] {
        &self.servers[..SERVERS / 2]
    }

    /// Gives one wrong or late answer. Each set has a server that never stops, or no running server at all.
    async fn lie(&self, gone: &mut usize) {
        let mut ghosts = |count: usize| {
            let names: Vec<_> = (*gone..*gone + count).map(|number| format!("gone-{number}")).collect();
            *gone += count;
            names
        };
        let name = |server: &SimServer| server.name().to_owned();
        let some = |servers: &[SimServer]| servers.iter().filter(|_| fastrand::bool()).map(name).collect::<Vec<_>>();
        match fastrand::u32(..9) {
            0 => self.network.publish(&self.servers),
            1 => self.network.publish_names(ghosts(fastrand::usize(1..30))),
            2 => self.network.publish_names([]),
            3 => self.network.fail_resolver(),
            // Stale and dead addresses around a good one.
            4 => {
                let good = &self.stable()[fastrand::usize(..self.stable().len())];
                self.network.publish_names(ghosts(10).into_iter().chain([name(good)]));
            }
            5 => self.network.publish(&self.stable()[..1]),
            6 => {
                let good = &self.stable()[fastrand::usize(..self.stable().len())];
                self.network.publish_names(some(&self.servers).into_iter().chain([name(good)]));
            }
            // Flaps, faster than connections are made.
            7 => {
                for _ in 0..fastrand::u32(2..30) {
                    let half = fastrand::usize(1..SERVERS / 2);
                    self.network.publish(&self.stable()[half - 1..half]);
                    sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
                    self.network.publish_names(ghosts(3));
                    sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
                }
            }
            // Those of the start, and many that are gone.
            _ => self.network.publish_names(self.servers.iter().map(name).chain(ghosts(40))),
        }
    }

    /// Stops and starts the servers of the second half.
    async fn restart_others(&self) {
        loop {
            let server = &self.servers[fastrand::usize(SERVERS / 2..SERVERS)];
            match (server.is_running(), fastrand::bool()) {
                (true, true) => server.kill(),
                (true, false) => server.shut_down(SECOND).await,
                (false, _) => server.start(),
            }
            sleep(Duration::from_millis(fastrand::u64(20..300))).await;
        }
    }

    /// Makes calls at a steady rate. No idempotent call fails, and others fail only if they may have been executed.
    async fn load(&self, channel: &Channel, count: usize) {
        let mut calls = JoinSet::new();
        for number in 0..count {
            let (channel, is_idempotent, begun) = (channel.clone(), number % 4 != 0, Instant::now());
            calls.spawn(async move {
                let method = if is_idempotent { &IDEMPOTENT } else { &PLAIN };
                let answer = channel.unary::<_, Text>(method, Text { text: number.to_string() }).await;
                if let Err(status) = answer {
                    let is_lost = status.call_error().is_some_and(|error| !error.is_safe_to_repeat());
                    assert!(!is_idempotent && is_lost, "call {number} after {:?}: {status:?}", begun.elapsed());
                }
            });
            sleep(Duration::from_millis(5)).await;
        }
        calls.join_all().await;
    }
}

#[test]
fn no_call_fails_while_the_resolver_lies_lags_and_vanishes() {
    frpc_sim::run(12, async || {
        let (simulation, channel) = Simulation::start().await;
        let lying = async {
            let mut gone = 0;
            for _ in 0..30 {
                simulation.lie(&mut gone).await;
                sleep(Duration::from_millis(fastrand::u64(..400))).await;
            }
            if fastrand::bool() {
                simulation.network.end_resolver();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = simulation.load(&channel, 2_000) => {}
            () = lying => unreachable!("it waits for the end"),
            () = simulation.restart_others() => unreachable!("it restarts for ever"),
        }
    });
}

#[test]
fn healthy_servers_stay_in_use_after_useless_answers() {
    frpc_sim::run(10, async || {
        let (simulation, channel) = Simulation::start().await;
        match fastrand::u32(..5) {
            0 => simulation.network.publish_names([]),
            1 => simulation.network.fail_resolver(),
            2 => simulation.network.end_resolver(),
            3 => simulation.network.publish_names((0..20).map(|number| format!("gone-{number}"))),
            _ => {
                for round in 0..50 {
                    simulation.network.publish_names([format!("gone-{round}")]);
                    sleep(Duration::from_millis(10)).await;
                    simulation.network.fail_resolver();
                }
            }
        }
        sleep(SECOND).await;
        simulation.calls.lock().unwrap().clear();
        simulation.load(&channel, 40 * SERVERS).await;
        let calls = simulation.calls.lock().unwrap().clone();
        assert_eq!(calls.len(), SERVERS, "some servers get no calls any more: {calls:?}");
    });
}

#[test]
fn a_new_set_replaces_servers_as_soon_as_one_of_it_is_connected() {
    frpc_sim::run(5, async || {
        let (simulation, channel) = Simulation::start().await;
        // The new servers do not run yet.
        let (before, after) = simulation.servers.split_at(SERVERS / 2);
        after.iter().for_each(SimServer::kill);
        sleep(SECOND).await;
        simulation.network.publish(after);
        simulation.load(&channel, 400).await;
        after[0].start();
        // Longer than the pause between two attempts to connect.
        sleep(130 * SECOND).await;
        simulation.calls.lock().unwrap().clear();
        simulation.load(&channel, 100).await;
        let calls = simulation.calls.lock().unwrap().clone();
        assert_eq!(calls, HashMap::from([(before.len(), 100)]), "the former servers are gone");
    });
}

const SERVERS: usize = 20;
const SECOND: Duration = Duration::from_secs(1);
