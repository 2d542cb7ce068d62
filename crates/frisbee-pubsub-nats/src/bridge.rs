//! Bridges between a broker on frisbee and a cluster, without loops.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::HeaderMap;
use frisbee_pubsub::{
    Client, Message, Pattern, Policy, Publication, PublishError, RefusalCode, Subject, SubscribeError,
    SubscribeOptions, Subscription, SubscriptionEnd, SubscriptionEvent,
};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    Delivery, Durable, Nats, StreamError,
    subscription::{ORIGIN, origin},
};

/// A bridge between a broker on frisbee and a cluster, created by [`Nats::bridge`]. Dropping it stops it.
///
/// Every forwarded message has a mark, and no bridge forwards it again. In the cluster, the mark is a header with the name
/// of the original broker. At the broker, it is [`Message::is_forwarded`]. So messages never travel in loops, whatever
/// their contents, and a message crosses at most one cluster: bridges from one broker to several clusters do not connect
/// these clusters.
///
/// The bridge forwards requests too, and returns the first answer. A requester no longer learns immediately that there
/// are no subscribers, because the bridge is one.
pub struct Bridge {
    tasks: JoinSet<()>,
    shared: Arc<BridgeShared>,
}

/// A builder for a bridge; see [`Nats::bridge`].
#[must_use = "the bridge forwards nothing until `start` is awaited"]
pub struct BridgeBuilder {
    nats: Nats,
    broker: Client,
    name: String,
    out: Vec<Pattern>,
    incoming: Vec<Pattern>,
    durable: Vec<Durable>,
    policy: Policy,
}

/// Counters of the messages forwarded by a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeMetrics {
    /// Messages forwarded from the broker to the cluster.
    pub out: u64,
    /// Messages forwarded from the cluster to the broker.
    pub incoming: u64,
    /// Messages recognized as the bridge's own and discarded.
    pub returned: u64,
    /// Known losses: messages dropped because the bridge was too slow, or lost with a connection to the broker.
    pub missing: u64,
    /// Messages refused by the receiving side, for example because they are too large. Each attempt counts.
    pub refused: u64,
    /// Messages of durable subscriptions [terminated](Delivery::terminate) because the broker refuses them or because
    /// their subjects are longer or deeper than it allows. The stream keeps them.
    pub set_aside: u64,
}

impl Nats {
    /// Returns a builder for a bridge between a broker and this cluster.
    ///
    /// `broker` must be a client of the broker, not used for anything else. `name` is the broker's name, unique in this
    /// cluster.
    ///
    /// ```no_run
    /// # async fn example(broker: frisbee_pubsub::Broker) -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_pubsub_nats::Nats;
    /// use frisbee_pubsub::Pattern;
    ///
    /// let nats = Nats::connect("nats://one:4222,nats://two:4222").await?;
    /// let bridge = nats.bridge(broker.client().await?, "berlin").both_ways(Pattern::new("chat.>")?).start().await?;
    /// println!("{:?}", bridge.metrics());
    /// # Ok(())
    /// # }
    /// ```
    pub fn bridge(&self, broker: Client, name: impl Into<String>) -> BridgeBuilder {
        BridgeBuilder {
            nats: self.clone(),
            broker,
            name: name.into(),
            out: Vec::new(),
            incoming: Vec::new(),
            durable: Vec::new(),
            policy: Policy::default(),
        }
    }
}

impl BridgeBuilder {
    /// Forwards messages from the broker to the cluster. If a stream stores their subjects
    /// ([`NatsOptions::streams`](crate::NatsOptions::streams)), they are sent one after another, and each is repeated until the
    /// stream has stored it.
    pub fn out(mut self, pattern: Pattern) -> Self {
        self.out.push(pattern);
        self
    }

    /// Forwards messages from the cluster to the broker, at most once.
    pub fn incoming(mut self, pattern: Pattern) -> Self {
        self.incoming.push(pattern);
        self
    }

    /// Forwards messages in both directions.
    pub fn both_ways(self, pattern: Pattern) -> Self {
        self.out(pattern.clone()).incoming(pattern)
    }

    /// Forwards the messages of a durable subscription to the broker, at least once.
    ///
    /// Messages reach the broker one after another. Each is acknowledged after the broker has accepted it, while the next
    /// ones are on their way; at most 64 acknowledgements are open. Without an answer of the broker, a message is
    /// redelivered a second later. A message refused by the broker is [set aside](BridgeMetrics::set_aside). No other
    /// incoming pattern may match the same subjects.
    pub fn incoming_durable(mut self, durable: Durable) -> Self {
        self.durable.push(durable);
        self
    }

