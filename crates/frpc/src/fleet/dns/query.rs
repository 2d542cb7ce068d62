//! The question to DNS, and its answer.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use frisbee::Address;

/// The question to DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsQuery {
    /// The name server, if it is not that of the system.
    pub(super) server: Option<SocketAddr>,
    pub(super) name: Arc<str>,
    /// The port of a host. Without a port, the name is that of a service.
    pub(super) port: Option<u16>,
}

/// The servers in an answer.
#[derive(Debug)]
pub(super) struct DnsAnswer {
    pub(super) servers: Vec<FoundServer>,
    /// The time for which the answer is valid.
    pub(super) lifetime: Duration,
}

/// A server in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundServer {
    pub(super) place: SocketAddr,
    pub(super) weight: u32,
    /// The name of the host, for its certificate.
    pub(super) host: Arc<str>,
}

/// Returns the scheme of the addresses of a `dns` target.
pub(crate) fn wire_of(scheme: &str) -> Option<&str> {
    match scheme.strip_prefix("dns")? {
        "" => Some("tcp"),
        wire => wire.strip_prefix('+'),
    }
}

impl DnsQuery {
    /// Parses `SERVER/HOST:PORT` or `SERVER/SERVICE`, the part after `://` of a target.
    pub(super) fn parse(text: &str, scheme: &str, rest: &str) -> io::Result<Self> {
        let fault = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("target {text:?}: {why}"));
        let query = Self::parse_rest(rest).filter(|_| !scheme.is_empty()).ok_or_else(|| {
            fault("expected dns:///HOST:PORT, dns:///_SERVICE._tcp.DOMAIN or dns+SCHEME:///HOST:PORT")
        })?;
        if !cfg!(feature = "dns") && (query.port.is_none() || query.server.is_some()) {
            return Err(fault("services (SRV records) and name servers need the feature `dns` of frisbee-rpc"));
        }
        Ok(query)
    }

    fn parse_rest(rest: &str) -> Option<Self> {
        let (server, place) = rest.split_once('/')?;
        let server = match server {
            "" => None,
            server => Some(server.parse().or_else(|_| server.parse().map(|ip| SocketAddr::new(ip, DNS_PORT))).ok()?),
        };
        if place.starts_with('_') {
            return (!place.contains(['/', ':'])).then(|| Self { server, name: place.into(), port: None });
        }
        let (name, port) = Address::split_host_port(place).ok()?;
        Some(Self { server, name: name.into(), port: Some(port) })
    }
}

impl DnsAnswer {
    /// Returns the time until the next lookup, while all connections are well.
    pub(super) fn period(&self) -> Duration {
        self.lifetime.clamp(PERIOD_MIN, PERIOD_MAX)
    }
}

/// The port of name servers.
const DNS_PORT: u16 = 53;
/// The time between two lookups, where the lifetime of records is unknown.
pub(super) const LOOKUP_PERIOD: Duration = Duration::from_secs(30);
/// The limits of the time between two lookups, where the lifetime of records is known.
const PERIOD_MIN: Duration = Duration::from_secs(5);
const PERIOD_MAX: Duration = Duration::from_secs(600);
/// The maximum number of servers of one name, in one answer and in all remembered ones.
pub(super) const SERVERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_hosts_services_and_name_servers() {
        let query = |server: Option<&str>, name: &str, port| {
            let server = server.map(|server| server.parse().unwrap());
            Some(DnsQuery { server, name: name.into(), port })
        };
        assert_eq!(DnsQuery::parse_rest("/orders:80"), query(None, "orders", Some(80)));
        assert_eq!(DnsQuery::parse_rest("/[::1]:80"), query(None, "::1", Some(80)));
        for scope in ["fe80::1%2", "fe80::1%eth0"] {
            assert_eq!(DnsQuery::parse_rest(&format!("/[{scope}]:80")), query(None, scope, Some(80)));
        }
        assert_eq!(DnsQuery::parse_rest("10.0.0.1/orders:80"), query(Some("10.0.0.1:53"), "orders", Some(80)));
        assert_eq!(DnsQuery::parse_rest("[::1]:54/orders:80"), query(Some("[::1]:54"), "orders", Some(80)));
        assert_eq!(DnsQuery::parse_rest("/_orders._tcp.internal"), query(None, "_orders._tcp.internal", None));
        for wrong in [
            "orders:80",
            "/orders",
            "/:80",
            "/a/b:80",
            "name/orders:80",
            "/_orders._tcp:80",
            "/orders:x",
            "/orders:+80",
            "/orders:",
        ] {
            assert_eq!(DnsQuery::parse_rest(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_period_follows_the_lifetime_within_limits() {
        for (lifetime, period) in [(0, 5), (20, 20), (86_400, 600)] {
            let answer = DnsAnswer { servers: Vec::new(), lifetime: Duration::from_secs(lifetime) };
            assert_eq!(answer.period(), Duration::from_secs(period));
        }
    }
}
