//! The client, used by publishers and subscribers.

mod backend;
mod subscription;

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::{
    backend::{Backend, BackendFuture, SubscribeOptions},
    subscription::{EventSource, Subscription},
};
use crate::{
    InvalidSubject, Message, Pattern, Policy, Publication, PublishError, RequestError, Subject, SubscribeError,
    TryPublishError,
};

/// A publisher and subscriber. Clones are cheap and share the connection; use them from any thread or task.
///
/// A [`Backend`] does the work. The code of publishers and subscribers does not depend on it.
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn Backend>,
    request_limit: Duration,
}

impl Client {
    /// Creates a client with a backend.
    pub fn on(backend: Arc<dyn Backend>) -> Self {
        Self { backend, request_limit: REQUEST_LIMIT }
    }

    /// Returns a client with the same backend and this timeout for requests. Default 10 s.
    pub fn with_request_limit(&self, limit: Duration) -> Self {
        Self { backend: self.backend.clone(), request_limit: limit }
    }

    /// Publishes a message. Waits while the publisher has no credit or the outbox of the connection is full.
    ///
    /// The call does not wait for an answer of the broker. A refusal is logged and returned by the next
    /// [`flush`](Self::flush). Use [`publish_acknowledged`](Self::publish_acknowledged) to learn the outcome for each
    /// message.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<(), PublishError> {
        self.send(Publication::new(subject, payload)).await
    }

    /// Publishes a message as [`publish`](Self::publish) does. A [`Publication`] can have a reply subject and can be
    /// retained.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn send(&self, publication: Publication<'_>) -> Result<(), PublishError> {
        let Publication { subject, reply, retain, is_forwarded, .. } = publication;
        match self.try_send(publication) {
            Ok(()) => Ok(()),
            Err(TryPublishError::Failed(error)) => Err(error),
            Err(TryPublishError::Full(payload)) => {
                self.backend.publish(Publication { subject, reply, payload, retain, is_forwarded }).await
            }
        }
    }

    /// Publishes a message if that is possible without waiting.
    pub fn try_publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<(), TryPublishError> {
        self.try_send(Publication::new(subject, payload))
    }

    /// Publishes a message as [`try_publish`](Self::try_publish) does. A [`Publication`] can have a reply subject and
    /// can be retained.
    pub fn try_send(&self, publication: Publication<'_>) -> Result<(), TryPublishError> {
        check(&publication)?;
        self.backend.try_publish(publication)
    }

    /// Publishes a message and waits until the broker has accepted it. Returns the number of subscriptions it goes to,
    /// if the broker knows.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the message.
    pub async fn publish_acknowledged(
        &self,
        subject: &str,
        payload: impl Into<Bytes>,
    ) -> Result<Option<u32>, PublishError> {
        self.send_acknowledged(Publication::new(subject, payload)).await
    }

    /// Publishes a message as [`publish_acknowledged`](Self::publish_acknowledged) does. A [`Publication`] can have a
    /// reply subject and can be retained.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the message.
    pub async fn send_acknowledged(&self, publication: Publication<'_>) -> Result<Option<u32>, PublishError> {
        check(&publication)?;
        self.backend.publish_acknowledged(publication).await
    }

    /// Publishes a request and waits for the first answer. Fails without waiting if the subject has no subscribers.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the request. The client discards the answer.
    pub async fn request(&self, subject: &str, payload: impl Into<Bytes>) -> Result<Message, RequestError> {
        self.send_request(Publication::new(subject, payload)).await
    }

    /// Publishes a request as [`request`](Self::request) does. The reply subject of the [`Publication`] is replaced.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the request. The client discards the answer.
    pub async fn send_request(&self, request: Publication<'_>) -> Result<Message, RequestError> {
        Subject::check(request.subject)?;
        self.backend.request(request, self.request_limit).await
    }

    /// Answers a request. Does nothing if the message has no reply subject.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete answer or nothing.
    pub async fn respond(&self, to: &Message, payload: impl Into<Bytes>) -> Result<(), PublishError> {
        match &to.reply {
            Some(reply) => self.publish(reply, payload).await,
            None => Ok(()),
        }
    }

    /// Subscribes to a pattern of subjects. `*` matches one token, a final `>` matches one or more. Set options on the
    /// returned builder, then await it.
    ///
    /// ```no_run
    /// # async fn example(client: frisbee_pubsub::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_pubsub::Policy;
    ///
    /// let prices = client.subscribe("prices.>").policy(Policy::KeepLatest).await?;
    /// let worker = client.subscribe("jobs.*").group("workers").window(64 * 1024).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe(&self, pattern: &str) -> Subscribe<'_> {
        Subscribe { client: self, options: Pattern::new(pattern).map(SubscribeOptions::new) }
    }

    /// Waits until the broker has processed all earlier publications.
    ///
    /// Returns the first error of a [`publish`](Self::publish) since the last call: the broker refused a message, or a
    /// connection was lost with messages possibly in flight. Other backends may give weaker guarantees; see their
    /// documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has no effect.
    pub async fn flush(&self) -> Result<(), PublishError> {
        self.backend.flush().await
    }

    /// Ends all subscriptions and closes the connection for all clones. Earlier publications are still written.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has already started to close the connection.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A builder for a subscription, returned by [`Client::subscribe`]. Await it to subscribe.
#[derive(Debug)]
#[must_use = "nothing is subscribed until it is awaited"]
pub struct Subscribe<'a> {
    client: &'a Client,
    options: Result<SubscribeOptions, InvalidSubject>,
}

impl Subscribe<'_> {
    /// Joins a queue group: each message goes to one of the subscriptions with the same pattern and group. The name is
    /// a single token.
    pub fn group(self, name: &str) -> Self {
        let named = self.options.and_then(|options| {
            check_group(name)?;
            Ok(SubscribeOptions { group: Some(name.to_owned()), ..options })
        });
        Self { options: named, ..self }
    }

    /// Sets the policy for messages the subscriber takes too slowly. Default [`Policy::DropNewest`].
    pub fn policy(mut self, policy: Policy) -> Self {
        if let Ok(options) = &mut self.options {
            options.policy = policy;
        }
        self
    }

    /// Limits the bytes in flight to the client or buffered there. Further messages queue at the broker, up to its own
    /// limits. Each message counts with its subject and 64 more bytes. Default 1 MiB; 0 counts as 1.
    pub fn window(mut self, bytes: u32) -> Self {
        if let Ok(options) = &mut self.options {
            options.window = bytes.max(1);
        }
        self
    }
}

impl<'a> IntoFuture for Subscribe<'a> {
    type Output = Result<Subscription, SubscribeError>;
    type IntoFuture = BackendFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        match self.options {
            Ok(options) => self.client.backend.subscribe(options),
            Err(error) => Box::pin(async { Err(error.into()) }),
        }
    }
}

/// Validates the name of a queue group: a single token of a subject.
pub(crate) fn check_group(name: &str) -> Result<(), InvalidSubject> {
    Subject::check(name)?;
    if name.contains('.') {
        Err(InvalidSubject::new(name, "contains a dot, and names of groups must not"))
    } else {
        Ok(())
    }
}

fn check(publication: &Publication<'_>) -> Result<(), InvalidSubject> {
    Subject::check(publication.subject)?;
    publication.reply.map_or(Ok(()), Subject::check)
}

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
