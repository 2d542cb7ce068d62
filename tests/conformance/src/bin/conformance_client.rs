//! The client under test: `connectconformance --mode client -- conformance_client`.

use std::{io, sync::Arc};

use conformance::{client::Runner, protos::ClientCompatRequest, read, write};
use tokio::{
    io::{BufReader, stdin, stdout},
    sync::{Mutex, Semaphore},
    task::JoinSet,
};

/// Maximum number of concurrent calls: enough to keep the suite busy, and few enough to meet its time limits.
const CALLS_MAX: usize = 16;

#[tokio::main]
async fn main() -> io::Result<()> {
    let (runner, output) = (Arc::new(Runner::default()), Arc::new(Mutex::new(stdout())));
    let places = Arc::new(Semaphore::new(CALLS_MAX));
    let mut input = BufReader::new(stdin());
    let mut calls = JoinSet::new();
    while let Some(request) = read::<ClientCompatRequest>(&mut input).await? {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (runner, output) = (runner.clone(), output.clone());
        calls.spawn(async move {
            let response = runner.run(request).await;
            drop(place);
            write(&mut *output.lock().await, &response).await
        });
    }
    while let Some(written) = calls.join_next().await {
        written??;
    }
    Ok(())
}
