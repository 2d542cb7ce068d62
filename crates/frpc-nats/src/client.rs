//! Calls through NATS.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, HeaderMap, Message, StatusCode, Subscriber, connection::State};
use bytes::{BufMut, Bytes, BytesMut};
use frpc::{
    Answer, Body, Call, CallError, Caller, ConnectError, Metadata, MetadataSlot, Method, MethodKind, Status, Streaming,
    client::{CallTime, Deadline, ReconnectingTransport, Redial, end_at_deadline, open, with_own_timeout},
    codec::Format,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::debug;

use crate::{
    cluster::{NatsCluster, next_of_batch},
    headers::{self, METADATA_LEN_MAX},
    names,
    stream::{CallStream, Incoming, KEEPALIVE, MessageReader, MessageWriter, Next, lost},
};

/// Makes the calls of a channel through NATS.
pub(crate) struct NatsCaller(Arc<CurrentLink>);

/// The connection of a channel. The client of NATS reconnects on its own; this replaces one that has ended for good.
struct CurrentLink {
    link: Mutex<Arc<NatsLink>>,
    redial: Redial<NatsLink>,
}

/// The settings of a connection of a channel.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    pub(crate) cluster: NatsCluster,
    pub(crate) service: String,
    pub(crate) format: Format,
    pub(crate) message_len_max: usize,
}

/// A connection to NATS. Dropping it ends its calls.
pub(crate) struct NatsLink(Arc<LinkState>);

struct LinkState {
    settings: LinkSettings,
    client: Client,
    /// The subject of all answers, without the number of the call.
    inbox: String,
    calls: Mutex<HashMap<u64, OpenCall>>,
    next: AtomicU64,
    received: AtomicU64,
    /// The number of past probes. Only the task of the connection changes it.
    round: AtomicU64,
    /// A server has answered a probe or a call as servers of frpc do, so all servers answer probes.
    has_probes: AtomicBool,
    /// Messages about dropped calls, published by the task.
    notices: mpsc::UnboundedSender<Notice>,
    over: CancellationToken,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

enum OpenCall {
    /// `heard` is the round in which the call was sent, or a server last claimed it.
    Opening {
        opened: oneshot::Sender<Result<Opened, Status>>,
        heard: u64,
    },
    Open(Arc<CallStream>),
}

/// A call without its messages.
struct CallRequest {
    method: &'static Method,
    kind: MethodKind,
    time: CallTime,
    metadata: Metadata,
}

impl CallRequest {
    fn split(call: Call) -> (Self, Body) {
        let (method, kind, time) = (call.method(), call.kind(), call.time());
        let (head, body) = call.into_parts();
        (Self { method, kind, time, metadata: head.metadata().clone() }, body)
    }
}

/// The first message of an answer.
enum Opened {
    Whole(Message),
    Stream(Arc<CallStream>, mpsc::UnboundedReceiver<Incoming>),
}

/// The end of a call that its caller has dropped.
enum Notice {
    Unanswered(u64),
    Open(Arc<CallStream>),
}

impl NatsCaller {
    pub(crate) async fn connect(settings: LinkSettings, pause: Duration) -> io::Result<Self> {
        let first = NatsLink::connect(settings.clone()).await?;
        let dial = move || -> BoxFuture<'static, Result<NatsLink, ConnectError>> {
            let settings = settings.clone();
            Box::pin(async move { NatsLink::connect(settings).await.map_err(ConnectError::Address) })
        };
        let redial = Redial::new(dial, pause, 0);
        Ok(Self(Arc::new(CurrentLink { link: Mutex::new(Arc::new(first)), redial })))
    }
}

impl ReconnectingTransport for CurrentLink {
    type Connection = NatsLink;

    fn redial(&self) -> Option<&Redial<NatsLink>> {
        Some(&self.redial)
    }

