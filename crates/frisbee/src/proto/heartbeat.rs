//! Heartbeats: the times to send a PING and to give up a silent peer, and the round-trip time.

use std::time::Duration;

use crate::clock::Instant;

/// The clock-driven part of liveness.
#[derive(Debug)]
pub(super) struct Heartbeat {
    ping_interval: Option<Duration>,
    silence_max: Option<Duration>,
    next_ping: Option<Instant>,
    /// The time of the last input. `None` while this side does not read, because silence then means nothing.
    heard: Option<Instant>,
    /// The number of unanswered PINGs.
    unanswered: u32,
    /// The time of the PING being measured. It was sent without another PING in flight.
    timed: Option<Instant>,
    round_trip: Option<Duration>,
}

/// The action after a timeout.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeartbeatAction {
    Idle,
    Ping,
    /// Nothing was received for this time.
    Silent(Duration),
}

impl Heartbeat {
    pub(super) fn new(now: Instant, ping_interval: Option<Duration>, silence_max: Option<Duration>) -> Self {
        let next_ping = ping_interval.and_then(|interval| now.checked_add(interval));
        let heard = Some(now);
        Self { ping_interval, silence_max, next_ping, heard, unanswered: 0, timed: None, round_trip: None }
    }

    pub(super) fn handle_ping_sent(&mut self, now: Instant) {
        // With several PINGs in flight, their PONGs are indistinguishable.
        if self.unanswered == 0 {
            self.timed = Some(now);
        }
        self.unanswered = self.unanswered.saturating_add(1);
    }

    pub(super) fn handle_pong(&mut self, now: Instant) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(sent) = self.timed.take() {
            let measured = now.saturating_duration_since(sent);
            self.round_trip = Some(self.round_trip.map_or(measured, |known| (known * 7 + measured) / 8));
        }
    }

    /// Returns the time since the last input, if the peer owes a PONG. `None` while this side does not read.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        self.heard.filter(|_| self.unanswered > 0).map(|heard| now.saturating_duration_since(heard))
    }

    /// Returns the number of unanswered PINGs.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Returns the moving average of the round-trip time. `None` before the first measurement.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    pub(super) fn handle_received(&mut self, now: Instant) {
        if self.heard.is_some() {
            self.heard = Some(now);
        }
    }

    /// Records that this side paused or resumed reading.
    pub(super) fn set_reading(&mut self, now: Instant, reading: bool) {
        match (reading, self.heard) {
            (false, _) => self.heard = None,
            (true, None) => self.heard = Some(now),
            (true, Some(_)) => {}
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> HeartbeatAction {
        if let (Some(silence_max), Some(heard)) = (self.silence_max, self.heard)
            && now.saturating_duration_since(heard) >= silence_max
        {
            return HeartbeatAction::Silent(silence_max);
        }
        if let (Some(interval), Some(due)) = (self.ping_interval, self.next_ping)
            && due <= now
        {
            // A late timeout does not send the missed PINGs.
            let on_time = due.checked_add(interval).filter(|next| *next > now);
            self.next_ping = on_time.or_else(|| now.checked_add(interval));
            return HeartbeatAction::Ping;
        }
        HeartbeatAction::Idle
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let silence = self.heard.zip(self.silence_max).and_then(|(heard, max)| heard.checked_add(max));
        sooner(self.next_ping, silence)
    }
}

/// Returns the earlier of two times. Called in every turn, where a version with iterators took several times as
/// long.
#[inline]
pub(super) fn sooner<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pings_are_sent_on_a_fixed_tick() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start, Some(SECOND), None);
        assert_eq!(heartbeat.poll_timeout(), Some(start + SECOND));
        assert_eq!(heartbeat.handle_timeout(start), HeartbeatAction::Idle);
        assert_eq!(heartbeat.handle_timeout(start + SECOND * 3 / 2), HeartbeatAction::Ping);
        assert_eq!(heartbeat.poll_timeout(), Some(start + SECOND * 2));
        assert_eq!(heartbeat.handle_timeout(start + SECOND * 9), HeartbeatAction::Ping);
        assert_eq!(heartbeat.poll_timeout(), Some(start + SECOND * 10));
    }

    #[test]
    fn silence_counts_from_the_last_byte_while_reading() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start, None, Some(SECOND));
        heartbeat.handle_received(start + SECOND / 2);
        assert_eq!(heartbeat.handle_timeout(start + SECOND), HeartbeatAction::Idle);
        assert_eq!(heartbeat.handle_timeout(start + SECOND * 3 / 2), HeartbeatAction::Silent(SECOND));
        heartbeat.set_reading(start + SECOND, false);
        assert_eq!(heartbeat.poll_timeout(), None);
        assert_eq!(heartbeat.handle_timeout(start + SECOND * 9), HeartbeatAction::Idle);
        heartbeat.set_reading(start + SECOND * 9, true);
        assert_eq!(heartbeat.poll_timeout(), Some(start + SECOND * 10));
    }

    #[test]
    fn round_trip_is_averaged_over_unambiguous_pings() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start, None, None);
        heartbeat.handle_pong(start);
        assert_eq!(heartbeat.round_trip(), None, "nobody asked");
        heartbeat.handle_ping_sent(start);
        heartbeat.handle_ping_sent(start + SECOND);
        heartbeat.handle_pong(start + SECOND * 8);
        assert_eq!(heartbeat.round_trip(), Some(SECOND * 8));
        heartbeat.handle_ping_sent(start + SECOND * 9);
        heartbeat.handle_pong(start + SECOND * 9);
        heartbeat.handle_pong(start + SECOND * 9);
        assert_eq!(heartbeat.round_trip(), Some(SECOND * 8), "the first of these answers one that was not alone");
        heartbeat.handle_ping_sent(start + SECOND * 10);
        heartbeat.handle_pong(start + SECOND * 10);
        assert_eq!(heartbeat.round_trip(), Some(SECOND * 7));
    }
}
