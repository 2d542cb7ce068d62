//! Client settings.

use std::{
    future::ready,
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use frpc::{ByteStream, InvalidSetting, client::StreamConnector, codec::Format};
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::settings::{TIME_MAX, path_prefix};

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
/// | `http://`, `https://` | Connect | 1.1, or 2 if the server chooses it or [`http_version`](ClientSettings::http_version) says so |
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
/// use frpc_http::{Client, ClientSettings};
///
/// let json = ClientSettings { format: Format::Json, ..ClientSettings::default() };
/// let channel = Channel::builder().transport(Client::new().settings(json)).connect("http://localhost:8080").await?;
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
#[derive(Clone, Debug, Default)]
pub struct Client {
    pub(super) settings: ClientSettings,
    pub(super) connector: StreamConnector,
}

/// Settings of a [`Client`].
///
/// A time above a year counts as a year. Fields may be added, so `..ClientSettings::default()` belongs at the end of a
/// literal.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The message format: [`Format::Proto`], the default, or [`Format::Json`].
    pub format: Format,
    /// The HTTP version for Connect, gRPC-Web and Twirp. Default [`HttpVersion::Auto`].
    pub http_version: HttpVersion,
    /// Compresses messages of at least this length with gzip. Default `None`: no compression, since a server may not
    /// support it.
    ///
    /// Very short messages become longer by compression. Twirp requests are never compressed.
    pub gzip_len_min: Option<usize>,
    /// Lets servers compress messages with gzip. Default true. A decompressed message is limited to the maximum message
    /// length of the channel ([`Config::content_len_max`](frpc::Config::content_len_max)).
    pub accept_gzip: bool,
    /// The path prefix of Twirp. Default `/twirp`; may be empty.
    pub twirp_prefix: String,
    /// Sends unary Connect calls of methods [without side effects](frpc::Method::without_side_effects) as GET requests,
    /// which caches can store. Calls with a URL path above 8 KiB use POST. Default false.
    pub use_get: bool,
    /// The `user-agent` of requests. Default: the name of this crate. `None` sends none. A `user-agent` in the metadata
    /// of a call replaces it.
    pub user_agent: Option<HeaderValue>,
    /// The maximum number of connections. Default 100; 0 counts as 1.
    ///
    /// HTTP/1.1 uses one connection per call in flight. HTTP/2 opens another connection when all others have as many
    /// calls as the server allows. Further calls wait.
    pub connections_max: usize,
    /// The idle time after which a connection is no longer used. Default 60 s.
    ///
    /// An idle connection may have been lost without notice. Expired connections are closed when the next call is made,
    /// except the only HTTP/2 connection.
    pub idle_max: Duration,
    /// The maximum size of the headers, and of the trailers, of a response. Default 16 KiB.
    pub headers_len_max: u32,
    /// The interval of keepalive pings on HTTP/2. Default 310 s; `None` sends none.
    ///
    /// Many gRPC servers close the connection of a client that pings more often than every 5 minutes.
    ///
    /// Independently of this setting, a connection gets no further calls if a call ends at least 10 s after a request
    /// and nothing has arrived since that request. New calls then use another connection.
    pub keepalive_interval: Option<Duration>,
    /// The maximum time for a response to a ping before the connection is closed. Default 20 s.
    pub keepalive_timeout: Duration,
    /// The maximum time without bytes in either direction on an HTTP/1.1 connection before it is closed. Default 1 hour;
    /// `None` waits forever.
    ///
    /// HTTP/1.1 has no pings. Without this limit, a stream without a timeout would wait for a stopped server forever.
    /// Lower it if the servers send messages more often. Written bytes may double the time.
    pub http1_silence_max: Option<Duration>,
    /// Sends pings even while no call is in flight. Default false.
    pub keepalive_while_idle: bool,
    /// The HTTP/2 flow-control window of a response: how much unread data the server may send for it. Default 2 MiB.
    pub stream_window: u32,
    /// The HTTP/2 flow-control window for all responses of a connection. Default 4 MiB.
    pub connection_window: u32,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            format: Format::Proto,
            http_version: HttpVersion::Auto,
            gzip_len_min: None,
            accept_gzip: true,
            twirp_prefix: "/twirp".to_owned(),
            use_get: false,
            user_agent: Some(HeaderValue::from_static(concat!("frpc-http/", env!("CARGO_PKG_VERSION")))),
            connections_max: 100,
            idle_max: Duration::from_secs(60),
            headers_len_max: 16 * 1024,
            // gRPC servers by default allow pings every 5 minutes from clients with quiet streams. This is slightly
            // longer.
            keepalive_interval: Some(Duration::from_secs(310)),
            keepalive_timeout: Duration::from_secs(20),
            http1_silence_max: Some(Duration::from_secs(3600)),
            keepalive_while_idle: false,
            stream_window: 2 * 1024 * 1024,
            connection_window: 4 * 1024 * 1024,
        }
    }
}

