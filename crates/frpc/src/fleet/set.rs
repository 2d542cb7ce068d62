//! The endpoints of a channel, and the picker over the ready ones.

use std::{
    collections::{BTreeMap, HashMap},
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use frisbee::{ConnectRetry, clock::Instant, task::AbortOnDropHandle};
use frpc_balance::{
    CallCounts, ClientThrottle, EndpointLoad, EndpointState, FoundOutlier, HashRing, LatencyQuantile, OutlierMethod,
    PickPolicy, PickRequest, Picker, RetryBudget, RetryTokens, ZonePreference, random_subset,
};
use futures_util::future::select_ok;
use tokio::{sync::watch, task::yield_now};
use tracing::{info, warn};

use super::{
    attempt::Attempt,
    clock::{FleetClock, after},
    members::{EarlierLoad, EndpointChoice, FleetMember, Members},
    ready::ReadyEndpoint,
    resolve::{Endpoint, Endpoints, Refresh, RoutedEndpoints},
    resolved::{CurrentSettings, ResolvedSettings},
    routing::{CallRoute, RouteCalls, RouteRules},
    rules::HashKey,
    server::{CallEncoding, ServerCaller},
    settings::FleetSettings,
};
use crate::{
    call::{
        connects::{EjectionOutcome, OpenConnection},
        deadline::Deadline,
        exchange::Call,
        meter::CallMeter,
        method::Method,
        status::Status,
    },
    error::{CallError, ConnectError},
    inspect::EndpointView,
    service::boxed::BoxFuture,
};

/// The servers of a channel. Its tasks end when it is dropped.
pub(crate) struct Fleet {
    /// The sets of several clusters, in use instead of the own endpoints.
    clusters: ArcSwapOption<FleetClusters>,
    /// The endpoints that take calls. Replaced whenever one becomes ready or is lost.
    picker: ArcSwap<Picker<ReadyEndpoint>>,
    members: Mutex<Members>,
    progress: watch::Sender<Progress>,
    /// The settings of the channel.
    settings: FleetSettings,
    /// The same, with the settings of the resolver.
    current: ArcSwap<CurrentSettings>,
    /// `true` after a resolver has found settings. Calls without rules look at nothing else.
    has_resolved: AtomicBool,
    pub(super) budget: RetryBudget,
    /// The tokens of `retryThrottling` in the service config.
    pub(super) retry_tokens: Option<RetryTokens>,
    pub(super) throttle: Option<ClientThrottle>,
    /// Latencies of the methods with parallel attempts after the 95th percentile.
    latencies: Mutex<HashMap<Method, Arc<LatencyQuantile>>>,
    connect_retry: ConnectRetry,
    refresh: Refresh,
    pub(super) clock: FleetClock,
    /// The origin of the times of latencies.
    epoch: Instant,
    /// The choice of a part of a large set.
    seed: u64,
    /// The encoding of the first server, also of all clusters.
    encoding: Arc<OnceLock<CallEncoding>>,
    /// The counters of the target.
    meter: Option<Arc<CallMeter>>,
}

/// The sets of several clusters, and the routes to them.
pub(super) struct FleetClusters {
    routes: Arc<dyn RouteCalls>,
    sets: BTreeMap<Arc<str>, Result<ClusterFleet, Arc<str>>>,
}

/// The set of one cluster. It follows the endpoints that are sent to it.
#[derive(Clone)]
pub(super) struct ClusterFleet {
    pub(super) fleet: Arc<Fleet>,
    pub(super) found: watch::Sender<Endpoints>,
}

/// The state of all connections, for calls that wait.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// The error of the last attempt, if no endpoint is ready and each was tried often enough.
    failed: Option<Arc<ConnectError>>,
}

