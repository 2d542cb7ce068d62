//! Connection to a cluster, as a backend of `frisbee_pubsub`.

use std::{
    error::Error,
    fmt,
    pin::pin,
    sync::{Arc, OnceLock, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::Duration,
};

use async_nats::{
    HeaderMap, ServerAddr,
    client::{PublishErrorKind, RequestErrorKind},
    header::NATS_MESSAGE_ID,
    jetstream::{self, context::PublishErrorKind as Kind},
};
use frisbee_pubsub::{
    Backend, BackendFuture, Client, Message, Publication, PublishError, RequestError, SubscribeError, SubscribeOptions,
    Subscription, TryPublishError,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    ConnectError, NatsOptions,
    error::UnsupportedFeature,
    refusals::UnreportedRefusals,
    subscription::{NatsEvents, QueueRegistry, convert},
};

/// A connection to a NATS cluster. Clones are cheap and share the connection.
///
/// [`client`](Self::client) returns a client for code independent of NATS. If the connected server dies, the connection
/// moves to another one and retries without a time limit. Commands are queued in the meantime.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frisbee_pubsub_nats::Nats;
///
/// let nats = Nats::connect("tls://one:4222,tls://two:4222?credentials=/run/app.creds").await?;
/// nats.client().publish("orders.eu.created", "one for Ada").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Nats(Arc<NatsShared>);

pub(crate) struct NatsShared {
    pub(crate) client: async_nats::Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) options: NatsOptions,
    registry: Arc<QueueRegistry>,
    changes: Arc<ConnectionChanges>,
}

/// Changes of the connection, for waiting tasks.
#[derive(Default)]
struct ConnectionChanges {
    connected: watch::Sender<()>,
    /// True after the connection has ended for good.
    closed: watch::Sender<bool>,
    refusals: UnreportedRefusals,
}

