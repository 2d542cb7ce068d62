//! The tasks of a channel to several servers: one follows the resolver, one for each endpoint keeps it connected.
//!
//! ```text
//!              ┌──────────── pause ◄───────────┐
//!              ▼                               │ failed
//!   new ─► connecting ─────────────────────────┤
//!              ▲   │ connected                 │ lost before an answer
//!   lost after │   ▼                           │
//!   an answer  ├─ ready ───────────────────────┤
//!              │   ▲ │ its health changes      │
//!              │   │ ▼                         │
//!              └─ unhealthy ───────────────────┘
//! ```
//!
//! From each state, an endpoint missing from a new set is removed, but a ready one only after an endpoint of the new set is
//! ready. Its calls in flight finish.

use std::{
    future::pending,
    io,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use frisbee::{ConnectRetry, clock::TIME_MAX, task::AbortOnDropHandle};
use frpc_balance::PickPolicy;
use futures_util::stream::{self, BoxStream, FuturesUnordered, StreamExt};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tracing::{debug, info};

use super::{
    ready::ReadyEndpoint,
    resolve::{Endpoint, Endpoints, Refresh, Resolve},
    resolved::CurrentSettings,
    server::ConnectedServer,
    set::{ClusterFleet, Fleet},
    settings::FleetSettings,
};
use crate::{
    call::{connects::OpenConnection, meter::CallMeter},
    client::RedialPauses,
    error::ConnectError,
    service::boxed::BoxFuture,
};

/// Connects to an endpoint, with one attempt.
pub(crate) type ConnectEndpoint =
    dyn Fn(Endpoint) -> BoxFuture<'static, Result<ConnectedServer, ConnectError>> + Send + Sync;

/// Creates the set of the endpoints of a resolver, and starts to connect to them.
pub(crate) fn start(
    resolver: Arc<dyn Resolve>,
    settings: FleetSettings,
    connect_retry: ConnectRetry,
    connect: Arc<ConnectEndpoint>,
    meter: Option<Arc<CallMeter>>,
) -> Arc<Fleet> {
    let fleet = Arc::new(Fleet::new(settings, connect_retry, Refresh::default(), meter));
    FleetSource { fleet: Arc::downgrade(&fleet), resolver, connect }.start();
    fleet
}

/// The source of the endpoints of a set, and the means to connect to them.
struct FleetSource {
    fleet: Weak<Fleet>,
    resolver: Arc<dyn Resolve>,
    connect: Arc<ConnectEndpoint>,
}

impl FleetSource {
    /// Starts the tasks of the set on the current runtime.
    fn start(self) {
        let Some(fleet) = self.fleet.upgrade() else { return };
        let (sets, connect) = (self.resolver.resolve(fleet.refresh().clone()), self.connect.clone());
        let following = follow(self.fleet.clone(), sets, connect, fleet.current().clone(), StopNotifier(Some(self)));
        fleet.keep_task(AbortOnDropHandle::new(tokio::spawn(following)));
    }
}

/// Returns the source to its set when a runtime that ends drops the task. The next call, or one that waits, starts the tasks
/// again.
struct StopNotifier(Option<FleetSource>);

impl Drop for StopNotifier {
    fn drop(&mut self) {
        // After a panic of a resolver, the set keeps its endpoints.
        if let Some(source) = self.0.take()
            && let Some(fleet) = source.fleet.upgrade()
            && !thread::panicking()
        {
            fleet.stop(Box::new(|| source.start()));
        }
    }
}

/// Starts the set of one cluster of a channel.
fn start_cluster(channel: &Fleet, endpoints: Endpoints, connect: Arc<ConnectEndpoint>) -> ClusterFleet {
    let fleet = Arc::new(channel.of_cluster());
    let (found, changes) = watch::channel(endpoints);
    let resolver = Arc::new(ClusterEndpoints(changes));
    FleetSource { fleet: Arc::downgrade(&fleet), resolver, connect }.start();
    ClusterFleet { fleet, found }
}

/// The endpoints of one cluster, found by the resolver of its channel.
struct ClusterEndpoints(watch::Receiver<Endpoints>);

impl Resolve for ClusterEndpoints {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let sets = stream::unfold((self.0.clone(), true), async |(mut changes, is_first)| {
            if !is_first {
                changes.changed().await.ok()?;
            }
            let endpoints = changes.borrow_and_update().clone();
            Some((Ok(endpoints), (changes, false)))
        });
        sets.boxed()
    }
}