    fn current(&self) -> Arc<NatsLink> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(self: &Arc<Self>, next: Arc<NatsLink>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn takes_calls(link: &NatsLink) -> bool {
        !link.0.over.is_cancelled()
    }

    fn received_count(link: &NatsLink) -> u64 {
        link.0.received.load(Ordering::Relaxed)
    }
}

impl Caller for NatsCaller {
    fn format(&self) -> Format {
        self.0.current().0.settings.format
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        Box::pin(async move {
            let time = call.time();
            let link = open(&self.0, time.answer(call.kind()).unwrap_or(time.opening)).await?;
            link.0.clone().call(call).await
        })
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let link = self.0.current();
        Box::pin(async move { link.0.over.cancelled().await })
    }
}

impl NatsLink {
    async fn connect(settings: LinkSettings) -> io::Result<Self> {
        let client = settings.cluster.connect().await?;
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.*")).await.map_err(io::Error::other)?;
        let (notices, to_publish) = mpsc::unbounded_channel();
        let state = Arc::new(LinkState {
            settings,
            client,
            inbox,
            calls: Mutex::default(),
            next: AtomicU64::new(0),
            received: AtomicU64::new(0),
            round: AtomicU64::new(0),
            has_probes: AtomicBool::new(false),
            notices,
            over: CancellationToken::new(),
            task: Mutex::default(),
        });
        let task = tokio::spawn(drive(DrivenLink(Arc::downgrade(&state)), answers, to_publish));
        *state.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(AbortOnDropHandle::new(task));
        Ok(Self(state))
    }
}

/// Ends the calls of a connection with its task, also if the runtime drops it.
struct DrivenLink(Weak<LinkState>);

impl Drop for DrivenLink {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.end();
        }
    }
}

/// Receives the answers of a connection, publishes the ends of dropped calls, and finds calls of dead servers.
async fn drive(link: DrivenLink, mut answers: Subscriber, mut notices: mpsc::UnboundedReceiver<Notice>) {
    let mut keepalive = interval(KEEPALIVE);
    keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probes = interval(PROBE_INTERVAL);
    probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = answers.next() => {
                let Some(link) = link.0.upgrade() else { return };
                let Some(message) = message else {
                    debug!("the connection to NATS has ended");
                    return;
                };
                link.receive(message);
                while let Some(message) = next_of_batch(&mut answers) {
                    link.receive(message);
                }
            }
            Some(notice) = notices.recv() => {
                let Some(link) = link.0.upgrade() else { return };
                link.publish_notice(notice).await;
            }
            _ = keepalive.tick() => {
                let Some(link) = link.0.upgrade() else { return };
                let open: Vec<_> = link.calls().values().filter_map(OpenCall::stream).collect();
                for stream in open {
                    stream.keep_alive().await;
                }
            }
            _ = probes.tick() => {
                let Some(link) = link.0.upgrade() else { return };
                link.probe().await;
            }
        }
    }
}

impl OpenCall {
    fn stream(&self) -> Option<Arc<CallStream>> {
        match self {
            Self::Opening { .. } => None,
            Self::Open(stream) => Some(stream.clone()),
        }
    }
}

impl LinkState {
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, OpenCall>> {
        // No panic under the lock can leave the table half changed.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply_subject(&self, id: u64) -> String {
        format!("{}.{id}", self.inbox)
    }

