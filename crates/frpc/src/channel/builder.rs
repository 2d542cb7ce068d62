//! A builder for channels.

use std::{fmt, io, sync::Arc, time::Duration};

use frisbee::{Address, Config, ConnectRetry, Engine, InvalidSetting, Router, SocketOptions};
use futures_util::stream::{self, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    Channel, ChannelTransport,
    connecting::{Dialed, ServerDialer},
    health::WatchHealth,
    listed::ListedTransport,
    settings::ChannelCallSettings,
};
#[cfg(feature = "tls")]
use crate::client::transport::ConnectTls;
use crate::{
    call::{meter::CallMeter, system::RpcSystem},
    client::{
        FrameMeter, Redial,
        transport::{ConnectSettings, Transport},
    },
    codec::{MemoryBudget, json::Types},
    error::ConnectError,
    fleet::{
        self, Endpoint, EndpointNames, FleetSettings, Resolve, ResolverFactory, ToTarget,
        server::{ConnectedServer, ServerCaller},
        set::Fleet,
        target::{Target, TargetKind},
    },
    inspect, metrics,
    service::{
        boxed::{BoxFuture, BoxService},
        handle::Service,
        layer::{Layer, LayerStack},
        services::Services,
        set::ServiceSet,
        settings::{CompressionSettings, MessageSettings},
    },
    wire::frisbee::{
        calling::{
            connection::ClientConnection,
            reconnecting::{FrisbeeCaller, LostMetadata},
        },
        dialer::ConnectionFactory,
    },
};

impl Channel {
    /// Connects to a [target](crate::fleet::Target) such as `"tcp://localhost:7300"` or `"dns:///orders:7300"`, with
    /// default settings.
    ///
    /// # Cancel safety
    ///
    /// As for [`ChannelBuilder::connect`].
    pub async fn connect(target: impl ToTarget) -> Result<Self, ConnectError> {
        Self::builder().connect(target).await
    }

    /// Returns a builder with default settings.
    pub fn builder() -> ChannelBuilder {
        ChannelBuilder::new()
    }
}

/// A builder for a channel: timeouts, limits, offered services and transport settings. Created by [`Channel::builder`].
pub struct ChannelBuilder<S = (), R = ()> {
    services: Services<S, R>,
    calling: Calling,
}

/// The part of a [`ChannelBuilder`] that does not depend on the types of its services.
struct Calling {
    client: frisbee::Client<()>,
    calls: ChannelCallSettings,
    layers: LayerStack,
    transports: Vec<Arc<dyn Transport>>,
    resolvers: Vec<Arc<dyn ResolverFactory>>,
    health: Option<Arc<dyn WatchHealth>>,
    /// The settings shared with transports other than frisbee.
    settings: ConnectSettings,
    fleet: FleetSettings,
}

impl ChannelBuilder {
    fn new() -> Self {
        let calling = Calling {
            client: frisbee::Client::new(()),
            calls: ChannelCallSettings::default(),
            layers: LayerStack::default(),
            transports: Vec::new(),
            resolvers: Vec::new(),
            health: None,
            settings: ConnectSettings::default(),
            fleet: FleetSettings::default(),
        };
        Self { services: Services::new().with_fallback(()), calling }
    }
}

