//! Replacing a lost connection: one attempt at a time, shared by all calls, with pauses after failures.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use frisbee::Backoff;
use tokio::{
    sync::watch,
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    call::{deadline::Deadline, status::Status},
    error::{CallError, ConnectError},
    service::boxed::BoxFuture,
};

/// A channel's transport with a replaceable connection.
pub trait ReconnectingTransport: Send + Sync + 'static {
    /// The connection.
    type Connection: Send + Sync + 'static;

    /// Returns the state of the replacement. `None` if the connection is never replaced.
    fn redial(&self) -> Option<&Redial<Self::Connection>>;

    /// Returns the connection for new calls.
    fn current(&self) -> Arc<Self::Connection>;

    /// Uses this connection for new calls.
    fn replace(self: &Arc<Self>, next: Arc<Self::Connection>);

    /// Returns whether a connection takes new calls.
    fn takes_calls(connection: &Self::Connection) -> bool;

    /// Returns how much the server has sent on a connection, in any unit that grows.
    fn received_count(connection: &Self::Connection) -> u64;
}

/// The replacement of a lost connection: a function that connects, and the progress of its attempts.
pub struct Redial<C> {
    dial: Box<dyn Fn() -> BoxFuture<'static, Result<C, ConnectError>> + Send + Sync>,
    progress: Mutex<RedialProgress<C>>,
}

struct RedialProgress<C> {
    under_way: Option<DialOutcome<C>>,
    /// The value of [`ReconnectingTransport::received_count`] when the last attempt ended. `None` after a failure.
    heard: Option<u64>,
    /// A connection counts as a failure until the server sends something on it.
    pauses: RedialPauses,
}

/// The outcome of an attempt, once it has ended.
type DialOutcome<C> = watch::Receiver<Option<Result<Arc<C>, Arc<ConnectError>>>>;

impl<C> Redial<C> {
    /// Creates the state for a first connection. `dial` makes the later ones.
    ///
    /// `pause` is the pause after the first failure. `received_count` is how much the server has sent on the first connection so
    /// far.
    pub fn new(
        dial: impl Fn() -> BoxFuture<'static, Result<C, ConnectError>> + Send + Sync + 'static,
        pause: Duration,
        heard: u64,
    ) -> Self {
        let mut pauses = RedialPauses::new(pause);
        pauses.after_failure();
        let progress = RedialProgress { under_way: None, heard: Some(heard), pauses };
        Self { dial: Box::new(dial), progress: Mutex::new(progress) }
    }

    fn progress(&self) -> MutexGuard<'_, RedialProgress<C>> {
        // No panic under the lock can leave the progress half changed.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> RedialProgress<C> {
    /// Returns the pause before an attempt, after the loss of a connection on which the server had sent this much.
    fn pause(&mut self, heard: u64) -> Duration {
        if self.heard.is_some_and(|before| heard > before) {
            self.pauses.after_use();
        }
        self.pauses.next_pause()
    }

    fn end(&mut self, heard: Option<u64>) {
        self.heard = heard;
        self.pauses.after_failure();
    }
}

/// Returns the connection for a new call, and replaces it first if it is lost.
///
/// All calls share one attempt, a task on the current runtime. It continues after their deadlines.
pub async fn open<W: ReconnectingTransport>(wire: &Arc<W>, deadline: Deadline) -> Result<Arc<W::Connection>, Status> {
    let current = wire.current();
    match wire.redial() {
        Some(redial) if !W::takes_calls(&current) => deadline.bound_unsent(await_dial(wire, redial)).await,
        _ => Ok(current),
    }
}

/// Waits for the attempt in progress, or makes one.
async fn await_dial<W: ReconnectingTransport>(
    wire: &Arc<W>,
    redial: &Redial<W::Connection>,
) -> Result<Arc<W::Connection>, Status> {
    loop {
        let mut dialed = join_or_start_dial(wire, redial);
        if let Ok(outcome) = dialed.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            let outcome = outcome.expect("it was waited for");
            return outcome.map_err(|error| CallError::Unreachable(error).into());
        }
        // The runtime of the attempt was shut down. If the current one is too, it drops this call here.
        yield_now().await;
    }
}

/// Returns the attempt in progress, or begins one.
fn join_or_start_dial<W: ReconnectingTransport>(
    wire: &Arc<W>,
    redial: &Redial<W::Connection>,
) -> DialOutcome<W::Connection> {
    let mut progress = redial.progress();
    if let Some(dialed) = progress.under_way.as_ref().filter(|dialed| dialed.has_changed().is_ok()) {
        return dialed.clone();
    }
    let current = wire.current();
    if W::takes_calls(&current) {
        return watch::channel(Some(Ok(current))).1;
    }
    let pause = progress.pause(W::received_count(&current));
    let (sender, dialed) = watch::channel(None);
    progress.under_way = Some(dialed.clone());
    // Set before the task exists: a runtime that shuts down may drop the task, which counts as a failure.
    progress.end(None);
    drop(progress);
    let (dialing, wire) = ((redial.dial)(), Arc::downgrade(wire));
    tokio::spawn(async move {
        let dialing = async {
            sleep(pause).await;
            dialing.await
        };
        tokio::select! {
            // A simulation needs a fixed order. A finished connection is better than none.
            biased;
            outcome = dialing => {
                if let Some(wire) = wire.upgrade() {
                    // All callers may have given up.
                    let _ = sender.send(Some(end_dialing(&wire, outcome)));
                }
            }
            // The channel and its calls are gone.
            () = sender.closed() => {}
        }
    });
    dialed
}

/// Stores the outcome of an attempt, and returns it for the waiting calls.
fn end_dialing<W: ReconnectingTransport>(
    wire: &Arc<W>,
    outcome: Result<W::Connection, ConnectError>,
) -> Result<Arc<W::Connection>, Arc<ConnectError>> {
    let heard = outcome.as_ref().ok().map(W::received_count);
    let outcome = outcome.map(Arc::new).map_err(Arc::new);
    if let Ok(next) = &outcome {
        wire.replace(next.clone());
    }
    if let Some(redial) = wire.redial() {
        // After the replacement: until then, calls wait for this attempt instead of beginning another.
        let mut progress = redial.progress();
        progress.under_way = None;
        progress.end(heard);
    }
    outcome
}

/// The pauses before a lost connection is replaced.
///
/// There is no pause if the server sent something on the connection. After a failed attempt, or a connection without a
/// byte from the server, pauses grow. So a server that accepts and closes connections is not called in a loop.
#[derive(Debug)]
pub struct RedialPauses {
    backoff: Backoff,
    useless_since: Option<Instant>,
}

impl RedialPauses {
    /// Starts with this pause after the first failure.
    pub fn new(first: Duration) -> Self {
        Self { backoff: Backoff::new(first), useless_since: None }
    }

    /// Records the end of a connection on which the server sent something.
    pub fn after_use(&mut self) {
        self.useless_since = None;
        self.backoff.reset();
    }

    /// Records a failed attempt, or the end of a connection on which the server sent nothing.
    pub fn after_failure(&mut self) {
        self.useless_since = Some(Instant::now());
    }

    /// Returns `true` if the last attempt failed, or the server sent nothing on the last connection.
    pub fn is_after_failure(&self) -> bool {
        self.useless_since.is_some()
    }

    /// Returns the time to wait before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        match self.useless_since {
            None => Duration::ZERO,
            Some(since) => self.backoff.pause().saturating_sub(since.elapsed()),
        }
    }
}
