//! Services served through NATS.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_nats::{Client, HeaderMap, Message, Subject, Subscriber};
use bytes::{BufMut, Bytes, BytesMut};
use frpc::{
    Answer, Body, Code, Dispatch, Endpoint, Head, IntoEndpoint, Method, MethodHandle, MethodKind, RpcSystem, Status,
    Streaming,
};
use futures_util::{StreamExt, poll, stream};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use crate::{
    cluster::{NatsCluster, next_of_batch, round_trip},
    headers::{self, METADATA_LEN_MAX},
    micro::{EndpointCounters, MicroService, ServiceDescription, new_id},
    names::{self, PlainCall},
    settings::NatsSettings,
    stream::{CallStream, Incoming, KEEPALIVE, MessageReader, MessageWriter, Next},
};

/// Services served through NATS. Dropping it ends its calls; [`shutdown`](Self::shutdown) lets them finish.
///
/// All servers with the same name form a queue group: each call goes to one of them. The server answers questions about
/// itself as well, so `nats micro list` shows it.
///
/// ```no_run
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct Echo;
/// # impl Service for Echo {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use frpc::{Channel, Services};
/// use frpc_nats::{NatsCluster, NatsServer};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = NatsCluster::new("nats://localhost:4222");
/// let server = NatsServer::builder("orders").serve(&cluster, Services::new().add_service(Echo)).await?;
///
/// let channel = Channel::builder().transport(frpc_nats::transport()).connect("nats://localhost:4222/orders").await?;
/// # let _ = channel;
/// server.shutdown(std::time::Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct NatsServer {
    state: Arc<ServerState>,
    drain: mpsc::Sender<oneshot::Sender<()>>,
    _task: AbortOnDropHandle<()>,
}

/// A builder for a [`NatsServer`]. Created by [`NatsServer::builder`].
#[derive(Clone, Debug)]
pub struct NatsServerBuilder {
    name: String,
    version: String,
    description: String,
    metadata: BTreeMap<String, String>,
    settings: NatsSettings,
}

struct ServerState {
    name: String,
    endpoint: Endpoint,
    settings: NatsSettings,
    counters: Arc<Vec<EndpointCounters>>,
    /// The methods by subject, with their positions in `counters`.
    methods: HashMap<String, (MethodHandle, usize)>,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Cancels a running call, by the reply subject of its caller.
    running: Mutex<HashMap<String, CancellationToken>>,
    open: Mutex<HashMap<u64, Arc<CallStream>>>,
    next: AtomicU64,
    /// Cancelled when the server has gone.
    gone: CancellationToken,
    client: Mutex<Client>,
}

/// A connection of a server.
#[derive(Clone)]
struct ServerLink {
    client: Client,
    /// The subject of frames from callers, without the number of the call.
    inbox: Arc<str>,
}

/// The subscriptions of a connection.
struct Subscriptions {
    link: ServerLink,
    requests: Subscriber,
    notices: Subscriber,
    frames: Subscriber,
    _micro: MicroService,
}

impl NatsServer {
    /// Returns a builder for a server with this name, the first part of the subjects of its methods: `orders` for
    /// `nats://cluster/orders`. It consists of letters, digits, `-` and `_`.
    pub fn builder(name: impl Into<String>) -> NatsServerBuilder {
        NatsServerBuilder {
            name: name.into(),
            version: "0.1.0".to_owned(),
            description: String::new(),
            metadata: BTreeMap::new(),
            settings: NatsSettings::default(),
        }
    }

    /// Shuts down gracefully: takes no new calls, so other servers of the group get them, and lets calls in progress
    /// finish. Returns the number of calls cut off after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the server.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let (drained, waiting) = oneshot::channel();
        let all = self.state.settings.calls_max;
        let finish = async {
            if self.drain.send(drained).await.is_ok() {
                let _ = waiting.await;
            }
            let _ = self.state.calls.acquire_many(all).await;
            // The answers are in the queue of the connection, which ends with the server.
            let client = self.state.client().clone();
            let _ = client.flush().await;
        };
        match timeout(limit, finish).await {
            Ok(()) => 0,
            Err(_) => (all as usize).saturating_sub(self.state.calls.available_permits()),
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.state.gone.cancel();
    }
}

