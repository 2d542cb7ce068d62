//! Sending through the outbox of a connection: attempts, waits for space, and batches for the driver.

use std::{future::poll_fn, pin::pin, task::Waker};

use bytes::Buf as _;
use tokio::task::coop;

use super::{core::ConnectionCore, handle::Connection, shared::ConnectionShared, space::SpaceOffers};
use crate::{
    CloseReason, Frames, OutboxLimit, Packet, PacketName, SendError, StreamSendError, TrySendError, WhenFull,
    clock::Instant,
    proto::{self, StreamKey, Transmit},
    sync::MutexGuard,
};

/// Position of a packet in the order of sending. See [`Connection::may_have_left`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendPosition(pub(super) u64);

impl Connection {
    /// Sends a packet. Waits while the outbox is full. Packets sent by one task arrive in order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends the packet whole or not at all.
    pub async fn send(&self, packet: Packet) -> Result<SendPosition, SendError> {
        let (shared, len) = (self.shared(), packet.content.len());
        shared
            .until_sent(len, packet, |packet| {
                shared.try_push(len, packet, proto::Connection::send).map_err(PushError::from)
            })
            .await
    }

    /// Sends a packet without waiting. Returns the packet if the outbox is full.
    pub fn try_send(&self, packet: Packet) -> Result<SendPosition, TrySendError> {
        self.shared().try_push(packet.content.len(), packet, proto::Connection::send)
    }

    /// Sends a packet with a copy of `content`, like [`try_send`](Self::try_send).
    ///
    /// For small contents, this is cheaper than allocating a content for each packet: the same buffer can be used again
    /// for the next one.
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
    pub fn try_send_copied(&self, name: PacketName, content: &[u8]) -> Result<SendPosition, TrySendError<()>> {
        self.shared().try_push(content.len(), (), |proto, ()| proto.send_copied(name, content))
    }

    /// Sends encoded packets without waiting: all of them, or none if the outbox is full.
    ///
    /// The same frames can be sent on several connections. Costs one lock and one wake-up, and does not copy long runs
    /// of frames. The result holds the position of the last packet.
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
    ///         // A slow subscriber misses all of them.
    ///         let _ = subscriber.try_send_frames(&frames);
    ///     }
    /// }
    /// ```
    pub fn try_send_frames(&self, frames: &Frames) -> Result<SendPosition, TrySendError<()>> {
        let core = self.shared().core();
        if core.proto.is_open() && core.proto.is_full_for_frames(frames) {
            let refused = self.shared().refuse(core, frames.content_len_max(), frames.count());
            return Err(refused.map_or(TrySendError::Full(()), TrySendError::Failed));
        }
        self.shared().push_locked(core, frames, proto::Connection::send_frames).map_err(TrySendError::Failed)
    }

    /// Sends encoded packets like [`try_send_frames`](Self::try_send_frames). Waits while the outbox is full.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends all packets or none.
    pub async fn send_frames(&self, frames: &Frames) -> Result<SendPosition, SendError> {
        self.shared()
            .until_sent(frames.content_len_max(), (), |()| self.try_send_frames(frames).map_err(PushError::from))
            .await
    }

