//! Makes tonic's code from the proto file of our own load tools, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTOS}");
    let files = protox::compile(["benchmark.proto"], [PROTOS])?;
    Ok(tonic_prost_build::configure().bytes(".").compile_fds(files)?)
}

const PROTOS: &str = "../../examples/proto";
