//! The calls of one connection that wait for their answers.

use std::{
    collections::HashSet,
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
use frisbee::{CloseReason, Packet};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// The waiting calls of a connection, shared by the callers and the router that brings the answers.
#[derive(Debug)]
pub(crate) struct Calls {
    table: Mutex<Table>,
    /// A call is over, so that another may begin.
    room: Notify,
    /// A call is due before the time that [`expire`](Self::expire) sleeps until.
    sooner: Notify,
    expires: AtomicBool,
}

/// Why a call that waited has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Unanswered {
    Closed(CloseReason),
    TimedOut,
}

/// One call that waits. Dropping it forgets the call.
pub(crate) struct Waiting<'a> {
    calls: &'a Calls,
    pub(crate) id: u16,
}

impl Calls {
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            table: Mutex::new(Table::new(calls_max)),
            room: Notify::new(),
            sooner: Notify::new(),
            expires: AtomicBool::new(false),
        }
    }

    pub(crate) fn calls_max(&self) -> usize {
        self.table().calls_max
    }

    /// A place for a call, with an id that no other call has. `None` if there are too many.
    pub(crate) fn try_begin(
        &self,
        operation: u16,
        deadline: Option<Instant>,
    ) -> Result<Option<Waiting<'_>>, CloseReason> {
        let mut table = self.table();
        let Some(id) = table.insert(operation, deadline)? else { return Ok(None) };
        let is_sooner = deadline.is_some_and(|deadline| table.wake_at.is_none_or(|at| deadline < at));
        if is_sooner {
            table.wake_at = deadline;
        }
        drop(table);
        if is_sooner {
            self.sooner.notify_one();
        }
        Ok(Some(Waiting { calls: self, id }))
    }

    /// As [`try_begin`](Self::try_begin), waiting while there are too many.
    pub(crate) async fn begin(&self, operation: u16, deadline: Option<Instant>) -> Result<Waiting<'_>, CloseReason> {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(waiting) = self.try_begin(operation, deadline)? {
                return Ok(waiting);
            }
            room.await;
        }
    }

    /// Gives a packet to the call that it answers. Gives it back if it answers none that was ever made.
    pub(crate) fn complete(&self, packet: Packet) -> Option<Packet> {
        let mut table = self.table();
        match table.complete(packet) {
            Ok(waker) => {
                drop(table);
                if let Some(waker) = waker {
                    waker.wake();
                }
                None
            }
            Err(packet) => Some(packet),
        }
    }

    /// Ends every call, and every one that is still to come.
    pub(crate) fn close(&self, reason: &CloseReason) {
        let mut table = self.table();
        table.closed = Some(reason.clone());
        let wakers = table.end_all(reason);
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
        self.room.notify_waiters();
        self.sooner.notify_one();
    }

    /// Whether nobody has begun to [`expire`](Self::expire) calls.
    pub(crate) fn begins_to_expire(&self) -> bool {
        !self.expires.swap(true, Ordering::Relaxed)
    }

    /// Ends calls that are due, until the connection ends.
    pub(crate) async fn expire(self: Arc<Self>) {
        loop {
            let (wakers, wake_at) = match &mut *self.table() {
                Table { closed: Some(_), .. } => return,
                table => (table.end_due(Instant::now()), table.wake_at),
            };
            wakers.into_iter().for_each(Waker::wake);
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

impl Default for Calls {
    fn default() -> Self {
        Self::new(CALLS_MAX)
    }
}

impl Waiting<'_> {
    /// The answer, as the content of its packet.
    pub(crate) async fn answered(&self) -> Result<Bytes, Unanswered> {
        poll_fn(|cx| self.calls.table().poll(cx, self.id)).await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut table = self.calls.table();
        table.remove(self.id);
        let was_full = table.was_full;
        drop(table);
        // One more than wait does no harm: the room is looked at, and waited for again.
        if was_full {
            self.calls.room.notify_one();
        }
    }
}

/// Calls by id. An id has one place it can be in, its remainder by the number of places; one whose place is taken is
/// skipped. Ids go up and around, so each is used again as late as possible, and not while its answer may still come.
#[derive(Debug)]
struct Table {
    places: Vec<Option<Call>>,
    next_id: u16,
    len: usize,
    calls_max: usize,
    /// Whether a call ever had to wait for room: only then is there anybody to tell of it.
    was_full: bool,
    forgotten: Forgotten,
    /// What calls were ever made: their answers are no packets of anybody else, however late.
    operations: Vec<u16>,
    /// When the calls are looked through for those that are due.
    wake_at: Option<Instant>,
    closed: Option<CloseReason>,
}

#[derive(Debug)]
struct Call {
    id: u16,
    operation: u16,
    deadline: Option<Instant>,
    /// Whether an answer may still come.
    is_owed: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Option<Waker>),
    /// The result, until it is taken.
    IsOver(Option<Result<Bytes, Unanswered>>),
}

impl Table {
    fn new(calls_max: usize) -> Self {
        Self {
            places: Vec::new(),
            next_id: 1,
            len: 0,
            calls_max: calls_max.clamp(1, CALLS_MAX),
            was_full: false,
            forgotten: Forgotten::default(),
            operations: Vec::new(),
            wake_at: None,
            closed: None,
        }
    }

