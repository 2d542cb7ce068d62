//! Requests, responses, data and trailers of this side.

use bytes::Bytes;

use super::{
    Connection, ConnectionState, Header, Role, StreamId,
    streams::{SendQueue, StreamEnd, StreamState, is},
};
use crate::{
    ErrorCode, OpenError, SendError,
    frame::{HEADER_LEN, flag, kind, patch_len, put_header, put_reset, split_block},
    settings::WINDOW_MAX,
};

impl Connection {
    /// Opens a stream with a request. `end` tells the server that neither data nor trailers follow.
    ///
    /// # Errors
    ///
    /// No stream was opened; see [`OpenError`].
    pub fn open(&mut self, head: Header<'_>, end: bool) -> Result<StreamId, OpenError> {
        let mut stream = self.new_stream(head)?;
        let id = stream.id;
        if end {
            stream.set(is::LOCAL_ENDED);
        }
        self.streams.insert(stream);
        self.put_block(id, head, end);
        Ok(StreamId(id))
    }

    /// Opens a stream with a request and short data at its end: the cheapest form for small messages.
    ///
    /// Returns `false` if the data was not sent, because it would have to queue. The stream is open then.
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    #[inline]
    pub fn open_with(&mut self, head: Header<'_>, data: [&[u8]; 2]) -> Result<(StreamId, bool), OpenError> {
        let mut stream = self.new_stream(head)?;
        let (id, len) = (stream.id, data[0].len() + data[1].len());
        let flow = i64::try_from(len).unwrap_or(i64::MAX);
        let is_sent = len <= self.direct_max() && flow <= stream.send_window;
        if is_sent {
            stream.set(is::LOCAL_ENDED);
            stream.send_window -= flow;
        }
        self.streams.insert(stream);
        self.put_block(id, head, false);
        if is_sent {
            self.send_window -= flow;
            let out = self.output.frames();
            put_header(out, len, kind::DATA, flag::END_STREAM, id);
            put_pieces(out, data);
        }
        Ok((StreamId(id), is_sent))
    }

    /// Returns the state of a new stream, which counts as active from now on.
    #[inline]
    fn new_stream(&mut self, head: Header<'_>) -> Result<StreamState, OpenError> {
        match self.state {
            ConnectionState::Open if self.role == Role::Client => {}
            ConnectionState::Open | ConnectionState::Failed(_) => return Err(OpenError::Closed),
            _ => return Err(OpenError::GoingAway),
        }
        if self.peer_last.is_some() {
            return Err(OpenError::GoingAway);
        }
        let id = self.next_id;
        if id > WINDOW_MAX {
            return Err(OpenError::IdsExhausted);
        }
        if self.active >= self.peer.streams_max {
            self.wants_capacity = true;
            return Err(OpenError::NoCapacity);
        }
        if self.exceeds_list_max(head) {
            return Err(OpenError::HeadTooLarge);
        }
        self.next_id += 2;
        self.active += 1;
        let mut stream = StreamState::new(id, self.own_window, self.peer.window);
        stream.set(is::HEAD_SENT);
        // The length in a response to HEAD announces no data.
        if self.encoder.is_head(head) {
            stream.set(is::HEAD_REQUEST);
        }
        Ok(stream)
    }

    /// Sends the final head of a response.
    ///
    /// With `end`, the server has answered completely: a request still in flight is reset with NO_ERROR.
    ///
    /// # Errors
    ///
    /// The stream is closed or has a head, or the head is too large for the peer.
    pub fn send_head(&mut self, stream: StreamId, head: Header<'_>, end: bool) -> Result<(), SendError> {
        self.check_head(stream, head)?.set(is::HEAD_SENT);
        self.put_block(stream.0, head, end);
        if end {
            self.end_local(stream.0);
        }
        Ok(())
    }

    /// Sends an informational response, with a status from 100 to 199 except 101.
    ///
    /// # Errors
    ///
    /// Like [`send_head`](Self::send_head).
    pub fn send_informational(&mut self, stream: StreamId, head: Header<'_>) -> Result<(), SendError> {
        self.check_head(stream, head)?;
        self.put_block(stream.0, head, false);
        Ok(())
    }

    #[inline(always)] // Once per call.
    fn check_head(&mut self, stream: StreamId, head: Header<'_>) -> Result<&mut StreamState, SendError> {
        let exceeds_list_max = self.exceeds_list_max(head);
        let is_failed = self.is_failed();
        let state = self.streams.get(stream.0).filter(|_| !is_failed).ok_or(SendError::Closed)?;
        if state.has(is::HEAD_SENT) {
            return Err(SendError::OutOfOrder);
        }
        if exceeds_list_max { Err(SendError::HeadTooLarge) } else { Ok(state) }
    }

    fn exceeds_list_max(&self, head: Header<'_>) -> bool {
        self.peer.list_max != usize::MAX && self.encoder.list_len(head) > self.peer.list_max
    }