impl<S: ServiceSet, R: Router> ChannelBuilder<S, R> {
    /// Sets the timeout for calls that set none. Default 30 s.
    ///
    /// For a streaming call it bounds the opening. For the single answer to a request stream, it also bounds the wait
    /// after the end of that stream. A response stream has no time limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.calling.settings.timeout = timeout;
        self
    }

    /// Sets the limits of calls made by this side, and how handlers of the server's calls run.
    pub fn calls(mut self, calls: ChannelCallSettings) -> Self {
        self.calling.calls = calls;
        self
    }

    /// Sets the limits of responses, and of calls from the server.
    pub fn messages(self, messages: MessageSettings) -> Self {
        self.map(|services| services.messages(messages))
    }

    /// Sets the compression of messages.
    pub fn compression(self, compression: CompressionSettings) -> Self {
        self.map(|services| services.compression(compression))
    }

    /// Adds a layer around the calls of the channel, inside the layers added before; see [`Channel::layer`].
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.calling.layers = self.calling.layers.with(layer);
        self
    }

    /// Offers a service to the server. The server can call it on the same connection. [`Layered`](crate::Layered) adds
    /// layers around these calls.
    ///
    /// On a connection to a plain server, such as one in Go, its operations must differ from the called operations.
    pub fn add_service<T: Service>(self, service: T) -> ChannelBuilder<(S, T), R> {
        self.map(|services| services.add_service(service))
    }

    /// Offers a service if there is one, for example depending on a flag: [`Services::add_optional_service`].
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> ChannelBuilder<(S, Option<T>), R> {
        self.map(|services| services.add_optional_service(service))
    }

    /// Offers type-erased services: [`Services::add_services`].
    pub fn add_services(
        self,
        services: impl IntoIterator<Item = BoxService>,
    ) -> ChannelBuilder<(S, Vec<BoxService>), R> {
        self.map(|offered| offered.add_services(services))
    }

    /// Passes the server's packets other than answers and calls to this router. Default `()`, which drops them.
    pub fn router<T: Router>(self, router: T) -> ChannelBuilder<S, T> {
        self.map(|services| services.over(router))
    }

    /// Adds a transport for addresses with its schemes. It takes precedence over transports added before and over the
    /// [defaults](crate::register_transport) of the process.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.calling.transports.push(Arc::new(transport));
        self
    }

    /// Adds resolvers for targets with its schemes. It takes precedence over earlier ones and over the
    /// [defaults](crate::fleet::register_resolver) of the process.
    pub fn resolver(mut self, factory: impl ResolverFactory) -> Self {
        self.calling.resolvers.push(Arc::new(factory));
        self
    }

    /// Sets the limits and timers of the connection.
    pub fn config(mut self, config: Config) -> Self {
        self.calling.settings.message_len_max = config.content_len_max;
        self.client(|client| client.config(config))
    }

    /// Sets the threads for the connection; see [`frisbee::Client::engine`].
    pub fn engine(self, engine: Engine) -> Self {
        self.client(|client| client.engine(engine))
    }

    /// Sets the options of sockets.
    pub fn sockets(mut self, sockets: SocketOptions) -> Self {
        self.calling.settings.sockets = sockets;
        self
    }

    /// Sets the time limit of one connect attempt, including the TLS handshake. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.calling.settings.connect_timeout = timeout;
        self
    }

    /// Sets the number of connect attempts and the pauses between them.
    ///
    /// By default, ten attempts with their pauses take about 5 s if the address refuses connections, and up to 15 s if it
    /// does not respond. An error that a retry cannot fix ends the attempts immediately; see
    /// [`frisbee::Client::connect`].
    pub fn retry(mut self, retry: ConnectRetry) -> Self {
        self.calling.settings.retry = retry;
        self
    }

    /// Connects with TLS and expects a certificate for the host name or IP address in the address.
    ///
    /// Accepts a [`ClientTls`](crate::ClientTls), made from PEM or from the roots of the system, or any rustls
    /// configuration.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<frisbee::rustls::ClientConfig>>) -> Self {
        self.calling.settings.tls = Some(ConnectTls { config: config.into(), name: None });
        self
    }

    /// Connects with TLS and expects a certificate for this name, regardless of the address.
    #[cfg(feature = "tls")]
    pub fn tls_with_name(
        mut self,
        config: impl Into<Arc<frisbee::rustls::ClientConfig>>,
        name: impl Into<crate::TlsName>,
    ) -> Self {
        self.calling.settings.tls = Some(ConnectTls { config: config.into(), name: Some(name.into()) });
        self
    }

    /// Sets the picking of servers and the retries of calls, for a channel to several servers.
    pub fn fleet(mut self, fleet: FleetSettings) -> Self {
        self.calling.fleet = fleet;
        self
    }

    /// Watches the health of each server, for a channel to several servers. A server gets calls while it is healthy.
    ///
    /// The health is that of the service in [`ServiceConfig::health_check`](crate::fleet::ServiceConfig::health_check),
    /// or else of the server as a whole.
    pub fn health(mut self, watcher: impl WatchHealth) -> Self {
        self.calling.health = Some(Arc::new(watcher));
        self
    }

    /// Connects to a [target](crate::fleet::Target): an address such as `"tcp://localhost:7300"` or
    /// `"unix:/run/app.sock"`, several addresses, or a name such as `"dns:///orders.internal:7300"`.
    ///
    /// The current tokio runtime serves the connections. Several servers count as connected when the first of them is.
    /// A URL with another scheme, such as `"grpc://localhost:7300"`, needs a [transport](Self::transport) for this
    /// scheme.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempts. No connection is left open.
    pub async fn connect(self, target: impl ToTarget) -> Result<Channel, ConnectError> {
        self.check()?;
        let Target { kind, name } = target.to_target()?.resolved(&self.calling.resolvers)?;
        match kind {
            TargetKind::One(address) => self.connect_to_one(address, &name).await,
            TargetKind::Many(resolver) => {
                let (fleet, way) = self.start_fleet(resolver, &name);
                fleet.first().await?;
                Ok(way.listed_channel(ChannelTransport::Many(fleet), &name, None))
            }
        }
    }

    /// Creates a channel without waiting for a connection. Calls wait for it, within their timeouts.
    ///
    /// The attempts to connect begin immediately, as tasks on the current tokio runtime. After the end of that runtime, the
    /// next call starts them again on its own.
    ///
    /// # Errors
    ///
    /// A setting or the target is invalid.
    pub fn connect_lazy(self, target: impl ToTarget) -> Result<Channel, ConnectError> {
        self.check()?;
        let target = target.to_target()?.resolved(&self.calling.resolvers)?;
        let name = target.name.clone();
        let (fleet, way) = self.start_fleet(target.into_resolver()?, &name);
        Ok(way.listed_channel(ChannelTransport::Many(fleet), &name, None))
    }

    /// Connects to one server. The channel replaces a lost connection when the next call needs it.
    async fn connect_to_one(self, address: Address, name: &str) -> Result<Channel, ConnectError> {
        let (pause, way) = (self.calling.settings.retry.pause, self.way(name));
        let dialer = self.dialer(&way);
        let first = match dialer.dial(&address, EndpointNames::default()).await? {
            Dialed::Frisbee(first) => first,
            Dialed::Calls(caller) => {
                return Ok(way.listed_channel(ChannelTransport::One(ServerCaller::Other(caller)), name, Some(address)));
            }
        };
        let server = address.clone();
        let dial = move || -> BoxFuture<'static, Result<ClientConnection, ConnectError>> {
            let (dialer, address) = (dialer.clone(), address.clone());
            Box::pin(async move {
                match dialer.dial(&address, EndpointNames::default()).await? {
                    Dialed::Frisbee(connection) => Ok(connection),
                    Dialed::Calls(_) => {
                        let why = format!("{address}: the transport carried frisbee before, but not on this attempt");
                        Err(ConnectError::Address(io::Error::other(why)))
                    }
                }
            })
        };
        let redial = Redial::new(dial, pause, first.packets_received());
        let caller = FrisbeeCaller::new(first, Some(redial), way.lost_metadata, Some(way.timeout));
        Ok(way.listed_channel(ChannelTransport::One(ServerCaller::Frisbee(caller)), name, Some(server)))
    }

    /// Starts to resolve and to connect, for a channel to several servers.
    fn start_fleet(mut self, resolver: Arc<dyn Resolve>, name: &str) -> (Arc<Fleet>, CallDefaults) {
        let (way, settings, retry) = (self.way(name), self.calling.fleet.clone(), self.calling.settings.retry);
        // The set makes the attempts of each endpoint.
        self.calling.settings.retry.attempts = 1;
        let (health, service) = (self.calling.health.take(), settings.service_config.health_check.clone());
        let service = service.unwrap_or_default();
        let (lost_metadata, timeout, dialer) = (way.lost_metadata, way.timeout, self.dialer(&way));
        let connect = move |endpoint: Endpoint| -> BoxFuture<'static, Result<ConnectedServer, ConnectError>> {
            let (dialer, health, service) = (dialer.clone(), health.clone(), service.clone());
            Box::pin(async move {
                let caller = match dialer.dial(&endpoint.address, endpoint.names()).await? {
                    Dialed::Calls(caller) => ServerCaller::Other(caller),
                    Dialed::Frisbee(first) => {
                        ServerCaller::Frisbee(FrisbeeCaller::new(first, None, lost_metadata, Some(timeout)))
                    }
                };
                let health = match health {
                    Some(health) => health.watch(Channel::to_server(caller.clone()), &service),
                    None => stream::once(async { true }).boxed(),
                };
                Ok(ConnectedServer { caller, health })
            })
        };
        (fleet::start(resolver, settings, retry, Arc::new(connect), way.meter.clone()), way)
    }

    /// Makes a channel over a custom stream. The channel cannot reconnect after the stream is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the stream.
    pub async fn attach(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Channel, ConnectError> {
        self.check()?;
        let way = self.way("attached");
        let connection = self.dialer(&way).attach(stream).await?;
        let caller = FrisbeeCaller::new(connection, None, way.lost_metadata, Some(way.timeout));
        Ok(way.channel_to(ChannelTransport::One(ServerCaller::Frisbee(caller))))
    }

    /// Returns an error for settings that would keep every call from being made or answered.
    fn check(&self) -> Result<(), ConnectError> {
        let Calling { calls, settings, fleet, .. } = &self.calling;
        self.services.complete()?;
        calls.check()?;
        fleet.check()?;
        InvalidSetting::refuse_zero("timeout", &settings.timeout, "every call would have timed out before it began")?;
        Ok(self.calling.client().check()?)
    }

    /// Returns the settings that the channel keeps after connecting.
    fn way(&self, target: &str) -> CallDefaults {
        CallDefaults {
            meter: self.calling.calls.metrics.then(|| metrics::of_target(target)),
            system: RpcSystem::of_target(target),
            timeout: self.calling.settings.timeout,
            lost_metadata: self.calling.calls.lost_metadata,
            memory: self.services.common.messages.message_memory_max,
            any_types: self.services.common.messages.any_types,
            layers: self.calling.layers.clone(),
        }
    }

    fn dialer(self, way: &CallDefaults) -> Arc<ServerDialer<S, R>> {
        let Self { services, mut calling } = self;
        calling.settings.frames = FrameMeter::new(way.meter.clone());
        let client = calling.client().check_peer();
        let Calling { calls: ChannelCallSettings { calls_max, when_full, .. }, settings, transports, .. } = calling;
        let (services, timeout) = (Arc::new(services), settings.timeout);
        let factory = ConnectionFactory { client, services, calls_max, when_full, timeout };
        Arc::new(ServerDialer { factory, settings, transports })
    }

    fn map<S2, R2>(self, change: impl FnOnce(Services<S, R>) -> Services<S2, R2>) -> ChannelBuilder<S2, R2> {
        ChannelBuilder { services: change(self.services), calling: self.calling }
    }

    fn client(mut self, change: impl FnOnce(frisbee::Client<()>) -> frisbee::Client<()>) -> Self {
        self.calling.client = change(self.calling.client);
        self
    }
}

