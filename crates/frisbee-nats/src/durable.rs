//! Messages that streams of JetStream keep, and subscriptions that remember how far they have come.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_nats::{
    HeaderMap,
    jetstream::{
        ErrorCode,
        consumer::{
            AckPolicy, Consumer, DeliverPolicy,
            pull::{self, MessagesErrorKind},
        },
        context::CreateStreamErrorKind,
        stream::{Config, ConsumerErrorKind, StorageType},
    },
};
use frisbee_pubsub::{Message, Pattern};
use futures_core::Stream;
use tokio::time::Instant;

use crate::{Nats, StreamError, nats::connects, subscription::convert};

/// The settings of a stream: which messages a cluster keeps, and for how long.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Its name, without dots and spaces.
    pub name: String,
    /// The subjects that it keeps. No other stream may keep any of them.
    pub subjects: Vec<Pattern>,
    /// The servers that have each message. Default 1. Three go on when one dies; two wait for it to come back, and lose nothing.
    pub replicas: usize,
    /// Bytes that it keeps; the oldest messages go first. No limit by default.
    pub len_max: Option<u64>,
    /// The time for which it keeps a message. No limit by default.
    pub age_max: Option<Duration>,
    /// The time within which a message that is published again is known. Default 2 minutes.
    pub duplicates: Duration,
    /// True if it is in memory, and gone when all its servers are.
    pub is_in_memory: bool,
}

impl StreamOptions {
    /// Makes options with everything else as it is by default.
    pub fn new(name: impl Into<String>, subjects: impl IntoIterator<Item = Pattern>) -> Self {
        Self {
            name: name.into(),
            subjects: subjects.into_iter().collect(),
            replicas: 1,
            len_max: None,
            age_max: None,
            duplicates: Duration::from_secs(120),
            is_in_memory: false,
        }
    }
}

impl Nats {
    /// Makes a stream, unless there is one of that name, which stays as it is. While servers elect a leader, that takes as long as an
    /// [acknowledgement](crate::Options::acknowledge_max) may.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have made it.
    pub async fn make_stream(&self, options: &StreamOptions) -> Result<(), StreamError> {
        let config = Config {
            name: options.name.clone(),
            subjects: options.subjects.iter().map(|subject| subject.as_str().to_owned()).collect(),
            num_replicas: options.replicas,
            max_bytes: options.len_max.map_or(-1, |len| i64::try_from(len).unwrap_or(i64::MAX)),
            max_age: options.age_max.unwrap_or_default(),
            duplicate_window: options.duplicates,
            storage: if options.is_in_memory { StorageType::Memory } else { StorageType::File },
            ..Config::default()
        };
        let shared = self.shared();
        let deadline = Instant::now() + shared.options.acknowledge_max;
        loop {
            let connection = connects(&shared.client);
            let Err(error) = shared.jetstream.get_or_create_stream(config.clone()).await else { return Ok(()) };
            // Servers that have not found each other, or a leader, refuse for now.
            let is_lasting = matches!(error.kind(), CreateStreamErrorKind::JetStream(code) if !is_passing(&code));
            if is_lasting || Instant::now() > deadline {
                return Err(StreamError::failed(error));
            }
            shared.pause(connection).await;
        }
    }

    /// Begins to subscribe to what a stream keeps. The cluster remembers by this name how far the subscription has come; all who
    /// use one name share its messages.
    ///
    /// ```no_run
    /// # async fn example(nats: frisbee_nats::Nats) -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_nats::{Start, StreamOptions};
    /// use frisbee_pubsub::Pattern;
    ///
    /// nats.make_stream(&StreamOptions::new("ORDERS", [Pattern::new("orders.>")?])).await?;
    /// let mut orders = nats.durable("ORDERS", "billing").start(Start::All).subscribe().await?;
    /// loop {
    ///     let order = orders.next().await?;
    ///     println!("{}: {:?}", order.sequence, order.message.payload);
    ///     order.acknowledge().await?;
    /// }
    /// # }
    /// ```
    pub fn durable(&self, stream: impl Into<String>, name: impl Into<String>) -> DurableBuilder {
        DurableBuilder {
            nats: self.clone(),
            stream: stream.into(),
            name: name.into(),
            pattern: None,
            start: Start::All,
            acknowledge_max: Duration::from_secs(30),
            window: 64,
        }
    }
}

/// The place in a stream from which a new durable subscription reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Everything that the stream has.
    All,
    /// Messages that are stored from now on.
    New,
    /// The message with this number and those after it.
    Sequence(u64),
    /// Messages that were stored from this time on.
    Time(SystemTime),
}

/// A durable subscription that is about to be made; see [`Nats::durable`].
#[derive(Clone, Debug)]
#[must_use = "nothing is subscribed to before `subscribe` is awaited"]
pub struct DurableBuilder {
    nats: Nats,
    stream: String,
    name: String,
    pattern: Option<Pattern>,
    start: Start,
    acknowledge_max: Duration,
    window: usize,
}

