//! Connections to a server, and their replacement when they are lost or full.

use std::{
    mem,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frpc::{CallError, ConnectError, ConnectSettings, Status, client::RedialPauses};
use http::{HeaderMap, Request, header};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{BorrowedSender, HttpConnection},
    dial::HttpDialer,
    incoming::PendingResponse,
    outgoing::OutgoingBody,
    settings::Client,
    target::ServerUrl,
};

/// The connections to one server.
pub(super) struct ConnectionPool {
    dialer: Arc<HttpDialer>,
    state: Mutex<PoolState>,
    /// The number of calls without a place.
    waiting: AtomicUsize,
    /// Notified when a waiting call may find a place.
    changed: Notify,
    /// Cancelled when the pool is dropped, so that pending dials stop.
    gone: CancellationToken,
}

struct PoolState {
    connections: Vec<Arc<HttpConnection>>,
    /// `true` if the latest connection allows several calls. The next one is expected to do the same.
    is_http2: bool,
    /// The number of connections being opened.
    dialing: usize,
    /// The number of failed dials, and the latest error.
    failures: usize,
    error: Option<Arc<ConnectError>>,
    pauses: RedialPauses,
}

impl ConnectionPool {
    /// Opens the first connection to an address.
    pub(super) async fn connect(
        url: String,
        client: Client,
        connect: ConnectSettings,
    ) -> Result<Arc<Self>, ConnectError> {
        client.settings.check()?;
        let mut target = ServerUrl::parse(&url).map_err(ConnectError::Address)?;
        target.name_host(&connect).map_err(ConnectError::Address)?;
        let dialer = HttpDialer::new(url, target, client, connect).map_err(ConnectError::Address)?;
        let first = Arc::new(dialer.dial().await?);
        let state = PoolState {
            is_http2: first.is_http2(),
            connections: vec![first],
            dialing: 0,
            failures: 0,
            error: None,
            pauses: RedialPauses::new(dialer.connect.retry.pause),
        };
        Ok(Arc::new(Self {
            dialer: Arc::new(dialer),
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
            gone: CancellationToken::new(),
        }))
    }

    pub(super) fn dialer(&self) -> &HttpDialer {
        &self.dialer
    }

    /// Returns the headers of all requests in every protocol.
    pub(super) fn base_headers(&self) -> HeaderMap {
        let user_agent = self.dialer.settings.user_agent.clone();
        user_agent.map(|user_agent| (header::USER_AGENT, user_agent)).into_iter().collect()
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // No code under the lock can leave the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place on a connection, if one is free.
    #[inline]
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<CallSlot> {
        let connection = self.state().reserve(&self.dialer)?;
        Some(CallSlot { pool: self.clone(), connection, state: SlotState::Unused })
    }

    /// Waits for a place on a connection. All waiting calls share the dials of new connections.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<CallSlot, Status> {
        let failures = self.state().failures;
        // Before the search for a place, and the end of a call in the other order: one of them sees the other.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = PoolWaiter(self);
        loop {
            let mut changed = pin!(self.changed.notified());
            // Must happen before the check of the state. A notification in between would be lost otherwise.
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(connection) = state.reserve(&self.dialer) {
                    return Ok(CallSlot { pool: self.clone(), connection, state: SlotState::Unused });
                }
                if state.failures > failures
                    && let Some(error) = &state.error
                {
                    return Err(CallError::Unreachable(error.clone()).into());
                }
                self.dial(&mut state);
            }
            changed.await;
        }
    }

    /// Waits until no connection takes new calls.
    #[cfg(feature = "http2")]
    pub(super) async fn lost(&self) {
        loop {
            let open = self.state().connections.iter().find(|connection| !connection.is_closed()).cloned();
            let Some(open) = open else { return };
            open.closed().await;
        }
    }

    /// Returns the sum over all open connections.
    pub(super) fn sum<T: Default>(&self, add: impl Fn(&HttpConnection, &mut T)) -> T {
        let mut sum = T::default();
        self.state().connections.iter().for_each(|connection| add(connection, &mut sum));
        sum
    }

    /// Starts to open another connection, if one is needed and allowed.
    fn dial(self: &Arc<Self>, state: &mut PoolState) {
        // One HTTP/2 connection serves many waiting calls. After a failure, one attempt is enough to probe the server.
        let wanted =
            if state.is_http2 || state.pauses.is_after_failure() { 1 } else { self.waiting.load(Ordering::SeqCst) };
        if state.dialing >= wanted || state.connections.len() + state.dialing >= self.dialer.settings.connections_max {
            return;
        }
        state.dialing += 1;
        let pause = state.pauses.next_pause();
        let (dialer, gone) = (self.dialer.clone(), self.gone.clone());
        let dialing = PendingDial(Arc::downgrade(self));
        tokio::spawn(async move {
            let dialed = async {
                sleep(pause).await;
                dialer.dial().await
            };
            tokio::select! {
                dialed = dialed => dialing.end(dialed),
                () = gone.cancelled() => {}
            }
        });
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl PoolState {
    /// Reserves a place on a connection with room for a call.
    #[inline]
    fn reserve(&mut self, dialer: &HttpDialer) -> Option<Arc<HttpConnection>> {
        // The common case: a single open connection, which is kept.
        if let [connection] = &self.connections[..]
            && self.is_http2
            && !connection.is_closed()
        {
            return connection.reserve().then(|| connection.clone());
        }
        self.reserve_any(dialer)
    }

    fn reserve_any(&mut self, dialer: &HttpDialer) -> Option<Arc<HttpConnection>> {
        self.remove_closed(dialer);
        self.remove_idle(dialer.settings.idle_max);
        self.connections.iter().find(|connection| connection.reserve()).cloned()
    }

    fn remove_closed(&mut self, dialer: &HttpDialer) {
        let mut index = 0;
        while let Some(connection) = self.connections.get(index) {
            if !connection.is_closed() {
                index += 1;
                continue;
            }
            if let Some(foreign) = connection.foreign_protocol() {
                self.failures += 1;
                self.error = Some(Arc::new(dialer.foreign_protocol_error(foreign)));
                self.pauses.after_failure();
            } else if connection.has_received() {
                self.pauses.after_use();
            } else {
                self.pauses.after_failure();
            }
            self.connections.swap_remove(index);
        }
    }

    /// Closes connections idle for longer than `idle_max`. Keeps one HTTP/2 connection.
    fn remove_idle(&mut self, idle_max: Duration) {
        let kept = usize::from(self.is_http2);
        let mut index = self.connections.len();
        while index > kept {
            index -= 1;
            if self.connections[index].idle() > idle_max {
                self.connections.swap_remove(index);
            }
        }
    }
}

/// A call waiting for a place. It is counted until it is dropped.
struct PoolWaiter<'a>(&'a ConnectionPool);

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection being opened.
struct PendingDial(std::sync::Weak<ConnectionPool>);

