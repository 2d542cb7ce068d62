//! An unbound name server for a single test, if the package is installed.

use std::{
    env, fs,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{directory::Directory, installed::is_installed};

/// A name server process on a free port of this machine, stopped on drop. Its zone is `test.`.
#[derive(Debug)]
pub struct Unbound {
    directory: Directory,
    place: SocketAddr,
    control: PathBuf,
    _process: Child,
}

impl Unbound {
    /// Starts a name server with these records, such as `orders.test. 5 IN A 10.0.0.1`. Returns `None` if unbound is not
    /// installed. The test is skipped then, see [`is_installed`].
    pub async fn start(records: &[String]) -> Option<Self> {
        let programs = programs();
        is_installed(programs.is_some(), "unbound", "apt-get install unbound");
        let programs = programs?;
        loop {
            if let Some(server) = Self::try_start(&programs, records).await {
                return Some(server);
            }
        }
    }

    /// Returns `None` if another process has taken the port.
    async fn try_start(programs: &Path, records: &[String]) -> Option<Self> {
        let directory = Directory::new("unbound");
        let folder = directory.path().display();
        let place = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
        let config = directory.path().join("unbound.conf");
        let records: String = records.iter().map(|record| format!("local-data: '{record}'\n")).collect();
        let text = format!(
            "server:\nusername: ''\nchroot: ''\ndirectory: '{folder}'\npidfile: ''\nuse-syslog: no\nverbosity: 1\n\
             interface: {}@{}\nmodule-config: iterator\nlocal-zone: 'test.' static\n{records}\n\
             remote-control:\ncontrol-enable: yes\ncontrol-use-cert: no\ncontrol-interface: '{folder}/control'\n",
            place.ip(),
            place.port()
        );
        fs::write(&config, text).expect("the folder is new");
        let mut serve = Command::new(programs.join("unbound"));
        serve.arg("-d").arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = serve.kill_on_drop(true).spawn().expect("unbound can run");
        let mut log = BufReader::new(process.stderr.take().expect("its log is piped")).lines();
        let mut read = String::new();
        while let Some(line) = log.next_line().await.expect("the log is text") {
            if line.contains("start of service") {
                // Read the whole log. A full pipe would block the server.
                tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
                let control = programs.join("unbound-control");
                return Some(Self { directory, place, control, _process: process });
            }
            read += &(line + "\n");
        }
        assert!(read.contains("already in use"), "unbound ended:\n{read}");
        None
    }

    /// Returns the address of the name server.
    pub fn place(&self) -> SocketAddr {
        self.place
    }

    /// Replaces all records of a name.
    pub async fn replace(&self, name: &str, records: &[String]) {
        self.control(&["local_data_remove", name]).await;
        for record in records {
            self.control(&["local_data", record]).await;
        }
    }

    async fn control(&self, command: &[&str]) {
        let mut control = Command::new(&self.control);
        control.arg("-c").arg(self.directory.path().join("unbound.conf")).args(command);
        let output = control.output().await.expect("unbound-control can run");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Returns the folder of the programs. Debian's is missing in the `PATH` of plain users.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).find(|folder| folder.join("unbound-control").is_file())
}
