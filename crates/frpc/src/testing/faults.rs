//! Faults of calls, decided by a seed.

use std::{
    collections::HashMap,
    future::pending,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use tokio::time::sleep;

use crate::{
    call::{
        exchange::{Answer, Body, Call},
        method::Method,
        packed::{BatchSource, PollNext},
        status::{Code, Status},
        streaming::Streaming,
    },
    service::layer::{Layer, Next},
};

/// Injects faults into calls, for a server or a channel: delays, failures, lost calls and cut streams.
///
/// The seed, the method, and the number of the call for this method decide the faults of a call. The same seed thus gives
/// the same faults, regardless of calls of other methods. Delays use the clock of tokio, so virtual time works.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::{Server, testing::{FaultInjector, FaultRates}};
///
/// let faults = FaultInjector::new(7)
///     .rates(FaultRates { failed: 0.1, delayed: 0.5, ..FaultRates::default() })
///     .rates_of("shop.Orders/Watch", FaultRates { cut: 1.0, cut_after: 3..=3, ..FaultRates::default() });
/// let server = Server::builder().layer(faults.clone());
/// # let _ = server;
/// ```
#[derive(Clone, Debug)]
pub struct FaultInjector {
    seed: u64,
    /// Rates by the path of a method or the name of a service.
    special: HashMap<String, FaultRates>,
    state: Arc<FaultState>,
}

/// The shares of calls with a fault, from 0.0 to 1.0. Default: no faults.
///
/// Fields may be added, so `..FaultRates::default()` belongs at the end of a literal.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRates {
    /// The share of calls with a late start.
    pub delayed: f64,
    /// The range of the delay. Default: 10 ms to 1 s.
    pub delay: RangeInclusive<Duration>,
    /// The share of failed calls without an execution.
    pub failed: f64,
    /// The code of these calls and of cut streams. Default: [`Code::Unavailable`].
    pub code: Code,
    /// The share of calls lost before they are executed. The caller waits until its deadline.
    pub lost_requests: f64,
    /// The share of executed calls with a lost answer.
    pub lost_answers: f64,
    /// The share of cut streams: the stream of answers, or else the stream of requests.
    pub cut: f64,
    /// The number of messages before the cut. Default: 0 to 10.
    pub cut_after: RangeInclusive<u64>,
}

impl Default for FaultRates {
    fn default() -> Self {
        Self {
            delayed: 0.0,
            delay: Duration::from_millis(10)..=Duration::from_secs(1),
            failed: 0.0,
            code: Code::Unavailable,
            lost_requests: 0.0,
            lost_answers: 0.0,
            cut: 0.0,
            cut_after: 0..=10,
        }
    }
}

/// The numbers of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Calls with a late start.
    pub delayed: u64,
    /// Failed calls without an execution.
    pub failed: u64,
    /// Calls lost before their execution.
    pub lost_requests: u64,
    /// Executed calls with a lost answer.
    pub lost_answers: u64,
    /// Cut streams.
    pub cut: u64,
}

#[derive(Debug, Default)]
struct FaultState {
    /// The rates of methods without special rates.
    rates: Mutex<FaultRates>,
    /// The number of calls of each method so far.
    calls: Mutex<HashMap<&'static Method, u64>>,
    delayed: AtomicU64,
    failed: AtomicU64,
    lost_requests: AtomicU64,
    lost_answers: AtomicU64,
    cut: AtomicU64,
}

/// The faults of one call.
struct CallFaults {
    code: Code,
    delay: Option<Duration>,
    failed: bool,
    lost_request: bool,
    lost_answer: bool,
    cut_after: Option<u64>,
}

impl FaultInjector {
    /// Creates the layer with a seed and without faults.
    pub fn new(seed: u64) -> Self {
        Self { seed, special: HashMap::new(), state: Arc::default() }
    }

    /// Sets the rates of all methods without special rates.
    pub fn rates(self, rates: FaultRates) -> Self {
        self.set_rates(rates);
        self
    }

    /// Changes the rates of all methods without special rates, for all clones of the layer and their next calls.
    pub fn set_rates(&self, rates: FaultRates) {
        *lock(&self.state.rates) = rates;
    }

    /// Sets the rates of a method, such as `shop.Orders/Create`, or of a service, such as `shop.Orders`.
    pub fn rates_of(mut self, path: impl Into<String>, rates: FaultRates) -> Self {
        self.special.insert(path.into(), rates);
        self
    }

