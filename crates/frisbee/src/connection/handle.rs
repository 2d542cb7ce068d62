//! The handle of a connection: its peer, its values, closing and takeover.

use std::{
    any::Any,
    fmt,
    future::Future,
    hash::{Hash, Hasher},
    sync::Arc,
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use super::{core::ConnectionCore, shared::ConnectionShared};
use crate::{
    Address, CloseReason, Config, PacketName, PeerCredentials, Raw,
    arrival::arrived,
    proto::{self, GoAway, PeerProtocol},
};

/// A handle to one connection. Cheap to clone, and usable from any thread and task.
///
/// The handle returned by a client's connect keeps the connection open. After it and its clones are dropped, queued
/// packets are written and the connection closes. If the peer asked this side to leave, handlers in flight finish
/// first. The handles passed to routers do not keep the connection open.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<ConnectionShared>,
    _keep_open: Option<Arc<CloseOnDrop>>,
}

/// The name of the protocol that carries the packets of a connection.
struct CarrierName(&'static str);

impl Connection {
    /// Returns the protocol of the peer, and the announcements of an extended peer.
    pub fn peer(&self) -> PeerProtocol {
        self.shared.core().proto.peer().clone()
    }

    /// Waits until the protocol of the peer is known. Returns the close reason if it never will be.
    ///
    /// A plain peer that answers no PING is never recognized.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn recognized(&self) -> Result<PeerProtocol, CloseReason> {
        let look = |core: &mut ConnectionCore| match (core.proto.peer(), core.proto.finishing()) {
            (PeerProtocol::Unknown, reason) => reason.cloned().map(Err),
            (peer, _) => Some(Ok(peer.clone())),
        };
        self.shared.wait_for(&self.shared.changed, look).await
    }

    /// Tells the peer that this side no longer wants the reply to a packet. The peer then drops the handler.
    ///
    /// Returns `true` if the peer is told. Then either the reply arrives, or
    /// [`Event::Withdrawn`](crate::Event::Withdrawn) follows. The peer is not told if it is plain, or if too many
    /// packets were withdrawn recently ([`Config::cancel_burst`]).
    pub fn withdraw(&self, packet: PacketName) -> bool {
        self.shared.change(|core| core.proto.cancel(Instant::now().into_std(), packet))
    }

    /// Asks the peer to start nothing new on this connection. Returns `true` if the peer understands this.
    ///
    /// Work in progress continues, and packets that the peer still sends are handled.
    pub fn go_away(&self, why: GoAway) -> bool {
        self.shared.change(|core| core.proto.go_away(why))
    }

    /// Returns the address of this side.
    pub fn local_addr(&self) -> &Address {
        &self.shared.local
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> &Address {
        &self.shared.peer
    }

    /// Returns the runtime of the connection.
    ///
    /// If it is a runtime of an [`Engine`](crate::Engine) with its own threads, tasks spawned on it use the connection
    /// without switching threads.
    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Returns the start time of the current or last turn of the connection's task.
    ///
    /// For a handler that runs in place, this is the time at which its packets arrived. Within
    /// [`Router::route`](crate::Router::route), before it returns its future, it is the arrival time of the packet,
    /// even if the packet was queued. Costs less than reading the clock.
    pub fn turn(&self) -> crate::clock::Instant {
        arrived().unwrap_or_else(|| self.shared.turn())
    }

    /// Returns the nanoseconds since the start of the current or last turn.
    #[doc(hidden)]
    #[inline]
    pub fn nanos_in_turn(&self) -> u64 {
        self.shared.nanos_in_turn(tokio::time::Instant::now().into_std())
    }

    /// Returns the nanoseconds from this time to the start of the current or last turn. Costs less than
    /// [`turn`](Self::turn) and a subtraction.
    #[doc(hidden)]
    #[inline]
    pub fn nanos_to_turn(&self, from: crate::clock::Instant) -> u64 {
        self.shared.nanos_to_turn(from)
    }

    /// Returns `true` within [`Router::route`](crate::Router::route), before it returns its future, if the future is polled
    /// in the current [turn](Self::turn) of the connection's task. [`Event::Received`](crate::Event::Received) follows.
    #[inline]
    pub fn routes_in_turn(&self) -> bool {
        arrived().is_none()
    }

    /// Returns the limits and timers of the connection.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the largest content length that both sides accept, based on the announcements received so far.
    #[inline]
    pub fn content_len_max(&self) -> u32 {
        self.shared.content_len_max()
    }

    /// Returns the number of handlers in progress on the peer, over all of its connections, as of its last PONG. `None` if
    /// the peer does not tell.
    ///
    /// Handlers ready immediately do not count. The peer answers a PING in each [`Config::ping_interval`].
    pub fn peer_load(&self) -> Option<u16> {
        self.shared.core().proto.peer_load()
    }

    /// Returns the time since the last input, if the peer owes an answer to a PING. `None` while this side does not read.
    ///
    /// The connection closes after [`Config::silence_max`].
    pub fn silence(&self) -> Option<std::time::Duration> {
        self.shared.core().proto.silence(tokio::time::Instant::now().into_std())
    }

    /// Attaches a value to the connection, until the connection is dropped.
    ///
    /// There is at most one value of each type: if there is one already, `value` is returned as the error. Mutable
    /// values need their own lock or atomics.
    pub fn set_state<T: Send + Sync + 'static>(&self, value: T) -> Result<&T, T> {
        self.shared.states.add(value).map_err(|(_, value)| value)
    }

    /// Returns the attached value of this type. Takes no lock.
    #[inline]
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }

    /// Returns the attached value of this type, attaching the result of `make` if there is none.
    ///
    /// If several tasks call this concurrently, each may run `make`. One value is attached, and all tasks receive that
    /// one.
    pub fn state_or_insert_with<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> &T {
        self.state().unwrap_or_else(|| self.shared.states.add(make()).unwrap_or_else(|(there, _)| there))
    }

    /// Returns the name of the protocol under the packets, such as HTTP for a WebSocket. `None` for a plain socket.
    ///
    /// The peer of such a connection may be a page in a browser, or a proxy for one.
    pub fn carrier(&self) -> Option<&'static str> {
        self.state::<CarrierName>().map(|carrier| carrier.0)
    }

    pub(crate) fn set_carrier(&self, name: &'static str) {
        // Fails only for a second value of this type.
        let _ = self.set_state(CarrierName(name));
    }

    /// Returns the user, group and process of the peer. `None` except for Unix sockets accepted or connected by this
    /// side.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.state().copied()
    }

    /// Starts closing the connection.
    ///
    /// Nothing more is read or accepted for sending. The connection ends once everything sent before has arrived; use
    /// [`closed`](Self::closed) to wait for that.
    pub fn close(&self) {
        self.shared.finish(CloseReason::Local);
    }

    /// Waits until the connection has ended, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) -> CloseReason {
        self.shared.wait_for(&self.shared.changed, |core| core.ended.clone()).await
    }

    /// Returns the reason why the connection accepts no more packets for sending, or `None` while it does.
    ///
    /// Packets sent before may still be in flight; use [`closed`](Self::closed) to wait for them. A failure in the
    /// meantime replaces the reason.
    pub fn close_reason(&self) -> Option<CloseReason> {
        let core = self.shared.core();
        core.ended.as_ref().or_else(|| core.proto.finishing()).cloned()
    }

    /// Ends frisbee on this side and returns the underlying stream, with every byte read from it and not consumed.
    ///
    /// Takes effect during the call, before the future is polled: bytes after the packet being handled are not decoded
    /// as packets. Everything sent before is written first, and no frisbee bytes follow. The peer is not told. Agree on
    /// the change with packets, and let the side that changes second send first.
    ///
    /// Handlers in flight continue, but their replies are dropped. The stream moves to the runtime that awaits the
    /// future, unless TLS ties it to the runtime of the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the connection, because frisbee has already ended on it.
    ///
    /// ```
    /// # async fn example(connection: frisbee::Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let mut raw = connection.takeover().await?;
    /// raw.skip_heartbeats();
    /// raw.write_all(b"no packets any more").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn takeover(&self) -> impl Future<Output = Result<Raw, CloseReason>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        let mut core = self.shared.core();
        if core.proto.is_open() {
            // Set before the close, so that the driver finds it. If another close comes first, the end of the
            // connection drops the sender.
            core.taker = Some(sender);
            drop(core);
            self.shared.finish(CloseReason::TakenOver);
        }
        let connection = self.clone();
        async move {
            match receiver.await {
                Ok(raw) => {
                    raw.onto_current_runtime(connection.runtime()).map_err(|error| CloseReason::Io(Arc::new(error)))
                }
                Err(_) => Err(connection.closed().await),
            }
        }
    }

    /// Returns the counters and current queue lengths of the connection.
    pub fn metrics(&self) -> ConnectionMetrics {
        let core = self.shared.core();
        ConnectionMetrics {
            counters: core.proto.counters(),
            outbox_len: core.proto.queued_len(),
            streams: core.proto.streams_len(),
            streams_blocked: core.proto.streams_blocked(),
            handlers: core.handlers,
        }
    }

    /// Returns a handle to the same connection that does not keep it open, like the handles passed to routers.
    pub fn without_keeping_open(&self) -> Self {
        Self::new(self.shared.clone())
    }

    pub(crate) fn new(shared: Arc<ConnectionShared>) -> Self {
        Self { shared, _keep_open: None }
    }

    /// Creates the handle that keeps the connection open, for the connecting side.
    pub(crate) fn owning(shared: Arc<ConnectionShared>) -> Self {
        let guard = Arc::new(CloseOnDrop(shared.clone()));
        Self { shared, _keep_open: Some(guard) }
    }

    /// Returns the connection as a type-erased value without an allocation, for layers that must not depend on
    /// connections.
    #[doc(hidden)]
    #[inline]
    pub fn into_any(self) -> Arc<dyn Any + Send + Sync> {
        self.shared
    }

    /// Returns the connection from a value of [`into_any`](Self::into_any). The handle does not keep it open.
    #[doc(hidden)]
    pub fn from_any(connection: &Arc<dyn Any + Send + Sync>) -> Option<Self> {
        connection.clone().downcast().ok().map(Self::new)
    }

    pub(crate) fn shared(&self) -> &Arc<ConnectionShared> {
        &self.shared
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Connection {}

impl Hash for Connection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.shared).hash(state);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.shared.peer).finish_non_exhaustive()
    }
}

/// A snapshot of the counters and queue lengths of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionMetrics {
    /// Packets and bytes transferred so far.
    pub counters: proto::Counters,
    /// Bytes queued for writing.
    pub outbox_len: usize,
    /// Number of streams.
    pub streams: usize,
    /// Number of streams that may send nothing until the peer grants credit.
    pub streams_blocked: usize,
    /// Number of handlers in flight that were not ready immediately.
    pub handlers: usize,
}

struct CloseOnDrop(Arc<ConnectionShared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.leave();
    }
}
