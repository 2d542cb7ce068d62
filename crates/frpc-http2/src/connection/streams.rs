//! The streams of a connection, found by their ids.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use bytes::Bytes;

use super::prepared::PreparedBlock;
use crate::hpack::OwnedField;

/// A stream.
///
/// ```text
///        request          END_STREAM of one side        END_STREAM of the other      data released
///   idle ───────▶ open ─────────────────────────▶ half-closed ──────────────▶ closed ───────────▶ removed
///                  └─────────────────────────────────┴── RST_STREAM of a side ────────────────────▲
/// ```
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) id: u32,
    flags: u16,
    /// Bytes of data the peer may still send. SETTINGS may make it negative.
    pub(super) receive_window: i64,
    /// Bytes of data in events and not yet released.
    pub(super) unreleased: usize,
    /// Bytes released and not yet announced to the peer.
    pub(super) due: usize,
    /// Bytes of data the peer still accepts.
    pub(super) send_window: i64,
    /// Bytes of data left of `content-length`, if the peer announced one.
    pub(super) content_left: Option<u64>,
    /// Data for sending. Empty queues are kept for later data.
    pub(super) queue: Option<Box<SendQueue>>,
}

/// DATA frames below this length count as small if a window has cut them.
pub(super) const SMALL_FRAME: usize = 256;

/// Flags of a stream.
pub(super) mod is {
    /// The peer has ended its direction.
    pub(in super::super) const REMOTE_ENDED: u16 = 1;
    /// END_STREAM of this side is in the output.
    pub(in super::super) const LOCAL_ENDED: u16 = 2;
    /// The request or the final response of the peer has arrived.
    pub(in super::super) const HEAD_RECEIVED: u16 = 4;
    /// The request or the final response of this side is in the output.
    pub(in super::super) const HEAD_SENT: u16 = 8;
    /// Both sides have ended the stream, which stays until its data is released.
    pub(in super::super) const CLOSED: u16 = 16;
    /// The request is a HEAD request: `content-length` of its response announces no data.
    pub(in super::super) const HEAD_REQUEST: u16 = 32;
    /// The application gets an event once the queue has room.
    pub(in super::super) const WANTS_WRITABLE: u16 = 64;
}

impl StreamState {
    pub(super) fn new(id: u32, receive_window: i64, send_window: i64) -> Self {
        let (unreleased, due) = (0, 0);
        Self { id, flags: 0, receive_window, unreleased, due, send_window, content_left: None, queue: None }
    }

    #[inline]
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    pub(super) fn unset(&mut self, flag: u16) {
        self.flags &= !flag;
    }

    /// Returns the bytes queued for sending.
    pub(super) fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len)
    }

    /// Returns `true` if the window has no room for a frame. Tiny windows count as closed. Otherwise they would escape the
    /// limit on small frames, and hold back streams whose data found no room in the queue.
    pub(super) fn is_window_closed(&self) -> bool {
        usize::try_from(self.send_window).unwrap_or(0) < SMALL_FRAME
    }

    /// Returns the data that may go out now without a queue, in bytes. `max` is the limit for all streams.
    pub(super) fn direct_max(&self, max: usize) -> usize {
        let room = max.min(usize::try_from(self.send_window).unwrap_or(0));
        if self.queued() == 0 && room >= SMALL_FRAME { room } else { 0 }
    }

    /// Returns `true` if this side has ended the stream, perhaps after queued data.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.has(is::LOCAL_ENDED) || self.queue.as_ref().is_some_and(|queue| queue.end.is_some())
    }
}

/// Data of a stream that windows or other streams hold back.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) len: usize,
    pub(super) end: Option<StreamEnd>,
    /// `true` while the stream is in the list of the scheduler.
    pub(super) is_ready: bool,
    /// The time since which the windows of the stream hold back data.
    pub(super) parked: Option<Instant>,
    /// Bytes sent since then.
    pub(super) progress: usize,
}

/// The end of a stream after its queued data.
#[derive(Debug)]
pub(super) enum StreamEnd {
    Data,
    /// Trailers are encoded when they are sent: the order of blocks on the wire is the order of table changes.
    Trailers(Option<PreparedBlock>, Box<[OwnedField]>),
}

/// The rest of a removed stream.
#[derive(Debug)]
pub(super) struct RemovedStream {
    pub(super) is_closed: bool,
    /// Bytes of data in events and not yet released.
    pub(super) unreleased: usize,
    /// Bytes queued for sending.
    pub(super) queued: usize,
    /// `true` if the stream is in the list of the scheduler.
    pub(super) is_ready: bool,
}

/// Streams by id.
///
/// Ids come in sequence, so the place of a stream follows from its id. A stream whose place is taken by an older one is
/// in a map.
#[derive(Debug)]
pub(super) struct StreamTable {
    /// Positions in `streams` plus one, or zero, each in the place for its id. The length is a power of two.
    direct: Box<[u32]>,
    /// Boxed, because most connections have none.
    others: Option<Box<OtherStreams>>,
    /// Streams, and free positions with the id [`FREE`]. The `due` of a free one is the next one plus one, or zero.
    streams: Vec<StreamState>,
    /// The first free position plus one, or zero.
    free: u32,
    len: u32,
    /// The position of the last stream found. Most frames and calls concern the same stream as the one before.
    latest: u32,
    /// The position of the newest stream plus one, or zero, if that stream has no entry yet. Many streams of servers end
    /// before the next one begins.
    newest: u32,
}

