//! A client of a control plane, shared by channels.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
};

use frpc::fleet::SharedCallLimit;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    bootstrap::Bootstrap,
    certificates::TlsConfigs,
    protocol::{AdsState, ResourceState},
    protos::envoy::service::discovery::v3::Node,
    resources::ResourceKind,
    settings::XdsSettings,
};

/// The shared part of a client. The stream ends when it is dropped.
pub(crate) struct ClientState {
    pub(crate) bootstrap: Bootstrap,
    pub(crate) settings: XdsSettings,
    state: Mutex<AdsState>,
    /// The number of changes of resources.
    changes: watch::Sender<u64>,
    /// Wakes the requests of the current stream.
    wake: Mutex<Arc<Notify>>,
    pub(crate) tls: TlsConfigs,
    limits: Mutex<HashMap<String, Weak<SharedCallLimit>>>,
    /// `true` while a task keeps the stream.
    pub(crate) has_stream: AtomicBool,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl ClientState {
    pub(crate) fn new(bootstrap: Bootstrap, settings: XdsSettings) -> Self {
        let node = Node {
            user_agent_name: "frpc-xds".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            // The client does not fail on resources with unknown fields, and ignores the addresses of listeners.
            client_features: vec!["envoy.lb.does_not_support_overprovisioning".to_owned()],
            ..bootstrap.node.clone()
        };
        Self {
            bootstrap,
            settings,
            state: Mutex::new(AdsState::new(node)),
            changes: watch::Sender::default(),
            wake: Mutex::default(),
            tls: TlsConfigs::default(),
            limits: Mutex::default(),
            has_stream: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, AdsState> {
        // Each method leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the requests of the current stream.
    pub(crate) fn wake(&self) {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).notify_one();
    }

    /// Begins a stream. Returns its number, and the signals for its requests and its timers.
    pub(crate) fn begin_stream(&self, ignores_removals: bool) -> (u64, Arc<Notify>, Arc<Notify>) {
        let (wake, number) = (Arc::<Notify>::default(), self.lock().begin_stream(ignores_removals));
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = wake.clone();
        (number, wake, Arc::default())
    }

    /// Changes the resources, and tells the watchers if any has changed.
    pub(crate) fn change(&self, change: impl FnOnce(&mut AdsState) -> bool) {
        // The guard is gone before the watchers look.
        let has_changed = change(&mut self.lock());
        if has_changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Returns the limit on calls to a cluster, shared by all channels of this client.
    pub(crate) fn call_limit(&self, cluster: &str, calls_max: u32) -> Arc<SharedCallLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.retain(|_, limit| limit.strong_count() > 0);
        let known = limits.get(cluster).and_then(Weak::upgrade);
        let limit = known.unwrap_or_else(|| Arc::new(SharedCallLimit::new(calls_max)));
        limit.set_max(calls_max);
        limits.insert(cluster.to_owned(), Arc::downgrade(&limit));
        limit
    }

    /// Returns a receiver of the number of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the task of the stream.
    pub(crate) fn task(&self) -> MutexGuard<'_, Option<AbortOnDropHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a resource until the returned value is dropped.
    pub(crate) fn watch(self: &Arc<Self>, kind: ResourceKind, name: &str) -> ResourceWatch {
        let name: Arc<str> = name.into();
        let is_due = self.lock().watch(kind, &name);
        if is_due {
            self.wake();
        }
        ResourceWatch { client: self.clone(), kind, name }
    }
}

impl fmt::Debug for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientState").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

/// A subscription to a resource.
#[derive(Debug)]
pub(crate) struct ResourceWatch {
    client: Arc<ClientState>,
    kind: ResourceKind,
    name: Arc<str>,
}

impl ResourceWatch {
    pub(crate) fn state(&self) -> ResourceState {
        self.client.lock().resource(self.kind, &self.name)
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        let is_due = self.client.lock().unwatch(self.kind, &self.name);
        if is_due {
            self.client.wake();
        }
    }
}
