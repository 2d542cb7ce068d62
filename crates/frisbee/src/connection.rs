//! The handle that everybody holds: sending, streams, state, closing and takeover.

use std::{
    any::Any,
    fmt,
    future::Future,
    hash::{Hash, Hasher},
    sync::Arc,
};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use crate::{
    Address, CloseReason, Config, Frames, OutboxLimit, Packet, PacketName, PeerCredentials, Raw, SendError,
    TrySendError,
    arrival::arrived,
    proto::{self, GoAway, Peer},
    shared::{Core, Sent, Shared},
};

/// A handle to one connection. Cheap to clone, and usable from any thread and task.
///
/// The handle that a client gets from connecting keeps the connection open: when it and its clones are gone, what was
/// sent is written and the connection closes; if the peer had asked this side to leave, handlers under way finish first. The
/// handles that routers see do not keep it open.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    _keep_open: Option<Arc<CloseOnDrop>>,
}

impl Connection {
    /// Sends a packet, waiting while the outbox is full. Packets of one task arrive in order.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent the packet whole or not at all.
    pub async fn send(&self, packet: Packet) -> Result<Sent, SendError> {
        self.shared.when_not_full(packet.content.len(), packet, Core::send).await
    }

    /// Sends a packet unless the outbox is full, which gives the packet back.
    pub fn try_send(&self, packet: Packet) -> Result<Sent, TrySendError> {
        self.shared.try_push(packet.content.len(), packet, Core::send)
    }

