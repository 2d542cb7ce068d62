//! The calls of a connection by their ids, and which of them a new call may have.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    iter, mem,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use frisbee::{CloseReason, GoAway, Operation, Packet};
use tokio::time::Instant;

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
pub(super) struct Table {
    places: Vec<Option<Call>>,
    next_id: u16,
    pub(super) len: usize,
    /// The number of calls that may be under way now.
    calls_max: usize,
    /// The number of calls that this side makes at once.
    pub(super) own_max: usize,
    /// The number of calls that the peer takes at once, if it says so. Those that it may not have given up yet count.
    pub(super) peer_max: Option<u32>,
    /// Set once a call had to wait for room: only then is there anybody to tell of it.
    pub(super) was_full: bool,
    /// Ids of calls that were given up after their requests had been taken for sending, with the operation whose answer
    /// frees the id: another call with that id would get the answer.
    pub(super) owed: HashMap<u16, u16>,
    /// Ids that were answered and that the counter would reach soon.
    resting: HashSet<u16>,
    pub(super) was_out_of_ids: bool,
    /// The operations that were ever called: their answers are no packets of anybody else, however late.
    operations: Vec<u16>,
    /// The time at which the calls are looked through for those that are due.
    pub(super) wake_at: Option<Instant>,
    /// The number of the connection that the calls are on.
    pub(super) connection: u64,
    /// Dropped when no call is under way: what keeps a connection open that is not the current one any more.
    pub(super) kept: Vec<Box<dyn Any + Send + Sync>>,
    /// The reason why no call may begin, other than those that a look at the calls tells.
    pub(super) refuses: Option<CannotBegin>,
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
    pub(super) fn new(calls_max: usize) -> Self {
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
            kept: Vec::new(),
            refuses: None,
        }
    }

    pub(super) fn insert(
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

    pub(super) fn poll(&mut self, cx: &Context<'_>, id: u16) -> Poll<Result<Reply, Unanswered>> {
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
    pub(super) fn answer(&mut self, packet: Packet, failure: Option<Unanswered>) -> Result<Option<Waker>, Packet> {
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
    pub(super) fn remove(&mut self, id: u16, is_sent: bool) -> bool {
        let place = self.place(id);
        let Some(call) = self.places[place].take() else { return false };
        debug_assert_eq!(call.id, id, "a call has its place until it is dropped");
        debug_assert!(self.len > 0, "every call is counted");
        debug_assert!(!call.is_answered || matches!(call.state, State::IsOver(_)), "an answer ends its call");
        self.len -= 1;
        if call.is_answered {
            self.rest(id);
        } else if is_sent && !self.is_closed() {
            let before = self.owed.insert(id, call.operation);
            debug_assert_eq!(before, None, "an id that is owed is not given to another call");
            self.update_calls_max();
            return true;
        }
        false
    }

    pub(super) fn update_calls_max(&mut self) {
        let of_peer = self.peer_max.map_or(usize::MAX, |peer| (peer as usize).saturating_sub(self.owed.len()));
        self.calls_max = self.own_max.min(of_peer);
    }

    /// Keeps an id that was answered from being used again soon.
    fn rest(&mut self, id: u16) {
        if id.wrapping_sub(self.next_id) < REST_MAX {
            self.resting.insert(id);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.refuses, Some(CannotBegin::Closed(_)))
    }

    pub(super) fn is_out_of_ids(&self) -> bool {
        self.owed.len() > OWED_MAX
    }

    /// Ends the calls that are due, and finds out when the next will be.
    pub(super) fn end_due(&mut self, now: Instant) -> Vec<Waker> {
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

    pub(super) fn end_all(&mut self, reason: &CloseReason) -> Vec<Waker> {
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
