//! Certificates for the examples, created anew by each run. A real service reads files issued by its authority.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// A certificate authority for servers and clients.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, both in PEM.
#[derive(Debug)]
pub struct Identity {
    /// The certificate. It is public.
    pub certificate: String,
    /// The private key. It must remain secret.
    pub key: String,
}

impl Authority {
    /// Creates a self-signed authority with this name.
    pub fn new(name: &str) -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Returns the certificate of the authority, used to verify the certificates it issued.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for this name. It is not a CA certificate, because rustls rejects those for servers and
    /// clients.
    pub fn issue(&self, name: &str) -> Result<Identity, Error> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
