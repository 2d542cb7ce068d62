//! Endpoints of clusters.

use std::{collections::HashSet, net::IpAddr};

use super::fields::{fraction, per_million};
use crate::protos::frpc::xds::v3::{
    self as proto, address::Address, lb_endpoint::HealthStatus, socket_address::Protocol,
};

/// The endpoints of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Assignment {
    /// The usable endpoints of each priority.
    pub(crate) priorities: Vec<Vec<ClusterEndpoint>>,
    /// The number of calls to drop, of a million.
    pub(crate) dropped: u32,
}

/// An endpoint and its share of the calls of its priority.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterEndpoint {
    /// `HOST:PORT`, or `unix:PATH`.
    pub(crate) address: String,
    pub(crate) host_name: String,
    pub(crate) zone: String,
    pub(crate) share: f64,
}

impl Assignment {
    /// Returns the assignment of a cluster with one address.
    pub(crate) fn named(address: &str) -> Self {
        let host_name = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        let one = ClusterEndpoint { address: address.to_owned(), host_name, zone: String::new(), share: 1.0 };
        Self { priorities: vec![vec![one]], dropped: 0 }
    }

    pub(super) fn read(assignment: &proto::ClusterLoadAssignment) -> Result<Self, String> {
        let endpoints = assignment.endpoints.iter().map(|locality| locality.lb_endpoints.len()).sum::<usize>();
        if endpoints > ENDPOINTS_MAX || assignment.endpoints.len() > ENDPOINTS_MAX {
            return Err(format!("there are {endpoints} endpoints, more than {ENDPOINTS_MAX}"));
        }
        let (mut localities, mut addresses) = (HashSet::new(), HashSet::new());
        let mut priorities: Vec<Vec<&proto::LocalityLbEndpoints>> = Vec::new();
        let mut sorted: Vec<_> = assignment.endpoints.iter().collect();
        sorted.sort_by_key(|locality| locality.priority);
        for locality in sorted {
            let place = locality.locality.clone().unwrap_or_default();
            if !localities.insert((locality.priority, place.region, place.zone.clone(), place.sub_zone)) {
                return Err(format!("the locality {:?} appears twice in priority {}", place.zone, locality.priority));
            }
            let priority = locality.priority as usize;
            if priority > priorities.len() {
                return Err(format!("there is no priority {} before priority {priority}", priorities.len()));
            }
            if priority == priorities.len() {
                priorities.push(Vec::new());
            }
            priorities[priority].push(locality);
        }
        let priorities = priorities.into_iter().map(|localities| read_priority(&localities, &mut addresses));
        let priorities = priorities.collect::<Result<Vec<_>, _>>()?;
        let kept = assignment.policy.iter().flat_map(|policy| &policy.drop_overloads).try_fold(1.0, |kept, drop| {
            let dropped = fraction("drop_percentage", drop.drop_percentage.as_ref())?;
            Ok::<_, String>(kept * (1.0 - dropped))
        })?;
        Ok(Self { priorities, dropped: per_million(1.0 - kept) })
    }
}

/// Reads the localities of one priority. One without a weight gets no calls if another has one. If none has, all
/// endpoints are equal.
fn read_priority(
    localities: &[&proto::LocalityLbEndpoints],
    addresses: &mut HashSet<String>,
) -> Result<Vec<ClusterEndpoint>, String> {
    let sum = localities.iter().filter_map(|locality| locality.load_balancing_weight).map(u64::from).sum::<u64>();
    if sum > u64::from(u32::MAX) {
        return Err(format!("the sum of the weights of the localities is {sum}"));
    }
    let mut all = Vec::new();
    for locality in localities {
        let mut usable = Vec::new();
        for one in &locality.lb_endpoints {
            let (address, host_name) = read_address(one)?;
            if !addresses.insert(address.clone()) {
                return Err(format!("the endpoint {address} appears twice"));
            }
            let weight = one.load_balancing_weight.unwrap_or(1);
            if weight == 0 {
                return Err(format!("the endpoint {address} has the weight 0"));
            }
            let health = HealthStatus::try_from(one.health_status).unwrap_or(HealthStatus::Unhealthy);
            if matches!(health, HealthStatus::Unknown | HealthStatus::Healthy) {
                let zone = locality.locality.as_ref().map(|place| place.zone.clone()).unwrap_or_default();
                usable.push(ClusterEndpoint { address, host_name, zone, share: f64::from(weight) });
            }
        }
        if sum > 0 {
            let total: f64 = usable.iter().map(|one| one.share).sum();
            let weight = locality.load_balancing_weight.unwrap_or(0);
            if weight == 0 {
                continue;
            }
            usable.iter_mut().for_each(|one| one.share *= f64::from(weight) / total);
        }
        all.append(&mut usable);
    }
    let total: f64 = all.iter().map(|one| one.share).sum();
    all.iter_mut().for_each(|one| one.share /= total);
    Ok(all)
}

fn read_address(one: &proto::LbEndpoint) -> Result<(String, String), String> {
    let endpoint = one.endpoint.as_ref().ok_or("an endpoint has no address")?;
    match endpoint.address.as_ref().and_then(|address| address.address.as_ref()) {
        Some(Address::SocketAddress(socket)) => {
            if socket.protocol != Protocol::Tcp as i32 {
                return Err(format!("the endpoint {} is not on TCP", socket.address));
            }
            // Names would be looked up by each connection, and a control plane could name any host.
            let ip: IpAddr =
                socket.address.parse().map_err(|_| format!("{:?} is not an IP address", socket.address))?;
            let port = u16::try_from(socket.port_value).ok().filter(|port| *port > 0);
            let port = port.ok_or_else(|| format!("the endpoint {ip} has the port {}", socket.port_value))?;
            let address = match ip {
                IpAddr::V4(ip) => format!("{ip}:{port}"),
                IpAddr::V6(ip) => format!("[{ip}]:{port}"),
            };
            Ok((address, endpoint.hostname.clone()))
        }
        Some(Address::Pipe(_)) => Err("an endpoint has a pipe for an address, which is not supported".to_owned()),
        None => Err("an endpoint has no address".to_owned()),
    }
}

/// The maximum number of endpoints of a cluster.
const ENDPOINTS_MAX: usize = 10_000;
