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
//!
//! The machine and the load decide if that pays: between a third less and a tenth more was measured. So the thread tries
//! both, and goes on with the way on which it received more ([`Comparison`]).

use std::{
    mem,
    time::{Duration, Instant},
};

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
    comparison: Comparison,
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
    pub(super) fn next_spin(&mut self, now: Instant) -> Option<usize> {
        let received = self.end_turn();
        let (pays, wanted) = (self.comparison.spins(now, received), received / 2);
        if wanted < 2 || !pays {
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

/// Finds out whether a thread receives more with waits on its ring or without: it takes turns with both, and keeps to the
/// better one for a while.
#[derive(Debug, Default)]
struct Comparison {
    spins: bool,
    /// The time at which it began to do so.
    since: Option<Instant>,
    /// The number of times that both are still to be tried.
    trials_left: u32,
    /// The results of trials without waits, and with them.
    without: Outcome,
    with: Outcome,
}

/// The number of receives in some time.
#[derive(Debug, Default)]
struct Outcome {
    received: usize,
    time: Duration,
}

impl Comparison {
    /// Counts what was received in a turn that ends now. Tells whether turns end with a wait for now.
    fn spins(&mut self, now: Instant, received: usize) -> bool {
        let lasted = now.saturating_duration_since(*self.since.get_or_insert(now));
        if self.trials_left == 0 {
            if lasted >= KEPT_FOR {
                *self = Self { spins: self.spins, since: Some(now), trials_left: TRIALS, ..Self::default() };
            }
            return self.spins;
        }
        let outcome = if self.spins { &mut self.with } else { &mut self.without };
        outcome.received += received;
        if lasted >= TRIAL_LEN {
            outcome.time += lasted;
            self.since = Some(now);
            self.trials_left -= 1;
            self.spins = if self.trials_left > 0 { !self.spins } else { self.pays() };
        }
        self.spins
    }

    /// Tells whether more was received with waits, by more than chance.
    fn pays(&self) -> bool {
        let scaled = |received: usize, time: Duration, percent: u128| received as u128 * time.as_micros() * percent;
        scaled(self.with.received, self.without.time, 100) > scaled(self.without.received, self.with.time, 103)
    }
}

/// The number of turns that tell whether a thread is busy.
const RECENT_TURNS: usize = 4;
const SPINS_SKIPPED_MAX: u32 = 255;
/// Each way is tried half as often, in turns, so that a load that changes meanwhile counts for both.
const TRIALS: u32 = 10;
const TRIAL_LEN: Duration = Duration::from_millis(8);
/// Long against all trials, half of which are lost.
const KEPT_FOR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// An activity of which it is known that waits pay.
    fn spinning() -> Activity {
        Activity { comparison: Comparison { spins: true, ..Comparison::default() }, ..Activity::default() }
    }

    /// Plays a turn with this number of receives.
    fn turn(activity: &mut Activity, receives: usize) -> Option<usize> {
        (0..receives).for_each(|_| activity.note_receive());
        let now = *activity.comparison.since.get_or_insert_with(Instant::now);
        activity.next_spin(now)
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
        assert_eq!(turn(&mut spinning(), 10), Some(5));
        assert_eq!(turn(&mut spinning(), 4), Some(2));
        assert_eq!(turn(&mut spinning(), 3), None);
    }

    #[test]
    fn each_wait_in_vain_doubles_the_turns_without_one() {
        let mut activity = spinning();
        let mut skipped = Vec::new();
        for _ in 0..10 {
            skipped.push((0..).find(|_| turn(&mut activity, 10).is_some()).unwrap_or_default());
            activity.end_spin();
        }
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn a_wait_that_brings_something_is_followed_by_the_next() {
        let mut activity = spinning();
        assert!(turn(&mut activity, 10).is_some());
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_none());
        assert!(turn(&mut activity, 10).is_some());
        activity.note_receive();
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_some());
    }

    /// Plays turns of a millisecond for this long, with a number of receives in each that depends on the waits. Returns the
    /// number of turns that ended with one.
    fn play(comparison: &mut Comparison, now: &mut Instant, millis: u32, with: usize, without: usize) -> u32 {
        let mut spins = comparison.spins;
        let mut count = 0;
        for _ in 0..millis {
            *now += Duration::from_millis(1);
            spins = comparison.spins(*now, if spins { with } else { without });
            count += u32::from(spins);
        }
        count
    }

    #[test]
    fn a_thread_goes_on_as_it_received_more_and_notices_when_that_changes() {
        let (mut comparison, mut now) = (Comparison::default(), Instant::now());
        assert_eq!(play(&mut comparison, &mut now, 1000, 20, 10), 0, "it begins without waits");
        for (with, without, pays) in [(20, 10, true), (10, 20, false), (10, 10, false), (11, 10, true)] {
            play(&mut comparison, &mut now, 2000, with, without);
            let count = play(&mut comparison, &mut now, 10_000, with, without);
            let expected = if pays { 9000..=9999 } else { 1..=1000 };
            assert!(expected.contains(&count), "{with} {without}: {count}");
        }
    }
}
