//! The channel of a client: the way of its calls to a server.

pub(crate) mod builder;
mod bytes;
mod custom;

use std::{fmt, sync::Arc, time::Duration};

use frisbee::{Connection, Raw};
use tokio::time::Instant;

use crate::{
    call::{
        context,
        deadline::{CallTime, Deadline},
        exchange::{Answer, Call, decode_response},
        head::Head,
        method::{Method, MethodKind},
        request::{IntoRequest, IntoStreamingRequest, Request, Response},
        status::Status,
        streaming::Streaming,
    },
    client::{caller::Caller, transport::TIMEOUT},
    codec::{Format, MemoryBudget, Message, encode_pieces},
    service::{
        boxed::BoxFuture,
        endpoint::IntoEndpoint,
        layer::{Layer, Layers},
    },
    wire::{
        frisbee::{
            call_table::Reply,
            client::ClientConnection,
            reconnect::{LostMetadata, Reconnecting, answer_of},
            sending::Encoding,
        },
        local::Local,
    },
};

/// A way to a server, shared by any number of clients. Cheap to clone.
///
/// A channel is one connection, which closes when the last clone and the last call are gone. When the connection is
/// lost, the calls that waited fail, and the next call connects again.
///
/// # Connecting again
///
/// All calls that find the connection lost share one attempt to connect. It is a task of the runtime of the call that began
/// it, and makes as many [attempts](crate::ChannelBuilder::attempts) as the first connection. A call waits for it within
/// its own timeout and then fails with [`CallError::NotSent`](crate::CallError::NotSent); the task goes on for the calls to
/// come, until it ends or the channel is dropped. If it fails, all that wait fail with
/// [`CallError::Unreachable`](crate::CallError::Unreachable), and the next call begins anew.
///
/// A server that shuts down, or has had enough of an old connection, asks the channel to go elsewhere. New calls then wait for
/// another connection as they do when one is lost; those under way finish, and the old connection closes behind the last.
///
/// It begins at once when a connection is lost on which the server had said anything. After a failure, and after a
/// connection on which nothing was heard, it begins with a [pause](frisbee::Backoff) that grows up to 5 s.
///
/// # Repeating calls
///
/// A call is made again by itself on another connection, within its timeout, if it is certain that it was not executed: if
/// nothing of it was given to the socket, or if the server refused it because it shuts down. There are at most five attempts,
/// from the third on with a [pause](frisbee::Backoff) before each. A call that sends a stream is repeated only as long as nothing was
/// taken from that stream, which is until it is opened. A call that may have been executed is never repeated.
///
/// # Cancel safety
///
/// The future of a call can be dropped at any time, which gives the call up. A request that was not sent by then never will
/// be; one that was sent may still be executed. The server is told, and drops the handler; a Go server is told only of calls with
/// streams.
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
#[derive(Clone)]
pub struct Channel {
    route: Route,
    layers: Layers,
    timeout: Duration,
    memory: MemoryBudget,
}

/// The transport of a channel. The first is the one whose calls must not cost an allocation.
#[derive(Clone)]
enum Route {
    Frisbee(Arc<Reconnecting>),
    Other(Arc<dyn Caller>),
}

impl Channel {
    /// Makes a channel to the services that the peer offers on a connection that [`Services`](crate::Services) serve on this
    /// side: for calls from a server to its clients. It does not keep the connection open.
    ///
    /// # Errors
    ///
    /// If frpc does not serve the connection on this side, so that no answer could arrive.
    pub fn over(connection: &Connection) -> Result<Self, Status> {
        match ClientConnection::over(connection) {
            Some(connection) => {
                let connection = Reconnecting::new(connection, None, LostMetadata::default(), None);
                Ok(Self::on(connection, Layers::default()))
            }
            None => Err(Status::failed_precondition("the connection is not served by frpc, so no answer can arrive")),
        }
    }

