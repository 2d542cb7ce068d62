//! Calls in flight on one connection.

use std::{
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

use super::table::{CALLS_MAX, CallIdTable, CallReply, CannotBegin, NoAnswer};
use crate::error::CallError;

/// The calls in flight on a connection, shared by the callers and the router that receives the answers.
#[derive(Debug)]
pub(crate) struct PendingCalls {
    table: Mutex<CallIdTable>,
    /// Notified when a call ends and another may begin.
    room: Notify,
    /// Notified when a new call is due before the time that [`expire`](Self::expire) sleeps until.
    sooner: Notify,
    /// Set once a task runs [`expire`](Self::expire).
    expires: AtomicBool,
    /// The callback for the moment when the connection stops taking new calls.
    leave: Mutex<Option<LeaveCallback>>,
}

struct LeaveCallback(Box<dyn FnOnce() + Send>);

impl fmt::Debug for LeaveCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

/// A limit on concurrent calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallLimit {
    Own(usize),
    Peer(u32),
}

/// A call in flight. Dropping it cancels the call.
pub(crate) struct PendingCall<'a> {
    calls: &'a PendingCalls,
    pub(crate) id: u16,
    /// True once the outbox has accepted the packet.
    is_sent: bool,
    /// The connection of the packet. Its peer is told if the call is cancelled.
    sent_on: Option<&'a Connection>,
    operation: u16,
    /// True while the table has the waker of the calling task and the task has not waited since.
    is_registered: bool,
    /// True once the slot was freed, together with the answer.
    is_released: bool,
}

