//! A collector for tests.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use frpc::{Request, Response, Status};
use frpc_opentelemetry::protos::opentelemetry::proto::{
    collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::MetricsService,
    },
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, ResourceMetrics, metric::Data},
};
use support::Gate;

/// Keeps everything it receives.
#[derive(Clone, Default)]
pub(crate) struct FakeCollector {
    requests: Arc<Mutex<Vec<Request<ExportMetricsServiceRequest>>>>,
    answers: Arc<Mutex<VecDeque<FakeAnswer>>>,
}

/// An answer to one request. By default, a request is accepted.
pub(crate) enum FakeAnswer {
    Status(Status),
    Rejected(i64),
    Gate(Gate),
}

impl FakeCollector {
    /// Sets the answer to the next request without one.
    pub(crate) fn answer(&self, answer: FakeAnswer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Returns the received requests.
    pub(crate) fn take(&self) -> Vec<Request<ExportMetricsServiceRequest>> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub(crate) fn received(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Returns the number of collectors and services with the same memory.
    pub(crate) fn users(&self) -> usize {
        Arc::strong_count(&self.requests)
    }
}

impl MetricsService for FakeCollector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.requests.lock().unwrap().push(request);
        let answer = self.answers.lock().unwrap().pop_front();
        let mut response = ExportMetricsServiceResponse::default();
        match answer {
            None => {}
            Some(FakeAnswer::Status(status)) => return Err(status),
            Some(FakeAnswer::Gate(gate)) => gate.passed().await,
            Some(FakeAnswer::Rejected(rejected_data_points)) => {
                let error_message = "too old\u{7}".to_owned();
                response.partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points, error_message });
            }
        }
        Ok(response.into())
    }
}

/// Returns all metrics of a request with their resource.
pub(crate) fn only_resource(request: &ExportMetricsServiceRequest) -> (&ResourceMetrics, Vec<&Metric>) {
    let [resource] = &request.resource_metrics[..] else { panic!("{request:?}") };
    (resource, resource.scope_metrics.iter().flat_map(|scope| &scope.metrics).collect())
}

/// Returns the text of an attribute.
pub(crate) fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        other => panic!("{key}: {other:?}"),
    }
}

/// Returns the count and sum of a histogram at all points of a method: other tests call other servers at the same time.
pub(crate) fn calls_of(metrics: &[&Metric], name: &str, method: &str) -> Option<(u64, f64)> {
    let metric = metrics.iter().find(|metric| metric.name == name)?;
    let is_wanted = |attributes: &[KeyValue]| text_of(attributes, "rpc.method") == Some(method);
    let of_points: Vec<(u64, f64)> = match metric.data.as_ref()? {
        Data::Histogram(histogram) => {
            let points = histogram.data_points.iter().filter(|point| is_wanted(&point.attributes));
            points
                .map(|point| {
                    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                    (point.count, point.sum.unwrap())
                })
                .collect()
        }
        Data::ExponentialHistogram(histogram) => {
            let points = histogram.data_points.iter().filter(|point| is_wanted(&point.attributes));
            points
                .map(|point| {
                    let counts = point.positive.iter().flat_map(|buckets| &buckets.bucket_counts);
                    assert_eq!(counts.sum::<u64>() + point.zero_count, point.count);
                    (point.count, point.sum.unwrap())
                })
                .collect()
        }
        other => panic!("{name}: {other:?}"),
    };
    of_points.into_iter().reduce(|(count, sum), (more, longer)| (count + more, sum + longer))
}
