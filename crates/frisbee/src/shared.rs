//! State shared by the handles and the driver of one connection.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
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
use tracing::warn;

use crate::{
    Address, CloseReason, Config, Content, Frames, Packet, PacketName, Raw, SendError, StreamSendError, TrySendError,
    WhenFull,
    net::Identity,
    proto::{self, GoAway, Peer, StreamEnd, StreamKey, Transmit},
    seldom::Seldom,
    states::States,
};

/// Position of a packet in the order of sending. See [`Connection::may_have_left`](crate::Connection::may_have_left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent(pub(crate) u64);

/// State shared by the handles and the driver of one connection.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// `true` if the core is closing. Readable without its lock.
    is_closing: AtomicBool,
    /// `true` if the queue of replies may be full. Readable without the lock of the core.
    may_owe_replies: AtomicBool,
    /// Largest content length that both sides accept. Readable without the lock of the core.
    content_len_max: AtomicU32,
    /// Notified after a write.
    pub(crate) progress: Notify,
    /// Notified when the connection ends, a stream can be accepted, the first bytes of the peer arrive, or the peer
    /// asks this side to leave.
    pub(crate) changed: Notify,
    pub(crate) config: Arc<Config>,
    /// Values attached by the user.
    pub(crate) states: States,
    began: Instant,
    /// Start time of the driver's turn, in nanoseconds since the start of the connection.
    turn: AtomicU64,
    pub(crate) runtime: Handle,
    pub(crate) local: Address,
    pub(crate) peer: Address,
}

/// The part of the shared state under one lock.
///
/// The lock is never held across an await, nor while wakers or other user code run.
pub(crate) struct Core {
    pub(crate) proto: proto::Connection,
    /// Waker of the driver while it sleeps.
    pub(crate) driver: Option<Waker>,
    /// Tasks waiting to read from a stream.
    pub(crate) readers: Seldom<StreamKey, Waker>,
    /// Tasks waiting for credit of the peer to send on a stream.
    pub(crate) senders: Seldom<StreamKey, Vec<Waker>>,
    /// Tasks waiting for the end of a stream.
    pub(crate) watchers: Seldom<StreamKey, Vec<Waker>>,
    /// Channel to the task waiting for the raw stream of a takeover.
    pub(crate) taker: Option<oneshot::Sender<Raw>>,
    /// Number of running handlers, as of the driver's last count.
    pub(crate) handlers: usize,
    /// `true` if a task waits for a write, or the router waits for the outbox to accept packets again.
    pub(crate) progress_is_awaited: bool,
    /// Smallest content length refused by the outbox since the router was last told of free space.
    refused_len: Option<usize>,
    pub(crate) when_full: WhenFull,
    /// `true` if the driver has paused reading.
    pub(crate) is_paused: bool,
    /// `true` if a task has started to wait for the peer since the driver last looked, in a way invisible to the
    /// driver. Reading may have to resume.
    pub(crate) has_begun_to_wait: bool,
    /// Streams of the peer waiting for an accept.
    pub(crate) unaccepted: VecDeque<StreamKey>,
    /// Set once the socket is closed or handed over. The state of `proto` ends earlier.
    pub(crate) ended: Option<CloseReason>,
}

impl Core {
    pub(crate) fn send(&mut self, packet: Packet) -> Result<Sent, SendError> {
        self.proto.send(packet)?;
        Ok(Sent(self.proto.progress().0))
    }

    pub(crate) fn send_copied(&mut self, name: PacketName, content: &[u8]) -> Result<Sent, SendError> {
        self.proto.send_copied(name, content)?;
        Ok(Sent(self.proto.progress().0))
    }

    pub(crate) fn send_frames(&mut self, frames: &Frames) -> Result<Sent, SendError> {
        self.proto.send_frames(frames)?;
        Ok(Sent(self.proto.progress().0))
    }

    /// Returns the number of own streams with a task waiting for the peer.
    pub(crate) fn awaited_streams(&self) -> usize {
        let waits_to_send = self.senders.keys().filter(|key| !self.readers.contains_key(key));
        self.readers.keys().chain(waits_to_send).filter(|key| self.proto.is_own_stream(**key)).count()
    }

    /// Returns `true` if a task waits for the peer: to read from an own stream, or to send on any stream.
    pub(crate) fn awaits_peer(&self) -> bool {
        !self.senders.is_empty() || self.readers.keys().any(|key| self.proto.is_own_stream(*key))
    }

