//! Connections to a server, and their replacement when they are lost or full.

use std::{
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use frpc::{CallError, ConnectError, Status, client::RedialPauses};
use http::Request;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Responding, Returned},
    dial::Dialer,
    outgoing::Outgoing,
};

/// The connections to one server.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    state: Mutex<State>,
    /// Notified when a waiting call may find a place.
    changed: Notify,
    /// Cancelled when the pool is dropped, so that pending dials stop.
    gone: CancellationToken,
}

struct State {
    connections: Vec<Arc<Connection>>,
    /// `true` if the latest connection allows several calls. The next one is expected to do the same.
    is_http2: bool,
    /// The number of connections being opened.
    dialing: usize,
    waiting: usize,
    /// The number of failed dials, and the latest error.
    failures: usize,
    error: Option<Arc<ConnectError>>,
    pauses: RedialPauses,
}

impl Pool {
    /// Opens the first connection.
    pub(super) async fn connect(dialer: Dialer) -> Result<Arc<Self>, ConnectError> {
        let first = Arc::new(dialer.dial().await?);
        let state = State {
            is_http2: first.is_http2(),
            connections: vec![first],
            dialing: 0,
            waiting: 0,
            failures: 0,
            error: None,
            pauses: RedialPauses::new(dialer.connect.retry.pause),
        };
        Ok(Arc::new(Self {
            dialer: Arc::new(dialer),
            state: Mutex::new(state),
            changed: Notify::new(),
            gone: CancellationToken::new(),
        }))
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock can leave the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place on a connection, if one is free.
    pub(super) fn place_now(self: &Arc<Self>) -> Option<Place> {
        let connection = self.state().free(&self.dialer)?;
        Some(Place { pool: self.clone(), connection, returned: None })
    }

    /// Waits for a place on a connection. All waiting calls share the dials of new connections.
    pub(super) async fn place(self: &Arc<Self>) -> Result<Place, Status> {
        let failures = {
            let mut state = self.state();
            state.waiting += 1;
            state.failures
        };
        let _waiting = Waiting(self);
        loop {
            let mut changed = pin!(self.changed.notified());
            // Must happen before the check of the state. A notification in between would be lost otherwise.
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(connection) = state.free(&self.dialer) {
                    return Ok(Place { pool: self.clone(), connection, returned: None });
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

    /// Starts to open another connection, if one is needed and allowed.
    fn dial(self: &Arc<Self>, state: &mut State) {
        // One HTTP/2 connection serves many waiting calls. After a failure, one attempt is enough to probe the server.
        let wanted = if state.is_http2 || state.pauses.is_after_failure() { 1 } else { state.waiting };
        if state.dialing >= wanted || state.connections.len() + state.dialing >= self.dialer.settings.connections_max {
            return;
        }
        state.dialing += 1;
        let pause = state.pauses.next_pause();
        let (dialer, gone) = (self.dialer.clone(), self.gone.clone());
        let dialing = Dialing(Arc::downgrade(self));
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

impl Drop for Pool {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl State {
    /// Reserves a place on a connection with room for a call.
    fn free(&mut self, dialer: &Dialer) -> Option<Arc<Connection>> {
        self.remove_closed(dialer);
        self.remove_idle(dialer.settings.idle_max);
        let mut free = self.connections.iter();
        let free = free.find(|connection| connection.calls.load(Ordering::Relaxed) < connection.calls_max())?;
        free.calls.fetch_add(1, Ordering::Relaxed);
        Some(free.clone())
    }

    fn remove_closed(&mut self, dialer: &Dialer) {
        let mut index = 0;
        while let Some(connection) = self.connections.get(index) {
            if !connection.is_closed() {
                index += 1;
                continue;
            }
            if let Some(foreign) = connection.foreign() {
                self.failures += 1;
                self.error = Some(Arc::new(dialer.foreign(foreign)));
                self.pauses.after_failure();
            } else if connection.was_of_use() {
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
struct Waiting<'a>(&'a Pool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// A connection being opened.
struct Dialing(std::sync::Weak<Pool>);

impl Dialing {
    fn end(self, dialed: Result<Connection, ConnectError>) {
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
impl Drop for Dialing {
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        pool.state().dialing -= 1;
        pool.changed.notify_waiters();
    }
}

/// The place of one call on a connection.
pub(super) struct Place {
    pool: Arc<Pool>,
    connection: Arc<Connection>,
    returned: Option<Returned>,
}

impl Place {
    /// Sends the request. Must be called only once.
    pub(super) fn send(&mut self, request: Request<Outgoing>) -> Responding {
        let (responding, returned) =
            self.connection.send(request).expect("the holder of the place is the only call on an HTTP/1.1 connection");
        self.returned = Some(returned);
        responding
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    fn give_back(pool: &Pool, connection: &Connection) {
        // Under the lock: a call that finds no place either sees this one or is counted in `waiting`.
        let state = pool.state();
        connection.end_call();
        if state.waiting > 0 {
            pool.changed.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.call_is_over();
        let busy = self.returned.as_mut().and_then(|returned| self.connection.take_back(returned));
        let Some(mut sender) = busy else { return Self::give_back(&self.pool, &self.connection) };
        // The response was read to its end or abandoned. The connection is free once hyper has noticed.
        let (pool, connection) = (Arc::downgrade(&self.pool), self.connection.clone());
        let free = async move {
            // A failed connection is detected as closed later.
            let _ = sender.ready().await;
            connection.put(sender);
            if let Some(pool) = pool.upgrade() {
                Self::give_back(&pool, &connection);
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => mem::drop(runtime.spawn(free)),
            // Without a runtime, no further call can be made.
            Err(_) => mem::drop(free),
        }
    }
}
