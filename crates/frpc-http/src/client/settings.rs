//! Client settings.

use std::{fmt, io, sync::Arc, time::Duration};

use frpc::codec::Format;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};

/// The HTTP version used by a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// The version selected by the server in the TLS handshake, or HTTP/1.1 without TLS. gRPC always uses HTTP/2.
    #[default]
    Auto,
    /// HTTP/1.1. Calls with streams in both directions are half-duplex: the server answers after the last request.
    Http1,
    /// HTTP/2. Without TLS, prior knowledge is assumed.
    Http2,
}

/// A client of gRPC, gRPC-Web, Connect and Twirp: the [`Transport`](frpc::Transport) for their addresses, with
/// settings.
///
/// | address | protocol | HTTP |
/// |---|---|---|
/// | `grpc://HOST:PORT`, `grpcs://` with TLS | gRPC | 2 |
/// | `http://`, `https://` | Connect | 1.1, or 2 if the server chooses it or [`http_version`](Self::http_version) says so |
/// | `grpc-web+http://`, `grpc-web+https://` | gRPC-Web | the same |
/// | `twirp+http://`, `twirp+https://` | Twirp | the same |
///
/// The default port is 80, or 443 with TLS. A path in the address is a prefix of all method paths.
///
/// [`register`](crate::register) makes a client with default settings available to all channels. For other settings,
/// pass the client to the channel builder:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::{Channel, codec::Format};
/// use frpc_http::Client;
///
/// let json = Client::new().format(Format::Json).accept_gzip(false);
/// let channel = Channel::builder().transport(json).connect("http://localhost:8080").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
///
/// [`ChannelBuilder`](frpc::ChannelBuilder) has the settings shared by all transports: timeouts, connection attempts,
/// message length, sockets and TLS. Without a TLS configuration, secure addresses trust the certificate authorities of
/// the system; this requires the feature `tls-native-roots`.
///
/// # Calls
///
/// Timeouts, retries and dropped calls work as described for [`Channel`](frpc::Channel). A call was certainly not
/// executed, and is retried, if it never reached a connection, if none of its bytes were written, or if HTTP/2 reports
/// it as not processed (`REFUSED_STREAM`, or a `GOAWAY` that covers only earlier streams).
#[derive(Clone)]
pub struct Client {
    pub(super) settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) format: Format,
    pub(super) gzip_len_min: Option<usize>,
    pub(super) accepts_gzip: bool,
    pub(super) version: HttpVersion,
    pub(super) twirp_prefix: String,
    pub(super) gets: bool,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) connections_max: usize,
    pub(super) idle_max: Duration,
    pub(super) connector: Option<Connector>,
    pub(super) http: HttpSettings,
}

/// The settings of connections.
#[derive(Clone, Copy)]
pub(super) struct HttpSettings {
    pub(super) headers_len_max: u32,
    /// The ping interval, and the timeout for a response.
    pub(super) keepalive: Option<(Duration, Duration)>,
    pub(super) keepalive_while_idle: bool,
    pub(super) stream_window: u32,
    pub(super) connection_window: u32,
}

/// A byte stream to a server.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(super) type BoxIo = Box<dyn Io>;

/// Opens byte streams to a server.
pub(super) type Connector = Arc<dyn Fn() -> BoxFuture<'static, io::Result<BoxIo>> + Send + Sync>;

impl Client {
    /// Creates a client with default settings.
    pub fn new() -> Self {
        let user_agent = HeaderValue::from_static(concat!("frpc-http/", env!("CARGO_PKG_VERSION")));
        let http = HttpSettings {
            headers_len_max: 16 * 1024,
            // gRPC servers by default allow pings every 5 minutes from clients with quiet streams. This is slightly
            // longer.
            keepalive: Some((Duration::from_secs(310), Duration::from_secs(20))),
            keepalive_while_idle: false,
            stream_window: 1024 * 1024,
            connection_window: 4 * 1024 * 1024,
        };
        Self {
            settings: Settings {
                format: Format::Proto,
                gzip_len_min: None,
                accepts_gzip: true,
                version: HttpVersion::Auto,
                twirp_prefix: "/twirp".to_owned(),
                gets: false,
                user_agent: Some(user_agent),
                connections_max: 100,
                idle_max: Duration::from_secs(60),
                connector: None,
                http,
            },
        }
    }

    /// Sets the message format: [`Format::Proto`], the default, or [`Format::Json`].
    pub fn format(self, format: Format) -> Self {
        self.with(|settings| settings.format = format)
    }