    /// Passes a message to its call. Messages for no call are dropped: the call is over, or the sender is a stranger.
    fn receive(&self, message: Message) {
        let Some((_, token)) = message.subject.rsplit_once('.') else { return };
        if token == names::PROBE_TOKEN {
            return self.take_claims(&message);
        }
        self.received.fetch_add(1, Ordering::Relaxed);
        let Some(id) = names::id_of(token) else { return };
        let mut calls = self.calls();
        match calls.remove(&id) {
            None => {}
            Some(OpenCall::Open(stream)) => {
                calls.insert(id, OpenCall::Open(stream.clone()));
                drop(calls);
                if !stream.receive(message) {
                    // Now: until the caller reads the failure, the server would keep sending.
                    let _ = self.notices.send(Notice::Open(stream));
                }
            }
            Some(OpenCall::Opening { opened: waiting, .. }) => {
                if !self.has_probes.load(Ordering::Relaxed) && headers::is_of_server(message.headers.as_ref()) {
                    self.has_probes.store(true, Ordering::Relaxed);
                }
                let peer = message
                    .reply
                    .clone()
                    .filter(|_| headers::text(message.headers.as_ref(), headers::ACCEPTED).is_some());
                let opened = match peer {
                    None => Opened::Whole(message),
                    Some(peer) => {
                        let (stream, incoming) = CallStream::new(self.client.clone(), peer, METADATA_LEN_MAX);
                        calls.insert(id, OpenCall::Open(stream.clone()));
                        Opened::Stream(stream, incoming)
                    }
                };
                drop(calls);
                // The guard of a dropped call removes the entry.
                let _ = waiting.send(Ok(opened));
            }
        }
    }

    async fn publish_notice(&self, notice: Notice) {
        match notice {
            Notice::Open(stream) => stream.cancel().await,
            Notice::Unanswered(id) => {
                let subject = names::cancel_subject(&self.settings.service);
                // Without a connection, the server learns of nothing.
                let _ = self.client.publish(subject, self.reply_subject(id).into()).await;
            }
        }
    }

    /// Asks the servers which of the calls without an answer they have, and fails calls that none of them claims.
    ///
    /// Calls that are answered within a second cost nothing. Servers of other clients answer no probes, so their calls
    /// end at their deadlines.
    async fn probe(&self) {
        // Without a connection, no claim could arrive.
        if self.client.connection_state() != State::Connected {
            return;
        }
        let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
        let has_probes = self.has_probes.load(Ordering::Relaxed);
        let (mut asked, mut lost_calls) = (BytesMut::new(), Vec::new());
        for (id, call) in &*self.calls() {
            let OpenCall::Opening { heard, .. } = call else { continue };
            match round - heard {
                missed if has_probes && missed > PROBES_MISSED_MAX => lost_calls.push(*id),
                0 | 1 => {}
                _ => asked.put_u64(*id),
            }
        }
        for id in lost_calls {
            let lost_call = self.calls().remove(&id);
            if let Some(OpenCall::Opening { opened, .. }) = lost_call {
                let _ = opened.send(Err(unclaimed()));
                // The server may be alive, and only its answers are lost.
                self.publish_notice(Notice::Unanswered(id)).await;
            }
        }
        let mut asked = asked.freeze();
        // The first probe, without calls, asks if the servers answer probes.
        if asked.is_empty() && round > 1 {
            return;
        }
        let subject = names::probe_subject(&self.settings.service);
        loop {
            let ids = asked.split_to(asked.len().min(names::PROBE_LEN_MAX));
            let reply = format!("{}.{}", self.inbox, names::PROBE_TOKEN);
            // Without a connection, the next probe repeats it.
            let _ = self.client.publish_with_reply(subject.clone(), reply, ids).await;
            if asked.is_empty() {
                return;
            }
        }
    }

    /// Takes the answer of a server to a probe: the calls in progress there.
    fn take_claims(&self, message: &Message) {
        // Without servers, NATS answers.
        if message.status.is_some() {
            return;
        }
        self.has_probes.store(true, Ordering::Relaxed);
        let round = self.round.load(Ordering::Relaxed);
        let mut calls = self.calls();
        for id in names::ids_of(&message.payload) {
            if let Some(OpenCall::Opening { heard, .. }) = calls.get_mut(&id) {
                *heard = round;
            }
        }
    }