    /// Sets the policy for messages queued at the broker while the cluster takes none. Default [`Policy::DropNewest`].
    /// With [`Policy::Block`], publishers wait for the cluster, at most for the broker's
    /// [`stall_max`](frisbee_pubsub::BrokerLimits::stall_max).
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Subscribes on both sides and forwards all later messages.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing running.
    pub async fn start(self) -> Result<Bridge, SubscribeError> {
        let Self { nats, broker, name, out, incoming, durable, policy } = self;
        let mut tasks = JoinSet::new();
        let shared = Arc::new(BridgeShared {
            nats,
            broker,
            header: HeaderMap::from_iter([(
                ORIGIN.parse().expect("the name of the header is valid"),
                name.as_str().into(),
            )]),
            name,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            unreadable: durable.iter().map(Durable::count_unreadable).collect(),
            counts: BridgeCounters::default(),
        });
        for pattern in out {
            let subscription = shared.broker.subscribe(&pattern).policy(policy).await?;
            tasks.spawn(shared.clone().forward_out(pattern, policy, subscription));
        }
        for pattern in incoming {
            let mut options = SubscribeOptions::new(pattern);
            options.window = INCOMING_WINDOW;
            let ours = shared.clone();
            // Filter before the queue, so returning messages take no room in the window.
            let takes = move |headers: Option<&HeaderMap>| ours.is_foreign(origin(headers));
            let subscription = shared.nats.shared().subscribe(options, takes).await?;
            tasks.spawn(shared.clone().forward_in(subscription));
        }
        for durable in durable {
            tasks.spawn(shared.clone().forward_durable(durable));
        }
        Ok(Bridge { tasks, shared })
    }
}

impl Bridge {
    /// Returns the counters.
    pub fn metrics(&self) -> BridgeMetrics {
        let BridgeCounters { out, incoming, returned, missing, refused, set_aside } = &self.shared.counts;
        let [out, incoming, returned, missing, refused, set_aside] =
            [out, incoming, returned, missing, refused, set_aside].map(|count| count.load(Ordering::Relaxed));
        let unreadable: u64 = self.shared.unreadable.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        BridgeMetrics { out, incoming, returned, missing, refused, set_aside: set_aside + unreadable }
    }

    /// Waits until one direction or pattern stops, because a client was closed or a subscription ended. The log
    /// contains the reason. The others continue until the bridge is dropped.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has no effect.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("name", &self.shared.name).field("metrics", &self.metrics()).finish()
    }
}

struct BridgeShared {
    nats: Nats,
    broker: Client,
    name: String,
    /// Header with the name of the broker, added to all messages for the cluster.
    header: HeaderMap,
    requests: Arc<Semaphore>,
    /// Counters of the undecodable messages of each durable subscription.
    unreadable: Vec<Arc<AtomicU64>>,
    counts: BridgeCounters,
}

#[derive(Default)]
struct BridgeCounters {
    out: AtomicU64,
    incoming: AtomicU64,
    returned: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    set_aside: AtomicU64,
}

impl BridgeShared {
    async fn forward_out(self: Arc<Self>, pattern: Pattern, policy: Policy, mut subscription: Subscription) {
        loop {
            while let Some(event) = subscription.next().await {
                match event {
                    SubscriptionEvent::Message(message) if message.is_forwarded => add(&self.counts.returned, 1),
                    SubscriptionEvent::Message(message) => self.clone().send_out(message).await,
                    SubscriptionEvent::Missing(count) => add(&self.counts.missing, count),
                    _ => {}
                }
            }
            tracing::warn!("the bridge {:?} lost its subscription to {pattern}: {:?}", self.name, subscription.end());
            // Only a subscription ended for slowness can be renewed.
            let Some(SubscriptionEnd::TooSlow { missing }) = subscription.end() else { return };
            add(&self.counts.missing, *missing);
            match self.broker.subscribe(&pattern).policy(policy).await {
                Ok(again) => subscription = again,
                Err(error) => return tracing::warn!("the bridge stops forwarding {pattern}: {error}"),
            }
        }
    }

    async fn forward_in(self: Arc<Self>, mut subscription: Subscription) {
        while let Some(event) = subscription.next().await {
            match event {
                SubscriptionEvent::Message(message) => match message.reply.clone() {
                    Some(reply) => self.clone().ask_broker(message, reply),
                    // A retry would be refused again.
                    None => drop(self.send_in(&message).await),
                },
                SubscriptionEvent::Missing(count) => add(&self.counts.missing, count),
                _ => {}
            }
        }
        tracing::warn!("the bridge {:?} stops sending to the broker: {:?}", self.name, subscription.end());
    }

    async fn forward_durable(self: Arc<Self>, mut durable: Durable) {
        let mut settling = JoinSet::new();
        let why = loop {
            let next = tokio::select! {
                biased;
                Some(_) = settling.join_next() => continue,
                next = durable.next(), if settling.len() < SETTLING_MAX => next,
            };
            let delivery = match next {
                Ok(delivery) => delivery,
                Err(error) => break error.to_string(),
            };
            let sent = match self.is_foreign(delivery.origin()) {
                true => self.send_in(&delivery.message).await,
                false => Ok(()),
            };
            if let Err(PublishError::Closed) = sent {
                break "the client of the broker is closed".to_owned();
            }
            // An acknowledgement takes a round trip through the cluster. The broker need not wait for it.
            settling.spawn(self.clone().settle(delivery, sent));
        };
        tracing::warn!("the bridge {:?} stops sending to the broker: {why}", self.name);
        // Messages without these acknowledgements would arrive twice.
        while settling.join_next().await.is_some() {}
    }

