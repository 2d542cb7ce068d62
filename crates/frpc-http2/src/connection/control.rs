//! Control frames of the peer: SETTINGS, PING, GOAWAY, RST_STREAM, WINDOW_UPDATE and PRIORITY.

use super::{
    Connection, ConnectionState, Event, FrameResult, Role, StreamId,
    streams::{StreamTable, is},
};
use crate::{
    ConnectionError, ErrorCode, Fault, StreamError,
    frame::{
        FrameHeader, Setting, flag, kind, parse_goaway, parse_increment, parse_settings, parse_u32, put_goaway,
        put_ping, put_settings_ack,
    },
    settings::WINDOW_MAX,
};

/// The content of the PING after the first GOAWAY of a shutdown.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The longest frame sent, in bytes, however long frames the peer accepts. Longer ones would delay other streams.
const FRAME_LEN_SENT: usize = 64 << 10;

/// The content of the keepalive PING.
pub(super) const KEEPALIVE_PING: [u8; 8] = *b"keepaliv";

impl Connection {
    pub(super) fn receive_control<'a>(&mut self, header: FrameHeader, payload: &[u8]) -> FrameResult<'a> {
        let FrameHeader { stream: id, kind, .. } = header;
        if matches!(kind, kind::SETTINGS | kind::PING | kind::GOAWAY) && id != 0 {
            return Err(ConnectionError::protocol("a frame of the connection has a stream"));
        }
        if matches!(kind, kind::RST_STREAM | kind::PRIORITY) && id == 0 {
            return Err(ConnectionError::protocol("a frame of a stream has none"));
        }
        match kind {
            kind::SETTINGS => self.receive_settings(header, payload),
            kind::PING => self.receive_ping(header, payload),
            kind::GOAWAY => self.receive_goaway(payload),
            kind::RST_STREAM => self.receive_reset(id, payload),
            kind::WINDOW_UPDATE => self.receive_window_update(id, payload),
            kind::PRIORITY => self.receive_priority(id, payload),
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE was not allowed")),
            // Unknown frames are ignored.
            _ => self.spend_control().map(|()| None),
        }
    }

    /// Takes a unit of the budget for frames that carry no request or response.
    pub(super) fn spend_control(&mut self) -> Result<(), ConnectionError> {
        match self.control_frames.spend(self.now) {
            true => Ok(()),
            false => Err(ConnectionError::calm("too many control frames")),
        }
    }

