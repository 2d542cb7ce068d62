//! NATS servers for a single test, alone or in a cluster.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use crate::{directory::Directory, installed::is_installed};

/// The NATS server program, installed and ready to run.
#[derive(Clone, Copy, Debug)]
pub struct NatsProgram(());

/// A server process, killed on drop.
#[derive(Debug)]
pub struct NatsServer {
    program: NatsProgram,
    /// Address for clients. It stays the same after a restart.
    pub addr: SocketAddr,
    settings: String,
    name: String,
    // Dropped before the directory: the process must end before its files are removed.
    process: Running,
    directory: Directory,
    log: mpsc::UnboundedReceiver<String>,
}

/// A process, killed on drop.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.start_kill();
        while let Ok(None) = self.0.try_wait() {
            std::thread::yield_now();
        }
    }
}

impl NatsProgram {
    /// Returns the program, or `None` if `tests/nats/build.sh` has not installed it. The test is skipped then, see
    /// [`is_installed`].
    pub fn find() -> Option<Self> {
        let found = Path::new(NATS).join("bin/nats-server").is_file();
        is_installed(found, "nats-server", "tests/nats/build.sh").then_some(Self(()))
    }

    /// Starts a server with JetStream. `settings` is added to its configuration file.
    pub async fn start(self, name: &str, settings: &str) -> NatsServer {
        self.run(name, settings, Directory::new("nats"), None).await
    }

    /// Starts the servers of a cluster and waits until they have elected a leader.
    pub async fn start_cluster(self, len: usize) -> Vec<NatsServer> {
        // Every server has to know all addresses in advance. The kernel does not reuse a port immediately after its
        // release.
        let listeners: Vec<_> = (0..len).map(|_| TcpListener::bind("127.0.0.1:0").expect("there is a port")).collect();
        let addrs: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("it listens")).collect();
        drop(listeners);
        let routes: Vec<_> = addrs.iter().map(|addr| format!("\"nats://{addr}\"")).collect();
        let mut servers = Vec::new();
        for (number, addr) in addrs.iter().enumerate() {
            let settings = format!("cluster {{ name: test, listen: \"{addr}\", routes: [{}] }}", routes.join(", "));
            servers.push(self.start(&format!("server{number}"), &settings).await);
        }
        for server in &mut servers {
            server.has_leader().await;
        }
        servers
    }

    async fn run(self, name: &str, settings: &str, directory: Directory, before: Option<SocketAddr>) -> NatsServer {
        let port = before.map_or("-1".to_owned(), |addr| addr.port().to_string());
        let file = directory.path().join("settings");
        let text = format!(
            "server_name: {name}, listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{settings}\n",
            directory.path().join("store").display(),
        );
        fs::write(&file, text).expect("the directory is ours");
        let mut command = Command::new(Path::new(NATS).join("bin/nats-server"));
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().expect("the server can run");
        let mut lines = BufReader::new(process.stderr.take().expect("its log is piped")).lines();
        let (sender, log) = mpsc::unbounded_channel();
        // Read the whole log. A full pipe would block the server.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = sender.send(line);
            }
        });
        let nobody = SocketAddr::from(([0; 4], 0));
        let (settings, name) = (settings.to_owned(), name.to_owned());
        let mut server =
            NatsServer { program: self, addr: nobody, settings, name, process: Running(process), directory, log };
        server.addr = server.says(&["Listening for client connections on "]).await.parse().expect("it is an address");
        if !server.settings.contains("cluster {") {
            server.says(&["Server is ready"]).await;
        }
        server
    }
}

impl NatsServer {
    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addr)
    }

    /// Returns the id of the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.0.id()
    }

    /// Waits until the server knows the leader of its cluster.
    pub async fn has_leader(&mut self) {
        self.says(&["new JetStream cluster metadata leader", "JetStream cluster new metadata leader"]).await;
    }

    /// Waits for a log line with one of these texts and returns the rest of the line. Discards the lines before it.
    async fn says(&mut self, texts: &[&str]) -> String {
        let mut before = Vec::new();
        while let Some(line) = self.log.recv().await {
            if let Some((_, rest)) = texts.iter().find_map(|text| line.split_once(text)) {
                return rest.to_owned();
            }
            before.push(line);
        }
        panic!("the server has ended before it said {texts:?}:\n{}", before.join("\n"));
    }

    /// Stops the process with a signal. Its connections stay open.
    #[cfg(unix)]
    pub fn stop(&self) {
        use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
        let pid = self.process.0.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(pid, Signal::STOP).expect("it is ours");
        // The signal only requests the stop. Wait until all threads have stopped.
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("it is a child of ours");
    }

    /// Kills the process, as a power failure would.
    pub async fn kill(&mut self) {
        self.process.0.kill().await.expect("it is ours");
    }

    /// Restarts the server after a [`kill`](Self::kill), with the same addresses and files.
    pub async fn restart(self) -> Self {
        self.program.run(&self.name, &self.settings, self.directory, Some(self.addr)).await
    }
}

/// Returns the program `micro-peer`, or `None` if `tests/nats/build.sh` has not built it.
pub fn foreign_nats_peer() -> Option<PathBuf> {
    let program = Path::new(NATS).join("bin/micro-peer");
    is_installed(program.is_file(), "micro-peer", "tests/nats/build.sh").then_some(program)
}

const NATS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nats");
