//! The way of messages between a broker on frisbee and a cluster, so that they go round in no circle.

mod echoes;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::HeaderMap;
use frisbee_pubsub::{
    Client, Event, Message, Pattern, Policy, Publication, PublishError, RefusalCode, SubscribeError, SubscribeOptions,
    Subscription, SubscriptionEnd,
};
use tokio::{sync::Semaphore, task::JoinSet};

use self::echoes::Echoes;
use crate::{Delivery, Durable, Nats, StreamError, subscription::lock};

/// Hands messages from a broker on frisbee to a cluster, and back. Made by [`Nats::bridge`]; ends when it is dropped.
///
/// A message that came from the cluster does not go back there, and one that this bridge brought to the cluster does not come
/// back. For that, messages in the cluster have a header with the name of the broker that they come from, and the bridge knows
/// what it publishes at its broker when it comes back as a subscriber. If the broker tells it that something is missing, it forgets
/// those it waits for, and the other brokers may get one a second time; never more often. Messages with the same subject and the
/// same bytes are the same to it: where they are published on both sides at the same moment, one may take the other's place.
///
/// A broker has one bridge, to one cluster. A message that asks for an answer is asked on the other side as well, and the first answer
/// comes back; a requester does not learn at once that nobody is there, for there is the bridge.
pub struct Bridge {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

/// A bridge that is about to be made; see [`Nats::bridge`].
#[must_use = "nothing is handed on before `start` is awaited"]
pub struct BridgeBuilder {
    nats: Nats,
    broker: Client,
    name: String,
    out: Vec<Pattern>,
    incoming: Vec<Pattern>,
    durable: Vec<Durable>,
    policy: Policy,
}

/// The messages that a bridge handed on so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeMetrics {
    /// From the broker to the cluster.
    pub out: u64,
    /// From the cluster to the broker.
    pub incoming: u64,
    /// Messages that came back, and were let go.
    pub returned: u64,
    /// Messages that the bridge was too slow for, or that were lost with a connection to the broker, as far as they were counted.
    pub missing: u64,
    /// Messages that the other side did not take, such as too large ones. One that is tried again counts again.
    pub refused: u64,
    /// Messages of durable subscriptions that were [terminated](Delivery::terminate), because the broker does not take them or their
    /// subjects are longer or deeper than its may be. The stream keeps them.
    pub set_aside: u64,
}

impl Nats {
    /// Begins to make a bridge between a broker and this cluster. The client is of the broker and serves nobody else; the name is
    /// the broker's, and no other broker at this cluster has it.
    ///
    /// ```no_run
    /// # async fn example(broker: frisbee_pubsub::Broker) -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_nats::Nats;
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
    /// Hands what is published at the broker to the cluster. Messages of subjects that a stream keeps
    /// ([`Options::streams`](crate::Options::streams)) are published until it has stored them, one after the other.
    pub fn out(mut self, pattern: Pattern) -> Self {
        self.out.push(pattern);
        self
    }

    /// Hands what is published in the cluster to the broker, at most once.
    pub fn incoming(mut self, pattern: Pattern) -> Self {
        self.incoming.push(pattern);
        self
    }

    /// Hands messages both ways.
    pub fn both_ways(self, pattern: Pattern) -> Self {
        self.out(pattern.clone()).incoming(pattern)
    }

    /// Hands the messages of a durable subscription to the broker, at least once: each is acknowledged when the broker has it, and
    /// comes again if the broker could not be asked. One that the broker does not take is [set aside](BridgeMetrics::set_aside). No
    /// other pattern for what comes in may have the same subjects.
    pub fn incoming_durable(mut self, durable: Durable) -> Self {
        self.durable.push(durable);
        self
    }

