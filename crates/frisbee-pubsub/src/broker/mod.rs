//! The broker: a router that hands on what clients publish to those who have subscribed.

mod answers;
mod authorize;
mod gauge;
mod groups;
mod hold;
mod limits;
mod metrics;
mod peer;
mod publishing;
mod queue;
mod registry;
mod retained;
mod router;
mod shared;
mod slow;
mod subscriber;
#[cfg(test)]
mod testing;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use frisbee::{InvalidSetting, Router};

pub use self::{
    authorize::{Action, Authorize},
    limits::Limits,
    metrics::{Metrics, PrefixMetrics},
    router::BrokerRouter,
};
use self::{hold::Account, publishing::Publishing, shared::Shared};
use crate::{
    Publication, PublishError, Subject, TryPublishError,
    wire::{BASE, Base, RETAIN, write_publish},
};

/// A handle of a broker. Cheap to clone, and usable from any thread and task.
///
/// ```
/// use frisbee::Server;
/// use frisbee_pubsub::Broker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::new();
/// let server = Server::builder(broker.router()).bind("tcp://127.0.0.1:0").await?;
/// println!("publish and subscribe at {}", server.local_addr());
/// broker.publish("status.started", "hello").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// For all that is published in this process, without a connection.
    account: Arc<Account>,
    publishing: Mutex<Publishing>,
}

/// Makes a [`Broker`].
#[derive(Default)]
pub struct BrokerBuilder {
    base: Option<u16>,
    limits: Limits,
    authorize: Option<Box<dyn Authorize>>,
}

impl Broker {
    /// Makes a broker with everything as it is unless it is set.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins to make a broker.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// Returns the router of the broker, for a server that does nothing else. Routers of the same broker may serve on several servers.
    pub fn router(&self) -> BrokerRouter<()> {
        self.over(())
    }

    /// Returns the router of the broker in front of another one, which gets all that is not publish and subscribe. A connection may have
    /// one broker.
    pub fn over<F: Router>(&self, fallback: F) -> BrokerRouter<F> {
        BrokerRouter { shared: self.0.shared.clone(), fallback }
    }

    /// Publishes a message from within the process, waiting while as much of it as may waits for subscribers with
    /// [`Policy::Block`](crate::Policy::Block). Returns to how many subscriptions it goes.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the message whole or not at all.
    pub async fn publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<u32, PublishError> {
        self.send(Publication::new(subject, payload)).await
    }

    /// Publishes a message as [`publish`](Self::publish) does, with what else there is to say of it.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the message whole or not at all.
    pub async fn send(&self, publication: Publication<'_>) -> Result<u32, PublishError> {
        let Publication { subject, reply, retain, mut payload } = publication;
        loop {
            let mut freed = pin!(self.0.account.freed.notified());
            // Before the attempt: what is freed right behind it would otherwise go unnoticed.
            freed.as_mut().enable();
            payload = match self.try_send(Publication { subject, reply, retain, payload }) {
                Ok(deliveries) => return Ok(deliveries),
                Err(TryPublishError::Failed(error)) => return Err(error),
                Err(TryPublishError::Full(payload)) => payload,
            };
            freed.await;
        }
    }

    /// Publishes a message as [`publish`](Self::publish) does, if nothing keeps it from that.
    pub fn try_publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<u32, TryPublishError> {
        self.try_send(Publication::new(subject, payload))
    }

    /// Publishes a message as [`try_publish`](Self::try_publish) does, with what else there is to say of it.
    pub fn try_send(&self, publication: Publication<'_>) -> Result<u32, TryPublishError> {
        let Publication { subject, reply, retain, payload } = publication;
        Subject::check(subject)?;
        reply.map_or(Ok(()), Subject::check)?;
        if self.0.account.is_full() {
            return Err(TryPublishError::Full(payload));
        }
        let mut content = Vec::new();
        write_publish(if retain { RETAIN } else { 0 }, subject, reply, &mut content);
        content.extend_from_slice(&payload);
        let mut publishing = self.publishing();
        let published = publishing.publish(&self.0.shared, &self.0.account, None, &content.into());
        publishing.flush(&self.0.shared, &self.0.account);
        published.map_err(|refusal| PublishError::Refused(refusal).into())
    }

    /// Has every client asked anew what it is allowed to publish. Subscriptions that there are stay.
    pub fn reauthorize(&self) {
        self.0.shared.reauthorize();
    }

    /// Returns what the broker holds, and what went through it.
    pub fn metrics(&self) -> Metrics {
        self.0.shared.metrics()
    }

    /// Returns the first operation number of publish and subscribe.
    pub(crate) fn base(&self) -> u16 {
        self.0.shared.common.base.number()
    }

    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.0.shared.check()
    }

    fn publishing(&self) -> MutexGuard<'_, Publishing> {
        // A panic of a user's `Authorize` leaves nothing half changed.
        self.0.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BrokerBuilder {
    /// Sets the first operation number of publish and subscribe, which takes the 13 from there on. Default 7000; clients need the
    /// same.
    pub fn base(mut self, operation: u16) -> Self {
        self.base = Some(operation);
        self
    }

    /// Sets how far clients can make things grow.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets who decides what clients are allowed to do. Unless it is set, they may do everything.
    ///
    /// ```
    /// use frisbee::Connection;
    /// use frisbee_pubsub::{Action, Broker};
    ///
    /// let broker = Broker::builder().authorize(|_: &Connection, action, subject: &str| match action {
    ///     Action::Publish | Action::Retain if subject.starts_with("system.") => Err("only the system does that".into()),
    ///     _ => Ok(()),
    /// });
    /// # let _ = broker.build();
    /// ```
    pub fn authorize(mut self, authorize: impl Authorize) -> Self {
        self.authorize = Some(Box::new(authorize));
        self
    }

    /// Makes the broker. Settings under which nothing could work are found when its router is to serve.
    pub fn build(self) -> Broker {
        let Self { base, limits, authorize } = self;
        let window = limits.publish_window;
        let shared = Shared::new(Base::new(base.unwrap_or(BASE)), limits, authorize);
        let account = Arc::new(Account::new(window, shared.common.gauge.clone(), Weak::new()));
        Broker(Arc::new(Inner { shared, account, publishing: Mutex::default() }))
    }
}

impl std::fmt::Debug for BrokerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerBuilder").field("base", &self.base).field("limits", &self.limits).finish_non_exhaustive()
    }
}
