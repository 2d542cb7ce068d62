//! The receiving side of a subscription.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;

use crate::{Message, SubscriptionEnd, SubscriptionEvent};

/// A stream of messages and other events of a subscription. Dropping it unsubscribes.
///
/// ```no_run
/// # async fn example(client: frisbee_pubsub::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use frisbee_pubsub::SubscriptionEvent;
///
/// let mut orders = client.subscribe("orders.*.created").await?;
/// while let Some(event) = orders.next().await {
///     match event {
///         SubscriptionEvent::Message(message) => println!("{}: {:?}", message.subject, message.payload),
///         SubscriptionEvent::Missing(count) => println!("{count} messages are missing here"),
///         _ => {}
///     }
/// }
/// println!("over: {}", orders.end().expect("it ended"));
/// # Ok(())
/// # }
/// ```
pub struct Subscription {
    events: Box<dyn EventSource>,
    end: Option<SubscriptionEnd>,
}

/// Source of a subscription's events, implemented by backends. Dropping it unsubscribes.
pub trait EventSource: Send + Sync + 'static {
    /// Polls for the next event, or returns the reason for the end of the subscription.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SubscriptionEvent, SubscriptionEnd>>;
}

impl Subscription {
    /// Creates a subscription from its events. For implementations of [`Backend`](crate::Backend).
    pub fn new(events: Box<dyn EventSource>) -> Self {
        Self { events, end: None }
    }

    /// Returns the next event, or `None` after the end of the subscription.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken no event.
    pub async fn next(&mut self) -> Option<SubscriptionEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Returns the next message and skips all other events. Returns `None` after the end of the subscription.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken no message.
    pub async fn next_message(&mut self) -> Option<Message> {
        loop {
            if let SubscriptionEvent::Message(message) = self.next().await? {
                return Some(message);
            }
        }
    }

    /// Returns the reason for the end, after the subscription has ended.
    pub fn end(&self) -> Option<&SubscriptionEnd> {
        self.end.as_ref()
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<SubscriptionEvent>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.events.poll_event(cx)) {
            Ok(event) => Some(event),
            Err(end) => {
                self.end = Some(end);
                None
            }
        })
    }
}

impl Stream for Subscription {
    type Item = SubscriptionEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SubscriptionEvent>> {
        self.poll_event(cx)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("end", &self.end).finish_non_exhaustive()
    }
}
