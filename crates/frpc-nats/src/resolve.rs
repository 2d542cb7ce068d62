//! Servers found by their announcements.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

use async_nats::{
    Client,
    jetstream::{
        self,
        kv::{Entry, Operation, Store, Watch},
    },
};
use frpc::fleet::{Endpoint, Endpoints, Refresh, Resolve};
use futures_util::{StreamExt, stream, stream::BoxStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use crate::{announce::AnnouncedServer, cluster::NatsCluster};

/// Finds the servers of a service in a key-value bucket.
pub(crate) struct KvResolver {
    cluster: NatsCluster,
    bucket: String,
    service: String,
}

impl KvResolver {
    pub(crate) fn new(cluster: NatsCluster, bucket: String, service: String) -> Self {
        Self { cluster, bucket, service }
    }
}

impl Resolve for KvResolver {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let Self { cluster, bucket, service } = self;
        let search = ServerSearch {
            cluster: cluster.clone(),
            bucket: bucket.clone(),
            service: service.clone(),
            client: None,
            watched: None,
            servers: BTreeMap::new(),
            told: None,
        };
        stream::unfold(search, async |mut search| {
            let found = search.next().await;
            Some((found, search))
        })
        .boxed()
    }
}

/// The state of a resolver.
struct ServerSearch {
    cluster: NatsCluster,
    bucket: String,
    service: String,
    client: Option<Client>,
    watched: Option<Watched>,
    servers: BTreeMap<String, FoundServer>,
    /// The last set of the channel.
    told: Option<Vec<Endpoint>>,
}

struct Watched {
    store: Store,
    watch: Watch,
    /// The time at which an empty bucket counts as empty. `None` once the entries are known.
    empty_at: Option<Instant>,
}

/// A server with an entry.
struct FoundServer {
    /// `None` for an invalid entry.
    endpoint: Option<Endpoint>,
    /// The time after which the entry is expected to be gone.
    expires: Instant,
    ttl: Duration,
    revision: u64,
}

enum SearchEvent {
    Entry(Option<Box<Entry>>),
    Failed(io::Error),
    Empty,
    Expired,
}

impl ServerSearch {
    /// Returns the next set that differs from the last, or an error to be logged.
    async fn next(&mut self) -> io::Result<Endpoints> {
        loop {
            if self.watched.is_none() {
                match self.watch().await {
                    Ok(watched) => self.watched = Some(watched),
                    Err(error) => {
                        sleep(RETRY_PAUSE).await;
                        return Err(error);
                    }
                }
            }
            if self.turn().await
                && let Some(endpoints) = self.changed()
            {
                return Ok(endpoints);
            }
        }
    }