/// An event in the life of a set.
enum FleetEvent {
    Found(io::Result<Endpoints>),
    Sweep,
    /// The shares by the reports of the servers are due.
    Update,
    /// A look at the PONGs of the servers is due.
    Look,
}

/// Follows the resolver and looks for outliers, until the channel is dropped.
async fn follow(
    fleet: Weak<Fleet>,
    sets: BoxStream<'static, io::Result<Endpoints>>,
    connect: Arc<ConnectEndpoint>,
    mut settings: Arc<CurrentSettings>,
    _stop: StopNotifier,
) {
    let join =
        |endpoint| AbortOnDropHandle::new(tokio::spawn(keep_connected(fleet.clone(), endpoint, connect.clone())));
    // The last set remains after the end of the resolver.
    let mut sets = sets.chain(stream::pending());
    let ticks = |period: Duration| {
        let mut ticks = interval(period.min(TIME_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let [mut sweeps, mut updates, mut looks] =
        [settings.fleet.outliers.sweep, settings.fleet.load.reports.update, LOOK_PERIOD].map(ticks);
    loop {
        let event = tokio::select! {
            // A simulation needs a fixed order. Ticks are rare, but a resolver may always have an answer.
            biased;
            _ = sweeps.tick() => FleetEvent::Sweep,
            _ = updates.tick(), if settings.fleet.policy == PickPolicy::Reported => FleetEvent::Update,
            _ = looks.tick() => FleetEvent::Look,
            Some(found) = sets.next() => FleetEvent::Found(found),
        };
        let Some(fleet) = fleet.upgrade() else { return };
        match event {
            FleetEvent::Found(Ok(Endpoints { routed: Some(found), .. })) => {
                fleet.route(*found, |endpoints| start_cluster(&fleet, endpoints, connect.clone()));
            }
            FleetEvent::Found(found) => {
                fleet.apply(found, join);
                if !Arc::ptr_eq(&settings, &fleet.current()) {
                    settings = fleet.current().clone();
                    (sweeps, updates) =
                        (ticks(settings.fleet.outliers.sweep), ticks(settings.fleet.load.reports.update));
                }
            }
            FleetEvent::Sweep => fleet.sweep(),
            FleetEvent::Update => fleet.update_shares(),
            FleetEvent::Look => fleet.look(),
        }
    }
}

/// Keeps one endpoint connected until the channel is dropped. The set aborts it when the endpoint vanishes.
pub(super) async fn keep_connected(fleet: Weak<Fleet>, endpoint: Endpoint, connect: Arc<ConnectEndpoint>) {
    let Some(mut pauses) = fleet.upgrade().map(|fleet| RedialPauses::new(fleet.connect_pause())) else { return };
    loop {
        sleep(pauses.next_pause()).await;
        let outcome = match connect(endpoint.clone()).await {
            Ok(server) => {
                let Some(open) = fleet.upgrade().map(|set| set.opened(&endpoint)) else { return };
                use_until_lost(&fleet, &endpoint, server, &connect).await.inspect(|_| open.lose())
            }
            Err(error) => Err(error),
        };
        let Some(set) = fleet.upgrade() else { return };
        match outcome {
            Ok(has_answered) => {
                info!(address = %endpoint.address, "lost the connection to an endpoint");
                set.disconnected(&endpoint);
                if has_answered { pauses.after_use() } else { pauses.after_failure() }
            }
            Err(error) => {
                info!(address = %endpoint.address, %error, "cannot connect to an endpoint");
                set.failed(&endpoint, error);
                pauses.after_failure();
            }
        }
    }
}

/// Offers a connection to the calls while its server is healthy, until the connection is lost. Returns `true` if the server
/// has answered a call.
async fn use_until_lost(
    fleet: &Weak<Fleet>,
    endpoint: &Endpoint,
    server: ConnectedServer,
    connect: &Arc<ConnectEndpoint>,
) -> Result<bool, ConnectError> {
    let ConnectedServer { caller, mut health } = server;
    let (mut ready, mut has_answered) = (None::<ReadyEndpoint>, false);
    let mut added = FuturesUnordered::new();
    loop {
        let lost = async {
            match &ready {
                Some(ready) => ready.lost().await,
                None => caller.caller().lost().await,
            }
        };
        let full = async {
            match &ready {
                Some(ready) => ready.added().full().await,
                None => pending().await,
            }
        };
        let event = tokio::select! {
            // A simulation needs a fixed order. The server decides how often its health changes, and calls how often
            // connections are full. Each end of an added connection needs one of these events first.
            biased;
            () = lost => break,
            Some(()) = added.next() => continue,
            Some(is_healthy) = health.next() => Some(is_healthy),
            () = full => None,
        };
        let Some(set) = fleet.upgrade() else { break };
        let Some(is_healthy) = event else {
            if let Some(ready) = ready.as_ref().filter(|_| added.len() + 1 < set.connections_max()) {
                added.push(use_added(fleet.clone(), endpoint, ready.clone(), connect(endpoint.clone())));
            }
            continue;
        };
        match &ready {
            None if is_healthy => ready = Some(set.connected(endpoint, caller.clone())?),
            _ if is_healthy => {}
            _ => {
                added.clear();
                if let Some(ready) = ready.take() {
                    ready.added().clear();
                    has_answered |= ready.has_answered();
                }
                set.unhealthy(endpoint);
            }
        }
    }
    if let Some(ready) = &ready {
        ready.added().clear();
    }
    Ok(has_answered || ready.is_some_and(|ready| ready.has_answered()))
}

/// Uses one more connection to a ready endpoint until the connection is lost.
async fn use_added(
    fleet: Weak<Fleet>,
    endpoint: &Endpoint,
    ready: ReadyEndpoint,
    connecting: BoxFuture<'static, Result<ConnectedServer, ConnectError>>,
) {
    match connecting.await {
        Ok(server) => {
            let open = fleet.upgrade().map(|set| set.opened(endpoint));
            ready.added().serve(server.caller).await;
            open.into_iter().for_each(OpenConnection::lose);
        }
        Err(error) => {
            debug!(%error, "cannot open another connection to a full endpoint");
            sleep(ADD_PAUSE).await;
        }
    }
}

/// The time between two looks at the PONGs of the servers.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// The pause after a failed attempt to open another connection.
const ADD_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::atomic::{AtomicBool, Ordering},
    };

    use futures_util::FutureExt;
    use tokio::{runtime::Builder, sync::mpsc};

    use super::*;
    use crate::{call::deadline::Deadline, error::CallError};

    #[test]
    fn a_call_that_waits_in_a_cluster_continues_after_the_end_of_its_runtime() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (home, other, (begun, mut begins)) = (runtime(), runtime(), mpsc::unbounded_channel());
        let is_first = AtomicBool::new(true);
        // The first attempt never ends.
        let connect = move |_| {
            begun.send(()).unwrap();
            match is_first.swap(false, Ordering::Relaxed) {
                true => pending().boxed(),
                false => ready(Err(ConnectError::Address(io::ErrorKind::Other.into()))).boxed(),
            }
        };
        let retry = ConnectRetry { attempts: 1, ..ConnectRetry::default() };
        let channel = Fleet::new(FleetSettings::default(), retry, Refresh::default(), None);
        let endpoints = Endpoints::new([Endpoint::new("tcp://127.0.0.1:1").unwrap()]);
        let cluster = home.block_on(async {
            let cluster = start_cluster(&channel, endpoints, Arc::new(connect));
            begins.recv().await;
            cluster
        });
        let status = other.block_on(async {
            let mut waiting = Box::pin(cluster.fleet.any_ready(Deadline::after(Duration::from_secs(10)), false, None));
            assert!((&mut waiting).now_or_never().is_none());
            // As the channel does at the end of its runtime.
            drop(cluster.found);
            home.shutdown_background();
            waiting.await.err().unwrap()
        });
        assert!(matches!(status.call_error(), Some(CallError::Unreachable(_))), "{status}");
    }
}