impl Nats {
    /// Connects to the servers in the URL, with the URL's [options](NatsOptions).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no connection.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let (servers, options) = NatsOptions::from_url(url)?;
        Self::connect_with(&servers, options).await
    }

    /// Connects to the first reachable server of a list. The servers announce further members of their cluster.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no connection.
    pub async fn connect_with(servers: &[impl AsRef<str>], options: NatsOptions) -> Result<Self, ConnectError> {
        let parse = |server: &str| {
            let address = server.parse::<ServerAddr>();
            let address = address.map_err(|error| ConnectError::url(server, error.to_string()))?;
            // async-nats ignores credentials in this address, so the login would fail without a hint.
            let has_login = address.has_user_pass() || address.password().is_some();
            if has_login {
                Err(ConnectError::url(server, "put the password into `Options::login`"))
            } else {
                Ok(address)
            }
        };
        let addresses = servers.iter().map(|server| parse(server.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let registry = Arc::new(QueueRegistry::default());
        let changes = Arc::new(ConnectionChanges::default());
        // Events can arrive before `connect` returns the client, so the callback reads it from a cell.
        let client = Arc::new(OnceLock::<async_nats::Client>::new());
        let hear = {
            let (registry, changes, client) = (registry.clone(), changes.clone(), client.clone());
            move |event| {
                handle_event(event, &registry, &changes, &client);
                async {}
            }
        };
        let options = options.within_bounds();
        let connected = options.build().await?.event_callback(hear).connect(addresses).await?;
        let connected = client.get_or_init(|| connected).clone();
        let mut jetstream = jetstream::new(connected.clone());
        jetstream.set_timeout(options.attempt_max());
        Ok(Self(Arc::new(NatsShared { client: connected, jetstream, options, registry, changes })))
    }

    /// Returns `true` if the connection to a server is currently up.
    pub fn is_connected(&self) -> bool {
        self.0.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Returns a client with this connection as its backend.
    pub fn client(&self) -> Client {
        Client::on(Arc::new(self.clone()))
    }
}

impl Nats {
    pub(crate) fn shared(&self) -> &NatsShared {
        &self.0
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("state", &self.0.client.connection_state()).finish_non_exhaustive()
    }
}

/// Handles an event of the connection. Events arrive one after another.
fn handle_event(
    event: async_nats::Event,
    registry: &Arc<QueueRegistry>,
    changes: &ConnectionChanges,
    client: &OnceLock<async_nats::Client>,
) {
    use async_nats::{ClientError, Event, ServerError};
    match event {
        Event::Connected => {
            tracing::debug!("connected to NATS");
            changes.connected.send_replace(());
            // The first connection is no reconnection. Its event may come before the client is set.
            if let Some(client) = client.get().filter(|client| connection_count(client) > 1) {
                let (client, registry) = (client.clone(), registry.clone());
                tokio::spawn(async move {
                    // The round trip ends after the server has processed all renewed subscriptions. Messages after the
                    // event are therefore complete.
                    if round_trip(&client, RESUBSCRIBE_MAX).await.is_ok() {
                        registry.reconnected();
                    }
                });
            }
        }
        Event::ServerError(ServerError::Other(text)) => {
            tracing::warn!("NATS server error: {text}");
            if let Some(pattern) = denied(&text, "Subscription to") {
                registry.deny(pattern);
            } else if let Some(subject) = denied(&text, "Publish to") {
                changes.refusals.note(subject);
            }
        }
        Event::SlowConsumer(_) => {
            tracing::warn!("messages of a subscription were dropped because its task did not run in time");
        }
        Event::Closed | Event::ClientError(ClientError::MaxReconnects) => {
            // Subscriptions end after their queued messages, see `move_messages`.
            changes.closed.send_replace(true);
        }
        event => tracing::debug!("NATS: {event}"),
    }
}

/// Returns the subject or pattern from a server's message about a denied operation.
fn denied<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once("Permissions Violation for ")?;
    rest.strip_prefix(what)?.strip_prefix(" \"")?.split_once('"').map(|(subject, _)| subject)
}

impl NatsShared {
    pub(crate) fn is_closed(&self) -> bool {
        self.registry.is_closing() || *self.changes.closed.borrow()
    }

    async fn publish(&self, publication: Publication<'_>) -> Result<(), PublishError> {
        self.check(&publication)?;
        let len = publication.payload.len();
        let Publication { subject, reply, payload, .. } = publication;
        let published = match reply {
            Some(reply) => self.client.publish_with_reply(subject.to_owned(), reply.to_owned(), payload).await,
            None => self.client.publish(subject.to_owned(), payload).await,
        };
        published.map_err(|error| self.failed(error, len))
    }

    fn failed(&self, error: async_nats::client::PublishError, len: usize) -> PublishError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => PublishError::TooLarge { len, limit: self.client.max_payload() },
            PublishErrorKind::Send => PublishError::Closed,
            PublishErrorKind::InvalidSubject => PublishError::Backend(Arc::new(error)),
        }
    }

    fn check(&self, publication: &Publication<'_>) -> Result<(), PublishError> {
        if publication.retain {
            let why = "NATS retains no values: store the subject in a stream, and read it with a durable subscription";
            return Err(PublishError::Backend(Arc::new(UnsupportedFeature(why))));
        }
        if publication.is_forwarded {
            let why = "only bridges mark messages as forwarded in a cluster";
            return Err(PublishError::Backend(Arc::new(UnsupportedFeature(why))));
        }
        if self.is_closed() { Err(PublishError::Closed) } else { Ok(()) }
    }

    /// Publishes a message and waits until the connected server has received it.
    async fn publish_to_server(&self, publication: Publication<'_>) -> Result<(), PublishError> {
        let (connection, refusals) = (connection_count(&self.client), &self.changes.refusals);
        let (subject, since) = (publication.subject, refusals.count());
        self.publish(publication).await?;
        let is_dealt_with = self.wait_until_processed(connection).await;
        if let Some(refusal) = refusals.take(subject, since) {
            return Err(PublishError::Refused(refusal));
        }
        // After a reconnection, the answer may come from a new server although the message was lost with the old one.
        if is_dealt_with && connection_count(&self.client) == connection {
            Ok(())
        } else {
            Err(PublishError::Lost { may_have_left: true })
        }
    }

    /// Waits until the server has processed everything sent on this connection. Returns `false` if the connection is lost,
    /// or the server is too slow.
    async fn wait_until_processed(&self, connection: u64) -> bool {
        let limit = self.options.acknowledge_max;
        let answered = async {
            round_trip(&self.client, limit).await?;
            // A refusal arrives before this answer, but goes to another task. The second round trip gives that task time to
            // note it. The next flush returns a refusal noted even later.
            round_trip(&self.client, limit).await
        };
        matches!(timeout(limit, self.while_connected(connection, answered)).await, Ok(Some(Ok(()))))
    }

    /// Publishes a message and waits until a stream has stored it.
    ///
    /// Retries while servers fail and elect a leader. All attempts carry the same message id, so the stream discards
    /// duplicates.
    async fn publish_to_stream(
        &self,
        publication: &Publication<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), PublishError> {
        let deadline = Instant::now() + self.options.acknowledge_max;
        if headers.get(NATS_MESSAGE_ID).is_none() {
            headers.insert(NATS_MESSAGE_ID, self.client.new_inbox());
        }
        let since = self.changes.refusals.count();
        loop {
            self.check(publication)?;
            let connection = connection_count(&self.client);
            let attempt = async {
                let (subject, payload) = (publication.subject.to_owned(), publication.payload.clone());
                self.jetstream.publish_with_headers(subject, headers.clone(), payload).await?.await
            };
            let attempt = timeout_at(deadline, self.while_connected(connection, attempt));
            let attempted = tokio::select! {
                biased;
                attempted = attempt => attempted,
                refusal = self.changes.refusals.wait_for_refusal(publication.subject, since) => {
                    return Err(PublishError::Refused(refusal));
                }
            };
            let error = match attempted {
                Ok(Some(Ok(_))) => return Ok(()),
                Ok(Some(Err(error))) => error,
                Ok(None) => continue,
                Err(_) => return Err(PublishError::Lost { may_have_left: true }),
            };
            match error.kind() {
                Kind::MaxPayloadExceeded => {
                    let (len, limit) = (publication.payload.len(), self.client.max_payload());
                    return Err(PublishError::TooLarge { len, limit });
                }
                // Without a leader, JetStream reports that the stream is missing. Retry until the deadline.
                Kind::StreamNotFound | Kind::TimedOut if Instant::now() + ELECTION_PAUSE < deadline => {
                    self.pause(connection).await;
                }
                Kind::TimedOut | Kind::BrokenPipe => return Err(PublishError::Lost { may_have_left: true }),
                _ => return Err(PublishError::Backend(Arc::new(error))),
            }
        }
    }

    /// Publishes with headers. If a stream stores the subject, retries until it has stored the message; otherwise sends
    /// the message at most once.
    pub(crate) async fn publish_until_stored(
        &self,
        publication: Publication<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), PublishError> {
        if self.options.is_stored(publication.subject) {
            loop {
                match self.publish_to_stream(&publication, headers).await {
                    Err(PublishError::Lost { .. }) => {
                        tracing::debug!("no stream has stored a message of {:?} yet", publication.subject)
                    }
                    published => return published,
                }
            }
        }
        self.check(&publication)?;
        let (subject, len) = (publication.subject.to_owned(), publication.payload.len());
        let published = self.client.publish_with_headers(subject, headers.clone(), publication.payload).await;
        published.map_err(|error| self.failed(error, len))
    }

    /// Waits until the server has processed all earlier publications, and returns the first unreported refusal.
    async fn flush(&self) -> Result<(), PublishError> {
        // Waits for a connection if there is none.
        self.client.flush().await.map_err(|_| PublishError::Closed)?;
        let is_dealt_with = self.wait_until_processed(connection_count(&self.client)).await;
        match self.changes.refusals.take_first() {
            Some(refusal) => Err(PublishError::Refused(refusal)),
            None if is_dealt_with => Ok(()),
            None => Err(PublishError::Lost { may_have_left: true }),
        }
    }

    /// Publishes a request and waits for the first answer.
    pub(crate) async fn request(&self, subject: &str, request: async_nats::Request) -> Result<Message, RequestError> {
        if self.is_closed() {
            return Err(PublishError::Closed.into());
        }
        let since = self.changes.refusals.count();
        let answer = tokio::select! {
            biased;
            answer = self.client.send_request(subject.to_owned(), request) => answer,
            refusal = self.changes.refusals.wait_for_refusal(subject, since) => return Err(PublishError::Refused(refusal).into()),
        };
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => RequestError::NoResponders,
            RequestErrorKind::TimedOut => RequestError::TimedOut,
            RequestErrorKind::Other => PublishError::Lost { may_have_left: true }.into(),
            RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                PublishError::Backend(Arc::new(error)).into()
            }
        })?;
        let why = "the subject of the answer is longer or deeper than allowed";
        convert(answer).ok_or_else(|| PublishError::Backend(Arc::new(UnsupportedFeature(why))).into())
    }

    /// Waits for an answer bound to the current connection. Returns `None` if a reconnection comes first.
    pub(crate) async fn while_connected<T>(&self, connection: u64, answer: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            answer = answer => Some(answer),
            () = self.reconnected(connection) => None,
        }
    }

    /// Waits briefly for the servers to elect a leader. Returns early after a reconnection.
    pub(crate) async fn pause(&self, connection: u64) {
        let _ = timeout(ELECTION_PAUSE, self.reconnected(connection)).await;
    }

    /// Waits until the connection differs from the given one.
    async fn reconnected(&self, connection: u64) {
        // The sender is part of `self`, so it cannot be dropped while this call waits.
        let _ = self.changes.connected.subscribe().wait_for(|()| connection_count(&self.client) != connection).await;
    }
}

