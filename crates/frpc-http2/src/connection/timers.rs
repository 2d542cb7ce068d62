//! Timeouts of a connection.

use std::time::Instant;

use super::{
    Connection, ConnectionState, Event, StreamId, control::KEEPALIVE_PING, keepalive::KeepAliveAction, streams::is,
};
use crate::{
    ConnectionError, ErrorCode, Fault, StreamError,
    frame::{put_ping, put_reset},
};

impl Connection {
    /// Returns the time at which the driver calls [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let shutdown = match self.state {
            ConnectionState::Failed(_) => return None,
            ConnectionState::Announced { due } => Some(due),
            _ => None,
        };
        let block = self.partial.block().map(|block| block.due);
        let stalled = self.stalled.zip(self.settings.stall_timeout).map(|(since, timeout)| since + timeout);
        let keepalive = self.keepalive.poll_timeout().filter(|_| self.keeps_alive());
        let timers = [shutdown, block, stalled, self.handshake_due, self.stall_check, keepalive];
        timers.into_iter().flatten().min()
    }

    /// Handles the due timeouts.
    ///
    /// # Errors
    ///
    /// The peer was silent or stalled for too long. The connection has ended.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectionError> {
        if let ConnectionState::Failed(error) = self.state {
            return Err(error);
        }
        self.now = now;
        self.handle_timers(now).map_err(|error| self.fail(error))
    }

    fn handle_timers(&mut self, now: Instant) -> Result<(), ConnectionError> {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| now >= due);
        if is_due(self.handshake_due) {
            let code = ErrorCode::SETTINGS_TIMEOUT;
            return Err(ConnectionError::peer(code, "the preface or SETTINGS did not arrive in time"));
        }
        if is_due(self.partial.block().map(|block| block.due)) {
            return Err(ConnectionError::calm("a header block was not completed in time"));
        }
        if self.stalled.is_some() {
            // Resets may have removed the stalled streams.
            self.pump();
        }
        if let (Some(since), Some(timeout)) = (self.stalled, self.settings.stall_timeout)
            && now >= since + timeout
        {
            return Err(ConnectionError::calm("the window of the connection was closed for too long"));
        }
        if is_due(self.stall_check) {
            self.reset_stalled(now);
        }
        if let ConnectionState::Announced { due } = self.state
            && now >= due
        {
            self.finish_shutdown();
        }
        if !self.keeps_alive() {
            return Ok(());
        }
        match self.keepalive.handle_timeout(now) {
            KeepAliveAction::Nothing => {}
            KeepAliveAction::SendPing => put_ping(self.output.frames(), false, KEEPALIVE_PING),
            KeepAliveAction::Fail => return Err(ConnectionError::calm("the peer did not answer a PING in time")),
        }
        Ok(())
    }

    fn keeps_alive(&self) -> bool {
        self.settings.keepalive_while_idle || self.active > 0
    }

    /// Resets streams whose window was closed for too long.
    fn reset_stalled(&mut self, now: Instant) {
        self.stall_check = None;
        let Some(timeout) = self.settings.stall_timeout else { return };
        let mut stalled = Vec::new();
        for stream in self.streams.iter_mut() {
            // A stream may also wait with an empty queue, because others fill that of the connection.
            let is_waiting = stream.queued() > 0 || (stream.has(is::WANTS_WRITABLE) && stream.is_window_closed());
            let Some(queue) = stream.queue.as_deref_mut() else { continue };
            if !is_waiting {
                queue.parked = None;
            }
            let Some(since) = queue.parked else { continue };
            let due = since + timeout;
            if now >= due {
                stalled.push(stream.id);
            } else {
                self.stall_check = Some(self.stall_check.map_or(due, |check| check.min(due)));
            }
        }
        for id in stalled {
            put_reset(self.output.frames(), id, ErrorCode::CANCEL);
            self.recent_resets.insert(id);
            self.remove_stream(id);
            let (code, fault) = (ErrorCode::CANCEL, Fault::Peer);
            let error = StreamError { code, fault, is_remote: false, is_unprocessed: false };
            self.events.push_back(Event::Reset { stream: StreamId(id), error });
        }
    }
}
