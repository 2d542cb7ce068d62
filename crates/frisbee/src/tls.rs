//! TLS through rustls, with any configuration. ALPN is used for other protocols only, not for frisbee.

use std::{io, sync::Arc};

use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        self, CertificateError, CommonState, InvalidMessage,
        pki_types::{CertificateDer, ServerName},
    },
};

use crate::{
    Address, Client, Connection, Raw, Router, ServerBuilder, TlsName,
    net::{IoStream, PeerIdentity, PeerProof, SecuredStream, TlsHandshake},
};

impl<R: Router> ServerBuilder<R> {
    /// Requires TLS on all connections, with a [`ServerTls`](crate::ServerTls) from PEM or any rustls
    /// configuration.
    ///
    /// [`Config::handshake_max`](crate::Config::handshake_max) bounds each handshake. Handshakes never delay
    /// accepting.
    pub fn tls(mut self, config: impl Into<Arc<rustls::ServerConfig>>) -> Self {
        let config = config.into();
        self.secure = Some(Box::new(|offered| accepting(offering(config, offered))));
        self
    }
}

/// Returns the server side of a TLS handshake.
fn accepting(config: Arc<rustls::ServerConfig>) -> TlsHandshake {
    let acceptor = TlsAcceptor::from(config);
    TlsHandshake::new(move |wire, _| {
        let handshake = acceptor.accept(wire);
        Box::pin(async move {
            let stream = handshake.await.map_err(|error| explain(error, "client"))?;
            let session = stream.get_ref().1;
            let (identity, alpn) = (identity(session), session.alpn_protocol().map(<[u8]>::to_vec));
            Ok(SecuredStream { wire: IoStream::Other(Box::new(stream)), identity, alpn })
        })
    })
}

/// Returns the configuration with these ALPN protocols appended to its own.
fn offering(config: Arc<rustls::ServerConfig>, offered: &[&[u8]]) -> Arc<rustls::ServerConfig> {
    if offered.is_empty() {
        return config;
    }
    let mut config = Arc::unwrap_or_clone(config);
    for protocol in offered {
        if !config.alpn_protocols.iter().any(|known| known == protocol) {
            config.alpn_protocols.push(protocol.to_vec());
        }
    }
    Arc::new(config)
}

impl Raw {
    /// Returns the certificate chain proved by the peer in the TLS handshake, its own certificate first.
    ///
    /// Available for connections passed to a [`Protocol`](crate::Protocol). After a takeover, use
    /// [`Connection::peer_certificates`].
    pub fn peer_certificates(&self) -> Option<Arc<Vec<CertificateDer<'static>>>> {
        let PeerCertificates(chain) = self.identity()?.downcast_ref()?;
        Some(chain.clone())
    }
}

impl<R: Router> Client<R> {
    /// Connects with TLS, and expects a certificate for the name or IP address of the server.
    ///
    /// Takes a [`ClientTls`](crate::ClientTls) from PEM or the system's roots, or any rustls configuration.
    pub fn tls(self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.secured(config.into(), None)
    }

    /// Connects with TLS, and expects a certificate for `name` whatever the address.
    ///
    /// Required for Unix sockets and custom streams, which have no name. An invalid name is an error of
    /// connecting.
    pub fn tls_with_name(self, config: impl Into<Arc<rustls::ClientConfig>>, name: impl Into<TlsName>) -> Self {
        self.secured(config.into(), Some(name.into()))
    }

    fn secured(mut self, config: Arc<rustls::ClientConfig>, name: Option<TlsName>) -> Self {
        let connector = TlsConnector::from(config);
        let secure = TlsHandshake::new(move |wire, peer| {
            let name = match &name {
                None => name_of(peer),
                Some(name) => name.to_server_name(),
            };
            let connector = connector.clone();
            Box::pin(async move {
                let stream = connector.connect(name?, wire).await.map_err(|error| explain(error, "server"))?;
                let session = stream.get_ref().1;
                let (identity, alpn) = (identity(session), session.alpn_protocol().map(<[u8]>::to_vec));
                Ok(SecuredStream { wire: IoStream::Other(Box::new(stream)), identity, alpn })
            })
        });
        self.settings.secure = Some(secure);
        self
    }
}

impl Connection {
    /// Returns the certificate chain proved by the peer in the TLS handshake, its own certificate first.
    pub fn peer_certificates(&self) -> Option<Arc<Vec<CertificateDer<'static>>>> {
        let PeerProof(proven) = self.state()?;
        proven.downcast_ref().map(|PeerCertificates(chain)| chain.clone())
    }
}

/// The certificate chain proved by a peer.
struct PeerCertificates(Arc<Vec<CertificateDer<'static>>>);

fn identity(session: &CommonState) -> PeerIdentity {
    let certificates = session.peer_certificates()?;
    let owned: Vec<_> = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    Some(PeerProof(Arc::new(PeerCertificates(Arc::new(owned)))))
}

/// Adds an explanation to frequent handshake failures: a peer without TLS, or a certificate for another use.
fn explain(error: io::Error, peer: &str) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let text = match inner {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            format!("the {peer} does not speak TLS: turn TLS off on this side, or configure it on the other")
        }
        // rustls wraps this webpki error without exposing its type. Only the debug text identifies it.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if format!("{:?}", other.0) == "CaUsedAsEndEntity" =>
        {
            format!(
                "the certificate of the {peer} is marked as that of an authority (CA:TRUE), which rustls refuses where Go \
                 does not: make one with basicConstraints=CA:FALSE, or one that an authority signs ({error})"
            )
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("the {peer} closed the connection during the TLS handshake: it may not use TLS here")
        }
        _ => return error,
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn name_of(peer: &Address) -> io::Result<ServerName<'static>> {
    let nameless = || io::Error::new(io::ErrorKind::InvalidInput, format!("{peer} has no name for TLS, give one"));
    match peer {
        Address::Tcp(addr) => Ok(ServerName::IpAddress(addr.ip().into())),
        Address::Host { name, .. } => ServerName::try_from(name.clone()).map_err(|_| nameless()),
        _ => Err(nameless()),
    }
}
