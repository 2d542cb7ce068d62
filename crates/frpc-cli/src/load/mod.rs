//! Load: many calls, and how long each of them took.

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

use self::record::{Record, Recorder};
use crate::{
    failure::{Failure, Result},
    invocation::Invocation,
};

/// The shape of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Calls under way on each connection.
    pub(crate) calls: usize,
    /// Calls to make in all, if not as many as the time allows.
    pub(crate) total: Option<u64>,
    pub(crate) time: Duration,
    /// Calls a second to begin, whether or not those before are answered in time.
    pub(crate) rate: Option<f64>,
}

/// Calls that go to one address.
pub(crate) struct Load {
    pub(crate) invocations: Vec<Invocation>,
    pub(crate) messages: Vec<Bytes>,
}

/// A load that is under way.
pub(crate) struct Running {
    pub(crate) start: Instant,
    recorders: Vec<Recorder>,
    workers: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts all callers.
    pub(crate) fn start(&self, plan: Plan) -> Running {
        let start = Instant::now();
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut running = Running { start, recorders: Vec::new(), workers: JoinSet::new(), stop: stop.clone() };
        for invocation in &self.invocations {
            for _ in 0..plan.calls {
                let recorder = Recorder::default();
                running.recorders.push(recorder.clone());
                let worker = Worker {
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

    /// Makes one call, so that a mistake is said once and not a thousand times.
    pub(crate) async fn try_once(&self) -> Result<()> {
        let Some(invocation) = self.invocations.first() else { return Ok(()) };
        match call(invocation, &self.messages).await {
            Ok(_) => Ok(()),
            Err(status) => Err(invocation.failure(status)),
        }
    }
}

impl Running {
    /// Returns everything so far.
    pub(crate) fn record(&self) -> Record {
        self.recorders.iter().fold(Record::default(), |mut all, recorder| {
            recorder.add_to(&mut all);
            all
        })
    }

    pub(crate) fn is_over(&mut self) -> bool {
        while self.workers.try_join_next().is_some() {}
        self.workers.is_empty()
    }

    /// Stops after some time.
    pub(crate) async fn stop_after(self, time: Duration) -> Result<Record> {
        sleep_until(self.start + time).await;
        self.stop().await
    }

    /// Lets callers finish what they have begun, for a while, and returns everything.
    pub(crate) async fn stop(mut self) -> Result<Record> {
        self.stop.store(true, Ordering::Relaxed);
        let all = async { while self.workers.join_next().await.is_some() {} };
        let is_late = tokio::time::timeout(GRACE, all).await.is_err();
        let record = self.record();
        if is_late && record.calls() == 0 {
            return Err(Failure::new("no call was answered").with_try("a --timeout, to see why"));
        }
        Ok(record)
    }
}

/// The time for calls to end after the load did.
const GRACE: Duration = Duration::from_secs(5);

struct Worker {
    invocation: Invocation,
    messages: Vec<Bytes>,
    begun: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    plan: Plan,
    start: Instant,
}

impl Worker {
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
            // Of a call that began late, the wait counts as well: somebody would have waited.
            let began = if self.plan.rate.is_some() { due } else { now };
            recorder.add(began.elapsed(), outcome.map_err(|status| status.code()));
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.plan.total.is_none() && self.start.elapsed() >= self.plan.time
    }

    /// Returns when the next call is due, if there is to be one.
    fn next(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let number = match (self.plan.total, self.plan.rate) {
            // A count that all workers share is written only where somebody has to count.
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

/// Makes a call, and returns the number of messages that answered it and their bytes.
async fn call(invocation: &Invocation, messages: &[Bytes]) -> std::result::Result<(u64, u64), Status> {
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
