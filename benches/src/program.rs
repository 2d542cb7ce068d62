use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::cores;

/// An executable file and its fixed options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    name: &'static str,
    home: Home,
    options: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Home {
    /// In the directory of the report, built from this package.
    Package(&'static str),
    /// Also in the directory of the report, but built separately.
    Peers,
    /// In this directory of the repository. Its parent contains the build script.
    Go(&'static str),
    /// In `benches/python/bin`, installed by a script.
    Python,
}

impl Program {
    pub(crate) const fn rust(package: &'static str, name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, home: Home::Package(package), options }
    }

    pub(crate) const fn peer(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, home: Home::Peers, options }
    }

    pub(crate) const fn go(directory: &'static str, name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, home: Home::Go(directory), options }
    }

    pub(crate) const fn python(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, home: Home::Python, options }
    }

    /// Fails with the build command if the program does not exist.
    pub(crate) fn check_built(&self) -> io::Result<()> {
        if self.path()?.exists() {
            return Ok(());
        }
        let command = match self.home {
            Home::Package(package) => format!("cargo build --profile {} -p {package}", profile()?),
            Home::Peers => format!("benches/peers/build.sh {}", profile()?),
            Home::Go(directory) => {
                let (project, _) = directory.split_once("/bin").unwrap_or((directory, ""));
                format!("{project}/build.sh (needs Go)")
            }
            Home::Python => "benches/python/build.sh (needs Python)".to_owned(),
        };
        Err(io::Error::other(format!("{} is missing, make it with: {command}", self.name)))
    }

    /// Starts the program on these cores, or on any.
    pub(crate) fn start(&self, words: &[&str], cores: Option<&[usize]>) -> io::Result<Process> {
        let mut command = Command::new(self.path()?);
        command.args(self.options).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = match cores {
            Some(cores) => cores::start_on(cores, || command.spawn())?,
            None => command.spawn()?,
        };
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Process { program: self.name, child, lines })
    }

    fn path(&self) -> io::Result<PathBuf> {
        match self.home {
            Home::Package(_) | Home::Peers => Ok(env::current_exe()?.with_file_name(self.name)),
            Home::Go(directory) => Ok(Path::new(REPOSITORY).join(directory).join(self.name)),
            Home::Python => Ok(Path::new(REPOSITORY).join("benches/python/bin").join(self.name)),
        }
    }
}

/// Returns the cargo profile of this program, from the directory of its executable.
pub fn profile() -> io::Result<String> {
    let program = env::current_exe()?;
    let directory = program.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    Ok(if directory == "debug" { "dev".to_owned() } else { directory.into_owned() })
}

/// A running program. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Process {
    program: &'static str,
    child: Child,
    /// Kept for the lifetime of the process, because printing fails without a reader.
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of output.
    pub(crate) fn line(&self, patience: Duration) -> io::Result<String> {
        self.lines.recv_timeout(patience).map_err(|error| {
            io::Error::other(match error {
                RecvTimeoutError::Timeout => format!("{} has no answer after {patience:?}", self.program),
                RecvTimeoutError::Disconnected => format!("{} ended without an answer", self.program),
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended and been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
