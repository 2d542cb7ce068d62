//! Recognizes that both sides wait for each other's handlers.

use std::time::Duration;

use tokio::time::Instant;

/// Watches whether anything moves while packets wait that the peer may wait for in turn.
///
/// No side can know what the handlers of the other wait for. That nothing at all has moved for a while, on a side whose
/// handlers may all be waiting for answers, is as much as can be known.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    /// True if a handler began or ended, or an answer came, since the last [`look`](Self::look).
    has_progressed: bool,
    /// The time since which nothing of this happened.
    since: Option<Instant>,
    /// True if nothing moved for too long, and no handler has ended since.
    is_jammed: bool,
}

impl Standstill {
    /// Notes that a handler began or ended, or an answer came.
    pub(super) fn note_progress(&mut self) {
        self.has_progressed = true;
    }

    /// Notes that a handler of a packet ended. One that ends makes room for those that wait.
    pub(super) fn note_handler_end(&mut self) {
        self.is_jammed = false;
    }

    /// Tells whether packets are better refused than made to wait. After one standstill, the peer may have as many calls
    /// waiting, and each of them would wait for as long again.
    pub(super) fn is_jammed(&self) -> bool {
        self.is_jammed
    }

    /// Tells whether there is a time to watch.
    pub(super) fn is_watching(&self) -> bool {
        self.since.is_some()
    }

    /// Returns when nothing will have moved for too long.
    pub(super) fn due(&self, limit: Duration) -> Option<Instant> {
        self.since?.checked_add(limit)
    }

    /// Looks whether nothing has moved for too long. `is_stuck` tells whether it could be a standstill at all.
    pub(super) fn look(&mut self, now: Instant, is_stuck: bool, limit: Duration) -> bool {
        if std::mem::take(&mut self.has_progressed) || !is_stuck {
            self.since = is_stuck.then_some(now);
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < limit {
            return false;
        }
        self.since = Some(now);
        self.is_jammed = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_moving_for_the_limit_is_a_standstill() {
        let (start, mut standstill) = (Instant::now(), Standstill::default());
        assert!(!standstill.look(start, true, LIMIT));
        assert_eq!(standstill.due(LIMIT), Some(start + LIMIT));
        assert!(!standstill.look(start + LIMIT / 2, true, LIMIT));
        assert!(!standstill.is_jammed());
        assert!(standstill.look(start + LIMIT, true, LIMIT));
        assert!(standstill.is_jammed());
    }

    #[test]
    fn progress_begins_the_time_anew() {
        let (start, mut standstill) = (Instant::now(), Standstill::default());
        assert!(!standstill.look(start, true, LIMIT));
        standstill.note_progress();
        assert!(!standstill.look(start + LIMIT, true, LIMIT));
        assert_eq!(standstill.due(LIMIT), Some(start + LIMIT * 2));
    }

    #[test]
    fn where_nothing_is_stuck_no_time_is_watched() {
        let (start, mut standstill) = (Instant::now(), Standstill::default());
        assert!(!standstill.look(start, true, LIMIT));
        assert!(!standstill.look(start + LIMIT, false, LIMIT));
        assert!(!standstill.is_watching());
    }

    #[test]
    fn a_jam_lasts_until_a_handler_ends() {
        let (start, mut standstill) = (Instant::now(), Standstill::default());
        assert!(!standstill.look(start, true, LIMIT));
        assert!(standstill.look(start + LIMIT, true, LIMIT));
        standstill.note_progress();
        assert!(!standstill.look(start + LIMIT, true, LIMIT));
        assert!(standstill.is_jammed());
        standstill.note_handler_end();
        assert!(!standstill.is_jammed());
    }
}
