//! Certificates that are their own authority.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};

/// A fresh certificate for `localhost` and `127.0.0.1`. Other programs find it in a file as long as this lives.
#[derive(Debug)]
pub struct SelfSigned {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    path: PathBuf,
}

impl SelfSigned {
    /// Makes one and writes its public part to a file.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .expect("these are names a certificate can have");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("frisbee-tests-{}-{number}.pem", process::id()));
        fs::write(&path, made.cert.pem()).expect("the directory for temporary files takes one");
        Self { certificate: made.cert.into(), key: made.signing_key.into(), path }
    }

    /// The PEM file with the certificate.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For a server that shows the certificate.
    pub fn server_config(&self) -> ServerConfig {
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .expect("the key is that of the certificate")
    }
}

impl Drop for SelfSigned {
    fn drop(&mut self) {
        // Left behind it does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// For a client that trusts this certificate and no other.
pub fn trusting(certificate: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a certificate");
    ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}
