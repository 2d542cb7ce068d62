//! The part of a connection's state under its lock.

use std::{collections::VecDeque, task::Waker};

use tokio::sync::oneshot;
use tracing::warn;

use crate::{
    CloseReason, Raw, SendError, WhenFull,
    clock::Instant,
    lazy_map::LazyMap,
    proto::{self, StreamKey},
};

/// The part of the shared state under one lock.
///
/// The lock is never held across an await, nor while wakers or other user code run.
pub(crate) struct ConnectionCore {
    pub(crate) proto: proto::Connection,
    /// Waker of the driver while it sleeps.
    pub(crate) driver: Option<Waker>,
    /// Tasks waiting to read from a stream.
    pub(crate) readers: LazyMap<StreamKey, Waker>,
    /// Tasks waiting for credit of the peer to send on a stream.
    pub(crate) senders: LazyMap<StreamKey, Vec<Waker>>,
    /// Tasks waiting for the end of a stream.
    pub(crate) watchers: LazyMap<StreamKey, Vec<Waker>>,
    /// Channel to the task waiting for the raw stream of a takeover.
    pub(crate) taker: Option<oneshot::Sender<Raw>>,
    /// Number of running handlers, as of the driver's last count.
    pub(crate) handlers: usize,
    /// `true` if a task waits for a write, or the router waits for the outbox to accept packets again.
    pub(crate) progress_is_awaited: bool,
    /// Smallest content length refused by the outbox since the router was last told of free space.
    pub(super) refused_len: Option<usize>,
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

impl ConnectionCore {
    pub(super) fn new(proto: proto::Connection) -> Self {
        Self {
            proto,
            driver: None,
            readers: LazyMap::default(),
            senders: LazyMap::default(),
            watchers: LazyMap::default(),
            taker: None,
            handlers: 0,
            progress_is_awaited: false,
            refused_len: None,
            when_full: WhenFull::default(),
            is_paused: false,
            has_begun_to_wait: false,
            unaccepted: VecDeque::new(),
            ended: None,
        }
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
    pub(super) fn begin_to_wait(&mut self) -> Option<Waker> {
        self.has_begun_to_wait = true;
        if self.is_paused { self.driver.take() } else { None }
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
