//! JetStream streams, and durable subscriptions to their messages.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use async_nats::jetstream::{
    ErrorCode,
    consumer::{
        AckPolicy, Consumer, DeliverPolicy,
        pull::{self, MessagesErrorKind},
    },
    context::CreateStreamErrorKind,
    stream::{Config, ConsumerErrorKind, StorageType},
};
use frisbee_pubsub::{Message, Pattern};
use futures_core::Stream;
use tokio::time::Instant;

use crate::{
    Nats, StreamError,
    nats::{connection_count, round_trip},
    subscription::{convert, origin},
};

/// Options of a stream: the stored subjects, and the limits on storage.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Name of the stream, without dots and spaces.
    pub name: String,
    /// Stored subjects. They must not overlap with those of another stream.
    pub subjects: Vec<Pattern>,
    /// Number of servers with a copy of each message. Default 1. With three, the stream survives the loss of one server
    /// without a pause. With two, it waits for the server to return, but loses nothing.
    pub replicas: usize,
    /// Maximum size in bytes. The oldest messages are removed first. Default: no limit.
    pub len_max: Option<u64>,
    /// Maximum age of a message. Default: no limit.
    pub age_max: Option<Duration>,
    /// Time for which the stream recognizes a repeated message. Default 2 minutes.
    pub duplicates: Duration,
    /// True to keep messages in memory only. They are lost if all servers of the stream fail.
    pub is_in_memory: bool,
}

impl StreamOptions {
    /// Creates options with default values.
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
    /// Creates a stream. An existing stream of the same name stays unchanged.
    ///
    /// Retries while the servers elect a leader, at most for [`acknowledge_max`](crate::NatsOptions::acknowledge_max).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have created the stream.
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
            let connection = connection_count(&shared.client);
            let Err(error) = shared.jetstream.get_or_create_stream(config.clone()).await else { return Ok(()) };
            // Servers without a leader, or still without contact to the cluster, refuse temporarily.
            let is_lasting = matches!(error.kind(), CreateStreamErrorKind::JetStream(code) if !is_passing(&code));
            if is_lasting || Instant::now() > deadline {
                return Err(StreamError::failed(error));
            }
            shared.pause(connection).await;
        }
    }

    /// Returns a builder for a durable subscription to a stream. The cluster stores the subscription's position under
    /// its name. All subscribers with the same name share the messages.
    ///
    /// ```no_run
    /// # async fn example(nats: frisbee_pubsub_nats::Nats) -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_pubsub_nats::{StartPosition, StreamOptions};
    /// use frisbee_pubsub::Pattern;
    ///
    /// nats.make_stream(&StreamOptions::new("ORDERS", [Pattern::new("orders.>")?])).await?;
    /// let mut orders = nats.durable("ORDERS", "billing").start(StartPosition::All).subscribe().await?;
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
            start: StartPosition::All,
            acknowledge_max: Duration::from_secs(30),
            window: 64,
        }
    }
}

/// Starting point of a new durable subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartPosition {
    /// The first stored message.
    All,
    /// The first message stored after the subscription is created.
    New,
    /// The message with this sequence number.
    Sequence(u64),
    /// The first message stored at or after this time.
    Time(SystemTime),
}

/// A builder for a durable subscription; see [`Nats::durable`].
#[derive(Clone, Debug)]
#[must_use = "nothing is subscribed until `subscribe` is awaited"]
pub struct DurableBuilder {
    nats: Nats,
    stream: String,
    name: String,
    pattern: Option<Pattern>,
    start: StartPosition,
    acknowledge_max: Duration,
    window: usize,
}

impl DurableBuilder {
    /// Restricts the subscription to some subjects of the stream. Default: all.
    pub fn pattern(mut self, pattern: Pattern) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Sets the starting point of a new subscription. Default [`StartPosition::All`]. An existing one resumes at its last
    /// position with its original settings.
    pub fn start(mut self, start: StartPosition) -> Self {
        self.start = start;
        self
    }

    /// Sets the time before an unacknowledged message is redelivered. Default 30 s.
    pub fn acknowledge_max(mut self, limit: Duration) -> Self {
        self.acknowledge_max = limit;
        self
    }

