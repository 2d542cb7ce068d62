//! Metrics of other parts of the process, exported next to the metrics of calls.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::family::{MetricFamily, MetricPoint, MetricValue};

type MetricSource = Box<dyn Fn() -> Option<Vec<MetricFamily>> + Send>;

static SOURCES: Mutex<Vec<MetricSource>> = Mutex::new(Vec::new());

fn sources() -> MutexGuard<'static, Vec<MetricSource>> {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a source of metrics to the exports of this process. A source is removed once it returns `None`.
///
/// Each export calls the source, which must not add another one. A source that panics is removed. Its attributes must have few values: each value is a time
/// series.
///
/// ```
/// use frpc_metrics::{MetricFamily, add_source, source_families};
///
/// add_source(|| {
///     let mut jobs = MetricFamily::gauge("shop.jobs", "{job}", "Waiting jobs.");
///     jobs.add(&[], 3);
///     Some(vec![jobs])
/// });
/// assert_eq!(source_families()[0].name, "shop.jobs");
/// ```
pub fn add_source(source: impl Fn() -> Option<Vec<MetricFamily>> + Send + 'static) {
    sources().push(Box::new(source));
}

/// Returns the metrics of all sources. Integers with the same name and attributes are added up.
pub fn source_families() -> Vec<MetricFamily> {
    let mut all: Vec<MetricFamily> = Vec::new();
    sources().retain(|source| {
        // The metrics of the others are still exported.
        let families = catch_unwind(AssertUnwindSafe(source)).unwrap_or_default();
        let is_used = families.is_some();
        for family in families.into_iter().flatten() {
            match all.iter_mut().find(|found| found.name == family.name) {
                Some(found) => family.points.into_iter().for_each(|point| add_point(&mut found.points, point)),
                None => all.push(family),
            }
        }
        is_used
    });
    all
}

fn add_point(points: &mut Vec<MetricPoint>, point: MetricPoint) {
    match (points.iter_mut().find(|found| found.attributes == point.attributes), &point.value) {
        (Some(MetricPoint { value: MetricValue::Integer(sum), .. }), MetricValue::Integer(value)) => *sum += value,
        // Two points with the same attributes are invalid in every format.
        (Some(_), _) => {}
        (None, _) => points.push(point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_panics_is_removed_and_the_others_stay() {
        let jobs = |name| {
            let mut jobs = MetricFamily::gauge(name, "{job}", "Waiting jobs.");
            jobs.add(&[], 3);
            jobs
        };
        add_source(|| panic!("the source is broken"));
        add_source(move || Some(vec![jobs("test.jobs"), jobs("test.jobs")]));
        let len = sources().len();
        let found = source_families();
        let family = found.iter().find(|family| family.name == "test.jobs").unwrap();
        assert_eq!(family.points[0].value, MetricValue::Integer(6));
        assert_eq!(sources().len(), len - 1);
    }
}
