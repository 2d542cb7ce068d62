//! The choice of endpoints from the slices of a Service.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use frpc::{
    fleet::{Endpoint, Endpoints},
    shown,
};
use tracing::debug;

use crate::{
    settings::ResolverSettings,
    slices::{ApiObject, SliceEndpoint, SliceTable},
    target::{ServiceTarget, TargetPort},
};

/// The rules for one target.
#[derive(Clone, Debug)]
pub(crate) struct EndpointRules {
    target: ServiceTarget,
    tls_name: Arc<str>,
    zone: Option<Arc<str>>,
    prefer_ipv6: bool,
}

/// An endpoint with the port and the family of its slice.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    endpoint: &'a SliceEndpoint,
    address: &'a str,
    port: u16,
    family: &'a str,
}

impl EndpointRules {
    pub(crate) fn new(target: ServiceTarget, namespace: &str, settings: &ResolverSettings) -> Self {
        let name = || format!("{}.{namespace}.svc", target.service).into();
        let tls_name = settings.tls_name.clone().unwrap_or_else(name);
        Self { tls_name, zone: settings.zone.clone(), prefer_ipv6: settings.prefer_ipv6, target }
    }

    /// Returns the endpoints for calls.
    pub(crate) fn select(&self, table: &SliceTable) -> io::Result<Endpoints> {
        let candidates = self.candidates(table)?;
        let mut chosen: Vec<_> = candidates.iter().filter(|one| one.endpoint.is_ready()).copied().collect();
        if chosen.is_empty() {
            // All pods of a Service may be replaced at the same time. The last of the old ones are better than none.
            chosen = candidates.iter().filter(|one| one.endpoint.is_serving_its_end()).copied().collect();
        }
        self.keep_hinted(&mut chosen);
        self.keep_one_address(&mut chosen);
        Ok(Endpoints::new(chosen.into_iter().filter_map(|one| self.endpoint(one))))
    }

    /// Returns all endpoints with the port of the target.
    fn candidates<'a>(&self, table: &'a SliceTable) -> io::Result<Vec<Candidate<'a>>> {
        let mut candidates = Vec::new();
        let mut has_port = false;
        for slice in table.slices() {
            let endpoints = slice.endpoints.iter().flatten();
            let Some(port) = self.port_of(slice)? else { continue };
            has_port = true;
            candidates.extend(endpoints.filter_map(|endpoint| {
                // Further addresses of an endpoint are the same server. Kubernetes itself uses the first only.
                let address = endpoint.addresses.as_ref()?.first()?;
                Some(Candidate { endpoint, address, port, family: &slice.address_type })
            }));
        }
        let is_empty = table.slices().all(|slice| slice.endpoints.as_ref().is_none_or(Vec::is_empty));
        if has_port || is_empty { Ok(candidates) } else { Err(self.unknown_port(table)) }
    }

    /// Returns the port of the target in a slice, or `None` if the slice does not have it.
    fn port_of(&self, slice: &ApiObject) -> io::Result<Option<u16>> {
        let ports = slice.ports.iter().flatten();
        let mut ports = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        match &self.target.port {
            // The pods may listen on ports that the Service does not name.
            TargetPort::Number(number) => Ok(Some(*number)),
            TargetPort::Named(name) => {
                Ok(ports.find(|port| port.name.as_ref() == Some(name)).and_then(|port| port.port))
            }
            TargetPort::Only => {
                let only = ports.next().and_then(|port| port.port);
                if ports.next().is_some() {
                    let text = format!("the Service {} has several ports: add one to the target", self.target.service);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Ok(only)
            }
        }
    }

    fn unknown_port(&self, table: &SliceTable) -> io::Error {
        let ports = table.slices().flat_map(|slice| slice.ports.iter().flatten());
        let names: BTreeSet<_> = ports.filter_map(|port| port.name.as_deref()).take(PORTS_NAMED_MAX).collect();
        let names = shown(names.into_iter().collect::<Vec<_>>().join(", "));
        let (service, wanted) = (&self.target.service, &self.target.port);
        let text = match wanted {
            TargetPort::Named(wanted) => format!("the Service {service} has no port {wanted:?}, but: {names}"),
            _ => format!("the Service {service} names no port: add its number to the target"),
        };
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// Leaves out endpoints meant for other zones, if the hints are complete.
    fn keep_hinted(&self, chosen: &mut Vec<Candidate<'_>>) {
        let Some(zone) = &self.zone else { return };
        let is_for = |one: &Candidate<'_>| one.endpoint.is_for(zone);
        // A part of the hints may be missing while the control plane calculates them anew.
        if chosen.iter().all(|one| is_for(one).is_some()) && chosen.iter().any(|one| is_for(one) == Some(true)) {
            chosen.retain(|one| is_for(one) == Some(true));
        }
    }

    /// Leaves out the second address of pods with one in each family.
    fn keep_one_address(&self, chosen: &mut Vec<Candidate<'_>>) {
        let preferred = if self.prefer_ipv6 { "IPv6" } else { "IPv4" };
        let uid = |one: &Candidate<'_>| match &one.endpoint.target_ref {
            Some(reference) if !reference.uid.is_empty() => Some(reference.uid.clone()),
            _ => None,
        };
        let mut has_preferred = HashMap::new();
        for one in chosen.iter() {
            if let Some(uid) = uid(one) {
                *has_preferred.entry(uid).or_insert(false) |= one.family == preferred;
            }
        }
        chosen.retain(|one| match uid(one) {
            Some(uid) => one.family == preferred || !has_preferred[&uid],
            None => true,
        });
    }

    fn endpoint(&self, one: Candidate<'_>) -> Option<Endpoint> {
        let place = match one.address.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, one.port).to_string(),
            Err(_) if one.family == "FQDN" && is_host(one.address) => format!("{}:{}", one.address, one.port),
            Err(_) => {
                debug!(address = one.address, "an endpoint without a valid address is left out");
                return None;
            }
        };
        let endpoint = Endpoint::new(format!("{}://{place}", self.target.wire)).ok()?.tls_name(self.tls_name.clone());
        Some(match &one.endpoint.zone {
            Some(zone) => endpoint.zone(&**zone),
            None => endpoint,
        })
    }
}

