use std::env;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use load::{Args, Report, parse_addr};

/// A server and the client that loads it.
#[derive(Debug)]
pub struct Contender {
    /// What the report calls it.
    pub name: &'static str,
    package: &'static str,
    server: &'static str,
    client: &'static str,
    options: &'static [&'static str],
}

impl Contender {
    /// Nothing between the socket and the reader.
    pub const FLOOR: Self =
        Self { name: "floor", package: "benches", server: "floor_server", client: "floor_client", options: &[] };

    /// The library, without RPC on top.
    pub const FRISBEE: Self = Self {
        name: "frisbee",
        package: "examples",
        server: "load_server",
        client: "load_client",
        options: &["--layer", "frisbee"],
    };

    /// Fails with the command that builds what is missing.
    pub fn check_built(&self) -> io::Result<()> {
        for program in [self.server, self.client] {
            if !sibling(program)?.exists() {
                let command = format!("cargo build --release -p {}", self.package);
                return Err(io::Error::other(format!("{program} is missing, make it with: {command}")));
            }
        }
        Ok(())
    }

    /// Starts the server on a free port.
    pub fn start_server(&self) -> io::Result<Server> {
        let process = Process::start(self.server, &["127.0.0.1:0"], self.options)?;
        let line = process.line(SERVER_PATIENCE)?;
        let addr = line.strip_prefix("listening on ").and_then(|addr| parse_addr(addr).ok());
        let addr = addr.ok_or_else(|| io::Error::other(format!("{} does not listen: {line}", self.server)))?;
        Ok(Server { process, addr })
    }

    /// Runs the client to its end.
    pub fn run_client(&self, args: &Args) -> io::Result<Report> {
        let words = args.to_words();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let client = Process::start(self.client, &words, self.options)?;
        let line = client.line(args.warmup + args.seconds + CLIENT_PATIENCE)?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }
}

#[derive(Debug)]
struct Process {
    program: &'static str,
    child: Child,
    /// Kept as long as the process, which would fail to print without a reader.
    lines: Receiver<String>,
}

impl Process {
    fn start(program: &'static str, words: &[&str], options: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(sibling(program)?);
        let mut child = command.args(words).args(options).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { program, child, lines })
    }

    fn line(&self, patience: Duration) -> io::Result<String> {
        let line = self.lines.recv_timeout(patience);
        line.map_err(|error| io::Error::other(format!("no answer from {}: {error}", self.program)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sibling(program: &str) -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(program))
}

const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Enough to connect, and to wait for stuck calls.
const CLIENT_PATIENCE: Duration = Duration::from_secs(15);