impl DurableBuilder {
    /// Sets which subjects of the stream it is for. Default all.
    pub fn pattern(mut self, pattern: Pattern) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Sets where it starts if it is new. Default [`Start::All`]. One that exists goes on where it was, with the settings that it
    /// was made with.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets the time after which a message that was not acknowledged comes again. Default 30 s.
    pub fn acknowledge_max(mut self, limit: Duration) -> Self {
        self.acknowledge_max = limit;
        self
    }

    /// Sets how many messages may wait in this process. Default 64.
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// Subscribes. While servers elect a leader, that takes as long as an [acknowledgement](crate::Options::acknowledge_max) may.
    ///
    /// # Cancel safety
    ///
    /// The cluster may remember a subscription that nobody has.
    pub async fn subscribe(self) -> Result<Durable, StreamError> {
        let deadline = Instant::now() + self.nats.shared().options.acknowledge_max;
        let mut durable = Durable { settings: self, messages: None, unreadable: Arc::default() };
        while let Err(error) = durable.open().await {
            if error.is_final() || Instant::now() > deadline {
                return Err(error);
            }
            durable.pause().await;
        }
        Ok(durable)
    }

    fn config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.acknowledge_max,
            filter_subject: self.pattern.as_ref().map_or(String::new(), |pattern| pattern.as_str().to_owned()),
            deliver_policy: match self.start {
                Start::All => DeliverPolicy::All,
                Start::New => DeliverPolicy::New,
                Start::Sequence(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
                Start::Time(time) => DeliverPolicy::ByStartTime { start_time: time.into() },
            },
            ..pull::Config::default()
        }
    }
}

/// A subscription to the messages of a stream. Made by [`Nats::durable`].
///
/// It goes on by itself when servers die, for as long as it takes. When it is dropped, the cluster remembers how far it has come.
pub struct Durable {
    settings: DurableBuilder,
    /// `None` until there is a leader to ask.
    messages: Option<pull::Stream>,
    unreadable: Arc<AtomicU64>,
}

