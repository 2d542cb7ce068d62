//! A live chart and a chat in browsers.
//!
//! Usage: `browser [ADDRESS]`, until Ctrl-C. `examples/browser/start` compiles the page and runs this server.

use std::{env, error::Error, time::Duration};

use frpc::Address;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:8080".into());
    let server = examples::browser::serve(&address).await?;
    println!("listening on {}", server.local_addr());
    if let Address::Tcp(at) = server.local_addr() {
        println!("open http://{at}/ in two windows");
    }
    tokio::signal::ctrl_c().await?;
    // Pages are notified and reconnect to the next server. Their streams never end, so do not wait long for them.
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
