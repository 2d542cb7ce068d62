//! A world of nodes in virtual time: servers, channels, publishers and subscribers, and a checker of all that they see.
//!
//! ```text
//!   mod         the world: nodes, phases
//!   wires       the protocols of channels;  batches: those of JSON-RPC;  tls: the links of some worlds
//!   callers     random calls;  publishing: messages;  chaos: faults;  service: the handlers
//!   ledger      the checker;  defect: deliberate defects for it
//!   message     texts whose changes are found
//! ```

mod batches;
mod callers;
mod chaos;
mod defect;
mod ledger;
mod message;
mod publishing;
mod service;
mod tls;
mod wires;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use frisbee_pubsub::{Broker, ClientRouter};
use frpc::{Channel, Config, Server, ServerLimits, Unimplemented};
use frpc_http::{Http, HttpSettings};
use frpc_jsonrpc::{JsonRpc, JsonRpcSettings};
use frpc_sim::{SimNetwork, SimServer};
use serde::{Deserialize, Serialize};
use support::calls::{TestClient, TestServer};
use tokio::{runtime, task::JoinSet, time::sleep};

pub(crate) use self::defect::Defect;
use self::{
    callers::Caller,
    chaos::Chaos,
    defect::DefectLayer,
    ledger::Ledger,
    publishing::Party,
    service::OrderService,
    tls::WorldTls,
    wires::{JSON_RPC_PATH, NodeDialer, Wire},
};
use crate::{deterministic, memory};

/// The result of one world.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct WorldReport {
    pub(crate) seed: u64,
    /// The virtual time with load and faults.
    pub(crate) seconds: f64,
    /// The processor time of the world.
    pub(crate) cpu_seconds: f64,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) violations: Vec<String>,
    /// A hash of all events with their times.
    pub(crate) digest: u64,
}

/// Runs the world of a seed in this process, which must not have run another.
pub(crate) fn run(seed: u64, size: WorldSize, defect: Option<Defect>) -> WorldReport {
    deterministic::begin(seed);
    let mut report = run_once(seed, size, defect);
    if seed.is_multiple_of(MEMORY_CHECKED) {
        // The first worlds fill buffers and counters of the process, and later ones sometimes. A leak grows in each.
        run_once(seed, size, defect);
        let mut grown_least = usize::MAX;
        for _ in 0..MEMORY_WORLDS_MAX {
            let before = memory::in_use();
            run_once(seed, size, defect);
            grown_least = grown_least.min(memory::in_use().saturating_sub(before));
            if grown_least <= MEMORY_GROWTH_MAX {
                break;
            }
        }
        report.counts.insert("memory checks".to_owned(), 1);
        if grown_least > MEMORY_GROWTH_MAX {
            report.violations.push(format!("each repeated world has left {grown_least} bytes or more"));
        }
    }
    report.cpu_seconds = deterministic::processor_seconds();
    report
}

fn run_once(seed: u64, size: WorldSize, defect: Option<Defect>) -> WorldReport {
    fastrand::seed(seed);
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("the system has room for a runtime");
    let world = runtime.block_on(async {
        let world = World::start(size, defect).await;
        world.run(seed).await
    });
    drop(runtime);
    world
}

/// The size of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorldSize {
    /// For the tests: well below a second.
    Short,
    /// For the campaign: up to 32 nodes and five minutes.
    Full,
    /// For the campaign: weeks with few calls, for timers, ages and slow leaks.
    Long,
}

/// The sizes of one world, drawn from its seed.
#[derive(Clone, Debug)]
struct WorldPlan {
    nodes: usize,
    channels: usize,
    length: Duration,
    call_pause: Duration,
    publish_pause_max: Duration,
    fault_pause: Duration,
    connection_age_max: Option<Duration>,
    has_layers: bool,
    /// Faults let the connections of the broker live, so that each message can be accounted for.
    spares_broker: bool,
    /// All links use TLS.
    has_tls: bool,
    config: Config,
    http: HttpSettings,
}

struct World {
    plan: WorldPlan,
    network: SimNetwork,
    servers: Vec<SimServer>,
    tls: Option<WorldTls>,
    ledger: Arc<Ledger>,
    defect: Option<Defect>,
}