impl Backend for Nats {
    fn try_publish(&self, publication: Publication<'_>) -> Result<(), TryPublishError> {
        let payload = publication.payload.clone();
        // The future completes in its first poll unless the command queue is full. In that case it is dropped and has
        // sent nothing.
        let publishing = pin!(self.0.publish(publication));
        match publishing.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(published) => Ok(published?),
            Poll::Pending => Err(TryPublishError::Full(payload)),
        }
    }

    fn publish<'a>(&'a self, publication: Publication<'a>) -> BackendFuture<'a, Result<(), PublishError>> {
        Box::pin(self.0.publish(publication))
    }

    fn publish_acknowledged<'a>(
        &'a self,
        publication: Publication<'a>,
    ) -> BackendFuture<'a, Result<Option<u32>, PublishError>> {
        Box::pin(async move {
            if self.0.options.is_stored(publication.subject) {
                self.0.publish_to_stream(&publication, &mut HeaderMap::new()).await?;
            } else {
                self.0.publish_to_server(publication).await?;
            }
            // No server knows the number of subscribers in a cluster.
            Ok(None)
        })
    }

    fn request<'a>(
        &'a self,
        request: Publication<'a>,
        limit: Duration,
    ) -> BackendFuture<'a, Result<Message, RequestError>> {
        Box::pin(async move {
            self.0.check(&request)?;
            let Publication { subject, payload, .. } = request;
            let len = payload.len();
            if len > self.0.client.max_payload() {
                return Err(PublishError::TooLarge { len, limit: self.0.client.max_payload() }.into());
            }
            self.0.request(subject, async_nats::Request::new().payload(payload).timeout(Some(limit))).await
        })
    }

    fn subscribe(&self, options: SubscribeOptions) -> BackendFuture<'_, Result<Subscription, SubscribeError>> {
        Box::pin(self.0.subscribe(options, |_| true))
    }

    fn flush(&self) -> BackendFuture<'_, Result<(), PublishError>> {
        Box::pin(self.0.flush())
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {
            self.0.registry.close();
            // Draining sends all queued messages first. It fails if the connection has already ended.
            if self.0.client.drain().await.is_ok() {
                let mut closed = self.0.changes.closed.subscribe();
                // Without a reachable server, draining would never complete.
                if timeout(CLOSE_MAX, closed.wait_for(|closed| *closed)).await.is_err() {
                    self.0.registry.finish();
                }
            }
        })
    }
}