    /// Records that a task waits for the peer. Returns the driver's waker if the driver must be told.
    fn begin_to_wait(&mut self) -> Option<Waker> {
        self.has_begun_to_wait = true;
        if self.is_paused { self.driver.take() } else { None }
    }

    pub(crate) fn send_on(&mut self, key: StreamKey, content: Content) -> Result<Sent, StreamSendError> {
        self.proto.send_on(key, content)?;
        Ok(Sent(self.proto.progress().0))
    }

    /// Returns `true` if a task may be waiting for an event of this stream.
    pub(crate) fn has_waiting(&self, key: StreamKey) -> bool {
        !self.readers.is_empty() || self.proto.stream_ended(key).is_some()
    }

    /// Takes the wakers of tasks waiting for this stream. Wake them after unlocking the core, because a waker may use
    /// the connection immediately.
    pub(crate) fn take_waiting(&mut self, key: StreamKey) -> impl Iterator<Item = Waker> + use<> {
        let reader = self.readers.remove(&key);
        let ended = self.proto.stream_ended(key);
        let watchers = ended.and_then(|_| self.watchers.remove(&key));
        let senders = ended.and_then(|_| self.senders.remove(&key));
        reader.into_iter().chain(watchers.into_iter().chain(senders).flatten())
    }

    /// Takes the wakers of tasks waiting for credit on a stream. Wake them after unlocking the core.
    pub(crate) fn take_senders(&mut self, key: StreamKey) -> impl Iterator<Item = Waker> + use<> {
        self.senders.remove(&key).into_iter().flatten()
    }

    /// Records the end of the peer's input. Returns the wakers of tasks waiting for credit.
    pub(crate) fn end_input(&mut self, now: Instant) -> impl Iterator<Item = Waker> + use<> {
        self.proto.handle_end(now);
        std::mem::take(&mut self.senders).into_values().flatten()
    }

    /// Closes the connection if a reply was too large to send.
    pub(crate) fn check_reply(&mut self, replied: Result<(), SendError>) {
        // A late reply on a closed connection is dropped.
        if let Err(SendError::ContentTooLarge { len, limit } | SendError::TooLargeForPeer { len, limit }) = replied {
            warn!(len, limit, "a reply is larger than the connection carries, closing the connection");
            self.proto.finish(CloseReason::ReplyTooLarge { len, limit });
        }
    }

    /// Closes a stream without remaining handles. Returns its wakers.
    ///
    /// Drop them after unlocking the core: a waker may be the last reference to a task with another stream.
    pub(crate) fn forget_stream(&mut self, key: StreamKey) -> impl Sized + use<> {
        let wakers = (self.readers.remove(&key), self.senders.remove(&key), self.watchers.remove(&key));
        self.proto.release_stream(key);
        wakers
    }
}

impl Shared {
    /// Creates the shared state of a connection served by the current runtime.
    pub(crate) fn new(
        proto: proto::Connection,
        config: Arc<Config>,
        local: Address,
        peer: Address,
        identity: Identity,
        now: Instant,
    ) -> Self {
        let core = Core {
            proto,
            driver: None,
            readers: Seldom::default(),
            senders: Seldom::default(),
            watchers: Seldom::default(),
            taker: None,
            handlers: 0,
            progress_is_awaited: false,
            refused_len: None,
            when_full: WhenFull::default(),
            is_paused: false,
            has_begun_to_wait: false,
            unaccepted: VecDeque::new(),
            ended: None,
        };
        Self {
            core: Mutex::new(core),
            is_closing: AtomicBool::new(false),
            may_owe_replies: AtomicBool::new(false),
            content_len_max: AtomicU32::new(config.content_len_max),
            progress: Notify::new(),
            changed: Notify::new(),
            config,
            states: States::new(identity.map(|proof| Box::new(proof) as _)),
            began: now,
            turn: AtomicU64::new(0),
            runtime: Handle::current(),
            local,
            peer,
        }
    }

