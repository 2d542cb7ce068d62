//! A server with services at an address.

use std::{convert::Infallible, fmt, future, pin::pin, sync::Arc, time::Duration};

#[cfg(unix)]
use frisbee::Handover;
use frisbee::{Address, Config, Connection, Engine, ListenOn, Router, ServerLimits, SocketOptions};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

use crate::{
    error::ServeError,
    inspect,
    metrics::ServerMetrics,
    service::{
        boxed::BoxService,
        endpoint::Endpoint,
        handle::Service,
        layer::Layer,
        services::{Services, Unimplemented},
        set::ServiceSet,
        settings::{CallSettings, CompressionSettings, MessageSettings},
    },
    wire::server_wire::{Wire, WireAdapter},
};

/// A running server.
///
/// Dropping it frees its address and closes every connection. [`shutdown`](Self::shutdown) lets calls finish first.
///
/// ```
/// # use frpc::generated::{Answer, Call, Method, Service, Status};
/// # struct Echo;
/// # impl Service for Echo {
/// #     const NAME: &'static str = "Echo";
/// #     const METHODS: &'static [Method] = &[];
/// #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
/// # }
/// use std::time::Duration;
///
/// use frpc::Server;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().add_service(Echo).bind("tcp://127.0.0.1:0").await?;
/// println!("listening on {}", server.local_addr());
/// server.shutdown(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    inner: frisbee::Server,
    endpoint: Endpoint,
}

impl Server {
    /// Returns a builder without services.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            services: Services::new(),
            transport: frisbee::Server::builder(()),
            wires: Vec::new(),
            drain_max: DRAIN_MAX,
        }
    }

    /// Adds the server to the list of all servers.
    fn observed(inner: frisbee::Server, endpoint: Endpoint) -> Self {
        inspect::add_server(inner.observer(), endpoint.meter(), endpoint.settings());
        Self { inner, endpoint }
    }

    /// Returns the first address of the server, with the actual port.
    pub fn local_addr(&self) -> &Address {
        self.inner.local_addr()
    }

    /// Returns all addresses of the server, in the order given to [`bind`](ServerBuilder::bind).
    pub fn local_addrs(&self) -> &[Address] {
        self.inner.local_addrs()
    }

    /// Returns the services of the server, for serving them in other ways as well, such as through NATS.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Returns the engine in use; see [`frisbee::Server::engine`].
    pub fn engine(&self) -> Engine {
        self.inner.engine()
    }

    /// Serves a custom stream on the current tokio runtime, with TLS if configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.inner.attach(stream);
    }

    /// Serves a custom stream with this address of the peer; see [`frisbee::Server::attach_from`].
    pub fn attach_from(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: impl Into<Address>) {
        self.inner.attach_from(stream, peer);
    }

    /// Returns the open connections. [`Channel::over`](crate::Channel::over) calls the services offered by their
    /// clients.
    pub fn connections(&self) -> Vec<Connection> {
        self.inner.connections()
    }

    /// Returns the counters of the server: its calls by method, and its connections.
    pub fn metrics(&self) -> ServerMetrics {
        ServerMetrics { methods: self.endpoint.metrics(), transport: self.inner.metrics() }
    }

    /// Stops the previous process, then waits for the next one and passes it the listeners of this server.
    ///
    /// Returns once the next process serves and this server has stopped accepting. Call
    /// [`shutdown`](Self::shutdown) afterwards. No connection is refused, and no call of a
    /// [`Channel`](crate::Channel) fails. See [`frisbee::Server::hand_over`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the handover socket. A next process that has received the listeners goes on with
    /// them.
    #[cfg(unix)]
    pub async fn hand_over(&self, handover: Handover) {
        self.inner.hand_over(handover).await;
    }

    /// Shuts down gracefully: stops accepting, lets calls in flight finish, and closes the connections.
    ///
    /// Connections still open after `limit` are cut, and the number of these is returned. With [`Duration::MAX`], there
    /// is no limit. Streaming calls still in flight shortly before the limit (a tenth of it, at most half a second) end
    /// with [`Unavailable`](crate::Code::Unavailable) and the reason, so their callers are told in time.
    ///
    /// The addresses are free immediately, for the next server. A [`Channel`](crate::Channel) is asked to reconnect. If
    /// it finds another server in time, none of its calls fails. Calls already sent are served, for the [lame-duck
    /// time](ServerLimits::lame_duck) at most. Later calls, and new calls of plain peers such as Go clients, are
    /// refused with a status that tells the caller they were not executed
    /// ([`CallError::Refused`](crate::CallError::Refused)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the server and closes every connection.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let Self { inner, endpoint } = self;
        endpoint.shutting_down();
        let mut shutdown = pin!(inner.shutdown(limit));
        tokio::select! {
            biased;
            left = &mut shutdown => return left,
            () = sleep(limit - FAREWELL_MAX.min(limit / 10)) => endpoint.end_streams(),
        }
        drop(endpoint);
        shutdown.await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local", self.local_addr()).finish_non_exhaustive()
    }
}

