//! Endpoints from the records of a host name.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use frisbee::Address;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::{
    net::lookup_host,
    time::{Instant, sleep, timeout},
};

use super::resolve::{Endpoint, Endpoints, Refresh, Resolve};

/// Looks up a host name again and again. All of its addresses are endpoints.
#[derive(Clone, Debug)]
pub(super) struct DnsResolver {
    scheme: String,
    host: String,
    port: u16,
}

/// The addresses of a name, with the time when each was last in an answer.
///
/// An answer may contain a part of the records only, for example three of ten in rotation. So an address remains until
/// it was missing for [`FORGOTTEN_AFTER`].
#[derive(Default)]
struct SeenAddresses(HashMap<IpAddr, Instant>);

impl DnsResolver {
    /// Parses `/HOST:PORT`, the part after `://` of a target.
    pub(super) fn parse(text: &str, scheme: &str, rest: &str) -> io::Result<Self> {
        let (host, port) = rest
            .strip_prefix('/')
            .and_then(|place| place.rsplit_once(':'))
            .filter(|(host, _)| !host.is_empty() && !host.contains('/') && !scheme.is_empty())
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| {
                let why = format!("target {text:?}: expected dns:///HOST:PORT or dns+SCHEME:///HOST:PORT");
                io::Error::new(io::ErrorKind::InvalidInput, why)
            })?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned(), port })
    }

    fn endpoint(&self, ip: IpAddr) -> io::Result<Endpoint> {
        let place = SocketAddr::new(ip, self.port);
        let address = match self.scheme.as_str() {
            "tcp" => Address::Tcp(place),
            scheme => Address::Url(format!("{scheme}://{place}")),
        };
        // The certificate belongs to the name, not to the address.
        Ok(Endpoint { host: Some(self.host.as_str().into()), ..Endpoint::new(address)? })
    }

    async fn look_up(&self) -> io::Result<Vec<IpAddr>> {
        let found = timeout(LOOKUP_MAX, lookup_host((self.host.as_str(), self.port))).await;
        let found = found.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer of DNS within {LOOKUP_MAX:?}")))
        });
        let found = found.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.host)))?;
        Ok(found.map(|place| place.ip()).take(RECORDS_MAX).collect())
    }
}

impl SeenAddresses {
    /// Adds an answer. Returns all addresses that are not forgotten, in a stable order.
    fn add(&mut self, answer: Vec<IpAddr>, now: Instant) -> Vec<IpAddr> {
        self.0.extend(answer.into_iter().map(|ip| (ip, now)));
        self.0.retain(|_, seen| now.saturating_duration_since(*seen) < FORGOTTEN_AFTER);
        let mut all: Vec<_> = self.0.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

impl Resolve for DnsResolver {
    fn resolve(&self, refresh: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let state = (self.clone(), refresh, SeenAddresses::default(), None::<Instant>);
        stream::unfold(state, async |(resolver, refresh, mut seen, last)| {
            if let Some(last) = last {
                let renewed = async {
                    refresh.requested().await;
                    tokio::time::sleep_until(last + LOOKUP_PAUSE).await;
                };
                tokio::select! {
                    () = sleep(LOOKUP_PERIOD) => {}
                    () = renewed => {}
                }
            }
            let answer = resolver.look_up().await;
            let now = Instant::now();
            let found = answer.and_then(|answer| {
                let all = seen.add(answer, now).into_iter().map(|ip| resolver.endpoint(ip));
                Ok(Endpoints::new(all.collect::<io::Result<Vec<_>>>()?))
            });
            Some((found, (resolver, refresh, seen, Some(now))))
        })
        .boxed()
    }
}

/// The time between two lookups while all connections are well.
const LOOKUP_PERIOD: Duration = Duration::from_secs(30);
/// The shortest time between two lookups, after connections were lost.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);
/// The time limit of one lookup.
const LOOKUP_MAX: Duration = Duration::from_secs(10);
/// The time for which an address missing from the answers remains an endpoint: two periods and a failed lookup.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(75);
/// The maximum number of addresses used from one answer.
const RECORDS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_remains_until_it_was_missing_for_some_time() {
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let (mut seen, start) = (SeenAddresses::default(), Instant::now());
        assert_eq!(seen.add(vec![one, two], start), [one, two]);
        assert_eq!(seen.add(vec![two], start + LOOKUP_PERIOD), [one, two], "one rotated answer leaves it out");
        assert_eq!(seen.add(vec![two], start + FORGOTTEN_AFTER), [two]);
    }

    #[test]
    fn endpoints_have_the_scheme_of_the_target() {
        let ip = "::1".parse().unwrap();
        for (scheme, address) in [("tcp", "tcp://[::1]:80"), ("grpcs", "grpcs://[::1]:80")] {
            let resolver = DnsResolver::parse("", scheme, "/orders:80").unwrap();
            let endpoint = resolver.endpoint(ip).unwrap();
            assert_eq!((endpoint.address.to_string().as_str(), endpoint.host.as_deref()), (address, Some("orders")));
        }
    }

    #[tokio::test]
    async fn the_name_of_this_machine_has_addresses() {
        let resolver = DnsResolver::parse("", "tcp", "/localhost:80").unwrap();
        let found = resolver.resolve(Refresh::default()).next().await.unwrap().unwrap();
        assert!(found.list.iter().any(|endpoint| endpoint.address.to_string() == "tcp://127.0.0.1:80"), "{found:?}");
    }
}
