//! The queue of large outgoing contents between extended peers. Other frames overtake them.
//!
//! A connection that sends large contents only sends them whole, because pieces would cost time without a benefit.
//! If it has sent other frames recently, it cuts the next content into pieces, with other frames in between. It
//! also limits the bytes in flight to a window, because nothing can overtake bytes already in the kernel or at the
//! peer.
//!
//! Frames with a common id stay in order: a frame with the id of a queued content is queued after it.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};

use super::{
    flight::PiecesInFlight,
    frames::Frames,
    header::{FrameKind, Header, HeaderFormat},
    id_hasher::IdHasher,
    pieces,
    share::{FrameCause, QueuedBytes},
    transmit::{BatchPart, Transmit},
};
use crate::{Content, clock::Instant};

/// Queued large contents, and later frames with the same ids.
#[derive(Debug, Default)]
pub(super) struct BulkQueue {
    queue: VecDeque<QueuedContent>,
    /// The number of queued frames by id. Streams and packets have separate ids.
    ids: HashMap<(bool, u16), u32, BuildHasherDefault<IdHasher>>,
    /// `true` after some pieces of the first content were handed out, until the last one is.
    is_begun: bool,
    /// Bytes queued and not yet written, without headers of pieces.
    pub(super) len: usize,
    pub(super) replies: QueuedBytes,
    pub(super) peer_induced: QueuedBytes,
    /// Bytes of pieces in flight.
    pub(super) flight: PiecesInFlight,
    /// The last time another frame was handed out.
    others_sent: Option<Instant>,
}

#[derive(Debug)]
struct QueuedContent {
    header: Header,
    /// The rest of the content.
    content: VecDeque<Bytes>,
    left: usize,
    /// The sequence number of the packet in the outbox.
    number: u64,
}

impl BulkQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if a frame must be queued here.
    pub(super) fn must_queue(&self, header: Header) -> bool {
        header.len as usize >= PIECED_LEN_MIN || !self.queue.is_empty() && self.ids.contains_key(&ids_of(header))
    }

    /// Returns `true` if any of these frames must be queued here.
    pub(super) fn must_queue_any(&self, frames: &Frames) -> bool {
        frames.content_len_max() >= PIECED_LEN_MIN
            || !self.queue.is_empty() && frames.each().any(|(header, _)| self.must_queue(header))
    }

    /// Returns the sequence number of the first packet not completely handed out.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.queue.front().map(|waiting| waiting.number)
    }

    /// Queues a frame. `frame_len` is its length if sent whole.
    pub(super) fn push(&mut self, header: Header, content: Content, cause: FrameCause, frame_len: usize, number: u64) {
        self.len += frame_len;
        self.replies.handle_queued(frame_len, cause == FrameCause::Reply);
        self.peer_induced.handle_queued(frame_len, cause == FrameCause::PeerInduced);
        let content = content.into_one().map_or_else(VecDeque::from, |one| VecDeque::from([one]));
        *self.ids.entry(ids_of(header)).or_default() += 1;
        self.queue.push_back(QueuedContent { header, content, left: header.len as usize, number });
    }

    pub(super) fn handle_written(&mut self, len: usize) {
        self.len -= len;
        self.replies.handle_written(len);
        self.peer_induced.handle_written(len);
    }

    /// Records that other frames were handed out.
    pub(super) fn handle_others_sent(&mut self, now: Instant) {
        self.others_sent = Some(now);
    }

    /// Adds the next frames, whole or in pieces, to a batch of about `len_max` bytes.
    ///
    /// Returns the bytes added beyond those queued, and `true` if a PING must follow. Its PONG shows that the peer
    /// has read up to there.
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
            // One piece per batch, so other frames can go in between.
            let added = self.hand_out(format, PIECE_LEN, batch);
            return (added, self.flight.handle_sent(PIECE_LEN));
        }
        let mut added = self.hand_out(format, usize::MAX, batch);
        while batch.remaining() < len_max && !self.queue.is_empty() {
            added += self.hand_out(format, usize::MAX, batch);
        }
        (added, false)
    }

    /// Hands out the first frame, or its next piece of at most `len_max` bytes. Returns the bytes added beyond
    /// those queued.
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
        // The header of a whole frame was counted when the frame was queued.
        let added = head.len() - if self.is_begun { 0 } else { format.header_len() };
        batch.attempted = batch.attempted.max(waiting.number);
        batch.push(BatchPart::Content(head.freeze()));
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

impl QueuedContent {
    fn hand_out(&mut self, mut len: usize, batch: &mut Transmit) {
        self.left -= len;
        while len > 0
            && let Some(first) = self.content.front_mut()
        {
            let here = len.min(first.len());
            batch.push(BatchPart::Content(first.split_to(here)));
            len -= here;
            if !first.has_remaining() {
                self.content.pop_front();
            }
        }
    }
}

/// Streams and packets have separate ids. A control frame queued here refers to a packet.
fn ids_of(header: Header) -> (bool, u16) {
    (header.kind() == FrameKind::Stream, header.id)
}

/// The smallest content to be cut, in bytes. Smaller ones fit about one write.
pub const PIECED_LEN_MIN: usize = 64 * 1024;
/// The length of a piece without its header.
const PIECE_LEN: usize = 32 * 1024;
/// The time for which contents are cut after another frame was sent.
const OTHERS_RECENT: Duration = Duration::from_secs(1);
/// Enough for the header of a first piece.
const HEAD_LEN_MAX: usize = 16;