    /// Ends all calls: the connection is gone for good.
    fn end(&self) {
        self.over.cancel();
        for (_, call) in std::mem::take(&mut *self.calls()) {
            if let OpenCall::Open(stream) = call {
                stream.fail(connection_lost());
            }
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<Answer, Status> {
        if let Some(codec) = call.method().codec() {
            let method = call.method();
            return Err(Status::unimplemented(format!(
                "{method} was not called: its messages use the codec `{codec}`, and NATS carries only Protobuf and JSON"
            )));
        }
        let len_max = self.settings.message_len_max;
        if let Body::One(message) = call.body()
            && message.len() > len_max
        {
            let limit = u32::try_from(len_max).unwrap_or(u32::MAX);
            return Err(CallError::MessageTooLarge { len: message.len(), limit }.into());
        }
        let kind = call.kind();
        let is_short = |message: &Body| message.content_len().is_some_and(|len| len <= self.short_len_max());
        if kind == MethodKind::Unary && is_short(call.body()) { self.unary(call).await } else { self.open(call).await }
    }

    /// Returns the length of the longest message sent in one piece with its headers.
    fn short_len_max(&self) -> usize {
        self.client.max_payload().saturating_sub(HEADERS_LEN_MAX)
    }

    /// Publishes the request of a call, and returns the first message of its answer.
    async fn begin(
        self: &Arc<Self>,
        request: &CallRequest,
        kind: &'static str,
        payload: Bytes,
        deadline: Deadline,
    ) -> Result<(CallGuard, Opened), Status> {
        let left = request.time.answer(request.kind).and_then(Deadline::left);
        if left.is_some_and(|left| left.is_zero()) {
            return Err(deadline.passed());
        }
        let metadata = &request.metadata;
        if metadata.size() > METADATA_LEN_MAX {
            let why = format!("the metadata exceeds the limit of {METADATA_LEN_MAX} bytes through NATS");
            return Err(Status::resource_exhausted(why));
        }
        // Headers cost more than the rest of a short call, so servers of frpc find this in the reply subject.
        let is_plain = kind == headers::UNARY && metadata.is_empty() && self.has_probes.load(Ordering::Relaxed);
        let head = (!is_plain).then(|| self.headers(kind, left, metadata));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, opened) = oneshot::channel();
        let mut guard = CallGuard { link: self.clone(), id, state: GuardState::Unsent };
        let subject = names::subject(&self.settings.service, request.method);
        let publishing = async {
            // The client would keep the request until it is connected again, perhaps after the end of the call.
            while self.client.connection_state() != State::Connected {
                sleep(RECONNECT_POLL).await;
            }
            let heard = self.round.load(Ordering::Relaxed);
            self.calls().insert(id, OpenCall::Opening { opened: sender, heard });
            let published = match head {
                None => {
                    let reply = names::plain_reply(&self.inbox, id, self.settings.format, left);
                    self.client.publish_with_reply(subject, reply, payload).await
                }
                Some(headers) => {
                    let reply = self.reply_subject(id);
                    self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await
                }
            };
            published.map_err(|error| {
                Status::unavailable(format!("cannot publish the request: {error}")).with_source(lost(false))
            })
        };
        deadline.bound_unsent(publishing).await?;
        guard.state = GuardState::Unanswered;
        let opened = deadline.bound(opened.map(|opened| opened.unwrap_or_else(|_| Err(connection_lost())))).await;
        if opened.is_err() && deadline.is_over() && request.time.answer(request.kind).is_some() {
            // The server knows the deadline.
            guard.state = GuardState::Over;
        }
        match opened? {
            Opened::Whole(message) => {
                guard.state = GuardState::Over;
                Ok((guard, Opened::Whole(message)))
            }
            Opened::Stream(stream, incoming) => {
                guard.state = GuardState::Open(stream.clone());
                Ok((guard, Opened::Stream(stream, incoming)))
            }
        }
    }

    fn headers(&self, kind: &'static str, left: Option<Duration>, metadata: &Metadata) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(headers::CALL, kind);
        headers.insert(headers::CONTENT_TYPE, headers::content_type(self.settings.format));
        if let Some(left) = left {
            headers::put_timeout(&mut headers, left);
        }
        headers::put_metadata(&mut headers, metadata);
        headers
    }

    async fn unary(self: &Arc<Self>, call: Call) -> Result<Answer, Status> {
        let (request, body) = CallRequest::split(call);
        let deadline = request.time.answer(MethodKind::Unary).unwrap_or(request.time.opening);
        let payload = match body {
            Body::One(message) => message.into_bytes(),
            _ => return Err(Status::internal("the call has no single message")),
        };
        let (guard, opened) = self.begin(&request, headers::UNARY, payload, deadline).await?;
        match opened {
            Opened::Whole(message) => {
                self.whole(request.method, message).map_err(|status| with_own_timeout(status, Some(deadline)))
            }
            Opened::Stream(stream, incoming) => {
                let reader = MessageReader::new(stream, incoming, self.settings.message_len_max, None);
                single_answer(reader, guard, Some(deadline)).await
            }
        }
    }

    /// Reads an answer in one message.
    fn whole(&self, method: &Method, message: Message) -> Result<Answer, Status> {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            let service = &self.settings.service;
            let why = format!("no server of `{service}` in the cluster serves {method}: the call was not executed");
            return Err(Status::unavailable(why).with_source(lost(false)));
        }
        if let Some(status) = headers::status_of(message.headers.as_ref()) {
            return Err(status);
        }
        let mut answer = Answer::new(message.payload.into());
        if message.headers.is_some() {
            let received = headers::metadata_of(message.headers.as_ref(), METADATA_LEN_MAX)?;
            set_metadata(&mut answer, received.metadata, received.trailers);
        }
        Ok(answer)
    }

