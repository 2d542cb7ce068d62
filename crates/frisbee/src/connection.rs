//! The handle that everybody holds: sending, streams, state, closing and takeover.

use std::{
    any::{Any, TypeId},
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    hash::{Hash, Hasher},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    task::coop,
    time::timeout,
};

use crate::{
    Address, CloseReason, Config, Packet, Raw, SendError, Stream,
    proto::{self, OpenError, StreamEnd, StreamKey, Transmit},
    secure::Identity,
};

/// A handle to one connection. Cheap to clone, and usable from any thread and task.
///
/// The handle that a client gets from connecting keeps the connection open: when it and its clones are gone, what was
/// sent is written and the connection closes. The handles that routers see do not keep it open.
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
        let mut packet = Some(packet);
        self.when_not_full(|core| core.send(packet.take().expect("a packet is pushed once"))).await
    }

    /// As [`send`](Self::send), with a content that goes on in `rest`: large pieces need not be put together first.
    pub async fn send_pieces(&self, packet: Packet, rest: Vec<Bytes>) -> Result<Sent, SendError> {
        let mut pieces = Some((packet, rest));
        self.when_not_full(|core| {
            let (packet, rest) = pieces.take().expect("a packet is pushed once");
            core.proto.send_pieces(packet, rest)?;
            Ok(Sent(core.proto.progress().0))
        })
        .await
    }

    /// Sends what [`send_pieces`](Self::send_pieces) does unless the outbox is full. Then `packet` keeps what it holds, and
    /// loses it otherwise.
    #[doc(hidden)]
    pub fn try_send_pieces(&self, packet: &mut Option<(Packet, Vec<Bytes>)>) -> Result<Sent, SendError> {
        self.shared.try_push(|core| {
            let (packet, rest) = packet.take().expect("there is a packet to send");
            core.proto.send_pieces(packet, rest)?;
            Ok(Sent(core.proto.progress().0))
        })
    }

    /// Sends a packet unless the outbox is full.
    pub fn try_send(&self, packet: Packet) -> Result<Sent, SendError> {
        self.shared.try_push(|core| core.send(packet))
    }

    /// Whether the peer may have got a packet, or a part of it: whether it was given to the socket. Stays true to what
    /// happened when the connection has ended.
    pub fn may_have_left(&self, sent: Sent) -> bool {
        self.shared.core().proto.attempted() >= sent.0
    }

    /// Waits until the socket has taken everything sent before.
    pub async fn flush(&self) -> Result<(), SendError> {
        let (target, _) = self.shared.core().proto.progress();
        self.shared
            .wait_for(&self.shared.progress, |core| match core.proto.progress() {
                (_, written) if written >= target => Some(Ok(())),
                _ if core.proto.closed().is_some() => Some(Err(SendError::Closed)),
                _ => {
                    core.progress_is_awaited = true;
                    None
                }
            })
            .await
    }

    /// Opens a stream with an id that is free. The peer learns of it by the first data sent.
    pub fn open_stream(&self) -> Result<Stream, OpenError> {
        let key = self.shared.core().proto.open_stream()?;
        Ok(Stream::new(self.clone(), key))
    }

    /// Opens the stream with this id, for protocols that agree on ids in advance.
    pub fn open_stream_with_id(&self, id: u16) -> Result<Stream, OpenError> {
        let key = self.shared.core().proto.open_stream_with_id(id)?;
        Ok(Stream::new(self.clone(), key))
    }

    /// The next stream that the peer opened, or `None` once the connection is closed. Needs
    /// [`Config::accept_backlog`] and a router that does not serve streams itself.
    pub async fn accept_stream(&self) -> Option<Stream> {
        let key = self
            .shared
            .wait_for(&self.shared.changed, |core| match core.unaccepted.pop_front() {
                Some(key) => Some(Some(key)),
                None if core.proto.is_open() => None,
                None => Some(None),
            })
            .await?;
        Some(Stream::new(self.clone(), key))
    }

    /// This side's address.
    pub fn local_addr(&self) -> &Address {
        &self.shared.local
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> &Address {
        &self.shared.peer
    }

    /// The runtime that serves the connection. Tasks that are spawned there use it without going from thread to thread,
    /// if the runtime is one of an [`Engine`](crate::Engine) with threads of its own.
    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// The limits and timers of the connection.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Attaches a value to the connection, in place of an earlier one of the same type.
    pub fn set_state<T: Send + Sync + 'static>(&self, value: T) {
        let mut core = self.shared.core();
        let states = std::mem::take(&mut core.states);
        let (replaced, mut states): (Vec<_>, Vec<_>) =
            states.into_iter().partition(|state| (**state).type_id() == TypeId::of::<T>());
        states.push(Arc::new(value));
        core.states = states;
        drop(core);
        // What the user's value does when it goes may need the connection.
        drop(replaced);
    }

    /// The value of this type that was attached.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.shared.core().state()
    }

    /// The value of this type that was attached, or else the one that `make` makes, attached from now on. When several
    /// tasks do this at once, each may make a value; one of them is attached and all get that one.
    pub fn state_or_insert_with<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(attached) = self.state() {
            return attached;
        }
        // Made before the core is locked, and dropped after that if it is late: both are the user's code, which may use
        // the connection.
        let made = Arc::new(make());
        let mut core = self.shared.core();
        if let Some(attached) = core.state() {
            drop(core);
            return attached;
        }
        core.states.push(made.clone());
        made
    }

    /// Starts closing: nothing more is read or taken for sending, and the connection ends when everything sent before
    /// has arrived. Await [`closed`](Self::closed) to know when.
    pub fn close(&self) {
        self.shared.finish(CloseReason::Local);
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> CloseReason {
        self.shared.wait_for(&self.shared.changed, |core| core.ended.clone()).await
    }

    /// Why the connection ended, if it has.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.shared.core().ended.clone()
    }

    /// Why the connection ended or is about to, if it is no longer [open](Self::is_open).
    pub fn closing_reason(&self) -> Option<CloseReason> {
        self.shared.core().proto.finishing().cloned()
    }

    /// Whether packets are still taken for sending.
    pub fn is_open(&self) -> bool {
        self.shared.core().proto.is_open()
    }

    /// Ends frisbee on this side and gives the bytes back: the stream below, and every byte that was read from it and
    /// not consumed. Takes effect with the call, so that nothing behind the packet being handled is taken for one.
    /// Everything sent before is written first; nothing of frisbee follows it. The peer is not told: agree on the
    /// change with packets, and let the side that changes second speak first.
    ///
    /// Handlers under way go on; their replies are dropped. If the future is dropped, so is the connection. The runtime
    /// that awaits it serves the stream from then on, unless TLS ties it to the one that served the connection.
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

    /// What went through the connection, and what it holds now.
    pub fn metrics(&self) -> ConnectionMetrics {
        let core = self.shared.core();
        ConnectionMetrics {
            counters: core.proto.counters(),
            outbox_len: core.proto.queued_len(),
            streams: core.proto.streams_len(),
            handlers: core.handlers,
        }
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, _keep_open: None }
    }

    /// The handle for the one who connected: the connection lasts as long as it.
    pub(crate) fn owning(shared: Arc<Shared>) -> Self {
        let guard = Arc::new(CloseOnDrop(shared.clone()));
        Self { shared, _keep_open: Some(guard) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Queues a stream for [`accept_stream`](Self::accept_stream), or closes it.
    pub(crate) fn offer_stream(&self, stream: Stream) {
        if self.shared.core().unaccepted.len() < self.shared.config.accept_backlog {
            self.shared.core().unaccepted.push_back(stream.into_key());
            self.shared.changed.notify_waiters();
        }
    }

    pub(crate) async fn when_not_full<T>(
        &self,
        mut push: impl FnMut(&mut Core) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        // A task that only sends would otherwise keep its thread to itself for as long as the outbox has room.
        coop::consume_budget().await;
        match self.shared.try_push(&mut push) {
            Err(SendError::Full) => {}
            done => return done,
        }
        // Boxed, so that only who has to wait holds the memory for it.
        Box::pin(async {
            loop {
                let mut space = pin!(self.shared.progress.notified());
                space.as_mut().enable();
                match self.shared.try_push(&mut push) {
                    Err(SendError::Full) => space.await,
                    done => return done,
                }
            }
        })
        .await
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

/// Which of the packets sent on a connection this is; see [`Connection::may_have_left`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent(u64);

/// A snapshot of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionMetrics {
    /// What went through so far.
    pub counters: proto::Counters,
    /// Bytes that wait to be written.
    pub outbox_len: usize,
    /// Streams that exist.
    pub streams: usize,
    /// Handlers under way that were not ready at once.
    pub handlers: usize,
}

/// What the handles and the driver of one connection have in common.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Something was written.
    progress: Notify,
    /// The connection ended, a stream can be accepted, or the peer's first bytes came.
    changed: Notify,
    config: Arc<Config>,
    runtime: Handle,
    local: Address,
    peer: Address,
}

pub(crate) struct Core {
    pub(crate) proto: proto::Connection,
    /// The driver's waker, while it sleeps.
    pub(crate) driver: Option<Waker>,
    /// Who waits for a stream to have something to read.
    pub(crate) readers: HashMap<StreamKey, Waker>,
    /// Who waits for a stream to end.
    watchers: HashMap<StreamKey, Vec<Waker>>,
    pub(crate) taker: Option<oneshot::Sender<Raw>>,
    pub(crate) handlers: usize,
    /// Whether somebody waits for something to be written.
    progress_is_awaited: bool,
    /// Whether the driver has stopped reading.
    pub(crate) is_paused: bool,
    /// Whether a task began to wait for the peer in a way that the driver cannot see since it looked last: reading may have
    /// to go on.
    pub(crate) has_begun_to_wait: bool,
    unaccepted: VecDeque<StreamKey>,
    states: Vec<Arc<dyn Any + Send + Sync>>,
    ended: Option<CloseReason>,
}

impl Core {
    fn send(&mut self, packet: Packet) -> Result<Sent, SendError> {
        self.proto.send(packet)?;
        Ok(Sent(self.proto.progress().0))
    }

    fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.states.iter().find_map(|state| state.clone().downcast().ok())
    }

    /// The streams of this side on which somebody waits for the peer.
    pub(crate) fn awaited_streams(&self) -> impl Iterator<Item = StreamKey> {
        self.readers.keys().copied().filter(|key| self.proto.is_own_stream(*key))
    }

    /// Notes that a task waits for the peer. The driver's waker if it has to hear of it.
    fn begin_to_wait(&mut self) -> Option<Waker> {
        self.has_begun_to_wait = true;
        if self.is_paused { self.driver.take() } else { None }
    }

    pub(crate) fn send_on(&mut self, key: StreamKey, content: Bytes) -> Result<Sent, SendError> {
        self.proto.send_on(key, content)?;
        Ok(Sent(self.proto.progress().0))
    }

    /// Whether anybody may wait for what happened to a stream.
    pub(crate) fn has_waiting(&self, key: StreamKey) -> bool {
        !self.readers.is_empty() || self.proto.stream_ended(key).is_some()
    }

    /// Those who wait for what happened to a stream, to be woken when the core is unlocked: a waker may use the
    /// connection at once.
    pub(crate) fn take_waiting(&mut self, key: StreamKey) -> impl Iterator<Item = Waker> + use<> {
        let reader = self.readers.remove(&key);
        let watchers = self.proto.stream_ended(key).and_then(|_| self.watchers.remove(&key));
        reader.into_iter().chain(watchers.into_iter().flatten())
    }

    /// Closes a stream that nobody holds any more. Gives back the wakers it had, to be dropped when the core is unlocked:
    /// one may be the last to keep a task that holds another stream.
    pub(crate) fn forget_stream(&mut self, key: StreamKey) -> impl Sized + use<> {
        let wakers = (self.readers.remove(&key), self.watchers.remove(&key));
        self.proto.release_stream(key);
        wakers
    }
}

