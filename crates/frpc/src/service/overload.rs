//! Protection against overload: a limit found from the latency of the server, and a queue ordered by deadline.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use frisbee::{InvalidSetting, clock::Instant};
use frpc_balance::{CallEnd, CallPriority, ConcurrencyLimit, LimitSettings};
use tokio::{sync::oneshot, time::timeout_at};

use super::layer::{Layer, Next};
use crate::call::{
    exchange::{Answer, Call},
    method::{Method, MethodKind},
    status::{Code, Status},
    waits::CallWait,
};

/// Refuses calls while the server is overloaded. It finds the limit on concurrent calls itself, from their latency.
///
/// The limit is the number of calls in progress at full throughput without queueing, and 6 to 30 % more, as in brpc. It
/// suits latencies from microseconds to seconds. A stream of answers takes a place until its handler has returned it, so
/// long streams leave room for calls.
///
/// Above the limit, calls wait in a short queue, the most important first, then the earliest deadline. A call unable to end
/// in time any more, at the recent latency of its method, is refused without being executed: [`Status::not_executed`]. Channels to
/// several servers make it on another one.
///
/// ```
/// use frpc::{Server, layers::{AdaptiveLimit, CallPriority}};
///
/// let limit = AdaptiveLimit::default().priority(|call| match call.method().name {
///     "Health" => CallPriority::High,
///     _ if call.head().metadata().get("batch").is_some() => CallPriority::Low,
///     _ => CallPriority::Normal,
/// });
/// let server = Server::builder().layer(limit);
/// # let _ = server;
/// ```
#[derive(Clone)]
pub struct AdaptiveLimit {
    shared: Arc<SharedLimit>,
    priority: Arc<dyn Fn(&Call) -> CallPriority + Send + Sync>,
}

/// Settings of an [`AdaptiveLimit`].
///
/// Fields may be added, so `..OverloadSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadSettings {
    /// The rules for finding the limit.
    pub limit: LimitSettings,
    /// The maximum number of waiting calls. Further calls replace less important ones, or are refused. Default 100.
    pub queue_max: usize,
    /// The maximum time for which a call waits, at most a day. Default 100 ms.
    pub wait_max: Duration,
}

impl Default for OverloadSettings {
    fn default() -> Self {
        Self { limit: LimitSettings::default(), queue_max: 100, wait_max: Duration::from_millis(100) }
    }
}

struct SharedLimit {
    limit: ConcurrencyLimit,
    settings: OverloadSettings,
    queue: Mutex<WaitQueue>,
    /// The length of the queue.
    waiting: AtomicUsize,
    /// The mean latencies of methods, measured while calls wait.
    latencies: Mutex<HashMap<Method, Duration>>,
}

/// The waiting calls, the next one first.
#[derive(Default)]
struct WaitQueue {
    calls: BTreeMap<QueueKey, oneshot::Sender<CallPlace>>,
    /// The number of calls so far, so that each has its own key.
    queued: u64,
}

/// The order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    priority: Reverse<CallPriority>,
    /// The latest time at which the call may begin.
    latest: Instant,
    number: u64,
}

/// The place of a call in progress. It ends when dropped.
struct CallPlace {
    shared: Arc<SharedLimit>,
    begun: Instant,
    deadline: Option<Instant>,
    method: Option<&'static Method>,
    end: CallEnd,
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        Self::on(OverloadSettings::default())
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, in_progress) = (self.limit(), self.in_progress());
        f.debug_struct("AdaptiveLimit")
            .field("limit", &limit)
            .field("in_progress", &in_progress)
            .finish_non_exhaustive()
    }
}

impl AdaptiveLimit {
    /// Creates the layer. Everything that uses a clone of it shares the limit.
    ///
    /// # Errors
    ///
    /// A setting has an unusable value.
    pub fn new(settings: OverloadSettings) -> Result<Self, InvalidSetting> {
        settings.limit.check().map_err(|error| InvalidSetting::new(error.name(), error.why()))?;
        Ok(Self::on(settings))
    }

    fn on(settings: OverloadSettings) -> Self {
        let shared = SharedLimit {
            limit: ConcurrencyLimit::new(settings.limit, now()),
            settings,
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            latencies: Mutex::default(),
        };
        Self { shared: Arc::new(shared), priority: Arc::new(|_| CallPriority::Normal) }
    }

    /// Sets the priority of calls. Default is [`CallPriority::Normal`] for all.
    pub fn priority(self, priority: impl Fn(&Call) -> CallPriority + Send + Sync + 'static) -> Self {
        Self { priority: Arc::new(priority), ..self }
    }

    /// Returns the current limit.
    pub fn limit(&self) -> u32 {
        self.shared.limit.limit()
    }