impl fmt::Debug for NatsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsServer").field("name", &self.state.name).finish_non_exhaustive()
    }
}

impl NatsServerBuilder {
    /// Sets the version shown to clients of NATS services, in the form of semantic versioning. Default `0.1.0`.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Sets the description shown to clients of NATS services.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    /// Adds an entry shown to clients of NATS services.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn settings(self, settings: NatsSettings) -> Self {
        Self { settings, ..self }
    }

    /// Connects to the cluster and serves these services until the server is dropped.
    ///
    /// For the services of a [`Server`](frpc::Server), pass [`Server::endpoint`](frpc::Server::endpoint).
    ///
    /// # Errors
    ///
    /// The name or the version is invalid, a service was added twice, or the cluster cannot be reached.
    pub async fn serve(self, cluster: &NatsCluster, services: impl IntoEndpoint) -> io::Result<NatsServer> {
        let Self { name, version, description, metadata, settings } = self;
        names::check_name(&name)?;
        check_version(&version)?;
        if settings.calls_max == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "calls_max is 0: every call would be refused"));
        }
        let endpoint = Endpoint::new(services).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let methods: Vec<_> = endpoint.methods().collect();
        let counters = methods.iter().map(|method| counters_of(&name, method)).collect();
        let handles = methods.iter().filter_map(|method| Some((*method, endpoint.find(&method.path())?)));
        let handles = handles
            .enumerate()
            .map(|(index, (method, handle))| (names::subject(&name, method), (handle.over(RpcSystem::Nats), index)));
        let methods = handles.collect();
        let (calls, streams) =
            (Semaphore::new(settings.calls_max as usize), Semaphore::new(settings.streams_max as usize));
        let client = cluster.connect().await?;
        let state = Arc::new(ServerState {
            name: name.clone(),
            methods,
            endpoint,
            settings,
            counters: Arc::new(counters),
            calls: Arc::new(calls),
            streams: Arc::new(streams),
            running: Mutex::default(),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            gone: CancellationToken::new(),
            client: Mutex::new(client.clone()),
        });
        let description = ServiceDescription { name, id: new_id(), version, description, metadata };
        let first = Subscriptions::open(client, &state, &description).await?;
        let (drain, draining) = mpsc::channel(1);
        let task = tokio::spawn(serve(state.clone(), cluster.clone(), description, first, draining));
        Ok(NatsServer { state, drain, _task: AbortOnDropHandle::new(task) })
    }
}

fn counters_of(name: &str, method: &Method) -> EndpointCounters {
    let shown = format!("{}-{}", method.service.replace('.', "-"), method.name);
    let kind = match method.kind {
        MethodKind::Unary => "unary",
        MethodKind::ServerStreaming => "server-streaming",
        MethodKind::ClientStreaming => "client-streaming",
        MethodKind::Bidirectional => "bidirectional",
    };
    let metadata = [("method".to_owned(), method.path()), ("kind".to_owned(), kind.to_owned())].into();
    EndpointCounters::new(shown, names::subject(name, method), name.to_owned(), metadata)
}

