//! A client and a server against each other, with random messages, cuts of the wire, windows and schedules.

use proptest::prelude::*;

use crate::model::{Choices, Extent, run};

struct Random {
    state: u64,
    left: usize,
}

impl Choices for Random {
    fn below(&mut self, max: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.left = self.left.saturating_sub(1);
        usize::try_from(self.state >> 33).unwrap() % max
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_message_arrives_or_ends_with_an_error(seed: u64, window in 50u32..70_000, table in 0u32..6000, left in 0usize..3000) {
        run(&mut Random { state: seed | 1, left }, Extent::full(window, table));
    }
}

#[test]
fn frames_arrive_over_many_reads() {
    // One frame of 14 KiB fills the window here, so that nothing else moves until all of it has arrived.
    run(&mut Random { state: 958122478857403407, left: 20_000 }, Extent::full(14144, 271));
}
