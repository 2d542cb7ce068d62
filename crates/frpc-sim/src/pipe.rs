//! A connection with faults.

use std::{
    io,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex, split},
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::NetworkFaults,
    link::{LinkCut, SimStream},
    lock::lock,
};

/// The bytes from clients that reached no server.
pub(crate) type LostRequests = Arc<Mutex<Vec<(Instant, Vec<u8>)>>>;

/// Returns both ends of a connection. It is cut when the token is cancelled.
pub(crate) fn connection(
    faults: &watch::Receiver<NetworkFaults>,
    cut: CancellationToken,
    lost: LostRequests,
    injected: Arc<AtomicU64>,
) -> (SimStream, SimStream) {
    let (client, from_client) = duplex(BUFFER_LEN);
    let (server, from_server) = duplex(BUFFER_LEN);
    let ((mut client_read, mut client_write), (server_read, server_write)) = (split(from_client), split(from_server));
    let (requests, answers) = (faults.clone(), faults.clone());
    tokio::spawn(async move {
        let carried = async {
            let requests = carry(&mut client_read, server_write, requests, Some(&lost));
            tokio::join!(requests, carry(server_read, &mut client_write, answers, None))
        };
        // The end of the future drops the pipe to the server.
        tokio::select! {
            // A seed decides everything, so the order is fixed. A cut network carries nothing more.
            biased;
            () = cut.cancelled() => {}
            _ = carried => return,
        }
        let _ = client_write.shutdown().await;
        let mut buffer = vec![0; BUFFER_LEN];
        while let Ok(len @ 1..) = client_read.read(&mut buffer).await {
            lock(&lost).push((Instant::now(), buffer[..len].to_vec()));
        }
    });
    let link = LinkCut::new(&faults.borrow().links, injected);
    (SimStream::new(client, faults.clone(), link.clone()), SimStream::new(server, faults.clone(), link))
}

/// Carries bytes in one direction until its end.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut faults: watch::Receiver<NetworkFaults>,
    lost: Option<&LostRequests>,
) -> io::Result<()> {
    let (mut buffer, mut is_lost) = (vec![0; BUFFER_LEN], false);
    loop {
        let read = from.read(&mut buffer).await?;
        if faults.wait_for(|faults| !faults.is_partitioned).await.is_err() {
            return Ok(());
        }
        let NetworkFaults { latency, is_black_hole, .. } = *faults.borrow();
        if !latency.is_zero() {
            sleep(latency).await;
        }
        // No network delivers bytes after lost ones, so the connection stays in the black hole.
        is_lost |= is_black_hole;
        match read {
            // A black hole hides the end too.
            _ if is_lost => {
                if let Some(lost) = lost.filter(|_| read > 0) {
                    lock(lost).push((Instant::now(), buffer[..read].to_vec()));
                }
            }
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
