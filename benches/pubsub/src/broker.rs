//! Broker processes.

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::wire::Wire;

/// A broker in the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broker {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    program: &'static str,
    /// The options before the port. They end with the option for the port, if there is one.
    options: &'static [&'static str],
    address: Address,
    /// The command that installs the broker.
    install: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Address {
    /// The last argument is the whole address.
    Whole,
    /// The last argument is the port.
    Port,
}

impl Broker {
    /// All brokers, in the order of the table.
    pub(crate) const ALL: [Self; 6] = [
        Self {
            name: "floor",
            wire: Wire::Floor,
            program: "floor_broker",
            options: &[],
            address: Address::Whole,
            install: "cargo build --release -p bench_pubsub",
        },
        Self::FRISBEE,
        Self { name: "frisbee-per-core", options: &["--engine", "per-core"], ..Self::FRISBEE },
        Self { name: "frisbee-uring", options: &["--engine", "uring"], ..Self::FRISBEE },
        Self {
            name: "nats",
            wire: Wire::Nats,
            program: "nats-server",
            options: &["-a", "127.0.0.1", "-p"],
            address: Address::Port,
            install: "tests/nats/build.sh (needs Go)",
        },
        Self {
            name: "redis",
            wire: Wire::Redis,
            program: "redis-server",
            options: &["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"],
            address: Address::Port,
            install: "apt-get install redis-server",
        },
    ];

    const FRISBEE: Self = Self {
        name: "frisbee",
        wire: Wire::Frisbee,
        program: "frisbee_broker",
        options: &[],
        address: Address::Whole,
        install: "cargo build --release -p bench_pubsub",
    };

    /// Starts the broker on a free port and waits until it listens. Fails with the command that installs a missing
    /// program.
    pub(crate) fn start(&self) -> io::Result<Running> {
        let program = self.find().ok_or_else(|| {
            io::Error::other(format!("{} is missing, install it with: {}", self.program, self.install))
        })?;
        // Another process is unlikely to take the port in between, because the kernel assigns ports in turn.
        let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let last = match self.address {
            Address::Whole => addr.to_string(),
            Address::Port => addr.port().to_string(),
        };
        let mut command = Command::new(program);
        command.args(self.options).arg(last).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running { child: command.spawn()?, addr };
        let until = Instant::now() + START_PATIENCE;
        while TcpStream::connect(addr).is_err() {
            if Instant::now() > until {
                return Err(io::Error::other(format!("{} does not listen", self.name)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// Searches next to this program, in the directory of the tests' nats-server, and in `PATH`.
    fn find(&self) -> Option<PathBuf> {
        let beside = env::current_exe().ok()?.with_file_name(self.program);
        let nats = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/nats/bin")).join(self.program);
        let paths = env::var_os("PATH").unwrap_or_default();
        let installed = env::split_paths(&paths).map(|directory| directory.join(self.program));
        [beside, nats].into_iter().chain(installed).find(|path| path.is_file())
    }
}

/// A running broker. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended and been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const START_PATIENCE: Duration = Duration::from_secs(5);