/// Checks for three numbers, and anything valid after them.
fn check_version(version: &str) -> io::Result<()> {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<_> = core.split('.').collect();
    let is_number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    if parts.len() == 3 && parts.iter().all(is_number) && version.bytes().all(is_valid) {
        return Ok(());
    }
    let why = format!("{version:?} is no semantic version: write one such as 1.2.3");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

impl Subscriptions {
    async fn open(client: Client, state: &ServerState, description: &ServiceDescription) -> io::Result<Self> {
        let name = &state.name;
        let requests = client.queue_subscribe(format!("{name}.>"), name.clone()).await.map_err(io::Error::other)?;
        let notices = client.subscribe(names::notice_subjects(name)).await.map_err(io::Error::other)?;
        let inbox = client.new_inbox();
        let frames = client.subscribe(format!("{inbox}.*")).await.map_err(io::Error::other)?;
        let micro = MicroService::start(client.clone(), description.clone(), state.counters.clone(), None).await?;
        // The connected server knows the subscriptions when this returns.
        round_trip(&client).await?;
        let link = ServerLink { client, inbox: inbox.into() };
        Ok(Self { link, requests, notices, frames, _micro: micro })
    }
}

/// Serves until the server is dropped. A connection that has ended for good is replaced.
async fn serve(
    state: Arc<ServerState>,
    cluster: NatsCluster,
    description: ServiceDescription,
    first: Subscriptions,
    mut draining: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let mut subscriptions = first;
    loop {
        state.serve_connection(&mut subscriptions, &mut draining).await;
        warn!(service = state.name, "the connection to NATS has ended, connecting again");
        subscriptions = loop {
            match state.connect(&cluster, &description).await {
                Ok(next) => break next,
                Err(error) => info!(service = state.name, %error, "cannot connect to NATS, trying again after a pause"),
            }
            sleep(CONNECT_PAUSE).await;
        };
    }
}

enum ServerEvent {
    Request(Option<Message>),
    Notice(Option<Message>),
    Frame(Option<Message>),
    Drain(oneshot::Sender<()>),
    Keepalive,
}

impl ServerState {
    async fn connect(&self, cluster: &NatsCluster, description: &ServiceDescription) -> io::Result<Subscriptions> {
        let client = cluster.connect().await?;
        *self.client() = client.clone();
        Subscriptions::open(client, self, description).await
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        // It is only replaced.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        // No panic under the lock can leave the table half changed.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<CallStream>>> {
        // As above.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve_connection(
        self: &Arc<Self>,
        subscriptions: &mut Subscriptions,
        draining: &mut mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let Subscriptions { link, requests, notices, frames, .. } = subscriptions;
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drained = None::<oneshot::Sender<()>>;
        loop {
            let event = tokio::select! {
                message = requests.next() => ServerEvent::Request(message),
                message = notices.next() => ServerEvent::Notice(message),
                message = frames.next() => ServerEvent::Frame(message),
                Some(drained) = draining.recv() => ServerEvent::Drain(drained),
                _ = keepalive.tick() => ServerEvent::Keepalive,
            };
            match event {
                ServerEvent::Request(Some(message)) => {
                    self.begin(link, message).await;
                    for _ in 0..BATCH_MAX {
                        let Some(message) = next_of_batch(requests) else { break };
                        self.begin(link, message).await;
                    }
                }
                ServerEvent::Request(None) => match drained.take() {
                    // All requests that the cluster had sent are in progress.
                    Some(waiting) => {
                        let _ = waiting.send(());
                        return self.serve_drained(link, notices, frames).await;
                    }
                    None => return,
                },
                ServerEvent::Notice(Some(message)) => self.take_notice(link, message).await,
                ServerEvent::Frame(Some(message)) => self.receive(message),
                ServerEvent::Notice(None) | ServerEvent::Frame(None) => return,
                ServerEvent::Drain(waiting) => {
                    drained = Some(waiting);
                    leave_group(requests, &link.client).await;
                }
                ServerEvent::Keepalive => self.keep_alive().await,
            }
        }
    }

    /// Serves the calls in progress.
    async fn serve_drained(&self, link: &ServerLink, notices: &mut Subscriber, frames: &mut Subscriber) {
        let mut keepalive = interval(KEEPALIVE);
        loop {
            tokio::select! {
                Some(message) = notices.next() => self.take_notice(link, message).await,
                Some(message) = frames.next() => self.receive(message),
                _ = keepalive.tick() => self.keep_alive().await,
            }
        }
    }

    async fn keep_alive(&self) {
        let open: Vec<_> = self.open().values().cloned().collect();
        for stream in open {
            stream.keep_alive().await;
        }
    }

    /// Cancels a call, or tells a caller which of its calls are in progress here.
    async fn take_notice(&self, link: &ServerLink, message: Message) {
        if !names::is_probe(&message.subject) {
            return self.cancel(&message);
        }
        let Some(reply) = message.reply else { return };
        let Some(inbox) = reply.strip_suffix(names::PROBE_TOKEN) else { return };
        let claimed = {
            let (running, mut claimed) = (self.running(), BytesMut::new());
            for id in names::ids_of(&message.payload).filter(|id| running.contains_key(&format!("{inbox}{id}"))) {
                claimed.put_u64(id);
            }
            claimed.freeze()
        };
        // An empty answer says that this server answers probes.
        link.publish(reply, HeaderMap::new(), claimed).await;
    }

    fn cancel(&self, message: &Message) {
        if let Ok(reply) = str::from_utf8(&message.payload)
            && let Some(call) = self.running().get(reply)
        {
            call.cancel();
        }
    }

    fn receive(&self, message: Message) {
        let id = message.subject.rsplit_once('.').and_then(|(_, id)| id.parse().ok());
        let stream = id.and_then(|id: u64| self.open().get(&id).cloned());
        // Frames for no call are dropped: the call is over, or the sender is a stranger.
        if let Some(stream) = stream {
            stream.receive(message);
        }
    }

    /// Starts a call, or refuses it. Handlers that are ready at their first poll need no task.
    async fn begin(self: &Arc<Self>, link: &ServerLink, message: Message) {
        // A call without a reply subject could not be answered.
        let Some(reply) = message.reply.clone() else { return };
        let Ok(permit) = self.calls.clone().try_acquire_owned() else {
            let status = Status::not_executed(format!(
                "the server has {} calls in progress (calls_max)",
                self.settings.calls_max
            ));
            return link.fail(reply, &status).await;
        };
        let mut call = Box::pin(self.clone().handle(link.clone(), reply, message, permit));
        let is_in_place = matches!(self.endpoint.dispatch(), Dispatch::InPlace | Dispatch::Ordered);
        if is_in_place && poll!(&mut call).is_ready() {
            return;
        }
        let gone = self.gone.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = gone.cancelled() => {}
                () = call => {}
            }
        });
    }

    async fn handle(
        self: Arc<Self>,
        link: ServerLink,
        reply: Subject,
        message: Message,
        _permit: OwnedSemaphorePermit,
    ) {
        let start = Instant::now();
        let Some((method, index)) = self.methods.get(&*message.subject).copied() else {
            self.endpoint.count_refused(None, RpcSystem::Nats, Code::Unimplemented);
            let status = Status::unimplemented(format!("the server has no method for the subject {}", message.subject));
            return link.fail(reply, &status).await;
        };
        let kind = headers::text(message.headers.as_ref(), headers::CALL);
        let plain = message.headers.is_none().then(|| PlainCall::read(&reply)).flatten();
        let outcome = match kind {
            Some(headers::STREAM) => self.handle_stream(&link, &reply, message, method).await,
            None | Some(headers::UNARY) => self.handle_unary(&link, &reply, message, plain, method).await,
            Some(_) => Err(Status::unimplemented(format!("the value of the header {} is unknown", headers::CALL))),
        };
        let error = outcome.as_ref().err().map(ToString::to_string);
        if let Err(status) = outcome {
            link.fail(reply, &status).await;
        }
        if let Some(counters) = self.counters.get(index) {
            counters.count(start.elapsed(), error);
        }
    }

    /// Returns the head of a call.
    fn head(&self, headers: Option<&HeaderMap>) -> Result<Head, Status> {
        let mut head = Head::default();
        if let Some(time) = headers::timeout_of(headers)? {
            head.set_timeout(time);
        }
        let received = headers::metadata_of(headers, self.endpoint.metadata_len_max())?;
        if !received.metadata.is_empty() {
            *head.metadata_mut() = received.metadata;
        }
        Ok(head)
    }

    /// Answers a call whose request is the payload. An error is for the caller.
    async fn handle_unary(
        self: &Arc<Self>,
        link: &ServerLink,
        reply: &Subject,
        message: Message,
        plain: Option<PlainCall>,
        method: MethodHandle,
    ) -> Result<(), Status> {
        let headers = message.headers.as_ref();
        let is_plain = plain.is_some();
        let has_peer = is_plain || headers::text(headers, headers::CALL).is_some();
        if method.method().kind != MethodKind::Unary {
            let why =
                format!("{} takes or returns a stream: call it with a client of frisbee-rpc-nats", method.method());
            return Err(Status::unimplemented(why));
        }
        if message.payload.len() > self.settings.message_len_max {
            return Err(too_long(self.settings.message_len_max));
        }
        let (format, mut head) = match plain {
            None => (headers::format_of(headers)?, self.head(headers)?),
            Some(PlainCall { timeout: Some(Duration::ZERO), .. }) => return Err(headers::no_time()),
            Some(PlainCall { format, timeout }) => {
                let mut head = Head::default();
                timeout.into_iter().for_each(|timeout| head.set_timeout(timeout));
                (format, head)
            }
        };
        // A request without a payload, as the command line sends it, is an empty message.
        let is_empty_json = format == frpc::codec::Format::Json && message.payload.is_empty();
        let payload = if is_empty_json { Bytes::from_static(b"{}") } else { message.payload };
        let (signal, deadline) = (head.cancel_on_drop(), deadline_of(&head));
        let mut answer = pin!(async {
            let answer = self.endpoint.call_unary(method, format, head, payload.into()).await;
            if !is_over(deadline) {
                signal.disarm();
            }
            answer
        });
        let answer = match poll!(&mut answer) {
            Poll::Ready(answer) => answer?,
            // Clients other than ours cancel nothing.
            Poll::Pending if !has_peer => answer.await?,
            Poll::Pending => {
                let running = RunningCall::register(self, reply);
                tokio::select! {
                    biased;
                    () = running.cancelled.cancelled() => return Ok(()),
                    answer = answer => answer?,
                }
            }
        };
        let mut headers = HeaderMap::new();
        if !has_peer {
            headers.insert(headers::CONTENT_TYPE, headers::content_type(format));
        } else if !is_plain {
            headers.insert(headers::CALL, headers::UNARY);
        }
        put_metadata(&mut headers, &answer)?;
        let len_max = link.client.max_payload();
        match answer.body() {
            Body::One(content) if content.len() + headers_len(&answer) <= len_max => {}
            Body::One(_) if has_peer => return self.answer_in_pieces(link, reply, answer).await,
            Body::One(content) => {
                let why =
                    format!("the answer has {} bytes, and a message of the cluster at most {len_max}", content.len());
                return Err(Status::resource_exhausted(why));
            }
            _ => return Err(Status::internal("the handler of a unary method returned a stream")),
        }
        let Body::One(content) = answer.into_body() else { return Ok(()) };
        link.publish(reply.clone(), headers, content.into_bytes()).await;
        Ok(())
    }

    /// Opens the frames of a call, and tells the caller the subject for its frames.
    async fn accept(
        self: &Arc<Self>,
        link: &ServerLink,
        reply: &Subject,
    ) -> Result<(OpenStream, mpsc::UnboundedReceiver<Incoming>), Status> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| {
            let max = self.settings.streams_max;
            Status::resource_exhausted(format!("the server has {max} calls with streams in progress (streams_max)"))
        })?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (stream, incoming) = CallStream::new(link.client.clone(), reply.clone(), self.endpoint.metadata_len_max());
        self.open().insert(id, stream.clone());
        let open = OpenStream { state: self.clone(), id, stream, _permit: permit };
        let mut headers = HeaderMap::new();
        headers.insert(headers::ACCEPTED, "1");
        let subject = format!("{}.{id}", link.inbox);
        let published = link.client.publish_with_reply_and_headers(reply.clone(), subject, headers, Bytes::new()).await;
        published.map_err(|error| Status::unavailable(format!("cannot accept the call: {error}")))?;
        Ok((open, incoming))
    }

    /// Sends a long answer to a call whose request was short.
    async fn answer_in_pieces(
        self: &Arc<Self>,
        link: &ServerLink,
        reply: &Subject,
        answer: Answer,
    ) -> Result<(), Status> {
        let (open, _incoming) = self.accept(link, reply).await?;
        // The call is answered, so its outcome is for the log only.
        let _ = send_answer(MessageWriter::new(open.stream.clone()), answer).await;
        Ok(())
    }

    /// Answers a call whose messages are frames.
    async fn handle_stream(
        self: &Arc<Self>,
        link: &ServerLink,
        reply: &Subject,
        message: Message,
        method: MethodHandle,
    ) -> Result<(), Status> {
        let headers = message.headers.as_ref();
        let format = headers::format_of(headers)?;
        let mut head = self.head(headers)?;
        let running = RunningCall::register(self, reply);
        let (open, incoming) = self.accept(link, reply).await?;
        let stream = open.stream.clone();
        let writer = MessageWriter::new(stream.clone());
        let account = self.endpoint.server_account();
        let mut reader = MessageReader::new(stream.clone(), incoming, self.settings.message_len_max, Some(account));
        let (signal, deadline) = (head.cancel_on_drop(), deadline_of(&head));
        let serving = async {
            let calling = async {
                let body = match method.method().kind.has_request_stream() {
                    true => Body::Many(messages_of(reader)),
                    false => {
                        let limit = head.timeout().unwrap_or(REQUEST_TIME_MAX);
                        let reading = timeout(limit, only_message(&mut reader)).await;
                        let late = |_| Status::deadline_exceeded("the request did not arrive in time");
                        reading.map_err(late)??.into()
                    }
                };
                self.endpoint.call(method, format, head, body).await
            };
            let outcome = match calling.await {
                Ok(answer) => send_answer(writer, answer).await,
                Err(status) => Err((writer, status)),
            };
            if let Err((writer, status)) = outcome {
                // Without a connection, the caller notices the silence.
                let _ = writer.end(headers::of_status(&status, link.client.max_payload())).await;
            }
        };
        tokio::select! {
            biased;
            () = running.cancelled.cancelled() => {}
            () = stream.over.cancelled() => {
                // The caller waits, unless it has given up itself.
                if let Some(status) = stream.failure().filter(|status| status.code() != Code::Cancelled) {
                    let headers = headers::of_status(&status, link.client.max_payload());
                    let _ = MessageWriter::new(stream.clone()).end(headers).await;
                }
            }
            () = serving => {
                if !is_over(deadline) {
                    signal.disarm();
                }
            }
        }
        Ok(())
    }
}

