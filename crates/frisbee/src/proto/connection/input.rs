//! Input: decoding frames and acting on each of them.

use bytes::{Bytes, BytesMut};

use super::{Connection, InputEvent, Role, allowances::Answer};
use crate::{
    Operation, Packet, ProtocolError,
    clock::Instant,
    proto::{
        control::Control,
        credit::CreditOverflow,
        decoder::{Frame, FrameFilter},
        header::{FrameKind, Header, HeaderFormat},
        hello::Features,
        pieces::FirstPieceFields,
        share::FrameCause,
        streams::DataOutcome,
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
    pub fn handle_input(&mut self, now: Instant, inbox: &mut BytesMut) -> Result<Option<InputEvent>, ProtocolError> {
        // The common case on a recognized connection: a complete packet.
        if !self.negotiation.is_unknown()
            && let Some(packet) = self.handle_packet(inbox)
        {
            return Ok(Some(InputEvent::Packet(packet)));
        }
        while self.is_open() && !self.is_stalled() {
            let frame = self.reading.decoder.decode(inbox)?;
            if let (false, Some(format)) = (self.writing.outbox.has_format(), self.reading.decoder.format()) {
                self.writing.outbox.set_format(format);
            }
            let Some(frame) = frame else {
                if self.reading.decoder.skip_len() == 0 {
                    self.reading.end_discard();
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
        let frame = self.reading.decoder.decode_packet(inbox)?;
        let operation = match frame.kind {
            FrameKind::Application(operation) => operation,
            FrameKind::Extended => Operation::EXTENDED,
            _ => return None,
        };
        self.counters.packets_in += 1;
        self.reading.end_discard();
        if !frame.content.is_empty() {
            self.allowances.earn_packet();
        }
        Some(Packet { id: frame.id, operation, content: frame.content.into() })
    }

    /// Reports the end of reading. The peer can give no more credit, so senders no longer wait for it.
    pub fn handle_end(&mut self, now: Instant) {
        self.set_reading(now, false);
        self.streams.ignore_credit();
        self.writing.send_without_pongs();
    }

    /// Reports that a packet was refused, because of a limit or because the connection is
    /// [draining](Self::is_draining).
    pub fn handle_refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Reports that the driver pauses or resumes reading. Silence counts only while it reads.
    pub fn set_reading(&mut self, now: Instant, reading: bool) {
        self.heartbeat.set_reading(now, reading);
        if let Some(flight) = self.writing.outbox.flight_mut() {
            flight.set_reading(reading);
        }
        self.reading.set_reading(now, reading);
    }

    /// Puts undispatched packets, and the header of an incomplete one, back into `inbox`.
    ///
    /// [Discarded](Self::discard_len) bytes are not restored.
    pub fn undo_input(&mut self, packets: impl IntoIterator<Item = Packet>, inbox: &mut BytesMut) {
        self.reading.decoder.undo(inbox);
        let Some(format) = self.reading.decoder.format() else { return };
        let mut front = BytesMut::new();
        for Packet { id, operation, content } in packets {
            let len = u32::try_from(content.len()).expect("a received content is within its u32 limit");
            let header = Header { id, operation: operation.number(), len };
            self.reading.decoder.encode(format, header, &content.into_bytes(), &mut front);
        }
        if !front.is_empty() {
            front.extend_from_slice(inbox);
            *inbox = front;
        }
    }

    /// Returns the length of the current content, partly in the inbox. Zero between packets.
    pub fn content_len(&self) -> usize {
        self.reading.decoder.content_len()
    }

    /// Returns the number of content bytes still to be discarded.
    pub fn discard_len(&self) -> usize {
        self.reading.decoder.skip_len()
    }

    /// Returns the length of the packet at the front of `bytes`, including its header.
    ///
    /// Returns `None` if the header is incomplete, or if the content is too large and would be discarded.
    pub fn announced_len(&self, bytes: &[u8]) -> Option<usize> {
        self.reading.decoder.announced_len(bytes)
    }

    /// Returns `true` if any byte was received.
    pub fn has_received(&self) -> bool {
        self.counters.bytes_in > 0
    }

    /// Returns the header format, once known.
    pub fn format(&self) -> Option<HeaderFormat> {
        self.reading.decoder.format()
    }

    /// Returns the header format, or the [fallback](HeaderFormat::FALLBACK) while it is unknown.
    pub fn format_or_fallback(&self) -> HeaderFormat {
        self.format().unwrap_or(HeaderFormat::FALLBACK)
    }

    /// Returns `true` if the peer's frames have checksums.
    pub fn has_checksums(&self) -> bool {
        self.reading.decoder.has_checksums()
    }

    /// Returns `true` while a content from the peer is arriving in pieces.
    pub fn has_pieces(&self) -> bool {
        self.reading.has_pieces()
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<Option<InputEvent>, ProtocolError> {
        self.counters.packets_in += 1;
        if self.negotiation.is_unknown()
            && let Some(event) = self.recognize(now, &frame)?
        {
            return Ok(Some(event));
        }
        if frame.kind == FrameKind::Piece && self.uses(Features::PIECES) {
            return self.handle_piece(now, frame);
        }
        if frame.skipped > self.config.content_len_max {
            return self.handle_too_large(now, &frame);
        }
        self.reading.end_discard();
        self.handle_whole(now, frame)
    }

    /// Handles a piece of a content. The last piece completes the frame.
    fn handle_piece(&mut self, now: Instant, mut frame: Frame) -> Result<Option<InputEvent>, ProtocolError> {
        // Pieces are counted separately. The whole content counts as one packet.
        self.counters.packets_in -= 1;
        self.counters.pieces_in += 1;
        self.allowances.earn_data();
        let mut event = None;
        if !self.has_pieces() {
            let first = FirstPieceFields::decode(&mut frame.content)?;
            let is_kept = self.reading.decoder.keeps(first.total)?;
            self.reading.assembly().begin(frame.id, &first, is_kept);
            if !is_kept {
                self.counters.packets_in += 1;
                let whole = Frame { id: frame.id, kind: first.kind, content: Bytes::new(), skipped: first.total };
                event = self.handle_too_large(now, &whole)?;
            }
        }
        // No other content is being discarded between the pieces.
        self.reading.end_discard();
        match self.reading.assembly().add(frame.id, &frame.content)? {
            Some(whole) => {
                self.counters.packets_in += 1;
                self.handle_whole(now, whole)
            }
            None => Ok(event),
        }
    }

    /// Handles a frame with its content.
    fn handle_whole(&mut self, now: Instant, frame: Frame) -> Result<Option<InputEvent>, ProtocolError> {
        match frame.kind {
            FrameKind::Application(operation) => Ok(Some(self.handle_application(operation, frame))),
            FrameKind::Extended => Ok(Some(self.handle_application(Operation::EXTENDED, frame))),
            FrameKind::Control => self.handle_control(now, frame),
            FrameKind::Stream if !frame.content.is_empty() => {
                self.allowances.earn_data();
                self.reading.handle_stream_data(now);
                let received = self.streams.handle_data(now, frame.id, frame.content);
                Ok(self.handle_stream_received(frame.id, received))
            }
            FrameKind::Stream => {
                self.allowances.handle_answer(now, Answer::Close)?;
                Ok(self.streams.handle_close(frame.id).map(InputEvent::StreamReadable))
            }
            FrameKind::Ping => {
                self.allowances.spend(now)?;
                self.writing.outbox.push_pong();
                Ok(None)
            }
            FrameKind::Pong => {
                if self.negotiation.uses(Features::LOAD) {
                    self.peer_load = frame.id.checked_sub(1).or(self.peer_load);
                }
                self.heartbeat.handle_pong(now);
                // The peer pays nothing for a PONG to a PING sent after pieces.
                let answered = self.writing.outbox.pings() - u64::from(self.heartbeat.unanswered());
                let is_expected =
                    self.writing.outbox.flight_mut().is_some_and(|flight| flight.handle_pong(now, answered));
                if !is_expected {
                    self.allowances.spend(now)?;
                }
                Ok(None)
            }
            FrameKind::Piece | FrameKind::Reserved => {
                self.counters.dropped += 1;
                self.allowances.spend(now).map(|()| None)
            }
        }
    }

    /// Starts discarding a content. A large packet or stream frame costs the peer more than this side, so it takes no
    /// token. It returns none either.
    fn handle_too_large(&mut self, now: Instant, frame: &Frame) -> Result<Option<InputEvent>, ProtocolError> {
        let (id, announced, limit) = (frame.id, frame.skipped, self.config.content_len_max);
        self.reading.begin_discard(now, announced, self.config.discard_time_max);
        self.counters.too_large += 1;
        match frame.kind {
            FrameKind::Application(operation) => Ok(Some(InputEvent::TooLarge { id, operation, announced })),
            FrameKind::Extended => Ok(Some(InputEvent::TooLarge { id, operation: Operation::EXTENDED, announced })),
            FrameKind::Stream => {
                let received = self.streams.handle_too_large(now, id, announced, limit);
                Ok(self.handle_stream_received(id, received))
            }
            FrameKind::Ping | FrameKind::Pong | FrameKind::Control | FrameKind::Piece | FrameKind::Reserved => {
                self.allowances.spend(now).map(|()| None)
            }
        }
    }

    fn handle_stream_received(&mut self, id: u16, received: DataOutcome) -> Option<InputEvent> {
        match received {
            DataOutcome::Opened(key) => Some(InputEvent::StreamOpened(key)),
            DataOutcome::Queued(key) => Some(InputEvent::StreamReadable(key)),
            DataOutcome::Ignored => None,
            DataOutcome::Refused => {
                self.counters.streams_refused += 1;
                self.push_stream_close(id, FrameCause::PeerInduced);
                None
            }
        }
    }

    fn handle_application(&mut self, operation: Operation, frame: Frame) -> InputEvent {
        if !frame.content.is_empty() {
            self.allowances.earn_packet();
        }
        InputEvent::Packet(Packet { id: frame.id, operation, content: frame.content.into() })
    }

    /// Detects the protocol of an unknown peer. Returns an event for a frame with no other purpose.
    fn recognize(&mut self, now: Instant, frame: &Frame) -> Result<Option<InputEvent>, ProtocolError> {
        let hello = match frame.kind {
            FrameKind::Control if frame.skipped == 0 => Control::decode(frame.id, frame.content.clone())?,
            _ => None,
        };
        if let Some(Control::Hello(hello)) = hello {
            self.allowances.set_cancel_burst(now, hello.cancel_burst.unwrap_or(0));
            self.streams.own_max = hello.streams_max;
            if hello.features.contains(Features::CREDIT) {
                self.streams.use_credit(hello.window);
                self.announce_closes();
            }
            let reply = self.negotiation.recognize_extended(hello);
            self.reading.decoder.set_reach(FrameFilter::Extended);
            self.use_pieces();
            if let Some(own) = reply {
                self.writing.outbox.push_control(&Control::Hello(own));
            }
            if self.config.checksums && self.uses(Features::CHECKSUMS) {
                self.writing.outbox.use_checksums();
            }
            self.retire_recognized();
            return Ok(Some(InputEvent::Recognized));
        }
        match self.negotiation.role {
            Role::Client if frame.kind != FrameKind::Pong => return Ok(None),
            Role::Client => self.heartbeat.handle_pong(now),
            Role::Server => {}
        }
        self.negotiation.recognize_plain();
        self.reading.decoder.set_reach(FrameFilter::Plain);
        // Before the frame is handled: if the peer cannot be asked to leave, the connection drains and refuses the
        // frame.
        self.retire_recognized();
        // A connecting side detects a plain peer by its PONG, which has no other purpose. An accepting side must
        // still handle the first frame.
        if self.negotiation.role == Role::Client {
            self.allowances.spend(now).map(|()| Some(InputEvent::Recognized))
        } else {
            Ok(None)
        }
    }

    /// Retires the connection if `retire` was called before the peer was recognized.
    fn retire_recognized(&mut self) {
        if let Some(goaway) = self.lifecycle.retiring.take() {
            self.retire(goaway);
        }
    }

    fn handle_control(&mut self, now: Instant, frame: Frame) -> Result<Option<InputEvent>, ProtocolError> {
        let control = match self.negotiation.is_extended() {
            true => Control::decode(frame.id, frame.content)?,
            false => None,
        };
        match control {
            Some(Control::Cancel(packet)) => {
                self.allowances.spend_cancel(now)?;
                Ok(Some(InputEvent::Cancel(packet)))
            }
            Some(Control::Cancelled(packet)) => {
                self.allowances.handle_answer(now, Answer::Cancelled)?;
                Ok(Some(InputEvent::Cancelled(packet)))
            }
            Some(Control::Credit { id, len }) if self.uses(Features::CREDIT) => {
                self.allowances.handle_answer(now, Answer::Credit)?;
                let reached = self.streams.handle_credit(id, len).map_err(|CreditOverflow| {
                    ProtocolError::BadControl { kind: "CREDIT", why: "makes a credit larger than 2147483647" }
                })?;
                Ok(reached.map(InputEvent::StreamWritable))
            }
            Some(Control::GoAway(goaway)) => {
                self.lifecycle.is_asked_to_leave = true;
                self.allowances.spend(now).map(|()| Some(InputEvent::GoingAway(goaway)))
            }
            Some(Control::Checksums) if self.config.checksums => {
                self.reading.decoder.expect_checksums();
                Ok(None)
            }
            Some(Control::Hello(_) | Control::Credit { .. } | Control::Checksums) | None => {
                self.counters.dropped += 1;
                self.allowances.spend(now).map(|()| None)
            }
        }
    }
}