    /// Returns the number of calls in progress.
    pub fn in_progress(&self) -> u32 {
        self.shared.limit.in_progress()
    }
}

impl Layer for AdaptiveLimit {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (priority, deadline) = ((self.priority)(&call), call.head().deadline());
        let is_unary = call.kind() == MethodKind::Unary;
        let mut place = self.shared.admit(call.method(), priority, deadline).await?;
        place.method = Some(call.method());
        let outcome = next.run(call).await;
        if is_unary {
            match &outcome {
                Ok(_) => place.end = CallEnd::Served,
                Err(status) if status.code() == Code::DeadlineExceeded => place.end = CallEnd::Expired,
                Err(_) => {}
            }
        }
        outcome
    }
}

impl SharedLimit {
    fn queue(&self) -> MutexGuard<'_, WaitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    async fn admit(
        self: &Arc<Self>,
        method: &'static Method,
        priority: CallPriority,
        deadline: Option<Instant>,
    ) -> Result<CallPlace, Status> {
        let begun = now();
        let refused = || Status::not_executed("the server is overloaded: the call was not executed");
        if deadline.is_some_and(|deadline| deadline <= begun) {
            return Err(refused());
        }
        let is_first = priority == CallPriority::High || self.waiting.load(Ordering::Relaxed) == 0;
        if is_first && self.limit.try_begin(priority) {
            return Ok(self.place(deadline));
        }
        let latency = self.latencies().get(method).copied().unwrap_or_default();
        let in_time = deadline.map(|deadline| deadline.checked_sub(latency).unwrap_or(begun));
        let patient = begun + self.settings.wait_max.min(WAIT_MAX);
        let latest = in_time.map_or(patient, |in_time| in_time.min(patient));
        let waiting = (latest > begun).then(|| self.queue_call(priority, latest)).flatten().ok_or_else(refused)?;
        let wait = CallWait::begin(method);
        // A call that ended before this one was in the queue has not seen it.
        self.admit_waiting();
        let admitted = timeout_at(latest.into(), waiting).await;
        wait.end();
        match admitted {
            Ok(Ok(mut place)) => {
                place.deadline = deadline;
                Ok(place)
            }
            _ => Err(refused()),
        }
    }

    /// Adds a call to the queue, if it has room or holds a less important one.
    fn queue_call(&self, priority: CallPriority, latest: Instant) -> Option<oneshot::Receiver<CallPlace>> {
        let mut queue = self.queue();
        queue.queued += 1;
        let key = QueueKey { priority: Reverse(priority), latest, number: queue.queued };
        if queue.calls.len() >= self.settings.queue_max {
            queue.calls.retain(|_, waiting| !waiting.is_closed());
        }
        if queue.calls.len() >= self.settings.queue_max {
            let last = queue.calls.last_entry().filter(|last| *last.key() > key)?;
            last.remove();
        }
        let (sender, receiver) = oneshot::channel();
        queue.calls.insert(key, sender);
        self.waiting.store(queue.calls.len(), Ordering::Relaxed);
        Some(receiver)
    }

    /// Gives free places to waiting calls.
    fn admit_waiting(self: &Arc<Self>) {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            let (mut queue, now) = (self.queue(), now());
            let next = loop {
                let Some(first) = queue.calls.first_entry() else { break None };
                if first.key().latest <= now || first.get().is_closed() {
                    first.remove();
                } else if self.limit.try_begin(first.key().priority.0) {
                    break Some(first.remove());
                } else {
                    break None;
                }
            };
            self.waiting.store(queue.calls.len(), Ordering::Relaxed);
            // The place of a call that is gone ends when it is dropped, and must find the queue unlocked.
            drop(queue);
            match next {
                Some(next) => drop(next.send(self.place(None))),
                None => return,
            }
        }
    }

    fn place(self: &Arc<Self>, deadline: Option<Instant>) -> CallPlace {
        CallPlace { shared: self.clone(), begun: now(), deadline, method: None, end: CallEnd::Ignored }
    }

    fn latencies(&self) -> MutexGuard<'_, HashMap<Method, Duration>> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the latency of a method, if calls wait.
    fn measure(&self, method: &Method, latency: Duration) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let mut latencies = self.latencies();
            let mean = latencies.entry(*method).or_insert(latency);
            *mean = (*mean * 7 + latency) / 8;
        }
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let now = now();
        if self.end == CallEnd::Ignored && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end = CallEnd::Expired;
        }
        let latency = now.saturating_duration_since(self.begun);
        if let Some(method) = self.method.filter(|_| self.end == CallEnd::Served) {
            self.shared.measure(method, latency);
        }
        self.shared.limit.end(latency, now, self.end);
        self.shared.admit_waiting();
    }
}

/// The longest wait, so that no time overflows.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