    /// Sets what becomes of messages at the broker while the cluster takes none. Default [`Policy::DropNewest`];
    /// [`Policy::Block`] has publishers wait for the cluster, for as long as the broker lets them
    /// ([`stall_max`](frisbee_pubsub::Limits::stall_max)).
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Subscribes on both sides, and hands on what comes from then on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a dropped call.
    pub async fn start(self) -> Result<Bridge, SubscribeError> {
        let Self { nats, broker, name, out, incoming, durable, policy } = self;
        let mut tasks = JoinSet::new();
        let shared = Arc::new(Shared {
            nats,
            broker,
            header: HeaderMap::from_iter([(ORIGIN.parse().expect("it has no space"), name.as_str().into())]),
            name,
            out,
            echoes: Mutex::default(),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            unreadable: durable.iter().map(Durable::count_unreadable).collect(),
            counts: Counts::default(),
        });
        for pattern in &shared.out {
            let subscription = shared.broker.subscribe(pattern).policy(policy).await?;
            tasks.spawn(shared.clone().hand_out(pattern.clone(), policy, subscription));
        }
        for pattern in incoming {
            let mut options = SubscribeOptions::new(pattern);
            options.window = INCOMING_WINDOW;
            let ours = shared.clone();
            let takes = move |headers: Option<&HeaderMap>| ours.is_foreign(headers);
            let subscription = shared.nats.shared().subscribe(options, takes).await?;
            tasks.spawn(shared.clone().hand_in(subscription));
        }
        for durable in durable {
            tasks.spawn(shared.clone().hand_in_durable(durable));
        }
        Ok(Bridge { tasks, shared })
    }
}

impl Bridge {
    /// Returns what it handed on so far.
    pub fn metrics(&self) -> BridgeMetrics {
        let Counts { out, incoming, returned, missing, refused, set_aside } = &self.shared.counts;
        let [out, incoming, returned, missing, refused, set_aside] =
            [out, incoming, returned, missing, refused, set_aside].map(|count| count.load(Ordering::Relaxed));
        let unreadable: u64 = self.shared.unreadable.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        BridgeMetrics { out, incoming, returned, missing, refused, set_aside: set_aside + unreadable }
    }

    /// Waits until one of its ways has ended, because a client was closed or its subscription was ended: the log says why. The
    /// others go on until the bridge is dropped.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has changed nothing.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("name", &self.shared.name).field("metrics", &self.metrics()).finish()
    }
}

struct Shared {
    nats: Nats,
    broker: Client,
    name: String,
    /// Tells other bridges, and this one, where a message comes from.
    header: HeaderMap,
    out: Vec<Pattern>,
    /// Messages from the cluster that will come back from the broker.
    echoes: Mutex<Echoes>,
    requests: Arc<Semaphore>,
    /// Counters of the messages that each durable subscription could not read.
    unreadable: Vec<Arc<AtomicU64>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    out: AtomicU64,
    incoming: AtomicU64,
    returned: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    set_aside: AtomicU64,
}

impl Shared {
    async fn hand_out(self: Arc<Self>, pattern: Pattern, policy: Policy, mut subscription: Subscription) {
        loop {
            while let Some(event) = subscription.next().await {
                match event {
                    Event::Message(message) if lock(&self.echoes).take(&message) => add(&self.counts.returned, 1),
                    Event::Message(message) => self.clone().send_out(message).await,
                    // Nobody knows whether one of those is missing that were to come back.
                    Event::Missing(count) => {
                        add(&self.counts.missing, count);
                        lock(&self.echoes).clear();
                    }
                    _ => lock(&self.echoes).clear(),
                }
            }
            tracing::warn!("the bridge of {:?} was cut off from {pattern}: {:?}", self.name, subscription.end());
            let Some(SubscriptionEnd::TooSlow { missing }) = subscription.end() else { return };
            add(&self.counts.missing, *missing);
            lock(&self.echoes).clear();
            match self.broker.subscribe(&pattern).policy(policy).await {
                Ok(again) => subscription = again,
                Err(error) => return tracing::warn!("the bridge hands out no more of {pattern}: {error}"),
            }
        }
    }

    async fn hand_in(self: Arc<Self>, mut subscription: Subscription) {
        while let Some(event) = subscription.next().await {
            match event {
                Event::Message(message) => {
                    // A broker that refuses it does so again.
                    let _ = self.send_in(message).await;
                }
                Event::Missing(count) => add(&self.counts.missing, count),
                _ => {}
            }
        }
        tracing::warn!("the bridge of {:?} hands in no more: {:?}", self.name, subscription.end());
    }

