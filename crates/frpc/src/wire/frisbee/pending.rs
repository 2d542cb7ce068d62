//! The calls of one connection that wait for their answers.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    mem,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use frisbee::{CloseReason, Connection, GoAway, Operation, Packet, PacketName};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tracing::warn;

use super::call_table::{CALLS_MAX, CannotBegin, Reply, Table, Unanswered};
use crate::error::CallError;

/// The waiting calls of a connection, shared by the callers and the router that brings the answers.
#[derive(Debug)]
pub(crate) struct PendingCalls {
    table: Mutex<Table>,
    /// A call is over, so that another may begin.
    room: Notify,
    /// A call is due before the time that [`expire`](Self::expire) sleeps until.
    sooner: Notify,
    /// Set once a task [expires](Self::expire) calls.
    expires: AtomicBool,
    /// The step to take when the connection takes no new calls any more.
    leave: Mutex<Option<Leave>>,
}

struct Leave(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

/// A limit on the calls that are under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Own(usize),
    OfPeer(u32),
}

/// One call that waits. Dropping it gives the call up.
pub(crate) struct PendingCall<'a> {
    calls: &'a PendingCalls,
    pub(crate) id: u16,
    /// True once its packet was taken for sending.
    is_sent: bool,
    /// The connection whose peer hears of it if the call is given up.
    sent_on: Option<&'a Connection>,
    operation: u16,
    /// True while the table has the waker of the task that makes the call, which has not waited since.
    is_registered: bool,
    /// True once the place was freed, with the answer.
    is_released: bool,
}

