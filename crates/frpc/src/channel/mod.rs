//! The channel of a client, which carries its calls to a server.

pub(crate) mod builder;
mod bytes;
mod connecting;
mod custom;
pub(crate) mod health;
mod listed;
pub(crate) mod settings;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use frisbee::{Connection, Raw};
use futures_util::TryFutureExt;
use tokio::time::Instant;

use crate::{
    call::{
        arrival::ArrivingCall,
        context,
        deadline::CallTime,
        exchange::{Answer, Call},
        head::Head,
        measure::ChannelMeasure,
        meter::CallMeter,
        method::{Method, MethodKind},
        request::{IntoRequest, IntoStreamingRequest, Request, Response},
        status::Status,
        streaming::Streaming,
        system::RpcSystem,
    },
    client::{caller::Caller, transport::TIMEOUT},
    codec::{Format, MemoryBudget, Message, json::Types},
    error::recognize_refusal,
    fleet::{attempt::FrisbeeAttempt, server::ServerCaller, set::Fleet},
    metrics::{self, MethodMetrics},
    service::{
        boxed::BoxFuture,
        endpoint::IntoEndpoint,
        layer::{Layer, LayerStack},
    },
    wire::{
        frisbee::calling::{
            connection::ClientConnection,
            reconnecting::{FrisbeeCaller, LostMetadata},
            request::UnencodedRequest,
            unary::{UnaryCall, UnaryReply},
        },
        local::LocalCaller,
    },
};

/// A connection to a server, shared by any number of clients. Cheap to clone.
///
/// The connection closes after the last clone and the last call are gone. If the connection is lost, the calls in
/// flight fail, and the next call reconnects.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use frpc::Channel;
///
/// let channel = Channel::builder().timeout(Duration::from_secs(2)).connect("tcp://localhost:7300").await?;
/// // let greeter = GreeterClient::new(channel.clone());
/// // let orders = OrdersClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
///
/// # Reconnecting
///
/// All calls without a connection share one attempt to connect. It is a task on the runtime of the call that began it,
/// and makes as many [attempts](crate::ConnectRetry::attempts) as the first connect. A call waits for it within its
/// own timeout and then fails with [`CallError::NotSent`](crate::CallError::NotSent). The task continues for later
/// calls, until it ends or the channel is dropped. If it fails, all waiting calls fail with
/// [`CallError::Unreachable`](crate::CallError::Unreachable), and the next call begins a new attempt.
///
/// A server asks the channel to leave when it shuts down or when the connection is too old. New calls then wait for
/// another connection, as after a loss. Calls in flight finish, and the old connection closes after the last of them.
///
/// The attempt begins immediately if the server had sent anything on the lost connection. After a failed attempt, or a
/// connection without a byte from the server, it begins after a [pause](frisbee::Backoff) that grows up to 5 s.
///
/// # Servers that vanish
///
/// A server can vanish without closing its connection. Pings detect this over frisbee, also in WebSockets
/// ([`Config::silence_max`](crate::Config::silence_max)), over gRPC (`frpc_http::ClientSettings`), and over JSON-RPC in
/// WebSockets ([`SocketOptions::keepalive`](crate::SocketOptions::keepalive)). The calls in flight then fail with
/// [`CallError::ConnectionLost`](crate::CallError::ConnectionLost). HTTP/1.1 and JSON-RPC over TCP have no pings. There,
/// TCP keepalive notices a lost machine, and only the timeout of a call ends its wait for a stopped process.
///
/// # Retrying calls
///
/// A call is retried on another connection, within its timeout, if it was certainly not executed: no part of it was
/// passed to the socket, or the server refused it during a shutdown (plain servers cannot tell this). There are at most five attempts, with a
/// [pause](frisbee::Backoff) before each from the third on. A call with a request stream is retried only while the
/// stream is unopened, because then nothing was taken from the requests. A call that may have been executed is never
/// retried.
///
/// # Cancel safety
///
/// Dropping the future of a call cancels the call. A request still unsent will not be sent. A request already sent may
/// still be executed. The channel notifies the server, and the server drops the handler. Go servers are notified only
/// for streaming calls.
#[derive(Clone)]
pub struct Channel {
    route: ChannelTransport,
    layers: LayerStack,
    timeout: Duration,
    memory: MemoryBudget,
    any_types: &'static Types,
    /// The counters of calls, shared by all channels to the target.
    meter: Option<Arc<CallMeter>>,
    system: RpcSystem,
}

