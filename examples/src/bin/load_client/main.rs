//! Keeps requests in flight on many connections, verifies every answer, and prints one line of JSON.
//!
//! `load_client ADDR --size N --field string|bytes --clients C --concurrent K --seconds S --warmup W
//! [--layer frisbee|frpc] [--streaming]`
//!
//! With `--streaming` it reads K streams on each connection instead, and each message counts as a call.

mod packets;
mod rpc;

use std::error::Error;

use load::{Args, Arguments, Field, process};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    process::raise_open_files_limit()?;
    let mut arguments = Arguments::from_env();
    let layer: String = arguments.opt_value_from_str("--layer")?.unwrap_or_else(|| "frisbee".to_owned());
    let streaming = arguments.contains("--streaming");
    let args = Args::parse(arguments)?;
    let report = match (layer.as_str(), args.field) {
        ("frisbee", _) if streaming => return Err("streams are of the frpc layer".into()),
        ("frisbee", _) => packets::run(&args).await?,
        ("frpc", Field::String) if streaming => load::run::<rpc::StreamReader>(&args).await?,
        ("frpc", Field::String) => load::run::<rpc::StringCaller>(&args).await?,
        ("frpc", Field::Bytes) if streaming => return Err("streams carry strings".into()),
        ("frpc", Field::Bytes) => load::run::<rpc::BytesCaller>(&args).await?,
        _ => return Err(format!("no layer {layer:?}: frisbee or frpc").into()),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
