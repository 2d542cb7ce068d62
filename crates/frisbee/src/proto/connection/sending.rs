//! Sending packets, and the streams of both sides.

use bytes::{Buf as _, Bytes};

use super::{Connection, PEER_INDUCED_LEN_MAX, allowances::Answer};
use crate::{
    Content, Operation, Packet, PacketName, SendError,
    clock::Instant,
    error::{OpenError, StreamEnd, StreamSendError},
    proto::{
        control::Control, frames::Frames, header::Header, hello::Features, share::FrameCause, streams::StreamKey,
        transmit::Transmit,
    },
};

impl Connection {
    /// Reports that `len` bytes of `batch` were written.
    pub fn handle_written(&mut self, now: Instant, len: usize, batch: &mut Transmit) {
        batch.advance(len);
        if self.closed().is_some() {
            return;
        }
        self.writing.handle_written(now, len, batch);
        self.counters.bytes_out += len as u64;
        if self.is_finishing() && !batch.has_remaining() && self.writing.outbox.is_empty() {
            self.lifecycle.handle_all_written();
        }
    }

    /// Moves the next batch for writing into the empty `batch`. Returns `false` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Transmit) -> bool {
        // Sent no earlier than the first batch, so parts can be added until then.
        if self.negotiation.owes_hello() {
            self.say_hello();
        }
        if self.streams.owes_credit() {
            self.give_credit(now);
        }
        // The common case: the previous batch took everything.
        if self.writing.outbox.is_empty() {
            return false;
        }
        let due = self.writing.poll_transmit(now, batch, &mut self.heartbeat);
        if due {
            self.counters.batches_out += 1;
        }
        due
    }

    #[cold]
    fn say_hello(&mut self) {
        if self.is_open()
            && let Some(hello) = self.negotiation.take_hello()
        {
            self.writing.outbox.push_control(&Control::Hello(hello));
        }
    }

    #[inline(never)]
    fn give_credit(&mut self, now: Instant) {
        while let Some((id, len)) = self.streams.poll_credit(now, self.heartbeat.round_trip()) {
            self.writing.outbox.push_control(&Control::Credit { id, len });
        }
    }

    /// Returns `true` if the outbox has no room for a packet. Contents [in pieces](Self::interleave) are not
    /// counted.
    pub fn is_full(&self) -> bool {
        self.writing.is_full()
    }

    /// Returns `true` if the outbox has no room for a content of `len` bytes.
    ///
    /// Contents [in pieces](Self::interleave) have a separate limit, so nothing else waits for them.
    pub fn is_full_for(&self, len: usize) -> bool {
        self.writing.is_full_for(len)
    }

    /// Returns `true` if the outbox is at most half full, for a content of `len` bytes.
    pub fn is_half_empty_for(&self, len: usize) -> bool {
        self.writing.queued_len_for(len) <= self.writing.len_max / 2
    }

    /// Returns `true` if the outbox has no room for these frames.
    pub fn is_full_for_frames(&self, frames: &Frames) -> bool {
        self.is_full() || self.is_full_for(frames.content_len_max())
    }

    /// Returns the length of a [full](Self::is_full) outbox, in bytes.
    pub fn outbox_len_max(&self) -> usize {
        self.writing.len_max
    }

    /// Sets the length of a [full](Self::is_full) outbox, in bytes.
    ///
    /// Replies of handlers and frames caused by input keep the limit
    /// [`Config::outbox_len_max`](crate::Config::outbox_len_max).
    pub fn set_outbox_len_max(&mut self, len_max: usize) {
        self.writing.len_max = len_max.max(1);
    }

    /// Returns `true` if the outbox holds too many bytes of replies, so no handler should produce more.
    ///
    /// Contents in pieces have a separate limit: the same number of bytes, plus one content of the largest size.
    #[inline]
    pub fn owes_replies(&self) -> bool {
        let max = self.config.outbox_len_max;
        let bulk = self.writing.outbox.bulk_replies_len();
        self.writing.outbox.replies_len() >= max || bulk >= max && bulk - max >= self.config.content_len_max as usize
    }

    /// Returns `true` if the outbox holds too many bytes caused by input alone.
    ///
    /// These are PONGs, answers to refused packets, and closes of refused streams. If the driver kept reading, a
    /// peer that never reads could exhaust memory.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.writing.outbox.peer_induced_len() >= self.config.outbox_len_max
    }

    /// Returns `true` if reading must stop even while this side awaits answers: the outbox holds too many bytes
    /// caused by input alone.
    ///
    /// The limit is that of [`is_overrun`](Self::is_overrun), or [`PEER_INDUCED_LEN_MAX`] if greater.
    pub fn is_flooded(&self) -> bool {
        self.writing.outbox.peer_induced_len() >= self.config.outbox_len_max.max(PEER_INDUCED_LEN_MAX)
    }

    /// Returns `true` if streams hold too much. Input pauses until data is read, or until a stream is ended to make
    /// room.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.streams.stall()
    }

    /// Returns `true` if there is something to write.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.writing.outbox.has_output() || self.streams.owes_credit()
    }

    /// Returns the number of bytes queued for writing.
    pub fn queued_len(&self) -> usize {
        self.writing.outbox.len()
    }

    /// Returns the number of packets accepted for sending, and of those completely written.
    pub fn progress(&self) -> (u64, u64) {
        (self.writing.outbox.packets(), self.writing.written)
    }

    /// Returns the number of packets handed out for writing. The peer may have received them.
    pub fn attempted(&self) -> u64 {
        self.writing.attempted
    }

    /// Queues a packet, even if the outbox is full. Senders able to wait check [`is_full`](Self::is_full) first.
    pub fn send(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, FrameCause::Local)
    }

    /// Queues a packet like [`send`](Self::send), copying its content.
    pub fn send_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.allowances.earn_sent(1);
        self.writing.outbox.push_copied(header, content, FrameCause::Local);
        Ok(())
    }

    /// Queues encoded packets like [`send`](Self::send), all or none of them.
    pub fn send_frames(&mut self, frames: &Frames) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if frames.has_extended() && self.peer().hello().is_none() {
            return Err(SendError::PlainPeer);
        }
        self.carried_len(frames.content_len_max())?;
        self.allowances.earn_sent(frames.count());
        self.writing.outbox.push_frames(frames);
        Ok(())
    }

    /// Counts packets dropped because of a full outbox.
    pub fn handle_unsent(&mut self, packets: u64) {
        self.counters.unsent += packets;
    }

    /// Queues the reply of a handler like [`send`](Self::send).
    pub fn reply(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, FrameCause::Reply)
    }

    /// Queues the reply of a handler like [`reply`](Self::reply), copying its content.
    pub fn reply_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.allowances.earn_sent(1);
        self.writing.outbox.push_copied(header, content, FrameCause::Reply);
        Ok(())
    }

    /// Queues the answer to a refused packet like [`reply`](Self::reply). It counts toward
    /// [`is_overrun`](Self::is_overrun).
    pub fn refuse(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, FrameCause::PeerInduced)
    }

    /// Tells the peer that this side no longer needs the answer to a packet.
    ///
    /// Returns `true` if the peer is told. Then either the answer or
    /// [`InputEvent::Cancelled`](super::InputEvent::Cancelled) arrives. Returns `false` if the peer does not support
    /// CANCEL, or if half of its allowance is used up. Every packet with content received from the peer restores one
    /// CANCEL.
    pub fn cancel(&mut self, now: Instant, packet: PacketName) -> bool {
        let will = self.is_open() && self.uses(Features::CANCEL) && self.allowances.spend_own_cancel(now);
        if will {
            self.push_control(&Control::Cancel(packet));
        }
        will
    }

    /// Tells the peer that a packet it [withdrew](super::InputEvent::Cancel) will not be answered.
    pub fn cancelled(&mut self, packet: PacketName) {
        if self.is_open() {
            self.push_control(&Control::Cancelled(packet));
        }
    }

    /// Queues a control frame after all queued packets.
    fn push_control(&mut self, control: &Control) {
        let (header, content) = control.encode();
        self.writing.outbox.push(header, Bytes::from(content).into(), FrameCause::Local);
    }

    /// Drops all queued frames, for a peer that will not read them.
    pub fn discard_output(&mut self) {
        self.writing.clear();
        self.streams.discard_credit();
    }

    /// Opens a stream with an id chosen by this side. The peer learns of it with the first data.
    pub fn open_stream(&mut self) -> Result<StreamKey, OpenError> {
        if !self.is_open() {
            return Err(OpenError::ConnectionClosed);
        }
        self.streams.open_next()
    }

    /// Opens the stream with this id.
    pub fn open_stream_with_id(&mut self, id: u16) -> Result<StreamKey, OpenError> {
        if !self.is_open() {
            return Err(OpenError::ConnectionClosed);
        }
        self.streams.open(id)
    }

    /// Queues data of a stream, even with a full outbox or without credit. Senders check
    /// [`has_credit`](Self::has_credit) first.
    pub fn send_on(&mut self, key: StreamKey, content: Content) -> Result<(), StreamSendError> {
        // No check for a closed connection: its streams have all ended.
        if let Some(end) = self.streams.ended(key) {
            return Err(StreamSendError::Ended(end));
        }
        let len = match self.carried_len(content.len()) {
            Ok(0) => return Err(StreamSendError::Empty),
            Ok(len) => len,
            Err(SendError::TooLargeForPeer { len, limit }) => {
                return Err(StreamSendError::TooLargeForPeer { len, limit });
            }
            Err(_) => {
                let limit = self.config.content_len_max;
                return Err(StreamSendError::ContentTooLarge { len: content.len(), limit });
            }
        };
        self.announce_closes();
        self.streams.spend_credit(key, content.len());
        self.writing.outbox.push(Header::stream(self.streams.id(key), len), content, FrameCause::Local);
        self.allowances.expect(Answer::Close);
        self.allowances.expect(Answer::Credit);
        Ok(())
    }

    /// Returns `true` if the peer accepts data of this stream now.
    ///
    /// Otherwise wait for [`InputEvent::StreamWritable`](super::InputEvent::StreamWritable) or the end of the stream.
    pub fn has_credit(&self, key: StreamKey) -> bool {
        self.streams.has_credit(key)
    }

    /// Counts a sender that waits for credit.
    pub fn count_credit_wait(&mut self) {
        self.counters.credit_waits += 1;
    }

    /// Returns the number of streams without credit of the peer.
    pub fn streams_blocked(&self) -> usize {
        self.streams.blocked_len()
    }

    /// Returns `true` if credit is due to the peer. [`poll_transmit`](Self::poll_transmit) sends it.
    pub fn owes_credit(&self) -> bool {
        self.streams.owes_credit()
    }

    /// Takes the next data of a stream. Returns `Ok(None)` if there is none yet, and an error after the end.
    pub fn read_from(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.read(key)
    }

    /// Returns the next data of a stream without taking it.
    pub fn peek_at(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.peek(key)
    }

    /// Drops all unread and future data of a stream without a reader.
    pub fn ignore_stream(&mut self, key: StreamKey) {
        self.streams.ignore(key);
    }

    /// Returns `true` if this side opened the stream.
    pub fn is_own_stream(&self, key: StreamKey) -> bool {
        self.streams.is_own(key)
    }

    /// Returns the id of a stream on the wire.
    pub fn stream_id(&self, key: StreamKey) -> u16 {
        self.streams.id(key)
    }

    /// Returns the cause of a stream's end, if it has ended.
    pub fn stream_ended(&self, key: StreamKey) -> Option<StreamEnd> {
        self.streams.ended(key)
    }

    /// Returns the number of streams, including ended streams with a live handle.
    pub fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// Closes both directions of a stream and tells the peer, once.
    pub fn close_stream(&mut self, key: StreamKey) {
        if self.streams.close(key) {
            self.push_stream_close(self.streams.id(key), FrameCause::Local);
        }
    }

    /// Delays the close packet of a stream until the next data on any stream.
    ///
    /// No packet is sent if the peer closes the stream first or reuses its id. The close packet is not delayed if
    /// the sides use credit, or if more than [`Config::streams_max`](crate::Config::streams_max) of them are.
    pub fn defer_stream_close(&mut self, key: StreamKey) {
        self.streams.defer_close(key);
    }

    /// Closes the stream if it is open, and forgets it. The key is invalid afterwards.
    pub fn release_stream(&mut self, key: StreamKey) {
        self.close_stream(key);
        self.streams.remove(key);
    }

    fn push(&mut self, packet: Packet, cause: FrameCause) -> Result<(), SendError> {
        let header = self.header(packet.name(), packet.content.len())?;
        self.allowances.earn_sent(1);
        self.writing.outbox.push(header, packet.content, cause);
        Ok(())
    }

    /// Returns the header of a packet with `len` bytes of content, or an error if the packet must not be sent.
    fn header(&self, packet: PacketName, len: usize) -> Result<Header, SendError> {
        let PacketName { id, operation } = packet;
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if operation == Operation::EXTENDED && self.peer().hello().is_none() {
            return Err(SendError::PlainPeer);
        }
        Ok(Header { id, operation: operation.number(), len: self.carried_len(len)? })
    }

    /// Queues the delayed close packets.
    pub(super) fn announce_closes(&mut self) {
        for id in self.streams.take_unannounced() {
            self.push_stream_close(id, FrameCause::Local);
        }
    }

    pub(super) fn push_stream_close(&mut self, id: u16, cause: FrameCause) {
        if self.is_open() {
            self.writing.outbox.push(Header::stream(id, 0), Content::default(), cause);
        }
    }

    /// Returns the length of a content for its header, or an error if it exceeds the limit of either side.
    fn carried_len(&self, len: usize) -> Result<u32, SendError> {
        let own = self.config.content_len_max;
        let theirs = self.peer().hello().map_or(own, |hello| hello.content_len_max);
        match u32::try_from(len) {
            Ok(short) if short <= own && short <= theirs => Ok(short),
            Ok(short) if short <= own => Err(SendError::TooLargeForPeer { len, limit: theirs }),
            _ => Err(SendError::ContentTooLarge { len, limit: own }),
        }
    }
}
