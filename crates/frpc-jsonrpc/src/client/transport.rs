//! The JSON-RPC transport of channels.

use std::sync::Arc;

use frpc::{Caller, ConnectError, ConnectSettings, Connected, Transport, client::StreamConnector};
use futures_util::future::BoxFuture;

#[cfg(feature = "http")]
use super::post::PostCaller;
use super::{bytes::JsonStream, caller::LinkCaller, link::JsonRpcLink};

/// JSON-RPC as a transport of a [`Channel`](frpc::Channel), for addresses such as `jsonrpc+tcp://localhost:8545` and
/// `jsonrpc+http://localhost:8080/rpc`.
///
/// # Calls
///
/// A call sends its message as named params. A method without a service name is called by its name alone, as functions
/// are. Over TCP and WebSocket, a response stream is a subscription. It ends with
/// [`ResourceExhausted`](frpc::Code::ResourceExhausted) if a message arrives while 1024 of its messages, or 16 MiB of
/// them, are unread. Request streams are not supported, and only HTTP carries metadata.
///
/// An error without an id ends all calls on its connection with [`Unavailable`](frpc::Code::Unavailable), and they may
/// have been executed. If only one call is in flight, it receives that error.
///
/// # Connections
///
/// A lost connection is reopened by the next call. So is a connection that was silent for 10 s when a call timed out. A
/// call is retried only if it was not sent. Up to 1 MiB of requests are queued for a slow connection. Further
/// calls wait for room until their deadline. The keepalive of the channel's [`SocketOptions`](frpc::SocketOptions)
/// applies to TCP, and sets the interval of WebSocket pings.
///
/// ```no_run
/// use frpc::Channel;
/// use frpc_jsonrpc::Client;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = Channel::builder().transport(Client::new()).connect("jsonrpc+tcp://localhost:8545").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Client {
    connector: StreamConnector,
}

impl Client {
    /// Creates a transport with the settings of each channel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a custom function to open connections, for example through a proxy, over a Unix socket, or in memory.
    ///
    /// The address still determines the protocol, the `host` header, the path, and the use of TLS.
    ///
    /// ```no_run
    /// # #[cfg(unix)]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use frpc::Channel;
    /// use frpc_jsonrpc::Client;
    /// use tokio::net::UnixStream;
    ///
    /// let local = Client::new().connector(|| UnixStream::connect("/run/node.ipc"));
    /// let channel = Channel::builder().transport(local).connect("jsonrpc+tcp://localhost").await?;
    /// # let _ = channel;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connector(self, connect: impl Into<StreamConnector>) -> Self {
        Self { connector: connect.into() }
    }

    /// Returns a function that opens TCP connections to `address`.
    fn tcp(self, address: String, url: String, settings: ConnectSettings) -> super::caller::DialFn {
        Box::new(move || {
            let (client, address, url, settings) = (self.clone(), address.clone(), url.clone(), settings.clone());
            Box::pin(async move {
                let address = address.trim_end_matches('/');
                let attempt = || client.connector.connect(address, &settings.sockets);
                let stream = frpc::client::connect(&url, &settings, attempt).await?;
                let message_len_max = usize::try_from(settings.message_len_max).unwrap_or(usize::MAX);
                Ok(JsonRpcLink::new(JsonStream::new(stream, message_len_max), settings.message_len_max))
            })
        })
    }

    /// Returns a function that opens WebSocket connections to `url`.
    #[cfg(feature = "http")]
    fn websocket(self, url: String, settings: ConnectSettings) -> super::caller::DialFn {
        let url = url.strip_prefix("jsonrpc+").unwrap_or(&url).to_owned();
        let client = frpc_websocket::Client::new().connector(self.connector);
        Box::new(move || {
            let (client, url, settings) = (client.clone(), url.clone(), settings.clone());
            Box::pin(async move {
                let socket = client.connect(&url, Some("jsonrpc"), &settings).await?;
                Ok(link_over(socket, &settings))
            })
        })
    }

    /// Returns the client for calls by POST.
    #[cfg(feature = "http")]
    fn http(self) -> frpc_http::Client {
        frpc_http::Client::new().connector(self.connector)
    }
}

/// Returns the transport of a channel over JSON-RPC, with default settings.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::Channel;
///
/// let channel = Channel::builder().transport(frpc_jsonrpc::transport()).connect("jsonrpc+tcp://localhost:8545").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
pub fn transport() -> Client {
    Client::new()
}

/// Adds [`transport`] to the defaults of the process: see [`frpc::register_transport`].
pub fn register() {
    frpc::register_transport(transport());
}

impl Transport for Client {
    fn schemes(&self) -> &[&str] {
        #[cfg(feature = "http")]
        return &["jsonrpc+tcp", "jsonrpc+http", "jsonrpc+https", "jsonrpc+ws", "jsonrpc+wss"];
        #[cfg(not(feature = "http"))]
        &["jsonrpc+tcp"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let client = self.clone();
        Box::pin(async move {
            let (scheme, rest) = url.split_once("://").unwrap_or_default();
            let caller: Arc<dyn Caller> = match scheme {
                "jsonrpc+tcp" => {
                    let pause = settings.retry.pause;
                    Arc::new(
                        LinkCaller::connect(client.tcp(rest.to_owned(), url.clone(), settings), pause, false).await?,
                    )
                }
                #[cfg(feature = "http")]
                "jsonrpc+ws" | "jsonrpc+wss" => {
                    let (pause, is_secure) = (settings.retry.pause, scheme == "jsonrpc+wss");
                    Arc::new(LinkCaller::connect(client.websocket(url.clone(), settings), pause, is_secure).await?)
                }
                #[cfg(feature = "http")]
                _ => {
                    let url = url.strip_prefix("jsonrpc+").unwrap_or(&url).to_owned();
                    Arc::new(PostCaller(client.http().poster(url, settings).await?))
                }
                #[cfg(not(feature = "http"))]
                _ => {
                    let why = format!(
                        "address {url:?}: only jsonrpc+tcp:// is supported without the feature `http` of frisbee-rpc-jsonrpc"
                    );
                    return Err(ConnectError::Address(std::io::Error::new(std::io::ErrorKind::Unsupported, why)));
                }
            };
            Ok(Connected::Calls(caller))
        })
    }
}

/// Wraps a WebSocket as a client connection.
#[cfg(feature = "http")]
pub(super) fn link_over(socket: frpc_websocket::WebSocket, settings: &ConnectSettings) -> JsonRpcLink {
    let message_len_max = usize::try_from(settings.message_len_max).unwrap_or(usize::MAX);
    let socket = socket.message_len_max(message_len_max);
    // WebSocket pings have no separate setting: they use the interval of TCP keepalive.
    let socket = match settings.sockets.keepalive {
        Some(period) => socket.keepalive(period, PING_TIMEOUT.min(period)),
        None => socket,
    };
    JsonRpcLink::new(socket, settings.message_len_max)
}

/// The maximum time for a server to answer a ping.
#[cfg(feature = "http")]
const PING_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
