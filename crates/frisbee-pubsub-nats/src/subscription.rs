//! Subscriptions: a task moves arriving messages into a queue with a policy, and the subscriber polls the queue.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use async_nats::{HeaderMap, HeaderValue, Subscriber};
use frisbee_pubsub::{
    EventSource, Message, Pattern, Refusal, RefusalCode, Subject, SubscribeOptions, SubscriptionEnd, SubscriptionEvent,
};
use futures_core::Stream;
use tokio::task::AbortHandle;

use crate::queue::EventQueue;

/// The queues of a connection's subscriptions. It passes changes of the connection on to them.
#[derive(Debug, Default)]
pub(crate) struct QueueRegistry {
    queues: Mutex<Vec<(Pattern, Weak<Mutex<EventQueue>>)>>,
    closing: AtomicBool,
}

impl QueueRegistry {
    /// Reports a new connection to all subscriptions.
    pub(crate) fn reconnected(&self) {
        self.each(|_, queue| queue.reconnected());
    }

    /// Records that this side is closing the connection.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Ends all subscriptions, after the connection has ended.
    pub(crate) fn finish(&self) {
        self.each(|_, queue| queue.finish(self.end()));
    }

    /// Returns the reason for subscriptions without a more specific one.
    fn end(&self) -> SubscriptionEnd {
        if self.is_closing() { SubscriptionEnd::Closed } else { SubscriptionEnd::Lost }
    }

    /// Ends the subscriptions to a pattern after the server denied permission for it.
    pub(crate) fn deny(&self, denied: &str) {
        self.each(|pattern, queue| {
            if pattern.as_str() == denied {
                let text = format!("this client may not subscribe to {denied:?}");
                queue.finish(SubscriptionEnd::Refused(Refusal::new(RefusalCode::Denied, text)));
            }
        });
    }

    fn add(&self, pattern: Pattern, queue: &Arc<Mutex<EventQueue>>) {
        lock(&self.queues).push((pattern, Arc::downgrade(queue)));
    }

    fn each(&self, act: impl Fn(&Pattern, &mut EventQueue)) {
        lock(&self.queues).retain(|(pattern, queue)| {
            // Remove the entries of dropped subscriptions in passing.
            let Some(queue) = queue.upgrade() else { return false };
            act(pattern, &mut lock(&queue));
            true
        });
    }
}

/// Events of one subscription.
pub(crate) struct NatsEvents {
    queue: Arc<Mutex<EventQueue>>,
    registry: Arc<QueueRegistry>,
    /// The task moving messages. `None` before the subscription is established.
    task: Option<AbortHandle>,
}

impl NatsEvents {
    /// Creates the queue and registers it for changes of the connection.
    ///
    /// Call it before the request to the server. The server may deny the subscription immediately, and `QueueRegistry::deny`
    /// must find the queue then.
    pub(crate) fn new(options: &SubscribeOptions, registry: Arc<QueueRegistry>) -> Self {
        let queue = Arc::new(Mutex::new(EventQueue::new(options.policy, options.window)));
        registry.add(options.pattern.clone(), &queue);
        Self { queue, registry, task: None }
    }

    /// Spawns the task moving messages into the queue. Messages with headers rejected by `takes` are discarded.
    pub(crate) fn start(
        &mut self,
        subscriber: Subscriber,
        takes: impl Fn(Option<&HeaderMap>) -> bool + Send + 'static,
    ) {
        let moving = move_messages(subscriber, self.queue.clone(), self.registry.clone(), takes);
        self.task = Some(tokio::spawn(moving).abort_handle());
    }
}

impl EventSource for NatsEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SubscriptionEvent, SubscriptionEnd>> {
        lock(&self.queue).poll(cx)
    }
}

impl Drop for NatsEvents {
    fn drop(&mut self) {
        // Aborting the task drops the subscriber, which unsubscribes.
        if let Some(task) = &self.task {
            task.abort();
        }
        lock(&self.registry.queues).retain(|(_, queue)| queue.as_ptr() != Arc::as_ptr(&self.queue));
    }
}

async fn move_messages(
    mut subscriber: Subscriber,
    queue: Arc<Mutex<EventQueue>>,
    registry: Arc<QueueRegistry>,
    takes: impl Fn(Option<&HeaderMap>) -> bool,
) {
    while let Some(message) = poll_fn(|cx| Pin::new(&mut subscriber).poll_next(cx)).await {
        if !takes(message.headers.as_ref()) {
            continue;
        }
        let mut queue = lock(&queue);
        match convert(message) {
            Some(message) => queue.push(message),
            None => queue.miss(1),
        }
    }
    // Runs after the last message. An earlier reason takes precedence.
    lock(&queue).finish(registry.end());
}

/// Converts a message. Returns `None` if a subject is longer or deeper than `frisbee-pubsub` allows.
pub(crate) fn convert(message: async_nats::Message) -> Option<Message> {
    let reply = message.reply.map(|reply| Subject::new(&reply)).transpose().ok()?;
    let mut converted = Message::new(Subject::new(&message.subject).ok()?, message.payload);
    converted.reply = reply;
    converted.is_forwarded = origin(message.headers.as_ref()).is_some();
    Some(converted)
}

/// Returns the name of the broker from which a bridge has brought a message.
pub(crate) fn origin(headers: Option<&HeaderMap>) -> Option<&str> {
    headers?.get(ORIGIN).map(HeaderValue::as_str)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Header with the name of the message's original broker.
pub(crate) const ORIGIN: &str = "Frisbee-Broker";
