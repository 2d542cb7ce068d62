//! Metrics of frpc as messages of OpenTelemetry.

use std::time::{Duration, SystemTime};

use frpc::metrics::{DurationHistogram, MetricFamily, MetricKind, MetricPoint, MetricValue, bucket_bound};

use crate::{
    process::text,
    protos::opentelemetry::proto::{
        common::v1::KeyValue,
        metrics::v1::{
            AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
            HistogramDataPoint, Metric, NumberDataPoint, Sum, exponential_histogram_data_point::Buckets, metric::Data,
            number_data_point::Value,
        },
    },
    settings::HistogramFormat,
};

/// The period of cumulative points, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) struct PointPeriod {
    start: u64,
    end: u64,
}

impl PointPeriod {
    pub(crate) fn new(start: SystemTime, end: SystemTime) -> Self {
        let nanos = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        };
        // The clock may have been set back.
        Self { start: nanos(start).min(nanos(end)), end: nanos(end) }
    }
}

/// Converts metrics into groups of at most `points_max` points. A metric with more points is in several groups.
pub(crate) fn metric_groups(
    families: &[MetricFamily],
    period: PointPeriod,
    format: HistogramFormat,
    points_max: usize,
) -> Vec<Vec<Metric>> {
    let mut groups = Vec::new();
    let (mut group, mut room) = (Vec::new(), points_max);
    for family in families {
        let mut rest = &family.points[..];
        while !rest.is_empty() {
            let (points, more) = rest.split_at(room.min(rest.len()));
            rest = more;
            room -= points.len();
            group.push(to_metric(family, points, period, format));
            if room == 0 {
                groups.push(std::mem::take(&mut group));
                room = points_max;
            }
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

fn to_metric(family: &MetricFamily, points: &[MetricPoint], period: PointPeriod, format: HistogramFormat) -> Metric {
    let data = match (family.kind, format) {
        (MetricKind::Counter, _) => Data::Sum(Sum {
            data_points: points.iter().map(|point| to_number(point, period.start, period)).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        (MetricKind::Gauge, _) => {
            Data::Gauge(Gauge { data_points: points.iter().map(|point| to_number(point, 0, period)).collect() })
        }
        (MetricKind::Histogram, HistogramFormat::Exponential) if has_durations(points) => {
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: points.iter().map(|point| to_exponential(point, period)).collect(),
                aggregation_temporality: CUMULATIVE,
            })
        }
        (MetricKind::Histogram, _) => Data::Histogram(Histogram {
            data_points: points.iter().map(|point| to_explicit(point, period)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.description.to_owned(),
        unit: family.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn has_durations(points: &[MetricPoint]) -> bool {
    points.iter().all(|point| matches!(point.value, MetricValue::Durations(_)))
}

fn attributes(point: &MetricPoint) -> Vec<KeyValue> {
    point.attributes.iter().map(|(key, value)| text(key, value.as_str())).collect()
}

fn to_number(point: &MetricPoint, start: u64, period: PointPeriod) -> NumberDataPoint {
    let value = match &point.value {
        MetricValue::Integer(value) => Value::AsInt(i64::try_from(*value).unwrap_or(i64::MAX)),
        MetricValue::Float(value) => Value::AsDouble(*value),
        MetricValue::Durations(durations) => Value::AsDouble(durations.sum.as_secs_f64()),
        MetricValue::Sizes { sum, .. } => Value::AsInt(i64::try_from(*sum).unwrap_or(i64::MAX)),
    };
    NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: start,
        time_unix_nano: period.end,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

/// Converts a point of a histogram. Sizes have no buckets, only a count and a sum.
fn to_explicit(point: &MetricPoint, period: PointPeriod) -> HistogramDataPoint {
    let (count, sum, buckets) = match &point.value {
        MetricValue::Durations(durations) => (durations.count(), durations.sum.as_secs_f64(), Some(durations)),
        MetricValue::Sizes { count, sum } => (*count, *sum as f64, None),
        MetricValue::Integer(value) => (1, *value as f64, None),
        MetricValue::Float(value) => (1, *value, None),
    };
    let (explicit_bounds, bucket_counts) = buckets.map(|durations| explicit_buckets(durations)).unwrap_or_default();
    HistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: period.start,
        time_unix_nano: period.end,
        count,
        sum: Some(sum),
        explicit_bounds,
        bucket_counts,
        ..HistogramDataPoint::default()
    }
}

/// Returns the bounds in seconds, and the counts below each bound and above the last one. The upper bound of a bucket
/// belongs to it, as in the counters.
fn explicit_buckets(durations: &DurationHistogram) -> (Vec<f64>, Vec<u64>) {
    let (mut bounds, mut counts, mut count) = (Vec::new(), Vec::new(), 0);
    for (bucket, added) in durations.counts.iter().enumerate() {
        count += added;
        if bucket % BUCKETS_PER_BOUND == 0 && (FIRST_BOUND..=LAST_BOUND).contains(&bucket) {
            bounds.push(bucket_bound(bucket));
            counts.push(std::mem::take(&mut count));
        }
    }
    counts.push(count);
    (bounds, counts)
}

fn to_exponential(point: &MetricPoint, period: PointPeriod) -> ExponentialHistogramDataPoint {
    let MetricValue::Durations(durations) = &point.value else { unreachable!("the caller has checked the points") };
    ExponentialHistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: period.start,
        time_unix_nano: period.end,
        count: durations.count(),
        sum: Some(durations.sum.as_secs_f64()),
        scale: i32::from(DurationHistogram::SCALE),
        zero_count: durations.counts[0],
        // The first bucket has no lower bound, so all of it counts as zero.
        zero_threshold: bucket_bound(0),
        positive: Some(exponential_buckets(durations)),
        ..ExponentialHistogramDataPoint::default()
    }
}

/// Divides the counts of buckets in nanoseconds among buckets in seconds.
fn exponential_buckets(durations: &DurationHistogram) -> Buckets {
    let counts = &durations.counts[1..];
    let mut divided = vec![0; counts.len() + 1];
    for (index, count) in counts.iter().enumerate() {
        // Both parts only grow with the count, as counters must.
        let upper = u64::try_from(u128::from(*count) * UPPER_SHARE / WHOLE).unwrap_or(u64::MAX);
        divided[index] += count - upper;
        divided[index + 1] += upper;
    }
    let Some(first) = divided.iter().position(|count| *count > 0) else { return Buckets::default() };
    let last = divided.iter().rposition(|count| *count > 0).unwrap_or(first);
    let offset = SECONDS_OFFSET + i32::try_from(first).unwrap_or(i32::MAX);
    Buckets { offset, bucket_counts: divided[first..=last].to_vec() }
}

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;
/// One bound per power of two, as in the text for Prometheus: fewer series for the same alerts.
const BUCKETS_PER_BOUND: usize = 4;
/// 1.024 µs.
const FIRST_BOUND: usize = 2 * BUCKETS_PER_BOUND;
/// 69 s.
const LAST_BOUND: usize = 28 * BUCKETS_PER_BOUND;
/// The index of the lower bucket in seconds for the second bucket in nanoseconds. A second has 2^29.897 nanoseconds, so
/// indices in seconds are lower by 119.589.
const SECONDS_OFFSET: i32 = DurationHistogram::OFFSET - 120;
/// The share of a bucket in nanoseconds within the upper of its two buckets in seconds, in 10 000ths.
const UPPER_SHARE: u128 = 4106;
const WHOLE: u128 = 10_000;

#[cfg(test)]
mod tests {
    use frpc::metrics::{TextFormat, write_text};
    use proptest::prelude::*;

    use super::*;

    const PERIOD: PointPeriod = PointPeriod { start: 1, end: 2 };

    fn histogram(counts: &[(usize, u64)]) -> DurationHistogram {
        let mut histogram = DurationHistogram::default();
        for (bucket, count) in counts {
            histogram.counts[bucket % histogram.counts.len()] += count;
        }
        histogram
    }

    fn durations(value: DurationHistogram) -> MetricFamily {
        let mut family = MetricFamily::histogram("rpc.server.call.duration", "s", "Time.");
        family.add(&[("rpc.method", "a.A/Say")], value);
        family
    }

    fn convert(family: &MetricFamily, format: HistogramFormat) -> Metric {
        let mut groups = metric_groups(std::slice::from_ref(family), PERIOD, format, 10);
        assert_eq!((groups.len(), groups[0].len()), (1, 1));
        groups.remove(0).remove(0)
    }

    /// Returns the bounds of a bucket at scale 2, in seconds. The lower one does not belong to it.
    fn bounds(index: i32) -> (f64, f64) {
        let bound = |index: i32| (f64::from(index) / 4.0).exp2();
        (bound(index), bound(index + 1))
    }

    #[test]
    fn counters_are_cumulative_sums_since_the_start() {
        let mut family = MetricFamily::counter("frpc.server.request.messages", "{message}", "Request messages.");
        family.add(&[("rpc.method", "a.A/Say")], 7);
        family.add(&[], 0.5);
        let Metric { name, unit, data, .. } = convert(&family, HistogramFormat::Explicit);
        assert_eq!((&*name, &*unit), ("frpc.server.request.messages", "{message}"));
        let Some(Data::Sum(sum)) = data else { panic!("{data:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let [first, second] = &sum.data_points[..] else { panic!("{sum:?}") };
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1, 2));
        assert_eq!(first.attributes, [text("rpc.method", "a.A/Say")]);
        assert_eq!((first.value, second.value), (Some(Value::AsInt(7)), Some(Value::AsDouble(0.5))));
    }

    #[test]
    fn gauges_have_no_start() {
        let mut family = MetricFamily::gauge("frpc.server.calls_in_flight", "{call}", "Calls in flight.");
        family.add(&[], u64::MAX);
        let data = convert(&family, HistogramFormat::Explicit).data;
        let Some(Data::Gauge(gauge)) = data else { panic!("{data:?}") };
        assert_eq!(gauge.data_points[0].start_time_unix_nano, 0);
        assert_eq!(gauge.data_points[0].value, Some(Value::AsInt(i64::MAX)));
    }

    #[test]
    fn sizes_have_a_count_and_a_sum_without_buckets() {
        let mut family = MetricFamily::histogram("grpc.server.call.sent", "By", "Bytes.");
        family.add(&[], MetricValue::Sizes { count: 3, sum: 100 });
        for format in [HistogramFormat::Explicit, HistogramFormat::Exponential] {
            let data = convert(&family, format).data;
            let Some(Data::Histogram(histogram)) = data else { panic!("{data:?}") };
            let point = &histogram.data_points[0];
            assert_eq!((point.count, point.sum), (3, Some(100.0)));
            assert!(point.bucket_counts.is_empty() && point.explicit_bounds.is_empty());
        }
    }

    #[test]
    fn explicit_bounds_are_those_of_the_prometheus_text() {
        let family = durations(histogram(&[(0, 1), (8, 2), (9, 4), (112, 8), (113, 16), (137, 32)]));
        let text = write_text(std::slice::from_ref(&family), TextFormat::Prometheus);
        let buckets = text.lines().filter(|line| line.contains("_bucket{"));
        let expected: Vec<(f64, u64)> = buckets
            .map(|line| {
                let (_, rest) = line.split_once("le=\"").unwrap();
                let (bound, count) = rest.split_once("\"} ").unwrap();
                (if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, count.parse().unwrap())
            })
            .collect();
        let data = convert(&family, HistogramFormat::Explicit).data;
        let Some(Data::Histogram(found)) = data else { panic!("{data:?}") };
        let point = &found.data_points[0];
        let mut below = 0;
        let bounds = point.explicit_bounds.iter().copied().chain([f64::INFINITY]);
        let found: Vec<(f64, u64)> = bounds
            .zip(&point.bucket_counts)
            .map(|(bound, count)| {
                below += count;
                (bound, below)
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(point.count, 63);
    }

    #[test]
    fn offset_and_scale_match_the_counters_in_nanoseconds() {
        // At scale 2, the bucket with index i holds values in (2^(i/4), 2^((i+1)/4)].
        for bucket in 1..durations_len() - 1 {
            let index = DurationHistogram::OFFSET + i32::try_from(bucket).unwrap() - 1;
            let (lower, upper) = bounds(index);
            assert!((bucket_bound(bucket - 1) * 1e9 / lower - 1.0).abs() < 1e-12, "{bucket}");
            assert!((bucket_bound(bucket) * 1e9 / upper - 1.0).abs() < 1e-12, "{bucket}");
        }
    }

    fn durations_len() -> usize {
        DurationHistogram::default().counts.len()
    }

    #[test]
    fn a_bucket_is_divided_between_the_two_buckets_that_it_overlaps() {
        for bucket in 1..durations_len() - 1 {
            let buckets = exponential_buckets(&histogram(&[(bucket, 10_000)]));
            assert_eq!(buckets.bucket_counts, [5_894, 4_106], "{bucket}");
            let (lower, middle) = bounds(buckets.offset);
            let (_, upper) = bounds(buckets.offset + 1);
            let (begin, end) = (bucket_bound(bucket - 1), bucket_bound(bucket));
            assert!(lower < begin && begin < middle && middle < end && end < upper, "{bucket}");
            // The counts are proportional to the overlap on a logarithmic scale.
            let share = (middle / begin).log2() * 4.0;
            assert!((share - 0.5894).abs() < 1e-4, "{bucket}: {share}");
        }
        assert_eq!(exponential_buckets(&histogram(&[(0, 5)])), Buckets::default());
    }

    #[test]
    fn exponential_points_count_short_durations_as_zero() {
        let data = convert(&durations(histogram(&[(0, 5), (1, 1)])), HistogramFormat::Exponential).data;
        let Some(Data::ExponentialHistogram(found)) = data else { panic!("{data:?}") };
        let point = &found.data_points[0];
        assert_eq!((point.count, point.zero_count, point.scale, point.zero_threshold), (6, 5, 2, 256e-9));
        assert_eq!(point.positive, Some(Buckets { offset: -88, bucket_counts: vec![1] }));
        assert_eq!(found.aggregation_temporality, CUMULATIVE);
    }

    #[test]
    fn groups_are_bounded_and_lose_no_points() {
        let mut one = MetricFamily::counter("one", "1", "");
        let mut two = MetricFamily::counter("two", "1", "");
        for number in 0..5 {
            one.add(&[], number);
            two.add(&[], number + 5);
        }
        let empty = MetricFamily::counter("empty", "1", "");
        let groups = metric_groups(&[empty, one, two], PERIOD, HistogramFormat::Explicit, 3);
        let numbers: Vec<Vec<Option<Value>>> = groups
            .iter()
            .map(|group| {
                let sums = group.iter().map(|metric| match &metric.data {
                    Some(Data::Sum(sum)) => sum,
                    other => panic!("{other:?}"),
                });
                sums.flat_map(|sum| sum.data_points.iter().map(|point| point.value)).collect()
            })
            .collect();
        assert_eq!(numbers.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(numbers.concat(), (0..10).map(|number| Some(Value::AsInt(number))).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn exponential_counts_add_up_and_only_grow(
            before in proptest::collection::vec((0_usize..138, 0_u64..1 << 40), 0..20),
            more in proptest::collection::vec((0_usize..138, 0_u64..1 << 40), 0..20),
        ) {
            let (earlier, mut later) = (histogram(&before), histogram(&before));
            later.add(&histogram(&more));
            let at = |buckets: &Buckets, index: i32| {
                let at = usize::try_from(index - buckets.offset).ok();
                at.and_then(|at| buckets.bucket_counts.get(at)).copied().unwrap_or(0)
            };
            let (first, second) = (exponential_buckets(&earlier), exponential_buckets(&later));
            prop_assert_eq!(second.bucket_counts.iter().sum::<u64>() + later.counts[0], later.count());
            for index in -100..100 {
                prop_assert!(at(&first, index) <= at(&second, index));
            }
        }
    }
}
