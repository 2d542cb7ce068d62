//! Generates the code of tonic and ours from the same proto files.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTOS}");
    let mut compiler = protox::Compiler::new([PROTOS])?;
    compiler.open_files(FILES)?;
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets it")?);
    let (theirs, ours) = (out_dir.join("theirs"), out_dir.join("ours"));
    fs::create_dir_all(&theirs)?;
    tonic_prost_build::configure().out_dir(theirs).compile_fds(compiler.file_descriptor_set())?;
    frpc_build::configure().out_dir(ours).compile_protos(&FILES, &[PROTOS])?;
    Ok(())
}

const PROTOS: &str = "../../examples/proto";
const FILES: [&str; 2] = ["helloworld.proto", "routeguide.proto"];
