//! Endpoints from DNS.
//!
//! ```text
//!   query     the question to DNS, and its answer
//!   system    addresses of a host by the resolver of the system, without the feature `dns`
//!   records   addresses and services by hickory-resolver, with the feature `dns`
//! ```

mod query;
#[cfg(feature = "dns")]
mod records;
#[cfg(not(feature = "dns"))]
mod system;

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use frisbee::Address;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::{Instant, sleep_until, timeout};

pub(super) use self::query::wire_of;
use self::query::{DnsAnswer, DnsQuery, FoundServer, LOOKUP_PERIOD, SERVERS_MAX};
#[cfg(feature = "dns")]
use self::records::look_up;
#[cfg(feature = "dns")]
pub use self::records::look_up_service_config;
#[cfg(not(feature = "dns"))]
use self::system::look_up;
use super::resolve::{Endpoint, Endpoints, Refresh, Resolve};

/// Looks up a name again and again. All servers in the answers are endpoints.
#[derive(Clone, Debug)]
pub(super) struct DnsResolver {
    scheme: String,
    query: DnsQuery,
}

/// The servers found for a name, with the time when each was last in an answer.
///
/// An answer may contain a part of the records only, for example three of ten in rotation. So a server remains until
/// it was missing for [`FORGOTTEN_AFTER`], and for more than two lookups.
#[derive(Default)]
struct SeenServers(HashMap<SocketAddr, (FoundServer, Instant)>);

impl DnsResolver {
    /// Parses the part after `://` of a target.
    pub(super) fn parse(text: &str, scheme: &str, rest: &str) -> io::Result<Self> {
        Ok(Self { scheme: scheme.to_owned(), query: DnsQuery::parse(text, scheme, rest)? })
    }

    fn endpoint(&self, found: &FoundServer) -> io::Result<Endpoint> {
        let address = match self.scheme.as_str() {
            "tcp" => Address::Tcp(found.place),
            scheme => Address::Url(format!("{scheme}://{}", found.place)),
        };
        // The certificate belongs to the name, not to the address.
        Ok(Endpoint { host: Some(found.host.clone()), ..Endpoint::new(address)?.weight(found.weight) })
    }

    async fn answer(&self) -> io::Result<DnsAnswer> {
        let found = timeout(LOOKUP_MAX, look_up(&self.query)).await;
        let found = found.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer of DNS within {LOOKUP_MAX:?}")))
        });
        found.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.query.name)))
    }
}

impl SeenServers {
    /// Adds an answer. Returns all servers that are not forgotten, in a stable order.
    fn add(&mut self, answer: Vec<FoundServer>, now: Instant, period: Duration) -> Vec<FoundServer> {
        let kept = FORGOTTEN_AFTER.max(period.saturating_mul(5) / 2);
        self.0.extend(answer.into_iter().map(|server| (server.place, (server, now))));
        self.0.retain(|_, (_, seen)| now.saturating_duration_since(*seen) < kept);
        let mut all: Vec<_> = self.0.values().cloned().collect();
        if all.len() > SERVERS_MAX {
            // The latest remain.
            all.sort_unstable_by_key(|(_, seen)| std::cmp::Reverse(*seen));
            all.truncate(SERVERS_MAX);
            self.0 = all.iter().map(|(server, seen)| (server.place, (server.clone(), *seen))).collect();
        }
        let mut all: Vec<_> = all.into_iter().map(|(server, _)| server).collect();
        all.sort_unstable_by_key(|server| server.place);
        all
    }
}

impl Resolve for DnsResolver {
    fn resolve(&self, refresh: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let state = (self.clone(), refresh, SeenServers::default(), None::<(Instant, Duration)>);
        stream::unfold(state, async |(resolver, refresh, mut seen, last)| {
            if let Some((last, period)) = last {
                let renewed = async {
                    refresh.requested().await;
                    sleep_until(last + LOOKUP_PAUSE).await;
                };
                tokio::select! {
                    // A simulation needs a fixed order. Both events have the same effect.
                    biased;
                    () = sleep_until(last + period) => {}
                    () = renewed => {}
                }
            }
            let answer = resolver.answer().await;
            let now = Instant::now();
            let period = answer.as_ref().map_or(LOOKUP_PERIOD, |answer| answer.period());
            let found = answer.and_then(|answer| {
                let all = seen.add(answer.servers, now, period);
                Ok(Endpoints::new(all.iter().map(|one| resolver.endpoint(one)).collect::<io::Result<Vec<_>>>()?))
            });
            Some((found, (resolver, refresh, seen, Some((now, period)))))
        })
        .boxed()
    }
}

/// The shortest time between two lookups, after connections were lost.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);
/// The time limit of one lookup.
const LOOKUP_MAX: Duration = Duration::from_secs(10);
/// The shortest time for which a server missing from the answers remains an endpoint.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(75);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: &str) -> FoundServer {
        FoundServer { place: place.parse().unwrap(), weight: 1, host: "orders".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_remains_until_it_was_missing_for_some_time() {
        let [one, two] = ["10.0.0.1:80", "10.0.0.2:80"].map(at);
        let (mut seen, start) = (SeenServers::default(), Instant::now());
        let both = vec![one.clone(), two.clone()];
        let mut add = |answer: &FoundServer, after, period| seen.add(vec![answer.clone()], start + after, period);
        assert_eq!(add(&one, Duration::ZERO, LOOKUP_PERIOD), both[..1]);
        assert_eq!(add(&two, LOOKUP_PERIOD, LOOKUP_PERIOD), both, "a rotated answer");
        assert_eq!(add(&two, FORGOTTEN_AFTER, LOOKUP_PERIOD), both[1..]);
        assert_eq!(add(&one, FORGOTTEN_AFTER * 3, FORGOTTEN_AFTER * 2), both, "two lookups have not passed");
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_of_too_many_servers_remain() {
        let (mut seen, start) = (SeenServers::default(), Instant::now());
        let answer = |number: u8| -> Vec<_> {
            let places = (0..u16::try_from(SERVERS_MAX).unwrap()).map(|port| ([10, 0, 0, number], port).into());
            places.map(|place| FoundServer { place, ..at("10.0.0.1:80") }).collect()
        };
        for number in 0..3 {
            let all = seen.add(answer(number), start + Duration::from_secs(number.into()), LOOKUP_PERIOD);
            assert_eq!(all, answer(number));
            assert_eq!(seen.0.len(), SERVERS_MAX);
        }
    }

    #[test]
    fn endpoints_have_the_scheme_of_the_target() {
        for (scheme, address) in [("tcp", "tcp://[::1]:80"), ("grpcs", "grpcs://[::1]:80")] {
            let resolver = DnsResolver::parse("", scheme, "/orders:80").unwrap();
            let endpoint = resolver.endpoint(&at("[::1]:80")).unwrap();
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
