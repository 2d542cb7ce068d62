//! The rule of when a batch is written: now, or once more packets have joined it.
//!
//! A write costs a system call, however many packets it carries. Packets tend to come in bursts: ten tasks that each got
//! an answer will each ask again, but only when the runtime gets to run them, which is after the driver. So a driver that
//! wakes up with packets to write lets the tasks that are ready run first, if it has reason to believe that they will add
//! to the batch. There are two reasons:
//!
//! - The last burst was larger than what is here. Callers that came together tend to come together again. As a guess
//!   this is weak, so it puts a write off once.
//! - Packets arrived that tasks waited for ([`expect`](Cork::expect)), and each is likely to be followed by
//!   another request of the same task. This is known and not guessed, so it puts a write off again for as long as every
//!   wake-up brings more, up to [`DEFERRALS_MAX`] times.
//!
//! Putting off costs one pass through the queue of ready tasks, and no time when nothing else is ready: there is no
//! timer. A task that is alone was the last burst by itself, so its packet is never put off.

/// Counts packets between the sleeps of a driver, and decides by that. Knows no socket and no clock: the driver tells how
/// many packets were ever queued.
#[derive(Debug, Default)]
pub(super) struct Cork {
    /// The number of packets that had been queued when the driver went to sleep.
    at_sleep: u64,
    /// The number of packets that were queued in the last sleep that ended with any.
    last_burst: u64,
    /// The number of packets that are likely to follow.
    expected: u64,
    /// The number of times that the write that is due was put off.
    deferrals: u32,
    /// The number of packets that waited when it was put off last.
    deferred: u64,
}

/// A decision about a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Write {
    Now,
    /// After the tasks that are ready to run.
    Later,
}

impl Cork {
    /// Notes that packets arrived that tasks waited for, which will probably send as many.
    pub(super) fn expect(&mut self, packets: u64) {
        self.expected += packets;
    }

    /// Decides at a wake-up whether to write what was queued since the last sleep.
    pub(super) fn wake(&mut self, queued: u64) -> Write {
        debug_assert!(queued >= self.at_sleep, "packets are only ever added to those queued");
        let burst = queued - self.at_sleep;
        if burst == 0 {
            return Write::Now;
        }
        let waits = match self.deferrals {
            0 => burst < self.expected.max(self.last_burst),
            count => count < DEFERRALS_MAX && burst < self.expected && burst > self.deferred,
        };
        if waits {
            self.deferrals += 1;
            self.deferred = burst;
            return Write::Later;
        }
        self.last_burst = burst;
        // Half of the missing packets are forgotten: answers that no task follows up must not put off writes for ever.
        self.expected = self.expected.saturating_sub(burst) / 2;
        self.deferrals = 0;
        Write::Now
    }

    /// Notes that the driver goes to sleep: the next burst begins.
    pub(super) fn sleep(&mut self, queued: u64) {
        debug_assert_eq!(self.deferrals, 0, "a driver that has put off a write does not sleep before it is written");
        self.at_sleep = queued;
    }
}

/// The number of times that one write is put off at most.
const DEFERRALS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::{Write::*, *};

    /// A cork with the number of packets that were ever queued.
    #[derive(Default)]
    struct Bursts {
        cork: Cork,
        queued: u64,
    }

    impl Bursts {
        /// Queues packets and wakes the driver.
        fn add(&mut self, packets: u64) -> Write {
            self.queued += packets;
            self.cork.wake(self.queued)
        }

        /// Sends the driver to sleep, after it has written everything.
        fn sleep(&mut self) {
            self.cork.sleep(self.queued);
        }

        /// Makes a cork that remembers a burst of this size.
        fn after(packets: u64) -> Self {
            let mut bursts = Self::default();
            assert_eq!(bursts.add(packets), Now);
            bursts.sleep();
            bursts
        }

        fn expecting(packets: u64) -> Self {
            let mut bursts = Self::default();
            (0..packets).for_each(|_| bursts.cork.expect(1));
            bursts
        }
    }

    #[test]
    fn a_lone_sender_is_written_at_once() {
        let mut bursts = Bursts::default();
        for _ in 0..10 {
            assert_eq!(bursts.add(1), Now);
            bursts.sleep();
        }
    }

    #[test]
    fn a_lone_caller_that_gets_its_answers_is_written_at_once() {
        let mut bursts = Bursts::default();
        for _ in 0..10 {
            assert_eq!(bursts.add(1), Now);
            bursts.sleep();
            bursts.cork.expect(1);
        }
    }

    #[test]
    fn a_wake_up_without_packets_puts_nothing_off() {
        let mut bursts = Bursts::after(10);
        (0..10).for_each(|_| bursts.cork.expect(1));
        assert_eq!(bursts.add(0), Now);
    }

    #[test]
    fn a_smaller_burst_than_the_last_one_waits_once_for_the_others() {
        let mut bursts = Bursts::after(10);
        assert_eq!(bursts.add(1), Later);
        assert_eq!(bursts.add(1), Now);
    }

    #[test]
    fn a_burst_as_large_as_the_last_one_is_written_at_once() {
        assert_eq!(Bursts::after(10).add(10), Now);
    }

    #[test]
    fn the_last_burst_is_the_last_one_that_had_any_packets() {
        let mut bursts = Bursts::after(10);
        assert_eq!(bursts.add(0), Now);
        bursts.sleep();
        assert_eq!(bursts.add(9), Later);
    }

    #[test]
    fn a_smaller_burst_takes_the_place_of_a_larger_one() {
        let mut bursts = Bursts::after(10);
        assert_eq!((bursts.add(2), bursts.add(0)), (Later, Now));
        bursts.sleep();
        assert_eq!(bursts.add(2), Now);
    }

    #[test]
    fn each_answer_is_expected_to_be_followed_by_a_packet() {
        let mut bursts = Bursts::expecting(3);
        assert_eq!([bursts.add(1), bursts.add(1), bursts.add(1)], [Later, Later, Now]);
    }

    #[test]
    fn a_write_is_put_off_again_only_if_the_wake_up_brought_more() {
        let mut bursts = Bursts::expecting(10);
        assert_eq!([bursts.add(1), bursts.add(1), bursts.add(0)], [Later, Later, Now]);
    }

    #[test]
    fn a_write_is_put_off_four_times_at_most() {
        let mut bursts = Bursts::expecting(100);
        assert_eq!([1; 5].map(|packets| bursts.add(packets)), [Later, Later, Later, Later, Now]);
    }

    #[test]
    fn half_of_what_did_not_come_is_expected_of_the_next_burst() {
        let mut bursts = Bursts::expecting(9);
        assert_eq!([bursts.add(1), bursts.add(0)], [Later, Now]);
        bursts.sleep();
        // Four of the eight that did not come.
        assert_eq!([bursts.add(3), bursts.add(1)], [Later, Now]);
    }

    #[test]
    fn answers_that_nobody_follows_up_are_forgotten() {
        let mut bursts = Bursts::expecting(1000);
        for _ in 0..20 {
            while bursts.add(1) == Later {}
            bursts.sleep();
        }
        assert_eq!(bursts.cork.expected, 0);
    }

    #[test]
    fn a_turn_that_goes_on_without_sleep_counts_on() {
        let mut bursts = Bursts::default();
        assert_eq!(bursts.add(5), Now);
        // Enough for one turn: the driver yields without having slept, and what it wrote counts with what comes.
        assert_eq!(bursts.add(1), Now);
        bursts.sleep();
        assert_eq!(bursts.add(5), Later);
    }
}
