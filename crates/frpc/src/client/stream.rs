//! Byte streams to servers.

use std::{fmt, future::Future, io, sync::Arc};

use frisbee::SocketOptions;
use tokio::net::ToSocketAddrs;

use super::transport::ByteStream;
use crate::service::boxed::BoxFuture;

/// Opens the byte streams of a transport: over TCP by default, or with a function of the application.
///
/// Functions convert into it, so that a transport has one setter for both:
///
/// ```
/// use frpc::client::StreamConnector;
///
/// #[derive(Default)]
/// struct Client {
///     connector: StreamConnector,
/// }
///
/// impl Client {
///     fn connector(mut self, connect: impl Into<StreamConnector>) -> Self {
///         self.connector = connect.into();
///         self
///     }
/// }
///
/// let client = Client::default().connector(|| async { Ok(tokio::io::duplex(1024).0) });
/// # let _ = client;
/// ```
#[derive(Clone, Default)]
pub struct StreamConnector(Option<Arc<OpenStream>>);

type OpenStream = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> + Send + Sync;

impl StreamConnector {
    /// Opens a stream, over TCP to `address` unless there is a function of the application.
    ///
    /// # Errors
    ///
    /// The error of the function, or if the address is invalid or the connection fails.
    pub async fn connect(
        &self,
        address: impl ToSocketAddrs,
        sockets: &SocketOptions,
    ) -> io::Result<Box<dyn ByteStream>> {
        match &self.0 {
            Some(open) => open().await,
            None => Ok(Box::new(sockets.connect(address).await?)),
        }
    }
}

impl<F, Fut, T> From<F> for StreamConnector
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<T>> + Send + 'static,
    T: ByteStream,
{
    fn from(open: F) -> Self {
        Self(Some(Arc::new(move || {
            let opening = open();
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn ByteStream>) })
        })))
    }
}

impl fmt::Debug for StreamConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StreamConnector(function)" } else { "StreamConnector(TCP)" })
    }
}
