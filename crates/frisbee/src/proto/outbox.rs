//! The queue of outgoing frames. Small frames share one buffer. Large contents are not copied, and have a separate
//! queue if the peer accepts pieces.

use std::{collections::VecDeque, mem};

use bytes::{Buf, Bytes, BytesMut};

use super::{
    bulk::{BulkQueue, PIECED_LEN_MIN},
    checksum::{self, ChecksumState},
    control::Control,
    flight::PiecesInFlight,
    frames::{self, Frames},
    header::{Header, HeaderFormat},
    share::{FrameCause, QueuedBytes},
    transmit::{BatchPart, COPY_LEN_MAX, FLAT_LEN_MAX, Transmit},
};
use crate::{Content, clock::Instant};

/// The queue of frames to write.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Unknown on an accepting side before its first input. Nothing can be encoded until then.
    format: Option<HeaderFormat>,
    held: Vec<(Header, Content)>,
    parts: VecDeque<BatchPart>,
    /// Frames being collected, after `parts`.
    tail: BytesMut,
    /// Control frames to send before everything else.
    control: BytesMut,
    ping: bool,
    pongs: u32,
    /// The id of PONGs: the load of this side, if the peer asks for it.
    pub(super) pong_id: u16,
    packets: u64,
    /// The number of `packets` not in `held`.
    encoded: u64,
    /// Bytes queued or handed out and not yet written.
    len: usize,
    /// The part of `len` handed out as heartbeats, control frames, checksums and headers of pieces. It counts as
    /// written first.
    heartbeats_len: usize,
    /// The part of `len` handed out, without `heartbeats_len` and `bulk`. It counts as written second.
    handed_len: usize,
    replies: QueuedBytes,
    peer_induced: QueuedBytes,
    /// Large contents and the frames queued after them, if the peer accepts pieces.
    bulk: Option<Box<BulkQueue>>,
    /// The number of PINGs handed out so far.
    pings: u64,
    sealing: ChecksumState,
}

impl Outbox {
    pub(super) fn new(format: Option<HeaderFormat>) -> Self {
        Self {
            format,
            held: Vec::new(),
            parts: VecDeque::new(),
            tail: BytesMut::new(),
            control: BytesMut::new(),
            ping: false,
            pongs: 0,
            pong_id: 0,
            packets: 0,
            encoded: 0,
            len: 0,
            heartbeats_len: 0,
            handed_len: 0,
            replies: QueuedBytes::default(),
            peer_induced: QueuedBytes::default(),
            bulk: None,
            pings: 0,
            sealing: ChecksumState::Off,
        }
    }

    pub(super) fn has_format(&self) -> bool {
        self.format.is_some()
    }

    pub(super) fn set_format(&mut self, format: HeaderFormat) {
        if self.format.replace(format).is_none() {
            for (header, content) in mem::take(&mut self.held) {
                self.len -= HeaderFormat::FALLBACK.header_len() + content.len();
                self.encode(format, header, content, FrameCause::Local);
            }
        }
    }

    pub(super) fn push(&mut self, header: Header, content: Content, cause: FrameCause) {
        self.packets += 1;
        match self.format {
            Some(format) if self.bulk.as_ref().is_some_and(|bulk| bulk.must_queue(header)) => {
                self.push_bulk(format, header, content, cause)
            }
            Some(format) => self.encode(format, header, content, cause),
            None => {
                self.len += HeaderFormat::FALLBACK.header_len() + content.len();
                self.held.push((header, content));
            }
        }
    }

    /// Queues a frame, copying its content.
    #[inline]
    pub(super) fn push_copied(&mut self, header: Header, content: &[u8], cause: FrameCause) {
        match self.format {
            Some(format)
                if content.len() < COPY_LEN_MAX && !self.bulk.as_ref().is_some_and(|bulk| bulk.must_queue(header)) =>
            {
                self.packets += 1;
                self.count(format.header_len() + content.len(), cause);
                self.gather(format, header, content);
            }
            _ => self.push(header, Bytes::copy_from_slice(content).into(), cause),
        }
    }

    /// Queues encoded frames in order. Long runs and large contents are not copied.
    pub(super) fn push_frames(&mut self, frames: &Frames) {
        match self.format {
            Some(format) if !self.bulk.as_ref().is_some_and(|bulk| bulk.must_queue_any(frames)) => {
                frames.parts(format).iter().for_each(|part| self.push_part(part));
            }
            _ => self.push_one_by_one(frames),
        }
    }

