//! The handle that publishers and subscribers hold.

mod backend;
mod subscription;

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::{
    backend::{Backend, BackendFuture, SubscribeOptions},
    subscription::{Events, Subscription},
};
use crate::{
    InvalidSubject, Message, Pattern, Policy, Publication, PublishError, RequestError, Subject, SubscribeError,
    TryPublishError,
};

/// A handle of a publisher and subscriber. Cheap to clone, and usable from any thread and task.
///
/// It stands on a [`Backend`], which the code that uses it does not see.
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn Backend>,
    request_limit: Duration,
}

impl Client {
    /// Makes a client on a backend.
    pub fn on(backend: Arc<dyn Backend>) -> Self {
        Self { backend, request_limit: REQUEST_LIMIT }
    }

    /// Makes a client on the same backend whose requests wait this long for an answer. Default 10 s.
    pub fn with_request_limit(&self, limit: Duration) -> Self {
        Self { backend: self.backend.clone(), request_limit: limit }
    }

    /// Publishes a message, waiting as long as the broker gives no credit or the connection takes nothing. It is on its way then, and the
    /// answer is not waited for: a refusal of the broker shows at the next [`flush`](Self::flush), and in the log. See
    /// [`publish_acknowledged`](Self::publish_acknowledged) for the fate of each message.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the message whole or not at all.
    pub async fn publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<(), PublishError> {
        self.send(Publication::new(subject, payload)).await
    }

    /// Publishes a message as [`publish`](Self::publish) does, with what else there is to say of it.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the message whole or not at all.
    pub async fn send(&self, publication: Publication<'_>) -> Result<(), PublishError> {
        let Publication { subject, reply, retain, .. } = publication;
        match self.try_send(publication) {
            Ok(()) => Ok(()),
            Err(TryPublishError::Failed(error)) => Err(error),
            Err(TryPublishError::Full(payload)) => {
                self.backend.publish(Publication { subject, reply, payload, retain }).await
            }
        }
    }

    /// Publishes a message if that can be done at once.
    pub fn try_publish(&self, subject: &str, payload: impl Into<Bytes>) -> Result<(), TryPublishError> {
        self.try_send(Publication::new(subject, payload))
    }

    /// Publishes a message as [`try_publish`](Self::try_publish) does, with what else there is to say of it.
    pub fn try_send(&self, publication: Publication<'_>) -> Result<(), TryPublishError> {
        check(&publication)?;
        self.backend.try_publish(publication)
    }

    /// Publishes a message and waits until the broker has it. Returns to how many subscriptions it goes, if the broker knows.
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

    /// Publishes a message as [`publish_acknowledged`](Self::publish_acknowledged) does, with what else there is to say of it.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the message.
    pub async fn send_acknowledged(&self, publication: Publication<'_>) -> Result<Option<u32>, PublishError> {
        check(&publication)?;
        self.backend.publish_acknowledged(publication).await
    }

    /// Publishes a message that asks for an answer, and waits for the first. Fails at once if nobody has subscribed to the
    /// subject.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the request. Its answer is dropped.
    pub async fn request(&self, subject: &str, payload: impl Into<Bytes>) -> Result<Message, RequestError> {
        Subject::check(subject)?;
        self.backend.request(subject, payload.into(), self.request_limit).await
    }

    /// Answers a message that asks for an answer. One that does not is let go.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the answer whole or not at all.
    pub async fn respond(&self, to: &Message, payload: impl Into<Bytes>) -> Result<(), PublishError> {
        match &to.reply {
            Some(reply) => self.publish(reply, payload).await,
            None => Ok(()),
        }
    }

    /// Subscribes to the subjects that a pattern stands for: `*` for one token, a last `>` for one or more. Await it, after setting
    /// what is to be set.
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

    /// Waits until the broker has dealt with everything that was published before. Returns the first error that [`publish`](Self::publish)
    /// did not wait for since the last call: the broker refused a message, or a connection was lost with messages that may have been on
    /// their way. Other backends may wait for less; see there.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing.
    pub async fn flush(&self) -> Result<(), PublishError> {
        self.backend.flush().await
    }

    /// Ends all subscriptions and the connection, for all clones. What was published before is written.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has begun to close.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A subscription that is about to be made; see [`Client::subscribe`].
#[derive(Debug)]
#[must_use = "nothing is subscribed to before it is awaited"]
pub struct Subscribe<'a> {
    client: &'a Client,
    options: Result<SubscribeOptions, InvalidSubject>,
}

impl Subscribe<'_> {
    /// Joins a queue group: each message goes to one of the subscriptions that have the same pattern and group. The name is one
    /// token.
    pub fn group(self, name: &str) -> Self {
        let named = self.options.and_then(|options| {
            check_group(name)?;
            Ok(SubscribeOptions { group: Some(name.to_owned()), ..options })
        });
        Self { options: named, ..self }
    }

    /// Sets what becomes of messages that are not taken fast enough. Default [`Policy::DropNewest`].
    pub fn policy(mut self, policy: Policy) -> Self {
        if let Ok(options) = &mut self.options {
            options.policy = policy;
        }
        self
    }

    /// Sets how many bytes of messages may be on their way to this side or wait here. What is beyond waits at the broker, as long
    /// as it has room. Each message counts with its subject and 64 bytes more. Default 1 MiB; 0 counts as 1.
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

/// Finds out what is wrong with the name of a group: it is one token of a subject.
pub(crate) fn check_group(name: &str) -> Result<(), InvalidSubject> {
    Subject::check(name)?;
    if name.contains('.') {
        Err(InvalidSubject::new(name, "has a dot, which the name of a group may not have"))
    } else {
        Ok(())
    }
}

fn check(publication: &Publication<'_>) -> Result<(), InvalidSubject> {
    Subject::check(publication.subject)?;
    publication.reply.map_or(Ok(()), Subject::check)
}

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
