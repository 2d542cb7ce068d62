//! TLS connections.

use std::io;

use frpc::{ConnectSettings, frisbee::rustls::pki_types::ServerName};
use tokio_rustls::TlsConnector;

use super::{
    settings::{BoxIo, HttpVersion},
    target::ServerUrl,
};

/// The TLS settings for one server.
pub(super) struct AlpnConnector {
    connector: TlsConnector,
    name: ServerName<'static>,
    version: HttpVersion,
}

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

impl AlpnConnector {
    /// Creates the settings from the TLS configuration of the channel, or from the certificate authorities of the
    /// system.
    pub(super) fn new(target: &ServerUrl, connect: &ConnectSettings, version: HttpVersion) -> io::Result<Self> {
        let alpn: &[&[u8]] = match version {
            HttpVersion::Auto => &[H2, HTTP1],
            HttpVersion::Http1 => &[HTTP1],
            HttpVersion::Http2 => &[H2],
        };
        let (config, name) = connect.tls_to(&target.host, alpn)?;
        Ok(Self { connector: TlsConnector::from(config), name, version })
    }

    /// Performs the TLS handshake. Returns `Some(true)` if the connection uses HTTP/2.
    pub(super) async fn handshake(&self, io: BoxIo) -> io::Result<(BoxIo, Option<bool>)> {
        let stream = self.connector.connect(self.name.clone(), io).await?;
        let is_http2 = match stream.get_ref().1.alpn_protocol() {
            Some(protocol) => protocol == H2,
            // A server without ALPN is assumed to speak HTTP/1.1, unless HTTP/2 was requested explicitly.
            None => self.version == HttpVersion::Http2,
        };
        Ok((Box::new(stream), Some(is_http2)))
    }
}
