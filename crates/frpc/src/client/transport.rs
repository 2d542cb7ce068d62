//! Transports, selected by the scheme of an address.

use std::{
    borrow::Cow,
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{caller::Caller, frames::FrameMeter};
use crate::{error::ConnectError, service::boxed::BoxFuture};

/// A transport for addresses with its schemes, such as `grpc://example.org:443`.
///
/// [`ChannelBuilder::transport`](crate::ChannelBuilder::transport) adds it to a channel, [`register_transport`] to the
/// defaults of the process.
pub trait Transport: Send + Sync + 'static {
    /// Returns the schemes of its addresses, without `://`.
    fn schemes(&self) -> &[&str];

    /// Connects to an address with one of its schemes.
    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>>;
}

/// A connection of a [`Transport`].
#[non_exhaustive]
pub enum Connected {
    /// The transport makes the calls and reconnects when necessary.
    Calls(Arc<dyn Caller>),
    /// The transport carries the bytes of frisbee, for example in a WebSocket. After a loss, it is asked to connect
    /// again.
    Frisbee(Box<dyn ByteStream>),
    /// The same over TLS of the transport.
    FrisbeeOverTls(Box<dyn ByteStream>),
}

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

/// The settings of a [`ChannelBuilder`](crate::ChannelBuilder) for transports of every kind.
///
/// A channel passes its own settings to the transport. The defaults are for use without a channel. Fields may be added,
/// so `..ConnectSettings::default()` belongs at the end of a literal.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::ConnectSettings;
///
/// let settings = ConnectSettings { connect_timeout: Duration::from_secs(5), ..ConnectSettings::default() };
/// # let _ = settings;
/// ```
#[derive(Clone)]
pub struct ConnectSettings {
    /// The default timeout of calls. The channel applies it to each call.
    pub timeout: Duration,
    /// The time limit of one connect attempt, including the TLS handshake.
    pub connect_timeout: Duration,
    /// The attempts to connect.
    pub retry: frisbee::ConnectRetry,
    /// The maximum length of a message in bytes: [`Config::content_len_max`](crate::Config::content_len_max).
    pub message_len_max: u32,
    /// The options of sockets.
    pub sockets: frisbee::SocketOptions,
    /// The host name with which the channel has found the address, for the certificate and for `Host`. `None` for the host in
    /// the address.
    pub host: Option<Arc<str>>,
    /// Counts the frames of connections for the metrics of the channel.
    pub frames: FrameMeter,
    /// The TLS of the channel, if it has any.
    #[cfg(feature = "tls")]
    pub tls: Option<ConnectTls>,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            retry: frisbee::ConnectRetry::default(),
            message_len_max: frisbee::Config::default().content_len_max,
            sockets: frisbee::SocketOptions::default(),
            host: None,
            frames: FrameMeter::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// The TLS of a channel.
#[cfg(feature = "tls")]
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectTls {
    /// The rustls configuration. It offers no ALPN protocols unless its creator set some.
    pub config: Arc<frisbee::rustls::ClientConfig>,
    /// The expected name in the server's certificate. `None` for the host in the address.
    pub name: Option<crate::TlsName>,
}

impl ConnectSettings {
    /// Returns the host and the port for `Host`, from the address.
    pub fn authority<'a>(&self, of_address: &'a str) -> Cow<'a, str> {
        let Some(host) = &self.host else { return of_address.into() };
        let host = if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(&**host) };
        match of_address.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => format!("{host}:{port}").into(),
            _ => host.into_owned().into(),
        }
    }
}

#[cfg(feature = "tls")]
impl ConnectSettings {
    /// Returns a TLS configuration for a host with these ALPN protocols, and the expected name in its certificate.
    ///
    /// The configuration is that of the channel, or else one with the certificate authorities of the system.
    ///
    /// # Errors
    ///
    /// There are no authorities to trust, or the host is not a valid name for a certificate.
    pub fn tls_to(
        &self,
        host: &str,
        alpn: &[&[u8]],
    ) -> io::Result<(Arc<frisbee::rustls::ClientConfig>, frisbee::rustls::pki_types::ServerName<'static>)> {
        let (config, name) = match &self.tls {
            Some(tls) => (tls.config.clone(), tls.name.clone()),
            None => (system_config()?, None),
        };
        let name = name.unwrap_or_else(|| self.host.as_deref().unwrap_or(host).into()).to_server_name()?;
        let mut config = frisbee::rustls::ClientConfig::clone(&config);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok((Arc::new(config), name))
    }
}

