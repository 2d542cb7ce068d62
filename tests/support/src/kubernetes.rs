//! A Kubernetes API server for a single test, if the programs are installed.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::{
    certificates::{Identity, PemFile},
    databases::EtcdServer,
    directory::Directory,
    process::LoggedProcess,
};

/// A kube-apiserver with an etcd of its own, both killed on drop. There are no controllers.
#[derive(Debug)]
pub struct KubeApiServer {
    /// The certificate and key of the server, for `localhost`.
    pub identity: Identity,
    etcd: EtcdServer,
    /// The certificate and key in files, which the server reads.
    files: [PemFile; 2],
    port: u16,
    process: LoggedProcess,
}

impl KubeApiServer {
    /// The token of a user who may do everything.
    pub const TOKEN: &str = "of-all";

    /// Starts a server. Returns `None` if `tests/kubernetes/build.sh` or `tests/etcd/build.sh` has not installed it. The
    /// test is skipped then, also in CI: the build takes long, and other tests replay what the server answered.
    pub async fn start() -> Option<Self> {
        if !program().is_file() {
            eprintln!("skipped, missing: kube-apiserver; run `tests/kubernetes/build.sh`");
            return None;
        }
        let etcd = EtcdServer::start().await?;
        let identity = Identity::new();
        let files = [identity.pem_file(), identity.key_file()];
        let (port, process) = run(&etcd, &files, None).await;
        Some(Self { identity, etcd, files, port, process })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server and starts it again at the same port, with the same data.
    pub async fn restart(self) -> Self {
        let Self { identity, etcd, files, port, process } = self;
        drop(process);
        let (port, process) = run(&etcd, &files, Some(port)).await;
        Self { identity, etcd, files, port, process }
    }
}

async fn run(etcd: &EtcdServer, files: &[PemFile; 2], port: Option<u16>) -> (u16, LoggedProcess) {
    loop {
        // The server takes no port 0. Another process may take the free port, and the server ends then.
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
        let port = port.unwrap_or_else(|| free().port());
        let directory = Directory::new("kubernetes");
        let tokens = directory.path().join("tokens");
        fs::write(&tokens, format!("{},root,1,system:masters\n", KubeApiServer::TOKEN)).expect("the folder is new");
        let mut command = Command::new(program());
        command.arg(format!("--etcd-servers=http://{}", etcd.addr)).arg(format!("--secure-port={port}"));
        command.args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC", "--anonymous-auth=false"]);
        command.args([
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
        ]);
        let [certificate, key] = files.each_ref().map(PemFile::path);
        for (flag, file) in [
            ("tls-cert-file", certificate),
            ("tls-private-key-file", key),
            ("service-account-key-file", certificate),
            ("service-account-signing-key-file", key),
            ("token-auth-file", &tokens),
        ] {
            command.arg(format!("--{flag}={}", file.display()));
        }
        let mut process = LoggedProcess::start(command, directory);
        if process.says_one_of(&["Serving securely on", "address already in use"]).await.contains("Serving") {
            return (port, process);
        }
    }
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kubernetes/bin/kube-apiserver")
}
