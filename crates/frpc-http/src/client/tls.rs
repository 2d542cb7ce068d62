//! TLS of connections.

use std::{io, sync::Arc};

#[cfg(feature = "tls-native-roots")]
use frpc::ClientTls;
use frpc::{
    ConnectSettings,
    frisbee::rustls::{ClientConfig, pki_types::ServerName},
};
use tokio_rustls::TlsConnector;

use super::{
    settings::{BoxIo, HttpVersion},
    target::Target,
};

/// The TLS of connections to one server.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    version: HttpVersion,
}

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

impl Tls {
    /// Returns the TLS for a server, with the configuration of the channel or else with the authorities of the system.
    pub(super) fn new(target: &Target, connect: &ConnectSettings, version: HttpVersion) -> io::Result<Self> {
        let (config, name) = match &connect.tls {
            Some(tls) => (tls.config.clone(), tls.name.clone()),
            None => (system_config()?, None),
        };
        let name = match name {
            Some(name) => name.to_server_name()?,
            None => ServerName::try_from(target.host.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = match version {
            HttpVersion::Auto => vec![H2.to_vec(), HTTP1.to_vec()],
            HttpVersion::Http1 => vec![HTTP1.to_vec()],
            HttpVersion::Http2 => vec![H2.to_vec()],
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name, version })
    }

    /// Speaks TLS on a stream of bytes. Returns whether HTTP/2 is spoken on it.
    pub(super) async fn handshake(&self, io: BoxIo) -> io::Result<(BoxIo, Option<bool>)> {
        let stream = self.connector.connect(self.name.clone(), io).await?;
        let is_http2 = match stream.get_ref().1.alpn_protocol() {
            Some(protocol) => protocol == H2,
            // A server without ALPN speaks the older version, unless this side was told that it speaks the other one.
            None => self.version == HttpVersion::Http2,
        };
        Ok((Box::new(stream), Some(is_http2)))
    }
}

fn system_config() -> io::Result<Arc<ClientConfig>> {
    #[cfg(feature = "tls-native-roots")]
    return ClientTls::with_system_roots()
        .map(Into::into)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    #[cfg(not(feature = "tls-native-roots"))]
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "no authorities to trust for TLS: set ChannelBuilder::tls, or add the feature tls-native-roots of frpc-http",
    ))
}