    /// Records the start time of a driver's turn.
    pub(crate) fn begin_turn(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_nanos();
        self.turn.store(since.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn turn(&self) -> Instant {
        self.began + Duration::from_nanos(self.turn.load(Ordering::Relaxed))
    }

    pub(crate) fn addresses(&self) -> (&Address, &Address) {
        (&self.local, &self.peer)
    }

    #[inline]
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // Ignoring poison is sound: no code under the lock leaves the core in an inconsistent state.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the core and wakes the driver to look at it.
    #[inline]
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core();
        let result = change(&mut core);
        // Take the waker, so that a driver already woken is not woken again until it sleeps. Wake it after unlocking,
        // because it needs the lock immediately.
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    /// Queues the reply of a handler about to end without one, and wakes the driver.
    #[inline]
    pub(crate) fn reply_copied(&self, packet: PacketName, content: &[u8]) {
        self.change(|core| {
            let replied = core.proto.reply_copied(packet, content);
            if replied.is_err() {
                core.check_reply(replied);
                self.note_closing(core);
            }
            self.note_replies(core);
        });
    }

    pub(crate) fn drain(&self, reason: CloseReason) {
        self.change(|core| core.proto.drain(reason));
    }

    pub(crate) fn retire(&self, goaway: GoAway) {
        self.change(|core| core.proto.retire(goaway));
    }

    /// Closes a connection without remaining users on this side.
    ///
    /// If the peer asked this side to leave, packets of the peer are answered first.
    pub(crate) fn leave(&self) {
        self.change(|core| {
            if core.proto.is_asked_to_leave() {
                core.proto.drain(CloseReason::Local);
            } else {
                core.proto.finish(CloseReason::Local);
            }
            self.note_closing(core);
        });
    }

    pub(crate) fn finish(&self, reason: CloseReason) {
        self.change(|core| {
            core.proto.finish(reason);
            self.note_closing(core);
        });
    }

    pub(crate) fn fail(&self, reason: CloseReason) {
        self.change(|core| {
            core.proto.fail(reason);
            self.note_closing(core);
        });
    }

    /// Updates [`is_closing`](Self::is_closing). Call this under the lock after any change that may have closed the
    /// connection.
    pub(crate) fn note_closing(&self, core: &Core) {
        // Relaxed is enough: this is a hint for a task about to lock the core anyway.
        self.is_closing.store(core.proto.is_finishing(), Ordering::Relaxed);
    }

    /// Returns `true` if the queue of replies is full, and records it. Call this under the lock after adding replies.
    pub(crate) fn note_replies(&self, core: &Core) -> bool {
        let owes_replies = core.proto.owes_replies();
        self.may_owe_replies.store(owes_replies, Ordering::Relaxed);
        owes_replies
    }

    /// Returns `true` if the queue of replies is full, at least for replies added by this thread.
    #[inline]
    pub(crate) fn owes_replies(&self) -> bool {
        // Some of the recorded replies may have been written since, so check again under the lock.
        self.may_owe_replies.load(Ordering::Relaxed) && self.core().proto.owes_replies()
    }

    /// Copies frequently used announcements of an extended peer out of the core. Call this under the lock.
    pub(crate) fn note_recognized(&self, core: &Core) {
        self.content_len_max.store(core.proto.content_len_max(), Ordering::Relaxed);
    }

    pub(crate) fn content_len_max(&self) -> u32 {
        self.content_len_max.load(Ordering::Relaxed)
    }

    /// Returns `true` if the connection is closing, without taking the lock. Closes by other threads may not be visible
    /// yet.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Records `written` bytes of `batch`, and fills it with the next batch once it is written completely.
    ///
    /// All batches are produced here.
    pub(crate) fn next_batch(&self, now: Instant, written: usize, batch: &mut Transmit) -> Next {
        if written == 0 && batch.has_remaining() {
            return Next::Batch;
        }
        let mut core = self.core();
        if written > 0 {
            core.proto.handle_written(now, written, batch);
            if batch.has_remaining() {
                return Next::Batch;
            }
        }
        core.proto.poll_transmit(now, batch);
        // Waiting tasks set the flag under this lock, so none is missed. Without the flag, every write would pay for a
        // notification that usually wakes no task.
        let is_awaited = written > 0 && std::mem::take(&mut core.progress_is_awaited);
        if is_awaited && self.tell_progress(core) {
            return Next::Writable;
        }
        if batch.has_remaining() { Next::Batch } else { Next::Nothing }
    }

    /// Wakes the tasks waiting for a write. Returns `true` if the router must be told that the outbox accepts packets
    /// again.
    #[cold]
    fn tell_progress(&self, mut core: MutexGuard<'_, Core>) -> bool {
        let is_writable = core.refused_len.is_some_and(|len| !core.proto.is_full_for(len));
        if is_writable {
            core.refused_len = None;
        }
        // The router still waits for space.
        core.progress_is_awaited |= core.refused_len.is_some();
        drop(core);
        self.progress.notify_waiters();
        is_writable
    }

    /// Wakes the tasks waiting for a change of the connection, such as the first bytes of the peer.
    pub(crate) fn tell_changed(&self) {
        self.changed.notify_waiters();
    }

    /// Sends a PING and waits until the protocol of the peer is known.
    ///
    /// Accepts a peer that stays silent for `limit`, because it may just be slow.
    pub(crate) async fn recognize_peer(&self, limit: Duration) -> Result<(), CloseReason> {
        self.change(|core| core.proto.ping());
        let is_recognized = |core: &Core| match core.proto.config().extended {
            true => *core.proto.peer() != Peer::Unknown,
            false => core.proto.has_received(),
        };
        let look = |core: &mut Core| match core.proto.finishing() {
            Some(reason) => Some(Err(reason.clone())),
            None => is_recognized(core).then_some(Ok(())),
        };
        timeout(limit, self.wait_for(&self.changed, look)).await.unwrap_or(Ok(()))
    }

    /// Waits until the connection accepts no more packets, or the peer asks this side to leave.
    pub(crate) async fn until_left(&self) {
        let is_left = |core: &mut Core| core.proto.is_finishing() || core.proto.is_asked_to_leave();
        self.wait_for(&self.changed, |core| is_left(core).then_some(())).await;
    }

    /// Waits until the connection accepts no more packets.
    pub(crate) async fn until_finishing(&self) {
        self.wait_for(&self.changed, |core| core.proto.is_finishing().then_some(())).await;
    }

    /// Wakes all tasks waiting for packets, space or streams, because the protocol has ended.
    pub(crate) fn release_waiters(&self) {
        let mut core = self.core();
        let readers = std::mem::take(&mut core.readers);
        let (senders, watchers) = (std::mem::take(&mut core.senders), std::mem::take(&mut core.watchers));
        drop(core);
        let others = senders.into_values().chain(watchers.into_values()).flatten();
        readers.into_values().chain(others).for_each(Waker::wake);
        self.progress.notify_waiters();
        self.changed.notify_waiters();
    }

    /// Records the end of the connection and its reason.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut core = self.core();
        // Before waking any task: a task waiting for the end reads the reason.
        core.ended = Some(reason);
        let taker = core.taker.take();
        core.unaccepted.clear();
        drop(core);
        // Dropping the sender wakes the task waiting for the takeover.
        drop(taker);
        self.release_waiters();
    }

    /// Sends `what`, with a content of `len` bytes, by calling `push`, and wakes the driver. Fails if the outbox is
    /// full.
    pub(crate) fn try_push<P, T>(
        &self,
        len: usize,
        what: P,
        push: impl FnOnce(&mut Core, P) -> Result<T, SendError>,
    ) -> Result<T, TrySendError<P>> {
        let core = self.core();
        if core.proto.is_open() && core.proto.is_full_for(len) {
            return Err(self.refuse(core, len, 1).map_or(TrySendError::Full(what), TrySendError::Failed));
        }
        self.push_locked(core, what, push).map_err(TrySendError::Failed)
    }

    /// Sends frames without waiting. Fails if the outbox is full.
    pub(crate) fn try_push_frames(&self, frames: &Frames) -> Result<Sent, TrySendError<()>> {
        let core = self.core();
        if core.proto.is_open() && core.proto.is_full_for_frames(frames) {
            let refused = self.refuse(core, frames.content_len_max(), frames.count());
            return Err(refused.map_or(TrySendError::Full(()), TrySendError::Failed));
        }
        self.push_locked(core, frames, Core::send_frames).map_err(TrySendError::Failed)
    }

    /// Sends frames. Waits while the outbox is full.
    pub(crate) async fn push_frames(&self, frames: &Frames) -> Result<Sent, SendError> {
        self.until_sent((), |()| self.try_push_frames(frames).map_err(Unsent::from)).await
    }

    /// Sends packets up to the first without room in the outbox, or the first that cannot be sent. Returns their
    /// number, or the error of the first packet.
    pub(crate) fn try_push_all(&self, packets: &[Packet]) -> Result<usize, SendError> {
        let mut core = self.core();
        let mut sent = 0;
        let mut refused = None;
        for packet in packets {
            let len = packet.content.len();
            if core.proto.is_open() && core.proto.is_full_for(len) {
                refused = Some(len);
                break;
            }
            match core.send(packet.clone()) {
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
                Ok(_) => sent += 1,
            }
        }
        let driver = if sent > 0 { core.driver.take() } else { None };
        let error = match refused {
            Some(len) => self.refuse(core, len, packets.len() - sent),
            None => {
                drop(core);
                None
            }
        };
        driver.into_iter().for_each(Waker::wake);
        match error {
            // Dropped packets are counted as not sent.
            None | Some(SendError::OutboxFull) => Ok(sent),
            Some(error) => Err(error),
        }
    }

    /// Sends `what` on a stream like [`try_push`](Self::try_push). Also fails if the peer has to give credit first.
    pub(crate) fn try_push_on<P, T>(
        &self,
        key: StreamKey,
        len: usize,
        what: P,
        push: impl FnOnce(&mut Core, P) -> Result<T, StreamSendError>,
    ) -> Result<T, Unsent<P, StreamSendError>> {
        let mut core = self.core();
        if !core.proto.has_credit(key) {
            return Err(Unsent::NoCredit(what, key));
        }
        if core.proto.is_open() && core.proto.is_full_for(len) {
            core.progress_is_awaited = true;
            let driver = core.begin_to_wait();
            drop(core);
            driver.into_iter().for_each(Waker::wake);
            return Err(Unsent::NoSpace(what));
        }
        self.push_locked(core, what, push).map_err(Unsent::Failed)
    }

    /// Applies the outbox policy to packets without room in the outbox. Returns `None` if their sender may wait.
    #[cold]
    fn refuse(&self, mut core: MutexGuard<'_, Core>, len: usize, packets: usize) -> Option<SendError> {
        core.progress_is_awaited = true;
        core.refused_len = Some(core.refused_len.map_or(len, |refused| refused.min(len)));
        let (driver, error) = match core.when_full {
            // The packet may be a call, and this side then starts to wait for the reply.
            WhenFull::Refuse => (core.begin_to_wait(), None),
            WhenFull::Drop => {
                core.proto.handle_unsent(packets as u64);
                (None, Some(SendError::OutboxFull))
            }
            WhenFull::Close => {
                let limit = core.proto.outbox_len_max();
                core.proto.fail(CloseReason::OutboxFull { limit });
                self.note_closing(&core);
                (core.driver.take(), Some(SendError::Closed))
            }
        };
        drop(core);
        driver.into_iter().for_each(Waker::wake);
        error
    }

    fn push_locked<P, T, E>(
        &self,
        mut core: MutexGuard<'_, Core>,
        what: P,
        push: impl FnOnce(&mut Core, P) -> Result<T, E>,
    ) -> Result<T, E> {
        let pushed = push(&mut core, what)?;
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(pushed)
    }

    /// Calls `look` after each notification, until it returns an answer.
    pub(crate) async fn wait_for<T>(&self, notify: &Notify, mut look: impl FnMut(&mut Core) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(notify.notified());
            // Before calling `look`: otherwise a change right after it would be missed, and this task would wait for
            // another.
            changed.as_mut().enable();
            if let Some(answer) = look(&mut self.core()) {
                return answer;
            }
            changed.await;
        }
    }

