//! The endpoints and settings of a service, put together from its listener, routes, clusters and assignments.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use frpc::fleet::{Endpoint, Endpoints, MethodConfig, MethodName, PickPolicy, ResolvedSettings};

use crate::{
    client::{ClientState, ResourceWatch},
    protocol::ResourceState,
    resources::{
        Assignment, ClusterConfig, ClusterEndpoint, ClusterSource, ListenerConfig, PathRule, Resource, ResourceKind,
        RouteRule, RouteSource, RouteTable, RouteTarget,
    },
};

/// The reason why a service has no new endpoints.
#[derive(Debug, PartialEq)]
pub(crate) enum Incomplete {
    /// A resource has not arrived yet.
    Waiting,
    Failed(String),
}

type Result<T> = std::result::Result<T, Incomplete>;

/// Subscriptions by type and name.
type Watches = BTreeMap<(ResourceKind, String), Arc<ResourceWatch>>;

/// The resources of one service.
#[derive(Debug)]
pub(crate) struct Assembly {
    client: Arc<ClientState>,
    service: String,
    /// The scheme of the addresses, such as `grpc`.
    scheme: String,
    /// The resources of the last pass, and those of the last complete one. The latter stay subscribed until others are
    /// complete.
    current: Watches,
    complete: Watches,
    last: Option<(Endpoints, ResolvedSettings)>,
}

/// A cluster with endpoints, and its share of the calls.
#[derive(Debug)]
struct LeafCluster {
    name: String,
    config: Arc<ClusterConfig>,
    priorities: Vec<Vec<ClusterEndpoint>>,
    dropped: u32,
}

impl Assembly {
    pub(crate) fn new(client: Arc<ClientState>, service: String, scheme: String) -> Self {
        Self { client, service, scheme, current: Watches::new(), complete: Watches::new(), last: None }
    }

    /// Looks at the resources again. Returns the endpoints if they have changed, and `None` if they have not.
    pub(crate) fn update(&mut self) -> Result<Option<Endpoints>> {
        let mut used = Watches::new();
        let found = self.resolve(&mut used);
        self.current = used;
        let found = found?;
        self.complete = self.current.clone();
        if self.last.as_ref() == Some(&found) {
            return Ok(None);
        }
        let (endpoints, settings) = self.last.insert(found).clone();
        Ok(Some(endpoints.with_settings(settings)))
    }

    fn watch(&self, used: &mut Watches, kind: ResourceKind, name: &str) -> Result<Resource> {
        let key = (kind, name.to_owned());
        let known = self.current.get(&key).or_else(|| self.complete.get(&key)).cloned();
        let watch = used.entry(key).or_insert_with(|| known.unwrap_or_else(|| Arc::new(self.client.watch(kind, name))));
        match watch.state() {
            ResourceState::Known(resource) => Ok(resource),
            ResourceState::Pending => Err(Incomplete::Waiting),
            ResourceState::Missing => Err(failed(format!("the control plane has no {kind:?} resource {name:?}"))),
            ResourceState::Refused(why) => Err(failed(format!("{kind:?} resource {name:?} is invalid: {why}"))),
        }
    }

