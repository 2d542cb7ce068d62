//! Keeps requests in flight on many connections, verifies every answer, and prints a line of JSON.
//!
//! Usage:
//!
//! `load_client ADDR --size N --field string|bytes --clients C --concurrent K --seconds S --warmup W
//! [--layer frisbee|frpc] [--engine tokio|per-core|uring|uring-portable|tokio-uring|auto] [--joined]
//! [--wire tcp|grpc|http|…] [--streaming] [--beside LEN]`
//!
//! - `--joined` makes all calls of a connection in one task, instead of K tasks.
//! - `--streaming` reads K streams on each connection instead. Each message counts as a call.
//! - `--beside` also reads a stream of messages of this length on each connection, and prints the total number of its
//!   messages.
//!
//! The layer frpc supports any wire with a URL scheme.

mod packets;
mod rpc;

use std::error::Error;

use frisbee::Engine;
use load::{Args, Arguments, Field, process};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    process::raise_open_files_limit()?;
    let mut arguments = Arguments::from_env();
    let layer: String = arguments.opt_value_from_str("--layer")?.unwrap_or_else(|| "frisbee".to_owned());
    let engine = arguments.opt_value_from_str("--engine")?.unwrap_or(Engine::Tokio);
    let wire: String = arguments.opt_value_from_str("--wire")?.unwrap_or_else(|| "tcp".to_owned());
    let streaming = arguments.contains("--streaming");
    let beside: Option<usize> = arguments.opt_value_from_str("--beside")?;
    let args = Args::parse(arguments)?;
    frpc_http::register();
    let way = Way { engine, wire };
    let report = match (layer.as_str(), args.field) {
        (layer, field) if beside.is_some() && (layer, field, streaming) != ("frpc", Field::Bytes, false) => {
            return Err("a stream is read beside calls of --layer frpc --field bytes".into());
        }
        ("frisbee", _) if streaming => return Err("streams are of the frpc layer".into()),
        ("frisbee", _) => packets::run(&args, way.engine).await?,
        ("frpc", Field::String) if streaming => {
            load::run(&args, async |addr| rpc::StreamReader::connect(addr, &way).await).await?
        }
        ("frpc", Field::String) => load::run(&args, async |addr| rpc::StringCaller::connect(addr, &way).await).await?,
        ("frpc", Field::Bytes) if streaming => return Err("streams carry strings".into()),
        ("frpc", Field::Bytes) => {
            let report = load::run(&args, async |addr| rpc::BytesCaller::connect(addr, &way, beside).await).await?;
            if beside.is_some() {
                eprintln!("messages of the streams beside the calls: {}", rpc::read_beside());
            }
            report
        }
        _ => return Err(format!("no layer {layer:?}: frisbee or frpc").into()),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The connection type.
struct Way {
    engine: Engine,
    /// The URL scheme of the wire.
    wire: String,
}
