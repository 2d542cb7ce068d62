//! Keeps K calls in flight on each connection, verifies every answer, and prints one line of JSON.
//!
//! `tarpc_client ADDR --size N --field string|bytes --clients C --concurrent K --seconds S --warmup W`

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use load::{Args, Arguments, Caller, Field, process};
use peers::tarpc::BenchmarkClient;
use tarpc::client::{Config, RpcError};
use tarpc::context;
use tarpc::serde_transport::tcp;
use tarpc::tokio_serde::formats::Bincode;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    if args.streaming {
        return Err("tarpc has no streams".into());
    }
    let report = match args.field {
        Field::String => load::run(&args, StringCaller::connect).await?,
        Field::Bytes => load::run(&args, BytesCaller::connect).await?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

#[derive(Clone)]
struct StringCaller(BenchmarkClient);

impl StringCaller {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(open(addr).await?))
    }
}

impl Caller for StringCaller {
    type Message = String;
    type Error = RpcError;

    async fn call(&mut self, message: &String) -> Result<String, RpcError> {
        self.0.string(context::current(), message.clone()).await
    }
}

#[derive(Clone)]
struct BytesCaller(BenchmarkClient);

impl BytesCaller {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        Ok(Self(open(addr).await?))
    }
}

impl Caller for BytesCaller {
    type Message = Bytes;
    type Error = RpcError;

    async fn call(&mut self, message: &Bytes) -> Result<Bytes, RpcError> {
        self.0.bytes(context::current(), message.clone()).await
    }
}

async fn open(addr: SocketAddr) -> io::Result<BenchmarkClient> {
    let transport = tcp::connect(addr, Bincode::default).await?;
    transport.get_ref().set_nodelay(true)?;
    Ok(BenchmarkClient::new(Config::default(), transport).spawn())
}