impl PendingDial {
    fn end(self, dialed: Result<HttpConnection, ConnectError>) {
        let Some(pool) = self.0.upgrade() else { return };
        let mut state = pool.state();
        match dialed {
            Ok(connection) => {
                state.is_http2 = connection.is_http2();
                state.connections.push(Arc::new(connection));
            }
            Err(error) => {
                state.failures += 1;
                state.error = Some(Arc::new(error));
                state.pauses.after_failure();
            }
        }
    }
}

/// Also runs when the dialing runtime is gone. Waiting calls are woken and dial again.
impl Drop for PendingDial {
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        pool.state().dialing -= 1;
        pool.changed.notify_waiters();
    }
}

/// The place of one call on a connection.
pub(super) struct CallSlot {
    pool: Arc<ConnectionPool>,
    connection: Arc<HttpConnection>,
    state: SlotState,
}

enum SlotState {
    Unused,
    /// The call has the sender of its connection of HTTP/1.1.
    Borrowed(BorrowedSender),
    /// The whole response has just arrived.
    #[cfg(feature = "http2")]
    Answered,
}

impl CallSlot {
    /// Sends the request. Must be called only once.
    pub(super) fn send(&mut self, request: Request<OutgoingBody>) -> PendingResponse {
        let (responding, returned) =
            self.connection.send(request).expect("the holder of the place is the only call on an HTTP/1.1 connection");
        self.state = SlotState::Borrowed(returned);
        responding
    }

    /// Sends a request on a connection of HTTP/2. Must be called only once.
    #[cfg(feature = "http2")]
    pub(super) fn send_http2(&mut self, request: super::http2::Http2Request) -> PendingResponse {
        self.connection.send_http2(request).expect("the request was made for HTTP/2")
    }

    pub(super) fn connection(&self) -> &HttpConnection {
        &self.connection
    }

    /// Records that the whole response has arrived, so the server cannot be silent.
    #[cfg(feature = "http2")]
    pub(super) fn answered(&mut self) {
        self.state = SlotState::Answered;
    }

    pub(super) fn pool(&self) -> &Arc<ConnectionPool> {
        &self.pool
    }

    #[inline]
    fn release(pool: &ConnectionPool, connection: &HttpConnection) {
        // In this order: a call that finds no place either sees this one or is counted in `waiting`.
        connection.end_call();
        if pool.waiting.load(Ordering::SeqCst) > 0 {
            pool.changed.notify_one();
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        #[cfg(feature = "http2")]
        if matches!(self.state, SlotState::Answered) {
            return Self::release(&self.pool, &self.connection);
        }
        self.connection.detect_silence();
        let busy = match &mut self.state {
            SlotState::Borrowed(returned) => self.connection.take_back(returned),
            _ => None,
        };
        let Some(mut sender) = busy else { return Self::release(&self.pool, &self.connection) };
        // The response was read to its end or abandoned. The connection is free once hyper has noticed.
        let (pool, connection) = (Arc::downgrade(&self.pool), self.connection.clone());
        let free = async move {
            // A failed connection is detected as closed later.
            let _ = sender.ready().await;
            connection.restore_sender(sender);
            if let Some(pool) = pool.upgrade() {
                Self::release(&pool, &connection);
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => mem::drop(runtime.spawn(free)),
            // Without a runtime, no further call can be made.
            Err(_) => mem::drop(free),
        }
    }
}
