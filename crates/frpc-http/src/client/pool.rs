//! The connections to a server, and the way to others when they are lost or full.

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

/// The connections to a server.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    state: Mutex<State>,
    /// Told when a call may find a place.
    changed: Notify,
    /// Cancelled with the pool, which nobody dials for then.
    gone: CancellationToken,
}

struct State {
    connections: Vec<Arc<Connection>>,
    /// True if the last one took more than one call, as the next one then will.
    is_http2: bool,
    /// The number of connections that are being made.
    dialing: usize,
    waiting: usize,
    /// The number of times that dialling has failed, and the last error.
    failures: usize,
    error: Option<Arc<ConnectError>>,
    pauses: RedialPauses,
}

impl Pool {
    /// Makes the first connection.
    pub(super) async fn connect(dialer: Dialer) -> Result<Arc<Self>, ConnectError> {
        let first = Arc::new(dialer.dial().await?);
        let state = State {
            is_http2: first.is_http2(),
            connections: vec![first],
            dialing: 0,
            waiting: 0,
            failures: 0,
            error: None,
            pauses: RedialPauses::new(dialer.connect.pause),
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
        // Nothing that runs under the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place on a connection, if there is one.
    pub(super) fn place_now(self: &Arc<Self>) -> Option<Place> {
        let connection = self.state().free(&self.dialer)?;
        Some(Place { pool: self.clone(), connection, returned: None })
    }

    /// Waits for a place on a connection. All calls that find none share the attempts to make another.
    pub(super) async fn place(self: &Arc<Self>) -> Result<Place, Status> {
        let failures = {
            let mut state = self.state();
            state.waiting += 1;
            state.failures
        };
        let _waiting = Waiting(self);
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look at the state, so that no change is missed.
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

    /// Begins to make another connection, if there is to be one.
    fn dial(self: &Arc<Self>, state: &mut State) {
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
    /// Takes a place on a connection that has one.
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

    /// Closes connections that were without a call for longer than this, which one of HTTP/2 may be that is the only one.
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

/// A call that waits for a place.
struct Waiting<'a>(&'a Pool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// A connection that is being made.
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

/// Also if the runtime that dialled is gone: those that wait dial again.
impl Drop for Dialing {
    fn drop(&mut self) {
        let Some(pool) = self.0.upgrade() else { return };
        pool.state().dialing -= 1;
        pool.changed.notify_waiters();
    }
}

/// A place of one call on a connection.
pub(super) struct Place {
    pool: Arc<Pool>,
    connection: Arc<Connection>,
    returned: Option<Returned>,
}

impl Place {
    /// Sends a request, once.
    pub(super) fn send(&mut self, request: Request<Outgoing>) -> Responding {
        let (responding, returned) =
            self.connection.send(request).expect("a call that holds the place is alone on a connection of HTTP/1.1");
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
        // The response was read to its end, or is abandoned: the connection is free once it has noticed.
        let (pool, connection) = (Arc::downgrade(&self.pool), self.connection.clone());
        let free = async move {
            // One that failed is found to be closed.
            let _ = sender.ready().await;
            connection.put(sender);
            if let Some(pool) = pool.upgrade() {
                Self::give_back(&pool, &connection);
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => mem::drop(runtime.spawn(free)),
            // Nobody is left who would make another call.
            Err(_) => mem::drop(free),
        }
    }
}
