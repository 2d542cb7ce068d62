//! Header blocks of the peer: heads, informational responses and trailers.

use std::sync::Arc;

use super::{
    Connection, ConnectionState, Event, FrameResult, Header, Role, StreamId,
    partial::{OpenBlock, PartialInput},
    streams::{StreamState, is},
};
use crate::{
    ConnectionError, ErrorCode, Field, Head,
    frame::{FrameHeader, block_fragment, flag, put_reset},
};

impl Connection {
    #[inline]
    pub(super) fn receive_headers<'a>(&mut self, header: FrameHeader, payload: &'a [u8]) -> FrameResult<'a> {
        let id = header.stream;
        if id & 1 == 0 {
            return Err(ConnectionError::protocol("HEADERS has no stream of a client"));
        }
        let (fragment, depends_on_itself) = block_fragment(header, payload)?;
        let end = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) && fragment.len() <= self.settings.header_block_max {
            return self.receive_block(id, end, depends_on_itself, fragment);
        }
        let due = self.now + self.settings.handshake_timeout;
        self.partial = PartialInput::Block(OpenBlock { stream: id, end, depends_on_itself, due });
        self.extend_block(fragment)?;
        Ok(None)
    }

    pub(super) fn receive_continuation<'a>(&mut self, header: FrameHeader, payload: &[u8]) -> FrameResult<'a> {
        if self.partial.block().is_none() {
            return Err(ConnectionError::protocol("CONTINUATION follows no header block"));
        }
        // The length limit does not count empty frames.
        if payload.is_empty() && !self.empty_frames.spend() {
            return Err(ConnectionError::calm("too many empty frames"));
        }
        self.extend_block(payload)?;
        if !header.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(open) = self.partial.take_block() else { return Ok(None) };
        let block = std::mem::take(&mut self.block);
        self.receive_block(open.stream, open.end, open.depends_on_itself, &block)
    }

    fn extend_block(&mut self, fragment: &[u8]) -> Result<(), ConnectionError> {
        if self.block.len() + fragment.len() > self.settings.header_block_max {
            return Err(ConnectionError::calm("a header block is too long"));
        }
        self.block.extend_from_slice(fragment);
        Ok(())
    }

    #[inline]
    fn receive_block<'a>(&mut self, id: u32, end: bool, depends_on_itself: bool, block: &[u8]) -> FrameResult<'a> {
        // Every block is decoded, also one for a refused stream: it may change the table.
        let head = match self.partial.take_decoded() {
            Some(head) => head,
            None => self.decoder.decode(block)?,
        };
        let Some(stream) = self.streams.get(id) else {
            return self.receive_request(id, end, depends_on_itself, head);
        };
        if stream.has(is::REMOTE_ENDED) {
            return self.stream_error(id, ErrorCode::STREAM_CLOSED);
        }
        if depends_on_itself {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        if head.is_too_large() {
            return self.stream_error(id, ErrorCode::ENHANCE_YOUR_CALM);
        }
        if stream.has(is::HEAD_RECEIVED) {
            self.receive_trailers(id, end, head)
        } else {
            self.receive_response(id, end, head)
        }
    }

    #[inline]
    fn receive_request<'a>(&mut self, id: u32, end: bool, depends_on_itself: bool, head: Arc<Head>) -> FrameResult<'a> {
        if self.role == Role::Client || id <= self.last_peer_id {
            return self.receive_late_block(id);
        }
        self.last_peer_id = id;
        let is_closing = matches!(self.state, ConnectionState::Closing { last } if id > last);
        if is_closing || self.active >= self.settings.streams_max as usize {
            return self.stream_error(id, ErrorCode::REFUSED_STREAM);
        }
        if head.is_too_large() {
            return self.refuse_large_head(id, end);
        }
        if depends_on_itself || !head.is_request() || (end && head.content_length().is_some_and(|len| len > 0)) {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        if head.is_connect() && !self.settings.accepts_connect {
            return self.stream_error(id, ErrorCode::CONNECT_ERROR);
        }
        let mut stream = StreamState::new(id, self.own_window, self.peer.window);
        stream.set(is::HEAD_RECEIVED);
        stream.content_left = head.content_length();
        if end {
            stream.set(is::REMOTE_ENDED);
        }
        self.streams.insert(stream);
        self.active += 1;
        Ok(Some(Event::Head { stream: StreamId(id), head, end }))
    }

    /// Handles a block for an ended stream.
    fn receive_late_block<'a>(&mut self, id: u32) -> FrameResult<'a> {
        let was_reset = self.recent_resets.contains(id) || self.recent_resets.may_have_forgotten(id);
        if !was_reset && !self.is_idle(id) {
            let code = ErrorCode::STREAM_CLOSED;
            return Err(ConnectionError::peer(code, "HEADERS belongs to a closed stream"));
        }
        self.receive_late(id)
    }

    /// Answers a request whose head exceeds the limit. The stream never exists for the application.
    fn refuse_large_head<'a>(&mut self, id: u32, end: bool) -> FrameResult<'a> {
        self.spend_reset()?;
        self.put_block(id, Header::fields(&[Field::new(":status", "431")]), true);
        if !end {
            put_reset(self.output.frames(), id, ErrorCode::NO_ERROR);
            self.recent_resets.insert(id);
        }
        Ok(None)
    }

    fn receive_response<'a>(&mut self, id: u32, end: bool, head: Arc<Head>) -> FrameResult<'a> {
        if !head.is_response() {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        let stream = StreamId(id);
        if head.is_informational() {
            if end {
                return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
            }
            self.spend_control()?;
            return Ok(Some(Event::Informational { stream, head }));
        }
        let Some(state) = self.streams.get(id) else { return Ok(None) };
        state.set(is::HEAD_RECEIVED);
        // Responses to HEAD, and 204 and 304, announce the length of data that they do not carry.
        let carries_data = !state.has(is::HEAD_REQUEST) && !matches!(head.status(), Some(204 | 304));
        state.content_left = if carries_data { head.content_length() } else { Some(0) };
        if end && state.content_left.is_some_and(|left| left > 0) {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        if end {
            self.end_remote(id);
        }
        Ok(Some(Event::Head { stream, head, end }))
    }

    fn receive_trailers<'a>(&mut self, id: u32, end: bool, trailers: Arc<Head>) -> FrameResult<'a> {
        let is_short = self.streams.get(id).is_some_and(|stream| stream.content_left.is_some_and(|left| left > 0));
        if !end || is_short || !trailers.is_trailers() {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        self.end_remote(id);
        Ok(Some(Event::Trailers { stream: StreamId(id), trailers }))
    }
}
