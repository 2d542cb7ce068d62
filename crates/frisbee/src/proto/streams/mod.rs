//! The streams of a connection. Both sides share one id space, and the first data on a free id opens a stream.
//!
//! ```text
//!   free id ──open() or data of the peer──▶ open ──close(), close of the peer, overflow──▶ ended, id free
//! ```
//! A peer that supports credit sends no more than the [window](ReceiveWindow) of a stream. From any other peer, a
//! stream with too much unread data stalls the connection until half of it is read, or ends after a timeout.
//!
//! An ended stream frees its id immediately. Its queued data stays readable until its handle is dropped. A stream
//! with a delayed close ends on this side without a packet. The close packet goes out before the next data of any
//! stream. If the peer reuses the id before that, no packet is sent, because it would close the new stream. With
//! credit, the close packet is not delayed: a peer that takes the old stream for open would add the credit of a
//! new one to it.

mod unread;

use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasherDefault,
    mem,
    ops::RangeInclusive,
    time::Duration,
};

use bytes::Bytes;
use slab::Slab;

pub use self::unread::PACKET_COST;
use self::unread::UnreadQueue;
use super::{
    credit::{CreditOverflow, ReceiveWindow, SendCredit, WindowBudget},
    id_hasher::IdHasher,
};
use crate::{
    Config,
    clock::Instant,
    error::{OpenError, StreamEnd},
};

/// Identifies a stream of a connection until its handle is dropped, even after reuse of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(usize);

#[derive(Debug)]
pub(super) struct Streams {
    entries: Slab<StreamEntry>,
    open: HashMap<u16, usize, BuildHasherDefault<IdHasher>>,
    /// The ids for streams opened by this side.
    ids: RangeInclusive<u16>,
    next_id: u16,
    streams_max: usize,
    /// The peer's limit on streams opened by this side, and their current number.
    pub(super) own_max: Option<u32>,
    own: u32,
    queue_len_max: usize,
    len_max: usize,
    stall_max: Duration,
    /// The number of streams stalling the connection.
    stalling: usize,
    /// Ids of streams closed on this side without telling the peer yet.
    unannounced: BTreeSet<u16>,
    /// Bytes held by all streams.
    len: usize,
    /// The time at which all streams together exceeded their limit.
    over_since: Option<Instant>,
    /// The budget for their windows.
    budget: WindowBudget,
    /// `true` if the peer respects windows and needs credit.
    gives_credit: bool,
    /// The initial window announced by the peer. `None` if it announced none, so sending is not limited.
    peer_window: Option<u32>,
    /// Streams ended by a stall and not yet reported.
    pub(super) overflowed: Vec<StreamKey>,
    /// Streams with enough owed credit to send. Some may have ended since.
    due: Vec<StreamKey>,
}

#[derive(Debug)]
struct StreamEntry {
    id: u16,
    unread: UnreadQueue,
    end: Option<StreamEnd>,
    /// The reason for ignoring further data from the peer on an open stream.
    input_end: Option<StreamEnd>,
    /// The time at which the unread data exceeded its limit.
    stalls_since: Option<Instant>,
    /// `true` if further data will not be read.
    is_ignored: bool,
    /// `true` if the close packet may be delayed.
    defers_close: bool,
    /// The credit for sending. Negative after sending before the peer's window is known.
    credit: SendCredit,
    /// The receive window for the peer's data.
    window: ReceiveWindow,
    /// The last claim counted in the budget.
    claim: usize,
    /// `true` if the stream is in `due`.
    is_due: bool,
}

/// The result of data from the peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DataOutcome {
    Opened(StreamKey),
    Queued(StreamKey),
    Ignored,
    Refused,
}

