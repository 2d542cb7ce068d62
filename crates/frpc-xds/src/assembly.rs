//! The endpoints and settings of a service, put together from its listener, routes, clusters and assignments.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use frpc::{
    fleet::{Endpoint, Endpoints, MethodConfig, PickPolicy, ResolvedSettings, RouteCalls},
    frisbee::rustls::ClientConfig,
};
use tracing::debug;

use crate::{
    client::{ClientState, ResourceWatch},
    protocol::ResourceState,
    resources::{
        Assignment, ClusterConfig, ClusterEndpoint, ClusterSource, ListenerConfig, Resource, ResourceKind, RouteRule,
        RouteSource, RouteTable, RouteTarget, TlsSecrets,
    },
    routing::{RemovedRoutes, ServiceRoutes},
};

/// The reason why a service has no new endpoints.
#[derive(Debug, PartialEq)]
pub(crate) enum Incomplete {
    /// A resource has not arrived yet.
    Waiting,
    /// The control plane has removed a resource, or never had it.
    Missing(String),
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
    /// The key of the channel, for hash policies without a header.
    channel_key: u64,
    /// The resources of the last pass, and of the last complete pass. The latter stay subscribed until the next
    /// complete pass.
    current: Watches,
    complete: Watches,
    last: Option<AssembledService>,
}

/// A complete service.
#[derive(Clone, Debug)]
struct AssembledService {
    rules: Vec<(RouteRule, MethodConfig)>,
    routes: Arc<dyn RouteCalls>,
    /// The endpoints of each cluster, or the reason why its calls fail.
    clusters: BTreeMap<Arc<str>, std::result::Result<AssembledCluster, Arc<str>>>,
}

type AssembledCluster = (Endpoints, ResolvedSettings);

/// A cluster with endpoints.
#[derive(Debug)]
struct LeafCluster {
    name: String,
    config: Arc<ClusterConfig>,
    tls: Option<Arc<ClientConfig>>,
    priorities: Vec<Vec<ClusterEndpoint>>,
    dropped: u32,
}

impl Assembly {
    pub(crate) fn new(client: Arc<ClientState>, service: String, scheme: String) -> Self {
        let channel_key = fastrand::u64(..);
        Self { client, service, scheme, channel_key, current: Watches::new(), complete: Watches::new(), last: None }
    }

    /// Looks at the resources again. Returns the endpoints if they have changed, and `None` if they have not.
    pub(crate) fn update(&mut self) -> Result<Option<Endpoints>> {
        let mut used = Watches::new();
        let found = self.resolve(&mut used);
        self.current = used;
        let found = match found {
            // Calls that the control plane no longer wants must not go to the last servers (gRFC A53). The other resources
            // stay subscribed: many control planes do not send an unchanged one again.
            Err(Incomplete::Missing(why)) if self.last.is_some() => {
                let routes = Arc::new(RemovedRoutes(why.into()));
                AssembledService { rules: Vec::new(), routes, clusters: BTreeMap::new() }
            }
            found => {
                let found = found?;
                self.complete = self.current.clone();
                found
            }
        };
        let is_same = |last: &AssembledService| last.rules == found.rules && last.clusters == found.clusters;
        if self.last.as_ref().is_some_and(is_same) {
            return Ok(None);
        }
        let AssembledService { routes, clusters, .. } = self.last.insert(found).clone();
        let clusters = clusters
            .into_iter()
            .map(|(name, found)| (name, found.map(|(endpoints, settings)| endpoints.with_settings(settings))));
        Ok(Some(Endpoints::routed(routes, clusters)))
    }

