//! The pieces in flight to the peer. Other frames cannot overtake these.
//!
//! PINGs sent after pieces measure progress: each PONG shows that the peer has read up to its PING. The bytes in
//! flight are limited to a window. It widens while PONGs take about the shortest time seen, because then nothing
//! is queued on the way. It shrinks if they take much longer.

use std::{collections::VecDeque, time::Duration};

use crate::clock::Instant;

#[derive(Debug)]
pub(super) struct PiecesInFlight {
    window: usize,
    /// Bytes handed out, and the part known to be read by the peer.
    sent: u64,
    arrived: u64,
    /// The value of `sent` at the last mark.
    marked: u64,
    /// Unanswered PINGs sent after pieces.
    marks: VecDeque<PingMark>,
    /// The shortest time from a PING to its PONG.
    shortest: Option<Duration>,
    /// The time at which the window became full.
    full_since: Option<Instant>,
    /// `false` if no PONG will arrive any more.
    is_limited: bool,
    /// `true` while this side does not read, and so sees no PONG.
    is_deaf: bool,
}

#[derive(Debug)]
struct PingMark {
    /// The sequence number of the PING.
    ping: u64,
    position: u64,
    sent: Instant,
    /// `true` if the window was full at or after that time.
    was_full: bool,
}

impl Default for PiecesInFlight {
    fn default() -> Self {
        Self {
            window: WINDOW_MIN,
            sent: 0,
            arrived: 0,
            marked: 0,
            marks: VecDeque::new(),
            shortest: None,
            full_since: None,
            is_limited: true,
            is_deaf: false,
        }
    }
}

impl PiecesInFlight {
    /// Returns `true` if the window applies.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited && !self.is_deaf
    }

    /// Removes the limit, because no PONG will be read any more.
    pub(super) fn give_up(&mut self) {
        self.is_limited = false;
        self.full_since = None;
    }

    /// Records whether this side reads, and so sees PONGs.
    pub(super) fn set_reading(&mut self, reading: bool) {
        self.is_deaf = !reading;
        if self.is_deaf {
            self.full_since = None;
        }
    }

    /// Returns `true` if a PONG must arrive before the next piece.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        let is_full = self.sent - self.arrived >= self.window as u64;
        if is_full {
            self.full_since.get_or_insert(now);
            self.marks.iter_mut().for_each(|mark| mark.was_full = true);
        }
        is_full
    }

    /// Returns `true` while a full window waits for a PONG.
    pub(super) fn waits(&self) -> bool {
        self.full_since.is_some()
    }

    /// Records a piece. Returns `true` if a PING must follow it.
    pub(super) fn handle_sent(&mut self, len: usize) -> bool {
        self.sent += len as u64;
        self.sent - self.marked >= MARK_LEN
    }

    /// Records a PING sent after a piece, with its sequence number.
    pub(super) fn handle_mark_sent(&mut self, now: Instant, ping: u64) {
        self.marked = self.sent;
        self.marks.push_back(PingMark { ping, position: self.sent, sent: now, was_full: false });
    }

    /// Records a PONG. `answered` is the number of answered PINGs. Returns `true` if a PONG after pieces was
    /// expected.
    pub(super) fn handle_pong(&mut self, now: Instant, answered: u64) -> bool {
        let is_expected = !self.marks.is_empty();
        while self.marks.front().is_some_and(|mark| mark.ping <= answered)
            && let Some(mark) = self.marks.pop_front()
        {
            let took = now.saturating_duration_since(mark.sent);
            // A timeout may have emptied the window past this mark.
            let len = usize::try_from(mark.position.saturating_sub(self.arrived)).unwrap_or(usize::MAX);
            self.arrived = self.arrived.max(mark.position);
            let shortest = self.shortest.map_or(took, |shortest| shortest.min(took));
            self.shortest = Some(shortest);
            // Much slower than the shortest time: bytes are queued on the way.
            if took > shortest * 4 {
                self.window = WINDOW_MIN.max(self.window - self.window.min(len / 2));
            // About the shortest time with a full window: only the window limits the rate.
            } else if took <= shortest * 2 && mark.was_full {
                self.window = self.window.saturating_add(len);
            }
            self.full_since = None;
        }
        is_expected
    }

    /// Returns the time when a full window has been full for too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.full_since?.checked_add(FULL_MAX)
    }

    /// Empties a window that has been full for too long. A peer that stopped reading is then detected by the
    /// socket, as without pieces.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.full_since = None;
            self.arrived = self.sent;
        }
    }
}

/// The smallest window in bytes.
const WINDOW_MIN: usize = 64 * 1024;
/// The number of piece bytes between PINGs.
const MARK_LEN: u64 = 32 * 1024;
/// The longest time for a full window.
const FULL_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_after_the_timeout_changes_nothing() {
        let (mut flight, start) = (PiecesInFlight::default(), Instant::now());
        for ping in 1..=2 {
            assert!(flight.handle_sent(WINDOW_MIN / 2));
            flight.handle_mark_sent(start, ping);
        }
        assert!(flight.is_full(start));
        flight.handle_timeout(start + FULL_MAX);
        assert!(!flight.is_full(start + FULL_MAX));
        for answered in 1..=2 {
            assert!(flight.handle_pong(start + 2 * FULL_MAX, answered));
            assert!(!flight.is_full(start + 2 * FULL_MAX));
        }
        assert_eq!((flight.window, flight.arrived), (WINDOW_MIN, flight.sent));
    }
}