    /// Acknowledges a stored message that the broker has accepted, and handles one it has not.
    async fn settle(self: Arc<Self>, delivery: Delivery, sent: Result<(), PublishError>) {
        let settled = match sent {
            Ok(()) => delivery.acknowledge().await,
            Err(error) => self.handle_refused_delivery(delivery, &error).await,
        };
        if let Err(error) = settled {
            tracing::debug!("a message will be redelivered: {error}");
        }
    }

    /// Handles a stored message after the broker refused it: retries it later, or sets it aside if a retry is useless.
    async fn handle_refused_delivery(&self, delivery: Delivery, error: &PublishError) -> Result<(), StreamError> {
        let is_lasting = match error {
            PublishError::Lost { .. } | PublishError::NotConnected => false,
            PublishError::TooLarge { .. } | PublishError::InvalidSubject(_) => true,
            PublishError::Refused(refusal) => match refusal.code {
                RefusalCode::Malformed | RefusalCode::Denied => true,
                RefusalCode::ShuttingDown => false,
                _ => delivery.deliveries >= DELIVERIES_MAX,
            },
            _ => delivery.deliveries >= DELIVERIES_MAX,
        };
        if !is_lasting {
            return delivery.refuse_for(RETRY_PAUSE).await;
        }
        tracing::warn!("the bridge {:?} sets message {} aside: {error}", self.name, delivery.sequence);
        add(&self.counts.set_aside, 1);
        delivery.terminate().await
    }

    /// Returns `true` if a message in the cluster comes from another broker.
    fn is_foreign(&self, origin: Option<&str>) -> bool {
        let is_foreign = origin.is_none_or(|origin| origin != self.name);
        if !is_foreign {
            add(&self.counts.returned, 1);
        }
        is_foreign
    }

    async fn send_out(self: Arc<Self>, message: Message) {
        let Some(reply) = message.reply.clone() else {
            let mut header = self.header.clone();
            let publication = Publication::new(&message.subject, message.payload);
            return self
                .count(&self.counts.out, &self.nats.shared().publish_until_stored(publication, &mut header).await);
        };
        self.clone().ask(async move {
            let request = async_nats::Request::new().payload(message.payload).headers(self.header.clone());
            let answer = self.nats.shared().request(&message.subject, request.timeout(Some(ANSWER_MAX))).await;
            add(&self.counts.out, 1);
            if let Ok(answer) = answer {
                // An answer is delivered at most once, like any message. Ignore a failure.
                let answer = Publication::new(&reply, answer.payload).forwarded();
                let _ = self.broker.send(answer).await;
            }
        });
    }

    async fn send_in(&self, message: &Message) -> Result<(), PublishError> {
        let publication = Publication::new(&message.subject, message.payload.clone()).forwarded();
        let published = self.broker.send_acknowledged(publication).await;
        self.count(&self.counts.incoming, &published);
        published.map(drop)
    }

    fn ask_broker(self: Arc<Self>, message: Message, reply: Subject) {
        let bridge = self.clone();
        self.ask(async move {
            let request = Publication::new(&message.subject, message.payload).forwarded();
            let answer = bridge.broker.send_request(request).await;
            add(&bridge.counts.incoming, 1);
            if let Ok(answer) = answer {
                // If this fails, the requester is gone and nothing is lost.
                let _ = bridge.nats.client().publish(&reply, answer.payload).await;
            }
        });
    }

    /// Spawns a task for a request. Refuses the request if there are too many pending ones.
    fn ask(self: Arc<Self>, asking: impl Future<Output = ()> + Send + 'static) {
        match self.requests.clone().try_acquire_owned() {
            Ok(place) => {
                tokio::spawn(async move {
                    asking.await;
                    drop(place);
                });
            }
            Err(_) => add(&self.counts.refused, 1),
        }
    }

    fn count<T>(&self, count: &AtomicU64, published: &Result<T, PublishError>) {
        match published {
            Ok(_) => add(count, 1),
            Err(error) => {
                tracing::warn!("the bridge {:?} could not forward a message: {error}", self.name);
                add(&self.counts.refused, 1);
            }
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Maximum number of open acknowledgements per durable subscription.
const SETTLING_MAX: usize = 64;
/// Maximum number of deliveries of a message if the broker keeps refusing it for a temporary reason.
const DELIVERIES_MAX: u64 = 10;
/// Pause before such a message is offered again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of an answer from the cluster.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Maximum number of pending requests in both directions together.
const REQUESTS_MAX: usize = 1024;
/// Bytes of messages from the cluster buffered for the broker.
const INCOMING_WINDOW: u32 = 16 * 1024 * 1024;
