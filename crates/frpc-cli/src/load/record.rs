//! Counts and latencies of calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use frpc::Code;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::failure::code_name;

/// The results of one worker, shared for reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<LoadResults>>);

/// Results of calls.
#[derive(Clone, Debug)]
pub(crate) struct LoadResults {
    /// The latencies of successful calls in nanoseconds.
    latencies: Histogram<u64>,
    /// The number of failed calls by code.
    failed: BTreeMap<i32, u64>,
    messages: u64,
    bytes: u64,
}

impl Recorder {
    /// Records a call. A successful outcome contains its number of messages and bytes.
    pub(crate) fn add(&self, latency: Duration, outcome: Result<(u64, u64), Code>) {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok((messages, bytes)) => {
                let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                record.latencies.saturating_record(nanoseconds);
                record.messages += messages;
                record.bytes += bytes;
            }
            Err(code) => *record.failed.entry(code.into()).or_default() += 1,
        }
    }

    pub(crate) fn add_to(&self, all: &mut LoadResults) {
        all.merge(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Default for LoadResults {
    fn default() -> Self {
        let mut latencies = Histogram::new_with_bounds(1000, 1 << 30, 3).expect("the bounds are valid constants");
        latencies.auto(true);
        Self { latencies, failed: BTreeMap::new(), messages: 0, bytes: 0 }
    }
}

impl LoadResults {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latencies.add(&other.latencies).expect("the histogram grows to any value");
        for (code, count) in &other.failed {
            *self.failed.entry(*code).or_default() += count;
        }
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    /// Returns the number of successful calls.
    pub(crate) fn calls(&self) -> u64 {
        self.latencies.len()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of failed calls by code, in descending order.
    pub(crate) fn failed(&self) -> Vec<(Code, u64)> {
        let mut failed: Vec<_> = self.failed.iter().map(|(code, count)| (Code::from_number(*code), *count)).collect();
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failed
    }

    pub(crate) fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.latencies.mean() / 1e9).unwrap_or_default()
    }

    pub(crate) fn quantile(&self, part: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(part))
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.latencies.max())
    }

    pub(crate) fn min(&self) -> Duration {
        Duration::from_nanos(self.latencies.min())
    }

    /// Returns a histogram: for each row, the upper bound of the latency and the number of calls.
    pub(crate) fn rows(&self, most: u32) -> Vec<(Duration, u64)> {
        // Size the rows by the 95th percentile: with the maximum, a few slow calls would leave all others in one row.
        let (low, high) = (self.latencies.min(), self.latencies.value_at_quantile(0.95));
        let step = (high.saturating_sub(low) / u64::from(most)).max(1);
        let mut rows = Vec::new();
        let mut from = 0;
        for row in 1..=u64::from(most) {
            let to = low + step * row;
            if from > high {
                break;
            }
            rows.push((Duration::from_nanos(to), self.latencies.count_between(from, to)));
            from = to + 1;
        }
        let rest = self.latencies.len() - rows.iter().map(|(_, count)| count).sum::<u64>().min(self.latencies.len());
        if rest > 0 {
            rows.push((self.max(), rest));
        }
        rows
    }

    pub(crate) fn to_json(&self, elapsed: Duration) -> Value {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let quantiles = QUANTILES.map(|(name, part)| (name.to_owned(), json!(micros(self.quantile(part)))));
        let failed = self.failed().into_iter().map(|(code, count)| (code_name(code).to_owned(), json!(count)));
        json!({
            "calls": self.calls(),
            "failures": self.failures(),
            "failed": Value::Object(failed.collect()),
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": elapsed.as_secs_f64(),
            "calls_per_second": per_second(self.calls(), elapsed),
            "latency_us": {
                "mean": micros(self.mean()), "min": micros(self.min()), "max": micros(self.max()),
                "quantiles": Value::Object(quantiles.into_iter().collect()),
            },
        })
    }
}

/// The quantiles shown in results.
pub(crate) const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

#[allow(clippy::cast_precision_loss, reason = "it is shown with six digits")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_rows_contain_every_call_once() {
        let recorder = Recorder::default();
        for micros in 1..=1000 {
            recorder.add(Duration::from_micros(micros), Ok((1, 10)));
        }
        recorder.add(Duration::from_secs(5), Ok((1, 10)));
        recorder.add(Duration::from_secs(9), Err(Code::Unavailable));
        let mut record = LoadResults::default();
        recorder.add_to(&mut record);
        assert_eq!((record.calls(), record.failures(), record.bytes()), (1001, 1, 10_010));
        let rows = record.rows(10);
        assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), 1001, "{rows:?}");
        assert_eq!(rows.len(), 11);
        assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0), "{rows:?}");
        assert_eq!(record.failed(), [(Code::Unavailable, 1)]);
        assert_eq!(record.quantile(0.5).as_micros(), 501);
    }

    #[test]
    fn an_empty_record_has_no_rows() {
        let record = LoadResults::default();
        assert_eq!(record.rows(10).iter().map(|(_, count)| count).sum::<u64>(), 0);
        assert_eq!(record.mean(), Duration::ZERO);
    }
}
