//! Announcements of servers in a key-value bucket.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client,
    jetstream::{
        self,
        kv::{Config, Store},
    },
};
use frpc::{Address, ToAddress, fleet::Endpoint};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::{
    cluster::{NatsCluster, round_trip},
    micro::{EndpointCounters, MicroService, ServiceDescription, new_id},
    names,
};

/// The announcement of a server: channels to `nats+direct://CLUSTER/SERVICE` call it until the announcement ends.
///
/// It is an entry in a key-value bucket, renewed until this handle is dropped, and a NATS service without endpoints, which
/// `nats micro list` shows. If the process dies, the entry expires.
///
/// ```no_run
/// # async fn example(server: frpc::Server) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use frpc_nats::{Announcement, NatsCluster};
///
/// let cluster = NatsCluster::new("nats://localhost:4222");
/// let announcement =
///     Announcement::builder("orders", "tcp://10.0.0.1:7300")?.zone("a").weight(2).start(&cluster).await?;
/// // Serves. Before the shutdown, channels leave:
/// announcement.withdraw().await;
/// server.shutdown(Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
pub struct Announcement {
    shared: Arc<Shared>,
    store: Store,
    task: AbortOnDropHandle<()>,
    _micro: MicroService,
}

struct Shared {
    key: String,
    server: AnnouncedServer,
    load: Arc<AtomicU64>,
    /// Notified when the load has changed.
    changed: Notify,
}

/// A builder for an [`Announcement`]. Created by [`Announcement::builder`].
#[derive(Clone, Debug)]
pub struct AnnouncementBuilder {
    service: String,
    server: AnnouncedServer,
    version: String,
    bucket: String,
    replicas: usize,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnnouncedServer {
    address: String,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_name: Option<String>,
    #[serde(default)]
    load: f64,
    /// The time to live, in milliseconds.
    ttl: u64,
}

fn one() -> u32 {
    1
}

impl AnnouncedServer {
    /// Reads the value of an entry.
    pub(crate) fn read(value: &[u8]) -> Result<Self, String> {
        if value.len() > VALUE_LEN_MAX {
            return Err(format!("the entry has {} bytes, the limit is {VALUE_LEN_MAX}", value.len()));
        }
        serde_json::from_slice(value).map_err(|error| error.to_string())
    }

    /// Returns the endpoint for channels. The load is not a part of it: channels measure it themselves, and a new weight
    /// would make a new endpoint.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        let endpoint = Endpoint::new(&*self.address)?.weight(self.weight);
        let endpoint = match &self.zone {
            Some(zone) => endpoint.zone(&**zone),
            None => endpoint,
        };
        Ok(match &self.tls_name {
            Some(name) => endpoint.tls_name(&**name),
            None => endpoint,
        })
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl).clamp(TTL_MIN, TTL_MAX)
    }
}

impl Announcement {
    /// Returns a builder for the announcement of a server at this address, for calls to this service. The address may have
    /// any scheme for which the channels have a transport, such as `tcp` or `grpc`.
    ///
    /// # Errors
    ///
    /// The name or the address is invalid.
    pub fn builder(service: impl Into<String>, address: impl ToAddress) -> io::Result<AnnouncementBuilder> {
        let service = service.into();
        names::check_name(&service)?;
        let address: Address = address.to_address()?;
        let ttl = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX);
        let server =
            AnnouncedServer { address: address.to_string(), weight: 1, zone: None, tls_name: None, load: 0.0, ttl };
        let (version, bucket) = ("0.1.0".to_owned(), BUCKET.to_owned());
        Ok(AnnouncementBuilder { service, server, version, bucket, replicas: 1 })
    }

    /// Sets the load of the server, such as its share of busy threads, shown with the statistics of the NATS service and in
    /// the bucket. Channels do not use it: they measure the load of servers in their own calls.
    pub fn set_load(&self, load: f64) {
        // JSON has no other numbers.
        let load = if load.is_finite() { load } else { 0.0 };
        self.shared.load.store(load.to_bits(), Ordering::Relaxed);
        self.shared.changed.notify_one();
    }

    /// Withdraws the announcement: channels learn within a moment that the server takes no new calls.
    ///
    /// If the cluster cannot be reached, the entry expires instead.
    pub async fn withdraw(self) {
        let Self { shared, store, task, .. } = self;
        // First, so that no renewal follows.
        task.abort();
        let _ = task.await;
        match timeout(WITHDRAW_MAX, store.delete(&shared.key)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(key = shared.key, %error, "cannot withdraw an announcement, it expires"),
            Err(_) => warn!(key = shared.key, "cannot withdraw an announcement in time, it expires"),
        }
    }
}

impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcement").field("key", &self.shared.key).finish_non_exhaustive()
    }
}

