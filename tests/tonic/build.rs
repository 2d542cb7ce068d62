//! Generates the code of tonic and ours from the same proto files.

use std::{env, error::Error, fs, path::PathBuf};

/// Describes a service without a proto file, by the same lines for both.
macro_rules! described {
    ($library:ident, $codec:literal) => {{
        use $library::manual::{Method, Service};

        let method = |name, route_name| {
            Method::builder()
                .name(name)
                .route_name(route_name)
                .input_type("crate::json::Question")
                .output_type("crate::json::Answer")
                .codec_path(concat!("crate::json::", $codec))
        };
        Service::builder()
            .name("Oracle")
            .package("json.oracle")
            .method(method("ask", "Ask").build())
            .method(method("ask_often", "AskOften").client_streaming().server_streaming().build())
            .build()
    }};
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTOS}");
    let mut compiler = protox::Compiler::new([PROTOS])?;
    compiler.open_files(FILES)?;
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets it")?);
    let (theirs, ours) = (out_dir.join("theirs"), out_dir.join("ours"));
    fs::create_dir_all(&theirs)?;
    tonic_prost_build::configure().out_dir(&theirs).compile_fds(compiler.file_descriptor_set())?;
    frpc_build::configure().out_dir(&ours).compile_protos(&FILES, &[PROTOS])?;
    tonic_prost_build::manual::Builder::new().out_dir(theirs).compile(&[described!(tonic_prost_build, "TonicCodec")]);
    frpc_build::manual::Builder::new().out_dir(ours).compile(&[described!(frpc_build, "JsonCodec")])?;
    Ok(())
}

const PROTOS: &str = "../../examples/proto";
const FILES: [&str; 2] = ["helloworld.proto", "routeguide.proto"];