impl WorldPlan {
    fn draw(size: WorldSize) -> Self {
        let (nodes_max, seconds, calls_max) = match size {
            WorldSize::Short => (4, 10..30, 250),
            WorldSize::Full => (32, 10..300, 2_500),
            WorldSize::Long => (4, WEEK..6 * WEEK, 25_000),
        };
        let nodes = fastrand::usize(2..=if fastrand::u8(..4) == 0 { nodes_max } else { nodes_max.min(6) });
        let channels = nodes * fastrand::usize(1..=3);
        let length = Duration::from_secs(fastrand::u64(seconds));
        let calls = fastrand::u32(200..calls_max);
        let one = |lens: &[usize]| lens[fastrand::usize(..lens.len())];
        let config = Config {
            outbox_len_max: one(&[1 << 10, 32 << 10, 1 << 20]),
            backlog_max: one(&[2, 32, 1024]),
            handlers_max: one(&[4, 1024]),
            stream_queue_len_max: one(&[8 << 10, 1 << 20]),
            streams_len_max: one(&[4 << 20, 32 << 20]),
            streams_max: one(&[32, 1024]),
            checksums: fastrand::bool(),
            ..Config::default()
        };
        let config = match size {
            WorldSize::Short | WorldSize::Full => config,
            // Pings of the default twice a second would take most of the processor time.
            WorldSize::Long => Config {
                ping_interval: Some(Duration::from_secs(30)),
                silence_max: Some(Duration::from_secs(60)),
                ..config
            },
        };
        let http =
            HttpSettings { streams_max: u32::try_from(one(&[4, 256])).unwrap_or(256), ..HttpSettings::default() };
        let call_pause = (length * u32::try_from(channels).unwrap_or(1) / calls).max(Duration::from_millis(1));
        let (fault_pause, publish_pause_max, connection_age_max) = match size {
            WorldSize::Short | WorldSize::Full => {
                (Duration::from_millis(fastrand::u64(300..6_000)), Duration::from_millis(150), None)
            }
            WorldSize::Long => {
                let age_max = Duration::from_secs(fastrand::u64(60..WEEK));
                (length / fastrand::u32(100..2_000), length / 4_000, fastrand::bool().then_some(age_max))
            }
        };
        let (has_layers, spares_broker) = (fastrand::bool(), fastrand::bool());
        let has_tls = fastrand::u8(..TLS_SHARE) == 0;
        Self {
            nodes,
            channels,
            length,
            call_pause,
            publish_pause_max,
            fault_pause,
            connection_age_max,
            has_layers,
            spares_broker,
            has_tls,
            config,
            http,
        }
    }
}

impl World {
    async fn start(size: WorldSize, defect: Option<Defect>) -> Self {
        let (plan, network, ledger) = (WorldPlan::draw(size), SimNetwork::new(), Arc::new(Ledger::new()));
        let service = OrderService { ledger: ledger.clone(), defect, last_call: Arc::default() };
        let at_server = plan.clone();
        // TLS turns most defects of a network into lost connections.
        let tls = (plan.has_tls && defect.is_none()).then(|| WorldTls::new(plan.nodes));
        let tls_at_server = tls.as_ref().map(|tls| tls.server.clone());
        let servers = network.servers(plan.nodes, move |faults| {
            let broker = Broker::new();
            // No TCP keepalive finds half-open connections here.
            let idle_max = Some(Duration::from_secs(60));
            let json_rpc = JsonRpc::new().settings(JsonRpcSettings { idle_max, ..JsonRpcSettings::default() });
            let limits = ServerLimits { connection_age_max: at_server.connection_age_max, ..ServerLimits::default() };
            let server = Server::builder().config(at_server.config.clone()).limits(limits);
            let server = if at_server.has_layers { server.layer(faults) } else { server };
            let server = match &tls_at_server {
                Some(config) => server.tls(config.clone()),
                None => server,
            };
            server
                .add_service(TestServer::new(service.clone()))
                .router(broker.over(Unimplemented))
                .wire(Http::new().settings(at_server.http.clone()).mount(JSON_RPC_PATH, json_rpc.clone()))
                .wire(json_rpc)
                .without_listener()
        });
        ledger.count("worlds with TLS", u64::from(tls.is_some()));
        Self { plan, network, servers, tls, ledger, defect }
    }