/// The server or the servers of a channel.
#[derive(Clone)]
enum ChannelTransport {
    One(ServerCaller),
    Many(Arc<Fleet>),
}

impl ChannelTransport {
    fn caller(&self) -> &dyn Caller {
        match self {
            Self::One(server) => server.caller(),
            Self::Many(fleet) => fleet,
        }
    }
}

impl Channel {
    /// Creates a channel to the services offered by the peer of this connection, for calls from a server to its
    /// clients.
    ///
    /// The connection must be served by [`Services`](crate::Services) on this side. The channel does not keep it open.
    ///
    /// # Errors
    ///
    /// The connection is not served by frpc on this side, so no answer could arrive.
    pub fn over(connection: &Connection) -> Result<Self, Status> {
        match ClientConnection::for_connection(connection) {
            Some(connection) => {
                let connection = FrisbeeCaller::new(connection, None, LostMetadata::default(), None);
                Ok(Self::by(ServerCaller::Frisbee(connection), Some(metrics::of_peers())))
            }
            None => Err(Status::failed_precondition(
                "the connection is not served by frpc on this side, so no answer could arrive",
            )),
        }
    }

    /// Creates a channel to a service in this process, or to several as [`Services`](crate::Services), without a
    /// socket.
    ///
    /// Messages are encoded as on a wire. If a service was added [twice](crate::Collision), every call fails with
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) and the name of the method.
    pub fn in_process(services: impl IntoEndpoint) -> Self {
        Self::by(ServerCaller::Other(Arc::new(LocalCaller::new(services))), Some(metrics::of_target("in-process")))
    }

    /// Creates a channel over a custom transport.
    pub fn over_caller(caller: impl Caller) -> Self {
        Self::by(ServerCaller::Other(Arc::new(caller)), Some(metrics::of_target("custom")))
    }

    /// Creates a channel to one server of another channel. Its calls are not counted.
    fn to_server(server: ServerCaller) -> Self {
        Self::by(server, None)
    }

    fn by(server: ServerCaller, meter: Option<Arc<CallMeter>>) -> Self {
        Self {
            route: ChannelTransport::One(server),
            layers: LayerStack::default(),
            timeout: TIMEOUT,
            memory: MemoryBudget::default(),
            any_types: Types::WELL_KNOWN,
            meter,
            system: RpcSystem::default(),
        }
    }

    /// Returns the counters of each method called by the channels to this target.
    pub fn metrics(&self) -> Vec<MethodMetrics> {
        self.meter.as_deref().map(metrics::methods_of).unwrap_or_default()
    }

    /// Returns the same channel with another default timeout for calls.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the same channel with another limit on the memory of a decoded response.
    ///
    /// Default [`MemoryBudget`]: 128 MiB, or more if messages may be longer than 4 MiB. A call with a larger response
    /// ends with [`ResourceExhausted`](crate::Code::ResourceExhausted), although it was executed.
    pub fn with_message_memory_max(self, message_memory_max: usize) -> Self {
        Self { memory: MemoryBudget::new(message_memory_max), ..self }
    }

    /// Returns the same channel with more types for an `Any` in JSON; see
    /// [`MessageSettings::any_types`](crate::MessageSettings::any_types).
    pub fn with_any_types(self, any_types: &'static Types) -> Self {
        Self { any_types, ..self }
    }

    /// Returns the same channel with another layer around its calls, inside the layers added before.
    ///
    /// Other clones stay without it, so each client can have its own layers:
    ///
    /// ```
    /// # fn example(channel: frpc::Channel) {
    /// use frpc::{Call, interceptor};
    ///
    /// let tagged = channel.clone().layer(interceptor(|call: &mut Call| {
    ///     Ok(call.head_mut().metadata_mut().insert("x-caller", "billing")?)
    /// }));
    /// # }
    /// ```
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }

    /// Announces that a client will call these methods. Generated clients do this.
    ///
    /// On each new connection, the methods are compared with the methods of the server. If the messages of a method do not
    /// fit, this is logged immediately, and every call fails with the same text.
    pub fn declare(&self, methods: &'static [Method]) {
        match &self.route {
            ChannelTransport::One(server) => server.declare(methods),
            ChannelTransport::Many(fleet) => fleet.declare(methods),
        }
    }

    /// Returns the current connection, for custom packets and streams. `None` for transports other than frisbee, and
    /// for several servers.
    pub fn connection(&self) -> Option<Connection> {
        match &self.route {
            ChannelTransport::One(server) => server.connection(),
            ChannelTransport::Many(_) => None,
        }
    }

    /// Ends RPC on the connection and returns it as a plain byte stream, like [`Connection::takeover`].
    ///
    /// Calls in flight fail. The peer has to do the same, so agree on it with a call or packet first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the connection.
    pub async fn into_raw(self) -> Result<Raw, Status> {
        let Some(connection) = self.connection() else {
            return Err(Status::failed_precondition("the channel does not use a frisbee connection"));
        };
        connection
            .takeover()
            .await
            .map_err(|reason| Status::unavailable(reason.to_string()).with_source(Arc::new(reason) as Arc<_>))
    }

    /// Makes a unary call.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety).
    pub async fn unary<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<P>, Status> {
        let mut request = request.into_request();
        self.inherit(request.head_mut());
        let start = Instant::now();
        let mut measure = self.measure(method, start);
        // The common case: no part of the call is boxed, and the message is encoded where it is sent.
        let mut attempt = None;
        let connection = match &self.route {
            ChannelTransport::One(ServerCaller::Frisbee(connection)) if self.layers.is_empty() => connection,
            ChannelTransport::One(ServerCaller::Other(caller)) if self.layers.is_empty() => {
                let (answered, arrival) = match self.begin_one(&**caller, method, request, start, &mut measure) {
                    Ok(answering) => ArrivingCall(answering).await,
                    Err(status) => return Err(measure.failed(status)),
                };
                return self.end_one(
                    method,
                    caller.format(),
                    answered.map_err(recognize_refusal),
                    arrival,
                    &mut measure,
                );
            }
            ChannelTransport::Many(fleet) if self.layers.is_empty() => {
                attempt = fleet.try_begin_frisbee(method, start);
                match &attempt {
                    Some(attempt) => attempt.frisbee(),
                    None => return Box::pin(self.call_one(method, request, start, measure)).await,
                }
            }
            _ => return Box::pin(self.call_one(method, request, start, measure)).await,
        };
        let time = CallTime::since(start, request.timeout(), self.timeout);
        let message = UnencodedRequest::new(request.get_ref(), measure.begin_request());
        let call = UnaryCall::new(connection, method, None, request.head(), &message, time);
        let mut outcome = match connection.unary(&call, Some(&measure)).await {
            Ok((reply, nanos)) => {
                if let (Some(attempt), UnaryReply::Enveloped(_, answer)) = (&attempt, &reply) {
                    attempt.note_report(answer.trailers());
                }
                let len = reply.len();
                let response = call.response(reply, self.memory, self.any_types);
                match response {
                    Ok(_) => measure.end_unary(len, nanos),
                    Err(_) => measure.add_begun_request(),
                }
                response
            }
            Err(status) => {
                measure.add_begun_request();
                Err(status)
            }
        };
        if let Some(attempt) = attempt {
            // The response is not moved: it is large.
            match outcome {
                Ok(_) => attempt.answered(),
                Err(status) => {
                    outcome = Box::pin(self.repeat_unary(attempt, method, &request, time, status, &mut measure)).await;
                }
            }
        }
        match outcome {
            Ok(response) => Ok(response),
            Err(status) => Err(measure.failed(status)),
        }
    }

    /// Counts the start of a call.
    #[inline]
    fn measure(&self, method: &'static Method, start: Instant) -> ChannelMeasure<'_> {
        ChannelMeasure::begin(self.meter.as_ref(), method, start.into_std())
    }

    /// Makes more attempts of a unary call to one of several servers after its first has failed.
    async fn repeat_unary<Q: Message, P: Message>(
        &self,
        failed: FrisbeeAttempt,
        method: &'static Method,
        request: &Request<Q>,
        time: CallTime,
        status: Status,
        measure: &mut ChannelMeasure<'_>,
    ) -> Result<Response<P>, Status> {
        let ChannelTransport::Many(fleet) = &self.route else { return Err(status) };
        let len = AtomicUsize::new(0);
        let message = UnencodedRequest::new(request.get_ref(), &len);
        let repeated = fleet.repeat_unary(method, request.head(), &message, time, failed.into(), status);
        let (mut answer, format) = repeated.await?;
        measure.answered(&mut answer, None);
        answer.into_response(method, format, self.memory, self.any_types)
    }

    /// Adds the inherited deadline and metadata to a call made by a handler.
    #[inline]
    fn inherit(&self, head: &mut Head) {
        if context::is_inherited() {
            self.inherit_known(head);
        }
    }

    /// The slow path: a call made by a handler.
    #[cold]
    fn inherit_known(&self, head: &mut Head) {
        if let Some(deadline) = context::deadline() {
            let left = deadline.saturating_duration_since(Instant::now().into_std());
            if head.timeout().unwrap_or(self.timeout) > left {
                head.set_timeout(left);
            }
        }
        context::inherit_metadata(head);
    }

    /// Begins a unary call over another transport than frisbee, without layers. The transport boxes its future.
    #[inline(always)] // The request and the call are large, and are not moved.
    fn begin_one<'a, Q: Message>(
        &self,
        caller: &'a dyn Caller,
        method: &'static Method,
        request: Request<Q>,
        start: Instant,
        measure: &mut ChannelMeasure<'_>,
    ) -> Result<BoxFuture<'a, Result<Answer, Status>>, Status> {
        let time = CallTime::since(start, request.timeout(), self.timeout);
        let call = Call::of_brief_request(method, caller.format(), self.any_types, request)?;
        measure.note_request(call.body());
        Ok(caller.call_within(call, time))
    }

    /// Counts and decodes the answer to a unary call.
    #[inline]
    fn end_one<P: Message>(
        &self,
        method: &'static Method,
        format: Format,
        answered: Result<Answer, Status>,
        arrival: Option<frisbee::clock::Instant>,
        measure: &mut ChannelMeasure<'_>,
    ) -> Result<Response<P>, Status> {
        match answered {
            Ok(mut answer) => {
                measure.answered(&mut answer, arrival);
                answer.into_response(method, format, self.memory, self.any_types)
            }
            Err(status) => Err(measure.failed(status)),
        }
    }

    async fn call_one<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        request: Request<Q>,
        start: Instant,
        mut measure: ChannelMeasure<'_>,
    ) -> Result<Response<P>, Status> {
        let format = match self.format(method, MethodKind::Unary, request.head(), start).await {
            Ok(format) => format,
            Err(status) => return Err(measure.failed(status)),
        };
        let call = match Call::of_request(method, format, self.any_types, request) {
            Ok(call) => call.with_kind(MethodKind::Unary),
            Err(status) => return Err(measure.failed(status)),
        };
        measure.note_request(call.body());
        let answered = measure.with_waits(self.call_since(call, start)).await;
        self.end_one(method, format, answered, None, &mut measure)
    }

    /// Makes a server-streaming call.
    ///
    /// Returns once the request is sent. An error of the handler arrives with the first message.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). Afterwards, dropping the response stream cancels the call.
    pub async fn server_streaming<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let (answer, format) =
            self.send(method, MethodKind::ServerStreaming, request.into_request(), Call::of_request).await?;
        answer.into_stream_response(method, format, self.memory, self.any_types)
    }

    /// Makes a client-streaming call.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). The request stream is dropped with the future.
    pub async fn client_streaming<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<P>, Status> {
        let (answer, format) =
            self.send(method, MethodKind::ClientStreaming, requests.into_streaming_request(), Call::of_stream).await?;
        answer.into_response(method, format, self.memory, self.any_types)
    }

    /// Makes a bidirectional call.
    ///
    /// Returns once the call is open. An error of the handler arrives with the first message.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). Afterwards, dropping the response stream cancels the call and drops the
    /// request stream.
    pub async fn bidirectional<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let (answer, format) =
            self.send(method, MethodKind::Bidirectional, requests.into_streaming_request(), Call::of_stream).await?;
        answer.into_stream_response(method, format, self.memory, self.any_types)
    }

    /// Makes a streaming call. Returns the answer and the format of its messages.
    async fn send<T>(
        &self,
        method: &'static Method,
        kind: MethodKind,
        mut request: Request<T>,
        call: fn(&'static Method, Format, &'static Types, Request<T>) -> Result<Call, Status>,
    ) -> Result<(Answer, Format), Status> {
        self.inherit(request.head_mut());
        let start = Instant::now();
        let mut measure = self.measure(method, start);
        let sending = async {
            let format = self.format(method, kind, request.head(), start).await?;
            let call = measure.with_requests(call(method, format, self.any_types, request)?.with_kind(kind));
            Ok((measure.with_waits(self.call_since(call, start)).await?, format))
        };
        match sending.await {
            Ok((mut answer, format)) => {
                measure.answered(&mut answer, None);
                Ok((answer, format))
            }
            Err(status) => Err(measure.failed(status)),
        }
    }

    /// Makes a call of any kind through the layers. Its time counts from `start`.
    async fn call_since(&self, call: Call, start: Instant) -> Result<Answer, Status> {
        if self.layers.is_empty() {
            let time = CallTime::since(start, call.head().timeout(), self.timeout);
            return self.route.caller().call_within(call, time).await.map_err(recognize_refusal);
        }
        // The timeout of a call includes the time spent in layers.
        let end = |call: Call| -> BoxFuture<'_, _> {
            let time = CallTime::since(start, call.head().timeout(), self.timeout);
            Box::pin(self.route.caller().call_within(call, time).map_err(recognize_refusal))
        };
        self.layers.call(call.with_system(self.system), &end).await
    }

    /// Returns the message format for a call of this kind with this head.
    async fn format(
        &self,
        method: &'static Method,
        kind: MethodKind,
        head: &Head,
        start: Instant,
    ) -> Result<Format, Status> {
        if let ChannelTransport::One(ServerCaller::Other(caller)) = &self.route {
            return Ok(caller.format());
        }
        let CallTime { opening, .. } = CallTime::since(start, head.timeout(), self.timeout);
        let waits = kind != MethodKind::Unary || !head.metadata().is_empty();
        match &self.route {
            ChannelTransport::One(server) => server.format(method, waits, opening).await,
            ChannelTransport::Many(fleet) => Box::pin(fleet.method_format(method, waits, opening)).await,
        }
    }
}

impl<T> Request<T> {
    /// Returns a channel to the services offered by the peer, on the connection of this request.
    ///
    /// # Errors
    ///
    /// The request did not arrive on a frisbee connection.
    pub fn channel(&self) -> Result<Channel, Status> {
        match self.connection() {
            Some(connection) => Channel::over(&connection),
            None => Err(Status::failed_precondition("the request did not arrive on a frisbee connection")),
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