    /// Makes a call whose messages are frames.
    async fn open(self: &Arc<Self>, call: Call) -> Result<Answer, Status> {
        let (request, body) = CallRequest::split(call);
        let CallRequest { method, kind, time, .. } = request;
        let (guard, opened) = self.begin(&request, headers::STREAM, Bytes::new(), time.opening).await?;
        let (stream, incoming) = match opened {
            Opened::Stream(stream, incoming) => (stream, incoming),
            Opened::Whole(message) => {
                let failed = self.whole(request.method, message).map(|_| {
                    Status::unimplemented(format!(
                        "the service answered {method} without a stream: it is no server of frpc"
                    ))
                });
                return Err(with_own_timeout(failed.unwrap_or_else(|status| status), Some(time.opening)));
            }
        };
        let reader = MessageReader::new(stream.clone(), incoming, self.settings.message_len_max, None);
        let (finished, sent) = oneshot::channel();
        let sending = AbortOnDropHandle::new(tokio::spawn(send(stream, body, finished)));
        if kind.has_response_stream() {
            return Ok(stream_answer(reader, guard, sending, time.whole));
        }
        let answer = single_answer(reader, guard, time.answer(kind));
        if time.answer(kind).is_some() {
            return answer.await;
        }
        // Without a timeout of the call, the answer has as much time as the opening, from the end of the requests.
        let mut answer = Box::pin(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            _ = sent => {}
        }
        Deadline::after(time.opening.limit).bound(answer).await
    }
}

/// Sends the requests of a call.
async fn send(stream: Arc<CallStream>, body: Body, finished: oneshot::Sender<()>) {
    let mut writer = MessageWriter::new(stream.clone());
    let sending = async {
        match body {
            Body::One(message) => writer.message(message.into_bytes()).await?,
            Body::Many(mut messages) => loop {
                let next = tokio::select! {
                    biased;
                    () = stream.over.cancelled() => return Ok(()),
                    next = messages.message() => next,
                };
                match next? {
                    Some(message) => writer.message(message).await?,
                    None => break,
                }
            },
            _ => return Err(Status::internal("the messages of the call have an unknown form")),
        }
        writer.end(HeaderMap::new()).await
    };
    if let Err(status) = sending.await
        && !stream.over.is_cancelled()
    {
        stream.cancel().await;
        stream.fail(status);
    }
    let _ = finished.send(());
}

