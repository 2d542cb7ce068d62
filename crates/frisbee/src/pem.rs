//! TLS from certificates and keys in PEM, without manual rustls setup.

use std::{borrow::Cow, error::Error, fmt, fs, io, net::IpAddr, path::PathBuf, sync::Arc};

use tokio_rustls::rustls::{
    self, ClientConfig, InconsistentKeys, RootCertStore, ServerConfig,
    client::WantsClientCert,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{self, PemObject},
    },
    server::WebPkiClientVerifier,
};

/// PEM text with certificates or a key, in a file or in memory. A file is read on use.
#[derive(Clone)]
pub struct Pem(PemSource);

#[derive(Clone)]
enum PemSource {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Pem {
    /// Refers to a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(PemSource::File(path.into()))
    }

    /// Takes text in memory, for example from `include_bytes!`.
    pub fn bytes(text: impl Into<Vec<u8>>) -> Self {
        Self(PemSource::Bytes(text.into()))
    }

    fn text(&self) -> Result<Cow<'_, [u8]>, TlsError> {
        match &self.0 {
            PemSource::Bytes(text) => Ok(text.into()),
            PemSource::File(path) => match fs::read(path) {
                Ok(text) => Ok(text.into()),
                Err(error) => {
                    Err(TlsError { what: format!("cannot read {self}: {error}"), source: Some(error.into()) })
                }
            },
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.text()?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        match certificates {
            Ok(certificates) if certificates.is_empty() => {
                Err(TlsError::new(format!("{self} has no certificate, only {}", sections(&text))))
            }
            Ok(certificates) => Ok(certificates),
            Err(error) => Err(self.malformed(&error)),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.text()?;
        match PrivateKeyDer::from_pem_slice(&text) {
            Ok(key) => Ok(key),
            Err(pem::Error::NoItemsFound) if sections(&text).contains("ENCRYPTED PRIVATE KEY") => {
                let why =
                    format!("the private key in {self} is encrypted: decrypt it first, such as by `openssl pkey`");
                Err(TlsError::new(why))
            }
            Err(pem::Error::NoItemsFound) => {
                Err(TlsError::new(format!("{self} has no private key, only {}", sections(&text))))
            }
            Err(error) => Err(self.malformed(&error)),
        }
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.map_err(|error| TlsError::of(format!("a certificate in {self} is not usable: {error}"), error))?;
        }
        Ok(roots)
    }

    fn malformed(&self, error: &pem::Error) -> TlsError {
        TlsError::new(format!("{self} is not valid PEM: {error}"))
    }
}

/// Returns the section labels of a text, for error messages.
fn sections(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let labels = text.lines().filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    let labels: Vec<&str> = labels.collect();
    if labels.is_empty() { "text without PEM sections".to_owned() } else { labels.join(", ") }
}

/// Shows the path or the length, never the content: it may be a secret.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PemSource::File(path) => path.display().fmt(f),
            PemSource::Bytes(text) => write!(f, "the PEM in memory ({} bytes)", text.len()),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({self})")
    }
}

/// TLS settings for a server, from PEM. Accepted wherever a rustls configuration is.
///
/// ```no_run
/// use frisbee::{Pem, Server, ServerTls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = ServerTls::new(Pem::file("server.pem"), Pem::file("server.key"))?;
/// let server = Server::builder(()).tls(tls).bind("tcp://0.0.0.0:7300").await?;
/// # Ok(())
/// # }
/// ```
///
/// The crypto provider is the process default of rustls, or else ring with the feature `tls-ring`.
///
/// The server's certificate must not be marked as an authority (`CA:TRUE`). Some guides to self-signed
/// certificates do this; Go clients accept such a certificate, rustls clients refuse it. Create it with `-addext
/// basicConstraints=CA:FALSE`, or create an authority to sign the server's certificate, like the example `tls`.
#[derive(Clone)]
pub struct ServerTls {
    identity: TlsIdentity,
    config: Arc<ServerConfig>,
}

/// A certificate chain, starting with the end-entity certificate, and its key.
struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The source of both, for error messages.
    from: String,
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), from: self.from.clone() }
    }
}

impl TlsIdentity {
    fn new(certificates: &Pem, key: &Pem) -> Result<Self, TlsError> {
        let from = format!("the certificate in {certificates} with the key in {key}");
        Ok(Self { chain: certificates.certificates()?, key: key.key()?, from })
    }

    fn refused(&self, error: rustls::Error) -> TlsError {
        let why = match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => "they do not belong together".to_owned(),
            _ => error.to_string(),
        };
        TlsError::of(format!("cannot use {}: {why}", self.from), error)
    }
}

impl ServerTls {
    /// Identifies the server by a certificate and its key. Further certificates complete the chain to the
    /// authority.
    pub fn new(certificates: Pem, key: Pem) -> Result<Self, TlsError> {
        Self::with(TlsIdentity::new(&certificates, &key)?, None)
    }