    async fn watch(&mut self) -> io::Result<Watched> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(self.cluster.connect().await?).clone(),
        };
        let store = jetstream::new(client).get_key_value(&self.bucket).await;
        let store = store.map_err(|error| {
            let why = format!("cannot open the key-value bucket {:?} with the announcements: {error}", self.bucket);
            io::Error::new(io::ErrorKind::NotFound, why)
        })?;
        let watch = store.watch_with_history(format!("{}.*", self.service)).await.map_err(io::Error::other)?;
        Ok(Watched { store, watch, empty_at: Some(Instant::now() + EMPTY_AFTER) })
    }

    /// Waits for a change. Returns `true` if the set may be complete and different.
    async fn turn(&mut self) -> bool {
        let Some(watched) = &mut self.watched else { return false };
        let expires = self.servers.values().map(|server| server.expires).min();
        let empty_at = watched.empty_at;
        let at = |at: Option<Instant>| async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            entry = watched.watch.next() => match entry.transpose() {
                Ok(entry) => SearchEvent::Entry(entry.map(Box::new)),
                Err(error) => SearchEvent::Failed(io::Error::other(error)),
            },
            () = at(empty_at) => SearchEvent::Empty,
            () = at(expires) => SearchEvent::Expired,
        };
        match event {
            SearchEvent::Entry(Some(entry)) => {
                let (is_last, seen) = (entry.delta == 0, entry.seen_current);
                if seen {
                    watched.empty_at = None;
                }
                self.note(&entry);
                is_last
            }
            SearchEvent::Entry(None) => {
                self.watch_again("the watch has ended").await;
                false
            }
            SearchEvent::Failed(error) => {
                self.watch_again(&error.to_string()).await;
                false
            }
            SearchEvent::Empty => {
                watched.empty_at = None;
                true
            }
            SearchEvent::Expired => self.check_expired().await,
        }
    }

    /// Watches again after a pause. The servers stay: the cluster may have lost its leader.
    async fn watch_again(&mut self, why: &str) {
        warn!(service = self.service, why, "the watch of the announcements has failed, trying again after a pause");
        self.watched = None;
        // A client that has ended for good is replaced.
        self.client =
            self.client.take().filter(|client| client.connection_state() == async_nats::connection::State::Connected);
        sleep(RETRY_PAUSE).await;
    }

    fn note(&mut self, entry: &Entry) {
        match entry.operation {
            Operation::Put => {
                if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&entry.key) {
                    warn!(service = self.service, SERVERS_MAX, "too many announcements, the rest is ignored");
                    return;
                }
                self.servers.insert(entry.key.clone(), FoundServer::read(entry));
            }
            Operation::Delete | Operation::Purge => {
                self.servers.remove(&entry.key);
            }
        }
    }

    /// Looks up the entries that should have been renewed. Returns `true` if one is gone.
    ///
    /// An entry that cannot be looked up stays: a cluster without a leader says nothing about the servers.
    async fn check_expired(&mut self) -> bool {
        let Some(Watched { store, .. }) = &self.watched else { return false };
        let now = Instant::now();
        let due: Vec<_> =
            self.servers.iter().filter(|(_, server)| server.expires <= now).map(|(key, _)| key.clone()).collect();
        let lookups: VecDeque<_> = due
            .into_iter()
            .map(|key| {
                let store = store.clone();
                async move {
                    let found = timeout(LOOKUP_MAX, store.entry(&key)).await;
                    (key, found)
                }
            })
            .collect();
        let found: Vec<_> = stream::iter(lookups).buffer_unordered(LOOKUPS_MAX).collect().await;
        let mut is_changed = false;
        for (key, found) in found {
            let Some(server) = self.servers.get_mut(&key) else { continue };
            match found {
                Ok(Ok(Some(entry))) if entry.operation == Operation::Put && entry.revision != server.revision => {
                    *server = FoundServer::read(&entry);
                    is_changed = true;
                }
                // Not renewed, or removed.
                Ok(Ok(_)) => {
                    debug!(key, "an announcement has expired");
                    self.servers.remove(&key);
                    is_changed = true;
                }
                Ok(Err(_)) | Err(_) => server.expires = Instant::now() + server.ttl,
            }
        }
        is_changed
    }

    /// Returns the current set if it differs from the last one of the channel.
    fn changed(&mut self) -> Option<Endpoints> {
        let now: Vec<_> = self.servers.values().filter_map(|server| server.endpoint.clone()).collect();
        if self.told.as_ref() == Some(&now) {
            return None;
        }
        self.told = Some(now.clone());
        Some(Endpoints::new(now))
    }
}

impl FoundServer {
    fn read(entry: &Entry) -> Self {
        let read = AnnouncedServer::read(&entry.value);
        let read = read.and_then(|server| Ok((server.endpoint().map_err(|error| error.to_string())?, server.ttl())));
        let (endpoint, ttl) = match read {
            Ok((endpoint, ttl)) => (Some(endpoint), ttl),
            Err(error) => {
                warn!(key = entry.key, error, "an announcement is invalid");
                (None, INVALID_TTL)
            }
        };
        Self { endpoint, expires: Instant::now() + ttl + ttl / 4, ttl, revision: entry.revision }
    }
}

/// The maximum number of servers of one service.
const SERVERS_MAX: usize = 10_000;
/// The time without an entry after which the bucket counts as empty.
const EMPTY_AFTER: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The time limit of the look-up of an entry.
const LOOKUP_MAX: Duration = Duration::from_secs(2);
/// The maximum number of look-ups at a time.
const LOOKUPS_MAX: usize = 16;
/// The time after which an invalid entry is looked up again.
const INVALID_TTL: Duration = Duration::from_secs(60);
