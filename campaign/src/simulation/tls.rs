//! TLS on the links of a world.
//!
//! Keys and nonces are random, so a seed repeats only if no length depends on them: signatures, key shares, certificates
//! and tickets of sessions have fixed lengths.

use std::{io, sync::Arc};

use frpc::frisbee::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName},
};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::defect::DefectiveStream;

/// The certificate of all nodes of a world, and the trust in it.
#[derive(Clone, Debug)]
pub(super) struct WorldTls {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

impl WorldTls {
    /// Makes a certificate for this number of nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key can be made");
        let names: Vec<_> = (0..nodes).map(|number| format!("server-{number}")).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        // A hash of the key would lose its leading zeros.
        params.serial_number = Some(1.into());
        let certificate = params.self_signed(&key).expect("a certificate can be made");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("it is a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let server = server.expect("the provider knows TLS").with_no_client_auth();
        let server = server.with_single_cert(vec![certificate.der().clone()], key).expect("the key fits");
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.expect("the provider knows TLS").with_root_certificates(roots).with_no_client_auth();
        Self { server: Arc::new(server), client: Arc::new(client) }
    }

    /// Connects to a node, for protocols without TLS of their own.
    pub(super) async fn connect(&self, name: &str, stream: DefectiveStream) -> io::Result<TlsStream<DefectiveStream>> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(self.client.clone()).connect(name, stream).await
    }
}
