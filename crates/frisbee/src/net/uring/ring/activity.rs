//! Heuristics for using a ring, and for waiting on it.
//!
//! One system call that receives for ten sockets costs less than ten calls. For a single socket, the ring costs
//! more than a plain call. A thread with few receives therefore bypasses the ring
//! ([`is_quiet`](RingActivity::is_quiet)).
//!
//! A busy thread without further work is about to sleep in its runtime. The first of the expected messages would
//! wake it for that message alone. If the thread instead waits on the ring for a moment, it handles several
//! messages after one wake-up. It waits for half as many completions as it had since its last idle time
//! ([`next_spin`](RingActivity::next_spin)). Only the ring ends such a wait, so a timer or another thread's
//! wake-up may be delayed, and the core is lost to other threads. The wait is therefore short, and each unsuccessful
//! wait doubles the number of turns without one.
//!
//! Waiting pays off only on some machines and loads: measurements ranged from a third fewer receives to a tenth
//! more. The thread therefore measures both, and keeps the mode with more receives ([`SpinComparison`]).

use std::{
    mem,
    time::{Duration, Instant},
};

/// Counts the receives of a thread.
#[derive(Debug, Default)]
pub(super) struct RingActivity {
    /// Receives since the thread was last idle.
    received: usize,
    /// A moving average over [`RECENT_TURNS`] turns, multiplied by their number.
    recent_receives: usize,
    /// The number of turns to end without a wait on the ring.
    spins_to_skip: u32,
    spins_skipped: u32,
    comparison: SpinComparison,
}

impl RingActivity {
    /// Counts a receive on a socket.
    pub(super) fn note_receive(&mut self) {
        self.received += 1;
    }

    /// Returns `true` if receives are rare. System calls then have nothing to share, and the ring is only
    /// overhead.
    pub(super) fn is_quiet(&self) -> bool {
        self.recent_receives + self.received < 2 * RECENT_TURNS
    }

    /// Ends a turn of the thread, before it goes idle. Returns the number of receives in the turn.
    pub(super) fn end_turn(&mut self) -> usize {
        let received = mem::take(&mut self.received);
        self.recent_receives = self.recent_receives - self.recent_receives / RECENT_TURNS + received;
        received
    }

    /// Ends a turn. Returns the number of completions to wait for on the ring, or `None` to skip the wait.
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

    /// Ends a wait on the ring. Its receives must have been counted before.
    pub(super) fn end_spin(&mut self) {
        self.spins_skipped = 0;
        self.spins_to_skip = match self.received {
            0 => (2 * self.spins_to_skip + 1).min(SPINS_SKIPPED_MAX),
            _ => 0,
        };
    }
}

/// Compares the receives of a thread with and without waits on its ring.
///
/// Alternates between both modes in trials, then keeps the better one for a while.
#[derive(Debug, Default)]
struct SpinComparison {
    spins: bool,
    /// The start of the current trial, or of the time after the last trial.
    since: Option<Instant>,
    /// The number of trials left, in both modes together.
    trials_left: u32,
    /// The totals of trials without waits and with waits.
    without: TrialTotals,
    with: TrialTotals,
}

/// A number of receives and the time they took.
#[derive(Debug, Default)]
struct TrialTotals {
    received: usize,
    time: Duration,
}

impl SpinComparison {
    /// Counts the receives of a turn ending now. Returns `true` if turns currently end with a wait.
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

    /// Returns `true` if waits increased the receives by more than the noise of 3 percent.
    fn pays(&self) -> bool {
        let scaled = |received: usize, time: Duration, percent: u128| received as u128 * time.as_micros() * percent;
        scaled(self.with.received, self.without.time, 100) > scaled(self.without.received, self.with.time, 103)
    }
}

/// The number of turns in the moving average of activity.
const RECENT_TURNS: usize = 4;
/// The limit on turns to skip after unsuccessful waits.
const SPINS_SKIPPED_MAX: u32 = 255;
/// Each mode gets half of the trials, alternating, so a change of load affects both.
const TRIALS: u32 = 10;
/// The duration of one trial.
const TRIAL_LEN: Duration = Duration::from_millis(8);
/// Long compared with all trials, because half of their time uses the worse mode.
const KEPT_FOR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// An activity with a comparison in favor of waits.
    fn spinning() -> RingActivity {
        RingActivity {
            comparison: SpinComparison { spins: true, ..SpinComparison::default() },
            ..RingActivity::default()
        }
    }

    /// Simulates a turn with this number of receives.
    fn turn(activity: &mut RingActivity, receives: usize) -> Option<usize> {
        (0..receives).for_each(|_| activity.note_receive());
        let now = *activity.comparison.since.get_or_insert_with(Instant::now);
        activity.next_spin(now)
    }

    #[test]
    fn one_receive_per_turn_is_quiet() {
        let mut activity = RingActivity::default();
        for _ in 0..100 {
            assert_eq!(turn(&mut activity, 1), None);
            assert!(activity.is_quiet());
        }
    }

    #[test]
    fn several_receives_per_turn_are_busy_until_they_stop() {
        let mut activity = RingActivity::default();
        for _ in 0..10 {
            turn(&mut activity, 5);
        }
        assert!(!activity.is_quiet());
        let quiet_after = (1..).find(|_| (turn(&mut activity, 1), activity.is_quiet()).1);
        assert!(quiet_after.is_some_and(|turns| (2..=10).contains(&turns)), "{quiet_after:?}");
    }

    #[test]
    fn a_busy_turn_spins_for_half_as_many_receives() {
        assert_eq!(turn(&mut spinning(), 10), Some(5));
        assert_eq!(turn(&mut spinning(), 4), Some(2));
        assert_eq!(turn(&mut spinning(), 3), None);
    }

    #[test]
    fn each_fruitless_spin_doubles_the_turns_without_one() {
        let mut activity = spinning();
        let mut skipped = Vec::new();
        for _ in 0..10 {
            skipped.push((0..).find(|_| turn(&mut activity, 10).is_some()).unwrap_or_default());
            activity.end_spin();
        }
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn a_successful_spin_is_followed_by_another() {
        let mut activity = spinning();
        assert!(turn(&mut activity, 10).is_some());
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_none());
        assert!(turn(&mut activity, 10).is_some());
        activity.note_receive();
        activity.end_spin();
        assert!(turn(&mut activity, 10).is_some());
    }

    /// Simulates turns of one millisecond each. `with` and `without` are the receives per turn in each mode.
    /// Returns the number of turns that ended with a wait.
    fn play(comparison: &mut SpinComparison, now: &mut Instant, millis: u32, with: usize, without: usize) -> u32 {
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
    fn spinning_adapts_to_the_measured_throughput() {
        let (mut comparison, mut now) = (SpinComparison::default(), Instant::now());
        assert_eq!(play(&mut comparison, &mut now, 1000, 20, 10), 0, "it begins without waits");
        for (with, without, pays) in [(20, 10, true), (10, 20, false), (10, 10, false), (11, 10, true)] {
            play(&mut comparison, &mut now, 2000, with, without);
            let count = play(&mut comparison, &mut now, 10_000, with, without);
            let expected = if pays { 9000..=9999 } else { 1..=1000 };
            assert!(expected.contains(&count), "{with} {without}: {count}");
        }
    }
}
