//! Frisbee first, then raw bytes on the same socket: the client asks by packet, and then both sides stop sending
//! packets.

use std::{error::Error, time::Duration};

use frisbee::{Client, Connection, Operation, Outcome, Packet, Router, Server};
use tokio::{
    io::{self, AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::mpsc,
};

const GO_RAW: Operation = Operation::new(20).unwrap();

struct RawEcho;

impl Router for RawEcho {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        // The reply is written before the takeover completes, and no frisbee bytes follow it.
        if connection.try_send(packet).is_err() {
            return Outcome::Close;
        }
        let taken = connection.takeover();
        tokio::spawn(async move {
            let mut raw = taken.await?;
            raw.skip_heartbeats();
            println!("server: took the socket over, echoing bytes");
            let (mut reader, mut writer) = io::split(raw);
            io::copy(&mut reader, &mut writer).await?;
            writer.shutdown().await?;
            Ok::<(), Box<dyn Error + Send + Sync>>(())
        });
        Outcome::Nothing
    }
}

struct Replies(mpsc::UnboundedSender<Packet>);

impl Router for Replies {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Without a receiver, the reply is no longer needed.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(RawEcho).bind("tcp://127.0.0.1:0").await?;
    let (sender, mut replies) = mpsc::unbounded_channel();
    let connection = Client::new(Replies(sender)).connect(server.local_addr()).await?;

    connection.send(Packet::new(1, GO_RAW, "no more packets, please")).await?;
    let reply = replies.recv().await.ok_or("the server closed the connection")?;
    println!("client: server agrees to {:?}", reply.content);

    let mut raw = connection.takeover().await?;
    raw.skip_heartbeats();
    raw.write_all(b"plain bytes, no header\n").await?;
    let mut lines = BufReader::new(raw).lines();
    println!("client: hears {:?}", lines.next_line().await?.ok_or("the server closed the socket")?);
    drop(lines);
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
