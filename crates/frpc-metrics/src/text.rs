//! The text formats of Prometheus and OpenMetrics.

use std::fmt::Write;

use crate::{
    family::{MetricFamily, MetricKind, MetricPoint, MetricValue},
    histogram::{BUCKETS, DurationHistogram, bucket_bound},
};

/// A text format for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    /// Returns the format for a request with this `Accept` header.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes metrics in a text format. Metrics without points are left out.
///
/// Names get underscores for dots and all other characters than letters and digits, and the suffixes of Prometheus: `rpc.server.call.duration` in `s` becomes
/// `rpc_server_call_duration_seconds`. Histograms of durations get one bucket per power of two.
pub fn write_text(families: &[MetricFamily], format: TextFormat) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.points.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_family(&mut out, family, format);
    }
    if format == TextFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_family(out: &mut String, family: &MetricFamily, format: TextFormat) -> std::fmt::Result {
    let unit = match family.unit {
        "s" => "seconds",
        "By" => "bytes",
        _ => "",
    };
    let mut name = identifier(family.name);
    if !unit.is_empty() && !name.ends_with(unit) {
        write!(name, "_{unit}")?;
    }
    let (kind, suffix) = match family.kind {
        MetricKind::Counter => ("counter", "_total"),
        MetricKind::Gauge => ("gauge", ""),
        MetricKind::Histogram => ("histogram", ""),
    };
    let title = if format == TextFormat::Prometheus { format!("{name}{suffix}") } else { name.clone() };
    writeln!(out, "# HELP {title} {}", escaped(family.description, format == TextFormat::OpenMetrics))?;
    writeln!(out, "# TYPE {title} {kind}")?;
    if format == TextFormat::OpenMetrics && !unit.is_empty() {
        writeln!(out, "# UNIT {title} {unit}")?;
    }
    for point in &family.points {
        match &point.value {
            MetricValue::Integer(value) => writeln!(out, "{name}{suffix}{} {value}", labels(point, None))?,
            MetricValue::Float(value) => writeln!(out, "{name}{suffix}{} {value}", labels(point, None))?,
            MetricValue::Durations(histogram) => write_durations(out, &name, point, histogram)?,
            MetricValue::Sizes { count, sum } => {
                writeln!(out, "{name}_bucket{} {count}", labels(point, Some(f64::INFINITY)))?;
                writeln!(out, "{name}_sum{} {sum}", labels(point, None))?;
                writeln!(out, "{name}_count{} {count}", labels(point, None))?;
            }
        }
    }
    Ok(())
}

fn write_durations(
    out: &mut String,
    name: &str,
    point: &MetricPoint,
    histogram: &DurationHistogram,
) -> std::fmt::Result {
    let mut seen = 0;
    for (bucket, count) in histogram.counts.iter().enumerate() {
        seen += count;
        if bucket % BUCKETS_PER_BOUND == 0 && (FIRST_BOUND..=LAST_BOUND).contains(&bucket) || bucket == BUCKETS - 1 {
            writeln!(out, "{name}_bucket{} {seen}", labels(point, Some(bucket_bound(bucket))))?;
        }
    }
    writeln!(out, "{name}_sum{} {}", labels(point, None), histogram.sum.as_secs_f64())?;
    writeln!(out, "{name}_count{} {seen}", labels(point, None))
}

/// Returns the labels of a point in braces, with the bound of a bucket.
fn labels(point: &MetricPoint, bound: Option<f64>) -> String {
    let own = point.attributes.iter().map(|(name, value)| (identifier(name), escaped(value, true)));
    let bound = bound.map(|bound| {
        let text = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        ("le".to_owned(), text)
    });
    let labels: Vec<String> = own.chain(bound).map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

/// Returns a name of ASCII letters, digits and underscores. One bad name would make the whole text invalid.
fn identifier(name: &str) -> String {
    let valid = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    let digit = name.starts_with(|char: char| char.is_ascii_digit()).then_some('_');
    digit.into_iter().chain(name.chars().map(valid)).collect()
}

fn escaped(text: &str, is_quoted: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_quoted => out.push_str("\\\""),
            char => out.push(char),
        }
    }
    out
}