    fn resolve(&self, used: &mut Watches) -> Result<(Endpoints, ResolvedSettings)> {
        let listener = self.listener(used)?;
        let routes = self.routes(used, &listener)?;
        let Some(routes) = routes.routes_of(&self.service) else {
            return Err(failed(format!("no virtual host has the domain {:?}", self.service)));
        };
        let (target, methods) = methods(routes, listener.timeout).map_err(failed)?;
        let mut settings =
            ResolvedSettings { methods, key_header: target.key_header.clone(), ..ResolvedSettings::default() };
        let mut all = Vec::new();
        // All are watched, although the first may be incomplete.
        let clusters: Vec<_> = target
            .clusters
            .iter()
            .map(|(name, weight)| (*weight, self.leaves(used, name, 0, &mut HashSet::new())))
            .collect();
        let mut leaves = Vec::new();
        for (weight, found) in clusters {
            leaves.push((weight, found?));
        }
        let mut calls_max = 0_u32;
        let mut main: Option<(u32, &LeafCluster)> = None;
        for (weight, leaves) in &leaves {
            let (share, mut before) = (f64::from(*weight), 0);
            for leaf in leaves {
                calls_max = calls_max.saturating_add(leaf.config.calls_max);
                if main.is_none_or(|(most, _)| *weight > most) {
                    main = Some((*weight, leaf));
                }
                for (priority, endpoints) in leaf.priorities.iter().enumerate() {
                    let shared = endpoints.iter().map(|one| (before + priority, one.share * share, one, leaf));
                    all.extend(shared);
                }
                before += leaf.priorities.len();
            }
        }
        let (_, main) = main.ok_or_else(|| failed("the route has no cluster".to_owned()))?;
        if all.len() > ENDPOINTS_MAX {
            return Err(failed(format!("there are {} endpoints, more than {ENDPOINTS_MAX}", all.len())));
        }
        // The greatest share of each priority.
        let mut most = HashMap::<usize, f64>::new();
        let mut are_equal = true;
        for (priority, share, ..) in &all {
            let greatest = most.entry(*priority).or_insert(*share);
            are_equal &= (*greatest - *share).abs() <= *greatest * SHARE_TOLERANCE;
            *greatest = greatest.max(*share);
        }
        let mut endpoints = Vec::new();
        for (priority, share, one, leaf) in all {
            let weight = if are_equal { 1 } else { scale(share / most[&priority]) };
            endpoints
                .push(self.endpoint(one, leaf)?.weight(weight).priority(u32::try_from(priority).unwrap_or(u32::MAX)));
        }
        settings.policy = Some(match main.config.balancing.policy {
            PickPolicy::RoundRobin if !are_equal => PickPolicy::Weighted,
            policy => policy,
        });
        settings.reports = main.config.balancing.reports;
        settings.outliers.clone_from(&main.config.outliers);
        settings.dropped_per_million = main.dropped;
        settings.calls = Some(self.client.call_limit(&main.name, calls_max));
        Ok((Endpoints::new(endpoints), settings))
    }

    fn listener(&self, used: &mut Watches) -> Result<Arc<ListenerConfig>> {
        let name = self.client.bootstrap.listener_name(&self.service);
        match self.watch(used, ResourceKind::Listener, &name)? {
            Resource::Listener(listener) => Ok(listener),
            _ => unreachable!("resources are kept by their types"),
        }
    }

    fn routes(&self, used: &mut Watches, listener: &ListenerConfig) -> Result<Arc<RouteTable>> {
        match &listener.routes {
            RouteSource::Inline(routes) => Ok(routes.clone()),
            RouteSource::Named(name) => match self.watch(used, ResourceKind::Routes, name)? {
                Resource::Routes(routes) => Ok(routes),
                _ => unreachable!("resources are kept by their types"),
            },
        }
    }

    /// Returns the clusters with endpoints below a cluster, in the order of their use.
    /// `seen` are the clusters before this one. Each is used once, at its first position, so cycles do no harm.
    fn leaves(
        &self,
        used: &mut Watches,
        name: &str,
        depth: usize,
        seen: &mut HashSet<String>,
    ) -> Result<Vec<LeafCluster>> {
        if depth >= AGGREGATES_MAX {
            return Err(failed(format!("aggregate clusters are nested more than {AGGREGATES_MAX} times at {name:?}")));
        }
        if !seen.insert(name.to_owned()) {
            return Ok(Vec::new());
        }
        if seen.len() > CLUSTERS_MAX {
            return Err(failed(format!("there are more than {CLUSTERS_MAX} clusters at {name:?}")));
        }
        let config = match self.watch(used, ResourceKind::Cluster, name)? {
            Resource::Cluster(cluster) => cluster,
            _ => unreachable!("resources are kept by their types"),
        };
        let assignment = match &config.source {
            ClusterSource::Aggregate(clusters) => {
                // All are watched, although the first may be incomplete.
                let found: Vec<_> =
                    clusters.iter().map(|cluster| self.leaves(used, cluster, depth + 1, seen)).collect();
                return Ok(found.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect());
            }
            ClusterSource::Inline(assignment) => assignment.clone(),
            ClusterSource::Named(address) => Arc::new(Assignment::named(address)),
            ClusterSource::Discovered(assignment) => match self.watch(used, ResourceKind::Endpoints, assignment)? {
                Resource::Endpoints(assignment) => assignment,
                _ => unreachable!("resources are kept by their types"),
            },
        };
        let (priorities, dropped) = (assignment.priorities.clone(), assignment.dropped);
        Ok(vec![LeafCluster { name: name.to_owned(), config, priorities, dropped }])
    }

