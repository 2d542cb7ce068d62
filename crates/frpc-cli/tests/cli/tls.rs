//! TLS, with certificates created by the tests.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;

use crate::program::{Directory, Ran, Server, command, frpc};

#[test]
fn server_certificates_are_verified_unless_disabled() {
    let directory = Directory::new("tls");
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let ca = directory.write("ca.pem", authority.pem());
    let (cert, key) = (directory.write("cert.pem", certificate.pem()), directory.write("key.pem", key.serialize_pem()));
    let server = Server::start_with("tcp://127.0.0.1:0", &["--cert", &cert, "--key", &key]);
    for wire in ["tcp", "wss", "grpcs", "https"] {
        for options in [&["--ca", &ca][..], &["-k"]] {
            let ran = frpc(&[&["call", &server.over(wire), "Say", "text=hi", "--json"], options].concat());
            assert_eq!(ran.json(), [json!({ "text": "hi" })], "{wire} {options:?}: {ran:?}");
        }
    }
    let ran = frpc(&["call", &server.over("grpcs"), "Say"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("--ca FILE"), "{}", ran.err);
    // Simulates a machine without trusted certificate authorities.
    let empty = directory.write("empty.pem", "");
    let ran =
        command(&["call", &server.over("grpcs"), "Say"]).env("SSL_CERT_FILE", &empty).env("SSL_CERT_DIR", "").output();
    let ran = Ran::from(ran.unwrap());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("--ca FILE"), "{}", ran.err);
    let ran = frpc(&["call", &server.over("grpc"), "Say", "-k"]);
    assert!(ran.err.contains("try: grpcs://"), "{}", ran.err);
}
