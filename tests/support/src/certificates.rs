//! Self-signed certificates for servers and clients.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rcgen::CertifiedKey;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};

/// A certificate for `localhost` and `127.0.0.1` with its key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: String,
    key_pem: String,
}

impl Identity {
    /// Generates a new certificate and key.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        let key_pem = signing_key.serialize_pem();
        Self { pem: cert.pem(), key_pem, certificate: cert.into(), key: signing_key.into() }
    }

    /// Returns the configuration of a server for any client.
    pub fn server(&self) -> ServerConfig {
        ServerConfig::builder().with_no_client_auth().with_single_cert(self.chain(), self.key.clone_key()).unwrap()
    }

    /// Returns the configuration of a server for a single client certificate.
    pub fn server_for(&self, client: &Self) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots(client.certificate.clone()))).build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        config.with_single_cert(self.chain(), self.key.clone_key()).unwrap()
    }

    /// Returns the configuration of an anonymous client of this server.
    pub fn client(&self) -> ClientConfig {
        trusting(self.certificate.clone())
    }

    /// Returns the configuration of a client of this server with its own certificate.
    pub fn client_as(&self, client: &Self) -> ClientConfig {
        let config = ClientConfig::builder().with_root_certificates(roots(self.certificate.clone()));
        config.with_client_auth_cert(client.chain(), client.key.clone_key()).unwrap()
    }

    /// Writes the certificate to a file for other programs.
    pub fn pem_file(&self) -> PemFile {
        PemFile::new(&self.pem)
    }

    /// Writes the key to a file for other programs.
    pub fn key_file(&self) -> PemFile {
        PemFile::new(&self.key_pem)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }
}

/// A file, removed on drop.
#[derive(Debug)]
pub struct PemFile(PathBuf);

impl PemFile {
    fn new(text: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("frisbee-tests-{}-{number}.pem", process::id()));
        fs::write(&path, text).expect("the directory for temporary files takes one");
        Self(path)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PemFile {
    fn drop(&mut self) {
        // A leftover file is harmless.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the configuration of a client with this certificate as its only trusted root.
pub fn trusting(certificate: CertificateDer<'static>) -> ClientConfig {
    ClientConfig::builder().with_root_certificates(roots(certificate)).with_no_client_auth()
}

fn roots(certificate: CertificateDer<'static>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a certificate");
    roots
}

/// Returns the server name of all certificates.
pub fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}