/// A builder for a server: services, limits, wires and transport settings. Created by [`Server::builder`].
pub struct ServerBuilder<S = (), R = Unimplemented> {
    services: Services<S, R>,
    transport: frisbee::ServerBuilder<()>,
    /// Functions that add a wire each, called once the services are complete.
    wires: Vec<AddWire>,
    drain_max: Duration,
}

/// A transport that serves services.
type Transport<S, R> = frisbee::ServerBuilder<Arc<Services<S, R>>>;

type AddWire =
    Box<dyn FnOnce(frisbee::ServerBuilder<()>, &Endpoint) -> Result<frisbee::ServerBuilder<()>, ServeError> + Send>;

impl<S: ServiceSet, R: Router> ServerBuilder<S, R> {
    /// Sets the limits of calls, such as their number and time.
    pub fn calls(self, calls: CallSettings) -> Self {
        self.map(|services| services.calls(calls))
    }

    /// Sets the limits of received messages, such as their memory.
    pub fn messages(self, messages: MessageSettings) -> Self {
        self.map(|services| services.messages(messages))
    }

    /// Sets the compression of messages.
    pub fn compression(self, compression: CompressionSettings) -> Self {
        self.map(|services| services.compression(compression))
    }

    /// Adds a service.
    pub fn add_service<T: Service>(self, service: T) -> ServerBuilder<(S, T), R> {
        self.map(|services| services.add_service(service))
    }

    /// Adds a service if there is one, for example depending on a flag: [`Services::add_optional_service`].
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> ServerBuilder<(S, Option<T>), R> {
        self.map(|services| services.add_optional_service(service))
    }

    /// Adds type-erased services: [`Services::add_services`].
    pub fn add_services(
        self,
        services: impl IntoIterator<Item = BoxService>,
    ) -> ServerBuilder<(S, Vec<BoxService>), R> {
        self.map(|before| before.add_services(services))
    }

    /// Adds a layer around all services, including services added later. It runs inside the layers added before.
    ///
    /// | on the server | goes through the layers |
    /// |---|---|
    /// | methods of services, on every wire: frisbee, HTTP, JSON-RPC, WebSocket, in process | yes, streams included |
    /// | health and reflection of `frisbee-rpc-services` | yes: they are services |
    /// | functions of `frisbee-rpc-jsonrpc`, each of a batch, and `rpc.discover` | yes: as a method with the function's name and no service |
    /// | calls of unknown methods, unreadable requests, the end of a subscription | no: the wire answers |
    /// | packets and streams of a [`router`](Self::router), such as publish and subscribe | no |
    /// | mounts and routes of `frisbee-rpc-http` | no, but the JSON-RPC on a mount does |
    pub fn layer(self, layer: impl Layer) -> Self {
        self.map(|services| services.layer(layer))
    }

    /// Serves the same services over another wire on the same port.
    ///
    /// For each connection, wires are asked in the order of these calls.
    pub fn wire(mut self, mut wire: impl Wire) -> Self {
        self.wires.push(Box::new(|transport, endpoint| {
            wire.prepare(endpoint).map_err(ServeError::Wire)?;
            let endpoint = endpoint.clone();
            Ok(transport.protocol(WireAdapter { wire, endpoint }))
        }));
        self
    }

    /// Passes packets and streams other than calls to this router: [`Services::over`].
    pub fn router<T: Router>(self, router: T) -> ServerBuilder<S, T> {
        self.map(|services| services.over(router))
    }

