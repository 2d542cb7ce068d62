//! The peers written in Go, in `tests/go`. What they do is said in the README there.

use std::{
    env,
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
    process::{self, Stdio},
    sync::OnceLock,
};

use frisbee::HeaderFormat;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// The peers, built and ready to run.
#[derive(Clone, Copy, Debug)]
pub struct GoPeers(());

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct GoServer {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The certificate that it shows to clients, if it serves TLS.
    pub certificate: Option<CertificateDer<'static>>,
    _process: Child,
}

impl GoPeers {
    /// Builds the peers if needed. `None` if Go is not installed: the test says so and is skipped, but where `CI` is set
    /// it fails.
    pub fn build() -> Option<Self> {
        static BUILT: OnceLock<Option<GoPeers>> = OnceLock::new();
        *BUILT.get_or_init(|| {
            if let Err(error) = process::Command::new("go").arg("version").output() {
                assert!(env::var_os("CI").is_none(), "Go is not installed ({error}), and CI must not skip its tests");
                // Not `eprintln!`, which shows only in tests that fail.
                let _ = writeln!(io::stderr(), "skipped: Go is not installed ({error})");
                return None;
            }
            let build = process::Command::new(Path::new(GO).join("build.sh")).output().expect("the script can run");
            assert!(build.status.success(), "the Go peers do not build:\n{}", String::from_utf8_lossy(&build.stderr));
            Some(Self(()))
        })
    }

    /// One of the programs, to be given arguments. It is killed when its handle is dropped.
    pub fn command(self, program: &str, header: HeaderFormat) -> Command {
        let directory = match header {
            HeaderFormat::Magic10 => "header10",
            HeaderFormat::Plain8 => "header8",
        };
        let mut command = Command::new(Path::new(GO).join("bin").join(directory).join(program));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts one of the servers on a port of its choice, once configured.
    pub async fn serve(self, program: &str, header: HeaderFormat, tls: bool, flags: &[&str]) -> GoServer {
        let mut command = self.command(program, header);
        if tls {
            command.args(["-tls-cert", "/dev/stdout"]);
        }
        let mut process = command.args(flags).arg("127.0.0.1:0").spawn().expect("the server was built");
        let mut lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
        let mut pem = String::new();
        loop {
            let line = lines.next_line().await.expect("its output is text").expect("it says where it listens");
            if let Some(addr) = line.strip_prefix("listening ") {
                let addr = addr.parse().expect("it listens at an address");
                let certificate = tls.then(|| CertificateDer::from_pem_slice(pem.as_bytes()).expect("it has shown it"));
                return GoServer { addr, certificate, _process: process };
            }
            pem.extend([&line, "\n"]);
        }
    }
}

const GO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../go");
