//! A NATS service in the sense of ADR-32: the answers to `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`.
//!
//! The module `service` of async-nats is not used: it panics for requests without a reply subject.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::{Client, Message, Subscriber};
use futures_util::{StreamExt, stream::select_all};
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

/// The description of a service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceDescription {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The counters of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointCounters {
    pub(crate) name: String,
    pub(crate) subject: String,
    pub(crate) queue_group: String,
    pub(crate) metadata: BTreeMap<String, String>,
    requests: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
    last_error: Mutex<String>,
}

impl EndpointCounters {
    pub(crate) fn new(name: String, subject: String, queue_group: String, metadata: BTreeMap<String, String>) -> Self {
        let (requests, errors, nanos) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { name, subject, queue_group, metadata, requests, errors, nanos, last_error: Mutex::default() }
    }

    /// Counts a call that took this time, with its error if it failed.
    pub(crate) fn count(&self, time: Duration, error: Option<String>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(mut error) = error {
            self.errors.fetch_add(1, Ordering::Relaxed);
            error.truncate(error.floor_char_boundary_of(ERROR_LEN_MAX));
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
    }
}

/// `str::floor_char_boundary` needs a newer Rust.
trait CharBoundary {
    fn floor_char_boundary_of(&self, index: usize) -> usize;
}

impl CharBoundary for str {
    fn floor_char_boundary_of(&self, index: usize) -> usize {
        if index >= self.len() {
            return self.len();
        }
        (0..=index).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

#[derive(Serialize)]
struct Response<'a, T: Serialize> {
    name: &'a str,
    id: &'a str,
    version: &'a str,
    metadata: &'a BTreeMap<String, String>,
    r#type: &'static str,
    #[serde(flatten)]
    more: T,
}

#[derive(Serialize)]
struct NoMore {}

#[derive(Serialize)]
struct InfoPart<'a> {
    description: &'a str,
    endpoints: Vec<EndpointInfo<'a>>,
}

#[derive(Serialize)]
struct EndpointInfo<'a> {
    name: &'a str,
    subject: &'a str,
    queue_group: &'a str,
    metadata: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct StatsPart<'a> {
    started: &'a str,
    endpoints: Vec<EndpointStats<'a>>,
}

#[derive(Serialize)]
struct EndpointStats<'a> {
    name: &'a str,
    subject: &'a str,
    queue_group: &'a str,
    num_requests: u64,
    num_errors: u64,
    last_error: String,
    processing_time: u64,
    average_processing_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<StatsData>,
}

#[derive(Serialize)]
struct StatsData {
    load: f64,
}

/// A service that answers questions about itself until it is dropped.
#[derive(Debug)]
pub(crate) struct MicroService {
    _task: AbortOnDropHandle<()>,
}

struct ServiceState {
    client: Client,
    description: ServiceDescription,
    endpoints: Arc<Vec<EndpointCounters>>,
    started: String,
    load: Option<Arc<AtomicU64>>,
}

impl MicroService {
    /// Starts a service. `load` holds the bits of its load, if it announces one.
    pub(crate) async fn start(
        client: Client,
        description: ServiceDescription,
        endpoints: Arc<Vec<EndpointCounters>>,
        load: Option<Arc<AtomicU64>>,
    ) -> io::Result<Self> {
        let mut questions: Vec<Subscriber> = Vec::new();
        for verb in ["PING", "INFO", "STATS"] {
            let ServiceDescription { name, id, .. } = &description;
            for subject in [format!("$SRV.{verb}"), format!("$SRV.{verb}.{name}"), format!("$SRV.{verb}.{name}.{id}")] {
                questions.push(client.subscribe(subject).await.map_err(io::Error::other)?);
            }
        }
        let state = ServiceState { client, description, endpoints, started: now(), load };
        let task = tokio::spawn(async move {
            let mut questions = select_all(questions);
            while let Some(question) = questions.next().await {
                state.answer(question).await;
            }
        });
        Ok(Self { _task: AbortOnDropHandle::new(task) })
    }
}

impl ServiceState {
    async fn answer(&self, question: Message) {
        // Without a reply subject, an answer has no receiver.
        let Some(reply) = question.reply else { return };
        let answer = match question.subject.split('.').nth(1) {
            Some("PING") => self.response("io.nats.micro.v1.ping_response", NoMore {}),
            Some("INFO") => self.response("io.nats.micro.v1.info_response", self.info()),
            _ => self.response("io.nats.micro.v1.stats_response", self.stats()),
        };
        // Without a connection, the answer would be late.
        let _ = self.client.publish(reply, answer.into()).await;
    }

    fn response<T: Serialize>(&self, r#type: &'static str, more: T) -> Vec<u8> {
        let ServiceDescription { name, id, version, metadata, .. } = &self.description;
        // Maps with text as keys always have a JSON form.
        serde_json::to_vec(&Response { name, id, version, metadata, r#type, more }).unwrap_or_default()
    }

    fn info(&self) -> InfoPart<'_> {
        let endpoints =
            self.endpoints.iter().map(|EndpointCounters { name, subject, queue_group, metadata, .. }| EndpointInfo {
                name,
                subject,
                queue_group,
                metadata,
            });
        InfoPart { description: &self.description.description, endpoints: endpoints.collect() }
    }

    fn stats(&self) -> StatsPart<'_> {
        let load = self.load.as_ref().map(|load| f64::from_bits(load.load(Ordering::Relaxed)));
        let endpoints = self.endpoints.iter().map(|endpoint| {
            let requests = endpoint.requests.load(Ordering::Relaxed);
            let nanos = endpoint.nanos.load(Ordering::Relaxed);
            EndpointStats {
                name: &endpoint.name,
                subject: &endpoint.subject,
                queue_group: &endpoint.queue_group,
                num_requests: requests,
                num_errors: endpoint.errors.load(Ordering::Relaxed),
                last_error: endpoint.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                processing_time: nanos,
                average_processing_time: nanos / requests.max(1),
                data: load.map(|load| StatsData { load }),
            }
        });
        StatsPart { started: &self.started, endpoints: endpoints.collect() }
    }
}

/// Returns the current time as RFC 3339.
fn now() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(time.as_secs())
}

/// Formats seconds since 1970 as RFC 3339, in UTC.
fn rfc3339(seconds: u64) -> String {
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    // Years start in March here, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns a random id, as other clients of NATS make them.
pub(crate) fn new_id() -> String {
    (0..22).map(|_| fastrand::alphanumeric()).collect()
}

/// The maximum length of the last error in the counters.
const ERROR_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn the_last_error_is_cut_at_a_character() {
        let counters = EndpointCounters::new(String::new(), String::new(), String::new(), BTreeMap::new());
        counters.count(Duration::from_nanos(5), Some("\u{e9}".repeat(200)));
        counters.count(Duration::from_nanos(7), None);
        assert_eq!(counters.last_error.lock().unwrap().len(), 256);
        assert_eq!((counters.requests.into_inner(), counters.nanos.into_inner()), (2, 12));
    }
}
