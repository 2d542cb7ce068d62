//! Serves until Ctrl-C or SIGTERM. Usage: `server [ADDRESS]`

use std::{env, error::Error, io, time::Duration};

use tokio::signal::ctrl_c;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:7300".into());
    let server = CRATE::serve(&address).await?;
    println!("listening on {}", server.local_addr());
    stop_signal().await?;
    // Calls in flight have ten seconds to finish.
    server.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// Waits for Ctrl-C, or for SIGTERM of a supervisor such as systemd or Kubernetes.
async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = ctrl_c() => interrupted,
            _ = terminated.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    ctrl_c().await
}
