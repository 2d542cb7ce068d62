//! TLS connections.

use std::io;

use frpc::{ByteStream, ConnectSettings};
use tokio_rustls::TlsConnector;

use super::target::WebSocketUrl;

/// Performs a TLS handshake on a byte stream.
pub(super) async fn handshake(
    io: Box<dyn ByteStream>,
    target: &WebSocketUrl,
    settings: &ConnectSettings,
) -> io::Result<Box<dyn ByteStream>> {
    // The WebSocket handshake is an HTTP/1.1 request.
    let (config, name) = settings.tls_to(&target.host, &[b"http/1.1"])?;
    Ok(Box::new(TlsConnector::from(config).connect(name, io).await?))
}
