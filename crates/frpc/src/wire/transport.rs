//! Transports by the schemes of their addresses.

use std::{
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::caller::Caller;
use crate::{error::ConnectError, service::boxed::BoxFuture};

/// A transport that a [`Channel`](crate::Channel) connects over for addresses of its schemes, such as `grpc://example.org:443`.
///
/// [`ChannelBuilder::transport`](crate::ChannelBuilder::transport) sets it for one channel, [`register_transport`] for all of the
/// process.
pub trait Transport: Send + Sync + 'static {
    /// Returns the schemes of its addresses, without `://`.
    fn schemes(&self) -> &[&str];

    /// Connects to an address of one of its schemes.
    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>>;
}

/// A connection of a [`Transport`].
#[non_exhaustive]
pub enum Connected {
    /// The transport makes the calls, and connects again when it has to.
    Calls(Arc<dyn Caller>),
    /// The transport carries the bytes of frisbee, as a WebSocket does. When the stream is lost, it is asked to connect again.
    Frisbee(Box<dyn ByteStream>),
}

/// A stream that bytes go through both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

/// The settings of a [`ChannelBuilder`](crate::ChannelBuilder) that concern transports of every kind. A channel hands its own to a
/// transport; the defaults are for use without a channel.
///
/// ```
/// use frpc::ConnectSettings;
///
/// let mut settings = ConnectSettings::default();
/// settings.attempts = 1;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectSettings {
    /// The time that a call may take which sets no timeout of its own. The channel gives it to each call.
    pub timeout: Duration,
    /// The time for one attempt to connect, TLS handshake included.
    pub connect_timeout: Duration,
    /// The number of attempts to connect, at least one.
    pub attempts: usize,
    /// The pause after the first failed attempt.
    pub pause: Duration,
    /// The length of the largest message in bytes: [`Config::content_len_max`](crate::Config::content_len_max).
    pub message_len_max: u32,
    /// The options of sockets.
    pub sockets: frisbee::SocketOptions,
    /// The TLS of the channel, if it has any.
    #[cfg(feature = "tls")]
    pub tls: Option<ConnectTls>,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            attempts: ATTEMPTS,
            pause: PAUSE,
            message_len_max: frisbee::Config::default().content_len_max,
            sockets: frisbee::SocketOptions::default(),
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
    /// The configuration, which offers no protocols by ALPN unless its maker set some.
    pub config: Arc<frisbee::rustls::ClientConfig>,
    /// The name that the certificate of the server has to be for, if not the one that is connected to.
    pub name: Option<crate::TlsName>,
}

#[cfg(feature = "tls")]
impl ConnectSettings {
    /// Returns the TLS for a connection to a host that speaks one of these protocols: the configuration of the channel, or else one
    /// with the authorities of the system, which offers them by ALPN; and the name that the certificate has to be for.
    ///
    /// # Errors
    ///
    /// If there are no authorities to trust, or the host is no name that a certificate can be for.
    pub fn tls_to(
        &self,
        host: &str,
        alpn: &[&[u8]],
    ) -> io::Result<(Arc<frisbee::rustls::ClientConfig>, frisbee::rustls::pki_types::ServerName<'static>)> {
        let (config, name) = match &self.tls {
            Some(tls) => (tls.config.clone(), tls.name.clone()),
            None => (system_config()?, None),
        };
        let name = name.unwrap_or_else(|| host.into()).to_server_name()?;
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
        })
    }
}

impl fmt::Debug for ConnectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectSettings")
            .field("timeout", &self.timeout)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for ConnectTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectTls").finish_non_exhaustive()
    }
}

/// The transports of the process, the last one registered first.
static REGISTERED: RwLock<Vec<Arc<dyn Transport>>> = RwLock::new(Vec::new());

/// Makes a transport available to all channels of the process that are connected from now on. If two have the same scheme, the
/// one that was registered last has it.
pub fn register_transport(transport: impl Transport) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(0, Arc::new(transport));
}

/// Returns the transport for an address: one of these, or else one that is registered.
///
/// # Errors
///
/// If nobody has the scheme. The error names the crate that does.
pub(crate) fn transport_for(url: &str, own: &[Arc<dyn Transport>]) -> Result<Arc<dyn Transport>, ConnectError> {
    let scheme = url.split("://").next().unwrap_or_default();
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let mut transports = own.iter().chain(&*registered);
    let found = transports.find(|transport| transport.schemes().contains(&scheme));
    found.cloned().ok_or_else(|| {
        let why = match KNOWN.iter().find(|(schemes, ..)| schemes.contains(&scheme)) {
            Some((_, krate, call)) => {
                format!("address {url:?}: nobody speaks {scheme}:// here: add the crate {krate} and call {call} at the start")
            }
            None => format!(
                "address {url:?}: nobody speaks {scheme}:// here: expected tcp://HOST:PORT, unix:PATH, unix:@NAME, mem:NAME, or \
                 a scheme of a transport that is registered"
            ),
        };
        ConnectError::Address(io::Error::new(io::ErrorKind::Unsupported, why))
    })
}

/// The schemes that crates beside this one have, the name of each crate, and what registers it.
const KNOWN: &[(&[&str], &str, &str)] = &[
    (
        &["grpc", "grpcs", "http", "https", "grpc-web+http", "grpc-web+https", "twirp+http", "twirp+https"],
        "frpc-http",
        "frpc_http::register()",
    ),
    (
        &["jsonrpc+tcp", "jsonrpc+http", "jsonrpc+https", "jsonrpc+ws", "jsonrpc+wss"],
        "frpc-jsonrpc",
        "frpc_jsonrpc::register()",
    ),
    (&["ws", "wss"], "frpc-websocket", "frpc_websocket::register()"),
];

/// The time that a call may take unless somebody sets another.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The time for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of attempts to connect.
const ATTEMPTS: usize = 10;
/// The pause after the first failure.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_scheme_that_nobody_has_names_the_crate() {
        let why = |url: &str| transport_for(url, &[]).err().unwrap().to_string();
        for scheme in ["grpc", "grpcs", "http", "https", "grpc-web+https", "twirp+http"] {
            let why = why(&format!("{scheme}://localhost:80"));
            assert!(why.contains("frpc-http") && why.contains("frpc_http::register()"), "{why}");
        }
        assert!(why("jsonrpc+tcp://localhost:80").contains("frpc_jsonrpc::register()"));
        assert!(why("wss://localhost").contains("frpc_websocket::register()"));
        assert!(why("gopher://localhost").contains("gopher://"));
    }

    #[test]
    fn transports_of_the_channel_come_before_those_of_the_process() {
        register_transport(Pigeons(&["pigeon", "dove"]));
        let own: Arc<dyn Transport> = Arc::new(Pigeons(&["pigeon"]));
        let found = transport_for("pigeon://loft", std::slice::from_ref(&own)).unwrap();
        assert!(Arc::ptr_eq(&found, &own));
        assert_eq!(transport_for("dove://loft", &[own]).unwrap().schemes(), ["pigeon", "dove"]);
    }
}