    fn insert(&mut self, operation: u16, deadline: Option<Instant>) -> Result<Option<u16>, CloseReason> {
        if let Some(reason) = &self.closed {
            return Err(reason.clone());
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
        let state = State::Waits(None);
        self.places[place] = Some(Call { id, operation, deadline, is_owed: true, state });
        self.len += 1;
        if !self.operations.contains(&operation) {
            self.operations.push(operation);
        }
        Ok(Some(id))
    }

    fn poll(&mut self, cx: &Context<'_>, id: u16) -> Poll<Result<Bytes, Unanswered>> {
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

    fn complete(&mut self, packet: Packet) -> Result<Option<Waker>, Packet> {
        let operation = packet.operation.number();
        if let Some(call) = self.get(packet.id).filter(|call| call.operation == operation) {
            call.is_owed = false;
            return Ok(call.end(Ok(packet.content)));
        }
        if !self.operations.contains(&operation) {
            return Err(packet);
        }
        self.forgotten.remove(packet.id);
        Ok(None)
    }

    /// Frees the place of a call.
    fn remove(&mut self, id: u16) {
        let place = self.place(id);
        let Some(call) = self.places[place].take() else { return };
        self.len -= 1;
        if call.is_owed && self.closed.is_none() {
            self.forgotten.insert(id);
        }
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
        usize::from(id) & (self.places.len() - 1)
    }

    /// The next id that is neither in use nor forgotten. There is one: at most half of the places are taken, and at
    /// most a quarter of the ids are forgotten.
    fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if self.places[self.place(id)].is_none() && !self.forgotten.contains(id) {
                return id;
            }
        }
    }

    /// Twice as many places. Calls whose ids have different remainders keep doing so.
    fn grow(&mut self) {
        let len = (2 * self.places.len()).max(PLACES_MIN);
        let calls = mem::replace(&mut self.places, iter::repeat_with(|| None).take(len).collect());
        for call in calls.into_iter().flatten() {
            let place = self.place(call.id);
            self.places[place] = Some(call);
        }
    }
}

impl Call {
    /// The first end counts.
    fn end(&mut self, result: Result<Bytes, Unanswered>) -> Option<Waker> {
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

/// Ids of calls that were given up and may still be answered: another call with such an id would get that answer. Of
/// too many, the older are dropped.
#[derive(Debug, Default)]
struct Forgotten {
    recent: HashSet<u16>,
    older: HashSet<u16>,
}

impl Forgotten {
    fn insert(&mut self, id: u16) {
        if self.recent.len() >= GENERATION_MAX {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(id);
    }

    fn remove(&mut self, id: u16) {
        self.recent.remove(&id);
        self.older.remove(&id);
    }

    fn contains(&self, id: u16) -> bool {
        self.recent.contains(&id) || self.older.contains(&id)
    }
}

/// Half of all ids.
pub(crate) const CALLS_MAX: usize = 1 << 15;
const PLACES_MIN: usize = 4;
const GENERATION_MAX: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;
    use frisbee::Operation;

    const SAY: u16 = 10;

    fn answer(id: u16) -> Packet {
        Packet::new(id, Operation::new(SAY).unwrap(), "answer")
    }

    fn begin(table: &mut Table) -> u16 {
        table.insert(SAY, None).unwrap().unwrap()
    }

    #[test]
    fn ids_of_waiting_calls_are_skipped_when_the_counter_comes_around() {
        let mut table = Table::new(100);
        let (first, second) = (begin(&mut table), begin(&mut table));
        let mut seen = HashSet::from([first, second]);
        for _ in 0..u32::from(u16::MAX) - 1 {
            let id = begin(&mut table);
            assert!(table.complete(answer(id)).is_ok());
            table.remove(id);
            seen.insert(id);
            assert!(![first, second].contains(&id));
        }
        assert!(seen.len() > 40_000, "{} ids used", seen.len());
    }

    #[test]
    fn every_id_that_may_be_used_is_used_at_once() {
        let mut table = Table::new(usize::MAX);
        let ids: HashSet<u16> = (0..CALLS_MAX).map(|_| begin(&mut table)).collect();
        assert_eq!(ids.len(), CALLS_MAX);
        assert!(table.insert(SAY, None).unwrap().is_none());
        table.remove(ids.into_iter().next().unwrap());
        begin(&mut table);
    }

    #[test]
    fn an_id_given_up_is_not_used_until_its_answer_came() {
        let mut table = Table::new(100);
        let given_up = begin(&mut table);
        table.remove(given_up);
        let around = |table: &mut Table| {
            (0..=u16::MAX).any(|_| {
                let id = begin(table);
                assert!(table.complete(answer(id)).is_ok());
                table.remove(id);
                id == given_up
            })
        };
        assert!(!around(&mut table));
        assert!(table.complete(answer(given_up)).is_ok());
        assert!(around(&mut table));
    }

    #[test]
    fn so_many_ids_can_be_given_up_that_there_are_others_left() {
        let mut table = Table::new(usize::MAX);
        for _ in 0..1 << 17 {
            let id = begin(&mut table);
            table.remove(id);
        }
        let ids: HashSet<u16> = (0..CALLS_MAX).map(|_| begin(&mut table)).collect();
        assert_eq!(ids.len(), CALLS_MAX);
    }

    #[test]
    fn an_answer_reaches_the_call_of_its_id_and_operation() {
        let mut table = Table::new(100);
        let id = begin(&mut table);
        let other = Packet { operation: Operation::new(SAY + 1).unwrap(), ..answer(id) };
        assert_eq!(table.complete(other.clone()).unwrap_err(), other, "it answers nothing that was asked");
        assert!(table.complete(answer(id + 1)).is_ok(), "late answers are nobody's business");
        let cx = Context::from_waker(Waker::noop());
        assert!(table.poll(&cx, id).is_pending());
        assert!(table.complete(answer(id)).unwrap().is_some());
        assert!(table.complete(answer(id)).unwrap().is_none(), "a second answer is dropped");
        assert!(matches!(table.poll(&cx, id), Poll::Ready(Ok(content)) if content == "answer"));
    }
}