    /// Sends a response with its head, short data and trailers: the cheapest form for small messages.
    ///
    /// # Errors
    ///
    /// Like [`send_head`](Self::send_head). [`Full`](SendError::Full) means that nothing was sent, because the data
    /// would have to queue.
    pub fn send_response(
        &mut self,
        stream: StreamId,
        head: Header<'_>,
        data: [&[u8]; 2],
        trailers: Header<'_>,
    ) -> Result<(), SendError> {
        if self.exceeds_list_max(trailers) {
            return Err(SendError::HeadTooLarge);
        }
        let (len, direct_max) = (data[0].len() + data[1].len(), self.direct_max());
        let state = self.check_head(stream, head)?;
        let flow = i64::try_from(len).unwrap_or(i64::MAX);
        if len > direct_max || flow > state.send_window {
            return Err(SendError::Full);
        }
        state.set(is::HEAD_SENT);
        let is_over = state.has(is::REMOTE_ENDED);
        self.send_window -= flow;
        self.put_block(stream.0, head, false);
        if len > 0 {
            let out = self.output.frames();
            put_header(out, len, kind::DATA, 0, stream.0);
            put_pieces(out, data);
        }
        self.put_block(stream.0, trailers, true);
        if is_over && self.role == Role::Server {
            self.remove_stream(stream.0);
            self.resets.earn();
        } else {
            self.end_local(stream.0);
        }
        Ok(())
    }

    /// Sends data. Large data is not copied.
    ///
    /// # Errors
    ///
    /// The queue is full, or the stream is closed or without a head.
    pub fn send_data(&mut self, stream: StreamId, data: Bytes, end: bool) -> Result<(), SendError> {
        if data.is_empty() && !end {
            return Ok(());
        }
        if self.starts_data(stream, data.len(), end)? {
            self.output.push(data);
            if end {
                self.end_local(stream.0);
            }
        } else {
            self.enqueue(stream.0, data, end);
        }
        Ok(())
    }

    /// Sends data by a copy: the cheapest form for small messages in a reused buffer.
    ///
    /// # Errors
    ///
    /// Like [`send_data`](Self::send_data).
    #[inline]
    pub fn send_slice(&mut self, stream: StreamId, data: &[u8], end: bool) -> Result<(), SendError> {
        self.send_slices(stream, [data], end)
    }

