//! Sending packets, and the streams of both sides.

use std::time::Instant;

use bytes::Bytes;

use super::Connection;
use crate::{
    Content, Operation, Packet, PacketName, SendError,
    error::{OpenError, StreamEnd, StreamSendError},
    proto::{control::Control, frames::Frames, header::Header, hello::Features, share::Cause, streams::StreamKey},
};

impl Connection {
    /// Queues a packet, even if the outbox is full. Senders able to wait check [`is_full`](Self::is_full) first.
    pub fn send(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Local)
    }

    /// Queues a packet like [`send`](Self::send), copying its content.
    pub fn send_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.cancels_in.earn();
        self.outbox.push_copied(header, content, Cause::Local);
        Ok(())
    }

    /// Queues encoded packets like [`send`](Self::send), all or none of them.
    pub fn send_frames(&mut self, frames: &Frames) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if frames.has_extended() && self.peer.hello().is_none() {
            return Err(SendError::PlainPeer);
        }
        self.carried_len(frames.content_len_max())?;
        self.cancels_in.earn_several(frames.count());
        self.outbox.push_frames(frames);
        Ok(())
    }

    /// Counts packets dropped because of a full outbox.
    pub fn handle_unsent(&mut self, packets: u64) {
        self.counters.unsent += packets;
    }

    /// Queues the reply of a handler like [`send`](Self::send).
    pub fn reply(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Reply)
    }

    /// Queues the reply of a handler like [`reply`](Self::reply), copying its content.
    pub fn reply_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.cancels_in.earn();
        self.outbox.push_copied(header, content, Cause::Reply);
        Ok(())
    }

    /// Queues the answer to a refused packet like [`reply`](Self::reply). It counts toward
    /// [`is_overrun`](Self::is_overrun).
    pub fn refuse(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::PeerInduced)
    }

    /// Tells the peer that this side no longer needs the answer to a packet.
    ///
    /// Returns `true` if the peer is told. Then either the answer or [`Event::Cancelled`](super::Event::Cancelled)
    /// arrives. Returns `false` if the peer does not support CANCEL, or if half of its allowance is used up. Every
    /// packet with content received from the peer restores one CANCEL.
    pub fn cancel(&mut self, now: Instant, packet: PacketName) -> bool {
        let will = self.is_open() && self.uses(Features::CANCEL) && self.cancels_out.spend(now);
        if will {
            self.cancelled_expected += 1;
            self.push_control(&Control::Cancel(packet));
        }
        will
    }

    /// Tells the peer that a packet it [withdrew](super::Event::Cancel) will not be answered.
    pub fn cancelled(&mut self, packet: PacketName) {
        if self.is_open() {
            self.push_control(&Control::Cancelled(packet));
        }
    }

    /// Queues a control frame after all queued packets.
    fn push_control(&mut self, control: &Control) {
        let (header, content) = control.encode();
        self.outbox.push(header, Bytes::from(content).into(), Cause::Local);
    }

    /// Drops all queued frames, for a peer that will not read them.
    pub fn discard_output(&mut self) {
        self.outbox.clear();
        self.streams.discard_credit();
        self.stalled = None;
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
        self.outbox.push(Header::stream(self.streams.id(key), len), content, Cause::Local);
        self.closes_expected += 1;
        self.credits_expected += 1;
        Ok(())
    }

    /// Returns `true` if the peer accepts data of this stream now.
    ///
    /// Otherwise wait for [`Event::StreamWritable`](super::Event::StreamWritable) or the end of the stream.
    pub fn has_credit(&self, key: StreamKey) -> bool {
        self.streams.has_credit(key)
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
            self.push_stream_close(self.streams.id(key), Cause::Local);
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

    fn push(&mut self, packet: Packet, cause: Cause) -> Result<(), SendError> {
        let header = self.header(packet.name(), packet.content.len())?;
        self.cancels_in.earn();
        self.outbox.push(header, packet.content, cause);
        Ok(())
    }

    /// Returns the header of a packet with `len` bytes of content, or an error if the packet must not be sent.
    fn header(&self, packet: PacketName, len: usize) -> Result<Header, SendError> {
        let PacketName { id, operation } = packet;
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if operation == Operation::EXTENDED && self.peer.hello().is_none() {
            return Err(SendError::PlainPeer);
        }
        Ok(Header { id, operation: operation.number(), len: self.carried_len(len)? })
    }

    /// Queues the delayed close packets.
    pub(super) fn announce_closes(&mut self) {
        for id in self.streams.take_unannounced() {
            self.push_stream_close(id, Cause::Local);
        }
    }

    pub(super) fn push_stream_close(&mut self, id: u16, cause: Cause) {
        if self.is_open() {
            self.outbox.push(Header::stream(id, 0), Content::default(), cause);
        }
    }

    /// Returns the length of a content for its header, or an error if it exceeds the limit of either side.
    fn carried_len(&self, len: usize) -> Result<u32, SendError> {
        let own = self.config.content_len_max;
        let theirs = self.peer.hello().map_or(own, |hello| hello.content_len_max);
        match u32::try_from(len) {
            Ok(short) if short <= own && short <= theirs => Ok(short),
            Ok(short) if short <= own => Err(SendError::TooLargeForPeer { len, limit: theirs }),
            _ => Err(SendError::ContentTooLarge { len, limit: own }),
        }
    }
}
