//! Counters of all that goes through a broker, by the first token of subjects.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A snapshot of what a broker holds, and of what went through it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Patterns with subscribers, and members of queue groups.
    pub patterns: usize,
    /// Bytes of messages that wait for subscribers, as [`Limits::queued_len_max`](crate::Limits::queued_len_max) counts them.
    pub queued_len: usize,
    /// Subjects with a retained value.
    pub retained: usize,
    /// Messages that were dropped because subscribers were too slow, or that waited for a queue group when its last member went.
    pub missing: u64,
    /// Packets of clients that were refused: what they are not allowed to do, what there is no room for, and what cannot be read.
    pub refused: u64,
    /// Numbers by the first token of the subject, sorted by that. Tokens beyond [`Limits::prefixes_max`](crate::Limits::prefixes_max)
    /// share the empty one.
    pub prefixes: Vec<PrefixMetrics>,
}

/// Numbers of the messages under subjects with the same first token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixMetrics {
    /// The first token.
    pub prefix: String,
    /// Messages.
    pub published: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Subscriptions that they went to, those included that dropped them.
    pub deliveries: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    published: AtomicU64,
    bytes: AtomicU64,
    deliveries: AtomicU64,
}

impl Counters {
    /// Adds what was counted meanwhile, of which nothing is left.
    pub(super) fn add(&self, tally: &mut Tally) {
        let Tally { published, bytes, deliveries } = std::mem::take(tally);
        self.published.fetch_add(published, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries, Ordering::Relaxed);
    }
}

/// Numbers that are not added to the counters yet.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) published: u64,
    pub(super) bytes: u64,
    pub(super) deliveries: u64,
}

/// The counters of each prefix.
#[derive(Debug, Default)]
pub(super) struct Prefixes(Mutex<HashMap<String, Arc<Counters>>>);

impl Prefixes {
    /// Returns the counters of a subject's prefix, or those that all others share.
    pub(super) fn of(&self, subject: &str, prefixes_max: usize) -> Arc<Counters> {
        let prefix = subject.split('.').next().unwrap_or_default();
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if counters.contains_key(prefix) || counters.len() < prefixes_max { prefix } else { "" };
        counters.entry(key.into()).or_default().clone()
    }

    pub(super) fn snapshot(&self) -> Vec<PrefixMetrics> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = |(prefix, counters): (&_, &Arc<Counters>)| PrefixMetrics {
            prefix: String::clone(prefix),
            published: counters.published.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            deliveries: counters.deliveries.load(Ordering::Relaxed),
        };
        let mut all: Vec<_> = counters.iter().map(metrics).collect();
        all.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        all
    }
}