    /// Sends these packets in order, without waiting, and returns the number sent.
    ///
    /// Stops at the first packet without room in the outbox, and at the first that cannot be sent. An error means that
    /// the first packet cannot be sent, or that the full outbox closed the connection ([`WhenFull::Close`]). Costs one
    /// lock and one wake-up.
    pub fn try_send_all(&self, packets: &[Packet]) -> Result<usize, SendError> {
        let mut core = self.shared().core();
        let mut sent = 0;
        let mut refused = None;
        for packet in packets {
            let len = packet.content.len();
            if core.proto.is_open() && core.proto.is_full_for(len) {
                refused = Some(len);
                break;
            }
            match core.proto.send(packet.clone()) {
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => sent += 1,
            }
        }
        let driver = if sent > 0 { core.driver.take() } else { None };
        let error = match refused {
            Some(len) => self.shared().refuse(core, len, packets.len() - sent),
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

    /// Sets the outbox limit of this connection, and the policy for packets above it.
    ///
    /// The initial values are [`Config::outbox_len_max`](crate::Config::outbox_len_max) and [`WhenFull::Refuse`].
    ///
    /// ```
    /// # fn example(connection: &frisbee::Connection) {
    /// use frisbee::{OutboxLimit, WhenFull};
    ///
    /// // Disconnect a subscriber with more than 8 MiB queued.
    /// connection.set_outbox(OutboxLimit { len_max: 8 << 20, when_full: WhenFull::Close });
    /// # }
    /// ```
    pub fn set_outbox(&self, limit: OutboxLimit) {
        let mut core = self.shared().core();
        core.proto.set_outbox_len_max(limit.len_max);
        core.when_full = limit.when_full;
        drop(core);
        // Waiting senders may have room under the new limit.
        self.shared().space.offer_to_all();
    }

    /// Returns `true` if the packet was passed to the socket, at least in part, so the peer may have received it.
    ///
    /// Also valid after the connection has ended.
    pub fn may_have_left(&self, sent: SendPosition) -> bool {
        self.shared().core().proto.attempted() >= sent.0
    }

    /// Waits until the socket has accepted everything sent before. Returns the reason if it never will.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: queued packets are written anyway.
    pub async fn flush(&self) -> Result<(), CloseReason> {
        let (target, _) = self.shared().core().proto.progress();
        self.shared()
            .wait_for(&self.shared().progress, |core| match core.proto.progress() {
                (_, written) if written >= target => Some(Ok(())),
                _ => {
                    core.progress_is_awaited = true;
                    core.proto.closed().cloned().map(Err)
                }
            })
            .await
    }

    /// Replies with a copy of `content`, for a handler about to return [`Outcome::Nothing`](crate::Outcome::Nothing).
    ///
    /// Has the effect of [`Outcome::Reply`](crate::Outcome::Reply), but the caller can reuse the memory of the content.
    #[doc(hidden)]
    pub fn reply_copied(&self, packet: PacketName, content: &[u8]) {
        let shared = self.shared();
        shared.change(|core| {
            let replied = core.proto.reply_copied(packet, content);
            if replied.is_err() {
                core.check_reply(replied);
                shared.note_closing(core);
            }
            shared.note_replies(core);
        });
    }
}

impl ConnectionShared {
    /// Records `written` bytes of `batch`, and fills it with the next batch once it is written completely.
    ///
    /// All batches are produced here.
    pub(crate) fn next_batch(&self, now: Instant, written: usize, batch: &mut Transmit) -> WriteStep {
        if written == 0 && batch.has_remaining() {
            return WriteStep::Batch;
        }
        let mut core = self.core();
        let (_, packets_before) = core.proto.progress();
        if written > 0 {
            core.proto.handle_written(now, written, batch);
            if batch.has_remaining() {
                return WriteStep::Batch;
            }
        }
        core.proto.poll_transmit(now, batch);
        // Waiting tasks set the flag under this lock, so none is missed. Without the flag, every write would pay for a
        // notification that usually wakes no task.
        let is_awaited = written > 0 && std::mem::take(&mut core.progress_is_awaited);
        if is_awaited && self.notify_progress(core, packets_before) {
            return WriteStep::Writable;
        }
        if batch.has_remaining() { WriteStep::Batch } else { WriteStep::Nothing }
    }

    /// Wakes tasks waiting for a write. Returns `true` if the router must be told that the outbox accepts packets again.
    ///
    /// Before the write, `packets_before` packets were written.
    #[cold]
    fn notify_progress(&self, mut core: MutexGuard<'_, ConnectionCore>, packets_before: u64) -> bool {
        let is_writable = core.refused_len.is_some_and(|len| !core.proto.is_full_for(len));
        if is_writable {
            core.refused_len = None;
        }
        // The router keeps waiting if the refused content still does not fit.
        core.progress_is_awaited |= core.refused_len.is_some();
        let written = core.proto.progress().1 - packets_before;
        let offers = SpaceOffers::after_write(&core, written);
        drop(core);
        self.progress.notify_waiters();
        self.space.offer_several(offers);
        is_writable
    }

    /// Sends `what`, with a content of `len` bytes, by calling `push`, and wakes the driver. Fails if the outbox is
    /// full.
    pub(super) fn try_push<P>(
        &self,
        len: usize,
        what: P,
        push: impl FnOnce(&mut proto::Connection, P) -> Result<(), SendError>,
    ) -> Result<SendPosition, TrySendError<P>> {
        let core = self.core();
        if core.proto.is_open() && core.proto.is_full_for(len) {
            return Err(self.refuse(core, len, 1).map_or(TrySendError::Full(what), TrySendError::Failed));
        }
        self.push_locked(core, what, push).map_err(TrySendError::Failed)
    }

    /// Sends `what` on a stream like [`try_push`](Self::try_push). Also fails if the peer has to give credit first.
    pub(super) fn try_push_on<P>(
        &self,
        key: StreamKey,
        len: usize,
        what: P,
        push: impl FnOnce(&mut proto::Connection, P) -> Result<(), StreamSendError>,
    ) -> Result<SendPosition, PushError<P, StreamSendError>> {
        let mut core = self.core();
        if !core.proto.has_credit(key) {
            return Err(PushError::NoCredit(what, key));
        }
        if core.proto.is_open() && core.proto.is_full_for(len) {
            core.progress_is_awaited = true;
            let driver = core.begin_to_wait();
            drop(core);
            driver.into_iter().for_each(Waker::wake);
            return Err(PushError::NoSpace(what));
        }
        self.push_locked(core, what, push).map_err(PushError::Failed)
    }

    /// Applies the outbox policy to packets without room in the outbox. Returns `None` if their sender may wait.
    #[cold]
    fn refuse(&self, mut core: MutexGuard<'_, ConnectionCore>, len: usize, packets: usize) -> Option<SendError> {
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

    fn push_locked<P, E>(
        &self,
        mut core: MutexGuard<'_, ConnectionCore>,
        what: P,
        push: impl FnOnce(&mut proto::Connection, P) -> Result<(), E>,
    ) -> Result<SendPosition, E> {
        push(&mut core.proto, what)?;
        let sent = SendPosition(core.proto.progress().0);
        let driver = core.driver.take();
        drop(core);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(sent)
    }

    /// Lets the next waiting sender try, for a sender that waits no longer.
    fn pass_on_space(&self, len: usize) {
        let mut core = self.core();
        let (queued, written) = core.proto.progress();
        if written < queued {
            core.progress_is_awaited = true;
            return;
        }
        // No write will follow.
        drop(core);
        self.space.offer(len);
    }

    /// Calls `attempt` until it succeeds or fails. Waits for space or credit after each attempt without.
    ///
    /// The attempt needs space for a content of `len` bytes.
    pub(super) async fn until_sent<P, E>(
        &self,
        len: usize,
        what: P,
        mut attempt: impl FnMut(P) -> Result<SendPosition, PushError<P, E>>,
    ) -> Result<SendPosition, E> {
        // Without a budget, a task that only sends would keep its thread busy while the outbox has room.
        coop::consume_budget().await;
        let mut what = match attempt(what) {
            Ok(sent) => return Ok(sent),
            Err(PushError::Failed(error)) => return Err(error),
            Err(PushError::NoSpace(what) | PushError::NoCredit(what, _)) => what,
        };
        // Boxed, so that only a waiting call uses memory for it.
        Box::pin(async {
            loop {
                let mut space = pin!(self.space.offered(len));
                // Before the attempt: otherwise space freed right after it would be missed.
                space.as_mut().enable();
                let attempted = attempt(what);
                if let Err(PushError::NoSpace(unsent)) = attempted {
                    space.await;
                    what = unsent;
                    continue;
                }
                self.pass_on_space(len);
                what = match attempted {
                    Ok(sent) => return Ok(sent),
                    Err(PushError::Failed(error)) => return Err(error),
                    Err(PushError::NoSpace(what)) => what,
                    Err(PushError::NoCredit(what, key)) => {
                        poll_fn(|cx| self.poll_credit(cx, key)).await;
                        what
                    }
                };
            }
        })
        .await
    }
}

/// The next step of a driver's write loop.
pub(crate) enum WriteStep {
    /// Write the batch.
    Batch,
    /// Tell the router that the outbox accepts packets again. There may also be a batch.
    Writable,
    Nothing,
}

/// The reason why a packet or stream data was not sent. Contains the unsent value if it may be sent later.
pub(super) enum PushError<P, E> {
    /// The outbox is full.
    NoSpace(P),
    /// The peer has to read more of this stream first.
    NoCredit(P, StreamKey),
    Failed(E),
}

impl<P, E> From<TrySendError<P, E>> for PushError<P, E> {
    fn from(error: TrySendError<P, E>) -> Self {
        match error {
            TrySendError::Full(what) => Self::NoSpace(what),
            TrySendError::Failed(error) => Self::Failed(error),
        }
    }
}

impl<P, E> From<PushError<P, E>> for TrySendError<P, E> {
    fn from(unsent: PushError<P, E>) -> Self {
        match unsent {
            PushError::NoSpace(what) | PushError::NoCredit(what, _) => Self::Full(what),
            PushError::Failed(error) => Self::Failed(error),
        }
    }
}
