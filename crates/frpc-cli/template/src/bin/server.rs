//! Serves until Ctrl-C. Usage: `server [ADDRESS]`

use std::{env, error::Error, time::Duration};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:7300".into());
    let server = CRATE::serve(&address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    // Calls in flight have ten seconds to finish.
    server.shutdown(Duration::from_secs(10)).await;
    Ok(())
}
