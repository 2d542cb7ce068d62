//! A builder for channels.

use std::{fmt, io, sync::Arc, time::Duration};

use frisbee::{Address, Config, ConnectRetry, Engine, InvalidSetting, Router, SocketOptions, ToAddress};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time,
};

use super::{Channel, ChannelTransport, settings::ChannelCallSettings};
#[cfg(feature = "tls")]
use crate::client::transport::ConnectTls;
use crate::{
    client::{
        Redial,
        transport::{ByteStream, ConnectSettings, Connected, Transport, transport_for},
    },
    codec::{MemoryBudget, json::Types},
    error::ConnectError,
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
    /// Connects to an address such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`, with default settings.
    ///
    /// # Cancel safety
    ///
    /// As for [`ChannelBuilder::connect`].
    pub async fn connect(address: impl ToAddress) -> Result<Self, ConnectError> {
        Self::builder().connect(address).await
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
    /// The settings shared with transports other than frisbee.
    settings: ConnectSettings,
}

impl ChannelBuilder {
    fn new() -> Self {
        let calling = Calling {
            client: frisbee::Client::new(()),
            calls: ChannelCallSettings::default(),
            layers: LayerStack::default(),
            transports: Vec::new(),
            settings: ConnectSettings::default(),
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

    /// Connects to an address such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`.
    ///
    /// The current tokio runtime serves the connection. A URL with another scheme, such as `"grpc://localhost:7300"`,
    /// needs a [transport](Self::transport) for this scheme.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempts. No connection is left open.
    pub async fn connect(self, address: impl ToAddress) -> Result<Channel, ConnectError> {
        self.check()?;
        let address = address.to_address()?;
        if let Address::Url(url) = address {
            return self.connect_over_transport(url).await;
        }
        let (pause, way) = (self.calling.settings.retry.pause, self.way());
        let dialer = Arc::new(self.secured().dialer());
        let dial = move || -> BoxFuture<'static, Result<ClientConnection, ConnectError>> {
            let (dialer, address) = (dialer.clone(), address.clone());
            Box::pin(async move {
                let (client, calls) = dialer.client();
                Ok(dialer.serve(client.connect(address).await?, calls))
            })
        };
        let first = dial().await?;
        let redial = Redial::new(dial, pause, first.packets_received());
        Ok(way.channel(first, Some(redial)))
    }

    /// Connects to a URL through a transport.
    async fn connect_over_transport(self, url: String) -> Result<Channel, ConnectError> {
        let transport = transport_for(&url, &self.calling.transports)?;
        let settings = self.calling.settings.clone();
        let stream = match transport.connect(url.clone(), settings.clone()).await? {
            Connected::Frisbee(stream) => stream,
            Connected::Calls(_) if self.services.table().methods().next().is_some() => {
                let why = format!(
                    "{url}: services offered to the server need frisbee, because no other transport can call them"
                );
                return Err(ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why)));
            }
            Connected::Calls(caller) => {
                let CallDefaults { timeout, memory, any_types, layers, .. } = self.way();
                return Ok(Channel { route: ChannelTransport::Other(caller), layers, timeout, memory, any_types });
            }
        };
        let (pause, way) = (settings.retry.pause, self.way());
        // The transport has already applied TLS where the URL asks for it.
        let dialer = Arc::new(self.dialer());
        let first = attach(&dialer, stream, &url).await?;
        let dial = move || -> BoxFuture<'static, Result<ClientConnection, ConnectError>> {
            let (dialer, transport) = (dialer.clone(), transport.clone());
            let (url, settings) = (url.clone(), settings.clone());
            Box::pin(async move {
                match transport.connect(url.clone(), settings).await? {
                    Connected::Frisbee(stream) => attach(&dialer, stream, &url).await,
                    Connected::Calls(_) => {
                        let why = format!("{url}: the transport carried frisbee before, but not on this attempt");
                        Err(ConnectError::Address(io::Error::other(why)))
                    }
                }
            })
        };
        let redial = Redial::new(dial, pause, first.packets_received());
        Ok(way.channel(first, Some(redial)))
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
        let way = self.way();
        let dialer = self.secured().dialer();
        let (client, calls) = dialer.client();
        let connection = dialer.serve(client.attach(stream).await?, calls);
        recognize(&connection).await;
        Ok(way.channel(connection, None))
    }

    /// Returns an error for settings that would keep every call from being made or answered.
    fn check(&self) -> Result<(), ConnectError> {
        let Calling { calls, settings, .. } = &self.calling;
        self.services.complete()?;
        calls.check()?;
        InvalidSetting::refuse_zero("timeout", &settings.timeout, "every call would have timed out before it began")?;
        Ok(self.calling.client().check()?)
    }

    /// Returns the settings that the channel keeps after connecting.
    fn way(&self) -> CallDefaults {
        CallDefaults {
            timeout: self.calling.settings.timeout,
            lost_metadata: self.calling.calls.lost_metadata,
            memory: self.services.common.messages.message_memory_max,
            any_types: self.services.common.messages.any_types,
            layers: self.calling.layers.clone(),
        }
    }

    /// Enables TLS in frisbee, if configured.
    #[cfg(feature = "tls")]
    fn secured(self) -> Self {
        match self.calling.settings.tls.clone() {
            None => self,
            Some(ConnectTls { config, name: None }) => self.client(|client| client.tls(config)),
            Some(ConnectTls { config, name: Some(name) }) => self.client(|client| client.tls_with_name(config, name)),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(self) -> Self {
        self
    }

    fn dialer(self) -> ConnectionFactory<S, R> {
        let Self { services, calling } = self;
        let ChannelCallSettings { calls_max, when_full, .. } = calling.calls;
        let (client, timeout) = (calling.client().check_peer(), calling.settings.timeout);
        ConnectionFactory { client, services: Arc::new(services), calls_max, when_full, timeout }
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
}

impl CallDefaults {
    fn channel(self, first: ClientConnection, redial: Option<Redial<ClientConnection>>) -> Channel {
        let connection = FrisbeeCaller::new(first, redial, self.lost_metadata, Some(self.timeout));
        let Self { timeout, memory, any_types, .. } = self;
        Channel { timeout, memory, any_types, ..Channel::on(connection, self.layers) }
    }
}

/// Makes a connection over a stream from a transport.
async fn attach<S: ServiceSet, R: Router>(
    dialer: &ConnectionFactory<S, R>,
    stream: Box<dyn ByteStream>,
    url: &str,
) -> Result<ClientConnection, ConnectError> {
    let (client, calls) = dialer.client();
    let connection = dialer.serve(client.attach_to(stream, Address::Url(url.to_owned())).await?, calls);
    recognize(&connection).await;
    Ok(connection)
}

/// Waits until the peer is recognized, as `connect` does, so the first call knows the methods of the peer and their
/// numbers. A silent peer counts as a slow plain peer.
async fn recognize(connection: &ClientConnection) {
    let _ = time::timeout(SILENCE_BELIEVED, connection.connection.recognized()).await;
}

/// The time limit for a peer on a custom stream to identify itself.
const SILENCE_BELIEVED: Duration = Duration::from_millis(500);