    fn endpoint(&self, one: &ClusterEndpoint, leaf: &LeafCluster) -> Result<Endpoint> {
        let invalid = |error: io::Error| failed(format!("the cluster {:?}: {error}", leaf.name));
        let scheme = match (&*self.scheme, &leaf.config.tls) {
            ("grpc", Some(_)) => "grpcs",
            (scheme, _) => scheme,
        };
        let mut endpoint = Endpoint::new(format!("{scheme}://{}", one.address)).map_err(invalid)?;
        if let Some(rules) = &leaf.config.tls {
            endpoint = endpoint.tls(self.client.tls.get(&self.client.bootstrap, rules).map_err(invalid)?);
            let host_name = Some(&one.host_name).filter(|name| !name.is_empty());
            if let Some(name) = rules.sni.as_ref().or(host_name) {
                endpoint = endpoint.tls_name(&**name);
            }
        }
        if !one.zone.is_empty() {
            endpoint = endpoint.zone(&*one.zone);
        }
        Ok(endpoint)
    }
}

fn failed(why: String) -> Incomplete {
    Incomplete::Failed(why)
}

/// Converts a share of at most 1 to a weight.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to WEIGHT_MAX")]
fn scale(share: f64) -> u32 {
    (share * f64::from(WEIGHT_MAX)).round().max(1.0) as u32
}

/// Returns the clusters of all routes, and the rules of methods. A channel has one set of endpoints, so the reachable
/// routes must have the same clusters.
///
/// # Errors
///
/// The routes cannot be followed by a channel.
fn methods(
    routes: &[RouteRule],
    timeout: Option<Duration>,
) -> std::result::Result<(&RouteTarget, Vec<MethodConfig>), String> {
    let (mut first, mut methods, mut known) = (None::<&RouteTarget>, Vec::new(), HashSet::new());
    for route in routes {
        let name = match &route.path {
            Some(PathRule::All) => Some(MethodName::default()),
            Some(PathRule::Service(service)) => Some(MethodName { service: service.clone(), method: String::new() }),
            Some(PathRule::Method(service, method)) => {
                Some(MethodName { service: service.clone(), method: method.clone() })
            }
            None => None,
        };
        let is_shadowed = name.as_ref().is_some_and(|name| {
            let service = MethodName { service: name.service.clone(), method: String::new() };
            known.contains(name) || known.contains(&service)
        });
        if is_shadowed {
            continue;
        }
        let Some(target) = &route.target else {
            return Err(format!("the action of route {:?} is not supported", route.name));
        };
        if first.is_some_and(|first| first.clusters != target.clusters) {
            return Err(format!(
                "route {:?} leads to other clusters than the routes before it, but a channel has one set of endpoints",
                route.name
            ));
        }
        first.get_or_insert(target);
        let is_last = route.path == Some(PathRule::All);
        if let Some(name) = name {
            known.insert(name.clone());
            let timeout = target.timeout.or(timeout).filter(|timeout| !timeout.is_zero());
            let retry = target.retry.clone();
            methods.push(MethodConfig { names: vec![name], timeout, retry, ..MethodConfig::default() });
        }
        if is_last {
            break;
        }
    }
    let first = first.ok_or_else(|| "the virtual host has no route".to_owned())?;
    Ok((first, methods))
}

/// The maximum nesting of aggregate clusters.
const AGGREGATES_MAX: usize = 16;
/// The maximum number of clusters below a cluster of a route.
const CLUSTERS_MAX: usize = 100;
/// The maximum number of endpoints of a service.
const ENDPOINTS_MAX: usize = 10_000;
/// The weight of the greatest share.
const WEIGHT_MAX: u32 = 65_535;
/// Shares with a smaller relative difference count as equal.
const SHARE_TOLERANCE: f64 = 1e-6;
