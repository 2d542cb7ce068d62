//! The calls of one connection that wait for their answers.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    future::poll_fn,
    iter, mem,
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

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A message, or an error in its place.
    Plain(Bytes),
    /// With all that goes with it, as extended peers answer.
    Extended(Bytes),
}

/// The reason why a call that waited has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Unanswered {
    Closed(CloseReason),
    TimedOut,
    /// The answer came, and was too large.
    TooLarge {
        announced: u32,
        limit: u32,
    },
}

/// A limit on the calls that are under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Own(usize),
    OfPeer(u32),
}

/// The reason why a call may not begin on this connection.
#[derive(Clone, Debug)]
pub(crate) enum CannotBegin {
    Closed(CloseReason),
    /// The peer wants no new calls here.
    GoingAway(GoAway),
    /// More answers are owed than the ids allow.
    OutOfIds {
        owed: usize,
    },
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
                    // What the peer was done with late may have kept a call from beginning.
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
        drop(table);
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
            let calls = self.calls;
            let mut table = calls.table();
            let polled = table.poll(cx, self.id);
            if polled.is_ready() {
                self.release(table);
            }
            polled
        })
        .await
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
        drop(table);
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

/// Pending calls by id. An id has one place it can be in, its remainder by the number of places; one whose place is taken is
/// skipped. Ids go up and around, so each is used again as late as possible, and never while its answer may still come.
///
/// ```text
///   free ──insert()──▶ in use ──remove(), answered or never sent──▶ free, or resting
///                        └─────remove(), sent and unanswered──────▶ owed ──answer()────▶ free, or resting
/// ```
///
/// A peer that answers twice does so soon after the first time, so an id whose answer came late rests until the counter
/// has passed it once.
#[derive(Debug)]
struct Table {
    places: Vec<Option<Call>>,
    next_id: u16,
    len: usize,
    /// The number of calls that may be under way now.
    calls_max: usize,
    /// The number of calls that this side makes at once.
    own_max: usize,
    /// The number of calls that the peer takes at once, if it says so. Those that it may not have given up yet count.
    peer_max: Option<u32>,
    /// Set once a call had to wait for room: only then is there anybody to tell of it.
    was_full: bool,
    /// Ids of calls that were given up after their requests had been taken for sending, with the operation whose answer
    /// frees the id: another call with that id would get the answer.
    owed: HashMap<u16, u16>,
    /// Ids that were answered and that the counter would reach soon.
    resting: HashSet<u16>,
    was_out_of_ids: bool,
    /// The operations that were ever called: their answers are no packets of anybody else, however late.
    operations: Vec<u16>,
    /// The time at which the calls are looked through for those that are due.
    wake_at: Option<Instant>,
    /// The number of the connection that the calls are on.
    connection: u64,
    /// The reason why no call may begin, other than those that a look at the calls tells.
    refuses: Option<CannotBegin>,
}

#[derive(Debug)]
struct Call {
    id: u16,
    operation: u16,
    deadline: Option<Instant>,
    is_answered: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Option<Waker>),
    /// The result, until it is taken.
    IsOver(Option<Result<Reply, Unanswered>>),
}

impl Table {
    fn new(calls_max: usize) -> Self {
        Self {
            places: Vec::new(),
            next_id: 1,
            len: 0,
            calls_max: calls_max.clamp(1, CALLS_MAX),
            own_max: calls_max.clamp(1, CALLS_MAX),
            peer_max: None,
            was_full: false,
            owed: HashMap::new(),
            resting: HashSet::new(),
            was_out_of_ids: false,
            operations: Vec::new(),
            wake_at: None,
            connection: 0,
            refuses: None,
        }
    }

    fn insert(
        &mut self,
        operation: u16,
        deadline: Option<Instant>,
        waker: Option<&Waker>,
    ) -> Result<Option<u16>, CannotBegin> {
        if let Some(why) = &self.refuses {
            return Err(why.clone());
        }
        if self.is_out_of_ids() {
            return Err(CannotBegin::OutOfIds { owed: self.owed.len() });
        }
        if self.len >= self.calls_max {
            self.was_full = true;
            return Ok(None);
        }
        if 2 * self.len >= self.places.len() {
            self.grow();
        }
        let id = self.free_id();
        let place = self.place(id);
        debug_assert!(self.places[place].is_none(), "a call has a place of its own");
        debug_assert!(!self.owed.contains_key(&id), "the answer to another call would be taken for that to this one");
        let state = State::Waits(waker.cloned());
        self.places[place] = Some(Call { id, operation, deadline, is_answered: false, state });
        self.len += 1;
        debug_assert!(self.len <= self.calls_max && 2 * self.len <= self.places.len(), "there is always a free place");
        if !self.operations.contains(&operation) {
            self.operations.push(operation);
        }
        Ok(Some(id))
    }

