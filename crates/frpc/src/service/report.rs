//! Reports of the load of a server to its clients.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::layer::{Layer, Next};
use crate::call::{
    exchange::{Answer, Body, Call},
    load_report::LoadReport,
    metadata::Metadata,
    status::Status,
    streaming::{MetadataSlot, Streaming},
};

/// Reports the load of the server in the trailers of its answers: utilization, rates of calls and failures, and calls in
/// flight.
///
/// Channels to several servers prefer servers with fewer calls in flight, counted with those of other clients. With
/// [`PickPolicy::Reported`](crate::fleet::PickPolicy::Reported), calls are spread by the capacity of the servers. The format
/// is that of ORCA (`OrcaLoadReport`, gRFC A51), so `weighted_round_robin` of other gRPC clients works as well.
///
/// The utilization is the share of all processors used by this process, on Unix. [`utilization`](Self::utilization) replaces
/// it with a measurement of your own.
///
/// ```
/// use frpc::{Server, layers::ReportLoad};
///
/// let server = Server::builder().layer(ReportLoad::new());
/// # let _ = server;
/// ```
///
/// Frisbee carries trailers in an envelope, and Twirp and JSON-RPC carry none.
#[derive(Clone)]
pub struct ReportLoad {
    meter: Arc<LoadMeter>,
    utilization: Option<Arc<dyn Fn() -> f64 + Send + Sync>>,
}

/// The counts of the calls of a server.
struct LoadMeter {
    in_flight: AtomicU32,
    ended: AtomicU64,
    failed: AtomicU64,
    latest: Mutex<LatestReport>,
}

struct LatestReport {
    /// The start of the current measurement.
    since: LoadSample,
    /// The rates of the last complete measurement.
    rates: LoadReport,
    encoded: Bytes,
    encoded_at: Option<Instant>,
}

#[derive(Clone, Copy)]
struct LoadSample {
    at: Instant,
    processor_time: Duration,
    ended: u64,
    failed: u64,
}

impl Default for ReportLoad {
    fn default() -> Self {
        Self::new()
    }
}

impl ReportLoad {
    /// Creates the layer. Everything that uses a clone of it is measured together.
    pub fn new() -> Self {
        let since = LoadSample { at: Instant::now(), processor_time: processor_time(), ended: 0, failed: 0 };
        let latest = LatestReport { since, rates: LoadReport::default(), encoded: Bytes::new(), encoded_at: None };
        let meter = LoadMeter {
            in_flight: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latest: Mutex::new(latest),
        };
        Self { meter: Arc::new(meter), utilization: None }
    }

    /// Sets the utilization of the server: 1 if it is fully utilized, more if it is overloaded.
    pub fn utilization(self, utilization: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self { utilization: Some(Arc::new(utilization)), ..self }
    }

    /// Returns the current report.
    fn report(&self) -> Bytes {
        let (now, meter) = (Instant::now(), &*self.meter);
        // No code under the lock leaves a part of the report.
        let mut latest = meter.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.encoded_at.is_some_and(|at| now.saturating_duration_since(at) < REPORT_PERIOD) {
            return latest.encoded.clone();
        }
        if now.saturating_duration_since(latest.since.at) >= MEASUREMENT {
            let sample = LoadSample {
                at: now,
                processor_time: processor_time(),
                ended: meter.ended.load(Ordering::Relaxed),
                failed: meter.failed.load(Ordering::Relaxed),
            };
            latest.rates = sample.rates_since(&latest.since);
            latest.since = sample;
        }
        let mut report = latest.rates.clone().with_in_flight(meter.in_flight.load(Ordering::Relaxed));
        report.application_utilization = self.utilization.as_ref().map_or(0.0, |utilization| utilization());
        (latest.encoded, latest.encoded_at) = (report.encode_to_vec().into(), Some(now));
        latest.encoded.clone()
    }

    /// Returns a stream of answers with the report after its end.
    fn at_end(&self, messages: Streaming<Bytes>) -> Streaming<Bytes> {
        let (layer, own, slot) = (self.clone(), messages.trailers_slot(), MetadataSlot::new());
        let trailers = slot.clone();
        let end = move |outcome: Result<(), &Status>| {
            if outcome.is_ok() {
                let mut own: Metadata = own.and_then(|own| own.get().cloned()).unwrap_or_default();
                LoadReport::put(&layer.report(), &mut own);
                trailers.set(own);
            }
        };
        messages.on_end(end).with_trailers_from(slot)
    }
}

impl LoadSample {
    fn rates_since(&self, before: &Self) -> LoadReport {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let processor_time = self.processor_time.saturating_sub(before.processor_time).as_secs_f64();
        LoadReport {
            cpu_utilization: processor_time / (seconds * processors as f64),
            calls_per_second: (self.ended - before.ended) as f64 / seconds,
            failures_per_second: (self.failed - before.failed) as f64 / seconds,
            ..LoadReport::default()
        }
    }
}

/// A call in flight. It ends when dropped.
struct CountedCall<'a>(&'a AtomicU32);

impl<'a> CountedCall<'a> {
    fn begin(in_flight: &'a AtomicU32) -> Self {
        in_flight.fetch_add(1, Ordering::Relaxed);
        Self(in_flight)
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Layer for ReportLoad {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let counted = CountedCall::begin(&self.meter.in_flight);
        let outcome = next.run(call).await;
        drop(counted);
        self.meter.ended.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(answer) if matches!(answer.body(), Body::Many(_)) => Ok(answer.map_body(|body| match body {
                Body::Many(messages) => Body::Many(self.at_end(messages)),
                body => body,
            })),
            Ok(mut answer) => {
                LoadReport::put(&self.report(), answer.trailers_mut());
                Ok(answer)
            }
            Err(mut status) => {
                self.meter.failed.fetch_add(1, Ordering::Relaxed);
                LoadReport::put(&self.report(), status.metadata_mut());
                Err(status)
            }
        }
    }
}

impl fmt::Debug for ReportLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.meter.in_flight.load(Ordering::Relaxed);
        f.debug_struct("ReportLoad").field("in_flight", &in_flight).finish_non_exhaustive()
    }
}

/// Returns the processor time of this process so far. Zero where it is unknown.
fn processor_time() -> Duration {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
    #[cfg(not(unix))]
    Duration::ZERO
}

/// The time between two measurements of rates and utilization.
const MEASUREMENT: Duration = Duration::from_millis(500);
/// The time for which answers carry the same report.
const REPORT_PERIOD: Duration = Duration::from_millis(5);
