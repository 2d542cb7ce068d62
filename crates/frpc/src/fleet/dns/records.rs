//! Lookups by hickory-resolver.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use frpc_balance::ServiceConfig;
use futures_util::{StreamExt, stream};
use hickory_resolver::{
    Resolver, TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{RData, Record, rdata::SRV},
};
use tracing::debug;

use super::query::{DnsAnswer, DnsQuery, FoundServer, SERVERS_MAX, wire_of};

/// Looks up the addresses of a host, or the hosts of a service.
pub(super) async fn look_up(query: &DnsQuery) -> io::Result<DnsAnswer> {
    let resolver = resolver(query.server)?;
    match query.port {
        Some(port) => hosts(&resolver, &query.name, port, 1).await,
        None => services(&resolver, &query.name).await,
    }
}

/// Creates a resolver without a cache: the lifetime of records decides when the next lookup begins, and a lost
/// connection asks again.
fn resolver(server: Option<SocketAddr>) -> io::Result<TokioResolver> {
    let mut builder = match server {
        None => Resolver::builder_tokio().map_err(failed)?,
        Some(server) => {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            config.connections.iter_mut().for_each(|connection| connection.port = server.port());
            let config = ResolverConfig::from_name_servers(vec![config]);
            Resolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build().map_err(failed)
}

async fn hosts(resolver: &TokioResolver, name: &str, port: u16, weight: u32) -> io::Result<DnsAnswer> {
    let found = resolver.lookup_ip(name).await.map_err(failed)?;
    let host: Arc<str> = name.trim_end_matches('.').into();
    let server = |ip| FoundServer { place: SocketAddr::new(ip, port), weight, host: host.clone() };
    let lifetime = lifetime(found.as_lookup().answers());
    Ok(DnsAnswer { servers: found.iter().map(server).take(SERVERS_MAX).collect(), lifetime })
}

/// Looks up the hosts of a service with the best priority, and their addresses. No server listens on port 0, so a record with
/// it counts as missing.
async fn services(resolver: &TokioResolver, name: &str) -> io::Result<DnsAnswer> {
    let found = resolver.srv_lookup(name).await.map_err(failed)?;
    let (usable, unusable): (Vec<_>, Vec<_>) =
        found.answers().iter().filter_map(srv_of).partition(|service| service.port != 0);
    for SRV { target, .. } in &unusable {
        debug!(name, %target, "ignored an SRV record with the port 0");
    }
    let Some(best) = usable.iter().map(|service| service.priority).min() else {
        let why = if unusable.is_empty() { "there is no SRV record" } else { "each SRV record has the port 0" };
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    };
    let used = usable.into_iter().filter(|service| service.priority == best).take(HOSTS_MAX);
    let used: Vec<_> = used.map(|SRV { target, port, weight, .. }| (target.to_string(), *port, *weight)).collect();
    let lookups = used.into_iter().map(|(host, port, weight)| async move {
        let found = hosts(resolver, &host, port, weight.into()).await;
        found.map_err(|error| io::Error::new(error.kind(), format!("{host}: {error}")))
    });
    let answers: Vec<_> = stream::iter(lookups).buffer_unordered(LOOKUPS_AT_A_TIME).collect().await;
    let (mut all, mut fault) =
        (DnsAnswer { servers: Vec::new(), lifetime: lifetime(found.answers()) }, None::<io::Error>);
    for answer in answers {
        match answer {
            Ok(answer) => {
                all.lifetime = all.lifetime.min(answer.lifetime);
                let room = SERVERS_MAX - all.servers.len();
                all.servers.extend(answer.servers.into_iter().take(room));
            }
            Err(error) => fault = Some(error),
        }
    }
    match fault {
        // A host without addresses is missing, and the others serve.
        Some(error) if all.servers.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn srv_of(record: &Record) -> Option<&SRV> {
    if let RData::SRV(service) = &record.data { Some(service) } else { None }
}

fn lifetime(records: &[Record]) -> Duration {
    Duration::from_secs(records.iter().map(|record| record.ttl).min().unwrap_or_default().into())
}

fn failed(error: NetError) -> io::Error {
    let kind = if error.is_no_records_found() { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

/// Looks up the service config of a `dns` target, in the TXT records of `_grpc_config.HOST`. `None` if there is none for
/// this process.
///
/// ```no_run
/// use frpc::{Channel, fleet::{FleetSettings, look_up_service_config}};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let target = "dns:///orders.internal:7300";
/// let service_config = look_up_service_config(target).await?.unwrap_or_default();
/// let channel = Channel::builder().fleet(FleetSettings { service_config, ..FleetSettings::default() }).connect(target);
/// # channel.await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The target has no host name in DNS, DNS does not answer, or the config is invalid.
pub async fn look_up_service_config(target: &str) -> io::Result<Option<ServiceConfig>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let (scheme, rest) = target.split_once("://").unwrap_or_default();
    let query = DnsQuery::parse(target, wire_of(scheme).unwrap_or_default(), rest)?;
    let name = format!("_grpc_config.{}", query.name);
    let found = match resolver(query.server)?.txt_lookup(&*name).await {
        Err(error) if error.is_no_records_found() => return Ok(None),
        found => found.map_err(failed)?,
    };
    let records: Vec<String> = found
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::TXT(text) => Some(String::from_utf8_lossy(&text.txt_data.concat()).into_owned()),
            _ => None,
        })
        .collect();
    let percent = *PERCENT.get_or_init(|| fastrand::u8(..100));
    let host = gethostname::gethostname();
    let config = ServiceConfig::from_txt(records.iter().map(String::as_str), &host.to_string_lossy(), percent);
    config.map_err(|error| invalid(format!("{name}: {error}")))
}

/// The number of this process, for configs with a percentage.
static PERCENT: OnceLock<u8> = OnceLock::new();
/// The maximum number of hosts of one service.
const HOSTS_MAX: usize = 1024;
/// The number of hosts looked up at the same time.
const LOOKUPS_AT_A_TIME: usize = 16;