    /// Queues frames one by one, if some belong in `bulk` or the format is not known yet.
    #[cold]
    fn push_one_by_one(&mut self, frames: &Frames) {
        for (header, content) in frames.each() {
            self.push(header, content, FrameCause::Local);
        }
    }

    fn push_part(&mut self, part: &frames::FramePart) {
        match part {
            frames::FramePart::Flat(bytes, count) => {
                let is_shared = bytes.len() >= COPY_LEN_MAX;
                if is_shared && !self.tail.is_empty() {
                    // Before counting these frames: the tail is written without them.
                    self.close_tail();
                }
                self.packets += *count as u64;
                self.count_several(*count, bytes.len(), FrameCause::Local);
                if is_shared {
                    self.parts.push_back(BatchPart::Shared(bytes.clone(), self.encoded));
                } else {
                    self.tail.extend_from_slice(bytes);
                    if self.tail.len() >= FLAT_LEN_MAX {
                        self.close_tail();
                    }
                }
            }
            frames::FramePart::Content(bytes) => {
                self.count_several(0, bytes.len(), FrameCause::Local);
                if !self.tail.is_empty() {
                    self.close_tail();
                }
                self.parts.push_back(BatchPart::Content(bytes.clone()));
            }
        }
    }

    pub(super) fn push_ping(&mut self) {
        self.ping = true;
    }

    /// Removes a PING not yet handed out.
    pub(super) fn drop_ping(&mut self) {
        self.ping = false;
    }

    /// Queues a PONG. It counts immediately, so a peer that sends PINGs and does not read fills the outbox.
    pub(super) fn push_pong(&mut self) {
        self.pongs += 1;
        self.len += self.format.map_or(0, HeaderFormat::header_len);
    }

    /// Queues a control frame before all other frames, including PINGs and PONGs. The format must be known.
    pub(super) fn push_control(&mut self, control: &Control) {
        debug_assert!(self.format.is_some(), "a control frame goes to a peer that has spoken, or opens the connection");
        let Some(format) = self.format else { return };
        let (header, content) = control.encode();
        let before = self.control.len();
        header.encode(format, &mut self.control);
        self.control.extend_from_slice(&content);
        self.len += self.control.len() - before;
    }

    /// Drops all queued frames.
    pub(super) fn clear(&mut self) {
        *self = Self {
            format: self.format,
            packets: self.packets,
            pings: self.pings,
            sealing: self.sealing,
            ..Self::new(None)
        };
    }