impl Calling {
    /// Returns the client for frisbee, with the settings shared by all transports.
    fn client(&self) -> frisbee::Client<()> {
        let ConnectSettings { connect_timeout, retry, sockets, .. } = &self.settings;
        let client = self.client.with_router(()).timeout(*connect_timeout).retry(*retry).sockets(sockets.clone());
        client.dispatch(self.calls.dispatch)
    }
}

impl<S, R> fmt::Debug for ChannelBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBuilder").field("timeout", &self.calling.settings.timeout).finish_non_exhaustive()
    }
}

/// The settings that a channel keeps, independent of its transport.
struct CallDefaults {
    timeout: Duration,
    lost_metadata: LostMetadata,
    memory: MemoryBudget,
    any_types: &'static Types,
    layers: LayerStack,
    meter: Option<Arc<CallMeter>>,
    system: RpcSystem,
}

impl CallDefaults {
    /// Makes a channel in the list of all channels. Channels to one server have its address.
    fn listed_channel(self, route: ChannelTransport, target: &str, server: Option<Address>) -> Channel {
        inspect::add_channel(target, self.meter.as_ref(), ListedTransport::new(&route, server));
        self.channel_to(route)
    }

    fn channel_to(self, route: ChannelTransport) -> Channel {
        let Self { timeout, memory, any_types, layers, meter, system, .. } = self;
        Channel { route, layers, timeout, memory, any_types, meter, system }
    }
}
