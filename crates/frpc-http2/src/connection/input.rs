//! Input: the preface, the order of frames, and data.

use std::time::Instant;

use super::{
    Connection, ConnectionState, Event, FrameResult, Received, Role, StreamId,
    partial::{DataRest, PartialInput},
    streams::is,
};
use crate::{
    ConnectionError, ErrorCode, Fault, StreamError,
    frame::{FrameHeader, HEADER_LEN, PREFACE, flag, kind, put_reset, put_settings, put_window_update, setting, unpad},
};

impl Connection {
    /// Handles received bytes up to the first event.
    ///
    /// Without an event, all whole frames are handled, and the driver keeps the unconsumed rest. The rest is shorter
    /// than one frame, unless the connection does not [want input](Self::wants_input). A long DATA frame causes an event
    /// for each part of it.
    ///
    /// # Errors
    ///
    /// The peer violated the protocol or a limit. The connection has ended.
    #[inline]
    pub fn receive<'a>(&mut self, input: &'a [u8], now: Instant) -> Result<Received<'a>, ConnectionError> {
        if let ConnectionState::Failed(error) = self.state {
            return Err(error);
        }
        self.now = now;
        self.keepalive.heard(now);
        self.receive_frames(input).map_err(|error| self.fail(error))
    }

    /// Returns `true` if a frame that begins with `start`, the rest of earlier input, needs more than `len` further bytes.
    /// [`receive`](Self::receive) would handle none of it, so a driver keeps these bytes without a call.
    pub fn awaits_more(&mut self, start: &[u8], len: usize, now: Instant) -> bool {
        let (header, arrived) = match (self.partial.data(), FrameHeader::parse(start)) {
            (Some(rest), _) => (rest.header(), start.len()),
            (None, Some(header)) => (header, start.len() - HEADER_LEN),
            (None, None) => return false,
        };
        let needed = if Self::is_divisible(header) { header.len.min(PART_MIN) } else { header.len };
        let awaits_more = arrived + len < needed;
        if awaits_more {
            self.now = now;
            self.keepalive.heard(now);
        }
        awaits_more
    }

    fn receive_frames<'a>(&mut self, input: &'a [u8]) -> Result<Received<'a>, ConnectionError> {
        let mut consumed = self.receive_preface(input)?;
        // Answers to frames are output. A peer that does not read gets no more of them.
        while self.output.len() <= self.settings.output_max {
            let (header, start) = match self.partial.data() {
                Some(rest) => (rest.header(), consumed),
                None => match FrameHeader::parse(&input[consumed..]) {
                    Some(header) => (header, consumed + HEADER_LEN),
                    None => break,
                },
            };
            if header.len >= self.frame_len_max as usize {
                self.receive_full_frame(header)?;
            }
            let (header, payload) = match input.get(start..start + header.len) {
                Some(payload) => {
                    if self.partial.data().is_some() {
                        self.partial = PartialInput::None;
                    }
                    // Once for a frame in parts.
                    self.output.counters().receive(header.kind, 1);
                    (header, payload)
                }
                None => match self.split_data(header, &input[start..]) {
                    Some(part) => part,
                    None => break,
                },
            };
            consumed = start + payload.len();
            let event = self.receive_frame(header, payload)?;
            if event.is_some() {
                return Ok(Received { consumed, event });
            }
        }
        Ok(Received { consumed, event: None })
    }

    /// Checks the length of a long frame. Allows longer frames from the first full DATA frame on: header blocks of unknown
    /// peers stay in short frames.
    #[cold]
    fn receive_full_frame(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        if header.len > self.frame_len_max as usize {
            return Err(ConnectionError::frame_size("a frame is longer than MAX_FRAME_SIZE"));
        }
        let (before, max) = (self.frame_len_max, self.settings.frame_len_max);
        if header.kind == kind::DATA && max > before {
            self.frame_len_max = max;
            put_settings(self.output.frames(), &[(setting::MAX_FRAME_SIZE, max)]);
        }
        Ok(())
    }

    /// Splits an incomplete DATA frame in two: the part that has arrived, which is returned, and the rest. Drivers need not
    /// keep and copy long frames then.
    fn split_data<'a>(&mut self, header: FrameHeader, part: &'a [u8]) -> Option<(FrameHeader, &'a [u8])> {
        if !Self::is_divisible(header) || part.len() < PART_MIN {
            return None;
        }
        let len = u32::try_from(header.len - part.len()).ok()?;
        self.partial = PartialInput::Data(DataRest { stream: header.stream, len, end: header.has(flag::END_STREAM) });
        Some((FrameHeader { len: part.len(), flags: 0, ..header }, part))
    }

    fn is_divisible(header: FrameHeader) -> bool {
        header.kind == kind::DATA && !header.has(flag::PADDED)
    }

    /// Checks the next bytes of the preface, so another protocol is detected by its first byte.
    fn receive_preface(&mut self, input: &[u8]) -> Result<usize, ConnectionError> {
        let (mut len, start) = (0, PREFACE.len() - usize::from(self.preface_left));
        for (byte, expected) in input.iter().zip(&PREFACE[start..]) {
            if byte != expected {
                return Err(ConnectionError::protocol("the connection does not begin with the preface of HTTP/2"));
            }
            self.preface_left -= 1;
            len += 1;
        }
        // A partial preface leaves no whole frame in the input.
        Ok(len)
    }

    #[inline]
    fn receive_frame<'a>(&mut self, header: FrameHeader, payload: &'a [u8]) -> FrameResult<'a> {
        if let Some(block) = self.partial.block()
            && (header.kind != kind::CONTINUATION || header.stream != block.stream)
        {
            return Err(ConnectionError::protocol("a frame interrupts a header block"));
        }
        if self.handshake_due.is_some() && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        match header.kind {
            kind::DATA => self.receive_data(header, payload),
            kind::HEADERS => self.receive_headers(header, payload),
            kind::CONTINUATION => self.receive_continuation(header, payload),
            _ => self.receive_control(header, payload),
        }
    }

    #[inline]
    fn receive_data<'a>(&mut self, header: FrameHeader, payload: &'a [u8]) -> FrameResult<'a> {
        let FrameHeader { stream: id, len, .. } = header;
        if id == 0 {
            return Err(ConnectionError::protocol("DATA has no stream"));
        }
        let data = unpad(header, payload)?;
        let end = header.has(flag::END_STREAM);
        if data.is_empty() && !end {
            if !self.empty_frames.spend() {
                return Err(ConnectionError::calm("too many empty frames"));
            }
        } else {
            self.empty_frames.earn();
        }
        let flow = i64::try_from(len).unwrap_or(i64::MAX);
        if flow > self.receive_window {
            let code = ErrorCode::FLOW_CONTROL_ERROR;
            return Err(ConnectionError::peer(code, "data exceeds the window of the connection"));
        }
        self.receive_window -= flow;
        let Some(stream) = self.streams.get(id) else {
            self.credit(len);
            return self.receive_late(id);
        };
        let violation = if stream.has(is::REMOTE_ENDED) {
            Some(ErrorCode::STREAM_CLOSED)
        } else if !stream.has(is::HEAD_RECEIVED) {
            Some(ErrorCode::PROTOCOL_ERROR)
        } else if flow > stream.receive_window {
            Some(ErrorCode::FLOW_CONTROL_ERROR)
        } else {
            let left = stream.content_left.map(|left| left.checked_sub(data.len() as u64));
            stream.content_left = left.flatten();
            // The sum of all data has to match `content-length`.
            (left == Some(None) || (end && left.flatten().is_some_and(|left| left > 0)))
                .then_some(ErrorCode::PROTOCOL_ERROR)
        };
        if let Some(code) = violation {
            self.credit(len);
            return self.stream_error(id, code);
        }
        stream.receive_window -= flow;
        stream.unreleased += len;
        if end {
            self.end_remote(id);
        }
        let padding = len - data.len();
        if padding > 0 {
            self.release(StreamId(id), padding);
        }
        if data.is_empty() && !end {
            return Ok(None);
        }
        Ok(Some(Event::Data { stream: StreamId(id), data, end }))
    }

    /// Handles data or headers for a stream without an entry.
    pub(super) fn receive_late<'a>(&mut self, id: u32) -> FrameResult<'a> {
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("a frame belongs to an idle stream"));
        }
        if self.recent_resets.contains(id) {
            return Ok(None);
        }
        if self.recent_resets.may_have_forgotten(id) {
            // Maybe honest, but without a limit it would be a flood.
            return self.spend_reset().map(|()| None);
        }
        self.stream_error(id, ErrorCode::STREAM_CLOSED)
    }

    /// Returns `true` for streams that neither side has opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        let is_of_client = id & 1 == 1;
        match self.role {
            Role::Server => !is_of_client || id > self.last_peer_id,
            Role::Client => !is_of_client || id >= self.next_id,
        }
    }

    /// Takes a unit of the budget for resets.
    pub(super) fn spend_reset(&mut self) -> Result<(), ConnectionError> {
        match self.resets.spend() {
            true => Ok(()),
            false => Err(ConnectionError::calm("too many streams were reset before they were complete")),
        }
    }

    /// Resets a stream because of an error of the peer.
    #[cold]
    pub(super) fn stream_error<'a>(&mut self, id: u32, code: ErrorCode) -> FrameResult<'a> {
        // Provoked resets count like resets by the peer: both make the server work for nothing.
        self.spend_reset()?;
        put_reset(self.output.frames(), id, code);
        self.recent_resets.insert(id);
        let is_known = self.remove_stream(id);
        let error = StreamError { code, fault: Fault::Peer, is_remote: false, is_unprocessed: false };
        Ok(is_known.then_some(Event::Reset { stream: StreamId(id), error }))
    }

    /// Marks the direction of the peer as ended.
    #[inline]
    pub(super) fn end_remote(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.set(is::REMOTE_ENDED);
        if stream.has(is::LOCAL_ENDED) {
            self.close_stream(id);
        }
    }

    /// Handles the end of both directions.
    pub(super) fn close_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        // A server has answered, so its application does not read the rest. A client still reads the response.
        if self.role == Role::Server || stream.unreleased == 0 {
            self.remove_stream(id);
        } else {
            stream.set(is::CLOSED);
            stream.queue = None;
            self.end_active();
        }
        self.resets.earn();
    }

    /// Forgets a stream, and returns its unreleased data to the window of the connection.
    pub(super) fn remove_stream(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.remove(id) else { return false };
        self.queued -= stream.queued;
        if stream.is_ready {
            self.ready.retain(|ready| *ready != id);
        }
        if !stream.is_closed {
            self.end_active();
        }
        self.credit(stream.unreleased);
        true
    }

    #[inline]
    fn end_active(&mut self) {
        debug_assert!(self.active > 0, "an active stream ends");
        self.active -= 1;
        self.offer_capacity();
    }

    /// Queues an event if a request was refused and would be accepted now.
    #[inline]
    pub(super) fn offer_capacity(&mut self) {
        if self.wants_capacity && self.active < self.peer.streams_max {
            self.wants_capacity = false;
            self.events.push_back(Event::Capacity);
        }
    }

    /// Returns bytes to the window of the connection. The peer learns about halves of the window, not about each frame.
    ///
    /// It learns earlier if less is open: unread data of one stream must not hold back the others.
    #[inline]
    pub(super) fn credit(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        self.due += len;
        let is_half = self.due * 2 >= self.settings.connection_window as usize;
        let due = i64::try_from(self.due).unwrap_or(i64::MAX);
        if is_half || (self.due >= CREDIT_MIN && due >= self.receive_window) {
            put_window_update(self.output.frames(), 0, u32::try_from(self.due).unwrap_or(u32::MAX));
            self.receive_window += due;
            self.due = 0;
        }
    }

    /// Returns `len` bytes of data, which the application has consumed, to the peer as credit.
    ///
    /// Data of forgotten streams needs no release.
    #[inline]
    pub fn release(&mut self, stream: StreamId, len: usize) {
        let Some(state) = self.streams.get(stream.0) else { return };
        debug_assert!(len <= state.unreleased, "only received data can be released");
        let len = len.min(state.unreleased);
        state.unreleased -= len;
        let is_forgotten = state.has(is::CLOSED) && state.unreleased == 0;
        if !state.has(is::REMOTE_ENDED) {
            state.due += len;
            if state.due > 0 && state.due * 2 >= self.settings.stream_window as usize {
                put_window_update(self.output.frames(), stream.0, u32::try_from(state.due).unwrap_or(u32::MAX));
                state.receive_window += i64::try_from(state.due).unwrap_or(i64::MAX);
                state.due = 0;
            }
        }
        self.credit(len);
        if is_forgotten {
            self.remove_stream(stream.0);
        }
    }
}

/// A part of a DATA frame is handled from this length on. Events for a few bytes would cost more than they save.
const PART_MIN: usize = 4 << 10;

/// Less than this is not announced alone. The peer would send tiny frames.
const CREDIT_MIN: usize = 256;
