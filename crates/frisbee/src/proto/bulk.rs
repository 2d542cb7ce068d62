//! Large contents on their way out between extended peers. They wait beside the other frames, which go ahead of them, and
//! travel in pieces with other frames in between while there are any.
//!
//! A connection that sends large contents only sends them whole: pieces would cost it something and help nobody. Once it
//! has sent anything else lately, it cuts what is next, and keeps the bytes that are under way to a window, because what
//! the kernel and the peer have got already cannot be overtaken.
//!
//! Frames that belong together stay in order: one with the id of a content that waits here waits behind it.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};

use super::{
    flight::Flight,
    frames::Frames,
    header::{Header, HeaderFormat, Kind},
    id_hasher::IdHasher,
    pieces,
    share::{Cause, Share},
    transmit::{Part, Transmit},
};
use crate::Content;

/// The contents that wait, and the frames behind them that have the same ids.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    queue: VecDeque<Waiting>,
    /// The number of frames in the queue for each id of streams, and of packets.
    ids: HashMap<(bool, u16), u32, BuildHasherDefault<IdHasher>>,
    /// True if some pieces of the first content were handed out, and not the last.
    is_begun: bool,
    /// Bytes that were queued and not written, headers of pieces not counted.
    pub(super) len: usize,
    pub(super) replies: Share,
    pub(super) peer_induced: Share,
    /// The bytes of pieces under way.
    pub(super) flight: Flight,
    /// The time at which any other frame was handed out last.
    others_sent: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    header: Header,
    /// The rest of the content.
    content: VecDeque<Bytes>,
    left: usize,
    /// Its number among all packets ever queued.
    number: u64,
}

impl Bulk {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Tells whether a frame has to wait here.
    pub(super) fn takes(&self, header: Header) -> bool {
        header.len as usize >= PIECED_LEN_MIN || !self.queue.is_empty() && self.ids.contains_key(&ids_of(header))
    }

    /// Tells whether any of these frames has to wait here.
    pub(super) fn takes_any(&self, frames: &Frames) -> bool {
        frames.content_len_max() >= PIECED_LEN_MIN
            || !self.queue.is_empty() && frames.each().any(|(header, _)| self.takes(header))
    }

    /// Returns the number of the first packet that was not handed out whole.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.queue.front().map(|waiting| waiting.number)
    }

    /// Queues a frame that has `frame_len` bytes when it goes whole.
    pub(super) fn push(&mut self, header: Header, content: Content, cause: Cause, frame_len: usize, number: u64) {
        self.len += frame_len;
        self.replies.handle_queued(frame_len, cause == Cause::Reply);
        self.peer_induced.handle_queued(frame_len, cause == Cause::PeerInduced);
        let content = content.into_one().map_or_else(VecDeque::from, |one| VecDeque::from([one]));
        *self.ids.entry(ids_of(header)).or_default() += 1;
        self.queue.push_back(Waiting { header, content, left: header.len as usize, number });
    }

    pub(super) fn handle_written(&mut self, len: usize) {
        self.len -= len;
        self.replies.handle_written(len);
        self.peer_induced.handle_written(len);
    }

    /// Notes that other frames are handed out.
    pub(super) fn handle_others_sent(&mut self, now: Instant) {
        self.others_sent = Some(now);
    }

    /// Adds what is next to a batch that may be as long as `len_max`, in pieces or whole. Returns how many bytes are added that
    /// were not queued, and whether a PING is to follow, which tells when the peer has got this far.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        format: HeaderFormat,
        len_max: usize,
        batch: &mut Transmit,
    ) -> (usize, bool) {
        let is_recent = |sent| now.saturating_duration_since(sent) < OTHERS_RECENT;
        let cuts = self.flight.is_limited() && self.others_sent.is_some_and(is_recent);
        if cuts {
            if self.flight.is_full(now) {
                return (0, false);
            }
            let added = self.hand_out(format, PIECE_LEN, batch);
            return (added, self.flight.handle_sent(PIECE_LEN));
        }
        let mut added = self.hand_out(format, usize::MAX, batch);
        while batch.remaining() < len_max && !self.queue.is_empty() {
            added += self.hand_out(format, usize::MAX, batch);
        }
        (added, false)
    }

    /// Hands out the first frame, or a piece of it with at most `len_max` bytes if it is longer or begun. Returns how many bytes
    /// go out that were not queued.
    fn hand_out(&mut self, format: HeaderFormat, len_max: usize, batch: &mut Transmit) -> usize {
        let Some(waiting) = self.queue.front_mut() else { return 0 };
        let mut head = BytesMut::with_capacity(HEAD_LEN_MAX);
        let whole = waiting.left;
        let len = if self.is_begun || whole > len_max {
            pieces::encode_head(waiting.header, self.is_begun, whole.min(len_max), format, &mut head)
        } else {
            waiting.header.encode(format, &mut head);
            whole
        };
        // The header of a whole frame was counted when that was queued.
        let added = head.len() - if self.is_begun { 0 } else { format.header_len() };
        batch.attempted = batch.attempted.max(waiting.number);
        batch.push(Part::Content(head.freeze()));
        waiting.hand_out(len, batch);
        self.is_begun = waiting.left > 0;
        if !self.is_begun {
            let ids = ids_of(waiting.header);
            self.queue.pop_front();
            if let Some(count) = self.ids.get_mut(&ids) {
                *count -= 1;
                if *count == 0 {
                    self.ids.remove(&ids);
                }
            }
        }
        added
    }
}

impl Waiting {
    fn hand_out(&mut self, mut len: usize, batch: &mut Transmit) {
        self.left -= len;
        while len > 0
            && let Some(first) = self.content.front_mut()
        {
            let here = len.min(first.len());
            batch.push(Part::Content(first.split_to(here)));
            len -= here;
            if !first.has_remaining() {
                self.content.pop_front();
            }
        }
    }
}

/// Streams and packets have ids of their own. A control frame behind others is about a packet.
fn ids_of(header: Header) -> (bool, u16) {
    (header.kind() == Kind::Stream, header.id)
}

/// Contents below this length are never cut: about as much as goes into one write.
pub(super) const PIECED_LEN_MIN: usize = 64 * 1024;
/// The length of a piece without its header.
const PIECE_LEN: usize = 32 * 1024;
/// The time for which contents are cut after another frame was sent.
const OTHERS_RECENT: Duration = Duration::from_secs(1);
const HEAD_LEN_MAX: usize = 16;
