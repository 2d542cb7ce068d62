//! The interface between a client and its messaging engine.

use std::{future::Future, pin::Pin, time::Duration};

use crate::{
    Message, Pattern, Policy, Publication, PublishError, RequestError, SubscribeError, Subscription, TryPublishError,
};

/// A boxed future returned by a [`Backend`].
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A messaging engine, used through a [`Client`](crate::Client).
///
/// The client validates subjects and names of groups before it calls a backend.
pub trait Backend: Send + Sync + 'static {
    /// Publishes a message if that is possible without waiting.
    fn try_publish(&self, publication: Publication<'_>) -> Result<(), TryPublishError>;

    /// Publishes a message, waiting for credit or a connection if necessary.
    fn publish<'a>(&'a self, publication: Publication<'a>) -> BackendFuture<'a, Result<(), PublishError>>;

    /// Publishes a message and waits until the engine has accepted it. Returns the number of subscriptions it goes to,
    /// or `None` if the engine does not know.
    fn publish_acknowledged<'a>(
        &'a self,
        publication: Publication<'a>,
    ) -> BackendFuture<'a, Result<Option<u32>, PublishError>>;

    /// Publishes a request and waits for the first answer, at most for the given time. The backend sets its own reply
    /// subject.
    fn request<'a>(
        &'a self,
        request: Publication<'a>,
        limit: Duration,
    ) -> BackendFuture<'a, Result<Message, RequestError>>;

    /// Subscribes. The subscription is active when the future completes.
    fn subscribe(&self, options: SubscribeOptions) -> BackendFuture<'_, Result<Subscription, SubscribeError>>;

    /// Waits until the engine has processed all earlier publications, or at least until they have left this process.
    /// Returns the first known error not reported before.
    fn flush(&self) -> BackendFuture<'_, Result<(), PublishError>>;

    /// Ends all subscriptions and closes the connection. Earlier publications are still written.
    fn close(&self) -> BackendFuture<'_, ()>;
}

/// Options of a subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// Subjects to receive.
    pub pattern: Pattern,
    /// Queue group: each message goes to one of its members.
    pub group: Option<String>,
    /// Treatment of messages the subscriber takes too slowly.
    pub policy: Policy,
    /// Limit on bytes in flight or buffered on the client's side.
    pub window: u32,
}

impl SubscribeOptions {
    /// Creates options with default values.
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, group: None, policy: Policy::default(), window: WINDOW }
    }
}

const WINDOW: u32 = 1024 * 1024;
