//! Decides when to write a batch: now, or after more packets have joined it.
//!
//! A write costs one system call for any number of packets. Packets tend to come in bursts: ten tasks with a new reply
//! will each send another request, but only when the runtime polls them, after the driver. A driver that wakes up with
//! packets to write therefore lets ready tasks run first if they will probably add to the batch. There are two reasons
//! to expect this:
//!
//! - The last burst was larger than the current batch. Callers that sent together tend to send together again. This is
//!   only a guess, so it defers a write once.
//! - Packets arrived for waiting tasks ([`expect`](Cork::expect)), and each of these tasks will probably send another
//!   request. This is not a guess, so it defers a write again while every wake-up adds packets, up to [`DEFERRALS_MAX`]
//!   times.
//!
//! A deferral costs one pass through the queue of ready tasks, and no time if no other task is ready: there is no
//! timer. The last burst of a single task had one packet, so its packets are never deferred.

/// Counts packets between the sleeps of a driver, and decides when to write.
///
/// Independent of sockets and clocks: the driver passes in the total number of packets queued so far.
#[derive(Debug, Default)]
pub(super) struct Cork {
    /// Total number of packets queued when the driver went to sleep.
    at_sleep: u64,
    /// Number of packets queued during the last sleep with any packets.
    last_burst: u64,
    /// Number of packets expected to follow.
    expected: u64,
    /// Number of deferrals of the pending write.
    deferrals: u32,
    /// Number of packets pending at the last deferral.
    deferred: u64,
}

/// When to write a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteTiming {
    Now,
    /// After the tasks that are ready to run.
    Later,
}

impl Cork {
    /// Records the arrival of packets for waiting tasks, which will probably send as many packets in return.
    pub(super) fn expect(&mut self, packets: u64) {
        self.expected += packets;
    }

    /// Decides at a wake-up when to write the packets queued since the last sleep.
    pub(super) fn wake(&mut self, queued: u64) -> WriteTiming {
        debug_assert!(queued >= self.at_sleep, "packets are only ever added to those queued");
        let burst = queued - self.at_sleep;
        if burst == 0 {
            return WriteTiming::Now;
        }
        let waits = match self.deferrals {
            0 => burst < self.expected.max(self.last_burst),
            count => count < DEFERRALS_MAX && burst < self.expected && burst > self.deferred,
        };
        if waits {
            self.deferrals += 1;
            self.deferred = burst;
            return WriteTiming::Later;
        }
        self.last_burst = burst;
        // Forget half of the missing packets. Otherwise, replies without a following request would defer writes
        // forever.
        self.expected = self.expected.saturating_sub(burst) / 2;
        self.deferrals = 0;
        WriteTiming::Now
    }

    /// Records that the driver goes to sleep: the next burst begins.
    pub(super) fn sleep(&mut self, queued: u64) {
        debug_assert_eq!(self.deferrals, 0, "a driver that has put off a write does not sleep before it is written");
        self.at_sleep = queued;
    }
}

/// Maximum number of deferrals of one write.
const DEFERRALS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::{WriteTiming::*, *};

    /// A cork with the total number of packets queued so far.
    #[derive(Default)]
    struct Bursts {
        cork: Cork,
        queued: u64,
    }

    impl Bursts {
        /// Queues packets and wakes the driver.
        fn add(&mut self, packets: u64) -> WriteTiming {
            self.queued += packets;
            self.cork.wake(self.queued)
        }

        /// Puts the driver to sleep after it has written everything.
        fn sleep(&mut self) {
            self.cork.sleep(self.queued);
        }

        /// Creates a cork whose last burst had this size.
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
    fn a_single_sender_is_written_immediately() {
        let mut bursts = Bursts::default();
        for _ in 0..10 {
            assert_eq!(bursts.add(1), Now);
            bursts.sleep();
        }
    }

    #[test]
    fn a_single_caller_is_written_immediately() {
        let mut bursts = Bursts::default();
        for _ in 0..10 {
            assert_eq!(bursts.add(1), Now);
            bursts.sleep();
            bursts.cork.expect(1);
        }
    }

    #[test]
    fn wake_ups_without_packets_do_not_delay_writes() {
        let mut bursts = Bursts::after(10);
        (0..10).for_each(|_| bursts.cork.expect(1));
        assert_eq!(bursts.add(0), Now);
    }

    #[test]
    fn a_smaller_burst_is_delayed_once() {
        let mut bursts = Bursts::after(10);
        assert_eq!(bursts.add(1), Later);
        assert_eq!(bursts.add(1), Now);
    }

    #[test]
    fn a_burst_of_equal_size_is_written_immediately() {
        assert_eq!(Bursts::after(10).add(10), Now);
    }

    #[test]
    fn empty_bursts_do_not_replace_the_last_burst() {
        let mut bursts = Bursts::after(10);
        assert_eq!(bursts.add(0), Now);
        bursts.sleep();
        assert_eq!(bursts.add(9), Later);
    }

    #[test]
    fn a_smaller_burst_replaces_a_larger_one() {
        let mut bursts = Bursts::after(10);
        assert_eq!((bursts.add(2), bursts.add(0)), (Later, Now));
        bursts.sleep();
        assert_eq!(bursts.add(2), Now);
    }

    #[test]
    fn each_answer_raises_the_expected_burst_by_one() {
        let mut bursts = Bursts::expecting(3);
        assert_eq!([bursts.add(1), bursts.add(1), bursts.add(1)], [Later, Later, Now]);
    }

    #[test]
    fn delays_continue_only_while_packets_arrive() {
        let mut bursts = Bursts::expecting(10);
        assert_eq!([bursts.add(1), bursts.add(1), bursts.add(0)], [Later, Later, Now]);
    }

    #[test]
    fn a_write_is_put_off_four_times_at_most() {
        let mut bursts = Bursts::expecting(100);
        assert_eq!([1; 5].map(|packets| bursts.add(packets)), [Later, Later, Later, Later, Now]);
    }

    #[test]
    fn half_of_the_missing_packets_are_expected_next() {
        let mut bursts = Bursts::expecting(9);
        assert_eq!([bursts.add(1), bursts.add(0)], [Later, Now]);
        bursts.sleep();
        // Four more are expected: half of the eight missing packets.
        assert_eq!([bursts.add(3), bursts.add(1)], [Later, Now]);
    }

    #[test]
    fn expected_packets_decay_to_zero() {
        let mut bursts = Bursts::expecting(1000);
        for _ in 0..20 {
            while bursts.add(1) == Later {}
            bursts.sleep();
        }
        assert_eq!(bursts.cork.expected, 0);
    }

    #[test]
    fn packets_accumulate_until_the_driver_sleeps() {
        let mut bursts = Bursts::default();
        assert_eq!(bursts.add(5), Now);
        // The driver yields without a sleep, so the packets it wrote count together with the next ones.
        assert_eq!(bursts.add(1), Now);
        bursts.sleep();
        assert_eq!(bursts.add(5), Later);
    }
}