    /// Sets the maximum number of messages buffered in this process. Default 64.
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// Subscribes. Retries while the servers elect a leader, at most for
    /// [`acknowledge_max`](crate::NatsOptions::acknowledge_max).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave the durable subscription in the cluster.
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

    /// Divides the window: a part is for messages buffered by `async-nats`. Returns the rest.
    pub(crate) fn split_window(&mut self) -> usize {
        let window = self.window;
        self.window = (window / 4).max(1);
        (window - self.window).max(1)
    }

    fn config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.acknowledge_max,
            filter_subject: self.pattern.as_ref().map_or(String::new(), |pattern| pattern.as_str().to_owned()),
            deliver_policy: match self.start {
                StartPosition::All => DeliverPolicy::All,
                StartPosition::New => DeliverPolicy::New,
                StartPosition::Sequence(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
                StartPosition::Time(time) => DeliverPolicy::ByStartTime { start_time: time.into() },
            },
            ..pull::Config::default()
        }
    }
}

/// A durable subscription to the messages of a stream, created by [`Nats::durable`].
///
/// It survives the loss of servers and retries without a time limit. After it is dropped, the cluster keeps its
/// position.
pub struct Durable {
    settings: DurableBuilder,
    /// `None` until a leader has accepted the request for messages.
    messages: Option<pull::Stream>,
    unreadable: Arc<AtomicU64>,
}

impl Durable {
    /// Returns the next message. It is redelivered unless it is acknowledged in time.
    ///
    /// A message with a longer or deeper subject than a [`Subject`](frisbee_pubsub::Subject) may have is
    /// [terminated](Delivery::terminate) and [counted](Self::unreadable).
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
                        tracing::debug!("the subscription {:?} retries: {error}", self.settings.name);
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
                // The connection or the leader was lost. Open the subscription again.
                Some(Err(_)) | None => self.messages = None,
            }
        }
    }

    /// Returns the number of messages terminated because they could not be decoded. The stream keeps them.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Returns the counter of [`unreadable`](Self::unreadable), for use while another task owns the subscription.
    pub(crate) fn count_unreadable(&self) -> Arc<AtomicU64> {
        self.unreadable.clone()
    }

    /// Terminates an undecodable message. It would be redelivered forever otherwise.
    async fn set_aside(&self, UnreadableMessage { reply, why }: UnreadableMessage) {
        tracing::warn!("the subscription {:?} terminates an undecodable message: {why}", self.settings.name);
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        if let Some(reply) = reply {
            // If this publication is lost, the message is redelivered and terminated then.
            let _ = self.settings.nats.shared().client.publish(reply, TERMINATE.into()).await;
        }
    }

    /// Ends the subscription in this process. Returns the messages that were buffered here.
    pub(crate) async fn close(mut self) -> Vec<Delivery> {
        let Some(mut messages) = self.messages.take() else { return Vec::new() };
        let shared = self.settings.nats.shared();
        let mut buffered = Vec::new();
        while let Some(Ok(message)) = next_now(Pin::new(&mut messages)) {
            // An undecodable message is redelivered, and terminated then.
            buffered.extend(Delivery::new(message, &self.settings.nats));
        }
        drop(messages);
        // `async-nats` unsubscribes in a separate task. Refused before that, a message would return to this
        // subscription and wait for its time to be over.
        tokio::task::yield_now().await;
        let _ = round_trip(&shared.client, CLOSE_MAX).await;
        buffered
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
        shared.pause(connection_count(&shared.client)).await;
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
    /// The message. Streams do not store its original reply subject.
    pub message: Message,
    /// Sequence number in the stream.
    pub sequence: u64,
    /// Time of storage.
    pub stored: SystemTime,
    /// Number of deliveries, including this one.
    pub deliveries: u64,
    nats: Nats,
    reply: async_nats::Subject,
    /// Name of the broker from which a bridge has brought the message.
    origin: Option<String>,
}

/// A stored message that cannot be converted for subscribers.
struct UnreadableMessage {
    /// Subject for the acknowledgement, if there is one.
    reply: Option<async_nats::Subject>,
    why: String,
}

