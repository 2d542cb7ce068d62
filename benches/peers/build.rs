//! Makes tonic's code from the proto file, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/benchmark.proto"], ["proto"])?;
    Ok(tonic_prost_build::configure().bytes(".").compile_fds(files)?)
}
