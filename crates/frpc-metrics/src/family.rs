//! Metrics with names and attributes, as readers export them.

use std::time::Duration;

use crate::histogram::DurationHistogram;

/// A metric with one point per set of attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The name by the conventions of OpenTelemetry, such as `rpc.server.call.duration`.
    pub name: &'static str,
    /// The unit in UCUM: `s`, `By`, or a name in braces.
    pub unit: &'static str,
    /// One sentence for people.
    pub description: &'static str,
    /// The kind of all points.
    pub kind: MetricKind,
    /// The points.
    pub points: Vec<MetricPoint>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// One point of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// The names and values of its attributes. The names have dots.
    pub attributes: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A number of things or bytes.
    Integer(u64),
    /// A number of seconds, or a ratio.
    Float(f64),
    /// A distribution of durations.
    Durations(Box<DurationHistogram>),
    /// A distribution of sizes without buckets: how many, and their sum.
    Sizes {
        /// The number of values.
        count: u64,
        /// Their sum.
        sum: u64,
    },
}

impl MetricFamily {
    /// Creates a counter without points.
    pub fn counter(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { name, unit, description, kind: MetricKind::Counter, points: Vec::new() }
    }

    /// Creates a gauge without points.
    pub fn gauge(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { kind: MetricKind::Gauge, ..Self::counter(name, unit, description) }
    }

    /// Creates a histogram without points.
    pub fn histogram(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { kind: MetricKind::Histogram, ..Self::counter(name, unit, description) }
    }

    /// Adds a point.
    pub fn add(&mut self, attributes: &[(&'static str, &str)], value: impl Into<MetricValue>) {
        let attributes = attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.points.push(MetricPoint { attributes, value: value.into() });
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// As seconds.
impl From<Duration> for MetricValue {
    fn from(value: Duration) -> Self {
        Self::Float(value.as_secs_f64())
    }
}

impl From<DurationHistogram> for MetricValue {
    fn from(value: DurationHistogram) -> Self {
        Self::Durations(Box::new(value))
    }
}
