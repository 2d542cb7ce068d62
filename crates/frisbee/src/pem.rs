//! TLS from certificates and keys in PEM, without manual rustls setup.

use std::{borrow::Cow, error::Error, fmt, fs, io, net::IpAddr, path::PathBuf, sync::Arc};

use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, DistinguishedName, InconsistentKeys, RootCertStore, ServerConfig,
    SignatureScheme,
    client::{
        ResolvesClientCert, Resumption, WantsClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::reload::Reloaded;

/// PEM text with certificates or a key, in a file or in memory.
///
/// [`ServerTls`] and [`ClientTls`] read files when they are created, and again after changes, at most once per second.
/// New connections use the new content; connections in use remain. Changed files with an error are logged, and the last
/// content remains in use. TLS sessions are not resumed then, because they would keep the old content.
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

    /// Returns the path of a file.
    fn path(&self) -> Option<PathBuf> {
        match &self.0 {
            PemSource::File(path) => Some(path.clone()),
            PemSource::Bytes(_) => None,
        }
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
    identity: Arc<TlsIdentity>,
    config: Arc<ServerConfig>,
}

/// A certificate chain, starting with the end-entity certificate, and its key.
#[derive(Debug)]
struct TlsIdentity {
    current: Reloaded<CertifiedKey>,
    /// The source of both, for messages.
    from: String,
}

impl TlsIdentity {
    fn new(certificates: Pem, key: Pem) -> Result<Arc<Self>, TlsError> {
        let from = format!("the certificate in {certificates} with the key in {key}");
        let (files, provider, source) = ([&certificates, &key].map(Pem::path), provider()?, from.clone());
        let load = move || {
            let found = CertifiedKey::from_der(certificates.certificates()?, key.key()?, &provider);
            found.map(Arc::new).map_err(|error| unusable(&source, error))
        };
        Ok(Arc::new(Self { current: Reloaded::new(files.into_iter().flatten().collect(), load)?, from }))
    }
}

fn unusable(from: &str, error: rustls::Error) -> TlsError {
    let why = match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => "they do not belong together".to_owned(),
        _ => error.to_string(),
    };
    TlsError::of(format!("cannot use {from}: {why}"), error)
}

impl ResolvesServerCert for TlsIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.current())
    }
}

impl ResolvesClientCert for TlsIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerTls {
    /// Identifies the server by a certificate and its key. Further certificates complete the chain to the
    /// authority.
    pub fn new(certificates: Pem, key: Pem) -> Result<Self, TlsError> {
        Self::with(TlsIdentity::new(certificates, key)?, None)
    }

    /// Accepts only clients with a certificate from one of these authorities: mutual TLS.
    ///
    /// [`Connection::peer_certificates`](crate::Connection::peer_certificates) returns a client's certificates.
    pub fn client_roots(self, roots: Pem) -> Result<Self, TlsError> {
        let (files, provider) = (roots.path().into_iter().collect(), provider()?);
        let load = move || {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.roots()?.into(), provider.clone()).build();
            verifier.map_err(|error| TlsError::of(format!("cannot use the certificates in {roots}: {error}"), error))
        };
        let verifier = TrustedClients(Reloaded::new(files, load)?);
        Self::with(self.identity, Some(Arc::new(verifier)))
    }

    fn with(identity: Arc<TlsIdentity>, clients: Option<Arc<TrustedClients>>) -> Result<Self, TlsError> {
        let config = ServerConfig::builder_with_provider(provider()?).with_safe_default_protocol_versions();
        let config =
            config.map_err(|error| TlsError::of(format!("the crypto provider is not usable: {error}"), error))?;
        let can_change =
            identity.current.can_change() || clients.as_ref().is_some_and(|clients| clients.0.can_change());
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients),
        };
        let mut config = config.with_cert_resolver(identity.clone());
        if can_change {
            // A resumed session keeps the certificates of its first connection.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { identity, config: Arc::new(config) })
    }
}

/// The authorities for the certificates of clients.
#[derive(Debug)]
struct TrustedClients(Reloaded<dyn ClientCertVerifier>);

impl ClientCertVerifier for TrustedClients {
    // Names of authorities would not follow the changes of the file. Without them, clients offer any certificate.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.current().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.current().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.current().supported_verify_schemes()
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
    servers: Arc<TrustedServers>,
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Trusts servers with a certificate from one of these authorities, or with one of these certificates.
    pub fn with_roots(roots: Pem) -> Result<Self, TlsError> {
        let files = roots.path().into_iter().collect();
        Self::with(TrustedServers::new(files, roots.to_string(), move || roots.roots())?)
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
        Self::with(TrustedServers::new(Vec::new(), "the system".to_owned(), move || Ok(roots.clone()))?)
    }

    /// Identifies the client to servers on request: mutual TLS.
    pub fn identity(self, certificates: Pem, key: Pem) -> Result<Self, TlsError> {
        let identity = TlsIdentity::new(certificates, key)?;
        let can_change = identity.current.can_change();
        let config = builder(self.servers.clone())?.with_client_cert_resolver(identity);
        Ok(Self::of(self.servers, config, can_change))
    }

    fn with(servers: TrustedServers) -> Result<Self, TlsError> {
        let servers = Arc::new(servers);
        let config = builder(servers.clone())?.with_no_client_auth();
        Ok(Self::of(servers, config, false))
    }

    fn of(servers: Arc<TrustedServers>, mut config: ClientConfig, can_change: bool) -> Self {
        if can_change || servers.verifier.can_change() {
            // As on the server.
            config.resumption = Resumption::disabled();
        }
        Self { servers, config: Arc::new(config) }
    }
}

fn builder(servers: Arc<TrustedServers>) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider()?).with_safe_default_protocol_versions();
    let config = config.map_err(|error| TlsError::of(format!("the crypto provider is not usable: {error}"), error))?;
    // The verifier is that of rustls, with authorities that may change.
    Ok(config.dangerous().with_custom_certificate_verifier(servers))
}

/// The authorities for the certificates of servers.
#[derive(Debug)]
struct TrustedServers {
    verifier: Reloaded<WebPkiServerVerifier>,
    from: String,
}

impl TrustedServers {
    fn new(
        files: Vec<PathBuf>,
        from: String,
        roots: impl Fn() -> Result<RootCertStore, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let (provider, source) = (provider()?, from.clone());
        let load = move || {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots()?.into(), provider.clone()).build();
            verifier.map_err(|error| TlsError::of(format!("cannot use the certificates in {source}: {error}"), error))
        };
        Ok(Self { verifier: Reloaded::new(files, load)?, from })
    }
}

impl ServerCertVerifier for TrustedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier.current().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.current().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.current().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.current().supported_verify_schemes()
    }
}

impl From<ClientTls> for Arc<ClientConfig> {
    fn from(tls: ClientTls) -> Self {
        tls.config
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("roots", &self.servers.from).finish_non_exhaustive()
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