    async fn hand_in_durable(self: Arc<Self>, mut durable: Durable) {
        loop {
            let delivery = match durable.next().await {
                Ok(delivery) => delivery,
                Err(error) => break tracing::warn!("the bridge of {:?} hands in no more: {error}", self.name),
            };
            let sent =
                if self.is_foreign(delivery.headers()) { self.send_in(delivery.message.clone()).await } else { Ok(()) };
            let settled = match sent {
                Ok(()) => delivery.acknowledge().await,
                Err(PublishError::Closed) => {
                    break tracing::warn!(
                        "the bridge of {:?} hands in no more: the broker's client is closed",
                        self.name
                    );
                }
                Err(error) => self.keep(delivery, &error).await,
            };
            if let Err(error) = settled {
                tracing::debug!("a message will come again: {error}");
            }
        }
    }

    /// Keeps a message of a stream that could not be handed on: to come again, or aside if that would help nothing.
    async fn keep(&self, delivery: Delivery, error: &PublishError) -> Result<(), StreamError> {
        let is_lasting = match error {
            // It comes again when its time is over.
            PublishError::Lost { .. } | PublishError::NotConnected => return Ok(()),
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
        tracing::warn!("the bridge of {:?} sets message {} aside: {error}", self.name, delivery.sequence);
        add(&self.counts.set_aside, 1);
        delivery.terminate().await
    }

    /// Tells whether a message in the cluster comes from elsewhere.
    fn is_foreign(&self, headers: Option<&HeaderMap>) -> bool {
        let origin = headers.and_then(|headers| headers.get(ORIGIN));
        let is_foreign = origin.is_none_or(|origin| origin.as_str() != self.name);
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
                .count(&self.counts.out, &self.nats.shared().publish_until_kept(publication, &mut header).await);
        };
        self.clone().ask(async move {
            let request = async_nats::Request::new().payload(message.payload).headers(self.header.clone());
            let answer = self.nats.shared().request(&message.subject, request.timeout(Some(ANSWER_MAX))).await;
            add(&self.counts.out, 1);
            if let Ok(answer) = answer {
                // The broker takes answers as it takes anything.
                let _ = self.broker.publish(&reply, answer.payload).await;
            }
        });
    }

    async fn send_in(self: &Arc<Self>, message: Message) -> Result<(), PublishError> {
        let will_return = self.out.iter().filter(|pattern| pattern.matches(&message.subject)).count();
        lock(&self.echoes).expect(&message, will_return);
        let Some(reply) = message.reply.clone() else {
            let published = self.broker.publish_acknowledged(&message.subject, message.payload.clone()).await;
            if published.is_err() {
                lock(&self.echoes).forget(&message, will_return);
            }
            self.count(&self.counts.incoming, &published);
            return published.map(drop);
        };
        let bridge = self.clone();
        self.clone().ask(async move {
            let answer = bridge.broker.request(&message.subject, message.payload.clone()).await;
            add(&bridge.counts.incoming, 1);
            if let Ok(answer) = answer {
                // A requester that has gone misses nothing.
                let _ = bridge.nats.client().publish(&reply, answer.payload).await;
            }
        });
        Ok(())
    }

    /// Waits for an answer beside everything else. Beyond a limit, nobody asks.
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
                tracing::warn!("the bridge of {:?} could not hand on a message: {error}", self.name);
                add(&self.counts.refused, 1);
            }
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// The header with the name of the broker from which a message comes.
const ORIGIN: &str = "Frisbee-Broker";
/// The number of times a message of a stream is offered to a broker that refuses it for a reason that may pass.
const DELIVERIES_MAX: u64 = 10;
/// The time until it is offered again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time that an answer of the cluster may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Questions of one side that wait for an answer of the other.
const REQUESTS_MAX: usize = 1024;
/// Bytes of messages from the cluster that may wait for the broker.
const INCOMING_WINDOW: u32 = 16 * 1024 * 1024;
