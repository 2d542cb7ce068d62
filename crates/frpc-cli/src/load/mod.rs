//! Load tests: many calls and their latencies.

pub(crate) mod display;
pub(crate) mod record;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use frpc::{Body, Status, Streaming};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::record::{LoadResults, Recorder};
use crate::{
    failure::{CommandError, Result},
    invocation::PreparedCall,
};

/// The settings of a load test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlan {
    /// The number of concurrent calls on each connection.
    pub(crate) calls: usize,
    /// The total number of calls, or `None` for as many as possible within `time`.
    pub(crate) total: Option<u64>,
    pub(crate) time: Duration,
    /// The number of calls started per second, even if earlier ones are late.
    pub(crate) rate: Option<f64>,
}

/// The calls to one address.
pub(crate) struct AddressLoad {
    pub(crate) invocations: Vec<PreparedCall>,
    pub(crate) messages: Vec<Bytes>,
}

/// A running load test.
pub(crate) struct RunningLoad {
    pub(crate) start: Instant,
    recorders: Vec<Recorder>,
    workers: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl AddressLoad {
    /// Starts all workers.
    pub(crate) fn start(&self, plan: LoadPlan) -> RunningLoad {
        let start = Instant::now();
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut running = RunningLoad { start, recorders: Vec::new(), workers: JoinSet::new(), stop: stop.clone() };
        for invocation in &self.invocations {
            for _ in 0..plan.calls {
                let recorder = Recorder::default();
                running.recorders.push(recorder.clone());
                let worker = LoadWorker {
                    invocation: invocation.clone(),
                    messages: self.messages.clone(),
                    begun: begun.clone(),
                    stop: stop.clone(),
                    plan,
                    start,
                };
                running.workers.spawn(worker.run(recorder));
            }
        }
        running
    }

    /// Makes a single call, so that a mistake is reported once and not for each call of the load.
    pub(crate) async fn try_once(&self) -> Result<()> {
        let Some(invocation) = self.invocations.first() else { return Ok(()) };
        match call(invocation, &self.messages).await {
            Ok(_) => Ok(()),
            Err(status) => Err(invocation.failure(status)),
        }
    }
}

impl RunningLoad {
    /// Returns the results so far.
    pub(crate) fn record(&self) -> LoadResults {
        self.recorders.iter().fold(LoadResults::default(), |mut all, recorder| {
            recorder.add_to(&mut all);
            all
        })
    }

    pub(crate) fn is_over(&mut self) -> bool {
        while self.workers.try_join_next().is_some() {}
        self.workers.is_empty()
    }

    /// Stops after `time` and returns the results.
    pub(crate) async fn stop_after(self, time: Duration) -> Result<LoadResults> {
        sleep_until(self.start + time).await;
        self.stop().await
    }

    /// Waits up to a limit for calls in flight, then returns the results.
    pub(crate) async fn stop(mut self) -> Result<LoadResults> {
        self.stop.store(true, Ordering::Relaxed);
        let all = async { while self.workers.join_next().await.is_some() {} };
        let is_late = tokio::time::timeout(GRACE, all).await.is_err();
        let record = self.record();
        if is_late && record.calls() == 0 {
            return Err(CommandError::new("no call was answered").with_try("a --timeout, to see why"));
        }
        Ok(record)
    }
}

/// The maximum time for calls in flight to finish.
const GRACE: Duration = Duration::from_secs(5);

struct LoadWorker {
    invocation: PreparedCall,
    messages: Vec<Bytes>,
    begun: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    plan: LoadPlan,
    start: Instant,
}

impl LoadWorker {
    async fn run(self, recorder: Recorder) {
        while let Some(due) = self.next() {
            let now = Instant::now();
            if due > now {
                sleep_until(due).await;
                if self.is_over() {
                    return;
                }
            }
            let outcome = call(&self.invocation, &self.messages).await;
            // At a fixed rate, measure from the due time: the latency then includes delays caused by a slow server.
            let began = if self.plan.rate.is_some() { due } else { now };
            recorder.add(began.elapsed(), outcome.map_err(|status| status.code()));
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.plan.total.is_none() && self.start.elapsed() >= self.plan.time
    }

    /// Returns the due time of the next call, or `None` at the end of the load.
    fn next(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let number = match (self.plan.total, self.plan.rate) {
            // Avoid contention on the shared counter where it is not needed.
            (None, None) => return Some(self.start),
            _ => self.begun.fetch_add(1, Ordering::Relaxed),
        };
        if self.plan.total.is_some_and(|total| number >= total) {
            return None;
        }
        let after = self.plan.rate.map_or(Duration::ZERO, |rate| {
            #[allow(clippy::cast_precision_loss, reason = "that many calls take years")]
            Duration::from_secs_f64(number as f64 / rate)
        });
        Some(self.start + after)
    }
}

/// Makes a call and returns the number of response messages and their total length.
async fn call(invocation: &PreparedCall, messages: &[Bytes]) -> std::result::Result<(u64, u64), Status> {
    let body = match (invocation.method.kind.has_request_stream(), messages) {
        (false, [message, ..]) => Body::from(message.clone()),
        _ => Body::Many(Streaming::from_iter(messages.to_vec())),
    };
    match invocation.channel.call(invocation.call(body)).await?.into_body() {
        Body::One(message) => Ok((1, message.len() as u64)),
        Body::Many(mut answers) => {
            let (mut count, mut len) = (0, 0);
            while let Some(answer) = answers.message().await? {
                count += 1;
                len += answer.len() as u64;
            }
            Ok((count, len))
        }
        _ => Ok((0, 0)),
    }
}