impl ClientSettings {
    /// Returns the settings inside the bounds of a clock, with a connection, and with the form of a path for the prefix.
    fn within_bounds(self) -> Self {
        Self {
            twirp_prefix: path_prefix(&self.twirp_prefix),
            connections_max: self.connections_max.max(1),
            idle_max: self.idle_max.min(TIME_MAX),
            keepalive_interval: self.keepalive_interval.map(|time| time.min(TIME_MAX)),
            keepalive_timeout: self.keepalive_timeout.min(TIME_MAX),
            http1_silence_max: self.http1_silence_max.map(|time| time.min(TIME_MAX)),
            ..self
        }
    }

    /// Returns an error for the first setting that allows no call to be made.
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        let interval = self.keepalive_interval.unwrap_or(TIME_MAX);
        let silence = self.http1_silence_max.unwrap_or(TIME_MAX);
        InvalidSetting::refuse_zero("headers_len_max", &self.headers_len_max, "every response would be refused")?;
        InvalidSetting::refuse_zero("keepalive_interval", &interval, "pings would be sent without end")?;
        InvalidSetting::refuse_zero("keepalive_timeout", &self.keepalive_timeout, "every silent server would be lost")?;
        InvalidSetting::refuse_zero("http1_silence_max", &silence, "every connection would be closed immediately")?;
        InvalidSetting::refuse_zero("stream_window", &self.stream_window, "no server could send a response")
    }
}

/// A byte stream to a server.
pub(super) type BoxIo = Box<dyn ByteStream>;

impl Client {
    /// Creates a client with default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all settings.
    pub fn settings(mut self, settings: ClientSettings) -> Self {
        self.settings = settings.within_bounds();
        self
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
    pub fn connector(self, connect: impl Into<StreamConnector>) -> Self {
        Self { connector: connect.into(), ..self }
    }

    /// Uses an open byte stream as the only connection, such as one [taken over](frpc::Channel::into_raw) from another
    /// protocol.
    ///
    /// Further calls wait while the server allows no more on it. After its end, calls fail. Call it after
    /// [`settings`](Self::settings), since it sets [`connections_max`](ClientSettings::connections_max) to 1.
    ///
    /// ```no_run
    /// # async fn example(raw: frpc::Raw) -> Result<(), Box<dyn std::error::Error>> {
    /// use frpc::Channel;
    /// use frpc_http::Client;
    ///
    /// // The host becomes the `:authority` of the calls.
    /// let channel = Channel::builder().transport(Client::new().socket(raw)).connect("grpc://etcd").await?;
    /// # let _ = channel;
    /// # Ok(())
    /// # }
    /// ```
    pub fn socket(mut self, socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        self.settings.connections_max = 1;
        let socket = Mutex::new(Some(socket));
        self.connector(move || {
            // Of this kind, the error ends the attempts to connect.
            let used = || io::Error::new(io::ErrorKind::Unsupported, "the only connection of this client has ended");
            ready(socket.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used))
        })
    }
}
