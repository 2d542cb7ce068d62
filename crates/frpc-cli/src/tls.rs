//! TLS options.

use std::sync::Arc;

use frpc::frisbee::rustls::ClientConfig;

use crate::failure::Result;

/// Options of TLS connections.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TlsOptions {
    /// Uses TLS for addresses without a TLS scheme, such as tcp://.
    #[arg(long, help_heading = "TLS")]
    tls: bool,
    /// A PEM file with the certificate authorities to trust. Default: those of the system.
    #[arg(long, visible_alias = "cacert", value_name = "FILE", help_heading = "TLS")]
    ca: Option<String>,
    /// A PEM file with the client certificate.
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    cert: Option<String>,
    /// A PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    key: Option<String>,
    /// The expected name in the server's certificate.
    #[arg(long, visible_alias = "servername", value_name = "NAME", help_heading = "TLS")]
    server_name: Option<String>,
    /// Accepts any certificate. This allows impersonation of the server.
    #[arg(long, short = 'k', help_heading = "TLS")]
    insecure: bool,
}

impl TlsOptions {
    /// Returns `true` if an option enables TLS.
    pub(crate) fn is_given(&self) -> bool {
        self.tls || self.ca.is_some() || self.cert.is_some() || self.insecure
    }

    /// Returns the expected name in the server's certificate, if it differs from the address.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the TLS configuration for the options.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        Err(crate::failure::CommandError::left_out("tls", "TLS"))
    }

    /// Returns the TLS configuration for the options.
    #[cfg(feature = "tls")]
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        use frpc::{ClientTls, Pem};

        use crate::failure::CommandError;

        let failed = |error: frpc::TlsError| CommandError::new(error);
        if self.insecure {
            return Ok(Arc::new(insecure::anything_goes()?));
        }
        let mut tls = match &self.ca {
            Some(path) => ClientTls::with_roots(Pem::file(path)).map_err(failed)?,
            None => ClientTls::with_system_roots()
                .map_err(|error| failed(error).with_try("--ca FILE with the certificate authority of the server"))?,
        };
        if let (Some(certificates), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Pem::file(certificates), Pem::file(key)).map_err(failed)?;
        }
        Ok(tls.into())
    }
}

/// TLS without verification of certificates.
#[cfg(feature = "tls")]
mod insecure {
    use std::sync::Arc;

    use frpc::frisbee::rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    use crate::failure::{CommandError, Result};

    /// Returns a configuration that accepts every certificate.
    pub(super) fn anything_goes() -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(InsecureVerifier(provider.clone()));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(CommandError::new)?.dangerous().with_custom_certificate_verifier(verifier);
        Ok(config.with_no_client_auth())
    }

    /// A verifier that accepts every certificate. It still checks signatures, so the server must own the key of its
    /// certificate.
    #[derive(Debug)]
    struct InsecureVerifier(Arc<rustls::crypto::CryptoProvider>);

    impl ServerCertVerifier for InsecureVerifier {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> std::result::Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(
                message,
                certificate,
                signature,
                &self.0.signature_verification_algorithms,
            )
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(
                message,
                certificate,
                signature,
                &self.0.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