fn deadline_of(head: &Head) -> Option<Instant> {
    Instant::now().checked_add(head.timeout()?)
}

/// Returns `true` if the caller has given up, so tasks of the handler learn of it.
fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// Ends a subscription after the requests under way.
///
/// `Subscriber::drain` of async-nats drops requests that arrive a moment later. So nats-server ends the subscription first:
/// it takes a number of more than nine digits for zero, while async-nats waits for as many messages. After a round trip, all
/// requests have arrived.
async fn leave_group(requests: &mut Subscriber, client: &Client) {
    // Without a connection, there is nothing to end.
    let _ = requests.unsubscribe_after(MESSAGES_NEVER).await;
    let _ = round_trip(client).await;
    let _ = requests.unsubscribe().await;
}

/// Returns the single request of a call.
async fn only_message(reader: &mut MessageReader) -> Result<Bytes, Status> {
    let Next::Message(message) = reader.next().await? else {
        return Err(Status::invalid_argument("the request has no message"));
    };
    match reader.next().await? {
        Next::End(_) => Ok(message),
        Next::Message(_) => Err(Status::unimplemented("the method takes one message, not a stream")),
    }
}

/// Returns the requests of a call as a stream.
fn messages_of(reader: MessageReader) -> Streaming<Bytes> {
    Streaming::new(stream::try_unfold(reader, |mut reader| async move {
        Ok(match reader.next().await? {
            Next::Message(message) => Some((message, reader)),
            Next::End(_) => None,
        })
    }))
}

