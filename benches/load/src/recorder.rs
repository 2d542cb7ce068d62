use std::fmt::Display;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::window::{Window, nanoseconds};

/// The measurements of one connection or other worker.
#[derive(Clone, Debug)]
pub struct Recorder {
    window: Window,
    /// Latencies in nanoseconds of the calls completed inside the window.
    pub(crate) latencies: Histogram<u32>,
    pub(crate) total: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) stuck: u64,
}

impl Recorder {
    /// Creates a recorder for the calls of a window.
    pub fn new(window: Window) -> Self {
        Self { window, latencies: new_histogram(), total: 0, errors: 0, first_error: None, stuck: 0 }
    }

    /// Counts verified answers to consecutive calls. Records their latencies if they completed inside the window.
    pub fn complete(&mut self, sent: Instant, answered: Instant, calls: u32) {
        self.total += u64::from(calls);
        if self.window.contains(answered) {
            let latency = nanoseconds(answered.duration_since(sent)) / u64::from(calls);
            self.latencies.record_n(latency, calls).expect("the histogram grows to any value");
        }
    }

    /// Counts a wrong answer or a failed connection.
    pub fn fail(&mut self, error: impl Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Counts calls without an answer at the deadline.
    pub fn give_up(&mut self, calls: usize) {
        self.stuck += calls as u64;
    }

    /// Adds the measurements of another worker of the same window.
    pub fn merge(&mut self, other: Self) {
        self.latencies.add(&other.latencies).expect("the histogram grows to any value");
        self.total += other.total;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.stuck += other.stuck;
    }

    pub(crate) fn is_starved(&self) -> bool {
        self.latencies.is_empty()
    }
}

/// Starts small: thousands of histograms exist together, and those in use should stay in the CPU cache.
fn new_histogram() -> Histogram<u32> {
    let mut histogram = Histogram::new_with_bounds(128, 1 << 20, 2).expect("the bounds are valid constants");
    histogram.auto(true);
    histogram
}
