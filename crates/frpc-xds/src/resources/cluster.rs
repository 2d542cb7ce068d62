//! Clusters: settings, and the source of the endpoints.

use std::{sync::Arc, time::Duration};

use frpc::fleet::{OutlierRule, OutlierSettings};

use super::{
    balancing::ClusterBalancing,
    endpoints::Assignment,
    fields::{check_len, check_source, duration, unpack},
    tls::TlsRules,
};
use crate::protos::frpc::xds::v3::{
    self as proto,
    address::Address,
    cluster::{ClusterDiscoveryType, DiscoveryType},
    thresholds::RoutingPriority,
};

/// The settings of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterConfig {
    pub(crate) source: ClusterSource,
    pub(crate) balancing: ClusterBalancing,
    pub(crate) outliers: Option<OutlierSettings>,
    /// The maximum number of calls in flight.
    pub(crate) calls_max: u32,
    pub(crate) tls: Option<TlsRules>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterSource {
    /// The endpoints of an assignment with this name.
    Discovered(String),
    Inline(Arc<Assignment>),
    /// `HOST:PORT`, looked up when a channel connects.
    Named(String),
    /// The endpoints of other clusters. Each one is used while the clusters before it fail.
    Aggregate(Vec<String>),
}

impl ClusterConfig {
    pub(super) fn read(cluster: proto::Cluster) -> Result<Self, String> {
        Ok(Self {
            source: read_source(&cluster)?,
            balancing: ClusterBalancing::read(&cluster)?,
            outliers: cluster.outlier_detection.as_ref().map(read_outliers).transpose()?,
            calls_max: read_limit(cluster.circuit_breakers.as_ref()),
            tls: cluster.transport_socket.as_ref().map(TlsRules::read).transpose()?,
        })
    }
}

fn read_source(cluster: &proto::Cluster) -> Result<ClusterSource, String> {
    let kind = match &cluster.cluster_discovery_type {
        None => DiscoveryType::Static,
        Some(ClusterDiscoveryType::Type(kind)) => {
            DiscoveryType::try_from(*kind).map_err(|_| format!("the type {kind} is unknown"))?
        }
        Some(ClusterDiscoveryType::ClusterType(kind)) => {
            let config = kind.typed_config.as_ref().ok_or("cluster_type.typed_config is missing")?;
            let proto::AggregateClusterConfig { clusters } = unpack("cluster_type", config, AGGREGATE)?;
            check_len("cluster_type.clusters", &clusters, CLUSTERS_MAX)?;
            if clusters.is_empty() || clusters.iter().any(String::is_empty) {
                return Err("cluster_type.clusters is empty, or has an empty name".to_owned());
            }
            return Ok(ClusterSource::Aggregate(clusters));
        }
    };
    match kind {
        DiscoveryType::Eds => {
            let config = cluster.eds_cluster_config.as_ref().ok_or("eds_cluster_config is missing")?;
            check_source("eds_cluster_config.eds_config", config.eds_config.as_ref())?;
            let name = if config.service_name.is_empty() { &cluster.name } else { &config.service_name };
            Ok(ClusterSource::Discovered(name.clone()))
        }
        DiscoveryType::Static => {
            let assignment = cluster.load_assignment.as_ref().ok_or("load_assignment is missing")?;
            Assignment::read(assignment).map(|one| ClusterSource::Inline(Arc::new(one)))
        }
        DiscoveryType::LogicalDns => read_name(cluster.load_assignment.as_ref()).map(ClusterSource::Named),
        DiscoveryType::StrictDns | DiscoveryType::OriginalDst => {
            Err(format!("the type {} is not supported", kind.as_str_name()))
        }
    }
}

