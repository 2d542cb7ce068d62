//! Counters of a broker's traffic, by the first token of the subject.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{lock::lock, sync::Mutex};

/// A snapshot of a broker's state and traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerMetrics {
    /// Subscribed patterns, plus members of queue groups.
    pub patterns: usize,
    /// Bytes of queued messages, counted as for [`BrokerLimits::queued_len_max`](crate::BrokerLimits::queued_len_max).
    pub queued_len: usize,
    /// Subjects with a retained value.
    pub retained: usize,
    /// Messages dropped because subscribers were too slow, or because the last member of their queue group left.
    pub missing: u64,
    /// Refused packets: without permission, beyond a limit, or malformed.
    pub refused: u64,
    /// Counters by the first token of the subject, sorted by token. Tokens beyond
    /// [`BrokerLimits::prefixes_max`](crate::BrokerLimits::prefixes_max) share the entry with an empty prefix.
    pub prefixes: Vec<PrefixMetrics>,
}

/// Counters of the messages with the same first token in their subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixMetrics {
    /// First token of the subjects.
    pub prefix: String,
    /// Messages published.
    pub published: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Deliveries to subscriptions, including deliveries dropped by a policy.
    pub deliveries: u64,
}

#[cfg(feature = "metrics")]
impl BrokerMetrics {
    /// Returns the totals with their names.
    pub(super) fn families(&self, broker: &str) -> Vec<frpc_metrics::MetricFamily> {
        use frpc_metrics::MetricFamily;

        let sum = |number: fn(&PrefixMetrics) -> u64| self.prefixes.iter().map(number).sum::<u64>();
        let with = |mut family: MetricFamily, value: u64| {
            family.add(&[("frisbee.broker", broker)], value);
            family
        };
        let counter = |name, unit, description, value| with(MetricFamily::counter(name, unit, description), value);
        let gauge =
            |name, unit, description, value: usize| with(MetricFamily::gauge(name, unit, description), value as u64);
        vec![
            counter("frisbee.broker.published", "{message}", "Messages published.", sum(|prefix| prefix.published)),
            counter("frisbee.broker.published.io", "By", "Bytes of their payloads.", sum(|prefix| prefix.bytes)),
            counter(
                "frisbee.broker.deliveries",
                "{message}",
                "Deliveries to subscriptions.",
                sum(|prefix| prefix.deliveries),
            ),
            counter("frisbee.broker.missing", "{message}", "Messages dropped for slow subscribers.", self.missing),
            counter(
                "frisbee.broker.refused",
                "{packet}",
                "Packets without permission, beyond a limit, or malformed.",
                self.refused,
            ),
            gauge(
                "frisbee.broker.patterns",
                "{pattern}",
                "Subscribed patterns and members of queue groups.",
                self.patterns,
            ),
            gauge("frisbee.broker.queued", "By", "Bytes of queued messages.", self.queued_len),
            gauge("frisbee.broker.retained", "{subject}", "Subjects with a retained value.", self.retained),
        ]
    }
}

#[derive(Debug, Default)]
pub(super) struct PrefixCounters {
    published: AtomicU64,
    bytes: AtomicU64,
    deliveries: AtomicU64,
}

impl PrefixCounters {
    /// Adds the numbers of a tally and resets it.
    pub(super) fn add(&self, tally: &mut PublishTally) {
        let PublishTally { published, bytes, deliveries } = std::mem::take(tally);
        self.published.fetch_add(published, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries, Ordering::Relaxed);
    }
}

/// Numbers not yet added to the shared counters. A publisher adds them once per run of messages to save atomic
/// operations.
#[derive(Debug, Default)]
pub(super) struct PublishTally {
    pub(super) published: u64,
    pub(super) bytes: u64,
    pub(super) deliveries: u64,
}

/// Counters by prefix.
#[derive(Debug, Default)]
pub(super) struct PrefixTable(Mutex<HashMap<String, Arc<PrefixCounters>>>);

impl PrefixTable {
    /// Returns the counters for a subject's prefix, or the shared ones if there are too many prefixes.
    pub(super) fn of(&self, subject: &str, prefixes_max: usize) -> Arc<PrefixCounters> {
        let prefix = subject.split('.').next().unwrap_or_default();
        let mut counters = lock(&self.0);
        let key = if counters.contains_key(prefix) || counters.len() < prefixes_max { prefix } else { "" };
        counters.entry(key.into()).or_default().clone()
    }

    pub(super) fn snapshot(&self) -> Vec<PrefixMetrics> {
        let counters = lock(&self.0);
        let metrics = |(prefix, counters): (&_, &Arc<PrefixCounters>)| PrefixMetrics {
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
