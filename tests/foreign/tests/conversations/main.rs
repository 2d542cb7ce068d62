//! Clients of others call a server of ours, all wires of which are on one port, and clients of ours call servers of others.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod admin;
mod autobahn;
mod echo;
mod gateway;
mod grpc_go;
mod grpc_go_fleet;
mod grpc_servers;
mod grpcio;
mod json_rpc;
mod node;
mod opentelemetry;
mod prometheus;
mod rest;
mod tools;
mod twirp;
mod typescript;
mod wasm;
mod xds;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use foreign::protos::grpc::testing::FILE_DESCRIPTOR_SET;
use frpc::{Address, Server};
use support::{Directory, in_real_time_within};
use tokio::process::Command;

/// Serves on a port, and runs the test with it.
fn with_server<F: Future<Output = ()>>(test: impl FnOnce(u16) -> F) {
    in_real_time_within(LIMIT, async {
        let server = foreign::serve().await.unwrap();
        test(port(&server)).await;
    });
}

fn port(server: &Server) -> u16 {
    let Address::Tcp(addr) = server.local_addr() else { panic!("it has no port") };
    addr.port()
}

/// Writes the schema of the gRPC tests for scripts without generated code, and returns the path of the file.
fn write_descriptors(directory: &Directory) -> PathBuf {
    let path = directory.path().join("descriptors");
    fs::write(&path, FILE_DESCRIPTOR_SET).unwrap();
    path
}

/// Runs a program, and returns what it prints: its output if it ends well, what it says of its failure if not.
async fn run(program: &Path, args: &[&str]) -> Result<String, String> {
    output(Command::new(program).args(args)).await
}

/// Runs a command, as [`run`] does.
async fn output(command: &mut Command) -> Result<String, String> {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stdout) + &text(&output.stderr)) }
}

/// They are slow to start where there is more to do.
const LIMIT: Duration = Duration::from_secs(120);