    /// Returns the number of bytes queued or handed out and not yet written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.held.is_empty() && !self.ping && self.pongs == 0
    }

    /// Returns the number of packets queued so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Adds checksums to all frames from the next batch on, announced by a control frame.
    pub(super) fn use_checksums(&mut self) {
        if self.sealing == ChecksumState::Off {
            self.sealing = ChecksumState::Due;
        }
    }

    /// Sends large contents in pieces, so other frames can overtake them.
    pub(super) fn use_pieces(&mut self) {
        self.bulk.get_or_insert_default();
    }

    /// Returns `true` if other frames can overtake contents of this length.
    pub(super) fn interleaves(&self, len: usize) -> bool {
        self.bulk.is_some() && len >= PIECED_LEN_MIN
    }

    /// Returns the part of [`len`](Self::len) in large contents and the frames queued after them.
    pub(super) fn bulk_len(&self) -> usize {
        self.bulk.as_ref().map_or(0, |bulk| bulk.len)
    }

    /// Returns the part of [`bulk_len`](Self::bulk_len) in replies of handlers.
    pub(super) fn bulk_replies_len(&self) -> usize {
        self.bulk.as_ref().map_or(0, |bulk| bulk.replies.len)
    }

    /// Returns the pieces in flight, if large contents go in pieces.
    pub(super) fn flight(&self) -> Option<&PiecesInFlight> {
        self.bulk.as_ref().map(|bulk| &bulk.flight)
    }

    pub(super) fn flight_mut(&mut self) -> Option<&mut PiecesInFlight> {
        self.bulk.as_mut().map(|bulk| &mut bulk.flight)
    }

    /// Returns the number of PINGs handed out so far.
    pub(super) fn pings(&self) -> u64 {
        self.pings
    }

    /// Returns `true` if something can be handed out without waiting for a PONG.
    pub(super) fn has_output(&self) -> bool {
        let waits = |bulk: &BulkQueue| bulk.flight.waits() && bulk.len == self.len && !self.ping;
        !(self.is_empty() || self.bulk.as_deref().is_some_and(waits))
    }

    /// Returns the part of [`len`](Self::len) in replies of handlers, without large contents.
    pub(super) fn replies_len(&self) -> usize {
        self.replies.len
    }

    /// Returns the part of [`len`](Self::len) caused by the peer without a handler.
    pub(super) fn peer_induced_len(&self) -> usize {
        let pongs = self.pongs as usize * self.format.map_or(0, HeaderFormat::header_len);
        let bulk = self.bulk.as_ref().map_or(0, |bulk| bulk.peer_induced.len);
        self.peer_induced.len + bulk + pongs
    }

    pub(super) fn handle_written(&mut self, len: usize) {
        self.len -= len;
        // Counts in a fixed order: heartbeats, other frames, large contents. Checksums and headers of pieces count
        // as heartbeats, wherever they are in the batch.
        let heartbeats = len.min(self.heartbeats_len);
        self.heartbeats_len -= heartbeats;
        let others = (len - heartbeats).min(self.handed_len);
        self.handed_len -= others;
        self.replies.handle_written(others);
        self.peer_induced.handle_written(others);
        if len > heartbeats + others
            && let Some(bulk) = &mut self.bulk
        {
            bulk.handle_written(len - heartbeats - others);
        }
    }

    /// Moves the next batch into `batch`, heartbeats first. Returns `false` if there is nothing to write.
    pub(super) fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit) -> bool {
        debug_assert!(!batch.has_remaining(), "the last batch is written before the next is taken");
        let Some(format) = self.format else { return false };
        let mut unsealed = 0;
        if self.ping || self.pongs > 0 || !self.control.is_empty() || self.sealing == ChecksumState::Due {
            let mut heartbeats = mem::take(&mut batch.spare);
            // First, because a PONG before any HELLO identifies this side as plain.
            heartbeats.extend_from_slice(&mem::take(&mut self.control));
            if self.sealing == ChecksumState::Due {
                self.sealing = ChecksumState::On;
                let (header, content) = Control::Checksums.encode();
                header.encode(format, &mut heartbeats);
                heartbeats.extend_from_slice(&content);
                self.len += format.header_len() + content.len();
                unsealed = heartbeats.len();
            }
            if mem::take(&mut self.ping) {
                Header::PING.encode(format, &mut heartbeats);
                self.len += format.header_len();
                self.pings += 1;
            }
            for _ in 0..mem::take(&mut self.pongs) {
                Header { id: self.pong_id, ..Header::PONG }.encode(format, &mut heartbeats);
            }
            self.heartbeats_len = heartbeats.len();
            batch.push(BatchPart::Flat(heartbeats, batch.packets));
        }
        let before = batch.len;
        while batch.len < BATCH_LEN_MAX {
            let Some(part) = self.parts.pop_front() else { break };
            batch.push(part);
        }
        // A batch ends with a complete frame, so heartbeats can go between batches.
        while let Some(BatchPart::Content(_)) = self.parts.front()
            && let Some(content) = self.parts.pop_front()
        {
            batch.push(content);
        }
        if self.parts.is_empty() && batch.len < BATCH_LEN_MAX && !self.tail.is_empty() {
            let tail = mem::replace(&mut self.tail, mem::take(&mut batch.spare));
            batch.push(BatchPart::Flat(tail, self.packets));
        }
        // Everything is handed out, except for packets in `bulk`. `poll_bulk` subtracts these again.
        if self.parts.is_empty() && self.tail.is_empty() {
            batch.packets = self.packets;
        }
        batch.attempted = batch.packets;
        self.handed_len = batch.len - before;
        if let Some(bulk) = &mut self.bulk {
            if self.handed_len > 0 {
                bulk.handle_others_sent(now);
            }
            if !bulk.is_empty() {
                self.poll_bulk(now, format, batch);
            }
        }
        if self.sealing == ChecksumState::On {
            let added = checksum::seal(format, unsealed, batch);
            self.len += added;
            self.heartbeats_len += added;
        }
        batch.has_remaining()
    }

    /// Adds large contents to a batch of any length, so other frames cannot starve them.
    #[cold]
    fn poll_bulk(&mut self, now: Instant, format: HeaderFormat, batch: &mut Transmit) {
        let Some(bulk) = &mut self.bulk else { return };
        let (mut added, is_marked) = bulk.poll_transmit(now, format, BATCH_LEN_MAX, batch);
        if is_marked {
            let mut ping = BytesMut::with_capacity(format.header_len());
            Header::PING.encode(format, &mut ping);
            added += ping.len();
            batch.push(BatchPart::Content(ping.freeze()));
            self.pings += 1;
            bulk.flight.handle_mark_sent(now, self.pings);
        }
        self.len += added;
        self.heartbeats_len += added;
        if let Some(first) = bulk.first_number() {
            batch.packets = batch.packets.min(first - 1);
        }
    }

    #[cold]
    fn push_bulk(&mut self, format: HeaderFormat, header: Header, content: Content, cause: FrameCause) {
        let Some(bulk) = &mut self.bulk else { return };
        self.encoded += 1;
        let len = format.header_len() + content.len();
        self.len += len;
        bulk.push(header, content, cause, len, self.packets);
    }

    fn encode(&mut self, format: HeaderFormat, header: Header, content: Content, cause: FrameCause) {
        self.count(format.header_len() + content.len(), cause);
        match content.into_one() {
            Ok(small) if small.len() < COPY_LEN_MAX => self.gather(format, header, &small),
            Ok(large) => {
                header.encode(format, &mut self.tail);
                self.close_tail();
                self.parts.push_back(BatchPart::Content(large));
            }
            // Pieces are never copied: the caller split the content because copying was not worth it.
            Err(pieces) => {
                header.encode(format, &mut self.tail);
                self.close_tail();
                self.parts.extend(pieces.into_iter().map(BatchPart::Content));
            }
        }
    }

    #[inline(always)] // The hot path of every send.
    fn gather(&mut self, format: HeaderFormat, header: Header, content: &[u8]) {
        self.tail.extend_from_slice(format.part(&header.layout()));
        self.tail.extend_from_slice(content);
        if self.tail.len() >= FLAT_LEN_MAX {
            self.close_tail();
        }
    }

    #[inline]
    fn count(&mut self, len: usize, cause: FrameCause) {
        self.count_several(1, len, cause);
    }

    #[inline(always)] // The hot path of every send.
    fn count_several(&mut self, frames: usize, len: usize, cause: FrameCause) {
        self.encoded += frames as u64;
        self.len += len;
        self.replies.handle_queued(len, cause == FrameCause::Reply);
        self.peer_induced.handle_queued(len, cause == FrameCause::PeerInduced);
    }

    fn close_tail(&mut self) {
        self.parts.push_back(BatchPart::Flat(mem::take(&mut self.tail), self.encoded));
    }
}