impl Fleet {
    /// Creates an empty set.
    pub(super) fn new(
        settings: FleetSettings,
        connect_retry: ConnectRetry,
        refresh: Refresh,
        meter: Option<Arc<CallMeter>>,
    ) -> Self {
        let (clock, epoch, settings) =
            (FleetClock::start(), tokio::time::Instant::now().into_std(), settings.with_balancing());
        Self {
            clusters: ArcSwapOption::empty(),
            picker: ArcSwap::from_pointee(Picker::new(
                settings.policy,
                Vec::new(),
                ZonePreference::default(),
                Duration::ZERO,
            )),
            members: Mutex::default(),
            progress: watch::Sender::default(),
            budget: RetryBudget::new(settings.retry.budget),
            retry_tokens: settings.service_config.retry_throttling.map(RetryTokens::new),
            throttle: settings.throttle.map(|throttle| ClientThrottle::new(throttle, epoch)),
            latencies: Mutex::default(),
            current: ArcSwap::from_pointee(CurrentSettings::new(settings.clone(), ResolvedSettings::default())),
            has_resolved: AtomicBool::new(false),
            settings,
            connect_retry,
            refresh,
            clock,
            epoch,
            seed: fastrand::u64(..),
            encoding: Arc::default(),
            meter,
        }
    }

    /// Creates an empty set for a cluster of this channel.
    pub(super) fn of_cluster(&self) -> Self {
        let (settings, refresh) = (self.settings.clone(), self.refresh.clone());
        let fleet = Self::new(settings, self.connect_retry, refresh, self.meter.clone());
        Self { encoding: self.encoding.clone(), ..fleet }
    }

    /// Counts a retry, or a parallel attempt.
    pub(super) fn count_repeat(&self, method: &'static Method, is_hedge: bool) {
        if let Some(meter) = &self.meter {
            let cells = meter.here(meter.number(method));
            if is_hedge { cells.hedge() } else { cells.retry() }
        }
    }

    /// Counts a connection to an endpoint, until the result is dropped.
    pub(super) fn opened(&self, endpoint: &Endpoint) -> OpenConnection {
        if let Some(member) = self.members().find(endpoint) {
            member.history.connects += 1;
        }
        OpenConnection::begin(self.meter.as_ref().map(|meter| meter.connects().clone()))
    }

    /// Keeps a task until the set is dropped.
    pub(super) fn keep_task(&self, task: AbortOnDropHandle<()>) {
        let earlier = self.members().task.replace(task);
        // After the lock, like the tasks of `stop`.
        drop(earlier);
    }

    /// Removes all endpoints, because the runtime of their tasks has ended. The next call starts the tasks again.
    pub(super) fn stop(&self, restart: Box<dyn FnOnce() + Send>) {
        let mut members = self.members();
        let stopped = (mem::take(&mut members.all), mem::take(&mut members.leaving), members.error.take());
        members.restart = Some(restart);
        self.clusters.store(None);
        self.publish(&members);
        drop(members);
        // After the lock: a task that ends may take it again.
        drop(stopped);
    }

    /// Starts the tasks again, on the runtime of a call, if their runtime has ended.
    async fn restart(&self) {
        let restart = self.members().restart.take();
        if let Some(restart) = restart {
            restart();
            // If the current runtime ends as well, it drops the call here.
            yield_now().await;
        }
    }

    /// Waits for the first connection.
    ///
    /// # Errors
    ///
    /// The error of the last endpoint, once all have failed, or that of the resolver.
    pub(crate) async fn first(&self) -> Result<(), Arc<ConnectError>> {
        let mut progress = self.progress.subscribe();
        loop {
            if let Some(clusters) = self.clusters() {
                let error =
                    || Arc::new(ConnectError::Address(io::Error::new(io::ErrorKind::NotFound, clusters.fault())));
                return clusters.any(|fleet| fleet.boxed_first()).await.unwrap_or_else(|| Err(error()));
            }
            if !self.picker.load().endpoints().is_empty() {
                return Ok(());
            }
            if let Some(error) = progress.borrow_and_update().failed.clone() {
                return Err(error);
            }
            // The sender lives as long as `self`.
            let _ = progress.changed().await;
        }
    }

