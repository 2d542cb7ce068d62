//! State shared by the acceptors, the connections and the handle of a server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    accept::{ListenerCell, ListenerGuard, is_about_one_connection, lock},
    settings::ServerLimits,
    slot::{ConnectionSlot, ConnectionSlots},
    threads::ServerThreads,
};
use crate::{
    Address, CloseReason, Config, Connection, Engine,
    driver::DriverScope,
    net::{IoStream, Listener},
    proto::GoAway,
};

/// State shared by the acceptors, the connections and the handle of a server.
pub(super) struct ServerShared {
    pub(super) config: Arc<Config>,
    pub(super) engine: Engine,
    pub(super) limits: ServerLimits,
    pub(super) scope: DriverScope,
    /// Cancelled at the start of a shutdown.
    pub(super) draining: CancellationToken,
    /// Cancelled when accepting ends, with `draining` at the latest.
    accepting: CancellationToken,
    /// `true` once a shutdown drains all connections instead of waiting for peers to leave.
    serves_nobody: AtomicBool,
    /// All listeners. Emptying a cell closes its listener immediately, whatever its task does.
    pub(super) listeners: Mutex<Vec<Arc<ListenerCell>>>,
    pub(super) slots: Arc<ConnectionSlots>,
    /// The threads of the engine, if it has its own.
    pub(super) threads: Arc<ServerThreads>,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) handshakes_failed: AtomicU64,
    pub(super) tls_handshakes: AtomicU64,
    pub(super) tls_failed: AtomicU64,
    /// Spawns the task of a connection. The only part that depends on the router's type.
    pub(super) start: SpawnConnection,
}

/// The last argument is the runtime of the connection, if different from the current one.
type SpawnConnection =
    Box<dyn Fn(Arc<ServerShared>, ConnectionSlot, IoStream, Address, Address, Option<Handle>) + Send + Sync>;

impl ServerShared {
    /// Creates the shared state of a server before its start. `start` is called for each connection.
    pub(super) fn new(
        config: Config,
        engine: Engine,
        limits: ServerLimits,
        scope: DriverScope,
        start: impl Fn(Arc<Self>, ConnectionSlot, IoStream, Address, Address, Option<Handle>) + Send + Sync + 'static,
    ) -> Self {
        let draining = CancellationToken::new();
        Self {
            config: Arc::new(config),
            engine,
            limits,
            scope,
            accepting: draining.child_token(),
            draining,
            serves_nobody: AtomicBool::new(false),
            listeners: Mutex::default(),
            slots: Arc::default(),
            threads: Arc::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            tls_handshakes: AtomicU64::new(0),
            tls_failed: AtomicU64::new(0),
            start: Box::new(start),
        }
    }

    /// Accepts connections until the server shuts down or is handed over.
    pub(super) fn begin_accepting(
        self: &Arc<Self>,
        name: String,
        listener: Listener,
    ) -> impl Future<Output = ()> + Send + use<> {
        let place = Arc::new(ListenerCell::new(name, listener));
        lock(&self.listeners).push(place.clone());
        self.clone().accept(ListenerGuard(place))
    }

    async fn accept(self: Arc<Self>, accepting: ListenerGuard) {
        let mut pause = ACCEPT_PAUSE_MIN;
        while let Some(Some(accepted)) = self.accepting.run_until_cancelled(accepting.accept()).await {
            match accepted {
                Ok((wire, local, peer)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    self.clone().admit(wire, local, peer);
                }
                Err(error) if is_about_one_connection(&error) => {
                    debug!(%error, "a connection was lost before it was accepted")
                }
                Err(error) => {
                    warn!(%error, ?pause, "cannot accept, trying again after a pause");
                    self.accepting.run_until_cancelled(sleep(pause)).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    /// Closes all listeners before returning.
    pub(super) fn stop_accepting(&self) {
        // First, so a connection being accepted right now is refused.
        self.draining.cancel();
        for place in std::mem::take(&mut *lock(&self.listeners)) {
            place.close();
        }
    }

    /// Closes all listeners, after the connections that they have accepted were admitted.
    #[cfg(unix)]
    pub(super) async fn stop_accepting_gently(&self) {
        self.accepting.cancel();
        let places = std::mem::take(&mut *lock(&self.listeners));
        for place in places {
            place.close();
            place.ended.cancelled().await;
        }
    }

    pub(super) fn admit(self: Arc<Self>, wire: IoStream, local: Address, peer: Address) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        // Evaluated under the lock of the slots, so a later shutdown finds the slot.
        let may_accept = || !self.draining.is_cancelled();
        let Some(mut slot) = self.slots.reserve(self.limits.connections_max, (&local, &peer), may_accept) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            debug!(%peer, limit = self.limits.connections_max, "refused a connection: the server is full or shuts down");
            return;
        };
        let (on_thread, elsewhere) = self.threads.assign_thread().unzip();
        slot.on_thread = on_thread;
        let start = &self.start;
        start(self.clone(), slot, wire, local, peer, elsewhere.flatten());
    }

    /// Makes `retire` drain connections from now on, instead of asking their peers to leave.
    pub(super) fn stop_serving(&self) {
        // Relaxed is enough: a connection not yet in the list is added under the lock of the list, and so sees
        // this store.
        self.serves_nobody.store(true, Ordering::Relaxed);
    }

    /// Starts the end of a connection, in the current mode of the shutdown.
    pub(super) fn retire(&self, connection: &Connection) {
        let goaway = GoAway { code: GoAway::SHUTDOWN, text: "the server shuts down".into() };
        if self.serves_nobody.load(Ordering::Relaxed) {
            connection.go_away(goaway);
            connection.shared().drain(CloseReason::Shutdown);
        } else {
            connection.shared().change(|core| core.proto.retire(goaway));
        }
    }

    /// Ends all connections and the server's threads immediately.
    pub(super) fn kill(&self) {
        // In this order: no connection can be added after the list below is read.
        self.stop_accepting();
        self.scope.kill.cancel();
        for connection in self.slots.connections() {
            connection.shared().fail(CloseReason::Shutdown);
        }
    }
}

/// The pause after a failed accept, for example without free file descriptors. Doubles with each failure.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause after a failed accept.
pub(super) const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The time for connections to end after a kill.
pub(super) const KILL_GRACE: Duration = Duration::from_millis(100);