    /// Returns the numbers of faults so far, for all clones of the layer.
    pub fn counts(&self) -> FaultCounts {
        let FaultState { rates: _, calls: _, delayed, failed, lost_requests, lost_answers, cut } = &*self.state;
        let [delayed, failed, lost_requests, lost_answers, cut] =
            [delayed, failed, lost_requests, lost_answers, cut].map(|count| count.load(Ordering::Relaxed));
        FaultCounts { delayed, failed, lost_requests, lost_answers, cut }
    }

    fn rates_for(&self, method: &Method) -> FaultRates {
        if !self.special.is_empty()
            && let Some(rates) = self.special.get(&method.path()).or_else(|| self.special.get(method.service))
        {
            return rates.clone();
        }
        lock(&self.state.rates).clone()
    }

    /// Decides the faults of the next call of a method.
    fn next(&self, method: &'static Method) -> CallFaults {
        let number = {
            let mut calls = lock(&self.state.calls);
            let number = calls.entry(method).or_default();
            *number += 1;
            *number
        };
        let rates = self.rates_for(method);
        let mut rng = Rng::with_seed(seed_of(self.seed, method, number));
        // Each fault takes its numbers always, so that one rate does not change other faults.
        let [delayed, failed, lost_request, lost_answer, cut] =
            [rates.delayed, rates.failed, rates.lost_requests, rates.lost_answers, rates.cut]
                .map(|rate| rng.f64() < rate);
        let delay = {
            let (shortest, longest) = (*rates.delay.start(), *rates.delay.end());
            shortest + longest.saturating_sub(shortest).mul_f64(rng.f64())
        };
        let after = rng.u64(*rates.cut_after.start()..=*rates.cut_after.end().max(rates.cut_after.start()));
        CallFaults {
            code: rates.code,
            delay: delayed.then_some(delay),
            failed,
            lost_request,
            lost_answer,
            cut_after: cut.then_some(after),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mixes the inputs by FNV-1a. Neighbouring seeds must not give similar faults.
fn seed_of(seed: u64, method: &Method, number: u64) -> u64 {
    let [seed, number] = [seed, number].map(u64::to_le_bytes);
    let bytes = seed.iter().chain(method.service.as_bytes()).chain(b"/").chain(method.name.as_bytes()).chain(&number);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Layer for FaultInjector {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (state, faults) = (&self.state, self.next(call.method()));
        let code = faults.code;
        let deadline = call.time().opening;
        let count = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        if let Some(delay) = faults.delay {
            count(&state.delayed);
            sleep(delay).await;
        }
        if faults.failed {
            count(&state.failed);
            return Err(Status::new(code, "an injected failure"));
        }
        if faults.lost_request {
            count(&state.lost_requests);
            return deadline.bound(pending()).await;
        }
        let answers = call.kind().has_response_stream();
        let cut = |body: Body, after: u64| match body {
            Body::Many(messages) => {
                let state = self.state.clone();
                Body::Many(messages.changed(|messages| CutStream { messages, left: Some(after), code, state }))
            }
            body => body,
        };
        let call = match faults.cut_after {
            Some(after) if !answers => call.map_body(|body| cut(body, after)),
            _ => call,
        };
        let answer = next.run(call).await;
        if faults.lost_answer {
            count(&state.lost_answers);
            drop(answer);
            return deadline.bound(pending()).await;
        }
        match faults.cut_after {
            Some(after) if answers => Ok(answer?.map_body(|body| cut(body, after))),
            _ => answer,
        }
    }
}

/// A stream with a failure after some messages.
struct CutStream {
    messages: Streaming<Bytes>,
    /// The number of messages before the cut. `None` after it.
    left: Option<u64>,
    code: Code,
    state: Arc<FaultState>,
}

impl BatchSource<Bytes> for CutStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> PollNext<Bytes> {
        match &mut self.left {
            None => Poll::Ready(None),
            Some(0) => {
                self.left = None;
                // The service notices the cut.
                self.messages = Streaming::over();
                self.state.cut.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(Some(Err(Status::new(self.code, "an injected cut of the stream"))))
            }
            Some(left) => {
                let next = self.messages.poll(cx);
                match &next {
                    Poll::Ready(Some(Ok(_))) => *left -= 1,
                    Poll::Ready(_) => self.left = None,
                    Poll::Pending => {}
                }
                next
            }
        }
    }
}
