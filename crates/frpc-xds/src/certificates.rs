//! TLS configurations from certificates in files, and the verification of servers.

use std::{
    collections::HashMap,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant, SystemTime},
};

use frpc::{
    ClientTls, Pem, TlsError,
    frisbee::rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            ResolvesClientCert, Resumption,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
            verify_server_cert_signed_by_trust_anchor,
        },
        crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
        server::ParsedCertificate,
        sign::CertifiedKey,
    },
};
use tracing::warn;
use webpki::EndEntityCert;

use crate::{
    bootstrap::{Bootstrap, CertificateFiles, read_limited},
    resources::{CertificateSource, SanRule, TlsIdentity, TlsRules, TlsSecrets},
};

impl CertificateFiles {
    /// Returns the TLS for a connection to the control plane.
    pub(crate) fn client_tls(&self) -> io::Result<ClientTls> {
        let tls = match &self.authorities {
            Some(path) => ClientTls::with_roots(Pem::file(path)).map_err(invalid)?,
            None => system_roots()?,
        };
        match &self.identity {
            Some((certificate, key)) => tls.identity(Pem::file(certificate), Pem::file(key)).map_err(invalid),
            None => Ok(tls),
        }
    }
}

#[cfg(feature = "tls-native-roots")]
fn system_roots() -> io::Result<ClientTls> {
    ClientTls::with_system_roots().map_err(invalid)
}

#[cfg(not(feature = "tls-native-roots"))]
fn system_roots() -> io::Result<ClientTls> {
    Err(unusable("no authorities to trust for TLS: name a file with them, or add the feature tls-native-roots"))
}

fn invalid(error: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn unusable(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// The TLS configurations in use. Clusters with the same rules share one, so connections stay when a cluster is sent again,
/// and when a secret changes.
#[derive(Debug, Default)]
pub(crate) struct TlsConfigs(Mutex<HashMap<TlsRules, SharedTls>>);

#[derive(Debug)]
struct SharedTls {
    config: Weak<ClientConfig>,
    /// The changing part of a configuration with secrets.
    rotating: Weak<RotatingTls>,
}

impl TlsConfigs {
    /// Returns the configuration for these rules. New connections of a known one use these secrets.
    ///
    /// # Errors
    ///
    /// A provider is not in the bootstrap, a file is unusable, or a secret has a different type.
    pub(crate) fn get(
        &self,
        bootstrap: &Bootstrap,
        rules: &TlsRules,
        secrets: &TlsSecrets,
    ) -> io::Result<Arc<ClientConfig>> {
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(SharedTls { config, rotating }) = configs.get(rules)
            && let Some(config) = config.upgrade()
        {
            if let Some(rotating) = rotating.upgrade() {
                rotating.update(bootstrap, rules.with_secrets(secrets).map_err(unusable)?)?;
            }
            return Ok(config);
        }
        let mut rotating = Weak::new();
        let config = match rules.secrets().next() {
            None => create(bootstrap, rules)?.0,
            Some(_) => {
                let shared = RotatingTls::new(bootstrap, rules.with_secrets(secrets).map_err(unusable)?)?;
                rotating = Arc::downgrade(&shared);
                shared.config()
            }
        };
        configs.retain(|_, shared| shared.config.strong_count() > 0);
        configs.insert(rules.clone(), SharedTls { config: Arc::downgrade(&config), rotating });
        Ok(config)
    }
}

/// Returns a configuration, and its verifier for authorities other than those of the system.
fn create(bootstrap: &Bootstrap, rules: &TlsRules) -> io::Result<(Arc<ClientConfig>, Option<Arc<ServerVerifier>>)> {
    let provider = |name: &String| {
        let files = bootstrap.certificates.get(name);
        files.ok_or_else(|| unusable(format!("the bootstrap has no certificate provider {name:?}")))
    };
    let missing = |name: &str, what: &str| unusable(format!("the certificate provider {name:?} has no {what}"));
    let pem = |source: &CertificateSource, of_provider: &dyn Fn(&CertificateFiles) -> Option<PathBuf>, what: &str| {
        Ok::<_, io::Error>(match source {
            CertificateSource::Provider(name) => {
                PemSource::File(of_provider(provider(name)?).ok_or_else(|| missing(name, what))?)
            }
            CertificateSource::File(path) => PemSource::File(path.clone()),
            CertificateSource::Inline(text) => PemSource::Text(text.clone()),
            CertificateSource::System => return Err(unusable(format!("the system has no {what} for a cluster"))),
            CertificateSource::Secret(name) => return Err(unusable(format!("there is no secret {name:?}"))),
        })
    };
    let roots = match &rules.authorities {
        CertificateSource::System if rules.names.is_empty() => None,
        CertificateSource::System => {
            return Err(unusable("rules for names of servers need authorities from files, not those of the system"));
        }
        source => Some(pem(source, &|files| files.authorities.clone(), "ca_certificate_file")?),
    };
    let mut tls = match &roots {
        Some(roots) => ClientTls::with_roots(roots.pem()).map_err(invalid)?,
        None => system_roots()?,
    };
    if let Some(TlsIdentity { certificate, key }) = &rules.identity {
        let part = |index: usize| {
            move |files: &CertificateFiles| {
                let (certificate, key) = files.identity.clone()?;
                Some(if index == 0 { certificate } else { key })
            }
        };
        let certificate = pem(certificate, &part(0), "certificate_file")?;
        let key = pem(key, &part(1), "private_key_file")?;
        tls = tls.identity(certificate.pem(), key.pem()).map_err(invalid)?;
    }
    let config: Arc<ClientConfig> = tls.into();
    let Some(source) = roots else { return Ok((config, None)) };
    let mut config = ClientConfig::clone(&config);
    let algorithms = config.crypto_provider().signature_verification_algorithms;
    let roots = ReloadedRoots::new(source)?;
    let verifier = Arc::new(ServerVerifier { roots, names: rules.names.clone(), algorithms });
    config.dangerous().set_certificate_verifier(verifier.clone());
    Ok((Arc::new(config), Some(verifier)))
}

/// The certificates of a configuration with secrets: each handshake uses the current ones.
#[derive(Debug)]
struct RotatingTls(Mutex<CurrentTls>);

#[derive(Debug)]
struct CurrentTls {
    rules: TlsRules,
    config: Arc<ClientConfig>,
    verifier: Arc<dyn ServerCertVerifier>,
}

impl CurrentTls {
    fn new(bootstrap: &Bootstrap, rules: TlsRules) -> io::Result<Self> {
        let (config, verifier) = create(bootstrap, &rules)?;
        match verifier {
            Some(verifier) => Ok(Self { rules, config, verifier }),
            // The identity is a secret, and the authorities are fixed.
            None => Err(unusable("a certificate by SDS needs authorities from SDS, files or a provider")),
        }
    }
}

impl RotatingTls {
    fn new(bootstrap: &Bootstrap, rules: TlsRules) -> io::Result<Arc<Self>> {
        CurrentTls::new(bootstrap, rules).map(|current| Arc::new(Self(Mutex::new(current))))
    }

    /// Replaces the certificates. Without an error only: the last ones stay.
    fn update(&self, bootstrap: &Bootstrap, rules: TlsRules) -> io::Result<()> {
        if self.current().rules == rules {
            return Ok(());
        }
        let next = CurrentTls::new(bootstrap, rules)?;
        *self.current() = next;
        Ok(())
    }

    fn config(self: Arc<Self>) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.current().config);
        config.dangerous().set_certificate_verifier(self.clone());
        config.client_auth_cert_resolver = self;
        // A resumed session would keep the earlier certificates.
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    fn current(&self) -> MutexGuard<'_, CurrentTls> {
        // It is only replaced.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        self.current().verifier.clone()
    }

    fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        self.current().config.client_auth_cert_resolver.clone()
    }
}