impl Streams {
    pub(super) fn new(ids: RangeInclusive<u16>, config: &Config) -> Self {
        Self {
            entries: Slab::new(),
            open: HashMap::default(),
            next_id: *ids.start(),
            ids,
            streams_max: config.streams_max,
            own_max: None,
            own: 0,
            queue_len_max: config.stream_queue_len_max,
            len_max: config.streams_len_max,
            stall_max: config.stream_stall_max,
            stalling: 0,
            len: 0,
            over_since: None,
            unannounced: BTreeSet::new(),
            budget: WindowBudget::new(config),
            gives_credit: false,
            peer_window: None,
            overflowed: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Starts to respect the peer's windows, if announced, and to give credit.
    pub(super) fn use_credit(&mut self, peer_window: Option<u32>) {
        self.gives_credit = true;
        self.peer_window = peer_window;
        for key in self.open.values().copied() {
            let entry = &mut self.entries[key];
            // Bytes sent and received earlier count.
            entry.credit.open(peer_window.unwrap_or(0));
            if entry.window.is_due(true) {
                entry.is_due = true;
                self.due.push(StreamKey(key));
            }
        }
    }

    /// Returns `true` if no further data may be handled for now.
    pub(super) fn stall(&self) -> bool {
        self.stalling > 0 || self.over_since.is_some()
    }

    /// Returns the end of the earliest stall.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.stall() { self.stall_due() } else { None }
    }

    #[cold]
    fn stall_due(&self) -> Option<Instant> {
        let stalls = self.entries.iter().filter_map(|(_, entry)| entry.stalls_since);
        stalls.chain(self.over_since).min()?.checked_add(self.stall_max)
    }

    /// Ends a stream stalled for too long, or the largest one if all together hold too much for too long.
    pub(super) fn end_stalled(&mut self, now: Instant) -> Option<StreamKey> {
        if !self.stall() {
            return None;
        }
        let stall_max = self.stall_max;
        let is_due = |since: Option<Instant>| since.is_some_and(|since| now.duration_since(since) >= stall_max);
        if let Some((key, _)) = self.entries.iter().find(|(_, entry)| is_due(entry.stalls_since)) {
            self.end(StreamKey(key), StreamEnd::Overflow);
            self.overflowed.push(StreamKey(key));
            return Some(StreamKey(key));
        }
        while is_due(self.over_since) {
            let (key, entry) = self.entries.iter_mut().max_by_key(|(_, entry)| entry.held_len())?;
            // The reader may still hold the content, but learns of the end with its next read.
            let (len, was_open) = (entry.unread.clear(), entry.end.is_none());
            self.end(StreamKey(key), StreamEnd::Overflow);
            self.release(StreamKey(key), len, true);
            // An ended stream only frees its data, and the search goes on.
            if was_open {
                self.overflowed.push(StreamKey(key));
                return Some(StreamKey(key));
            }
        }
        None
    }

    /// Returns the number of streams, including ended streams with a live handle.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Opens a stream with the next free id. Ids advance, so a late packet of an ended stream rarely hits a new
    /// one.
    pub(super) fn open_next(&mut self) -> Result<StreamKey, OpenError> {
        for _ in self.ids.clone() {
            let id = self.next_id;
            self.next_id = if id == *self.ids.end() { *self.ids.start() } else { id + 1 };
            if !self.open.contains_key(&id) {
                return self.open(id);
            }
        }
        Err(OpenError::TooManyStreams { limit: self.ids.len() })
    }

    pub(super) fn open(&mut self, id: u16) -> Result<StreamKey, OpenError> {
        if self.open.contains_key(&id) {
            return Err(OpenError::IdInUse);
        }
        if self.entries.len() >= self.streams_max {
            return Err(OpenError::TooManyStreams { limit: self.streams_max });
        }
        if let Some(limit) = self.own_max
            && self.ids.contains(&id)
            && self.own >= limit
        {
            return Err(OpenError::TooManyForPeer { limit });
        }
        let key = self.entries.insert(StreamEntry {
            id,
            unread: UnreadQueue::default(),
            end: None,
            input_end: None,
            stalls_since: None,
            is_ignored: false,
            defers_close: false,
            credit: SendCredit::new(self.peer_window.unwrap_or(0)),
            window: ReceiveWindow::new(&self.budget),
            claim: 0,
            is_due: false,
        });
        self.open.insert(id, key);
        self.own += u32::from(self.ids.contains(&id));
        Ok(StreamKey(key))
    }

    pub(super) fn handle_data(&mut self, now: Instant, id: u16, content: Bytes) -> DataOutcome {
        let (key, opened) = match self.open.get(&id) {
            Some(&key) => (StreamKey(key), false),
            None => {
                // From now on, a close packet would end the stream opened by this data.
                self.unannounced.remove(&id);
                match self.open(id) {
                    Ok(key) => (key, true),
                    Err(_) => return DataOutcome::Refused,
                }
            }
        };
        let entry = &mut self.entries[key.0];
        let cost = content.len() + PACKET_COST;
        let had_credit = entry.window.receive(now, entry.held_len()) && self.gives_credit;
        if entry.is_ignored || entry.input_end.is_some() {
            self.pay_back(key, cost, true);
            return DataOutcome::Ignored;
        }
        // A single content always fits.
        if self.len > 0 && self.len + cost > self.len_max {
            self.over_since.get_or_insert(now);
        }
        self.len += cost;
        entry.unread.push(content);
        // Data within the window is no reason to stall: the peer was allowed to send it.
        if entry.unread.is_over(self.queue_len_max) && !had_credit && entry.stalls_since.is_none() {
            entry.stalls_since = Some(now);
            self.stalling += 1;
        }
        self.count(key);
        if opened { DataOutcome::Opened(key) } else { DataOutcome::Queued(key) }
    }

    /// Handles data with a discarded content. It ends the input of the stream.
    pub(super) fn handle_too_large(&mut self, now: Instant, id: u16, announced: u32, limit: u32) -> DataOutcome {
        let Some(&key) = self.open.get(&id) else { return DataOutcome::Refused };
        let entry = &mut self.entries[key];
        entry.window.receive(now, entry.held_len());
        let is_heard = !entry.is_ignored && entry.input_end.is_none();
        if is_heard {
            entry.input_end = Some(StreamEnd::TooLarge { announced, limit });
        }
        self.pay_back(StreamKey(key), announced as usize + PACKET_COST, true);
        if is_heard { DataOutcome::Queued(StreamKey(key)) } else { DataOutcome::Ignored }
    }

    /// Handles a close from the peer. Returns the stream it ended, if any.
    pub(super) fn handle_close(&mut self, id: u16) -> Option<StreamKey> {
        self.unannounced.remove(&id);
        let key = StreamKey(*self.open.get(&id)?);
        self.end(key, StreamEnd::ClosedByPeer);
        Some(key)
    }

    /// Takes the next content of the stream. Returns `Ok(None)` if there is none yet, and an error after the end.
    pub(super) fn read(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        let entry = &mut self.entries[key.0];
        // The reader has finished with the previous content.
        let done = entry.unread.finish_taken();
        let next = match (entry.unread.pop(), entry.input_end.or(entry.end)) {
            (Some(content), _) => {
                if entry.unread.is_below_half(self.queue_len_max) {
                    self.relieve(key);
                }
                Ok(Some(content))
            }
            (None, Some(end)) => Err(end),
            (None, None) => Ok(None),
        };
        self.release(key, done, matches!(next, Ok(None)));
        next
    }

    /// Returns the next content without taking it. As in [`read`](Self::read), the reader has finished with the
    /// previous one.
    pub(super) fn peek(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        let entry = &mut self.entries[key.0];
        let (done, waits) = (entry.unread.finish_taken(), entry.unread.is_empty());
        self.release(key, done, waits);
        let entry = &self.entries[key.0];
        match (entry.unread.front(), entry.input_end.or(entry.end)) {
            (None, Some(end)) => Err(end),
            (next, _) => Ok(next.cloned()),
        }
    }

    /// Drops all unread and future data.
    pub(super) fn ignore(&mut self, key: StreamKey) {
        let entry = &mut self.entries[key.0];
        entry.is_ignored = true;
        let len = entry.unread.clear();
        self.release(key, len, true);
        self.relieve(key);
    }

    /// Returns `true` if data may be sent now, and `false` if the stream waits for credit.
    pub(super) fn has_credit(&self, key: StreamKey) -> bool {
        let entry = &self.entries[key.0];
        self.peer_window.is_none() || entry.credit.may_send() || entry.end.is_some()
    }

    /// Returns the number of streams that wait for credit.
    pub(super) fn blocked_len(&self) -> usize {
        self.open.values().filter(|key| !self.has_credit(StreamKey(**key))).count()
    }

    /// Subtracts the cost of data of this length from the credit.
    pub(super) fn spend_credit(&mut self, key: StreamKey, len: usize) {
        self.entries[key.0].credit.spend(len + PACKET_COST);
    }

    /// Handles credit from the peer. Returns the stream if it was out of credit.
    pub(super) fn handle_credit(&mut self, id: u16, len: u32) -> Result<Option<StreamKey>, CreditOverflow> {
        let Some(&key) = self.open.get(&id) else { return Ok(None) };
        Ok(self.entries[key].credit.grant(len)?.then_some(StreamKey(key)))
    }

    /// Stops respecting the peer's windows.
    pub(super) fn ignore_credit(&mut self) {
        self.peer_window = None;
    }

    /// Returns `true` if there may be credit to send.
    pub(super) fn owes_credit(&self) -> bool {
        !self.due.is_empty()
    }

    /// Drops all due credit, for a peer that will not receive it.
    pub(super) fn discard_credit(&mut self) {
        self.due.clear();
    }

    /// Returns the next credit to send, with the id of its stream.
    pub(super) fn poll_credit(&mut self, now: Instant, round_trip: Option<Duration>) -> Option<(u16, u32)> {
        while let Some(key) = self.due.pop() {
            let Some(entry) = self.entries.get_mut(key.0).filter(|entry| entry.is_due && entry.end.is_none()) else {
                continue;
            };
            let given = entry.window.take_credit(now, round_trip, &self.budget, entry.claim);
            entry.is_due = entry.window.is_due(true);
            if entry.is_due {
                self.due.push(key);
            }
            let id = entry.id;
            self.count(key);
            if given > 0 {
                return Some((id, given));
            }
        }
        None
    }

    pub(super) fn id(&self, key: StreamKey) -> u16 {
        self.entries[key.0].id
    }

    /// Returns `true` if this side opened the stream.
    pub(super) fn is_own(&self, key: StreamKey) -> bool {
        self.ids.contains(&self.id(key))
    }

    /// Returns the cause of the stream's end, if it has ended.
    pub(super) fn ended(&self, key: StreamKey) -> Option<StreamEnd> {
        self.entries[key.0].end
    }

    /// Ends the stream on this side. Returns `true` if the close packet must be sent immediately.
    pub(super) fn close(&mut self, key: StreamKey) -> bool {
        let StreamEntry { id, end, defers_close, .. } = self.entries[key.0];
        if end.is_some() {
            return false;
        }
        self.end(key, StreamEnd::Closed);
        // The number of delayed closes is bounded, because ids can be closed without any data being sent.
        if defers_close && !self.gives_credit && self.unannounced.len() < self.streams_max {
            self.unannounced.insert(id);
            return false;
        }
        true
    }

    /// Makes [`close`](Self::close) leave the close packet to [`take_unannounced`](Self::take_unannounced).
    pub(super) fn defer_close(&mut self, key: StreamKey) {
        self.entries[key.0].defers_close = true;
    }

    /// Returns the ids of closed streams to announce before the next data.
    pub(super) fn take_unannounced(&mut self) -> BTreeSet<u16> {
        mem::take(&mut self.unannounced)
    }

    /// Removes an ended stream after its last handle is dropped.
    pub(super) fn remove(&mut self, key: StreamKey) {
        debug_assert!(self.entries[key.0].end.is_some(), "a stream is closed before it is forgotten");
        let entry = self.entries.remove(key.0);
        self.let_go(entry.held_len());
        self.budget.count(entry.claim, 0);
    }

    pub(super) fn end_all(&mut self) {
        self.open.clear();
        self.own = 0;
        self.unannounced.clear();
        self.due.clear();
        self.stalling = 0;
        self.over_since = None;
        for (_, entry) in &mut self.entries {
            entry.stalls_since = None;
            entry.end.get_or_insert(StreamEnd::ConnectionClosed);
        }
    }

    /// Copies small unread contents out of the read buffers they pin.
    pub(super) fn detach(&mut self) {
        for (_, entry) in &mut self.entries {
            entry.unread.detach();
        }
    }

    /// Ends an open stream for this reason. An earlier end is kept.
    fn end(&mut self, key: StreamKey, end: StreamEnd) {
        let entry = &mut self.entries[key.0];
        if entry.end.is_none() {
            entry.end = Some(end);
            self.open.remove(&entry.id);
            self.own -= u32::from(self.ids.contains(&entry.id));
            self.relieve(key);
            self.count(key);
        }
    }

    /// Counts bytes no longer held by a stream.
    fn release(&mut self, key: StreamKey, len: usize, reader_waits: bool) {
        if len > 0 {
            self.let_go(len);
            self.pay_back(key, len, reader_waits);
        }
    }

    fn let_go(&mut self, len: usize) {
        self.len -= len;
        if self.len <= self.len_max {
            self.over_since = None;
        }
    }

    /// Adds the credit owed to the peer for bytes no longer held.
    fn pay_back(&mut self, key: StreamKey, len: usize, reader_waits: bool) {
        let entry = &mut self.entries[key.0];
        entry.window.release(len);
        let is_due = entry.window.is_due(reader_waits) && self.gives_credit && entry.end.is_none();
        if is_due && !mem::replace(&mut entry.is_due, true) {
            self.due.push(key);
        }
        self.count(key);
    }

    /// Updates the stream's claim in the budget.
    fn count(&mut self, key: StreamKey) {
        let entry = &mut self.entries[key.0];
        let claim = entry.new_claim();
        if claim != entry.claim {
            self.budget.count(mem::replace(&mut entry.claim, claim), claim);
        }
    }

    /// Ends the stall of a stream, if any.
    fn relieve(&mut self, key: StreamKey) {
        if self.entries[key.0].stalls_since.take().is_some() {
            self.stalling -= 1;
        }
    }
}

impl StreamEntry {
    /// Returns the cost of unread data and of the last content taken by the reader.
    fn held_len(&self) -> usize {
        self.unread.held_len()
    }

    /// Returns the most bytes the stream may come to hold.
    fn new_claim(&self) -> usize {
        let takes_more = self.end.is_none() && self.input_end.is_none() && !self.is_ignored;
        if takes_more { self.window.claim(self.held_len()) } else { self.held_len() }
    }
}

#[cfg(test)]
static NOW: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;
