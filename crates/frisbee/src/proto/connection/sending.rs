//! Sending: packets, and the streams of both sides.

use std::time::Instant;

use bytes::Bytes;

use super::Connection;
use crate::{
    Content, Operation, Packet, PacketName, SendError,
    error::{OpenError, StreamEnd, StreamSendError},
    proto::{control::Control, frames::Frames, header::Header, hello::Features, share::Cause, streams::StreamKey},
};

impl Connection {
    /// Queues a packet, full or not: a sender that can wait asks [`is_full`](Self::is_full) first.
    pub fn send(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Local)
    }

    /// Queues a packet as [`send`](Self::send) does, of a content that is copied.
    pub fn send_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.cancels_in.earn();
        self.outbox.push_copied(header, content, Cause::Local);
        Ok(())
    }

    /// Queues packets that are encoded already as [`send`](Self::send) does each of them: all of them, or none.
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

    /// Counts packets that were let go because the outbox was full.
    pub fn handle_unsent(&mut self, packets: u64) {
        self.counters.unsent += packets;
    }

    /// Queues a packet as [`send`](Self::send) does, for the reply of a handler.
    pub fn reply(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::Reply)
    }

    /// Queues the reply of a handler as [`reply`](Self::reply) does, of a content that is copied.
    pub fn reply_copied(&mut self, packet: PacketName, content: &[u8]) -> Result<(), SendError> {
        let header = self.header(packet, content.len())?;
        self.cancels_in.earn();
        self.outbox.push_copied(header, content, Cause::Reply);
        Ok(())
    }

    /// Queues a packet as [`reply`](Self::reply) does, in reply to one that no handler got: counts towards
    /// [`is_overrun`](Self::is_overrun).
    pub fn refuse(&mut self, packet: Packet) -> Result<(), SendError> {
        self.push(packet, Cause::PeerInduced)
    }

    /// Tells the peer that this side does not want the answer to a packet. Returns whether it will hear of it: then either
    /// the answer or [`Event::Cancelled`](super::Event::Cancelled) comes. It will not if it does not know CANCEL, or got
    /// half as many of them lately as it allows. Every packet with content that came from it makes room for one more.
    pub fn cancel(&mut self, now: Instant, packet: PacketName) -> bool {
        let will = self.is_open() && self.uses(Features::CANCEL) && self.cancels_out.spend(now);
        if will {
            self.cancelled_expected += 1;
            self.push_control(&Control::Cancel(packet));
        }
        will
    }

    /// Tells the peer that a packet that it [withdrew](super::Event::Cancel) will not be answered.
    pub fn cancelled(&mut self, packet: PacketName) {
        if self.is_open() {
            self.push_control(&Control::Cancelled(packet));
        }
    }

    /// Queues a control frame behind the packets that are queued.
    fn push_control(&mut self, control: &Control) {
        let (header, content) = control.encode();
        self.outbox.push(header, Bytes::from(content).into(), Cause::Local);
    }

    /// Drops what is queued, for a peer that will not see it.
    pub fn discard_output(&mut self) {
        self.outbox.clear();
        self.streams.discard_credit();
        self.stalled = None;
    }

    /// Opens a stream with an id of this side's choice. The peer learns of it by the first data.
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

    /// Queues data of a stream, full or not, and with credit or without: a sender asks [`has_credit`](Self::has_credit)
    /// first.
    pub fn send_on(&mut self, key: StreamKey, content: Content) -> Result<(), StreamSendError> {
        // All streams end with the connection.
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

    /// Tells whether the peer takes data of a stream now. Otherwise a sender waits for
    /// [`Event::StreamWritable`](super::Event::StreamWritable), or for the end of the stream.
    pub fn has_credit(&self, key: StreamKey) -> bool {
        self.streams.has_credit(key)
    }

    /// Tells whether the peer is owed credit, which [`poll_transmit`](Self::poll_transmit) sends.
    pub fn owes_credit(&self) -> bool {
        self.streams.owes_credit()
    }

    /// Takes the next data of a stream. `Ok(None)` if none has come, and an error if no more will.
    pub fn read_from(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.read(key)
    }

    /// Returns what [`read_from`](Self::read_from) would take next, and leaves it where it is.
    pub fn peek_at(&mut self, key: StreamKey) -> Result<Option<Bytes>, StreamEnd> {
        self.streams.peek(key)
    }

    /// Drops what waits in a stream and what will come on it, for one whose reader is gone.
    pub fn ignore_stream(&mut self, key: StreamKey) {
        self.streams.ignore(key);
    }

    /// Tells whether this side opened the stream.
    pub fn is_own_stream(&self, key: StreamKey) -> bool {
        self.streams.is_own(key)
    }

    /// Returns the id of a stream on the wire.
    pub fn stream_id(&self, key: StreamKey) -> u16 {
        self.streams.id(key)
    }

    /// Returns why the stream ended, if it did.
    pub fn stream_ended(&self, key: StreamKey) -> Option<StreamEnd> {
        self.streams.ended(key)
    }

    /// Returns the number of streams, ended ones that are still held included.
    pub fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// Closes both directions of a stream and tells the peer, once.
    pub fn close_stream(&mut self, key: StreamKey) {
        if self.streams.close(key) {
            self.push_stream_close(self.streams.id(key), Cause::Local);
        }
    }

    /// Defers the close of a stream: once this side has closed it, the peer is told ahead of the next data sent on any
    /// stream, and not at all if it closes the stream itself or uses its id again before. Beyond
    /// [`Config::streams_max`](crate::Config::streams_max) such streams, and if it gives credit, it is told at once.
    pub fn defer_stream_close(&mut self, key: StreamKey) {
        self.streams.defer_close(key);
    }

    /// Closes a stream if it is open and forgets it. The key must not be used again.
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

    /// Returns the header of a packet with a content of this length, if it may be sent.
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

    /// Tells the peer of the streams whose close was deferred.
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

    /// Returns the length of a content for its header, unless one of the sides does not carry as much.
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