    /// Accepts only clients with a certificate from one of these authorities: mutual TLS.
    ///
    /// [`Connection::peer_certificates`](crate::Connection::peer_certificates) returns a client's certificates.
    pub fn client_roots(self, roots: Pem) -> Result<Self, TlsError> {
        let (from, roots) = (roots.to_string(), roots.roots()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider()?).build();
        let verifier =
            verifier.map_err(|error| TlsError::of(format!("cannot use the certificates in {from}: {error}"), error))?;
        Self::with(self.identity, Some(verifier))
    }

    fn with(
        identity: TlsIdentity,
        clients: Option<Arc<dyn rustls::server::danger::ClientCertVerifier>>,
    ) -> Result<Self, TlsError> {
        let config = ServerConfig::builder_with_provider(provider()?).with_safe_default_protocol_versions();
        let config =
            config.map_err(|error| TlsError::of(format!("the crypto provider is not usable: {error}"), error))?;
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients),
        };
        let config = config.with_single_cert(identity.chain.clone(), identity.key.clone_key());
        let config = Arc::new(config.map_err(|error| identity.refused(error))?);
        Ok(Self { identity, config })
    }
}

impl From<ServerTls> for Arc<ServerConfig> {
    fn from(tls: ServerTls) -> Self {
        tls.config
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("identity", &self.identity.from).finish_non_exhaustive()
    }
}

/// TLS settings for a client, from PEM or the system's roots. Accepted wherever a rustls configuration is.
///
/// ```no_run
/// use frisbee::{Client, ClientTls, Pem};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(()).tls(ClientTls::with_roots(Pem::file("ca.pem"))?);
/// let connection = client.connect("tcp://example.org:7300").await?;
/// # Ok(())
/// # }
/// ```
///
/// The crypto provider is the process default of rustls, or else ring with the feature `tls-ring`.
#[derive(Clone)]
pub struct ClientTls {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Trusts servers with a certificate from one of these authorities, or with one of these certificates.
    pub fn with_roots(roots: Pem) -> Result<Self, TlsError> {
        Self::with(roots.roots()?.into())
    }

    /// Trusts the certificate authorities of the operating system, including those added by an administrator.
    ///
    /// On Unix, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` override their location.
    #[cfg(feature = "tls-native-roots")]
    pub fn with_system_roots() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Some systems contain unreadable certificates. The readable ones are enough.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
            return Err(TlsError::new(format!("the system has no root certificates{why}")));
        }
        Self::with(roots.into())
    }

    /// Identifies the client to servers on request: mutual TLS.
    pub fn identity(self, certificates: Pem, key: Pem) -> Result<Self, TlsError> {
        let identity = TlsIdentity::new(&certificates, &key)?;
        let config =
            builder(self.roots.clone())?.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key());
        Ok(Self { roots: self.roots, config: Arc::new(config.map_err(|error| identity.refused(error))?) })
    }

    fn with(roots: Arc<RootCertStore>) -> Result<Self, TlsError> {
        let config = builder(roots.clone())?.with_no_client_auth();
        Ok(Self { roots, config: Arc::new(config) })
    }
}

fn builder(roots: Arc<RootCertStore>) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider()?).with_safe_default_protocol_versions();
    let config = config.map_err(|error| TlsError::of(format!("the crypto provider is not usable: {error}"), error))?;
    Ok(config.with_root_certificates(roots))
}

impl From<ClientTls> for Arc<ClientConfig> {
    fn from(tls: ClientTls) -> Self {
        tls.config
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

/// Returns the process default of rustls, or the provider of this crate.
fn provider() -> Result<Arc<CryptoProvider>, TlsError> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Ok(provider.clone());
    }
    #[cfg(feature = "tls-ring")]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(feature = "tls-ring"))]
    Err(TlsError::new(
        "no cryptography: turn on the feature tls-ring of frisbee or frpc, or install a provider of rustls as the default \
         of the process"
            .to_owned(),
    ))
}

/// The expected name in the certificate of a server: a DNS name or an IP address.
#[derive(Clone, Debug)]
pub struct TlsName(Result<ServerName<'static>, String>);

impl TlsName {
    /// Returns the name for rustls, or an error for an invalid text.
    pub fn to_server_name(&self) -> io::Result<ServerName<'static>> {
        self.0.clone().map_err(|text| {
            let why = format!("{text:?} is not a name for TLS: expected a DNS name or an IP address");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })
    }
}

impl From<ServerName<'static>> for TlsName {
    fn from(name: ServerName<'static>) -> Self {
        Self(Ok(name))
    }
}

impl From<IpAddr> for TlsName {
    fn from(addr: IpAddr) -> Self {
        Self(Ok(ServerName::IpAddress(addr.into())))
    }
}

impl From<String> for TlsName {
    fn from(name: String) -> Self {
        Self(ServerName::try_from(name.as_str()).map(|name| name.to_owned()).map_err(|_| name))
    }
}

impl From<&str> for TlsName {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl From<&String> for TlsName {
    fn from(name: &String) -> Self {
        name.clone().into()
    }
}

/// An error from unusable certificates or keys. The message names the file.
#[derive(Debug)]
pub struct TlsError {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TlsError {
    fn new(what: String) -> Self {
        Self { what, source: None }
    }

    fn of(what: String, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what, source: Some(source.into()) }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