    fn poll(&mut self, cx: &Context<'_>, id: u16) -> Poll<Result<Reply, Unanswered>> {
        let place = self.place(id);
        let call = self.places[place].as_mut().expect("a call has its place until it is dropped");
        match &mut call.state {
            State::IsOver(result) => Poll::Ready(result.take().expect("a call is not polled when it is over")),
            State::Waits(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Ends the call that a packet answers, with its content or the failure in its place.
    fn answer(&mut self, packet: Packet, failure: Option<Unanswered>) -> Result<Option<Waker>, Packet> {
        let operation = packet.operation.number();
        // An extended peer may answer any call so.
        let is_extended = packet.operation == Operation::EXTENDED;
        if let Some(call) = self.get(packet.id).filter(|call| call.operation == operation || is_extended) {
            call.is_answered = true;
            let content = packet.content.into_bytes();
            let reply = if is_extended { Reply::Extended(content) } else { Reply::Plain(content) };
            return Ok(call.end(failure.map_or(Ok(reply), Err)));
        }
        let is_owed = self.owed.get(&packet.id).is_some_and(|owed| *owed == operation || is_extended);
        if !is_owed && (is_extended || !self.operations.contains(&operation)) {
            return Err(packet);
        }
        // An answer to another operation is no answer to the call that had this id last.
        if is_owed {
            debug_assert!(self.get(packet.id).is_none(), "an id that is owed is not in use");
            self.owed.remove(&packet.id);
            self.update_calls_max();
            self.rest(packet.id);
        }
        Ok(None)
    }

    /// Frees the place of a call, and its id unless an answer may still come. Returns whether one may.
    fn remove(&mut self, id: u16, is_sent: bool) -> bool {
        let place = self.place(id);
        let Some(call) = self.places[place].take() else { return false };
        debug_assert_eq!(call.id, id, "a call has its place until it is dropped");
        debug_assert!(self.len > 0, "every call is counted");
        debug_assert!(!call.is_answered || matches!(call.state, State::IsOver(_)), "an answer ends its call");
        self.len -= 1;
        if call.is_answered {
            self.rest(id);
        } else if is_sent && !matches!(self.refuses, Some(CannotBegin::Closed(_))) {
            let before = self.owed.insert(id, call.operation);
            debug_assert_eq!(before, None, "an id that is owed is not given to another call");
            self.update_calls_max();
            return true;
        }
        false
    }

    fn update_calls_max(&mut self) {
        let of_peer = self.peer_max.map_or(usize::MAX, |peer| (peer as usize).saturating_sub(self.owed.len()));
        self.calls_max = self.own_max.min(of_peer);
    }

    /// Keeps an id that was answered from being used again soon.
    fn rest(&mut self, id: u16) {
        if id.wrapping_sub(self.next_id) < REST_MAX {
            self.resting.insert(id);
        }
    }

    fn is_out_of_ids(&self) -> bool {
        self.owed.len() > OWED_MAX
    }

    /// Ends the calls that are due, and finds out when the next will be.
    fn end_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        self.wake_at = None;
        for call in self.places.iter_mut().flatten() {
            match call.deadline {
                Some(deadline) if matches!(call.state, State::Waits(_)) => {
                    if deadline <= now {
                        wakers.extend(call.end(Err(Unanswered::TimedOut)));
                    } else {
                        self.wake_at = Some(self.wake_at.map_or(deadline, |at| at.min(deadline)));
                    }
                }
                _ => {}
            }
        }
        debug_assert!(self.wake_at.is_none_or(|at| now < at), "what is due has ended");
        wakers
    }

    fn end_all(&mut self, reason: &CloseReason) -> Vec<Waker> {
        let calls = self.places.iter_mut().flatten();
        calls.filter_map(|call| call.end(Err(Unanswered::Closed(reason.clone())))).collect()
    }

    fn get(&mut self, id: u16) -> Option<&mut Call> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.place(id);
        self.places[place].as_mut().filter(|call| call.id == id)
    }

    fn place(&self, id: u16) -> usize {
        debug_assert!(self.places.len().is_power_of_two(), "the mask is the remainder");
        usize::from(id) & (self.places.len() - 1)
    }

    /// Returns the next id that is neither in use nor owed, nor resting. There is one: less than half of the places are
    /// taken, which leaves more than half of the ids; at most half of the ids are owed; and an id that is passed has had its
    /// rest.
    fn free_id(&mut self) -> u16 {
        debug_assert!(2 * self.len < self.places.len() && !self.is_out_of_ids());
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            let is_resting = !self.resting.is_empty() && self.resting.remove(&id);
            if self.places[self.place(id)].is_none() && !self.owed.contains_key(&id) && !is_resting {
                return id;
            }
        }
    }

    /// Doubles the places. Calls whose ids have different remainders keep doing so.
    fn grow(&mut self) {
        let len = (2 * self.places.len()).max(PLACES_MIN);
        let calls = mem::replace(&mut self.places, iter::repeat_with(|| None).take(len).collect());
        for call in calls.into_iter().flatten() {
            let place = self.place(call.id);
            debug_assert!(self.places[place].is_none(), "remainders that differ go on differing");
            self.places[place] = Some(call);
        }
    }
}

impl Call {
    /// Ends the call, if it has not ended. The first end counts.
    fn end(&mut self, result: Result<Reply, Unanswered>) -> Option<Waker> {
        match &mut self.state {
            State::IsOver(_) => None,
            State::Waits(waker) => {
                let waker = waker.take();
                self.state = State::IsOver(Some(result));
                waker
            }
        }
    }
}

/// Half of all ids.
pub(crate) const CALLS_MAX: usize = 1 << 15;
/// Half of all ids as well. With more of them owed, the connection takes no new calls.
const OWED_MAX: usize = 1 << 15;
/// The distance from the counter at which an id needs no rest.
const REST_MAX: u16 = 1 << 15;
const PLACES_MIN: usize = 4;

#[cfg(test)]
mod tests;