    async fn run(self, seed: u64) -> WorldReport {
        let WorldPlan { channels, length, fault_pause, spares_broker, .. } = self.plan;
        let mut callers = Vec::new();
        let publish_pause_max = self.plan.publish_pause_max;
        let party = Party::new(self.ledger.clone(), self.defect, 3, "orders".to_owned(), publish_pause_max);
        let mut publishers = Vec::new();
        for number in 0..channels {
            // The first channels share the broker of one node.
            let wire = if number < 2 { Wire::Frisbee } else { Wire::draw() };
            let target = if number < 2 { 0 } else { fastrand::usize(..self.servers.len()) };
            let inbox = frisbee_pubsub::Client::builder().router();
            let client = inbox.client();
            let Some(caller) = self.connect(number, target, wire, inbox).await else { continue };
            if wire.has_packets() && target == 0 {
                for _ in 0..fastrand::usize(1..4) {
                    party.subscribe(&client).await;
                }
                publishers.push(party.clone().publish(client, number as u64, length));
            }
            callers.push(caller);
        }
        // All subscriptions exist, so each of them gets all messages.
        let publishing: JoinSet<_> = publishers.into_iter().collect();
        let mut calling = JoinSet::new();
        for caller in &callers {
            calling.spawn(caller.clone().run(length));
        }
        let chaos = Chaos { servers: &self.servers, ledger: &self.ledger, spares_broker };
        let faults = chaos.break_servers(length, fault_pause);
        let ended = tokio::join!(faults, calling.join_all(), publishing.join_all());
        drop(ended);
        let seconds = self.ledger.elapsed().as_secs_f64();
        self.prove_health(&callers, &party).await;
        self.prove_end(callers, &party).await;
        party.close();
        let faults = self.network.link_faults();
        self.ledger.count("faults", faults);
        let (counts, violations, digest) = self.ledger.close();
        let counts = counts.into_iter().map(|(what, count)| (what.to_owned(), count)).collect();
        WorldReport { seed, seconds, cpu_seconds: 0.0, counts, violations, digest }
    }

    async fn connect(&self, number: usize, target: usize, wire: Wire, inbox: ClientRouter) -> Option<Caller> {
        let name = self.servers[target].name();
        let mut builder = Channel::builder().config(self.plan.config.clone());
        if matches!(self.defect, Some(Defect::ClaimsNotSent | Defect::Hangs)) {
            builder = builder.layer(DefectLayer(self.defect));
        }
        let dialer = NodeDialer::new(&self.network, self.tls.clone(), self.defect);
        let channel = wire.connect(builder, inbox, name, dialer, self.ledger.clone()).await;
        let name: Arc<str> = format!("channel {number} over {wire:?} to {name}").into();
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => {
                self.ledger.violate(format!("{name} cannot connect before the first fault: {error}"));
                return None;
            }
        };
        let (ledger, defect, pause) = (self.ledger.clone(), self.defect, self.plan.call_pause);
        Some(Caller { client: TestClient::new(channel), ledger, name, wire, defect, pause })
    }

    /// Checks each channel without faults: calls, credits, and the resources of servers.
    async fn prove_health(&self, callers: &[Caller], party: &Party) {
        party.catch_up();
        for caller in callers {
            caller.prove_healthy().await;
        }
        // Longer than the keepalive of all wires.
        sleep(Duration::from_secs(120)).await;
        party.end();
        for server in &self.servers {
            let Some(metrics) = server.inspect(Server::metrics) else { continue };
            let (name, here) = (server.name(), format!(" to {}", server.name()));
            let here: Vec<_> = callers.iter().filter(|caller| caller.name.ends_with(&here)).collect();
            let channels = here.len();
            // Channels over HTTP/2 open more connections for more calls than the server allows on one.
            let is_small = self.plan.http.streams_max < HttpSettings::default().streams_max;
            let has_several = is_small || here.iter().any(|caller| caller.wire.has_many_connections());
            let is_over = !has_several && metrics.connections > channels;
            if metrics.handlers > 0 || metrics.outbox_len > 0 || is_over {
                let (handlers, outbox_len, open) = (metrics.handlers, metrics.outbox_len, metrics.connections);
                self.ledger.violate(format!(
                    "{name} with {channels} idle channels: {handlers} handlers, {outbox_len} bytes queued, {open} connections"
                ));
            }
        }
    }

    /// Ends all servers and channels, and checks that no task is left.
    async fn prove_end(&self, callers: Vec<Caller>, party: &Party) {
        drop(callers);
        for server in &self.servers {
            match fastrand::bool() {
                true => server.shut_down(Duration::from_secs(5)).await,
                false => server.kill(),
            }
        }
        party.end();
        sleep(Duration::from_secs(120)).await;
        let left = runtime::Handle::current().metrics().num_alive_tasks();
        if left > 0 {
            self.ledger.violate(format!("{left} tasks are left after the end of all servers and channels"));
        }
    }
}

/// A week in seconds.
const WEEK: u64 = 7 * 24 * 3600;
/// One of this many seeds checks its memory with more runs.
const MEMORY_CHECKED: u64 = 16;
/// One of this many worlds has TLS.
const TLS_SHARE: u8 = 8;
/// The number of further worlds, if each of them leaves memory.
const MEMORY_WORLDS_MAX: u32 = 4;
/// The tolerance for memory that is kept for later worlds.
const MEMORY_GROWTH_MAX: usize = 64 << 10;
