//! TLS from PEM on both sides, with errors that name the file and its defect.

use std::{env, fs, path::PathBuf};

use frisbee::{Client, ClientTls, ConnectRetry, Connection, Pem, Server, ServerTls, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    generate_simple_self_signed,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use support::{
    in_real_time,
    sockets::{ECHO, Forward, Inbox, Kind, TestRouter, packet, test_server, unused_address, unused_path},
    until,
};
use tokio::{io::duplex, process::Command};

/// A certificate with its key in PEM.
struct Identity {
    certificate: String,
    key: String,
}

fn names() -> [String; 2] {
    ["localhost".into(), "127.0.0.1".into()]
}

/// Returns an authority, and an identity signed by it.
fn signed() -> (String, Identity) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(names()).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    (authority.pem(), Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn self_signed() -> Identity {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names()).unwrap();
    Identity { certificate: cert.pem(), key: signing_key.serialize_pem() }
}

fn pem(text: &str) -> Pem {
    Pem::bytes(text)
}

/// A file with this text, removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let path = unused_path();
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn pem(&self) -> Pem {
        Pem::file(&self.0)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

async fn check_answered(server: &Server, client: Client<Forward>, mut inbox: Inbox) -> Connection {
    let connection = client.connect(server.local_addr()).await.unwrap();
    connection.send(packet(1, ECHO, "hi")).await.unwrap();
    assert_eq!(inbox.next().await, Some(packet(1, ECHO, "hi")));
    connection
}

#[test]
fn certificates_can_be_files_or_bytes() {
    in_real_time(async {
        let (authority, identity) = signed();
        let files = [&authority, &identity.certificate, &identity.key].map(TempFile::new);
        let from_files = ServerTls::new(files[1].pem(), files[2].pem()).unwrap();
        let from_bytes = ServerTls::new(pem(&identity.certificate), pem(&identity.key)).unwrap();
        for tls in [from_files, from_bytes] {
            let server = test_server().tls(tls).bind("127.0.0.1:0").await.unwrap();
            for roots in [files[0].pem(), pem(&authority)] {
                let (router, inbox) = Inbox::new();
                let client = Client::new(router).tls(ClientTls::with_roots(roots).unwrap());
                check_answered(&server, client, inbox).await;
            }
        }
    });
}

/// The files of one side: its certificate, its key, and the authorities of the other side.
struct SideFiles([TempFile; 3]);

impl SideFiles {
    fn new(identity: &Identity, roots: &str) -> Self {
        Self([identity.certificate.as_str(), &identity.key, roots].map(TempFile::new))
    }

    fn pems(&self) -> [Pem; 3] {
        self.0.each_ref().map(TempFile::pem)
    }

    fn write(&self, file: usize, text: &str) {
        fs::write(&self.0[file].0, text).unwrap();
    }
}

/// Returns a connection after it has carried a packet in both directions. `None` if one side refuses the other.
async fn answered(server: &Server, tls: ClientTls) -> Option<Connection> {
    let (router, mut inbox) = Inbox::new();
    let retry = ConnectRetry { attempts: 1, ..ConnectRetry::default() };
    let connection = Client::new(router).retry(retry).tls(tls).connect(server.local_addr()).await.ok()?;
    connection.send(packet(1, ECHO, "hi")).await.ok()?;
    tokio::select! {
        answer = inbox.next() => answer.map(|_| connection),
        _ = connection.closed() => None,
    }
}

#[test]
fn changed_files_are_used_without_a_lost_connection() {
    in_real_time(async {
        let [(old_authority, old), (new_authority, new)] = [signed(), signed()];
        let both = old_authority.clone() + &new_authority;
        let [server_files, client_files] = [(); 2].map(|()| SideFiles::new(&old, &old_authority));
        let serve = async |[certificates, key, roots]: [Pem; 3]| {
            let tls = ServerTls::new(certificates, key).unwrap().client_roots(roots).unwrap();
            test_server().tls(tls).bind("127.0.0.1:0").await.unwrap()
        };
        let call = |[certificates, key, roots]: [Pem; 3]| {
            ClientTls::with_roots(roots).unwrap().identity(certificates, key).unwrap()
        };
        let renewed = || [pem(&new.certificate), pem(&new.key), pem(&both)];
        let (server, renewed_server) = (serve(server_files.pems()).await, serve(renewed()).await);
        let (client, renewed_client) = (call(client_files.pems()), call(renewed()));
        let first = answered(&server, client.clone()).await.unwrap();
        assert!(answered(&server, renewed_client.clone()).await.is_none());

        // Both sides learn to trust the new authority, then both get new identities.
        for files in [&server_files, &client_files] {
            files.write(2, &both);
        }
        while answered(&server, renewed_client.clone()).await.is_none() {}
        while answered(&renewed_server, client.clone()).await.is_none() {}
        for files in [&server_files, &client_files] {
            files.write(0, &new.certificate);
            files.write(1, &new.key);
        }
        let has = |connection: &Connection, identity: &Identity| {
            let known = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
            connection.peer_certificates().unwrap()[0] == known
        };
        let mut are_renewed = [false; 2];
        while are_renewed != [true; 2] {
            let connection = answered(&server, client.clone()).await.expect("no connection is lost");
            are_renewed[0] |= has(&connection, &new);
            are_renewed[1] |= server.connections().iter().any(|accepted| has(accepted, &new));
        }
        assert!(has(&first, &old));
        first.send(packet(2, ECHO, "ho")).await.expect("the first connection goes on");
    });
}

#[test]
fn a_self_signed_certificate_is_accepted_as_root() {
    in_real_time(async {
        let Identity { certificate, key } = self_signed();
        let tls = ServerTls::new(pem(&certificate), pem(&key)).unwrap();
        let server = test_server().tls(tls).bind(unused_address(Kind::UnixPath)).await.unwrap();
        let (router, inbox) = Inbox::new();
        let name = String::from("localhost");
        let client =
            Client::new(router).tls_with_name(ClientTls::with_roots(pem(&certificate)).unwrap(), name.as_str());
        check_answered(&server, client, inbox).await;
    });
}

#[test]
fn an_invalid_server_name_is_shown_in_the_error() {
    in_real_time(async {
        let tls = ClientTls::with_roots(pem(&self_signed().certificate)).unwrap();
        let client = Client::new(()).tls_with_name(tls, "not a name");
        let error = client.attach(duplex(100).0).await.unwrap_err();
        assert!(error.to_string().contains("\"not a name\" is not a name for TLS"), "{error}");
    });
}

#[test]
fn each_side_can_require_a_certificate() {
    in_real_time(async {
        let (authority, identity) = signed();
        let (clients, client) = signed();
        let tls = ServerTls::new(pem(&identity.certificate), pem(&identity.key)).unwrap();
        let tls = tls.client_roots(pem(&clients)).unwrap();
        let server = test_server().tls(tls).bind("127.0.0.1:0").await.unwrap();

        let known = ClientTls::with_roots(pem(&authority)).unwrap();
        let known = known.identity(pem(&client.certificate), pem(&client.key)).unwrap();
        let (router, inbox) = Inbox::new();
        let connection = check_answered(&server, Client::new(router).tls(known), inbox).await;
        assert_eq!(server.connections()[0].peer_certificates().unwrap().len(), 1);
        drop(connection);

        let stranger = self_signed();
        let unknown = ClientTls::with_roots(pem(&authority)).unwrap();
        let unknown = unknown.identity(pem(&stranger.certificate), pem(&stranger.key)).unwrap();
        let anonymous = ClientTls::with_roots(pem(&authority)).unwrap();
        for (failed, tls) in [(1, unknown), (2, anonymous)] {
            let client = Client::new(()).retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() }).tls(tls);
            // With TLS 1.3, the client completes its handshake before the server has verified the client's certificate.
            if let Ok(connection) = client.connect(server.local_addr()).await {
                connection.closed().await;
            }
            until(|| server.metrics().handshakes_failed == failed).await;
        }
    });
}

