//! Route configurations: the clusters of a service, with retries and timeouts.

use std::{collections::HashSet, sync::Arc, time::Duration};

use frpc::fleet::{CodeSet, RetryPolicy};

use super::{
    fields::{check_len, duration, fraction, per_million},
    text::{FullRegex, HeaderCondition, has_regex},
};
use crate::protos::frpc::xds::v3::{
    self as proto, hash_policy::PolicySpecifier, route::Action, route_action::ClusterSpecifier,
    route_match::PathSpecifier,
};

/// The virtual hosts of a route configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RouteTable {
    hosts: Vec<VirtualHost>,
}

#[derive(Clone, Debug, PartialEq)]
struct VirtualHost {
    domains: Vec<String>,
    routes: Vec<RouteRule>,
}

/// One route.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteRule {
    pub(crate) name: String,
    pub(crate) condition: RouteCondition,
    /// The use of the calls. `None` if they fail.
    pub(crate) target: Option<RouteTarget>,
}

/// The calls of a route.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteCondition {
    pub(crate) path: PathRule,
    pub(crate) ignores_case: bool,
    pub(crate) headers: Vec<HeaderCondition>,
    /// The share of the calls. `None` for all.
    pub(crate) per_million: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathRule {
    Prefix(String),
    Exact(String),
    /// A prefix that ends with the path or before a slash.
    Folder(String),
    Regex(FullRegex),
}

/// The clusters and the rules of calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteTarget {
    /// The clusters and the sums of the weights up to each.
    clusters: Vec<(Arc<str>, u32)>,
    /// The time limit of a call. Zero means none.
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) hash: Vec<HashRule>,
}

/// A part of the key for ring hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashRule {
    /// The metadata entry. `None` for the channel.
    pub(crate) header: Option<String>,
    /// No further rule is used after a key is found.
    pub(crate) is_terminal: bool,
}

impl RouteTarget {
    /// Returns the names of the clusters.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.clusters.iter().map(|(name, _)| name)
    }

    /// Chooses a cluster by weight.
    pub(crate) fn choose(&self) -> &Arc<str> {
        let sum = self.clusters.last().map_or(1, |(_, sum)| *sum);
        let point = if self.clusters.len() == 1 { 0 } else { fastrand::u32(..sum) };
        &self.clusters[self.clusters.partition_point(|(_, sum)| *sum <= point)].0
    }
}

impl RouteTable {
    pub(super) fn read(config: proto::RouteConfiguration) -> Result<Self, String> {
        check_len("virtual_hosts", &config.virtual_hosts, HOSTS_MAX)?;
        let routes = config.virtual_hosts.iter().map(|host| host.routes.len()).sum::<usize>();
        if routes > ROUTES_MAX {
            return Err(format!("there are {routes} routes, more than {ROUTES_MAX}"));
        }
        // A short text may become a large program.
        let conditions =
            config.virtual_hosts.iter().flat_map(|host| &host.routes).filter_map(|route| route.r#match.as_ref());
        let regexes = conditions.map(count_regexes).sum::<usize>();
        if regexes > REGEXES_MAX {
            return Err(format!("there are {regexes} regular expressions, more than {REGEXES_MAX}"));
        }
        let mut known = HashSet::new();
        let hosts = config.virtual_hosts.into_iter().map(|host| read_host(host, &mut known));
        Ok(Self { hosts: hosts.collect::<Result<_, _>>()? })
    }

    /// Returns the routes of the virtual host with the best domain for a service: the exact name, else the longest
    /// `*suffix`, else the longest `prefix*`, else `*`.
    pub(crate) fn routes_of(&self, service: &str) -> Option<&[RouteRule]> {
        let service = service.to_ascii_lowercase();
        let rank = |domain: &str| match domain {
            "*" => Some((0, 0)),
            _ if domain == service => Some((3, 0)),
            _ => match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
                (Some(suffix), _) if service.len() > suffix.len() && service.ends_with(suffix) => {
                    Some((2, suffix.len()))
                }
                (_, Some(prefix)) if service.len() > prefix.len() && service.starts_with(prefix) => {
                    Some((1, prefix.len()))
                }
                _ => None,
            },
        };
        let best = |host: &VirtualHost| host.domains.iter().filter_map(|domain| rank(domain)).max();
        let ranked = self.hosts.iter().filter_map(|host| Some((best(host)?, host)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, host)| &*host.routes)
    }
}