fn is_host(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(is_valid)
}

/// The maximum number of ports named in an error.
const PORTS_NAMED_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn table(slices: Value) -> SliceTable {
        let mut table = SliceTable::default();
        for slice in serde_json::from_value::<Vec<ApiObject>>(slices).unwrap() {
            table.insert(slice, 100, 1000).unwrap();
        }
        table
    }

    fn select(target: &str, settings: &ResolverSettings, slices: Value) -> io::Result<Endpoints> {
        let target = ServiceTarget::parse(target).unwrap();
        EndpointRules::new(target, "shop", settings).select(&table(slices))
    }

    fn all(addresses: &[&str]) -> Endpoints {
        Endpoints::new(addresses.iter().map(|address| Endpoint::new(*address).unwrap().tls_name("orders.shop.svc")))
    }

    fn slice(name: &str, family: &str, endpoints: Value) -> Value {
        let ports = json!([{"name": "grpc", "port": 7300}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        json!({"metadata": {"name": name}, "addressType": family, "endpoints": endpoints, "ports": ports})
    }

    #[test]
    fn endpoints_of_all_slices_are_selected_at_the_port() {
        let slices = json!([
            slice("b", "IPv6", json!([{"addresses": ["fd00::1", "fd00::2"]}])),
            slice("a", "IPv4", json!([{"addresses": ["10.0.0.1"]}, {"addresses": []}, {"addresses": ["nonsense"]}])),
            slice("c", "FQDN", json!([{"addresses": ["db.example.org"]}, {"addresses": ["db/../x"]}])),
            slice("d", "IPv4", json!(null)),
        ]);
        let settings = ResolverSettings::default();
        let named = select("kubernetes+grpc:///orders.shop:grpc", &settings, slices.clone()).unwrap();
        assert_eq!(named, all(&["grpc://10.0.0.1:7300", "grpc://[fd00::1]:7300", "grpc://db.example.org:7300"]));
        assert_eq!(select("kubernetes+grpc:///orders.shop", &settings, slices.clone()).unwrap(), named);
        let number = select("kubernetes:///orders.shop:9", &settings, slices.clone()).unwrap();
        assert_eq!(number, all(&["tcp://10.0.0.1:9", "tcp://[fd00::1]:9", "tcp://db.example.org:9"]));
        let unknown = select("kubernetes:///orders.shop:http", &settings, slices).unwrap_err();
        assert_eq!(unknown.to_string(), "the Service orders has no port \"http\", but: dns, grpc");
        assert_eq!(select("kubernetes:///orders.shop:http", &settings, json!([])).unwrap(), Endpoints::default());
    }

    #[test]
    fn ready_endpoints_go_before_those_that_still_serve() {
        let with = |conditions: [Value; 4]| {
            let endpoints: Vec<_> = conditions
                .into_iter()
                .zip(1..)
                .map(
                    |(conditions, number)| json!({"addresses": [format!("10.0.0.{number}")], "conditions": conditions}),
                )
                .collect();
            let slices = json!([slice("a", "IPv4", endpoints.into())]);
            select("kubernetes:///orders:grpc", &ResolverSettings::default(), slices).unwrap()
        };
        let [unready, ending, ended] = [
            json!({"ready": false, "serving": false}),
            json!({"ready": false, "serving": true, "terminating": true}),
            json!({"ready": false, "serving": false, "terminating": true}),
        ];
        let found = with([unready.clone(), ending.clone(), json!({"ready": true}), json!(null)]);
        assert_eq!(found, all(&["tcp://10.0.0.3:7300", "tcp://10.0.0.4:7300"]));
        assert_eq!(with([unready.clone(), ending, ended, unready]), all(&["tcp://10.0.0.2:7300"]));
    }

    #[test]
    fn pods_with_two_addresses_count_once() {
        let pod = |address: &str, uid: &str| json!({"addresses": [address], "targetRef": {"uid": uid}});
        let slices = json!([
            slice("a", "IPv4", json!([pod("10.0.0.1", "1"), pod("10.0.0.2", "2"), {"addresses": ["10.0.0.9"]}])),
            slice("b", "IPv6", json!([pod("fd00::1", "1"), pod("fd00::3", "3"), {"addresses": ["fd00::9"]}])),
        ]);
        let with = |prefer_ipv6| {
            let settings = ResolverSettings { prefer_ipv6, ..ResolverSettings::default() };
            select("kubernetes:///orders:grpc", &settings, slices.clone()).unwrap()
        };
        let others = ["tcp://10.0.0.9:7300", "tcp://[fd00::3]:7300", "tcp://[fd00::9]:7300"];
        assert_eq!(with(false), all(&[&["tcp://10.0.0.1:7300", "tcp://10.0.0.2:7300"], &others[..]].concat()));
        let ipv6 = ["tcp://10.0.0.2:7300", others[0], "tcp://[fd00::1]:7300", others[1], others[2]];
        assert_eq!(with(true), all(&ipv6));
    }

    #[test]
    fn complete_hints_select_by_zone() {
        let hinted =
            |address: &str, zones: Value| json!({"addresses": [address], "zone": "z", "hints": {"forZones": zones}});
        let with = |zone: Option<&str>, third: Value| {
            let endpoints = json!([
                hinted("10.0.0.1", json!([{"name": "a"}])),
                hinted("10.0.0.2", json!([{"name": "b"}, {"name": "c"}])),
                hinted("10.0.0.3", third)
            ]);
            let settings = ResolverSettings { zone: zone.map(Into::into), ..ResolverSettings::default() };
            let slices = json!([slice("a", "IPv4", endpoints)]);
            select("kubernetes:///orders:grpc", &settings, slices).unwrap()
        };
        let at = |numbers: &[u8]| {
            let tls = |at: String| Endpoint::new(at).unwrap().zone("z").tls_name("orders.shop.svc");
            Endpoints::new(numbers.iter().map(|number| tls(format!("tcp://10.0.0.{number}:7300"))))
        };
        let a = json!([{"name": "a"}]);
        assert_eq!(with(Some("a"), a.clone()), at(&[1, 3]));
        assert_eq!(with(Some("c"), a.clone()), at(&[2]));
        assert_eq!(with(Some("d"), a.clone()), at(&[1, 2, 3]), "no hint names the zone");
        assert_eq!(with(None, a), at(&[1, 2, 3]));
        assert_eq!(with(Some("a"), json!(null)), at(&[1, 2, 3]), "the hints are not complete");
    }

    #[test]
    fn endpoints_and_slices_are_limited() {
        let one = |name: &str, len: usize| ApiObject {
            metadata: crate::slices::ObjectMetadata { name: name.into(), ..Default::default() },
            endpoints: Some(vec![SliceEndpoint::default(); len]),
            ..Default::default()
        };
        let mut table = SliceTable::default();
        table.insert(one("a", 5), 2, 10).unwrap();
        table.insert(one("b", 5), 2, 10).unwrap();
        table.insert(one("a", 5), 2, 10).unwrap();
        assert!(table.insert(one("b", 6), 2, 10).unwrap_err().to_string().contains("more than 10 endpoints"));
        table.insert(one("b", 1), 2, 10).unwrap();
        assert!(table.insert(one("c", 1), 2, 10).is_err(), "there are two slices");
        table.remove("a");
        table.insert(one("c", 9), 2, 10).unwrap();
    }
}
