//! Opening connections.

use std::io;

use frpc::{Address, ConnectError, ConnectSettings, client::StreamConnector};

#[cfg(feature = "tls")]
use super::tls::AlpnConnector;
use super::{
    connection::HttpConnection,
    settings::{BoxIo, Client, ClientSettings, HttpVersion},
    target::{RpcProtocol, ServerUrl},
};

/// Opens connections to one server.
pub(super) struct HttpDialer {
    pub(super) url: String,
    pub(super) target: ServerUrl,
    pub(super) settings: ClientSettings,
    connector: StreamConnector,
    pub(super) connect: ConnectSettings,
    /// The HTTP version to use. gRPC always uses HTTP/2.
    version: HttpVersion,
    #[cfg(feature = "tls")]
    tls: Option<AlpnConnector>,
}

impl HttpDialer {
    /// Creates a dialer. Fails if the settings lack something required by the address, such as TLS.
    pub(super) fn new(url: String, target: ServerUrl, client: Client, connect: ConnectSettings) -> io::Result<Self> {
        let Client { settings, connector } = client;
        let version = if target.protocol == RpcProtocol::Grpc { HttpVersion::Http2 } else { settings.http_version };
        #[cfg(feature = "tls")]
        let tls = target.is_secure.then(|| AlpnConnector::new(&target, &connect, version)).transpose()?;
        #[cfg(not(feature = "tls"))]
        if target.is_secure {
            let text = format!("{url} needs TLS: enable the feature `tls` of frisbee-rpc-http");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self {
            url,
            target,
            settings,
            connector,
            connect,
            version,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// Connects, with the retries configured for the channel.
    pub(super) async fn dial(&self) -> Result<HttpConnection, ConnectError> {
        frpc::client::connect(&self.url, &self.connect, || self.attempt()).await
    }

    /// Returns the error for a server with another protocol.
    pub(super) fn foreign_protocol_error(&self, foreign: &'static str) -> ConnectError {
        let error = io::Error::new(io::ErrorKind::InvalidData, foreign);
        frpc::frisbee::ConnectError::new(Address::Url(self.url.clone()), 1, error).into()
    }

    /// Returns the maximum length of a message.
    pub(super) fn message_len_max(&self) -> usize {
        usize::try_from(self.connect.message_len_max).unwrap_or(usize::MAX)
    }

    async fn attempt(&self) -> io::Result<HttpConnection> {
        let io = self.connector.connect((&*self.target.host, self.target.port), &self.connect.sockets).await?;
        let (io, chosen) = self.secure(io).await?;
        if chosen.unwrap_or(self.version == HttpVersion::Http2) {
            let len_max = self.message_len_max();
            let ServerUrl { is_secure, authority, .. } = &self.target;
            HttpConnection::http2(io, &self.settings, *is_secure, authority, len_max, &self.connect.frames).await
        } else {
            HttpConnection::http1(io, &self.settings).await
        }
    }

    /// Performs the TLS handshake, if the address requires TLS. Returns `Some(true)` if the server selected HTTP/2, and
    /// `None` without a selection.
    #[cfg(feature = "tls")]
    async fn secure(&self, io: BoxIo) -> io::Result<(BoxIo, Option<bool>)> {
        match &self.tls {
            Some(tls) => tls.handshake(io).await,
            None => Ok((io, None)),
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, io: BoxIo) -> io::Result<(BoxIo, Option<bool>)> {
        Ok((io, None))
    }
}