#[test]
fn a_ca_certificate_as_server_certificate_is_explained() {
    in_real_time(async {
        let mut params = CertificateParams::new(names()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let tls = ServerTls::new(pem(&authority.pem()), pem(&authority.key().serialize_pem())).unwrap();
        let (router, _) = TestRouter::with_hooks();
        let server = Server::builder(router).tls(tls).bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(()).tls(ClientTls::with_roots(pem(&authority.pem())).unwrap());
        let error = client.connect(server.local_addr()).await.unwrap_err().to_string();
        for part in ["(attempts: 1)", "the certificate of the server", "CA:TRUE", "basicConstraints=CA:FALSE"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    });
}

#[test]
fn errors_name_the_file_and_the_problem() {
    let Identity { certificate, key } = self_signed();
    let other = self_signed();
    let [certificate, key, other] = [certificate, key, other.key].map(TempFile::new);
    let mute = TempFile::new("no PEM at all");
    let garbled = TempFile::new("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n");
    let hollow = TempFile::new("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let encrypted = TempFile::new("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let missing = Pem::file("/there/is/no.pem");

    let server = |certificate: &Pem, key: &Pem| ServerTls::new(certificate.clone(), key.clone()).map(drop);
    let check = |result: Result<(), TlsError>, file: &Pem, problem: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(&file.to_string()) && error.contains(problem), "{problem}: {error}");
    };
    check(server(&missing, &key.pem()), &missing, "cannot read /there/is/no.pem: No such file");
    check(server(&certificate.pem(), &missing), &missing, "No such file");
    check(server(&key.pem(), &key.pem()), &key.pem(), "has no certificate, only PRIVATE KEY");
    check(server(&certificate.pem(), &certificate.pem()), &certificate.pem(), "has no private key, only CERTIFICATE");
    check(server(&mute.pem(), &key.pem()), &mute.pem(), "has no certificate, only text without PEM sections");
    check(server(&garbled.pem(), &key.pem()), &garbled.pem(), "is not valid PEM");
    check(server(&hollow.pem(), &key.pem()), &hollow.pem(), "cannot use the certificate in");
    check(server(&certificate.pem(), &encrypted.pem()), &encrypted.pem(), "is encrypted");
    check(server(&certificate.pem(), &other.pem()), &other.pem(), "they do not belong together");
    check(ClientTls::with_roots(missing.clone()).map(drop), &missing, "No such file");
    check(ClientTls::with_roots(key.pem()).map(drop), &key.pem(), "has no certificate");
    check(ClientTls::with_roots(hollow.pem()).map(drop), &hollow.pem(), "is not usable");
    let tls = ServerTls::new(certificate.pem(), key.pem()).unwrap();
    check(tls.client_roots(mute.pem()).map(drop), &mute.pem(), "has no certificate");
    let tls = ClientTls::with_roots(certificate.pem()).unwrap();
    check(tls.identity(certificate.pem(), other.pem()).map(drop), &other.pem(), "they do not belong together");

    let secret = fs::read_to_string(&key.0).unwrap();
    let secret = Pem::bytes(secret);
    assert_eq!(format!("{secret:?}"), format!("Pem({secret})"));
    assert!(secret.to_string().starts_with("the PEM in memory ("));
}

#[test]
fn system_roots_are_trusted() {
    in_real_time(async {
        let Some(roots) = env::var_os(ROOTS) else {
            let (authority, identity) = signed();
            let files = [&authority, &identity.certificate, &identity.key].map(TempFile::new);
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", "--nocapture", "pem::system_roots_are_trusted"]).kill_on_drop(true);
            command.env("SSL_CERT_FILE", &files[0].0).env_remove("SSL_CERT_DIR");
            command.env(ROOTS, env::join_paths(files.iter().map(|file| &file.0)).unwrap());
            let output = command.output().await.unwrap();
            let told = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
            print!("{told}");
            return assert!(output.status.success() && told.contains("1 passed"));
        };
        let files: Vec<PathBuf> = env::split_paths(&roots).collect();
        let tls = ServerTls::new(Pem::file(&files[1]), Pem::file(&files[2])).unwrap();
        let server = test_server().tls(tls).bind("127.0.0.1:0").await.unwrap();
        let (router, inbox) = Inbox::new();
        let client = Client::new(router).tls(ClientTls::with_system_roots().unwrap());
        check_answered(&server, client, inbox).await;
    });
}

const ROOTS: &str = "FRISBEE_TEST_ROOTS";