    fn receive_settings<'a>(&mut self, header: FrameHeader, payload: &[u8]) -> FrameResult<'a> {
        self.spend_control()?;
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::frame_size("an acknowledgement of SETTINGS has a payload"));
            }
            self.apply_own_settings();
            return Ok(None);
        }
        if self.handshake_due.is_some() {
            // The peer has no limit unless its first SETTINGS name one.
            self.peer.streams_max = usize::MAX;
        }
        // Moves the windows of all streams, so it happens once. A frame has room for thousands of values.
        let mut window = None;
        for setting in parse_settings(payload, self.role == Role::Client)? {
            self.spend_control()?;
            match setting? {
                Setting::HeaderTableSize(max) => self.encoder.set_peer_max(max),
                Setting::MaxConcurrentStreams(max) => self.peer.streams_max = max as usize,
                Setting::InitialWindowSize(max) => window = Some(max),
                Setting::MaxFrameSize(len) => self.peer.frame_len = FRAME_LEN_SENT.min(len as usize),
                Setting::MaxHeaderListSize(max) => self.peer.list_max = max as usize,
                Setting::Other => {}
            }
        }
        if let Some(window) = window {
            self.set_peer_window(window.into())?;
        }
        self.handshake_due = None;
        put_settings_ack(self.output.frames());
        self.offer_capacity();
        Ok(Some(Event::SettingsApplied))
    }

    /// Applies the settings the peer has acknowledged. Until then, those of the protocol were allowed too.
    fn apply_own_settings(&mut self) {
        self.decoder.set_table_max(self.settings.header_table_max);
        let window = i64::from(self.settings.stream_window);
        let change = window - self.own_window;
        self.own_window = window;
        if change != 0 {
            self.streams.iter_mut().for_each(|stream| stream.receive_window += change);
        }
    }

    fn set_peer_window(&mut self, window: i64) -> Result<(), ConnectionError> {
        let change = window - self.peer.window;
        self.peer.window = window;
        let mut opened = Vec::new();
        for stream in self.streams.iter_mut() {
            stream.send_window += change;
            if stream.send_window > i64::from(WINDOW_MAX) {
                let code = ErrorCode::FLOW_CONTROL_ERROR;
                return Err(ConnectionError::peer(code, "SETTINGS moves the window of a stream above 2^31-1"));
            }
            if stream.send_window > 0 && stream.queued() > 0 {
                opened.push(stream.id);
            }
        }
        opened.into_iter().for_each(|id| self.make_ready(id));
        Ok(())
    }

    fn receive_ping<'a>(&mut self, header: FrameHeader, payload: &[u8]) -> FrameResult<'a> {
        self.spend_control()?;
        let payload: [u8; 8] = payload.try_into().map_err(|_| ConnectionError::frame_size("PING has eight bytes"))?;
        if !header.has(flag::ACK) {
            put_ping(self.output.frames(), true, payload);
            return Ok(None);
        }
        match payload {
            SHUTDOWN_PING => self.finish_shutdown(),
            KEEPALIVE_PING => {}
            _ => return Ok(Some(Event::Pong(payload))),
        }
        Ok(None)
    }

    /// Queues a PING. [`Event::Pong`] reports the answer with the same payload.
    pub fn ping(&mut self, payload: [u8; 8]) {
        if !self.is_failed() {
            put_ping(self.output.frames(), false, payload);
        }
    }

    fn receive_goaway<'a>(&mut self, payload: &[u8]) -> FrameResult<'a> {
        self.spend_control()?;
        let goaway = parse_goaway(payload)?;
        // A later frame may lower the last stream, but not accept streams again.
        let last = self.peer_last.map_or(goaway.last, |last| last.min(goaway.last));
        self.peer_last = Some(last);
        if self.role == Role::Client {
            let refused = self.streams.iter_mut().filter(|stream| stream.id > last && !stream.has(is::CLOSED));
            let refused: Vec<_> = refused.map(|stream| stream.id).collect();
            for id in refused {
                self.remove_stream(id);
                self.recent_resets.insert(id);
                let (code, fault) = (ErrorCode::REFUSED_STREAM, Fault::Peer);
                let error = StreamError { code, fault, is_remote: true, is_unprocessed: true };
                self.events.push_back(Event::Reset { stream: StreamId(id), error });
            }
        }
        Ok(Some(Event::GoAway { last: StreamId(last), code: goaway.code }))
    }

    fn receive_reset<'a>(&mut self, id: u32, payload: &[u8]) -> FrameResult<'a> {
        if payload.len() != 4 {
            return Err(ConnectionError::frame_size("RST_STREAM has four bytes"));
        }
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("RST_STREAM belongs to an idle stream"));
        }
        let code = ErrorCode(parse_u32(payload));
        let is_open = self.streams.get(id).is_some_and(|stream| !stream.has(is::CLOSED));
        if !is_open {
            self.spend_control()?;
            return Ok(None);
        }
        // Only clients can make their peer start work, and reset it, without end.
        if self.role == Role::Server {
            self.spend_reset()?;
        }
        self.remove_stream(id);
        let is_unprocessed = self.role == Role::Client && code == ErrorCode::REFUSED_STREAM;
        let error = StreamError { code, fault: Fault::Peer, is_remote: true, is_unprocessed };
        Ok(Some(Event::Reset { stream: StreamId(id), error }))
    }

    fn receive_window_update<'a>(&mut self, id: u32, payload: &[u8]) -> FrameResult<'a> {
        let increment = i64::from(parse_increment(payload)?);
        if id == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("WINDOW_UPDATE has an increment of zero"));
            }
            self.send_window += increment;
            if self.send_window > i64::from(WINDOW_MAX) {
                let code = ErrorCode::FLOW_CONTROL_ERROR;
                return Err(ConnectionError::peer(code, "the window of the connection exceeds 2^31-1"));
            }
            return Ok(None);
        }
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("WINDOW_UPDATE belongs to an idle stream"));
        }
        let Some(stream) = self.streams.get(id) else { return Ok(None) };
        stream.send_window += increment;
        if increment == 0 {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        if stream.send_window > i64::from(WINDOW_MAX) {
            return self.stream_error(id, ErrorCode::FLOW_CONTROL_ERROR);
        }
        if stream.send_window > 0 && stream.queued() > 0 {
            self.make_ready(id);
        }
        Ok(None)
    }

    /// Checks a PRIORITY frame. Priorities of RFC 7540 are obsolete and change nothing.
    fn receive_priority<'a>(&mut self, id: u32, payload: &[u8]) -> FrameResult<'a> {
        self.spend_control()?;
        if payload.len() != 5 {
            return self.stream_error_if_open(id, ErrorCode::FRAME_SIZE_ERROR);
        }
        if parse_u32(payload) & WINDOW_MAX == id {
            return self.stream_error_if_open(id, ErrorCode::PROTOCOL_ERROR);
        }
        Ok(None)
    }

    /// Resets a stream, or fails the connection if the stream is idle: RST_STREAM on idle streams is an error.
    fn stream_error_if_open<'a>(&mut self, id: u32, code: ErrorCode) -> FrameResult<'a> {
        if self.is_idle(id) {
            return Err(ConnectionError::peer(code, "PRIORITY is invalid"));
        }
        self.stream_error(id, code)
    }

    /// Shuts the connection down. Open streams continue, and new ones are refused.
    ///
    /// A server first announces the shutdown. After a round trip, or
    /// [`shutdown_timeout`](crate::Settings::shutdown_timeout), it tells the last stream that it handles, so no
    /// request in flight is lost.
    pub fn shut_down(&mut self) {
        if self.state != ConnectionState::Open {
            return;
        }
        let out = self.output.frames();
        if self.role == Role::Client {
            put_goaway(out, 0, ErrorCode::NO_ERROR);
            self.state = ConnectionState::Closing { last: 0 };
            return;
        }
        put_goaway(out, WINDOW_MAX, ErrorCode::NO_ERROR);
        put_ping(out, false, SHUTDOWN_PING);
        self.state = ConnectionState::Announced { due: self.now + self.settings.shutdown_timeout };
    }

    /// Sends the second GOAWAY of a shutdown.
    pub(super) fn finish_shutdown(&mut self) {
        if let ConnectionState::Announced { .. } = self.state {
            put_goaway(self.output.frames(), self.last_peer_id, ErrorCode::NO_ERROR);
            self.state = ConnectionState::Closing { last: self.last_peer_id };
        }
    }

    /// Ends the connection with a code. Open streams end without further frames.
    pub fn close(&mut self, code: ErrorCode) {
        self.fail(ConnectionError { code, fault: Fault::Local, reason: "the application closed the connection" });
        self.streams = StreamTable::new();
        (self.active, self.queued) = (0, 0);
    }
}
