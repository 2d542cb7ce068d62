//! TLS of connections.

use std::{io, sync::Arc};

#[cfg(feature = "tls-native-roots")]
use frpc::ClientTls;
use frpc::{
    ByteStream, ConnectSettings,
    frisbee::rustls::{ClientConfig, pki_types::ServerName},
};
use tokio_rustls::TlsConnector;

use super::target::Target;

/// Speaks TLS on a stream of bytes, with the configuration of the channel or else with the authorities of the system.
pub(super) async fn handshake(
    io: Box<dyn ByteStream>,
    target: &Target,
    settings: &ConnectSettings,
) -> io::Result<Box<dyn ByteStream>> {
    let (config, name) = match &settings.tls {
        Some(tls) => (tls.config.clone(), tls.name.clone()),
        None => (system_config()?, None),
    };
    let name = match name {
        Some(name) => name.to_server_name()?,
        None => ServerName::try_from(target.host.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    let mut config = ClientConfig::clone(&config);
    // The handshake of WebSocket is one of HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, io).await?))
}

fn system_config() -> io::Result<Arc<ClientConfig>> {
    #[cfg(feature = "tls-native-roots")]
    return ClientTls::with_system_roots()
        .map(Into::into)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    #[cfg(not(feature = "tls-native-roots"))]
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "no authorities to trust for TLS: set ChannelBuilder::tls, or add the feature tls-native-roots of frpc-websocket",
    ))
}