impl Durable {
    /// Returns the next message, which comes again if it is not acknowledged in time. A message whose subject is longer or deeper
    /// than a [`Subject`](frisbee_pubsub::Subject) may be is [terminated](Delivery::terminate) and [counted](Self::unreadable).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has taken no message.
    pub async fn next(&mut self) -> Result<Delivery, StreamError> {
        loop {
            if self.settings.nats.shared().is_closed() {
                return Err(StreamError::Closed);
            }
            let Some(messages) = &mut self.messages else {
                match self.open().await {
                    Ok(()) => {}
                    Err(error) if error.is_final() => return Err(error),
                    Err(error) => {
                        tracing::debug!("the subscription {:?} waits: {error}", self.settings.name);
                        self.pause().await;
                    }
                }
                continue;
            };
            match poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx)).await {
                Some(Ok(message)) => match Delivery::new(message, &self.settings.nats) {
                    Ok(delivery) => return Ok(delivery),
                    Err(unreadable) => self.set_aside(unreadable).await,
                },
                Some(Err(error)) if error.kind() == MessagesErrorKind::ConsumerDeleted => {
                    return Err(StreamError::Deleted);
                }
                // Its leader has gone, or the connection. Both come back, perhaps elsewhere.
                Some(Err(_)) | None => self.messages = None,
            }
        }
    }

    /// Returns the number of messages that this subscription has terminated because it could not read them. The stream keeps them.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the counter of [`unreadable`](Self::unreadable), which goes on while the subscription belongs to somebody else.
    pub(crate) fn count_unreadable(&self) -> Arc<AtomicU64> {
        self.unreadable.clone()
    }

    /// Terminates a message that would come again and again, and be read no better.
    async fn set_aside(&self, Unreadable { reply, why }: Unreadable) {
        tracing::warn!("the subscription {:?} sets a message aside: {why}", self.settings.name);
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        if let Some(reply) = reply {
            // If this is lost, it comes again and is terminated then.
            let _ = self.settings.nats.shared().client.publish(reply, TERMINATE.into()).await;
        }
    }

    async fn open(&mut self) -> Result<(), StreamError> {
        let settings = &self.settings;
        let stream = settings.nats.shared().jetstream.get_stream_no_info(&settings.stream).await;
        let stream = stream.map_err(StreamError::failed)?;
        let consumer: Consumer<pull::Config> = stream
            .get_or_create_consumer(&settings.name, settings.config())
            .await
            .map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(code) if code.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                StreamError::NoStream(settings.stream.clone())
            }
            _ => StreamError::failed(error),
        })?;
        let messages = consumer.stream().max_messages_per_batch(settings.window).expires(ASK_MAX).heartbeat(HEARTBEAT);
        self.messages = Some(messages.messages().await.map_err(StreamError::failed)?);
        Ok(())
    }

    async fn pause(&self) {
        let shared = self.settings.nats.shared();
        shared.pause(connects(&shared.client)).await;
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A message of a durable subscription.
#[derive(Debug)]
pub struct Delivery {
    /// The message. Where it asks for an answer, the stream did not keep that.
    pub message: Message,
    /// Its number in the stream.
    pub sequence: u64,
    /// The time when it was stored.
    pub stored: SystemTime,
    /// The number of times it was delivered, this one included.
    pub deliveries: u64,
    nats: Nats,
    reply: async_nats::Subject,
    headers: Option<HeaderMap>,
}

/// A message that is none for a subscriber.
struct Unreadable {
    /// The way to acknowledge it, if it has one.
    reply: Option<async_nats::Subject>,
    why: String,
}

impl Delivery {
    fn new(message: async_nats::jetstream::Message, nats: &Nats) -> Result<Self, Unreadable> {
        let info = message.info().map(|info| (info.stream_sequence, SystemTime::from(info.published), info.delivered));
        let (sequence, stored, deliveries) = match info {
            Ok(info) => info,
            Err(error) => return Err(Unreadable { reply: None, why: error.to_string() }),
        };
        let mut message = message.message;
        let Some(reply) = message.reply.take() else {
            return Err(Unreadable { reply: None, why: "it has no way to acknowledge it".into() });
        };
        let (subject, headers) = (message.subject.clone(), message.headers.take());
        let Some(message) = convert(message) else {
            let why = format!("message {sequence}, the subject {subject:?} is longer or deeper than subjects may be");
            return Err(Unreadable { reply: Some(reply), why });
        };
        let deliveries = u64::try_from(deliveries).unwrap_or_default();
        Ok(Self { message, sequence, stored, deliveries, nats: nats.clone(), reply, headers })
    }

    pub(crate) fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// Says that the message is dealt with, and waits until the cluster has noted that; while servers elect a leader, as long as an
    /// [acknowledgement](crate::Options::acknowledge_max) may take. If this fails, the message may come again; also if the only server
    /// that noted it is killed right then.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have acknowledged it.
    pub async fn acknowledge(self) -> Result<(), StreamError> {
        self.settle("+ACK").await
    }

    /// Gives the message up: it comes to none of those who share the subscription any more. The stream keeps it, and the cluster tells
    /// of it under `$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.<stream>.<subscription>`. Waits as
    /// [`acknowledge`](Self::acknowledge) does.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have terminated it.
    pub async fn terminate(self) -> Result<(), StreamError> {
        self.settle(TERMINATE).await
    }

    async fn settle(self, word: &'static str) -> Result<(), StreamError> {
        let shared = self.nats.shared();
        let deadline = Instant::now() + shared.options.acknowledge_max;
        loop {
            // It is noted once, however often it is said.
            let request = async_nats::Request::new().payload(word.into()).timeout(Some(shared.options.attempt_max()));
            let connection = connects(&shared.client);
            let asked =
                shared.while_connected(connection, shared.client.send_request(self.reply.clone(), request)).await;
            match asked {
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) if Instant::now() > deadline => return Err(StreamError::failed(error)),
                _ if shared.is_closed() => return Err(StreamError::Closed),
                _ => shared.pause(connection).await,
            }
        }
    }

    /// Gives the message back as [`refuse`](Self::refuse) does, to come again after this time.
    pub(crate) async fn refuse_for(self, pause: Duration) -> Result<(), StreamError> {
        let word = format!("-NAK {{\"delay\": {}}}", pause.as_nanos());
        let published = self.nats.shared().client.publish(self.reply, word.into()).await;
        published.map_err(StreamError::failed)
    }

    /// Gives the message back, to come again, to whoever shares the subscription.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has given it back or not.
    pub async fn refuse(self) -> Result<(), StreamError> {
        let published = self.nats.shared().client.publish(self.reply, "-NAK".into()).await;
        published.map_err(StreamError::failed)
    }
}

/// Tells whether JetStream may answer otherwise in a moment.
fn is_passing(error: &async_nats::jetstream::Error) -> bool {
    error.code() == 503 || [ErrorCode::CLUSTER_NO_PEERS, ErrorCode::CLUSTER_NOT_LEADER].contains(&error.error_code())
}

impl StreamError {
    /// Tells whether trying again is of no use.
    fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// Says that a message is not to come again.
const TERMINATE: &str = "+TERM";
/// The time for which a server keeps a question for messages.
const ASK_MAX: Duration = Duration::from_secs(10);
/// The time between two signs of life of a server that has no messages. After twice as long it counts as dead.
const HEARTBEAT: Duration = Duration::from_secs(1);
