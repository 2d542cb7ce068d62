//! A connection with faults.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::watch,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::faults::Faults;

/// Returns both ends of a connection. It is cut when the token is cancelled.
pub(crate) fn connection(faults: &watch::Receiver<Faults>, cut: CancellationToken) -> (DuplexStream, DuplexStream) {
    let (client, from_client) = duplex(BUFFER_LEN);
    let (server, from_server) = duplex(BUFFER_LEN);
    let ((client_read, client_write), (server_read, server_write)) = (split(from_client), split(from_server));
    let (requests, answers) = (faults.clone(), faults.clone());
    tokio::spawn(async move {
        let carried = async {
            tokio::join!(carry(client_read, server_write, requests), carry(server_read, client_write, answers))
        };
        // The end of the task drops both pipes.
        tokio::select! {
            () = cut.cancelled() => {}
            _ = carried => {}
        }
    });
    (client, server)
}

/// Carries bytes in one direction until its end.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let read = from.read(&mut buffer).await?;
        if faults.wait_for(|faults| !faults.is_partitioned).await.is_err() {
            return Ok(());
        }
        let Faults { latency, is_black_hole, .. } = *faults.borrow();
        if !latency.is_zero() {
            sleep(latency).await;
        }
        match read {
            // A black hole hides the end too.
            _ if is_black_hole => {}
            0 => return to.shutdown().await,
            _ => to.write_all(&buffer[..read]).await?,
        }
        if read == 0 {
            std::future::pending::<()>().await;
        }
    }
}

/// The length of the buffers of a connection in each direction.
const BUFFER_LEN: usize = 16 << 10;
