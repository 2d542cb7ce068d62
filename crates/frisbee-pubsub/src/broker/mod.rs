//! The broker: a router that delivers published messages to subscribers.

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
mod subscriber;
#[cfg(test)]
mod testing;

use std::{
    pin::pin,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use frisbee::{InvalidSetting, Router};

pub use self::{
    authorize::{Action, Authorize},
    limits::BrokerLimits,
    metrics::{BrokerMetrics, PrefixMetrics},
    router::BrokerRouter,
};
use self::{
    hold::PublisherAccount,
    publishing::{Publisher, PublisherState},
    shared::BrokerShared,
};
use crate::{
    Publication, PublishError, Subject, TryPublishError,
    lock::lock,
    sync::Mutex,
    wire::{BASE, OperationBase, publication_flags, write_publish},
};

/// A handle to a broker. Clones are cheap and refer to the same broker; use them from any thread or task.
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
pub struct Broker(Arc<BrokerInner>);

#[derive(Debug)]
struct BrokerInner {
    shared: Arc<BrokerShared>,
    /// Account of all messages published through this handle, without a connection.
    account: Arc<PublisherAccount>,
    publishing: Mutex<PublisherState>,
}

/// Configures and creates a [`Broker`].
#[derive(Default)]
pub struct BrokerBuilder {
    base: Option<u16>,
    limits: BrokerLimits,
    authorize: Option<Box<dyn Authorize>>,
}

impl Broker {
    /// Creates a broker with default settings.
    #[allow(clippy::new_without_default, reason = "each call creates a separate broker")]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a broker with other settings.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// Returns a router for a server dedicated to this broker. One broker can serve on several servers.
    pub fn router(&self) -> BrokerRouter<()> {
        self.over(())
    }

    /// Returns a router that handles publish and subscribe and passes all other packets to `fallback`. A connection can
    /// have only one broker.
    pub fn over<F: Router>(&self, fallback: F) -> BrokerRouter<F> {
        BrokerRouter { shared: self.0.shared.clone(), fallback }
    }

    /// Publishes a message from within the process. Returns the number of subscriptions it goes to.
    ///
    /// Waits while messages published through the broker's handles fill [`BrokerLimits::publish_window`] at subscribers with
    /// [`Policy::Block`](crate::Policy::Block).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<u32, PublishError> {
        self.send(Publication::new(subject, payload)).await
    }

    /// Publishes a message as [`publish`](Self::publish) does. A [`Publication`] can have a reply subject and can be
    /// retained.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn send(&self, publication: Publication<'_>) -> Result<u32, PublishError> {
        let Publication { subject, reply, retain, is_forwarded, mut payload } = publication;
        loop {
            let mut freed = pin!(self.0.account.freed.notified());
            // Register before the attempt. A message freed right after the attempt would not wake this task otherwise.
            freed.as_mut().enable();
            payload = match self.try_send(Publication { subject, reply, retain, is_forwarded, payload }) {
                Ok(deliveries) => return Ok(deliveries),
                Err(TryPublishError::Failed(error)) => return Err(error),
                Err(TryPublishError::Full(payload)) => payload,
            };
            freed.await;
        }
    }

    /// Publishes a message as [`publish`](Self::publish) does, but fails with [`TryPublishError::Full`] instead of
    /// waiting.
    pub fn try_publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<u32, TryPublishError> {
        self.try_send(Publication::new(subject, payload))
    }

    /// Publishes a message as [`try_publish`](Self::try_publish) does. A [`Publication`] can have a reply subject and
    /// can be retained.
    pub fn try_send(&self, publication: Publication<'_>) -> Result<u32, TryPublishError> {
        let flags = publication_flags(&publication);
        let Publication { subject, reply, payload, .. } = publication;
        Subject::check(subject)?;
        reply.map_or(Ok(()), Subject::check)?;
        if self.0.account.is_full() {
            return Err(TryPublishError::Full(payload));
        }
        // Encode it as a PUBLISH, so local and remote publications share all further code.
        let mut content = Vec::new();
        write_publish(flags, subject, reply, &mut content);
        content.extend_from_slice(&payload);
        let mut publishing = lock(&self.0.publishing);
        let by = Publisher { shared: &self.0.shared, account: &self.0.account, connection: None };
        let published = publishing.publish(by, &content.into());
        publishing.flush(&self.0.shared, &self.0.account);
        published.map_err(|refusal| PublishError::Refused(refusal).into())
    }

    /// Makes the broker ask [`Authorize`] again about every subject of every publisher. Existing subscriptions
    /// continue.
    pub fn reauthorize(&self) {
        self.0.shared.reauthorize();
    }

    /// Returns a snapshot of the broker's counters.
    pub fn metrics(&self) -> BrokerMetrics {
        self.0.shared.metrics()
    }

    /// Exports the broker's counters next to the metrics of calls (`frpc_http::MetricsPage`,
    /// `frisbee-rpc-opentelemetry`), until the last handle and server of the broker are dropped.
    ///
    /// The attribute `frisbee.broker` has this name. Brokers with the same name are added up. The numbers are totals of the
    /// broker, so clients cannot create time series.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self, name: impl Into<String>) {
        let (shared, name) = (Arc::downgrade(&self.0.shared), name.into());
        frpc_metrics::add_source(move || Some(shared.upgrade()?.metrics().families(&name)));
    }

    /// Returns the first operation number of publish and subscribe.
    pub(crate) fn base(&self) -> u16 {
        self.0.shared.common.base.number()
    }

    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.0.shared.check()
    }
}

impl BrokerBuilder {
    /// Sets the first of the 13 consecutive operation numbers for publish and subscribe. Default 7000. Clients need the
    /// same value.
    pub fn base(mut self, operation: u16) -> Self {
        self.base = Some(operation);
        self
    }

    /// Sets the limits on everything clients can make grow.
    pub fn limits(mut self, limits: BrokerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the permissions of clients. Default: clients may do everything.
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

    /// Creates the broker. Invalid settings are reported when a server starts with its router.
    pub fn build(self) -> Broker {
        let Self { base, limits, authorize } = self;
        let window = limits.publish_window;
        let shared = BrokerShared::new(OperationBase::new(base.unwrap_or(BASE)), limits, authorize);
        let account = Arc::new(PublisherAccount::new(window, shared.common.gauge.clone(), Weak::new()));
        Broker(Arc::new(BrokerInner { shared, account, publishing: Mutex::default() }))
    }
}

impl std::fmt::Debug for BrokerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerBuilder").field("base", &self.base).field("limits", &self.limits).finish_non_exhaustive()
    }
}