/// Sends an answer in frames. Returns the writer with a status that the caller has still to get.
async fn send_answer(mut writer: MessageWriter, answer: Answer) -> Result<(), (MessageWriter, Status)> {
    let metadata = answer.metadata().clone();
    let mut trailers = answer.trailers().clone();
    let sending = async {
        if !metadata.is_empty() {
            writer.metadata(&metadata).await?;
        }
        match answer.into_body() {
            Body::One(content) => writer.message(content.into_bytes()).await?,
            Body::Many(mut messages) => {
                while let Some(message) = messages.message().await? {
                    writer.message(message).await?;
                }
                if let Some(found) = messages.trailers().await? {
                    trailers = found;
                }
            }
            _ => return Err(Status::internal("the messages of the answer have an unknown form")),
        }
        Ok(())
    };
    if let Err(status) = sending.await {
        return Err((writer, status));
    }
    let mut headers = HeaderMap::new();
    headers::put_trailers(&mut headers, &trailers);
    // Without a connection, the caller notices the silence.
    let _ = writer.end(headers).await;
    Ok(())
}

/// Adds the metadata and trailers of an answer to its headers.
fn put_metadata(headers: &mut HeaderMap, answer: &Answer) -> Result<(), Status> {
    headers::put_metadata(headers, answer.metadata());
    headers::put_trailers(headers, answer.trailers());
    match answer.metadata().size() + answer.trailers().size() <= METADATA_LEN_MAX {
        true => Ok(()),
        false => Err(Status::resource_exhausted(format!(
            "the metadata of the answer exceeds the limit of {METADATA_LEN_MAX} bytes through NATS"
        ))),
    }
}

