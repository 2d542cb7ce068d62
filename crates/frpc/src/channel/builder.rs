//! The settings of a channel.

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
    /// Connects to an address, such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`, with default settings.
    ///
    /// # Cancel safety
    ///
    /// As for [`ChannelBuilder::connect`].
    pub async fn connect(address: impl ToAddress) -> Result<Self, ConnectError> {
        Self::builder().connect(address).await
    }

    /// Returns the settings of a channel that is to be connected.
    pub fn builder() -> ChannelBuilder {
        ChannelBuilder::new()
    }
}

/// The settings of a channel. Made by [`Channel::builder`].
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
    /// The settings that are also those of transports besides frisbee.
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
    /// Sets the time that a call may take which sets no timeout of its own. Default 30 s. For a call with streams it
    /// bounds the opening, and the wait for the one answer to a stream from the end of that stream on; a stream of answers
    /// may take as long as it likes.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the number of calls that may be under way at once, not counting those with streams. Default and at most 32 768,
    /// which is half of the ids.
    pub fn calls_max(self, calls_max: usize) -> Self {
        Self { calls_max, ..self }
    }

    /// Sets what happens to a call beyond [`calls_max`](Self::calls_max), or beyond what the server takes at once
    /// ([`ServerBuilder::calls_max`](crate::ServerBuilder::calls_max)). Default [`WhenFull::Wait`].
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Sets what becomes of a call with metadata over a peer that cannot take it. Default [`LostMetadata::Fail`].
    pub fn lost_metadata(self, lost_metadata: LostMetadata) -> Self {
        Self { lost_metadata, ..self }
    }

    /// Sets the size of the metadata that a call of the server may bring: [`Services::metadata_len_max`].
    pub fn metadata_len_max(self, metadata_len_max: usize) -> Self {
        self.map(|services| services.metadata_len_max(metadata_len_max))
    }

    /// Has messages to the server compressed if it inflates this, as [`Services::send_compressed`] does: those of
    /// [`compression_len_min`](Self::compression_len_min) bytes or more, if they get shorter by it. Default: none are. Called
    /// again, it adds an algorithm for servers that do not inflate those before. Whatever the features of this crate can inflate
    /// is accepted from servers, without this.
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

    /// Sets the length from which on messages are compressed. Default 1 KiB.
    pub fn compression_len_min(self, len_min: usize) -> Self {
        self.map(|services| services.compression_len_min(len_min))
    }

    /// Sets how many bytes of streams, and of calls that the server makes, may be inflated at the same time:
    /// [`Services::inflated_len_max`]. Default 32 MiB; with 0, nothing compressed is accepted. A unary answer does not count: it
    /// goes to its caller at once.
    pub fn inflated_len_max(self, inflated_len_max: usize) -> Self {
        self.map(|services| services.inflated_len_max(inflated_len_max))
    }

    /// Sets whether responses are accepted that lose values here because of another version of the proto file, and requests of
    /// the server to what is offered to it: [`Services::accept_narrowing`]. Default: no. About requests to the server, the server
    /// decides.
    pub fn accept_narrowing(self, accept: bool) -> Self {
        self.map(|services| services.accept_narrowing(accept))
    }

    /// Sets how many bytes a response, or a request that the server makes, may take in memory when it is read:
    /// [`Channel::with_message_memory_max`]. Default 128 MiB, or more where messages may be longer than 4 MiB.
    pub fn message_memory_max(mut self, message_memory_max: usize) -> Self {
        self.memory = MemoryBudget::new(message_memory_max);
        self.map(|services| services.message_memory_max(message_memory_max))
    }

    /// Puts a layer around the calls of the channel, behind those that are there; see [`Channel::layer`].
    pub fn layer(self, layer: impl Layer) -> Self {
        Self { layers: self.layers.with(layer), ..self }
    }

    /// Puts a layer around the calls that the server makes to what is offered to it.
    pub fn layer_services(self, layer: impl Layer) -> Self {
        self.map(|services| services.layer(layer))
    }

    /// Offers a service to the server, which can call it on the same connection. For a plain server, such as one in Go, its
    /// operations must be others than those that are called there.
    pub fn add_service<T: Service>(self, service: T) -> ChannelBuilder<(S, T), R> {
        self.map(|services| services.add_service(service))
    }

    /// Offers a service if there is one, as a flag decides: [`Services::add_optional_service`].
    pub fn add_optional_service<T: Service>(self, service: Option<T>) -> ChannelBuilder<(S, Option<T>), R> {
        self.map(|services| services.add_optional_service(service))
    }

    /// Offers services whose types are not told: [`Services::add_services`].
    pub fn add_services(
        self,
        services: impl IntoIterator<Item = BoxService>,
    ) -> ChannelBuilder<(S, Vec<BoxService>), R> {
        self.map(|offered| offered.add_services(services))
    }

    /// Gives packets of the server that are neither answers nor calls to this router. Default `()`, which drops them.
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

    /// Sets how handlers of what the server sends run; see [`frisbee::Client::dispatch`].
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        self.client(|client| client.dispatch(dispatch))
    }

    /// Sets the threads that serve the connection; see [`frisbee::Client::engine`].
    pub fn engine(self, engine: Engine) -> Self {
        self.client(|client| client.engine(engine))
    }

    /// Sets the options of sockets.
    pub fn sockets(mut self, sockets: SocketOptions) -> Self {
        self.settings.sockets = sockets.clone();
        self.client(|client| client.sockets(sockets))
    }

    /// Sets the time for one attempt to connect, TLS handshake included. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self.client(|client| client.timeout(timeout))
    }

    /// Sets the number of attempts to connect before giving up. Default 10; 0 counts as 1. With the pauses between them,
    /// ten take about 5 s at an address where nobody listens, and up to 15 s where nobody answers. An error that another
    /// attempt cannot heal ends them at once; see [`frisbee::Client::connect`].
    pub fn attempts(mut self, attempts: usize) -> Self {
        self.settings.attempts = attempts.max(1);
        self.client(|client| client.attempts(attempts))
    }

    /// Sets the pause after the first failed attempt; see [`Backoff`](frisbee::Backoff) for those after it. Default 10 ms.
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }.client(|client| client.pause(pause))
    }

    /// Connects with TLS and expects a certificate for the name or IP address that is connected to. Takes a
    /// [`ClientTls`](crate::ClientTls) made of PEM or of the system's roots, or any rustls configuration.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<frisbee::rustls::ClientConfig>>) -> Self {
        self.settings.tls = Some(ConnectTls { config: config.into(), name: None });
        self
    }

    /// Connects with TLS and expects a certificate for this name, wherever the connection goes.
    #[cfg(feature = "tls")]
    pub fn tls_with_name(
        mut self,
        config: impl Into<Arc<frisbee::rustls::ClientConfig>>,
        name: impl Into<crate::TlsName>,
    ) -> Self {
        self.settings.tls = Some(ConnectTls { config: config.into(), name: Some(name.into()) });
        self
    }

    /// Connects to an address, such as `"tcp://localhost:7300"` or `"unix:/run/app.sock"`. The connection is served by
    /// the current tokio runtime. A URL of another scheme, such as `"grpc://localhost:7300"`, needs a
    /// [transport](Self::transport) that has it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, there is no connection, and no attempt goes on.
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

    /// Connects to an address that is none of frisbee's.
    async fn connect_over_transport(self, url: String) -> Result<Channel, ConnectError> {
        let transport = transport_for(&url, &self.transports)?;
        let settings = ConnectSettings { timeout: self.timeout, pause: self.pause, ..self.settings.clone() };
        let stream = match transport.connect(url.clone(), settings.clone()).await? {
            Connected::Frisbee(stream) => stream,
            Connected::Calls(_) if self.services.table().methods().next().is_some() => {
                let why =
                    format!("{url}: services that are offered to the server need frisbee, over which it can call them");
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
        // The transport has secured the stream as far as the address says.
        let dialer = Arc::new(self.dialer());
        let first = attach(&dialer, stream, &url).await?;
        let dial = move || -> BoxFuture<'static, Result<ClientConnection, ConnectError>> {
            let (dialer, transport) = (dialer.clone(), transport.clone());
            let (url, settings) = (url.clone(), settings.clone());
            Box::pin(async move {
                match transport.connect(url.clone(), settings).await? {
                    Connected::Frisbee(stream) => attach(&dialer, stream, &url).await,
                    Connected::Calls(_) => {
                        let why = format!("{url}: the transport carried frisbee before, and makes calls now");
                        Err(ConnectError::Address(io::Error::other(why)))
                    }
                }
            })
        };
        let redial = Redial::new(dial, pause, first.heard());
        Ok(way.channel(first, Some(redial)))
    }

    /// Talks over a stream of the user's own. When it is lost, so is the channel.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the stream, and there is no connection.
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

    /// Finds what would keep every call from being made or answered.
    fn check(&self) -> Result<(), ConnectError> {
        self.services.complete()?;
        InvalidSetting::refuse_zero("calls_max", &self.calls_max, "every call would wait for another to end")?;
        InvalidSetting::refuse_zero("timeout", &self.timeout, "every call would have timed out before it began")?;
        Ok(self.client.check()?)
    }

    /// Returns what the channel keeps of the settings.
    fn way(&self) -> Way {
        Way {
            timeout: self.timeout,
            lost_metadata: self.lost_metadata,
            memory: self.memory,
            layers: self.layers.clone(),
        }
    }

    /// Has frisbee speak TLS, if that is configured.
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

/// The settings that a channel keeps, however it is connected.
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

/// Talks over a stream that a transport connected.
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

/// Waits as when connecting: the first call knows what the peer serves, and under which numbers. One that says nothing is taken for
/// a plain peer that is slow.
async fn recognize(connection: &ClientConnection) {
    let _ = time::timeout(SILENCE_BELIEVED, connection.connection.recognized()).await;
}

/// The time that a peer on a stream of the user's own has to show what it speaks.
const SILENCE_BELIEVED: Duration = Duration::from_millis(500);
