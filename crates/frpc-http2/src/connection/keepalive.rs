//! PING frames on a silent connection.

use std::time::{Duration, Instant};

/// Detects a dead peer. Any input counts as a sign of life.
///
/// ```text
///   Listening ──interval without input──▶ Probing ──timeout without input──▶ dead
///       ▲──────────────── input ─────────────┘
/// ```
#[derive(Debug)]
pub(super) struct KeepAlive {
    interval: Option<Duration>,
    timeout: Duration,
    heard: Instant,
    probed: Option<Instant>,
}

/// The action due at a time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeepAliveAction {
    Nothing,
    SendPing,
    Fail,
}

impl KeepAlive {
    pub(super) fn new(interval: Option<Duration>, timeout: Duration, now: Instant) -> Self {
        Self { interval, timeout, heard: now, probed: None }
    }

    #[inline]
    pub(super) fn heard(&mut self, now: Instant) {
        (self.heard, self.probed) = (now, None);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let interval = self.interval?;
        Some(self.probed.map_or(self.heard + interval, |probed| probed + self.timeout))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> KeepAliveAction {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return KeepAliveAction::Nothing;
        }
        if self.probed.is_some() {
            return KeepAliveAction::Fail;
        }
        self.probed = Some(now);
        KeepAliveAction::SendPing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leads_to_a_ping_and_then_to_failure() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut keepalive = KeepAlive::new(Some(10 * second), 5 * second, start);
        assert_eq!(keepalive.handle_timeout(start + 9 * second), KeepAliveAction::Nothing);
        assert_eq!(keepalive.handle_timeout(start + 10 * second), KeepAliveAction::SendPing);
        assert_eq!(keepalive.poll_timeout(), Some(start + 15 * second));
        keepalive.heard(start + 14 * second);
        assert_eq!(keepalive.handle_timeout(start + 15 * second), KeepAliveAction::Nothing);
        assert_eq!(keepalive.handle_timeout(start + 24 * second), KeepAliveAction::SendPing);
        assert_eq!(keepalive.handle_timeout(start + 29 * second), KeepAliveAction::Fail);
        assert_eq!(KeepAlive::new(None, second, start).poll_timeout(), None);
    }
}