    /// Makes a channel to a service in this process, or to several as [`Services`](crate::Services), through the same encoding
    /// as over a wire. If one of them is there [twice](crate::Collision), every call fails with the code
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) and says which.
    pub fn in_process(services: impl IntoEndpoint) -> Self {
        Self::over_caller(Local::new(services))
    }

    /// Makes a channel over a transport of another kind.
    pub fn over_caller(caller: impl Caller) -> Self {
        Self::by(Route::Other(Arc::new(caller)), Layers::default())
    }

    fn on(connection: Arc<Reconnecting>, layers: Layers) -> Self {
        Self::by(Route::Frisbee(connection), layers)
    }

    fn by(route: Route, layers: Layers) -> Self {
        Self { route, layers, timeout: TIMEOUT, memory: MemoryBudget::default() }
    }

    /// Returns the same channel with another timeout for calls that set none of their own.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the same channel with another limit on the memory that a response takes when it is read. Default [`MemoryBudget`]: 128
    /// MiB, or more where messages may be longer than 4 MiB. Beyond, a call ends with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted), although it was executed.
    pub fn with_message_memory_max(self, message_memory_max: usize) -> Self {
        Self { memory: MemoryBudget::new(message_memory_max), ..self }
    }

    /// Returns the same channel with a layer around its calls, behind those that are there. Clones of the channel stay
    /// without it, so a client can have layers of its own:
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

    /// Says that a client is going to call these methods. If a server has other messages for one of them, which do not fit, that
    /// is a line in the log as soon as there is a connection; every call fails with the same text. Generated clients do it.
    pub fn declare(&self, methods: &'static [Method]) {
        if let Route::Frisbee(connection) = &self.route {
            connection.declare(methods);
        }
    }

    /// Returns the connection that calls go over now, for packets and streams of the user's own. `None` within the process.
    pub fn connection(&self) -> Option<Connection> {
        match &self.route {
            Route::Frisbee(connection) => Some(connection.current().connection.clone()),
            Route::Other(_) => None,
        }
    }

    /// Ends RPC on the connection and gives it back as a plain byte stream, as [`Connection::takeover`] does. Calls
    /// under way fail. The other side has to do the same: agree on it by a call or packet before.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the connection.
    pub async fn into_raw(self) -> Result<Raw, Status> {
        let Some(connection) = self.connection() else {
            return Err(Status::failed_precondition("there is no connection within the process"));
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
        // The common cases: nothing of the call is boxed, and it is encoded where it is sent.
        if let Route::Frisbee(connection) = &self.route
            && self.layers.is_empty()
        {
            if self.is_plain(connection, &request) {
                let (request, deadline) = (Encoding(request.get_ref()), Deadline::since(start, self.timeout));
                let reply = match connection.plain_call(method, &request, deadline) {
                    Some(call) => call.await,
                    None => connection.unary(method, &request, deadline).await,
                };
                match reply? {
                    Some(Reply::Plain(content)) => {
                        return decode_response(method, Format::Polyglot, &content, self.memory).map(Response::new);
                    }
                    Some(reply) => {
                        return answer_of(reply, &connection.current())?.into_response(
                            method,
                            Format::Polyglot,
                            self.memory,
                        );
                    }
                    None => {}
                }
            } else {
                let encode = || encode_pieces(request.get_ref());
                let CallTime { opening, .. } = CallTime::since(start, request.timeout(), self.timeout);
                if let Some(answer) = connection.unary_at_once(method, request.head(), encode, opening).await {
                    return answer?.into_response(method, Format::Polyglot, self.memory);
                }
            }
        }
        Box::pin(self.call_one(method, request, start)).await
    }

    /// Gives a call what it inherits from the one whose handler makes it.
    #[inline]
    fn inherit(&self, head: &mut Head) {
        if context::is_inherited() {
            self.inherit_known(head);
        }
    }

    #[cold]
    fn inherit_known(&self, head: &mut Head) {
        if let Some(deadline) = context::deadline() {
            let left = deadline.saturating_duration_since(Instant::now().into_std());
            if head.timeout().unwrap_or(self.timeout) > left {
                head.set_timeout(left);
            }
        }
        context::inherited_metadata(|inherited| head.metadata_mut().inherit(inherited));
    }

    /// Returns whether a request is nothing but its message, as it is.
    fn is_plain<Q>(&self, connection: &Reconnecting, request: &Request<Q>) -> bool {
        let is_announced = connection.announced.is_none_or(|announced| announced == self.timeout);
        request.metadata().is_empty() && request.timeout().is_none() && is_announced && !connection.compresses
    }

    async fn call_one<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        request: Request<Q>,
        start: Instant,
    ) -> Result<Response<P>, Status> {
        let format = self.format(method, MethodKind::Unary, request.head(), start).await?;
        let call = Call::of_request(method, format, request)?.with_kind(MethodKind::Unary);
        self.call_since(call, start).await?.into_response(method, format, self.memory)
    }

    /// Makes a server-streaming call. Returns once the request is sent: a status of the handler comes with the first
    /// message.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). Once it has returned, dropping the stream gives the call up.
    pub async fn server_streaming<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        request: impl IntoRequest<Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let mut request = request.into_request();
        self.inherit(request.head_mut());
        let start = Instant::now();
        let kind = MethodKind::ServerStreaming;
        let format = self.format(method, kind, request.head(), start).await?;
        let call = Call::of_request(method, format, request)?;
        self.call_since(call.with_kind(kind), start).await?.into_stream_response(method, format, self.memory)
    }

    /// Makes a client-streaming call.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). The stream of requests is dropped with the future.
    pub async fn client_streaming<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<P>, Status> {
        let mut requests = requests.into_streaming_request();
        self.inherit(requests.head_mut());
        let start = Instant::now();
        let kind = MethodKind::ClientStreaming;
        let format = self.format(method, kind, requests.head(), start).await?;
        let call = Call::of_stream(method, format, requests);
        self.call_since(call.with_kind(kind), start).await?.into_response(method, format, self.memory)
    }

    /// Makes a bidirectional call. Returns at once: a status of the handler comes with the first message.
    ///
    /// # Cancel safety
    ///
    /// As for [every call](Self#cancel-safety). Once it has returned, dropping the stream of answers gives the call up, and
    /// drops the stream of requests.
    pub async fn bidirectional<Q: Message, P: Message>(
        &self,
        method: &'static Method,
        requests: impl IntoStreamingRequest<Message = Q>,
    ) -> Result<Response<Streaming<P>>, Status> {
        let mut requests = requests.into_streaming_request();
        self.inherit(requests.head_mut());
        let start = Instant::now();
        let kind = MethodKind::Bidirectional;
        let format = self.format(method, kind, requests.head(), start).await?;
        let call = Call::of_stream(method, format, requests);
        self.call_since(call.with_kind(kind), start).await?.into_stream_response(method, format, self.memory)
    }

    /// Makes a call of any kind that began at `start`, through the layers.
    async fn call_since(&self, mut call: Call, start: Instant) -> Result<Answer, Status> {
        if self.layers.is_empty() {
            call.set_time(CallTime::since(start, call.head().timeout(), self.timeout));
            return self.caller().call(call).await;
        }
        // The time spent in layers is part of the call's.
        let end = |mut call: Call| -> BoxFuture<'_, _> {
            call.set_time(CallTime::since(start, call.head().timeout(), self.timeout));
            self.caller().call(call)
        };
        self.layers.call(call, &end).await
    }

    fn caller(&self) -> &dyn Caller {
        match &self.route {
            Route::Frisbee(connection) => connection,
            Route::Other(caller) => &**caller,
        }
    }

    /// Returns the format of the messages of a call of this kind with this head.
    async fn format(
        &self,
        method: &'static Method,
        kind: MethodKind,
        head: &Head,
        start: Instant,
    ) -> Result<Format, Status> {
        match &self.route {
            Route::Frisbee(connection) => {
                let CallTime { opening, .. } = CallTime::since(start, head.timeout(), self.timeout);
                let waits = kind != MethodKind::Unary || !head.metadata().is_empty();
                connection.format(method, waits, opening).await
            }
            Route::Other(caller) => Ok(caller.format()),
        }
    }
}

impl<T> Request<T> {
    /// Returns a channel to the services that the peer offers on the connection that a received request came on.
    ///
    /// # Errors
    ///
    /// If the request came on no connection of frisbee.
    pub fn channel(&self) -> Result<Channel, Status> {
        match self.connection() {
            Some(connection) => Channel::over(&connection),
            None => Err(Status::failed_precondition("the request came on no connection")),
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
