//! Answers JSON-RPC's `sum` over HTTP and WebSocket with jsonrpsee.

use std::error::Error;
use std::future;

use jsonrpsee_server::types::ErrorObjectOwned;
use jsonrpsee_server::{RpcModule, Server, ServerConfig};
use load::{Arguments, ServerArgs, process};
use peers::json_rpc::Sum;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep: _ } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?.into_std()?;
    let mut module = RpcModule::new(());
    module.register_method("sum", |params, (), _| {
        let Sum { a, b } = params.parse()?;
        Ok::<_, ErrorObjectOwned>(a + b)
    })?;
    let config = ServerConfig::builder().max_connections(CONNECTIONS_MAX).set_tcp_no_delay(true).build();
    let _serving = Server::builder().set_config(config).build_from_tcp(listener)?.start(module);
    future::pending().await
}

/// The default of 100 is too low for the load.
const CONNECTIONS_MAX: u32 = 16 << 10;