impl PendingCalls {
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            table: Mutex::new(Table::new(calls_max)),
            room: Notify::new(),
            sooner: Notify::new(),
            expires: AtomicBool::new(false),
            leave: Mutex::new(None),
        }
    }

    /// Returns the number of calls that are under way.
    pub(crate) fn len(&self) -> usize {
        self.table().len
    }

    /// Returns the number of calls that this side makes at once, or the lower one that the peer takes.
    pub(crate) fn limit(&self) -> Limit {
        let table = self.table();
        match table.peer_max {
            Some(peer) if (peer as usize) < table.own_max => Limit::OfPeer(peer),
            _ => Limit::Own(table.own_max),
        }
    }

    /// Notes how many calls the peer takes at once.
    pub(crate) fn limit_to(&self, calls_max: u32) {
        let mut table = self.table();
        table.peer_max = Some(calls_max);
        table.update_calls_max();
    }

    /// Returns a place for a call, with an id that no other call has. `None` if there are too many. The end of the call wakes
    /// the waker.
    pub(crate) fn try_begin(
        &self,
        operation: u16,
        deadline: Option<Instant>,
        waker: Option<&Waker>,
    ) -> Result<Option<PendingCall<'_>>, CannotBegin> {
        let mut table = self.table();
        let Some(id) = table.insert(operation, deadline, waker)? else { return Ok(None) };
        let is_sooner = deadline.is_some_and(|deadline| table.wake_at.is_none_or(|at| deadline < at));
        if is_sooner {
            table.wake_at = deadline;
        }
        drop(table);
        if is_sooner {
            // After the lock, which the task that wakes takes first. A permit stays if it does not wait just now.
            self.sooner.notify_one();
        }
        let is_registered = waker.is_some();
        Ok(Some(PendingCall {
            calls: self,
            id,
            is_sent: false,
            sent_on: None,
            operation,
            is_registered,
            is_released: false,
        }))
    }

    /// Begins a call as [`try_begin`](Self::try_begin) does, waiting while there are too many. Dropping the future begins
    /// none.
    pub(crate) async fn begin(
        &self,
        operation: u16,
        deadline: Option<Instant>,
    ) -> Result<PendingCall<'_>, CannotBegin> {
        loop {
            // Registered before the look at the table, so room that comes in between is not missed.
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(waiting) = self.try_begin(operation, deadline, None)? {
                return Ok(waiting);
            }
            room.await;
        }
    }

    /// Gives a packet to the call that it answers. Gives it back if it answers none that was ever made.
    pub(crate) fn complete(&self, packet: Packet) -> Option<Packet> {
        self.answer(packet, None)
    }

    /// Gives packets to the calls that they answer, from the front up to one that is no answer, and at most as many as are
    /// looked up under one lock. Returns how many.
    pub(crate) fn complete_several(
        &self,
        packets: &mut VecDeque<Packet>,
        is_answer: impl Fn(&Packet) -> bool,
    ) -> usize {
        let mut woken = [const { None }; ANSWERED_MAX];
        let (mut answered, mut table) = (0, self.table());
        while answered < ANSWERED_MAX
            && packets.front().is_some_and(&is_answer)
            && let Some(packet) = packets.pop_front()
        {
            match table.answer(packet, None) {
                Ok(waker) => woken[answered] = waker,
                Err(packet) => {
                    packets.push_front(packet);
                    break;
                }
            }
            answered += 1;
        }
        let was_full = table.was_full;
        drop(table);
        // Without the lock, as ever. Those that wait for room are told by the calls that end.
        for waker in &mut woken[..answered] {
            waker.take().into_iter().for_each(Waker::wake);
        }
        if was_full {
            self.room.notify_one();
        }
        answered
    }

    /// Ends the call whose answer did not come through. Returns whether a call of this operation was ever made.
    pub(crate) fn fail(&self, id: u16, operation: Operation, why: Unanswered) -> bool {
        self.answer(Packet::new(id, operation, Bytes::new()), Some(why)).is_none()
    }

    fn answer(&self, packet: Packet, failure: Option<Unanswered>) -> Option<Packet> {
        let mut table = self.table();
        match table.answer(packet, failure) {
            Ok(waker) => {
                let was_full = table.was_full;
                drop(table);
                match waker {
                    Some(waker) => waker.wake(),
                    // An id that the peer was done with late may have kept a call from beginning.
                    None if was_full => self.room.notify_one(),
                    None => {}
                }
                None
            }
            Err(packet) => Some(packet),
        }
    }

    /// Returns whether more answers are owed than let the connection take new calls.
    #[cfg(fuzzing)]
    pub(crate) fn is_out_of_ids(&self) -> bool {
        self.table().is_out_of_ids()
    }

    /// Returns whether a new call could begin, if not at once.
    pub(crate) fn takes_calls(&self) -> bool {
        let table = self.table();
        table.refuses.is_none() && !table.is_out_of_ids()
    }

    /// Puts the calls on another connection, and returns its number. One of several attempts to connect may be given up
    /// after its connection has opened: the end of that one must not end calls on the next, whichever comes first.
    pub(crate) fn open(&self) -> u64 {
        let mut table = self.table();
        (table.refuses, table.peer_max) = (None, None);
        table.update_calls_max();
        table.connection += 1;
        table.connection
    }

    /// Ends every call, and every one that is still to come, if they are on the connection with this number.
    pub(crate) fn close(&self, connection: u64, reason: &CloseReason) {
        let mut table = self.table();
        if table.connection != connection {
            return;
        }
        // Under one lock, so that no call begins between the two and waits for ever.
        table.refuses = Some(CannotBegin::Closed(reason.clone()));
        let wakers = table.end_all(reason);
        let kept = mem::take(&mut table.kept);
        drop(table);
        drop(kept);
        // Without the lock: a waker may be anything, and may use the table.
        wakers.into_iter().for_each(Waker::wake);
        // Those that wait for room find the table closed, and so does the task that expires calls.
        self.room.notify_waiters();
        self.sooner.notify_one();
    }

    /// Lets no new calls begin, because the peer wants them elsewhere. Those under way go on.
    pub(crate) fn go_away(&self, why: GoAway) {
        let mut table = self.table();
        if table.refuses.is_some() {
            return;
        }
        table.refuses = Some(CannotBegin::GoingAway(why));
        drop(table);
        // Those that wait for room have to go elsewhere.
        self.room.notify_waiters();
        self.leave();
    }

    /// Returns why the peer wants no new calls here, if it does not.
    pub(crate) fn going_away(&self) -> Option<GoAway> {
        match &self.table().refuses {
            Some(CannotBegin::GoingAway(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Has `leave` called once the peer wants no new calls here: at once, if it said so before.
    pub(crate) fn on_leaving(&self, leave: impl FnOnce() + Send + 'static) {
        *self.leave_place() = Some(Leave(Box::new(leave)));
        // After it is in its place: who says so in between calls it.
        if self.going_away().is_some() {
            self.leave();
        }
    }

    fn leave(&self) {
        // Taken first: it must not be called under the lock, nor twice.
        let leave = self.leave_place().take();
        if let Some(Leave(leave)) = leave {
            leave();
        }
    }

    fn leave_place(&self) -> MutexGuard<'_, Option<Leave>> {
        self.leave.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a value once no call is under way: now, or with the last of them.
    pub(crate) fn keep_until_idle(&self, value: impl Send + Sync + 'static) {
        let mut table = self.table();
        if table.len > 0 && !table.is_closed() {
            table.kept.push(Box::new(value));
        } else {
            // Without the lock: the last handle of a connection closes it.
            drop(table);
            drop(value);
        }
    }

    /// Returns true to the first that asks, which has to have calls [expire](Self::expire).
    pub(crate) fn begins_to_expire(&self) -> bool {
        // Relaxed: nothing is handed over with it.
        !self.expires.swap(true, Ordering::Relaxed)
    }

    /// Ends calls that are due, until the connection ends.
    pub(crate) async fn expire(self: Arc<Self>) {
        loop {
            let (wakers, wake_at) = match &mut *self.table() {
                Table { refuses: Some(CannotBegin::Closed(_)), .. } => return,
                table => (table.end_due(Instant::now()), table.wake_at),
            };
            wakers.into_iter().for_each(Waker::wake);
            // After the look at the table: a call that began since then has left a permit, so its deadline is not missed.
            let sooner = self.sooner.notified();
            match wake_at {
                None => sooner.await,
                // Woken or due: either way it is time to look again.
                Some(at) => drop(timeout_at(at, sooner).await),
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under the lock leaves the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PendingCalls {
    fn default() -> Self {
        Self::new(CALLS_MAX)
    }
}

impl<'a> PendingCall<'a> {
    /// Notes that the packet of the call was taken for sending: from here on, an answer may come, and a peer that
    /// understands that is told if the call is given up.
    pub(crate) fn sent(&mut self, on: Option<&'a Connection>) {
        debug_assert!(!self.is_released, "a call is sent before it is answered");
        (self.is_sent, self.sent_on) = (true, on);
    }

    /// Waits for the answer, and returns the content of its packet. For once, in the same poll as
    /// [`PendingCalls::try_begin`] if that was given the waker.
    pub(crate) async fn answered(&mut self) -> Result<Reply, Unanswered> {
        poll_fn(|cx| {
            // The waker is in the table already, so there is no need to look: an end that came since has woken it.
            if mem::take(&mut self.is_registered) {
                return Poll::Pending;
            }
            self.poll_answered(cx)
        })
        .await
    }

    /// Looks for the answer, and has the task woken by it.
    pub(crate) fn poll_answered(&mut self, cx: &Context<'_>) -> Poll<Result<Reply, Unanswered>> {
        let calls = self.calls;
        let mut table = calls.table();
        let polled = table.poll(cx, self.id);
        if polled.is_ready() {
            self.release(table);
        }
        polled
    }

    /// Notes that it took long to send the packet, so that another waker may wait by now.
    pub(crate) fn has_waited(&mut self) {
        self.is_registered = false;
    }

    /// Frees the place of the call, and tells those who wait for room.
    fn release(&mut self, mut table: MutexGuard<'_, Table>) {
        debug_assert!(!self.is_released, "by now its id may be that of another call");
        self.is_released = true;
        let is_owed = table.remove(self.id, self.is_sent);
        let (was_full, is_out_of_ids, owed) = (table.was_full, table.is_out_of_ids(), table.owed.len());
        let is_news = is_out_of_ids && !mem::replace(&mut table.was_out_of_ids, is_out_of_ids);
        if table.len == 0 && !table.kept.is_empty() {
            let kept = mem::take(&mut table.kept);
            drop(table);
            // Without the lock: the last handle of a connection closes it.
            drop(kept);
        } else {
            drop(table);
        }
        if is_owed
            && let Some(connection) = self.sent_on
            && let Some(operation) = Operation::new(self.operation).or(Some(Operation::EXTENDED))
        {
            connection.withdraw(PacketName { id: self.id, operation });
        }
        if is_news {
            warn!(owed, "{}", CallError::OutOfIds { owed });
        }
        if is_out_of_ids {
            // Room does not help those that wait for it: they have to go elsewhere.
            self.calls.room.notify_waiters();
        } else if was_full {
            // One more than wait does no harm: the room is looked at, and waited for again.
            self.calls.room.notify_one();
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_released {
            let calls = self.calls;
            self.release(calls.table());
        }
    }
}

/// The number of answers that are looked up under one lock. Callers wait for it meanwhile.
const ANSWERED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    #[test]
    fn calls_that_the_peer_may_not_have_given_up_yet_count_towards_its_limit() {
        let calls = PendingCalls::new(10);
        assert_eq!(calls.limit(), Limit::Own(10));
        calls.limit_to(2);
        assert_eq!(calls.limit(), Limit::OfPeer(2));
        let begin = || calls.try_begin(10, None, None).unwrap();
        let (mut first, second) = (begin().unwrap(), begin().unwrap());
        assert!(begin().is_none());
        let id = first.id;
        first.sent(None);
        drop(first);
        assert!(begin().is_none(), "its answer may still come, so it may still be under way");
        assert!(calls.complete(Packet::new(id, Operation::new(10).unwrap(), "answer")).is_none());
        drop(begin().expect("it is over"));
        drop(second);
        calls.open();
        assert_eq!(calls.limit(), Limit::Own(10), "the peer of another connection has not said anything yet");
    }

    #[test]
    fn answers_that_came_together_go_to_their_calls_up_to_what_is_none() {
        let (calls, operation) = (PendingCalls::new(100), Operation::new(10).unwrap());
        let begun: Vec<_> = (0..20).map(|_| calls.try_begin(10, None, None).unwrap().unwrap()).collect();
        let mut packets: VecDeque<_> = begun.iter().map(|call| Packet::new(call.id, operation, "answer")).collect();
        packets.insert(3, Packet::new(begun[0].id, Operation::new(11).unwrap(), "of nobody"));
        assert_eq!(calls.complete_several(&mut packets, |_| true), 3);
        assert_eq!(packets.pop_front().unwrap().content, "of nobody");
        assert_eq!(calls.complete_several(&mut packets, |_| true), ANSWERED_MAX);
        assert_eq!(calls.complete_several(&mut packets, |_| false), 0, "a request is not for a call");
        assert_eq!(calls.complete_several(&mut packets, |_| true), 20 - 3 - ANSWERED_MAX);
        assert!(packets.is_empty());
        let mut cx = Context::from_waker(Waker::noop());
        for mut call in begun {
            assert!(pin!(call.answered()).poll(&mut cx).is_ready());
        }
    }

    #[test]
    fn what_calls_need_is_kept_until_the_last_of_them_is_over() {
        let calls = PendingCalls::new(10);
        let begin = || calls.try_begin(10, None, None).unwrap().unwrap();
        let (first, second, kept) = (begin(), begin(), Arc::new(()));
        calls.keep_until_idle(kept.clone());
        drop(first);
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&kept), 1);
        calls.keep_until_idle(kept.clone());
        assert_eq!(Arc::strong_count(&kept), 1, "nobody needs it");
        let (connection, third) = (calls.open(), begin());
        calls.keep_until_idle(kept.clone());
        calls.close(connection, &CloseReason::Local);
        assert_eq!(Arc::strong_count(&kept), 1, "the connection has ended");
        drop(third);
    }
}
