//! A PostgreSQL server for a single test, if the package is installed.

use std::{
    env, fs,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{self, Stdio},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{directory::Directory, installed::is_installed};

/// A server process, stopped on drop. It accepts any user name on its socket without a password.
#[derive(Debug)]
pub struct Postgres {
    directory: Directory,
    process: Child,
}

impl Postgres {
    /// Starts a server with the superuser `postgres`. Returns `None` if PostgreSQL is not installed. The test is
    /// skipped then, see [`is_installed`].
    pub async fn start() -> Option<Self> {
        let programs = programs();
        is_installed(programs.is_some(), "PostgreSQL", "apt-get install postgresql");
        let programs = programs?;
        let directory = Directory::new("postgres");
        if geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let data = directory.path().join("data");
        let mut init = command(&programs.join("initdb"), &directory);
        init.args(["--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "-D"]);
        let output = init.arg(&data).output().expect("initdb can run");
        assert!(output.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
        let mut serve = command(&programs.join("postgres"), &directory);
        serve.args(["-F", "-c", "listen_addresses=", "-k"]).arg(directory.path()).arg("-D").arg(&data);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Command::from(serve).kill_on_drop(true).spawn().expect("postgres can run");
        let mut log = BufReader::new(process.stderr.take().expect("its log is piped")).lines();
        let mut read = String::new();
        loop {
            let line = log.next_line().await.expect("the log is text");
            let Some(line) = line else { panic!("postgres ended:\n{read}") };
            if line.contains("ready to accept connections") {
                break;
            }
            read += &(line + "\n");
        }
        // Read the whole log. A full pipe would block the server.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Some(Self { directory, process })
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(".s.PGSQL.5432")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Request an immediate shutdown. A killed server would leave child processes and shared memory.
        if let Some(pid) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, Signal::QUIT);
            while let Ok(None) = self.process.try_wait() {
                std::thread::yield_now();
            }
        }
    }
}

/// Returns a command for a process without root privileges, because PostgreSQL refuses to run as root.
fn command(program: &Path, directory: &Directory) -> process::Command {
    let mut command = process::Command::new(program);
    command.current_dir(directory.path());
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Returns the folder of the server programs. Debian does not add it to `PATH`.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    debian.chain(env::split_paths(&path)).find(|folder| folder.join("initdb").is_file())
}

/// User id of the unprivileged user `nobody` on Linux.
const NOBODY: u32 = 65_534;
