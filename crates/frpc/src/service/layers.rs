//! Ready-made [layers](crate::Layer).
//!
//! ```
//! use std::time::Duration;
//!
//! use frpc::{Server, layers::{ConcurrencyLimit, Timeout, Trace}};
//!
//! let server = Server::builder()
//!     .layer(Trace::new())
//!     .layer(ConcurrencyLimit::new(1000))
//!     .layer(Timeout::new(Duration::from_secs(10)));
//! # let _ = server;
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

#[cfg(feature = "tower")]
pub use super::tower::{TowerCall, TowerLayer, TowerNext, tower};

pub use super::{
    access_log::{AccessLog, LogFormat},
    overload::{AdaptiveLimit, OverloadSettings},
    rate::{RateLimit, RateSettings},
    report::ReportLoad,
    trace::{Trace, TraceSampling},
};
pub use crate::call::metadata::looks_secret;
pub use frpc_balance::{CallPriority, LimitSettings};

use super::layer::{Layer, Next};
use crate::call::{
    exchange::{Answer, Body, Call},
    status::Status,
    waits::CallWait,
};

/// Fails calls with [`DeadlineExceeded`](crate::Code::DeadlineExceeded) if the answer does not start in time. A stream of answers may then take
/// any time.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    limit: Duration,
}

impl Timeout {
    /// Creates the layer with this limit.
    pub fn new(limit: Duration) -> Self {
        Self { limit }
    }
}

impl Layer for Timeout {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let Self { limit } = *self;
        timeout(limit, next.run(call))
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("the call took longer than {limit:?}"))))
    }
}

/// Limits the number of concurrent calls. Further calls wait for a permit. With [`failing`](Self::failing), they fail
/// with [`ResourceExhausted`](crate::Code::ResourceExhausted). A call also fails if its wait for a permit used at least half of its time: the
/// rest would probably not suffice, and the calls queued after it would be late too. A call answered with a stream
/// holds its permit until the end of the stream.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    permits: Arc<Semaphore>,
    limit: usize,
    fails: bool,
}

impl ConcurrencyLimit {
    /// Creates the layer with this limit, shared by everything that uses the layer. Calls above the limit wait.
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(limit)), limit, fails: false }
    }

    /// Makes calls above the limit fail instead of waiting.
    pub fn failing(self) -> Self {
        Self { fails: true, ..self }
    }
}

impl Layer for ConcurrencyLimit {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (mut permit, mut waited) = (self.permits.clone().try_acquire_owned().ok(), Duration::ZERO);
        if permit.is_none() && !self.fails {
            let wait = CallWait::begin(call.method());
            permit = self.permits.clone().acquire_owned().await.ok();
            waited = wait.end();
        }
        let Some(permit) = permit else {
            return Err(Status::resource_exhausted(format!("the limit of {} concurrent calls is reached", self.limit)));
        };
        if let Some(deadline) = call.head().deadline()
            && !waited.is_zero()
            && waited >= deadline.saturating_duration_since(Instant::now().into_std())
        {
            return Err(Status::resource_exhausted(format!(
                "the call waited half of its time for one of {} permits, and the rest is unlikely to suffice",
                self.limit
            )));
        }
        let answer = next.run(call).await?;
        Ok(answer.map_body(|body| match body {
            Body::Many(contents) => Body::Many(contents.map_messages(move |content| {
                let _held = &permit;
                Ok(content)
            })),
            body => body,
        }))
    }
}
