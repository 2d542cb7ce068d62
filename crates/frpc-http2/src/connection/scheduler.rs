//! Queued data: streams take turns of one frame each.

use super::{
    Connection, Event, Header, StreamId,
    streams::{SMALL_FRAME, StreamEnd, is},
};
use crate::{
    ConnectionError,
    frame::{flag, kind, put_header},
};

/// The data that ends the stall of a stream, in bytes. Otherwise a peer could hold data back with tiny windows.
const PROGRESS_MIN: usize = 32 << 10;

/// The result of a stream's turn.
enum TurnResult {
    /// More data is left, and the windows are open.
    More,
    /// All data is sent.
    Sent,
    /// The stream sends nothing: its window is closed.
    Parked,
    /// The window of the connection is closed.
    Stalled,
}

impl Connection {
    /// Adds a stream with queued data to the list of the scheduler.
    pub(super) fn make_ready(&mut self, id: u32) {
        let Some(queue) = self.streams.get(id).and_then(|stream| stream.queue.as_deref_mut()) else { return };
        if !queue.is_ready {
            queue.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Moves queued data to the output: a frame of each stream in turn, up to the limit of a batch.
    pub(super) fn pump(&mut self) {
        // The first frame goes out even after a full batch of small responses, which would starve long ones otherwise.
        let mut is_first = true;
        while is_first || self.output.len() < self.settings.batch_max {
            let Some(id) = self.ready.pop_front() else { break };
            match self.take_turn(id) {
                Ok(TurnResult::More) => {
                    self.ready.push_back(id);
                    is_first = false;
                }
                Ok(TurnResult::Sent) => is_first = false,
                Ok(TurnResult::Parked) => {}
                Ok(TurnResult::Stalled) => {
                    self.ready.push_front(id);
                    self.stalled.get_or_insert(self.now);
                    break;
                }
                Err(error) => {
                    self.fail(error);
                    return;
                }
            }
        }
        if self.ready.is_empty() {
            self.stalled = None;
        }
        if !self.waiting.is_empty() {
            self.announce_room();
        }
    }

    fn take_turn(&mut self, id: u32) -> Result<TurnResult, ConnectionError> {
        let Some(stream) = self.streams.get(id) else { return Ok(TurnResult::Parked) };
        let (window, connection_window) = (stream.send_window, self.send_window);
        let Some(queue) = stream.queue.as_deref_mut() else { return Ok(TurnResult::Parked) };
        let room = usize::try_from(window.min(connection_window)).unwrap_or(0);
        let len = queue.len.min(self.peer.frame_len).min(room);
        if len == 0 && queue.len > 0 {
            if window > 0 {
                return Ok(TurnResult::Stalled);
            }
            queue.is_ready = false;
            self.park(id);
            return Ok(TurnResult::Parked);
        }
        // Windows of a few bytes make this side write more headers than data.
        if len < SMALL_FRAME && len < queue.len {
            if !self.small_frames.spend() {
                return Err(ConnectionError::calm("windows of a few bytes"));
            }
        } else {
            self.small_frames.earn();
        }
        self.stalled = None;
        let flow = i64::try_from(len).unwrap_or(i64::MAX);
        stream.send_window -= flow;
        self.send_window -= flow;
        self.queued -= len;
        queue.len -= len;
        let is_last = queue.len == 0;
        if queue.parked.is_some() {
            queue.progress += len;
            if is_last || queue.progress >= PROGRESS_MIN {
                (queue.parked, queue.progress) = (None, 0);
            }
        }
        let end = if is_last { queue.end.take() } else { None };
        if is_last {
            queue.is_ready = false;
        }
        let flags = if matches!(end, Some(StreamEnd::Data)) { flag::END_STREAM } else { 0 };
        put_header(self.output.frames(), len, kind::DATA, flags, id);
        let mut left = len;
        while left > 0 {
            let Some(chunk) = queue.chunks.front_mut() else { break };
            let piece = chunk.split_to(left.min(chunk.len()));
            if chunk.is_empty() {
                queue.chunks.pop_front();
            }
            left -= piece.len();
            self.output.push(piece);
        }
        debug_assert_eq!(left, 0, "the length of a queue is that of its chunks");
        match end {
            None if is_last => return Ok(TurnResult::Sent),
            None => return Ok(TurnResult::More),
            Some(StreamEnd::Data) => {}
            Some(StreamEnd::Trailers(prepared, fields)) => {
                let fields: Vec<_> = fields.iter().map(|field| field.borrow()).collect();
                self.put_block(id, Header { prepared, fields: &fields }, true);
            }
        }
        self.end_local(id);
        Ok(TurnResult::Sent)
    }

    /// Starts the time of a stream that its window holds back, unless it runs already.
    pub(super) fn park(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let since = *stream.queue.get_or_insert_default().parked.get_or_insert(self.now);
        let due = self.settings.stall_timeout.map(|timeout| since + timeout);
        self.stall_check = self.stall_check.or(due);
    }

    /// Queues events for streams that were full and have room again.
    fn announce_room(&mut self) {
        // Half of a queue is room enough: an event per frame would wake the application too often.
        let has_room = self.queued * 2 <= self.settings.connection_queue_max;
        let (stream_max, direct_max) = (self.settings.stream_queue_max, self.direct_max());
        let (streams, events) = (&mut self.streams, &mut self.events);
        self.waiting.retain(|id| {
            let Some(stream) = streams.get(*id) else { return false };
            // A stream whose window is open continues, although other streams fill the queue of the connection.
            let is_open = stream.direct_max(direct_max) > 0;
            if !is_open && (!has_room || stream.queued() * 2 > stream_max) {
                return true;
            }
            if let Some(queue) = stream.queue.as_deref_mut().filter(|queue| queue.len == 0) {
                queue.parked = None;
            }
            stream.unset(is::WANTS_WRITABLE);
            events.push_back(Event::Writable(StreamId(*id)));
            false
        });
    }
}
