//! The counters of one method on one thread.

use std::{
    iter,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    histogram::{BUCKETS, DurationHistogram, bucket_of},
    totals::CallTotals,
};

/// The number of status codes, from 0 to 16.
pub const CODES: usize = 17;

/// The counters of one method on one thread. Only this thread changes them.
#[derive(Debug, Default)]
pub struct MethodCells {
    /// See [`set_owner`](Self::set_owner).
    owner: AtomicUsize,
    started: Counter,
    /// Calls that were started, made one request and got one response, all counted at their end.
    whole: Counter,
    /// One request and one response of started calls.
    exchanged: Counter,
    request_messages: Counter,
    request_bytes: Counter,
    response_messages: Counter,
    response_bytes: Counter,
    retries: Counter,
    hedges: Counter,
    blocked_nanos: Counter,
    /// The times of calls in queues. Most methods have none.
    queued: OnceLock<Box<DurationCells>>,
    /// The durations by code. The most frequent code needs no allocation.
    ok: DurationCells,
    failed: [OnceLock<Box<DurationCells>>; CODES - 1],
}

/// A counter with one writer.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    #[inline]
    fn add(&self, more: u64) {
        // One thread writes, so no increment is lost.
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct DurationCells {
    counts: [Counter; BUCKETS],
    nanos: Counter,
}

impl Default for DurationCells {
    fn default() -> Self {
        Self { counts: [const { Counter(AtomicU64::new(0)) }; BUCKETS], nanos: Counter::default() }
    }
}

#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().wrapping_mul(1_000_000_000).wrapping_add(duration.subsec_nanos().into())
}

impl DurationCells {
    #[inline]
    fn add(&self, nanos: u64, calls: u64) {
        if let Some(count) = self.counts.get(bucket_of(nanos)) {
            count.add(calls);
        }
        self.nanos.add(nanos.wrapping_mul(calls));
    }

    fn add_to(&self, histogram: &mut DurationHistogram) {
        self.counts.iter().zip(&mut histogram.counts).for_each(|(cell, count)| *count += cell.get());
        histogram.sum += Duration::from_nanos(self.nanos.get());
    }
}

impl MethodCells {
    /// Sets the owner of these counters, a number above zero, for [`CallCounters::here_of`](crate::CallCounters::here_of).
    pub fn set_owner(&self, owner: usize) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn owner(&self) -> usize {
        self.owner.load(Ordering::Relaxed)
    }

    /// Counts the start of a call.
    #[inline]
    pub fn start(&self) {
        self.started.add(1);
    }

    /// Counts messages of the caller and their bytes.
    #[inline]
    pub fn add_request(&self, messages: u64, bytes: usize) {
        self.request_messages.add(messages);
        self.request_bytes.add(bytes as u64);
    }

    /// Counts messages for the caller and their bytes.
    #[inline]
    pub fn add_response(&self, messages: u64, bytes: usize) {
        self.response_messages.add(messages);
        self.response_bytes.add(bytes as u64);
    }

    /// Counts the end of a call with this status code.
    #[inline]
    pub fn end(&self, code: u8, duration: Duration) {
        match code {
            0 => self.ok.add(nanos(duration), 1),
            code => self.fail(code, nanos(duration)),
        }
    }

    #[cold]
    fn fail(&self, code: u8, nanos: u64) {
        // Unknown codes count as UNKNOWN.
        let cells = self.failed.get(usize::from(code) - 1).unwrap_or(&self.failed[1]);
        cells.get_or_init(Box::default).add(nanos, 1);
    }

    /// Counts the only request, the only response and the success of a started call that took this time in nanoseconds.
    #[inline]
    pub fn end_unary(&self, request_len: usize, response_len: usize, nanos: u64) {
        self.exchanged.add(1);
        self.request_bytes.add(request_len as u64);
        self.response_bytes.add(response_len as u64);
        self.ok.add(nanos, 1);
    }

    /// Counts successful calls with the same duration.
    #[inline]
    pub(crate) fn add_run(&self, calls: u64, request_bytes: u64, response_bytes: u64, nanos: u64) {
        self.whole.add(calls);
        self.request_bytes.add(request_bytes);
        self.response_bytes.add(response_bytes);
        self.ok.add(nanos, calls);
    }

    /// Counts a retry.
    pub fn retry(&self) {
        self.retries.add(1);
    }

    /// Counts an additional attempt made before the answer to an earlier one.
    pub fn hedge(&self) {
        self.hedges.add(1);
    }

    /// Counts time in which a call had messages to send and its peer or its connection took none.
    pub fn add_blocked(&self, time: Duration) {
        self.blocked_nanos.add(nanos(time));
    }

    /// Counts the time of a call in a queue before it could begin.
    pub fn add_queued(&self, time: Duration) {
        self.queued.get_or_init(Box::default).add(nanos(time), 1);
    }

    pub(crate) fn add_to(&self, totals: &mut CallTotals) {
        let whole = self.whole.get();
        let exchanged = whole + self.exchanged.get();
        totals.started += self.started.get() + whole;
        totals.request_messages += self.request_messages.get() + exchanged;
        totals.request_bytes += self.request_bytes.get();
        totals.response_messages += self.response_messages.get() + exchanged;
        totals.response_bytes += self.response_bytes.get();
        totals.retries += self.retries.get();
        totals.hedges += self.hedges.get();
        totals.blocked += Duration::from_nanos(self.blocked_nanos.get());
        if let Some(queued) = self.queued.get() {
            queued.add_to(&mut totals.queued);
        }
        let failed = self.failed.iter().map(|cells| cells.get().map(|cells| &**cells));
        for (code, cells) in (0..).zip(iter::once(Some(&self.ok)).chain(failed)) {
            if let Some(cells) = cells {
                cells.add_to(totals.durations.entry(code).or_default());
            }
        }
    }
}
