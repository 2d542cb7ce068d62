//! Echoes every packet or call, as the peer of `load_client`.
//!
//! Usage:
//!
//! `load_server ADDR [--layer frisbee|frpc] [--engine tokio|per-core|uring|uring-portable|tokio-uring|auto] [--mode inline|ordered|spawn|limit:N]
//! [--sleep-us N] [--http]`
//!
//! With `--http`, the layer frpc is also served over gRPC, gRPC-Web, Connect and Twirp on the same port, together with
//! a function `sum` over JSON-RPC on TCP, HTTP and WebSocket, and a `/file` of 39 bytes, the length of an echo with 32.

mod packets;
mod rpc;

use std::{error::Error, future, time::Duration};

use frisbee::{Address, Dispatch, Engine};
use load::{Arguments, process};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    process::raise_open_files_limit()?;
    let mut arguments = Arguments::from_env();
    let layer: String = arguments.opt_value_from_str("--layer")?.unwrap_or_else(|| "frisbee".to_owned());
    let options = Options {
        engine: arguments.opt_value_from_str("--engine")?.unwrap_or_default(),
        dispatch: arguments.opt_value_from_fn("--mode", parse_mode)?.unwrap_or_default(),
        http: arguments.contains("--http"),
        sleep: Duration::from_micros(arguments.opt_value_from_str("--sleep-us")?.unwrap_or(0)),
        address: arguments.free_from_str()?,
    };
    if let Some(unknown) = arguments.finish().first() {
        return Err(format!("unexpected {unknown:?}").into());
    }
    match layer.as_str() {
        "frisbee" => serve(packets::bind(options).await?.local_addr()).await,
        "frpc" => serve(rpc::bind(options).await?.local_addr()).await,
        _ => Err(format!("no layer {layer:?}: frisbee or frpc").into()),
    }
}

/// Options of the server.
struct Options {
    engine: Engine,
    dispatch: Dispatch,
    /// Serves HTTP wires in addition to frisbee.
    http: bool,
    /// The duration of each handler. Zero does not sleep at all.
    sleep: Duration,
    address: String,
}

/// Simulates the work of a handler.
async fn work(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// Prints the address and serves until the program is killed.
async fn serve(address: &Address) -> Result<(), Box<dyn Error>> {
    println!("listening on {}", address.to_string().trim_start_matches("tcp://"));
    future::pending().await
}

fn parse_mode(text: &str) -> Result<Dispatch, String> {
    match text {
        "inline" => Ok(Dispatch::InPlace),
        "ordered" => Ok(Dispatch::Ordered),
        "spawn" => Ok(Dispatch::Spawned),
        _ => text
            .strip_prefix("limit:")
            .and_then(|limit| limit.parse().ok())
            .map(Dispatch::Limited)
            .ok_or_else(|| format!("no mode {text:?}: inline, ordered, spawn or limit:N")),
    }
}
