//! Short messages whose frames have arrived together, handled in one step.

use std::time::Instant;

use super::{
    Connection, ConnectionState, ReceivedMessage, Role, StreamId,
    partial::PartialInput,
    streams::{StreamState, is},
};
use crate::frame::{FrameHeader, HEADER_LEN, flag, kind};

/// The frames of a message at the start of some input.
struct MessageFrames<'a> {
    stream: u32,
    head: &'a [u8],
    data: &'a [u8],
    trailers: &'a [u8],
    len: usize,
}

impl Connection {
    /// Handles the frames of one short message at the start of the input, if all of them have arrived.
    ///
    /// Returns `None` if the next frame needs [`receive`](Self::receive): call it next, with the same input. A server
    /// handles a request of HEADERS and DATA. A client handles a response with trailers to a complete request, whose
    /// header blocks have been received before.
    #[inline]
    pub fn receive_message<'a>(&mut self, input: &'a [u8], now: Instant) -> Option<ReceivedMessage<'a>> {
        if !self.partial.is_none() || self.preface_left > 0 || self.handshake_due.is_some() || !self.wants_input() {
            return None;
        }
        let received = match self.role {
            Role::Server => self.receive_whole_request(input)?,
            Role::Client => self.receive_whole_response(input)?,
        };
        self.now = now;
        self.keepalive.heard(now);
        self.empty_frames.earn();
        self.credit(received.data.len());
        Some(received)
    }

    #[inline]
    fn receive_whole_request<'a>(&mut self, input: &'a [u8]) -> Option<ReceivedMessage<'a>> {
        let frames = MessageFrames::parse(input, false)?;
        let (id, flow) = (frames.stream, i64::try_from(frames.data.len()).unwrap_or(i64::MAX));
        let is_acceptable = matches!(self.state, ConnectionState::Open | ConnectionState::Announced { .. })
            && id & 1 == 1
            && id > self.last_peer_id
            && self.active < self.settings.streams_max as usize
            && flow <= self.receive_window.min(self.own_window)
            && frames.head.len() < self.frame_len_max as usize
            && frames.head.len() <= self.settings.header_block_max;
        if !is_acceptable {
            return None;
        }
        let head = match self.decoder.decode(frames.head) {
            Ok(head) => head,
            Err(error) => {
                self.output.counters().receive(kind::HEADERS, 1);
                self.fail(error);
                return None;
            }
        };
        if !head.is_plain_request(frames.data.len()) {
            self.partial = PartialInput::Decoded(head);
            return None;
        }
        self.count_message(1);
        self.last_peer_id = id;
        self.receive_window -= flow;
        let mut stream = StreamState::new(id, self.own_window - flow, self.peer.window);
        stream.set(is::HEAD_RECEIVED | is::REMOTE_ENDED);
        self.streams.insert(stream);
        self.active += 1;
        let (stream, data, consumed) = (StreamId(id), frames.data, frames.len);
        Some(ReceivedMessage { consumed, stream, head, data, trailers: None })
    }

    #[inline]
    fn receive_whole_response<'a>(&mut self, input: &'a [u8]) -> Option<ReceivedMessage<'a>> {
        let frames = MessageFrames::parse(input, true)?;
        let (id, flow) = (frames.stream, i64::try_from(frames.data.len()).unwrap_or(i64::MAX));
        let stream = self.streams.get(id)?;
        let others = is::REMOTE_ENDED | is::HEAD_RECEIVED | is::HEAD_REQUEST;
        let is_acceptable = stream.has(is::LOCAL_ENDED)
            && !stream.has(others)
            && flow <= stream.receive_window.min(self.receive_window);
        if !is_acceptable {
            return None;
        }
        let head = self.decoder.cached(frames.head).filter(|head| head.is_plain_response(frames.data.len()))?;
        let trailers = self.decoder.cached(frames.trailers).filter(|trailers| trailers.is_plain_trailers())?;
        let (head, trailers) = (head.clone(), Some(trailers.clone()));
        self.count_message(2);
        self.receive_window -= flow;
        self.remove_stream(id);
        self.resets.earn();
        Some(ReceivedMessage { consumed: frames.len, stream: StreamId(id), head, data: frames.data, trailers })
    }

    /// Counts the frames of a message with this number of header blocks.
    #[inline]
    fn count_message(&self, blocks: u64) {
        let counters = self.output.counters();
        counters.receive(kind::HEADERS, blocks);
        counters.receive(kind::DATA, 1);
    }
}

impl<'a> MessageFrames<'a> {
    /// Parses frames without padding and priorities. Returns `None` if they do not form a whole message.
    #[inline]
    fn parse(input: &'a [u8], has_trailers: bool) -> Option<Self> {
        let (stream, head, rest) = take_frame(input, kind::HEADERS, flag::END_HEADERS)?;
        let (data_stream, data, rest) = take_frame(rest, kind::DATA, if has_trailers { 0 } else { flag::END_STREAM })?;
        if data_stream != stream || data.is_empty() || data.len() > MESSAGE_LEN_MAX {
            return None;
        }
        let (trailers, rest) = match has_trailers {
            true => match take_frame(rest, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM)? {
                (last_stream, trailers, rest) if last_stream == stream => (trailers, rest),
                _ => return None,
            },
            false => (&[][..], rest),
        };
        Some(Self { stream, head, data, trailers, len: input.len() - rest.len() })
    }
}

/// Splits a frame off the input, if it has this kind and these flags and is whole.
#[inline]
fn take_frame(input: &[u8], kind: u8, flags: u8) -> Option<(u32, &[u8], &[u8])> {
    let header = FrameHeader::parse(input).filter(|header| header.kind == kind && header.flags == flags)?;
    let (payload, rest) = input[HEADER_LEN..].split_at_checked(header.len)?;
    Some((header.stream, payload, rest))
}

/// The maximum data of such a message, in bytes. Its credit returns before the application reads it.
const MESSAGE_LEN_MAX: usize = 4 << 10;
