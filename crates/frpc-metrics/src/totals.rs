//! The counters of one method on all threads.

use std::{collections::BTreeMap, time::Duration};

use crate::histogram::DurationHistogram;

/// The counters of a method, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTotals {
    /// The number of calls begun.
    pub started: u64,
    /// The messages of callers.
    pub request_messages: u64,
    /// The bytes of these messages.
    pub request_bytes: u64,
    /// The messages for callers.
    pub response_messages: u64,
    /// The bytes of these messages.
    pub response_bytes: u64,
    /// The retries of channels.
    pub retries: u64,
    /// The additional attempts of channels before the answer to an earlier one.
    pub hedges: u64,
    /// The time in which calls had messages to send and their peers or connections took none.
    pub blocked: Duration,
    /// The times of calls in a queue before they could begin. Calls that did not wait are not counted.
    pub queued: DurationHistogram,
    /// The durations of ended calls, by status code.
    pub durations: BTreeMap<u8, DurationHistogram>,
}

impl CallTotals {
    /// Returns the number of calls ended with this status code.
    pub fn ended(&self, code: u8) -> u64 {
        self.durations.get(&code).map_or(0, DurationHistogram::count)
    }

    /// Returns the number of ended calls.
    pub fn all_ended(&self) -> u64 {
        self.durations.values().map(DurationHistogram::count).sum()
    }

    /// Returns the number of calls in flight. Counters are read one by one, so under load it is not exact.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.all_ended())
    }

    /// Returns the durations of all calls.
    pub fn all_durations(&self) -> DurationHistogram {
        let mut all = DurationHistogram::default();
        self.durations.values().for_each(|durations| all.add(durations));
        all
    }

    /// Adds the counters of another method or server.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.request_messages += other.request_messages;
        self.request_bytes += other.request_bytes;
        self.response_messages += other.response_messages;
        self.response_bytes += other.response_bytes;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.blocked += other.blocked;
        self.queued.add(&other.queued);
        for (code, durations) in &other.durations {
            self.durations.entry(*code).or_default().add(durations);
        }
    }
}