/// Returns the answer of a call with a single message.
async fn single_answer(
    mut reader: MessageReader,
    guard: CallGuard,
    deadline: Option<Deadline>,
) -> Result<Answer, Status> {
    let reading = async {
        let message = match reader.next().await? {
            Next::Message(message) => message,
            Next::End(_) => return Err(Status::internal("the server ended the call without an answer")),
        };
        let trailers = match reader.next().await? {
            Next::End(trailers) => trailers,
            Next::Message(_) => return Err(Status::internal("the server answered with several messages")),
        };
        let mut answer = Answer::new(message.into());
        set_metadata(&mut answer, reader.take_metadata().unwrap_or_default(), trailers);
        Ok(answer)
    };
    let answer = match deadline {
        Some(deadline) => deadline.bound(reading).await.map_err(|status| with_own_timeout(status, Some(deadline))),
        None => reading.await,
    };
    if answer.is_ok() {
        guard.finish();
    }
    answer
}

/// Returns the answer of a call with a stream.
fn stream_answer(
    reader: MessageReader,
    guard: CallGuard,
    sending: AbortOnDropHandle<()>,
    whole: Option<Deadline>,
) -> Answer {
    let (metadata, trailers) = (MetadataSlot::new(), MetadataSlot::new());
    let slots = (metadata.clone(), trailers.clone());
    let messages = stream::try_unfold((reader, guard, sending), move |(mut reader, guard, sending)| {
        let (metadata, trailers) = slots.clone();
        async move {
            let next = reader.next().await;
            if let Some(found) = reader.take_metadata() {
                metadata.set(found);
            }
            match next? {
                Next::Message(message) => Ok(Some((message, (reader, guard, sending)))),
                Next::End(found) => {
                    guard.finish();
                    if !found.is_empty() {
                        trailers.set(found);
                    }
                    Ok(None)
                }
            }
        }
    });
    let messages = match whole {
        Some(deadline) => Streaming::new(end_at_deadline(messages.boxed(), deadline)),
        None => Streaming::new(messages),
    };
    Answer::new(Body::Many(messages.with_metadata_from(metadata).with_trailers_from(trailers)))
}

fn set_metadata(answer: &mut Answer, metadata: Metadata, trailers: Metadata) {
    if !metadata.is_empty() {
        *answer.metadata_mut() = metadata;
    }
    if !trailers.is_empty() {
        *answer.trailers_mut() = trailers;
    }
}

fn connection_lost() -> Status {
    Status::unavailable("the connection to NATS has ended, the request may have been executed").with_source(lost(true))
}

fn unclaimed() -> Status {
    let why =
        "no server has claimed the call for 6 s: its server has ended, or NATS has lost the request or the answer";
    Status::unavailable(why).with_source(lost(true))
}

/// Removes a call at its end. A call without an answer is cancelled at the server.
struct CallGuard {
    link: Arc<LinkState>,
    id: u64,
    state: GuardState,
}

enum GuardState {
    Unsent,
    Unanswered,
    Open(Arc<CallStream>),
    Over,
}

impl CallGuard {
    /// Ends a call that needs no cancellation.
    fn finish(mut self) {
        self.state = GuardState::Over;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let open = self.link.calls().remove(&self.id);
        let notice = match std::mem::replace(&mut self.state, GuardState::Over) {
            GuardState::Unsent | GuardState::Over => return,
            GuardState::Open(stream) if stream.over.is_cancelled() => return,
            GuardState::Open(stream) => Notice::Open(stream),
            GuardState::Unanswered => match open {
                // The answer arrived while the call was dropped.
                Some(OpenCall::Open(stream)) => Notice::Open(stream),
                Some(OpenCall::Opening { .. }) => Notice::Unanswered(self.id),
                None => return,
            },
        };
        let _ = self.link.notices.send(notice);
    }
}

/// The interval of the probes for calls without an answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The probes without a claim after which a call has failed: more than pass while a server connects to NATS again.
const PROBES_MISSED_MAX: u64 = 5;
/// The time between two looks at a lost connection. The client of NATS reports no end of an attempt.
const RECONNECT_POLL: Duration = Duration::from_millis(20);
/// The room for the headers of a request with its message.
const HEADERS_LEN_MAX: usize = METADATA_LEN_MAX + 4 * 1024;
