//! The settings of a client.

use std::{fmt, io, sync::Arc, time::Duration};

use frpc::codec::Format;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// The one that the server chooses, if there is TLS, and otherwise HTTP/1.1. gRPC is always on HTTP/2.
    #[default]
    Auto,
    /// HTTP/1.1, in which calls whose both sides send streams are half-duplex: the answers come behind the last request.
    Http1,
    /// HTTP/2, without TLS by prior knowledge.
    Http2,
}

/// A client of gRPC, gRPC-Web, Connect and Twirp: the [`Transport`](frpc::Transport) of their addresses, with its settings.
///
/// | address | protocol | HTTP |
/// |---|---|---|
/// | `grpc://HOST:PORT`, `grpcs://` with TLS | gRPC | 2 |
/// | `http://`, `https://` | Connect | 1.1, or 2 if the server chooses it or [`http_version`](Self::http_version) says so |
/// | `grpc-web+http://`, `grpc-web+https://` | gRPC-Web | the same |
/// | `twirp+http://`, `twirp+https://` | Twirp | the same |
///
/// Without a port it is 80, or 443 with TLS. A path in the address stands in front of those of all methods.
///
/// [`register`](crate::register) makes it available everywhere with default settings; for others, give it to the channel:
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
/// [`ChannelBuilder`](frpc::ChannelBuilder) has the settings that all transports share: timeouts, attempts to connect, the length of
/// messages, sockets and TLS. Without a configuration for TLS, `grpcs://` and the others trust the authorities of the system, if
/// the feature `tls-native-roots` is there.
///
/// # Calls
///
/// Timeouts, repeated calls and dropped calls are as [`Channel`](frpc::Channel) says. A call was
/// certainly not executed, and is repeated, if nothing was written since it was begun, if HTTP/2 says so (`REFUSED_STREAM`, a
/// `GOAWAY` for streams before it), or if it did not get onto a connection.
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
    /// The interval, and the time for an answer.
    pub(super) keepalive: Option<(Duration, Duration)>,
    pub(super) keepalive_while_idle: bool,
    pub(super) stream_window: u32,
    pub(super) connection_window: u32,
}

/// A stream of bytes to a server.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(super) type BoxIo = Box<dyn Io>;

/// Makes streams of bytes to the server.
pub(super) type Connector = Arc<dyn Fn() -> BoxFuture<'static, io::Result<BoxIo>> + Send + Sync>;

impl Client {
    /// Returns the default settings.
    pub fn new() -> Self {
        let user_agent = HeaderValue::from_static(concat!("frpc-http/", env!("CARGO_PKG_VERSION")));
        let http = HttpSettings {
            headers_len_max: 16 * 1024,
            // A little more than the 5 minutes that servers of gRPC allow by default for clients whose streams are quiet.
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

    /// Sets the format of messages: [`Format::Proto`], the default, or [`Format::Json`].
    pub fn format(self, format: Format) -> Self {
        self.with(|settings| settings.format = format)
    }

    /// Has messages of this length or more sent compressed with gzip; short ones get longer by it. Default: none are, since a server
    /// may not accept it. Twirp knows no compression.
    pub fn send_gzip(self, len_min: usize) -> Self {
        self.with(|settings| settings.gzip_len_min = Some(len_min))
    }

    /// Sets whether servers may compress messages with gzip. Default true. They are inflated up to the length of the
    /// largest message ([`Config::content_len_max`](frpc::Config::content_len_max)).
    pub fn accept_gzip(self, accept: bool) -> Self {
        self.with(|settings| settings.accepts_gzip = accept)
    }

    /// Sets the version of HTTP for Connect, gRPC-Web and Twirp. Default [`HttpVersion::Auto`].
    pub fn http_version(self, version: HttpVersion) -> Self {
        self.with(|settings| settings.version = version)
    }

    /// Sets what stands in front of the paths of Twirp. Default `/twirp`; may be empty.
    pub fn twirp_prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        self.with(|settings| settings.twirp_prefix = prefix)
    }

    /// Has unary Connect calls of methods [without side effects](frpc::Method::without_side_effects) made with GET, which
    /// caches on the way understand, unless the address would get longer than 8 KiB. Default false.
    pub fn use_get(self, use_get: bool) -> Self {
        self.with(|settings| settings.gets = use_get)
    }

    /// Sets the `user-agent` of requests, in place of the name of this crate. `None` sends none. Metadata of a call with that name
    /// replaces it.
    pub fn user_agent(self, user_agent: Option<HeaderValue>) -> Self {
        self.with(|settings| settings.user_agent = user_agent)
    }

    /// Sets the number of connections that there may be at once: with HTTP/1.1 one for each call under way, with HTTP/2 another
    /// one when those before have as many calls as the server takes. Calls beyond that wait. Default 100; 0 counts as 1.
    pub fn connections_max(self, connections_max: usize) -> Self {
        self.with(|settings| settings.connections_max = connections_max.max(1))
    }

    /// Sets how long a connection may have been without a call and still be used: an old one may be lost without anybody having
    /// noticed. Older ones are closed when the next call is made, but for the only one with HTTP/2. Default 60 s.
    pub fn idle_max(self, idle_max: Duration) -> Self {
        self.with(|settings| settings.idle_max = idle_max)
    }

    /// Sets the size of the headers and of the trailers of a response. Default 16 KiB.
    pub fn headers_len_max(self, headers_len_max: u32) -> Self {
        self.with(|settings| settings.http.headers_len_max = headers_len_max)
    }

    /// Has the server asked for a sign of life on HTTP/2 with this interval, calls or not, and the connection given up if none
    /// comes within `timeout`. Default: 310 s and 20 s, and only while there are calls. Many servers of gRPC close the connection of a
    /// client that asks more often than every 5 minutes.
    ///
    /// However that is set, a connection on which nothing came from the time that a call was sent until it was given up, a second later
    /// or more, gets no further calls: they are made on another one.
    pub fn keepalive(self, interval: Duration, timeout: Duration) -> Self {
        self.with(|settings| {
            settings.http.keepalive = Some((interval, timeout));
            settings.http.keepalive_while_idle = true;
        })
    }

    /// Sets how much of one response, and of all responses on a connection, the server may send ahead of what is read, with HTTP/2.
    /// Default 1 MiB and 4 MiB.
    pub fn windows(self, stream: u32, connection: u32) -> Self {
        self.with(|settings| (settings.http.stream_window, settings.http.connection_window) = (stream, connection))
    }

    /// Makes connections in a way of your own, such as through a proxy, a Unix socket or memory. TLS, if the address has it, is
    /// spoken on top of that. The address still says what is asked for.
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