    /// Sends a packet with a copy of this content as [`try_send`](Self::try_send) does. Cheaper than a content that is made for
    /// one packet, if it is small: the bytes can be encoded into a buffer that serves again.
    ///
    /// ```
    /// # fn example(connection: &frisbee::Connection) -> Result<(), frisbee::TrySendError<()>> {
    /// use frisbee::{Operation, PacketName};
    ///
    /// const TICK: Operation = Operation::new(20).unwrap();
    ///
    /// let mut buffer = Vec::new();
    /// for number in 0..10_u16 {
    ///     buffer.clear();
    ///     buffer.extend_from_slice(&number.to_be_bytes());
    ///     connection.try_send_copied(PacketName { id: number, operation: TICK }, &buffer)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_send_copied(&self, name: PacketName, content: &[u8]) -> Result<Sent, TrySendError<()>> {
        self.shared.try_push(content.len(), (), |core, ()| core.send_copied(name, content))
    }

    /// Sends packets that were encoded before, for other connections as well, unless the outbox is full: all of them, or none. Costs
    /// one lock and one wake-up, and long runs of them are not copied. The result is about the last of them.
    ///
    /// ```
    /// use frisbee::{Connection, FrameBuffer, Operation, PacketName};
    ///
    /// const PRICE: Operation = Operation::new(20).unwrap();
    ///
    /// fn publish(prices: &[u32], subscribers: &[Connection]) {
    ///     let mut buffer = FrameBuffer::new();
    ///     for price in prices {
    ///         buffer.push(PacketName { id: 0, operation: PRICE }, &[&price.to_be_bytes()]);
    ///     }
    ///     let frames = buffer.take();
    ///     for subscriber in subscribers {
    ///         // One that does not keep up misses all of them.
    ///         let _ = subscriber.try_send_frames(&frames);
    ///     }
    /// }
    /// ```
    pub fn try_send_frames(&self, frames: &Frames) -> Result<Sent, TrySendError<()>> {
        self.shared.try_push_frames(frames)
    }

    /// Sends packets that were encoded before as [`try_send_frames`](Self::try_send_frames) does, waiting while the outbox is full.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has sent all of them or none.
    pub async fn send_frames(&self, frames: &Frames) -> Result<Sent, SendError> {
        self.shared.push_frames(frames).await
    }

    /// Sends these packets in order, up to the first that the outbox has no room for or that cannot be sent. Returns how many were
    /// sent. Costs one lock and one wake-up. An error is that of the first packet.
    pub fn try_send_all(&self, packets: &[Packet]) -> Result<usize, SendError> {
        self.shared.try_push_all(packets)
    }

    /// Sets how much may be queued for writing, and what becomes of packets beyond that, for this connection. It begins with
    /// [`Config::outbox_len_max`] and [`WhenFull::Refuse`](crate::WhenFull::Refuse).
    ///
    /// ```
    /// # fn example(connection: &frisbee::Connection) {
    /// use frisbee::{OutboxLimit, WhenFull};
    ///
    /// // A subscriber that is more than 8 MiB behind is better off without us.
    /// connection.set_outbox(OutboxLimit { len_max: 8 << 20, when_full: WhenFull::Close });
    /// # }
    /// ```
    pub fn set_outbox(&self, limit: OutboxLimit) {
        let mut core = self.shared.core();
        core.proto.set_outbox_len_max(limit.len_max);
        core.when_full = limit.when_full;
        drop(core);
        // Those that wait may not have to any more.
        self.shared.progress.notify_waiters();
    }

    /// Tells whether the peer may have got a packet, or a part of it: whether it was given to the socket. Stays true to
    /// what happened when the connection has ended.
    pub fn may_have_left(&self, sent: Sent) -> bool {
        self.shared.core().proto.attempted() >= sent.0
    }

    /// Waits until the socket has taken everything sent before, or returns why it never will.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing: what was sent is written all the same.
    pub async fn flush(&self) -> Result<(), CloseReason> {
        let (target, _) = self.shared.core().proto.progress();
        self.shared
            .wait_for(&self.shared.progress, |core| match core.proto.progress() {
                (_, written) if written >= target => Some(Ok(())),
                _ => {
                    core.progress_is_awaited = true;
                    core.proto.closed().cloned().map(Err)
                }
            })
            .await
    }

    /// Returns what is known of the peer: whether it speaks the extended protocol, and what it said of itself.
    pub fn peer(&self) -> Peer {
        self.shared.core().proto.peer().clone()
    }

    /// Waits until it is known what the peer speaks, or returns why it never will be. A plain peer that answers no PING is
    /// never known.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing.
    pub async fn recognized(&self) -> Result<Peer, CloseReason> {
        let look = |core: &mut Core| match (core.proto.peer(), core.proto.finishing()) {
            (Peer::Unknown, reason) => reason.cloned().map(Err),
            (peer, _) => Some(Ok(peer.clone())),
        };
        self.shared.wait_for(&self.shared.changed, look).await
    }

    /// Tells the peer that this side does not want the answer to a packet that it sent. Its handler is dropped there.
    /// Returns whether the peer will hear of it: then either the answer comes, or
    /// [`Event::Withdrawn`](crate::Event::Withdrawn) follows. It will not hear of it if it is plain, or if too many
    /// packets were withdrawn lately ([`Config::cancel_burst`]).
    pub fn withdraw(&self, packet: PacketName) -> bool {
        self.shared.change(|core| core.proto.cancel(Instant::now().into_std(), packet))
    }

    /// Asks the peer to begin nothing new on this connection. What is under way, and what it sends all the same, is
    /// handled. Returns whether the peer understands that.
    pub fn go_away(&self, why: GoAway) -> bool {
        self.shared.change(|core| core.proto.go_away(why))
    }

    /// Returns this side's address.
    pub fn local_addr(&self) -> &Address {
        &self.shared.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> &Address {
        &self.shared.peer
    }

    /// Returns the runtime that serves the connection. Tasks that are spawned there use it without going from thread to
    /// thread, if the runtime is one of an [`Engine`](crate::Engine) with threads of its own.
    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Returns when the connection was served last: the time of the turn in which its packets arrived, for a handler that runs
    /// in place. Within [`Router::route`](crate::Router::route), before it returns its future, it is the time at which the packet
    /// arrived, however long that waited. Costs less than a look at the clock.
    pub fn turn(&self) -> std::time::Instant {
        arrived().unwrap_or_else(|| self.shared.turn())
    }

    /// Returns the limits and timers of the connection.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the largest content that both sides carry, as far as the peer has said what it accepts.
    pub fn content_len_max(&self) -> u32 {
        self.shared.content_len_max()
    }

    /// Attaches a value to the connection, for as long as the connection is there. There is one of each type: if one is attached
    /// already, this one comes back. A value that changes has a lock or atomics of its own.
    pub fn set_state<T: Send + Sync + 'static>(&self, value: T) -> Result<&T, T> {
        self.shared.states.add(value).map_err(|(_, value)| value)
    }

    /// Returns the value of this type that was attached. Takes no lock.
    #[inline]
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }

    /// Returns the value of this type that was attached, or attaches the one that `make` makes and returns that. When
    /// several tasks do this at once, each may make a value; one of them is attached and all get that one.
    pub fn state_or_insert_with<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> &T {
        self.state().unwrap_or_else(|| self.shared.states.add(make()).unwrap_or_else(|(there, _)| there))
    }

    /// Returns the user, group and process of the peer. `None` unless the connection runs over a Unix socket that this
    /// side accepted or connected.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.state().copied()
    }

    /// Starts closing: nothing more is read or taken for sending, and the connection ends when everything sent before
    /// has arrived. Await [`closed`](Self::closed) to know when.
    pub fn close(&self) {
        self.shared.finish(CloseReason::Local);
    }

    /// Waits until the connection has ended, and returns why.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing.
    pub async fn closed(&self) -> CloseReason {
        self.shared.wait_for(&self.shared.changed, |core| core.ended.clone()).await
    }

    /// Returns why the connection takes no more packets for sending, or `None` as long as it does. What was sent before may
    /// still be under way; await [`closed`](Self::closed) to know when it is not. Something that goes wrong until then
    /// becomes the reason.
    pub fn close_reason(&self) -> Option<CloseReason> {
        let core = self.shared.core();
        core.ended.as_ref().or_else(|| core.proto.finishing()).cloned()
    }

    /// Ends frisbee on this side and gives the bytes back: the stream below, and every byte that was read from it and
    /// not consumed. Takes effect with the call, so that nothing behind the packet being handled is taken for one.
    /// Everything sent before is written first; nothing of frisbee follows it. The peer is not told: agree on the
    /// change with packets, and let the side that changes second speak first.
    ///
    /// Handlers under way go on; their replies are dropped. The runtime that awaits the future serves the stream from
    /// then on, unless TLS ties it to the one that served the connection.
    ///
    /// # Cancel safety
    ///
    /// The connection is dropped with the future: it was no longer one of frisbee when this returned.
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

    /// Returns what went through the connection, and what it holds now.
    pub fn metrics(&self) -> ConnectionMetrics {
        let core = self.shared.core();
        ConnectionMetrics {
            counters: core.proto.counters(),
            outbox_len: core.proto.queued_len(),
            streams: core.proto.streams_len(),
            handlers: core.handlers,
        }
    }

    /// Returns a handle to the same connection that does not keep it open, like those that routers see.
    pub fn without_keeping_open(&self) -> Self {
        Self::new(self.shared.clone())
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, _keep_open: None }
    }

    /// Makes the handle that keeps the connection open, for the side that connected.
    pub(crate) fn owning(shared: Arc<Shared>) -> Self {
        let guard = Arc::new(CloseOnDrop(shared.clone()));
        Self { shared, _keep_open: Some(guard) }
    }

    /// Replies to a packet whose handler is about to end with [`Outcome::Nothing`](crate::Outcome::Nothing), as
    /// [`Outcome::Reply`](crate::Outcome::Reply) does, of a content that is copied: it may be in memory that is used again.
    #[doc(hidden)]
    pub fn reply_copied(&self, packet: PacketName, content: &[u8]) {
        self.shared.reply_copied(packet, content);
    }

    /// Returns the connection as a value of no type, without an allocation, for a carrier that must not know of
    /// connections.
    #[doc(hidden)]
    #[inline]
    pub fn into_any(self) -> Arc<dyn Any + Send + Sync> {
        self.shared
    }

    /// Returns the connection that [`into_any`](Self::into_any) made a value of. Does not keep it open.
    #[doc(hidden)]
    pub fn from_any(connection: &Arc<dyn Any + Send + Sync>) -> Option<Self> {
        connection.clone().downcast().ok().map(Self::new)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
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

/// A snapshot of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionMetrics {
    /// Packets and bytes that went through so far.
    pub counters: proto::Counters,
    /// Bytes that wait to be written.
    pub outbox_len: usize,
    /// Streams that exist.
    pub streams: usize,
    /// Handlers under way that were not ready at once.
    pub handlers: usize,
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.leave();
    }
}