impl Shared {
    /// For a connection that the current runtime serves.
    pub(crate) fn new(
        proto: proto::Connection,
        config: Arc<Config>,
        local: Address,
        peer: Address,
        identity: Identity,
    ) -> Self {
        let core = Core {
            proto,
            driver: None,
            readers: HashMap::new(),
            watchers: HashMap::new(),
            taker: None,
            handlers: 0,
            progress_is_awaited: false,
            is_paused: false,
            has_begun_to_wait: false,
            unaccepted: VecDeque::new(),
            states: identity.into_iter().collect(),
            ended: None,
        };
        Self {
            core: Mutex::new(core),
            progress: Notify::new(),
            changed: Notify::new(),
            config,
            runtime: Handle::current(),
            local,
            peer,
        }
    }

    pub(crate) fn addresses(&self) -> (&Address, &Address) {
        (&self.local, &self.peer)
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // Nothing that runs under the lock leaves the core half changed.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the core and has the driver look at it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core();
        let result = change(&mut core);
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    pub(crate) fn drain(&self) {
        self.change(|core| core.proto.drain());
    }

    pub(crate) fn finish(&self, reason: CloseReason) {
        self.change(|core| core.proto.finish(reason));
    }

    pub(crate) fn fail(&self, reason: CloseReason) {
        self.change(|core| core.proto.fail(reason));
    }

    /// Reports what was written of a batch, and takes the next when it is through.
    pub(crate) fn handle_written(&self, now: Instant, len: usize, batch: &mut Transmit) {
        let mut core = self.core();
        core.proto.handle_written(now, len, batch);
        if batch.has_remaining() {
            return;
        }
        core.proto.poll_transmit(now, batch);
        let is_awaited = std::mem::take(&mut core.progress_is_awaited);
        drop(core);
        if is_awaited {
            self.progress.notify_waiters();
        }
    }

    /// Wakes those who wait for the peer's first bytes, among others.
    pub(crate) fn tell_changed(&self) {
        self.changed.notify_waiters();
    }

    /// Sends a PING and waits until the peer has shown that it speaks frisbee, or that it does not. A peer that says
    /// nothing within the limit is believed: it may just be slow.
    pub(crate) async fn recognize_peer(&self, limit: Duration) -> Result<(), CloseReason> {
        self.change(|core| core.proto.ping());
        let look = |core: &mut Core| match core.proto.finishing() {
            Some(reason) => Some(Err(reason.clone())),
            None => core.proto.has_received().then_some(Ok(())),
        };
        timeout(limit, self.wait_for(&self.changed, look)).await.unwrap_or(Ok(()))
    }

    /// The protocol is over: whoever waits for packets, space or streams learns of it.
    pub(crate) fn release_waiters(&self) {
        let mut core = self.core();
        let (readers, watchers) = (std::mem::take(&mut core.readers), std::mem::take(&mut core.watchers));
        drop(core);
        readers.into_values().chain(watchers.into_values().flatten()).for_each(Waker::wake);
        self.progress.notify_waiters();
        self.changed.notify_waiters();
    }

    /// The connection is gone, and this is why.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut core = self.core();
        core.ended = Some(reason);
        let taker = core.taker.take();
        core.unaccepted.clear();
        drop(core);
        // Wakes whoever waits for the takeover.
        drop(taker);
        self.release_waiters();
    }

