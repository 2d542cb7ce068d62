//! The connection of a channel, and its replacement after a loss.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frisbee::{GoAway, RefusalReason};
use tokio::sync::Notify;
use tracing::warn;

use super::{super::bytes::hello::MethodRoute, connection::ClientConnection};
use crate::{
    call::{deadline::Deadline, head::Head, method::Method, status::Status, trace::TraceContext},
    client::{self, CallAttempts, ReconnectingTransport, Redial, is_draining},
    codec::Format,
    error::CallError,
};

/// The treatment of a call with metadata if the peer cannot receive it. Peers with plain fRPC cannot. A
/// [trace context](crate::TraceContext) ends there without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostMetadata {
    /// The call fails with [`CallError::MetadataNotCarried`], so the caller does not rely on metadata that never
    /// arrives.
    #[default]
    Fail,
    /// The call is made without metadata, and a warning is logged.
    Warn,
}

/// The connection of a channel, and the means to replace it.
pub(crate) struct FrisbeeCaller {
    /// The first connection, which this does not keep open. While it is current, calls use it without a lock.
    first: ClientConnection,
    is_first: AtomicBool,
    current: Mutex<Arc<ClientConnection>>,
    pub(super) redial: Option<Redial<ClientConnection>>,
    lost_metadata: LostMetadata,
    /// The timeout announced to peers, so calls with this timeout need not send it.
    pub(crate) announced: Option<Duration>,
    /// True if messages are compressed, for peers with support for it.
    pub(crate) compresses: bool,
    /// Methods that clients will call. Each new peer's methods are compared with them.
    declared: Mutex<Vec<&'static [Method]>>,
    /// Notified when the peer asks to leave a connection.
    leaving: Notify,
}

impl FrisbeeCaller {
    pub(crate) fn new(
        first: ClientConnection,
        redial: Option<Redial<ClientConnection>>,
        lost_metadata: LostMetadata,
        announced: Option<Duration>,
    ) -> Arc<Self> {
        let (compresses, declared) = (first.own.compressing.compresses(), Mutex::default());
        let (first, current) = (first.detached_handle(), Arc::new(first));
        let (is_first, current) = (AtomicBool::new(true), Mutex::new(current));
        let leaving = Notify::new();
        let wire = Self { first, is_first, current, redial, lost_metadata, announced, compresses, declared, leaving };
        let wire = Arc::new(wire);
        wire.release_on_goaway(&wire.first);
        wire
    }

    /// Returns the first connection, unless it was replaced.
    #[inline]
    pub(super) fn first(&self) -> Option<&ClientConnection> {
        // Relaxed: a call that still sees the first connection after its replacement finds that it takes no calls.
        self.is_first.load(Ordering::Relaxed).then_some(&self.first)
    }

    /// Replaces the current connection. The old one stays open until its calls are over.
    fn swap_current(&self, mut current: MutexGuard<'_, Arc<ClientConnection>>, next: Arc<ClientConnection>) {
        self.is_first.store(false, Ordering::Relaxed);
        let before = mem::replace(&mut *current, next);
        // Unlock first: dropping the last handle closes the connection, and other calls must not wait for that.
        drop(current);
        before.close_when_idle();
    }

    /// Releases a connection once its peer wants no new calls on it, so it closes after its last call.
    fn release_on_goaway(self: &Arc<Self>, connection: &ClientConnection) {
        let wire = Arc::downgrade(self);
        connection.on_leaving(move || {
            let Some(wire) = wire.upgrade() else { return };
            let current = wire.lock_current();
            // It may have been replaced in the meantime.
            if current.is_going_away() {
                let released = Arc::new(current.detached_handle());
                wire.swap_current(current, released);
                wire.leaving.notify_one();
            }
        });
    }

    /// Waits until the connection takes no more calls. For a channel that does not replace it.
    pub(crate) async fn lost(&self) {
        tokio::select! {
            // A simulation needs a fixed order. Both events have the same effect.
            biased;
            _ = self.first.connection.closed() => {}
            () = self.leaving.notified() => {}
        }
    }

