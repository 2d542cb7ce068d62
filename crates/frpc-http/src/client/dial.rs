//! Making connections.

use std::io;

use frpc::{Address, ConnectError, ConnectSettings, frisbee::Backoff};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::info;

#[cfg(feature = "tls")]
use super::tls::Tls;
use super::{
    connection::Connection,
    settings::{BoxIo, HttpVersion, Settings},
    target::{Protocol, Target},
};

/// Makes connections to one server.
pub(super) struct Dialer {
    pub(super) url: String,
    pub(super) target: Target,
    pub(super) settings: Settings,
    pub(super) connect: ConnectSettings,
    /// The version to speak.
    version: HttpVersion,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl Dialer {
    /// Fails if the settings lack what the address needs.
    pub(super) fn new(url: String, target: Target, settings: Settings, connect: ConnectSettings) -> io::Result<Self> {
        let version = if target.protocol == Protocol::Grpc { HttpVersion::Http2 } else { settings.version };
        #[cfg(feature = "tls")]
        let tls = target.is_secure.then(|| Tls::new(&target, &connect, version)).transpose()?;
        #[cfg(not(feature = "tls"))]
        if target.is_secure {
            let text = format!("{url} needs the feature tls of frpc-http");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self {
            url,
            target,
            settings,
            connect,
            version,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// Connects, with as many attempts as there may be.
    pub(super) async fn dial(&self) -> Result<Connection, ConnectError> {
        let mut backoff = Backoff::new(self.connect.pause);
        let mut attempts = 0;
        loop {
            let limit = self.connect.connect_timeout;
            let error = match timeout(limit, self.attempt()).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")),
            };
            attempts += 1;
            let url = &self.url;
            let error = frpc::frisbee::ConnectError::new(Address::Url(url.clone()), attempts, error);
            if attempts >= self.connect.attempts || error.is_final() {
                info!(%error, "cannot connect");
                return Err(error.into());
            }
            let pause = backoff.pause();
            info!(%error, ?pause, "cannot connect, trying again after a pause");
            sleep(pause).await;
        }
    }

    async fn attempt(&self) -> io::Result<Connection> {
        let io = match &self.settings.connector {
            Some(connect) => connect().await?,
            None => self.tcp().await?,
        };
        let (io, chosen) = self.secure(io).await?;
        if chosen.unwrap_or(self.version == HttpVersion::Http2) {
            Connection::http2(io, &self.settings.http).await
        } else {
            Connection::http1(io, &self.settings.http).await
        }
    }

    async fn tcp(&self) -> io::Result<BoxIo> {
        let stream = TcpStream::connect((&*self.target.host, self.target.port)).await?;
        let options = &self.connect.sockets;
        stream.set_nodelay(options.nodelay)?;
        if let Some(period) = options.keepalive {
            let keepalive = socket2::TcpKeepalive::new().with_time(period).with_interval(period);
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        }
        Ok(Box::new(stream))
    }

    /// Speaks TLS on a stream of bytes, if the address says so. Returns whether the server has chosen HTTP/2, if it has chosen.
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
