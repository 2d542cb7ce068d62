//! Input: decoding frames and acting on each of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::{Connection, Discarding, Event, Role, State};
use crate::{
    Operation, Packet, ProtocolError,
    proto::{
        budget::Budget,
        control::Control,
        credit::TooMuch,
        decoder::{Frame, Reach},
        header::{Header, Kind},
        hello::{Features, Peer},
        pieces::First,
        share::Cause,
        streams::Received,
    },
};

impl Connection {
    /// Reports that `len` bytes were read from the socket.
    pub fn handle_received(&mut self, now: Instant, len: usize) {
        self.heartbeat.handle_received(now);
        self.counters.bytes_in += len as u64;
        self.counters.batches_in += 1;
    }

    /// Decodes frames from `inbox` up to the next event. Returns `None` if more bytes are needed or a stream
    /// [stalls](Self::is_stalled).
    ///
    /// An invalid header stays in `inbox`. After an error the connection stays open until [`fail`](Self::fail).
    pub fn handle_input(&mut self, now: Instant, inbox: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        // The common case on a recognized connection: a complete packet.
        if !matches!(self.peer, Peer::Unknown)
            && let Some(packet) = self.handle_packet(inbox)
        {
            return Ok(Some(Event::Packet(packet)));
        }
        while matches!(self.state, State::Open | State::Draining(_)) && !self.is_stalled() {
            let frame = self.decoder.decode(inbox)?;
            if let (false, Some(format)) = (self.outbox.has_format(), self.decoder.format()) {
                self.outbox.set_format(format);
            }
            let Some(frame) = frame else {
                if self.decoder.skip_len() == 0 {
                    self.discarding = None;
                }
                break;
            };
            if let Some(event) = self.handle_frame(now, frame)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Takes a complete packet from the front of `inbox`. Leaves other frames to
    /// [`handle_input`](Self::handle_input).
    ///
    /// Unlike the effects of other frames, a packet taken here can be put back with
    /// [`undo_input`](Self::undo_input).
    pub fn handle_packet(&mut self, inbox: &mut BytesMut) -> Option<Packet> {
        if !self.is_open() || self.is_stalled() {
            return None;
        }
        let frame = self.decoder.decode_packet(inbox)?;
        let operation = match frame.kind {
            Kind::Application(operation) => operation,
            Kind::Extended => Operation::EXTENDED,
            _ => return None,
        };
        self.counters.packets_in += 1;
        self.discarding = None;
        if !frame.content.is_empty() {
            self.budget.earn();
            self.cancels_out.earn();
        }
        Some(Packet { id: frame.id, operation, content: frame.content.into() })
    }

    /// Reports the end of reading. The peer can give no more credit, so senders no longer wait for it.
    pub fn handle_end(&mut self, now: Instant) {
        self.set_reading(now, false);
        self.streams.ignore_credit();
        self.send_without_pongs();
    }

    /// Reports that a packet was refused, because of a limit or because the connection is
    /// [draining](Self::is_draining).
    pub fn handle_refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Reports that the driver pauses or resumes reading. Silence counts only while it reads.
    pub fn set_reading(&mut self, now: Instant, reading: bool) {
        self.heartbeat.set_reading(now, reading);
        if let Some(flight) = self.outbox.flight_mut() {
            flight.set_reading(reading);
        }
        if !reading {
            self.paused.get_or_insert(now);
        } else if let Some(since) = self.paused.take()
            && let Some(Discarding { due: Some(due), .. }) = &mut self.discarding
        {
            *due += now.saturating_duration_since(since);
        }
    }

    /// Puts undispatched packets, and the header of an incomplete one, back into `inbox`.
    ///
    /// [Discarded](Self::discard_len) bytes are not restored.
    pub fn undo_input(&mut self, packets: impl IntoIterator<Item = Packet>, inbox: &mut BytesMut) {
        self.decoder.undo(inbox);
        let Some(format) = self.decoder.format() else { return };
        let mut front = BytesMut::new();
        for Packet { id, operation, content } in packets {
            let len = u32::try_from(content.len()).expect("a received content is within its u32 limit");
            let header = Header { id, operation: operation.number(), len };
            self.decoder.encode(format, header, &content.into_bytes(), &mut front);
        }
        if !front.is_empty() {
            front.extend_from_slice(inbox);
            *inbox = front;
        }
    }

    /// Returns the length of the current content, partly in the inbox. Zero between packets.
    pub fn content_len(&self) -> usize {
        self.decoder.content_len()
    }

    /// Returns the number of content bytes still to be discarded.
    pub fn discard_len(&self) -> usize {
        self.decoder.skip_len()
    }

    /// Returns the length of the packet at the front of `bytes`, including its header.
    ///
    /// Returns `None` if the header is incomplete, or if the content is too large and would be discarded.
    pub fn announced_len(&self, bytes: &[u8]) -> Option<usize> {
        self.decoder.announced_len(bytes)
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<Option<Event>, ProtocolError> {
        self.counters.packets_in += 1;
        if matches!(self.peer, Peer::Unknown)
            && let Some(event) = self.recognize(now, &frame)?
        {
            return Ok(Some(event));
        }
        if frame.kind == Kind::Piece && self.uses(Features::PIECES) {
            return self.handle_piece(now, frame);
        }
        if frame.skipped > self.config.content_len_max {
            return self.handle_too_large(now, &frame);
        }
        self.discarding = None;
        self.handle_whole(now, frame)
    }

    /// Handles a piece of a content. The last piece completes the frame.
    fn handle_piece(&mut self, now: Instant, mut frame: Frame) -> Result<Option<Event>, ProtocolError> {
        // Pieces are counted separately. The whole content counts as one packet.
        self.counters.packets_in -= 1;
        self.counters.pieces_in += 1;
        self.budget.earn();
        let mut event = None;
        if !self.has_pieces() {
            let first = First::decode(&mut frame.content)?;
            let is_kept = self.decoder.keeps(first.total)?;
            self.assembly.get_or_insert_default().begin(frame.id, &first, is_kept);
            if !is_kept {
                self.counters.packets_in += 1;
                let whole = Frame { id: frame.id, kind: first.kind, content: Bytes::new(), skipped: first.total };
                event = self.handle_too_large(now, &whole)?;
            }
        }
        // No other content is being discarded between the pieces.
        self.discarding = None;
        match self.assembly.get_or_insert_default().add(frame.id, &frame.content)? {
            Some(whole) => {
                self.counters.packets_in += 1;
                self.handle_whole(now, whole)
            }
            None => Ok(event),
        }
    }

    /// Handles a frame with its content.
    fn handle_whole(&mut self, now: Instant, frame: Frame) -> Result<Option<Event>, ProtocolError> {
        match frame.kind {
            Kind::Application(operation) => Ok(Some(self.handle_application(operation, frame))),
            Kind::Extended => Ok(Some(self.handle_application(Operation::EXTENDED, frame))),
            Kind::Control => self.handle_control(now, frame),
            Kind::Stream if !frame.content.is_empty() => {
                self.budget.earn();
                self.detach_due.get_or_insert(now + DETACH_AFTER);
                let received = self.streams.handle_data(now, frame.id, frame.content);
                Ok(self.handle_stream_received(frame.id, received))
            }
            Kind::Stream => {
                // A close that data of this side may have caused costs the peer nothing.
                match self.closes_expected.checked_sub(1) {
                    Some(left) => self.closes_expected = left,
                    None => self.spend(now)?,
                }
                Ok(self.streams.handle_close(frame.id).map(Event::StreamReadable))
            }
            Kind::Ping => {
                self.spend(now)?;
                self.outbox.push_pong();
                Ok(None)
            }
            Kind::Pong => {
                self.heartbeat.handle_pong(now);
                // The peer pays nothing for a PONG to a PING sent after pieces.
                let answered = self.outbox.pings() - u64::from(self.heartbeat.unanswered());
                let is_expected = self.outbox.flight_mut().is_some_and(|flight| flight.handle_pong(now, answered));
                if !is_expected {
                    self.spend(now)?;
                }
                Ok(None)
            }
            Kind::Piece | Kind::Reserved => {
                self.counters.dropped += 1;
                self.spend(now).map(|()| None)
            }
        }
    }

    /// Starts discarding a content. It costs the peer more than this side, so it takes no token. It returns none
    /// either.
    fn handle_too_large(&mut self, now: Instant, frame: &Frame) -> Result<Option<Event>, ProtocolError> {
        let (id, announced, limit) = (frame.id, frame.skipped, self.config.content_len_max);
        self.discarding = Some(Discarding { announced, due: now.checked_add(self.config.discard_time_max) });
        self.counters.too_large += 1;
        match frame.kind {
            Kind::Application(operation) => Ok(Some(Event::TooLarge { id, operation, announced })),
            Kind::Extended => Ok(Some(Event::TooLarge { id, operation: Operation::EXTENDED, announced })),
            Kind::Stream => {
                let received = self.streams.handle_too_large(now, id, announced, limit);
                Ok(self.handle_stream_received(id, received))
            }
            Kind::Ping | Kind::Pong | Kind::Control | Kind::Piece | Kind::Reserved => self.spend(now).map(|()| None),
        }
    }

    fn handle_stream_received(&mut self, id: u16, received: Received) -> Option<Event> {
        match received {
            Received::Opened(key) => Some(Event::StreamOpened(key)),
            Received::Queued(key) => Some(Event::StreamReadable(key)),
            Received::Ignored => None,
            Received::Refused => {
                self.counters.streams_refused += 1;
                self.push_stream_close(id, Cause::PeerInduced);
                None
            }
        }
    }

    fn handle_application(&mut self, operation: Operation, frame: Frame) -> Event {
        if !frame.content.is_empty() {
            self.budget.earn();
            self.cancels_out.earn();
        }
        Event::Packet(Packet { id: frame.id, operation, content: frame.content.into() })
    }

    /// Detects the protocol of an unknown peer. Returns an event for a frame with no other purpose.
    fn recognize(&mut self, now: Instant, frame: &Frame) -> Result<Option<Event>, ProtocolError> {
        let hello = match frame.kind {
            Kind::Control if frame.skipped == 0 => Control::decode(frame.id, frame.content.clone())?,
            _ => None,
        };
        if let Some(Control::Hello(hello)) = hello {
            // Uses half of the peer's allowance, because frames may arrive closer together than they were sent.
            self.cancels_out = Budget::new(now, hello.cancel_burst.unwrap_or(0) / 2);
            self.streams.set_own_max(hello.streams_max);
            if hello.features.contains(Features::CREDIT) {
                self.streams.use_credit(hello.window);
                self.announce_closes();
            }
            self.peer = Peer::Extended(Arc::new(hello));
            self.decoder.set_reach(Reach::Extended);
            self.use_pieces();
            if let (Role::Server, Some(own)) = (self.role, self.own_hello.take()) {
                self.outbox.push_control(&Control::Hello(own));
            }
            if self.config.checksums && self.uses(Features::CHECKSUMS) {
                self.outbox.use_checksums();
            }
            self.retire_recognized();
            return Ok(Some(Event::Recognized));
        }
        match self.role {
            Role::Client if frame.kind != Kind::Pong => return Ok(None),
            Role::Client => self.heartbeat.handle_pong(now),
            Role::Server => {}
        }
        self.peer = Peer::Plain;
        self.own_hello = None;
        self.decoder.set_reach(Reach::Plain);
        // Before the frame is handled: if the peer cannot be asked to leave, the connection drains and refuses the
        // frame.
        self.retire_recognized();
        // A connecting side detects a plain peer by its PONG, which has no other purpose. An accepting side must
        // still handle the first frame.
        if self.role == Role::Client { self.spend(now).map(|()| Some(Event::Recognized)) } else { Ok(None) }
    }

    /// Retires the connection if `retire` was called before the peer was recognized.
    fn retire_recognized(&mut self) {
        if let Some(goaway) = self.retiring.take() {
            self.retire(goaway);
        }
    }

    fn handle_control(&mut self, now: Instant, frame: Frame) -> Result<Option<Event>, ProtocolError> {
        let control = match self.peer {
            Peer::Extended(_) => Control::decode(frame.id, frame.content)?,
            Peer::Unknown | Peer::Plain => None,
        };
        match control {
            Some(Control::Cancel(packet)) => {
                if !self.cancels_in.spend(now) {
                    return Err(ProtocolError::CancelFlood { burst: self.config.cancel_burst });
                }
                Ok(Some(Event::Cancel(packet)))
            }
            Some(Control::Cancelled(packet)) => {
                match self.cancelled_expected.checked_sub(1) {
                    Some(left) => self.cancelled_expected = left,
                    None => self.spend(now)?,
                }
                Ok(Some(Event::Cancelled(packet)))
            }
            Some(Control::Credit { id, len }) if self.uses(Features::CREDIT) => {
                // Each data frame causes at most one CREDIT.
                match self.credits_expected.checked_sub(1) {
                    Some(left) => self.credits_expected = left,
                    None => self.spend(now)?,
                }
                let reached = self.streams.handle_credit(id, len).map_err(|TooMuch| ProtocolError::BadControl {
                    kind: "CREDIT",
                    why: "makes a credit larger than 2147483647",
                })?;
                Ok(reached.map(Event::StreamWritable))
            }
            Some(Control::GoAway(goaway)) => {
                self.is_asked_to_leave = true;
                self.spend(now).map(|()| Some(Event::GoingAway(goaway)))
            }
            Some(Control::Checksums) if self.config.checksums => {
                self.decoder.expect_checksums();
                Ok(None)
            }
            Some(Control::Hello(_) | Control::Credit { .. } | Control::Checksums) | None => {
                self.counters.dropped += 1;
                self.spend(now).map(|()| None)
            }
        }
    }

    fn spend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if self.budget.spend(now) {
            Ok(())
        } else {
            Err(ProtocolError::ControlFlood { burst: self.config.control_burst })
        }
    }

    pub(super) fn discard_due(&self) -> Option<Instant> {
        self.discarding.as_ref().filter(|_| self.is_open() && self.paused.is_none())?.due
    }
}

/// The longest time an unread small content pins the read buffer it is a slice of.
const DETACH_AFTER: Duration = Duration::from_millis(500);
