//! Settings of clients.

use std::fmt;

use frpc::client::StreamConnector;
use http::{HeaderName, HeaderValue};

/// A client for WebSockets, and a [`Channel`](frpc::Channel) transport for the schemes `ws://` and, with the feature
/// `tls`, `wss://`.
///
/// [`register`](crate::register) installs a client with default settings for all channels of the process. A channel can
/// have its own:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::Channel;
/// use frpc_websocket::Client;
///
/// let client = Client::new().header("authorization", "Bearer 12345")?;
/// let channel = Channel::builder().transport(client).connect("ws://localhost:7300").await?;
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
///
/// Channels support everything that `tcp://` does, including streams, services offered to the server, and reconnection,
/// because they speak frisbee. Redirects and proxies are not supported.
#[derive(Clone, Default)]
pub struct Client {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) connector: StreamConnector,
}

impl Client {
    /// Creates a client without additional headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header to the handshake request, such as `authorization` or `origin`.
    ///
    /// # Errors
    ///
    /// Returns an error if the name or the value is invalid.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, http::Error> {
        self.headers.push((name.parse()?, value.parse()?));
        Ok(self)
    }

    /// Sets a custom function to open connections, for example through a proxy, over a Unix socket, or in memory.
    ///
    /// The URL still determines the `host` header, the path, and the use of TLS.
    pub fn connector(self, connect: impl Into<StreamConnector>) -> Self {
        Self { connector: connect.into(), ..self }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may contain secrets.
        f.debug_struct("Client").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}