#[cfg(feature = "tls")]
fn system_config() -> io::Result<Arc<frisbee::rustls::ClientConfig>> {
    #[cfg(feature = "tls-native-roots")]
    return crate::ClientTls::with_system_roots()
        .map(Into::into)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    #[cfg(not(feature = "tls-native-roots"))]
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "no authorities to trust for TLS: set ChannelBuilder::tls, or add the feature tls-native-roots",
    ))
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calls(_) => "Calls",
            Self::Frisbee(_) => "Frisbee",
            Self::FrisbeeOverTls(_) => "FrisbeeOverTls",
        })
    }
}

impl fmt::Debug for ConnectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectSettings")
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for ConnectTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectTls").finish_non_exhaustive()
    }
}

/// The default transports of the process. Transports are never removed, so a scheme keeps its first transport.
static DEFAULTS: RwLock<Vec<Arc<dyn Transport>>> = RwLock::new(Vec::new());

/// Adds a default transport for every channel of the process, as a convenience for main programs.
///
/// The first transport for a scheme keeps it, so repeated calls have no effect. Libraries and tests pass a transport to
/// [`ChannelBuilder::transport`](crate::ChannelBuilder::transport) instead, which takes precedence.
pub fn register_transport(transport: impl Transport) {
    DEFAULTS.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(transport));
}

/// Returns the transport for an address: the channel's last transport with its scheme, or else the first default.
///
/// # Errors
///
/// No transport has the scheme.
pub(crate) fn transport_for(url: &str, own: &[Arc<dyn Transport>]) -> Result<Arc<dyn Transport>, ConnectError> {
    let scheme = url.split("://").next().unwrap_or_default();
    let defaults = DEFAULTS.read().unwrap_or_else(PoisonError::into_inner);
    let mut transports = own.iter().rev().chain(&*defaults);
    let found = transports.find(|transport| transport.schemes().contains(&scheme));
    found.cloned().ok_or_else(|| {
        let why = format!(
            "address {url:?}: the channel has no transport for scheme `{scheme}://`: pass one to `Channel::builder().transport(..)`, such \
             as `frpc_http::transport()` for HTTP and gRPC, `frpc_jsonrpc::transport()` or `frpc_websocket::transport()`; tcp://HOST:PORT, \
             unix:PATH, unix:@NAME and mem:NAME need none"
        );
        ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why))
    })
}

/// The default timeout of a call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of one connect attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_host_replaces_that_of_the_address() {
        let authority = |host: Option<&str>, of_address: &str| {
            let settings = ConnectSettings { host: host.map(Into::into), ..ConnectSettings::default() };
            settings.authority(of_address).into_owned()
        };
        assert_eq!(authority(None, "127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!(authority(Some("orders"), "127.0.0.1:80"), "orders:80");
        assert_eq!(authority(Some("orders"), "[::1]:80"), "orders:80");
        assert_eq!([authority(Some("orders"), "[::1]"), authority(Some("orders"), "a")], ["orders", "orders"]);
        assert_eq!(authority(Some("::1"), "127.0.0.1:80"), "[::1]:80");
    }

    struct Pigeons(&'static [&'static str]);

    impl Transport for Pigeons {
        fn schemes(&self) -> &[&str] {
            self.0
        }

        fn connect(&self, url: String, _: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
            Box::pin(async move { Err(ConnectError::Address(io::Error::other(url))) })
        }
    }

    #[test]
    fn an_unknown_scheme_names_the_missing_transport() {
        for url in ["grpc://localhost:80", "jsonrpc+tcp://localhost:80", "gopher://localhost"] {
            let why = transport_for(url, &[]).err().unwrap().to_string();
            let scheme = url.split("://").next().unwrap();
            assert!(why.contains(&format!("`{scheme}://`")) && why.contains("frpc_http::transport()"), "{why}");
        }
    }

    #[test]
    fn transports_of_the_channel_precede_the_defaults() {
        register_transport(Pigeons(&["pigeon", "dove"]));
        register_transport(Pigeons(&["dove"]));
        let own: Arc<dyn Transport> = Arc::new(Pigeons(&["pigeon"]));
        let found = transport_for("pigeon://loft", std::slice::from_ref(&own)).unwrap();
        assert!(Arc::ptr_eq(&found, &own));
        assert_eq!(transport_for("dove://loft", &[own]).unwrap().schemes(), ["pigeon", "dove"], "the first default");
    }

    #[test]
    fn the_last_transport_of_a_channel_takes_precedence() {
        let own: [Arc<dyn Transport>; 2] = [Arc::new(Pigeons(&["owl"])), Arc::new(Pigeons(&["owl"]))];
        assert!(Arc::ptr_eq(&transport_for("owl://barn", &own).unwrap(), &own[1]));
    }
}
