//! The work behind a client: a broker on frisbee, or any other.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::{
    Message, Pattern, Policy, Publication, PublishError, RequestError, SubscribeError, Subscription, TryPublishError,
};

/// A future that a backend makes.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Does the work of a [`Client`](crate::Client). Subjects, patterns and names of groups that it gets are checked.
pub trait Backend: Send + Sync + 'static {
    /// Publishes a message if that can be done at once.
    fn try_publish(&self, publication: Publication<'_>) -> Result<(), TryPublishError>;

    /// Publishes a message as soon as that can be done.
    fn publish<'a>(&'a self, publication: Publication<'a>) -> BackendFuture<'a, Result<(), PublishError>>;

    /// Publishes a message, and returns when the other side has taken it: to how many subscriptions it goes, as far as that is
    /// known there.
    fn publish_acknowledged<'a>(
        &'a self,
        publication: Publication<'a>,
    ) -> BackendFuture<'a, Result<Option<u32>, PublishError>>;

    /// Publishes a message and waits for the first answer.
    fn request<'a>(
        &'a self,
        subject: &'a str,
        payload: Bytes,
        limit: Duration,
    ) -> BackendFuture<'a, Result<Message, RequestError>>;

    /// Subscribes. The subscription is there when the future is ready.
    fn subscribe(&self, options: SubscribeOptions) -> BackendFuture<'_, Result<Subscription, SubscribeError>>;

    /// Waits until the other side has everything that was published before, or at least until it has left this process. Returns the
    /// first error of those messages that is known and was not told before.
    fn flush(&self) -> BackendFuture<'_, Result<(), PublishError>>;

    /// Ends all subscriptions and the connection. What was published before is written.
    fn close(&self) -> BackendFuture<'_, ()>;
}

/// The wishes for a subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// The subjects.
    pub pattern: Pattern,
    /// The queue group: each message goes to one of its members.
    pub group: Option<String>,
    /// The fate of messages that are not taken fast enough.
    pub policy: Policy,
    /// Bytes of messages that may be on their way to this side or wait here.
    pub window: u32,
}

impl SubscribeOptions {
    /// Makes options with everything as it is unless it is set.
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, group: None, policy: Policy::default(), window: WINDOW }
    }
}

const WINDOW: u32 = 1024 * 1024;
