//! A live chart and a chat in browsers: `browser [ADDRESS]`, until Ctrl-C. `examples/browser/start` compiles the page and runs it.

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
    // Pages hear of it, and connect again when the server is back. Their streams have no end to wait for.
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
