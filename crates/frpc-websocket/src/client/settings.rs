//! The settings of clients.

use std::{fmt, future::Future, io, sync::Arc};

use frpc::ByteStream;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};

/// Connects WebSockets, and carries the calls of a [`Channel`](frpc::Channel) over them: to addresses that begin with `ws://` or, with the
/// feature `tls`, `wss://`.
///
/// [`register`](crate::register) makes one with default settings for all channels of the process. With others:
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
/// Calls, streams, services that are offered to the server and reconnection are those of `tcp://`: frisbee is below. There are no
/// redirects and no proxies.
#[derive(Clone)]
pub struct Client {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) connector: Option<Connector>,
}

pub(super) type Connector = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> + Send + Sync>;

impl Client {
    /// Connects with a handshake of nothing but what it takes.
    pub fn new() -> Self {
        Self { headers: Vec::new(), connector: None }
    }

    /// Adds a header to the handshake, such as `authorization` or `origin`.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, http::Error> {
        self.headers.push((name.parse()?, value.parse()?));
        Ok(self)
    }

    /// Makes connections in a way of your own, such as through a proxy, a Unix socket or memory. TLS, if the address has it, is
    /// spoken on top of that. The address still says what is asked for.
    pub fn connector<F, Fut, T>(self, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<T>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connector: Connector = Arc::new(move || {
            let connecting = connect();
            Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn ByteStream>) })
        });
        Self { connector: Some(connector), ..self }
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may be secret.
        f.debug_struct("Client").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}