/// Returns more than the length of the headers of an answer. Binary values grow by a third.
fn headers_len(answer: &Answer) -> usize {
    256 + 2 * (answer.metadata().size() + answer.trailers().size())
}

fn too_long(len_max: usize) -> Status {
    Status::resource_exhausted(format!("the request exceeds the limit of {len_max} bytes (message_len_max)"))
}

impl ServerLink {
    async fn publish(&self, subject: Subject, headers: HeaderMap, payload: Bytes) {
        let published = match headers.is_empty() {
            true => self.client.publish(subject, payload).await,
            false => self.client.publish_with_headers(subject, headers, payload).await,
        };
        if let Err(error) = published {
            warn!(%error, "cannot publish the answer of a call");
        }
    }

    async fn fail(&self, reply: Subject, status: &Status) {
        let headers = headers::of_status(status, self.client.max_payload());
        self.publish(reply, headers, Bytes::new()).await;
    }
}

/// A call that its caller can cancel. Forgotten when dropped.
struct RunningCall<'a> {
    state: &'a ServerState,
    reply: &'a str,
    cancelled: CancellationToken,
}

impl<'a> RunningCall<'a> {
    fn register(state: &'a ServerState, reply: &'a str) -> Self {
        let (reply, cancelled) = (names::call_of(reply), CancellationToken::new());
        state.running().insert(reply.to_owned(), cancelled.clone());
        Self { state, reply, cancelled }
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.state.running().remove(self.reply);
    }
}

/// The frames of a call, forgotten when dropped.
struct OpenStream {
    state: Arc<ServerState>,
    id: u64,
    stream: Arc<CallStream>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.state.open().remove(&self.id);
    }
}

/// The maximum number of requests in one turn of a connection. Frames and cancellations come after it.
const BATCH_MAX: usize = 64;
/// The pause between two attempts to connect again.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// A number of messages that never arrive, with more than nine digits.
const MESSAGES_NEVER: u64 = 1_000_000_000_000_000;
/// The time for the request of a call without a timeout.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for version in ["0.1.0", "10.20.30", "1.2.3-beta.1+build"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["", "1", "1.2", "01.2.3", "1.2.x", "1.2.3 ", "1.2.3.4", "v1.2.3"] {
            assert!(check_version(version).is_err(), "{version}");
        }
    }
}