    /// Returns the result of `read` on a stream, or wakes the task when there may be one.
    pub(crate) fn poll_read_from(
        &self,
        cx: &mut Context<'_>,
        key: StreamKey,
        read: impl FnOnce(&mut proto::Connection, StreamKey) -> Result<Option<Bytes>, StreamEnd>,
    ) -> Poll<Result<Bytes, StreamEnd>> {
        // Without a budget, a task that only reads would keep its thread busy while data arrives.
        let budget = ready!(coop::poll_proceed(cx));
        let mut core = self.core();
        let was_stalled = core.proto.is_stalled();
        let found = read(&mut core.proto, key).transpose();
        // A read for more data shows that the reader has processed the previous data, so credit may be due.
        let has_news = was_stalled && !core.proto.is_stalled() || core.proto.owes_credit();
        let mut driver = if has_news { core.driver.take() } else { None };
        let mut former = None;
        if found.is_none() {
            former = core.readers.insert(key, cx.waker().clone());
            driver = driver.or_else(|| core.begin_to_wait());
        }
        drop(core);
        // After unlocking: the waker may be the last reference to a task with another stream.
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

    /// Returns the cause of a stream's end, or wakes the task when it ends.
    pub(crate) fn poll_stream_ended(&self, cx: &Context<'_>, key: StreamKey) -> Poll<StreamEnd> {
        let mut core = self.core();
        if let Some(end) = core.proto.stream_ended(key) {
            return Poll::Ready(end);
        }
        let watchers = core.watchers.get_or_default(key);
        if !watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
            watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Sends `what`, with a content of `len` bytes, by calling `push`. Waits while the outbox is full.
    pub(crate) async fn when_not_full<P, T>(
        &self,
        len: usize,
        what: P,
        mut push: impl FnMut(&mut Core, P) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        self.until_sent(what, |what| self.try_push(len, what, &mut push).map_err(Unsent::from)).await
    }

    /// Sends `what` on a stream by calling `push`. Waits while the outbox is full or the peer gives no credit.
    pub(crate) async fn when_sendable<P, T>(
        &self,
        key: StreamKey,
        len: usize,
        what: P,
        mut push: impl FnMut(&mut Core, P) -> Result<T, StreamSendError>,
    ) -> Result<T, StreamSendError> {
        self.until_sent(what, |what| self.try_push_on(key, len, what, &mut push)).await
    }

    async fn until_sent<P, T, E>(
        &self,
        what: P,
        mut attempt: impl FnMut(P) -> Result<T, Unsent<P, E>>,
    ) -> Result<T, E> {
        // Without a budget, a task that only sends would keep its thread busy while the outbox has room.
        coop::consume_budget().await;
        let mut what = match attempt(what) {
            Ok(sent) => return Ok(sent),
            Err(Unsent::Failed(error)) => return Err(error),
            Err(Unsent::NoSpace(what) | Unsent::NoCredit(what, _)) => what,
        };
        // Boxed, so that only a waiting call uses memory for it.
        Box::pin(async {
            loop {
                let mut space = pin!(self.progress.notified());
                // Before the attempt: otherwise space freed right after it would be missed.
                space.as_mut().enable();
                what = match attempt(what) {
                    Ok(sent) => return Ok(sent),
                    Err(Unsent::Failed(error)) => return Err(error),
                    Err(Unsent::NoSpace(what)) => {
                        space.await;
                        what
                    }
                    Err(Unsent::NoCredit(what, key)) => {
                        poll_fn(|cx| self.poll_credit(cx, key)).await;
                        what
                    }
                };
            }
        })
        .await
    }

    /// Waits until the stream has credit or has ended.
    fn poll_credit(&self, cx: &Context<'_>, key: StreamKey) -> Poll<()> {
        let mut core = self.core();
        if core.proto.has_credit(key) {
            return Poll::Ready(());
        }
        let senders = core.senders.get_or_default(key);
        if !senders.iter().any(|sender| sender.will_wake(cx.waker())) {
            senders.push(cx.waker().clone());
        }
        let driver = core.begin_to_wait();
        drop(core);
        driver.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

/// The next step of a driver's write loop.
pub(crate) enum Next {
    /// Write the batch.
    Batch,
    /// Tell the router that the outbox accepts packets again. There may also be a batch.
    Writable,
    Nothing,
}

/// The reason why a packet or stream data was not sent. Returns it if it may be sent later.
pub(crate) enum Unsent<P, E> {
    /// The outbox is full.
    NoSpace(P),
    /// The peer has to read more of this stream first.
    NoCredit(P, StreamKey),
    Failed(E),
}

impl<P, E> From<TrySendError<P, E>> for Unsent<P, E> {
    fn from(error: TrySendError<P, E>) -> Self {
        match error {
            TrySendError::Full(what) => Self::NoSpace(what),
            TrySendError::Failed(error) => Self::Failed(error),
        }
    }
}

impl<P, E> From<Unsent<P, E>> for TrySendError<P, E> {
    fn from(unsent: Unsent<P, E>) -> Self {
        match unsent {
            Unsent::NoSpace(what) | Unsent::NoCredit(what, _) => Self::Full(what),
            Unsent::Failed(error) => Self::Failed(error),
        }
    }
}
