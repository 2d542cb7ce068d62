//! Messages as published and as received.

use bytes::Bytes;

use crate::Subject;

/// A message received by a subscriber.
///
/// The payload may be a slice of a larger read buffer and keeps that buffer alive. Copy small payloads before you store
/// them for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Subject of the publication.
    pub subject: Subject,
    /// Subject for the answer. Present if the message is a request.
    pub reply: Option<Subject>,
    /// Content of the message.
    pub payload: Bytes,
    /// True for the retained value of the subject, published before the subscription began.
    pub is_retained: bool,
    /// True if a bridge brought the message here; see [`Publication::forwarded`].
    pub is_forwarded: bool,
}

impl Message {
    /// Creates a message without a reply subject.
    pub fn new(subject: Subject, payload: impl Into<Bytes>) -> Self {
        Self { subject, reply: None, payload: payload.into(), is_retained: false, is_forwarded: false }
    }
}

/// A message to publish, as passed to a [`Backend`](crate::Backend).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Publication<'a> {
    /// Subject of the message. Callers of a backend have already validated it.
    pub subject: &'a str,
    /// Subject for the answer, if the message is a request. Validated too.
    pub reply: Option<&'a str>,
    /// Content of the message.
    pub payload: Bytes,
    /// True to retain the message as the last value of its subject. An empty payload removes the retained value.
    pub retain: bool,
    /// True to mark the message as brought by a bridge.
    pub is_forwarded: bool,
}

impl<'a> Publication<'a> {
    /// Creates a publication without a reply subject, not retained.
    pub fn new(subject: &'a str, payload: impl Into<Bytes>) -> Self {
        Self { subject, reply: None, payload: payload.into(), retain: false, is_forwarded: false }
    }

    /// Sets the subject for the answer.
    pub fn reply(mut self, reply: &'a str) -> Self {
        self.reply = Some(reply);
        self
    }

    /// Retains the message as the last value of its subject, for later subscribers.
    pub fn retain(mut self) -> Self {
        self.retain = true;
        self
    }

    /// Marks the message as brought by a bridge from elsewhere. Bridges forward no marked messages, so messages cannot
    /// travel in loops.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_pubsub::{Broker, Publication};
    ///
    /// let broker = Broker::new();
    /// let client = broker.client().await?;
    /// let mut news = client.subscribe("news.>").await?;
    /// client.send(Publication::new("news.abroad", "rain").forwarded()).await?;
    /// client.send(Publication::new("news.local", "sun")).await?;
    /// assert!(news.next_message().await.unwrap().is_forwarded);
    /// assert!(!news.next_message().await.unwrap().is_forwarded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forwarded(mut self) -> Self {
        self.is_forwarded = true;
        self
    }
}

/// An item of a [`Subscription`](crate::Subscription).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionEvent {
    /// A message.
    Message(Message),
    /// The broker or this client dropped this number of messages here because the subscriber was too slow.
    Missing(u64),
    /// The client reconnected and resumed the subscription. Messages published while it was disconnected are lost and
    /// not counted.
    Reconnected,
}

impl SubscriptionEvent {
    /// Returns the message, if this event is one.
    pub fn message(self) -> Option<Message> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }
}

/// The treatment of messages for a subscriber slower than its publishers.
///
/// A policy applies when the subscription's queue at the broker is full. The broker counts every dropped message and
/// reports it at its position in the stream ([`SubscriptionEvent::Missing`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Drop new messages and deliver the queued ones. The subscriber sees the beginning of a burst.
    #[default]
    DropNewest,
    /// Drop the oldest queued messages. The subscriber sees the end of a burst.
    DropOldest,
    /// Keep only the last message of each subject in the queue, from the first queued message on. Use it for values of
    /// which only the current one matters.
    KeepLatest,
    /// Block the publishers. The slowest subscriber with this policy sets the pace for every publisher of its subjects.
    /// A subscriber without progress for [`stall_max`](crate::BrokerLimits::stall_max) is treated as with
    /// [`Disconnect`](Self::Disconnect).
    Block,
    /// End the subscription as [too slow](crate::SubscriptionEnd::TooSlow).
    Disconnect,
}
