//! The exporter of metrics.

use std::{sync::Arc, time::Duration};

use frpc::{Channel, Metadata, Request, frisbee::clock::TIME_MAX, metrics::MetricsSnapshot, shown};
use tokio::{
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, Interval, MissedTickBehavior, interval_at, timeout},
};
use tracing::{debug, warn};

use crate::{
    collector,
    error::{ExportError, OtlpError},
    points::{PointPeriod, metric_groups},
    process::{resource, started_at},
    protos::opentelemetry::proto::{
        collector::metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
        common::v1::InstrumentationScope,
        metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
        resource::v1::Resource,
    },
    settings::{HistogramFormat, OtlpSettings},
};

/// Sends the counters of all servers and channels of this process to an OpenTelemetry collector, over gRPC.
///
/// Each export sends a new [`MetricsSnapshot`] with all counters since the start of the process (cumulative temporality).
/// So a failed export loses nothing, and no queue grows while the collector is unreachable: the next export replaces it.
/// A failure is logged with `tracing`.
///
/// Dropping the exporter ends it without a last export; see [`shutdown`](Self::shutdown).
///
/// ```no_run
/// use std::time::Duration;
///
/// use frpc_opentelemetry::{OtlpMetrics, OtlpSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let metrics = OtlpMetrics::start(OtlpSettings {
///     endpoint: "grpc://collector:4317".to_owned(),
///     interval: Duration::from_secs(15),
///     resource: vec![("service.name".to_owned(), "orders".to_owned())],
///     ..OtlpSettings::default()
/// })?;
/// // Serve and call.
/// metrics.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OtlpMetrics {
    exporter: Arc<MetricsExporter>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct MetricsExporter {
    client: MetricsServiceClient,
    timeout: Duration,
    headers: Metadata,
    resource: Resource,
    histograms: HistogramFormat,
    /// Held during an export: an older snapshot must not arrive after a newer one.
    turn: Mutex<()>,
}

impl OtlpMetrics {
    /// Starts exports to the [endpoint](OtlpSettings::endpoint), as a task on the current tokio runtime. Connects in the
    /// background, so an unreachable collector is no error.
    ///
    /// # Errors
    ///
    /// A setting is invalid.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start(settings: OtlpSettings) -> Result<Self, OtlpError> {
        Self::over(collector::connect(&settings)?, settings)
    }

    /// Starts exports over a channel, for example one with other certificates. Ignores the endpoint.
    ///
    /// # Errors
    ///
    /// The interval or the timeout is zero.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn over(channel: Channel, settings: OtlpSettings) -> Result<Self, OtlpError> {
        collector::check(&settings)?;
        let exporter = Arc::new(MetricsExporter {
            client: MetricsServiceClient::new(channel),
            timeout: settings.timeout,
            headers: settings.headers,
            resource: resource(&settings.resource),
            histograms: settings.histograms,
            turn: Mutex::new(()),
        });
        let interval = settings.interval.min(TIME_MAX);
        let ticks = interval_at(Instant::now() + interval, interval);
        let task = tokio::spawn(export_regularly(exporter.clone(), ticks));
        Ok(Self { exporter, task })
    }

    /// Exports the current counters, after an export in progress.
    ///
    /// # Errors
    ///
    /// The export failed, or took longer than the [timeout](OtlpSettings::timeout).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the export.
    pub async fn flush(&self) -> Result<(), ExportError> {
        self.exporter.export().await
    }

    /// Ends the regular exports and exports the current counters a last time.
    ///
    /// # Errors
    ///
    /// As for [`flush`](Self::flush).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all exports.
    pub async fn shutdown(self) -> Result<(), ExportError> {
        self.task.abort();
        self.exporter.export().await
    }
}

impl Drop for OtlpMetrics {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn export_regularly(exporter: Arc<MetricsExporter>, mut ticks: Interval) {
    // Exports that took too long are not made up for: each contains all counters.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match exporter.export().await {
            Ok(()) => debug!("metrics exported"),
            Err(error) => warn!(%error, "metrics not exported"),
        }
    }
}

impl MetricsExporter {
    /// Sends a new snapshot, within the timeout.
    async fn export(&self) -> Result<(), ExportError> {
        let export = async {
            let _turn = self.turn.lock().await;
            let families = MetricsSnapshot::take().families();
            let period = PointPeriod::new(started_at(), std::time::SystemTime::now());
            let mut outcome = Ok(());
            for metrics in metric_groups(&families, period, self.histograms, POINTS_MAX) {
                let sent = self.send(metrics).await;
                // One rejected group says nothing about the others.
                if !matches!(sent, Err(ExportError::Rejected { .. })) {
                    sent?;
                } else if outcome.is_ok() {
                    outcome = sent;
                }
            }
            outcome
        };
        timeout(self.timeout, export).await.unwrap_or(Err(ExportError::Timeout))
    }

    async fn send(&self, metrics: Vec<Metric>) -> Result<(), ExportError> {
        let scope = InstrumentationScope {
            name: "frpc".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        let mut request = Request::new(ExportMetricsServiceRequest { resource_metrics });
        *request.metadata_mut() = self.headers.clone();
        let response = self.client.export(request).await?.into_inner();
        match response.partial_success {
            Some(partial) if partial.rejected_data_points > 0 => {
                Err(ExportError::Rejected { count: partial.rejected_data_points, message: partial.error_message })
            }
            Some(partial) if !partial.error_message.is_empty() => {
                warn!(message = shown(partial.error_message), "the collector accepted all metrics with a warning");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The maximum number of points in one request. Explicit histograms take about 600 bytes, and collectors accept 4 MiB.
const POINTS_MAX: usize = 2_000;
