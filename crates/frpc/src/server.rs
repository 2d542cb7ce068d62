//! Serving services at an address.

use std::{convert::Infallible, fmt, future, pin::pin, sync::Arc, time::Duration};

use frisbee::{
    Address, Config, Connection, Dispatch, Engine, InvalidSetting, ListenOn, Router, ServerMetrics, SocketOptions,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

use crate::{
    call::{deadline::Times, method::Method},
    codec::Compression,
    error::ServeError,
    service::{
        boxed::BoxService,
        endpoint::Endpoint,
        handle::Service,
        layer::Layer,
        services::{Services, Unimplemented},
        set::ServiceSet,
    },
    wire::server_wire::{Served, Wire},
};

/// A server that is running. Dropping it frees its address and cuts every connection; [`shutdown`](Self::shutdown) ends it
/// gently.
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
    /// Returns the settings of a server that has no services yet.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            services: Services::new(),
            transport: frisbee::Server::builder(()),
            wires: Vec::new(),
            drain_max: DRAIN_MAX,
        }
    }

    /// Returns the address it listens on, with the port that was really bound: the first of several.
    pub fn local_addr(&self) -> &Address {
        self.inner.local_addr()
    }

    /// Returns all addresses it listens on, in the order given to [`bind`](ServerBuilder::bind).
    pub fn local_addrs(&self) -> &[Address] {
        self.inner.local_addrs()
    }

    /// Returns the engine that serves it; see [`frisbee::Server::engine`].
    pub fn engine(&self) -> Engine {
        self.inner.engine()
    }

    /// Serves a stream of the user's own, on the current tokio runtime. TLS comes on top if it is configured.
    pub fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.inner.attach(stream);
    }

    /// Serves a stream of the user's own, and takes this for the address of the peer; see
    /// [`frisbee::Server::attach_from`].
    pub fn attach_from(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: impl Into<Address>) {
        self.inner.attach_from(stream, peer);
    }

    /// Returns the connections that are open. [`Channel::over`](crate::Channel::over) calls what their clients offer.
    pub fn connections(&self) -> Vec<Connection> {
        self.inner.connections()
    }

    /// Returns the counters of the server.
    pub fn metrics(&self) -> ServerMetrics {
        self.inner.metrics()
    }

    /// Stops accepting, lets the calls under way finish and their answers arrive, then closes. What is left after
    /// `limit` is cut; [`Duration::MAX`] waits as long as it takes. Returns how many connections that were.
    ///
    /// Calls with streams that are still under way shortly before `limit`, by a tenth of it and half a second at most, end with
    /// [`Unavailable`](crate::Code::Unavailable) and the reason, so that their callers hear of it in time.
    ///
    /// The addresses are free at once, for the next server. A [`Channel`](crate::Channel) is asked to make new calls elsewhere: it
    /// connects again, to the next server, and no call fails, as long as there is one in time. Calls that had been sent by then
    /// are served, for the [lame-duck time](ServerBuilder::lame_duck) at most. Calls that come later, and those of plain peers such
    /// as Go clients, are answered with a status that says that they were not executed
    /// ([`CallError::Refused`](crate::CallError::Refused)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the server, and every connection is cut.
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

/// The settings of a server. Made by [`Server::builder`].
pub struct ServerBuilder<S = (), R = Unimplemented> {
    services: Services<S, R>,
    transport: frisbee::ServerBuilder<()>,
    /// Each adds itself once the services are complete.
    wires: Vec<AddWire>,
    drain_max: Duration,
}

type AddWire = Box<dyn FnOnce(frisbee::ServerBuilder<()>, &Endpoint) -> frisbee::ServerBuilder<()> + Send>;

impl<S: ServiceSet, R: Router> ServerBuilder<S, R> {
    /// Sets the size of the metadata that a call may bring: [`Services::metadata_len_max`]. Default 8 KiB.
    pub fn metadata_len_max(self, metadata_len_max: usize) -> Self {
        Self { services: self.services.metadata_len_max(metadata_len_max), ..self }
    }

    /// Has calls that handlers make take along metadata of these names: [`Services::inherit_metadata`].
    pub fn inherit_metadata(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { services: self.services.inherit_metadata(names), ..self }
    }

    /// Sets the times that calls may take here, whatever their callers say. Default: as their callers say.
    pub fn times(self, times: Times) -> Self {
        Self { services: self.services.times(times), ..self }
    }

    /// Sets the times that calls of one method may take here, in place of those for all: [`Services::method_times`]. The constant of
    /// the method is in the generated module of its service.
    pub fn method_times(self, method: &'static Method, times: Times) -> Self {
        Self { services: self.services.method_times(method, times), ..self }
    }