impl Delivery {
    fn new(message: async_nats::jetstream::Message, nats: &Nats) -> Result<Self, UnreadableMessage> {
        let info = message.info().map(|info| (info.stream_sequence, SystemTime::from(info.published), info.delivered));
        let (sequence, stored, deliveries) = match info {
            Ok(info) => info,
            Err(error) => return Err(UnreadableMessage { reply: None, why: error.to_string() }),
        };
        let mut message = message.message;
        let Some(reply) = message.reply.take() else {
            return Err(UnreadableMessage {
                reply: None,
                why: "it has no reply subject for an acknowledgement".into(),
            });
        };
        let subject = message.subject.clone();
        let origin = origin(message.headers.as_ref()).map(str::to_owned);
        let Some(message) = convert(message) else {
            let why = format!("the subject {subject:?} of message {sequence} is longer or deeper than allowed");
            return Err(UnreadableMessage { reply: Some(reply), why });
        };
        let deliveries = u64::try_from(deliveries).unwrap_or_default();
        Ok(Self { message, sequence, stored, deliveries, nats: nats.clone(), reply, origin })
    }

    pub(crate) fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Acknowledges the message and waits until the cluster has recorded that.
    ///
    /// Retries while the servers elect a leader, at most for [`acknowledge_max`](crate::NatsOptions::acknowledge_max).
    /// After an error the message may be redelivered. The same applies if the only server with the acknowledgement is
    /// killed right after it.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have acknowledged the message.
    pub async fn acknowledge(self) -> Result<(), StreamError> {
        self.settle("+ACK").await
    }

    /// Terminates the message: it is not delivered to any subscriber of this name again. The stream keeps it.
    ///
    /// The cluster publishes an advisory under `$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.<stream>.<subscription>`.
    /// Waits as [`acknowledge`](Self::acknowledge) does.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have terminated the message.
    pub async fn terminate(self) -> Result<(), StreamError> {
        self.settle(TERMINATE).await
    }

    async fn settle(self, word: &'static str) -> Result<(), StreamError> {
        let shared = self.nats.shared();
        let deadline = Instant::now() + shared.options.acknowledge_max;
        loop {
            // A retry is harmless: repeating an acknowledgement has no further effect.
            let request = async_nats::Request::new().payload(word.into()).timeout(Some(shared.options.attempt_max()));
            let connection = connection_count(&shared.client);
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

    /// Rejects the message as [`refuse`](Self::refuse) does, for redelivery after a pause.
    pub(crate) async fn refuse_for(self, pause: Duration) -> Result<(), StreamError> {
        let word = format!("-NAK {{\"delay\": {}}}", pause.as_nanos());
        let published = self.nats.shared().client.publish(self.reply, word.into()).await;
        published.map_err(StreamError::failed)
    }

    /// Rejects the message for immediate redelivery to any subscriber of this name.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have rejected the message.
    pub async fn refuse(self) -> Result<(), StreamError> {
        let published = self.nats.shared().client.publish(self.reply, "-NAK".into()).await;
        published.map_err(StreamError::failed)
    }
}

/// Returns the next item of a stream if it is available now.
pub(crate) fn next_now<S: Stream>(stream: Pin<&mut S>) -> Option<S::Item> {
    match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// Returns `true` if JetStream may answer differently in a moment.
fn is_passing(error: &async_nats::jetstream::Error) -> bool {
    error.code() == 503 || [ErrorCode::CLUSTER_NO_PEERS, ErrorCode::CLUSTER_NOT_LEADER].contains(&error.error_code())
}

impl StreamError {
    /// Returns `true` if a retry is useless.
    fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// Payload of an acknowledgement that stops all further deliveries of a message.
const TERMINATE: &str = "+TERM";
/// Time a server holds a request for messages open.
const ASK_MAX: Duration = Duration::from_secs(10);
/// Time for the connected server to end a subscription.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Interval of heartbeats from an idle server. After twice this time without one, the server counts as dead.
const HEARTBEAT: Duration = Duration::from_secs(1);