/// One bound in the text per power of two.
const BUCKETS_PER_BOUND: usize = 4;
/// 1.024 µs.
const FIRST_BOUND: usize = 2 * BUCKETS_PER_BOUND;
/// 69 s.
const LAST_BOUND: usize = 28 * BUCKETS_PER_BOUND;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::CallCounters;

    fn families() -> Vec<MetricFamily> {
        let mut calls = MetricFamily::counter("grpc.server.call.started", "{call}", "Calls begun.");
        calls.add(&[("grpc.method", "a.B/C")], 7);
        let mut bytes = MetricFamily::gauge("frpc.server.memory", "By", "A \\ and\na line.");
        bytes.add(&[], 12);
        bytes.add(&[("what", "a \"b\"\\\n")], 0.5);
        let (counters, mut durations) =
            (CallCounters::new(1), MetricFamily::histogram("rpc.server.call.duration", "s", "Durations of calls."));
        for micros in [1, 1000, 1_000_000_000] {
            counters.here(0).end(0, Duration::from_micros(micros));
        }
        durations.add(&[("rpc.method", "a.B/C")], counters.totals(0).all_durations());
        let mut sizes = MetricFamily::histogram("rpc.server.request.size", "By", "Sizes of requests.");
        sizes.add(&[], MetricValue::Sizes { count: 2, sum: 64 });
        vec![calls, bytes, durations, sizes, MetricFamily::counter("unused", "s", "Nothing.")]
    }

    #[test]
    fn prometheus_gets_names_units_and_escaped_labels() {
        let text = write_text(&families(), TextFormat::Prometheus);
        for line in [
            "# HELP grpc_server_call_started_total Calls begun.",
            "# TYPE grpc_server_call_started_total counter",
            "grpc_server_call_started_total{grpc_method=\"a.B/C\"} 7",
            "# HELP frpc_server_memory_bytes A \\\\ and\\na line.",
            "frpc_server_memory_bytes 12",
            "frpc_server_memory_bytes{what=\"a \\\"b\\\"\\\\\\n\"} 0.5",
            "rpc_server_call_duration_seconds_bucket{rpc_method=\"a.B/C\",le=\"0.000001024\"} 1",
            "rpc_server_call_duration_seconds_bucket{rpc_method=\"a.B/C\",le=\"0.001048576\"} 2",
            "rpc_server_call_duration_seconds_bucket{rpc_method=\"a.B/C\",le=\"+Inf\"} 3",
            "rpc_server_call_duration_seconds_sum{rpc_method=\"a.B/C\"} 1000.001001",
            "rpc_server_call_duration_seconds_count{rpc_method=\"a.B/C\"} 3",
            "rpc_server_request_size_bytes_bucket{le=\"+Inf\"} 2",
            "rpc_server_request_size_bytes_sum 64",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("unused") && !text.contains("# EOF"));
        assert_eq!(text.lines().filter(|line| line.contains("duration_seconds_bucket")).count(), 28);
    }

    #[test]
    fn names_and_descriptions_of_programs_keep_the_text_valid() {
        let mut odd = MetricFamily::gauge("2shop-jobs.open\u{e9} {", "{job}", "The \"open\" jobs.");
        odd.add(&[("job kind", "a")], 1);
        let text = write_text(&[odd], TextFormat::OpenMetrics);
        assert!(text.contains("# HELP _2shop_jobs_open___ The \\\"open\\\" jobs.\n"), "{text}");
        assert!(text.contains("\n_2shop_jobs_open___{job_kind=\"a\"} 1\n"), "{text}");
    }

    #[test]
    fn open_metrics_has_units_and_an_end() {
        let text = write_text(&families(), TextFormat::OpenMetrics);
        assert!(text.contains("# TYPE grpc_server_call_started counter\ngrpc_server_call_started_total{"), "{text}");
        assert!(text.contains("# UNIT rpc_server_call_duration_seconds seconds\n"));
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(TextFormat::accepted("application/openmetrics-text;version=1.0.0"), TextFormat::OpenMetrics);
        assert_eq!(TextFormat::accepted("*/*"), TextFormat::Prometheus);
    }
}