    /// Sets the number of unary calls of one connection that may be under way at once: [`Services::calls_max`]. Default `None`.
    pub fn calls_max(self, calls_max: impl Into<Option<u32>>) -> Self {
        Self { services: self.services.calls_max(calls_max), ..self }
    }

    /// Has answers compressed for callers that inflate this: [`Services::send_compressed`]. Default: none are.
    pub fn send_compressed(self, algorithm: Compression) -> Self {
        Self { services: self.services.send_compressed(algorithm), ..self }
    }

    /// Sets the length from which on answers are compressed: [`Services::compression_len_min`]. Default 1 KiB.
    pub fn compression_len_min(self, len_min: usize) -> Self {
        Self { services: self.services.compression_len_min(len_min), ..self }
    }

    /// Sets how many bytes of requests may be inflated on a connection at the same time: [`Services::inflated_len_max`]. Default
    /// 32 MiB; with 0, nothing compressed is accepted.
    pub fn inflated_len_max(self, inflated_len_max: usize) -> Self {
        Self { services: self.services.inflated_len_max(inflated_len_max), ..self }
    }

    /// Sets whether requests are accepted that lose values here because of another version of the proto file:
    /// [`Services::accept_narrowing`]. Default: no.
    pub fn accept_narrowing(self, accept: bool) -> Self {
        Self { services: self.services.accept_narrowing(accept), ..self }
    }

    /// Sets how many bytes a request may take in memory when it is read: [`Services::message_memory_max`]. Default 128 MiB, or more
    /// where messages may be longer than 4 MiB.
    pub fn message_memory_max(self, message_memory_max: usize) -> Self {
        Self { services: self.services.message_memory_max(message_memory_max), ..self }
    }

    /// Sets how many bytes of memory the messages of one connection may take together: [`Services::connection_memory_max`]. Default
    /// 256 MiB.
    pub fn connection_memory_max(self, connection_memory_max: usize) -> Self {
        Self { services: self.services.connection_memory_max(connection_memory_max), ..self }
    }

    /// Sets how many bytes of memory the messages of all connections may take together: [`Services::server_memory_max`]. Default
    /// 1 GiB.
    pub fn server_memory_max(self, server_memory_max: usize) -> Self {
        Self { services: self.services.server_memory_max(server_memory_max), ..self }
    }

    /// Adds a service.
    pub fn add_service<T: Service>(self, service: T) -> ServerBuilder<(S, T), R> {
        let Self { services, transport, wires, drain_max } = self;
        ServerBuilder { services: services.add_service(service), transport, wires, drain_max }
    }

    /// Adds a service if there is one, as a flag decides: [`Services::add_optional_service`].
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> ServerBuilder<(S, Option<T>), R> {
        let Self { services, transport, wires, drain_max } = self;
        ServerBuilder { services: services.add_optional_service(service), transport, wires, drain_max }
    }

    /// Adds services whose types are not told: [`Services::add_services`].
    pub fn add_services(
        self,
        services: impl IntoIterator<Item = BoxService>,
    ) -> ServerBuilder<(S, Vec<BoxService>), R> {
        let Self { services: before, transport, wires, drain_max } = self;
        ServerBuilder { services: before.add_services(services), transport, wires, drain_max }
    }