    /// Sets the limits and timers of each connection.
    pub fn config(self, config: Config) -> Self {
        self.transport(|transport| transport.config(config))
    }

    /// Sets the threads for connections. Default [`Engine::Tokio`].
    pub fn engine(self, engine: Engine) -> Self {
        self.transport(|transport| transport.engine(engine))
    }

    /// Sets the options of listening and accepted sockets.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        self.transport(|transport| transport.sockets(sockets))
    }

    /// Sets the limits over all connections, and the times given to them to leave.
    pub fn limits(self, limits: ServerLimits) -> Self {
        self.transport(|transport| transport.limits(limits))
    }

    /// Accepts only TLS, with a [`ServerTls`](crate::ServerTls) from PEM or any rustls configuration.
    #[cfg(feature = "tls")]
    pub fn tls(self, config: impl Into<Arc<frisbee::rustls::ServerConfig>>) -> Self {
        self.transport(|transport| transport.tls(config))
    }

    /// Sets how long [`serve_with_shutdown`](Self::serve_with_shutdown) lets calls finish. Default 30 s.
    pub fn drain_max(self, drain_max: Duration) -> Self {
        Self { drain_max, ..self }
    }

    /// Binds one or several addresses, such as `"tcp://127.0.0.1:7300"` or `"unix:/run/app.sock"`, and starts serving.
    ///
    /// Existing listeners work as well; see [`ListenOn`] and [`frisbee::ServerBuilder::bind`].
    ///
    /// # Errors
    ///
    /// A service added [twice](crate::Collision), settings that allow no call to be served, a wire that cannot serve
    /// the services, or an error of the listening socket. No listener is left open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no listener open.
    pub async fn bind(self, on: impl ListenOn) -> Result<Server, ServeError> {
        self.check()?;
        let (transport, endpoint) = self.into_transport()?;
        Ok(Server::observed(transport.bind(on).await?, endpoint))
    }

    /// Starts a server without an address. It serves only streams passed to [`Server::attach`].
    ///
    /// # Errors
    ///
    /// The same collisions and settings as for [`bind`](Self::bind).
    pub fn without_listener(self) -> Result<Server, ServeError> {
        self.check()?;
        let (transport, endpoint) = self.into_transport()?;
        Ok(Server::observed(transport.without_listener(), endpoint))
    }

    /// Binds an address and serves until the program ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the server and closes every connection.
    pub async fn serve(self, on: impl ListenOn) -> Result<Infallible, ServeError> {
        let _server = self.bind(on).await?;
        future::pending().await
    }

    /// Binds an address, serves until the signal completes, and shuts down gracefully.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the server and closes every connection.
    pub async fn serve_with_shutdown(
        self,
        on: impl ListenOn,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let drain_max = self.drain_max;
        let server = self.bind(on).await?;
        signal.await;
        server.shutdown(drain_max).await;
        Ok(())
    }

    fn check(&self) -> Result<(), ServeError> {
        self.services.complete()?;
        self.services.common.calls.check()?;
        Ok(self.transport.check()?)
    }

    fn into_transport(self) -> Result<(Transport<S, R>, Endpoint), ServeError> {
        let services = Arc::new(self.services);
        let endpoint = Endpoint::shared(services.clone());
        let transport = self.transport.dispatch(services.common.calls.dispatch);
        let transport = self.wires.into_iter().try_fold(transport, |transport, add| add(transport, &endpoint))?;
        Ok((transport.router(services), endpoint))
    }

    fn map<S2, R2>(self, change: impl FnOnce(Services<S, R>) -> Services<S2, R2>) -> ServerBuilder<S2, R2> {
        let Self { services, transport, wires, drain_max } = self;
        ServerBuilder { services: change(services), transport, wires, drain_max }
    }

    fn transport(self, change: impl FnOnce(frisbee::ServerBuilder<()>) -> frisbee::ServerBuilder<()>) -> Self {
        Self { transport: change(self.transport), ..self }
    }
}

impl<S, R> fmt::Debug for ServerBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("drain_max", &self.drain_max).finish_non_exhaustive()
    }
}

/// The maximum time between the end of streaming calls and the end of a shutdown.
const FAREWELL_MAX: Duration = Duration::from_millis(500);
const DRAIN_MAX: Duration = Duration::from_secs(30);