/// Returns the only address of a cluster with a name (gRFC A37).
fn read_name(assignment: Option<&proto::ClusterLoadAssignment>) -> Result<String, String> {
    let endpoints = assignment.map(|one| &*one.endpoints).unwrap_or_default();
    let [proto::LocalityLbEndpoints { lb_endpoints, .. }] = endpoints else {
        return Err("a LOGICAL_DNS cluster needs one locality".to_owned());
    };
    let [proto::LbEndpoint { endpoint: Some(endpoint), .. }] = &**lb_endpoints else {
        return Err("a LOGICAL_DNS cluster needs one endpoint".to_owned());
    };
    let Some(Address::SocketAddress(socket)) = endpoint.address.as_ref().and_then(|address| address.address.as_ref())
    else {
        return Err("a LOGICAL_DNS cluster needs a socket_address".to_owned());
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let port = u16::try_from(socket.port_value).ok().filter(|port| *port > 0);
    match port.filter(|_| !socket.address.is_empty() && socket.address.bytes().all(is_name)) {
        Some(port) => Ok(format!("{}:{port}", socket.address)),
        None => Err(format!("the address {:?} with port {} is invalid", socket.address, socket.port_value)),
    }
}

fn read_limit(breakers: Option<&proto::CircuitBreakers>) -> u32 {
    let mut thresholds = breakers.into_iter().flat_map(|breakers| &breakers.thresholds);
    let usual = thresholds.find(|one| one.priority == RoutingPriority::Default as i32);
    usual.and_then(|one| one.max_requests).unwrap_or(CALLS_MAX)
}

/// Reads rules for outliers, with the defaults of xDS (gRFC A50).
fn read_outliers(found: &proto::OutlierDetection) -> Result<OutlierSettings, String> {
    let time = |name: &str, value, default: u64| match duration(name, value)? {
        Some(Duration::ZERO) => Err(format!("outlier_detection.{name} must be above 0")),
        Some(time) => Ok(time),
        None => Ok(Duration::from_secs(default)),
    };
    let percent = |name: &str, value: Option<u32>, default: u32| match value.unwrap_or(default) {
        value @ 0..=100 => Ok(value as f32 / 100.0),
        value => Err(format!("outlier_detection.{name} is {value}, more than 100")),
    };
    let ejection = time("base_ejection_time", found.base_ejection_time, 30)?;
    let by_rate = percent("enforcing_success_rate", found.enforcing_success_rate, 100)?;
    let by_failures = percent("enforcing_failure_percentage", found.enforcing_failure_percentage, 0)?;
    let rule = |enforcement: f32, threshold: f32, hosts: Option<u32>, calls: u32| {
        let rule = OutlierRule { threshold, endpoints_min: hosts.unwrap_or(5) as usize, calls_min: calls, enforcement };
        (enforcement > 0.0).then_some(rule)
    };
    let success_rate = rule(
        by_rate,
        found.success_rate_stdev_factor.unwrap_or(1_900) as f32 / 1000.0,
        found.success_rate_minimum_hosts,
        found.success_rate_request_volume.unwrap_or(100),
    );
    let failures = rule(
        by_failures,
        percent("failure_percentage_threshold", found.failure_percentage_threshold, 85)?,
        found.failure_percentage_minimum_hosts,
        found.failure_percentage_request_volume.unwrap_or(50),
    );
    Ok(OutlierSettings {
        failures_in_row: 0,
        sweep: time("interval", found.interval, 10)?.max(SWEEP_MIN),
        success_rate,
        failures,
        ejection,
        ejection_max: time("max_ejection_time", found.max_ejection_time, 300)?.max(ejection),
        ejected_max: percent("max_ejection_percent", found.max_ejection_percent, 10)?,
        ..OutlierSettings::default()
    })
}

const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
/// The maximum number of clusters of an aggregate cluster.
const CLUSTERS_MAX: usize = 100;
/// The default limit on calls in flight (gRFC A32).
const CALLS_MAX: u32 = 1_024;
/// The minimum time between two sweeps for outliers.
const SWEEP_MIN: Duration = Duration::from_millis(10);
