//! Compiles one schema for both contenders. They share the messages, which frisbee-rpc-build makes.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    frpc_build::compile_protos(SCHEMA)?;

    let out_dir = Path::new(&env::var("OUT_DIR")?).join("tonic");
    fs::create_dir_all(&out_dir)?;
    let files = protox::compile([SCHEMA], ["proto"])?;
    tonic_prost_build::configure().extern_path(".echo", "crate::schema").out_dir(out_dir).compile_fds(files)?;
    Ok(())
}

const SCHEMA: &str = "proto/echo.proto";