/// Large enough to make a system call worthwhile, small enough for a PONG to be sent soon after.
const BATCH_LEN_MAX: usize = 256 * 1024;
#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    fn header(id: u16, content: &Bytes) -> Header {
        Header { id, operation: 20, len: u32::try_from(content.len()).unwrap() }
    }

    fn push(outbox: &mut Outbox, id: u16, content: &Bytes) {
        outbox.push(header(id, content), content.clone().into(), FrameCause::Local);
    }

    fn drain(outbox: &mut Outbox) -> Vec<u8> {
        let mut batch = Transmit::default();
        let mut out = Vec::new();
        while outbox.poll_transmit(Instant::now(), &mut batch) {
            while batch.has_remaining() {
                let len = batch.chunk().len().min(1000);
                out.extend_from_slice(&batch.chunk()[..len]);
                batch.advance(len);
                outbox.handle_written(len);
            }
        }
        out
    }

    #[test]
    fn large_contents_are_not_copied_and_small_ones_are_joined() {
        let mut outbox = Outbox::new(Some(HeaderFormat::Magic10));
        let large = Bytes::from(vec![1; COPY_LEN_MAX]);
        let small = large.slice(1..);
        for content in [&small, &small, &large, &small] {
            push(&mut outbox, 1, content);
        }
        let mut batch = Transmit::default();
        assert!(outbox.poll_transmit(Instant::now(), &mut batch));
        let mut slices = [IoSlice::new(&[]); 8];
        let count = batch.chunks_vectored(&mut slices);
        assert_eq!(count, 3);
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
        assert_eq!(slices[0].len(), 2 * (10 + small.len()) + 10);
    }

    #[test]
    fn pieces_are_not_copied_before_the_format_is_known() {
        let pieces = ["small", "pieces"].map(Bytes::from);
        for format in [None, Some(HeaderFormat::Magic10)] {
            let mut outbox = Outbox::new(format);
            let header = Header { id: 1, operation: 20, len: 11 };
            outbox.push(header, pieces.to_vec().into(), FrameCause::Local);
            outbox.set_format(HeaderFormat::Magic10);
            assert_eq!(outbox.len(), 10 + 11);
            let mut batch = Transmit::default();
            assert!(outbox.poll_transmit(Instant::now(), &mut batch));
            let mut slices = [IoSlice::new(&[]); 8];
            assert_eq!(batch.chunks_vectored(&mut slices), 3);
            assert_eq!([slices[1].as_ptr(), slices[2].as_ptr()], pieces.each_ref().map(|piece| piece.as_ptr()));
        }
    }

    #[test]
    fn copied_contents_encode_the_same_frame() {
        for (format, len) in [None, Some(HeaderFormat::Plain8), Some(HeaderFormat::Magic10)]
            .into_iter()
            .flat_map(|format| [0, 1, COPY_LEN_MAX - 1, COPY_LEN_MAX].map(|len| (format, len)))
        {
            let content = Bytes::from(vec![1; len]);
            let (mut one, mut other) = (Outbox::new(format), Outbox::new(format));
            one.push(header(7, &content), content.clone().into(), FrameCause::Reply);
            other.push_copied(header(7, &content), &content, FrameCause::Reply);
            assert_eq!(
                (one.len(), one.packets(), one.replies_len()),
                (other.len(), other.packets(), other.replies_len())
            );
            one.set_format(HeaderFormat::Magic10);
            other.set_format(HeaderFormat::Magic10);
            assert_eq!(drain(&mut one), drain(&mut other));
        }
    }

    #[test]
    fn frames_are_written_in_fifo_order() {
        let mut outbox = Outbox::new(Some(HeaderFormat::Plain8));
        let mut expected = Vec::new();
        for id in 0..200_u8 {
            let content = Bytes::from(vec![id; usize::from(id) * 97]);
            let id = u16::from(id);
            push(&mut outbox, id, &content);
            header(id, &content).encode(HeaderFormat::Plain8, &mut expected);
            expected.extend_from_slice(&content);
        }
        assert_eq!(outbox.len(), expected.len());
        assert_eq!(drain(&mut outbox), expected);
        assert!(outbox.is_empty());
    }

    #[test]
    fn bytes_caused_by_the_peer_are_counted_separately() {
        let mut outbox = Outbox::new(Some(HeaderFormat::Plain8));
        let content = Bytes::from_static(&[0; 92]);
        for cause in [FrameCause::Reply, FrameCause::Reply, FrameCause::Local, FrameCause::PeerInduced] {
            outbox.push(header(1, &content), content.clone().into(), cause);
        }
        outbox.push_pong();
        assert_eq!((outbox.len(), outbox.replies_len(), outbox.peer_induced_len()), (408, 200, 108));
        let mut batch = Transmit::default();
        assert!(outbox.poll_transmit(Instant::now(), &mut batch));
        let steps = [(8, 200, 100), (150, 50, 100), (100, 0, 100), (50, 0, 100), (99, 0, 1), (1, 0, 0)];
        for (written, replies, induced) in steps {
            batch.advance(written);
            outbox.handle_written(written);
            assert_eq!((outbox.replies_len(), outbox.peer_induced_len()), (replies, induced));
        }
    }

    #[test]
    fn nothing_leaves_before_the_format_is_known() {
        let mut outbox = Outbox::new(None);
        push(&mut outbox, 1, &Bytes::from_static(b"abc"));
        outbox.push_ping();
        assert!(!outbox.poll_transmit(Instant::now(), &mut Transmit::default()));
        outbox.set_format(HeaderFormat::Plain8);
        assert_eq!(drain(&mut outbox), [&[0; 8][..], &[0, 1, 0, 20, 0, 0, 0, 3], b"abc"].concat());
    }

    #[test]
    fn written_buffers_are_reused() {
        let mut outbox = Outbox::new(Some(HeaderFormat::Plain8));
        let mut batch = Transmit::default();
        let content = Bytes::from_static(&[0; 100]);
        let mut seen = Vec::new();
        for _ in 0..6 {
            push(&mut outbox, 1, &content);
            assert!(outbox.poll_transmit(Instant::now(), &mut batch));
            seen.push(batch.chunk().as_ptr());
            batch.advance(batch.remaining());
        }
        assert_eq!(seen[2], seen[4]);
        assert_eq!(seen[3], seen[5]);
    }
}
