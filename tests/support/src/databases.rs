//! etcd and Redis servers for a single test, if the programs are installed.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::{directory::Directory, installed::is_installed, process::LoggedProcess};

/// An etcd process with one member, killed on drop.
#[derive(Debug)]
pub struct EtcdServer {
    /// The address for clients.
    pub addr: SocketAddr,
    _process: LoggedProcess,
}

impl EtcdServer {
    /// Starts a server. Returns `None` if `tests/etcd/build.sh` has not installed it. The test is skipped then, see
    /// [`is_installed`].
    pub async fn start() -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etcd/bin/etcd");
        is_installed(program.is_file(), "etcd", "tests/etcd/build.sh").then_some(())?;
        let directory = Directory::new("etcd");
        let mut command = Command::new(program);
        for role in ["listen-client", "advertise-client", "listen-peer", "initial-advertise-peer"] {
            command.arg(format!("--{role}-urls=http://{FREE}"));
        }
        command.arg(format!("--initial-cluster=default=http://{FREE}"));
        command.arg("--unsafe-no-fsync").arg("--data-dir").arg(directory.path().join("data"));
        let mut process = LoggedProcess::start(command, directory);
        let line = process.says("serving client traffic insecurely").await;
        let addr =
            line.rsplit_once("\"address\":\"").and_then(|(_, rest)| rest.split_once('"')).expect("it says where");
        Some(Self { addr: addr.0.parse().expect("it is an address"), _process: process })
    }
}

/// A Redis process without files, killed on drop.
#[derive(Debug)]
pub struct RedisServer {
    process: LoggedProcess,
}

impl RedisServer {
    /// Starts a server with these users, such as `default off`. Returns `None` if Redis is not installed. The test is
    /// skipped then, see [`is_installed`].
    pub async fn start(users: &[&str]) -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let program = env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.is_file());
        is_installed(program.is_some(), "redis-server", "apt-get install redis-server");
        let directory = Directory::new("redis");
        let mut command = Command::new(program?);
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(directory.path().join(REDIS_SOCKET));
        for user in users {
            command.arg("--user").args(user.split(' '));
        }
        let mut process = LoggedProcess::start(command, directory);
        process.says("eady to accept connections").await;
        Some(Self { process })
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.process.directory().path().join(REDIS_SOCKET)
    }
}

/// A free port.
const FREE: &str = "127.0.0.1:0";
const REDIS_SOCKET: &str = "redis.sock";