impl AnnouncementBuilder {
    /// Sets the zone of the server; see [`Endpoint::zone`].
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.server.zone = Some(zone.into());
        self
    }

    /// Sets the weight of the server; see [`Endpoint::weight`]. Default 1.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.server.weight = weight;
        self
    }

    /// Sets the name expected in the certificate of the server; see [`Endpoint::tls_name`].
    #[must_use]
    pub fn tls_name(mut self, name: impl Into<String>) -> Self {
        self.server.tls_name = Some(name.into());
        self
    }

    /// Sets the version shown to clients of NATS services. Default `0.1.0`.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Sets the time after which the entry of a dead server expires. It is renewed three times in it. Default 15 s, at least
    /// 1 s.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.server.ttl = u64::try_from(ttl.clamp(TTL_MIN, TTL_MAX).as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the key-value bucket, created if there is none. Default `frpc`.
    #[must_use]
    pub fn bucket(self, bucket: impl Into<String>) -> Self {
        Self { bucket: bucket.into(), ..self }
    }

    /// Sets the number of NATS servers that store the bucket, if it is created. Default 1; use 3 in a cluster of three
    /// servers, so that any of them may die.
    #[must_use]
    pub fn replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// Connects to the cluster and announces the server.
    ///
    /// # Errors
    ///
    /// The cluster cannot be reached, or it has no JetStream.
    pub async fn start(self, cluster: &NatsCluster) -> io::Result<Announcement> {
        let Self { service, server, version, bucket, replicas } = self;
        let client = cluster.connect().await?;
        let store = open_bucket(&client, &bucket, replicas).await?;
        let id = new_id();
        let load = Arc::new(AtomicU64::new(server.load.to_bits()));
        let shared =
            Arc::new(Shared { key: format!("{service}.{id}"), server, load: load.clone(), changed: Notify::new() });
        put(&store, &shared).await?;
        let mut metadata = BTreeMap::from([
            ("address".to_owned(), shared.server.address.clone()),
            ("weight".to_owned(), shared.server.weight.to_string()),
        ]);
        metadata.extend(shared.server.zone.clone().map(|zone| ("zone".to_owned(), zone)));
        let description = "Called directly, at the address in the metadata".to_owned();
        let description =
            ServiceDescription { name: service.clone(), id, version, description, metadata: metadata.clone() };
        let direct = EndpointCounters::new("direct".to_owned(), format!("{service}._direct"), String::new(), metadata);
        let micro = MicroService::start(client.clone(), description, Arc::new(vec![direct]), Some(load)).await?;
        round_trip(&client).await?;
        let task = AbortOnDropHandle::new(tokio::spawn(renew(store.clone(), shared.clone())));
        Ok(Announcement { shared, store, task, _micro: micro })
    }
}

/// Returns the bucket, and creates it first if there is none.
async fn open_bucket(client: &Client, bucket: &str, replicas: usize) -> io::Result<Store> {
    let context = jetstream::new(client.clone());
    if let Ok(store) = context.get_key_value(bucket).await {
        return Ok(store);
    }
    let config = Config {
        bucket: bucket.to_owned(),
        description: "Servers of frpc, for channels that call them directly".to_owned(),
        max_age: TTL_MAX,
        max_value_size: i32::try_from(VALUE_LEN_MAX).unwrap_or(i32::MAX),
        history: 1,
        num_replicas: replicas,
        ..Config::default()
    };
    match context.create_key_value(config).await {
        Ok(store) => Ok(store),
        // Another server may have created it.
        Err(error) => context.get_key_value(bucket).await.map_err(|_| {
            io::Error::other(format!("cannot create the key-value bucket {bucket:?}; is JetStream enabled? {error}"))
        }),
    }
}

async fn put(store: &Store, shared: &Shared) -> io::Result<()> {
    let server = AnnouncedServer { load: f64::from_bits(shared.load.load(Ordering::Relaxed)), ..shared.server.clone() };
    let value = serde_json::to_vec(&server).map_err(io::Error::other)?;
    let putting = timeout(PUT_MAX, store.put(&*shared.key, value.into()));
    let put = putting.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the cluster did not answer"))?;
    put.map(|_| ()).map_err(io::Error::other)
}

/// Renews an entry until the task is aborted.
async fn renew(store: Store, shared: Arc<Shared>) {
    let interval = shared.server.ttl() / 3;
    let mut has_failed = false;
    loop {
        let at = Instant::now() + if has_failed { interval.min(RETRY_PAUSE) } else { interval };
        tokio::select! {
            () = sleep_until(at) => {}
            // At most one change per pause: a busy server must not flood the bucket.
            () = shared.changed.notified() => sleep_until(at.min(Instant::now() + RETRY_PAUSE)).await,
        }
        match put(&store, &shared).await {
            Ok(()) => has_failed = false,
            Err(error) => {
                info!(key = shared.key, %error, "cannot renew an announcement, trying again after a pause");
                has_failed = true;
            }
        }
    }
}

/// The default bucket.
pub(crate) const BUCKET: &str = "frpc";
/// The default time to live.
const TTL: Duration = Duration::from_secs(15);
const TTL_MIN: Duration = Duration::from_secs(1);
/// The maximum time to live: the bucket drops older entries.
const TTL_MAX: Duration = Duration::from_secs(3600);
/// The maximum length of an entry.
const VALUE_LEN_MAX: usize = 4 * 1024;
/// The time limit of a renewal.
const PUT_MAX: Duration = Duration::from_secs(2);
const WITHDRAW_MAX: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_written_and_hostile_ones_are_refused() {
        let builder = Announcement::builder("orders", "tcp://10.0.0.1:7300").unwrap().zone("a").weight(3);
        let value = serde_json::to_vec(&builder.server).unwrap();
        let read = AnnouncedServer::read(&value).unwrap();
        assert_eq!(read, builder.server);
        let expected = Endpoint::new("tcp://10.0.0.1:7300").unwrap().weight(3).zone("a");
        assert_eq!(read.endpoint().unwrap(), expected);
        for bad in [&b""[..], b"[]", b"{\"ttl\":1}", b"{\"address\":1,\"ttl\":1}", b"\xff"] {
            assert!(AnnouncedServer::read(bad).is_err());
        }
        assert!(AnnouncedServer::read(&[b' '; VALUE_LEN_MAX + 1]).unwrap_err().contains("limit"));
        let odd = AnnouncedServer::read(b"{\"address\":\"tcp://\",\"ttl\":18446744073709551615}").unwrap();
        assert!(odd.endpoint().is_err());
        assert_eq!(odd.ttl(), TTL_MAX);
    }
}