fn read_host(host: proto::VirtualHost, known: &mut HashSet<String>) -> Result<VirtualHost, String> {
    let name = host.name;
    let domains: Vec<_> = host.domains.iter().map(|domain| domain.to_ascii_lowercase()).collect();
    check_len("domains", &domains, DOMAINS_MAX)?;
    if domains.is_empty() {
        return Err(format!("virtual host {name:?} has no domains"));
    }
    for domain in &domains {
        let inner = domain.strip_prefix('*').or(domain.strip_suffix('*')).unwrap_or(domain);
        if domain.is_empty() || inner.contains('*') {
            return Err(format!("virtual host {name:?} has the invalid domain {domain:?}"));
        }
        if !known.insert(domain.clone()) {
            return Err(format!("the domain {domain:?} appears twice"));
        }
    }
    let retry = host.retry_policy.as_ref().map(read_retry).transpose()?.flatten();
    let route = |(index, route): (usize, proto::Route)| {
        let at = format!("virtual host {name:?}, route {index}");
        read_route(route, retry.as_ref()).map_err(|why| format!("{at}: {why}"))
    };
    let routes = host.routes.into_iter().enumerate().map(route).collect::<Result<Vec<_>, _>>()?;
    Ok(VirtualHost { domains, routes: routes.into_iter().flatten().collect() })
}

fn count_regexes(condition: &proto::RouteMatch) -> usize {
    let of_path = matches!(condition.path_specifier, Some(PathSpecifier::SafeRegex(_)));
    usize::from(of_path) + condition.headers.iter().filter(|matcher| has_regex(matcher)).count()
}

/// Reads a route. Returns `None` for one without any call.
fn read_route(route: proto::Route, usual: Option<&RetryPolicy>) -> Result<Option<RouteRule>, String> {
    let found = route.r#match.ok_or("match is missing")?;
    if !found.query_parameters.is_empty() {
        return Ok(None);
    }
    let path = match found.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => PathRule::Prefix(prefix),
        Some(PathSpecifier::Path(path)) => PathRule::Exact(path),
        Some(PathSpecifier::PathSeparatedPrefix(folder)) => PathRule::Folder(folder),
        Some(PathSpecifier::SafeRegex(regex)) => PathRule::Regex(FullRegex::read(&regex)?),
        Some(PathSpecifier::ConnectMatcher(_) | PathSpecifier::PathMatchPolicy(_)) | None => {
            return Err("match has no supported path".to_owned());
        }
    };
    check_len("match.headers", &found.headers, HEADERS_MAX)?;
    let condition = RouteCondition {
        path,
        ignores_case: found.case_sensitive.is_some_and(|is_sensitive| !is_sensitive),
        headers: found.headers.into_iter().map(HeaderCondition::read).collect::<Result<_, _>>()?,
        per_million: match found.runtime_fraction.and_then(|fraction| fraction.default_value) {
            Some(share) => Some(per_million(fraction("runtime_fraction", Some(&share))?)),
            None => None,
        },
    };
    let target = match route.action {
        Some(Action::Route(action)) => read_action(action, usual)?,
        _ => None,
    };
    Ok(Some(RouteRule { name: route.name, condition, target }))
}

