//! A builder for channels.

use std::{fmt, io, sync::Arc, time::Duration};

use frisbee::{Address, Config, Dispatch, Engine, InvalidSetting, Router, SocketOptions, ToAddress};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time,
};

use super::{Channel, Route};
#[cfg(feature = "tls")]
use crate::client::transport::ConnectTls;
use crate::{
    client::{
        Redial,
        transport::{ByteStream, ConnectSettings, Connected, Transport, transport_for},
    },
    codec::{Compression, MemoryBudget},
    error::ConnectError,
    service::{
        boxed::{BoxFuture, BoxService},
        handle::Service,
        layer::{Layer, Layers},
        services::Services,
        set::ServiceSet,
    },
    wire::frisbee::{
        call_table::CALLS_MAX,
        client::{ClientConnection, WhenFull},
        reconnect::{Dialer, LostMetadata, Reconnecting},
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
    client: frisbee::Client<()>,
    services: Services<S, R>,
    timeout: Duration,
    pause: Duration,
    calls_max: usize,
    when_full: WhenFull,
    lost_metadata: LostMetadata,
    memory: MemoryBudget,
    layers: Layers,
    transports: Vec<Arc<dyn Transport>>,
    /// The settings shared with transports other than frisbee.
    settings: ConnectSettings,
}

impl ChannelBuilder {
    fn new() -> Self {
        let settings = ConnectSettings::default();
        Self {
            client: frisbee::Client::new(()).timeout(settings.connect_timeout).attempts(settings.attempts),
            services: Services::new().with_fallback(()),
            timeout: settings.timeout,
            pause: settings.pause,
            calls_max: CALLS_MAX,
            when_full: WhenFull::default(),
            lost_metadata: LostMetadata::default(),
            memory: MemoryBudget::default(),
            layers: Layers::default(),
            transports: Vec::new(),
            settings,
        }
    }
}

impl<S: ServiceSet, R: Router> ChannelBuilder<S, R> {
    /// Sets the timeout for calls that set none. Default 30 s.
    ///
    /// For a streaming call it bounds the opening. For the single answer to a request stream, it also bounds the wait
    /// after the end of that stream. A response stream has no time limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Limits the number of concurrent calls, without streaming calls. Default and maximum 32 768: half of the packet
    /// ids.
    pub fn calls_max(self, calls_max: usize) -> Self {
        Self { calls_max, ..self }
    }

    /// Sets what happens to a call beyond [`calls_max`](Self::calls_max) or the server's limit
    /// ([`ServerBuilder::calls_max`](crate::ServerBuilder::calls_max)). Default [`WhenFull::Wait`].
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Sets what happens to a call with metadata if the peer cannot receive it. Default [`LostMetadata::Fail`].
    pub fn lost_metadata(self, lost_metadata: LostMetadata) -> Self {
        Self { lost_metadata, ..self }
    }

    /// Limits the metadata of a call from the server: [`Services::metadata_len_max`].
    pub fn metadata_len_max(self, metadata_len_max: usize) -> Self {
        self.map(|services| services.metadata_len_max(metadata_len_max))
    }

    /// Compresses messages to servers with support for the algorithm, as in [`Services::send_compressed`]. Default: no
    /// compression.
    ///
    /// Only messages of at least [`compression_len_min`](Self::compression_len_min) bytes are compressed, and only if
    /// the result is shorter. A further call adds an algorithm for servers without support for the earlier ones.
    /// Compressed messages from servers need no setting: the features of this crate decide which algorithms are
    /// accepted.
    ///
    /// ```
    /// # #[cfg(feature = "zstd")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use frpc::{Channel, codec::Compression};
    ///
    /// let channel = Channel::builder().send_compressed(Compression::Zstd).connect("tcp://localhost:7300").await?;
    /// # let _ = channel;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_compressed(self, algorithm: Compression) -> Self {
        self.map(|services| services.send_compressed(algorithm))
    }

    /// Sets the minimum length of compressed messages. Default 1 KiB.
    pub fn compression_len_min(self, len_min: usize) -> Self {
        self.map(|services| services.compression_len_min(len_min))
    }

    /// Limits the inflated bytes of streams and of the server's calls on this side: [`Services::inflated_len_max`].
    /// Default 32 MiB.
    ///
    /// With 0, nothing compressed is accepted. Unary answers do not count, because they go to their callers immediately.
    pub fn inflated_len_max(self, inflated_len_max: usize) -> Self {
        self.map(|services| services.inflated_len_max(inflated_len_max))
    }

    /// Accepts messages that lose values on this side because of a different version of the proto file:
    /// [`Services::accept_narrowing`]. Default: no.
    ///
    /// This covers responses, and requests of the server to offered services. For requests to the server, the server
    /// decides.
    pub fn accept_narrowing(self, accept: bool) -> Self {
        self.map(|services| services.accept_narrowing(accept))
    }

    /// Limits the memory of one decoded response, or of one request of the server:
    /// [`Channel::with_message_memory_max`].
    ///
    /// Default 128 MiB, or more if messages may be longer than 4 MiB.
    pub fn message_memory_max(mut self, message_memory_max: usize) -> Self {
        self.memory = MemoryBudget::new(message_memory_max);
        self.map(|services| services.message_memory_max(message_memory_max))
    }

    /// Adds a layer around the calls of the channel, inside the layers added before; see [`Channel::layer`].
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }

    /// Adds a layer around the server's calls to the offered services.
    pub fn layer_services(self, layer: impl Layer) -> Self {
        self.map(|services| services.layer(layer))
    }

    /// Offers a service to the server. The server can call it on the same connection.
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
        self.transports.push(Arc::new(transport));
        self
    }

    /// Sets the limits and timers of the connection.
    pub fn config(mut self, config: Config) -> Self {
        self.settings.message_len_max = config.content_len_max;
        self.client(|client| client.config(config))
    }

    /// Sets how handlers of the server's calls and packets run; see [`frisbee::Client::dispatch`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        self.client(|client| client.dispatch(dispatch))
    }

    /// Sets the threads for the connection; see [`frisbee::Client::engine`].
    pub fn engine(self, engine: Engine) -> Self {
        self.client(|client| client.engine(engine))
    }

    /// Sets the options of sockets.
    pub fn sockets(mut self, sockets: SocketOptions) -> Self {
        self.settings.sockets = sockets.clone();
        self.client(|client| client.sockets(sockets))
    }

    /// Sets the time limit of one connect attempt, including the TLS handshake. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self.client(|client| client.timeout(timeout))
    }

    /// Sets the number of connect attempts. Default 10; 0 counts as 1.
    ///
    /// With the pauses in between, ten attempts take about 5 s if the address refuses connections, and up to 15 s if it
    /// does not respond. An error that a retry cannot fix ends the attempts immediately; see
    /// [`frisbee::Client::connect`].
    pub fn attempts(mut self, attempts: usize) -> Self {
        self.settings.attempts = attempts.max(1);
        self.client(|client| client.attempts(attempts))
    }

    /// Sets the pause after the first failed attempt; see [`Backoff`](frisbee::Backoff) for later pauses. Default 10
    /// ms.
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }.client(|client| client.pause(pause))
    }

    /// Connects with TLS and expects a certificate for the host name or IP address in the address.
    ///
    /// Accepts a [`ClientTls`](crate::ClientTls), made from PEM or from the roots of the system, or any rustls
    /// configuration.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<frisbee::rustls::ClientConfig>>) -> Self {
        self.settings.tls = Some(ConnectTls { config: config.into(), name: None });
        self
    }

    /// Connects with TLS and expects a certificate for this name, regardless of the address.
    #[cfg(feature = "tls")]
    pub fn tls_with_name(
        mut self,
        config: impl Into<Arc<frisbee::rustls::ClientConfig>>,
        name: impl Into<crate::TlsName>,
    ) -> Self {
        self.settings.tls = Some(ConnectTls { config: config.into(), name: Some(name.into()) });
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
        let (pause, way) = (self.pause, self.way());
        let dialer = Arc::new(self.secured().dialer());
        let dial = move || -> BoxFuture<'static, Result<ClientConnection, ConnectError>> {
            let (dialer, address) = (dialer.clone(), address.clone());
            Box::pin(async move {
                let (client, calls) = dialer.client();
                Ok(dialer.serve(client.connect(address).await?, calls))
            })
        };
        let first = dial().await?;
        let redial = Redial::new(dial, pause, first.heard());
        Ok(way.channel(first, Some(redial)))
    }

    /// Connects to a URL through a transport.
    async fn connect_over_transport(self, url: String) -> Result<Channel, ConnectError> {
        let transport = transport_for(&url, &self.transports)?;
        let settings = ConnectSettings { timeout: self.timeout, pause: self.pause, ..self.settings.clone() };
        let stream = match transport.connect(url.clone(), settings.clone()).await? {
            Connected::Frisbee(stream) => stream,
            Connected::Calls(_) if self.services.table().methods().next().is_some() => {
                let why = format!(
                    "{url}: services offered to the server need frisbee, because no other transport can call them"
                );
                return Err(ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why)));
            }
            Connected::Calls(caller) => {
                return Ok(Channel {
                    route: Route::Other(caller),
                    layers: self.layers,
                    timeout: self.timeout,
                    memory: self.memory,
                });
            }
        };
        let (pause, way) = (self.pause, self.way());
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
        let redial = Redial::new(dial, pause, first.heard());
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
        self.services.complete()?;
        InvalidSetting::refuse_zero("calls_max", &self.calls_max, "every call would wait for another to end")?;
        InvalidSetting::refuse_zero("timeout", &self.timeout, "every call would have timed out before it began")?;
        Ok(self.client.check()?)
    }

    /// Returns the settings that the channel keeps after connecting.
    fn way(&self) -> Way {
        Way {
            timeout: self.timeout,
            lost_metadata: self.lost_metadata,
            memory: self.memory,
            layers: self.layers.clone(),
        }
    }

    /// Enables TLS in frisbee, if configured.
    #[cfg(feature = "tls")]
    fn secured(self) -> Self {
        match self.settings.tls.clone() {
            None => self,
            Some(ConnectTls { config, name: None }) => self.client(|client| client.tls(config)),
            Some(ConnectTls { config, name: Some(name) }) => self.client(|client| client.tls_with_name(config, name)),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(self) -> Self {
        self
    }

    fn dialer(self) -> Dialer<S, R> {
        let Self { client, services, calls_max, when_full, timeout, .. } = self;
        Dialer { client: client.check_peer(), services: Arc::new(services), calls_max, when_full, timeout }
    }

    fn map<S2, R2>(self, change: impl FnOnce(Services<S, R>) -> Services<S2, R2>) -> ChannelBuilder<S2, R2> {
        let Self {
            client,
            services,
            timeout,
            pause,
            calls_max,
            when_full,
            lost_metadata,
            memory,
            layers,
            transports,
            settings,
        } = self;
        ChannelBuilder {
            client,
            services: change(services),
            timeout,
            pause,
            calls_max,
            when_full,
            lost_metadata,
            memory,
            layers,
            transports,
            settings,
        }
    }

    fn client(self, change: impl FnOnce(frisbee::Client<()>) -> frisbee::Client<()>) -> Self {
        Self { client: change(self.client), ..self }
    }
}

impl<S, R> fmt::Debug for ChannelBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The settings that a channel keeps, independent of its transport.
struct Way {
    timeout: Duration,
    lost_metadata: LostMetadata,
    memory: MemoryBudget,
    layers: Layers,
}

impl Way {
    fn channel(self, first: ClientConnection, redial: Option<Redial<ClientConnection>>) -> Channel {
        let connection = Reconnecting::new(first, redial, self.lost_metadata, Some(self.timeout));
        Channel { timeout: self.timeout, memory: self.memory, ..Channel::on(connection, self.layers) }
    }
}

/// Makes a connection over a stream from a transport.
async fn attach<S: ServiceSet, R: Router>(
    dialer: &Dialer<S, R>,
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