    pub(crate) fn try_push<T>(&self, push: impl FnOnce(&mut Core) -> Result<T, SendError>) -> Result<T, SendError> {
        let mut core = self.core();
        if core.proto.is_open() && core.proto.is_full() {
            core.progress_is_awaited = true;
            // It may be a call, whose answer this side waits for from now on.
            let driver = core.begin_to_wait();
            drop(core);
            driver.into_iter().for_each(Waker::wake);
            return Err(SendError::Full);
        }
        let pushed = push(&mut core)?;
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(pushed)
    }

    /// Looks at the core whenever `notify` says that it changed, until `look` has an answer.
    async fn wait_for<T>(&self, notify: &Notify, mut look: impl FnMut(&mut Core) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(notify.notified());
            changed.as_mut().enable();
            if let Some(answer) = look(&mut self.core()) {
                return answer;
            }
            changed.await;
        }
    }

    /// What `read` finds in a stream, or a wake-up when it may find something.
    pub(crate) fn poll_read_from(
        &self,
        cx: &mut Context<'_>,
        key: StreamKey,
        read: impl FnOnce(&mut proto::Connection, StreamKey) -> Result<Option<Bytes>, StreamEnd>,
    ) -> Poll<Result<Bytes, StreamEnd>> {
        // A task that only reads would otherwise keep its thread to itself for as long as there is something to read.
        let budget = ready!(coop::poll_proceed(cx));
        let mut core = self.core();
        let was_stalled = core.proto.is_stalled();
        let found = read(&mut core.proto, key).transpose();
        // Somebody who asks for more holds less.
        let mut driver = if was_stalled && !core.proto.is_stalled() { core.driver.take() } else { None };
        let mut former = None;
        if found.is_none() {
            former = core.readers.insert(key, cx.waker().clone());
            driver = driver.or_else(|| core.begin_to_wait());
        }
        drop(core);
        // Not before: it may be the last to keep a task that holds another stream.
        drop(former);
        driver.into_iter().for_each(Waker::wake);
        match found {
            Some(found) => {
                budget.made_progress();
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }

    /// Why a stream ended, or a wake-up when it does.
    pub(crate) fn poll_stream_ended(&self, cx: &Context<'_>, key: StreamKey) -> Poll<StreamEnd> {
        let mut core = self.core();
        if let Some(end) = core.proto.stream_ended(key) {
            return Poll::Ready(end);
        }
        let watchers = core.watchers.entry(key).or_default();
        if !watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
            watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.finish(CloseReason::Local);
    }
}