    // Not async: a future that contains itself has no known size.
    fn boxed_first(&self) -> BoxFuture<'_, Result<(), Arc<ConnectError>>> {
        Box::pin(self.first())
    }

    /// Returns the settings, including the ones of the resolver.
    pub(super) fn current(&self) -> Guard<Arc<CurrentSettings>> {
        self.current.load()
    }

    /// Returns `true` after a resolver has found settings.
    #[inline]
    pub(super) fn has_resolved(&self) -> bool {
        self.has_resolved.load(Ordering::Relaxed)
    }

    /// Returns `true` if a call to the method needs more than a pick by load.
    #[inline]
    pub(super) fn has_rules(&self, method: &Method) -> bool {
        self.has_resolved() || self.settings.has_rules(method)
    }

    /// Uses the settings found with endpoints.
    fn use_settings(&self, found: Option<Box<ResolvedSettings>>) {
        let found = found.map(|found| *found).unwrap_or_default();
        if self.current().resolved != found {
            self.current.store(Arc::new(CurrentSettings::new(self.settings.clone(), found)));
            self.has_resolved.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn refresh(&self) -> &Refresh {
        &self.refresh
    }

    pub(super) fn connect_pause(&self) -> Duration {
        self.connect_retry.pause
    }

    /// Returns the maximum number of connections to one server.
    pub(super) fn connections_max(&self) -> usize {
        self.settings.connections_max
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // No panic under the lock can leave the members half changed.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces the methods of a client to each server, now and after each connect.
    pub(crate) fn declare(&self, methods: &'static [Method]) {
        let mut members = self.members();
        if members.declared.contains(&methods) {
            return;
        }
        members.declared.push(methods);
        if let Some(clusters) = self.clusters() {
            clusters.fleets().for_each(|fleet| fleet.declare(methods));
        }
        members.in_use().filter_map(|member| member.ready.as_ref()).for_each(|ready| ready.caller().declare(methods));
    }

    /// Returns the latencies of a method.
    pub(super) fn latencies(&self, method: &Method) -> Arc<LatencyQuantile> {
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(LatencyQuantile::new(LATENCY_WINDOW, self.epoch));
        latencies.entry(*method).or_insert_with(new).clone()
    }

    /// Begins an attempt on a ready endpoint. `None` if there is none.
    #[inline]
    pub(crate) fn try_begin(&self, now: Duration, key: Option<u64>, tried: &[u64]) -> Option<Attempt> {
        let picker = self.picker.load();
        let endpoint = picker.pick(PickRequest { now, key, tried })?;
        Some(Attempt::begin(endpoint.clone(), now))
    }

    /// Begins an attempt, and waits for a ready endpoint first. With `waits`, it waits until the deadline, even if no
    /// endpoint can be reached.
    pub(super) async fn begin(
        &self,
        deadline: Deadline,
        key: Option<u64>,
        tried: &[u64],
        waits: bool,
        method: &'static Method,
    ) -> Result<Attempt, Status> {
        self.when_ready(deadline, waits, Some(method), || self.try_begin(self.clock.now(), key, tried)).await
    }

    /// Returns any ready endpoint, without effect on the choice for calls.
    pub(super) async fn any_ready(
        &self,
        deadline: Deadline,
        waits: bool,
        method: Option<&'static Method>,
    ) -> Result<ReadyEndpoint, Status> {
        if let Some(clusters) = self.clusters() {
            // Not counted: the wait of the call for its own cluster is.
            let ready = clusters.any(|fleet| fleet.boxed_any_ready(deadline, waits)).await;
            return ready.unwrap_or_else(|| Err(Status::unavailable(clusters.fault())));
        }
        self.when_ready(deadline, waits, method, || self.picker.load().endpoints().first().cloned()).await
    }

    fn boxed_any_ready(&self, deadline: Deadline, waits: bool) -> BoxFuture<'_, Result<ReadyEndpoint, Status>> {
        Box::pin(self.any_ready(deadline, waits, None))
    }

    /// Waits until an endpoint is found. The wait of a call to a method is counted.
    async fn when_ready<T>(
        &self,
        deadline: Deadline,
        waits: bool,
        method: Option<&'static Method>,
        find: impl Fn() -> Option<T>,
    ) -> Result<T, Status> {
        if let Some(found) = find() {
            return Ok(found);
        }
        let (mut progress, begun) = (self.progress.subscribe(), self.clock.now());
        let waiting = async {
            loop {
                let failed = progress.borrow_and_update().failed.clone();
                // After the state is read, so that a later change is noticed.
                if let Some(found) = find() {
                    return Ok(found);
                }
                if let Some(error) = failed.filter(|_| !waits) {
                    return Err(CallError::Unreachable(error).into());
                }
                self.restart().await;
                let _ = progress.changed().await;
            }
        };
        let outcome = deadline.bound_unsent(waiting).await;
        if let (Some(meter), Some(method)) = (&self.meter, method) {
            meter.here(meter.number(method)).add_queued(self.clock.now().saturating_sub(begun));
        }
        outcome
    }

    /// Adds a connection to an endpoint.
    ///
    /// # Errors
    ///
    /// Its messages have another encoding than the first server, so a call could not move between them.
    pub(super) fn connected(&self, endpoint: &Endpoint, caller: ServerCaller) -> Result<ReadyEndpoint, ConnectError> {
        if *self.encoding.get_or_init(|| caller.encoding()) != caller.encoding() {
            let why = format!("{}: the messages of its wire differ from those of the other servers", endpoint.address);
            return Err(ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let mut members = self.members();
        for methods in &members.declared {
            caller.declare(methods);
        }
        let mut member = members.find(endpoint);
        let earlier = member.as_mut().and_then(|member| member.earlier.take());
        let EarlierLoad { load, joined } = earlier.unwrap_or_else(|| EarlierLoad {
            load: EndpointLoad::new(&self.current().fleet.load),
            joined: self.clock.now(),
        });
        let state = EndpointState { load, weight: endpoint.weight.into(), hash: endpoint.address_hash(), joined };
        let ready = ReadyEndpoint::new(state, endpoint.address.clone(), caller, self.clock);
        if let Some(member) = member {
            (member.ready, member.failures, member.is_silent) = (Some(ready.clone()), 0, false);
        }
        self.release_leaving(&mut members);
        self.publish(&members);
        Ok(ready)
    }

    /// Removes the connection to an endpoint.
    pub(super) fn disconnected(&self, endpoint: &Endpoint) {
        let mut members = self.members();
        if let Some(member) = members.find(endpoint) {
            (member.ready, member.history.disconnects) = (None, member.history.disconnects + 1);
        }
        self.publish(&members);
        self.refresh.request();
    }

    /// Removes an endpoint from the choice, because its server reports that it cannot serve.
    pub(super) fn unhealthy(&self, endpoint: &Endpoint) {
        let why = format!("{}: the server reports that it does not serve", endpoint.address);
        info!(address = %endpoint.address, "an endpoint does not serve");
        let mut members = self.members();
        let Some(member) = members.find(endpoint) else { return };
        (member.ready, member.failures) = (None, self.connect_retry.attempts.max(1));
        members.error = Some(Arc::new(ConnectError::Address(io::Error::new(io::ErrorKind::NotConnected, why))));
        self.publish(&members);
    }

    /// Counts a failed attempt to connect to an endpoint.
    pub(super) fn failed(&self, endpoint: &Endpoint, error: ConnectError) {
        if let Some(meter) = &self.meter {
            meter.connects().fail(error.is_tls());
        }
        let mut members = self.members();
        // The end of its runtime may have removed the endpoint. The calls that start the set again must not see this error.
        let Some(member) = members.find(endpoint) else { return };
        let is_final = !matches!(&error, ConnectError::Connect(error) if !error.is_final());
        member.history.connects_failed += 1;
        member.failures += if is_final { self.connect_retry.attempts.max(1) } else { 1 };
        members.error = Some(Arc::new(error));
        self.publish(&members);
        self.refresh.request();
    }

    /// Uses another set of endpoints. `join` starts the task of a new one.
    pub(super) fn apply(&self, found: io::Result<Endpoints>, join: impl Fn(Endpoint) -> AbortOnDropHandle<()>) {
        let mut members = self.members();
        match found {
            Ok(found) if !found.list.is_empty() => {
                self.clusters.store(None);
                self.use_settings(found.settings);
                let now = tokio::time::Instant::now().into_std();
                members.replace(self.choose(found.list), now, join);
                self.release_leaving(&mut members);
            }
            Ok(_) => {
                let error = io::Error::new(io::ErrorKind::NotFound, "the resolver found no endpoint");
                self.keep_last(&mut members, error);
            }
            Err(error) => self.keep_last(&mut members, error),
        }
        self.publish(&members);
    }

    /// Uses the sets of several clusters. `start` starts the set of a new one.
    pub(super) fn route(&self, found: RoutedEndpoints, start: impl Fn(Endpoints) -> ClusterFleet) {
        let mut members = self.members();
        let before = self.clusters();
        let sets = found.clusters.into_iter().map(|(name, found)| {
            let known = before.as_ref().and_then(|before| before.sets.get(&name)?.as_ref().ok());
            let set = found.map(|endpoints| match known {
                Some(known) => {
                    known.found.send_if_modified(|last| {
                        *last != endpoints && {
                            *last = endpoints;
                            true
                        }
                    });
                    known.clone()
                }
                None => {
                    let started = start(endpoints);
                    members.declared.iter().for_each(|methods| started.fleet.declare(methods));
                    started
                }
            });
            (name, set)
        });
        let clusters = FleetClusters { routes: found.routes, sets: sets.collect() };
        self.clusters.store(Some(Arc::new(clusters)));
        self.has_resolved.store(true, Ordering::Relaxed);
        (members.all, members.leaving) = (Vec::new(), Vec::new());
        self.publish(&members);
    }

    /// Returns the sets of several clusters, if the resolver has found any.
    pub(super) fn clusters(&self) -> Option<Arc<FleetClusters>> {
        self.clusters.load_full()
    }

    /// Chooses the endpoints to connect to, the ones with a lower priority last.
    fn choose(&self, mut all: Vec<Endpoint>) -> Vec<Endpoint> {
        let mut left = self.settings.endpoints_max;
        if all.iter().all(|endpoint| endpoint.priority == 0) {
            return random_subset(all, left, self.seed, Endpoint::address_hash);
        }
        all.sort_by_key(|endpoint| endpoint.priority);
        let mut chosen = Vec::new();
        for part in all.chunk_by(|one, next| one.priority == next.priority) {
            let part = random_subset(part.to_vec(), left, self.seed, Endpoint::address_hash);
            left -= part.len();
            chosen.extend(part);
        }
        chosen
    }

    fn release_leaving(&self, members: &mut Members) {
        members.release_leaving(tokio::time::Instant::now().into_std(), &self.current().fleet.load);
    }

    fn keep_last(&self, members: &mut Members, error: io::Error) {
        warn!(%error, kept = members.all.len(), "cannot find the endpoints of a channel, it keeps the last");
        members.error = Some(Arc::new(ConnectError::Address(error)));
        self.refresh.request();
    }

    /// Records a failed attempt. Ejects its endpoint after too many failures in a row.
    #[cold]
    pub(super) fn record_failure(&self, attempt: &mut Attempt, status: &Status) {
        if let Some(throttle) = &self.throttle {
            let now = tokio::time::Instant::now().into_std();
            if Attempt::was_accepted(status) { throttle.accepted(now) } else { throttle.refused(now) }
        }
        let (in_row, limit) = (attempt.failed(status), self.current().fleet.outliers.failures_in_row);
        if limit != 0 && in_row >= limit {
            let mut members = self.members();
            let hash = attempt.endpoint_hash();
            if let Some(index) = members.all.iter().position(|member| member.endpoint.address_hash() == hash) {
                let method = OutlierMethod::FailuresInRow;
                self.eject(&mut members, FoundOutlier { index, method, is_enforced: true });
                self.publish(&members);
            }
        }
    }

    /// Ejects an endpoint, if enough remain.
    fn eject(&self, members: &mut Members, FoundOutlier { index, method, is_enforced }: FoundOutlier) {
        let count = |outcome| self.meter.iter().for_each(|meter| meter.connects().eject(method, outcome));
        if !is_enforced {
            return count(EjectionOutcome::Chance);
        }
        let settings = &self.current().fleet.outliers;
        let ejected = members.all.iter().filter(|member| member.ejected_until.is_some()).count();
        let (ejected_max, member) = (settings.ejected_max(members.all.len()), &mut members.all[index]);
        if member.ejected_until.is_some() {
            return;
        }
        if ejected >= ejected_max {
            return count(EjectionOutcome::Overflow);
        }
        count(EjectionOutcome::Enforced);
        let length = settings.ejection_after(member.ejections);
        warn!(address = %member.endpoint.address, ?length, "an endpoint fails more often than others, it gets no calls");
        member.ejected_until = Some(after(length).into_std());
        member.ejections += 1;
        member.history.ejections += 1;
    }

    /// Ends ejections, and looks for other outliers.
    pub(super) fn sweep(&self) {
        let now = tokio::time::Instant::now().into_std();
        let mut members = self.members();
        let counts =
            |member: &FleetMember| member.ready.as_ref().map(|ready| ready.outcomes().take()).unwrap_or_default();
        let calls: Vec<CallCounts> = members.all.iter().map(counts).collect();
        let outliers = self.current().fleet.outliers.outliers(&calls, fastrand::f32);
        for (index, member) in members.all.iter_mut().enumerate() {
            match member.ejected_until {
                Some(until) if until <= now => {
                    member.ejected_until = None;
                    member.ready.iter().for_each(|ready| ready.outcomes().reset());
                }
                None if !outliers.iter().any(|outlier| outlier.is_enforced && outlier.index == index) => {
                    member.ejections = member.ejections.saturating_sub(1)
                }
                _ => {}
            }
        }
        for outlier in outliers {
            self.eject(&mut members, outlier);
        }
        self.publish(&members);
    }

    /// Returns the state of each endpoint.
    pub(crate) fn endpoints(&self) -> Vec<EndpointView> {
        if let Some(clusters) = self.clusters() {
            return clusters.fleets().flat_map(|fleet| fleet.endpoints()).collect();
        }
        let (now, clock) = (tokio::time::Instant::now().into_std(), self.clock.now());
        self.members().in_use().map(|member| member.view(now, clock)).collect()
    }

    /// Looks at the PONGs of the servers: their loads, and the missing ones.
    pub(super) fn look(&self) {
        let (mut members, mut has_changed) = (self.members(), false);
        let Members { all, leaving, .. } = &mut *members;
        for member in all.iter_mut().chain(leaving) {
            let is_silent = member.ready.as_ref().is_some_and(|ready| !ready.look());
            if std::mem::replace(&mut member.is_silent, is_silent) != is_silent {
                info!(address = %member.endpoint.address, is_silent, "an endpoint began or ceased to answer PINGs");
                has_changed = true;
            }
        }
        if has_changed {
            self.publish(&members);
        }
    }

    /// Computes the shares of the servers from their reports.
    pub(super) fn update_shares(&self) {
        self.publish(&self.members());
    }

    /// Shows the members to the calls.
    fn publish(&self, members: &Members) {
        let EndpointChoice { priority, ready, preferred } = members.choice(self.settings.zone.as_deref());
        let attempts_max = self.connect_retry.attempts.max(1);
        let has_failed = ready.is_empty() && members.all.iter().all(|member| member.failures >= attempts_max);
        let failed = members.error.clone().filter(|_| has_failed);
        // Under the lock of the members, so that an older state never replaces a newer one.
        let current = self.current();
        let mut picker = Picker::new(current.fleet.policy, ready, preferred, self.clock.now());
        if current.fleet.policy == PickPolicy::RingHash {
            let all =
                members.all.iter().map(|member| &member.endpoint).filter(|endpoint| endpoint.priority == priority);
            picker = picker.with_ring(&HashRing::new(all.map(Endpoint::on_ring).collect(), current.ring));
        }
        self.picker.store(Arc::new(picker));
        self.progress.send_replace(Progress { failed });
    }
}

impl FleetClusters {
    /// Returns the set for a call, and the call with the rules of its route.
    ///
    /// # Errors
    ///
    /// No route takes the call, or its cluster has no servers.
    pub(super) fn route(&self, mut call: Call) -> Result<(Arc<Fleet>, Call), Status> {
        let CallRoute { cluster, rules, key } = self.routes.route(&call)?;
        let set = match self.sets.get(&cluster) {
            Some(Ok(set)) => set.fleet.clone(),
            Some(Err(why)) => return Err(Status::unavailable(&**why)),
            None => return Err(Status::unavailable(format!("the route leads to the unknown cluster {cluster:?}"))),
        };
        let extensions = call.head_mut().extensions_mut();
        if let Some(rules) = rules {
            extensions.insert(RouteRules(rules));
        }
        if let Some(key) = key.filter(|_| extensions.get::<HashKey>().is_none()) {
            extensions.insert(key);
        }
        Ok((set, call))
    }

    fn fleets(&self) -> impl Iterator<Item = &Arc<Fleet>> {
        self.sets.values().filter_map(|set| set.as_ref().ok()).map(|set| &set.fleet)
    }

    /// Waits until one of the sets succeeds. Returns the last error if none does, and `None` without sets.
    async fn any<'a, T, E>(
        &'a self,
        wait: impl FnMut(&'a Arc<Fleet>) -> BoxFuture<'a, Result<T, E>>,
    ) -> Option<Result<T, E>> {
        let waiting: Vec<_> = self.fleets().map(wait).collect();
        if waiting.is_empty() {
            return None;
        }
        Some(select_ok(waiting).await.map(|(found, _)| found))
    }

    /// Returns the reason why no cluster takes calls.
    fn fault(&self) -> String {
        let why = self.sets.values().find_map(|set| set.as_ref().err().map(|why| &**why));
        why.unwrap_or("the channel has no cluster").to_owned()
    }
}

/// The time after which an old latency counts half as much for parallel attempts.
const LATENCY_WINDOW: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_late_error_of_an_ended_runtime_does_not_keep_a_set_from_starting_again() {
        let fleet = Fleet::new(FleetSettings::default(), ConnectRetry::default(), Refresh::default(), None);
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        fleet.stop(Box::new(move || started.send(()).unwrap()));
        let endpoint = Endpoint::new("tcp://127.0.0.1:1").unwrap();
        fleet.failed(&endpoint, ConnectError::Address(io::ErrorKind::Other.into()));
        fleet.unhealthy(&endpoint);
        let status = fleet.any_ready(Deadline::after(Duration::from_secs(1)), false, None).await.err().unwrap();
        assert!(matches!(status.call_error(), Some(CallError::NotSent { .. })), "{status}");
        assert!(starts.try_recv().is_ok());
    }
}