    fn watch(&self, used: &mut Watches, kind: ResourceKind, name: &str) -> Result<Resource> {
        let key = (kind, name.to_owned());
        let known = self.current.get(&key).or_else(|| self.complete.get(&key)).cloned();
        let watch = used.entry(key).or_insert_with(|| known.unwrap_or_else(|| Arc::new(self.client.watch(kind, name))));
        match watch.state() {
            ResourceState::Known(resource) => Ok(resource),
            ResourceState::Pending => Err(Incomplete::Waiting),
            ResourceState::Missing => {
                Err(Incomplete::Missing(format!("the control plane has no {kind:?} resource {name:?}")))
            }
            ResourceState::Refused(why) => Err(failed(format!("{kind:?} resource {name:?} is invalid: {why}"))),
        }
    }

    fn resolve(&self, used: &mut Watches) -> Result<AssembledService> {
        let listener = self.listener(used)?;
        let routes = self.routes(used, &listener)?;
        let Some(routes) = routes.routes_of(&self.service) else {
            return Err(failed(format!("no virtual host has the domain {:?}", self.service)));
        };
        let names: BTreeSet<_> =
            routes.iter().filter_map(|route| route.target.as_ref()).flat_map(RouteTarget::clusters).cloned().collect();
        if names.is_empty() {
            return Err(failed("the virtual host has no route to a cluster".to_owned()));
        }
        if names.len() > ROUTED_CLUSTERS_MAX {
            return Err(failed(format!("routes lead to {} clusters, more than {ROUTED_CLUSTERS_MAX}", names.len())));
        }
        // All are watched, although the first may be incomplete.
        let found: Vec<_> = names.into_iter().map(|name| (self.cluster(used, &name), name)).collect();
        let mut clusters = BTreeMap::<Arc<str>, std::result::Result<AssembledCluster, Arc<str>>>::new();
        let mut endpoints = 0;
        for (found, name) in found {
            let found = match found {
                Err(Incomplete::Waiting) => return Err(Incomplete::Waiting),
                Err(Incomplete::Missing(why)) => Err(Arc::from(why)),
                // The last good set stays.
                Err(Incomplete::Failed(why)) => match self.last.as_ref().and_then(|last| last.clusters.get(&name)) {
                    Some(Ok(last)) => {
                        debug!(cluster = %name, %why, "a cluster keeps its last endpoints");
                        Ok(last.clone())
                    }
                    _ => Err(why.into()),
                },
                Ok(found) => Ok(found),
            };
            endpoints += found.as_ref().map_or(0, |(found, _)| found.len());
            clusters.insert(name, found);
        }
        if endpoints > ENDPOINTS_MAX {
            return Err(failed(format!("there are {endpoints} endpoints, more than {ENDPOINTS_MAX}")));
        }
        if self.last.is_none() && clusters.values().all(std::result::Result::is_err) {
            let why = clusters.into_values().find_map(std::result::Result::err);
            return Err(failed(why.map(|why| why.to_string()).unwrap_or_default()));
        }
        let rules: Vec<_> =
            routes.iter().map(|route| (route.clone(), method_config(route, listener.timeout))).collect();
        // The same routes keep the key of the channel.
        let routes = match &self.last {
            Some(last) if last.rules == rules => last.routes.clone(),
            _ => Arc::new(ServiceRoutes::new(rules.clone(), self.channel_key)),
        };
        Ok(AssembledService { rules, routes, clusters })
    }