    /// Puts a layer around all services, those that are still to be added as well, behind the layers that are there.
    ///
    /// | on the server | goes through the layers |
    /// |---|---|
    /// | methods of services, on every wire: frisbee, HTTP, JSON-RPC, WebSocket, in process | yes, streams included |
    /// | health and reflection of `frpc-services` | yes: they are services |
    /// | functions of `frpc-jsonrpc`, each of a batch, and `rpc.discover` | yes: as a method with the function's name and no service |
    /// | calls of methods that the server does not have, requests that cannot be read, the end of a subscription | no: the wire answers |
    /// | packets and streams of a [`router`](Self::router), such as publish and subscribe | no |
    /// | mounts and routes of `frpc-http` | no, but the JSON-RPC on a mount does |
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { services: self.services.layer(layer), ..self }
    }

    /// Serves the same services over another wire on the same port. Wires are asked for a connection in the order in which they
    /// are added.
    pub fn wire(mut self, wire: impl Wire) -> Self {
        self.wires.push(Box::new(|transport, endpoint| {
            let endpoint = endpoint.clone();
            transport.protocol(Served { wire, endpoint })
        }));
        self
    }

    /// Gives packets and streams that are no calls to this router: [`Services::over`].
    pub fn router<T: Router>(self, router: T) -> ServerBuilder<S, T> {
        let Self { services, transport, wires, drain_max } = self;
        ServerBuilder { services: services.over(router), transport, wires, drain_max }
    }

    /// Sets the limits and timers of each connection.
    pub fn config(self, config: Config) -> Self {
        self.transport(|transport| transport.config(config))
    }

    /// Sets how handlers of unary calls run. Default [`Dispatch::InPlace`]. Each call with streams is a task.
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        self.transport(|transport| transport.dispatch(dispatch))
    }

    /// Sets the threads that serve connections. Default [`Engine::Tokio`].
    pub fn engine(self, engine: Engine) -> Self {
        self.transport(|transport| transport.engine(engine))
    }

    /// Sets the options of sockets.
    pub fn sockets(self, sockets: SocketOptions) -> Self {
        self.transport(|transport| transport.sockets(sockets))
    }

    /// Connections open at once; see [`frisbee::ServerBuilder::connections_max`].
    pub fn connections_max(self, connections_max: usize) -> Self {
        self.transport(|transport| transport.connections_max(connections_max))
    }

    /// Handlers under way at once over all connections; see [`frisbee::ServerBuilder::handlers_max`].
    pub fn handlers_max(self, handlers_max: usize) -> Self {
        self.transport(|transport| transport.handlers_max(handlers_max))
    }

    /// Sets the longest time for which a [shutdown](Server::shutdown) serves calls of channels that it asked to make new ones
    /// elsewhere. Default 5 s, and at most half of the limit of the shutdown; see [`frisbee::ServerBuilder::lame_duck`].
    pub fn lame_duck(self, lame_duck: Duration) -> Self {
        self.transport(|transport| transport.lame_duck(lame_duck))
    }

    /// Limits the age of a connection, give or take a tenth, so that channels connect anew from time to time. Default `None`; see
    /// [`frisbee::ServerBuilder::connection_age_max`]. A [`Channel`](crate::Channel) does so without any call noticing.
    pub fn connection_age_max(self, age_max: impl Into<Option<Duration>>) -> Self {
        self.transport(|transport| transport.connection_age_max(age_max))
    }

    /// Sets the time for which a connection that is too old is served on. Default 30 s; see
    /// [`frisbee::ServerBuilder::connection_age_grace`].
    pub fn connection_age_grace(self, grace: Duration) -> Self {
        self.transport(|transport| transport.connection_age_grace(grace))
    }

    /// Accepts TLS only, with a [`ServerTls`](crate::ServerTls) made of PEM, or any rustls configuration.
    #[cfg(feature = "tls")]
    pub fn tls(self, config: impl Into<Arc<frisbee::rustls::ServerConfig>>) -> Self {
        self.transport(|transport| transport.tls(config))
    }

    /// Sets the time that [`serve_with_shutdown`](Self::serve_with_shutdown) lets calls finish. Default 30 s.
    pub fn drain_max(self, drain_max: Duration) -> Self {
        Self { drain_max, ..self }
    }

    /// Listens at an address, such as `"tcp://127.0.0.1:7300"` or `"unix:/run/app.sock"`, at several, or with listeners
    /// that exist: everything that is [`ListenOn`]. Serves from now on; see [`frisbee::ServerBuilder::bind`].
    ///
    /// # Errors
    ///
    /// A service that is there [twice](crate::Collision), settings under which nothing could be served, and whatever keeps it from
    /// listening. Nothing is left of the server then.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a server if the future is dropped.
    pub async fn bind(self, on: impl ListenOn) -> Result<Server, ServeError> {
        self.check()?;
        let (transport, endpoint) = self.into_transport();
        Ok(Server { inner: transport.bind(on).await?, endpoint })
    }

    /// Serves only what [`Server::attach`] is given, on the current tokio runtime. Fails with the same collisions and
    /// settings as [`bind`](Self::bind).
    pub fn without_listener(self) -> Result<Server, ServeError> {
        self.check()?;
        let (transport, endpoint) = self.into_transport();
        Ok(Server { inner: transport.without_listener(), endpoint })
    }

    /// Serves at an address until the program ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the server, and every connection is cut.
    pub async fn serve(self, on: impl ListenOn) -> Result<Infallible, ServeError> {
        let _server = self.bind(on).await?;
        future::pending().await
    }

    /// Serves at an address until the signal comes, and then shuts down gently.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the server, and every connection is cut.
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
        if let Some(calls_max) = self.services.calls_max {
            InvalidSetting::refuse_zero("calls_max", &calls_max, "every call would be refused")?;
        }
        Ok(self.transport.check()?)
    }

    fn into_transport(self) -> (frisbee::ServerBuilder<Arc<Services<S, R>>>, Endpoint) {
        let services = Arc::new(self.services);
        let endpoint = Endpoint::shared(services.clone());
        let transport = self.wires.into_iter().fold(self.transport, |transport, add| add(transport, &endpoint));
        (transport.router(services), endpoint)
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

/// The longest time before the end of a shutdown at which calls with streams end.
const FAREWELL_MAX: Duration = Duration::from_millis(500);
const DRAIN_MAX: Duration = Duration::from_secs(30);
