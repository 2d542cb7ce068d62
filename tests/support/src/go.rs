//! Peers written in Go, from `tests/go`. The README there describes their behavior.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
};

use frisbee::HeaderFormat;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::installed::{is_current, is_installed};

/// The Go peers, built and ready to run.
#[derive(Clone, Copy, Debug)]
pub struct GoPeers(());

/// A server process, stopped on drop.
#[derive(Debug)]
pub struct GoServer {
    /// Address of the listener.
    pub addr: SocketAddr,
    /// Certificate of the server, if it uses TLS.
    pub certificate: Option<CertificateDer<'static>>,
    _process: Child,
}

impl GoPeers {
    /// Returns the peers, or `None` unless `tests/go/build.sh` has built their current sources. The test is skipped
    /// then, see [`is_installed`].
    pub fn find() -> Option<Self> {
        static ARE_CURRENT: OnceLock<bool> = OnceLock::new();
        let sources = ["cmd", "internal", "load", "go.mod", "header8.mod"].map(|name| Path::new(GO).join(name));
        let are_current = || is_current(&Path::new(GO).join("bin/.built"), &sources.each_ref().map(PathBuf::as_path));
        is_installed(*ARE_CURRENT.get_or_init(are_current), "the Go peers", "tests/go/build.sh").then_some(Self(()))
    }

    /// Returns the path of a program.
    pub fn program(self, name: &str, header: HeaderFormat) -> PathBuf {
        let directory = match header {
            HeaderFormat::Magic10 => "header10",
            HeaderFormat::Plain8 => "header8",
        };
        Path::new(GO).join("bin").join(directory).join(name)
    }

    /// Returns a command for a program. Arguments can be added. The process is killed on drop.
    pub fn command(self, program: &str, header: HeaderFormat) -> Command {
        let mut command = Command::new(self.program(program, header));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts a server on a free port.
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