    /// Returns the endpoints and settings of one cluster of the routes.
    fn cluster(&self, used: &mut Watches, name: &str) -> Result<AssembledCluster> {
        let leaves = self.leaves(used, name, 0, &mut HashSet::new())?;
        let main = leaves.first().ok_or_else(|| failed(format!("the aggregate cluster {name:?} has no cluster")))?;
        let (mut all, mut before, mut calls_max) = (Vec::new(), 0, 0_u32);
        for leaf in &leaves {
            calls_max = calls_max.saturating_add(leaf.config.calls_max);
            for (priority, endpoints) in leaf.priorities.iter().enumerate() {
                all.extend(endpoints.iter().map(|one| (before + priority, one.share, one, leaf)));
            }
            before += leaf.priorities.len();
        }
        if all.is_empty() {
            return Err(failed(format!("the cluster {name:?} has no endpoints")));
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
        let settings = ResolvedSettings {
            policy: Some(match main.config.balancing.policy {
                PickPolicy::RoundRobin if !are_equal => PickPolicy::Weighted,
                policy => policy,
            }),
            reports: main.config.balancing.reports,
            ring: main.config.balancing.ring,
            outliers: main.config.outliers,
            dropped_per_million: main.dropped,
            calls: Some(self.client.call_limit(&main.name, calls_max)),
        };
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
        // Its secrets are watched, although the endpoints may be incomplete.
        let tls = self.tls(used, &config);
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
        let tls = tls.map_err(|error| match error {
            Incomplete::Failed(why) => failed(format!("the cluster {name:?}: {why}")),
            error => error,
        })?;
        Ok(vec![LeafCluster { name: name.to_owned(), config, tls, priorities, dropped }])
    }

    /// Returns the TLS of a cluster, with the current secrets.
    fn tls(&self, used: &mut Watches, config: &ClusterConfig) -> Result<Option<Arc<ClientConfig>>> {
        let Some(rules) = &config.tls else { return Ok(None) };
        // All are watched, although the first may be incomplete.
        let found: Vec<_> = rules.secrets().map(|name| (name, self.watch(used, ResourceKind::Secret, name))).collect();
        let mut secrets = TlsSecrets::new();
        for (name, found) in found {
            match found? {
                Resource::Secret(secret) => secrets.insert(name.clone(), secret),
                _ => unreachable!("resources are kept by their types"),
            };
        }
        let tls = self.client.tls.get(&self.client.bootstrap, rules, &secrets);
        tls.map(Some).map_err(|error| failed(error.to_string()))
    }

    fn endpoint(&self, one: &ClusterEndpoint, leaf: &LeafCluster) -> Result<Endpoint> {
        let invalid = |error: io::Error| failed(format!("the cluster {:?}: {error}", leaf.name));
        let scheme = match (&*self.scheme, &leaf.config.tls) {
            ("grpc", Some(_)) => "grpcs",
            (scheme, _) => scheme,
        };
        let mut endpoint = Endpoint::new(format!("{scheme}://{}", one.address)).map_err(invalid)?;
        if let (Some(rules), Some(tls)) = (&leaf.config.tls, &leaf.tls) {
            endpoint = endpoint.tls(tls.clone());
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

/// Returns the rules of the calls of a route.
fn method_config(route: &RouteRule, usual: Option<Duration>) -> MethodConfig {
    let Some(target) = &route.target else { return MethodConfig::default() };
    let timeout = target.timeout.or(usual).filter(|timeout| !timeout.is_zero());
    MethodConfig { timeout, retry: target.retry.clone(), ..MethodConfig::default() }
}

/// The maximum nesting of aggregate clusters.
const AGGREGATES_MAX: usize = 16;
/// The maximum number of clusters below a cluster of a route.
const CLUSTERS_MAX: usize = 100;
/// The maximum number of clusters of the routes of a service.
const ROUTED_CLUSTERS_MAX: usize = 1_000;
/// The maximum number of endpoints of a service.
const ENDPOINTS_MAX: usize = 10_000;
/// The weight of the greatest share.
const WEIGHT_MAX: u32 = 65_535;
/// Shares with a smaller relative difference count as equal.
const SHARE_TOLERANCE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use frpc::{prost::Message, prost_types::Any};

    use super::*;
    use crate::{
        bootstrap::Bootstrap,
        protos::{
            envoy::service::discovery::v3::DiscoveryResponse,
            frpc::xds::v3::{
                self as proto, address, cluster, config_source::ConfigSourceSpecifier,
                http_connection_manager::RouteSpecifier, route, route_action, route_match,
            },
        },
        settings::XdsSettings,
    };

    /// A service with its resources, without a control plane.
    struct Mesh {
        client: Arc<ClientState>,
        assembly: Assembly,
    }

    impl Mesh {
        fn new() -> Self {
            let bootstrap = r#"{"xds_servers": [{"server_uri": "plane:1", "channel_creds": [{"type": "insecure"}]}]}"#;
            let bootstrap = Bootstrap::from_json(bootstrap).unwrap();
            let client = Arc::new(ClientState::new(bootstrap, XdsSettings::default()));
            let assembly = Assembly::new(client.clone(), "orders".to_owned(), "grpc".to_owned());
            Self { client, assembly }
        }

        /// Sends resources, and looks at the result.
        fn send(&mut self, kind: ResourceKind, resources: &[Vec<u8>]) -> Result<Option<Endpoints>> {
            let any = |value: &Vec<u8>| Any { type_url: kind.type_url().to_owned(), value: value.clone() };
            let response = DiscoveryResponse {
                resources: resources.iter().map(any).collect(),
                type_url: kind.type_url().to_owned(),
                ..DiscoveryResponse::default()
            };
            self.client.change(|state| state.respond(response));
            self.assembly.update()
        }

        /// Sends a listener with one route for all calls.
        fn route(&mut self, cluster: &str) -> Result<Option<Endpoints>> {
            self.routes(&[("", cluster)])
        }

        fn routes(&mut self, routes: &[(&str, &str)]) -> Result<Option<Endpoints>> {
            let _ = self.assembly.update();
            let routes = routes.iter().map(|(prefix, cluster)| {
                let specifier = Some(route_match::PathSpecifier::Prefix((*prefix).to_owned()));
                let found = proto::RouteMatch { path_specifier: specifier, ..Default::default() };
                let cluster = route_action::ClusterSpecifier::Cluster((*cluster).to_owned());
                let action = proto::RouteAction { cluster_specifier: Some(cluster), ..Default::default() };
                proto::Route {
                    r#match: Some(found),
                    action: Some(route::Action::Route(action)),
                    name: (*prefix).to_owned(),
                }
            });
            let host = proto::VirtualHost {
                domains: vec!["*".to_owned()],
                routes: routes.collect(),
                ..proto::VirtualHost::default()
            };
            let config = proto::RouteConfiguration { name: String::new(), virtual_hosts: vec![host] };
            let manager = proto::HttpConnectionManager {
                route_specifier: Some(RouteSpecifier::RouteConfig(config)),
                ..Default::default()
            };
            let url =
                "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
            let api = Any { type_url: url.to_owned(), value: manager.encode_to_vec() };
            let api_listener = Some(proto::ApiListener { api_listener: Some(api) });
            let listener = proto::Listener { name: "orders".to_owned(), api_listener };
            self.send(ResourceKind::Listener, &[listener.encode_to_vec()])
        }

        fn cluster(&self, name: &str) -> std::result::Result<Endpoints, Arc<str>> {
            self.assembly.last.as_ref().unwrap().clusters[name].clone().map(|(endpoints, _)| endpoints)
        }

        fn is_watched(&self, kind: ResourceKind, name: &str) -> bool {
            self.client.lock().is_watched(kind, name)
        }
    }

    fn discovered(name: &str) -> Vec<u8> {
        let specifier = Some(ConfigSourceSpecifier::Ads(proto::AggregatedConfigSource {}));
        let eds_config = Some(proto::ConfigSource { config_source_specifier: specifier });
        let config = proto::EdsClusterConfig { eds_config, service_name: String::new() };
        let kind = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds as i32);
        let cluster = proto::Cluster {
            name: name.to_owned(),
            cluster_discovery_type: Some(kind),
            eds_cluster_config: Some(config),
            ..Default::default()
        };
        cluster.encode_to_vec()
    }

    fn aggregate(name: &str, clusters: &[&str]) -> Vec<u8> {
        let config =
            proto::AggregateClusterConfig { clusters: clusters.iter().map(|name| (*name).to_owned()).collect() };
        let url = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
        let typed_config = Some(Any { type_url: url.to_owned(), value: config.encode_to_vec() });
        let kind = proto::CustomClusterType { name: String::new(), typed_config };
        let kind = Some(cluster::ClusterDiscoveryType::ClusterType(kind));
        proto::Cluster { name: name.to_owned(), cluster_discovery_type: kind, ..Default::default() }.encode_to_vec()
    }

    fn assigned(name: &str, port: u32) -> Vec<u8> {
        let socket = proto::SocketAddress { address: "127.0.0.1".to_owned(), port_value: port, ..Default::default() };
        let address = proto::Address { address: Some(address::Address::SocketAddress(socket)) };
        let endpoint = proto::Endpoint { address: Some(address), ..Default::default() };
        let endpoint = proto::LbEndpoint { endpoint: Some(endpoint), ..Default::default() };
        let locality = proto::LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() };
        let endpoints = vec![locality];
        proto::ClusterLoadAssignment { cluster_name: name.to_owned(), endpoints, policy: None }.encode_to_vec()
    }

    fn failure(result: Result<Option<Endpoints>>) -> String {
        match result {
            Err(Incomplete::Failed(why)) => why,
            other => panic!("it has not failed: {other:?}"),
        }
    }

    #[test]
    fn a_service_is_complete_with_its_last_resource() {
        let mut mesh = Mesh::new();
        assert_eq!(mesh.route("a"), Err(Incomplete::Waiting));
        assert_eq!(mesh.send(ResourceKind::Cluster, &[discovered("a")]), Err(Incomplete::Waiting));
        let found = mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]).unwrap().unwrap();
        assert!(format!("{found:?}").contains("grpc://127.0.0.1:1"));
        assert_eq!(mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]), Ok(None), "nothing has changed");
        assert!(mesh.send(ResourceKind::Endpoints, &[assigned("a", 2)]).unwrap().is_some());
    }

    #[test]
    fn calls_to_removed_resources_fail_and_the_rest_continues() {
        let mut mesh = Mesh::new();
        let _ = mesh.routes(&[("/a.A/", "a"), ("", "b")]);
        let _ = mesh.send(ResourceKind::Cluster, &[discovered("a"), discovered("b")]);
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1), assigned("b", 2)]).unwrap().unwrap();
        mesh.send(ResourceKind::Cluster, &[discovered("b")]).unwrap().unwrap();
        let why = mesh.cluster("a").unwrap_err();
        assert!(why.contains("no Cluster resource \"a\""), "{why}");
        assert!(mesh.cluster("b").is_ok());
        let both = [discovered("a"), discovered("b")];
        assert_eq!(mesh.send(ResourceKind::Cluster, &both), Err(Incomplete::Waiting));
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]).unwrap().unwrap();
        assert!(mesh.cluster("a").is_ok(), "it has returned");
        mesh.send(ResourceKind::Listener, &[]).unwrap().unwrap();
        assert!(mesh.assembly.last.as_ref().unwrap().clusters.is_empty());
        mesh.routes(&[("", "b")]).unwrap().unwrap();
        assert!(mesh.cluster("b").is_ok(), "it has returned");
    }

    #[test]
    fn deletions_are_ignored_if_the_bootstrap_says_so() {
        let mut mesh = Mesh::new();
        let _ = mesh.route("a");
        let _ = mesh.send(ResourceKind::Cluster, &[discovered("a")]);
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]).unwrap().unwrap();
        mesh.client.lock().begin_stream(true);
        assert_eq!(mesh.send(ResourceKind::Cluster, &[]), Ok(None));
        assert_eq!(mesh.send(ResourceKind::Listener, &[]), Ok(None));
    }

    #[test]
    fn earlier_resources_stay_subscribed_until_others_are_complete() {
        let mut mesh = Mesh::new();
        let _ = mesh.route("a");
        let _ = mesh.send(ResourceKind::Cluster, &[discovered("a")]);
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]).unwrap().unwrap();
        assert_eq!(mesh.route("b"), Err(Incomplete::Waiting));
        assert!(mesh.is_watched(ResourceKind::Endpoints, "a"));
        let _ = mesh.send(ResourceKind::Cluster, &[discovered("a"), discovered("b")]);
        assert!(mesh.send(ResourceKind::Endpoints, &[assigned("b", 2)]).unwrap().is_some());
        assert!(!mesh.is_watched(ResourceKind::Endpoints, "a"));
        assert!(mesh.is_watched(ResourceKind::Endpoints, "b"));
    }

    #[test]
    fn clusters_of_an_aggregate_have_priorities_and_cycles_end() {
        let mut mesh = Mesh::new();
        let _ = mesh.route("all");
        let clusters = [
            aggregate("all", &["a", "all", "more"]),
            aggregate("more", &["all", "b", "a"]),
            discovered("a"),
            discovered("b"),
        ];
        // Each pass subscribes to the next level.
        for _ in 0..3 {
            let _ = mesh.send(ResourceKind::Cluster, &clusters);
        }
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1), assigned("b", 2)]).unwrap().unwrap();
        let endpoint = |port: u32| Endpoint::new(format!("grpc://127.0.0.1:{port}")).unwrap();
        let expected = Endpoints::new([endpoint(1), endpoint(2).priority(1)]);
        assert_eq!(mesh.cluster("all").unwrap(), expected);
    }

    #[test]
    fn hostile_graphs_of_clusters_are_bounded() {
        // Each cluster names each other one many times.
        let names: Vec<_> = (0..15).map(|index| format!("c{index}")).collect();
        let every: Vec<&str> = names.iter().cycle().take(100).map(|name| &**name).collect();
        let all: Vec<_> = names.iter().map(|name| aggregate(name, &every)).collect();
        let mut mesh = Mesh::new();
        let _ = mesh.route("c0");
        for _ in 0..3 {
            let _ = mesh.send(ResourceKind::Cluster, &all);
        }
        assert!(failure(mesh.send(ResourceKind::Cluster, &all)).contains("has no cluster"), "none has endpoints");

        // A long chain, and one with too many clusters.
        let chain: Vec<_> =
            (0..20).map(|index| aggregate(&format!("d{index}"), &[&format!("d{}", index + 1)])).collect();
        let mut mesh = Mesh::new();
        let _ = mesh.route("d0");
        let last = (0..20).map(|_| mesh.send(ResourceKind::Cluster, &chain)).last().unwrap();
        assert!(failure(last).contains("nested more than 16 times"));
        let wide: Vec<_> = (0..100).map(|index| format!("e{index}")).collect();
        let wide = aggregate("wide", &wide.iter().map(|name| &**name).collect::<Vec<_>>());
        let mut mesh = Mesh::new();
        let _ = mesh.route("wide");
        assert!(matches!(mesh.send(ResourceKind::Cluster, &[wide]), Err(Incomplete::Failed(_) | Incomplete::Waiting)));
    }

    #[test]
    fn routes_lead_to_several_clusters_and_one_may_fail() {
        let mut mesh = Mesh::new();
        assert_eq!(mesh.routes(&[("/a.B/", "a"), ("", "b")]), Err(Incomplete::Waiting));
        let _ = mesh.send(ResourceKind::Cluster, &[discovered("a"), discovered("b")]);
        assert_eq!(mesh.send(ResourceKind::Endpoints, &[assigned("a", 1)]), Err(Incomplete::Waiting));
        let empty = proto::ClusterLoadAssignment { cluster_name: "b".to_owned(), ..Default::default() };
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1), empty.encode_to_vec()]).unwrap().unwrap();
        let why = mesh.cluster("b").unwrap_err();
        assert!(mesh.cluster("a").is_ok() && why.contains("has no endpoints"), "{why}");
        mesh.send(ResourceKind::Endpoints, &[assigned("a", 1), assigned("b", 2)]).unwrap().unwrap();
        assert_eq!(mesh.send(ResourceKind::Endpoints, &[empty.encode_to_vec()]), Ok(None), "the last good set stays");
        let why = failure(mesh.routes(&[]));
        assert!(why.contains("no route"), "{why}");
    }
}
