//! Runs the program.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

/// Creates a command to run the program with these arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frpc"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The result of a finished run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Returns the printed lines, each parsed as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{self:?}");
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Ran {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }
}

/// Runs the program to its end.
pub(crate) fn frpc(arguments: &[&str]) -> Ran {
    command(arguments).output().unwrap().into()
}

/// Runs the program to its end with this text as standard input.
pub(crate) fn frpc_with_input(arguments: &[&str], input: &str) -> Ran {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// An echo server, killed when this value is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with("tcp://127.0.0.1:0", &[])
    }

    pub(crate) fn start_with(address: &str, options: &[&str]) -> Self {
        let mut arguments = vec!["serve", "--echo", address, "--json"];
        arguments.extend(options);
        let mut child = command(&arguments).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { child, address: said["listening"].as_str().unwrap().to_owned() }
    }

    /// Returns the address for another wire at the same port.
    pub(crate) fn over(&self, scheme: &str) -> String {
        self.address.replacen("tcp", scheme, 1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for one test, removed when this value is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("frpc-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns the path of a file in the directory. The file may not exist.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A failure has no effect: the directory is not needed any more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The proto file of the echo service.
#[cfg(feature = "proto")]
pub(crate) const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/echo.proto");
