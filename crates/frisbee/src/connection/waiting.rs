//! Waiting for the peer: for its protocol, for data and credit of streams, and for the end.

use std::{
    pin::pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{task::coop, time::timeout};

use super::{core::ConnectionCore, shared::ConnectionShared};
use crate::{
    CloseReason,
    proto::{self, PeerProtocol, StreamEnd, StreamKey},
    sync::Notify,
};

impl ConnectionShared {
    /// Calls `look` after each notification, until it returns an answer.
    pub(crate) async fn wait_for<T>(
        &self,
        notify: &Notify,
        mut look: impl FnMut(&mut ConnectionCore) -> Option<T>,
    ) -> T {
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

    /// Sends a PING and waits until the protocol of the peer is known.
    ///
    /// Accepts a peer that stays silent for `limit`, because it may just be slow.
    pub(crate) async fn recognize_peer(&self, limit: Duration) -> Result<(), CloseReason> {
        self.change(|core| core.proto.ping());
        let is_recognized = |core: &ConnectionCore| match core.proto.config().extended {
            true => *core.proto.peer() != PeerProtocol::Unknown,
            false => core.proto.has_received(),
        };
        let look = |core: &mut ConnectionCore| match core.proto.finishing() {
            Some(reason) => Some(Err(reason.clone())),
            None => is_recognized(core).then_some(Ok(())),
        };
        timeout(limit, self.wait_for(&self.changed, look)).await.unwrap_or(Ok(()))
    }

    /// Waits until the connection accepts no more packets, or the peer asks this side to leave.
    pub(crate) async fn until_left(&self) {
        let is_left = |core: &mut ConnectionCore| core.proto.is_finishing() || core.proto.is_asked_to_leave();
        self.wait_for(&self.changed, |core| is_left(core).then_some(())).await;
    }

    /// Waits until the connection accepts no more packets.
    pub(crate) async fn until_finishing(&self) {
        self.wait_for(&self.changed, |core| core.proto.is_finishing().then_some(())).await;
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

    /// Waits until the stream has credit or has ended.
    pub(super) fn poll_credit(&self, cx: &Context<'_>, key: StreamKey) -> Poll<()> {
        let mut core = self.core();
        if core.proto.has_credit(key) {
            return Poll::Ready(());
        }
        let senders = core.senders.get_or_default(key);
        if !senders.iter().any(|sender| sender.will_wake(cx.waker())) {
            senders.push(cx.waker().clone());
            core.proto.count_credit_wait();
        }
        let driver = core.begin_to_wait();
        drop(core);
        driver.into_iter().for_each(Waker::wake);
        Poll::Pending
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
        self.space.offer_to_all();
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
}