    pub(crate) fn declared(&self) -> MutexGuard<'_, Vec<&'static [Method]>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_current(&self) -> MutexGuard<'_, Arc<ClientConnection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection for another attempt.
    ///
    /// Fails with the status of the last attempt if the call must not be retried or the channel cannot reconnect.
    pub(super) async fn next_connection(
        self: &Arc<Self>,
        attempts: &mut CallAttempts,
        last: Arc<ClientConnection>,
        status: Status,
    ) -> Result<Arc<ClientConnection>, Status> {
        if self.redial.is_none() {
            return Err(status);
        }
        if is_draining(&status) {
            // Equivalent to a request to leave, which may still be in flight.
            last.go_away(GoAway { code: GoAway::SHUTDOWN, text: RefusalReason::Draining.to_string().into() });
        }
        // This handle may be the last one that keeps the connection open.
        drop(last);
        attempts.begin_another(status).await?;
        self.open(attempts.deadline()).await
    }

    /// Makes attempts until one succeeds, or fails in a way that must not be repeated. Returns the last connection as
    /// well.
    pub(super) async fn repeat<T, F>(
        self: &Arc<Self>,
        mut connection: Arc<ClientConnection>,
        attempts: &mut CallAttempts,
        attempt: impl Fn(Arc<ClientConnection>) -> F,
    ) -> Result<(Arc<ClientConnection>, T), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        loop {
            match attempt(connection.clone()).await {
                Ok(done) => return Ok((connection, done)),
                Err(status) => connection = self.next_connection(attempts, connection, status).await?,
            }
        }
    }

    /// Returns the format for a call with encoded messages. Waits until the peer is recognized.
    pub(crate) async fn bytes_format(self: &Arc<Self>, deadline: Deadline) -> Result<Format, Status> {
        let extended = self.open(deadline).await?.extended(deadline).await?.is_some();
        Ok(if extended { Format::Proto } else { Format::Polyglot })
    }

    /// Returns the format for a call to a method, on the connection that it will probably use.
    ///
    /// Waits for the connection. With `waits`, it also waits until the peer is recognized, for calls with streams or
    /// with more than a plain packet.
    pub(crate) async fn format(
        self: &Arc<Self>,
        method: &'static Method,
        waits: bool,
        deadline: Deadline,
    ) -> Result<Format, Status> {
        let connection = self.open(deadline).await?;
        if waits {
            connection.extended(deadline).await?;
        }
        match connection.peer().map(|peer| peer.route(method)) {
            Some(MethodRoute::Extended { format, .. }) => Ok(format),
            _ => Ok(Format::Polyglot),
        }
    }

    /// Fails or logs a warning if the call would lose metadata.
    pub(super) fn check_head(&self, method: &'static Method, head: &Head) -> Result<(), Status> {
        let is_lost = |name: &&str| !TraceContext::NAMES.contains(name);
        let Some(name) = head.metadata().keys().find(is_lost) else { return Ok(()) };
        match self.lost_metadata {
            LostMetadata::Fail => Err(CallError::MetadataNotCarried { name: name.to_owned() }.into()),
            LostMetadata::Warn => {
                warn!(%method, name, "the peer speaks plain fRPC, which carries no metadata: the call goes without");
                Ok(())
            }
        }
    }

    pub(crate) fn current(&self) -> Arc<ClientConnection> {
        self.lock_current().clone()
    }

    /// Returns the connection for a new call, and replaces it first if it is lost.
    pub(crate) async fn open(self: &Arc<Self>, deadline: Deadline) -> Result<Arc<ClientConnection>, Status> {
        client::open(self, deadline).await
    }
}

impl ReconnectingTransport for FrisbeeCaller {
    type Connection = ClientConnection;

    fn redial(&self) -> Option<&Redial<ClientConnection>> {
        self.redial.as_ref()
    }

    fn current(&self) -> Arc<ClientConnection> {
        Self::current(self)
    }

    fn replace(self: &Arc<Self>, next: Arc<ClientConnection>) {
        self.swap_current(self.lock_current(), next.clone());
        self.compare_declared(&next);
        // The server may already have asked to leave this connection.
        self.release_on_goaway(&next);
    }

    fn takes_calls(connection: &ClientConnection) -> bool {
        connection.takes_calls()
    }

    fn received_count(connection: &ClientConnection) -> u64 {
        connection.packets_received()
    }
}