impl ResolvesClientCert for RotatingTls {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.resolver().resolve(hints, schemes)
    }

    fn has_certs(&self) -> bool {
        self.resolver().has_certs()
    }
}

impl ServerCertVerifier for RotatingTls {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}

/// PEM in a file or in a resource.
#[derive(Clone)]
enum PemSource {
    File(PathBuf),
    Text(Vec<u8>),
}

impl PemSource {
    fn pem(&self) -> Pem {
        match self {
            Self::File(path) => Pem::file(path),
            Self::Text(text) => Pem::bytes(text.clone()),
        }
    }

    fn stamp(&self) -> Option<(SystemTime, u64)> {
        let Self::File(path) = self else { return None };
        let found = fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    }

    fn load(&self) -> io::Result<Arc<RootCertStore>> {
        let text = match self {
            Self::File(path) => &read_limited(path, FILE_LEN_MAX)?,
            Self::Text(text) => text,
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|error| unusable(format!("invalid PEM: {error}")))?;
            roots.add(certificate).map_err(|error| unusable(format!("invalid certificate: {error}")))?;
        }
        if roots.is_empty() { Err(unusable("there is no certificate to trust")) } else { Ok(Arc::new(roots)) }
    }
}

/// Authorities, read again after changes of their file.
struct ReloadedRoots {
    source: PemSource,
    state: Mutex<RootsState>,
}

struct RootsState {
    roots: Arc<RootCertStore>,
    seen: Option<(SystemTime, u64)>,
    checked: Instant,
}

impl ReloadedRoots {
    fn new(source: PemSource) -> io::Result<Self> {
        // Before the content, so that a change in between is noticed.
        let seen = source.stamp();
        let state = RootsState { roots: source.load()?, seen, checked: Instant::now() };
        Ok(Self { source, state: Mutex::new(state) })
    }

    /// Returns the authorities. Looks at the file at most once per second, and keeps the last ones after an error.
    fn current(&self) -> Arc<RootCertStore> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= CHECK_PERIOD {
            state.checked = Instant::now();
            let seen = self.source.stamp();
            if seen != state.seen {
                state.seen = seen;
                match self.source.load() {
                    Ok(roots) => state.roots = roots,
                    Err(error) => warn!(%error, "cannot use changed authorities, the last ones remain in use"),
                }
            }
        }
        state.roots.clone()
    }
}

/// Accepts certificates from some authorities with an expected name. The address of the server does not matter.
struct ServerVerifier {
    roots: ReloadedRoots,
    names: Vec<SanRule>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    fn check_names(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let refused = || rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        let certificate = EndEntityCert::try_from(certificate).map_err(|_| refused())?;
        let matches = |name: &str, is_uri| self.names.iter().any(|rule| rule.matches(name, is_uri));
        let is_expected = self.names.is_empty()
            || certificate.valid_dns_names().any(|name| matches(name, false))
            || certificate.valid_uri_names().any(|name| matches(name, true));
        if is_expected { Ok(()) } else { Err(refused()) }
    }
}

impl std::fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerVerifier").field("names", &self.names).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let roots = self.roots.current();
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, self.algorithms.all)?;
        self.check_names(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The time between two looks at a file.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// The maximum length of a file with authorities.
const FILE_LEN_MAX: usize = 4 << 20;
