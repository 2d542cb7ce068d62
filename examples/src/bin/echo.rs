//! A server that echoes every packet, and a client that waits for the echo.
//!
//! `echo` runs both. `echo server ADDRESS` and `echo client ADDRESS TEXT` run one of them.

use std::{env, error::Error, future, time::Duration};

use frisbee::{Client, HandlerTable, Operation, Packet, Server};
use tokio::sync::mpsc;

const ECHO: Operation = Operation::new(20).unwrap();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let server = serve("tcp://127.0.0.1:0").await?;
            ask(&server.local_addr().to_string(), "hello").await?;
            server.shutdown(Duration::from_secs(1)).await;
            Ok(())
        }
        ["server", address] => {
            let _server = serve(address).await?;
            future::pending().await
        }
        ["client", address, text] => ask(address, text).await,
        _ => Err("usage: echo [server ADDRESS | client ADDRESS TEXT]".into()),
    }
}

async fn serve(address: &str) -> Result<Server, Box<dyn Error>> {
    let router = HandlerTable::new().on(ECHO, async |packet: Packet| {
        println!("server: sends back {:?}", packet.content);
        packet
    });
    let server = Server::builder(router).bind(address).await?;
    println!("server: listening on {}", server.local_addr());
    Ok(server)
}

async fn ask(address: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let (replies, mut inbox) = mpsc::unbounded_channel();
    let router = HandlerTable::new().on(ECHO, move |reply| {
        // Without a receiver, the reply is no longer needed.
        let _ = replies.send(reply);
        future::ready(())
    });
    let connection = Client::new(router).connect(address).await?;
    connection.send(Packet::new(1, ECHO, text.to_owned())).await?;
    let reply = inbox.recv().await.ok_or("the server closed the connection")?;
    println!("client: got {:?} back", reply.content);
    Ok(())
}
