//! The rules of when a ring is worth its while, and when its thread waits on it.
//!
//! One system call that brings what ten sockets received costs less than ten, but for one socket the way over the ring
//! is longer than a plain call. So a thread on which little is received goes past the ring
//! ([`is_quiet`](Activity::is_quiet)).
//!
//! A busy thread that has nothing left to do is about to sleep in its runtime, and would be woken by the first of the
//! messages that it waits for, to handle that one alone. It gets more of them at once if it waits on the ring for a
//! moment first, for half as many as it received since it was idle last ([`next_spin`](Activity::next_spin)). Nothing
//! but the ring ends such a wait, so a timer or another thread may have to wait with it, and the processor is lost to
//! others. For that reason the wait is short, and each one in vain makes the thread skip twice as many before the next.

use std::mem;

/// Counts what a thread receives.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The number of receives since the thread was idle last.
    received: usize,
    /// The same on average over [`RECENT_TURNS`] turns, times their number.
    recent_receives: usize,
    /// The number of turns that end without a wait on the ring.
    spins_to_skip: u32,
    spins_skipped: u32,
}

impl Activity {
    /// Notes that a socket received something.
    pub(super) fn note_receive(&mut self) {
        self.received += 1;
    }

    /// Tells whether so little is going on that a system call has nothing to share: then the ring would only be in the
    /// way.
    pub(super) fn is_quiet(&self) -> bool {
        self.recent_receives + self.received < 2 * RECENT_TURNS
    }

    /// Ends a turn of the thread: it has nothing left to do. Returns the number of receives in it.
    pub(super) fn end_turn(&mut self) -> usize {
        let received = mem::take(&mut self.received);
        self.recent_receives = self.recent_receives - self.recent_receives / RECENT_TURNS + received;
        received
    }

    /// Ends a turn, and decides whether to wait on the ring. Returns for how many completions, if so.
    pub(super) fn next_spin(&mut self) -> Option<usize> {
        let wanted = self.end_turn() / 2;
        if wanted < 2 {
            return None;
        }
        if self.spins_skipped < self.spins_to_skip {
            self.spins_skipped += 1;
            return None;
        }
        Some(wanted)
    }

    /// Ends a wait on the ring. What it brought has been noted.
    pub(super) fn end_spin(&mut self) {
        self.spins_skipped = 0;
        self.spins_to_skip = match self.received {
            0 => (2 * self.spins_to_skip + 1).min(SPINS_SKIPPED_MAX),
            _ => 0,
        };
    }
}

/// The number of turns that tell whether a thread is busy.
const RECENT_TURNS: usize = 4;
const SPINS_SKIPPED_MAX: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a turn with this number of receives.
    fn turn(activity: &mut Activity, receives: usize) -> Option<usize> {
        (0..receives).for_each(|_| activity.note_receive());
        activity.next_spin()
    }

    #[test]
    fn a_thread_that_receives_one_thing_a_turn_is_quiet() {
        let mut activity = Activity::default();
        for _ in 0..100 {
            assert_eq!(turn(&mut activity, 1), None);
            assert!(activity.is_quiet());
        }
    }

    #[test]
    fn a_thread_that_receives_several_things_a_turn_is_busy_until_it_has_few_for_some_turns() {
        let mut activity = Activity::default();
        for _ in 0..10 {
            turn(&mut activity, 5);
        }
        assert!(!activity.is_quiet());
        let quiet_after = (1..).find(|_| (turn(&mut activity, 1), activity.is_quiet()).1);
        assert!(quiet_after.is_some_and(|turns| (2..=10).contains(&turns)), "{quiet_after:?}");
    }

    #[test]
    fn a_busy_turn_ends_with_a_wait_for_half_as_much() {
        assert_eq!(turn(&mut Activity::default(), 10), Some(5));
        assert_eq!(turn(&mut Activity::default(), 4), Some(2));
        assert_eq!(turn(&mut Activity::default(), 3), None);
    }

    #[test]
    fn each_wait_in_vain_doubles_the_turns_without_one() {
        let mut activity = Activity::default();
        let mut skipped = Vec::new();
        for _ in 0..10 {
            skipped.push((0..).find(|_| turn(&mut activity, 10).is_some()).unwrap_or_default());
            activity.end_spin();
        }
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn a_wait_that_brings_something_is_followed_by_the_next() {
        let mut activity = Activity::default();
        assert!(turn(&mut activity, 10).is_some());
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_none());
        assert!(turn(&mut activity, 10).is_some());
        activity.note_receive();
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_some());
    }
}