    /// Sends data in several parts by a copy, such as a message and the header before it.
    ///
    /// # Errors
    ///
    /// Like [`send_data`](Self::send_data). No part is sent then.
    #[inline]
    pub fn send_slices<const N: usize>(
        &mut self,
        stream: StreamId,
        parts: [&[u8]; N],
        end: bool,
    ) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        if len == 0 && !end {
            return Ok(());
        }
        if self.starts_data(stream, len, end)? {
            let out = self.output.frames();
            parts.iter().for_each(|part| out.extend_from_slice(part));
            if end {
                self.end_local(stream.0);
            }
        } else {
            self.enqueue(stream.0, parts.concat().into(), end);
        }
        Ok(())
    }

    /// Writes the header of a DATA frame and returns `true`, if the data can go out now. Otherwise it has to queue.
    #[inline]
    fn starts_data(&mut self, id: StreamId, len: usize, end: bool) -> Result<bool, SendError> {
        let has_room = self.queued == 0 || self.queued + len <= self.settings.connection_queue_max;
        let is_full = |queued: usize| queued > 0 && queued + len > self.settings.stream_queue_max;
        let (is_failed, direct_max) = (self.is_failed(), self.direct_max());
        let Some(stream) = self.streams.get(id.0) else { return Err(SendError::Closed) };
        if stream.is_ending() || is_failed {
            return Err(SendError::Closed);
        }
        if !stream.has(is::HEAD_SENT) {
            return Err(SendError::OutOfOrder);
        }
        let queued = stream.queued();
        let flow = i64::try_from(len).unwrap_or(i64::MAX);
        let is_direct = queued == 0 && len <= direct_max && flow <= stream.send_window;
        // No window holds back an end without data.
        if is_direct || (len == 0 && queued == 0) {
            stream.send_window -= flow;
            self.send_window -= flow;
            let flags = if end { flag::END_STREAM } else { 0 };
            put_header(self.output.frames(), len, kind::DATA, flags, id.0);
            return Ok(true);
        }
        // An end without data is always accepted.
        if len > 0 && (!has_room || is_full(queued)) {
            if !stream.has(is::WANTS_WRITABLE) {
                stream.set(is::WANTS_WRITABLE);
                self.waiting.push(id.0);
            }
            if stream.is_window_closed() {
                self.park(id.0);
            }
            return Err(SendError::Full);
        }
        Ok(false)
    }

    fn enqueue(&mut self, id: u32, data: Bytes, end: bool) {
        let Some(stream) = self.streams.get(id) else { return };
        let queue = stream.queue.get_or_insert_default();
        self.queued += data.len();
        queue.len += data.len();
        if !data.is_empty() {
            queue.chunks.push_back(data);
        }
        if end {
            queue.end = Some(StreamEnd::Data);
        }
        self.make_ready(id);
    }

    /// Ends a stream with trailers, after its queued data.
    ///
    /// # Errors
    ///
    /// The stream is closed or without a head, or the trailers are too large for the peer.
    pub fn send_trailers(&mut self, stream: StreamId, trailers: Header<'_>) -> Result<(), SendError> {
        let exceeds_list_max = self.exceeds_list_max(trailers);
        let is_failed = self.is_failed();
        let Some(state) = self.streams.get(stream.0) else { return Err(SendError::Closed) };
        if state.is_ending() || is_failed {
            return Err(SendError::Closed);
        }
        if !state.has(is::HEAD_SENT) {
            return Err(SendError::OutOfOrder);
        }
        if exceeds_list_max {
            return Err(SendError::HeadTooLarge);
        }
        if let Some(queue) = state.queue.as_deref_mut().filter(|queue| queue.len > 0) {
            let SendQueue { end, .. } = queue;
            let fields = trailers.fields.iter().map(|field| field.detach()).collect();
            *end = Some(StreamEnd::Trailers(trailers.prepared, fields));
            return Ok(());
        }
        self.put_block(stream.0, trailers, true);
        self.end_local(stream.0);
        Ok(())
    }

    /// Returns the data that a stream accepts now, in bytes.
    pub fn capacity(&mut self, stream: StreamId) -> usize {
        let connection = self.settings.connection_queue_max.saturating_sub(self.queued);
        let (max, direct_max) = (self.settings.stream_queue_max, self.direct_max());
        let Some(stream) = self.streams.get(stream.0) else { return 0 };
        match max.saturating_sub(stream.queued()).min(connection) {
            0 => stream.direct_max(direct_max),
            room => room,
        }
    }

    /// Returns the data that may go out now without a queue, in bytes. The window of its stream may allow less.
    ///
    /// Data of one frame overtakes long data of other streams, but not where the connection's window is the bottleneck:
    /// there it would starve them.
    #[inline]
    pub(super) fn direct_max(&self) -> usize {
        let has_room = self.output.len() < self.settings.batch_max && self.stalled.is_none();
        let window = usize::try_from(self.send_window).unwrap_or(0);
        if has_room { self.peer.frame_len.min(window) } else { 0 }
    }

    /// Resets a stream. Its queued data is dropped, and no event follows.
    ///
    /// On a stream that both sides have ended, it only returns the credit of unread data.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let Some(state) = self.streams.get(stream.0) else { return };
        if !state.has(is::CLOSED) && !self.is_failed() {
            put_reset(self.output.frames(), stream.0, code);
            self.recent_resets.insert(stream.0);
        }
        self.remove_stream(stream.0);
    }

    /// Marks the direction of this side as ended, after END_STREAM is in the output.
    #[inline]
    pub(super) fn end_local(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.set(is::LOCAL_ENDED);
        if stream.has(is::REMOTE_ENDED) {
            return self.close_stream(id);
        }
        if self.role == Role::Server {
            // The answer does not depend on the rest of the request. NO_ERROR tells the client to stop sending it.
            put_reset(self.output.frames(), id, ErrorCode::NO_ERROR);
            self.recent_resets.insert(id);
            self.close_stream(id);
        }
    }

    /// Writes HEADERS, and CONTINUATION if the block is longer than a frame.
    #[inline]
    pub(super) fn put_block(&mut self, id: u32, header: Header<'_>, end: bool) {
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        // The common case: a prepared block, unchanged. Frames may have 16 KiB or more.
        if let Some(frame) = self.encoder.short_frame(header) {
            return frame.put(self.output.frames(), flags, id);
        }
        if let Some(block) = self.encoder.encoded(header)
            && block.len() <= self.peer.frame_len
        {
            let out = self.output.frames();
            put_header(out, block.len(), kind::HEADERS, flags, id);
            return out.extend_from_slice(block);
        }
        self.put_new_block(id, header, flags);
    }

    fn put_new_block(&mut self, id: u32, header: Header<'_>, flags: u8) {
        let out = self.output.frames();
        let start = out.len();
        put_header(out, 0, kind::HEADERS, flags, id);
        self.encoder.encode(out, header);
        if out.len() - start - HEADER_LEN > self.peer.frame_len {
            split_block(out, start, self.peer.frame_len);
        } else {
            patch_len(out, start);
        }
    }
}

/// Appends the pieces of short data.
#[inline]
fn put_pieces(out: &mut Vec<u8>, [first, second]: [&[u8]; 2]) {
    // The header of a gRPC message: a copy of fixed length takes no call of `memcpy`.
    match first.first_chunk::<5>() {
        Some(header) if first.len() == header.len() => out.extend_from_slice(header),
        _ => out.extend_from_slice(first),
    }
    out.extend_from_slice(second);
}
