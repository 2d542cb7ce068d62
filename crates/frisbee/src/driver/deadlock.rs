//! Detects deadlocks: both sides wait for each other's handlers.

use std::time::Duration;

use tokio::time::Instant;

/// Measures the time without progress while packets are queued and the peer may wait for them.
///
/// Neither side can know what the handlers of the other side wait for. The best available evidence is that nothing has
/// moved for a while on a side with all handlers possibly waiting for replies.
#[derive(Debug, Default)]
pub(super) struct DeadlockDetector {
    /// `true` if a handler started or ended, or a reply arrived, since the last [`look`](Self::look).
    has_progressed: bool,
    /// Time of the last progress.
    since: Option<Instant>,
    /// `true` after too long a time without progress, until a handler ends.
    is_jammed: bool,
}

impl DeadlockDetector {
    /// Records that a handler started or ended, or that a reply arrived.
    pub(super) fn note_progress(&mut self) {
        self.has_progressed = true;
    }

    /// Records the end of a packet handler, which makes room for queued packets.
    pub(super) fn note_handler_end(&mut self) {
        self.is_jammed = false;
    }

    /// Returns `true` if packets should be refused instead of queued.
    ///
    /// After one deadlock, the peer may have many more calls to send, and each would wait for the whole limit again.
    pub(super) fn is_jammed(&self) -> bool {
        self.is_jammed
    }

    /// Returns `true` if the time without progress is being measured.
    pub(super) fn is_watching(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the deadline for progress.
    pub(super) fn due(&self, limit: Duration) -> Option<Instant> {
        self.since?.checked_add(limit)
    }

    /// Returns `true` if nothing has moved for `limit`. `is_stuck` is `false` if a deadlock is impossible.
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
    fn nothing_moving_for_the_limit_is_a_deadlock() {
        let (start, mut detector) = (Instant::now(), DeadlockDetector::default());
        assert!(!detector.look(start, true, LIMIT));
        assert_eq!(detector.due(LIMIT), Some(start + LIMIT));
        assert!(!detector.look(start + LIMIT / 2, true, LIMIT));
        assert!(!detector.is_jammed());
        assert!(detector.look(start + LIMIT, true, LIMIT));
        assert!(detector.is_jammed());
    }

    #[test]
    fn progress_restarts_the_deadlock_timer() {
        let (start, mut detector) = (Instant::now(), DeadlockDetector::default());
        assert!(!detector.look(start, true, LIMIT));
        detector.note_progress();
        assert!(!detector.look(start + LIMIT, true, LIMIT));
        assert_eq!(detector.due(LIMIT), Some(start + LIMIT * 2));
    }

    #[test]
    fn no_timer_runs_unless_handlers_are_blocked() {
        let (start, mut detector) = (Instant::now(), DeadlockDetector::default());
        assert!(!detector.look(start, true, LIMIT));
        assert!(!detector.look(start + LIMIT, false, LIMIT));
        assert!(!detector.is_watching());
    }

    #[test]
    fn a_deadlock_lasts_until_a_handler_ends() {
        let (start, mut detector) = (Instant::now(), DeadlockDetector::default());
        assert!(!detector.look(start, true, LIMIT));
        assert!(detector.look(start + LIMIT, true, LIMIT));
        detector.note_progress();
        assert!(!detector.look(start + LIMIT, true, LIMIT));
        assert!(detector.is_jammed());
        detector.note_handler_end();
        assert!(!detector.is_jammed());
    }
}
