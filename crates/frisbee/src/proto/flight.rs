//! The bytes of pieces that are under way to the peer, which no other frame can overtake any more.
//!
//! A PING goes behind pieces, and its PONG tells that the peer has read up to there. What is under way is kept to a window,
//! which widens while PONGs come about as fast as ever, because then nothing waits on the way, and gets narrower when they
//! take much longer.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(super) struct Flight {
    window: usize,
    /// Bytes handed out, and those of them that the peer is known to have read.
    sent: u64,
    arrived: u64,
    /// The value of `sent` at the last mark.
    marked: u64,
    /// The PINGs behind pieces that were not answered.
    marks: VecDeque<Mark>,
    /// The shortest time that a PONG took.
    shortest: Option<Duration>,
    /// The time since which the window is full.
    full_since: Option<Instant>,
    /// False while no PONG can be waited for.
    is_limited: bool,
    /// True if this side does not read, and so sees no PONG for now.
    is_deaf: bool,
}

#[derive(Debug)]
struct Mark {
    /// The number of the PING among all that were ever handed out.
    ping: u64,
    position: u64,
    sent: Instant,
    /// True if the window was full then or since.
    was_full: bool,
}

impl Default for Flight {
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

impl Flight {
    /// Tells whether what is under way is kept to a window.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited && !self.is_deaf
    }

    /// Stops to keep to the window, for PONGs that nobody will see.
    pub(super) fn give_up(&mut self) {
        self.is_limited = false;
        self.full_since = None;
    }

    /// Notes whether this side reads, and so sees PONGs.
    pub(super) fn set_reading(&mut self, reading: bool) {
        self.is_deaf = !reading;
        if self.is_deaf {
            self.full_since = None;
        }
    }

    /// Tells whether a PONG has to come before more is sent.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        let is_full = self.sent - self.arrived >= self.window as u64;
        if is_full {
            self.full_since.get_or_insert(now);
            self.marks.iter_mut().for_each(|mark| mark.was_full = true);
        }
        is_full
    }

    /// Tells whether a PONG is waited for.
    pub(super) fn waits(&self) -> bool {
        self.full_since.is_some()
    }

    /// Notes that a piece was handed out. Tells whether a PING is to follow.
    pub(super) fn handle_sent(&mut self, len: usize) -> bool {
        self.sent += len as u64;
        self.sent - self.marked >= MARK_LEN
    }

    /// Notes that a PING was handed out behind a piece, with its number among all that were.
    pub(super) fn handle_mark_sent(&mut self, now: Instant, ping: u64) {
        self.marked = self.sent;
        self.marks.push_back(Mark { ping, position: self.sent, sent: now, was_full: false });
    }

    /// Notes a PONG, with the number of PINGs that were answered by now. Tells whether it may answer one behind pieces.
    pub(super) fn handle_pong(&mut self, now: Instant, answered: u64) -> bool {
        let is_expected = !self.marks.is_empty();
        while self.marks.front().is_some_and(|mark| mark.ping <= answered)
            && let Some(mark) = self.marks.pop_front()
        {
            let took = now.saturating_duration_since(mark.sent);
            let len = usize::try_from(mark.position - self.arrived).unwrap_or(usize::MAX);
            self.arrived = mark.position;
            let shortest = self.shortest.map_or(took, |shortest| shortest.min(took));
            self.shortest = Some(shortest);
            if took > shortest * 4 {
                self.window = WINDOW_MIN.max(self.window - self.window.min(len / 2));
            } else if took <= shortest * 2 && mark.was_full {
                self.window = self.window.saturating_add(len);
            }
            self.full_since = None;
        }
        is_expected
    }

    /// Returns when a full window will have been full for too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.full_since?.checked_add(FULL_MAX)
    }

    /// Lets everything go that fills a window for too long: a peer that does not read is told from one that does by what the socket
    /// takes, as ever.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.full_since = None;
            self.arrived = self.sent;
        }
    }
}

/// The narrowest window.
const WINDOW_MIN: usize = 64 * 1024;
/// Bytes of pieces behind which a PING goes.
const MARK_LEN: u64 = 32 * 1024;
/// The time for which a window may be full.
const FULL_MAX: Duration = Duration::from_secs(1);