impl NatsShared {
    /// Subscribes to the messages with headers accepted by `takes`.
    pub(crate) async fn subscribe(
        &self,
        options: SubscribeOptions,
        takes: impl Fn(Option<&async_nats::HeaderMap>) -> bool + Send + 'static,
    ) -> Result<Subscription, SubscribeError> {
        if self.is_closed() {
            return Err(SubscribeError::Closed);
        }
        let failed = |error: async_nats::client::SubscribeError| SubscribeError::Backend(Arc::new(error));
        let mut events = NatsEvents::new(&options, self.registry.clone());
        let pattern = options.pattern.as_str().to_owned();
        let subscriber = match options.group.clone() {
            Some(group) => self.client.queue_subscribe(pattern, group).await,
            None => self.client.subscribe(pattern).await,
        };
        events.start(subscriber.map_err(failed)?, takes);
        // After the answer, the server has processed the subscription. After a reconnection, `async-nats` has sent it
        // again, so ask the new server.
        let answered = async {
            loop {
                let connection = connection_count(&self.client);
                let answer = round_trip(&self.client, self.options.acknowledge_max);
                if let Some(answer) = self.while_connected(connection, answer).await {
                    break answer;
                }
            }
        };
        answered.await.map_err(|_| SubscribeError::Lost)?;
        Ok(Subscription::new(Box::new(events)))
    }
}

/// Connects to a NATS cluster or to a broker on frisbee, depending on the URL.
///
/// `nats://` and `tls://` connect to a cluster ([`Nats::connect`]). Addresses of frisbee, such as `tcp://host:7300` or
/// `unix:/run/broker.sock`, connect to a broker in a frisbee server
/// ([`Client::connect`](frisbee_pubsub::Client::connect)).
///
/// # Cancel safety
///
/// A dropped call leaves no connection.
pub async fn connect(url: &str) -> Result<Client, ConnectError> {
    match url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("nats" | "tls") => Ok(Nats::connect(url).await?.client()),
        _ => Ok(Client::connect(url).await?),
    }
}

/// Returns the number of connections established so far, including the first.
pub(crate) fn connection_count(client: &async_nats::Client) -> u64 {
    client.statistics().connects.load(Ordering::Acquire)
}

/// Waits until the server has processed all earlier commands. Sends a request without a responder; the server answers
/// it in order, without delay.
pub(crate) async fn round_trip(
    client: &async_nats::Client,
    limit: Duration,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let request = async_nats::Request::new().timeout(Some(limit));
    match client.send_request(client.new_inbox(), request).await {
        Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Time for a server to process all renewed subscriptions.
const RESUBSCRIBE_MAX: Duration = Duration::from_secs(10);
/// Time to close the connection without a reachable server.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts while a stream has no leader.
const ELECTION_PAUSE: Duration = Duration::from_millis(100);
