//! Topics: patterns with a type for their messages.

use std::{error::Error, fmt, marker::PhantomData};

use bytes::Bytes;

use crate::{
    Client, InvalidSubject, Message, Pattern, PublishError, Subject, SubscribeError, Subscription, SubscriptionEnd,
    SubscriptionEvent,
};

/// A type convertible to and from payloads. The feature `prost` implements it for every prost message.
pub trait Payload: Sized {
    /// Encodes the value as a payload.
    fn to_payload(&self) -> Bytes;

    /// Decodes a payload. Every client with permission to publish can send arbitrary bytes here.
    fn from_payload(payload: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>>;
}

#[cfg(feature = "prost")]
impl<M: prost::Message + Default> Payload for M {
    fn to_payload(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    fn from_payload(payload: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(M::decode(payload.clone())?)
    }
}

/// A pattern of subjects with one type of message.
///
/// `frisbee-rpc-build` generates constants of this type (`.topic("shop.OrderCreated", "orders.*.created")`).
///
/// ```
/// use std::error::Error;
///
/// use bytes::Bytes;
/// use frisbee_pubsub::{Broker, Payload, Topic, TopicEvent};
///
/// struct Celsius(i8);
///
/// impl Payload for Celsius {
///     fn to_payload(&self) -> Bytes {
///         self.0.to_be_bytes().to_vec().into()
///     }
///
///     fn from_payload(payload: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
///         Ok(Self(i8::from_be_bytes(payload[..].try_into()?)))
///     }
/// }
///
/// const READINGS: Topic<Celsius> = Topic::new("readings.*");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn Error>> {
/// let client = Broker::new().client().await?;
/// let mut readings = READINGS.subscribe(&client).await?;
/// READINGS.publish_under(&client, "readings.harbour", &Celsius(21)).await?;
/// let Some(TopicEvent::Message(reading, message)) = readings.next().await else { panic!("it is the first event") };
/// assert_eq!((reading.0, &*message.subject), (21, "readings.harbour"));
/// # Ok(())
/// # }
/// ```
pub struct Topic<M> {
    pattern: &'static str,
    payload: PhantomData<fn(M) -> M>,
}

impl<M> Topic<M> {
    /// Creates a topic. The first use validates the pattern.
    pub const fn new(pattern: &'static str) -> Self {
        Self { pattern, payload: PhantomData }
    }

    /// Returns the pattern.
    pub const fn pattern(&self) -> &'static str {
        self.pattern
    }
}

impl<M: Payload> Topic<M> {
    /// Publishes a message to a topic without wildcards, under its only subject.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn publish(&self, client: &Client, message: &M) -> Result<(), PublishError> {
        client.publish(self.pattern, message.to_payload()).await
    }

    /// Publishes a message under one of the topic's subjects.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the complete message or nothing.
    pub async fn publish_under(&self, client: &Client, subject: &str, message: &M) -> Result<(), PublishError> {
        self.check(subject)?;
        client.publish(subject, message.to_payload()).await
    }

    /// Publishes a message under one of the topic's subjects and waits for the broker to accept it; see
    /// [`Client::publish_acknowledged`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have published the message.
    pub async fn publish_acknowledged(
        &self,
        client: &Client,
        subject: &str,
        message: &M,
    ) -> Result<Option<u32>, PublishError> {
        self.check(subject)?;
        client.publish_acknowledged(subject, message.to_payload()).await
    }

    /// Subscribes to all subjects of the topic.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has not subscribed.
    pub async fn subscribe(&self, client: &Client) -> Result<TopicSubscription<M>, SubscribeError> {
        Ok(TopicSubscription::of(client.subscribe(self.pattern).await?))
    }

    fn check(&self, subject: &str) -> Result<(), InvalidSubject> {
        Subject::check(subject)?;
        match Pattern::new(self.pattern)?.matches(subject) {
            true => Ok(()),
            false => Err(InvalidSubject::new(subject, "does not match the pattern of the topic")),
        }
    }
}

impl<M> Clone for Topic<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Topic<M> {}

impl<M> fmt::Debug for Topic<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topic").field(&self.pattern).finish()
    }
}

/// A [`Subscription`] with decoded payloads. [`of`](Self::of) converts any subscription.
#[derive(Debug)]
pub struct TopicSubscription<M> {
    subscription: Subscription,
    payload: PhantomData<fn() -> M>,
}

impl<M: Payload> TopicSubscription<M> {
    /// Wraps a subscription and decodes its payloads.
    pub fn of(subscription: Subscription) -> Self {
        Self { subscription, payload: PhantomData }
    }

    /// Returns the next event, or `None` after the end of the subscription.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken nothing.
    pub async fn next(&mut self) -> Option<TopicEvent<M>> {
        Some(match self.subscription.next().await? {
            SubscriptionEvent::Message(message) => match M::from_payload(&message.payload) {
                Ok(payload) => TopicEvent::Message(payload, message),
                Err(error) => TopicEvent::Unreadable(message, error),
            },
            SubscriptionEvent::Missing(count) => TopicEvent::Missing(count),
            SubscriptionEvent::Reconnected => TopicEvent::Reconnected,
        })
    }

    /// Returns the reason for the end, after the subscription has ended.
    pub fn end(&self) -> Option<&SubscriptionEnd> {
        self.subscription.end()
    }
}

/// An item of a [`TopicSubscription`].
#[derive(Debug)]
#[non_exhaustive]
pub enum TopicEvent<M> {
    /// A decoded message, and its original form.
    Message(M, Message),
    /// A message with an undecodable payload, published by a client of another type.
    Unreadable(Message, Box<dyn Error + Send + Sync>),
    /// See [`SubscriptionEvent::Missing`].
    Missing(u64),
    /// See [`SubscriptionEvent::Reconnected`].
    Reconnected,
}

#[cfg(all(test, feature = "prost"))]
mod tests {
    use super::*;
    use crate::Broker;

    #[tokio::test]
    async fn topics_carry_prost_messages_and_report_decode_errors() {
        // prost implements `Message` for `String` as `google.protobuf.StringValue`.
        let (topic, client) = (Topic::<String>::new("names.*"), Broker::new().client().await.expect("it is here"));
        let mut names = topic.subscribe(&client).await.expect("it is allowed");
        topic.publish_under(&client, "names.first", &"Ada".to_owned()).await.expect("there is room");
        client.publish("names.last", &b"\xff\xff"[..]).await.expect("there is room");
        assert!(matches!(names.next().await, Some(TopicEvent::Message(name, _)) if name == "Ada"));
        assert!(
            matches!(names.next().await, Some(TopicEvent::Unreadable(message, _)) if message.subject == "names.last")
        );
    }

    #[tokio::test]
    async fn publishing_outside_the_topic_is_rejected() {
        let (topic, client) = (Topic::<String>::new("names.*"), Broker::new().client().await.expect("it is here"));
        let name = String::new();
        for subject in ["names", "other.first", "names.*"] {
            let refused = topic.publish_under(&client, subject, &name).await;
            assert!(matches!(refused, Err(PublishError::InvalidSubject(_))), "{subject}");
        }
        assert!(matches!(topic.publish(&client, &name).await, Err(PublishError::InvalidSubject(_))), "it has several");
    }
}
