//! TLS of connections.

use std::io;

use frpc::{ByteStream, ConnectSettings};
use tokio_rustls::TlsConnector;

use super::target::Target;

/// Speaks TLS on a stream of bytes.
pub(super) async fn handshake(
    io: Box<dyn ByteStream>,
    target: &Target,
    settings: &ConnectSettings,
) -> io::Result<Box<dyn ByteStream>> {
    // The handshake of WebSocket is one of HTTP/1.1.
    let (config, name) = settings.tls_to(&target.host, &[b"http/1.1"])?;
    Ok(Box::new(TlsConnector::from(config).connect(name, io).await?))
}
