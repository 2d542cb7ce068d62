//! The table of calls by id, and the choice of ids for new calls.

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
pub(crate) enum CallReply {
    /// A message or an encoded error, from a plain packet.
    Plain(Bytes),
    /// An envelope, from an extended packet.
    Extended(Bytes),
}

/// The reason for a call without an answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    Closed(CloseReason),
    TimedOut,
    /// The answer exceeded the size limit.
    TooLarge {
        announced: u32,
        limit: u32,
    },
}

/// The reason why no call may begin on this connection.
#[derive(Clone, Debug)]
pub(crate) enum CannotBegin {
    Closed(CloseReason),
    /// The peer has asked to leave the connection.
    GoingAway(GoAway),
    /// Too many outstanding answers for another id.
    OutOfIds {
        owed: usize,
    },
}

/// The calls of a connection by id.
///
/// The slot of an id is its remainder by the number of slots. An id with an occupied slot is skipped. Ids count up and
/// wrap around, so each is reused as late as possible, and never while its answer may still arrive.
///
/// ```text
///   free ──insert()──▶ in use ──remove(), answered or never sent──▶ free, or resting
///                        └─────remove(), sent and unanswered──────▶ owed ──complete()──▶ free, or resting
/// ```
///
/// A peer that answers twice does so soon after the first answer. So an id with a late answer rests until the counter
/// has passed it once.
#[derive(Debug)]
pub(super) struct CallIdTable {
    places: Vec<Option<CallEntry>>,
    next_id: u16,
    pub(super) len: usize,
    /// The current limit on concurrent calls.
    calls_max: usize,
    /// The limit of this side.
    pub(super) own_max: usize,
    /// The peer's limit, if announced. Cancelled calls count until the peer has answered them.
    pub(super) peer_max: Option<u32>,
    /// Set once a call had to wait for room. Before that, there is no waiting call to wake.
    pub(super) was_full: bool,
    /// Ids of sent calls that were cancelled, with the operation whose answer frees the id. A new call with such an id
    /// would get the old answer.
    pub(super) owed: HashMap<u16, u16>,
    /// Ids that were answered recently and that the counter would soon reach.
    resting: HashSet<u16>,
    pub(super) was_out_of_ids: bool,
    /// All operations ever called. Their late answers are recognized and not passed to other routers.
    operations: Vec<u16>,
    /// The time of the next check for due calls.
    pub(super) wake_at: Option<Instant>,
    /// The number of the current connection.
    pub(super) connection: u64,
    /// Dropped when no call is in flight. Keeps an old connection open until then.
    pub(super) kept: Vec<Box<dyn Any + Send + Sync>>,
    /// The reason why no call may begin, apart from limits.
    pub(super) refuses: Option<CannotBegin>,
}

#[derive(Debug)]
struct CallEntry {
    id: u16,
    operation: u16,
    deadline: Option<Instant>,
    is_answered: bool,
    state: CallState,
}

#[derive(Debug)]
enum CallState {
    Waiting(Option<Waker>),
    /// The result, until it is taken.
    Done(Option<Result<CallReply, NoAnswer>>),
}

impl CallIdTable {
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