/// The positions of streams whose places are taken, by their ids.
#[derive(Debug, Default)]
struct OtherStreams(BTreeMap<u32, u32>);

const PLACES_MIN: usize = 16;

/// No stream has this id: ids have 31 bits.
const FREE: u32 = u32::MAX;

impl StreamTable {
    pub(super) fn new() -> Self {
        let direct = vec![0; PLACES_MIN].into();
        Self { direct, others: None, streams: Vec::new(), free: 0, len: 0, latest: 0, newest: 0 }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the place for an id. The ids of one side are all odd or all even.
    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.direct.len() - 1)
    }

    #[inline]
    pub(super) fn get(&mut self, id: u32) -> Option<&mut StreamState> {
        if self.streams.get(self.latest as usize).is_none_or(|stream| stream.id != id) {
            self.latest = match self.direct[self.place(id)].checked_sub(1) {
                Some(at) if self.streams[at as usize].id == id => at,
                _ if self.is_newest(id) => self.newest - 1,
                _ => *self.others.as_ref()?.0.get(&id)?,
            };
        }
        self.streams.get_mut(self.latest as usize)
    }

    /// Returns `true` for the stream that has no entry.
    #[inline]
    fn is_newest(&self, id: u32) -> bool {
        (self.newest as usize).checked_sub(1).is_some_and(|at| self.streams[at].id == id)
    }

    #[inline(always)] // The stream is made in its place.
    pub(super) fn insert(&mut self, stream: StreamState) {
        debug_assert!(self.get(stream.id).is_none(), "ids are used once");
        if let Some(at) = self.newest.checked_sub(1) {
            self.link_newest(at);
        }
        self.len += 1;
        match self.free.checked_sub(1) {
            Some(at) => {
                let place = &mut self.streams[at as usize];
                self.free = u32::try_from(place.due).unwrap_or(0);
                *place = stream;
                self.latest = at;
            }
            None => {
                self.latest = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
                self.streams.push(stream);
            }
        }
        self.newest = self.latest + 1;
    }

    #[inline]
    fn link_newest(&mut self, at: u32) {
        // Half of the places stay free, so few streams find theirs taken.
        if self.len as usize * 2 > self.direct.len() {
            self.grow();
        } else {
            self.link(self.streams[at as usize].id, at);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.direct = vec![0; self.direct.len() * 2].into();
        self.others = None;
        for at in 0..self.streams.len() {
            let id = self.streams[at].id;
            if id != FREE {
                self.link(id, u32::try_from(at).unwrap_or(u32::MAX));
            }
        }
    }

    #[inline]
    fn link(&mut self, id: u32, at: u32) {
        let place = self.place(id);
        match &mut self.direct[place] {
            free @ 0 => *free = at + 1,
            _ => self.link_other(id, at),
        }
    }

    #[cold]
    fn link_other(&mut self, id: u32, at: u32) {
        self.others.get_or_insert_default().0.insert(id, at);
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<RemovedStream> {
        let at = if self.is_newest(id) { std::mem::take(&mut self.newest) - 1 } else { self.unlink(id)? };
        self.len -= 1;
        let stream = &mut self.streams[at as usize];
        (stream.id, stream.due) = (FREE, self.free as usize);
        self.free = at + 1;
        let queue = stream.queue.take();
        Some(RemovedStream {
            is_closed: stream.has(is::CLOSED),
            unreleased: stream.unreleased,
            queued: queue.as_ref().map_or(0, |queue| queue.len),
            is_ready: queue.is_some_and(|queue| queue.is_ready),
        })
    }

    /// Removes the entry of a stream. Returns its position.
    #[inline]
    fn unlink(&mut self, id: u32) -> Option<u32> {
        let place = self.place(id);
        match self.direct[place].checked_sub(1) {
            Some(at) if self.streams[at as usize].id == id => {
                self.direct[place] = 0;
                Some(at)
            }
            _ => self.others.as_mut()?.0.remove(&id),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.streams.iter_mut().filter(|stream| stream.id != FREE)
    }

    /// Frees the spare capacity, if there are no streams.
    pub(super) fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::new();
        }
    }

    pub(super) fn memory(&self) -> usize {
        let others = self.others.as_ref().map_or(0, |others| others.0.len() * size_of::<(u32, u32)>());
        self.direct.len() * size_of::<u32>() + others + self.streams.capacity() * size_of::<StreamState>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_agrees_with_a_set() {
        let (mut table, mut set, mut seed) = (StreamTable::new(), BTreeSet::new(), 1u32);
        for step in 0..20_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let id = (seed >> 16) % 400 * 2 + 1;
            if step % 3 == 0 {
                assert_eq!(table.remove(id).is_some(), set.remove(&id));
            } else if set.insert(id) {
                table.insert(StreamState::new(id, 0, 0));
            }
            assert_eq!(table.len(), set.len());
            let probe = (seed >> 8) % 400 * 2 + 1;
            assert_eq!(table.get(probe).is_some(), set.contains(&probe));
        }
        for id in set {
            assert!(table.remove(id).is_some());
        }
        assert_eq!(table.len(), 0);
    }
}
