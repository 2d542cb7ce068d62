//! Certificates that are their own authority, for either side.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};

/// Who somebody is: a certificate for `localhost` and `127.0.0.1`, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        Self { certificate: made.cert.into(), key: made.signing_key.into() }
    }

    /// For a server that takes any client.
    pub(crate) fn server(&self) -> ServerConfig {
        ServerConfig::builder().with_no_client_auth().with_single_cert(self.chain(), self.key.clone_key()).unwrap()
    }

    /// For a server that takes one client only.
    pub(crate) fn server_for(&self, client: &Self) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(client.trusted())).build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        config.with_single_cert(self.chain(), self.key.clone_key()).unwrap()
    }

    /// For an anonymous client of this server.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::builder().with_root_certificates(self.trusted()).with_no_client_auth()
    }

    /// For a client of this server that shows who it is.
    pub(crate) fn client_as(&self, client: &Self) -> ClientConfig {
        let config = ClientConfig::builder().with_root_certificates(self.trusted());
        config.with_client_auth_cert(client.chain(), client.key.clone_key()).unwrap()
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    fn trusted(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}

pub(crate) fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}