    /// Adds a call and returns its id. `None` at the limit.
    #[inline]
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
        let place = self.slot_index(id);
        debug_assert!(self.places[place].is_none(), "a call has a place of its own");
        debug_assert!(!self.owed.contains_key(&id), "the answer to another call would be taken for that to this one");
        let state = CallState::Waiting(waker.cloned());
        self.places[place] = Some(CallEntry { id, operation, deadline, is_answered: false, state });
        self.len += 1;
        debug_assert!(self.len <= self.calls_max && 2 * self.len <= self.places.len(), "there is always a free place");
        if !self.operations.contains(&operation) {
            self.operations.push(operation);
        }
        Ok(Some(id))
    }

    /// Takes the result of a call, or stores the waker of its task.
    #[inline]
    pub(super) fn poll(&mut self, cx: &Context<'_>, id: u16) -> Poll<Result<CallReply, NoAnswer>> {
        let place = self.slot_index(id);
        let call = self.places[place].as_mut().expect("a call has its place until it is dropped");
        match &mut call.state {
            CallState::Done(result) => Poll::Ready(result.take().expect("a call is not polled when it is over")),
            CallState::Waiting(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Ends the call answered by a packet, with the packet's content or with `failure`.
    pub(super) fn complete(&mut self, packet: Packet, failure: Option<NoAnswer>) -> Result<Option<Waker>, Packet> {
        let operation = packet.operation.number();
        // An extended peer may answer any call with an extended packet.
        let is_extended = packet.operation == Operation::EXTENDED;
        if let Some(call) = self.get(packet.id).filter(|call| call.operation == operation || is_extended) {
            call.is_answered = true;
            let content = packet.content.into_bytes();
            let reply = if is_extended { CallReply::Extended(content) } else { CallReply::Plain(content) };
            return Ok(call.end(failure.map_or(Ok(reply), Err)));
        }
        let is_owed = self.owed.get(&packet.id).is_some_and(|owed| *owed == operation || is_extended);
        if !is_owed && (is_extended || !self.operations.contains(&operation)) {
            return Err(packet);
        }
        // An answer to another operation does not belong to the last call with this id.
        if is_owed {
            debug_assert!(self.get(packet.id).is_none(), "an id that is owed is not in use");
            self.owed.remove(&packet.id);
            self.update_calls_max();
            self.quarantine_id(packet.id);
        }
        Ok(None)
    }

    /// Returns `true` if a method with this operation was ever called.
    pub(super) fn has_called(&self, operation: Operation) -> bool {
        self.operations.contains(&operation.number())
    }

    /// Frees the slot of a call, and its id unless an answer may still arrive. Returns `true` in that case.
    #[inline]
    pub(super) fn remove(&mut self, id: u16, is_sent: bool) -> bool {
        let place = self.slot_index(id);
        let Some(call) = self.places[place].take() else { return false };
        debug_assert_eq!(call.id, id, "a call has its place until it is dropped");
        debug_assert!(self.len > 0, "every call is counted");
        debug_assert!(!call.is_answered || matches!(call.state, CallState::Done(_)), "an answer ends its call");
        self.len -= 1;
        if call.is_answered {
            self.quarantine_id(id);
        } else if is_sent && !self.is_closed() {
            // An answer may still arrive. The next call with this id would take it for its own.
            let before = self.owed.insert(id, call.operation);
            debug_assert_eq!(before, None, "an id that is owed is not given to another call");
            self.update_calls_max();
            return true;
        }
        false
    }

    /// Updates the current limit. Cancelled calls count against the peer's limit, because their handlers may still run.
    pub(super) fn update_calls_max(&mut self) {
        let of_peer = self.peer_max.map_or(usize::MAX, |peer| (peer as usize).saturating_sub(self.owed.len()));
        self.calls_max = self.own_max.min(of_peer);
    }

    /// Keeps an answered id from being reused soon.
    fn quarantine_id(&mut self, id: u16) {
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

    /// Ends calls at their deadlines, and finds the next deadline.
    pub(super) fn end_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        self.wake_at = None;
        for call in self.places.iter_mut().flatten() {
            match call.deadline {
                Some(deadline) if matches!(call.state, CallState::Waiting(_)) => {
                    if deadline <= now {
                        wakers.extend(call.end(Err(NoAnswer::TimedOut)));
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

    /// Ends all calls when the connection ends. The caller wakes the returned tasks without the lock.
    pub(super) fn end_all(&mut self, reason: &CloseReason) -> Vec<Waker> {
        let calls = self.places.iter_mut().flatten();
        calls.filter_map(|call| call.end(Err(NoAnswer::Closed(reason.clone())))).collect()
    }

    fn get(&mut self, id: u16) -> Option<&mut CallEntry> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.slot_index(id);
        self.places[place].as_mut().filter(|call| call.id == id)
    }

    fn slot_index(&self, id: u16) -> usize {
        debug_assert!(self.places.len().is_power_of_two(), "the mask is the remainder");
        usize::from(id) & (self.places.len() - 1)
    }

    /// Returns the next id that is neither in use nor owed nor resting.
    ///
    /// There always is one. Less than half of the slots are occupied, so more than half of the ids have a free slot. At
    /// most half of the ids are owed. A resting id is free again once the counter has passed it.
    fn free_id(&mut self) -> u16 {
        debug_assert!(2 * self.len < self.places.len() && !self.is_out_of_ids());
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            let is_resting = !self.resting.is_empty() && self.resting.remove(&id);
            if self.places[self.slot_index(id)].is_none() && !self.owed.contains_key(&id) && !is_resting {
                return id;
            }
        }
    }

    /// Doubles the number of slots. Ids with different remainders still have different ones afterwards.
    fn grow(&mut self) {
        let len = (2 * self.places.len()).max(PLACES_MIN);
        let calls = mem::replace(&mut self.places, iter::repeat_with(|| None).take(len).collect());
        for call in calls.into_iter().flatten() {
            let place = self.slot_index(call.id);
            debug_assert!(self.places[place].is_none(), "remainders that differ go on differing");
            self.places[place] = Some(call);
        }
    }
}

impl CallEntry {
    /// Ends the call, unless it has ended. The first end counts.
    fn end(&mut self, result: Result<CallReply, NoAnswer>) -> Option<Waker> {
        match &mut self.state {
            CallState::Done(_) => None,
            CallState::Waiting(waker) => {
                let waker = waker.take();
                self.state = CallState::Done(Some(result));
                waker
            }
        }
    }
}

/// Half of all ids.
pub(crate) const CALLS_MAX: usize = 1 << 15;
/// Half of all ids. With more of them owed, the connection takes no new calls.
const OWED_MAX: usize = 1 << 15;
/// An id at this distance from the counter needs no rest.
const REST_MAX: u16 = 1 << 15;
const PLACES_MIN: usize = 4;

#[cfg(test)]
mod tests;
