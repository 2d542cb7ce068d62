//! Makes the code of tonic and of connect-rust from the proto file of our own load tools, without `protoc`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use buffa_codegen::{BytesRepr, CodeGenConfig};
use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTOS}");
    let mut compiler = Compiler::new([PROTOS])?;
    compiler.open_file(PROTO)?;
    let has_services = env::var_os("CARGO_FEATURE_TONIC").is_some();
    let messages = tonic_prost_build::configure().bytes(".").build_client(has_services).build_server(has_services);
    messages.compile_fds(compiler.file_descriptor_set())?;

    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("benchmark.bin");
    fs::write(&descriptors, compiler.encode_file_descriptor_set())?;
    let mut messages = CodeGenConfig::default();
    messages.bytes_fields.push((".".to_owned(), BytesRepr::Bytes));
    messages.idiomatic_field_names = true;
    let config = connectrpc_build::Config::new().buffa_config(messages).generate_json(false);
    Ok(config
        .files(&[PROTO])
        .descriptor_set(descriptors)
        .include_file("_connectrpc.rs")
        .emit_rerun_directives(false)
        .compile()?)
}

const PROTOS: &str = "../../examples/proto";
const PROTO: &str = "benchmark.proto";
