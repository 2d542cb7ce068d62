//! Certificates for the examples, made afresh by each run. A real service gets them from its authority, as files.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// Vouches for servers and clients.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both in PEM.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, for everybody to see.
    pub certificate: String,
    /// The key, for nobody else to see.
    pub key: String,
}

impl Authority {
    /// Founds an authority of this name.
    pub fn new(name: &str) -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Returns its own certificate, by which others recognize what it signed.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for this name. It is not marked as that of an authority, or rustls would refuse it.
    pub fn issue(&self, name: &str) -> Result<Identity, Error> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
