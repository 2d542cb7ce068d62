//! Answers every call with its message, as `floor_server` does with packets.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use load::{Arguments, ServerArgs, process};
use peers::tarpc::Benchmark;
use tarpc::context::Context;
use tarpc::serde_transport::tcp;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let mut incoming = tcp::listen_on(peers::listen(addr)?, Bincode::default).await?;
    while let Some(transport) = incoming.next().await {
        let transport = transport?;
        transport.get_ref().set_nodelay(true)?;
        let requests = BaseChannel::with_defaults(transport).execute(Echo { sleep }.serve());
        tokio::spawn(requests.for_each(|response| async {
            tokio::spawn(response);
        }));
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Echo {
    sleep: Duration,
}

impl Echo {
    async fn work(self) {
        if !self.sleep.is_zero() {
            tokio::time::sleep(self.sleep).await;
        }
    }
}

impl Benchmark for Echo {
    async fn string(self, _: Context, message: String) -> String {
        self.work().await;
        message
    }

    async fn bytes(self, _: Context, message: Bytes) -> Bytes {
        self.work().await;
        message
    }
}