    /// Compresses messages of at least `len_min` bytes with gzip. Default: no compression, since a server may not
    /// support it.
    ///
    /// Very short messages become longer by compression. Twirp requests are never compressed.
    pub fn send_gzip(self, len_min: usize) -> Self {
        self.with(|settings| settings.gzip_len_min = Some(len_min))
    }

    /// Sets whether servers may compress messages with gzip. Default true. A decompressed message is limited to the
    /// maximum message length of the channel ([`Config::content_len_max`](frpc::Config::content_len_max)).
    pub fn accept_gzip(self, accept: bool) -> Self {
        self.with(|settings| settings.accepts_gzip = accept)
    }

    /// Sets the HTTP version for Connect, gRPC-Web and Twirp. Default [`HttpVersion::Auto`].
    pub fn http_version(self, version: HttpVersion) -> Self {
        self.with(|settings| settings.version = version)
    }

    /// Sets the path prefix of Twirp. Default `/twirp`; may be empty.
    pub fn twirp_prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        self.with(|settings| settings.twirp_prefix = prefix)
    }

    /// Sends unary Connect calls of methods [without side effects](frpc::Method::without_side_effects) as GET requests,
    /// which caches can store. Calls with a URL path above 8 KiB use POST. Default false.
    pub fn use_get(self, use_get: bool) -> Self {
        self.with(|settings| settings.gets = use_get)
    }

    /// Sets the `user-agent` of requests. Default: the name of this crate. `None` sends none. A `user-agent` in the
    /// metadata of a call replaces it.
    pub fn user_agent(self, user_agent: Option<HeaderValue>) -> Self {
        self.with(|settings| settings.user_agent = user_agent)
    }

    /// Sets the maximum number of connections. Default 100; 0 counts as 1.
    ///
    /// HTTP/1.1 uses one connection per call in flight. HTTP/2 opens another connection when all others have as many
    /// calls as the server allows. Further calls wait.
    pub fn connections_max(self, connections_max: usize) -> Self {
        self.with(|settings| settings.connections_max = connections_max.max(1))
    }

    /// Sets how long a connection may be idle before it is no longer used. Default 60 s.
    ///
    /// An idle connection may have been lost without notice. Expired connections are closed when the next call is made,
    /// except the only HTTP/2 connection.
    pub fn idle_max(self, idle_max: Duration) -> Self {
        self.with(|settings| settings.idle_max = idle_max)
    }

    /// Sets the maximum size of the headers, and of the trailers, of a response. Default 16 KiB.
    pub fn headers_len_max(self, headers_len_max: u32) -> Self {
        self.with(|settings| settings.http.headers_len_max = headers_len_max)
    }

    /// Sends keepalive pings on HTTP/2 at this interval, and closes the connection if no response arrives within
    /// `timeout`.
    ///
    /// Default: 310 s and 20 s, with pings only during calls. This function also enables pings while no call is in
    /// flight. Many gRPC servers close the connection of a client that pings more often than every 5 minutes.
    ///
    /// Independently of this setting, a connection gets no further calls if a call ends at least 10 s after a request
    /// and nothing has arrived since that request. New calls then use another connection.
    pub fn keepalive(self, interval: Duration, timeout: Duration) -> Self {
        self.with(|settings| {
            settings.http.keepalive = Some((interval, timeout));
            settings.http.keepalive_while_idle = true;
        })
    }

    /// Sets the HTTP/2 flow-control windows: how much unread data the server may send for one response, and for all
    /// responses of a connection. Default 1 MiB and 4 MiB.
    pub fn windows(self, stream: u32, connection: u32) -> Self {
        self.with(|settings| (settings.http.stream_window, settings.http.connection_window) = (stream, connection))
    }

    /// Opens connections with a custom function, for example through a proxy, a Unix socket or memory.
    ///
    /// TLS is added on top if the address requires it. The host in the requests is still that of the address.
    ///
    /// ```no_run
    /// # #[cfg(unix)]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use frpc::Channel;
    /// use frpc_http::Client;
    /// use tokio::net::UnixStream;
    ///
    /// let local = Client::new().connector(|| UnixStream::connect("/run/app.sock"));
    /// let channel = Channel::builder().transport(local).connect("grpc://localhost").await?;
    /// # let _ = channel;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connector<F, Fut, T>(self, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<T>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connector: Connector = Arc::new(move || {
            let connecting = connect();
            Box::pin(async move { Ok(Box::new(connecting.await?) as BoxIo) })
        });
        self.with(|settings| settings.connector = Some(connector))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("format", &self.settings.format)
            .field("version", &self.settings.version)
            .finish_non_exhaustive()
    }
}