impl PendingCalls {
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            table: Mutex::new(CallIdTable::new(calls_max)),
            room: Notify::new(),
            sooner: Notify::new(),
            expires: AtomicBool::new(false),
            leave: Mutex::new(None),
        }
    }

    /// Returns the number of calls in flight.
    pub(crate) fn len(&self) -> usize {
        self.table().len
    }

    /// Returns the limit on concurrent calls: that of this side, or that of the peer if it is lower.
    pub(crate) fn limit(&self) -> CallLimit {
        let table = self.table();
        match table.peer_max {
            Some(peer) if (peer as usize) < table.own_max => CallLimit::Peer(peer),
            _ => CallLimit::Own(table.own_max),
        }
    }

    /// Sets the peer's limit on concurrent calls.
    pub(crate) fn limit_to(&self, calls_max: u32) {
        let mut table = self.table();
        table.peer_max = Some(calls_max);
        table.update_calls_max();
    }

    /// Begins a call with an unused id, or returns `None` at the limit. The end of the call wakes `waker`.
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
            // After unlocking, because the woken task locks first. The permit stays if the task is not waiting right
            // now.
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

    /// Begins a call like [`try_begin`](Self::try_begin), but waits while the limit is reached. Dropping the future
    /// begins no call.
    pub(crate) async fn begin(
        &self,
        operation: u16,
        deadline: Option<Instant>,
    ) -> Result<PendingCall<'_>, CannotBegin> {
        loop {
            // Registered before the check, so room freed in between is not missed.
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(waiting) = self.try_begin(operation, deadline, None)? {
                return Ok(waiting);
            }
            room.await;
        }
    }

    /// Completes the call answered by a packet. Returns the packet if it answers no call ever made.
    pub(crate) fn complete(&self, packet: Packet) -> Option<Packet> {
        self.complete_with(packet, None)
    }

    /// Completes calls with packets, several under one lock. Returns the first packet that answers none.
    pub(crate) fn complete_several(&self, mut next: impl FnMut() -> Option<Packet>) -> Option<Packet> {
        loop {
            let mut woken = [const { None }; ANSWERED_MAX];
            let (mut answered, mut rest, mut table) = (0, None, self.table());
            while answered < ANSWERED_MAX
                && let Some(packet) = next()
            {
                match table.complete(packet, None) {
                    Ok(waker) => woken[answered] = waker,
                    Err(packet) => {
                        rest = Some(packet);
                        break;
                    }
                }
                answered += 1;
            }
            let was_full = table.was_full;
            drop(table);
            // Without the lock, as everywhere. Calls that wait for room are woken by the calls that end here.
            for waker in &mut woken[..answered] {
                waker.take().into_iter().for_each(Waker::wake);
            }
            if was_full {
                self.room.notify_one();
            }
            if answered < ANSWERED_MAX {
                return rest;
            }
        }
    }

    /// Returns `true` if a method with this operation was ever called, so a packet with it is an answer.
    pub(crate) fn has_called(&self, operation: Operation) -> bool {
        self.table().has_called(operation)
    }

    /// Ends a call whose answer could not be received. Returns `false` if no call of this operation was ever made.
    pub(crate) fn fail(&self, id: u16, operation: Operation, why: NoAnswer) -> bool {
        self.complete_with(Packet::new(id, operation, Bytes::new()), Some(why)).is_none()
    }

    fn complete_with(&self, packet: Packet, failure: Option<NoAnswer>) -> Option<Packet> {
        let mut table = self.table();
        match table.complete(packet, failure) {
            Ok(waker) => {
                let was_full = table.was_full;
                drop(table);
                match waker {
                    Some(waker) => waker.wake(),
                    // The cancelled call's answer has freed its id, which may have kept a call from beginning.
                    None if was_full => self.room.notify_one(),
                    None => {}
                }
                None
            }
            Err(packet) => Some(packet),
        }
    }

    /// Returns whether so many answers are outstanding that no call can begin.
    #[cfg(fuzzing)]
    pub(crate) fn is_out_of_ids(&self) -> bool {
        self.table().is_out_of_ids()
    }

    /// Returns whether a new call could begin, now or after a wait for room.
    pub(crate) fn takes_calls(&self) -> bool {
        let table = self.table();
        table.refuses.is_none() && !table.is_out_of_ids()
    }

    /// Moves the calls to another connection, and returns its number.
    ///
    /// A connect attempt may be abandoned after its connection has opened. The number keeps the end of that connection
    /// from ending calls on the next one, in whatever order the two events arrive.
    pub(crate) fn open(&self) -> u64 {
        let mut table = self.table();
        (table.refuses, table.peer_max) = (None, None);
        table.update_calls_max();
        table.connection += 1;
        table.connection
    }

    /// Ends all calls and refuses new ones, if the calls are on the connection with this number.
    pub(crate) fn close(&self, connection: u64, reason: &CloseReason) {
        let mut table = self.table();
        if table.connection != connection {
            return;
        }
        // Under one lock, so no call begins in between and waits forever.
        table.refuses = Some(CannotBegin::Closed(reason.clone()));
        let wakers = table.end_all(reason);
        let kept = mem::take(&mut table.kept);
        drop(table);
        drop(kept);
        // Without the lock: a waker can run arbitrary code, which may use the table.
        wakers.into_iter().for_each(Waker::wake);
        // Wakes the calls waiting for room and the task in `expire`. They find the table closed.
        self.room.notify_waiters();
        self.sooner.notify_one();
    }

    /// Refuses new calls, because the peer asked to leave. Calls in flight continue.
    pub(crate) fn go_away(&self, why: GoAway) {
        let mut table = self.table();
        if table.refuses.is_some() {
            return;
        }
        table.refuses = Some(CannotBegin::GoingAway(why));
        drop(table);
        // Calls waiting for room have to use another connection.
        self.room.notify_waiters();
        self.run_leave_callback();
    }

    /// Returns the peer's reason if it asked to leave.
    pub(crate) fn going_away(&self) -> Option<GoAway> {
        match &self.table().refuses {
            Some(CannotBegin::GoingAway(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Calls `run_leave_callback` once the peer has asked to leave: immediately, if it already has.
    pub(crate) fn on_leaving(&self, leave: impl FnOnce() + Send + 'static) {
        *self.lock_leave_callback() = Some(LeaveCallback(Box::new(leave)));
        // Checked after `run_leave_callback` is stored: a request to leave in between calls it.
        if self.going_away().is_some() {
            self.run_leave_callback();
        }
    }

    fn run_leave_callback(&self) {
        // Taken first, so it runs without the lock and only once.
        let leave = self.lock_leave_callback().take();
        if let Some(LeaveCallback(leave)) = leave {
            leave();
        }
    }

    fn lock_leave_callback(&self) -> MutexGuard<'_, Option<LeaveCallback>> {
        self.leave.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a value once no call is in flight: now, or with the last call.
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

    /// Returns `true` for the first caller, which has to run [`expire`](Self::expire).
    pub(crate) fn claim_expiry_task(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        !self.expires.swap(true, Ordering::Relaxed)
    }

    /// Ends calls at their deadlines, until the connection ends.
    pub(crate) async fn expire(self: Arc<Self>) {
        loop {
            let (wakers, wake_at) = match &mut *self.table() {
                CallIdTable { refuses: Some(CannotBegin::Closed(_)), .. } => return,
                table => (table.end_due(Instant::now()), table.wake_at),
            };
            wakers.into_iter().for_each(Waker::wake);
            // After the check: a call that began since has left a permit, so its deadline is not missed.
            let sooner = self.sooner.notified();
            match wake_at {
                None => sooner.await,
                // Woken or due: in both cases, check again.
                Some(at) => drop(timeout_at(at, sooner).await),
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, CallIdTable> {
        // No panic under the lock can leave the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PendingCalls {
    fn default() -> Self {
        Self::new(CALLS_MAX)
    }
}

impl<'a> PendingCall<'a> {
    /// Records that the outbox has accepted the packet. From here on an answer may arrive, and if the call is
    /// cancelled, an extended peer is told.
    pub(crate) fn sent(&mut self, on: Option<&'a Connection>) {
        debug_assert!(!self.is_released, "a call is sent before it is answered");
        (self.is_sent, self.sent_on) = (true, on);
    }

    /// Waits for the answer and returns its content.
    ///
    /// If [`PendingCalls::try_begin`] was given a waker, the first poll must happen in that same
    /// poll of the task.
    pub(crate) async fn answered(&mut self) -> Result<CallReply, NoAnswer> {
        poll_fn(|cx| {
            // The waker is already in the table. An end since then has woken it, so this poll needs no lock.
            if mem::take(&mut self.is_registered) {
                return Poll::Pending;
            }
            self.poll_answered(cx)
        })
        .await
    }

    /// Checks for the answer, and registers the task to be woken by it.
    pub(crate) fn poll_answered(&mut self, cx: &Context<'_>) -> Poll<Result<CallReply, NoAnswer>> {
        let calls = self.calls;
        let mut table = calls.table();
        let polled = table.poll(cx, self.id);
        if polled.is_ready() {
            self.release(table);
        }
        polled
    }

    /// Frees the slot of the call, and wakes a call that waits for room.
    fn release(&mut self, mut table: MutexGuard<'_, CallIdTable>) {
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
            // Calls waiting for room have to use another connection instead.
            self.calls.room.notify_waiters();
        } else if was_full {
            // A wake-up without room is harmless: the woken call checks and waits again.
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

/// The maximum number of answers processed under one lock. Callers wait for the lock in the meantime.
const ANSWERED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    #[test]
    fn abandoned_calls_count_towards_the_limit_of_the_peer() {
        let calls = PendingCalls::new(10);
        assert_eq!(calls.limit(), CallLimit::Own(10));
        calls.limit_to(2);
        assert_eq!(calls.limit(), CallLimit::Peer(2));
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
        assert_eq!(calls.limit(), CallLimit::Own(10), "the peer of another connection has not said anything yet");
    }

    #[test]
    fn batched_answers_complete_up_to_the_first_unknown_packet() {
        let (calls, operation) = (PendingCalls::new(100), Operation::new(10).unwrap());
        let begun: Vec<_> = (0..20).map(|_| calls.try_begin(10, None, None).unwrap().unwrap()).collect();
        let answers = || begun.iter().map(|call| Packet::new(call.id, operation, "answer"));
        let of_nobody = Packet::new(begun[0].id, Operation::new(11).unwrap(), "of nobody");
        let mut packets = answers().take(3).chain([of_nobody.clone()]).chain(answers().skip(3));
        assert_eq!(calls.complete_several(|| packets.next()), Some(of_nobody));
        assert_eq!(calls.complete_several(|| packets.next()), None);
        assert!(packets.next().is_none(), "more than are looked up under one lock");
        assert!(calls.has_called(operation) && !calls.has_called(Operation::new(11).unwrap()));
        let mut cx = Context::from_waker(Waker::noop());
        for mut call in begun {
            assert!(pin!(call.answered()).poll(&mut cx).is_ready());
        }
    }

    #[test]
    fn kept_values_are_dropped_with_the_last_call() {
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
