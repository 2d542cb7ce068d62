//! The options of TLS.

use std::sync::Arc;

use frpc::frisbee::rustls::ClientConfig;

use crate::failure::Result;

/// The options of connections with TLS.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TlsOptions {
    /// TLS for addresses that do not say so themselves, such as tcp://.
    #[arg(long, help_heading = "TLS")]
    tls: bool,
    /// Trusts servers with certificates of these authorities, in PEM. Default: those of the system.
    #[arg(long, visible_alias = "cacert", value_name = "FILE", help_heading = "TLS")]
    ca: Option<String>,
    /// Shows the server this certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    cert: Option<String>,
    /// The key of the certificate.
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    key: Option<String>,
    /// Expects a certificate for this name.
    #[arg(long, visible_alias = "servername", value_name = "NAME", help_heading = "TLS")]
    server_name: Option<String>,
    /// Accepts any certificate: whoever answers may be somebody else.
    #[arg(long, short = 'k', help_heading = "TLS")]
    insecure: bool,
}

impl TlsOptions {
    /// Returns whether any of the options asks for TLS.
    pub(crate) fn is_given(&self) -> bool {
        self.tls || self.ca.is_some() || self.cert.is_some() || self.insecure
    }

    /// Returns the name that the certificate of the server has to be for, if it is not that of the address.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns a configuration of what the options say.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        Err(crate::failure::Failure::left_out("tls", "TLS"))
    }

    /// Returns a configuration of what the options say.
    #[cfg(feature = "tls")]
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        use frpc::{ClientTls, Pem};

        use crate::failure::Failure;

        let failed = |error: frpc::TlsError| Failure::new(error);
        if self.insecure {
            return Ok(Arc::new(insecure::anything_goes()?));
        }
        let mut tls = match &self.ca {
            Some(path) => ClientTls::with_roots(Pem::file(path)).map_err(failed)?,
            None => ClientTls::with_system_roots()
                .map_err(|error| failed(error).with_try("--ca FILE with the authority of the server"))?,
        };
        if let (Some(certificates), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Pem::file(certificates), Pem::file(key)).map_err(failed)?;
        }
        Ok(tls.into())
    }
}

/// Connections to servers whose certificates are not checked.
#[cfg(feature = "tls")]
mod insecure {
    use std::sync::Arc;

    use frpc::frisbee::rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    use crate::failure::{Failure, Result};

    /// Returns a configuration that believes everybody.
    pub(super) fn anything_goes() -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Believer(provider.clone()));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(Failure::new)?.dangerous().with_custom_certificate_verifier(verifier);
        Ok(config.with_no_client_auth())
    }

    /// Accepts every certificate. Signatures are checked, so the server does have the key.
    #[derive(Debug)]
    struct Believer(Arc<rustls::crypto::CryptoProvider>);

    impl ServerCertVerifier for Believer {
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