fn read_action(action: proto::RouteAction, usual: Option<&RetryPolicy>) -> Result<Option<RouteTarget>, String> {
    let clusters = match action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) if !name.is_empty() => vec![(name.into(), 1)],
        Some(ClusterSpecifier::Cluster(_)) => return Err("cluster is empty".to_owned()),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            check_len("weighted_clusters", &weighted.clusters, CLUSTERS_MAX)?;
            let clusters = weighted.clusters.into_iter().map(|one| (one.name, one.weight.unwrap_or_default()));
            let clusters: Vec<_> = clusters.filter(|(_, weight)| *weight > 0).collect();
            let sum = clusters.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>();
            if sum == 0 || sum > u64::from(u32::MAX) {
                return Err(format!("the sum of the weights of weighted_clusters is {sum}"));
            }
            if clusters.iter().any(|(name, _)| name.is_empty()) {
                return Err("weighted_clusters has a cluster without a name".to_owned());
            }
            let sums = clusters.into_iter().scan(0, |sum, (name, weight)| {
                *sum += weight;
                Some((name.into(), *sum))
            });
            sums.collect()
        }
        Some(ClusterSpecifier::ClusterHeader(_) | ClusterSpecifier::ClusterSpecifierPlugin(_)) => return Ok(None),
        None => return Err("the route has no cluster".to_owned()),
    };
    let limits = action.max_stream_duration.unwrap_or_default();
    let timeout = match duration("grpc_timeout_header_max", limits.grpc_timeout_header_max)? {
        Some(timeout) => Some(timeout),
        None => duration("max_stream_duration", limits.max_stream_duration)?,
    };
    let retry = match &action.retry_policy {
        Some(policy) => read_retry(policy)?,
        None => usual.cloned(),
    };
    check_len("hash_policy", &action.hash_policy, HASH_RULES_MAX)?;
    let hash = action.hash_policy.into_iter().filter_map(|policy| {
        let header = match policy.policy_specifier {
            Some(PolicySpecifier::Header(header))
                if header.regex_rewrite.is_none() && !header.header_name.is_empty() =>
            {
                Some(header.header_name.to_ascii_lowercase())
            }
            Some(PolicySpecifier::FilterState(state)) if state.key == CHANNEL_KEY => None,
            _ => return None,
        };
        Some(HashRule { header, is_terminal: policy.terminal })
    });
    Ok(Some(RouteTarget { clusters, timeout, retry, hash: hash.collect() }))
}

/// Reads a retry policy (gRFC A44). Returns `None` without a known condition, because nothing is retried then.
fn read_retry(policy: &proto::RetryPolicy) -> Result<Option<RetryPolicy>, String> {
    let mut codes = CodeSet::EMPTY;
    for condition in policy.retry_on.split(',').map(str::trim) {
        let code = match condition {
            "cancelled" => 1,
            "deadline-exceeded" => 4,
            "resource-exhausted" => 8,
            "internal" => 13,
            "unavailable" => 14,
            _ => continue,
        };
        codes.insert(code);
    }
    let retries = policy.num_retries.unwrap_or(1);
    if retries == 0 {
        return Err("retry_policy.num_retries is 0".to_owned());
    }
    let (first, most) = match &policy.retry_back_off {
        None => (Duration::from_millis(25), Duration::from_millis(250)),
        Some(pauses) => {
            let first = duration("retry_back_off.base_interval", pauses.base_interval)?;
            let first = first.filter(|first| !first.is_zero()).ok_or("retry_back_off.base_interval must be above 0")?;
            let most = duration("retry_back_off.max_interval", pauses.max_interval)?;
            (first, most.unwrap_or(first.saturating_mul(10)).max(first))
        }
    };
    let attempts_max = retries.saturating_add(1).min(ATTEMPTS_MAX);
    let policy = RetryPolicy { attempts_max, first_pause: first, pause_max: most, multiplier: 2.0, codes };
    Ok(Some(policy).filter(|_| !codes.is_empty()))
}

/// The maximum number of virtual hosts of a route configuration.
const HOSTS_MAX: usize = 10_000;
/// The maximum number of routes of a route configuration.
const ROUTES_MAX: usize = 10_000;
/// The maximum number of regular expressions of a route configuration. Their programs take at most 125 MiB, and the caches of
/// each thread as much.
const REGEXES_MAX: usize = 500;
/// The maximum number of domains of a virtual host.
const DOMAINS_MAX: usize = 1_000;
/// The maximum number of clusters of a route.
const CLUSTERS_MAX: usize = 100;
/// The maximum number of conditions on headers of a route.
const HEADERS_MAX: usize = 100;
/// The maximum number of hash policies of a route.
const HASH_RULES_MAX: usize = 100;
/// The name for the key of the channel (gRFC A42).
const CHANNEL_KEY: &str = "io.grpc.channel_id";
/// The maximum number of attempts of a call, as in all service configs.
const ATTEMPTS_MAX: u32 = 5;
